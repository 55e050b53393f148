"""The cell that fetches the course in Colab, tried without Colab."""

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tools"))

import colab  # noqa: E402

# What the kernel in Colab has that others have not, and a reader who pastes.
BEFORE = """
import builtins, sys, types
sys.modules["google"] = types.ModuleType("google")
sys.modules["google.colab"] = types.ModuleType("google.colab")
builtins.input = lambda prompt: {address!r}
"""
# Instead of fetching: say what would be fetched, and make the folders.
RECORD = """
import os, subprocess
def run(command, check):
    assert check is True
    os.makedirs("self-attention-course/chapters")
    print(*command[1:], sep="\\n")
subprocess.run = run
"""
AFTER = """
print(os.getcwd())
print(sys.path[0])
"""
SITE = "https://colab.research.google.com/github/ada/my.course"
PAGES = [
    (f"{SITE}/blob/main/chapters/06_masks.ipynb", "@main"),
    (f"{SITE}/blob/main/chapters/06_masks.ipynb#scrollTo=x1", "@main"),
    (f"{SITE}/blob/my/branch/chapters/06_masks.ipynb?hl=en", "@my/branch"),
    (f"{SITE}/blob/0123abc/chapters/conventions.ipynb", "@0123abc"),
    ("https://github.com/ada/my.course", ""),
    (" https://github.com/ada/my.course/ ", ""),
    ("https://github.com/ada/my.course/tree/main", "@main"),
    ("https://github.com/ada/my.course/blob/main/chapters/06_masks.ipynb",
     "@main"),
]


def run(script, folder, **environment):
    return subprocess.run([sys.executable, "-c", script], cwd=folder,
                          capture_output=True, text=True, timeout=300,
                          env=os.environ | environment)


def test_cell_is_inert_elsewhere(tmp_path):
    done = run(
        "import os, sys; sys.modules['subprocess'] = None\n"
        "before = set(sys.modules), os.getcwd(), list(sys.path)\n"
        f"exec({colab.SOURCE!r}, names := {{}})\n"
        "assert before == (set(sys.modules), os.getcwd(), list(sys.path))\n"
        "assert set(names) == {'__builtins__', 'sys'}", tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("address", "ref"), PAGES)
def test_repository_is_that_of_the_page(address, ref, tmp_path):
    done = run(BEFORE.format(address=address) + RECORD + colab.SOURCE + AFTER,
               tmp_path)
    assert done.returncode == 0, done.stderr
    *command, folder, first = done.stdout.splitlines()
    assert command == [
        "-m", "pip", "install", "-q", "--src=.", "-e",
        f"git+https://github.com/ada/my.course{ref}"
        "#egg=self-attention-course"]
    assert Path(folder) == tmp_path / "self-attention-course" / "chapters"
    assert Path(first) == tmp_path / "self-attention-course" / "src"


@pytest.mark.parametrize("address", [
    "", "https://colab.research.google.com/drive/1aB", "ada/my.course",
    "https://example.org/ada/my.course"])
def test_other_address_is_refused_in_words(address, tmp_path):
    done = run(BEFORE.format(address=address) + RECORD + colab.SOURCE,
               tmp_path)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        "ValueError: It must name the course's repository on GitHub.")
    assert not list(tmp_path.iterdir())


def test_cell_asks_once_a_session(tmp_path):
    done = run(BEFORE.format(address="never asked").replace(
        "lambda prompt:", "lambda prompt: 1 / 0 or") + "import course\n"
        + colab.SOURCE, tmp_path)
    assert done.returncode == 0, done.stderr


def test_package_has_the_name_that_the_cell_asks_for():
    text = (ROOT / "pyproject.toml").read_text("utf8")
    assert '\nname = "self-attention-course"\n' in text
    assert colab.SOURCE.count("self-attention-course") == 3


def test_tool_gives_every_notebook_the_same_cell_once():
    text = (ROOT / "chapters" / "06_masks.ipynb").read_text("utf8")
    once = colab.updated(text)
    assert colab.updated(once) == once
    assert once.count('"id": "code-colab"') == 1
    stale = once.replace("Anywhere else it does nothing.", "Else nothing.")
    assert stale != once
    fresh = colab.updated(stale)
    assert fresh.count('"id": "code-colab"') == 1
    assert "Anywhere else it does nothing." in fresh


def test_site_leaves_the_cell_out():
    pages = list((ROOT / "_build" / "html" / "chapters").glob("*.html"))
    assert pages, "there is no site: run make book"
    first = colab.SOURCE.splitlines()[0]
    assert not [page for page in pages if first in page.read_text("utf8")]


@pytest.mark.slow
def test_course_runs_where_the_cell_has_fetched_it(tmp_path):
    """All but GitHub: git and pip do their work, on a local repository."""
    repository = tmp_path / "ada" / "my.course"
    for command in (["clone", "-q", "--no-local", ROOT, repository],
                    ["-C", repository, "checkout", "-q", "-B", "spring"]):
        subprocess.run(["git", *map(str, command)], check=True)
    home, room = tmp_path / "env", tmp_path / "room"
    room.mkdir()
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(home)],
                   check=True)
    # The packages of this environment stand for those that Colab has.
    packages = sysconfig.get_path("purelib")
    script = f"import site; site.addsitedir({packages!r})\n"
    script += BEFORE.format(address=f"{SITE}/blob/spring/chapters/x.ipynb")
    script += colab.SOURCE
    script += """
from course.exercises import progress
from course.records import read_record
assert read_record("learning_record")
assert os.path.exists("data/heads_record.json")
import course
print(course.__file__)
subprocess.run([sys.executable, "-c", "import course; print(course.__file__)"],
               check=True, cwd="/")
"""
    rewrite = f"url.file://{tmp_path}/.insteadOf"
    environment = {
        "GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": rewrite,
        "GIT_CONFIG_VALUE_0": "https://github.com/",
        "PIP_NO_INDEX": "1", "PIP_NO_BUILD_ISOLATION": "0",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PYTHONPATH": packages}
    done = subprocess.run([str(home / "bin" / "python"), "-c", script],
                          cwd=room, env=os.environ | environment,
                          capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    where = room / "self-attention-course" / "src" / "course" / "__init__.py"
    assert done.stdout.splitlines() == [str(where)] * 2
