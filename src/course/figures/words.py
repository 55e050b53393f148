"""What happens to one word: its vectors, its scores, its weighted sum.

Vectors are rows of coloured cells; a long one is cut in the middle. Within
one figure all vectors of one role share one scale of colour, so that a vector
times a small weight looks as faded as it is.
"""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from course.figures.matrices import _cut, _draw_cells
from course.figures.style import COLOURS, INK, new_figure, signed_tint, tint

__all__ = ["arrows", "bar_steps", "compare_weights", "gathering", "mixture",
           "one_word", "projections", "running_sums", "small_product",
           "weighted_sum"]

_CELLS = 13  # cells drawn of a long vector where two stand side by side


def gathering(weights: ArrayLike, tokens: Sequence[str],
              receiver: str, *, digits: int = 2) -> Figure:
    """Draw one word that gathers from several, one line for each.

    Args:
        weights: ``(len(tokens),)``, each in [0, 1]; width of each line.
        tokens: The words that give.
        receiver: The word that gathers.
        digits: Decimals of the weights that are printed.
    """
    weights = np.asarray(weights, dtype=float)
    fig = new_figure(min(8.0, 1.1 * len(weights) + 1.2), 2.6)
    ax = fig.subplots()
    middle = (len(weights) - 1) / 2
    for position, (weight, token) in enumerate(zip(weights, tokens)):
        if weight >= 0.0005:
            ax.plot([position, middle], [0.12, 0.88], color=COLOURS["query"],
                    linewidth=max(0.4, 12 * weight), alpha=0.45,
                    solid_capstyle="butt")
        ax.text(position, 0.12, token, ha="center", va="center", fontsize=10,
                bbox=_box("value"))
        ax.text(position, -0.1, f"{weight:.{digits}f}", ha="center", va="top",
                fontsize=10)
    ax.text(middle, 0.92, receiver, ha="center", va="center", fontsize=11,
            bbox=_box("query"))
    ax.set_xlim(-0.6, len(weights) - 0.4)
    ax.set_ylim(-0.35, 1.12)
    ax.axis("off")
    return fig


def small_product(left: ArrayLike, right: ArrayLike, result: ArrayLike, *,
                  names: tuple[str, str, str],
                  roles: tuple[str, str, str]) -> Figure:
    """Draw ``left @ right = result`` with every number in its cell.

    Args:
        left: ``(m, n)``, or a vector as one row.
        right: ``(n, p)``.
        result: ``(m, p)``, or a vector as one row.
        names: What to write above each matrix.
        roles: A key of ``COLOURS`` for each.
    """
    arrays = [np.atleast_2d(np.asarray(a, dtype=float))
              for a in (left, right, result)]
    widths = [a.shape[1] for a in arrays]
    height = max(a.shape[0] for a in arrays)
    fig = new_figure(min(8.0, 0.62 * sum(widths) + 1.4), 0.55 * height + 1.0)
    axes = fig.subplots(1, 5, width_ratios=[widths[0], 0.8, widths[1], 0.8,
                                            widths[2]])
    for ax, sign in ((axes[1], "×"), (axes[3], "=")):
        ax.text(0.5, 0.5, sign, ha="center", va="center", fontsize=18,
                transform=ax.transAxes)
        ax.axis("off")
    for ax, array, name, role in zip(axes[::2], arrays, names, roles):
        limit = 1.6 * float(np.abs(array).max(initial=1e-12))
        _draw_cells(ax, array, COLOURS[role], limit, None, None)
        _write_numbers(ax, array)
        ax.set_title(name, color=COLOURS[role], fontsize=11)
        ax.set_xlabel(f"{array.shape[0]} × {array.shape[1]}", fontsize=9)
    return fig


