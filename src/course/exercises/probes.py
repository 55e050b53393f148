"""True statements about a wrong function, found by trying it on inputs.

A probe is called with a runner, the exercise, a case and the right answer's
pipeline; it gives sentences, or none.
"""

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from numpy import ndarray

from course.exercises.compare import same
from course.exercises.sandbox import Outcome, is_tensor
from course.exercises.stages import Case, Exercise

#: Runs the learner's function on arguments by name.
Runner: TypeAlias = Callable[[dict[str, Any]], Outcome]
Probe: TypeAlias = Callable[[Runner, Exercise, Case], list[str]]


def _expected(exercise: Exercise, case: Case,
              arguments: dict[str, Any]) -> ndarray:
    answer = exercise.expected(Case(case.name, arguments, case.dims))
    assert isinstance(answer, ndarray)
    return answer


def _array(outcome: Outcome, like: ndarray) -> ndarray | None:
    value = outcome.value
    if outcome.kind != "value" or not isinstance(value, ndarray):
        return None
    if value.shape != like.shape or value.dtype.kind not in "fiub":
        return None
    return value if np.isfinite(value).all() else None


def weights_used(run: Runner, exercise: Exercise, case: Case) -> list[str]:
    """Find the weights that a program really uses.

    The output is weights @ value, so with the identity as values the output
    shows the weights.
    """
    value = case.arguments["value"]
    batch, key_len = value.shape[:2]
    eye = np.broadcast_to(np.eye(key_len), (batch, key_len, key_len)).copy()
    arguments = {**case.arguments, "value": eye}
    right = _expected(exercise, case, arguments)
    weights = _array(run(arguments), right)
    if weights is None:
        return []
    halved = run({**arguments, "value": eye * 0.5})
    if halved.kind != "value" or not same(halved.value, 0.5 * weights):
        return ["The output is no weighted sum of the values: half the "
                "values do not give half the output."]
    if same(weights, right):
        return ["Your weights are right. What goes wrong happens to the "
                "values, or afterwards."]
    return [*_row_sums(weights), *_masked(weights, right, case),
            *_rows(weights, right), *_mixed_batch(run, case)]


def _row_sums(weights: ndarray) -> list[str]:
    sums = weights.sum(-1)
    if same(sums, np.ones_like(sums)):
        return []
    return ["The weights that your program uses sum to "
            f"{sums.min():.3g} ... {sums.max():.3g} for one query; it must "
            "be 1."]


def _masked(weights: ndarray, right: ndarray, case: Case) -> list[str]:
    facts = []
    mask = case.arguments.get("attention_mask")
    if isinstance(mask, ndarray):
        hidden, seen = weights[:, ~mask], weights[:, mask]
        if np.abs(hidden).max() > 1e-6:
            facts.append("Masked keys still get weight, up to "
                         f"{np.abs(hidden).max():.3g}.")
        if np.abs(seen).min() < 1e-9 < right[:, mask].min():
            facts.append("Some keys that the mask allows get the weight 0.")
    dead = [str(key) for key in range(weights.shape[-1])
            if np.abs(weights[..., key]).max() < 1e-12
            < np.abs(right[..., key]).max()]
    if dead:
        facts.append(f"Key {', '.join(dead)} never gets any weight.")
    return facts


def _rows(weights: ndarray, right: ndarray) -> list[str]:
    wrong = [str(row) for row in range(weights.shape[1])
             if not same(weights[:, row], right[:, row])]
    if not wrong or len(wrong) == weights.shape[1]:
        return []
    return [f"The weights of query {', '.join(wrong)} are wrong, all others "
            "are right."]


def _mixed_batch(run: Runner, case: Case) -> list[str]:
    value = case.arguments["value"]
    moved = value.copy()
    moved[0] += 1.0
    before, after = run(case.arguments), run({**case.arguments,
                                              "value": moved})
    if (isinstance(before.value, ndarray) and isinstance(after.value, ndarray)
            and before.value.ndim and len(before.value) > 1
            and not same(after.value[1:], before.value[1:])):
        return ["Values of sequence 0 reach the outputs of other sequences."]
    return []


