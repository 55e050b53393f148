"""The way back: what gradients are, where they flow, how large they are."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator
from numpy.typing import ArrayLike

from course.figures.style import COLOURS, INK, WEIGHT_MAP, new_figure

__all__ = ["backward_map", "nudge_errors", "path_bars", "pull_and_weights",
           "size_lines"]

#: Lines are told apart by their dashes and names, not by colour alone.
_DASHES = ("-", (0, (4, 2)), (0, (1, 1.5)), (0, (6, 2, 1, 2)))

_PLACES = {"query": (0.09, 0.80), "key": (0.09, 0.20),
           "scores": (0.36, 0.50), "weights": (0.62, 0.50),
           "value": (0.62, 0.07), "output": (0.89, 0.50)}
_ARROWS = (("query", "scores"), ("key", "scores"), ("scores", "weights"),
           ("weights", "output"), ("value", "output"))


def nudge_errors(steps: ArrayLike, errors: Mapping[str, ArrayLike]) -> Figure:
    """Draw how wrong a finite difference is for each size of the nudge.

    Args:
        steps: Sizes of the nudge, all above 0.
        errors: For each line its name and its error, all above 0.
    """
    fig = new_figure(6.4, 3.3)
    ax = fig.subplots()
    for (name, error), dash in zip(errors.items(), _DASHES):
        ax.loglog(steps, np.asarray(error), linestyle=dash, color=INK,
                  marker="o", markersize=4, label=name)
    ax.set_xlabel("size of the nudge")
    ax.set_ylabel("error of the slope")
    ax.legend(fontsize=9, handlelength=3)
    return fig


def backward_map(shapes: Mapping[str, str],
                 backward: Mapping[str, str]) -> Figure:
    """Draw the arrays of one head, the way forward and the way back.

    Args:
        shapes: What to write under each of the names query, key, value,
            scores, weights and output.
        backward: The formula of the gradient of each, for the same names.
    """
    fig = new_figure(7.8, 3.7)
    ax = fig.subplots()
    ax.set_xlim(-0.02, 1.02)
    ax.set_ylim(-0.12, 0.98)
    ax.axis("off")
    for start, end in _ARROWS:
        _two_arrows(ax, _PLACES[start], _PLACES[end])
    for name, (x, y) in _PLACES.items():
        colour = COLOURS.get(name, INK)
        box = {"boxstyle": "round,pad=0.35", "facecolor": "white",
               "edgecolor": colour, "linewidth": 1.6}
        ax.text(x, y, f"{name}\n{shapes[name]}", ha="center", va="center",
                fontsize=10, color=colour, bbox=box, zorder=3)
        above = name in ("query", "weights", "output")
        # The arrow from the key comes in on the left below the scores.
        aside = 0.02 if name == "scores" else 0
        ax.text(x - aside, y + (0.135 if above else -0.135), backward[name],
                ha="left" if aside else "center", fontsize=9.5,
                va="bottom" if above else "top",
                color=COLOURS["output"], zorder=3)
    ax.text(0.36, 0.93, "→ forward   ", ha="right", fontsize=9, color=INK)
    ax.text(0.36, 0.93, "⇠ gradients, back", ha="left", fontsize=9,
            color=COLOURS["output"])
    return fig


def pull_and_weights(keys: Sequence[str], pull: ArrayLike,
                     steps: ArrayLike, weights: ArrayLike, *,
                     strong: Sequence[str] = ()) -> Figure:
    """Draw what a step does to each score, and what many do to the weights.

    Args:
        keys: Name of each key.
        pull: ``(key_len,)``, change of each score in the first step.
        steps: Numbers of the steps.
        weights: ``(len(steps), key_len)``, each in [0, 1].
        strong: Keys whose lines are named and drawn strongly.
    """
    pull, weights = np.asarray(pull, float), np.asarray(weights, float)
    fig = new_figure(7.8, 3.2)
    left, right = fig.subplots(1, 2, width_ratios=[1, 1.15])
    left.barh(range(len(keys)), pull, color=WEIGHT_MAP(0.7))
    left.axvline(0, color=INK, linewidth=0.8)
    left.set_yticks(range(len(keys)), keys)
    left.invert_yaxis()
    left.set_xlabel("first change of the score")
    dashes = iter(_DASHES)
    for name, line in zip(keys, weights.T):
        named = name in strong
        right.plot(steps, line, color=INK if named else COLOURS["masked"],
                   linestyle=next(dashes) if named else "-",
                   linewidth=2 if named else 1.2,
                   label=name if named else None)
    right.set_ylim(0, 1.02)
    right.set_xlabel("step")
    right.set_ylabel("weight")
    right.legend(fontsize=9, handlelength=2.8, loc="center right")
    return fig


def path_bars(tokens: Sequence[str],
              paths: Mapping[str, ArrayLike]) -> Figure:
    """Draw how much gradient reaches each token on each path.

    Args:
        tokens: Label of each token.
        paths: For "query", "key" and "value" the size of the gradient that
            reaches each token ``(seq_len,)``, at least 0.
    """
    fig = new_figure(7.8, 0.36 * len(tokens) + 0.9)
    axes = fig.subplots(1, len(paths), sharey=True, sharex=True)
    for ax, (name, size) in zip(axes, paths.items()):
        size = np.asarray(size, float)
        ax.barh(range(len(tokens)), size, color=COLOURS[name])
        for row, length in enumerate(size):
            ax.text(length + 0.01 * ax.get_xlim()[1], row, f"{length:.2f}",
                    va="center", fontsize=9)
        ax.set_title(f"as {name}", fontsize=10, color=COLOURS[name])
    top = max(float(np.max(size)) for size in paths.values())
    axes[0].set_xlim(0, 1.3 * top)
    axes[0].set_yticks(range(len(tokens)), tokens)
    axes[0].invert_yaxis()
    axes[len(axes) // 2].set_xlabel("length of the gradient")
    return fig


def size_lines(widths: ArrayLike, panels: Sequence[tuple[str, Mapping[
        str, ArrayLike]]]) -> Figure:
    """Draw the size of gradients against the width of a key.

    Args:
        widths: The key widths; both axes are logarithmic.
        panels: For each panel the name of its vertical axis, and its lines,
            each a name and a number above 0 for each width.
    """
    widths = np.asarray(widths, dtype=float)
    fig = new_figure(7.8, 3.7)
    axes = fig.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for ax, (label, named) in zip(axes, panels):
        for number, (name, sizes) in enumerate(named.items()):
            ax.loglog(widths, np.asarray(sizes, float), label=name,
                      color=INK if number < 2 else COLOURS["query"],
                      linestyle=_DASHES[number % 2],
                      marker="os"[number // 2], markersize=4)
        ax.set_xticks(widths, [f"{width:.0f}" for width in widths])
        ax.xaxis.set_minor_locator(NullLocator())
        ax.set_xlabel("key width")
        ax.set_title(label, fontsize=10)
    axes[0].set_ylabel("length of the gradient")
    handles, labels = axes[0].get_legend_handles_labels()
    fig.legend(handles, labels, fontsize=9, ncols=2, handlelength=3,
               loc="outside lower center")
    return fig


def _two_arrows(ax: Axes, start: tuple[float, float],
                end: tuple[float, float]) -> None:
    """Draw an arrow forward and, beside it, a dashed one back."""
    across, up = end[0] - start[0], end[1] - start[1]
    length = float(np.hypot(across, up))
    aside = (-0.018 * up / length, 0.03 * across / length)
    for sign, tail, tip, colour, dash in (
            (1, start, end, INK, "-"),
            (-1, end, start, COLOURS["output"], (0, (3, 2)))):
        ax.annotate("", xy=(tip[0] + sign * aside[0],
                            tip[1] + sign * aside[1]),
                    xytext=(tail[0] + sign * aside[0],
                            tail[1] + sign * aside[1]),
                    arrowprops={"arrowstyle": "-|>", "color": colour,
                                "linestyle": dash, "linewidth": 1.4,
                                "shrinkA": 34, "shrinkB": 34})
