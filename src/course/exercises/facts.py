"""True statements about a wrong result that need no catalogue."""

import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy import ndarray

from course.exercises.compare import Answer, identical, same
from course.exercises.probes import Runner
from course.exercises.result import StageMark, Table
from course.exercises.sandbox import is_tensor, torch_if_loaded
from course.exercises.shapes import named_shape
from course.exercises.stages import Case, Exercise, Mistake
from course.exercises.trace import Seen, look_for

SHOWN = 4  # rows and columns of the table


def about_result(exercise: Exercise, case: Case, found: Answer,
                 expected: Answer) -> list[str]:
    """Compare a wrong result with the right one.

    Args:
        exercise: The exercise.
        case: The inputs.
        found: The learner's result.
        expected: The right result.
    """
    if not isinstance(found, tuple) or not isinstance(expected, tuple):
        assert isinstance(found, ndarray)
        assert isinstance(expected, ndarray)
        return _about_array(exercise, case, found, expected)
    facts = []
    for name, mine, right in zip(exercise.names, found, expected):
        instead = next((other for other, value, theirs in zip(
            exercise.names, expected, found) if same(mine, value)
            and (mine.dtype == bool) == (value.dtype == bool)
            and (mine.size > 1 or same(theirs, right))), "")  # no chance
        if same(mine, right):
            facts.append(f"`{name}` is right.")
        elif instead:
            facts.append(f"What stands where `{name}` must stand is "
                         f"`{instead}`.")
        else:
            facts += [f"`{name}`: {fact}" for fact in _about_array(
                exercise, case, mine, right)]
    return facts


def _about_array(exercise: Exercise, case: Case, found: ndarray,
                 expected: ndarray) -> list[str]:
    if found.shape != expected.shape:
        return _about_shape(case, found, expected)
    if found.dtype.kind == "c":
        return ["Your result holds complex numbers."]
    if expected.dtype.kind == "b":
        return _about_booleans(found, expected)
    if found.dtype.kind in "iub" and expected.dtype.kind == "f" and (
            expected != np.trunc(expected)).any():
        return [f"Your result has the dtype {found.dtype}: fractions are cut "
                "off. Was the result made with the dtype of an integer?"]
    mine, right = found.astype(float), expected.astype(float)
    if not np.isfinite(mine).all() and np.isfinite(right).all():
        return _about_infinite(mine)
    for fact in _about_order(mine, right, case):
        return [fact]
    return [*_about_sums(exercise, mine, right),
            *_about_places(exercise, mine, right)]


def _about_shape(case: Case, found: ndarray,
                 expected: ndarray) -> list[str]:
    facts = [f"Its shape is {named_shape(found.shape, case.dims)}; it must "
             f"be {named_shape(expected.shape, case.dims)}."]
    if found.ndim == expected.ndim:
        for order in itertools.permutations(range(expected.ndim)):
            if same(found, expected.transpose(order)):
                facts.append("The numbers are right, but the axes come in "
                             f"the order {order}.")
                return facts
    if found.size == expected.size and same(
            found.reshape(expected.shape), expected):
        facts.append("The numbers are right and in the right order; only the "
                     "shape differs.")
    return facts


def _about_booleans(found: ndarray, expected: ndarray) -> list[str]:
    if found.dtype.kind == "f" and np.isneginf(found).any() and (
            np.isneginf(found) | (found == 0)).all():
        pattern = " Its pattern is right." if np.array_equal(
            found == 0, expected) else ""
        return ["Your result holds 0 and -inf, to be added to scores; "
                f"booleans are asked for, True = may attend.{pattern}"]
    wrong = found.astype(bool) != expected
    if wrong.all():
        return ["Every entry is the opposite of the right one."]
    first = tuple(int(n) for n in np.argwhere(wrong)[0])
    return [f"{int(wrong.sum())} of {wrong.size} entries are wrong, the first "
            f"at {first}: it is {bool(found[first])} and must be "
            f"{bool(expected[first])}."]


def _about_infinite(mine: ndarray) -> list[str]:
    facts = []
    for test, name in ((np.isnan, "NaN"), (np.isinf, "infinite")):
        hit = test(mine)
        if hit.all():
            facts.append(f"It is {name}." if mine.ndim == 0 else
                         f"Every number is {name}.")
        elif hit.any():
            first = tuple(int(n) for n in np.argwhere(hit)[0])
            facts.append(f"{int(hit.sum())} of {mine.size} numbers are "
                         f"{name}, the first at {first}.")
    return facts


