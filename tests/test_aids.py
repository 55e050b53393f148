"""What helps a reader along: glossary, indexes, cheat sheet, things to take.

``make test`` builds the site first. The tests that are marked ``browser``
need Chromium.
"""

import ast
import functools
import hashlib
import json
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import nbformat
import numpy as np
import pytest
import torch
import torch.nn.functional as F
import yaml
from bs4 import BeautifulSoup

from self_attention import numpy_reference, torch_eager

ROOT = Path(__file__).resolve().parents[1]
SITE = ROOT / "_build" / "html"
sys.path[:0] = [str(ROOT / "_ext"), str(ROOT / "tools")]

import book_downloads  # noqa: E402
import book_glossary  # noqa: E402
import book_indexes  # noqa: E402
import pdf  # noqa: E402
from course.exercises.catalogue import entries  # noqa: E402
from course.exercises.notebook import slug  # noqa: E402
from course.exercises.registry import tasks  # noqa: E402
from site_server import serve  # noqa: E402

CHAPTERS = sorted((ROOT / "chapters").glob("[0-9][0-9]_*.ipynb"))
NOTEBOOKS = sorted((ROOT / "chapters").glob("*.ipynb"))
SHEET = (ROOT / "chapters" / "cheat_sheet.md").read_text("utf8")


@functools.cache
def soup(name):
    path = SITE / f"{name}.html"
    if not path.exists():
        pytest.fail("there is no site to test: run make book")
    return BeautifulSoup(path.read_text("utf8"), "html.parser")


# --- glossary ----------------------------------------------------------------

GLOSSARY = (ROOT / "chapters" / "glossary.md").read_text("utf8")
WORDS = re.findall(r"^(\S.*)\n  (\S.*)\n\n  (\S.*)$", GLOSSARY, re.M)


def test_glossary_is_large_and_in_order():
    terms = [term for term, _, _ in WORDS]
    assert len(terms) >= 60
    assert len({term.lower() for term in terms}) == len(terms)
    assert terms == sorted(terms, key=str.lower)


@pytest.mark.parametrize("word", WORDS, ids=lambda word: word[0])
def test_entry_has_meaning_chinese_code_and_place(word):
    term, meaning, more = word
    assert 30 < len(meaning) < 200
    assert meaning.endswith(".")
    assert "$" not in meaning + more  # a box beside a link sets no formula
    chinese, *rest = more.split(" · ")
    assert re.search(r"[\u4e00-\u9fff]", chinese) or chinese == term
    assert re.fullmatch(r"\{ref\}`[a-z0-9-]+`", rest[-1])
    source = "".join(path.read_text("utf8") for path in
                     sorted((ROOT / "src" / "self_attention").glob("*.py")))
    for name in re.findall(r"(?<!\{ref\})`([^`]+)`", more):
        for part in re.findall(r"[A-Za-z_]{2,}", name):
            assert part in source or (
                ROOT / "src" / "self_attention" / f"{part}.py").exists()


@pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)
def test_first_use_of_a_word_leads_to_its_entry(path):
    page = soup(f"chapters/{path.stem}").select_one("article")
    links = page.select("a.glossary-term")
    assert len(links) >= 8
    targets = [link["href"] for link in links]
    assert len(set(targets)) == len(targets)  # the first use and no other
    names = {tag["id"] for tag in soup("chapters/glossary").select("dt[id]")}
    for link in links:
        assert link["href"].startswith("glossary.html#")
        assert link["href"].partition("#")[2] in names
        assert link.find_parent("p")
        assert not link.find_parents(re.compile("^(h[1-6]|pre|code|table|"
                                                "figure|figcaption)$"))
        box = link.find_next_sibling("span", role="tooltip")
        assert box["id"] == link["aria-describedby"]
        assert len(box.get_text()) > 30


def entry(term):
    return book_glossary.Entry(term, f"term-{term.replace(' ', '-')}", "")


def test_terms_are_found_as_they_are_written():
    glossary = {term: entry(term) for term in (
        "mask", "causal mask", "query", "key-value cache", "attention")}
    waiting = set(glossary)
    pieces = book_glossary.linked(
        "Self-attention: Queries, a causal\nmask, the key–value caches. Masks "
        "again, and masks.", glossary, waiting, "glossary.html")
    found = {piece.astext(): piece["refuri"] for piece in pieces
             if piece.tagname == "reference"}
    assert found == {
        "Queries": "glossary.html#term-query",
        "causal\nmask": "glossary.html#term-causal-mask",
        "key–value caches": "glossary.html#term-key-value-cache",
        "Masks": "glossary.html#term-mask"}
    assert waiting == {"attention"}  # "self-attention" is another word
    assert "".join(piece.astext() for piece in pieces).endswith("and masks.")


