"""Explain an exception of the learner's function."""

import linecache
import re
import traceback
from typing import Any

from course.exercises.modules import MisfitError
from course.exercises.shapes import named_shape
from course.exercises.stages import Case


def error_title(error: BaseException) -> str:
    """Say in one line what was raised."""
    if isinstance(error, MisfitError):
        return str(error)
    name = type(error).__name__
    text = str(error).strip().splitlines()[0] if str(error).strip() else ""
    text = text if len(text) <= 160 else f"{text[:159].rstrip()}…"
    return f"Your function stops with {name}: {text}" if text else (
        f"Your function stops with {name}.")


def explain_error(error: BaseException, filename: str | None,
                  case: Case) -> list[str]:
    """Say where it was raised, with the shapes there, and what helps.

    Args:
        error: The exception.
        filename: The learner's file or notebook cell.
        case: The inputs.
    """
    if isinstance(error, MisfitError):
        return []
    explained = []
    place = _last_line_in(error, filename)
    if place is not None:
        line, text, names = place
        explained.append(f"Line {line}: {text}" if text else f"Line {line}.")
        shapes = _shapes_in(text, names, case)
        if shapes:
            explained.append(f"Shapes there: {'; '.join(shapes)}")
    advice = _advice(error, case)
    if advice:
        explained.append(advice)
    return explained


def _last_line_in(error: BaseException, filename: str | None
                  ) -> tuple[int, str, dict[str, Any]] | None:
    last = None
    for frame, line in traceback.walk_tb(error.__traceback__):
        if frame.f_code.co_filename == filename:
            text = linecache.getline(filename or "", line).strip()
            last = (line, text, dict(frame.f_locals))
    return last


def _shapes_in(text: str, names: dict[str, Any], case: Case) -> list[str]:
    shapes = []
    for name in dict.fromkeys(re.findall(r"[A-Za-z_]\w*", text)):
        shape = getattr(names.get(name), "shape", None)
        if isinstance(shape, tuple) and shape:
            shapes.append(f"{name}: {named_shape(shape, case.dims)}")
    return shapes


def _advice(error: BaseException, case: Case) -> str:
    text = str(error)
    if isinstance(error, TypeError) and "positional argument" in text:
        return ("The function must take these arguments, in this order: "
                f"{', '.join(case.arguments)}.")
    if isinstance(error, ValueError) and "matmul" in text:
        return ("`a @ b` needs the last axis of a to be as long as the last "
                "but one axis of b.")
    if "view size is not compatible" in text:
        return ("After a transpose the numbers no longer lie in the order "
                "that view needs. Use reshape; do not drop the transpose.")
    if isinstance(error, NameError):
        return ("That name exists neither in the function nor in the "
                "notebook. Were the cells above run?")
    if isinstance(error, RecursionError):
        return ("The function calls itself. Is a helper named like the "
                "exercise?")
    if isinstance(error, SystemExit):
        return "exit() and quit() end a notebook's program; leave them out."
    if isinstance(error, MemoryError):
        return ("An array would be far larger than anything asked for. Look "
                "at the shapes that meet on that line.")
    return ""
