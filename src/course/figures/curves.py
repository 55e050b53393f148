"""Curves, bars and tables: how softmax answers to gaps, sizes and axes."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from course.figures.style import COLOURS, INK, WEIGHT_MAP, new_figure

__all__ = ["cost_lines", "gap_curves", "softmax_steps", "spread_curves",
           "sum_tables", "temperature_bars", "width_lines"]

#: Lines are told apart by their dashes and names, not by colour alone.
_DASHES = [(0, (4, 2)), "-", (0, (1, 1.5)), (0, (6, 2, 1, 2))]
_BAR = WEIGHT_MAP(0.7)


def cost_lines(lengths: ArrayLike, named: Sequence[tuple[str, ArrayLike]], *,
               crossing: float | None = None) -> Figure:
    """Draw numbers of multiplications against the length of a text.

    Args:
        lengths: Numbers of tokens.
        named: For each line its name and a number for each length.
        crossing: A length to mark, where two lines meet.
    """
    lengths = np.asarray(lengths, dtype=float)
    fig = new_figure(6, 3.4)
    ax = fig.subplots()
    for (name, numbers), dash in zip(named, _DASHES):
        ax.loglog(lengths, np.asarray(numbers, dtype=float), color=INK,
                  linestyle=dash, marker="o", markersize=4)
        ax.annotate(name, (lengths[-1], float(np.asarray(numbers)[-1])),
                    xytext=(8, 0), textcoords="offset points", va="center")
    if crossing is not None:
        ax.axvline(crossing, color=COLOURS["masked"], linewidth=1)
        ax.annotate(f"{crossing:.0f}", (crossing, 0.03),
                    xycoords=("data", "axes fraction"), xytext=(4, 0),
                    textcoords="offset points", fontsize=9)
    ax.set_xlabel("words (n)")
    ax.set_ylabel("multiplications")
    return fig


def softmax_steps(scores: ArrayLike, exponentials: ArrayLike,
                  weights: ArrayLike, keys: Sequence[str]) -> Figure:
    """Draw the two steps of softmax as three groups of bars.

    Args:
        scores: ``(key_len,)``, any real numbers.
        exponentials: ``(key_len,)``, their exponentials.
        weights: ``(key_len,)``, the exponentials divided by their sum.
        keys: Label of each bar.
    """
    panels = (("score", scores, COLOURS["embedding"]),
              ("exponential", exponentials, COLOURS["embedding"]),
              ("weight", weights, _BAR))
    fig = new_figure(7.4, 0.42 * len(keys) + 1.0)
    axes = fig.subplots(1, 3, sharey=True)
    for ax, (name, numbers, colour) in zip(axes, panels):
        numbers = np.asarray(numbers, dtype=float)
        ax.barh(range(len(numbers)), numbers, color=colour)
        size = np.abs(numbers).max()
        for position, number in enumerate(numbers):
            ax.text(max(number, 0) + 0.04 * size, position, f"{number:.2f}",
                    va="center", fontsize=9)
        ax.axvline(0, color=INK, linewidth=0.8)
        ax.set_xlim(min(0, numbers.min() * 1.1), 1.35 * size)
        ax.set_xlabel(name)
    axes[2].set_xlim(0, 1)
    axes[0].set_yticks(range(len(keys)), keys)
    axes[0].invert_yaxis()
    return fig


def sum_tables(named: Sequence[tuple[str, ArrayLike]]) -> Figure:
    """Draw tables of weights with the sums of their rows and columns.

    Args:
        named: For each table its heading and its weights, all of one shape
            ``(query_len, key_len)``.
    """
    tables = [np.asarray(table, dtype=float) for _, table in named]
    rows, columns = tables[0].shape
    fig = new_figure(min(8.0, (0.75 * columns + 1.5) * len(named)),
                     0.6 * rows + 1.5)
    axes = fig.subplots(1, len(named), squeeze=False)[0]
    for ax, (heading, _), table in zip(axes, named, tables):
        ax.imshow(table, cmap=WEIGHT_MAP, vmin=0, vmax=1, aspect="auto")
        for row, column in np.ndindex(table.shape):
            number = table[row, column]
            ax.text(column, row, f"{number:.3f}", ha="center", va="center",
                    fontsize=9, color="white" if number > 0.55 else INK)
        for row, total in enumerate(table.sum(axis=1)):
            _total(ax, columns - 0.1, row, total)
        for column, total in enumerate(table.sum(axis=0)):
            _total(ax, column, rows - 0.1, total)
        ax.text(columns - 0.1, rows - 0.1, "sums", ha="center", va="center",
                fontsize=9, style="italic")
        ax.set_xlim(-0.5, columns + 0.4)
        ax.set_ylim(rows + 0.3, -0.5)
        ax.set_title(heading, fontsize=10)
        ax.set_xticks(range(columns), [f"key {n + 1}" for n in
                                       range(columns)])
        ax.set_yticks(range(rows), [f"query {n + 1}" for n in range(rows)])
        ax.xaxis.tick_top()
        ax.tick_params(length=0, labelsize=9)
        ax.spines[:].set_visible(False)
    return fig


def temperature_bars(named: Sequence[tuple[str, ArrayLike]],
                     keys: Sequence[str]) -> Figure:
    """Draw several rows of weights as bars side by side, on one scale.

    Args:
        named: For each panel its heading and its weights ``(key_len,)``.
        keys: Label of each bar.
    """
    fig = new_figure(min(8.0, 1.75 * len(named) + 0.9),
                     0.36 * len(keys) + 1.2)
    fig.get_layout_engine().set(wspace=0.08)  # type: ignore[union-attr]
    axes = fig.subplots(1, len(named), sharey=True, squeeze=False)[0]
    for ax, (heading, weights) in zip(axes, named):
        weights = np.asarray(weights, dtype=float)
        ax.barh(range(len(weights)), weights, color=_BAR)
        for position, weight in enumerate(weights):
            inside = weight > 0.6
            ax.text(weight + (-0.03 if inside else 0.03), position,
                    f"{weight:.2f}", va="center", fontsize=9,
                    ha="right" if inside else "left",
                    color="white" if inside else INK)
        ax.set_xlim(0, 1)
        ax.set_xticks([0, 0.5, 1], ["0", "0.5", "1"])
        ax.set_xlabel("weight")
        ax.set_title(heading, fontsize=10)
    axes[0].set_yticks(range(len(keys)), keys)
    axes[0].invert_yaxis()
    return fig


def spread_curves(draws: Sequence[tuple[str, ArrayLike, ArrayLike]], *,
                  names: tuple[str, str]) -> Figure:
    """Draw how widely random numbers spread, before and after a scaling.

    Args:
        draws: For each line its name, the numbers before and after.
        names: Names of the two horizontal axes.
    """
    fig = new_figure(7.6, 3.1)
    axes = fig.subplots(1, 2)
    for side, (ax, name) in enumerate(zip(axes, names)):
        size = max(np.abs(np.asarray(d[1 + side])).max() for d in draws)
        edges = np.linspace(-0.8 * size, 0.8 * size, 41 if side else 61)
        for (label, *numbers), dash in zip(draws, _DASHES):
            share, _ = np.histogram(numbers[side], bins=edges)
            density = share / np.size(numbers[side]) / np.diff(edges)
            ax.plot((edges[1:] + edges[:-1]) / 2, density, color=INK,
                    linestyle=dash, linewidth=1.6, label=label)
        ax.set_xlabel(name)
        ax.set_yticks([])
        ax.spines["left"].set_visible(False)
        ax.set_ylim(bottom=0)
    axes[0].set_ylabel("how often")
    axes[0].legend(fontsize=9, handlelength=2.6)
    return fig


def width_lines(widths: ArrayLike,
                panels: Sequence[tuple[str, float, Sequence[
                    tuple[str, ArrayLike]]]]) -> Figure:
    """Draw properties of attention against the width of a key.

    Args:
        widths: The key widths; the axis is logarithmic.
        panels: For each panel the name of its vertical axis, the axis' upper
            end, and its lines, each a name and a number for each width.
    """
    widths = np.asarray(widths, dtype=float)
    fig = new_figure(7.6, 3.1)
    axes = fig.subplots(1, len(panels), squeeze=False)[0]
    for ax, (label, top, named) in zip(axes, panels):
        for (name, numbers), dash in zip(named, _DASHES):
            ax.plot(widths, np.asarray(numbers), color=INK, linestyle=dash,
                    marker="o", markersize=4, label=name)
        ax.set_xscale("log", base=2)
        ax.set_xticks(widths, [f"{width:.0f}" for width in widths])
        ax.set_ylim(0, top)
        ax.set_xlabel("key width")
        ax.set_ylabel(label)
    axes[0].legend(fontsize=9, handlelength=2.6)
    return fig


def gap_curves(gaps: ArrayLike, weights: ArrayLike, slopes: ArrayLike, *,
               marks: Sequence[float]) -> Figure:
    """Draw the weight of one of two keys, and its slope, against the gap.

    Args:
        gaps: How much higher the score of the key is.
        weights: Its weight at each gap.
        slopes: The slope of that weight at each gap.
        marks: Gaps to mark with a dot and a number.
    """
    gaps = np.asarray(gaps, dtype=float)
    fig = new_figure(7.6, 3.1)
    axes = fig.subplots(1, 2)
    for ax, numbers, label, form in (
            (axes[0], np.asarray(weights), "weight", "{:.4f}"),
            (axes[1], np.asarray(slopes), "slope of the weight", "{:.4f}")):
        ax.plot(gaps, numbers, color=INK)
        for mark in marks:
            height = float(np.interp(mark, gaps, numbers))
            ax.plot(mark, height, "o", color=_BAR, markersize=7)
            below = height > 0.5
            ax.annotate(form.format(height), (mark, height),
                        xytext=(4, -14 if below else 8),
                        textcoords="offset points", fontsize=9)
        ax.set_xlabel("gap between the two scores")
        ax.set_ylabel(label)
        ax.set_ylim(bottom=0)
    return fig


def _total(ax: Axes, column: float, row: float, number: float) -> None:
    ax.text(column, row, f"{number:.3f}", ha="center", va="center",
            fontsize=9, color=INK,
            fontweight="bold" if abs(number - 1) < 1e-9 else "normal")