def projections(tokens: Sequence[str],
                rows: Sequence[tuple[str, ArrayLike, str]]) -> Figure:
    """Draw several vectors of each word: words across, kinds of vector down.

    Args:
        tokens: Name of each column.
        rows: For each kind its label, its vectors ``(len(tokens), width)``
            and its role, a key of ``COLOURS``.
    """
    fig = new_figure(8.0, 0.75 * len(rows) + 0.5)
    axes = fig.subplots(len(rows), len(tokens), squeeze=False)
    for line, (label, matrix, role) in zip(axes, rows):
        matrix = np.asarray(matrix, dtype=float)
        limit = float(np.abs(matrix).max(initial=1e-12))
        for ax, vector in zip(line, matrix):
            _draw_vector(ax, vector, role, limit)
            ax.set_xlabel(f"{len(vector)} numbers", fontsize=9)
        _name(line[0], label, role)
    for ax, token in zip(axes[0], tokens):
        ax.set_title(token, fontsize=11)
    return fig


def arrows(named: Sequence[tuple[str, ArrayLike, str]], *,
           onto: ArrayLike | None = None) -> Figure:
    """Draw vectors of two numbers as arrows from the origin.

    Args:
        named: For each arrow its label, its two numbers and its role.
        onto: A vector whose direction the others are dropped onto, by a
            dotted line that meets it at a right angle.
    """
    fig = new_figure(5.4, 4.0)
    ax = fig.subplots()
    ends = np.array([v for _, v, _ in named], dtype=float)
    for (label, _, role), end in zip(named, ends):
        ax.annotate("", end, (0, 0), arrowprops={
            "arrowstyle": "-|>", "color": COLOURS[role], "linewidth": 2.2,
            "shrinkA": 0, "shrinkB": 0})
        left = end[0] < 0
        ax.annotate(label, end, xytext=(-6 if left else 6, 3),
                    textcoords="offset points", ha="right" if left else "left",
                    color=COLOURS[role], fontsize=10, fontweight="bold")
    points = np.vstack([ends, np.zeros((1, 2))])
    if onto is not None:
        direction = np.asarray(onto, float) / np.linalg.norm(onto)
        feet = (ends @ direction)[:, None] * direction
        reach = np.array([feet.min(0), feet.max(0)])
        ax.plot(*reach.T, color=INK, linewidth=0.8, linestyle=":")
        for end, foot in zip(ends, feet):
            ax.plot(*np.stack([end, foot]).T, color=INK, linewidth=1.2,
                    linestyle=(0, (1, 2)))
            ax.plot(*foot, "o", color=INK, markersize=4)
        points = np.vstack([points, feet])
    margin = np.array([1.5, 0.5])
    low, high = points.min(axis=0) - margin, points.max(axis=0) + margin
    ax.set_xlim(low[0], high[0])
    ax.set_ylim(low[1], high[1])
    ax.set_aspect("equal")
    ax.set_xticks(np.arange(np.ceil(low[0]), high[0]))
    ax.set_yticks(np.arange(np.ceil(low[1]), high[1]))
    ax.axhline(0, color="#c3cbd0", linewidth=0.8, zorder=0)
    ax.axvline(0, color="#c3cbd0", linewidth=0.8, zorder=0)
    ax.set_xlabel("first number")
    ax.set_ylabel("second number")
    return fig


def running_sums(products: ArrayLike, labels: Sequence[str]) -> Figure:
    """Draw how the products of two vectors add up to their dot product.

    Args:
        products: ``(n, width)``; each row is added up from the left.
        labels: Name of each row, written at its end with the sum.
    """
    products = np.asarray(products, dtype=float)
    sums = np.concatenate(
        [np.zeros((len(products), 1)), products.cumsum(axis=1)], axis=1)
    fig = new_figure(7.2, 3.2)
    ax = fig.subplots()
    for row, label, style in zip(sums, labels, ("-", "--", "-.", ":")):
        ax.plot(row, style, color=COLOURS["key"], drawstyle="steps-post")
        ax.annotate(f"{label} = {row[-1]:.0f}", (len(row) - 1, row[-1]),
                    xytext=(6, 0), textcoords="offset points", va="center",
                    color=COLOURS["key"], fontsize=10)
    ax.axhline(0, color="#c3cbd0", linewidth=0.8, zorder=0)
    ax.set_xlim(0, sums.shape[1] * 1.22)
    ax.set_xticks(np.linspace(0, products.shape[1], 5).round())
    ax.margins(y=0.08)
    ax.set_xlabel("number of products added")
    ax.set_ylabel("sum so far")
    return fig


