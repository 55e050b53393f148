"""What a reader's browser does with the built site (make test ALL=1).

The site is served below a path, as a project's pages are, so that every test
here also says that no page asks for anything above it.
"""

import functools
import re
from pathlib import Path
from urllib.parse import urlencode, urlsplit

import pytest

from site_server import serve
from test_site import NOTEBOOKS, PAGES, SITE

pytestmark = pytest.mark.browser

BELOW = "/some/sub/path"
#: Pages that Sphinx makes, one or two of each kind.
MADE = ["genindex", "py-modindex", "search", "_modules/index",
        "_modules/self_attention/numpy_reference"]
#: A chapter with formulas, code, figures, quizzes and folded solutions.
CHAPTER = "chapters/06_masks"
#: The one with formulas in its first lines.
FORMULAS = "chapters/04_softmax_and_scale"
#: A chapter with an explorer, and its name.
EXPLORED = ("chapters/04_softmax_and_scale", "explore-scale")

#: What a first visit to a page may weigh, packed, in bytes.
HEAVIEST = 900_000
HEAVIEST_BESIDE = 700_000

DESK = {"viewport": {"width": 1280, "height": 900}}
PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True}

READY = "() => document.fonts.ready"
# What sticks out of the window, unless it scrolls in a box of its own.
STICKS_OUT = """() => [...document.querySelectorAll('article *')].filter(
  e => e.getBoundingClientRect().right > innerWidth + 1
    && !e.closest('pre, mjx-container, .math, .output, .headerlink, '
                  + '.pst-scrollable-table-container')
  ).map(e => e.tagName + ' ' + e.textContent.trim().slice(0, 60))"""
# What has more text than room, and neither wraps nor scrolls.
CUT_OFF = """() => [...document.querySelectorAll('article *')].filter(e => {
    const style = getComputedStyle(e);
    return ['hidden', 'clip'].includes(style.overflowX) && e.innerText
      && e.clientWidth > 2 && e.scrollWidth > e.clientWidth + 1
      && !e.closest('mjx-assistive-mml, .visually-hidden'); }
  ).map(e => e.tagName + ' ' + e.className + ' '
        + e.textContent.trim().slice(0, 60))"""
WIDER = "document.documentElement.scrollWidth > innerWidth"
UNSET_MATH = """() => document.querySelectorAll(
  '.math:not(:has(mjx-container)), mjx-merror').length"""
# A chapter has thousands of coloured words of code and parts of formulas. Of
# texts that are alike in every tag, class and style above them, the first is
# looked at for its colours; code that is alike becomes one text; and a formula
# takes the colour of its text (a test says so).
THIN_OUT = """() => {
  document.querySelectorAll('mjx-math').forEach(e => e.remove());
  const seen = new Set();
  for (const e of document.querySelectorAll('body *')) {
    if (![...e.childNodes].some(n => n.nodeType === 3 && n.data.trim()))
      continue;
    let kind = '';
    for (let p = e; p; p = p.parentElement) {
      kind += [p.tagName, p.className, p.getAttribute('style'), ''].join('/');
      if (p.tagName === 'TR')
        kind += [...p.parentElement.children].indexOf(p) % 2;
    }
    if (!seen.has(kind)) e.dataset.look = '';
    else if (e.matches('.highlight pre span:not(:has(*))'))
      e.replaceWith(e.textContent);
    seen.add(kind);
  } }"""
#: The rules of axe that look at colours; all others do not depend on them.
OF_COLOURS = ["color-contrast", "link-in-text-block"]


@pytest.fixture(scope="module")
def server():
    assert (SITE / "intro.html").exists(), "there is no site: run make book"
    with serve(SITE, BELOW) as started:
        yield started


@pytest.fixture(scope="module")
def address(server):
    return server.address


@pytest.fixture(scope="module")
def rules():
    """The text of axe-core, which says what is wrong for whom."""
    package = pytest.importorskip("axe_playwright_python")
    return next(Path(package.__file__).parent.rglob("axe*.js")).read_text(
        "utf8")


