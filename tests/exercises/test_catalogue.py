"""The page of mistakes: complete, of today, and a good page of the book."""

import sys
from pathlib import Path

import nbformat
import pytest

from course.exercises import catalogue, tasks
from course.exercises.general import MISTAKES
from course.exercises.stages import Exercise

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tools"), str(ROOT / "tests")]
import common_mistakes  # noqa: E402
import test_notebooks  # noqa: E402

ENTRIES = catalogue.entries()
PAGE = nbformat.read(common_mistakes.PAGE, as_version=4)
TEXT = "\n".join(cell.source for cell in PAGE.cells)


def test_every_mistake_is_there_once():
    known = {mistake.identity for task in tasks()
             if isinstance(task, Exercise) for mistake in task.mistakes}
    listed = [entry.mistake.id for entry in ENTRIES]
    assert sorted(listed) == sorted(known)
    assert len(listed) >= 300
    for name in [*listed, *MISTAKES]:
        assert TEXT.count(f"\n({catalogue.anchor(name)})=\n") == 1, name
    assert f"lists {len(listed) + len(MISTAKES)} such mistakes" in TEXT


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda e: e.mistake.id)
def test_mistake_shows_on_its_example(entry):
    shown = catalogue.OnExample(entry.exercise.id)
    result = shown.result_of(entry.mistake)
    assert result != shown.right()
    assert "does not show" not in result
    assert "..." not in result
    assert catalogue.symptom(entry.exercise, entry.mistake).endswith(".")


def test_page_is_of_today():
    assert common_mistakes.page() == common_mistakes.PAGE.read_text("utf8"), (
        "run python tools/common_mistakes.py, then make notebooks "
        "ONLY=common")


def test_numbers_are_of_today():
    tables = 0
    for cell in PAGE.cells:
        if cell.id.endswith("-numbers"):
            shown = eval(cell.source, {"OnExample": catalogue.OnExample})
            assert cell.outputs[0].data["text/plain"] == repr(shown)
            tables += 1
    assert tables == len({entry.exercise.id + str(entry.mistake.explained)
                          for entry in ENTRIES})


@pytest.mark.parametrize("rule", [
    rule for rule in test_notebooks.RULES
    if rule is not test_notebooks.imports_are_allowed],
    ids=lambda rule: rule.__name__)
def test_page_keeps(rule):
    problems = list(rule(PAGE, common_mistakes.PAGE))
    assert not problems, problems
