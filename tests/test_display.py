"""What the chapters show of the library's own text."""

import sys

import pytest

from course import display
from course.display import show_function, show_source
from self_attention import numpy_reference

MODULE = "self_attention.triton_kernel"


def code_of(shown):
    lines = shown.data.splitlines()
    assert (lines[0], lines[-1]) == ("```python", "```")
    return "\n".join(lines[1:-1])


@pytest.mark.parametrize("name", ["softmax", "MultiHeadSelfAttention"])
def test_function_is_shown_as_its_source(name):
    shown = show_function(numpy_reference.__name__, name)
    assert shown.data == show_source(getattr(numpy_reference, name)).data


def test_module_is_not_imported(monkeypatch):
    monkeypatch.delitem(sys.modules, MODULE, raising=False)
    code = code_of(show_function(MODULE, "load_rows"))
    assert code.startswith("@triton.jit\ndef load_rows(")
    assert '"""' not in code
    assert "mask=rows" in code
    assert MODULE not in sys.modules


def test_part_runs_from_line_to_line():
    whole = code_of(show_function(MODULE, "forward_kernel"))
    part = code_of(show_function(MODULE, "forward_kernel",
                                 start="for start in", stop="some = "))
    assert part.startswith("for start in range(0, end, K_TILE):\n    k_rows")
    assert part.endswith("largest = new")
    assert all(line.strip() in whole for line in part.splitlines())
    tail = code_of(show_function(MODULE, "forward_kernel", start="some = "))
    assert whole.endswith(tail.splitlines()[-1])


def test_stop_is_looked_for_after_start():
    part = code_of(show_function(display.__name__, "show_shapes",
                                 start="for name", stop="print"))
    assert part == "for name, array in arrays.items():"


@pytest.mark.parametrize(("given", "message"), [
    (("self_attention.nothing", "f"), "module_name='self_attention.nothing'"),
    ((MODULE, "nothing"), "no function name='nothing'"),
    ((MODULE, "LOG2_E"), "no function name='LOG2_E'"),
])
def test_missing_source_is_named(given, message):
    with pytest.raises(ValueError, match=message):
        show_function(*given)


def test_missing_line_is_named():
    with pytest.raises(ValueError, match="no line of dot has 'scores'"):
        show_function(MODULE, "dot", start="scores")
    with pytest.raises(ValueError, match="no line of dot has 'def dot'"):
        show_function(MODULE, "dot", start="return", stop="def dot")
