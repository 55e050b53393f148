"""Positions, and the block around attention: tables, turns, boxes, depth."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch
from numpy.typing import ArrayLike

from course.figures.style import (
    COLOURS,
    INK,
    PAPER,
    SIGNED_MAP,
    new_figure,
    signed_tint,
)

__all__ = ["Boxes", "block_diagram", "depth_curves", "distance_products",
           "position_table", "position_waves", "reordered_rows",
           "rotating_pairs"]

_PALE = "#eef2f4"
_LINE = "#c3cbd0"
#: Lines are told apart by their dashes and names, not by colour alone.
_DASHES = [(0, (1, 1.5)), (0, (4, 2)), (0, (6, 2, 1, 2)), "-"]


def reordered_rows(first: ArrayLike, second: ArrayLike, order: Sequence[int],
                   tokens: Sequence[str], *, role: str = "output",
                   cells: int = 8) -> Figure:
    """Draw the rows of two orders, with a line from each row to its twin.

    Args:
        first: ``(seq_len, width)``, one row for each token.
        second: The same for the reordered tokens.
        order: Row i of ``second`` belongs to token ``order[i]``.
        tokens: Label of each token, in the first order.
        role: A key of ``COLOURS``.
        cells: Features drawn of each row.
    """
    tables = [np.asarray(table, float)[:, :cells] for table in (first, second)]
    limit = max(np.abs(table).max() for table in tables)
    labels = [tokens, [tokens[place] for place in order]]
    fig = new_figure(7.6, 0.36 * len(tokens) + 0.5)
    left, middle, right = fig.subplots(1, 3, width_ratios=[1, 0.55, 1])
    for ax, table, names in zip((left, right), tables, labels):
        ax.imshow(table, cmap=signed_tint(COLOURS[role]), vmin=-limit,
                  vmax=limit, aspect="auto")
        ax.set_yticks(range(len(names)), names)
        ax.set_yticks(np.arange(-0.5, len(names)), minor=True)
        ax.set_xticks(np.arange(-0.5, table.shape[1]), minor=True)
        ax.set_xticks([])
        ax.grid(which="minor", color=_LINE, linewidth=0.8)
        ax.tick_params(which="both", length=0)
        ax.spines[:].set_visible(False)
        ax.set_xlabel(f"first {cells} features", fontsize=9)
    right.yaxis.tick_right()
    for row, place in enumerate(order):
        middle.plot([0, 1], [place, row], color=INK, linewidth=1.2)
    middle.set_xlim(0, 1)
    middle.set_ylim(len(tokens) - 0.5, -0.5)
    middle.axis("off")
    return fig


def position_table(table: ArrayLike, *, first: int = 0) -> Figure:
    """Draw a table of positions: positions down, features across.

    Args:
        table: ``(seq_len, embed_dim)``, numbers in [-1, 1].
        first: The position of the first row.
    """
    table = np.asarray(table, dtype=float)
    fig = new_figure(7.2, 3.4)
    ax = fig.subplots()
    extent = (-0.5, table.shape[1] - 0.5, first + len(table) - 0.5,
              first - 0.5)
    image = ax.imshow(table, cmap=SIGNED_MAP, vmin=-1, vmax=1, extent=extent,
                      aspect="auto", interpolation="nearest")
    ax.set_xlabel("feature")
    ax.set_ylabel("position")
    bar = fig.colorbar(image, ax=ax, ticks=[-1, 0, 1], shrink=0.8)
    bar.set_label("value")
    return fig


def position_waves(table: ArrayLike, features: Sequence[int]) -> Figure:
    """Draw a few columns of a table of positions as curves.

    Args:
        table: ``(seq_len, embed_dim)``.
        features: The columns to draw, one below the other.
    """
    table = np.asarray(table, dtype=float)
    fig = new_figure(6.6, 0.75 * len(features) + 0.6)
    axes = fig.subplots(len(features), 1, sharex=True, squeeze=False)[:, 0]
    for ax, feature in zip(axes, features):
        ax.plot(table[:, feature], color=INK, linewidth=1.5)
        ax.axhline(0, color=_LINE, linewidth=0.8, zorder=0)
        ax.set_ylim(-1.15, 1.15)
        ax.set_yticks([-1, 1])
        ax.set_ylabel(f"feature\n{feature}", rotation=0, ha="right",
                      va="center", fontsize=9)
    axes[-1].set_xlabel("position")
    return fig


def distance_products(products: ArrayLike, *, anchors: Sequence[int]
                      ) -> Figure:
    """Draw dot products of positions: as a table, and against distance.

    Args:
        products: ``(seq_len, seq_len)``, symmetric.
        anchors: Positions whose row is drawn against the distance.
    """
    products = np.asarray(products, dtype=float)
    size = float(np.abs(products).max())
    fig = new_figure(7.6, 3.1)
    left, right = fig.subplots(1, 2, width_ratios=[1, 1.25])
    image = left.imshow(products, cmap=SIGNED_MAP, vmin=-size, vmax=size,
                        interpolation="nearest")
    left.set_xlabel("position")
    left.set_ylabel("position")
    fig.colorbar(image, ax=left, shrink=0.75).set_label("dot product")
    marks = ["o", "x", "s", "^"]
    for anchor, mark in zip(anchors, marks):
        distance = np.arange(len(products)) - anchor
        right.plot(distance, products[anchor], mark, color=INK, markersize=4,
                   fillstyle="none", label=f"position {anchor}")
    right.set_xlabel("distance to the position")
    right.set_ylabel("dot product")
    right.legend(fontsize=9)
    return fig


def rotating_pairs(turned: ArrayLike, names: Sequence[str], *,
                   role: str = "query") -> Figure:
    """Draw pairs of features as arrows, one arrow for each position.

    Args:
        turned: ``(pairs, positions, 2)``; position 0 is not turned.
        names: Name of each pair.
        role: A key of ``COLOURS``.
    """
    turned = np.asarray(turned, dtype=float)
    fig = new_figure(2.6 * len(turned), 2.9)
    axes = fig.subplots(1, len(turned), squeeze=False)[0]
    for ax, arrows, name in zip(axes, turned, names):
        size = 1.32 * np.linalg.norm(arrows, axis=-1).max()
        for position, (x, y) in enumerate(arrows):
            strength = 1 - 0.65 * position / max(1, len(arrows) - 1)
            ax.annotate("", xy=(x, y), xytext=(0, 0), arrowprops={
                "arrowstyle": "-|>", "color": COLOURS[role], "linewidth": 2,
                "alpha": strength, "shrinkA": 0, "shrinkB": 0})
            ax.text(1.17 * x, 1.17 * y, str(position), ha="center",
                    va="center", fontsize=10)
        ax.axhline(0, color=_LINE, linewidth=0.8, zorder=0)
        ax.axvline(0, color=_LINE, linewidth=0.8, zorder=0)
        ax.set_xlim(-size, size)
        ax.set_ylim(-size, size)
        ax.set_aspect("equal")
        ax.set_xticks([])
        ax.set_yticks([])
        ax.spines[:].set_visible(False)
        ax.set_xlabel(name, fontsize=10)
    return fig


@dataclass(frozen=True)
class Boxes:
    """One column of a block diagram.

    Attributes:
        name: What stands above the column.
        steps: For each box its text and what it does: "mixes" tokens (drawn
            dark), treats "each" token alone (pale), or "adds" the residual
            path (a circle). "ends" is plain text.
        shapes: For each box the shape that leaves it; "" for none.
        skips: Residual paths, as pairs of indices of boxes.
    """

    name: str
    steps: Sequence[tuple[str, str]]
    shapes: Sequence[str]
    skips: Sequence[tuple[int, int]]


def block_diagram(columns: Sequence[Boxes], *,
                  memory: tuple[int, int] | None = None) -> Figure:
    """Draw blocks as columns of boxes, to be read downwards.

    Args:
        columns: The blocks, from left to right.
        memory: Two indices: the box of the first column whose output goes to
            the box of the second column (cross-attention). None for no such
            arrow.
    """
    rows = max(len(column.steps) for column in columns)
    fig = new_figure(min(8.0, 3.9 * len(columns)), 0.56 * rows + 0.6)
    ax = fig.subplots()
    for number, column in enumerate(columns):
        _draw_column(ax, 6.4 * number, column)
    if memory is not None:
        start, end = memory
        ax.plot([1.62, 3.2, 3.2], [-start, -start, -end], color=INK,
                linewidth=1.6)
        _arrow(ax, (3.2, -end), (6.4 - 1.62, -end))
        ax.text(3.1, -(start + end) / 2, "memory", rotation=90, fontsize=9,
                ha="right", va="center")
    ax.set_xlim(-2.6, 6.4 * len(columns) - 2.4)
    ax.set_ylim(-rows + 0.3, 1.1)
    ax.axis("off")
    return fig


def _draw_column(ax: Axes, x: float, column: Boxes) -> None:
    ax.text(x, 0.85, column.name, ha="center", va="center", fontsize=11,
            fontweight="bold")
    for row, ((text, kind), shape) in enumerate(
            zip(column.steps, column.shapes)):
        _draw_step(ax, x, -row, text, kind)
        if row + 1 < len(column.steps):
            _arrow(ax, (x, -row - 0.3), (x, -row - 0.7))
        if shape:
            ax.text(x + 0.18, -row - 0.5, shape, fontsize=8.5, ha="left",
                    va="center")
    for start, end in column.skips:
        side = x - 2.05
        ax.plot([x, side, side], [-start - 0.42, -start - 0.42, -end],
                color=INK, linewidth=1.3)
        _arrow(ax, (side, -end), (x - 0.28, -end))


def _draw_step(ax: Axes, x: float, y: float, text: str, kind: str) -> None:
    if kind == "ends":
        ax.text(x, y, text, ha="center", va="center", fontsize=10)
        return
    if kind == "adds":
        ax.plot(x, y, "o", markersize=17, markerfacecolor=PAPER,
                markeredgecolor=INK, markeredgewidth=1.3)
        ax.text(x, y - 0.02, text, ha="center", va="center", fontsize=13)
        return
    dark = kind == "mixes"
    ax.add_patch(FancyBboxPatch(
        (x - 1.55, y - 0.27), 3.1, 0.54, boxstyle="round,pad=0.04",
        facecolor=INK if dark else _PALE, edgecolor=INK, linewidth=1.1))
    ax.text(x, y, text, ha="center", va="center", fontsize=9.5,
            color=PAPER if dark else INK)


def _arrow(ax: Axes, start: tuple[float, float],
           end: tuple[float, float]) -> None:
    ax.annotate("", xy=end, xytext=start, arrowprops={
        "arrowstyle": "-|>", "color": INK, "linewidth": 1.3, "shrinkA": 0,
        "shrinkB": 0})


def depth_curves(panels: Mapping[str, Mapping[str, ArrayLike]], *,
                 floor: float = 1e-16) -> Figure:
    """Draw measurements behind each of many blocks, on logarithmic axes.

    Args:
        panels: For each panel the name of its axis, and for each curve its
            name and one number for each block. The names of the curves are
            the same in all panels.
        floor: Smaller numbers are drawn at this height.
    """
    fig = new_figure(7.8, 3.5)
    axes = fig.subplots(1, len(panels), squeeze=False)[0]
    for ax, (axis, curves) in zip(axes, panels.items()):
        for (name, numbers), dash in zip(curves.items(), _DASHES):
            numbers = np.maximum(np.asarray(numbers, dtype=float), floor)
            ax.semilogy(np.arange(1, len(numbers) + 1), numbers, color=INK,
                        linestyle=dash, linewidth=1.8, label=name)
        ax.set_xlabel("block")
        ax.set_ylabel(axis)
    handles, names = axes[0].get_legend_handles_labels()
    fig.legend(handles, names, loc="outside upper center", ncols=2,
               fontsize=9, handlelength=3.5)
    return fig
