"""What the tools share that write a part of the notebooks anew."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import nbformat

CHAPTERS = Path(__file__).resolve().parents[1] / "chapters"


def rewrite(arguments: list[str], paths: Iterable[Path],
            updated: Callable[[Path], str]) -> int:
    """Store what ``updated`` makes of the notebooks; give the exit status.

    ``arguments`` are beginnings of names, all if there are none, and
    ``--check``: then nothing is written, and the status says whether
    anything would change.
    """
    only_check = "--check" in arguments
    names = tuple(each for each in arguments if each != "--check")
    stale = 0
    for path in paths:
        if names and not path.stem.startswith(names):
            continue
        new = updated(path)
        if path.exists() and path.read_text("utf8") == new:
            continue
        stale += 1
        print(f"{path.stem}: {'is stale' if only_check else 'updated'}")
        if not only_check:
            path.write_text(new, "utf8")
    return 1 if only_check and stale else 0


def text_of(book: Any) -> str:
    """Give the text of a notebook's file, in the form that is stored."""
    nbformat.validate(book)
    return nbformat.writes(book, indent=1).rstrip("\n") + "\n"
