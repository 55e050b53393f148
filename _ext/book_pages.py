"""What every page of the site says of itself, and the theme's faults mended.

Every page passes ``Templates`` once, as it is written:

* its head gets a title, a description and the card that a chat or a search
  shows (Open Graph), the description being the first sentences of its lead;
* what the theme leaves undone is done here. ``mend_theme`` says what, each
  with its reason, so that it can be dropped when the theme has mended it.
"""

import hashlib
import html
import re
import shutil
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.config import Config
from sphinx.jinja2glue import BuiltinTemplateLoader

from book_formulas import put_formulas

CARD = "_static/card.png"
CARD_TEXT = ("One head of attention, drawn from its numbers: queries and keys "
             "give a table of weights, and weights times values the output.")
TITLE = "Self-Attention, Step by Step"
LANDING = f"{TITLE}: a course that runs, in NumPy and PyTorch"
SHORTEST, LONGEST = 50, 200
# The scripts of the buttons that copy code, and what starts them later.
COPIERS = re.compile(r'\s*<script src="([^"]*_static/(?:clipboard\.min|'
                     r'copybutton)\.js[^"]*)"></script>')
LATER = """<script>
      addEventListener("load", () => setTimeout(() => {{
        for (const source of {sources}) {{
          const script = document.createElement("script");
          script.src = source;
          script.async = false;
          document.head.append(script);
        }}
      }}));
    </script>
  </head>"""
# What the theme takes for the colours, and what its later script takes.
CHOSEN = 'dataset.theme = localStorage.getItem("theme") || "auto";'
CHOOSE = """dataset.theme =
      ["dark", "light"].find(
        (mode) => mode === document.documentElement.dataset.mode)
      ?? (matchMedia("(prefers-color-scheme: dark)").matches
          ? "dark" : "light");"""

#: Pages that Sphinx makes, which have no lead of their own.
MADE = {
    "genindex": "Every function, class and method of the course's code, from "
                "A to Z, each with a link to its page.",
    "py-modindex": "The Python modules of the course, from A to Z, each with "
                   "a link to the page that shows it.",
    "search": "Search the chapters, the reference pages and the code of "
              f"{TITLE}.",
    "_modules/index": "The modules of the course whose source can be read on "
                      "this site.",
}


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the extension."""
    app.add_config_value("course_builders", "", "html", types=(str,))
    app.connect("config-inited", take_the_pages)
    app.connect("builder-inited", forget_sources)
    app.connect("html-page-context", describe, priority=950)
    app.connect("build-finished", write_door)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def take_the_pages(app: Sphinx, config: Config) -> None:
    """Write pages through ``Templates``, all anew when this folder changes."""
    config.template_bridge = f"{__name__}.Templates"
    key = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.[pj]*")):
        key.update(path.read_bytes())
    config.course_builders = key.hexdigest()


def forget_sources(app: Sphinx) -> None:
    """Let the pages of source code be written anew as well.

    Sphinx looks only at the age of the source, not of what writes the page.
    """
    built = Path(app.outdir, ".builders")
    key = app.config.course_builders
    if not built.exists() or built.read_text("utf8") != key:
        shutil.rmtree(Path(app.outdir, "_modules"), ignore_errors=True)
        built.write_text(key, "utf8")


class Templates(BuiltinTemplateLoader):
    """Sphinx's own templates; what they give is mended."""

    def render(self, template: str, context: dict[str, Any]) -> str:
        """Render a template, and mend it if it is a whole page."""
        page = super().render(template, context)
        if "</head>" not in page or "pagename" not in context:
            return page
        page = mend_theme(page, context["pagename"])
        return introduce(put_formulas(page, context), context)


# --- what a page says of itself ----------------------------------------------

def describe(app: Sphinx, pagename: str, templatename: str,
             context: dict[str, Any], doctree: nodes.document | None) -> None:
    """Keep the description of a page, and the site's address, for its head."""
    context["course_site"] = app.config.html_baseurl
    context["course_description"] = (
        MADE.get(pagename) or (lead(doctree) if doctree else "")
        or f"The source code of {pagename.rpartition('_modules/')[2]}".replace(
            "/", ".") + f", as the chapters of {TITLE} use it.")


def lead(doctree: nodes.document) -> str:
    """Give the first sentences of a page, at most ``LONGEST`` characters."""
    told = ""
    for paragraph in doctree.findall(nodes.paragraph):
        if isinstance(paragraph.parent, nodes.section | nodes.document
                      ) or "desc_content" in str(type(paragraph.parent)):
            told = f"{told} {plain(paragraph)}".strip()
        if len(told) >= SHORTEST:
            break
    return shorten(told)


def plain(paragraph: nodes.Element) -> str:
    """Give a paragraph's words: formulas as one says them, no references."""
    words = []
    for node in paragraph.findall(nodes.Text):
        text = node.astext()
        if isinstance(node.parent, nodes.math):
            text = re.sub(r"[\\{}$]", "", text.replace(r"\sqrt", "√"))
        words.append(text)
    text = " ".join("".join(words).split())
    return re.sub(r" \[[^\]]*\d{4}\]", "", text)


