"""What the explorers do in a browser: each answers to mouse and keyboard, and
every number that its script writes is the one that NumPy gives.
"""

import numpy as np
import pytest

from self_attention.numpy_reference import (
    attention_weights,
    causal_mask,
    combine_masks,
    padding_mask,
    scaled_dot_product_attention,
    softmax,
)
from test_explorers import (
    LAYERS,
    MAKE,
    MARKS,
    PADDED,
    PANELS,
    TOKENS,
    VALUES,
    scores_of,
)

pytestmark = pytest.mark.browser

#: (colour scheme, width of the window), as in test_browser.py.
WINDOWS = [("light", 1280), ("dark", 1280), ("light", 390), ("light", 320)]

PAGE = """<!doctype html>
<html lang="en" data-theme="{theme}"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width"><title>Explorers</title>
<style>html[data-theme=dark] {{ background: #14181e; color: #ced6dd; }}
</style></head><body><main><h1>Explorers</h1>
{explorers}
</main></body></html>"""


@pytest.fixture
def show(browser):
    """Open a page of explorers; no complaint may be left at the end."""
    contexts, complaints = [], []

    def opened(*explorers, theme="light", width=1280, **more):
        context = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme=theme,
            **more)
        context.set_default_timeout(60_000)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: complaints.append(request.url))
        page.set_content(PAGE.format(theme=theme, explorers="\n".join(
            explorer.html for explorer in explorers)))
        return page

    yield opened
    for context in contexts:
        context.close()
    assert not complaints


def everything():
    return [make() for make in MAKE.values()]


def texts(page, selector):
    return page.locator(selector).all_inner_texts()


def numbers(page, selector):
    return np.array(texts(page, selector), dtype=float)


def variable(page, selector, name):
    return np.array(page.locator(selector).evaluate_all(
        "(nodes, name) => nodes.map(e => e.style.getPropertyValue(name))",
        name), dtype=float)


def said(page, name):
    return page.locator(f"#{name} output").inner_text()


# --- all of them -------------------------------------------------------------

@pytest.mark.parametrize(("theme", "width"), WINDOWS)
def test_page_is_sound(show, theme, width):
    page = show(*everything(), theme=theme, width=width)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert not page.evaluate("""() => [...document.querySelectorAll(
      'figure :not(details *)')].filter(
        e => e.getBoundingClientRect().right > innerWidth).map(
          e => e.outerHTML.slice(0, 90))""")
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    for _ in range(2):
        found = axe.Axe().run(page).response["violations"]
        assert not [(fault["id"], node["html"][:200]) for fault in found
                    for node in fault["nodes"]]
        for summary in page.locator("summary").all():
            summary.click()  # a second time with the tables open


def test_script_begins_with_what_python_wrote(browser, show):
    page = show(*everything())
    still = show(*everything(), java_script_enabled=False)
    figures = "figure > :not(script, fieldset, .controls, .idle)"
    strip = """nodes => nodes.map(e => e.outerHTML.replaceAll(
      ' disabled=""', ''))"""
    live = page.locator(figures).evaluate_all(strip)
    for before, after in zip(still.locator(figures).evaluate_all(strip), live,
                             strict=True):
        assert before == after
    assert len(live) > 12


def test_without_scripts_the_figure_is_still_there(show):
    page = show(*everything(), java_script_enabled=False)
    assert page.locator(".idle:visible").count() == len(MAKE)
    assert page.locator("output:visible").count() == len(MAKE)
    assert page.locator("fieldset:not([disabled])").count() == 0
    assert page.locator("fieldset :enabled").count() == 0
    page.locator("summary").first.click()
    assert page.locator("details table").first.is_visible()


def test_with_scripts_the_controls_are_free(show):
    page = show(*everything())
    assert page.locator(".idle:visible").count() == 0
    assert page.locator("fieldset :disabled").count() == 0


def test_every_control_can_be_reached_by_keyboard(show):
    page = show(*everything())
    reached = set()
    for _ in range(40):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("""() => {
          const e = document.activeElement;
          return e.name || e.id || e.value || e.tagName; }"""))
    wanted = page.evaluate("""() => [...document.querySelectorAll(
      'input, select, button')].map(e => e.name || e.id || e.value)""")
    assert set(wanted) <= reached
    assert "SUMMARY" in reached


