"""Draw the picture of the landing page, and the card that links show.

Usage: python tools/picture.py [path [card]]     (make picture)
"""

import sys
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")

from course.examples import (
    NUM_HEADS,
    SENTENCE,
    eight_heads,
    embeddings,
)
from course.figures.heads import layer_map
from course.figures.style import (
    COLOURS,
    INK,
    WEIGHT_MAP,
    new_figure,
    signed_tint,
)
from self_attention import numpy_reference as attention

PICTURE = Path(__file__).resolve().parents[1] / "_static" / "picture.png"
CARD = PICTURE.with_name("card.png")
#: What the card says, and where: the site's title and its promise.
WORDS = ((0.84, 46, "Self-Attention, Step by Step"),
         (0.73, 23, "Every number is computed by the code beside it"))


def draw(path: Path) -> None:
    """Run the course's eight heads over its sentence and draw all arrays."""
    matrices = eight_heads()
    x = embeddings(SENTENCE)
    query, key, value = (x @ matrices.W_q, x @ matrices.W_k,
                         x @ matrices.W_v)
    mask = attention.causal_mask(len(SENTENCE))
    weights = attention.attention_weights(query, key, mask)
    heads = attention.scaled_dot_product_attention(query, key, value, mask)
    assert len(heads) == NUM_HEADS
    output = attention.combine_heads(heads[None])[0] @ matrices.W_o
    figure = layer_map(x, query, key, value, weights, heads, matrices.W_o,
                       output, tokens=SENTENCE)
    figure.savefig(path, dpi=130, metadata={"Software": None})


def draw_card(path: Path) -> None:
    """Draw one head on a card of 1200 by 630, as links are shown with it."""
    matrices = eight_heads()
    query, key, value = (embeddings(SENTENCE) @ W[0] for W in (
        matrices.W_q, matrices.W_k, matrices.W_v))
    weights = attention.attention_weights(query, key)
    figure = new_figure(12, 6.3)
    figure.set_layout_engine("none")  # each part has its place
    for y, size, text in WORDS:
        figure.text(0.06, y, text, size=size, color=INK,
                    weight="bold" if size > 40 else "normal")
    panels = (("query", "Q", query, "·"), ("key", "K", key, "→"),
              (None, "weights", weights, "×"), ("value", "V", value, "="),
              ("output", "Z", weights @ value, ""))
    for number, (role, name, array, sign) in enumerate(panels):
        left = 0.06 + 0.184 * number
        ax = figure.add_axes((left, 0.1, 0.144, 0.43))
        shown = array[:, :7]
        most = 1 if role is None else abs(shown).max()
        ax.pcolormesh(shown, edgecolors="#c3cad0", linewidth=1,
                      vmin=-most if role else 0, vmax=most,
                      cmap=signed_tint(COLOURS[role]) if role else WEIGHT_MAP)
        ax.invert_yaxis()
        ax.axis("off")
        figure.text(left + 0.072, 0.56, name, size=26, ha="center",
                    color=COLOURS[role] if role else INK)
        figure.text(left + 0.164, 0.29, sign, size=20, ha="center", color=INK)
    figure.savefig(path, dpi=100, metadata={"Software": None})


if __name__ == "__main__":
    draw(Path(sys.argv[1]) if len(sys.argv) > 1 else PICTURE)
    draw_card(Path(sys.argv[2]) if len(sys.argv) > 2 else CARD)
