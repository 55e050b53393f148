"""Write the exercise sections into the chapters' notebooks.

Usage: python tools/exercises.py [--check] [name ...]

Every cell of the section comes from ``course.exercises``: it is replaced as
a whole, before the cell ``chapter-summary``, so that a second run changes
nothing. Run the notebooks afterwards (make notebooks). With ``--check``
nothing is written; the exit status says whether anything would change.
"""

import re
import sys
from pathlib import Path

import nbformat

from course.exercises import notebook
from rewriting import CHAPTERS, rewrite, text_of


def main(arguments: list[str]) -> int:
    """Update the named notebooks, or all; give the exit status."""
    return rewrite(arguments, sorted(CHAPTERS.glob("[0-9][0-9]_*.ipynb")),
                   updated)


def chapter_of(path: Path) -> int:
    """Give the number of a chapter by the name of its file."""
    found = re.match(r"\d+", path.stem)
    if found is None:
        raise ValueError(f"{path.name} does not begin with a number")
    return int(found[0])


def updated(path: Path) -> str:
    """Give the text of a notebook with today's exercise section."""
    text = path.read_text(encoding="utf-8")
    book = nbformat.reads(text, as_version=4)
    old = [dict(cell) for cell in book.cells]
    cells = notebook.insert(old, chapter_of(path))
    if cells == old:
        return text
    book.cells = [nbformat.from_dict(cell) for cell in cells]
    return text_of(book)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
