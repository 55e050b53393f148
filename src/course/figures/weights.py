"""Tables of scores and weights: queries run down, keys run across."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from numpy.typing import ArrayLike

from course.figures.style import (
    COLOURS,
    HATCH,
    INK,
    SIGNED_MAP,
    WEIGHT_MAP,
    new_figure,
)

__all__ = ["heads_grid", "mask_table", "score_table", "weight_bars",
           "weight_table"]


def weight_table(weights: ArrayLike, queries: Sequence[str],
                 keys: Sequence[str] | None = None, *,
                 mask: ArrayLike | None = None, digits: int = 2) -> Figure:
    """Draw the weights of one head as a table, on the fixed scale 0 to 1.

    Args:
        weights: ``(query_len, key_len)``, each in [0, 1].
        queries: Label of each row.
        keys: Label of each column; the queries' if None.
        mask: True = may attend; the other cells are hatched.
        digits: Decimals printed in the cells; 0 for none.
    """
    weights = np.asarray(weights, dtype=float)
    keys = queries if keys is None else keys
    fig = _table_figure(weights.shape)
    ax = fig.subplots()
    image = _draw_table(ax, weights, queries, keys, mask, digits,
                        cmap=WEIGHT_MAP, vmin=0, vmax=1)
    bar = fig.colorbar(image, ax=ax, shrink=0.8, ticks=[0, 0.5, 1])
    bar.set_label("weight")
    return fig


def score_table(scores: ArrayLike, queries: Sequence[str],
                keys: Sequence[str] | None = None, *,
                mask: ArrayLike | None = None, digits: int = 1,
                limit: float | None = None) -> Figure:
    """Draw scores as a table, on a scale symmetric about 0.

    Args:
        scores: ``(query_len, key_len)``, any real numbers.
        queries: Label of each row.
        keys: Label of each column; the queries' if None.
        mask: True = may attend; the other cells are hatched.
        digits: Decimals printed in the cells.
        limit: Score at the end of the scale; the largest size if None.
    """
    scores = np.asarray(scores, dtype=float)
    keys = queries if keys is None else keys
    finite = scores[np.isfinite(scores)]
    limit = limit or float(np.abs(finite).max(initial=1e-9))
    fig = _table_figure(scores.shape)
    ax = fig.subplots()
    image = _draw_table(ax, scores, queries, keys, mask, digits,
                        cmap=SIGNED_MAP, vmin=-limit, vmax=limit)
    fig.colorbar(image, ax=ax, shrink=0.8).set_label("score")
    return fig


def mask_table(mask: ArrayLike, queries: Sequence[str],
               keys: Sequence[str] | None = None) -> Figure:
    """Draw a mask: a dot where the query may attend, hatching where not.

    Args:
        mask: ``(query_len, key_len)``, True = may attend.
        queries: Label of each row.
        keys: Label of each column; the queries' if None.
    """
    mask = np.asarray(mask, dtype=bool)
    keys = queries if keys is None else keys
    fig = _table_figure(mask.shape, bar=False)
    ax = fig.subplots()
    _draw_table(ax, np.where(mask, 0.45, 0.0), queries, keys, mask, 0,
                cmap=WEIGHT_MAP, vmin=0, vmax=1)
    down, across = np.nonzero(mask)
    ax.plot(across, down, "o", color=INK, markersize=5)
    return fig


def heads_grid(weights: ArrayLike, queries: Sequence[str],
               keys: Sequence[str] | None = None, *,
               mask: ArrayLike | None = None, columns: int = 4) -> Figure:
    """Draw the weights of several heads side by side, on one scale.

    Args:
        weights: ``(num_heads, query_len, key_len)``, each in [0, 1].
        queries: Label of each row.
        keys: Label of each column; the queries' if None.
        mask: True = may attend; broadcasts to the shape of one head.
        columns: Tables in a row.
    """
    weights = np.asarray(weights, dtype=float)
    keys = queries if keys is None else keys
    rows = -(-len(weights) // columns)
    fig = new_figure(2.3 * columns + 0.8, 2.4 * rows + 0.4)
    axes = fig.subplots(rows, columns, squeeze=False)
    for ax in axes.flat[len(weights):]:
        ax.set_visible(False)
    image = None
    for head, ax in zip(range(len(weights)), axes.flat):
        first = head % columns == 0
        last_row = head // columns == rows - 1
        image = _draw_table(ax, weights[head], queries, keys, mask, 0,
                            cmap=WEIGHT_MAP, vmin=0, vmax=1,
                            rows_shown=first, columns_shown=last_row)
        ax.set_title(f"head {head}", fontsize=10)
    if image is not None:
        bar = fig.colorbar(image, ax=axes, shrink=0.6, ticks=[0, 0.5, 1])
        bar.set_label("weight")
    return fig


def weight_bars(weights: ArrayLike, keys: Sequence[str], *,
                label: str = "weight", colour: str | None = None) -> Figure:
    """Draw one row of weights as horizontal bars with their numbers.

    Args:
        weights: ``(key_len,)``, each in [0, 1].
        keys: Label of each bar.
        label: Name of the axis.
        colour: Colour of the bars; that of the query if None.
    """
    weights = np.asarray(weights, dtype=float)
    fig = new_figure(5.2, 0.45 * len(weights) + 0.9)
    ax = fig.subplots()
    ax.barh(range(len(weights)), weights, color=colour or COLOURS["query"])
    for position, weight in enumerate(weights):
        ax.text(weight + 0.015, position, f"{weight:.4f}", va="center")
    ax.set_yticks(range(len(weights)), keys)
    ax.invert_yaxis()
    ax.set_xlim(0, 1.15)
    ax.set_xticks([0, 0.25, 0.5, 0.75, 1])
    ax.set_xlabel(label)
    return fig


def _table_figure(shape: tuple[int, ...], *, bar: bool = True) -> Figure:
    height = max(1.9, 0.52 * shape[0] + 1.3)
    width = max(3.2, 0.66 * shape[1] + (2.6 if bar else 1.7))
    return new_figure(width, height)


def _draw_table(ax: Axes, table: np.ndarray, queries: Sequence[str],
                keys: Sequence[str], mask: ArrayLike | None, digits: int, *,
                cmap: object, vmin: float, vmax: float,
                rows_shown: bool = True, columns_shown: bool = True) -> object:
    kept = np.broadcast_to(True if mask is None else np.asarray(mask, bool),
                           table.shape)
    image = ax.imshow(np.where(kept, table, np.nan), cmap=cmap, vmin=vmin,
                      vmax=vmax, aspect="equal")
    for row, column in zip(*np.nonzero(~kept)):
        ax.add_patch(Rectangle((column - 0.5, row - 0.5), 1, 1, fill=False,
                               hatch=HATCH, edgecolor=COLOURS["masked"],
                               linewidth=0))
    if digits:
        for row, column in zip(*np.nonzero(kept)):
            number = table[row, column]
            dark = abs(number - (vmin + vmax) / 2) > 0.28 * (vmax - vmin)
            dark = number > 0.55 * vmax if vmin == 0 else dark
            ax.text(column, row, f"{number:.{digits}f}", ha="center",
                    va="center", fontsize=9,
                    color="white" if dark else INK)
    ax.set_xticks(range(table.shape[1]), keys if columns_shown else [""] *
                  table.shape[1], rotation=45, ha="right",
                  rotation_mode="anchor")
    ax.set_yticks(range(table.shape[0]),
                  queries if rows_shown else [""] * table.shape[0])
    if columns_shown:
        ax.set_xlabel("key")
    if rows_shown:
        ax.set_ylabel("query")
    ax.set_xticks(np.arange(-0.5, table.shape[1]), minor=True)
    ax.set_yticks(np.arange(-0.5, table.shape[0]), minor=True)
    ax.grid(which="minor", color="#d7dde1", linewidth=0.8)
    ax.tick_params(which="both", length=0)
    ax.spines[:].set_visible(False)
    return image
