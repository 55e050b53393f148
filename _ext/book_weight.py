"""Make the site light: what nobody sees is not sent.

* The theme brings two thousand icons. The font is cut down to those that a
  page or a style sheet names, and the rules for all others are dropped.
* A figure is a drawing with few colours. Kept as a palette it weighs a third,
  and looks the same: at most one pixel in a thousand may differ visibly.
* Code is coloured word by word. Words with the colour of the text around them
  need no element of their own, nor does the dot in a name: these are half of
  a chapter's elements, and a browser styles and places each.

Both tools, fontTools and Pillow, come with Matplotlib.
"""

import hashlib
import io
import re
from pathlib import Path
from typing import Any

import pydata_sphinx_theme
from fontTools import subset
from fontTools.ttLib import TTFont
from PIL import Image, ImageChops
from sphinx.application import Sphinx

SHEET = "_static/styles/pydata-sphinx-theme.css"
FONTS = "_static/vendor/fontawesome/webfonts"
THEME = Path(pydata_sphinx_theme.__file__).parent.joinpath(
    "theme", "pydata_sphinx_theme", "static")
# The rule for one icon (it may have several names), and one name.
RULE = re.compile(r"((?:\.fa-[\w-]+:before,?)+)\{content:\"([^\"]+)\"\}")
NAME = re.compile(r"fa-[\w-]+")
# Names, punctuation, spaces: black, or white in dark mode (a test compares).
PLAIN = ("n", "nn", "nx", "p", "pm", "w")
WORD = re.compile(rf'<span class="(?:{"|".join(PLAIN)})">([^<]*)</span>'
                  r'|<span class="o">(\.)</span>'
                  r"|(?<=<pre>)<span></span>(?!\n)")
# Of 256 steps of a colour, the eye does not tell this many apart.
UNSEEN = 8


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the extension."""
    app.connect("html-page-context", join_plain_words, priority=900)
    app.connect("build-finished", lighten)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def join_plain_words(app: Sphinx, pagename: str, templatename: str,
                     context: dict[str, Any], doctree: object) -> None:
    """Take the elements away that give a word of code no colour."""
    if context.get("body"):
        context["body"] = WORD.sub(r"\1\2", context["body"])


def lighten(app: Sphinx, exception: Exception | None) -> None:
    """Cut down what Sphinx has copied."""
    site = Path(app.outdir)
    if exception or app.builder.format != "html":
        return
    if (site / SHEET).exists():
        cut_icons(site)
    kept = Path(app.doctreedir).parent / ".painted"
    for path in [*site.glob("_images/*.png"), *site.glob("_static/*.png")]:
        path.write_bytes(repaint(path.read_bytes(), kept))


def cut_icons(site: Path) -> None:
    """Keep the icons that pages and style sheets name, in one small font.

    Sheet and fonts are taken from the theme itself: Sphinx does not copy them
    again in every build.
    """
    for name in ("fontawesome.js", "fontawesome.js.map"):  # a licence stays
        (site / "_static/scripts" / name).unlink(missing_ok=True)
    sheet = (THEME / SHEET.removeprefix("_static/")).read_text("utf8")
    named = set()
    for path in [*site.rglob("*.html"), *site.rglob("_static/**/*.js")]:
        named |= set(NAME.findall(path.read_text("utf8")))
    sheet = RULE.sub(lambda rule: rule[0] if named & set(
        NAME.findall(rule[1])) else "", sheet)
    fonts = site / FONTS
    drawn = {}
    for path in sorted(THEME.joinpath(
            FONTS.removeprefix("_static/")).glob("*.ttf")):
        drawn[path.stem] = cut_font(path, _characters(site, sheet))
        sheet = re.sub(rf'url\(([^()]*){path.stem}\.woff2\) format\("woff2"\),'
                       rf'url\([^()]*{path.stem}\.ttf\) format\("truetype"\)',
                       rf'url(\1{path.stem}.woff) format("woff")', sheet)
    fonts.mkdir(parents=True, exist_ok=True)
    for path in list(fonts.iterdir()):
        path.unlink()
    for stem, font in drawn.items():
        (fonts / f"{stem}.woff").write_bytes(font)
    (site / SHEET).write_text(sheet, "utf8")


def _characters(site: Path, sheet: str) -> set[int]:
    """The icons that the theme's sheet, and all others, put into a text."""
    texts = [sheet] + [path.read_text("utf8") for path in
                       site.rglob("_static/**/*.css")
                       if path != site / SHEET]
    escaped = {int(code, 16) for text in texts
               for code in re.findall(r"\\(f[0-9a-f]{3})\b", text)}
    written = {ord(sign) for text in texts for sign in text}
    return {code for code in escaped | written if 0xe000 <= code <= 0xf8ff}


def cut_font(path: Path, characters: set[int]) -> bytes:
    """Give a font that draws these characters alone, compressed."""
    options = subset.Options(flavor="woff", notdef_outline=True,
                             recalc_timestamp=False, layout_features=[])
    font = TTFont(path, recalcTimestamp=False)
    cutter = subset.Subsetter(options)
    cutter.populate(unicodes=characters)
    cutter.subset(font)
    font.flavor = "woff"
    written = io.BytesIO()
    font.save(written)
    return written.getvalue()


def repaint(data: bytes, kept: Path) -> bytes:
    """Give a picture that looks the same and weighs less.

    Args:
        data: A PNG file.
        kept: A folder of pictures that were repainted before.
    """
    key = hashlib.sha256(data + Path(__file__).read_bytes()).hexdigest()
    path = kept / f"{key[:32]}.png"
    if path.exists():
        return path.read_bytes()
    picture = Image.open(io.BytesIO(data))
    if picture.mode == "P" or (picture.mode == "RGBA"
                               and picture.getextrema()[3][0] < 255):
        return data
    picture = picture.convert("RGB")
    few = picture.quantize(256, method=Image.Quantize.MAXCOVERAGE,
                           dither=Image.Dither.NONE)
    lighter = min((_as_png(choice) for choice in (picture, few)
                   if looks_the_same(picture, choice)), key=len)
    lighter = min(lighter, data, key=len)
    kept.mkdir(parents=True, exist_ok=True)
    path.write_bytes(lighter)
    return lighter


def looks_the_same(picture: Image.Image, other: Image.Image) -> bool:
    """Tell whether at most one pixel in a thousand differs visibly."""
    apart = ImageChops.difference(picture, other.convert("RGB"))
    red, green, blue = apart.split()
    most = ImageChops.lighter(ImageChops.lighter(red, green), blue)
    counts = most.histogram()
    return sum(counts[UNSEEN + 1:]) <= 0.001 * sum(counts)


def _as_png(picture: Image.Image) -> bytes:
    written = io.BytesIO()
    picture.save(written, "PNG", optimize=True)
    return written.getvalue()
