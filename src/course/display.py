"""Small helpers that show something in a notebook, the same on every run."""

import ast
import importlib.util
import inspect
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from IPython.display import Markdown

__all__ = ["show_function", "show_shapes", "show_source", "table"]


def show_source(thing: Callable[..., Any] | type, *,
                docstring: bool = False) -> Markdown:
    """Show the source of a function or class as the library has it today.

    Args:
        thing: A function, class or method of ``self_attention`` or ``course``.
        docstring: Whether to keep the docstrings; the API pages show them.

    Returns:
        The source as a block of highlighted code.
    """
    source = textwrap.dedent(inspect.getsource(inspect.unwrap(thing)))
    if not docstring:
        source = _without_docstrings(source)
    return Markdown(f"```python\n{source.rstrip()}\n```")


def show_function(module_name: str, name: str, *, start: str | None = None,
                  stop: str | None = None) -> Markdown:
    """Show a function, or a part of it, of a module that is not imported.

    So a reader sees the text of a module whose own imports (a GPU's compiler,
    say) are not installed.

    Args:
        module_name: A module, such as ``self_attention.triton_kernel``.
        name: A function or class at its top level.
        start: Words of the first line to show; the whole function if None.
        stop: Words of the first line after it that is no longer shown; to the
            end if None.

    Returns:
        The source, without docstrings, as a block of highlighted code.

    Raises:
        ValueError: There is no such module, function or line.
    """
    spec = importlib.util.find_spec(module_name)
    if spec is None or spec.origin is None:
        raise ValueError(f"module_name={module_name!r} is not a module")
    text = Path(spec.origin).read_text("utf8")
    node = next((node for node in ast.parse(text).body
                 if getattr(node, "name", None) == name), None)
    if not isinstance(node, ast.FunctionDef | ast.ClassDef):
        raise ValueError(f"{module_name} has no function name={name!r}")
    first = min(part.lineno for part in (node, *node.decorator_list))
    source = "\n".join(text.splitlines()[first - 1:node.end_lineno])
    lines = _without_docstrings(source).splitlines()
    begin = 0 if start is None else _line_with(lines, start, 0, name)
    end = (len(lines) if stop is None
           else _line_with(lines, stop, begin + 1, name))
    shown = textwrap.dedent("\n".join(lines[begin:end])).rstrip()
    return Markdown(f"```python\n{shown}\n```")


def _line_with(lines: Sequence[str], words: str, after: int,
               name: str) -> int:
    for number, line in enumerate(lines[after:], after):
        if words in line:
            return number
    raise ValueError(f"no line of {name} has {words!r}")


def _without_docstrings(source: str) -> str:
    lines = source.splitlines()
    for node in ast.walk(ast.parse(source)):
        if (isinstance(node, ast.FunctionDef | ast.ClassDef)
                and ast.get_docstring(node) is not None):
            text = node.body[0]
            for number in range(text.lineno - 1, text.end_lineno or 0):
                lines[number] = "\0"
    return "\n".join(line for line in lines if line != "\0")


def show_shapes(**arrays: Any) -> None:
    """Print the name and the shape of each array, one a line.

    Args:
        **arrays: NumPy arrays or PyTorch tensors, by name.
    """
    width = max(map(len, arrays), default=0)
    for name, array in arrays.items():
        print(f"{name:{width}}  {tuple(np.shape(array))}")


def table(rows: Sequence[Mapping[str, object]]) -> Markdown:
    """Show rows of named entries as a table.

    Args:
        rows: One mapping for each row; the keys of the first are the heads
            of the columns.

    Returns:
        The table, in Markdown, so that it is text in the page.
    """
    columns = list(rows[0]) if rows else []
    lines = [_line(columns), _line("---" for _ in columns)]
    lines += [_line(row[column] for column in columns) for row in rows]
    return Markdown("\n".join(lines))


def _line(entries: Iterable[object]) -> str:
    texts = (str(entry).replace("|", "\\|") for entry in entries)
    return f"| {' | '.join(texts)} |"