def test_glossary_goes_from_chinese_to_english():
    page = soup("chapters/glossary")
    lines = {link.get_text(): (line.find("span").get_text(), link["href"])
             for line in page.select("ul.glossary-chinese > li")
             for link in line.select("a")}
    chinese = {term: more.partition(" · ")[0] for term, _, more in WORDS}
    assert set(lines) == {term for term, word in chinese.items()
                          if word != term}
    for term, (word, address) in lines.items():
        assert word == chinese[term]
        assert page.find(id=address[1:]).get_text(strip=True).startswith(term)
    words = [word for word, _ in lines.values()]
    assert words == sorted(words)


def test_search_does_not_index_the_meanings():
    text = (SITE / "searchindex.js").read_text("utf8")
    index = json.loads(text.removeprefix("Search.setIndex(").rstrip(");\n"))
    # "Owe" stands in the meaning of "ablation", which chapter 11 shows. The
    # index holds the words' stems.
    pages = index["terms"]["ow"]
    pages = [pages] if isinstance(pages, int) else pages
    assert {index["docnames"][page] for page in pages} == {"chapters/glossary"}


# --- indexes -----------------------------------------------------------------

def listed(name):
    return [link["href"].rpartition("/")[2] for link in
            soup(f"chapters/{name}").select("article section a.reference")]


def test_index_has_every_figure():
    names = [f"{path.stem}.html#{cell.metadata['mystnb']['figure']['name']}"
             for path in CHAPTERS
             for cell in nbformat.read(path, as_version=4).cells
             if "figure" in cell.metadata.get("mystnb", {})]
    links = [link for link in listed("index_of_figures") if "#fig-" in link
             and re.match(r"\d", link)]
    assert links == names
    assert len(names) > 60


def test_index_has_every_exercise():
    written = {label for path in CHAPTERS
               for cell in nbformat.read(path, as_version=4).cells
               for label in re.findall(r"^:label: (ex-\S+)$", cell.source,
                                       re.M)}
    links = [link for link in listed("index_of_exercises") if "#ex-" in link]
    assert {link.partition("#")[2] for link in links} == written
    assert len(links) == len(written)
    assert written == {f"ex-{slug(task)}" for task in tasks()}


def test_index_says_level_and_minutes_of_the_bank():
    rows = soup("chapters/index_of_exercises").select("tbody tr")
    assert len(rows) == len(list(tasks()))
    for row in rows:
        number, title, level, minutes = (
            cell.get_text(strip=True) for cell in row.find_all("td"))
        label = row.a["href"].partition("#ex-")[2]
        task = next(task for task in tasks() if slug(task) == label)
        assert int(number.partition(".")[0]) == task.chapter
        assert title == task.title
        assert level == f"{task.difficulty} of 3"
        assert int(minutes) == task.minutes


@pytest.mark.parametrize(("caption", "first"), [
    ("One sentence. Another one.", "One sentence."),
    ("Only one", "Only one"),
    ("Is it 0.5 here? Yes.", "Is it 0.5 here?"),
    ("As in Fig. 3 above. More.", "As in Fig. 3 above."),
])
def test_first_sentence_of_a_caption(caption, first):
    from docutils import nodes
    node = nodes.caption("", "", nodes.Text(caption))
    words = book_indexes.first_sentence(node)
    assert "".join(word.astext() for word in words) == first


# --- cheat sheet -------------------------------------------------------------

def table_after(heading):
    """The rows of the table below a heading, as cells of Markdown."""
    text = SHEET.partition(f" {heading}\n")[2].partition("\n#")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")]
            for line in text.splitlines() if line.startswith("|")]
    return rows[2:]


B, L, H, D = 2, 5, 3, 4
LENGTHS = np.array([3, 5])


