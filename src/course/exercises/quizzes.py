"""Questions in the page: no kernel, no script, any keyboard.

Every option is a ``<details>`` element: opening it is choosing it, and what
it says is the answer's verdict. A browser and a screen reader handle that by
themselves. In a question about a shape, the right option is the shape of the
right result and the wrong ones are the shapes that mistakes give, computed
from the catalogue.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import numpy as np

from course.exercises.registry import find, quiz_of
from course.exercises.shapes import axis_names
from course.exercises.stages import Case, Exercise, Mistake

MAX_OPTIONS = 4


@dataclass(frozen=True)
class Option:
    """One answer to choose.

    Attributes:
        text: The answer.
        right: Whether it is right.
        reply: What is said when it is chosen.
        mistake: Id of the mistake that it is the result of.
    """

    text: str
    right: bool
    reply: str
    mistake: str = ""


@dataclass(frozen=True)
class Question:
    """A question with options, one of them right."""

    text: str
    options: Sequence[Option]


def shape_question(name: str) -> Question:
    """Ask for the shape of an exercise's result.

    Args:
        name: Name of the exercise.

    Returns:
        A question whose wrong options are the shapes of known mistakes.
    """
    exercise = find(name)
    if not isinstance(exercise, Exercise):
        raise TypeError(f"{name} has no stages")
    case = max(exercise.cases(np.random.default_rng(0)),
               key=lambda each: (len(set(each.dims.values())),
                                 len(each.dims)))
    given = ", ".join(
        f"`{key}` {axis_names(np.shape(value), case.dims)}"
        for key, value in case.arguments.items() if np.ndim(value))
    if not given:
        given = ", ".join(f"`{key}` {value}"
                          for key, value in case.arguments.items())
    right, wrong = _shapes(exercise, case)
    options = [Option(f"`{right}`", True, "That is the shape.")]
    options += [Option(f"`{shape}`", False, "That is the shape of "
                       f"{mistake.label}. {mistake.question}",
                       mistake=mistake.id)
                for shape, mistake in wrong]
    options.sort(key=lambda option: option.text)
    noun = "shape have the arrays" if exercise.many else (
        "shape has the result")
    return Question(f"`{exercise.name}` gets {given}. Which {noun}?", options)


def _shapes(exercise: Exercise, case: Case
            ) -> tuple[str, list[tuple[str, Mistake]]]:
    def shape_of(value: object) -> str:
        array = value[0] if isinstance(value, tuple) else value
        return axis_names(np.shape(array), case.dims)

    right = shape_of(exercise.expected(case))
    wrong: dict[str, Mistake] = {}
    for mistake in exercise.mistakes:
        outcome = exercise.outcome(case, mistake.wrong)
        if outcome.kind != "value" or not mistake.question:
            continue
        shape = shape_of(outcome.value)
        if shape != right and "?" not in shape:
            wrong.setdefault(shape, mistake)
    return right, list(wrong.items())[:MAX_OPTIONS - 1]


def questions_of(chapter: int) -> list[Question]:
    """Give all questions of a chapter, those about shapes first."""
    written, shapes = quiz_of(chapter)
    return [*(shape_question(name) for name in shapes), *written]


def as_html(question: Question, number: int) -> str:
    """Write one question as HTML that needs no script.

    Args:
        question: The question.
        number: Its number, for its name.
    """
    options = "".join(
        f"<li><details><summary>{_code(option.text)}</summary>"
        f"<p>{'✓ Right.' if option.right else '✗ No.'} "
        f"{_code(option.reply)}</p></details></li>"
        for option in question.options)
    return (f'<section class="quiz" aria-label="Question {number}">'
            f"<p><strong>Question {number}.</strong> "
            f"{_code(question.text)}</p>"
            f'<ul style="list-style:none;padding-left:1em">{options}</ul>'
            "</section>")


def _code(text: str) -> str:
    pieces = escape(text, quote=False).split("`")
    if len(pieces) % 2 == 0:
        return escape(text, quote=False)
    return "".join(f"<code>{piece}</code>" if place % 2 else piece
                   for place, piece in enumerate(pieces))


def chapter_html(chapter: int) -> str:
    """Write all questions of a chapter as HTML."""
    return "\n".join(as_html(question, number) for number, question
                     in enumerate(questions_of(chapter), start=1))


class Quiz:
    """The questions of a chapter, for a notebook or a terminal.

    Args:
        chapter: Number of the chapter.
    """

    def __init__(self, chapter: int) -> None:
        self.chapter = chapter

    def _repr_html_(self) -> str:
        return chapter_html(self.chapter)

    def __repr__(self) -> str:
        lines = []
        for number, question in enumerate(questions_of(self.chapter), 1):
            lines.append(f"{number}. {question.text}")
            lines += [f"   {letter}) {option.text}" for letter, option
                      in zip("abcdef", question.options)]
        return "\n".join(lines)


def quiz(chapter: int) -> Quiz:
    """Show the questions of a chapter.

    Args:
        chapter: Number of the chapter.
    """
    return Quiz(chapter)
