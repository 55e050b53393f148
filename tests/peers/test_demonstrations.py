"""The blocks of code that the conventions page shows for other libraries."""

import json
import re
from pathlib import Path

import pytest

PAGE = (Path(__file__).resolve().parents[2] / "chapters"
        / "conventions.ipynb")

pytestmark = [pytest.mark.peer, pytest.mark.filterwarnings("default")]


def blocks() -> list[str]:
    cells = json.loads(PAGE.read_text(encoding="utf-8"))["cells"]
    text = "\n".join("".join(cell["source"]) for cell in cells
                     if cell["cell_type"] == "markdown")
    return re.findall(r"```python\n(.*?)```", text, re.DOTALL)


@pytest.mark.parametrize("block", blocks(), ids=lambda b: b.split("\n")[0])
def test_block_runs(block):
    module = re.match(r"import (\w+)", block)[1]
    pytest.importorskip(module, reason=f"{module} is not installed "
                        "(make test ALL=1 does it)")
    exec(compile(block, PAGE.name, "exec"), {})


def test_there_are_blocks():
    assert blocks()
