"""Pick the word that asks, and see its weights and its output."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from course.explorers.frame import (
    Explorer,
    build,
    choices,
    rounded,
    row,
    table,
)

__all__ = ["explore_query"]

STYLE = """
#ID .line { background: linear-gradient(#8b959b 0 0) center / 1px 100%
  no-repeat, #f0f2f4; border-radius: .2rem; display: block;
  height: 1.25em; margin: 0 .5rem; position: relative; }
#ID .line i { border-radius: 50%; height: calc(.25rem + var(--w) * .75rem);
  left: calc(var(--x) * 100%); position: absolute; top: 50%;
  transform: translate(-50%, -50%); width: calc(.25rem + var(--w) * .75rem); }
#ID .line .value { background: VALUE; }
#ID .line .output { background: OUTPUT; border-radius: 0; height: 100%;
  width: .25rem; }
"""

SCRIPT = """
const update = () => {
  const query = Number(one("input:checked").value);
  const weights = data.weights[query];
  const z = data.values[0].map((_, place) =>
    sum(weights.map((w, key) => w * data.values[key][place])));
  one("caption").textContent = `Weights of “${data.tokens[query]}”`;
  all(".weights tr").forEach((tr, key) => {
    tr.querySelector("i").style.setProperty("--w", weights[key].toFixed(4));
    tr.querySelector(".number").textContent = weights[key].toFixed(4);
  });
  all(".sums tr").forEach((tr, place) => {
    tr.querySelectorAll(".value").forEach((dot, key) =>
      dot.style.setProperty("--w", weights[key].toFixed(4)));
    const where = 0.5 + z[place] / data.limit / 2;
    tr.querySelector(".output").style.setProperty("--x", where.toFixed(4));
    tr.querySelector(".number").textContent = z[place].toFixed(4);
  });
  const best = weights.indexOf(Math.max(...weights));
  const itself = best === query ? "itself" : `“${data.tokens[best]}”`;
  say(`“${data.tokens[query]}” takes most from ${itself} `
    + `(weight ${weights[best].toFixed(4)}). `
    + `Its output begins with ${z[0].toFixed(4)}.`);
};
"""


def explore_query(tokens: Sequence[str], weights: ArrayLike,
                  values: ArrayLike, *, places: int = 5, start: int = 0,
                  name: str = "explore-query") -> Explorer:
    """Let the reader pick the word that asks.

    Shown are its row of weights, as bars, and the first numbers of its
    output: on each line the values are dots, as large as their weights, and
    the output is the stroke at their balance.

    Args:
        tokens: The words.
        weights: ``(seq_len, seq_len)``, a row for each query.
        values: ``(seq_len, value_dim)``.
        places: How many numbers of the output are shown.
        start: Position of the word that asks first.
        name: The id of the element.

    Raises:
        ValueError: The shapes do not fit, or ``start`` is no position.
    """
    width = np.shape(values)[-1]
    weights, values = rounded(weights), rounded(values)[:, :places]
    if weights.shape != (len(tokens),) * 2 or len(values) != len(tokens):
        raise ValueError(f"weights {weights.shape} and values "
                         f"{values.shape} do not fit {len(tokens)} tokens")
    if start not in range(len(tokens)):
        raise ValueError(f"start={start} is not a position")
    limit = float(np.ceil(np.abs(values).max(initial=1e-9)))
    sums = weights @ values
    labels = [f"{token} ({place})" for place, token in enumerate(tokens)]
    bars = "\n".join(row(label, weight, f"{weight:.4f}") for label, weight
                     in zip(labels, weights[start]))
    lines = "\n".join(
        _line(f"z[{place}]", weights[start], values[:, place] / limit,
              sums[start, place], limit) for place in range(values.shape[1]))
    best = int(weights[start].argmax())
    itself = "itself" if best == start else f"“{tokens[best]}”"
    return build(
        name, style=STYLE, script=SCRIPT,
        title="Explore: which word asks?",
        caption="Choose a word. The bars are its weights. In the second "
                "table each dot is a value, as large as its weight; the "
                "stroke is their weighted sum, the output.",
        body=choices(f"{name}-query", "Query", labels, chosen=start)
        + '\n<div class="pair">\n<table class="weights"><caption>Weights of '
        f"“{tokens[start]}”</caption><tbody>\n{bars}\n</tbody></table>\n"
        '<table class="sums"><caption>The first '
        f"{values.shape[1]} of the {width} numbers of its output z, from "
        f"−{limit:.0f} to {limit:.0f}</caption><tbody>\n{lines}\n</tbody>"
        "</table>\n</div>",
        summary=f"“{tokens[start]}” takes most from {itself} (weight "
                f"{weights[start, best]:.4f}). Its output begins with "
                f"{sums[start, 0]:.4f}.",
        rest=table("A row for each query: its weights, then its output",
                   ["query", *(f"weight of {label}" for label in labels),
                    *(f"z[{place}]" for place in range(values.shape[1]))],
                   ([label, *(f"{w:.4f}" for w in weights[query]),
                     *(f"{z:.4f}" for z in sums[query])]
                    for query, label in enumerate(labels))),
        data={"tokens": list(tokens), "weights": weights.tolist(),
              "values": values.tolist(), "limit": limit})


def _line(label: str, weights: np.ndarray, values: np.ndarray, output: float,
          limit: float) -> str:
    dots = "".join(
        f'<i class="value" style="--x: {0.5 + value / 2:.4f}; '
        f'--w: {weight:.4f};"></i>' for value, weight in zip(values, weights))
    stroke = (f'<i class="output" style="--x: '
              f'{0.5 + output / limit / 2:.4f};"></i>')
    return (f'<tr><th scope="row">{label}</th><td class="track"><span '
            f'class="line">{dots}{stroke}</span></td><td class="number">'
            f"{output:.4f}</td></tr>")