@pytest.fixture
def opened(browser, server, address):
    """Open pages in windows of one's own; nothing may be left to complain."""
    contexts, complaints = [], []

    def listen(page):
        page.on("console", lambda message: complaints.append(message.text)
                if message.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        # What a page still fetches when it is left is given up: no fault.
        page.on("requestfailed", lambda request: complaints.append(
            f"failed: {request.url} {request.failure}")
            if request.failure != "net::ERR_ABORTED" else None)
        page.on("response", lambda response: complaints.append(
            f"{response.status}: {response.url}")
            if response.status >= 400 else None)
        page.on("request", lambda request: complaints.append(
            f"another host: {request.url}")
            if not request.url.startswith((f"{address}/", "data:")) else None)

    def visit(name, scheme="light", **window):
        context = browser.new_context(color_scheme=scheme, **(window or DESK))
        context.set_default_timeout(60_000)
        contexts.append(context)
        page = context.new_page()
        listen(page)
        server.sent.clear()
        page.goto(f"{address}/{name}")
        page.evaluate(READY)
        return page

    yield visit
    for context in contexts:
        context.close()
    assert not complaints


def violations(page, rules, *, colours_only=False):
    """What axe finds wrong, once all colours have stopped changing."""
    page.evaluate("() => Promise.all(document.getAnimations().map("
                  "moving => moving.finished.catch(() => 0)))")
    if not page.evaluate("'axe' in window"):
        page.evaluate(THIN_OUT)
        page.evaluate(rules)
    # Without a preload, which would fetch style sheets from wrong places.
    options = {"preload": False, "resultTypes": ["violations"]}
    found = page.evaluate(
        "options => axe.run({include: [['[data-look]']]}, options)",
        {**options, "runOnly": OF_COLOURS})["violations"]
    if not colours_only:
        found += page.evaluate("options => axe.run(document, options)", {
            **options, "rules": {name: {"enabled": False}
                                 for name in OF_COLOURS}})["violations"]
    return [(fault["id"], node["target"], node["html"][:200])
            for fault in found for node in fault["nodes"]]


def emulate(page, scheme):
    page.emulate_media(color_scheme=scheme)
    page.wait_for_function(
        f"document.documentElement.dataset.theme === '{scheme}'")


# --- every page --------------------------------------------------------------

@pytest.mark.parametrize("name", PAGES + MADE)
def test_page_is_sound_on_a_desk(name, opened, rules, server):
    page = opened(f"{name}.html")
    weight = sum(size for _, size in server.sent)
    assert weight <= (HEAVIEST if name in NOTEBOOKS else HEAVIEST_BESIDE)
    assert page.evaluate(UNSET_MATH) == 0
    assert not page.evaluate(STICKS_OUT)
    assert not page.evaluate(WIDER)
    assert not violations(page, rules)
    emulate(page, "dark")
    assert not violations(page, rules, colours_only=True)
    # Twice as large, a window has half the room.
    page.set_viewport_size({"width": 640, "height": 450})
    assert not page.evaluate(STICKS_OUT)
    assert not page.evaluate(CUT_OFF)
    assert not page.evaluate(WIDER)


@pytest.mark.parametrize("name", PAGES + MADE)
def test_page_is_sound_on_a_phone(name, opened, rules):
    page = opened(f"{name}.html", "dark", **PHONE)
    assert page.evaluate(UNSET_MATH) == 0
    assert not page.evaluate(STICKS_OUT)
    assert not page.evaluate(CUT_OFF)
    assert not page.evaluate(WIDER)
    assert not violations(page, rules)
    emulate(page, "light")
    assert not violations(page, rules, colours_only=True)


def test_rules_are_tried(opened, rules):
    """The checks above can fail."""
    page = opened("intro.html")
    page.evaluate("""() => document.querySelector('article').innerHTML =
      '<h1>Faults</h1><p style="color: #ddd">pale</p><img src="data:,">'
      + '<p style="width: 3000px">wide</p><div style="width: 50px; '
      + 'overflow: hidden; white-space: nowrap">much too long</div>'""")
    found = {fault for fault, *_ in violations(page, rules)}
    assert {"color-contrast", "image-alt"} <= found
    assert page.evaluate(STICKS_OUT)
    assert page.evaluate(CUT_OFF)
    assert page.evaluate(WIDER)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_formulas_have_the_colour_of_their_text(scheme, opened):
    page = opened(f"{CHAPTER}.html", scheme)
    assert page.locator("article mjx-math").count() > 10
    assert page.evaluate("""() => [...document.querySelectorAll('mjx-math')
      ].every(e => getComputedStyle(e).color
                === getComputedStyle(e.closest('.math').parentNode).color)""")


def test_formulas_move_nothing(opened):
    """What a link names stays where it is, and the page is still."""
    page = opened(f"{FORMULAS}.html#summary")
    where = page.locator("#summary h2")
    first = where.bounding_box()["y"]
    assert 0 <= first < DESK["viewport"]["height"]
    page.wait_for_load_state("networkidle")
    assert abs(where.bounding_box()["y"] - first) <= 2
    page = opened(f"{FORMULAS}.html")
    page.wait_for_load_state("networkidle")
    moved = page.evaluate("""() => new Promise(tell => {
      let sum = 0;
      new PerformanceObserver(found => {
        for (const shift of found.getEntries()) sum += shift.value;
      }).observe({type: 'layout-shift', buffered: true});
      setTimeout(() => tell(sum), 500); })""")
    assert moved < 0.1  # what readers are said not to notice


# --- finding one's way -------------------------------------------------------

def test_search_finds_the_chapter(opened):
    page = opened("search.html?q=padding+mask")
    page.wait_for_selector("#search-results li a")
    page.wait_for_function(
        "document.querySelector('#search-summary, #search-results p')"
        "?.textContent.match(/\\d+ page/)")
    first = page.locator("#search-results li a", has_text="Masks").first
    first.click()
    page.wait_for_url(re.compile(f".*{CHAPTER}.html.*"))
    assert "Masks" in page.locator("article h1").inner_text()


# What a reader asks, and where the answer is; it must be among the first.
ASKED = {
    "my softmax row is all NaN": "chapters/06_masks.html#a-query-that-may-att",
    "what does True mean in a mask": "chapters/conventions.html#masks",
    "112 divided by 8": "chapters/02_scoring_one_word.html#step-3",
    "112": "chapters/02_scoring_one_word.html#step-2",
    "KV cache memory per token": "chapters/16_decoding.html#bytes-for-each-t",
    "GQA": "chapters/glossary.html#term-grouped-query-attention",
    "exercise causal mask": "chapters/06_masks.html#ex-causal-mask",
    "how is my answer checked?": "chapters/take_away.html#run-a-chapter-chec",
    "多头": "chapters/glossary.html#term-multi-head-attention",
    "查询": "chapters/glossary.html#term-query",
}
FIRST = 6


@pytest.mark.parametrize("asked", ASKED)
def test_search_leads_to_the_section_that_answers(asked, opened):
    page = opened("search.html?" + urlencode({"q": asked}))
    page.wait_for_function("/place/.test(document.querySelector("
                           "'#search-results .search-summary')?.innerText)")
    found = [link.get_attribute("href") for link in
             page.locator("#search-results li a").all()]
    assert any(address.startswith(ASKED[asked])
               for address in found[:FIRST]), found
    assert len(found) == len(set(found)) <= 20
    # Words that say nothing of the matter are not marked in "small".
    page.locator("#search-results li a").first.click()
    page.wait_for_url("**/chapters/**")
    assert page.locator("article .highlighted", has_text=re.compile(
        "^(my|is|all|in|a|by)$", re.IGNORECASE)).count() == 0


def test_search_says_when_it_finds_nothing(opened):
    page = opened("search.html?q=zzqxyv")
    page.wait_for_function("/Nothing was found/.test(document.querySelector("
                           "'#search-results .search-summary')?.innerText)")
    assert page.locator("#search-results li").count() == 0


def test_search_without_the_pages_lists_what_sphinx_finds(opened):
    page = opened("intro.html")
    page.route("**/chapters/*.html", lambda route: route.fulfill(
        body="", content_type="text/html"))
    page.evaluate("location.href = 'search.html?q=padding+mask'")
    page.wait_for_selector("#search-results li a:text('6. Masks')")


@pytest.mark.parametrize("window", [DESK, PHONE], ids=["desk", "phone"])
def test_lens_does_not_hide_what_is_typed(window, opened):
    page = opened("search.html?q=mask", **window)
    form = page.locator("form.bd-search:visible").first
    lens = form.locator("i, svg").first.bounding_box()
    field = form.locator("input").first
    room = field.evaluate("e => parseFloat(getComputedStyle(e).paddingLeft)")
    assert lens["x"] + lens["width"] <= field.bounding_box()["x"] + room


def test_search_leaves_the_lists_beside_the_text_alone(opened):
    page = opened("search.html?q=masks")
    page.wait_for_selector("#search-results li a")
    page.locator("#search-results li a", has_text="6. Masks").first.click()
    page.wait_for_selector(".bd-sidebar-primary .highlighted")
    assert page.evaluate("""() => [...document.querySelectorAll(
      '.bd-sidebar-primary .highlighted')].every(e => getComputedStyle(
        e).backgroundColor === 'rgba(0, 0, 0, 0)')""")


def test_landing_page_says_at_once_for_whom_how_long_and_where_to_begin(
        opened):
    page = opened("intro.html")
    height = page.viewport_size["height"]
    for words in ("For", "Time:", "To read"):
        box = page.locator("article strong", has_text=words).first
        assert box.bounding_box()["y"] < height, words
    for name in ("Start with chapter 1", "I have a question"):
        assert page.get_by_role("link", name=name
                                ).first.bounding_box()["y"] < height


def test_phone_keeps_the_first_column_of_a_wide_table(opened):
    page = opened("chapters/conventions.html", **PHONE)
    box = page.locator(".pst-scrollable-table-container", has=page.locator(
        "th", has_text="True in a boolean mask")).first
    name = box.locator("tbody tr td").first
    before = name.bounding_box()
    assert before["width"] < 0.5 * page.viewport_size["width"]
    box.evaluate("e => { e.scrollLeft = 60; }")
    assert box.evaluate("e => e.scrollLeft") > 0
    assert name.bounding_box()["x"] == pytest.approx(before["x"], abs=1)


def test_chapter_can_be_searched_for_from_any_page(opened):
    page = opened(f"{PAGES[1]}.html")
    page.keyboard.press("Control+k")
    page.locator("#pst-search-dialog input").fill("padding mask")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile(r".*search\.html\?q=padding\+mask"))
    page.wait_for_selector("#search-results li a")


