"""The records that chapters plot, and the one way to read them."""

import json
import re
from pathlib import Path

import pytest

from course.records import read_record

CHAPTERS = Path(__file__).resolve().parents[1] / "chapters"
RECORDS = sorted(path.stem for path in (CHAPTERS / "data").glob("*.json"))
PAGES = sorted(CHAPTERS.glob("*.ipynb"))


def code(page):
    cells = json.loads(page.read_text("utf8"))["cells"]
    return "\n".join("".join(cell["source"]) for cell in cells
                     if cell["cell_type"] == "code")


@pytest.mark.parametrize("name", RECORDS)
def test_every_record_is_read_from_anywhere(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    record = read_record(name)
    assert record == json.loads(
        (CHAPTERS / "data" / f"{name}.json").read_text("utf8"))
    assert isinstance(record, dict)
    assert record


@pytest.mark.parametrize("name", RECORDS)
def test_every_record_is_shown_on_a_page(name):
    assert any(f'read_record("{name}")' in code(page) for page in PAGES)


def test_a_record_that_is_not_there():
    with pytest.raises(FileNotFoundError, match=r"no_such_record\.json"):
        read_record("no_such_record")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_pages_read_records_in_one_way(page):
    assert "json.load" not in code(page)
    assert not re.search(r"data/\w+\.json", code(page))
