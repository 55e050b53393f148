"""Set the formulas of the site once, and keep them (needs Chromium).

Usage: python tools/formulas.py     (make formulas)

The formulas are looked for in the built site, set by MathJax, and kept for
the next build: ``_ext/formulas.json`` has each one once, and
``_extra/mathjax/formulas.css`` the rules for the signs that they use.
``_ext/book_formulas.py`` says why. The same formulas give the same bytes.
"""

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from bs4 import BeautifulSoup, SoupStrainer, Tag

from pdf import MISSING, ROOT, SITE, find_chromium, visit

sys.path.insert(0, str(ROOT / "_ext"))

from book_formulas import KEPT, STYLES

PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>Formulas</title>
<script>
const written = %s;
const set = (formula) => {
  const node = MathJax.tex2chtml(formula.slice(2, -2), {
    display: formula.startsWith("\\\\[")});
  // A sign that no font has would be as wide as it is on this machine.
  const wrong = node.querySelector("mjx-merror, mjx-utext");
  if (wrong) throw new Error(wrong.outerHTML);
  node.removeAttribute("style");
  return node.outerHTML.replaceAll(' style=""', "");
};
const named = (formula) => {
  try { return [formula, set(formula)]; }
  catch (error) { throw new Error(`${formula}: ${error.message}`); }
};
const report = (found) => fetch("/typeset", {
  method: "POST", body: JSON.stringify(found)});
window.MathJax = {
  options: {enableMenu: false},
  tex: {packages: {"[-]": ["noundefined"]}},  // or it is shown in red
  chtml: {fontURL: "output/chtml/fonts/woff-v2"},
  startup: {typeset: false, pageReady: async () => {
    try {
      const formulas = Object.fromEntries(written.map(named));
      await report({
        formulas, styles: MathJax.chtmlStylesheet().textContent});
    } catch (error) { await report({failure: String(error)}); }
  }},
};
</script>
<script async src="/mathjax/tex-mml-chtml.js"></script></head>
<body><img src="/typeset" alt=""></body></html>
"""
# MathJax measures the letters around each formula, and writes the size that
# makes its own as tall (0.442 em). As a rule it holds for every font.
SIZE = """
mjx-container[jax="CHTML"] {
  font-size: calc(1ex / 0.442);
  position: relative;
}
"""


def written(site: Path = SITE) -> list[str]:
    r"""List the formulas of a site as they were written, such as ``\(x\)``.

    Args:
        site: The folder of the built site.
    """
    return sorted({formula for path in site.rglob("*.html")
                   for formula in on_page(path.read_text("utf8"))})


def on_page(page: str) -> Iterator[str]:
    """Give the formulas of a page, whether they are set or not."""
    maths = SoupStrainer(class_=re.compile(r"^math\b"))
    for place in BeautifulSoup(page, "html.parser", parse_only=maths).select(
            ".math"):
        formula = place.select_one("mjx-container")
        if formula is None:
            text = place.get_text()
            yield text[text.index("\\"):].strip()
        else:
            yield as_written(formula)


def as_written(formula: Tag) -> str:
    """Give back what a formula that is set was written as."""
    math = formula.select_one("math")
    assert math is not None
    tex = str(math["alttext"])
    return rf"\[{tex}\]" if formula.get("display") else rf"\({tex}\)"


def set_formulas(formulas: list[str], chromium: str, site: Path = SITE
                 ) -> tuple[dict[str, str], str]:
    r"""Let MathJax set formulas.

    Args:
        formulas: Formulas such as ``\(x\)`` or ``\[x\]``.
        chromium: The browser.
        site: The folder of the built site, which has MathJax.

    Returns:
        Each formula in HTML, and the rules for the signs of all.

    Raises:
        RuntimeError: One of them cannot be set.
    """
    told = json.dumps(formulas).replace("<", "\\u003c")
    found = visit(PAGE % told, chromium, site, "--dump-dom")
    if not found or "failure" in found:
        raise RuntimeError(found.get("failure", "Chromium said nothing"))
    return found["formulas"], found["styles"].strip() + "\n" + SIZE


def main() -> int:
    """Set the formulas of the site; give the exit status."""
    chromium = find_chromium()
    if chromium is None:
        print(MISSING, file=sys.stderr)
        return 1
    formulas, styles = set_formulas(written(), chromium)
    KEPT.write_text(json.dumps(formulas, ensure_ascii=False, indent=0,
                               sort_keys=True) + "\n", "utf8")
    STYLES.write_text(styles, "utf8")
    print(f"{len(formulas)} formulas are set; the next build has them.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
