"""The environment of Binder, built afresh and used as a reader uses it.

Binder builds an image from ``.binder`` and starts a new copy of it for each
session; nothing that a session wrote is kept. The same is done here without
Docker: a new environment, JupyterLab in it, and Chromium in front.
"""

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
CHAPTER = "02_scoring_one_word.ipynb"
EXERCISE = "scores_of_one_query"
WRONG = "def scores_of_one_query(query, keys):\n    return keys @ query"
RIGHT = f"{WRONG} / query.size ** 0.5"
NEEDED = 4e9  # bytes: the environment and two copies of the sources
PATIENCE = 180  # seconds for anything that a browser waits for

# Of the environment around this test, a reader's session has none.
OURS = re.compile(r"COURSE_|JUPYTER|IPYTHON|PYTHON|VIRTUAL_ENV|MPL|OMP_|"
                  r"TORCH_BACKEND|PIP_REQUIRE_VIRTUALENV")
COMMAND = """([name, patience]) => Promise.race([
  jupyterapp.commands.execute(name), new Promise((_, reject) =>
    setTimeout(() => reject(`${name} takes too long`), patience * 1000))
  ]).then(() => null)"""
# What MyST was written with and the page shows as it stands in the file.
RAW = """() => {
  const shown = tag => [...tag.childNodes].filter(node => node.nodeType === 3)
    .map(node => node.data).join('\\n');
  return [...document.querySelectorAll('.jp-MarkdownCell *')]
    .filter(tag => !tag.closest('.jp-InputArea-editor')
      && /:::|\\{(ref|cite|numref)\\}/.test(shown(tag)))
    .map(tag => tag.textContent.slice(0, 80));
}"""
SCROLL = """async text => {
  const notebook = jupyterapp.shell.currentWidget.content;
  const place = notebook.widgets.findLastIndex(cell =>
    cell.model.type === 'code'
      && cell.model.sharedModel.getSource().includes(text));
  if (place < 0) throw new Error(`no cell has ${text}`);
  await notebook.scrollToItem(place, 'center');
  notebook.activeCellIndex = place;
}"""
# A chapter that is still being loaded can be neither run nor saved.
READY = """() => {
  const panel = window.jupyterapp?.shell.currentWidget;
  const kernel = panel?.sessionContext?.session?.kernel;
  return panel?.context.isReady && !panel.context.model.readOnly
    && panel.sessionContext.isReady && kernel?.status === 'idle'
    && kernel.connectionStatus === 'connected';
}"""
OFFLINE = re.compile(r"Name or service not known|NewConnectionError|"
                     r"No route to host|Network is unreachable|"
                     r"Temporary failure in name resolution")


def test_packages_stand_where_binder_looks_for_them():
    text = (ROOT / ".binder" / "requirements.txt").read_text("utf8")
    for name in re.findall(r"^--constraint (\S+)$", text, re.M):
        assert (ROOT / ".binder" / name).resolve().is_relative_to(ROOT)
        assert (ROOT / ".binder" / name).is_file()
    assert re.search(r"^jupyterlab-myst==[\d.]+$", text, re.M)
    build = (ROOT / ".binder" / "postBuild").read_text("utf8")
    for name in re.findall(r"-r (\S+)", build):
        assert (ROOT / name).is_file()


# --- an image, and sessions --------------------------------------------------

