"""The figures that answer to the reader, as text (what they do in a browser
is in test_browser_explorers.py).
"""

import json
import re
from html.parser import HTMLParser

import numpy as np
import pytest
from bs4 import BeautifulSoup

from course.examples import SENTENCE, eight_heads, embeddings
from course.explorers import (
    Explorer,
    explore_heads,
    explore_masks,
    explore_query,
    explore_scale,
)
from course.explorers.frame import SCRIPT, START, STYLE, build
from course.figures.style import COLOURS
from self_attention.numpy_reference import (
    causal_mask,
    combine_masks,
    padding_mask,
    softmax,
)

TOKENS = list(SENTENCE)
PADDED = [*TOKENS[:4], *["<pad>"] * 3]
MARKS = {"× 8": 1 / 8, "no scale": 1.0, "√64": 8.0, "√512": 512**0.5,
         "64": 64.0}
LAYERS = ("layer 2", "layer 3")


def scores_of(tokens):
    """Scores of the eight heads, not scaled: (8, seq_len, seq_len)."""
    heads = eight_heads()
    X = embeddings(tokens)
    return (X @ heads.W_q) @ (X @ heads.W_k).swapaxes(-2, -1)


def panel(seed):
    """A sentence and its weights in two layers of three heads."""
    random = np.random.RandomState(seed)
    tokens = ["[CLS]", "it", "</script>", "<!--", "\"it's\"&"]
    return tokens, {layer: softmax(3 * random.standard_normal((3, 5, 5)))
                    for layer in LAYERS}


WEIGHTS = softmax(scores_of(TOKENS) / 8)
VALUES = embeddings(TOKENS) @ eight_heads().W_v[0]
PANELS = {"first": panel(1), "second": panel(2)}

MAKE = {
    "query": lambda **more: explore_query(
        TOKENS, WEIGHTS[0], VALUES, start=2, **more),
    "scale": lambda **more: explore_scale(
        TOKENS, scores_of(TOKENS)[1, 3], MARKS, start="√64", **more),
    "masks": lambda **more: explore_masks(
        PADDED, scores_of(PADDED)[6] / 8, 4, **more),
    "heads": lambda **more: explore_heads(
        PANELS, query=1, start=("layer 3", 1), **more),
}


@pytest.fixture(params=MAKE)
def kind(request):
    return request.param


@pytest.fixture
def explorer(kind):
    return MAKE[kind]()


def tree(explorer):
    return BeautifulSoup(explorer.html, "html.parser")


def data(explorer):
    text = tree(explorer).find("script", type="application/json").string
    return json.loads(text)


def script(explorer):
    return tree(explorer).find("script", type=None).string


#: Elements without an end.
ALONE = {"input", "line"}


class Strict(HTMLParser):
    """Stops at a tag that is not closed, or an attribute given twice."""

    def __init__(self):
        super().__init__(convert_charrefs=False)
        self.open, self.ids = [], []

    def handle_starttag(self, tag, attrs):
        names = [name for name, _ in attrs]
        assert len(names) == len(set(names)), (tag, names)
        self.ids += [value for name, value in attrs if name == "id"]
        if tag not in ALONE:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        assert tag in ALONE, tag

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, tag

    def handle_data(self, text):
        if self.open and self.open[-1] not in ("script", "style"):
            assert "<" not in text, text


# --- all of them -------------------------------------------------------------

def test_html_is_well_formed(explorer):
    parser = Strict()
    parser.feed(explorer.html)
    parser.close()
    assert not parser.open
    assert len(parser.ids) == len(set(parser.ids))
    assert parser.ids[0] == explorer.name
    assert all(name.startswith(explorer.name) for name in parser.ids)


def test_every_control_has_a_name_of_its_own(explorer):
    soup = tree(explorer)
    controls = soup.find_all(["input", "select", "button"])
    assert controls
    for control in controls:
        label = control if control.name == "button" else (
            control.find_parent("label")
            or soup.find("label", {"for": control.get("id")}))
        assert label.get_text(strip=True)
        group = control.find_parent("fieldset")
        assert group.legend.get_text(strip=True)
        assert group.has_attr("disabled")  # until the script has begun
        assert control.get("name", explorer.name).startswith(explorer.name)


