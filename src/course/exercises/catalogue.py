"""Every mistake that the checker can name, each with what it does.

The data are those of the checks themselves. A mistake that several exercises
know is shown on the one whose small example shows it best.
"""

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np

from course.exercises import facts
from course.exercises.compare import same
from course.exercises.registry import find, tasks
from course.exercises.sandbox import Outcome
from course.exercises.stages import Case, Exercise, Mistake

_LONGEST = 160


@dataclass(frozen=True)
class Entry:
    """One mistake of the catalogue.

    Attributes:
        mistake: The mistake.
        exercise: The exercise on whose small example it is shown.
        known_to: Ids of all exercises that can name it.
    """

    mistake: Mistake
    exercise: Exercise
    known_to: tuple[str, ...]

    @property
    def anchor(self) -> str:
        """Name of the place on the page of mistakes."""
        return anchor(self.mistake.identity)


def anchor(mistake_id: str) -> str:
    """Name the place of a mistake on the page of mistakes."""
    return f"mistake-{mistake_id.lower()}"


def entries() -> list[Entry]:
    """Give every mistake once, ordered by chapter, then by exercise."""
    return list(_entries(tuple(task for task in tasks()
                               if isinstance(task, Exercise))))


@functools.cache
def _entries(exercises: tuple[Exercise, ...]) -> list[Entry]:
    places: dict[str, tuple[tuple[int, ...], Exercise, Mistake]] = {}
    known: dict[str, list[str]] = {}
    order = {task.id: number for number, task in enumerate(exercises)}
    for exercise in exercises:
        for mistake in exercise.mistakes:
            names = known.setdefault(mistake.identity, [])
            if exercise.id not in names:
                names.append(exercise.id)
            if exercise.tiny is None or mistake.id != mistake.identity:
                continue
            rank = (not _shows(exercise, mistake),
                    exercise.chapter != mistake.explained,
                    len(exercise.stages), order[exercise.id])
            if mistake.id not in places or rank < places[mistake.id][0]:
                places[mistake.id] = rank, exercise, mistake
    found = [Entry(mistake, exercise, tuple(known[mistake.id]))
             for _, exercise, mistake in places.values()]
    missing = set(known) - set(places)
    if missing:
        raise LookupError(f"no small example shows {sorted(missing)}")
    return sorted(found, key=lambda entry: (entry.mistake.explained,
                                            order[entry.exercise.id]))


def _shows(exercise: Exercise, mistake: Mistake) -> bool:
    """Whether a small example gives other numbers, not an error."""
    for case in _small(exercise):
        outcome = exercise.outcome(case, mistake.wrong)
        if outcome.kind == "value" and not same(
                outcome.value, exercise.expected(case)):
            return True
    return False


def _small(exercise: Exercise) -> list[Case]:
    if exercise.tiny is None:
        raise LookupError(f"{exercise.id} has no small example")
    return [make() for make in (exercise.tiny, *exercise.tiny_more)]


def brief(value: Any) -> str:
    """Write a value in one line, rounded to four digits."""
    if isinstance(value, tuple):
        return "; ".join(brief(item) for item in value)
    array = np.asarray(value)
    if array.dtype == bool:
        array = np.where(array, "T", "F")
    text = np.array2string(array, separator=" ", max_line_width=10**6,
                           threshold=10**6, formatter={
                               "str_kind": str, "float_kind": _digits})
    text = " ".join(text.split()).replace("[ ", "[")
    return text if len(text) <= _LONGEST else (
        f"{text[:_LONGEST - 4]} ... of shape {array.shape}")


def _digits(number: float) -> str:
    return f"{round(number, 4) + 0.0:g}"  # no -0


def symptom(exercise: Exercise, mistake: Mistake) -> str:
    """Say how a mistake shows on inputs that the check might draw."""
    failed, seen = "", ""
    for case in exercise.cases(np.random.default_rng(0)):
        outcome = exercise.outcome(case, mistake.wrong)
        if outcome.kind == "raise":
            failed = failed or f"An error on the input “{case.name}”."
        elif not seen and not same(outcome.value, exercise.expected(case)):
            seen = _difference(exercise, case, outcome)
    if failed and seen.startswith("No error"):
        seen = "Elsewhere no error and the right shape, but other numbers."
    return f"{failed} {seen}".strip()


