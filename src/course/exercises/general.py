"""Mistakes that any exercise can show, whatever it computes.

They are found by looking at the form of the answer, not by comparing
numbers.
"""

from collections.abc import Sequence
from typing import Any

from course.exercises.compare import Answer, same
from course.exercises.result import Result
from course.exercises.sandbox import Outcome, to_array
from course.exercises.stages import Exercise, Mistake

MISTAKES = {m.id: m for m in (
    Mistake("returns-none", "None: the function returns nothing",
            "Every path must end in `return`; without it a function gives "
            "None.", {}, question="Which line gives the result back?",
            fix="return result"),
    Mistake("wrong-structure", "something else than what was asked for",
            "The answer is no array, or not as many arrays as asked for.",
            {}, question="What exactly does the docstring say about the "
                         "result?"),
    Mistake("in-place", "the right numbers, but an argument was overwritten",
            "`a -= b`, `a[...] = b`, `out=a` and torch's methods that end in "
            "an underscore write into the caller's array. The next cell "
            "would use the changed one without a word.", {},
            question="Which line writes into an array that the function did "
                     "not create?", fix="a = a - b"),
    Mistake("random", "a result that differs from call to call",
            "Something random, or kept between calls, is inside the "
            "function. It may use its arguments only.", {},
            question="What else than its arguments does the function use?"),
    Mistake("mask-not-bool", "the right pattern, but not booleans",
            "With numbers, `~mask` and `scores[mask]` do something else: ~1 "
            "is -2, and an integer array is taken for a list of places.", {},
            question="Which dtype has the result?", fix="mask.astype(bool)"),
)}


def named(exercise: Exercise, mistake_id: str, title: str, effect: str = "",
          **more: Any) -> Result:
    """Make the result that names one of these mistakes."""
    mistake = MISTAKES[mistake_id]
    return Result(exercise.id, "named", title, [(mistake_id,)],
                  [effect or mistake.effect_on(None)],  # type: ignore[arg-type]
                  question=mistake.question, **more)


def wrong_structure(exercise: Exercise, outcomes: Sequence[Outcome],
                    expected: Sequence[Answer]) -> Result | None:
    """Look for an answer that is not of the form that is asked for."""
    places = [n for n, outcome in enumerate(outcomes)
              if outcome.kind == "value"]
    if not places:
        return None
    first = next((n for n in places if outcomes[n].value is None), places[0])
    outcome, right = outcomes[first], expected[first]
    raw = outcome.raw
    several = isinstance(raw, tuple | list)
    if exercise.many:
        if outcome.value is not None:
            return None
        found = f"{len(raw)} values" if several else (
            f"a {type(raw).__name__}")
        return named(exercise, "wrong-structure",
                     f"Return the tuple ({', '.join(exercise.names)}).",
                     f"You returned {found}; {exercise.many} arrays are "
                     "asked for.")
    if several:
        assert not isinstance(right, tuple)
        if outcome.value is None or outcome.value.shape != right.shape:
            return _one_of_several(exercise, raw, right)
    if outcome.value is not None:
        return None
    if callable(raw):
        return named(exercise, "wrong-structure",
                     "You return a function, not its result.",
                     "Are the parentheses of a call missing?")
    asked = "An array" if exercise.axes else "A number"
    return named(exercise, "wrong-structure",
                 f"You return a {type(raw).__name__}.",
                 f"{asked} is asked for.")


def _one_of_several(exercise: Exercise, raw: Sequence[Any],
                    right: Answer) -> Result:
    arrays = [to_array(item, [])[0] for item in raw]
    hit = next((n for n, array in enumerate(arrays)
                if array is not None and same(array, right)), None)
    if hit is not None:
        return named(exercise, "wrong-structure",
                     f"You return {len(arrays)} values; one is asked for.",
                     f"Number {hit} of them, counted from 0, is the right "
                     "answer: return that alone.")
    return named(exercise, "wrong-structure", "Return one array.",
                 f"You returned a {type(raw).__name__} of {len(arrays)} "
                 "values.")


def wrong_dtype(exercise: Exercise,
                outcomes: Sequence[Outcome]) -> Result | None:
    """Look for a mask that is not boolean."""
    for outcome in outcomes if exercise.boolean else ():
        value = outcome.value
        if value is not None and not isinstance(value, tuple) and (
                value.dtype != bool):
            return named(exercise, "mask-not-bool", "The pattern is right, "
                         f"but its dtype is {outcome.precision} instead of "
                         "bool.")
    return None
