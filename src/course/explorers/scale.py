"""Move the scale, and see the softmax go from flat to one-hot."""

from collections.abc import Mapping, Sequence
from html import escape

import numpy as np
from numpy.typing import ArrayLike

from course.explorers.frame import Explorer, build, rounded, row, table
from self_attention.numpy_reference import softmax

__all__ = ["explore_scale"]

#: The slider goes in steps of a quarter of a doubling.
STEPS = 4

SCRIPT = """
const slider = one("input");
const update = () => {
  const divisor = 2 ** (slider.value / data.steps);
  const weights = softmax(data.scores.map((s) => s / divisor));
  const largest = Math.max(...weights);
  const bits = -sum(weights.map((w) => w && w * Math.log2(w)));
  const most = Math.log2(weights.length);
  const show = (tr, share, text) => {
    tr.querySelector("i").style.setProperty("--w", share.toFixed(4));
    tr.querySelector(".number").textContent = text;
  };
  all(".weights tr").forEach((tr, key) =>
    show(tr, weights[key], weights[key].toFixed(4)));
  const [top, entropy, slope] = all(".measures tr");
  show(top, largest, largest.toFixed(4));
  show(entropy, bits / most, `${(bits + 0).toFixed(2)} bits`);
  show(slope, 4 * largest * (1 - largest),
    (largest * (1 - largest)).toFixed(4));
  const mark = data.marks.find(([, step]) => step === Number(slider.value));
  const how = `Divided by ${divisor.toFixed(3)}`
    + (mark ? ` (${mark[0]})` : "");
  slider.setAttribute("aria-valuetext", how);
  say(`${how}: largest weight ${largest.toFixed(4)}, on `
    + `“${data.tokens[weights.indexOf(largest)]}”; entropy `
    + `${(bits + 0).toFixed(2)} of at most ${most.toFixed(2)} bits.`);
};
for (const button of all("button")) {
  button.addEventListener("click", () => {
    slider.value = button.value;
    update();
  });
}
"""


def explore_scale(tokens: Sequence[str], scores: ArrayLike,
                  marks: Mapping[str, float], *, start: str,
                  name: str = "explore-scale") -> Explorer:
    """Let the reader move what the scores of one query are divided by.

    Args:
        tokens: The words that may be attended to.
        scores: ``(key_len,)``, not yet divided by anything.
        marks: By name, divisors for which there is a button. Each must be a
            power of 2 to a quarter, so that the slider can stand on it; the
            smallest and the largest are the slider's ends.
        start: Name of the first divisor.
        name: The id of the element.

    Raises:
        ValueError: The lengths differ, or a mark cannot be stood on.
    """
    scores = rounded(scores)
    if scores.shape != (len(tokens),):
        raise ValueError(f"scores {scores.shape} do not fit {len(tokens)} "
                         "tokens")
    steps = {label: _step(label, divisor)
             for label, divisor in marks.items()}
    chosen = 2.0 ** (steps[start] / STEPS)
    weights, bits, most = _measure(scores, chosen)
    largest = float(weights.max())
    bars = "\n".join(
        row(f"{token} ({score:.1f})", weight, f"{weight:.4f}")
        for token, score, weight in zip(tokens, scores, weights))
    measures = "\n".join([
        row("largest weight w", largest, f"{largest:.4f}"),
        row("entropy", bits / most, f"{bits:.2f} bits"),
        row("slope w(1 − w)", 4 * largest * (1 - largest),
            f"{largest * (1 - largest):.4f}")])
    buttons = "\n".join(
        f'<button type="button" value="{step}">{escape(label)}</button>'
        for label, step in steps.items())
    how = f"Divided by {chosen:.3f} ({start})"
    return build(
        name, style="#ID .measures .number { width: 5.5em; }\n",
        script=SCRIPT,
        title="Explore: what does the scale do?",
        caption="Move the slider, or choose one of the scales of this "
                "chapter. The scores, in brackets, stay as they are.",
        body=f'<fieldset disabled><legend><label for="{name}-divisor">'
        "Divide the scores by</label></legend>\n"
        f'<input type="range" id="{name}-divisor" min="{min(steps.values())}" '
        f'max="{max(steps.values())}" step="1" value="{steps[start]}" '
        f'autocomplete="off" aria-valuetext="{escape(how)}">\n</fieldset>\n'
        "<fieldset disabled><legend>Stand on</legend>\n"
        f'{buttons}\n</fieldset>\n<div class="pair">\n<table class="weights">'
        f"<caption>Weights</caption><tbody>\n{bars}\n</tbody></table>\n"
        '<table class="measures"><caption>How sharp they are</caption>'
        f"<tbody>\n{measures}\n</tbody></table>\n</div>",
        summary=f"{how}: largest weight {largest:.4f}, on "
                f"“{tokens[int(weights.argmax())]}”; entropy {bits:.2f} of "
                f"at most {most:.2f} bits.",
        rest=table("The scales that have a button",
                   ["scale", "divided by", *tokens, "entropy in bits"],
                   (_state(label, scores, 2.0 ** (step / STEPS))
                    for label, step in steps.items())),
        data={"tokens": list(tokens), "scores": scores.tolist(),
              "marks": list(steps.items()), "steps": STEPS})


def _step(label: str, divisor: float) -> int:
    step = STEPS * np.log2(divisor)
    if not np.isclose(step, round(step)):
        raise ValueError(f"marks[{label!r}]={divisor} is not a power of 2 "
                         "to a quarter")
    return round(step)


def _measure(scores: np.ndarray,
             divisor: float) -> tuple[np.ndarray, float, float]:
    """The weights, their entropy, and the largest entropy there is."""
    weights = softmax(scores / divisor)
    some = weights[weights > 0]
    bits = -float((some * np.log2(some)).sum()) + 0.0
    return weights, bits, float(np.log2(len(weights)))


def _state(label: str, scores: np.ndarray, divisor: float) -> list[str]:
    weights, bits, _ = _measure(scores, divisor)
    return [label, f"{divisor:.3f}", *(f"{w:.4f}" for w in weights),
            f"{bits:.2f}"]
