"""Exercises that ask for a number or a shape before anything runs.

The right answer is computed, and so are the wrong ones that can be named:
they are what the catalogued mistakes give for the same inputs.
"""

import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from course.exercises.registry import find
from course.exercises.result import Result
from course.exercises.stages import Case, Exercise, Mistake

#: The right answer, and the answers that mistakes lead to.
Outcomes: TypeAlias = tuple[Any, list[tuple[Mistake, Any]]]

#: The bytes of the units that an answer may be given in.
_BYTES = {"bytes": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30,
          "kB (1,000 bytes)": 10**3, "MB (10⁶ bytes)": 10**6,
          "GB (10⁹ bytes)": 10**9}

_WANTED = {"number": "a number", "shape": "a tuple of whole numbers",
           "numbers": "a list of numbers"}


@dataclass(eq=False)
class Prediction:
    """A question with a computed answer.

    Attributes:
        id: Name of the exercise and of the variable that holds the answer.
        title: A few words for headings and tables.
        chapter: Number of the chapter that it belongs to.
        difficulty: 1 to 3.
        minutes: How long it takes, about.
        task: The question.
        form: "number", "shape" or "numbers".
        placeholder: What the variable holds at first, and what it may hold.
        solution: Computes the answer; its docstring is the reason.
        outcomes: Gives the right answer and the wrong ones that have names.
        hints: Three, each saying more than the last.
        digits: Digits after the point that count.
        unit: "KiB", "MiB" or "GiB", if that is what is asked for.
    """

    id: str
    title: str
    chapter: int
    difficulty: int
    minutes: int
    task: str
    form: str
    placeholder: str
    solution: Callable[[], Any]
    outcomes: Callable[[], Outcomes]
    hints: tuple[str, str, str]
    digits: int = 2
    unit: str = ""
    mistakes: tuple[Mistake, ...] = field(default=(), init=False)

    @property
    def name(self) -> str:
        """The name of the variable in the notebook."""
        return self.id

    @property
    def prompt(self) -> str:
        """The question."""
        return self.task

    def stub(self) -> str:
        """What the learner starts from."""
        return f"{self.name} = {self.placeholder}\n"

    def solution_source(self) -> str:
        """The function that computes the answer, as text."""
        return inspect.getsource(self.solution)

    def solution_cell(self) -> str:
        """The right answer as an assignment."""
        answer = self.solution()
        if isinstance(answer, float):
            answer = round(float(answer), self.digits)
        return f"{self.name} = {answer!r}\n"

    def judge(self, answer: Any) -> Result:
        """Say whether an answer is right, or which mistake leads to it.

        Args:
            answer: What the learner predicts; ``...`` if nothing yet.
        """
        if answer is Ellipsis or answer is None:
            return Result(self.id, "not attempted", "Not attempted yet: "
                          "replace the dots by your prediction, then run "
                          "this again.")
        right, wrong = self.outcomes()
        given = self._read(answer)
        if given is None:
            return Result(self.id, "facts", "That is not "
                          f"{_WANTED[self.form]}.",
                          facts=[f"You gave {_brief(answer)}."])
        if self._equal(given, right):
            reason = inspect.cleandoc(self.solution.__doc__ or "")
            return Result(self.id, "passed", "Right.", notes=[reason])
        fitting = {m.identity: m for m, value in reversed(wrong)
                   if self._equal(given, value)}
        if fitting:
            return self._named(list(fitting.values()))
        return Result(self.id, "facts", "Not this.",
                      facts=self._facts(given, right))

    def _named(self, mistakes: list[Mistake]) -> Result:
        labels = [m.label for m in mistakes]
        if len(mistakes) == 1:
            return Result(
                self.id, "named", f"That would be {labels[0]}.",
                [(mistakes[0].id,)], why=mistakes[0].why,
                question=mistakes[0].question)
        return Result(
            self.id, "either", f"That would be either {'; or '.join(labels)}"
            ".", [(m.id,) for m in mistakes])

    def _read(self, answer: Any) -> Any:
        try:
            if self.form == "number":
                return float(answer)
            values = tuple(float(value) for value in answer)
        except (TypeError, ValueError):
            return None
        return values

    def _equal(self, given: Any, value: Any) -> bool:
        near = 0.5 * 10.0 ** -self.digits + 1e-9
        if self.form == "number":
            return math.isclose(given, float(value), rel_tol=0, abs_tol=near)
        values = tuple(value)
        return len(given) == len(values) and all(
            math.isclose(a, float(b), rel_tol=0, abs_tol=near)
            for a, b in zip(given, values))

    def _facts(self, given: Any, right: Any) -> list[str]:
        if self.form == "number":
            more = "small" if given < float(right) else "large"
            return (self._about_unit(given, float(right))
                    or [f"{given:g} is too {more}."])
        if len(given) != len(right):
            return [f"You gave {len(given)} numbers; the answer has "
                    f"{len(right)}."]
        if sorted(given) == sorted(map(float, right)):
            return ["These are the right numbers in another order."]
        places = [str(place) for place, (a, b) in enumerate(
            zip(given, right)) if a != float(b)]
        return [f"Wrong at place {', '.join(places)}, counted from 0."]


    def _about_unit(self, given: float, right: float) -> list[str]:
        """Recognise the right amount of bytes, counted in another unit."""
        if not self.unit:
            return []
        for unit, size in _BYTES.items():
            amount = right * _BYTES[self.unit] / size
            if unit != self.unit and amount >= 1 and (
                    abs(given - amount) <= max(0.5, 1e-3 * amount)):
                return [f"{given:g} is the answer in {unit}; asked for are "
                        f"{self.unit}."]
        return []


def outcomes_of(exercise: Exercise | str, case: Case,
                extract: Callable[[Any], Any], *, stage: str = "",
                index: Any = None) -> Outcomes:
    """Compute what the catalogue of an exercise gives for one case.

    Args:
        exercise: The exercise, or its id.
        case: The inputs that the question is about.
        extract: Takes from the result what the question asks for.
        stage: Stage whose value is asked for; the answer if empty.
        index: Part of that value.

    Returns:
        The right value, and each mistake with the value that it gives.
    """
    task = find(exercise) if isinstance(exercise, str) else exercise
    if not isinstance(task, Exercise):
        raise TypeError(f"{task.id} is not an exercise with stages")
    wanted = stage or task.last_stage

    def value(wrong: dict[str, Any]) -> Any:
        result = getattr(task.evaluate(case, wrong), wanted)
        return extract(result if index is None else result[index])

    with np.errstate(all="ignore"):
        right = value({})
        wrong = []
        for mistake in task.mistakes:
            try:
                given = value(mistake.wrong)
            except Exception:
                continue  # a mistake that raises an error gives no value
            if _is_comparable(given, right) and not _agree(given, right):
                wrong.append((mistake, given))
    return right, wrong


def _is_comparable(given: Any, right: Any) -> bool:
    return np.ndim(given) == np.ndim(right) and bool(
        np.isfinite(given).all())


def _agree(a: Any, b: Any) -> bool:
    return np.shape(a) == np.shape(b) and bool(np.allclose(a, b))


def _brief(value: Any) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= 60 else text[:57] + "..."
