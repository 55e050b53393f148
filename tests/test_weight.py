"""What a first visit to a page costs: bytes on the line, and time.

Measured with packed answers and an empty cache, as most hosts serve. The
bounds on time are wide, since other work may run beside; ``pytest -s`` shows
what was measured.
"""

import pytest

from site_server import serve
from test_site import NOTEBOOKS, PAGES, SITE

pytestmark = pytest.mark.browser

KILO = 1000
#: Kinds of page and what the first visit may weigh, in kB.
REST = [page for page in PAGES if page not in NOTEBOOKS]
MOST = {"chapter": 900, "other": 700}


@pytest.fixture(scope="module")
def server():
    assert (SITE / "intro.html").exists(), "there is no site: run make book"
    with serve(SITE) as started:
        yield started


def first_visit(browser, server, name):
    """Give (bytes, milliseconds to the load event, to the first text)."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    context.set_default_timeout(60_000)
    page = context.new_page()
    server.sent.clear()
    page.goto(f"{server.address}/{name}.html", wait_until="load")
    page.evaluate("() => window.MathJax && MathJax.startup "
                  "&& MathJax.startup.promise")
    page.wait_for_load_state("networkidle")
    times = page.evaluate("""() => [
      performance.getEntriesByType('navigation')[0].loadEventEnd,
      performance.getEntriesByName('first-contentful-paint')[0]?.startTime
      ?? 0]""")
    context.close()
    return sum(size for _, size in server.sent), *times


@pytest.mark.parametrize("name", PAGES)
def test_first_visit_is_light(name, browser, server):
    size, loaded, painted = first_visit(browser, server, name)
    most = MOST["chapter" if name in NOTEBOOKS else "other"]
    print(f"\n{name}: {size / KILO:.0f} kB, first text after {painted:.0f} "
          f"ms, loaded after {loaded:.0f} ms")
    assert 50 < size / KILO <= most
    assert loaded < 20_000


def test_second_page_sends_little_again(browser, server):
    """What pages share is asked for once."""
    context = browser.new_context()
    page = context.new_page()
    page.goto(f"{server.address}/{NOTEBOOKS[0]}.html")
    page.wait_for_load_state("networkidle")
    server.sent.clear()
    page.goto(f"{server.address}/{NOTEBOOKS[1]}.html")
    page.wait_for_load_state("networkidle")
    again = [path for path, _ in server.sent if path.endswith(".js")
             and "mathjax" in path]
    context.close()
    assert not again


def test_nothing_heavy_is_sent_for_an_icon(server):
    heavy = [path for path in SITE.rglob("*")
             if "fontawesome" in path.as_posix() and path.is_file()
             and path.stat().st_size > 20_000]
    assert not heavy