def shorten(text: str) -> str:
    """Keep as many whole sentences as fit, or a part of the first."""
    sentences = re.split(r"(?<=[.!?])[”\"’]?\s+(?=[A-Z“\"‘])", text)
    kept = ""
    for sentence in sentences:
        longer = f"{kept} {sentence}".strip()
        if len(longer) > LONGEST:
            break
        kept = longer
    if len(kept) >= SHORTEST or kept == text:
        return kept
    cut = text[:LONGEST - 1].rpartition(" ")[0]
    return cut.rstrip(",;:. ") + "…"


def introduce(page: str, context: dict[str, Any]) -> str:
    """Put title, description and card into the head of a page.

    A card wants whole addresses. Where the site's own is not known, the
    picture's is given as seen from the page, and the page's is left out.
    """
    found = re.search(r"<title>(.*?)</title>", page, re.DOTALL)
    title = " ".join(found[1].split()) if found else TITLE
    if context["pagename"] == context.get("root_doc", "intro"):
        title = LANDING
    here = context.get("pageurl")
    picture = context["pathto"](CARD, resource=True)
    if here:
        picture = urljoin(context["course_site"], CARD)
    tags = [("name", "description", context["course_description"]),
            ("property", "og:title", html.unescape(title)),
            ("property", "og:description", context["course_description"]),
            ("property", "og:type", "website" if title == LANDING
             else "article"),
            ("property", "og:site_name", TITLE),
            ("property", "og:url", here),
            ("property", "og:image", picture),
            ("property", "og:image:alt", CARD_TEXT),
            ("name", "twitter:card", "summary_large_image")]
    head = f"<title>{title}</title>\n" + "\n".join(
        f'    <meta {kind}="{name}" content="{html.escape(value)}" />'
        for kind, name, value in tags if value)
    return page.replace(found[0], head, 1) if found else page


def write_door(app: Sphinx, exception: Exception | None) -> None:
    """Write the page that leads from the site's address to its first page.

    It says of itself what the first page says, for who shows a card of it.
    """
    first = Path(app.outdir, f"{app.config.root_doc}.html")
    if exception or app.builder.name != "html" or not first.exists():
        return
    head = re.search(r"<title>.*?twitter:card[^>]*>",
                     first.read_text("utf8"), re.DOTALL)
    Path(app.outdir, "index.html").write_text(
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8" />\n'
        f'<meta http-equiv="refresh" content="0; url={first.name}" />\n'
        '<link rel="icon" href="_static/favicon.svg" />\n'
        f'{head[0] if head else ""}\n</head>\n<body>\n'
        f'<p><a href="{first.name}">{TITLE}</a></p>\n</body>\n</html>\n',
        "utf8")


# --- what the theme leaves undone --------------------------------------------

def mend_theme(page: str, pagename: str) -> str:
    """Mend what the theme writes around the article.

    * The icons come from a script of 1.5 MB, and from a font as well. The
      font is enough, and book_weight.py makes it small.
    * Every page loads the whole search index, for a search as one types,
      which the theme has switched off; only the search page needs it.
    * An icon is no word: it is hidden from screen readers.
    * The title above the navigation lies in no landmark (axe: region).
    * The viewport is declared three times.
    * On a first visit no colours are chosen until a script at the page's end
      has run: code is black, and then the whole page is styled again.
    * Hundreds of buttons that copy code are made before a page is loaded.
      They are not needed to read, and come right after.
    """
    page = put_off(page.replace(CHOSEN, CHOOSE, 1))
    page = re.sub(r'\s*<script[^>]*scripts/fontawesome\.js[^>]*></script>', "",
                  page)
    if pagename != "search":
        page = re.sub(r'\s*<script src="[^"]*(?:_static/searchtools|'
                      r'_static/language_data|_static/course_search|'
                      r'searchindex)\.js[^"]*"></script>', "", page)
    page = re.sub(r'<(i|span) class="([^"]*\bfa-solid\b[^"]*)"(?! aria)',
                  r'<\1 aria-hidden="true" class="\2"', page)
    page = page.replace('<div id="pst-primary-sidebar"',
                        '<div id="pst-primary-sidebar" role="region" '
                        'aria-label="The course"', 1)
    first, found, rest = page.partition('<meta name="viewport"')
    rest = re.sub(r'\s*<meta name="viewport"[^>]*>', "", rest)
    return first + found + rest


def put_off(page: str) -> str:
    """Fetch the scripts of the copy buttons early, and run them late."""
    sources = COPIERS.findall(page)
    if not sources:
        return page
    early = "".join(f'  <link rel="preload" as="script" href="{source}" />\n'
                    for source in sources)
    return COPIERS.sub("", page).replace(
        "</head>", early + "  " + LATER.format(sources=sources), 1)