def bar_steps(steps: Sequence[tuple[str, ArrayLike, int]],
              tokens: Sequence[str]) -> Figure:
    """Draw the stages of a computation as bars, one panel for each stage.

    Args:
        steps: For each stage its name, one number for each word, and how
            many decimals to print. Each stage has its own scale, from 0.
        tokens: Name of each bar.
    """
    fig = new_figure(min(8.0, 2.35 * len(steps) + 0.6),
                     0.45 * len(tokens) + 0.9)
    axes = fig.subplots(1, len(steps), sharey=True, squeeze=False)[0]
    for ax, (name, values, digits) in zip(axes, steps):
        values = np.asarray(values, dtype=float)
        largest = float(np.abs(values).max(initial=1e-12))
        ax.barh(range(len(values)), values, color=COLOURS["query"])
        for position, number in enumerate(values):
            ax.text(max(number, 0) + 0.04 * largest, position,
                    f"{number:,.{digits}f}", va="center", fontsize=9)
        ax.set_xlim(min(0, float(values.min(initial=0)) * 1.1),
                    1.75 * largest)
        ax.set_xticks([])
        ax.spines["bottom"].set_visible(False)
        ax.set_xlabel(name)
    axes[0].set_yticks(range(len(tokens)), tokens)
    axes[0].invert_yaxis()
    return fig


def compare_weights(choices: Sequence[tuple[str, ArrayLike]],
                    tokens: Sequence[str]) -> Figure:
    """Draw the weights that several ways of computing them give.

    Args:
        choices: For each way its name and its weights, each in [0, 1].
        tokens: The word that each weight belongs to.
    """
    fig = new_figure(7.2, 0.62 * len(choices) * len(tokens) / 2 + 1.0)
    ax = fig.subplots()
    shades = tint(COLOURS["query"])(np.linspace(1, 0.4, len(tokens)))
    step = 0.8 / len(tokens)
    for row, (_, weights) in enumerate(choices):
        for place, weight in enumerate(np.asarray(weights, dtype=float)):
            height = row - 0.4 + step * (place + 0.5)
            ax.barh(height, weight, 0.9 * step, color=shades[place],
                    label=tokens[place] if row == 0 else None)
            ax.text(weight + 0.012, height, f"{weight:.4f}", va="center",
                    fontsize=9)
    ax.set_yticks(range(len(choices)), [name for name, _ in choices])
    ax.invert_yaxis()
    ax.set_xlim(0, 1.15)
    ax.set_xticks([0, 0.25, 0.5, 0.75, 1])
    ax.set_xlabel("weight")
    fig.legend(loc="outside upper right", ncols=len(tokens))
    return fig


def weighted_sum(values: ArrayLike, products: ArrayLike, output: ArrayLike,
                 weights: ArrayLike, tokens: Sequence[str],
                 name: str = "z₁") -> Figure:
    """Draw the values, the values times their weights, and their sum.

    Args:
        values: ``(n, width)``.
        products: ``(n, width)``, each value times its weight.
        output: ``(width,)``, the sum of the products.
        weights: ``(n,)``, printed.
        tokens: The word of each value.
        name: Name of the output.
    """
    values, products, output = (
        np.asarray(a, dtype=float) for a in (values, products, output))
    limit = float(max(np.abs(a).max(initial=1e-12)
                      for a in (values, products, output)))
    rows: list[tuple[str, np.ndarray, str]] = []
    for place, (token, weight) in enumerate(
            zip(tokens, np.asarray(weights, dtype=float)), start=1):
        v = f"v{_below(place)}"
        rows += [(f"{v}, {token}", values[place - 1], "value"),
                 (f"{weight:.4f} × {v}", products[place - 1], "value")]
    rows.append((f"{name}, the sum", output, "output"))
    fig = new_figure(7.4, 0.47 * len(rows) + 0.3)
    for ax, (label, vector, role) in zip(fig.subplots(len(rows), 1), rows):
        _draw_vector(ax, vector, role, limit, cells=20)
        _name(ax, label, role)
    return fig


