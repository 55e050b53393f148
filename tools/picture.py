"""Draw the picture of the landing page: one whole layer, computed.

Usage: python tools/picture.py [path]            (make picture)
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
from self_attention import numpy_reference as attention

PICTURE = Path(__file__).resolve().parents[1] / "_static" / "picture.png"


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


if __name__ == "__main__":
    draw(Path(sys.argv[1]) if len(sys.argv) > 1 else PICTURE)
