"""What attention costs: tiles computed, numbers kept, against the length."""

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import LogLocator
from numpy.typing import ArrayLike

from course.figures.style import COLOURS, HATCH, INK, WEIGHT_MAP, new_figure

__all__ = ["growth_lines", "measured_lines", "running_softmax", "tile_order"]

_LINES = ("#08305b", "#d55e00", "#5b6770")
#: Colour, line and marker: any one of them tells four lines apart.
_MEASURED = (("#8c510a", "--", "s"), ("#08305b", "-", "o"),
             ("#1d2429", ":", "D"), ("#01665e", "-.", "^"))


def tile_order(order: ArrayLike) -> Figure:
    """Draw the tiles of a score table with the order they are computed in.

    Args:
        order: ``(query_tiles, key_tiles)``; 0 stands for a tile that is
            skipped, 1, 2, 3, … for the others.
    """
    order = np.asarray(order)
    rows, columns = order.shape
    fig = new_figure(0.8 * columns + 2.0, 0.62 * rows + 1.1)
    ax = fig.subplots()
    for (row, column), number in np.ndenumerate(order):
        skipped = number == 0
        shade = WEIGHT_MAP(0.15 + 0.5 * (row % 2))
        ax.add_patch(Rectangle(
            (column, row), 0.96, 0.92, edgecolor=COLOURS["masked"],
            facecolor="white" if skipped else shade,
            hatch=HATCH if skipped else None, linewidth=0.8))
        if not skipped:
            ax.text(column + 0.48, row + 0.46, str(number), ha="center",
                    va="center", fontsize=11,
                    color="white" if row % 2 else INK)
    ax.set_xlim(-0.05, columns + 0.05)
    ax.set_ylim(rows + 0.05, -0.05)
    ax.set_xticks(np.arange(columns) + 0.48,
                  [f"keys {c}" for c in range(columns)])
    ax.set_yticks(np.arange(rows) + 0.46,
                  [f"queries {r}" for r in range(rows)])
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    return fig


def running_softmax(largest: ArrayLike, total: ArrayLike,
                    names: Sequence[str]) -> Figure:
    """Draw the running maximum and the running sum, key after key.

    Args:
        largest: The largest score so far, after each key.
        total: The sum of exponentials so far, relative to that maximum.
        names: Label of each key.
    """
    fig = new_figure(6.4, 3.6)
    above, below = fig.subplots(2, 1, sharex=True)
    places = np.arange(len(names))
    above.step(places, largest, where="mid", color=COLOURS["key"])
    above.plot(places, largest, "o", color=COLOURS["key"])
    above.set_ylabel("largest score")
    below.bar(places, total, color=COLOURS["query"], width=0.5)
    for place, number in zip(places, np.asarray(total)):
        below.text(place, number, f"{number:.3f}", ha="center", va="bottom",
                   fontsize=9)
    below.set_ylabel("running sum")
    below.set_ylim(0, 1.25 * float(np.max(total)))
    below.set_xticks(places, names)
    return fig


def growth_lines(lengths: ArrayLike, lines: Sequence[tuple[str, ArrayLike]],
                 label: str) -> Figure:
    """Draw quantities against the length of the text, on log axes.

    Args:
        lengths: Numbers of tokens.
        lines: Name and values of each line.
        label: Name of the vertical axis, with its unit.
    """
    fig = new_figure(6.4, 3.8)
    ax = fig.subplots()
    for (name, values), colour, style in zip(lines, _LINES, ("-", "--", "-.")):
        ax.plot(lengths, values, style, color=colour, label=name, marker="o",
                markersize=4)
    ax.set_xscale("log", base=2)
    ax.set_yscale("log")
    ax.set_xticks(np.asarray(lengths), [f"{n:,}" for n in np.asarray(lengths)],
                  rotation=45)
    ax.minorticks_off()
    ax.set_xlabel("tokens")
    ax.set_ylabel(label)
    ax.legend()
    return fig


def measured_lines(
        lines: Sequence[tuple[str, ArrayLike, ArrayLike]], label: str
) -> Figure:
    """Draw what was measured against the length, on log axes.

    Args:
        lines: Name, numbers of tokens and values of each line; at most four.
        label: Name of the vertical axis, with its unit.
    """
    fig = new_figure(6.4, 4.0)
    ax = fig.subplots()
    for (name, lengths, values), (colour, style, marker) in zip(
            lines, _MEASURED, strict=False):
        ax.plot(lengths, values, style, color=colour, label=name,
                marker=marker, markersize=5)
    ax.set_xscale("log", base=2)
    ax.set_yscale("log")
    ticks = sorted({int(n) for _, lengths, _ in lines
                    for n in np.asarray(lengths)})
    ax.set_xticks(ticks, [f"{n:,}" for n in ticks])
    ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    ax.yaxis.set_major_formatter("{x:,.0f}")
    ax.minorticks_off()
    ax.set_xlabel("tokens of one sequence")
    ax.set_ylabel(label)
    ax.legend()
    return fig