class Image:
    """What Binder would keep: an environment, and the sources beside it."""

    def __init__(self, folder):
        self.folder = folder
        self.bin = folder / "env" / "bin"
        self.sources = folder / "sources"  # as built; no session writes here
        self.repository = folder / "repository"

    def build(self):
        """Do what the Dockerfile of repo2docker does, in its order."""
        export(self.repository)
        version = (ROOT / ".binder/runtime.txt").read_text("utf8").strip()
        python = (shutil.which(version.replace("-", ""))
                  or sys._base_executable)
        self.run(python, "-m", "venv", self.folder / "env")
        pip = (self.bin / "python", "-m", "pip", "install", "-q")
        self.run(*pip, "-r", ROOT / "requirements" / "binder.txt")
        self.run(*pip, "-r", ".binder/requirements.txt")
        self.run("./.binder/postBuild")
        shutil.copytree(self.repository, self.sources)

    def run(self, *command):
        done = subprocess.run([str(part) for part in command], text=True,
                              cwd=self.repository, env=self.environment(),
                              capture_output=True, timeout=900)
        if done.returncode:
            raise RuntimeError(f"{command[-1]}:\n{done.stdout[-1000:]}"
                               f"\n{done.stderr[-3000:]}")

    def environment(self, **more):
        kept = {key: value for key, value in os.environ.items()
                if not OURS.match(key)}
        return {**kept, "PATH": f"{self.bin}{os.pathsep}{kept['PATH']}",
                **more}

    @contextlib.contextmanager
    def session(self, number):
        """Start JupyterLab in a new copy of the sources; give its address."""
        shutil.rmtree(self.repository)
        shutil.copytree(self.sources, self.repository)
        home = self.folder / f"home-{number}"
        home.mkdir()
        port, token = free_port(), f"session{number}"
        command = [self.bin / "jupyter", "lab", "--no-browser", "--allow-root",
                   "--LabApp.expose_app_in_browser=True",
                   "--ip=127.0.0.1", f"--port={port}",
                   f"--IdentityProvider.token={token}"]
        with (home / "lab.log").open("w") as log:
            server = subprocess.Popen(
                [str(part) for part in command], cwd=self.repository,
                env=self.environment(HOME=str(home)), stdout=log, stderr=log,
                start_new_session=True)
        try:
            wait_for(f"http://127.0.0.1:{port}/api/status?token={token}",
                     server, home / "lab.log")
            yield (f"http://127.0.0.1:{port}/lab/tree/chapters/{CHAPTER}"
                   f"?token={token}")
        finally:
            stop(server)


def export(folder):
    """Copy what git keeps, or would, to a folder."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others",
         "--exclude-standard"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("the sources are not in git, so not all are known")
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_for(address, server, log):
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end and server.poll() is None:
        with contextlib.suppress(OSError):
            urllib.request.urlopen(address, timeout=5).close()
            return
        time.sleep(0.3)
    pytest.fail(f"JupyterLab did not start:\n{log.read_text()[-3000:]}")


def stop(server):
    """End the server with its kernels: they are its process group."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(server.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            server.wait(15)


# --- a reader, and the page --------------------------------------------------

class Reader:
    """Someone before JupyterLab, with a mouse and a keyboard."""

    def __init__(self, page, repository):
        self.page = page
        self.file = repository / "chapters" / CHAPTER
        page.set_default_timeout(PATIENCE * 1000)

    def open(self, address):
        self.page.goto(address)
        self.page.wait_for_selector(".jp-Notebook .jp-Cell")
        self.page.get_by_role("button", name="No", exact=True).click()  # news
        self.page.wait_for_function(READY)

    def command(self, name):
        """Do what a menu's item would, and wait until it is done."""
        self.page.evaluate(COMMAND, [name, PATIENCE])

    def run_all(self):
        """Clear and run all cells; give the code cells of the saved file."""
        self.command("notebook:clear-all-cell-outputs")
        self.command("docmanager:save")
        assert not any(cell["execution_count"] for cell in self.code())
        self.command("notebook:run-all-cells")
        self.command("docmanager:save")
        return self.code()

    def code(self):
        cells = json.loads(self.file.read_text("utf8"))["cells"]
        return [cell for cell in cells if cell["cell_type"] == "code"]

    def cell(self, text):
        """Scroll to the last code cell with this text, and choose it."""
        self.page.evaluate(SCROLL, text)
        cell = self.page.locator(".jp-Notebook .jp-CodeCell.jp-mod-active")
        cell.locator(".cm-content").wait_for()
        return cell

    def write(self, cell, source):
        """Write a cell anew, and run it."""
        cell.locator(".cm-content").click()
        self.page.keyboard.press("Control+a")
        self.page.keyboard.insert_text(source)
        self.page.keyboard.press("Shift+Enter")

    def check(self):
        """Run the check of the exercise; give what it says."""
        place = f'check("{EXERCISE}"'
        cell = self.cell(place)
        before = cell.locator(".jp-InputPrompt").inner_text()
        cell.locator(".cm-content").click()
        self.page.keyboard.press("Shift+Enter")
        return self.output(place, before)

    def run(self, source):
        """Run something in a new cell at the end; give its output."""
        self.cell("progress(")
        self.command("notebook:insert-cell-below")
        self.write(self.cell(""), source)
        return self.output(source)

    def output(self, text, before=""):
        """What the cell with this text shows, once it has been run."""
        cell = self.cell(text)
        prompt = cell.locator(".jp-InputPrompt")
        until(lambda: re.fullmatch(r"\[\d+\]:", prompt.inner_text())
              and prompt.inner_text() != before)
        return cell.locator(".jp-OutputArea").inner_text()


