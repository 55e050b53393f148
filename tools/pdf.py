"""Print the whole book, and the cheat sheet, as PDF.

Usage: python tools/pdf.py [--find]

The pages of the built site are put one behind the other into a single one:
names and links get the page's name in front, hints and solutions are opened,
scripts are left out. Chromium prints it when every formula is set (those that
the site has not set yet, MathJax sets here), with tags for screen readers and
an outline. With ``--find`` only Chromium is looked
for.
"""

import functools
import http.server
import json
import os
import posixpath
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import yaml
from bs4 import BeautifulSoup, Tag

ROOT = Path(__file__).resolve().parents[1]
SITE = ROOT / "_build" / "html"
sys.path.insert(0, str(ROOT / "_ext"))

from book_downloads import BOOK, SHEET, offer  # noqa: E402

NAMES = ("chromium", "chromium-browser", "google-chrome",
         "google-chrome-stable", "chrome")
PLACES = ("/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
          "/Applications/Chromium.app/Contents/MacOS/Chromium")
MISSING = ("make: Chromium is not installed, and make pdf prints with it "
           "(Debian and Ubuntu: apt install chromium)")
PATIENCE = 600  # seconds
# What a sheet of paper cannot do, or what is not part of the text.
DROPPED = ("script, button, .headerlink, .glossary-meaning, .copybtn, "
           ".prev-next-footer, .viewcode-link, #course-downloads")
REFERS = ("href", "aria-labelledby", "aria-describedby", "aria-controls",
          "for")
# Of the highlighting of code: keywords, strings, comments.
COLOURED = {"k", "kn", "kc", "kd", "ow", "s1", "s2", "sd", "sa", "si", "c1"}
PAGE = """<!DOCTYPE html>
<html lang="en" data-theme="light" data-mode="light">
<head><meta charset="utf-8"><title>{title}</title>
{styles}<style>{style}</style>
<script>
{config}
const report = (found) => fetch("/typeset", {{
  method: "POST", body: JSON.stringify(found)}});
const measure = () => {{
  const all = (name) => [...document.querySelectorAll(name)];
  const room = document.querySelector("main").getBoundingClientRect().right;
  return {{
    formulas: all("mjx-container").length,
    wrong: all("mjx-merror, .math:not(:has(mjx-container))").length,
    wide: all("main *").filter((e) => !e.children.length
      && !e.closest("svg, mjx-math")
      && e.getBoundingClientRect().right > room + 2).map((e) =>
        `${{e.outerHTML.slice(0, 99)}} in ${{e.closest("section")?.id}}`),
    missing: all("img:not(.gate)").filter((image) =>
      !image.naturalWidth).map((image) => image.src),
  }};
}};
const label = (item) => {{  // as label() below
  item.typesetRoot.querySelector("mjx-assistive-mml")?.remove();
  item.typesetRoot.setAttribute("role", "img");
  item.typesetRoot.setAttribute("aria-label", item.math.trim());
}};
window.MathJax.startup = {{pageReady: () =>
  MathJax.startup.defaultPageReady().then(async () => {{
    [...MathJax.startup.document.math].forEach(label);
    // Not fonts.ready, which may wait for the page, which waits for us.
    await Promise.allSettled([...document.fonts].filter((font) =>
      font.status === "loading").map((font) => font.loaded));
    await report(measure());
  }}).catch((error) => report({{failure: String(error)}}))}};
</script>
<script async src="/mathjax/tex-mml-chtml.js"></script></head>
<body class="{kind}"><main class="bd-content"><div class="bd-article">
{body}
</div><img class="gate" src="/typeset" alt=""></main></body></html>
"""
COVER = """<section class="cover"><p class="cover-title">{title}</p>
<p>{lead}</p><p class="cover-foot">Version {version}. Text and figures:
CC BY 4.0. Code: MIT.</p></section>
<nav class="book-contents" aria-label="Contents"><h1>Contents</h1>{parts}</nav>
"""
LEAD = ("A course that runs: every number was computed by the code beside "
        "it. In this printed form the hints and solutions of the exercises "
        "stand open, and the explorers show their start.")


@dataclass
class Report:
    """What the browser found when all formulas were set.

    Attributes:
        formulas: How many there are.
        wrong: How many could not be set.
        wide: What is wider than the page.
        missing: Images that did not load.
        failure: What stopped it, if anything did.
    """

    formulas: int = 0
    wrong: int = 0
    wide: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    failure: str = ""


def find_chromium() -> str | None:
    """Give the path of Chromium or Chrome, or None."""
    found = (shutil.which(name) for name in NAMES)
    return next((path for path in [*found, *PLACES]
                 if path and os.path.exists(path)), None)


def contents(root: Path = ROOT) -> list[tuple[str, list[str]]]:
    """Give the parts of the book: a caption, and the names of its pages."""
    toc = yaml.safe_load((root / "_toc.yml").read_text(encoding="utf-8"))
    return [("", [toc["root"]])] + [
        (part["caption"], [page["file"] for page in part["chapters"]])
        for part in toc["parts"]]


