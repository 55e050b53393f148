"""What a first visit costs, for each kind of page: bytes, work and time.

Measured with packed answers and an empty cache, as most hosts serve. ``pytest
-s`` shows what was measured. A page should be loaded within a second; a clock
would blame a page for other work that runs beside, so what is bounded is the
work: the processor's time that the page's own thread takes until it is loaded.
test_browser.py weighs every page.
"""

import statistics

import pytest

from site_server import serve
from test_site import NOTEBOOKS, SITE

pytestmark = pytest.mark.browser

KINDS = {"landing page": "intro",
         "chapter with formulas": "chapters/04_softmax_and_scale",
         "chapter with figures": "chapters/06_masks",
         "chapter with most formulas": "chapters/10_gradients",
         "chapter with a real model": "chapters/12_heads_of_a_real_model",
         "page of reference": "chapters/notation",
         "page of code": "chapters/api_numpy_reference"}
HEAVIEST = {"landing page": 700, "page of reference": 500,
            "page of code": 300}  # kB; a chapter: 900
MOST_WORK = 1000  # ms
SLOWEST = 20_000  # ms: on a busy machine only a page that hangs fails


@pytest.fixture(scope="module")
def server():
    assert (SITE / "intro.html").exists(), "there is no site: run make book"
    with serve(SITE) as started:
        yield started


def first_visit(browser, server, name):
    """Give kB, ms to the first text, ms of work, ms until all is loaded."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    context.set_default_timeout(60_000)
    page = context.new_page()
    counted = context.new_cdp_session(page)
    counted.send("Performance.enable", {"timeDomain": "threadTicks"})
    server.sent.clear()
    page.goto(f"{server.address}/{name}.html", wait_until="load")
    counts = counted.send("Performance.getMetrics")["metrics"]
    work = next(count["value"] for count in counts
                if count["name"] == "TaskDuration") * 1000
    loaded, painted = page.evaluate("""() => [
      performance.getEntriesByType('navigation')[0].loadEventEnd,
      performance.getEntriesByName('first-contentful-paint')[0]?.startTime
      ?? 0]""")
    page.wait_for_load_state("networkidle")
    context.close()
    return (sum(size for _, size in server.sent) / 1000, painted, work,
            loaded)


@pytest.mark.parametrize("kind", KINDS)
def test_first_visit_is_light_and_quick(kind, browser, server):
    visits = [first_visit(browser, server, KINDS[kind]) for _ in range(3)]
    size = max(visit[0] for visit in visits)
    work = min(visit[2] for visit in visits)
    painted, loaded = (statistics.median(visit[part] for visit in visits)
                       for part in (1, 3))
    print(f"\n{kind}: {size:.0f} kB, first text after {painted:.0f} ms, "
          f"loaded after {loaded:.0f} ms, {work:.0f} ms of work")
    assert 50 < size <= HEAVIEST.get(kind, 900)
    assert 0 < work < MOST_WORK
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