def _difference(exercise: Exercise, case: Case, outcome: Outcome) -> str:
    assert outcome.value is not None
    found = facts.about_result(exercise, case, outcome.value,
                               exercise.expected(case))
    wrong = [fact for fact in found if not fact.endswith(" is right.")]
    if wrong:
        return wrong[0]
    return " ".join(["No error and the right shape, but other numbers.",
                     *found])


def _inputs(case: Case) -> str:
    return ", ".join(f"{name} = {brief(value)}"
                     for name, value in case.arguments.items())


class OnExample:
    """What the mistakes of one exercise do to its small example.

    Args:
        exercise: Id of the exercise.
        chapter: Only mistakes that this chapter explains; all if 0.
    """

    def __init__(self, exercise: str, chapter: int = 0) -> None:
        task = find(exercise)
        if not isinstance(task, Exercise):
            raise TypeError(f"{exercise} has no small example")
        self.exercise = task
        self.case, *self.others = _small(task)
        self.mistakes = [entry.mistake for entry in entries()
                         if entry.exercise is task
                         and chapter in (0, entry.mistake.explained)]

    def inputs(self) -> str:
        """The example's inputs in one line."""
        return _inputs(self.case)

    def right(self) -> str:
        """The right result."""
        return brief(self.exercise.expected(self.case))

    def rows(self) -> Iterator[tuple[Mistake, str, str]]:
        """Give each mistake, its result and how it shows."""
        for mistake in self.mistakes:
            yield (mistake, self.result_of(mistake),
                   symptom(self.exercise, mistake))

    def result_of(self, mistake: Mistake) -> str:
        """What the mistake makes of the example."""
        fails = False
        for case in (self.case, *self.others):
            outcome = self.exercise.outcome(case, mistake.wrong)
            right = self.exercise.expected(case)
            if outcome.kind == "raise":
                fails = True
            elif not same(outcome.value, right):
                found = brief(outcome.value)
                return found if case is self.case else (
                    f"{case.name}: {found} instead of {brief(right)}")
        return "an error" if fails else "the same: it does not show here"

    def __repr__(self) -> str:
        lines = [f"{self.exercise.name}, {self.case.name}: {self.inputs()}",
                 *(f"or {case.name}: {_inputs(case)}" for case
                   in self.others), f"right: {self.right()}"]
        for mistake, result, shows in self.rows():
            lines += [f"{mistake.id}: {result}", f"    {shows}"]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        head = "".join(f'<th scope="col" style="text-align:left">{name}</th>'
                       for name in ("Mistake", "Result",
                                    "How it shows on the check's inputs"))
        style = ' style="text-align:left"'
        body = f"<tr><td{style}>none</td><td{style}><code>" + escape(
            self.right()) + f"</code></td><td{style}></td></tr>"
        for mistake, result, shows in self.rows():
            name = escape(mistake.id)
            body += (f'<tr><th scope="row"{style}><a href="#'
                     f'{anchor(mistake.id)}"><code>{name}</code></a></th>'
                     f"<td{style}><code>{escape(result)}</code></td>"
                     f"<td{style}>{escape(shows)}</td></tr>")
        others = "".join(f"<br>or {escape(case.name)}: <code>"
                         f"{escape(_inputs(case))}</code>"
                         for case in self.others)
        return ('<div style="overflow-x:auto"><table><caption '
                'style="caption-side:top;text-align:left">'
                f"<code>{self.exercise.name}</code>, "
                f"{escape(self.case.name)}: <code>{escape(self.inputs())}"
                f"</code>{others}</caption><thead><tr>{head}</tr></thead><tbody>"
                f"{body}</tbody></table></div>")

    def _repr_mimebundle_(self, include: Any = None,
                          exclude: Any = None) -> dict[str, str]:
        return {"text/plain": repr(self), "text/html": self._repr_html_()}