def test_there_is_a_text_for_those_who_do_not_see(explorer):
    soup = tree(explorer)
    assert soup.figure["aria-labelledby"] == soup.figcaption.strong["id"]
    assert soup.output.get_text() == explorer.summary
    assert len(explorer.summary) > 40
    assert "scripts" in soup.select_one(".idle").get_text()
    for table in soup.find_all("table"):
        assert table.caption.get_text(strip=True)
        for line in table.select("tbody tr"):
            assert line.th["scope"] == "row"
    assert soup.select("details table tbody td")
    for drawing in soup.find_all("svg"):
        assert drawing["aria-hidden"] == "true"


def test_notebook_stores_the_same_text_each_time(kind, explorer):
    again = MAKE[kind]()._repr_mimebundle_()
    assert again == {"text/plain": repr(explorer), "text/html": explorer.html}
    assert explorer._repr_html_() == explorer.html
    assert "0x" not in repr(explorer)
    assert explorer.summary in repr(explorer)


def test_nothing_is_fetched(explorer):
    assert not re.search(r"https?:|//[a-z]|@import|url\(|fetch|import\(|src=",
                         re.sub(r"//? .*", "", explorer.html))
    assert not tree(explorer).find_all(["link", "img", "iframe"])


def test_script_is_short_and_keeps_to_its_element(explorer):
    text = script(explorer)
    assert len(text.encode()) < 6000
    assert max(map(len, text.splitlines())) < 80
    assert text.strip().startswith("(() => {")
    found = set(re.findall(r"document\.(\w+)", text))
    assert found == {"currentScript", "getElementById"}
    assert f'"{explorer.name}"' in text
    assert "innerHTML" not in text


def test_rules_keep_to_their_element(explorer):
    sheet = re.sub(r"@media[^{]*\{(.*?\})\s*\}", r"\1",
                   tree(explorer).style.string, flags=re.S)
    selectors = [part.strip() for rule in re.findall(r"([^{}]+)\{", sheet)
                 for part in rule.split(",")]
    assert selectors
    for selector in selectors:
        assert re.search(rf"#{explorer.name}(?![\w-])", selector), selector
    assert "prefers-reduced-motion" in tree(explorer).style.string


def test_colours_are_those_of_the_figures(kind, explorer):
    sheet = tree(explorer).style.string
    assert COLOURS["query"] in sheet
    if kind == "query":
        assert {COLOURS["value"], COLOURS["output"]} <= set(
            re.findall(r"#[0-9a-f]{6}", sheet))
    assert not re.search(r"\b[A-Z]{3,}\b", sheet)  # names not yet replaced


def test_several_can_stand_on_one_page(kind):
    first, second = MAKE[kind](), MAKE[kind](name="another-one")
    assert first.name != second.name == "another-one"
    parser = Strict()
    parser.feed(first.html + second.html)
    assert len(parser.ids) == len(set(parser.ids))
    assert script(first) != script(second)
    assert second.html.replace("another-one", first.name) == first.html


@pytest.mark.parametrize("name", ["", "9-lives", "Loud", "a b", 'a"b', "a<b"])
def test_name_must_be_an_id(kind, name):
    with pytest.raises(ValueError, match="name="):
        MAKE[kind](name=name)


def test_words_cannot_end_the_script():
    made = MAKE["heads"]()
    assert made.html.count("</script>") == 2
    assert "<!--" not in made.html
    assert data(made)["tokens"][0] == PANELS["first"][0]
    assert "&lt;/script&gt;" in made.html


def test_frame_uses_its_pieces():
    made = build("a-name", title="t", caption="c", body="", summary="<s>",
                 rest="", data={"a": 1}, script="const update = () => {};")
    assert isinstance(made, Explorer)
    assert "&lt;s&gt;" in made.html
    assert SCRIPT.count("#ID") == START.count("ID") == 0
    assert STYLE.count("#ID") > 10


