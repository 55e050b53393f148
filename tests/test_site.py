"""The built site, read from its files: nothing is broken, nothing is foreign.

``make test`` builds it first. What a browser sees is in test_browser.py.
"""

import collections
import functools
import io
import itertools
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote, urljoin, urlsplit

import nbformat
import pytest
import yaml
from bs4 import BeautifulSoup
from docutils import nodes
from PIL import Image

ROOT = Path(__file__).resolve().parents[1]
SITE = ROOT / "_build" / "html"
sys.path.insert(0, str(ROOT / "_ext"))

from book_build import join_streams, sources_key  # noqa: E402
from book_pages import introduce, mend_theme, plain, shorten  # noqa: E402
from book_repository import (  # noqa: E402
    Repository,
    find_branch,
    find_repository,
    find_site,
)
from book_weight import PLAIN, WORD, looks_the_same, repaint  # noqa: E402


def pages_in(node):
    """The pages that a part of the table of contents names, in order."""
    if isinstance(node, list):
        for item in node:
            yield from pages_in(item)
    elif isinstance(node, dict):
        for key, value in node.items():
            if key in ("root", "file"):
                yield value
            elif isinstance(value, list):
                yield from pages_in(value)


PAGES = list(pages_in(yaml.safe_load((ROOT / "_toc.yml").read_text("utf8"))))
NOTEBOOKS = [page for page in PAGES if (ROOT / f"{page}.ipynb").exists()]


@functools.cache
def soup(path):
    return BeautifulSoup(path.read_text("utf8"), "html.parser")


@pytest.fixture(scope="module")
def site():
    if not (SITE / "intro.html").exists():
        pytest.fail("there is no site to test: run make book")
    return SITE


@pytest.fixture(params=PAGES)
def page(request, site):
    return site / f"{request.param}.html"


def article(page):
    return soup(page).select_one("article")


def test_every_page_is_in_the_table_of_contents():
    written = {path.relative_to(ROOT).with_suffix("").as_posix()
               for kind in ("*.ipynb", "*.md")
               for path in (ROOT / "chapters").glob(kind)}
    assert written == set(PAGES) - {"intro"}
    assert len(PAGES) == len(set(PAGES))


def test_every_page_was_built(page):
    assert page.exists()
    assert soup(page).html.get("lang") == "en"
    assert len(article(page).get_text()) > 200


def test_titles_tell_pages_apart(site):
    titles = [soup(site / f"{name}.html").title.get_text(strip=True)
              for name in PAGES]
    assert len(set(titles)) == len(titles)


def heads(site):
    """(path, its soup) of every page of the site, those of code as well."""
    for path in sorted(site.rglob("*.html")):
        name = path.relative_to(site).as_posix()
        if not name.startswith("_static/") and name != "index.html":
            yield name, soup(path)


def meta(page, name):
    kind = "property" if name.startswith("og:") else "name"
    tags = page.head.find_all("meta", {kind: name})
    assert len(tags) <= 1, name
    return tags[0]["content"] if tags else None


def test_every_page_says_what_it_is(site):
    titles, descriptions = {}, {}
    for name, page in heads(site):
        title, described = page.title.get_text(), meta(page, "description")
        assert described, name
        assert 50 <= len(described) <= 200, (name, described)
        assert described[0].isupper(), described
        assert described[-1] in ".?!…”", described
        assert not re.search(r"[\\{}<>`$]|\*\*", described), described
        assert titles.setdefault(title, name) == name
        assert descriptions.setdefault(described, name) == name
    assert len(titles) > len(PAGES)


def test_every_page_has_a_card(site):
    known = find_site(find_repository(ROOT))
    for name, page in heads(site):
        title = " ".join(page.title.get_text().split())
        assert meta(page, "og:title") == title
        assert meta(page, "og:description") == meta(page, "description")
        assert meta(page, "og:type") == (
            "website" if name == "intro.html" else "article")
        picture = meta(page, "og:image")
        if known:
            assert picture == f"{known}_static/card.png"
            assert meta(page, "og:url") == known + name
        else:  # no address that would be wrong elsewhere
            assert meta(page, "og:url") is None
            assert ((site / name).parent / picture).exists()
    assert meta(soup(site / "index.html"), "og:title") == meta(
        soup(site / "intro.html"), "og:title")