def _about_order(mine: ndarray, right: ndarray,
                 case: Case) -> Iterator[str]:
    factor = _constant_factor(mine, right)
    if mine.size > 1 and same(mine, np.zeros_like(mine)):
        yield "Every number is 0."
    if factor is not None:
        yield (f"Every number is {factor:.4g} times the right one"
               f"{_name_of(factor, case)}.")
    with np.errstate(invalid="ignore"):  # inf - inf
        difference = mine - right
    largest = max(1.0, float(np.abs(right).max(initial=0)))
    if np.isfinite(difference).all() and difference.size > 1 and (
            np.ptp(difference) < 1e-6 * largest):
        yield (f"Every number is off by the same amount, "
               f"{difference.flat[0]:+.4g}.")
    for order in itertools.permutations(range(right.ndim)):
        turned = right.transpose(order)
        if order != tuple(range(right.ndim)) and same(mine, turned):
            yield f"It is the right array with its axes in the order {order}."
    if same(np.sort(mine, None), np.sort(right, None)):
        yield "These are exactly the right numbers, in the wrong places."


def _constant_factor(mine: ndarray, right: ndarray) -> float | None:
    large = np.abs(right) > 1e-6 * np.abs(right).max(initial=0)
    if large.sum() < 2:
        return None
    ratio = mine[large] / right[large]
    factor = float(np.median(ratio))
    constant = np.allclose(ratio, factor, rtol=1e-4)
    if constant and abs(factor - 1) > 1e-3 and same(mine, factor * right):
        return factor
    return None


def _name_of(factor: float, case: Case) -> str:
    for name, size in case.dims.items():
        for text, value in ((f"√{name}", math.sqrt(size)), (name, size),
                            (f"1/√{name}", 1 / math.sqrt(size)),
                            (f"1/{name}", 1 / size)):
            if math.isclose(factor, value, rel_tol=1e-3):
                return f", which is {text} ({name} = {size})"
    for (name, size), (other, length) in itertools.permutations(
            case.dims.items(), 2):
        if math.isclose(factor, math.sqrt(size / length), rel_tol=1e-3):
            return f", which is √({name}/{other}) = √({size}/{length})"
    return ""


def _axes(exercise: Exercise, ndim: int) -> tuple[str, ...]:
    if len(exercise.axes) == ndim:
        return exercise.axes
    if ndim == 1:
        return ("place",)
    return tuple(f"axis {axis}" for axis in range(ndim))


def _about_sums(exercise: Exercise, mine: ndarray,
                right: ndarray) -> list[str]:
    if not right.ndim or not same(right.sum(-1), np.ones(right.shape[:-1])):
        return []
    if (right < 0).any():
        return []
    for axis, name in enumerate(_axes(exercise, right.ndim)):
        sums = mine.sum(axis)
        if same(sums, np.ones_like(sums)):
            if axis == right.ndim - 1:
                return []
            return [f"Your weights sum to 1 over axis {axis} ({name}) instead "
                    "of the last one."]
    sums = mine.sum(-1)
    low, high = f"{sums.min():.3g}", f"{sums.max():.3g}"
    sums_are = f"all sum to {low}" if low == high else (
        f"sum to anything from {low} to {high}")
    return [f"Rows must sum to 1; yours {sums_are}."]


def _about_places(exercise: Exercise, mine: ndarray,
                  right: ndarray) -> list[str]:
    wrong = _differs(mine, right)
    if not wrong.any() or wrong.all():
        return []
    where = []
    for axis, name in enumerate(_axes(exercise, right.ndim)):
        hit = np.unique(np.nonzero(wrong)[axis])
        if len(hit) < right.shape[axis]:
            more = " ..." if len(hit) > 6 else ""
            where.append(f"{name} {', '.join(map(str, hit[:6]))}{more}")
    places = f", all of them at {'; '.join(where)}" if where else ""
    return [f"{int(wrong.sum())} of {wrong.size} numbers are wrong{places}."]


def _differs(mine: ndarray, right: ndarray) -> ndarray:
    return ~np.isclose(mine, right, rtol=1e-4, atol=1e-5, equal_nan=True)


# -- which arguments matter -------------------------------------------------

