"""What every explorer shares: its frame, its look and its script.

The figure at the start is written here, in Python; the script finds the
elements and only changes their texts and a few CSS variables. So there is one
structure, and it is there without scripts, too. Numbers are rounded to
``DIGITS`` decimals before they are written, so that the text is the same on
every machine.
"""

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from course.figures.style import COLOURS, INK, PAPER

__all__ = ["DIGITS", "Explorer", "build", "choices", "rounded", "row",
           "table"]

#: Decimals of the numbers in the page.
DIGITS = 7

#: The first two rules give it the page's own colours: the theme of the book
#: lays a light sheet below what a cell shows, in dark mode too.
STYLE = """
.text_html:has(> #ID) { background: none; padding: 0; }
#ID { background: var(--pst-color-background, transparent);
  border: 1px solid rgba(128, 128, 128, .5); border-radius: .4rem;
  color: var(--pst-color-text-base, inherit); line-height: 1.4;
  margin: 1rem 0; max-width: 44rem; padding: .8rem; text-align: left; }
#ID figcaption { margin: 0 0 .6rem; max-width: none; text-align: left; }
#ID fieldset { border: 0; display: flex; flex-wrap: wrap; gap: .1rem .9rem;
  margin: 0 0 .4rem; min-width: 0; padding: 0; }
#ID legend { float: none; font-size: 1em; font-weight: 600; margin: 0;
  padding: 0 0 .15rem; width: auto; }
#ID label { align-items: center; cursor: pointer; display: inline-flex;
  gap: .35rem; min-height: 1.8rem; margin: 0; }
#ID input { accent-color: QUERY; margin: 0; }
#ID input[type=range] { flex: 1 1 14rem; height: 1.8rem; max-width: 30rem; }
#ID button, #ID select { background: PAPER; border: 1px solid #6b757c;
  border-radius: .3rem; color: INK; font: inherit; min-height: 2rem;
  padding: .1rem .6rem; }
#ID :disabled { cursor: default; opacity: .75; }
#ID :focus-visible { outline: 3px solid QUERY; outline-offset: 2px;
  box-shadow: 0 0 0 2px PAPER; }
#ID table { border: 0; border-collapse: collapse; color: inherit;
  font-size: .92em; margin: 0; table-layout: auto; width: 100%; }
#ID caption { caption-side: top; color: inherit; padding: .2rem 0;
  text-align: left; }
#ID tr { background: none; border: 0; }
#ID th, #ID td { background: none; border: 0; color: inherit;
  font-variant-numeric: tabular-nums; font-weight: 400; max-width: none;
  padding: .12rem .35rem .12rem 0; text-align: left; vertical-align: middle;
  white-space: nowrap; }
#ID .number { text-align: right; width: 4.2em; }
#ID .track { min-width: 5rem; width: 60%; }
#ID .bar { background: rgba(128, 128, 128, .18); display: block;
  height: .95em; }
#ID .bar i { background: QUERY; display: block; height: 100%;
  width: calc(var(--w) * 100%); }
#ID .pair, #ID .controls { align-items: start; display: flex;
  flex-wrap: wrap; gap: .2rem 2rem; }
#ID .pair > * { flex: 1 1 17rem; min-width: 0; }
#ID output { display: block; margin: .6rem 0; min-height: 2.8em; }
#ID details > div { overflow-x: auto; }
#ID details th, #ID details td { padding-right: .9rem; }
#ID summary { cursor: pointer; }
#ID .idle { font-style: italic; margin: 0 0 .4rem; }
#ID.live .idle { display: none; }
@media (prefers-reduced-motion: no-preference) {
  #ID i, #ID line { transition: all .15s; }
}
@media print { #ID fieldset, #ID .idle { display: none; } }
"""

SCRIPT = """
const root = document.currentScript?.closest("figure")
  ?? document.getElementById("ID");
const all = (selector) => [...root.querySelectorAll(selector)];
const one = (selector) => root.querySelector(selector);
const data = JSON.parse(one("script[type='application/json']").textContent);
const say = (text) => {        // the same words are not announced twice
  if (one("output").textContent !== text) one("output").textContent = text;
};
const sum = (numbers) => numbers.reduce((a, b) => a + b, 0);
const softmax = (scores) => {  // a row of -Infinity alone becomes zeros
  const largest = Math.max(...scores, -Number.MAX_VALUE);
  const powers = scores.map((s) => Math.exp(s - largest));
  return powers.map((p) => p / (sum(powers) || 1));
};
"""

