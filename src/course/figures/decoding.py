"""Decoding: what is computed again, what a cache holds, what it costs."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from numpy.typing import ArrayLike

from course.figures.style import COLOURS, HATCH, INK, new_figure, tint

__all__ = ["byte_bars", "cache_slots", "head_groups", "step_lines",
           "work_tables"]

#: Lines are told apart by dashes and marks, not by colour.
_LINES = (("-", "o", INK), ("--", "s", "white"), ("-.", "^", INK),
          (":", "D", "white"))


def work_tables(panels: Mapping[str, ArrayLike],
                tokens: Sequence[str]) -> Figure:
    """Draw which token's key and value each pass computes.

    Args:
        panels: For each panel its name and ``(passes, tokens)`` of integers:
            0 = not there yet, 1 = computed for the first time, 2 = computed
            again, 3 = kept.
        tokens: Label of each column.
    """
    tables = [np.asarray(table) for table in panels.values()]
    passes, columns = tables[0].shape
    fig = new_figure(7.8, 0.4 * passes + 2.0)
    axes = fig.subplots(1, len(tables), squeeze=False, sharey=True)[0]
    for ax, name, table in zip(axes, panels, tables):
        for row, column in np.ndindex(table.shape):
            _work_cell(ax, row, column, int(table[row, column]))
        _clear(ax, table.shape)
        ax.set_xticks(range(columns), tokens, rotation=60, ha="left")
        ax.xaxis.tick_top()
        ax.set_xlabel(name)
    axes[0].set_yticks(range(passes), [f"pass {n + 1}"
                                       for n in range(passes)])
    return fig


def _work_cell(ax: Axes, row: int, column: int, kind: int) -> None:
    if kind == 0:
        return
    colour = COLOURS["key"]
    face = {1: colour, 2: tint(colour)(0.3), 3: "white"}[kind]
    ax.add_patch(Rectangle((column - 0.45, row - 0.45), 0.9, 0.9,
                           facecolor=face, edgecolor=colour, linewidth=1))
    mark = {1: ("new", "white"), 2: ("×", INK), 3: ("kept", INK)}[kind]
    ax.text(column, row, mark[0], color=mark[1], ha="center", va="center",
            fontsize=9, weight="bold" if kind == 1 else "normal")


def cache_slots(positions: ArrayLike, words: Sequence[Sequence[str]],
                length: int) -> Figure:
    """Draw the slots of a cache: position and word of each, or why none.

    Args:
        positions: ``(batch, capacity)``; -1 for padding and unwritten slots.
        words: The real words of each sequence, in the order of the slots.
        length: Number of slots that are filled; the others are unwritten.
    """
    positions = np.asarray(positions, dtype=int)
    batch, capacity = positions.shape
    fig = new_figure(min(8.0, 0.82 * capacity + 1.3), 0.85 * batch + 0.9)
    ax = fig.subplots()
    for row, slots in enumerate(positions):
        named = iter(words[row])
        for slot, position in enumerate(slots):
            _slot(ax, row, slot, position, slot < length,
                  next(named) if position >= 0 else "")
    _clear(ax, positions.shape)
    ax.set_aspect("auto")
    ax.set_xticks(range(capacity), range(capacity))
    ax.xaxis.tick_top()
    ax.xaxis.set_label_position("top")
    ax.set_xlabel("slot")
    ax.set_yticks(range(batch), [f"text {n}" for n in range(batch)])
    return fig


def _slot(ax: Axes, row: int, slot: int, position: int, filled: bool,
          word: str) -> None:
    box = Rectangle((slot - 0.46, row - 0.42), 0.92, 0.84, linewidth=1.2,
                    facecolor="white", edgecolor=COLOURS["masked"])
    if position >= 0:
        box.set(facecolor=tint(COLOURS["key"])(0.25),
                edgecolor=COLOURS["key"])
        ax.text(slot, row - 0.12, word, ha="center", va="center", fontsize=9)
        ax.text(slot, row + 0.22, f"at {position}", ha="center", va="center",
                fontsize=9, weight="bold")
    elif filled:
        box.set(hatch=HATCH)
    else:
        box.set(linestyle=(0, (3, 2)))
        ax.text(slot, row, "empty", ha="center", va="center", fontsize=9,
                color=INK)
    ax.add_patch(box)


def head_groups(num_heads: int, key_heads: Mapping[str, int]) -> Figure:
    """Draw which key and value head each query head uses.

    Args:
        num_heads: Number of query heads.
        key_heads: For each panel its name and its number of key heads.
    """
    fig = new_figure(7.8, 2.1)
    axes = fig.subplots(1, len(key_heads))
    for ax, (name, count) in zip(np.atleast_1d(axes), key_heads.items()):
        group = num_heads // count
        places = [(group - 1) / 2 + group * head for head in range(count)]
        for head in range(num_heads):
            place = places[head // group]
            ax.plot([head, place], [0.35, 1.65], color=COLOURS["masked"],
                    linewidth=1.2, zorder=0)
            _head(ax, head, 0, "query", str(head))
        for head, place in enumerate(places):
            _head(ax, place - 0.2, 2, "key", str(head))
            _head(ax, place + 0.2, 2.45, "value", "")
        ax.set_xlim(-0.7, num_heads - 0.1)
        ax.set_ylim(3.1, -0.6)
        ax.set_xlabel(f"{name}: {count} key "
                      f"head{'s' if count > 1 else ''}")
        ax.set_xticks([])
        ax.set_yticks([0, 2.2], ["query", "key,\nvalue"]
                      if ax is np.atleast_1d(axes)[0] else ["", ""])
        ax.tick_params(length=0)
        ax.spines[:].set_visible(False)
    return fig


def _head(ax: Axes, x: float, y: float, role: str, text: str) -> None:
    ax.add_patch(Rectangle((x - 0.4, y - 0.35), 0.8, 0.7,
                           facecolor=COLOURS[role], edgecolor="white",
                           linewidth=1, zorder=1 if role == "value" else 2))
    ax.text(x, y, text, color="white", ha="center", va="center", fontsize=9,
            weight="bold", zorder=3)


def step_lines(lengths: ArrayLike,
               panels: Mapping[str, Mapping[str, ArrayLike]], *,
               label: str, marks: Sequence[float] = ()) -> Figure:
    """Draw what a step costs against the number of tokens, log-log.

    Args:
        lengths: Number of tokens, the horizontal axis of all panels.
        panels: For each panel its name, and for each of its lines a name and
            a number for each length, all above 0.
        label: Name of the vertical axis.
        marks: Lengths to mark with a vertical line.
    """
    lengths = np.asarray(lengths, dtype=float)
    fig = new_figure(7.8 if len(panels) > 1 else 6.0, 3.6)
    axes = fig.subplots(1, len(panels), squeeze=False, sharey=True)[0]
    for ax, (name, lines) in zip(axes, panels.items()):
        for (line, numbers), (dash, mark, face) in zip(lines.items(), _LINES):
            ax.loglog(lengths, np.asarray(numbers, dtype=float), dash,
                      marker=mark, markersize=5, markerfacecolor=face,
                      linewidth=1.6, color=INK, label=line)
        for length in marks:
            ax.axvline(length, color=COLOURS["masked"], linewidth=1)
        ax.set_xticks(lengths, [f"{n:.0f}" for n in lengths], rotation=45)
        ax.minorticks_off()
        ax.set_xlabel(f"tokens\n{name}" if name else "tokens")
        ax.grid(axis="y", color="#e1e5e8", linewidth=0.8)
        ax.legend(fontsize=9, handlelength=3, loc="upper left")
    axes[0].set_ylabel(label)
    low, high = axes[0].get_ylim()
    high *= (high / low) ** 0.25  # room for the legend
    axes[0].set_ylim(low, high)
    if high < 60 * low:  # too short for powers of ten alone
        ticks = [n * 10.0**power for power in range(-6, 15)
                 for n in (1, 2, 5) if low <= n * 10.0**power <= high]
        axes[0].set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    return fig


def byte_bars(kib: Mapping[str, float]) -> Figure:
    """Draw how many KiB each token takes in a cache.

    Args:
        kib: For each model its name and the KiB of one token.
    """
    fig = new_figure(6.6, 0.5 * len(kib) + 0.9)
    ax = fig.subplots()
    ax.barh(range(len(kib)), list(kib.values()), color=COLOURS["key"])
    for row, size in enumerate(kib.values()):
        ax.text(size, row, f"  {size:,.0f}", va="center", fontsize=9)
    ax.set_yticks(range(len(kib)), list(kib))
    ax.invert_yaxis()
    ax.set_xlim(0, 1.15 * max(kib.values()))
    ax.set_xlabel("KiB for each token of a text")
    return fig


def _clear(ax: Axes, shape: tuple[int, ...]) -> None:
    ax.set_xlim(-0.6, shape[1] - 0.4)
    ax.set_ylim(shape[0] - 0.4, -0.6)
    ax.set_aspect("equal")
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
