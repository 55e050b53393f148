"""Curves: how a number of attention changes with a size or a gap."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from course.figures.style import COLOURS, INK, new_figure

__all__ = ["cost_lines"]

#: Lines are told apart by their dashes and names, not by colour alone.
_DASHES = [(0, (4, 2)), "-", (0, (1, 1.5)), (0, (6, 2, 1, 2))]


def cost_lines(lengths: ArrayLike, named: Sequence[tuple[str, ArrayLike]], *,
               crossing: float | None = None) -> Figure:
    """Draw numbers of multiplications against the length of a text.

    Args:
        lengths: Numbers of tokens.
        named: For each line its name and a number for each length.
        crossing: A length to mark, where two lines meet.
    """
    lengths = np.asarray(lengths, dtype=float)
    fig = new_figure(6, 3.4)
    ax = fig.subplots()
    for (name, numbers), dash in zip(named, _DASHES):
        ax.loglog(lengths, np.asarray(numbers, dtype=float), color=INK,
                  linestyle=dash, marker="o", markersize=4)
        ax.annotate(name, (lengths[-1], float(np.asarray(numbers)[-1])),
                    xytext=(8, 0), textcoords="offset points", va="center")
    if crossing is not None:
        _mark(ax, crossing, f"{crossing:.0f}")
    ax.set_xlabel("words (n)")
    ax.set_ylabel("multiplications")
    return fig


def _mark(ax: Axes, position: float, text: str) -> None:
    ax.axvline(position, color=COLOURS["masked"], linewidth=1)
    ax.annotate(text, (position, 0.03), xycoords=("data", "axes fraction"),
                xytext=(4, 0), textcoords="offset points", fontsize=9)
