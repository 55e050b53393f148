"""When two results count as the same numbers."""

from typing import TypeAlias

import numpy as np
from numpy import ndarray

#: What an exercise asks for: one array, or a tuple of several.
Answer: TypeAlias = ndarray | tuple[ndarray, ...]

#: Relative and absolute tolerance by dtype. Computing in float32 is never a
#: mistake, so its tolerance holds for float64 too; half precision is coarser.
TOLERANCES = {"bfloat16": (3e-2, 3e-2), "float16": (5e-3, 5e-3)}
_SINGLE = (1e-4, 2e-5)

#: A second mistake that comes this many times nearer than the tolerance asks
#: for still counts as "cannot be told apart".
NEAR_TIE = 20.0


def tolerance(precision: str) -> tuple[float, float]:
    """Give the relative and absolute tolerance for a dtype's name."""
    return TOLERANCES.get(precision, _SINGLE)


def same(found: Answer | None, wanted: Answer | None,
         precision: str = "float64", slack: float = 1.0) -> bool:
    """Say whether two results have the same shape and the same numbers.

    Args:
        found: A result, or None if it was no array.
        wanted: The result to compare with; sets the scale of the tolerance.
        precision: Name of the dtype that the result was computed in.
        slack: Factor on the tolerance.

    Returns:
        True where every number agrees; NaN agrees with NaN.
    """
    if isinstance(found, tuple) or isinstance(wanted, tuple):
        return (isinstance(found, tuple) and isinstance(wanted, tuple)
                and len(found) == len(wanted)
                and all(same(a, b, precision, slack)
                        for a, b in zip(found, wanted)))
    if found is None or wanted is None or found.shape != wanted.shape:
        return False
    if found.dtype.kind == wanted.dtype.kind == "c":
        return (same(found.real, wanted.real, precision, slack)
                and same(found.imag, wanted.imag, precision, slack))
    if found.dtype.kind not in "fbiu" or wanted.dtype.kind not in "fbiu":
        return False
    relative, absolute = tolerance(precision)
    a = found.astype(np.float64, copy=False)
    b = wanted.astype(np.float64, copy=False)
    finite = np.isfinite(b)
    with np.errstate(all="ignore"):
        size = np.abs(b)
        largest = float(size[finite].max()) if finite.any() else 1.0
        limit = slack * (absolute * max(largest, 1e-3) + relative * size)
        near = np.abs(a - b) <= limit
        if finite.all():
            return bool(near.all())
        equal = (a == b) | (np.isnan(a) & np.isnan(b))
    return bool(np.where(finite, near, equal).all())


def identical(a: ndarray, b: ndarray) -> bool:
    """Say whether two float64 arrays agree almost to the last digit."""
    return a.shape == b.shape and bool(
        np.allclose(a, b, rtol=1e-6, atol=1e-12, equal_nan=True))


def fingerprint(array: ndarray) -> tuple[int, float, float]:
    """Give numbers that ignore the order of the entries.

    Two arrays whose fingerprints differ cannot be equal in any order of
    their axes; comparing fingerprints first is cheap.
    """
    numbers = array.astype(np.float64, copy=False)
    if array.dtype.kind == "f":
        numbers = numbers[np.isfinite(numbers)]
    return array.size, float(numbers.sum()), float(np.abs(numbers).sum())


def alike(first: tuple[int, float, float],
          second: tuple[int, float, float]) -> bool:
    """Say whether two fingerprints could belong to equal arrays."""
    near = 1e-3 * (second[2] + 1e-9)
    return (first[0] == second[0] and abs(first[1] - second[1]) <= near
            and abs(first[2] - second[2]) <= near)