# --- what they ship is what they were given ----------------------------------

def numbers(line, selector=".number"):
    return [cell.get_text() for cell in line.select(selector)]


def test_query_ships_its_arrays_and_begins_with_their_row():
    made = MAKE["query"]()
    shipped = data(made)
    assert shipped["tokens"] == TOKENS
    np.testing.assert_allclose(shipped["weights"], WEIGHTS[0], atol=5e-8)
    np.testing.assert_allclose(shipped["values"], VALUES[:, :5], atol=5e-8)
    assert shipped["limit"] >= np.abs(VALUES[:, :5]).max()
    assert numbers(tree(made), ".weights .number") == [
        f"{w:.4f}" for w in WEIGHTS[0, 2]]
    np.testing.assert_allclose(
        np.array(numbers(tree(made), ".sums .number"), float),
        WEIGHTS[0, 2] @ VALUES[:, :5], atol=6e-5)
    cells = np.array(numbers(tree(made), "details td"), float).reshape(7, 12)
    np.testing.assert_allclose(
        cells, np.hstack([WEIGHTS[0], WEIGHTS[0] @ VALUES[:, :5]]), atol=6e-5)


def test_scale_ships_its_scores_and_tells_of_every_mark():
    made = MAKE["scale"]()
    scores = scores_of(TOKENS)[1, 3]
    shipped = data(made)
    np.testing.assert_allclose(shipped["scores"], scores, atol=5e-8)
    assert shipped["marks"] == [["× 8", -12], ["no scale", 0], ["√64", 12],
                                ["√512", 18], ["64", 24]]
    slider = tree(made).find("input", type="range")
    assert [slider[name] for name in ("min", "max", "value")] == [
        "-12", "24", "12"]
    np.testing.assert_allclose(
        np.array(numbers(tree(made), ".weights .number"), float),
        softmax(scores / 8), atol=6e-5)
    for line, divisor in zip(tree(made).select("details tbody tr"),
                             MARKS.values()):
        found = np.array(numbers(line, "td"), float)
        weights = softmax(scores / divisor)
        logs = np.log2(np.where(weights > 0, weights, 1))
        np.testing.assert_allclose(found[0], divisor, atol=6e-4)
        np.testing.assert_allclose(found[1:8], weights, atol=6e-5)
        np.testing.assert_allclose(found[8], -(weights * logs).sum(),
                                   atol=6e-3)


def test_masks_ships_its_scores_and_begins_with_the_padding_mask():
    made = MAKE["masks"]()
    scores = scores_of(PADDED)[6] / 8
    shipped = data(made)
    np.testing.assert_allclose(shipped["scores"], scores, atol=5e-8)
    assert (shipped["length"], shipped["tokens"]) == (4, PADDED)
    mask = np.broadcast_to(padding_mask([4], 7)[0, 0], (7, 7))
    weights = softmax(np.where(mask, scores, -np.inf))
    assert numbers(tree(made), ".cells tbody td") == [
        f"{w:.2f}" if may else "0"
        for w, may in zip(weights.flat, mask.flat)]
    masked = ["masked" in cell["class"]
              for cell in tree(made).select(".cells tbody td")]
    assert np.array_equal(masked, ~mask.ravel())


def test_masks_tells_of_every_setting():
    lines = tree(MAKE["masks"]()).select("details tbody tr")
    assert len(lines) == 8
    for line in lines:
        side = line.th.get_text().split()[-1]
        padding, causal, allowed, nowhere, lost = numbers(line, "td")
        mask = np.broadcast_to(combine_masks(
            np.full((7, 7), True),
            padding_mask([4], 7, side=side)[0, 0] if padding == "on" else
            None, causal_mask(7) if causal == "on" else None), (7, 7))
        tokens = PADDED if side == "right" else [*PADDED[4:], *PADDED[:4]]
        weights = softmax(np.where(mask, scores_of(tokens)[6] / 8, -np.inf))
        real = np.array(tokens) != "<pad>"
        assert int(allowed) == mask.sum()
        assert int(nowhere) == (~mask.any(axis=1)).sum()
        np.testing.assert_allclose(
            float(lost), weights[real][:, ~real].sum(axis=1).mean(),
            atol=6e-3)