def about_arguments(run: Runner, exercise: Exercise, case: Case,
                    given: dict[str, Any], seed: int) -> list[str]:
    """Say which arguments play no part, by changing one after another.

    Args:
        run: Runs the learner's function.
        exercise: The exercise.
        case: The inputs.
        given: The same inputs as the function gets them.
        seed: Draws the changes.
    """
    before = run(given)
    if before.kind != "value" or not before.has_numbers:
        return []
    rng = np.random.default_rng([seed, 77])
    expected = exercise.expected(case)
    ignored, used = [], 0
    for name, value in given.items():
        changed = _changed(value, rng)
        if changed is None:
            continue
        after = run({**given, name: changed})
        if after.kind != "value" or not same(after.value, before.value):
            used += 1
            continue
        other = Case(case.name, {**case.arguments, name: _like(
            changed, case.arguments[name])}, case.dims)
        if not same(exercise.expected(other), expected):
            ignored.append(name)
    if ignored and not used:
        return ["The result is the same for entirely different inputs. Is it "
                "written down, or computed from variables of the notebook?"]
    if ignored:
        names = "`, `".join(ignored)
        return [f"A change in `{names}` does not change your result: it is "
                "not used, or a variable of the notebook with that name is."]
    return []


def _changed(value: Any, rng: np.random.Generator) -> Any:
    if is_tensor(value):
        if value.is_floating_point():
            return value.new_tensor(rng.normal(size=tuple(value.shape)))
        torch = torch_if_loaded()
        return ~value if torch and value.dtype == torch.bool else None
    if isinstance(value, ndarray):
        if value.dtype.kind == "f":
            return rng.normal(size=value.shape)
        return ~value if value.dtype.kind == "b" else None
    return None


def _like(changed: Any, original: Any) -> Any:
    if is_tensor(changed) and isinstance(original, ndarray):
        return changed.numpy()
    return changed


# -- the table of the first difference --------------------------------------

def first_difference(exercise: Exercise, case: Case, found: Answer,
                     expected: Answer) -> Table | None:
    """Cut out the corner of a wrong result where it first differs.

    Args:
        exercise: The exercise.
        case: The inputs.
        found: The learner's result.
        expected: The right result.

    Returns:
        Both corners, or None where the shapes differ.
    """
    label = ""
    if isinstance(found, tuple) and isinstance(expected, tuple):
        pick = next((n for n, (a, b) in enumerate(zip(found, expected))
                     if not same(a, b)), 0)
        label = f"`{exercise.names[pick]}`, "
        found, expected = found[pick], expected[pick]
    assert isinstance(found, ndarray)
    assert isinstance(expected, ndarray)
    if found.shape != expected.shape or found.dtype.kind not in "fbiu":
        return None
    if expected.ndim == 0:
        return Table(label + case.name, "", "", 0, 0, [[found.item()]],
                     [[expected.item()]], [[True]])
    mine, right = np.atleast_2d(found), np.atleast_2d(expected)
    if right.dtype.kind == "b":
        wrong = mine.astype(bool) != right
    else:
        mine, right = mine.astype(float), right.astype(float)
        wrong = _differs(mine, right)
    if not wrong.any():
        return None
    lead = tuple(int(n) for n in np.argwhere(wrong)[0][:-2])
    mine, right, wrong = mine[lead], right[lead], wrong[lead]
    row, column = (int(n) for n in np.argwhere(wrong)[0])
    top = max(0, min(row - 1, mine.shape[0] - SHOWN))
    left = max(0, min(column - 1, mine.shape[1] - SHOWN))
    corner = (slice(top, top + SHOWN), slice(left, left + SHOWN))
    axes = _axes(exercise, expected.ndim)
    slices = [f"{name} {place}" for name, place in zip(axes, lead)
              if name != "1"]
    rows = axes[-2] if expected.ndim > 1 and axes[-2] != "1" else ""
    return Table(
        label + ", ".join([case.name, *slices]),
        rows, axes[-1], top, left,
        mine[corner].tolist(), right[corner].tolist(),
        wrong[corner].tolist())


# -- stages -----------------------------------------------------------------

def stage_marks(exercise: Exercise, case: Case, seen: list[Seen],
                named: tuple[Mistake, ...]) -> list[StageMark]:
    """Say which stages were right in the learner's run.

    Args:
        exercise: The exercise.
        case: The inputs of the run.
        seen: The values that occurred in it.
        named: The mistakes that were recognised.
    """
    marks: list[StageMark] = []
    before = None
    with np.errstate(all="ignore"):
        right = exercise.evaluate(case)
    for name in exercise.stages if seen else ():
        value = getattr(right, name)
        if not isinstance(value, ndarray) or value is before:
            continue
        before = value
        hit = look_for(value, seen)
        if hit is not None:
            order = "" if same(hit.value, value) else _order(hit, value)
            marks.append(StageMark("found", name, f"line {hit.line}{order}"))
            continue
        wrong = _wrong_stage(exercise, case, name, seen, named)
        if wrong is not None:
            marks.append(wrong)
        elif not any(each.mark == "differs" for each in marks):
            marks.append(StageMark("missing", name,
                                   "this value does not occur"))
    # Where nothing was recognised, as in one fused call, there is no story.
    return marks if any(each.mark != "missing" for each in marks) else []


