"""What a small model learns: lines between words, tables, curves, bars."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from course.figures.style import (
    COLOURS,
    INK,
    SIGNED_MAP,
    new_figure,
)

__all__ = ["LinePanel", "accuracy_bars", "learning_lines", "score_tables",
           "seed_strips", "word_lines"]

#: How the lines of head 0, head 1 are drawn.
_HEAD_STYLES = ((COLOURS["query"], "-"), (INK, (0, (2, 1))))
#: Pale paints behind a painted word; its name is printed beside it.
_PAINTS = {"red": "#f6c4bd", "green": "#bfe3c8", "blue": "#bcd6f2",
           "yellow": "#f7ecad", "black": "#b4b8bb", "white": "#ffffff"}


@dataclass(frozen=True)
class LinePanel:
    """One sentence, and where one of its words looks.

    Attributes:
        label: Stands above the panel.
        words: The words of the sentence.
        row: Place of the word that looks.
        weights: ``(num_heads, len(words))``, each in [0, 1].
        paints: Colour of each painted word, by its place.
    """

    label: str
    words: Sequence[str]
    row: int
    weights: ArrayLike
    paints: Mapping[int, str]


def word_lines(panels: Sequence[LinePanel], *, columns: int = 2) -> Figure:
    """Draw lines from one word to the words it looks at, a panel a sentence.

    Args:
        panels: The sentences; the width of a line is its weight.
        columns: Panels in a row.
    """
    lines = -(-len(panels) // columns)
    longest = max(len(panel.words) for panel in panels)
    fig = new_figure(8, lines * (0.245 * longest + 0.45) + 0.3)
    axes = fig.subplots(lines, columns, squeeze=False)
    for ax in axes.flat[len(panels):]:
        ax.set_visible(False)
    for panel, ax in zip(panels, axes.flat):
        _draw_lines(ax, panel)
    heads = max(np.shape(panel.weights)[0] for panel in panels)
    if heads > 1:
        handles = [axes.flat[0].plot([], [], color=colour, linestyle=style)[0]
                   for colour, style in _HEAD_STYLES[:heads]]
        fig.legend(handles, [f"head {h}" for h in range(heads)],
                   loc="outside lower center", ncols=heads)
    return fig


def score_tables(tables: Sequence[tuple[str, ArrayLike]],
                 queries: Sequence[str], keys: Sequence[str],
                 marks: ArrayLike, *, split: tuple[int, int]) -> Figure:
    """Draw tables of scores side by side, on one scale, some cells marked.

    Args:
        tables: For each its label and ``(len(queries), len(keys))``.
        queries: Label of each row.
        keys: Label of each column.
        marks: Of the shape of a table, True where a dot is drawn.
        split: Row and column before which a line is drawn.
    """
    arrays = [np.asarray(table, dtype=float) for _, table in tables]
    limit = max(float(np.abs(array).max(initial=1e-9)) for array in arrays)
    fig = new_figure(8, 3.9)
    axes = fig.subplots(1, len(tables), sharey=True, squeeze=False)[0]
    down, across = np.nonzero(np.asarray(marks, dtype=bool))
    for ax, (label, _), array in zip(axes, tables, arrays):
        image = ax.imshow(array, cmap=SIGNED_MAP, vmin=-limit, vmax=limit,
                          aspect="auto")
        ax.plot(across, down, "o", color=INK, markersize=3)
        ax.axhline(split[0] - 0.5, color=INK, linewidth=1)
        ax.axvline(split[1] - 0.5, color=INK, linewidth=1)
        ax.set_xticks(range(len(keys)), keys, rotation=90, fontsize=9)
        ax.set_yticks(range(len(queries)), queries, fontsize=9)
        ax.tick_params(length=0)
        ax.set_xlabel("key: noun")
        ax.set_title(label, fontsize=10)
        ax.spines[:].set_visible(False)
    axes[0].set_ylabel("query: adjective")
    bar = fig.colorbar(image, ax=axes, shrink=0.7, aspect=25)
    bar.set_label("score")
    return fig


def learning_lines(steps: ArrayLike,
                   panels: Sequence[tuple[str, Mapping[str, ArrayLike]]],
                   ) -> Figure:
    """Draw what changes in training: one panel under the other.

    Args:
        steps: Steps at which the numbers were taken.
        panels: For each the label of its axis, and its lines by name.
    """
    styles = [(INK, "-", "o"), ("#6f7b83", "--", "s"), (INK, ":", "^")]
    fig = new_figure(7, 1.45 * len(panels) + 0.5)
    axes = fig.subplots(len(panels), 1, sharex=True, squeeze=False)[:, 0]
    for ax, (label, lines) in zip(axes, panels):
        for (name, values), (colour, style, marker) in zip(
                lines.items(), styles):
            ax.plot(steps, values, style, color=colour, marker=marker,
                    markersize=3, label=name)
        ax.axhline(0, color=INK, linewidth=0.6)
        ax.set_ylabel(label)
        if len(lines) > 1:
            ax.legend(loc="center left", bbox_to_anchor=(1.0, 0.5),
                      fontsize=9)
    axes[-1].set_xlabel("step")
    return fig


def accuracy_bars(shares: Mapping[str, float], *,
                  chances: Mapping[str, float],
                  label: str = "right answers") -> Figure:
    """Draw shares as horizontal bars, with the levels of chance.

    Args:
        shares: Length of each bar, in [0, 1], by its name.
        chances: Height of each level of chance, by its name.
        label: Name of the axis.
    """
    fig = new_figure(7, 0.36 * len(shares) + 1.1)
    ax = fig.subplots()
    names, values = list(shares), list(shares.values())
    ax.barh(range(len(names)), values, height=0.65, color=COLOURS["output"])
    for place, value in enumerate(values):
        ax.text(value + 0.012, place, f"{value:.2f}", va="center", fontsize=9)
    ax.set_yticks(range(len(names)), names)
    ax.invert_yaxis()
    _draw_chances(ax, chances, len(names))
    ax.set_xlim(0, 1.12)
    ax.set_xlabel(label)
    return fig


def seed_strips(accuracies: Mapping[str, Sequence[float]], *,
                chances: Mapping[str, float]) -> Figure:
    """Draw the accuracy of every seed as a ring, one strip for each model.

    Args:
        accuracies: Accuracy of each seed, by the name of the model.
        chances: Height of each level of chance, by its name.
    """
    fig = new_figure(7, 0.5 * len(accuracies) + 1.1)
    ax = fig.subplots()
    for place, values in enumerate(accuracies.values()):
        # Spread up and down, so that equal results stay countable.
        spread = np.linspace(-0.26, 0.26, len(values))
        ax.plot(values, place + spread, "o", markersize=5, fillstyle="none",
                color=COLOURS["output"], markeredgewidth=1.2, clip_on=False)
    ax.set_yticks(range(len(accuracies)), list(accuracies))
    ax.set_ylim(len(accuracies) - 0.5, -0.5)
    _draw_chances(ax, chances, len(accuracies))
    ax.set_xlim(0, 1.02)
    ax.set_xlabel("right answers in held-out sentences")
    return fig


def _draw_chances(ax: Axes, chances: Mapping[str, float], count: int) -> None:
    for name, value in chances.items():
        ax.axvline(value, color=INK, linewidth=1, linestyle=":")
        ax.annotate(name, (value, 1), xycoords=("data", "axes fraction"),
                    xytext=(0, 2), textcoords="offset points", ha="center",
                    va="bottom", fontsize=9)


def _draw_lines(ax: Axes, panel: LinePanel) -> None:
    weights = np.asarray(panel.weights, dtype=float)
    heads = len(weights)
    for head, (colour, style) in zip(range(heads), _HEAD_STYLES):
        shift = 0.0 if heads == 1 else 0.22 * (head - (heads - 1) / 2)
        for place, weight in enumerate(weights[head]):
            if weight >= 0.02:
                ax.plot([0.36, 0.62], [panel.row + shift, place + shift],
                        color=colour, linestyle=style,
                        linewidth=0.4 + 3.2 * weight,
                        alpha=0.25 + 0.75 * weight, solid_capstyle="butt")
    for place, word in enumerate(panel.words):
        looks = place == panel.row
        ax.text(0.34, place, word, ha="right", va="center", fontsize=9.5,
                color=INK if looks else COLOURS["masked"],
                fontweight="bold" if looks else "normal")
        paint = panel.paints.get(place)
        box = None if paint is None else {
            "boxstyle": "round,pad=0.18", "facecolor": _PAINTS[paint],
            "edgecolor": INK, "linewidth": 0.6}
        ax.text(0.645, place, word if paint is None else f"{word} ({paint})",
                va="center", fontsize=9.5, bbox=box)
    ax.set_xlim(0.08, 0.95)
    ax.set_ylim(len(panel.words) - 0.4, -0.6)
    ax.set_title(panel.label, fontsize=10)
    ax.axis("off")