def influence(*names: str) -> Probe:
    """Find which input positions each output position depends on.

    Args:
        *names: Arguments with axes (batch, seq_len, features), changed
            together.
    """
    def changed(case: Case, where: tuple[Any, ...]) -> dict[str, Any]:
        rng = np.random.default_rng(1)
        arguments = dict(case.arguments)
        for name in names:
            value = arguments[name]
            moved = value.clone() if is_tensor(value) else value.copy()
            noise = rng.normal(size=tuple(moved[where].shape))
            moved[where] += (moved.new_tensor(noise) if is_tensor(value)
                             else noise)
            arguments[name] = moved
        return arguments

    def probe(run: Runner, exercise: Exercise, case: Case) -> list[str]:
        right = _expected(exercise, case, case.arguments)
        before = _array(run(case.arguments), right)
        if before is None:
            return []
        facts = []
        after = _array(run(changed(case, (0,))), right)
        if after is not None and not same(after[1:], before[1:]):
            facts.append("A change in sequence 0 changes the outputs of "
                         "other sequences.")
        size = right.shape[1]
        found = np.zeros((size, size), bool)
        wanted = np.zeros((size, size), bool)
        for source in range(size):
            arguments = changed(case, (slice(None), source))
            after = _array(run(arguments), right)
            if after is None:
                return facts
            expected = _expected(exercise, case, arguments)
            for place in range(size):
                found[place, source] = not same(after[:, place],
                                                before[:, place])
                wanted[place, source] = not same(expected[:, place],
                                                 right[:, place])
        return facts + _leaks(found, wanted)

    return probe


def _leaks(found: ndarray, wanted: ndarray) -> list[str]:
    facts = []
    for place, source in np.argwhere(found & ~wanted)[:1]:
        future = ", which is the future" if source > place else ""
        facts.append(f"Output position {place} depends on input position "
                     f"{source}{future}; it must not.")
    for place, source in np.argwhere(~found & wanted)[:1]:
        facts.append(f"Output position {place} does not depend on input "
                     f"position {source}; it should.")
    return facts


def origin(axes: tuple[str, ...], part: str) -> Probe:
    """Find where the numbers of a re-arrangement came from.

    Args:
        axes: Names of the input's axes.
        part: Name of the output's axis 1, such as "head".
    """
    def describe(result: ndarray, index: int,
                 shape: tuple[int, ...]) -> str:
        numbers = np.take(result, index, axis=1)[0].astype(int).ravel()
        places = np.unravel_index(numbers, shape)
        return ", ".join(f"{axis} {_span(sorted(set(place.tolist())))}"
                         for axis, place in list(zip(axes, places))[1:])

    def probe(run: Runner, exercise: Exercise, case: Case) -> list[str]:
        name, value = next(iter(case.arguments.items()))
        coded = np.arange(value.size, dtype=float).reshape(value.shape)
        arguments = {**case.arguments, name: coded}
        right = _expected(exercise, case, arguments)
        result = _array(run(arguments), right)
        if result is None:
            return []
        if sorted(result.ravel().tolist()) != coded.ravel().tolist():
            return ["Some input numbers are missing or appear twice; here "
                    "numbers only move."]
        wrong = [index for index in range(right.shape[1])
                 if not np.array_equal(result[:, index], right[:, index])]
        if not wrong:
            return []
        yours = describe(result, wrong[0], coded.shape)
        wanted = describe(right, wrong[0], coded.shape)
        order = " (the same numbers in another order)" if (
            yours == wanted) else ""
        return [f"Your {part} {wrong[0]} is made of {yours} of the input; it "
                f"should be {wanted}{order}."]

    return probe


def _span(numbers: list[int]) -> str:
    if len(numbers) > 1 and numbers == list(range(numbers[0],
                                                  numbers[-1] + 1)):
        return f"{numbers[0]} to {numbers[-1]}"
    return ", ".join(map(str, numbers))


def normalisation(run: Runner, exercise: Exercise, case: Case) -> list[str]:
    """Look at the rows with gamma = 1 and beta = 0."""
    arguments = {**case.arguments,
                 "gamma": np.ones_like(case.arguments["gamma"]),
                 "beta": np.zeros_like(case.arguments["beta"])}
    right = _expected(exercise, case, arguments)
    result = _array(run(arguments), right)
    if result is None:
        return []
    plain = "With gamma = 1 and beta = 0"
    means, ratio = result.mean(-1), result.std(-1) / right.std(-1)
    facts = []
    if np.abs(means).max() > 1e-4:
        facts.append(f"{plain} your rows have means from {means.min():.3g} "
                     f"to {means.max():.3g}; they must be 0.")
    if np.abs(ratio - 1).max() > 1e-3:
        facts.append(f"{plain} your rows spread {ratio.min():.3g} to "
                     f"{ratio.max():.3g} times as far as they should.")
    if not facts and same(result, right):
        facts.append(f"{plain} your result is right: look at how gamma and "
                     "beta are used.")
    return facts
