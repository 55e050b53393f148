"""Masks and what they do: panels side by side, stretching, NaN, leaks."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from numpy.typing import ArrayLike

from course.figures.style import (
    COLOURS,
    HATCH,
    INK,
    WEIGHT_MAP,
    new_figure,
)
from course.figures.weights import _draw_table

__all__ = ["leak_curves", "mask_panels", "mask_stretch", "nan_spread",
           "weight_panels"]


def mask_panels(masks: Mapping[str, ArrayLike],
                queries: Sequence[str] | Sequence[Sequence[str]],
                keys: Sequence[str] | Sequence[Sequence[str]] | None = None
                ) -> Figure:
    """Draw several masks side by side: a dot is True, hatching is False.

    A query that may attend nowhere gets a dashed frame around its row.

    Args:
        masks: For each panel its name and its mask ``(query_len, key_len)``,
            True = may attend.
        queries: Labels of the rows, for all panels or for each.
        keys: Labels of the columns; the queries' if None.
    """
    tables = [np.asarray(mask, dtype=bool) for mask in masks.values()]
    rows = _labels_of_each(queries, len(tables))
    columns = rows if keys is None else _labels_of_each(keys, len(tables))
    fig, axes = _panels([table.shape for table in tables])
    for number, (ax, name, table) in enumerate(zip(axes, masks, tables)):
        shown = number == 0 or rows[number] != rows[number - 1]
        _draw_table(ax, np.where(table, 0.45, 0.0), rows[number],
                    columns[number], table, 0, cmap=WEIGHT_MAP, vmin=0,
                    vmax=1, rows_shown=shown)
        down, across = np.nonzero(table)
        ax.plot(across, down, "o", color=INK, markersize=5)
        _frame_rows(ax, np.flatnonzero(~table.any(axis=-1)), table.shape[1])
        ax.set_title(name, fontsize=10)
    return fig


def weight_panels(weights: Mapping[str, ArrayLike], queries: Sequence[str],
                  keys: Sequence[str] | None = None, *,
                  masks: Mapping[str, ArrayLike] | None = None,
                  digits: int = 2, row_sums: bool = False) -> Figure:
    """Draw tables of weights side by side, on one scale from 0 to 1.

    A weight that is NaN is written as such in a framed cell.

    Args:
        weights: For each panel its name and ``(query_len, key_len)``.
        queries: Label of each row.
        keys: Label of each column; the queries' if None.
        masks: True = may attend, by the name of a panel; cells that are not
            are hatched. A panel without an entry is drawn without hatching.
        digits: Decimals printed in the cells.
        row_sums: Whether to write the sum of each row at its right.
    """
    keys = queries if keys is None else keys
    masks = {} if masks is None else masks
    tables = [np.asarray(table, dtype=float) for table in weights.values()]
    fig, axes = _panels([table.shape for table in tables], bar=True,
                        room=0.6 if row_sums else 0.0)
    image = None
    for number, (ax, name, table) in enumerate(zip(axes, weights, tables)):
        kept = np.broadcast_to(np.asarray(masks.get(name, True), bool),
                               table.shape)
        image = _draw_table(ax, np.nan_to_num(table), queries, keys,
                            kept & np.isfinite(table), digits,
                            cmap=WEIGHT_MAP, vmin=0, vmax=1,
                            rows_shown=number == 0)
        _write_nan(ax, np.isnan(table))
        if row_sums:
            _write_sums(ax, table)
        ax.set_title(name, fontsize=10)
    if image is not None:
        bar = fig.colorbar(image, ax=axes, shrink=0.7, ticks=[0, 0.5, 1])
        bar.set_label("weight")
    return fig


def mask_stretch(mask: ArrayLike, full: ArrayLike, *,
                 names: Sequence[str], heads: int = 2) -> Figure:
    """Draw how a mask of one row per sentence is stretched over the scores.

    Args:
        mask: ``(batch, 1, 1, key_len)``, True = may attend.
        full: The same mask broadcast to
            ``(batch, num_heads, query_len, key_len)``.
        names: Name of each sentence.
        heads: How many heads are drawn.
    """
    mask, full = np.asarray(mask, bool), np.asarray(full, bool)
    batch, num_heads = full.shape[:2]
    fig = new_figure(2.1 * (heads + 1) + 1.3, 1.9 * batch + 0.3)
    axes = fig.subplots(batch, heads + 2, squeeze=False,
                        width_ratios=[1, 0.2] + [1] * heads)
    for sentence in range(batch):
        stored, arrow = axes[sentence, :2]
        _draw_cells(stored, mask[sentence, 0])
        stored.set_ylabel(names[sentence], rotation=0, ha="right",
                          va="center", labelpad=10)
        arrow.annotate("", xy=(1, 0.5), xytext=(0, 0.5),
                       xycoords="axes fraction",
                       arrowprops={"arrowstyle": "->", "color": INK})
        arrow.axis("off")
        for head in range(heads):
            _draw_cells(axes[sentence, head + 2], full[sentence, head])
        axes[sentence, 2].set_ylabel("query")
    axes[0, 0].set_title("stored: one row", fontsize=10)
    for head in range(heads):
        axes[0, head + 2].set_title(f"used: head {head} of {num_heads}",
                                    fontsize=10)
    for ax in axes[-1]:
        ax.set_xlabel("key")
    return fig


def nan_spread(stages: Mapping[str, ArrayLike],
               tokens: Sequence[str]) -> Figure:
    """Draw which tokens hold NaN after each stage.

    Args:
        stages: For each stage its name and its array ``(seq_len, width)``.
        tokens: Label of each token.
    """
    bad = np.stack([np.isnan(np.asarray(array)).any(axis=-1)
                    for array in stages.values()], axis=-1)
    fig = new_figure(1.25 * len(stages) + 1.6, 0.42 * len(tokens) + 0.9)
    ax = fig.subplots()
    for row, column in np.ndindex(bad.shape):
        colour = COLOURS["key"] if bad[row, column] else "#eef2f4"
        ax.add_patch(Rectangle((column - 0.5, row - 0.5), 1, 1,
                               facecolor=colour, edgecolor="white",
                               linewidth=2))
        ax.text(column, row, "NaN" if bad[row, column] else "numbers",
                ha="center", va="center", fontsize=9,
                color="white" if bad[row, column] else INK,
                weight="bold" if bad[row, column] else "normal")
    ax.set_xlim(-0.5, len(stages) - 0.5)
    ax.set_ylim(len(tokens) - 0.5, -0.5)
    ax.set_xticks(range(len(stages)), list(stages))
    ax.xaxis.tick_top()
    ax.set_yticks(range(len(tokens)), tokens)
    ax.set_ylabel("token")
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    return fig


def leak_curves(fills: ArrayLike, leaks: Mapping[str, ArrayLike]) -> Figure:
    """Draw how much weight a masked key keeps for each finite mask value.

    Args:
        fills: Sizes of the number that is subtracted, all above 0.
        leaks: For each curve its name and the weight that is left, in [0, 1].
    """
    fills = np.asarray(fills, dtype=float)
    fig = new_figure(6.4, 3.2)
    ax = fig.subplots()
    for (name, leak), line, colour in zip(
            leaks.items(), ("-", "--", "-.", ":"),
            ("query", "key", "output", "value")):
        leak = np.asarray(leak, dtype=float)
        ax.plot(fills, leak, line, color=COLOURS[colour])
        middle = int(np.argmin(np.abs(leak - 0.35)))
        ax.annotate(name, (fills[middle], leak[middle]), xytext=(6, 4),
                    textcoords="offset points", fontsize=9,
                    color=COLOURS[colour])
    ax.set_xscale("log")
    ax.set_ylim(0, 1.05)
    ax.set_xlabel("number subtracted from the masked score")
    ax.set_ylabel("weight of the masked key")
    return fig


def _labels_of_each(labels: Sequence[str] | Sequence[Sequence[str]],
                    panels: int) -> list[list[str]]:
    """Repeat one list of labels for all panels, or take one for each."""
    if len(labels) and not isinstance(labels[0], str):
        return [list(group) for group in labels]
    return [[str(label) for label in labels] for _ in range(panels)]


def _panels(shapes: Sequence[tuple[int, ...]], *, bar: bool = False,
            room: float = 0.0) -> tuple[Figure, list[Axes]]:
    cell = min(0.5, (7.2 - 1.0 * bar - room * len(shapes))
               / (sum(shape[1] for shape in shapes) + 2.5))
    width = sum(cell * shape[1] + 0.3 + room for shape in shapes) + 1.3
    height = cell * max(shape[0] for shape in shapes) + 1.5
    fig = new_figure(round(min(8.0, width + 0.8 * bar), 1), round(height, 1))
    axes = fig.subplots(1, len(shapes), squeeze=False,
                        width_ratios=[shape[1] for shape in shapes])
    return fig, list(axes[0])


def _frame_rows(ax: Axes, rows: np.ndarray, key_len: int) -> None:
    for row in rows:
        ax.add_patch(Rectangle((-0.47, row - 0.47), key_len - 0.06, 0.94,
                               fill=False, edgecolor=COLOURS["key"],
                               linewidth=1.8, linestyle=(0, (4, 2)),
                               zorder=3))


def _write_nan(ax: Axes, bad: np.ndarray) -> None:
    for row, column in zip(*np.nonzero(bad)):
        ax.add_patch(Rectangle((column - 0.5, row - 0.5), 1, 1,
                               facecolor=COLOURS["key"], edgecolor="white",
                               zorder=3))
        ax.text(column, row, "NaN", ha="center", va="center", fontsize=8,
                color="white", weight="bold", zorder=4)


def _write_sums(ax: Axes, table: np.ndarray) -> None:
    column = table.shape[1] - 0.3
    ax.text(column, -0.75, "sum", fontsize=9, va="center")
    for row, total in enumerate(table.sum(axis=-1)):
        ax.text(column, row, f"{total:.2f}", fontsize=9, va="center")


def _draw_cells(ax: Axes, mask: np.ndarray) -> None:
    """Draw a mask without labels: the shape is what matters."""
    for row, column in np.ndindex(mask.shape):
        kept = bool(mask[row, column])
        ax.add_patch(Rectangle(
            (column - 0.5, row - 0.5), 1, 1, linewidth=0.8,
            facecolor=WEIGHT_MAP(0.45) if kept else "white",
            edgecolor="white" if kept else COLOURS["masked"],
            hatch=None if kept else HATCH))
    ax.set_xlim(-0.5, mask.shape[1] - 0.5)
    ax.set_ylim(mask.shape[0] - 0.5, -0.5)
    ax.set_aspect("equal")
    ax.set_xticks([])
    ax.set_yticks([])
    ax.spines[:].set_visible(False)
