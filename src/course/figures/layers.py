"""How layers keep their weights: packed, separate, transposed."""

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from numpy.typing import ArrayLike

from course.figures.style import COLOURS, INK, new_figure, signed_tint

__all__ = ["packed_projection"]


def packed_projection(packed: ArrayLike, *, cells: int = 6) -> Figure:
    """Draw a packed (3 * inner, embed_dim) matrix beside its three parts.

    Args:
        packed: The rows of the queries, then of the keys, then of the
            values, as ``nn.MultiheadAttention`` stores them: (out, in).
        cells: How many rows and columns of each part are drawn.
    """
    parts = np.split(np.asarray(packed, dtype=float), 3)
    inner, embed_dim = parts[0].shape
    limit = max(np.abs(part).max(initial=1e-12) for part in parts)
    fig = new_figure(7.6, 4.2)
    left, right = fig.subplots(1, 2, width_ratios=[1, 1.9])
    gap = 0.35
    for number, (part, role) in enumerate(zip(parts, _ROLES)):
        shown = part[:cells, :cells]
        height, width = shown.shape
        top = number * (height + gap)
        _cells(left, shown, 0, top, COLOURS[role], limit)
        left.text(-0.4, top + height / 2, f"{role}\nrows", ha="right",
                  va="center", color=COLOURS[role], fontsize=10)
        start = number * (width + 1.4)
        _cells(right, shown.T, start, 2.2, COLOURS[role], limit)
        right.text(start + height / 2, 1.7, f"W_{role[0]}", ha="center",
                   color=COLOURS[role], fontsize=12)
        right.text(start + height / 2, 2.2 + width + 0.9,
                   f"{embed_dim} × {inner}", ha="center", fontsize=9)
    left.text(min(cells, embed_dim) / 2, -0.5, "one packed matrix",
              ha="center", color=INK, fontsize=10)
    left.text(min(cells, embed_dim) / 2, 3 * (min(cells, inner) + gap) + 0.6,
              f"{3 * inner} × {embed_dim}", ha="center", fontsize=9)
    right.text(1.5 * (cells + 0.9), 0.2, "each third, turned round (.T)",
               ha="center", color=INK, fontsize=10)
    for ax in (left, right):
        ax.set_aspect("equal")
        ax.autoscale_view()
        ax.invert_yaxis()
        ax.axis("off")
    return fig


_ROLES = ("query", "key", "value")


def _cells(ax: object, shown: np.ndarray, x: float, y: float, colour: str,
           limit: float) -> None:
    paint = signed_tint(colour)
    for (row, column), number in np.ndenumerate(shown):
        ax.add_patch(Rectangle((x + column, y + row), 1, 1,
                               facecolor=paint(0.5 + 0.5 * number / limit),
                               edgecolor="#c3cbd0", linewidth=0.8))
