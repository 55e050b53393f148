"""What a first visit costs, for each kind of page: bytes and time.

Measured with packed answers and an empty cache, as most hosts serve. ``pytest
-s`` shows what was measured. The bounds on time are wide, since other work may
run beside; test_browser.py weighs every page.
"""

import statistics

import pytest

from site_server import serve
from test_site import NOTEBOOKS, SITE

pytestmark = pytest.mark.browser

KINDS = {"landing page": "intro",
         "chapter with formulas": "chapters/04_softmax_and_scale",
         "chapter with figures": "chapters/06_masks",
         "chapter with a real model": "chapters/12_heads_of_a_real_model",
         "page of reference": "chapters/notation",
         "page of code": "chapters/api_numpy_reference"}
HEAVIEST = {"landing page": 700, "page of reference": 500,
            "page of code": 300}  # kB; a chapter: 900
SLOWEST = 20_000  # ms: on a busy machine only a page that hangs fails


@pytest.fixture(scope="module")
def server():
    assert (SITE / "intro.html").exists(), "there is no site: run make book"
    with serve(SITE) as started:
        yield started


def first_visit(browser, server, name):
    """Give kB, ms to the first text, and ms until all is loaded."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    context.set_default_timeout(60_000)
    page = context.new_page()
    server.sent.clear()
    page.goto(f"{server.address}/{name}.html", wait_until="load")
    loaded, painted = page.evaluate("""() => [
      performance.getEntriesByType('navigation')[0].loadEventEnd,
      performance.getEntriesByName('first-contentful-paint')[0]?.startTime
      ?? 0]""")
    page.evaluate("() => window.MathJax && MathJax.startup "
                  "&& MathJax.startup.promise")
    page.wait_for_load_state("networkidle")
    context.close()
    return sum(size for _, size in server.sent) / 1000, painted, loaded


@pytest.mark.parametrize("kind", KINDS)
def test_first_visit_is_light_and_quick(kind, browser, server):
    visits = [first_visit(browser, server, KINDS[kind]) for _ in range(3)]
    size = max(visit[0] for visit in visits)
    painted, loaded = (statistics.median(visit[part] for visit in visits)
                       for part in (1, 2))
    print(f"\n{kind}: {size:.0f} kB, first text after {painted:.0f} ms, "
          f"loaded after {loaded:.0f} ms")
    assert 50 < size <= HEAVIEST.get(kind, 900)
    assert loaded < SLOWEST


def test_second_page_asks_for_little(browser, server):
    context = browser.new_context()
    context.set_default_timeout(60_000)
    page = context.new_page()
    page.goto(f"{server.address}/{NOTEBOOKS[0]}.html")
    page.wait_for_load_state("networkidle")
    server.sent.clear()
    page.goto(f"{server.address}/{NOTEBOOKS[1]}.html")
    page.wait_for_load_state("networkidle")
    context.close()
    assert not [path for path, _ in server.sent
                if path.endswith((".js", ".css", ".woff"))
                and "/output/" not in path]  # a font for another formula


def test_no_icon_is_heavy():
    files = [path for path in SITE.rglob("*")
             if "fontawesome" in path.as_posix() and path.is_file()]
    assert files
    assert not [path for path in files if path.stat().st_size > 20_000]
