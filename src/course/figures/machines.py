"""Which process holds what: matrices cut by heads, sequences cut in slices."""

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import EngFormatter, LogLocator
from numpy.typing import ArrayLike

from course.figures.style import COLOURS, HATCH, INK, new_figure

__all__ = ["PROCESSES", "cut_by_heads", "lines_against_processes",
           "ring_schedule"]

#: Four processes, told apart by lightness as well as by hue.
PROCESSES = ("#08305b", "#3f8fc5", "#f0a04b", "#8c4a00")


def cut_by_heads(processes: int, heads: int) -> Figure:
    """Draw the cut of W_q, W_k, W_v by columns and of W_o by rows.

    Args:
        processes: Number of processes, 1 to 4; divides ``heads``.
        heads: Number of heads.
    """
    fig = new_figure(7.6, 3.2)
    ax = fig.subplots()
    share = heads // processes
    for number, (name, role) in enumerate(
            (("W_q", "query"), ("W_k", "key"), ("W_v", "value"))):
        left = number * 5.2
        for head in range(heads):
            _cell(ax, left + head * 4 / heads, 0, 4 / heads, 4,
                  PROCESSES[head // share])
        ax.text(left + 2, -0.35, name, ha="center", color=COLOURS[role],
                fontsize=12)
        ax.text(left + 2, 4.55, "cut by columns", ha="center", fontsize=9)
    for head in range(heads):
        _cell(ax, 15.6, head * 4 / heads, 4, 4 / heads,
              PROCESSES[head // share])
    ax.text(17.6, -0.35, "W_o", ha="center", color=COLOURS["output"],
            fontsize=12)
    ax.text(17.6, 4.55, "cut by rows", ha="center", fontsize=9)
    for process in range(processes):
        _cell(ax, process * 5.2, 5.4, 0.6, 0.6, PROCESSES[process])
        first, last = process * share, (process + 1) * share - 1
        which = f"head {first}" if share == 1 else f"heads {first}–{last}"
        ax.text(process * 5.2 + 0.8, 5.72, f"process {process}: {which}",
                va="center", fontsize=9)
    ax.set_xlim(-0.3, 21)
    ax.set_ylim(6.3, -1)
    ax.set_aspect("equal")
    ax.axis("off")
    return fig


def ring_schedule(holds: ArrayLike, needed: ArrayLike) -> Figure:
    """Draw which slice of the keys each process holds at each step.

    Args:
        holds: ``(steps, processes)``, the slice that is there.
        needed: The same shape; False where a causal mask hides all of it.
    """
    holds, needed = np.asarray(holds), np.asarray(needed, dtype=bool)
    steps, processes = holds.shape
    fig = new_figure(6.4, 0.62 * steps + 1.1)
    ax = fig.subplots()
    for (step, process), held in np.ndenumerate(holds):
        used = needed[step, process]
        _cell(ax, process, step, 0.94, 0.86,
              PROCESSES[held] if used else "white", hatch=not used)
        dark = used and held in (0, 3)
        ax.text(process + 0.47, step + 0.43, f"slice {held}", ha="center",
                va="center", fontsize=10, color="white" if dark else INK)
    ax.set_xlim(-0.05, processes)
    ax.set_ylim(steps, -0.05)
    ax.set_xticks(np.arange(processes) + 0.47,
                  [f"process {p}" for p in range(processes)])
    ax.xaxis.tick_top()
    ax.set_yticks(np.arange(steps) + 0.43, [f"step {s}" for s in range(steps)])
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    return fig


def lines_against_processes(processes: ArrayLike,
                            lines: Sequence[tuple[str, ArrayLike]],
                            label: str) -> Figure:
    """Draw quantities against the number of processes, on log axes.

    Args:
        processes: The numbers of processes.
        lines: Name and values of each line.
        label: Name of the vertical axis, with its unit.
    """
    fig = new_figure(6.4, 3.6)
    ax = fig.subplots()
    styles = ("-", "--", "-.", ":")
    for (name, values), style, colour in zip(lines, styles, PROCESSES):
        ax.plot(processes, values, style, color=colour, label=name,
                marker="o", markersize=4)
    ax.set_xscale("log", base=2)
    ax.set_yscale("log")
    ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    ax.yaxis.set_major_formatter(EngFormatter(sep=""))
    ticks = np.asarray(processes)
    ax.set_xticks(ticks, [str(t) for t in ticks])
    ax.minorticks_off()
    ax.set_xlabel("processes")
    ax.set_ylabel(label)
    ax.legend()
    return fig


def _cell(ax: object, x: float, y: float, width: float, height: float,
          colour: str, *, hatch: bool = False) -> None:
    ax.add_patch(Rectangle((x, y), width, height, facecolor=colour,
                           edgecolor="#9aa3a9" if hatch else "white",
                           linewidth=1, hatch=HATCH if hatch else None))