def test_summary_is_announced(show):
    page = show(*everything())
    # An output element is a polite live region of its own.
    assert page.get_by_role("status").count() == len(MAKE)


@pytest.mark.parametrize("motion", ["reduce", "no-preference"])
def test_motion_is_respected(show, motion):
    page = show(*everything(), reduced_motion=motion)
    lasts = page.locator("i, line").evaluate_all(
        "nodes => nodes.map(e => getComputedStyle(e).transitionDuration)")
    assert set(lasts) == {"0s" if motion == "reduce" else "0.15s"}


@pytest.mark.parametrize("kind", MAKE)
def test_two_of_a_kind_do_not_disturb_each_other(show, kind):
    first, second = MAKE[kind](), MAKE[kind](name="second")
    page = show(first, second)
    before = page.locator(f"#{first.name}").inner_text()
    other = page.locator("#second")
    other.locator("input:not(:checked), button").first.click()
    assert said(page, "second") != second.summary
    assert page.locator(f"#{first.name}").inner_text() == before


@pytest.mark.parametrize("kind", MAKE)
def test_output_that_is_put_in_later_works(show, kind):
    """As JupyterLab does it: HTML first, then each script as a new node."""
    explorer = MAKE[kind]()
    page = show()
    page.evaluate("""html => {
      const host = document.createElement('div');
      host.innerHTML = html;
      document.querySelector('main').append(host);
      for (const old of host.querySelectorAll('script')) {
        const script = document.createElement('script');
        for (const {name, value} of old.attributes)
          script.setAttribute(name, value);
        script.textContent = old.textContent;
        old.replaceWith(script);
      } }""", explorer.html)
    assert page.locator(f"#{explorer.name}.live").count() == 1
    page.locator("input:not(:checked), button").first.click()
    assert said(page, explorer.name) != explorer.summary


# --- (a) which word asks -----------------------------------------------------

def check_query(page, query, weights):
    values = VALUES[:, :5]
    z = scaled_dot_product_attention(
        *project(TOKENS), values)[query]
    assert texts(page, "figure .weights .number") == [
        f"{weight:.4f}" for weight in weights[query]]
    np.testing.assert_allclose(
        variable(page, ".weights i", "--w"), weights[query], atol=5.1e-5)
    np.testing.assert_allclose(numbers(page, ".sums .number"), z, atol=5.2e-5)
    np.testing.assert_allclose(
        variable(page, ".sums .value", "--w").reshape(5, 7),
        np.tile(weights[query], (5, 1)), atol=5.1e-5)
    limit = np.ceil(np.abs(values).max())
    np.testing.assert_allclose(
        variable(page, ".sums .value", "--x").reshape(5, 7),
        0.5 + values.T / limit / 2, atol=5.1e-5)
    np.testing.assert_allclose(
        variable(page, ".sums .output", "--x"), 0.5 + z / limit / 2,
        atol=5.1e-5)
    assert said(page, "explore-query").startswith(f"“{TOKENS[query]}” takes")
    assert f"{weights[query].max():.4f}" in said(page, "explore-query")


def project(tokens):
    from course.examples import eight_heads, embeddings
    heads = eight_heads()
    X = embeddings(tokens)
    return X @ heads.W_q[0], X @ heads.W_k[0]


def test_query_answers_to_the_mouse(show):
    page = show(MAKE["query"]())
    weights = attention_weights(*project(TOKENS))
    for query in (2, 0, 1, 3, 4, 5, 6):
        page.locator("label").nth(query).click()
        check_query(page, query, weights)


def test_query_answers_to_the_keyboard(show):
    page = show(MAKE["query"]())
    weights = attention_weights(*project(TOKENS))
    page.keyboard.press("Tab")
    check_query(page, 2, weights)
    for key, query in (("ArrowRight", 3), ("ArrowUp", 2), ("ArrowUp", 1),
                       ("ArrowLeft", 0), ("ArrowLeft", 6)):
        page.keyboard.press(key)
        check_query(page, query, weights)


def test_query_shows_weights_as_lengths(show):
    page = show(MAKE["query"]())
    shares = page.locator(".weights i").evaluate_all("""nodes => nodes.map(
      e => getComputedStyle(e).width.slice(0, -2)
        / getComputedStyle(e.parentNode).width.slice(0, -2))""")
    np.testing.assert_allclose(
        shares, attention_weights(*project(TOKENS))[2], atol=0.02)


