"""Put formulas into the pages as they look, so that no script sets them.

Where MathJax works in the page, a page with five formulas waits for it as long
as for half of all else: it is read, it starts, and what it sets is laid out
anew. So ``make formulas`` lets the same MathJax set every formula once, and
keeps what it gives in ``formulas.json``, with its text for screen readers; the
rules for the signs are in ``_extra/mathjax/formulas.css``. The fonts are
MathJax's own.

A page with a formula that is not kept yet stays as it was written, and loads
MathJax: it is right, and slower. A test then asks for ``make formulas``.
"""

import functools
import hashlib
import html
import json
import re
from pathlib import Path
from typing import Any

KEPT = Path(__file__).with_name("formulas.json")
STYLES = Path(__file__).parents[1] / "_extra" / "mathjax" / "formulas.css"
# A formula as Sphinx writes it, perhaps with a number before it.
WRITTEN = re.compile(
    r'(<(?:span|div)\b[^>]*\bclass="math notranslate nohighlight"[^>]*>\s*'
    r'(?:<span class="eqno">.*?</span>)?)'
    r"(\\\(.*?\\\)|\\\[.*?\\\])(?=\s*</(?:span|div)>)", re.DOTALL)
# What nearly every formula is drawn with, and how many make up a page of them.
FONTS = "mathjax/output/chtml/fonts/woff-v2/MathJax_%s.woff"
DRAWN_WITH = ("Main-Regular", "Math-Italic", "Zero")
MANY = 10
SETTERS = re.compile(r"\s*<script>window\.MathJax = .*?</script>"
                     r"|\s*<script[^>]*tex-mml-chtml\.js[^>]*></script>")


@functools.cache
def kept() -> dict[str, str]:
    r"""Give each formula, such as ``\(x\)`` or ``\[x\]``, as it looks."""
    return json.loads(KEPT.read_text("utf8")) if KEPT.exists() else {}


@functools.cache
def version() -> str:
    """Say which rules these are, so that no browser keeps older ones."""
    return hashlib.sha256(STYLES.read_bytes()).hexdigest()[:8]


def put_formulas(page: str, context: dict[str, Any]) -> str:
    """Put the kept formulas into a page, and take the needless scripts out.

    Args:
        page: The whole page.
        context: What the page was rendered from.
    """
    written = [html.unescape(found[2]) for found in WRITTEN.finditer(page)]
    if not set(written) <= set(kept()):
        return page
    page = SETTERS.sub("", page)
    if not written:
        return page
    sheet = context["pathto"]("mathjax/formulas.css", resource=True)
    page = page.replace("</head>", f'  <link rel="stylesheet" href="{sheet}'
                        f'?v={version()}" />\n  </head>', 1)
    if len(written) >= MANY:
        page = fetch_fonts(page, context)
    return WRITTEN.sub(lambda found: found[1] + as_it_looks(
        html.unescape(found[2])), page)


def fetch_fonts(page: str, context: dict[str, Any]) -> str:
    """Let the fonts come with the styles: later, each moves the formulas."""
    links = "".join(
        f'\n    <link rel="preload" as="font" type="font/woff" crossorigin '
        f'href="{context["pathto"](FONTS % name, resource=True)}" />'
        for name in DRAWN_WITH)
    return page.replace("</title>", f"</title>{links}", 1)


def as_it_looks(written: str) -> str:
    """Give a formula in HTML, which says for paper what it was written as."""
    told = html.escape(written[2:-2])
    return kept()[written].replace("<math ", f'<math alttext="{told}" ', 1)