@functools.cache
def read(path: Path) -> BeautifulSoup:
    """Parse a page of the site."""
    return BeautifulSoup(path.read_text(encoding="utf-8"), "html.parser")


def prefix(name: str) -> str:
    """Say what stands before the names of a page's places."""
    return re.sub(r"\W", "-", name) + "--"


def printed(name: str, pages: list[str], site: Path = SITE) -> Tag:
    """Give the article of a page as a section of the book.

    Args:
        name: The page.
        pages: All pages of the book, so that links between them stay in it.
        site: The folder of the built site.
    """
    article = BeautifulSoup(str(read(site / f"{name}.html").select_one(
        "article")), "html.parser").article
    assert article is not None
    for tag in article.select(DROPPED):
        tag.decompose()
    for tag in article.select("details"):
        tag["open"] = ""
    for tag in article.select("mjx-container"):
        label(tag)
    for tag in article.select("pre span"):
        if not set(tag.get("class", [])) & COLOURED:
            tag.unwrap()  # each would be an element of the PDF's structure
    article.smooth()
    # An explorer's style knows its names, which are there once in the book.
    own = {id(tag) for tag in article.select(".explorer, .explorer *")}
    for tag in article.find_all(True):
        if id(tag) not in own and tag.get("id"):
            tag["id"] = prefix(name) + tag["id"]
        for attribute in REFERS:
            if tag.get(attribute) and id(tag) not in own:
                refer(tag, attribute, name, pages)
        if tag.get("src"):
            tag["src"] = "/" + resolve(name, tag["src"])
    unwrap_lost(article)
    article.name = "section"
    article["class"] = "page"
    article["id"] = prefix(name)
    return article


def label(formula: Tag) -> None:
    """Let a formula be one thing to a screen reader: its text."""
    text = formula.select_one("mjx-assistive-mml")
    assert text is not None
    assert text.math is not None
    formula["role"] = "img"
    formula["aria-label"] = str(text.math["alttext"])
    text.decompose()


def refer(tag: Tag, attribute: str, name: str, pages: list[str]) -> None:
    """Let a link, or a label, point to a place in the one page."""
    value = str(tag[attribute])
    if attribute != "href":
        words = [word for word in value.split()
                 if not word.startswith("meaning-")]
        tag[attribute] = " ".join(prefix(name) + word for word in words)
        if not words:
            del tag[attribute]
        return
    parts = urlsplit(value)
    if parts.scheme or parts.netloc:
        return
    target = resolve(name, parts.path).removesuffix(".html")
    if not parts.path:
        target = name
    if target in pages:
        tag[attribute] = f"#{prefix(target)}{unquote(parts.fragment)}"
    else:  # sources, modules, downloads: not on paper
        tag["data-lost"] = ""
        del tag[attribute]


