"""The exercises by name, and the quizzes by chapter."""

import difflib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from course.exercises.predictions import Prediction
    from course.exercises.quizzes import Question
    from course.exercises.stages import Exercise

    Task = Exercise | Prediction

TaskType = TypeVar("TaskType", bound="Task")

_tasks: dict[str, "Task"] = {}
_aliases: dict[str, str] = {}
_questions: dict[int, list["Question"]] = {}
_shape_questions: dict[int, tuple[str, ...]] = {}


class UnknownExerciseError(LookupError):
    """There is no exercise of that name; the message lists all names."""


def register(task: TaskType, *aliases: str) -> TaskType:
    """Add an exercise or a prediction.

    Args:
        task: The exercise; a second one with the same id replaces the first.
        *aliases: Other names under which it is found.

    Returns:
        The exercise.
    """
    _tasks[task.id] = task
    for name in (task.name, *aliases):
        if name != task.id:
            _aliases[name] = task.id
    return task


def register_quiz(chapter: int, questions: Sequence["Question"],
                  shapes: Sequence[str] = ()) -> None:
    """Set the quiz of a chapter.

    Args:
        chapter: Number of the chapter.
        questions: Questions on concepts.
        shapes: Exercises about whose result's shape is asked.
    """
    _questions[chapter] = list(questions)
    _shape_questions[chapter] = tuple(shapes)


def find(name: str) -> "Task":
    """Give an exercise by its id or another of its names.

    Raises:
        UnknownExerciseError: There is none.
    """
    load_bank()
    try:
        return _tasks[_aliases.get(name, name)]
    except KeyError:
        near = difflib.get_close_matches(name, [*_tasks, *_aliases], n=1)
        meant = f" Is {near[0]!r} meant?" if near else ""
        raise UnknownExerciseError(
            f"There is no exercise {name!r}.{meant} There are: "
            f"{', '.join(_tasks)}.") from None


def tasks(chapter: int | None = None) -> Iterator["Task"]:
    """Give all exercises, or those of one chapter, in order."""
    load_bank()
    for task in _tasks.values():
        if chapter in (None, task.chapter):
            yield task


def chapters() -> list[int]:
    """Give the numbers of the chapters that have exercises."""
    return sorted({task.chapter for task in tasks()})


def quiz_of(chapter: int) -> tuple[list["Question"], tuple[str, ...]]:
    """Give the questions of a chapter and its shape questions."""
    load_bank()
    return _questions.get(chapter, []), _shape_questions.get(chapter, ())


def load_bank() -> None:
    """Register the course's own exercises."""
    from course.exercises import bank
    bank.load()