def numbers():
    """What the lines of the cheat sheet begin with; no two sizes are equal."""
    rng = np.random.default_rng(7)
    given = {name: rng.standard_normal(shape) for name, shape in {
        "x": (B, L, H * D), "W_q": (H * D, H * D), "W_o": (H * D, H * D),
        "k": (B, H, L, D), "v": (B, H, L, D), "W_1": (H * D, 7),
        "W_2": (7, H * D), "grad": (B, H, L, L), "k_new": (B, H, 1, D),
    }.items()}
    return given | {"lengths": LENGTHS}


SIZES = {"B": B, "L": L, "S": L, "H": H, "D": D, "R": 2}
STEPS = table_after("One line for each step")


def code(cell):
    return cell.strip("`")


def test_every_line_of_code_runs_and_both_columns_agree():
    ours = {"np": np, "numpy_reference": numpy_reference} | SIZES | numbers()
    theirs = {"torch": torch, "F": F} | SIZES | {
        name: torch.tensor(array) for name, array in numbers().items()}
    assert len(STEPS) >= 15
    for step, in_numpy, in_torch in STEPS:
        with np.errstate(invalid="ignore"):  # a row of 0/0
            exec(code(in_numpy), ours)
        exec(code(in_torch), theirs)
        name = ast.parse(code(in_numpy)).body[0].targets[0].id
        assert ast.parse(code(in_torch)).body[0].targets[0].id == name
        np.testing.assert_allclose(ours[name], theirs[name].numpy(),
                                   rtol=1e-12, atol=1e-12, err_msg=step)


def test_lines_of_code_are_the_layer_of_the_course():
    layer = numpy_reference.MultiHeadSelfAttention(
        H * D, H, rng=np.random.default_rng(1))
    x = numbers()["x"]
    query, key, value = layer.project(x)
    names = {"np": np, "numpy_reference": numpy_reference, "x": x, "k": key,
             "v": value, "W_q": layer.W_q, "W_o": layer.W_o,
             "lengths": LENGTHS} | SIZES
    steps = {step: code(line) for step, line, _ in STEPS}
    for step, line in steps.items():
        with np.errstate(invalid="ignore"):
            exec(line, names)
        if step == "both":
            mask = numpy_reference.combine_masks(
                numpy_reference.padding_mask(LENGTHS, L),
                numpy_reference.causal_mask(L))
            np.testing.assert_array_equal(names["mask"], mask)
        if step == "separate heads":
            np.testing.assert_array_equal(names["q"], query)
        if step == "weighted sum":
            np.testing.assert_allclose(
                names["z"], numpy_reference.scaled_dot_product_attention(
                    query, key, value, mask), atol=1e-12)
        if step == "output matrix":
            np.testing.assert_allclose(names["y"], layer(x, mask), atol=1e-12)
            break


def test_rows_that_may_attend_nowhere_become_zero():
    names = {"np": np, "mask": np.zeros((1, 2), bool),
             "scores": np.ones((1, 2))}
    steps = {step: code(line) for step, line, _ in STEPS}
    with np.errstate(invalid="ignore"):
        for step in ("mask the scores", "softmax, first half",
                     "softmax, second half"):
            exec(steps[step], names)
    assert np.isnan(names["weights"]).all()
    exec(steps["rows of 0/0 to zero"], names)
    assert (names["weights"] == 0).all()


def test_gradient_of_softmax_is_that_of_the_course():
    given = numbers()
    line = next(code(line) for step, line, _ in STEPS
                if step == "gradient of softmax")
    weights = numpy_reference.softmax(given["grad"])
    names = {"weights": weights, "grad": given["grad"][::-1]}
    expected = numpy_reference.softmax_backward(**{
        "weights": weights, "grad_weights": names["grad"]})
    exec(line, names)
    np.testing.assert_allclose(names["grad"], expected, atol=1e-15)


MASKS = table_after("Which mask?")