# --- (b) the scale -----------------------------------------------------------

def check_scale(page, divisor):
    scores = scores_of(TOKENS)[1, 3]
    weights = softmax(scores / divisor)
    bits = -(weights * np.log2(np.where(weights > 0, weights, 1))).sum()
    largest = weights.max()
    np.testing.assert_allclose(
        numbers(page, ".weights .number"), weights, atol=5.2e-5)
    top, entropy, slope = texts(page, ".measures .number")
    assert abs(float(top) - largest) < 5.2e-5
    assert abs(float(entropy.removesuffix(" bits")) - bits) < 5.2e-3
    assert abs(float(slope) - largest * (1 - largest)) < 5.2e-5
    np.testing.assert_allclose(
        variable(page, ".measures i", "--w"),
        [largest, bits / np.log2(7), 4 * largest * (1 - largest)], atol=2e-4)
    words = said(page, "explore-scale")
    assert words.startswith(f"Divided by {divisor:.3f}")
    assert f"entropy {entropy.removesuffix(' bits')} of at most 2.81" in words
    told = page.locator("input").get_attribute("aria-valuetext")
    assert words.startswith(told + ":")
    return bits


def test_scale_answers_to_its_buttons(show):
    page = show(MAKE["scale"]())
    bits = []
    for label, divisor in MARKS.items():
        page.get_by_role("button", name=label, exact=True).click()
        bits.append(check_scale(page, divisor))
        assert f"({label})" in said(page, "explore-scale")
    assert bits == sorted(bits)
    assert bits[0] < 0.01  # one-hot
    assert bits[-1] > 2.7  # flat


def test_scale_answers_to_the_keyboard(show):
    page = show(MAKE["scale"]())
    page.keyboard.press("Tab")
    for key, step in (("ArrowRight", 13), ("ArrowLeft", 12),
                      ("ArrowDown", 11), ("Home", -12), ("ArrowLeft", -12),
                      ("End", 24)):
        page.keyboard.press(key)
        check_scale(page, 2 ** (step / 4))
    page.keyboard.press("Tab")
    page.keyboard.press("Space")
    check_scale(page, 1 / 8)
    assert page.get_by_role("slider").input_value() == "-12"


def test_scale_answers_to_the_mouse(show):
    page = show(MAKE["scale"]())
    box = page.get_by_role("slider").bounding_box()
    middle = box["y"] + box["height"] / 2
    page.mouse.click(box["x"] + box["width"] / 2, middle)
    check_scale(page, 2 ** (6 / 4))
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] + 5, middle)
    page.mouse.up()
    check_scale(page, 64)


# --- (c) masks ---------------------------------------------------------------

def check_masks(page, padding, causal, side, shown="weights"):
    tokens = PADDED if side == "right" else [*PADDED[4:], *PADDED[:4]]
    scores = scores_of(tokens)[6] / 8
    mask = np.broadcast_to(combine_masks(
        np.full((7, 7), True),
        padding_mask([4], 7, side=side)[0, 0] if padding else None,
        causal_mask(7) if causal else None), (7, 7))
    weights = softmax(np.where(mask, scores, -np.inf))
    wanted = [("−∞" if shown == "scores" else "0") if not may else
              f"{score:.1f}" if shown == "scores" else f"{weight:.2f}"
              for may, score, weight in zip(mask.flat, scores.flat,
                                            weights.flat)]
    cells = "#explore-masks .cells tbody td"
    assert texts(page, cells) == wanted
    masked = page.locator(cells).evaluate_all("""nodes => nodes.map(e =>
      getComputedStyle(e).backgroundImage.includes('gradient'))""")
    assert np.array_equal(masked, ~mask.ravel())
    assert texts(page, ".cells tbody th") == tokens
    assert texts(page, ".cells thead span") == tokens
    words = said(page, "explore-masks")
    assert words.startswith(f"{mask.sum()} of 49 pairs are allowed.")
    nowhere = (~mask.any(axis=1)).sum()
    assert (f"{nowhere} of the queries may attend nowhere" in words) == bool(
        nowhere)
    assert ("Every row sums to 1" in words) == (not nowhere)
    real = np.array(tokens) != "<pad>"
    lost = weights[real][:, ~real].sum(axis=1).mean()
    assert f"{lost:.2f} goes to padding" in words
    return nowhere