def test_ink_can_be_read_on_every_shade():
    def light(colour):
        parts = np.array([int(colour[at:at + 2], 16) for at in (1, 3, 5)])
        parts = parts / 255
        parts = np.where(parts <= 0.04045, parts / 12.92,
                         ((parts + 0.055) / 1.055) ** 2.4)
        return parts @ [0.2126, 0.7152, 0.0722]

    shipped = data(MAKE["masks"]())
    for papers, inks in (shipped["shades"], shipped["signed"]):
        assert len(papers) == len(inks) == 21
        for paper, ink in zip(papers, inks):
            low, high = sorted([light(paper), light(ink)])
            assert (high + 0.05) / (low + 0.05) >= 4.5


def test_heads_ships_thousandths_of_every_weight():
    made = MAKE["heads"]()
    shipped = data(made)
    assert shipped["layers"] == list(LAYERS)
    for found, (tokens, weights), given in zip(
            shipped["weights"], PANELS.values(), shipped["tokens"]):
        assert given == tokens
        np.testing.assert_allclose(
            np.array(found) / 1000, [weights[layer] for layer in LAYERS],
            atol=5.1e-4)
    row = PANELS["first"][1]["layer 3"][1, 1]
    np.testing.assert_allclose(
        np.array(numbers(tree(made), ".words td"), float), row, atol=5.1e-4)
    lines = tree(made).find_all("line")
    assert [line["y2"] for line in lines] == ["0.5", "1.5", "2.5", "3.5",
                                              "4.5"]
    assert {line["y1"] for line in lines} == {"1.5"}
    cells = np.array(numbers(tree(made), "details td"), float)
    np.testing.assert_allclose(
        cells.reshape(2, 2, 3, 5)[0, 1], PANELS["first"][1]["layer 3"][:, 1],
        atol=5.1e-4)


def test_row_of_zeros_stays_a_row_of_zeros():
    scores = np.zeros((3, 3))
    made = explore_masks(["a", "b", "<pad>"], scores, 2)
    both = tree(made).select("details tbody tr")[-1]
    assert numbers(both, "td")[:4] == ["on", "on", "3", "1"]


def test_no_minus_zero_is_written():
    made = explore_query(["a", "b"], np.eye(2), [[-1e-12, 1.0], [0.0, -0.0]])
    assert "-0." not in made.html.split("<figcaption")[1]


# --- what does not fit is refused --------------------------------------------

@pytest.mark.parametrize(("call", "message"), [
    (lambda: explore_query(TOKENS, WEIGHTS[0][:6], VALUES), "do not fit 7"),
    (lambda: explore_query(TOKENS, WEIGHTS[0], VALUES[:6]), "do not fit 7"),
    (lambda: explore_query(TOKENS, WEIGHTS[0], VALUES, start=7), "start=7"),
    (lambda: explore_scale(TOKENS, np.zeros(6), MARKS, start="64"),
     "do not fit 7"),
    (lambda: explore_scale(TOKENS, np.zeros(7), {"root": 7.0}, start="root"),
     r"marks\['root'\]=7.0"),
    (lambda: explore_masks(PADDED, np.zeros((7, 6)), 4), "do not fit 7"),
    (lambda: explore_masks(PADDED, np.zeros((7, 7)), 0), "length=0"),
    (lambda: explore_masks(PADDED, np.zeros((7, 7)), 8), "length=8"),
    (lambda: explore_heads({"a": panel(1), "b": (["x"], panel(2)[1])},
                           query=1, start=("layer 3", 1)), r"panels\['b'\]"),
    (lambda: explore_heads({"a": panel(1), "b": (
        panel(1)[0], {"layer 2": np.zeros((3, 5, 5))})},
        query=1, start=("layer 3", 1)), r"panels\['b'\]"),
])
def test_what_does_not_fit_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