@pytest.mark.parametrize("name", ["intro", "search", NOTEBOOKS[0],
                                  "_modules/index"])
def test_theme_is_mended(name, site):
    """When one of these fails, the theme has changed: see book_pages.py."""
    page = soup(site / f"{name}.html")
    scripts = " ".join(tag["src"] for tag in page.find_all("script", src=True))
    assert "fontawesome" not in scripts
    assert ("searchindex" in scripts) == (name == "search")
    assert ("course_search" in scripts) == (name == "search")
    assert len(page.find_all("meta", {"name": "viewport"})) == 1
    assert "copybutton" not in scripts  # they come after all else
    assert len(page.select('link[as="script"][href*="copybutton.js"]')) == 1
    assert 'getItem("theme")' not in str(page.head)
    assert "prefers-color-scheme" in str(page.head)
    assert page.select_one("#pst-primary-sidebar")["role"] == "region"
    icons = page.select(".fa-solid")
    assert icons
    assert all(icon.get("aria-hidden") == "true" for icon in icons)


def test_mending_a_page_changes_nothing_twice():
    once = mend_theme('<meta name="viewport" content="a" />'
                      '<meta name="viewport" content="b" />'
                      '<i class="fa-solid fa-bars"></i>', "one")
    assert once == ('<meta name="viewport" content="a" />'
                    '<i aria-hidden="true" class="fa-solid fa-bars"></i>')
    assert mend_theme(once, "one") == once


def test_card_has_whole_addresses_where_the_site_has_one():
    context = {"pagename": "chapters/one", "root_doc": "intro",
               "course_description": 'He said "no" & left.',
               "pathto": lambda path, resource: f"../{path}"}
    page = "<head><title>One</title></head>"
    assert 'og:image" content="../_static/card.png"' in introduce(
        page, context)
    context |= {"pageurl": "https://x.org/chapters/one.html",
                "course_site": "https://x.org/"}
    told = BeautifulSoup(introduce(page, context), "html.parser")
    assert meta(told, "og:image") == "https://x.org/_static/card.png"
    assert meta(told, "og:url") == "https://x.org/chapters/one.html"
    assert meta(told, "description") == 'He said "no" & left.'


def test_description_is_whole_sentences():
    first = "A mask takes a right away from some pairs of tokens."
    long = "It is kept, " + "and kept again, " * 12 + "to the end."
    assert shorten(f"{first} {long}") == first
    cut = shorten(long)
    assert len(cut) <= 200
    assert long.startswith(cut.removesuffix("…"))
    assert cut.endswith(("kept…", "again…", "and…"))
    assert shorten(f"{first} Why? Because.") == f"{first} Why? Because."
    text = nodes.paragraph("", "", nodes.Text("Divide by "), nodes.math(
        "", r"\sqrt{d_k}"), nodes.Text(" [Vaswani et al., 2017]."))
    assert plain(text) == "Divide by √d_k."


def test_picture_is_lighter_and_looks_the_same(tmp_path):
    shades = Image.linear_gradient("L").resize((300, 200))
    picture = Image.merge("RGB", [shades, shades, shades.transpose(
        Image.Transpose.FLIP_TOP_BOTTOM)])
    data = io.BytesIO()
    picture.save(data, "PNG", compress_level=0)
    light = repaint(data.getvalue(), tmp_path)
    assert len(light) < len(data.getvalue())
    assert looks_the_same(picture, Image.open(io.BytesIO(light)))
    assert repaint(data.getvalue(), tmp_path) == light
    assert repaint(light, tmp_path) == light  # a second build
    assert not looks_the_same(picture, picture.point(lambda level: level + 9))


def test_chapters_have_the_numbers_of_their_files(page):
    number = re.match(r"\d+", page.name)
    shown = article(page).h1.select_one(".section-number")
    assert bool(shown) == bool(number)
    if number:
        assert int(shown.get_text().strip(". ")) == int(number[0])


def test_headings_step_down_by_one(page):
    levels = [int(tag.name[1]) for tag in
              article(page).find_all(re.compile("^h[1-6]$"))]
    assert levels[0] == 1
    assert levels.count(1) == 1
    jumps = [pair for pair in itertools.pairwise(levels)
             if pair[1] > pair[0] + 1]
    assert not jumps


