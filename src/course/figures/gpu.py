"""A GPU and its kernels: memories, rooflines, tiles and who computes them."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from numpy.typing import ArrayLike

from course.figures.style import COLOURS, HATCH, INK, new_figure

__all__ = ["memory_levels", "roofline", "tile_owners", "tiles_computed"]

_FULL, _PART = "#6ba3cd", "#dbe8f3"
_BAR = "#1f6fa8"


def memory_levels(names: Sequence[str], sizes: ArrayLike,
                  rates: Sequence[float | None]) -> Figure:
    """Draw the sizes and the rates of memories, on two logarithmic axes.

    Args:
        names: The memories, the nearest to the arithmetic first.
        sizes: Bytes of each, in the whole chip.
        rates: Bytes a second of each, of the whole chip; None = unknown.
    """
    sizes = np.asarray(sizes, dtype=float)
    places = np.arange(len(names))
    fig = new_figure(7.6, 0.55 * len(names) + 1.2)
    left, right = fig.subplots(1, 2, sharey=True)
    left.barh(places, sizes / 1e6, height=0.6, color=_BAR)
    for place, size in enumerate(sizes):
        text = f"{size / 1e6:.0f} MB" if size < 1e9 else f"{size / 1e9:.0f} GB"
        left.annotate(text, (size / 1e6, place), xytext=(4, 0),
                      textcoords="offset points", va="center")
    for place, rate in enumerate(rates):
        if rate is not None:
            right.barh(place, rate / 1e12, height=0.6, color=_BAR)
        right.annotate(
            "not published" if rate is None else f"{rate / 1e12:g} TB/s",
            (1 if rate is None else rate / 1e12, place), xytext=(4, 0),
            textcoords="offset points", va="center")
    left.set_xlim(10, 3e6)
    right.set_xlim(1, 200)
    for ax, label in ((left, "size (MB)"),
                      (right, "terabytes a second")):
        ax.set_xscale("log")
        ax.set_xlabel(label)
        ax.minorticks_off()
    left.set_yticks(places, names)
    left.invert_yaxis()
    return fig


def roofline(peak: float, rate: float,
             points: Sequence[tuple[str, float]]) -> Figure:
    """Draw how fast work can go, against its operations for each byte.

    Args:
        peak: Operations a second of the arithmetic.
        rate: Bytes a second of the memory.
        points: For each piece of work its name and its operations for each
            byte; all are drawn on the roof, the best that can be reached.
    """
    fig = new_figure(7.0, 4.0)
    ax = fig.subplots()
    across = np.logspace(-1, 4.3, 200)
    ax.loglog(across, np.minimum(peak, rate * across) / 1e12, color=INK)
    ridge = peak / rate
    ax.axvline(ridge, color=COLOURS["masked"], linewidth=1, linestyle="--")
    ax.annotate(f"ridge: {ridge:.0f}", (ridge, 0.45), xytext=(-4, 0),
                textcoords="offset points", fontsize=9, ha="right")
    for (name, intensity), mark in zip(points, "osD^v"):
        height = min(peak, rate * intensity) / 1e12
        ax.plot(intensity, height, mark, color=_BAR, markersize=8)
        inside = intensity < ridge
        ax.annotate(name, (intensity, height),
                    xytext=(-10, 2) if inside else (0, 8),
                    textcoords="offset points", fontsize=9,
                    ha="right" if inside else "center", va="bottom")
    ax.set_xlabel("operations for each byte of the main memory")
    ax.set_ylabel("10¹² operations a second, at most")
    ax.set_ylim(0.3, 3 * peak / 1e12)
    ax.minorticks_off()
    return fig


def tiles_computed(allowed: ArrayLike, tile: int) -> Figure:
    """Draw which tiles of the scores are computed whole, in part, or not.

    Args:
        allowed: ``(query_len, key_len)``, True = may attend; both lengths
            are multiples of ``tile``.
        tile: Rows, and columns, of one tile.
    """
    allowed = np.asarray(allowed, dtype=bool)
    rows, columns = allowed.shape
    fig = new_figure(1.2 + 0.13 * columns + 2.0, 1.0 + 0.13 * rows)
    ax = fig.subplots()
    for row, column in np.ndindex(rows // tile, columns // tile):
        place = (slice(row * tile, (row + 1) * tile),
                 slice(column * tile, (column + 1) * tile))
        _score_tile(ax, allowed[place], row * tile, column * tile)
    _tile_axes(ax, rows, columns, tile)
    kinds = (("every score counts", _FULL, None),
             ("some are masked", _PART, HATCH),
             ("skipped", "white", HATCH))
    handles = [Rectangle((0, 0), 1, 1, facecolor=colour, hatch=hatch,
                         edgecolor=COLOURS["masked"])
               for _, colour, hatch in kinds]
    ax.legend(handles, [name for name, _, _ in kinds], loc="upper left",
              bbox_to_anchor=(1.02, 1.0))
    return fig


def _score_tile(ax: Axes, allowed: np.ndarray, top: int, left: int) -> None:
    tile = len(allowed)
    whole, some = allowed.all(), allowed.any()
    ax.add_patch(Rectangle(
        (left, top), tile, tile, linewidth=0,
        facecolor=_FULL if whole else _PART if some else "white"))
    masked = [(0, 0, tile, tile)] if not some else [
        (column, row, 1, 1) for row, column in np.argwhere(~allowed)]
    for column, row, width, height in masked:
        ax.add_patch(Rectangle(
            (left + column, top + row), width, height, facecolor="none",
            edgecolor=COLOURS["masked"], hatch=HATCH, linewidth=0))
    ax.add_patch(Rectangle((left, top), tile, tile, facecolor="none",
                           edgecolor=INK, linewidth=0.8))


def _tile_axes(ax: Axes, rows: int, columns: int, tile: int) -> None:
    ax.set_xlim(0, columns)
    ax.set_ylim(rows, 0)
    ax.set_aspect("equal")
    ax.set_xticks(range(0, columns + 1, tile))
    ax.set_yticks(range(0, rows + 1, tile))
    ax.xaxis.tick_top()
    ax.xaxis.set_label_position("top")
    ax.set_xlabel("key position")
    ax.set_ylabel("query position")
    ax.spines[:].set_visible(False)


def tile_owners(query_tiles: int, key_tiles: int, row: int,
                column: int) -> Figure:
    """Draw which tiles one program walks over in each half of backward.

    Args:
        query_tiles: Number of tiles down.
        key_tiles: Number of tiles across.
        row: The tile of queries that the one program owns.
        column: The tile of keys that the other program owns.
    """
    fig = new_figure(7.6, 0.42 * query_tiles + 1.5)
    axes = fig.subplots(1, 2)
    across = [(row, number) for number in range(key_tiles)]
    down = [(number, column) for number in range(query_tiles)]
    panels = ((axes[0], across, "query",
               "tile of queries:\nwrites grad_query, once"),
              (axes[1], down, "key",
               "tile of keys: writes\ngrad_key and grad_value, once"))
    for ax, walked, role, text in panels:
        for place in np.ndindex(query_tiles, key_tiles):
            ax.add_patch(Rectangle(
                (place[1], place[0]), 1, 1, linewidth=0.8,
                edgecolor=COLOURS["masked"],
                facecolor=COLOURS[role] if place in walked else "white"))
        for number, (down_, across_) in enumerate(walked):
            ax.text(across_ + 0.5, down_ + 0.5, str(number + 1), ha="center",
                    va="center", color="white", weight="bold")
        ax.set_xlim(0, key_tiles)
        ax.set_ylim(query_tiles, 0)
        ax.set_aspect("equal")
        ax.set_xticks([])
        ax.set_yticks([])
        ax.set_xlabel(f"tiles of keys\n\none program for a {text}")
        ax.set_ylabel("tiles of queries")
        ax.spines[:].set_visible(False)
    return fig
