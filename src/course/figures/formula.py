"""The formula of attention, its products and its shapes, as pictures."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from numpy.typing import ArrayLike

from course.figures.matrices import _cut_both, _draw_cells
from course.figures.style import (
    COLOURS,
    INK,
    SIGNED_MAP,
    WEIGHT_MAP,
    new_figure,
    tint,
)
from course.figures.weights import _draw_table

__all__ = ["attention_formula", "one_score", "shape_chain", "weight_tables"]


def one_score(query: ArrayLike, key: ArrayLike, scores: ArrayLike, *,
              row: int, column: int) -> Figure:
    """Draw ``query @ key.T = scores`` and frame what makes one score.

    Args:
        query: ``(query_len, head_dim)``.
        key: ``(key_len, head_dim)``; it is drawn transposed.
        scores: ``(query_len, key_len)``, printed as whole numbers.
        row: Which query is framed.
        column: Which key is framed.
    """
    query, key, scores = (np.asarray(a, dtype=float)
                          for a in (query, key, scores))
    fig = new_figure(7.4, 2.9)
    axes = fig.subplots(1, 5, width_ratios=[8, 1, 2.6, 1, 3.2])
    _matrix(axes[0], query, "Q", "query")
    _matrix(axes[2], key.T, "Kᵀ", "key")
    _write(axes[1], "×")
    _write(axes[3], "=")
    _number_table(axes[4], scores, "Q Kᵀ", "{:.0f}", SIGNED_MAP,
                  float(np.abs(scores).max()))
    width, height = (len(_cut_both(a)[0].T) for a in (query, query.T))
    _frame(axes[0], row, 0, 1, width)
    _frame(axes[2], 0, column, len(_cut_both(key.T)[0]), 1)
    _frame(axes[4], row, column, 1, 1)
    axes[0].set_yticks(range(height),
                       [f"q{n + 1}" for n in range(height)])
    axes[2].set_xticks(range(len(key)), [f"k{n + 1}" for n in
                                         range(len(key))])
    axes[2].xaxis.set_label_coords(0.5, -0.12)
    axes[4].set_yticks(range(len(query)), [f"q{n + 1}" for n in
                                           range(len(query))])
    axes[4].set_xticks(range(len(key)), [f"k{n + 1}" for n in
                                         range(len(key))])
    return fig


def attention_formula(query: ArrayLike, key: ArrayLike, value: ArrayLike, *,
                      scores: ArrayLike, scaled: ArrayLike,
                      weights: ArrayLike, output: ArrayLike) -> Figure:
    """Draw softmax(Q Kᵀ / √d_k) V = Z with the numbers of the arrays.

    The upper line shows the formula, the lower line the three small tables
    that stand between its symbols.

    Args:
        query: ``(query_len, head_dim)``.
        key: ``(key_len, head_dim)``; it is drawn transposed.
        value: ``(key_len, value_dim)``.
        scores: ``(query_len, key_len)``.
        scaled: The scores divided by the root of the key width.
        weights: ``(query_len, key_len)``, each in [0, 1].
        output: ``(query_len, value_dim)``.
    """
    query, key, value, scores, scaled, weights, output = (
        np.asarray(a, dtype=float)
        for a in (query, key, value, scores, scaled, weights, output))
    fig = new_figure(8, 4.4)
    upper, lower = fig.subfigures(2, 1, height_ratios=[1.35, 1])
    axes = upper.subplots(1, 9, width_ratios=[3.4, 8, 0.8, 2, 3.6, 0.8, 8,
                                              0.8, 8])
    _write(axes[0], "softmax(")
    _matrix(axes[1], query, "Q", "query")
    _write(axes[2], "×")
    _matrix(axes[3], key.T, "Kᵀ", "key")
    _write(axes[4], f"/ √{query.shape[-1]} )")
    _write(axes[5], "×")
    _matrix(axes[6], value, "V", "value")
    _write(axes[7], "=")
    _matrix(axes[8], output, "Z", "output")
    axes = lower.subplots(1, 5, width_ratios=[3, 2, 3, 2, 3])
    limit = float(np.abs(scores).max())
    _number_table(axes[0], scores, "scores", "{:.0f}", SIGNED_MAP, limit)
    root = np.sqrt(query.shape[-1])
    _arrow(axes[1], f"divide by {root:.4g}")
    _number_table(axes[2], scaled, "scaled scores", "{:.0f}", SIGNED_MAP,
                  limit / root)
    _arrow(axes[3], "softmax of\neach row")
    _number_table(axes[4], weights, "weights", "{:.4f}", WEIGHT_MAP, 1)
    return fig


def shape_chain(arrays: Sequence[tuple[str, ArrayLike, str, str, str]], *,
                signs: Sequence[str]) -> Figure:
    """Draw matrices as boxes whose sides are to scale and named.

    Args:
        arrays: For each matrix its symbol, the matrix, its role (a key of
            ``COLOURS``), and the names of its rows' and columns' axis.
        signs: What stands between one box and the next.
    """
    shapes = [np.shape(array) for _, array, *_ in arrays]
    gap = 3.4
    height = max(rows for rows, _ in shapes)
    width = sum(columns + gap for _, columns in shapes)
    fig = new_figure(8, 2)
    ax = fig.subplots()
    left = 0.0
    for number, (symbol, array, role, down, across) in enumerate(arrays):
        rows, columns = np.shape(array)
        bottom = (height - rows) / 2
        ax.add_patch(Rectangle((left, bottom), columns, rows, linewidth=2,
                               facecolor=tint(COLOURS[role])(0.18),
                               edgecolor=COLOURS[role]))
        middle = left + columns / 2
        ax.text(middle, height / 2, symbol, ha="center", va="center",
                fontsize=13, color=INK)
        ax.text(middle, bottom - 0.2, f"{across} = {columns}", ha="center",
                va="top", fontsize=9)
        ax.text(left - 0.15, height / 2, f"{down}\n{rows}", ha="right",
                va="center", rotation=90, fontsize=9,
                multialignment="center")
        if number < len(signs):
            ax.text(left + columns + gap * 0.3, height / 2, signs[number],
                    ha="center", va="center", fontsize=14)
        left += columns + gap
    ax.set_xlim(-2, width - gap + 0.6)
    ax.set_ylim(-1, height + 0.3)
    ax.set_aspect("equal")
    ax.axis("off")
    return fig


def weight_tables(named: Sequence[tuple[str, ArrayLike, Sequence[str]]], *,
                  digits: int = 0, columns: int = 3) -> Figure:
    """Draw several square tables of weights side by side, on one scale.

    Where all tables have the same tokens, they are named at the edge only.

    Args:
        named: For each table its heading, its weights ``(n, n)`` in [0, 1],
            and the labels of its tokens.
        digits: Decimals printed in the cells; 0 for none.
        columns: Tables in a row.
    """
    rows = -(-len(named) // columns)
    columns = min(columns, len(named))
    same = all(list(tokens) == list(named[0][2]) for *_, tokens in named)
    fig = new_figure(min(8.0, 2.5 * columns + 0.6),
                     1.9 * rows + 0.9 if same else 3.1 * rows)
    axes = fig.subplots(rows, columns, squeeze=False)
    for ax in axes.flat[len(named):]:
        ax.set_visible(False)
    for ax, (heading, weights, tokens) in zip(axes.flat, named):
        image = _draw_table(ax, np.asarray(weights, dtype=float), tokens,
                            tokens, None, digits, cmap=WEIGHT_MAP, vmin=0,
                            vmax=1)
        ax.set_title(heading, fontsize=10)
        ax.tick_params(labelsize=9)
        if same:
            ax.label_outer(remove_inner_ticks=False)
        elif ax not in axes[:, 0]:
            ax.set_ylabel("")
    bar = fig.colorbar(image, ax=axes, shrink=0.7, ticks=[0, 0.5, 1])
    bar.set_label("weight")
    return fig


def _matrix(ax: Axes, array: np.ndarray, name: str, role: str) -> None:
    shown, gap_x, gap_y = _cut_both(array)
    _draw_cells(ax, shown, COLOURS[role],
                float(np.abs(array).max(initial=1e-12)), gap_y, gap_x)
    ax.set_title(name, color=COLOURS[role], fontsize=12)
    ax.set_xlabel(f"{array.shape[0]} × {array.shape[1]}", fontsize=9)


def _number_table(ax: Axes, table: np.ndarray, name: str, form: str,
                  cmap: object, limit: float) -> None:
    low = 0 if cmap is WEIGHT_MAP else -limit
    ax.imshow(table, cmap=cmap, vmin=low, vmax=limit, aspect="equal")
    for row, column in np.ndindex(table.shape):
        number = table[row, column]
        ax.text(column, row, form.format(number), ha="center", va="center",
                fontsize=9,
                color="white" if abs(number) > 0.55 * limit else INK)
    ax.set_xticks(np.arange(-0.5, table.shape[1]), minor=True)
    ax.set_yticks(np.arange(-0.5, table.shape[0]), minor=True)
    ax.grid(which="minor", color="#c3cbd0", linewidth=0.8)
    ax.set_xticks([])
    ax.set_yticks([])
    ax.tick_params(which="both", length=0)
    ax.spines[:].set_visible(False)
    ax.set_title(name, fontsize=10)
    ax.set_xlabel(f"{table.shape[0]} × {table.shape[1]}", fontsize=9)


def _write(ax: Axes, text: str) -> None:
    ax.text(0.5, 0.5, text, ha="center", va="center", fontsize=14,
            transform=ax.transAxes)
    ax.axis("off")


def _arrow(ax: Axes, text: str) -> None:
    ax.annotate("", (1, 0.5), (0, 0.5), xycoords="axes fraction",
                arrowprops={"arrowstyle": "-|>", "color": INK, "lw": 1.5})
    ax.text(0.5, 0.58, text, ha="center", va="bottom", fontsize=9,
            transform=ax.transAxes)
    ax.axis("off")


def _frame(ax: Axes, row: int, column: int, rows: int, columns: int) -> None:
    ax.add_patch(Rectangle((column - 0.5, row - 0.5), columns, rows,
                           fill=False, edgecolor=INK, linewidth=2.4,
                           clip_on=False, zorder=3))