def resolve(name: str, address: str) -> str:
    """Give an address on a page as a path in the site."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(name),
                                             urlsplit(address).path))


def unwrap_lost(article: Tag) -> None:
    """Leave the words of links that lead out of the book."""
    for tag in article.select("[data-lost]"):
        tag.unwrap()


def table_of_contents(site: Path = SITE) -> str:
    """List the parts and their pages, each a link."""
    lines = []
    for caption, pages in contents():
        lines.append(f"<h2>{escape(caption)}</h2>" if caption else "")
        items = ""
        for name in pages:
            title = read(site / f"{name}.html").select_one("article h1")
            assert title is not None
            words = title.get_text().rstrip("#").strip()
            items += (f'<li><a href="#{prefix(name)}">{escape(words)}</a>'
                      "</li>")
        lines.append(f"<ul>{items}</ul>")
    return "".join(lines)


def whole_book(site: Path = SITE) -> str:
    """Write the one page that holds the book."""
    pages = [name for _, names in contents() for name in names]
    title = yaml.safe_load((ROOT / "_config.yml").read_text("utf8"))["title"]
    version = re.search(r'__version__ = "(.+)"', (
        ROOT / "src" / "self_attention" / "__init__.py").read_text("utf8"))
    assert version is not None
    cover = COVER.format(title=escape(title), lead=LEAD, version=version[1],
                         parts=table_of_contents(site))
    body = "\n".join(str(printed(name, pages, site)) for name in pages)
    return framed(title, cover + body, "book", site)


def cheat_sheet(site: Path = SITE) -> str:
    """Write the page that holds the cheat sheet."""
    name = "chapters/cheat_sheet"
    section = printed(name, [name], site)
    title = section.select_one("h1")
    assert title is not None
    return framed("Self-Attention: cheat sheet", str(section), "sheet", site)


def framed(title: str, body: str, kind: str, site: Path = SITE) -> str:
    """Put a text between head and foot, with the styles of the site."""
    page = "chapters/01_query_key_value"
    head = read(site / f"{page}.html")
    if kind == "sheet" or not (site / f"{page}.html").exists():
        page = "chapters/cheat_sheet"
        head = read(site / f"{page}.html")
    styles = "".join(
        f'<link rel="stylesheet" href="/{resolve(page, str(tag["href"]))}">\n'
        for tag in head.select('link[rel="stylesheet"]'))
    config = next((tag.get_text() for tag in head.find_all("script")
                   if "window.MathJax" in tag.get_text()),
                  "window.MathJax = {};")
    style = (ROOT / "tools" / "pdf.css").read_text(encoding="utf-8")
    return PAGE.format(title=escape(title), styles=styles, style=style,
                       config=config, kind=kind, body=body)


class Handler(http.server.SimpleHTTPRequestHandler):
    """Serve the site, the one page, and the gate that holds back printing.

    A browser prints when a page is loaded, and a page is not loaded while an
    image is missing. The image at its end comes when the formulas are set.
    """

    page = ""
    done: threading.Event
    report: dict[str, Any]

    def do_GET(self) -> None:
        """Answer a request."""
        if self.path == "/":
            self._say(self.page.encode(), "text/html; charset=utf-8")
        elif self.path == "/typeset":
            self.done.wait(PATIENCE)
            self._say(b'<svg xmlns="http://www.w3.org/2000/svg"/>',
                      "image/svg+xml")
        else:
            super().do_GET()

    def do_POST(self) -> None:
        """Take the report, and open the gate."""
        length = int(self.headers["Content-Length"])
        self.report.update(json.loads(self.rfile.read(length)))
        self.done.set()
        self._say(b"", "text/plain")

    def _say(self, content: bytes, kind: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *arguments: Any) -> None:
        """Say nothing."""


def print_page(page: str, path: Path, chromium: str,
               site: Path = SITE) -> Report:
    """Print a page.

    Args:
        page: The page, in HTML.
        path: The file to write.
        chromium: The browser.
        site: What the page's styles, images and formulas come from.

    Returns:
        What the browser found.

    Raises:
        RuntimeError: The browser failed, or a formula or image did.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    kept = visit(page, chromium, site, f"--print-to-pdf={path}",
                 "--no-pdf-header-footer", "--generate-pdf-document-outline")
    report = Report(**kept)
    if not kept or report.wrong or report.missing or report.failure:
        raise RuntimeError(f"{path.name}: {report}")
    if not path.exists():
        raise RuntimeError(f"{path.name}: Chromium printed nothing")
    return report


def visit(page: str, chromium: str, site: Path, *options: str
          ) -> dict[str, Any]:
    """Open a page in Chromium, and give what it reports.

    Args:
        page: The page, in HTML; it posts its report to ``/typeset``.
        chromium: The browser.
        site: What the page's styles, images and formulas come from.
        options: What the browser is to do with the page.

    Raises:
        RuntimeError: The browser failed.
    """
    kept: dict[str, Any] = {}
    handler = type("Printing", (Handler,), {
        "page": page, "done": threading.Event(), "report": kept})
    server = http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(handler, directory=str(site)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        run_chromium(f"http://127.0.0.1:{server.server_port}/", chromium,
                     *options)
    finally:
        handler.done.set()  # type: ignore[attr-defined]
        server.shutdown()
        server.server_close()
    return kept


def run_chromium(address: str, chromium: str, *options: str) -> None:
    """Let Chromium open an address, without a window."""
    with tempfile.TemporaryDirectory() as profile:
        command = [chromium, "--headless", "--disable-gpu", "--no-first-run",
                   f"--user-data-dir={profile}", "--disable-extensions",
                   *options, address]
        if hasattr(os, "geteuid") and os.geteuid() == 0:
            command.insert(1, "--no-sandbox")  # root has no sandbox
        done = subprocess.run(command, capture_output=True, text=True,
                              timeout=PATIENCE)
    if done.returncode:
        raise RuntimeError(f"Chromium failed: {done.stderr[-500:]}")


def page_sizes(path: Path) -> list[tuple[float, float]]:
    """Give the width and height of each page of a PDF, in points."""
    found: Iterator[re.Match[bytes]] = re.finditer(
        rb"/Type\s*/Page\b.*?/MediaBox\s*\[([\d.\s-]+)\]", path.read_bytes(),
        re.DOTALL)
    boxes = [[float(word) for word in match[1].split()] for match in found]
    return [(right - left, top - bottom)
            for left, bottom, right, top in boxes]


def main(arguments: list[str]) -> int:
    """Print the book and the cheat sheet; give the exit status."""
    chromium = find_chromium()
    if chromium is None:
        print(MISSING, file=sys.stderr)
        return 1
    if "--find" in arguments:
        return 0
    for name, make in ((SHEET, cheat_sheet), (BOOK, whole_book)):
        if arguments and name not in arguments:
            continue
        start, path = time.perf_counter(), SITE / "downloads" / name
        report = print_page(make(), path, chromium)
        print(f"{name}: {len(page_sizes(path))} pages, {report.formulas} "
              f"formulas, {path.stat().st_size / 1e6:.1f} MB, "
              f"{time.perf_counter() - start:.0f} s")
        for what in report.wide:
            print(f"  wider than the page: {what}")
    offer(SITE)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