def addresses(tree):
    """(tag, attribute, address) of all that a page names."""
    for tag in tree.find_all(True):
        for name in ("href", "src", "srcset", "data", "poster", "action"):
            value = tag.get(name)
            if value and not (name == "data" and tag.name != "object"):
                yield tag, name, value.strip()


def identities(tree):
    return [tag["id"] for tag in tree.find_all(id=True)]


def test_every_internal_link_resolves(page, site):
    broken = []
    for tag, _, address in addresses(soup(page)):
        parts = urlsplit(address)
        if parts.scheme or parts.netloc or address.startswith("data:"):
            continue
        here = "/" + page.relative_to(site).as_posix()
        target = urlsplit(urljoin(here, address))
        path = site / unquote(target.path).lstrip("/")
        if path.is_dir():
            path = path / "index.html"
        if not path.exists():
            broken.append(address)
        elif target.fragment and path.suffix == ".html" and tag.name == "a":
            names = identities(soup(path))
            names += [a["name"] for a in soup(path).find_all("a", {"name": 1})]
            if (unquote(target.fragment) not in names
                    and target.fragment not in names):
                broken.append(address)
    assert not broken


def test_no_identity_is_there_twice(page):
    # Icons of the theme repeat theirs; only the article is ours.
    counts = collections.Counter(identities(article(page)))
    assert not [name for name, count in counts.items() if count > 1]


def test_every_image_speaks(page):
    for image in article(page).find_all("img"):
        alt = image.get("alt", "")
        assert len(alt) >= 20, image.get("src")
        assert not re.search(r"\.(png|svg|jpe?g)$", alt), alt
        assert Path(urlsplit(image["src"]).path).stem not in alt


def test_no_page_shows_an_error(page):
    shown = article(page)
    wrong = shown.select(
        ".system-message, .problematic, .output_error, .output.traceback, "
        ".output.stderr, .stderr")
    assert not wrong, wrong[0].get_text()[:300]
    for output in shown.select(".cell_output"):
        assert "Traceback (most recent call last)" not in output.get_text()


def test_no_page_shows_what_it_was_written_with(page):
    """A role or a label that was not understood stays in the text."""
    text = "".join(
        string for string in article(page).find_all(string=True)
        if not string.find_parents(["pre", "code", "script", "style"])
        and not string.find_parents(class_="math"))
    assert not re.search(r"\{(ref|cite|numref|doc)\}|^\([a-z-]+\)=|:::|``",
                         text, re.M)


FETCHED = {("script", "src"), ("img", "src"), ("img", "srcset"),
           ("iframe", "src"), ("source", "src"), ("source", "srcset"),
           ("video", "src"), ("audio", "src"), ("embed", "src"),
           ("object", "data"), ("video", "poster")}
FOREIGN = re.compile(r"^(?:https?:)?//")
FETCHES_IN_CODE = re.compile(
    r"""(?:import|url|fetch|importScripts|src\s*=)\s*\(?\s*['"]?"""
    r"""(?:https?:)?//""")


def test_nothing_comes_from_another_host(page):
    for tag, name, address in addresses(soup(page)):
        fetched = (tag.name, name) in FETCHED or (
            tag.name == "link" and not set(tag.get("rel", [])) & {
                "canonical", "author", "index", "search", "next", "prev"})
        if fetched:
            assert not FOREIGN.match(address), address
    for tag in soup(page).find_all(["style", "script"]):
        assert not FETCHES_IN_CODE.search(tag.get_text()), tag.get_text()
    for tag in soup(page).find_all(style=True):
        assert not FETCHES_IN_CODE.search(tag["style"])


def test_no_style_sheet_names_another_host(site):
    sheets = list(site.rglob("*.css"))
    assert sheets
    for sheet in sheets:
        text = re.sub(r"/\*.*?\*/", "", sheet.read_text("utf8"), flags=re.S)
        assert not re.search(r"(url\(|@import)\s*['\"]?(https?:)?//", text), (
            sheet.name)


def test_mathjax_is_our_own(site):
    for name in ("LICENSE", "tex-mml-chtml.js", "output/chtml/fonts/woff-v2"):
        assert (site / "mathjax" / name).exists()


