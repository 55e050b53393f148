"""Switch the padding mask and the causal mask on one table of weights."""

from collections.abc import Sequence
from html import escape

import numpy as np
from matplotlib.colors import Colormap, to_hex
from numpy.typing import ArrayLike

from course.explorers.frame import Explorer, build, choices, rounded, table
from course.figures.style import SIGNED_MAP, WEIGHT_MAP
from self_attention.numpy_reference import (
    causal_mask,
    combine_masks,
    padding_mask,
    softmax,
)

__all__ = ["explore_masks"]

#: Shades of a cell, from the least to the most.
SHADES = 21
SIDES = ("right", "left")

STYLE = """
#ID .cells { font-size: clamp(.7rem, 2.9vw, .92em); margin-top: .4rem;
  max-width: 34rem; table-layout: fixed; }
#ID .cells tr > :first-child { border: 0; width: 6.4em; }
#ID .cells thead th { height: 5.2rem; padding: 0; vertical-align: bottom; }
#ID .cells thead span { display: inline-block; margin: 0 auto;
  transform: rotate(180deg); writing-mode: vertical-rl; }
#ID .cells thead th, #ID .cells td { text-align: center; }
#ID .cells tbody td { background: var(--paper); border: 1px solid #d7dde1;
  color: var(--ink); height: 2.1rem; padding: 0; }
#ID .cells tbody td.masked, #ID .sample { color: INK; background:
  repeating-linear-gradient(135deg, PAPER 0 4px, #c3cbd0 4px 6px); }
#ID .sample { border: 1px solid #d7dde1; padding: 0 .5rem; }
#ID .legend { font-size: .92em; margin: .4rem 0 0; }
"""

SCRIPT = """
const count = data.tokens.length;
const update = () => {
  const on = (name) => one(`[name$=${name}]`).checked;
  const padding = on("padding"), causal = on("causal");
  const left = one("[name$=side]:checked").value === "1";
  const scoresShown = one("[name$=show]:checked").value === "1";
  const places = [...Array(count).keys()];   // which token stands where
  const order = places.map((p) => left ? (p + data.length) % count : p);
  const may = places.map((i) => places.map((j) =>
    (!causal || j <= i) && (!padding || order[j] < data.length)));
  const scores = places.map((i) => places.map((j) =>
    data.scores[order[i]][order[j]]));
  const weights = scores.map((row, i) =>
    softmax(row.map((s, j) => may[i][j] ? s : -Infinity)));
  const [papers, inks] = scoresShown ? data.signed : data.shades;
  const cell = (td, i, j) => {
    const share = scoresShown ? 0.5 + scores[i][j] / data.limit / 2
      : weights[i][j];
    const shade = Math.floor(share * (papers.length - 1) + 0.5);
    td.style.setProperty("--paper", papers[shade]);
    td.style.setProperty("--ink", inks[shade]);
    td.classList.toggle("masked", !may[i][j]);
    td.textContent = scoresShown
      ? (may[i][j] ? scores[i][j].toFixed(1) : "−∞")
      : (may[i][j] ? weights[i][j].toFixed(2) : "0");
  };
  all(".cells thead span").forEach((span, j) =>
    span.textContent = data.tokens[order[j]]);
  all(".cells tbody tr").forEach((tr, i) => {
    tr.querySelector("th").textContent = data.tokens[order[i]];
    tr.querySelectorAll("td").forEach((td, j) => cell(td, i, j));
  });
  const allowed = sum(may.flat().map(Number));
  const nowhere = places.filter((i) => !may[i].includes(true)).length;
  const lost = sum(places.filter((i) => order[i] < data.length).map((i) =>
    sum(weights[i].filter((_, j) => order[j] >= data.length))));
  say(`${allowed} of ${count * count} pairs are allowed. Of the weight of `
    + `the real words, ${(lost / data.length).toFixed(2)} goes to padding. `
    + (nowhere ? `${nowhere} of the queries may attend nowhere: their rows `
      + "are zero." : "Every row sums to 1."));
};
"""


