"""Vectors, matrices and their products, drawn as coloured cells.

A matrix that is too wide to draw is cut: its first cells are shown, then a
gap, then its last ones; the true shape stands below it.
"""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from course.figures.style import COLOURS, INK, new_figure, signed_tint

__all__ = ["matrix_product", "vectors"]

_SHOWN = 8  # cells drawn of a long axis: the first five and the last three


def vectors(named: Sequence[tuple[str, ArrayLike, str]], *,
            cells: int = 16) -> Figure:
    """Draw vectors as rows of coloured cells, one below the other.

    Args:
        named: For each vector its label, its numbers, and its role: a key of
            ``COLOURS``. Strength of colour is the size of a number, grey
            stands for negative numbers; each role has its own scale.
        cells: How many numbers of a long vector are drawn.
    """
    rows = [(label, np.asarray(v, dtype=float), role)
            for label, v, role in named]
    fig = new_figure(7.2, 0.5 * len(rows) + 0.5)
    axes = fig.subplots(len(rows), 1, squeeze=False)[:, 0]
    limits = {role: max(np.abs(v).max(initial=1e-12)
                        for _, v, other in rows if other == role)
              for _, _, role in rows}
    for ax, (label, vector, role) in zip(axes, rows):
        shown, gap = _cut(vector[None, :], cells)
        _draw_cells(ax, shown, COLOURS[role], limits[role], None, gap)
        text = f"{label}\n({len(vector)} numbers)"
        ax.set_ylabel(text, rotation=0, ha="right", va="center", labelpad=8,
                      color=COLOURS[role], fontsize=9)
    return fig


def matrix_product(left: ArrayLike, right: ArrayLike, result: ArrayLike, *,
                   names: tuple[str, str, str], roles: tuple[str, str, str],
                   rows: Sequence[str] | None = None) -> Figure:
    """Draw ``left @ right = result`` with the numbers of the three arrays.

    Args:
        left: ``(m, n)``.
        right: ``(n, p)``.
        result: ``(m, p)``.
        names: What to write above each matrix.
        roles: A key of ``COLOURS`` for each.
        rows: Labels of the rows of ``left``.
    """
    arrays = [np.atleast_2d(np.asarray(a, dtype=float))
              for a in (left, right, result)]
    cut = [_cut_both(a) for a in arrays]
    sizes = [shown.shape for shown, _, _ in cut]
    fig = new_figure(8.2, max(1.9, 0.3 * max(s[0] for s in sizes) + 1.1))
    axes = fig.subplots(1, 5, width_ratios=[sizes[0][1], 1.2, sizes[1][1],
                                            1.2, sizes[2][1]])
    for ax, sign in ((axes[1], "×"), (axes[3], "=")):
        ax.text(0.5, 0.5, sign, ha="center", va="center", fontsize=18,
                transform=ax.transAxes)
        ax.axis("off")
    for ax, array, (shown, gap_x, gap_y), name, role in zip(
            axes[::2], arrays, cut, names, roles):
        limit = float(np.abs(array).max(initial=1e-12))
        _draw_cells(ax, shown, COLOURS[role], limit, gap_y, gap_x)
        ax.set_title(name, color=COLOURS[role], fontsize=12)
        ax.set_xlabel(f"{array.shape[0]} × {array.shape[1]}", fontsize=9)
        ax.set_anchor("C")
    if rows is not None:
        axes[0].set_yticks(range(len(rows)), rows)
    return fig


def _cut(array: np.ndarray, cells: int) -> tuple[np.ndarray, int | None]:
    """Keep the ends of a long last axis; say before which cell the gap is."""
    if array.shape[-1] <= cells:
        return array, None
    tail = cells // 3
    head = cells - tail
    return np.concatenate([array[..., :head], array[..., -tail:]], -1), head


def _cut_both(array: np.ndarray) -> tuple[np.ndarray, int | None, int | None]:
    shown, gap_x = _cut(array, _SHOWN)
    shown, gap_y = _cut(shown.T, _SHOWN)
    return shown.T, gap_x, gap_y


def _draw_cells(ax: Axes, shown: np.ndarray, colour: str, limit: float,
                gap_y: int | None, gap_x: int | None) -> None:
    ax.imshow(shown, cmap=signed_tint(colour), vmin=-limit, vmax=limit,
              aspect="equal")
    ax.set_xticks(np.arange(-0.5, shown.shape[1]), minor=True)
    ax.set_yticks(np.arange(-0.5, shown.shape[0]), minor=True)
    ax.grid(which="minor", color="#c3cbd0", linewidth=0.8)
    ax.set_xticks([])
    ax.set_yticks([])
    ax.tick_params(which="both", length=0)
    ax.spines[:].set_visible(False)
    for gap, line in ((gap_x, ax.axvline), (gap_y, ax.axhline)):
        if gap is not None:
            line(gap - 0.5, color="white", linewidth=7)
            line(gap - 0.5, color=INK, linewidth=1.2, linestyle=(0, (1, 2)))
