"""Hints in steps, and the solution for those who have tried."""

from typing import Any

from course.exercises import general, ledger
from course.exercises.registry import find
from course.exercises.stages import Mistake

TRIES_BEFORE_SOLUTION = 3


class Message:
    """A text that a notebook shows as it is.

    Args:
        text: Plain text.
        code: Source that follows it.
    """

    def __init__(self, text: str, code: str = "") -> None:
        self.text, self.code = text, code

    def __repr__(self) -> str:
        return "\n".join(part for part in (self.text, self.code) if part)

    def _repr_markdown_(self) -> str:
        code = f"\n\n```python\n{self.code.rstrip()}\n```" if self.code else ""
        return self.text + code


def ladder(exercise: str) -> list[str]:
    """Give the hints of an exercise in order.

    The first is the question that fits the last mistake that a check found;
    where none was found, the exercise's own question. The others say more
    each time.
    """
    task = find(exercise)
    mistake = _last_mistake(exercise)
    own = list(task.hints)
    if mistake is None:
        return own
    steps = [mistake.question or own[0], *own[1:]]
    if mistake.fix:
        steps.append(f"What is right at that place: `{mistake.fix}`.")
    return steps


def _last_mistake(exercise: str) -> Mistake | None:
    task = find(exercise)
    last = ledger.load().get(task.id, {}).get("last", "")
    first = last.split("|")[0].split("+")[0]
    if first in general.MISTAKES:
        return general.MISTAKES[first]
    known = {m.id: m for m in task.mistakes}
    return known.get(first)


def hint(exercise: Any, step: int | None = None) -> Message:
    """Give the next hint, or a certain one.

    Args:
        exercise: Name of the exercise, or its function.
        step: Number of the hint, from 1; the next one if None.
    """
    task = find(_name(exercise))
    steps = ladder(task.id)
    shown = ledger.load().get(task.id, {}).get("hints", 0)
    number = min(step or shown + 1, len(steps))
    ledger.note_hint(task.id, number)
    return Message(f"Hint {number} of {len(steps)}: {steps[number - 1]}")


def solution(exercise: Any, *, now: bool = False) -> Message:
    """Give the solution after a pass or three tries.

    Args:
        exercise: Name of the exercise, or its function.
        now: Whether to give it all the same.
    """
    task = find(_name(exercise))
    entry = ledger.load().get(task.id, {})
    missing = TRIES_BEFORE_SOLUTION - entry.get("tries", 0)
    if not (now or entry.get("passed") or missing <= 0):
        return Message(
            f"Try it first: the solution comes after {missing} more "
            f"{'check' if missing == 1 else 'checks'}. hint({task.id!r}) "
            f"helps; solution({task.id!r}, now=True) gives it at once.")
    return Message(f"A solution of {task.id}:", task.solution_source())


def _name(exercise: Any) -> str:
    return exercise if isinstance(exercise, str) else getattr(
        exercise, "__name__", "?")
