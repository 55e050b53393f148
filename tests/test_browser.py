"""What a reader's browser does with the built site (make test ALL=1)."""

import functools
import http.server
import shutil
import threading

import pytest

from test_site import PAGES, SITE

pytestmark = pytest.mark.browser

#: (colour scheme, width of the window): a desk by day and by night, a phone.
WINDOWS = [("light", 1280), ("dark", 1280), ("light", 390)]
#: The theme's own: the title above the navigation is in no landmark.
NOT_OURS = {"region"}

# What sticks out of the window, unless it scrolls in a box of its own.
STICKS_OUT = """() => [...document.querySelectorAll('article *')].filter(
  e => e.getBoundingClientRect().right > innerWidth + 1
    && !e.closest('pre, mjx-container, .math, .output, .headerlink, '
                  + '.pst-scrollable-table-container')
  ).map(e => e.tagName + ' ' + e.textContent.trim().slice(0, 60))"""
UNSET_MATH = """() => document.querySelectorAll(
  '.math:not(:has(mjx-container)), mjx-merror').length"""


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *arguments):
        pass


@pytest.fixture(scope="module")
def address():
    """The site, served to this machine alone."""
    assert (SITE / "intro.html").exists(), "there is no site: run make book"
    handler = functools.partial(Quiet, directory=str(SITE))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def browser():
    sync_api = pytest.importorskip("playwright.sync_api")
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        pytest.skip("Chromium is not installed")
    with sync_api.sync_playwright() as playwright:
        started = playwright.chromium.launch(
            executable_path=chromium, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture(scope="module", params=WINDOWS,
                ids=lambda window: f"{window[0]}-{window[1]}")
def window(request, browser):
    scheme, width = request.param
    context = browser.new_context(
        viewport={"width": width, "height": 900}, color_scheme=scheme)
    yield context
    context.close()


@pytest.fixture
def tab(window):
    page = window.new_page()
    page.complaints, page.strangers = [], []
    page.on("console", lambda message: page.complaints.append(message.text)
            if message.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: page.complaints.append(str(error)))
    page.on("requestfailed",
            lambda request: page.complaints.append(request.url))
    page.on("request", lambda request: page.strangers.append(request.url)
            if not request.url.startswith(("http://127.0.0.1:", "data:"))
            else None)
    yield page
    page.close()


@pytest.mark.parametrize("name", PAGES)
def test_page_is_sound(name, tab, address):
    tab.goto(f"{address}/{name}.html")
    tab.wait_for_load_state("networkidle")
    assert not tab.complaints
    assert not tab.strangers
    assert tab.evaluate(UNSET_MATH) == 0
    assert not tab.evaluate(STICKS_OUT)
    assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth")
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    # A phone shows the same page; what is new there is what scrolls.
    phone = tab.viewport_size["width"] < 600
    rules = {"runOnly": ["scrollable-region-focusable"]} if phone else None
    found = axe.Axe().run(tab, options=rules or {}).response["violations"]
    assert not [(fault["id"], node["html"][:200]) for fault in found
                if fault["id"] not in NOT_OURS for node in fault["nodes"]]


def test_search_finds_the_chapter(tab, address):
    tab.goto(f"{address}/search.html?q=causal+mask")
    tab.wait_for_selector("#search-results li a")
    results = tab.locator("#search-results li a").all_inner_texts()
    assert any("Masks" in text for text in results)
    assert not tab.complaints
    assert not tab.strangers


def test_reader_can_choose_the_colours(tab, address, window):
    tab.goto(f"{address}/intro.html")
    seen = set()
    for _ in range(3):
        seen.add(tab.locator("html").get_attribute("data-theme"))
        tab.locator(".theme-switch-button:visible").first.click()
    assert seen == {"light", "dark"}


def test_page_can_be_read_without_scripts(browser, address):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(f"{address}/{PAGES[1]}.html")
    assert page.locator("article h1").is_visible()
    assert page.locator("article .cell_input").first.is_visible()
    assert page.locator("article img").first.is_visible()
    context.close()