def test_words_without_colour_are_those_without_an_element(site):
    """The names of the kinds of words are those of the code's style."""
    sheet = (site / "_static" / "pygments.css").read_text("utf8")
    for theme in ("light", "dark"):
        own = dict(re.findall(
            rf'html\[data-theme="{theme}"\] \.highlight \.(\w+) '
            r"\{ color: (#\w+) \}", sheet))
        text = re.search(rf'html\[data-theme="{theme}"\] \.highlight '
                         r"\{ .*color: (#\w+) \}", sheet)[1]
        assert {kind for kind in own if own[kind] == text} == set(PLAIN)
    code = ('<pre><span></span><span class="n">x</span>'
            '<span class="o">.</span><span class="n">T</span> '
            '<span class="o">@</span> <span class="nb">len</span></pre>')
    assert WORD.sub(r"\1\2", code) == (
        '<pre>x.T <span class="o">@</span> <span class="nb">len</span></pre>')
    blank = "<pre><span></span>\nx</pre>"  # or the empty line is lost
    assert WORD.sub(r"\1\2", blank) == blank


def test_scripts_are_not_repeated(page):
    scripts = [tag.get("src") or tag.get_text() for tag in
               soup(page).find_all("script") if tag.get("type") is None]
    assert len(scripts) == len(set(scripts))
    assert not [script for script in scripts if "thebe" in script.lower()]


def test_search_knows_every_page(site):
    text = (site / "searchindex.js").read_text("utf8")
    index = json.loads(text.removeprefix("Search.setIndex(").rstrip(");\n"))
    assert set(PAGES) <= set(index["docnames"])
    pages = index["terms"]["softmax"]
    found = {index["docnames"][number] for number in
             ([pages] if isinstance(pages, int) else pages)}
    assert set(NOTEBOOKS) & found


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_page_shows_what_the_notebook_stores(name, site):
    """The site was executed with today's sources, as the notebook was."""
    notebook = nbformat.read(ROOT / f"{name}.ipynb", as_version=4)
    stored = [output.text.strip() for cell in notebook.cells
              if cell.cell_type == "code"
              and "nbval-ignore-output" not in cell.metadata.get("tags", [])
              for output in cell.outputs if output.output_type == "stream"]
    shown = [block.get_text().strip() for block in
             article(site / f"{name}.html").select(".output.stream")]
    assert [text for text in stored if text not in shown] == []


def test_printed_line_that_came_in_pieces_stays_one_line():
    pieces = [nbformat.v4.new_output("stream", name=name, text=text)
              for name, text in [("stdout", "off by:"), ("stderr", "careful"),
                                 ("stdout", " 4.9"), ("stdout", "\n  end\n")]]
    pieces.insert(1, nbformat.v4.new_output("display_data", {}))
    joined = join_streams(pieces)
    assert [output.output_type for output in joined] == [
        "stream", "display_data", "stream"]
    assert joined[0].text == "off by: 4.9\n  end\n"
    assert joined[2].text == "careful"
    assert pieces[0].text == "off by:"  # what the build keeps is not changed


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_notebook_can_be_downloaded(name, site):
    assert (site / "_sources" / f"{name}.ipynb").exists()


# --- buttons that lead to the sources --------------------------------------

CASES = [
    ({"COURSE_REPOSITORY": "https://github.com/ada/course"},
     Repository("https://github.com/ada/course", "main", "github")),
    ({"COURSE_REPOSITORY": "git@github.com:ada/course.git"},
     Repository("https://github.com/ada/course", "main", "github")),
    ({"COURSE_REPOSITORY": "ssh://git@gitlab.com:22/maths/ada/course.git/"},
     Repository("https://gitlab.com/maths/ada/course", "main", "gitlab")),
    ({"COURSE_REPOSITORY": "https://ada:secret@github.com/ada/course.git"},
     Repository("https://github.com/ada/course", "main", "github")),
    ({"GITHUB_REPOSITORY": "ada/course", "GITHUB_REF_TYPE": "branch",
      "GITHUB_REF_NAME": "spring"},
     Repository("https://github.com/ada/course", "spring", "github")),
    ({"GITHUB_REPOSITORY": "ada/course", "GITHUB_REF_TYPE": "tag",
      "GITHUB_REF_NAME": "v1"},
     Repository("https://github.com/ada/course", "main", "github")),
    ({"GITHUB_REPOSITORY": "ada/course",
      "GITHUB_SERVER_URL": "https://git.example.org"}, None),
    ({"COURSE_REPOSITORY": "", "GITHUB_REPOSITORY": "ada/course"}, None),
    ({"COURSE_REPOSITORY": "/srv/git/course.git"}, None),
    ({"COURSE_REPOSITORY": "https://example.org/ada/course"}, None),
    ({}, None),
]


