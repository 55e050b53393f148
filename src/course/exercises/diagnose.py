"""Find the mistakes whose numbers are exactly the learner's.

A name needs equality in every case: a crash must meet a crash, NaN must meet
NaN, and at least one case must have numbers that could tell. Where several
mistakes fit, all are given.
"""

import itertools
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, TypeAlias

import numpy as np
from numpy import ndarray

from course.exercises.compare import NEAR_TIE, same, tolerance
from course.exercises.sandbox import Outcome
from course.exercises.stages import (
    Case,
    Exercise,
    Mistake,
    Stages,
    State,
    Style,
)
from course.exercises.trace import Seen, look_for

#: One mistake, or two made together.
Finding: TypeAlias = tuple[Mistake, ...]

#: Pairs beyond this number are not tried. A number, not a time, so that the
#: verdict does not depend on the load of the machine.
MAX_PAIRS = 1500


class _Bench:
    """What mistakes give in one case, against what the learner's code gave.

    The stages before the first wrong one are computed once and shared.
    """

    def __init__(self, exercise: Exercise, case: Case, outcome: Outcome,
                 precision: str) -> None:
        self.exercise, self.case = exercise, case
        self.outcome, self.precision = outcome, precision
        self.right: dict[Style, State] = {}
        self.spoiled: dict[tuple[str, Style], State | None] = {}
        self.sample: tuple[ndarray, ndarray, ndarray] | None = None
        value = outcome.value
        if isinstance(value, ndarray) and value.size:
            numbers = value.astype(float).ravel()
            places = np.array([0, value.size // 2, value.size - 1])
            finite = np.abs(numbers[np.isfinite(numbers)])
            largest = float(finite.max()) if finite.size else 1.0
            margin = 40 * tolerance(precision)[0] * max(1.0, largest)
            self.sample = (places, numbers[places] - margin,
                           numbers[places] + margin)

    def agrees(self, finding: Finding, style: Style,
               slack: float = 1.0) -> bool:
        """Say whether a mistake, or a pair, gives the learner's outcome."""
        state = self._state(finding, style)
        if state is None:
            return self.outcome.kind == "raise"
        if self.outcome.kind != "value":
            return False
        raw = getattr(state, self.exercise.last_stage)
        if self._is_far(raw):
            return False
        return same(self.outcome.value, self.exercise.answer(state),
                    self.precision, slack)

    def _is_far(self, raw: Any) -> bool:
        """Cheap first look: another shape, or another number in one place."""
        if not isinstance(raw, ndarray) or self.sample is None:
            return False
        value = self.outcome.value
        if raw.shape != getattr(value, "shape", None):
            return True
        places, low, high = self.sample
        numbers = raw.ravel()[places].astype(float)
        with np.errstate(invalid="ignore"):
            return bool(((numbers < low) | (numbers > high)
                         | (np.isnan(numbers) != np.isnan(low))).any())

    def _state(self, finding: Finding, style: Style) -> State | None:
        first = self._one(finding[0], style)
        if len(finding) == 1:
            return first
        wrong = {**finding[0].wrong, **finding[1].wrong}
        if first is None:  # the second mistake may mend the error
            return self._resume(self.right[style], self._start(finding[0]),
                                wrong)
        return self._resume(first, self._start(finding[1]), wrong)

    def _one(self, mistake: Mistake, style: Style) -> State | None:
        key = (mistake.id, style)
        if key not in self.spoiled:
            if style not in self.right:
                self.right[style] = self.exercise.evaluate(
                    self.case, {}, style)
            self.spoiled[key] = self._resume(
                self.right[style], self._start(mistake), mistake.wrong)
        return self.spoiled[key]

    def _start(self, mistake: Mistake) -> int:
        return min(self.exercise.position[name] for name in mistake.wrong)

    def _resume(self, state: State, start: int,
                wrong: Stages) -> State | None:
        copied = SimpleNamespace()
        copied.__dict__.update(state.__dict__)
        try:
            return self.exercise.resume(copied, start, wrong)
        except Exception:
            return None


def diagnose(exercise: Exercise, cases: Sequence[Case],
             outcomes: Sequence[Outcome], precision: str,
             unseen: list[str] | None = None) -> list[Finding]:
    """Find the mistakes that give the learner's outcome in every case.

    Args:
        exercise: The exercise.
        cases: The inputs.
        outcomes: What the learner's code gave for each.
        precision: Name of the dtype that it computed in.
        unseen: Stages whose right value did not occur in the learner's run;
            None if nothing is known.

    Returns:
        What fits: nothing, one finding, or several that cannot be told
        apart.
    """
    telling = [n for n, outcome in enumerate(outcomes)
               if _is_telling(exercise, outcome)]
    if not telling:
        return []
    order = [telling[0], *(n for n in range(len(cases)) if n != telling[0])]
    benches = [_Bench(exercise, cases[n], outcomes[n], precision)
               for n in order]

    def fits(finding: Finding, style: Style, slack: float = 1.0) -> bool:
        return all(bench.agrees(finding, style, slack) for bench in benches)

    def search(candidates: Sequence[Finding]
               ) -> tuple[list[Finding], Style | None]:
        for number, style in enumerate(exercise.styles):
            found = [each for each in candidates
                     if (number == 0 or any(m.styled for m in each))
                     and fits(each, style)]
            if found:
                return found, style
        return [], None

    singles: list[Finding] = [(mistake,) for mistake in exercise.mistakes]
    with np.errstate(all="ignore"):
        found, style = search(singles)
        if found and style is not None:
            near = [each for each in singles
                    if each not in found and fits(each, style, NEAR_TIE)]
            return _distinct(found + near)
        if len(exercise.stages) == 1 or unseen == []:
            return []
        found, _ = search(_pairs(exercise, unseen))
    return _distinct(found)


def _is_telling(exercise: Exercise, outcome: Outcome) -> bool:
    """Say whether a result could tell one mistake from another.

    A result that is NaN throughout tells nothing. One that mixes NaN and inf
    does where it is the work of a single stage, as for a mask of 0 and -inf.
    """
    if outcome.has_numbers or len(exercise.stages) > 1:
        return outcome.has_numbers
    value = outcome.value
    return isinstance(value, ndarray) and value.dtype.kind == "f" and bool(
        np.isnan(value).any() and np.isinf(value).any())


def _pairs(exercise: Exercise, unseen: list[str] | None) -> list[Finding]:
    """Pairs of mistakes in different stages, the earlier one first."""
    place = exercise.position

    def start(mistake: Mistake) -> int:
        return min(place[name] for name in mistake.wrong)

    # A stage whose right value occurred is not where it goes wrong.
    earliest = min((place[name] for name in unseen), default=0) if (
        unseen) else 0
    single = [m for m in exercise.mistakes if m.in_pairs]
    single.sort(key=start)
    pairs = [(a, b) for a, b in itertools.combinations(single, 2)
             if not set(a.wrong) & set(b.wrong) and start(a) >= earliest]
    return pairs[:MAX_PAIRS]


def _distinct(found: Sequence[Finding]) -> list[Finding]:
    """Drop what is the same mistake in another spelling."""
    kept: dict[frozenset[str], Finding] = {}
    for finding in found:
        kept.setdefault(frozenset(m.identity for m in finding), finding)
    return list(kept.values())


def break_tie(exercise: Exercise, case: Case, findings: list[Finding],
              seen: list[Seen]) -> list[Finding]:
    """Prefer the finding whose stages all occurred in the learner's run.

    Args:
        exercise: The exercise.
        case: The inputs of the run.
        findings: Mistakes with the same outcome.
        seen: What occurred in the run.

    Returns:
        The one finding of which every stage occurred, or all as they were.
    """
    for style in exercise.styles:
        complete = [finding for finding in findings
                    if _all_seen(exercise, case, finding, style, seen)]
        if len(complete) == 1:
            return complete
    return findings


def _all_seen(exercise: Exercise, case: Case, finding: Finding, style: Style,
              seen: list[Seen]) -> bool:
    wrong = {name: stage for mistake in finding
             for name, stage in mistake.wrong.items()}
    try:
        with np.errstate(all="ignore"):
            state = exercise.evaluate(case, wrong, style)
    except Exception:
        return False
    values = [getattr(state, name) for name in exercise.stages]
    return all(look_for(value, seen, exact=True) is not None
               for value in values if isinstance(value, ndarray))
