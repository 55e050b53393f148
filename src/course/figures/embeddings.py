"""Embeddings that are added: look-ups, what is found again, score terms."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import NullLocator
from numpy.typing import ArrayLike

from course.figures.style import (
    COLOURS,
    INK,
    SIGNED_MAP,
    WEIGHT_MAP,
    new_figure,
    signed_tint,
)

__all__ = ["angle_histogram", "lookup_map", "recovery_lines", "shared_axes",
           "term_tables"]

_DASHES = ("-", (0, (4, 2)), (0, (1, 1.5)))


def lookup_map(one_hots: Sequence[tuple[str, ArrayLike]],
               tables: Sequence[ArrayLike], total: ArrayLike) -> Figure:
    """Draw concatenated one-hot rows times stacked tables.

    Args:
        one_hots: For each table its name and the one-hot row that picks.
        tables: The tables, each ``(rows, width)``.
        total: ``(width,)``, the product, which is the sum of the three rows.
    """
    stacked = np.concatenate([np.asarray(table) for table in tables])
    row = np.concatenate([np.asarray(hot) for _, hot in one_hots])
    rows, width = stacked.shape
    fig = new_figure(7.8, 0.29 * rows + 0.7)
    axes = fig.subplots(1, 5, width_ratios=[rows, 0.9, width, 0.9, width])
    limit = float(max(np.abs(stacked).max(), np.abs(total).max()))
    tint = signed_tint(COLOURS["embedding"])
    axes[0].imshow(row[None], cmap=WEIGHT_MAP, vmin=0, vmax=1.4)
    for column, number in enumerate(row):
        axes[0].text(column, 0, f"{number:.0f}", ha="center", va="center",
                     fontsize=9, color="white" if number else INK)
    for ax, array in ((axes[2], stacked), (axes[4],
                                           np.asarray(total)[None])):
        ax.imshow(array, cmap=tint, vmin=-limit, vmax=limit)
        for (down, across), number in np.ndenumerate(array):
            ax.text(across, down, f"{number:.0f}", ha="center", va="center",
                    fontsize=9, color="white" if abs(number) > 0.6 * limit
                    else INK)
    for picked in np.flatnonzero(row):
        axes[2].add_patch(Rectangle((-0.5, picked - 0.5), width, 1,
                                    fill=False, edgecolor=INK, linewidth=2.2))
    start = 0
    for name, hot in one_hots:
        size = len(np.asarray(hot))
        axes[0].text(start + (size - 1) / 2, -0.75, name, ha="center",
                     va="bottom", fontsize=9.5)
        axes[2].text(-0.75, start + (size - 1) / 2, name, ha="right",
                     va="center", fontsize=9.5)
        start += size
        if start < rows:
            axes[0].axvline(start - 0.5, color=INK, linewidth=1.6)
            axes[2].axhline(start - 0.5, color=INK, linewidth=1.6)
    for ax, sign in ((axes[1], "×"), (axes[3], "=")):
        ax.text(0.2 if sign == "×" else 0.5, 0.5, sign, ha="center",
                va="center", fontsize=17, transform=ax.transAxes)
        ax.axis("off")
    for ax in axes[::2]:
        _bare(ax)
        _grid(ax)
    axes[4].text((width - 1) / 2, -0.75, "sum", ha="center", va="bottom",
                 fontsize=9.5)
    return fig


def recovery_lines(widths: ArrayLike,
                   named: Mapping[str, ArrayLike]) -> Figure:
    """Draw which share of the parts is found again, against the width.

    Args:
        widths: Widths of the embeddings; the axis is logarithmic.
        named: For each line its name and a share in [0, 1] for each width.
    """
    widths = np.asarray(widths, dtype=float)
    fig = new_figure(6.4, 3.3)
    ax = fig.subplots()
    for (name, shares), dash in zip(named.items(), _DASHES):
        ax.plot(widths, np.asarray(shares), color=INK, linestyle=dash,
                marker="o", markersize=4, label=name)
    ax.set_xscale("log", base=2)
    ax.set_xticks(widths, [f"{width:.0f}" for width in widths])
    ax.xaxis.set_minor_locator(NullLocator())
    ax.set_ylim(0, 1.03)
    ax.set_xlabel("width of the embeddings")
    ax.set_ylabel("share found again")
    ax.legend(fontsize=9, handlelength=3)
    return fig


def angle_histogram(cosines: Mapping[str, ArrayLike]) -> Figure:
    """Draw how often each cosine occurs, for several sets of pairs.

    Args:
        cosines: For each line its name and its cosines, in [-1, 1].
    """
    fig = new_figure(6.4, 3.1)
    ax = fig.subplots()
    edges = np.linspace(-0.25, 0.25, 61)
    for (name, numbers), dash in zip(cosines.items(), _DASHES):
        numbers = np.asarray(numbers, dtype=float).ravel()
        share, _ = np.histogram(numbers, bins=edges)
        ax.plot((edges[1:] + edges[:-1]) / 2, share / numbers.size,
                color=INK, linestyle=dash, linewidth=1.7, label=name)
    ax.set_xlabel("cosine of the angle between two vectors")
    ax.set_ylabel("how often")
    ax.set_yticks([])
    ax.set_ylim(bottom=0)
    ax.spines["left"].set_visible(False)
    ax.legend(fontsize=9, handlelength=3)
    return fig


def shared_axes(named: Mapping[str, ArrayLike], *, marks: Mapping[str, int],
                label: str = "directions") -> Figure:
    """Draw which share of each table's variance the first directions hold.

    Args:
        named: For each line its name and its share in [0, 1] for 0, 1, 2, …
            directions.
        marks: For the name of a line, the number of directions to mark with
            a dot and a number.
        label: Name of the horizontal axis.
    """
    fig = new_figure(6.4, 3.3)
    ax = fig.subplots()
    for (name, shares), dash in zip(named.items(), _DASHES):
        shares = np.asarray(shares, dtype=float)
        ax.plot(range(len(shares)), shares, color=INK, linestyle=dash,
                linewidth=1.8, label=name)
        if name in marks:
            mark = marks[name]
            ax.plot(mark, shares[mark], "o", color=INK, markersize=5)
            ax.annotate(f"{shares[mark]:.3f}", (mark, shares[mark]),
                        xytext=(5, -13 if shares[mark] > 0.5 else 12),
                        textcoords="offset points", fontsize=9)
    ax.set_ylim(0, 1.03)
    ax.set_xlim(left=0)
    ax.set_xlabel(label)
    ax.set_ylabel("share of the variance")
    ax.legend(fontsize=9, handlelength=3, loc="center right")
    return fig


def term_tables(heads: Mapping[str, Mapping[str, ArrayLike]],
                tokens: Sequence[str]) -> Figure:
    """Draw the terms of which the scores of several heads are the sum.

    Args:
        heads: For each head its name, and for each term its name and its
            scores ``(seq_len, seq_len)``. A head's tables share one scale.
        tokens: Label of each row and column.
    """
    count = max(len(terms) for terms in heads.values())
    fig = new_figure(8.0, 2.35 * len(heads) + 0.9)
    axes = fig.subplots(len(heads), count, squeeze=False)
    for number, (head, terms) in enumerate(heads.items()):
        line = axes[number]
        limit = max(float(np.abs(np.asarray(t)).max())
                    for t in terms.values())
        image = None
        for ax, (name, scores) in zip(line, terms.items()):
            image = ax.imshow(np.asarray(scores, float), cmap=SIGNED_MAP,
                              vmin=-limit, vmax=limit, aspect="equal")
            _bare(ax)
            if number == 0:
                ax.set_title(name, fontsize=10)
            if number == len(heads) - 1:
                ax.set_xticks(range(len(tokens)), tokens, fontsize=9,
                              rotation=90)
        line[0].set_yticks(range(len(tokens)), tokens, fontsize=9)
        line[0].set_ylabel(f"{head}: query", fontsize=10)
        fig.colorbar(image, ax=line, shrink=0.75).set_label("score")
    axes[-1][count // 2].set_xlabel("key")
    return fig


def _bare(ax: Axes) -> None:
    ax.set_xticks([])
    ax.set_yticks([])
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)


def _grid(ax: Axes) -> None:
    ax.set_xticks(np.arange(*ax.get_xlim()), minor=True)
    ax.set_yticks(np.arange(*sorted(ax.get_ylim())), minor=True)
    ax.grid(which="minor", color="#c3cbd0", linewidth=0.8)
    ax.tick_params(which="both", length=0)