def mixture(values: ArrayLike, output: ArrayLike, labels: Sequence[str],
            name: str) -> Figure:
    """Draw a weighted average of points of two numbers, and the points.

    Args:
        values: ``(n, 2)``.
        output: ``(2,)``.
        labels: Name of each value.
        name: Name of the average.
    """
    values = np.asarray(values, dtype=float)
    output = np.asarray(output, dtype=float)
    fig = new_figure(4.6, 3.4)
    ax = fig.subplots()
    closed = np.vstack([values, values[:1]])
    ax.plot(*closed.T, color=COLOURS["value"], linewidth=1.2, alpha=0.6)
    for point, label, role in [
            *((v, label, "value") for v, label in zip(values, labels)),
            (output, name, "output")]:
        ax.plot(*point, "o", color=COLOURS[role], markersize=8)
        ax.annotate(label, point, xytext=(8, 5), textcoords="offset points",
                    color=COLOURS[role], fontsize=10)
    low, high = values.min(0), values.max(0)
    room = 0.12 * (high - low) + 0.2
    ax.set_xlim(low[0] - room[0], high[0] + 4 * room[0])
    ax.set_ylim(low[1] - room[1], high[1] + 2 * room[1])
    ax.set_xlabel("first number")
    ax.set_ylabel("second number")
    return fig


def one_word(tokens: Sequence[str],
             steps: Sequence[tuple[str, ArrayLike, str]],
             output: tuple[str, ArrayLike]) -> Figure:
    """Draw every step for one word, from the embeddings to the output.

    Args:
        tokens: Name of each column.
        steps: From top to bottom, for each step its label, its numbers and
            its role. One number a word, ``(len(tokens),)``, is printed; a
            vector a word, ``(len(tokens), width)``, is drawn. A row of NaN
            leaves its place empty.
        output: Label and numbers of the vector that comes out.
    """
    last = (output[0], np.asarray(output[1], dtype=float)[None], "output")
    rows = [*((label, np.asarray(a, dtype=float), role)
              for label, a, role in steps), last]
    limits: dict[str, float] = {}
    for _, array, role in rows:
        if array.ndim == 2:
            largest = float(np.nanmax(np.abs(array), initial=1e-12))
            limits[role] = max(limits.get(role, 0), largest)
    fig = new_figure(8.0, 0.52 * len(rows) + 0.4)
    axes = fig.subplots(len(rows), len(tokens), squeeze=False)
    for line, (label, array, role) in zip(axes, rows):
        for place, ax in enumerate(line):
            if place >= len(array) or np.isnan(array[place]).any():
                _clear(ax)
            elif array.ndim == 2:
                _draw_vector(ax, array[place], role, limits[role])
            else:
                _print_number(ax, array[place])
        _name(line[0], label, role)
    for ax, token in zip(axes[0], tokens):
        ax.set_title(token, fontsize=11)
    return fig


def _draw_vector(ax: Axes, vector: np.ndarray, role: str, limit: float,
                 cells: int = _CELLS) -> None:
    shown, gap = _cut(vector[None, :], cells)
    _draw_cells(ax, shown, COLOURS[role], limit, None, gap)


def _name(ax: Axes, label: str, role: str) -> None:
    ax.set_ylabel(label, rotation=0, ha="right", va="center", labelpad=8,
                  color=COLOURS[role], fontsize=10)


def _print_number(ax: Axes, number: float) -> None:
    whole = abs(number - round(number)) < 1e-6
    text = f"{number:.0f}" if whole else f"{number:.4f}"
    ax.text(0.5, 0.5, text, ha="center", va="center", fontsize=12,
            transform=ax.transAxes)
    _clear(ax)


def _clear(ax: Axes) -> None:
    ax.set_xticks([])
    ax.set_yticks([])
    ax.spines[:].set_visible(False)


def _write_numbers(ax: Axes, array: np.ndarray) -> None:
    for (row, column), number in np.ndenumerate(array):
        ax.text(column, row, f"{number:g}", ha="center", va="center",
                fontsize=11, color=INK)


def _box(role: str) -> dict[str, object]:
    pale = signed_tint(COLOURS[role])(0.58)
    return {"boxstyle": "round,pad=0.35", "facecolor": pale,
            "edgecolor": COLOURS[role]}


def _below(number: int) -> str:
    return str(number).translate(str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉"))