def test_phone_has_a_menu(opened, rules):
    page = opened(f"{CHAPTER}.html", **PHONE)
    page.locator(".primary-toggle:visible").first.click()
    menu = page.locator("#pst-primary-sidebar-modal")
    menu.get_by_role("link", name="Combining heads").wait_for()
    assert not page.evaluate(WIDER)
    assert not violations(page, rules)
    page.keyboard.press("Escape")
    menu.wait_for(state="hidden")
    page.locator(".primary-toggle:visible").first.click()
    menu.get_by_role("link", name="Combining heads").click()
    page.wait_for_url("**/07_combining_heads.html")


def test_wide_formulas_begin_at_their_left(opened):
    page = opened("chapters/17_many_machines.html", **PHONE)
    begins, scrolls = page.evaluate("""() => {
      const boxes = [...document.querySelectorAll('article div.math')];
      return [boxes.map(box => Math.min(...[...box.children].map(
                e => e.getBoundingClientRect().left))
                - box.getBoundingClientRect().left),
              boxes.filter(e => e.scrollWidth > e.clientWidth).length]}""")
    assert scrolls
    assert min(begins) > -1


def test_reader_can_choose_the_colours(opened):
    page = opened("intro.html")
    seen = set()
    for _ in range(3):
        seen.add(page.locator("html").get_attribute("data-theme"))
        page.locator(".theme-switch-button:visible").first.click()
    assert seen == {"light", "dark"}