START = """
root.addEventListener("input", update);
for (const fieldset of all("fieldset")) fieldset.disabled = false;
root.classList.add("live");
update();
"""

IDLE = ("The controls need scripts. Without them this is the figure at its "
        "start; the table below it has the other states.")


@dataclass(frozen=True)
class Explorer:
    """An interactive figure, for a notebook or a page.

    Attributes:
        name: The id of its element; no two in a page may have the same.
        summary: The state at the start in words.
        html: All of it.
    """

    name: str
    summary: str
    html: str

    def __repr__(self) -> str:
        return f"{self.name}: {self.summary}"

    def _repr_html_(self) -> str:
        return self.html

    def _repr_mimebundle_(self, include: Any = None,
                          exclude: Any = None) -> dict[str, str]:
        return {"text/plain": repr(self), "text/html": self.html}


def build(name: str, *, title: str, caption: str, body: str, summary: str,
          rest: str, data: dict[str, Any], script: str,
          style: str = "") -> Explorer:
    """Put an explorer together.

    Args:
        name: The id of its element: letters, digits and hyphens.
        title: Its name.
        caption: What the figure shows, and what to do.
        body: Controls and figure, as HTML in its first state.
        summary: The first state in words.
        rest: The tables of all states, as HTML.
        data: What the script computes from.
        script: Defines ``update()``, which shows the state of the controls.
        style: More rules, with ``#ID`` in front of each selector.

    Raises:
        ValueError: The name cannot be an id.
    """
    if not re.fullmatch(r"[a-z][a-z0-9-]*", name):
        raise ValueError(f"name={name!r} must be lower-case letters, digits "
                         "and hyphens, and begin with a letter")
    look = (STYLE + style).replace("#ID", f"#{name}").replace("INK", INK)
    look = look.replace("PAPER", PAPER)
    for role, colour in COLOURS.items():
        look = look.replace(role.upper(), colour)
    # "<" would let a word end the element, or open a comment in it.
    numbers = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    numbers = numbers.replace("<", "\\u003c")
    code = (SCRIPT + script + START).strip().replace('"ID"', f'"{name}"')
    html = f"""\
<figure class="explorer" id="{name}" aria-labelledby="{name}-title">
<style>{look}</style>
<figcaption><strong id="{name}-title">{escape(title)}</strong>
{escape(caption)}</figcaption>
<p class="idle">{IDLE}</p>
{body}
<output>{escape(summary)}</output>
<details><summary>All states as a table</summary>
<div role="group" tabindex="0" aria-label="Table of all states">
{rest}
</div></details>
<script type="application/json">{numbers}</script>
<script>
(() => {{
{code}
}})();
</script>
</figure>"""
    return Explorer(name, summary, html)


def choices(group: str, legend: str, labels: Iterable[str], *,
            chosen: int = 0) -> str:
    """Write a group of radio buttons, of which one is chosen."""
    buttons = "\n".join(
        f'<label><input type="radio" name="{group}" value="{value}"'
        f'{" checked" if value == chosen else ""}>'
        f"<span>{escape(label)}</span></label>"
        for value, label in enumerate(labels))
    return (f"<fieldset disabled><legend>{escape(legend)}</legend>\n"
            f"{buttons}\n</fieldset>")


def row(label: str, weight: float, text: str) -> str:
    """Write one row of a table of bars; the weight is from 0 to 1."""
    return (f'<tr><th scope="row">{escape(label)}</th><td class="track">'
            f'<span class="bar"><i style="--w: {weight:.4f};"></i></span></td>'
            f'<td class="number">{text}</td></tr>')


def table(caption: str, columns: Sequence[str],
          lines: Iterable[Sequence[str]]) -> str:
    """Write a plain table; the first entry of each line is its head."""
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in columns)
    body = "\n".join(
        f'<tr><th scope="row">{escape(line[0])}</th>'
        + "".join(f"<td>{escape(entry)}</td>" for entry in line[1:]) + "</tr>"
        for line in lines)
    return (f"<table><caption>{escape(caption)}</caption>\n<thead><tr>{head}"
            f"</tr></thead>\n<tbody>\n{body}\n</tbody></table>")


def rounded(numbers: ArrayLike, digits: int = DIGITS) -> np.ndarray:
    """Round so that every machine writes the same text, and never -0."""
    return np.round(np.asarray(numbers, dtype=float), digits) + 0.0