def test_masks_are_those_of_the_course():
    S, query_len, window = 6, 4, 2
    text = np.array([0, 0, 0, 1, 1, 1])
    lengths = np.array([3, 6])
    pad = numpy_reference.padding_mask(lengths, S)
    causal = numpy_reference.causal_mask(query_len, S)
    position = np.arange(query_len)[:, None] + S - query_len
    near = np.arange(S) > position - window
    expected = [
        pad, numpy_reference.padding_mask(lengths, S, side="left"), causal,
        pad & causal, causal & near,
        numpy_reference.causal_mask(S) & (text[:, None] == text),
    ]
    names = {"np": np, "S": S, "L": query_len, "w": window, "text": text,
             "lengths": lengths, "pad": pad}
    for (_, line, _), mask in zip(MASKS[:-2], expected, strict=True):
        exec(code(line), names)
        np.testing.assert_array_equal(names["mask"], mask)
    for _, line, _ in MASKS[-2:]:
        exec(code(line), names)
    np.testing.assert_array_equal(names["blocked"], ~names["mask"])
    np.testing.assert_array_equal(names["added"] == 0, names["mask"])
    assert np.isneginf(names["added"][~names["mask"]]).all()


def test_libraries_are_quoted_as_they_answered():
    record = json.loads(
        (ROOT / "chapters" / "data" / "conventions.json").read_text("utf8"))
    questions = ["True in a boolean mask", "float mask of 0 and -inf",
                 "query that may attend nowhere",
                 "causal flag with fewer queries than keys"]
    rows = table_after("Masks")
    assert len(rows) >= 8
    for call, *answers in rows:
        assert answers == [record["answers"][call][question]
                           for question in questions]


def test_mistakes_are_in_the_catalogue():
    rows = table_after("Eight mistakes and their symptoms")
    assert len(rows) == 8
    known = {each.anchor for each in entries()}
    for name, symptom, instead in rows:
        label = re.search(r"<(mistake-\S+)>", name)[1]
        assert label in known
        assert symptom
        assert instead


def test_symptoms_are_true():
    rng = np.random.default_rng(3)
    query, key = rng.standard_normal((2, 1, 2, 5, 64))
    scores = query @ key.swapaxes(-2, -1)
    mask = numpy_reference.causal_mask(5)

    def softmax(s):
        return numpy_reference.softmax(s)

    # softmax over the queries
    over_queries = numpy_reference.softmax(scores / 8, axis=-2)
    np.testing.assert_allclose(over_queries.sum(-2), 1)
    assert abs(over_queries.sum(-1) - 1).max() > 0.1
    # no scale: sharper, and the slope of the softmax nearer to 0
    flat, sharp = softmax(scores / 8), softmax(scores)
    assert sharp.max(-1).mean() > 0.9 > flat.max(-1).mean()
    assert (sharp * (1 - sharp)).mean() < (flat * (1 - flat)).mean() / 3
    # bare reshapes
    x = np.arange(2 * 4 * 6).reshape(2, 4, 6)
    bare = x.reshape(2, 2, 4, 3)
    assert bare.shape == numpy_reference.separate_heads(x, 2).shape
    np.testing.assert_array_equal(bare[0, 0].ravel(), x[0, :2].ravel())
    heads = numpy_reference.separate_heads(x, 2)
    back = heads.reshape(2, 4, 6)
    assert set(back[0, 0]) & set(x[0, 0])
    assert set(back[0, 0]) & set(x[0, 1])
    # the mask the wrong way round, and after the softmax
    inverted = numpy_reference.attention_weights(query, key, ~mask)
    assert (inverted[..., mask] == 0).all()
    late = np.where(mask, softmax(scores / 8), 0)
    assert (late[..., :-1, :].sum(-1) < 1).all()
    changed = key.copy()
    changed[..., -1, :] += 1
    late_changed = np.where(
        mask, softmax(query @ changed.swapaxes(-2, -1) / 8), 0)
    assert abs(late_changed - late)[..., :-1, :].max() > 1e-3
    # top left
    assert np.tri(1, 5, dtype=bool).sum() == 1
    assert numpy_reference.causal_mask(1, 5).all()
    # nowhere to attend
    with np.errstate(invalid="ignore"):
        empty = np.exp(-np.inf - np.full(5, -np.inf))
    assert np.isnan(empty).all()
    assert torch.isnan(torch.full((5,), -torch.inf).softmax(-1)).all()
    assert (torch_eager.softmax(torch.full((5,), -torch.inf)) == 0).all()


# --- what changed ------------------------------------------------------------

def test_changes_are_shown_with_the_version_of_the_course():
    from self_attention import __version__
    text = (ROOT / "CHANGELOG.md").read_text("utf8")
    assert re.findall(r"^## (.+)$", text, re.M)[0] == __version__
    page = soup("chapters/changes").select_one("article")
    assert __version__ in page.h2.get_text()
    assert page.h1.get_text(strip=True).startswith("What changed")