@pytest.mark.parametrize("name", ["intro", CHAPTER, "chapters/api_course"])
def test_keyboard_shows_where_it_is(name, opened):
    page = opened(f"{name}.html")
    unseen, visited = [], set()
    for _ in range(80):
        page.keyboard.press("Tab")
        where = page.evaluate("""() => {
          const e = document.activeElement, style = getComputedStyle(e);
          const box = e.getBoundingClientRect();
          return {what: e.outerHTML.slice(0, 120),
            seen: style.outlineStyle !== 'none'
              && parseFloat(style.outlineWidth) >= 2
              && box.width > 0 && box.height > 0,
            body: e === document.body}; }""")
        visited.add(where["what"])
        if not (where["seen"] or where["body"]):
            unseen.append(where["what"])
    assert not unseen
    assert len(visited) > 20


def test_reader_can_skip_to_the_text(opened):
    page = opened(f"{CHAPTER}.html")
    page.keyboard.press("Tab")
    assert page.locator("#pst-skip-link a").evaluate(
        "e => e === document.activeElement && e.offsetParent !== null")
    page.keyboard.press("Enter")
    assert urlsplit(page.url).fragment == "main-content"


def test_motion_is_left_out_for_who_wants_none(opened):
    page = opened(f"{EXPLORED[0]}.html", **DESK, reduced_motion="reduce")
    moving = page.evaluate("""() => [...document.querySelectorAll('*')].filter(
      e => ['', '::before', '::after'].some(part => {
        const style = getComputedStyle(e, part || null);
        return [style.transitionDuration, style.animationDuration].some(
          times => times.split(',').some(time => parseFloat(time) > 0.01));
      })).map(e => e.outerHTML.slice(0, 90))""")
    assert not moving
    assert page.evaluate("getComputedStyle(document.documentElement)"
                         ".scrollBehavior") == "auto"


# --- what a chapter can do ---------------------------------------------------

