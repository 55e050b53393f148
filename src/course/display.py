"""Small helpers that show something in a notebook, the same on every run."""

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from IPython.display import Markdown

__all__ = ["show_shapes", "show_source", "table"]


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
