"""Formulas are set once, by make formulas; a page has them as they look."""

import functools
import html
import json
import re
import sys
from urllib.parse import urlsplit

import pytest

from test_site import PAGES, ROOT, SITE, soup

sys.path[:0] = [str(ROOT / "_ext"), str(ROOT / "tools")]

import book_formulas  # noqa: E402
import formulas  # noqa: E402

MATH = '<span class="math notranslate nohighlight">%s</span>'


@pytest.fixture(scope="module")
def site():
    assert (SITE / "intro.html").exists(), "there is no site: run make book"
    return SITE


@pytest.fixture(scope="module")
def chromium():
    found = formulas.find_chromium()
    if found is None:
        pytest.skip("Chromium is not installed")
    return found


# --- what the site has -------------------------------------------------------

def test_every_formula_of_the_site_is_kept(site):
    """Where this fails: make formulas (needs Chromium), then make book."""
    used = set(formulas.written(site))
    assert len(used) > 400
    assert used == set(json.loads(formulas.KEPT.read_text("utf8")))


@pytest.mark.parametrize("name", PAGES)
def test_page_has_its_formulas_and_no_script_for_them(name, site):
    page = soup(site / f"{name}.html")
    places = page.select(".math")
    for place in places:
        assert len(place.select("mjx-container")) == 1
        assert not place.find_all(string=re.compile(r"\\[(\[]"))
        # Who cannot see the signs hears the formula, in MathML.
        assert place.select_one("mjx-math")["aria-hidden"] == "true"
        assert place.select_one("mjx-assistive-mml > math > *")
    assert not re.search(r"MathJax *=|tex-mml-chtml", str(page))
    sheets = [link["href"] for link in page.select('link[rel="stylesheet"]')
              if "formulas.css" in link["href"]]
    assert len(sheets) == bool(places)
    for sheet in sheets:
        path = (site / f"{name}.html").parent / urlsplit(sheet).path
        assert path.read_bytes() == formulas.STYLES.read_bytes()


def test_every_sign_has_its_rule_and_its_font(site):
    rules = formulas.STYLES.read_text("utf8")
    kept = formulas.KEPT.read_text("utf8")
    signs = set(re.findall(r"\bmjx-c[0-9A-F]+\b", kept))
    assert len(signs) > 100
    assert signs <= set(re.findall(r"\.(mjx-c[0-9A-F]+)\b", rules))
    fonts = re.findall(r'url\("([^"]+)"\)', rules)
    assert fonts
    assert all((site / "mathjax" / font).exists() for font in fonts)


@pytest.mark.parametrize("name", PAGES)
def test_fonts_come_early_where_there_are_many_formulas(name, site):
    page = soup(site / f"{name}.html")
    early = [link["href"] for link in page.select('link[as="font"]')]
    many = len(page.select(".math")) >= book_formulas.MANY
    assert len(early) == many * len(book_formulas.DRAWN_WITH)
    rules = formulas.STYLES.read_text("utf8")
    for font in early:  # at the very address that the rules have
        assert f'url("{font.partition("mathjax/")[2]}")' in rules


def test_page_with_a_formula_that_is_not_kept_is_left_to_mathjax():
    put = functools.partial(book_formulas.put_formulas, context={
        "pathto": lambda path, resource: f"../{path}"})
    head = ('<head><script>window.MathJax = {}</script>\n<script defer="defer"'
            ' src="x/tex-mml-chtml.js?v=1"></script></head>')
    assert put(head) == "<head></head>"  # no formula, no script
    known = r"\(W_q\)"
    done = put(head + MATH % known)
    assert "MathJax =" not in done
    assert done.count("<mjx-container") == done.count("formulas.css") == 1
    assert put(done) == done
    assert list(formulas.on_page(done)) == [known]
    page = head + MATH % known + MATH % r"\(x_{new}\)"
    assert put(page) == page
    assert list(formulas.on_page(page)) == [known, r"\(x_{new}\)"]


def test_numbered_and_escaped_formulas_are_found():
    for written in (r"\[a &lt; b\]", "\\[\\begin{split}a\\\\[2pt]\nb\\]"):
        page = ('<div tabindex="0" class="math notranslate nohighlight" '
                f'id="e">\n<span class="eqno">(1)</span>{written}</div>')
        found = book_formulas.WRITTEN.findall(page)
        assert [formula for _, formula in found] == [written]
        assert list(formulas.on_page(page)) == [html.unescape(written)]


# --- how they are set --------------------------------------------------------

@pytest.mark.browser
def test_formulas_are_set_as_they_are_kept(site, chromium):
    kept = json.loads(formulas.KEPT.read_text("utf8"))
    sample = sorted(kept)[::12]
    again, rules = formulas.set_formulas(sample, chromium, site)
    assert again == {formula: kept[formula] for formula in sample}
    assert rules.endswith(formulas.SIZE)


@pytest.mark.browser
@pytest.mark.parametrize("wrong", [r"\(\frac{1\)", r"\(\nosuchname\)",
                                   r"\(\text{字}\)"])  # no sign of our fonts
def test_formula_that_cannot_be_set_is_named(wrong, site, chromium):
    with pytest.raises(RuntimeError, match=re.escape(wrong)):
        formulas.set_formulas([r"\(x\)", wrong], chromium, site)
