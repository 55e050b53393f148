"""Heads: cut apart, put side by side again, mixed by ``W_o``.

Where a figure must tell heads apart it uses two or more strengths of one
colour and writes the head's number beside it: the colours themselves stand
for queries, keys, values and outputs, as everywhere in the book.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Colormap
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import FancyArrowPatch, Rectangle
from numpy.typing import ArrayLike

from course.figures.style import (
    COLOURS,
    INK,
    PAPER,
    WEIGHT_MAP,
    new_figure,
    signed_tint,
    tint,
)

__all__ = ["blocks_times_blocks", "contribution_table", "head_outputs",
           "layer_map", "merge_cells", "reach_tables", "split_cells",
           "sum_over_heads", "wide_projection"]

_LINE = "#c3cbd0"
_DOTS = (0, (1, 2))


def split_cells(x: ArrayLike, ways: Mapping[str, ArrayLike], *,
                tokens: Sequence[str], role: str = "query") -> Figure:
    """Show which cell of a matrix lands in which head, for several ways.

    Args:
        x: ``(seq_len, width)``, every number different.
        ways: By name, ``(num_heads, seq_len, head_dim)``: the numbers of
            ``x``, cut into heads.
        tokens: Label of each row of ``x``.
        role: The key of ``COLOURS`` whose strengths stand for the heads.
    """
    x = np.asarray(x)
    fig, axes = _ways_figure(x, ways)
    for (name, result), (left, arrow, *right) in zip(ways.items(), axes):
        heads = np.asarray(result)
        home = np.empty(x.shape, dtype=int)
        for head, numbers in enumerate(heads):
            home[np.isin(x, numbers)] = head
        _numbered_cells(left, x, home, len(heads), role)
        left.set_yticks(range(len(tokens)), tokens)
        _arrow_between(arrow, name)
        for head, (ax, numbers) in enumerate(zip(right, heads)):
            _numbered_cells(ax, numbers, np.full(numbers.shape, head),
                            len(heads), role)
            ax.set_xlabel(f"head {head}", fontsize=10)
        left.set_xlabel("features of the token", fontsize=10)
    return fig


def merge_cells(heads: ArrayLike, ways: Mapping[str, ArrayLike], *,
                tokens: Sequence[str], role: str = "output") -> Figure:
    """Show where the cells of the heads land when heads are combined.

    Args:
        heads: ``(num_heads, seq_len, head_dim)``, every number different.
        ways: By name, ``(seq_len, width)``: the same numbers combined.
        tokens: Label of each row of the result.
        role: The key of ``COLOURS`` whose strengths stand for the heads.
    """
    heads = np.asarray(heads)
    first = np.asarray(next(iter(ways.values())))
    fig, axes = _ways_figure(first, ways, mirrored=True, heads=heads)
    for (name, result), (*left, arrow, right) in zip(ways.items(), axes):
        result = np.asarray(result)
        home = np.empty(result.shape, dtype=int)
        for head, (ax, numbers) in enumerate(zip(left, heads)):
            home[np.isin(result, numbers)] = head
            _numbered_cells(ax, numbers, np.full(numbers.shape, head),
                            len(heads), role)
            ax.set_xlabel(f"head {head}", fontsize=10)
        left[0].set_yticks(range(len(tokens)), tokens)
        _arrow_between(arrow, name)
        _numbered_cells(right, result, home, len(heads), role)
        right.set_xlabel("features of the token", fontsize=10)
    return fig


def head_outputs(weights: ArrayLike, outputs: ArrayLike,
                 tokens: Sequence[str], *, columns: int = 4) -> Figure:
    """Draw the weights of each head with its output below them.

    Args:
        weights: ``(num_heads, seq_len, seq_len)``, each in [0, 1].
        outputs: ``(num_heads, seq_len, head_dim)``; every number is drawn,
            grey below 0, coloured above.
        tokens: Label of each row and column.
        columns: Heads in a row.
    """
    weights = np.asarray(weights, dtype=float)
    outputs = np.asarray(outputs, dtype=float)
    rows = -(-len(weights) // columns)
    fig = new_figure(8.0, 3.0 * rows + 0.3)
    axes = fig.subplots(2 * rows, columns, squeeze=False,
                        height_ratios=[1.7, 1] * rows)
    limit = float(np.abs(outputs).max(initial=1e-12))
    image = None
    for ax in axes.flat:
        ax.set_visible(False)
    for head in range(len(weights)):
        row, column = divmod(head, columns)
        upper, lower = axes[2 * row, column], axes[2 * row + 1, column]
        for ax in (upper, lower):
            ax.set_visible(True)
            _bare(ax)
        image = upper.imshow(weights[head], cmap=WEIGHT_MAP, vmin=0, vmax=1)
        _grid(upper, weights[head].shape)
        lower.imshow(outputs[head], cmap=signed_tint(COLOURS["output"]),
                     vmin=-limit, vmax=limit, aspect="auto",
                     interpolation="nearest")
        upper.set_title(f"head {head}", fontsize=10)
        lower.set_xlabel(f"$Z_{{{head}}}$: {outputs.shape[1]} × "
                         f"{outputs.shape[2]}", fontsize=9,
                         color=COLOURS["output"])
        if column == 0:
            for ax in (upper, lower):
                ax.set_yticks(range(len(tokens)), tokens, fontsize=9)
            upper.set_ylabel("query", fontsize=9)
    if image is not None:
        bar = fig.colorbar(image, ax=axes, shrink=0.5, ticks=[0, 0.5, 1],
                           pad=0.01)
        bar.set_label("weight (keys across, in the same order)")
    return fig


def wide_projection(x: ArrayLike, matrices: ArrayLike, results: ArrayLike, *,
                    tokens: Sequence[str], role: str = "query",
                    shown: int = 3) -> Figure:
    """Draw one product with the matrices of all heads side by side.

    Args:
        x: ``(seq_len, embed_dim)``.
        matrices: ``(num_heads, embed_dim, head_dim)``.
        results: ``(num_heads, seq_len, head_dim)``.
        tokens: Label of each row of ``x``.
        role: The key of ``COLOURS`` for matrices and results.
        shown: Columns drawn of each head.
    """
    x, matrices, results = (np.asarray(a, dtype=float)
                            for a in (x, matrices, results))
    heads, depth, cell, gap = len(matrices), 6, 0.135, 0.05
    wide = heads * shown * cell + (heads - 1) * gap
    total = heads * matrices.shape[2]
    x0, upper, lower = 0.95, 1.75, 0.35
    x1 = x0 + depth * cell + 0.5
    fig = _free_figure(x1 + wide + 0.45, 3.15)
    _row_of_blocks(fig, x0, upper, [x[:, :depth]], cell, gap,
                   COLOURS["embedding"], labels=tokens)
    _note(fig, x0 + depth * cell / 2, upper + len(x) * cell + 0.22,
          f"X\n{x.shape[0]} × {x.shape[1]}", COLOURS["embedding"])
    middle = upper + len(x) * cell / 2
    _note(fig, x1 - 0.25, middle, "×", INK, size=15)
    _row_of_blocks(fig, x1, middle - depth * cell / 2,
                   [m[:depth, :shown] for m in matrices], cell, gap,
                   COLOURS[role], heads=True)
    _note(fig, x1 + wide / 2, middle + depth * cell / 2 + 0.38,
          f"the {heads} matrices side by side: {matrices.shape[1]} × {total}",
          COLOURS[role])
    _note(fig, x1 - 0.25, lower + len(x) * cell / 2, "=", INK, size=15)
    _row_of_blocks(fig, x1, lower, [r[:, :shown] for r in results], cell,
                   gap, COLOURS[role], heads=True)
    _note(fig, x1 + wide / 2, lower - 0.2,
          f"the {heads} results side by side: {x.shape[0]} × {total}",
          COLOURS[role])
    return fig


def blocks_times_blocks(heads: ArrayLike, W_o: ArrayLike, output: ArrayLike,
                        *, tokens: Sequence[str]) -> Figure:
    """Draw the concatenation of the heads times ``W_o``.

    Args:
        heads: ``(num_heads, seq_len, head_dim)``.
        W_o: ``(num_heads * head_dim, embed_dim)``.
        output: ``(seq_len, embed_dim)``.
        tokens: Label of each row.
    """
    fig = _free_figure(8.0, 3.2)
    _draw_combination(fig, 0.35, heads, W_o, output, tokens)
    return fig


def sum_over_heads(contributions: ArrayLike, *, tokens: Sequence[str],
                   shown: int = 10) -> Figure:
    """Draw what each head adds to the output, and the sum.

    Args:
        contributions: ``(num_heads, seq_len, embed_dim)``.
        tokens: Label of each row.
        shown: Output features drawn: the first ones.
    """
    parts = np.asarray(contributions, dtype=float)
    total = parts.sum(axis=0)
    limit = float(np.abs(total[:, :shown]).max(initial=1e-12))
    cell, gap = 0.13, 0.38
    width = shown * cell
    columns = 4
    rows = -(-len(parts) // columns)
    fig = _free_figure(8.0, 1.45 * (rows + 1) + 0.2)
    for head, part in enumerate(parts):
        row, column = divmod(head, columns)
        x = 0.9 + column * (width + gap)
        y = 1.45 * (rows - row) + 0.25
        _row_of_blocks(fig, x, y, [part[:, :shown]], cell, 0,
                       COLOURS["output"], limit=limit,
                       labels=tokens if column == 0 else None)
        _note(fig, x + width / 2, y + len(tokens) * cell + 0.12,
              f"$Z_{{{head}}}\\ W_o[{head}]$", COLOURS["output"])
        if head:
            _note(fig, x - gap / 2 if column else 0.1, y + 3.5 * cell, "+",
                  INK, size=14)
    x = 0.9 + (columns - 1) * (width + gap)
    y = 0.2
    _row_of_blocks(fig, x, y, [total[:, :shown]], cell, 0,
                   COLOURS["output"], limit=limit)
    _note(fig, x - gap / 2, y + 3.5 * cell, "=", INK, size=14)
    _note(fig, x + width / 2, y + len(tokens) * cell + 0.12, "output",
          COLOURS["output"])
    _note(fig, x - gap - 0.2, y + 3.5 * cell,
          f"the first {shown} of {parts.shape[-1]} features", INK,
          align="right")
    return fig


def contribution_table(sizes: ArrayLike, tokens: Sequence[str], *,
                       label: str = "length of what the head adds") -> Figure:
    """Draw one number for each token and head as a table.

    Args:
        sizes: ``(seq_len, num_heads)``, none negative.
        tokens: Label of each row.
        label: What the numbers are.
    """
    sizes = np.asarray(sizes, dtype=float)
    fig = new_figure(0.62 * sizes.shape[1] + 2.3, 0.42 * len(tokens) + 1.0)
    ax = fig.subplots()
    limit = float(sizes.max(initial=1e-12))
    image = ax.imshow(sizes, cmap=tint(COLOURS["output"]), vmin=0, vmax=limit,
                      aspect="auto")
    _grid(ax, sizes.shape)
    for row, column in np.ndindex(*sizes.shape):
        dark = sizes[row, column] > 0.85 * limit
        ax.text(column, row, f"{sizes[row, column]:.1f}", ha="center",
                va="center", fontsize=9, color=PAPER if dark else INK)
    ax.set_yticks(range(len(tokens)), tokens)
    ax.set_xticks(range(sizes.shape[1]), [str(h) for h in
                                          range(sizes.shape[1])])
    ax.set_xlabel("head")
    ax.set_ylabel("token")
    ax.spines[:].set_visible(False)
    ax.tick_params(which="both", length=0)
    fig.colorbar(image, ax=ax, shrink=0.8).set_label(label)
    return fig


def reach_tables(tables: Mapping[str, ArrayLike]) -> Figure:
    """Draw how much of each head ends in each block of output features.

    Args:
        tables: By name, ``(num_heads, num_blocks)``, none negative; 0 is
            drawn as an empty cell.
    """
    arrays = {name: np.asarray(t, dtype=float) for name, t in tables.items()}
    limit = max(float(t.max(initial=1e-12)) for t in arrays.values())
    fig = new_figure(3.4 * len(arrays) + 0.8, 3.4)
    axes = fig.subplots(1, len(arrays), squeeze=False)[0]
    image = None
    for ax, (name, table) in zip(axes, arrays.items()):
        image = ax.imshow(table, cmap=tint(COLOURS["output"]), vmin=0,
                          vmax=limit)
        _grid(ax, table.shape)
        ax.set_xticks(range(table.shape[1]))
        ax.set_yticks(range(table.shape[0]))
        ax.tick_params(which="both", length=0)
        ax.spines[:].set_visible(False)
        ax.set_xlabel(f"block of output features\n({name})")
    axes[0].set_ylabel("head that writes")
    bar = fig.colorbar(image, ax=axes, shrink=0.8, pad=0.02)
    bar.set_label("length of what it writes there")
    return fig


def layer_map(x: ArrayLike, query: ArrayLike, key: ArrayLike,
              value: ArrayLike, weights: ArrayLike, heads: ArrayLike,
              W_o: ArrayLike, output: ArrayLike, *,
              tokens: Sequence[str]) -> Figure:
    """Draw a whole multi-head layer with its arrays, from top to bottom.

    Args:
        x: ``(seq_len, embed_dim)``.
        query: ``(num_heads, seq_len, head_dim)``.
        key: As ``query``.
        value: As ``query``.
        weights: ``(num_heads, seq_len, seq_len)``, each in [0, 1].
        heads: As ``query``: the outputs of the heads.
        W_o: ``(num_heads * head_dim, embed_dim)``.
        output: ``(seq_len, embed_dim)``.
        tokens: Label of each row.
    """
    x, query, key, value, weights, heads, W_o, output = (
        np.asarray(a, dtype=float)
        for a in (x, query, key, value, weights, heads, W_o, output))
    num_heads, seq_len, head_dim = query.shape
    cell, row = 0.082, 0.67
    top = 2.85 + num_heads * row  # where the heads' rows begin
    fig = _free_figure(8.0, top + 2.15)

    x_cell, cells = 0.135, 40
    _row_of_blocks(fig, 1.5, top + 1.0, [x[:, :cells - 10], x[:, -10:]],
                   x_cell, 0.12, COLOURS["embedding"], labels=tokens)
    _note(fig, 1.5 + (cells * x_cell + 0.12) / 2, top + 2.05,
          f"X: the tokens, {seq_len} × {x.shape[1]}", COLOURS["embedding"])

    shown = [(query, "query", "Q"), (key, "key", "K"), (value, "value", "V"),
             (heads, "output", "Z")]
    limits = [float(np.abs(a).max(initial=1e-12)) for a, _, _ in shown]
    size = 10 * cell
    left = {"Q": 0.95, "K": 2.3, "A": 4.1, "V": 5.3, "Z": 6.85}
    middle = {name: at + (seq_len * cell if name == "A" else size) / 2
              for name, at in left.items()}
    for _, role, name in shown[:3]:
        _arrow(fig, (middle[name], top + 0.93), (middle[name], top + 0.53),
               COLOURS[role], f"× $W_{name.lower()}$")
    _note(fig, (left["K"] + left["V"] + size) / 2 + 0.1, top + 0.76,
          f"three products, each {seq_len} × "
          f"{num_heads * head_dim},\ncut into {num_heads} heads", INK)
    kind = f"{seq_len} × {head_dim}"
    for _, role, name in shown:
        _note(fig, middle[name], top + 0.34, f"{name}\n{kind}", COLOURS[role])
    _note(fig, middle["A"], top + 0.34, f"weights\n{seq_len} × {seq_len}",
          INK)
    for head in range(num_heads):
        y = top - (head + 1) * row + 0.1
        centre = y + seq_len * cell / 2
        _note(fig, 0.82, centre, f"head {head}", INK, align="right")
        for (array, role, name), limit in zip(shown, limits):
            _row_of_blocks(fig, left[name], y, [_ends(array[head])], cell, 0,
                           COLOURS[role], limit=limit, cut=7)
        _block(fig, left["A"], y, weights[head], cell, WEIGHT_MAP, (0, 1))
        for a, b, sign in (("Q", "K", "and"), ("K", "A", "→"),
                           ("A", "V", "×"), ("V", "Z", "=")):
            end = left[a] + (seq_len * cell if a == "A" else size)
            if sign == "→":
                _arrow(fig, (end + 0.08, centre), (left[b] - 0.06, centre),
                       INK, "")
            else:
                _note(fig, (end + left[b]) / 2, centre,
                      sign, INK, size=9.5 if sign == "and" else 12)
    end = left["K"] + size
    _note(fig, (end + left["A"]) / 2, top + 0.28,
          f"$QK^T/\\sqrt{{{head_dim}}}$\nsoftmax", INK)

    bottom = top - num_heads * row
    turn = bottom - 0.2
    _line(fig, [(middle["Z"], bottom + 0.04), (middle["Z"], turn),
                (2.7, turn)], COLOURS["output"])
    _arrow(fig, (2.7, turn), (2.7, turn - 0.32), COLOURS["output"], "")
    _note(fig, 2.9, turn - 0.17, "the heads side by side again", INK,
          align="left")
    _draw_combination(fig, 0.35, heads, W_o, output, tokens)
    return fig


def _draw_combination(fig: Figure, y: float, heads: ArrayLike, W_o: ArrayLike,
                      output: ArrayLike, tokens: Sequence[str]) -> None:
    heads, W_o, output = (np.asarray(a, dtype=float)
                          for a in (heads, W_o, output))
    num_heads, seq_len, head_dim = heads.shape
    cell, gap, each, wide = 0.13, 0.05, 3, 10
    tall = num_heads * 2 * 0.115 + (num_heads - 1) * 0.04
    low = y + (tall - seq_len * cell) / 2
    x0 = 0.95
    length = num_heads * each * cell + (num_heads - 1) * gap
    _row_of_blocks(fig, x0, low, [h[:, :each] for h in heads], cell, gap,
                   COLOURS["output"], labels=tokens, heads=True)
    _note(fig, x0 + length / 2, low - 0.2,
          f"concatenation, {seq_len} × {num_heads * head_dim}",
          COLOURS["output"])
    x1 = x0 + length + 0.62
    _note(fig, x1 - 0.42, y + tall / 2, "×", INK, size=15)
    blocks = W_o.reshape(num_heads, head_dim, -1)
    limit = float(np.abs(blocks[:, :2, :wide]).max(initial=1e-12))
    for head in range(num_heads):
        at = y + (num_heads - 1 - head) * (2 * 0.115 + 0.04)
        _block(fig, x1, at, blocks[head, :2, :wide], 0.115,
               signed_tint(COLOURS["embedding"]), (-limit, limit))
        _note(fig, x1 - 0.06, at + 0.115, f"{head}", INK, align="right")
    _note(fig, x1 + wide * 0.115 / 2, y - 0.17,
          f"$W_o$, {W_o.shape[0]} × {W_o.shape[1]}", COLOURS["embedding"])
    x2 = x1 + wide * 0.115 + 0.42
    _note(fig, x2 - 0.21, y + tall / 2, "=", INK, size=15)
    _row_of_blocks(fig, x2, low, [output[:, :wide]], cell, 0,
                   COLOURS["output"])
    _note(fig, x2 + wide * cell / 2, low - 0.2,
          f"output, {seq_len} × {output.shape[1]}", COLOURS["output"])


def _ends(array: np.ndarray) -> np.ndarray:
    """The first seven and the last three columns."""
    if array.shape[1] <= 10:
        return array
    return np.concatenate([array[:, :7], array[:, -3:]], axis=1)


def _free_figure(width: float, height: float) -> Figure:
    """A figure whose parts are placed by hand, in inches."""
    fig = new_figure(width, height)
    fig.set_layout_engine("none")
    return fig


def _block(fig: Figure, x: float, y: float, cells: np.ndarray, cell: float,
           cmap: Colormap, limits: tuple[float, float]) -> Axes:
    """Draw cells with the lower left corner at (x, y) inches."""
    wide, high = fig.get_size_inches()
    rows, columns = cells.shape
    ax = fig.add_axes((x / wide, y / high, columns * cell / wide,
                       rows * cell / high))
    ax.imshow(cells, cmap=cmap, vmin=limits[0], vmax=limits[1],
              aspect="auto")
    _bare(ax)
    _grid(ax, cells.shape)
    ax.add_patch(Rectangle((-0.5, -0.5), columns, rows, fill=False,
                           edgecolor="#7c868c", linewidth=0.8,
                           clip_on=False))
    return ax


def _row_of_blocks(fig: Figure, x: float, y: float,
                   blocks: Sequence[np.ndarray], cell: float, gap: float,
                   colour: str, *, labels: Sequence[str] | None = None,
                   heads: bool = False, limit: float | None = None,
                   cut: int | None = None) -> None:
    limit = limit or max(float(np.abs(b).max(initial=1e-12)) for b in blocks)
    for number, cells in enumerate(blocks):
        ax = _block(fig, x, y, cells, cell, signed_tint(colour),
                    (-limit, limit))
        if number == 0 and labels is not None:
            ax.set_yticks(range(len(labels)), labels, fontsize=9)
        if heads:
            ax.set_title(f"{number}", fontsize=9, pad=3)
        if cut is not None:
            ax.axvline(cut - 0.5, color=PAPER, linewidth=3)
            ax.axvline(cut - 0.5, color=INK, linewidth=1, linestyle=_DOTS)
        x += cells.shape[1] * cell + gap


def _note(fig: Figure, x: float, y: float, text: str, colour: str, *,
          size: float = 9.5, align: str = "center") -> None:
    wide, high = fig.get_size_inches()
    fig.text(x / wide, y / high, text, color=colour, fontsize=size,
             ha=align, va="center", linespacing=1.15)


def _arrow(fig: Figure, start: tuple[float, float], end: tuple[float, float],
           colour: str, text: str) -> None:
    wide, high = fig.get_size_inches()
    fig.add_artist(FancyArrowPatch(
        (start[0] / wide, start[1] / high), (end[0] / wide, end[1] / high),
        arrowstyle="-|>", mutation_scale=9, color=colour, linewidth=1.4,
        shrinkA=0, shrinkB=0))
    if text:
        _note(fig, (start[0] + end[0]) / 2 + 0.06, (start[1] + end[1]) / 2,
              f" {text}", colour, align="left")


def _line(fig: Figure, points: Sequence[tuple[float, float]],
          colour: str) -> None:
    wide, high = fig.get_size_inches()
    fig.add_artist(Line2D([x / wide for x, _ in points],
                          [y / high for _, y in points], color=colour,
                          linewidth=1.4))


def _ways_figure(x: np.ndarray, ways: Mapping[str, ArrayLike], *,
                 mirrored: bool = False, heads: np.ndarray | None = None
                 ) -> tuple[Figure, np.ndarray]:
    parts = np.asarray(next(iter(ways.values()))) if heads is None else heads
    seq_len, width = x.shape
    num_heads, _, head_dim = parts.shape
    ratios = [width, 3.6] + [head_dim] * num_heads
    if mirrored:
        ratios = [*ratios[:1:-1], 3.6, width]
    fig = new_figure(7.2, len(ways) * (0.42 * seq_len + 0.75))
    axes = fig.subplots(len(ways), len(ratios), width_ratios=ratios,
                        squeeze=False)
    return fig, axes


def _numbered_cells(ax: Axes, numbers: np.ndarray, home: np.ndarray,
                    num_heads: int, role: str) -> None:
    strength = np.linspace(1.0, 0.15, num_heads)[home]
    ax.imshow(strength, cmap=tint(COLOURS[role]), vmin=0, vmax=1,
              aspect="equal")
    for row, column in np.ndindex(*numbers.shape):
        dark = strength[row, column] > 0.85
        ax.text(column, row, f"{numbers[row, column]:g}", ha="center",
                va="center", fontsize=11, color=PAPER if dark else INK)
    _bare(ax)
    _grid(ax, numbers.shape, colour=PAPER, width=2)


def _arrow_between(ax: Axes, text: str) -> None:
    ax.axis("off")
    ax.annotate("", (1, 0.5), (0, 0.5), xycoords="axes fraction",
                arrowprops={"arrowstyle": "-|>", "color": INK,
                            "linewidth": 1.4})
    ax.text(0.5, 0.58, text, ha="center", va="bottom", fontsize=9.5,
            transform=ax.transAxes)


def _bare(ax: Axes) -> None:
    ax.set_xticks([])
    ax.set_yticks([])
    ax.tick_params(which="both", length=0)
    ax.spines[:].set_visible(False)


def _grid(ax: Axes, shape: tuple[int, ...], *, colour: str = _LINE,
          width: float = 0.6) -> None:
    ax.set_xticks(np.arange(-0.5, shape[1]), minor=True)
    ax.set_yticks(np.arange(-0.5, shape[0]), minor=True)
    ax.grid(which="minor", color=colour, linewidth=width)
    ax.tick_params(which="both", length=0)
