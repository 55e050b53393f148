r"""Give every notebook the cell that fetches the course where Colab runs it.

Usage: python tools/colab.py [--check] [name ...]

Colab opens a notebook of a repository alone: no package, no data beside it,
and no word of where it came from. So the cell asks for the one thing that
only the reader's browser knows, the page's address, and takes the same
repository and branch from it. Nothing about a repository stands in the
notebooks; every fork has the same bytes. Anywhere else the cell is inert.

Run the notebooks afterwards (make notebooks). With ``--check`` nothing is
written; the exit status says whether anything would change.
"""

import sys
from typing import Any

import nbformat

from rewriting import CHAPTERS, rewrite, text_of

NAME = "code-colab"
#: The cell stands after the cell with this id, before the imports.
AFTER = "chapter-needs"
SOURCE = r'''# In Colab this fetches the course. Anywhere else it does nothing.
import sys

if "google.colab" in sys.modules and "course" not in sys.modules:
    import os, re, subprocess
    page = input("Paste the address of this page, as your browser shows it: ")
    found = re.search(r"github(?:\.com)?/([\w.-]+/[\w.-]+)"
                      r"(?:/(?:blob|tree)/([^?#]+?)(?:/chapters/|$))?", page)
    if not found:
        raise ValueError("It must name the course's repository on GitHub.")
    source = f"git+https://github.com/{found[1]}" + (
        f"@{found[2]}" if found[2] else "")
    subprocess.run([sys.executable, "-m", "pip", "install", "-q", "--src=.",
                    "-e", f"{source}#egg=self-attention-course"], check=True)
    sys.path.insert(0, os.path.abspath("self-attention-course/src"))
    os.chdir("self-attention-course/chapters")'''
#: The site leaves the cell out, JupyterLab folds it.
METADATA = {"jupyter": {"source_hidden": True}, "tags": ["remove-cell"]}


def main(arguments: list[str]) -> int:
    """Update the named notebooks, or all; give the exit status."""
    return rewrite(arguments, sorted(CHAPTERS.glob("*.ipynb")),
                   lambda path: updated(path.read_text("utf8")))


def updated(text: str) -> str:
    """Give the text of a notebook with today's cell."""
    book = nbformat.reads(text, as_version=4)
    cells = [cell for cell in book.cells if cell.id != NAME]
    place = next(n for n, cell in enumerate(cells) if cell.id == AFTER) + 1
    old = book.cells[place] if len(cells) < len(book.cells) else None
    if old is not None and old.id == NAME and is_fresh(old):
        return text
    book.cells = [*cells[:place], colab_cell(), *cells[place:]]
    return text_of(book)


def colab_cell() -> Any:
    """Make the cell."""
    return nbformat.v4.new_code_cell(SOURCE, id=NAME,
                                     metadata=nbformat.from_dict(METADATA))


def is_fresh(cell: Any) -> bool:
    """Whether a cell of a notebook is today's; its count may be any."""
    return (cell.cell_type == "code" and cell.source == SOURCE
            and dict(cell.metadata) == METADATA and not cell.outputs)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
