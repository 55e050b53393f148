"""Pick a head of a model, and see where a word looks in it."""

from collections.abc import Mapping, Sequence
from html import escape

import numpy as np
from numpy.typing import ArrayLike

from course.explorers.frame import Explorer, build, choices, table

__all__ = ["explore_heads"]

#: Decimals of a weight, here: there are thousands of them.
DIGITS = 3

STYLE = """
#ID .words { display: grid; grid-template-columns: auto minmax(3rem, 14rem)
  auto; justify-content: start; margin: .6rem 0 0; }
#ID .words fieldset { display: block; margin: 0; min-width: max-content; }
#ID .words legend, #ID .words caption { font-size: .92em; font-weight: 400;
  height: 1.7rem; line-height: 1.7rem; padding: 0; }
#ID .words label { display: flex; height: 1.7rem; min-height: 0;
  padding-right: .3rem; white-space: nowrap; }
#ID .words svg { margin-top: 1.7rem; }
#ID .words svg { background: PAPER; height: HEIGHT; width: 100%; }
#ID .words line { opacity: min(1, calc(var(--w) * 3)); stroke: #3f3d9e;
  stroke-width: calc(.4px + var(--w) * 8px); }
#ID .words table { margin-left: .5rem; width: auto; }
#ID .words tr { height: 1.7rem; }
#ID .words th, #ID .words td { line-height: 1.2; padding-bottom: 0;
  padding-top: 0; }
#ID .words .top > * { font-weight: 700; }
#ID :checked + span { font-weight: 700; }
"""

SCRIPT = """
const update = () => {
  const panel = Number(one("[name$=sentence]:checked").value);
  const [layer, head] = one("select").value.split(" ").map(Number);
  const query = Number(one("[name$=query]:checked").value);
  const tokens = data.tokens[panel];
  const row = data.weights[panel][layer][head][query].map((w) => w / 1000);
  all(".words label span").forEach((span, place) =>
    span.textContent = tokens[place]);
  const best = row.indexOf(Math.max(...row));
  all(".words tbody tr").forEach((tr, key) => {
    tr.querySelector("th").textContent = tokens[key];
    tr.querySelector("td").textContent = row[key].toFixed(3);
    tr.classList.toggle("top", key === best);
  });
  all("line").forEach((line, key) => {
    line.setAttribute("y1", query + 0.5);
    line.style.setProperty("--w", row[key].toFixed(3));
  });
  const [first, second] = row.map((w, key) => [w, key])
    .sort((a, b) => b[0] - a[0] || a[1] - b[1])
    .map(([w, key]) => `“${tokens[key]}” (${w.toFixed(3)})`);
  say(`${data.layers[layer]}, head ${head}, from “${tokens[query]}”: most `
    + `weight on ${first}, then on ${second}.`);
};
"""


def explore_heads(panels: Mapping[str, tuple[Sequence[str],
                                             Mapping[str, ArrayLike]]], *,
                  query: int, start: tuple[str, int],
                  name: str = "explore-heads") -> Explorer:
    """Let the reader pick a sentence, a head, and the word that looks.

    Args:
        panels: By name, the tokens of a sentence and, by the name of each
            layer, its weights ``(num_heads, seq_len, seq_len)``. All
            sentences have the same number of tokens and the same layers.
        query: Position of the word that looks first.
        start: Layer and number of the first head.
        name: The id of the element.

    Raises:
        ValueError: The sentences differ in length or in layers, or the
            weights do not fit them.
    """
    layers = list(next(iter(panels.values()))[1])
    count = len(next(iter(panels.values()))[0])
    for label, (tokens, weights) in panels.items():
        shapes = {np.shape(table)[1:] for table in weights.values()}
        if (list(weights) != layers or len(tokens) != count
                or shapes != {(count, count)}):
            raise ValueError(f"panels[{label!r}] does not fit the first one")
    shown = {label: (tokens, [np.rint(np.asarray(weights[layer]) * 1000)
                              .astype(int) for layer in layers])
             for label, (tokens, weights) in panels.items()}
    tokens, weights = next(iter(shown.values()))
    layer, head = layers.index(start[0]), start[1]
    line = weights[layer][head, query] / 1000
    first, second = np.argsort(-line, kind="stable")[:2]
    return build(
        name, script=SCRIPT,
        style=STYLE.replace("HEIGHT", f"{1.7 * count:.1f}rem"),
        title="Explore: pick a head.",
        caption="On the left the word that looks, on the right the words it "
                "looks at. The width of a line is the weight.",
        body='<div class="controls">\n'
        + choices(f"{name}-sentence", "Sentence", panels) + "\n"
        f'<fieldset disabled><legend><label for="{name}-head">Head</label>'
        f'</legend>\n<select id="{name}-head" autocomplete="off">\n'
        + "\n".join(_layer(label, number, len(weights[number]), layer, head)
                    for number, label in enumerate(layers))
        + '\n</select>\n</fieldset>\n</div>\n<div class="words">\n'
        + choices(f"{name}-query", "query", tokens,
                  chosen=query) + "\n" + _lines(line, query) + "\n"
        + _keys(tokens, line) + "\n</div>",
        summary=f"{layers[layer]}, head {head}, from “{tokens[query]}”: most "
                f"weight on “{tokens[first]}” ({line[first]:.3f}), then on "
                f"“{tokens[second]}” ({line[second]:.3f}).",
        rest="\n".join(_states(label, *panel, layers, query)
                       for label, panel in shown.items()),
        data={"tokens": [list(tokens) for tokens, _ in shown.values()],
              "layers": layers, "weights": [
                  [table.tolist() for table in weights]
                  for _, weights in shown.values()]})


def _layer(label: str, number: int, heads: int, layer: int, head: int) -> str:
    options = "".join(
        f'<option value="{number} {h}"'
        f'{" selected" if (number, h) == (layer, head) else ""}>'
        f"{escape(label)}, head {h}</option>" for h in range(heads))
    return f'<optgroup label="{escape(label)}">{options}</optgroup>'


def _lines(weights: np.ndarray, query: int) -> str:
    lines = "".join(
        f'<line x1="0" y1="{query + 0.5}" x2="100" y2="{key + 0.5}" '
        f'vector-effect="non-scaling-stroke" style="--w: {weight:.3f};"/>'
        for key, weight in enumerate(weights))
    return (f'<svg viewBox="0 0 100 {len(weights)}" aria-hidden="true" '
            f'preserveAspectRatio="none">{lines}</svg>')


def _keys(tokens: Sequence[str], weights: np.ndarray) -> str:
    body = "\n".join(
        f'<tr class="{"top" if key == weights.argmax() else ""}"><th '
        f'scope="row">{escape(token)}</th><td>{weights[key]:.3f}</td></tr>'
        for key, token in enumerate(tokens))
    return (f"<table><caption>key, weight</caption><tbody>\n{body}\n</tbody>"
            "</table>")


def _states(label: str, tokens: Sequence[str], weights: list[np.ndarray],
            layers: Sequence[str], query: int) -> str:
    """All heads, for the word that looks first: the others would be many."""
    return table(
        f"{label}: from “{tokens[query]}”, in every head",
        ["head", *tokens],
        ([f"{layer}, head {head}", *(f"{w / 1000:.3f}" for w in rows[query])]
         for layer, heads in zip(layers, weights)
         for head, rows in enumerate(heads)))