@pytest.mark.parametrize(("environ", "expected"), CASES)
def test_environment_names_the_repository(environ, expected, tmp_path):
    assert find_repository(tmp_path, environ) == expected


def git(folder, *arguments):
    subprocess.run(["git", *arguments], cwd=folder, check=True,
                   capture_output=True)


def test_remote_names_the_repository(tmp_path):
    git(tmp_path, "init", "-q")
    assert find_repository(tmp_path, {}) is None
    git(tmp_path, "remote", "add", "mine", "git@github.com:ada/course.git")
    assert find_repository(tmp_path, {}).url == "https://github.com/ada/course"
    git(tmp_path, "remote", "add", "other", "https://github.com/bob/other")
    assert find_repository(tmp_path, {}) is None  # which of the two?
    git(tmp_path, "remote", "add", "origin", "https://github.com/eve/third")
    assert find_repository(tmp_path, {}).url == "https://github.com/eve/third"
    git(tmp_path, "symbolic-ref", "refs/remotes/origin/HEAD",
        "refs/remotes/origin/trunk")
    assert find_branch(tmp_path, {}) == "trunk"
    assert find_branch(tmp_path, {"COURSE_BRANCH": "mine"}) == "mine"


@pytest.mark.parametrize(("address", "environ", "expected"), [
    ("https://github.com/Ada/course", {}, "https://ada.github.io/course/"),
    ("https://github.com/ada/ada.github.io", {}, "https://ada.github.io/"),
    ("https://gitlab.com/ada/course", {}, None),
    ("https://github.com/ada/course", {"COURSE_SITE": "https://x.org/a"},
     "https://x.org/a/"),
    ("https://github.com/ada/course", {"COURSE_SITE": ""}, None),
])
def test_site_has_an_address(address, environ, expected, tmp_path):
    repository = find_repository(tmp_path, {"COURSE_REPOSITORY": address})
    assert find_site(repository, environ) == expected
    assert find_site(None, {}) is None


def test_buttons_fit_the_repository(site):
    """The site of this working tree: with a repository, or without one."""
    links = [tag["href"] for tag in
             soup(site / f"{NOTEBOOKS[0]}.html").find_all("a", href=True)]
    binder = [link for link in links if "mybinder.org" in link]
    repository = find_repository(ROOT)
    if repository is None:
        assert not binder
        assert not [link for link in links if "/issues/new" in link]
    else:
        assert all(repository.url.split("/", 3)[3].split("/")[-1] in link
                   for link in binder)
        assert binder


# --- a small book, built as ours is ----------------------------------------

CELL = ("import pathlib\n"
        "with open('runs.txt', 'a') as file:\n    file.write('x')\n"
        "print('value', pathlib.Path('../src/value.py').read_text())\n")
ALT = "A line that rises from one to two."
FIGURE = "import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()"


@pytest.fixture(scope="module")
def small_book(tmp_path_factory):
    """A book of two pages with our configuration, in a folder of its own."""
    folder = tmp_path_factory.mktemp("book")
    for name in ("_config.yml", "_ext", "_extra", "_static", "references.bib"):
        (folder / name).symlink_to(ROOT / name)
    (folder / "src").mkdir()
    (folder / "chapters").mkdir()
    (folder / "src" / "value.py").write_text("1")
    (folder / "_toc.yml").write_text(
        "format: jb-book\nroot: intro\nchapters:\n  - file: chapters/one\n")
    (folder / "intro.md").write_text("# Home\n\nSome $x^2$.\n")
    write_chapter(folder, "First words.", ALT)
    return folder


def write_chapter(folder, prose, alt):
    cells = [nbformat.v4.new_markdown_cell(f"# One\n\n{prose}", id="a-a"),
             nbformat.v4.new_code_cell(CELL, id="b-b"),
             nbformat.v4.new_markdown_cell("A figure.", id="c-c"),
             nbformat.v4.new_code_cell(FIGURE, id="d-d", metadata={
                 "mystnb": {"image": {"alt": alt}, "figure": {
                     "caption": "A line", "name": "fig-one"}}})]
    notebook = nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": {
        "name": "python3", "display_name": "Python 3", "language": "python"}})
    nbformat.write(notebook, folder / "chapters" / "one.ipynb")


