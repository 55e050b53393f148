"""How near is near enough: the one table, with reasons."""

import numpy as np
import torch

TOLERANCES = {
    # Sums of about a dozen products: a few hundred units in the last place
    # (2.2e-16) leave room for any order of summation, and for nothing else.
    "float64": {"rtol": 1e-12, "atol": 1e-12},
    # What torch.testing.assert_close takes for float32.
    "float32": {"rtol": 1.3e-6, "atol": 1e-5},
}

#: Central differences with a step of 1e-6 in float64: their own error is
#: about 1e-10 relative to values near 1, times the curvature.
GRADCHECK = {"eps": 1e-6, "atol": 1e-7, "rtol": 1e-5}


def assert_close(actual: np.ndarray, desired: np.ndarray,
                 dtype: str = "float64") -> None:
    """Refuse arrays that differ in shape, in NaN, or by the table."""
    actual, desired = np.asarray(actual), np.asarray(desired)
    assert actual.shape == desired.shape
    np.testing.assert_allclose(actual, desired, **TOLERANCES[dtype])


def assert_same(actual: np.ndarray, desired: np.ndarray) -> None:
    """Refuse arrays that differ in shape, dtype or in any bit."""
    actual, desired = np.asarray(actual), np.asarray(desired)
    assert actual.shape == desired.shape
    assert actual.dtype == desired.dtype
    np.testing.assert_array_equal(actual, desired)


def assert_half_close(actual: np.ndarray, yardstick: np.ndarray,
                      exact: np.ndarray, dtype: str) -> None:
    """Judge half precision by the error of plain code in the same dtype.

    Rounding the inputs and the result is nobody's fault, so a fixed tolerance
    says little. The error may be twice that of the yardstick, plus one unit
    in the last place of the largest output.
    """
    assert actual.shape == exact.shape
    largest = np.abs(exact).max(initial=0.0)
    unit = torch.finfo(getattr(torch, dtype)).eps * 2.0 ** np.floor(
        np.log2(max(largest, torch.finfo(torch.float16).tiny)))
    error = np.abs(actual.astype(np.float64) - exact).max(initial=0.0)
    allowed = np.abs(yardstick.astype(np.float64) - exact).max(initial=0.0)
    np.testing.assert_array_less(error, 2 * allowed + unit + 1e-300)