def test_masks_answers_to_the_mouse(show):
    page = show(MAKE["masks"]())
    check_masks(page, True, False, "right")
    found = []
    for side in ("left", "right"):
        page.get_by_role("radio", name=side).check()
        for padding in (False, True):
            page.get_by_label("padding mask").set_checked(padding)
            for causal in (True, False):
                page.get_by_label("causal mask").set_checked(causal)
                for shown in ("scores", "weights"):
                    page.get_by_role("radio", name=shown).check()
                    found.append(check_masks(page, padding, causal, side,
                                             shown))
    assert max(found) == 3


def test_masks_answers_to_the_keyboard(show):
    page = show(MAKE["masks"]())
    page.keyboard.press("Tab")
    page.keyboard.press("Space")
    check_masks(page, False, False, "right")
    page.keyboard.press("Tab")
    page.keyboard.press("Space")
    check_masks(page, False, True, "right")
    page.keyboard.press("Tab")
    page.keyboard.press("ArrowRight")
    check_masks(page, False, True, "left")
    page.keyboard.press("Tab")
    page.keyboard.press("ArrowDown")
    check_masks(page, False, True, "left", "scores")


def test_rows_of_zeros_are_hatched(show):
    page = show(MAKE["masks"]())
    page.get_by_label("causal mask").check()
    page.get_by_role("radio", name="left").check()
    assert check_masks(page, True, True, "left") == 3
    for place in range(3):
        row = page.locator(".cells tbody tr").nth(place)
        assert row.locator("td").all_inner_texts() == ["0"] * 7
        assert row.locator("td.masked").count() == 7


# --- (d) heads ---------------------------------------------------------------

def check_heads(page, panel, layer, head, query):
    tokens, weights = list(PANELS.values())[panel]
    row = weights[LAYERS[layer]][head, query]
    assert texts(page, ".words tbody th") == tokens
    assert texts(page, ".words label span") == tokens
    assert texts(page, ".words tbody td") == [f"{weight:.3f}"
                                              for weight in row]
    np.testing.assert_allclose(
        variable(page, "line", "--w"), row, atol=5.1e-4)
    ends = page.locator("line").evaluate_all(
        "nodes => nodes.map(e => [e.getAttribute('y1'), "
        "e.getAttribute('y2')].map(Number))")
    assert ends == [[query + 0.5, key + 0.5] for key in range(5)]
    assert page.locator(".words tr.top th").inner_text() == tokens[
        row.argmax()]
    assert said(page, "explore-heads").startswith(
        f"{LAYERS[layer]}, head {head}, from “{tokens[query]}”: most weight "
        f"on “{tokens[row.argmax()]}” ({row.max():.3f}), then")


def test_heads_answers_to_the_mouse(show):
    page = show(MAKE["heads"]())
    check_heads(page, 0, 1, 1, 1)
    page.get_by_role("radio", name="second").check()
    check_heads(page, 1, 1, 1, 1)
    for layer in range(2):
        for head in range(3):
            page.get_by_role("combobox").select_option(
                label=f"{LAYERS[layer]}, head {head}")
            check_heads(page, 1, layer, head, 1)
    for query in range(5):
        page.locator(".words label").nth(query).click()
        check_heads(page, 1, 1, 2, query)


def test_heads_answers_to_the_keyboard(show):
    page = show(MAKE["heads"]())
    page.keyboard.press("Tab")
    page.keyboard.press("ArrowRight")
    check_heads(page, 1, 1, 1, 1)
    page.keyboard.press("Tab")
    page.keyboard.press("ArrowUp")
    check_heads(page, 1, 1, 0, 1)
    page.keyboard.press("ArrowUp")
    check_heads(page, 1, 0, 2, 1)
    page.keyboard.press("Tab")
    page.keyboard.press("ArrowDown")
    check_heads(page, 1, 0, 2, 2)


def test_lines_lead_from_word_to_word(show):
    """The drawing stretches; its ends must stay at the words' heights."""
    page = show(MAKE["heads"](), width=390)
    svg = page.locator("svg").bounding_box()
    for selector in (".words label", ".words tbody tr"):
        boxes = [row.bounding_box() for row in page.locator(selector).all()]
        found = [(box["y"] + box["height"] / 2 - svg["y"]) / svg["height"] * 5
                 for box in boxes]
        np.testing.assert_allclose(found, np.arange(5) + 0.5, atol=0.1)