def _order(hit: Seen, value: ndarray) -> str:
    if hit.value.ndim < value.ndim:
        return ""  # a matrix of the stack, as a loop computes it
    return f", with its axes in another order: {hit.value.shape}"


def _wrong_stage(exercise: Exercise, case: Case, name: str, seen: list[Seen],
                 named: tuple[Mistake, ...]) -> StageMark | None:
    for mistake, style in itertools.product(named, exercise.styles):
        if name not in mistake.wrong:
            continue
        try:
            with np.errstate(all="ignore"):
                state = exercise.evaluate(case, mistake.wrong, style)
        except Exception:
            continue
        value = getattr(state, name)
        if len(mistake.wrong) > 1 and any(
                value is other
                for other in _earlier_arrays(exercise, state, name)):
            continue  # a stage that was left out; the next one shows it
        hit = look_for(value, seen)
        if hit is not None:
            return StageMark("differs", name, f"line {hit.line} has "
                             f"{mistake.label} instead")
    return None


def unseen_stages(exercise: Exercise, case: Case,
                  seen: list[Seen]) -> list[str]:
    """Give the stages whose right value does not occur in a run."""
    with np.errstate(all="ignore"):
        right = exercise.evaluate(case)
    return [name for name in exercise.stages
            if isinstance(getattr(right, name), ndarray)
            and look_for(getattr(right, name), seen, any_axes=False) is None]


def walk(exercise: Exercise, case: Case,
         seen: list[Seen]) -> list[tuple[Mistake, int]]:
    """Follow the learner's run stage by stage.

    Where the right value of a stage does not occur, the value of a mistake
    is looked for, applied to what came before. So any number of mistakes is
    found, also where the result is NaN. A value that occurs anyway, as an
    argument or an earlier stage, proves nothing.

    Returns:
        The mistakes with their lines, up to the first stage that cannot be
        explained.
    """
    found: list[tuple[Mistake, int]] = []
    wrong: dict[str, Any] = {}
    with np.errstate(all="ignore"):
        for name in exercise.stages:
            try:
                state = exercise.evaluate(case, wrong)
            except Exception:
                return found
            value = getattr(state, name)
            if not isinstance(value, ndarray):
                return found
            if look_for(value, seen, exact=True) is not None:
                continue
            earlier = _earlier_arrays(exercise, state, name)
            hits = _explanations(exercise, case, name, wrong, earlier, seen)
            if len({mistake.identity for mistake, _ in hits}) != 1:
                return found
            mistake, seen_there = hits[0]
            found.append((mistake, seen_there.line))
            wrong = {**wrong, **mistake.wrong}
    return found


def _earlier_arrays(exercise: Exercise, state: Any,
                    name: str) -> list[ndarray]:
    later = list(exercise.stages)[exercise.position[name]:]
    return [value for key, value in vars(state).items()
            if key not in later and isinstance(value, ndarray)]


def _explanations(exercise: Exercise, case: Case, name: str,
                  wrong: dict[str, Any], earlier: list[ndarray],
                  seen: list[Seen]) -> list[tuple[Mistake, Seen]]:
    hits: dict[str, tuple[Mistake, Seen]] = {}
    for style, mistake in itertools.product(exercise.styles,
                                            exercise.mistakes):
        if (mistake.id in hits or set(mistake.wrong) != {name}
                or (style is not exercise.styles[0] and not mistake.styled)):
            continue
        try:
            state = exercise.evaluate(case, {**wrong, **mistake.wrong}, style)
        except Exception:
            continue
        value = getattr(state, name)
        if not isinstance(value, ndarray) or not _is_varied(value) or any(
                identical(value, other) for other in earlier):
            continue
        hit = look_for(value, seen, exact=True)
        if hit is not None:
            hits[mistake.id] = (mistake, hit)
    # On its way to a stage a program passes the value of an unfinished one,
    # as exp(x) is passed on the way to a softmax: the last one counts.
    order = {id(each): place for place, each in enumerate(seen)}
    last = max((order[id(hit)] for _, hit in hits.values()), default=0)
    return [each for each in hits.values() if order[id(each[1])] == last]


def _is_varied(value: ndarray) -> bool:
    """Whether a value could not as well occur by chance, as zeros do."""
    if value.dtype.kind == "f":
        if np.isnan(value).any() and np.isinf(value).any():
            return True
        value = value[np.isfinite(value)]
    return bool(value.size and np.ptp(value.astype(float)) > 1e-9)
