"""Heads of a trained model: who looks where from one word.

Heads are told apart by two colours that stand for nothing else in the book,
and by the look of the line, so that grey paper and every eye will do.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from numpy.typing import ArrayLike

from course.figures.style import COLOURS, INK, WEIGHT_MAP, new_figure

__all__ = ["moves_of_triples", "pair_shares", "rows_of_heads", "two_steps",
           "word_lines"]

#: Neither is the colour of a query, a key, a value or an output.
HEAD_COLOURS = ("#3f3d9e", "#c48a00")
_LOOKS = ("-", (0, (4, 1.2)))
_PALE = "#c3cbd0"


def rows_of_heads(rows: ArrayLike, keys: Sequence[str], *,
                  notes: Sequence[str], columns: int = 2) -> Figure:
    """Draw what one query attends to, in every head of every layer.

    Args:
        rows: ``(num_layers, num_heads, key_len)``, each in [0, 1].
        keys: Label of each column.
        notes: What to say of each layer, beside its number.
        columns: Layers side by side.
    """
    rows = np.asarray(rows, dtype=float)
    lines = -(-len(rows) // columns)
    fig = new_figure(8.0, 2.45 * lines + 1.0)
    axes = fig.subplots(lines, columns, squeeze=False)
    for layer, (ax, table) in enumerate(zip(axes.flat, rows)):
        image = ax.imshow(table, cmap=WEIGHT_MAP, vmin=0, vmax=1,
                          aspect="auto")
        ax.set_title(f"layer {layer}, {notes[layer]}", fontsize=10)
        last = layer >= len(rows) - columns
        ax.set_xticks(range(len(keys)), keys if last else [""] * len(keys),
                      rotation=90, fontsize=9)
        ax.set_yticks(range(len(table)), range(len(table)), fontsize=9)
        ax.set_ylabel("head" if layer % columns == 0 else "")
        ax.set_xlabel("key" if last else "")
        _grid(ax, table.shape)
    bar = fig.colorbar(image, ax=axes, shrink=0.5, ticks=[0, 0.5, 1])
    bar.set_label("weight")
    return fig


def word_lines(panels: Sequence[tuple[str, Sequence[str],
                                      Mapping[str, ArrayLike]]],
               queries: Sequence[int], *, font: str | Path | None = None,
               legend: bool = True) -> Figure:
    """Draw a line from one word to every word that it attends to.

    The weight is the width of the line and the strength of a box beside the
    word, one box for each head.

    Args:
        panels: For each panel its name, its tokens, and by the name of each
            head its row of weights, each in [0, 1].
        queries: Position of the word that asks, in each panel.
        font: A font file for labels that are not in Latin letters.
        legend: Whether to name the heads.
    """
    longest = max(len(tokens) for _, tokens, _ in panels)
    fig = new_figure(min(8.0, 4.0 * len(panels) + 0.4), 0.29 * longest + 1.1)
    other = None if font is None else FontProperties(fname=str(font))
    for ax, (name, tokens, heads), query in zip(
            fig.subplots(1, len(panels), squeeze=False)[0], panels, queries):
        colours, looks = _colours(len(heads))
        for side, align, column in (("left", "right", -0.04),
                                    ("right", "left", 1.05 + _box_width(
                                        len(heads)) * len(heads))):
            for place, token in enumerate(tokens):
                bold = side == "left" and place == query
                ax.text(column, -place, token, ha=align, va="center",
                        fontsize=10, fontweight="bold" if bold else "normal",
                        color=INK if side == "right" or bold else "#69757d",
                        fontproperties=None if token.isascii() else other)
        for number, row in enumerate(heads.values()):
            _lines(ax, np.asarray(row, dtype=float), query, number,
                   len(heads), colours[number], looks[number])
        if legend:
            handles = [Line2D([], [], color=colour, linestyle=look,
                              linewidth=3) for colour, look
                       in zip(colours, looks)]
            ax.legend(handles, heads, loc="upper center", fontsize=9,
                      bbox_to_anchor=(0.5, 0.0), handlelength=2.6)
        ax.set_title(name, fontsize=10)
        ax.set_xlim(-0.75, 1.95)
        ax.set_ylim(-len(tokens) + 0.3, 0.7)
        ax.axis("off")
    return fig


def _lines(ax: Axes, row: np.ndarray, query: int, number: int, count: int,
           colour: str, look: object) -> None:
    """The lines of one head, from the query on the left to the keys."""
    box = _box_width(count)
    for place, weight in enumerate(row):
        if weight >= 0.005:
            ax.plot([0, 1], [-query, -place], color=colour, linestyle=look,
                    linewidth=0.4 + 4.5 * weight,
                    alpha=float(0.25 + 0.75 * weight))
        ax.add_patch(Rectangle((1.02 + box * number, -place - 0.4),
                               0.9 * box, 0.8, facecolor=colour, linewidth=0,
                               alpha=float(weight)))


def _box_width(count: int) -> float:
    return 0.07 if count <= 2 else 0.03


def _colours(count: int) -> tuple[Sequence[str], Sequence[object]]:
    if count <= len(HEAD_COLOURS):
        return HEAD_COLOURS, _LOOKS
    shades = mpl.colormaps["turbo"](np.linspace(0.05, 0.95, count))
    return [mpl.colors.to_hex(shade) for shade in shades], ["-"] * count


def two_steps(tokens: Sequence[str], query: int,
              steps: Sequence[tuple[str, ArrayLike]]) -> Figure:
    """Draw one word that reads in one layer and then in the next.

    Args:
        tokens: The words, from left to right.
        query: Position of the word that reads.
        steps: From below, for each layer its name and the word's weights.
    """
    fig = new_figure(8.0, 1.6 * len(steps) + 1.0)
    ax = fig.subplots()
    for level, (name, weights) in enumerate(steps):
        weights = np.asarray(weights, dtype=float)
        # The last step has the first colour, as in ``word_lines``.
        number = (len(steps) - 1 - level) % len(HEAD_COLOURS)
        colour, look = HEAD_COLOURS[number], _LOOKS[number]
        for place, weight in enumerate(weights):
            if weight >= 0.005:
                ax.plot([place, query], [level, level + 1], color=colour,
                        linestyle=look, linewidth=0.4 + 6 * weight,
                        alpha=float(0.3 + 0.7 * weight), zorder=1)
            if weight >= 0.1 and place != query:
                ax.text(place + 0.1, level + 0.13, f"{weight:.2f}",
                        color=colour, fontsize=9, va="bottom", ha="left")
        ax.text(len(tokens) - 0.3, level + 0.5, name, color=colour,
                fontsize=9.5, va="center", ha="left")
    for level in range(len(steps) + 1):
        shown = range(len(tokens)) if level < len(steps) else [query]
        ax.plot(list(shown), [level] * len(shown), "o", markersize=5,
                color=COLOURS["embedding"], zorder=2)
    ax.plot([query], [len(steps)], "o", color=INK, markersize=9, zorder=3)
    for place, token in enumerate(tokens):
        ax.text(place, -0.12, token, rotation=60, ha="right", va="top",
                rotation_mode="anchor", fontsize=9.5,
                fontweight="bold" if place == query else "normal")
    ax.set_xlim(-0.6, len(tokens) + 2.3)
    ax.set_ylim(-0.7, len(steps) + 0.15)
    ax.axis("off")
    return fig


def pair_shares(names: Sequence[str],
                panels: Mapping[str, ArrayLike]) -> Figure:
    """Draw for each pair of sentences how a share moves with the adjective.

    Args:
        names: Label of each pair.
        panels: By name, ``(len(names), 2)``: the share of the first noun with
            the adjective that fits it, and with the one that does not.
    """
    fig = new_figure(8.0, 0.235 * len(names) + 1.3)
    axes = fig.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for ax, (title, shares) in zip(axes, panels.items()):
        for place, (fits, other) in enumerate(np.asarray(shares, float)):
            right = fits > other
            colour = HEAD_COLOURS[0] if right else HEAD_COLOURS[1]
            ax.plot([other, fits], [place, place], color=colour,
                    linestyle=_LOOKS[0 if right else 1], linewidth=1.8)
            ax.plot(other, place, "o", color=colour, markersize=5,
                    markerfacecolor="white")
            ax.plot(fits, place, "o", color=colour, markersize=6)
        ax.axvline(0.5, color=_PALE, linewidth=0.8, zorder=0)
        ax.set_title(title, fontsize=10)
        ax.set_xlim(0, 1)
        ax.set_xticks([0, 0.5, 1])
        ax.set_xlabel("share of the first noun")
        ax.grid(axis="y", color="#eceff1", linewidth=0.8)
        ax.tick_params(axis="y", length=0)
    axes[0].set_yticks(range(len(names)), names, fontsize=9)
    axes[0].invert_yaxis()
    marks = [Line2D([], [], color=INK, marker="o", linestyle="", markersize=6),
             Line2D([], [], color=INK, marker="o", linestyle="", markersize=5,
                    markerfacecolor="white"),
             Line2D([], [], color=HEAD_COLOURS[0]),
             Line2D([], [], color=HEAD_COLOURS[1], linestyle=_LOOKS[1])]
    fig.legend(marks, ["adjective fits the first noun", "fits the second",
                       "moves the right way", "the wrong way"], ncols=2,
               loc="outside lower center", fontsize=9)
    return fig


def moves_of_triples(moves: ArrayLike, inside: ArrayLike,
                     intact: float) -> Figure:
    """Draw what is left of an effect when three heads are cut.

    Args:
        moves: The mean move after each cut.
        inside: How many of the three heads are suspected, 0 to 3.
        intact: The mean move when nothing is cut.
    """
    moves, inside = np.asarray(moves, float), np.asarray(inside, int)
    fig = new_figure(7.0, 2.9)
    ax = fig.subplots()
    for count in range(4):
        found = np.sort(moves[inside == count])
        # Spread the points over a band, always in the same way.
        band = 0.5 * ((np.arange(len(found)) * 0.618) % 1 - 0.5)
        ax.plot(found, count + band, "o", markersize=4.5, alpha=0.75,
                color=HEAD_COLOURS[1] if count == 3 else HEAD_COLOURS[0])
    ax.axvline(intact, color=INK, linewidth=1.2, linestyle=(0, (2, 2)))
    ax.text(intact, -0.62, "nothing cut ", ha="right", va="center",
            fontsize=9)
    ax.axvline(0, color=_PALE, linewidth=1)
    ax.set_yticks(range(4), ["none of them", "one", "two", "all three"])
    ax.set_ylabel("adjective heads\namong the three cut")
    ax.set_ylim(-0.85, 3.6)
    ax.set_xlabel("mean move of the share, held-out pairs")
    return fig


def _grid(ax: Axes, shape: tuple[int, ...]) -> None:
    ax.set_xticks(np.arange(-0.5, shape[1]), minor=True)
    ax.set_yticks(np.arange(-0.5, shape[0]), minor=True)
    ax.grid(which="minor", color="#d7dde1", linewidth=0.5)
    ax.tick_params(which="both", length=0)
    ax.spines[:].set_visible(False)
