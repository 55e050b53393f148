"""Colours, fonts and the frame that every figure of the book shares."""

import matplotlib as mpl
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure

#: One colour for each role, from the palette of Okabe and Ito, which readers
#: with colour-vision deficiency can tell apart. Use them for nothing else.
COLOURS = {
    "embedding": "#5b6770",
    "query": "#0072b2",
    "key": "#d55e00",
    "value": "#009e73",
    "output": "#a2477f",
    "masked": "#9aa3a9",
}

INK = "#1d2429"
PAPER = "#ffffff"
#: Weights from 0 to 1 as white to dark, monotone in lightness (for grey).
WEIGHT_MAP = LinearSegmentedColormap.from_list(
    "weights", ["#ffffff", "#c6d9ea", "#6ba3cd", "#1f6fa8", "#08305b"])
#: Signed numbers, symmetric about 0, as orange, white, blue.
SIGNED_MAP = LinearSegmentedColormap.from_list(
    "signed", ["#a14600", "#e9a36b", "#ffffff", "#7db4d8", "#00507d"])

HATCH = "////"


def use_style() -> None:
    """Set matplotlib's defaults to the style of the book.

    Called once when the figures are imported. The paper stays white in dark
    mode, so that a figure looks the same in both.
    """
    mpl.rcParams.update({
        "figure.dpi": 100,
        "savefig.dpi": 200,
        "figure.facecolor": PAPER,
        "axes.facecolor": PAPER,
        "savefig.facecolor": PAPER,
        "figure.constrained_layout.use": True,
        "font.family": "DejaVu Sans",
        "font.size": 10,
        "text.color": INK,
        "axes.labelcolor": INK,
        "axes.edgecolor": INK,
        "xtick.color": INK,
        "ytick.color": INK,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "hatch.linewidth": 0.8,
        "lines.linewidth": 2,
        "legend.frameon": False,
    })


def new_figure(width: float, height: float) -> Figure:
    """Make an empty figure of the book's style; sizes are in inches."""
    from matplotlib import pyplot as plt

    return plt.figure(figsize=(width, height))


def tint(colour: str) -> LinearSegmentedColormap:
    """Give a map from pale to full for one role's colour."""
    return LinearSegmentedColormap.from_list("tint", ["#ffffff", colour])


def signed_tint(colour: str) -> LinearSegmentedColormap:
    """Give a map for signed numbers: grey below 0, the colour above."""
    return LinearSegmentedColormap.from_list(
        "signed_tint", ["#4a4a4a", "#ffffff", colour])


use_style()