def explore_masks(tokens: Sequence[str], scores: ArrayLike, length: int, *,
                  name: str = "explore-masks") -> Explorer:
    """Let the reader switch masks, and the side of the padding.

    The weights are computed in the page from the scores and the masks. With
    the padding on the other side the tokens change places, and the scores
    with them: they depend on the two words alone. It begins with the padding
    mask on, the causal mask off, and padding on the right.

    Args:
        tokens: The words, with padding behind them.
        scores: ``(seq_len, seq_len)``, scaled.
        length: How many of the tokens are words.
        name: The id of the element.

    Raises:
        ValueError: The scores do not fit the tokens, or there are not so
            many tokens.
    """
    scores = rounded(scores)
    if scores.shape != (len(tokens),) * 2:
        raise ValueError(f"scores {scores.shape} do not fit {len(tokens)} "
                         "tokens")
    if length not in range(1, len(tokens) + 1):
        raise ValueError(f"length={length} is not in 1 to {len(tokens)}")
    limit = float(np.ceil(np.abs(scores).max()))
    shades = _shades(WEIGHT_MAP)
    start = _State(scores, length, True, False, "right")
    states = [_State(scores, length, padding, causal, side)
              for side in SIDES for padding in (False, True)
              for causal in (False, True)]
    return build(
        name, style=STYLE, script=SCRIPT,
        title="Explore: switch the masks.",
        caption="Queries down, keys across. The weights are computed again "
                "from the scores at each change.",
        body='<div class="controls">\n<fieldset disabled>'
        "<legend>Masks</legend>\n"
        f"{_switch(f'{name}-padding', 'padding mask', True)}\n"
        f"{_switch(f'{name}-causal', 'causal mask', False)}\n</fieldset>\n"
        + choices(f"{name}-side", "Padding on the", SIDES) + "\n"
        + choices(f"{name}-show", "Show", ["weights", "scores"]) + "\n</div>\n"
        + _cells(tokens, start, shades)
        + '\n<p class="legend"><span class="sample">0</span> masked: the '
        "score is −∞ and the weight exactly 0</p>",
        summary=start.words(),
        rest=table("What each setting lets through",
                   ["padding", "padding mask", "causal mask",
                    "pairs allowed", "rows of zeros",
                    "weight of the words on padding"],
                   (state.line() for state in states)),
        data={"tokens": list(tokens), "length": length,
              "scores": scores.tolist(), "limit": limit, "shades": shades,
              "signed": _shades(SIGNED_MAP)})


class _State:
    """The masks and the weights of one setting."""

    def __init__(self, scores: np.ndarray, length: int, padding: bool,
                 causal: bool, side: str) -> None:
        count = len(scores)
        self.settings = side, padding, causal
        order = np.roll(np.arange(count), 0 if side == "right" else -length)
        self.mask = combine_masks(
            np.full((count, count), True),
            padding_mask([length], count, side=side)[0, 0] if padding
            else None, causal_mask(count) if causal else None)
        self.weights = softmax(np.where(
            self.mask, scores[np.ix_(order, order)], -np.inf))
        real = order < length
        self.lost = self.weights[real][:, ~real].sum() / length
        self.nowhere = int((~self.mask.any(axis=1)).sum())

    def words(self) -> str:
        rows = (f"{self.nowhere} of the queries may attend nowhere: their "
                "rows are zero." if self.nowhere else "Every row sums to 1.")
        return (f"{self.mask.sum()} of {self.mask.size} pairs are allowed. "
                f"Of the weight of the real words, {self.lost:.2f} goes to "
                f"padding. {rows}")

    def line(self) -> list[str]:
        side, padding, causal = self.settings
        return [f"on the {side}", "on" if padding else "off",
                "on" if causal else "off", str(self.mask.sum()),
                str(self.nowhere), f"{self.lost:.2f}"]


def _switch(name: str, label: str, on: bool) -> str:
    return (f'<label><input type="checkbox" name="{name}"'
            f"{' checked' if on else ''}><span>{label}</span></label>")


def _cells(tokens: Sequence[str], state: _State,
           shades: tuple[list[str], list[str]]) -> str:
    head = "".join(f'<th scope="col"><span>{escape(token)}</span></th>'
                   for token in tokens)
    body = "\n".join(
        f'<tr><th scope="row">{escape(token)}</th>' + "".join(
            _cell(weight, may, shades) for weight, may in zip(*line))
        + "</tr>" for token, *line in zip(tokens, state.weights, state.mask))
    return ('<table class="cells"><caption>Query (down) and key (across)'
            f"</caption>\n<thead><tr><td></td>{head}</tr></thead>\n<tbody>\n"
            f"{body}\n</tbody></table>")


def _cell(weight: float, may: bool,
          shades: tuple[list[str], list[str]]) -> str:
    shade = int(weight * (SHADES - 1) + 0.5)
    return (f'<td class="{"" if may else "masked"}" style="--paper: '
            f'{shades[0][shade]}; --ink: {shades[1][shade]};">'
            f'{f"{weight:.2f}" if may else "0"}</td>')


def _shades(colours: Colormap) -> tuple[list[str], list[str]]:
    """Colours from 0 to 1, and for each the ink that is read on it."""
    papers = [to_hex(colours(share)) for share in np.linspace(0, 1, SHADES)]
    return papers, ["#ffffff" if _luminance(paper) < 0.179 else "#000000"
                    for paper in papers]


def _luminance(colour: str) -> float:
    """How light a colour is, by the rule of the WCAG."""
    parts = [int(colour[at:at + 2], 16) / 255 for at in (1, 3, 5)]
    return sum(factor * (part / 12.92 if part <= 0.04045
                         else ((part + 0.055) / 1.055) ** 2.4)
               for factor, part in zip((0.2126, 0.7152, 0.0722), parts))
