"""Small pieces that the wrong stages are written with."""

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from numpy import ndarray

from course.exercises.stages import PLAIN, State, Style

#: Reads one value of a state, such as the scores.
Reader: TypeAlias = Callable[[State], Any]


def read(name: str) -> Reader:
    """Give the function that reads one value of a state."""
    return lambda state: getattr(state, name)


def swap(array: ndarray) -> ndarray:
    """Swap the last two axes."""
    return np.swapaxes(array, -1, -2)


def softmax(x: ndarray, style: Style = PLAIN) -> ndarray:
    """Softmax over the last axis, as a program of that style computes it.

    Args:
        x: Scores.
        style: Says what a row of ``-inf`` becomes.

    Returns:
        Weights; each row sums to 1 or is ``style.empty``.
    """
    largest = x.max(axis=-1, keepdims=True, initial=-np.inf)
    shift = np.where(np.isneginf(largest), 0.0, largest)
    exponentials = np.exp(x - shift)
    total = exponentials.sum(axis=-1, keepdims=True)
    weights = exponentials / np.where(total == 0, 1.0, total)
    if style.empty != 0.0:
        weights = np.where(total == 0, style.empty, weights)
    return weights


def softmax_over(x: ndarray, axis: int | tuple[int, ...] | None) -> ndarray:
    """Softmax over any axis, or several, or all."""
    exponentials = np.exp(x - x.max(axis=axis, keepdims=True))
    return exponentials / exponentials.sum(axis=axis, keepdims=True)


def hide(x: ndarray, mask: ndarray, style: Style) -> ndarray:
    """Mask scores as a program of that style does it."""
    if style.added:
        return x + np.where(mask, 0.0, style.hidden)
    return np.where(mask, x, style.hidden)
