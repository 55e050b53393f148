"""What the tools share that write a part of the notebooks anew."""

import sys
from pathlib import Path

import nbformat
import pytest

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tools"))

import colab  # noqa: E402
import common_mistakes  # noqa: E402
import exercises  # noqa: E402
from rewriting import rewrite, text_of  # noqa: E402


@pytest.fixture
def files(tmp_path):
    paths = [tmp_path / f"{name}.ipynb" for name in ("01_a", "02_b", "new")]
    for path in paths[:2]:
        path.write_text("old")
    return paths


def contents(paths):
    return [path.read_text() if path.exists() else None for path in paths]


@pytest.mark.parametrize(("arguments", "expected"), [
    ([], ["NEW", "NEW", "NEW"]),
    (["02"], ["old", "NEW", None]),
    (["01", "n"], ["NEW", "old", "NEW"]),
    (["x"], ["old", "old", None]),
])
def test_only_the_named_are_written(files, arguments, expected, capsys):
    assert rewrite(arguments, files, lambda path: "NEW") == 0
    assert contents(files) == expected
    written = [path.stem for path, text in zip(files, expected, strict=True)
               if text == "NEW"]
    assert capsys.readouterr().out.splitlines() == [
        f"{name}: updated" for name in written]
    assert rewrite(arguments, files, lambda path: "NEW") == 0
    assert not capsys.readouterr().out


def test_check_writes_nothing_and_tells(files, capsys):
    assert rewrite(["--check", "01"], files, lambda path: "NEW") == 1
    assert contents(files) == ["old", "old", None]
    assert capsys.readouterr().out == "01_a: is stale\n"
    assert rewrite(["01", "--check"], files, lambda path: "old") == 0


def test_text_is_that_of_the_notebooks():
    path = ROOT / "chapters" / "conventions.ipynb"
    book = nbformat.read(path, as_version=4)
    assert text_of(book) == path.read_text("utf8")
    book.cells[0].cell_type = "neither"
    with pytest.raises(nbformat.ValidationError):
        text_of(book)


@pytest.mark.parametrize("tool", [colab, exercises, common_mistakes],
                         ids=lambda tool: tool.__name__)
def test_nothing_in_the_repository_is_stale(tool, capsys):
    assert tool.main(["--check"]) == 0, capsys.readouterr().out