def build(folder, environ):
    """Build as the Makefile does; give the page of the chapter."""
    kept = {key: value for key, value in os.environ.items()
            if not key.startswith(("COURSE_", "GITHUB_"))}
    main = "from jupyter_book.cli.main import main; main()"
    run = subprocess.run(
        [sys.executable, "-c", main, "build", ".", "-W", "-n",
         "--keep-going", "-q"], cwd=folder, env=kept | environ,
        capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stdout + run.stderr
    page = folder / "_build" / "html" / "chapters" / "one.html"
    return BeautifulSoup(page.read_text("utf8"), "html.parser")


@pytest.mark.slow
def test_small_book_is_fresh_and_knows_its_repository(small_book):
    html = small_book / "_build" / "html"
    runs = small_book / "chapters" / "runs.txt"

    # Nowhere online: no buttons, no map of the site, no address.
    page = build(small_book, {"COURSE_REPOSITORY": ""})
    assert "value 1" in page.get_text()
    assert not page.find_all("a", href=re.compile("mybinder|github.com"))
    assert not (html / "sitemap.xml").exists()
    assert page.select_one("article img")["alt"] == ALT
    assert runs.read_text() == "x"

    # A fork: the same files, another environment.
    page = build(small_book, {"GITHUB_REPOSITORY": "ada/course"})
    links = [tag["href"] for tag in page.find_all("a", href=True)]
    assert ("https://mybinder.org/v2/gh/ada/course/main?urlpath=lab/tree/"
            "chapters/one.ipynb") in links
    assert ("https://colab.research.google.com/github/ada/course/blob/main/"
            "chapters/one.ipynb") in links
    assert "https://github.com/ada/course" in links
    assert any("ada/course/edit/main/chapters/one.ipynb" in link
               for link in links)
    assert any("ada/course/issues/new" in link for link in links)
    assert ("<loc>https://ada.github.io/course/chapters/one.html</loc>"
            in (html / "sitemap.xml").read_text())
    assert (page.find("meta", property="og:url")["content"]
            == "https://ada.github.io/course/chapters/one.html")
    assert runs.read_text() == "x"  # another environment runs nothing again

    # Other prose: shown, and nothing is run again.
    write_chapter(small_book, "Second words.", ALT)
    page = build(small_book, {"COURSE_REPOSITORY": ""})
    assert "Second words." in page.get_text()
    assert runs.read_text() == "x"

    # Another text for the figure: shown (this one notebook is run again).
    write_chapter(small_book, "Second words.", "A line, said in other words.")
    page = build(small_book, {"COURSE_REPOSITORY": ""})
    assert page.select_one("article img")["alt"].endswith("other words.")
    runs.write_text("x")

    # Another source: the page is never older than it.
    (small_book / "src" / "value.py").write_text("2")
    page = build(small_book, {"COURSE_REPOSITORY": ""})
    assert "value 2" in page.get_text()
    assert runs.read_text() == "xx"
    assert len(list((small_book / "_build" / ".executed").iterdir())) <= 4


@pytest.mark.slow
@pytest.mark.parametrize("fault", [
    "{ref}`nowhere`", "{cite}`nobody1999none`", "[x](missing.md)",
    "![](missing.png)", "### Too deep"])
def test_a_broken_page_fails_the_build(fault, small_book):
    intro = small_book / "intro.md"
    good = intro.read_text()
    intro.write_text(f"{good}\n{fault}\n")
    try:
        with pytest.raises(AssertionError, match="WARNING"):
            build(small_book, {"COURSE_REPOSITORY": ""})
    finally:
        intro.write_text(good)


def test_outputs_depend_on_sources_lock_and_data(tmp_path):
    keys = set()
    for name in ("src/a/b.py", "requirements/core.txt",
                 "chapters/data/x.json", "chapters/helper.py"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("1")
        keys.add(sources_key(tmp_path))
        path.write_text("2")
        keys.add(sources_key(tmp_path))
    assert len(keys) == 8
    (tmp_path / "chapters" / "one.md").write_text("prose")
    assert sources_key(tmp_path) in keys