# --- the bundle --------------------------------------------------------------

@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    path = tmp_path_factory.mktemp("bundle") / "first.zip"
    book_downloads.write_bundle(ROOT, path)
    return path


def test_bundle_is_the_same_each_time(bundle, tmp_path):
    again = tmp_path / "again.zip"
    book_downloads.write_bundle(ROOT, again)
    assert (hashlib.sha256(again.read_bytes()).digest()
            == hashlib.sha256(bundle.read_bytes()).digest())


def test_bundle_holds_what_a_chapter_needs(bundle):
    with zipfile.ZipFile(bundle) as archive:
        names = archive.namelist()
        assert archive.testzip() is None
    top = Path(book_downloads.BUNDLE).stem
    assert all(name.startswith(f"{top}/") for name in names)
    inside = {name.removeprefix(f"{top}/") for name in names}
    for path in NOTEBOOKS:
        assert f"chapters/{path.name}" in inside
    needed = {"START_HERE.md", "README.md", "LICENSE", "LICENSE-TEXT",
              "pyproject.toml", "requirements/core.txt",
              "requirements/torch.txt", "src/course/__init__.py",
              "src/self_attention/numpy_reference.py",
              "chapters/data/LICENSE-APACHE-2.0", "chapters/data/NOTICE"}
    assert needed <= inside
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, text=True,
                            capture_output=True)
    if listed.returncode == 0:
        known = set(listed.stdout.splitlines()) | {"START_HERE.md"}
        strange = inside - known
        others = subprocess.run(
            ["git", "ls-files", "--others", "--exclude-standard"], cwd=ROOT,
            text=True, capture_output=True).stdout.splitlines()
        assert strange <= set(others)  # new, and about to be added


def test_site_offers_the_bundle_and_only_what_is_there(tmp_path):
    assert (SITE / "downloads" / book_downloads.BUNDLE).exists()
    links = [link["href"] for link in
             soup("chapters/take_away").select("#course-downloads a")]
    assert f"../downloads/{book_downloads.BUNDLE}" in links
    for link in links:
        assert (SITE / "chapters" / link).exists()

    (tmp_path / "chapters").mkdir()
    (tmp_path / "downloads").mkdir()
    page = tmp_path / "chapters" / "take_away.html"
    page.write_text('<p>a</p><div id="course-downloads"></div><p>b</p>')
    book_downloads.offer(tmp_path)
    assert "<a " not in page.read_text()
    assert page.read_text().count("not in this copy") == len(
        book_downloads.OFFERED)
    (tmp_path / "downloads" / book_downloads.SHEET).write_bytes(b"x" * 2500)
    book_downloads.offer(tmp_path)
    book_downloads.offer(tmp_path)
    text = page.read_text()
    assert text.count("<a ") == 1
    assert text.count("not in this copy") == len(book_downloads.OFFERED) - 1
    assert "(PDF, 2 kB)" in text
    assert text.endswith("<p>b</p>")


def test_site_that_changed_has_no_older_pdf(tmp_path):
    (tmp_path / "downloads").mkdir()
    (tmp_path / "searchindex.js").touch()
    old, new = (tmp_path / "downloads" / name for name in (
        book_downloads.BOOK, book_downloads.SHEET))
    for path, age in ((old, -60), (new, 60)):
        path.touch()
        time = (tmp_path / "searchindex.js").stat().st_mtime + age
        os.utime(path, (time, time))
    book_downloads.drop_stale(tmp_path)
    assert not old.exists()
    assert new.exists()


@pytest.mark.slow
def test_chapter_runs_from_the_bundle_alone(bundle, tmp_path):
    with zipfile.ZipFile(bundle) as archive:
        archive.extractall(tmp_path)
    folder = tmp_path / Path(book_downloads.BUNDLE).stem
    notebook = nbformat.read(folder / "chapters" / "06_masks.ipynb",
                             as_version=4)
    cells = "\n\n".join(cell.source for cell in notebook.cells
                        if cell.cell_type == "code")
    run = subprocess.run(
        [sys.executable, "-c",
         "import matplotlib; matplotlib.use('agg')\n" + cells],
        cwd=folder / "chapters", capture_output=True, text=True, timeout=300,
        env={"PYTHONPATH": str(folder / "src"), "PATH": "/usr/bin:/bin",
             "HOME": str(tmp_path), "OMP_NUM_THREADS": "1",
             "COURSE_PROGRESS": "off"})
    assert run.returncode == 0, run.stderr[-2000:]