def until(happens, pause=0.1):
    end = time.monotonic() + PATIENCE
    while not happens():
        assert time.monotonic() < end, "it takes too long"
        time.sleep(pause)


@pytest.fixture(scope="module")
def image(tmp_path_factory):
    pytest.importorskip("playwright.sync_api")
    if not chromium():
        pytest.skip("Chromium is not installed")
    folder = tmp_path_factory.mktemp("binder")
    if shutil.disk_usage(folder).free < NEEDED:
        pytest.skip(f"less than {NEEDED / 1e9:.0f} GB of the disk are free")
    made = Image(folder)
    try:
        made.build()
    except RuntimeError as error:
        # A reader's machine may be offline; where changes are judged, a
        # build that fails is a build that fails.
        if os.environ.get("CI") or not OFFLINE.search(str(error)):
            raise
        pytest.skip(f"the package index cannot be reached: {error}")
    yield made
    shutil.rmtree(folder)


def chromium():
    return shutil.which("chromium") or shutil.which("google-chrome")


@contextlib.contextmanager
def reader(image, number):
    """A reader who opens the chapter in a session of their own."""
    from playwright.sync_api import sync_playwright
    with image.session(number) as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(),
                                             args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        someone = Reader(page, image.repository)
        someone.open(address)
        try:
            yield someone
        finally:
            browser.close()


@pytest.mark.slow
@pytest.mark.browser
def test_reader_on_binder_keeps_what_was_learned(image):
    with reader(image, 1) as first:
        cells = first.run_all()
        assert len(cells) > 50
        assert not [output for cell in cells for output in cell["outputs"]
                    if output["output_type"] == "error"]
        assert all(cell["execution_count"] for cell in cells)

        first.write(first.cell(f"def {EXERCISE}("), WRONG)
        verdict = first.check()
        assert "Not yet" in verdict
        assert "not divided by √head_dim" in verdict
        box = first.page.locator(".jp-MarkdownCell .myst-exercise")
        assert box.first.is_visible()
        assert not first.page.evaluate(RAW)
        first.write(first.cell(f"def {EXERCISE}("), RIGHT)
        assert "Correct" in first.check()

        told = first.run("from course.exercises import export_progress\n"
                         "print(export_progress())")
        exported = re.search(r"course1:\S+", told)[0]

    with reader(image, 2) as second:
        assert "0 of 5 exercises done" in second.run(
            "from course.exercises import progress\nprogress(2)  # before")
        assert "1 of 5 exercises done" in second.run(
            "from course.exercises import restore_progress\n"
            f'_ = restore_progress("{exported}")\nprogress(2)  # after')