def test_explorer_answers_in_its_chapter(opened):
    page = opened(f"{EXPLORED[0]}.html")
    explorer = page.locator(f"#{EXPLORED[1]}")
    before = explorer.locator("output").inner_text()
    explorer.locator("input[type=range], button, input").first.focus()
    page.keyboard.press("End")
    assert explorer.locator("output").inner_text() != before


def test_explorer_says_its_keys_and_where_its_slider_stands(opened):
    chapter, name = EXPLORED
    page = opened(f"{chapter}.html")
    explorer = page.locator(f"#{name}")
    assert "arrow keys" in explorer.locator(".explorer-keys").inner_text()
    slider = explorer.locator("input[type=range]")
    value = explorer.locator(".explorer-value")
    first = value.inner_text()
    assert first == slider.get_attribute("aria-valuetext")
    slider.focus()
    page.keyboard.press("ArrowLeft")
    page.wait_for_function(
        "old => document.querySelector('.explorer-value').textContent !== old",
        arg=first)
    assert value.inner_text() == slider.get_attribute("aria-valuetext")


def test_code_can_be_copied(opened):
    page = opened(f"{CHAPTER}.html")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    code = page.locator("article .cell_input .highlight").first
    code.hover()
    code.locator("button.copybtn").click()
    page.wait_for_selector(".copybtn.success")
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied.strip() == code.locator("pre").inner_text().strip()


def test_solution_opens_by_keyboard(opened):
    page = opened(f"{CHAPTER}.html")
    folded = page.locator("article details").first
    assert not folded.evaluate("e => e.open")
    folded.locator("summary").focus()
    page.keyboard.press("Enter")
    assert folded.evaluate("e => e.open")


def test_page_can_be_read_without_scripts(browser, address):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(f"{address}/{PAGES[1]}.html")
    assert page.locator("article h1").is_visible()
    assert page.locator("article .cell_input").first.is_visible()
    assert page.locator("article img").first.is_visible()
    assert page.locator("article mjx-math").first.is_visible()
    assert page.evaluate(UNSET_MATH) == 0
    # The icons are letters of a font.
    assert page.evaluate("""() => document.fonts.load(
      '900 16px "Font Awesome 6 Free"', '\\uf0c9')
      .then(fonts => fonts.length)""") == 1
    context.close()


def test_every_icon_is_drawn(opened):
    """No page names an icon that the small font has not."""
    page = opened(f"{CHAPTER}.html")
    for name in ("intro", CHAPTER, "chapters/api_course", "search"):
        page.goto(f"{page.url.split(BELOW)[0]}{BELOW}/{name}.html")
        page.evaluate(READY)
        signs = page.evaluate("""() => [...document.querySelectorAll(
          '.fa-solid, .admonition-title')].map(e => [e.className,
            getComputedStyle(e, e.matches('.fa-solid') ? '::before'
                                                       : '::after').content])
          """)
        named = [(name, sign.strip('"')) for name, sign in signs
                 if "fa-solid" in name or sign != "none"]
        assert named
        assert not [(name, sign) for name, sign in named
                    if len(sign) != 1 or ord(sign) not in font_signs()]


@functools.cache
def font_signs():
    from fontTools.ttLib import TTFont
    fonts = SITE / "_static/vendor/fontawesome/webfonts"
    return set(TTFont(fonts / "fa-solid-900.woff").getBestCmap())


def test_paper_shows_the_text_alone(opened):
    page = opened(f"{CHAPTER}.html")
    page.emulate_media(media="print")
    for aside in ("#pst-primary-sidebar", "#pst-secondary-sidebar",
                  ".bd-header-article", ".prev-next-footer", ".copybtn",
                  "#pst-back-to-top"):
        assert page.locator(f"{aside}:visible").count() == 0, aside
    folded = page.locator("article details > :not(summary)")
    assert folded.count() > 5
    assert folded.evaluate_all(
        "nodes => nodes.filter(e => e.offsetHeight < 5).length") == 0
    light = page.evaluate(
        "getComputedStyle(document.querySelector('article p')).color")
    assert max(map(int, re.findall(r"\d+", light)[:3])) < 110  # dark ink
    assert page.pdf()[:5] == b"%PDF-"


def test_served_from_the_root_it_works_as_well(browser):
    with serve(SITE) as server:
        page = browser.new_page()
        page.goto(f"{server.address}/")
        page.wait_for_url("**/intro.html")
        page.goto(f"{server.address}/{CHAPTER}.html")
        page.evaluate(READY)
        assert page.evaluate(UNSET_MATH) == 0
        page.close()
        assert not server.missing