# --- on paper ----------------------------------------------------------------

def chromium():
    found = pdf.find_chromium()
    if found is None:
        pytest.skip("Chromium is not installed")
    return found


def test_missing_chromium_is_told_in_one_line(monkeypatch, capsys):
    monkeypatch.setattr(pdf, "find_chromium", lambda: None)
    assert pdf.main([]) == 1
    told = capsys.readouterr().err
    assert told.startswith("make: Chromium is not installed")
    assert told.count("\n") == 1


def test_printed_page_stands_alone():
    pages = [name for _, names in pdf.contents() for name in names]
    assert pages[0] == "intro"
    section = pdf.printed("chapters/06_masks", pages, SITE)
    assert not section.select("script, button, .headerlink, [role=tooltip]")
    assert all(tag.has_attr("open") for tag in section.select("details"))
    names = [tag["id"] for tag in section.find_all(id=True)]
    assert len(names) == len(set(names))
    own = [name for name in names if name.startswith("chapters-06_masks--")]
    assert len(own) > 40
    # A style of an explorer knows its own names, so these are kept.
    assert section.select_one("figure#explore-masks")
    for link in section.find_all("a", href=True):
        address = link["href"]
        assert address.startswith(("#", "https://", "http://"))
        if address.startswith("#chapters-06_masks--"):
            assert address[1:] in names
    for image in section.find_all("img"):
        assert (SITE / image["src"].lstrip("/")).exists()
    # The site's own page is not changed by that.
    assert soup("chapters/06_masks").select("article script")


def test_sizes_of_pages_are_read(tmp_path):
    path = tmp_path / "x.pdf"
    path.write_bytes(b"<</Type /Pages /Count 2>> <</Type /Page\n/Resources 1 "
                     b"/MediaBox [0 0 595 842]>> <</Type /Page\n/MediaBox [0 0"
                     b" 842 595]>>")
    assert pdf.page_sizes(path) == [(595, 842), (842, 595)]


@pytest.mark.browser
def test_cheat_sheet_is_two_pages_of_a4(tmp_path):
    path = tmp_path / "sheet.pdf"
    report = pdf.print_page(pdf.cheat_sheet(SITE), path, chromium(), SITE)
    assert report.formulas > 20
    assert not report.wide
    sizes = pdf.page_sizes(path)
    assert len(sizes) == 2
    np.testing.assert_allclose(sizes, [(595.3, 841.9)] * 2, atol=1.5)
    text = path.read_bytes()
    assert b"/StructTreeRoot" in text  # tagged
    assert b"/Lang (en)" in text


@pytest.mark.browser
def test_formula_that_cannot_be_set_stops_the_printing(tmp_path):
    page = pdf.framed("x", r'<p class="math">\(\frac{1\)</p>', "book", SITE)
    with pytest.raises(RuntimeError, match="wrong=1"):
        pdf.print_page(page, tmp_path / "x.pdf", chromium(), SITE)


@pytest.mark.browser
def test_chapter_prints_with_outline_and_links(tmp_path):
    pages = ["chapters/02_scoring_one_word", "chapters/03_matrix_form"]
    body = "".join(str(pdf.printed(name, pages, SITE)) for name in pages)
    path = tmp_path / "two.pdf"
    report = pdf.print_page(pdf.framed("Two", body, "book", SITE), path,
                            chromium(), SITE)
    assert not report.wide, report.wide
    assert report.formulas > 50
    text = path.read_bytes()
    assert b"/Outlines" in text
    assert b"/Dest" in text
    assert len(pdf.page_sizes(path)) > 20


# --- in a browser ------------------------------------------------------------

@pytest.fixture(scope="module")
def address():
    with serve(SITE) as server:
        yield server.address


WINDOWS = [("light", 1280), ("dark", 1280), ("light", 390)]


@pytest.fixture(params=WINDOWS, ids=lambda window: "-".join(map(str, window)))
def tab(request, browser):
    scheme, width = request.param
    context = browser.new_context(
        viewport={"width": width, "height": 900}, color_scheme=scheme)
    page = context.new_page()
    page.complaints = []
    page.on("console", lambda message: page.complaints.append(message.text)
            if message.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: page.complaints.append(str(error)))
    yield page
    context.close()


