"""The house: commands, lock, licences, workflows, what a reader is told."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import matplotlib.image
import numpy as np
import pytest
import yaml

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tools"))

import picture  # noqa: E402
import setup  # noqa: E402
from course.figures.style import COLOURS  # noqa: E402


def read(name):
    return (ROOT / name).read_text("utf8")


def run(*command, **options):
    # Run as from a shell: what the make around the tests was told (ALL=1)
    # would otherwise reach the make inside.
    told = {"ALL", "MAKEFLAGS", "MAKELEVEL", "MAKEOVERRIDES",
            "MFLAGS"}
    outside = {name: value for name, value in os.environ.items()
               if name not in told}
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True,
                          timeout=300, **{"env": outside} | options)


def tracked():
    """The files of the repository; without git, all that git would take."""
    listed = run("git", "ls-files", "--cached", "--others",
                 "--exclude-standard", "-z")
    if listed.returncode == 0:
        names = listed.stdout.split("\0")
        return [ROOT / name for name in names if (ROOT / name).is_file()]
    skipped = {".git", ".venv", "_build"}
    return [path for path in ROOT.rglob("*") if path.is_file()
            and not skipped & set(path.relative_to(ROOT).parts)]


# --- commands ----------------------------------------------------------------

@pytest.mark.parametrize("target", ["book", "test"])
def test_readme_names_the_command_and_it_exists(target):
    first = read("README.md").split("\n## ")[0]
    assert f"make {target}" in first
    assert run("make", "--dry-run", target).returncode == 0


def test_every_command_in_prose_exists():
    help_text = run("make", "help").stdout
    known = set(re.findall(r"^  make ([a-z-]+)", help_text, re.M))
    for name in ("README.md", "CONTRIBUTING.md", "intro.md"):
        told = re.findall(r"(?:`|^|&& |\s`)make ([a-z]+)", read(name), re.M)
        assert told
        assert set(told) <= known | {"help"}, name


def test_core_leaves_out_what_needs_more():
    core = run("make", "--dry-run", "test").stdout
    everything = run("make", "--dry-run", "test", "ALL=1").stdout
    assert '-m "not (browser or peer or slow)"' in core
    assert "--nbval" in core
    assert "tests chapters" in core
    assert "--nbval" in everything
    assert '-m "' not in everything
    assert "--peers" in everything


@pytest.mark.parametrize("version", [(2, 7), (3, 6), (3, 9, 18)])
def test_old_python_is_refused_in_one_line(version, monkeypatch, capsys):
    monkeypatch.setattr(sys, "version_info", version)
    assert setup.main([]) == 1
    told = capsys.readouterr()
    assert told.err.startswith("make: Python 3.10 or newer is needed")
    assert told.err.count("\n") == 1


def test_setup_can_be_read_by_an_old_python():
    ast.parse(read("tools/setup.py"), feature_version=(3, 7))


@pytest.fixture
def empty_house(tmp_path, monkeypatch):
    """The files that the environment is made from, and no environment."""
    for name in setup.CORE:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(read(name))
    monkeypatch.setattr(setup, "ROOT", tmp_path)
    monkeypatch.setattr(setup, "VENV", tmp_path / ".venv")
    monkeypatch.setattr(setup, "PYTHON", tmp_path / ".venv/bin/python")
    return tmp_path


def test_missing_venv_is_told_in_one_line(empty_house, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "ensurepip", None)
    assert setup.main([]) == 1
    told = capsys.readouterr().err
    assert "apt install python3-venv" in told
    assert told.count("\n") == 1


def test_ready_environment_is_left_alone(empty_house, monkeypatch):
    monkeypatch.setattr(setup, "make_venv", lambda: pytest.fail("made"))
    monkeypatch.setattr(setup, "run", lambda *command: pytest.fail("ran"))
    (empty_house / ".venv/bin").mkdir(parents=True)
    (empty_house / ".venv/bin/python").touch()
    stamp = empty_house / ".venv/.ready"
    stamp.write_text(setup.key_of(setup.CORE))
    assert setup.main([]) == 0
    # Another lock is another environment.
    (empty_house / "requirements/core.txt").write_text("numpy==1.0\n")
    with pytest.raises(pytest.fail.Exception):
        setup.main([])


def test_failed_setup_is_tried_again(empty_house, monkeypatch):
    tried = []
    monkeypatch.setattr(setup, "make_venv", lambda: 0)
    monkeypatch.setattr(setup, "install_core",
                        lambda files: tried.append(files) or 1)
    assert setup.main([]) == setup.main([]) == 1
    assert len(tried) == 2
    assert not (empty_house / ".venv/.ready").exists()


@pytest.mark.parametrize(("backend", "through_uv"), [("cpu", True),
                                                     ("", False)])
def test_torch_backend_goes_through_uv(backend, through_uv, monkeypatch):
    commands = []
    monkeypatch.setenv("TORCH_BACKEND", backend)
    monkeypatch.setattr(setup, "run",
                        lambda *command: commands.append(command) or 0)
    monkeypatch.setattr(setup.sys, "platform", "linux")
    assert setup.install_core(setup.CORE) == 0
    used = [command for command in commands if "uv" in command]
    assert bool(used) == through_uv
    assert all("--torch-backend=cpu" in command for command in used)
    assert "--editable=." in commands[-1]


# --- versions ----------------------------------------------------------------

def names_in(text):
    found = re.findall(r"^([A-Za-z0-9][\w.-]*)", text, re.M)
    return {name.lower().replace("_", "-") for name in found}


def test_lock_holds_what_is_asked_for_in_exact_versions():
    lines = [line for line in read("requirements/core.txt").splitlines()
             if line and not line.lstrip().startswith("#")]
    assert all(re.match(r"[\w.-]+==[\w.!+]+( ; .+)?$", line)
               for line in lines)
    locked = names_in("\n".join(lines))
    assert names_in(read("requirements/core.in")) <= locked
    assert not locked & {"torch", "triton"}
    assert not [name for name in locked if name.startswith(("nvidia", "cuda"))]
    assert re.fullmatch(r"torch==[\d.]+\n", read("requirements/torch.txt"))


def test_lock_was_made_from_what_is_asked_for():
    told = set(re.findall(r"^([\w.-]+)==[^#]*?# via(?: -r core\.in|\n"
                          r"(?:    #   .*\n)*?    #   -r core\.in)",
                          read("requirements/core.txt"), re.M))
    assert {name.lower() for name in told} == names_in(
        read("requirements/core.in"))


def test_package_needs_only_what_is_locked():
    text = read("pyproject.toml")
    needed = re.search(r"^dependencies = \[(.*?)\]", text, re.M | re.S)[1]
    needed = set(re.findall(r'"([\w-]+)', needed))
    assert needed <= names_in(read("requirements/core.txt"))


def test_binder_has_the_versions_of_the_lock():
    binder = read(".binder/requirements.txt")
    assert "--constraint ../requirements/core.txt" in binder
    wanted = names_in("\n".join(line for line in binder.splitlines()
                                if not line.startswith(("#", "-"))))
    pinned = names_in("\n".join(re.findall(r"^\S+==\S+$", binder, re.M)))
    assert wanted - pinned <= names_in(read("requirements/core.txt"))
    assert not wanted & {"jupyter-book", "pytest", "sphinx"}
    assert read(".binder/runtime.txt").strip() == "python-3.11"
    build = read(".binder/postBuild")
    assert "requirements/torch.txt" in build
    assert "--torch-backend=cpu" in build
    assert (ROOT / ".binder/postBuild").stat().st_mode & 0o100
    assert run("bash", "-n", ".binder/postBuild").returncode == 0


# --- continuous integration --------------------------------------------------

def test_ci_installs_and_calls_make_test():
    script = read(".ci/run")
    assert "set -euo pipefail" in script
    assert script.rstrip().endswith("make test ALL=1")
    assert (ROOT / ".ci/run").stat().st_mode & 0o100
    assert run("bash", "-n", ".ci/run").returncode == 0


WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))


def test_there_are_four_workflows():
    assert [path.stem for path in WORKFLOWS] == ["preview", "publish", "test",
                                                 "weekly"]


def test_workflows_can_be_tried_before_they_run():
    """The tools that ``make workflows`` calls find nothing."""
    folder = Path(sys.executable).parent
    if not (folder / "actionlint").exists():
        pytest.skip("actionlint is not installed: make workflows does it")
    for command in (["actionlint"], ["zizmor", "--offline", "--no-progress",
                                     "--quiet", ".github"]):
        done = run(folder / command[0], *command[1:], env=os.environ | {
            "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"})
        assert done.returncode == 0, done.stdout + done.stderr


def test_only_main_is_published_and_pull_requests_get_a_preview():
    publish, preview = (yaml.safe_load(read(f".github/workflows/{name}.yml"))
                        for name in ("publish", "preview"))
    # YAML 1.1 takes the key "on" for a boolean.
    assert set(publish[True]) == {"push", "workflow_dispatch"}
    assert publish[True]["push"] == {"branches": ["main"]}
    assert set(preview[True]) == {"pull_request"}
    site = preview["jobs"]["site"]["steps"][-1]["with"]
    assert site["path"] == "_build/html"
    assert site["if-no-files-found"] == "error"
    assert 1 <= site["retention-days"] <= 30


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_workflow_is_careful(path):
    flow = yaml.safe_load(path.read_text("utf8"))
    assert flow["permissions"] == {"contents": "read"}
    assert "concurrency" in flow
    targets = set(re.findall(r"^([a-z]+):", read("Makefile"), re.M))
    for name, job in flow["jobs"].items():
        assert job["timeout-minutes"] <= 90
        may = job.get("permissions", {})
        assert may in ({}, {"pages": "write", "id-token": "write"})
        assert not may or (path.stem, name) == ("publish", "deploy")
        for step in job["steps"]:
            if "uses" in step:
                assert re.fullmatch(r"actions/[\w-]+@[0-9a-f]{40}",
                                    step["uses"])
                if "checkout" in step["uses"]:
                    assert step["with"]["persist-credentials"] is False
            else:
                assert re.fullmatch(r"make [a-z]+( ALL=1)?", step["run"])
                assert step["run"].split()[1] in targets


def test_pinned_actions_name_their_version():
    for path in WORKFLOWS:
        for line in path.read_text("utf8").splitlines():
            if "uses:" in line:
                assert re.search(r"@[0-9a-f]{40} # v\d+\.\d+\.\d+$", line)


# --- what is said ------------------------------------------------------------

def test_licences_are_whole():
    assert read("LICENSE").startswith("MIT License")
    assert "WITHOUT WARRANTY OF ANY KIND" in read("LICENSE")
    text = read("LICENSE-TEXT")
    assert "https://creativecommons.org/licenses/by/4.0/legalcode" in text
    assert "MathJax" in text
    assert "Apache License" in read("_extra/mathjax/LICENSE")
    for name in ("LICENSE", "LICENSE-TEXT", "CITATION.cff"):
        assert f"({name})" in read("README.md")


def test_citation_is_valid():
    citation = yaml.safe_load(read("CITATION.cff"))
    assert citation["cff-version"] == "1.2.0"
    assert {"title", "message", "authors", "version", "date-released",
            "license", "type"} <= set(citation)
    assert citation["license"] == ["MIT", "CC-BY-4.0"]
    from self_attention import __version__
    assert citation["version"] == __version__


def test_readme_links_lead_somewhere():
    for name in ("README.md", "CONTRIBUTING.md"):
        for target in re.findall(r"\]\(([^)]+)\)|src=\"([^\"]+)\"",
                                 read(name)):
            address = "".join(target)
            if not address.startswith("http"):
                assert (ROOT / address).exists(), address


def test_landing_page_lists_every_chapter_with_its_minutes():
    told = dict(re.findall(r"\(chapters/(\d\d_\w+)\.ipynb\)\n  - .+\n"
                           r"  - (\d+)$", read("intro.md"), re.M))
    assert "about twenty hours" in read("intro.md")
    assert round(sum(map(int, told.values())) / 60) in (19, 20, 21)
    words = {"an hour": 60, "one hour": 60, "two hours": 120,
             "an hour and a half": 90}
    for path in sorted((ROOT / "chapters").glob("[0-9]*.ipynb")):
        pattern = (r"[Aa]bout (an hour and a half|an hour|one hour|two hours|"
                   r"\d+ minutes)")
        stated = re.search(pattern, path.read_text("utf8"))[1]
        minutes = words.get(stated) or int(stated.split()[0])
        assert int(told.pop(path.stem)) == minutes, path.stem
    assert not told


def test_every_module_of_the_subject_has_its_page():
    # Those of the apparatus are listed by themselves, in api_course.md.
    modules = {path.stem for path in
               (ROOT / "src" / "self_attention").glob("[a-z]*.py")}
    overview = read("chapters/api.md")
    for name in modules:
        page = read(f"chapters/api_{name}.md")
        assert f".. automodule:: self_attention.{name}\n" in page
        assert f"(api_{name}.md)" in overview


def test_style_sheet_has_the_colours_of_the_figures():
    sheet = read("_static/course.css")
    for role, colour in COLOURS.items():
        assert f"--course-{role}: {colour};" in sheet


def test_picture_is_what_the_code_draws(tmp_path):
    drawn = tmp_path / "picture.png"
    picture.draw(drawn)
    stored, fresh = map(matplotlib.image.imread, (picture.PICTURE, drawn))
    assert stored.shape == fresh.shape
    # Versions of matplotlib place a letter a little differently.
    assert np.abs(stored - fresh).mean() < 0.01


# Addresses of package indexes, and places on somebody's machine.
NOT_IN_FILES = re.compile(
    r"pypi\.org|pythonhosted\.org|download\.pytorch\.org|"
    r"registry\.npmjs\.org|conda\.anaconda\.org|deb\.debian\.org|"
    r"(?<![\w.~-])/(?:root|home|Users|work|opt|srv)/[\w.]")


def test_no_file_names_a_package_index_or_a_machine():
    found = []
    for path in tracked():
        name = path.relative_to(ROOT).as_posix()
        if name.startswith("_extra/") or name in (
                "tests/test_house.py", "tests/test_notebooks.py",
                "tests/test_site.py"):
            continue
        try:
            text = path.read_text("utf8")
        except UnicodeDecodeError:
            continue
        match = NOT_IN_FILES.search(text)
        if match:
            found.append(f"{name}: {match[0]}")
    assert not found


def test_no_large_or_foreign_file_is_kept():
    for path in tracked():
        assert path.stat().st_size < 5_000_000, path
        assert path.suffix not in {".pyc", ".pkl", ".pt", ".DS_Store"}, path


def test_repository_has_one_style():
    ruff = run(sys.executable, "-m", "ruff", "check", ".")
    assert ruff.returncode == 0, ruff.stdout[-3000:]


def test_imports_go_one_way():
    lint = Path(sys.executable).with_name("lint-imports")
    done = run(str(lint), "--no-cache")
    assert done.returncode == 0, done.stdout[-3000:]