def uses(tab, address):
    tab.goto(f"{address}/chapters/06_masks.html")
    tab.wait_for_load_state("networkidle")
    return tab.locator("article .glossary-use")


@pytest.mark.browser
def test_meaning_shows_at_the_pointer_and_goes(tab, address):
    use = uses(tab, address).nth(3)
    box = use.locator(".glossary-meaning")
    assert not box.is_visible()
    use.locator("a").hover()
    assert box.is_visible()
    box.hover()  # on the way into the box it stays
    assert box.is_visible()
    tab.keyboard.press("Escape")
    assert not box.is_visible()
    tab.mouse.move(0, 0)
    use.locator("a").hover()
    assert box.is_visible()  # dismissed once, not for ever
    tab.mouse.move(0, 0)
    assert not box.is_visible()
    assert not tab.complaints


@pytest.mark.browser
def test_meaning_shows_at_the_keyboard_and_goes(tab, address):
    use = uses(tab, address).nth(0)
    box = use.locator(".glossary-meaning")
    use.locator("a").focus()
    assert box.is_visible()
    tab.keyboard.press("Escape")
    assert not box.is_visible()
    tab.keyboard.press("Tab")
    use.locator("a").focus()
    assert box.is_visible()
    tab.keyboard.press("Tab")
    assert not box.is_visible()
    use.locator("a").focus()
    tab.keyboard.press("Enter")
    tab.wait_for_url("**/glossary.html#term-*")


@pytest.mark.browser
def test_no_meaning_sticks_out_of_the_window(tab, address):
    every = uses(tab, address)
    for number in range(every.count()):
        use = every.nth(number)
        if not use.is_visible():
            continue  # in a hint that is folded up
        use.locator("a").focus()
        place = use.locator(".glossary-meaning").bounding_box()
        assert place["x"] >= 0
        assert place["x"] + place["width"] <= tab.viewport_size["width"]
        assert tab.evaluate(
            "document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.browser
@pytest.mark.parametrize("name", [
    "06_masks", "glossary", "cheat_sheet", "index_of_figures",
    "index_of_exercises", "take_away", "changes"])
def test_new_pages_have_no_violations(name, tab, address):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    tab.goto(f"{address}/chapters/{name}.html")
    tab.wait_for_load_state("networkidle")
    assert not tab.complaints  # axe itself asks for more than there is
    if name == "06_masks":
        tab.locator("article .glossary-use a").first.focus()
    found = axe.Axe().run(tab).response["violations"]
    assert not [(fault["id"], node["html"][:200]) for fault in found
                if fault["id"] != "region" for node in fault["nodes"]]
    assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.browser
def test_meaning_needs_no_script(browser, address):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(f"{address}/chapters/06_masks.html")
    use = page.locator("article .glossary-use").first
    use.locator("a").hover()
    assert use.locator(".glossary-meaning").is_visible()
    place = use.locator(".glossary-meaning").bounding_box()
    assert place["x"] >= 0
    context.close()


# --- links to the sources ----------------------------------------------------

def test_new_pages_are_in_the_contents():
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text("utf8"))
    reference = next(part for part in toc["parts"]
                     if part["caption"] == "Reference")
    pages = {page["file"] for page in reference["chapters"]}
    assert pages >= {f"chapters/{name}" for name in (
        "glossary", "cheat_sheet", "index_of_figures", "index_of_exercises",
        "take_away", "changes")}


@pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)
def test_page_says_where_its_exercises_are_run(path):
    exercises = soup(f"chapters/{path.stem}").find(id="exercises")
    link = exercises.select_one("p.where-to-run a")
    assert link["href"] == "take_away.html#run-a-chapter"
    # Who has opened the notebook is there already.
    assert "run-a-chapter" not in path.read_text("utf8")


@pytest.mark.parametrize("name", ["chapters/glossary", "chapters/06_masks"])
def test_edit_and_issue_links_follow_the_repository(name):
    from book_repository import find_repository
    repository = find_repository(ROOT)
    links = [link["href"] for link in soup(name).select(
        "a[class*=source-edit-button], a[class*=source-issues-button]")]
    if repository is None:
        assert not links
    else:
        assert len(links) == 2
        assert all(link.startswith(repository.url) for link in links)

