"""Run the notebooks top to bottom and store them in one normal form.

Usage: python tools/notebooks.py [name ...]      (make notebooks)

Each notebook is executed in a fresh kernel and written back with the outputs
of that run: counts 1, 2, 3, ..., no run times, no machine's metadata, cell
ids that say what a cell is about. With the locked versions a second run gives
the same bytes.
"""

import os
import re
import sys
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

from rewriting import CHAPTERS, text_of

KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}
TIMEOUT = 120  # seconds a cell may take


def main(names: list[str]) -> int:
    """Run the named notebooks, or all; give the number that failed."""
    # Whatever a user has configured must not change a stored output.
    os.environ.update(PYTHONHASHSEED="0", MPLBACKEND="module://"
                      "matplotlib_inline.backend_inline", COLUMNS="79",
                      COURSE_PROGRESS="off")
    paths = sorted(CHAPTERS.glob("*.ipynb"))
    if names:
        paths = [path for path in paths
                 if any(path.stem.startswith(name) for name in names)]
        if not paths:
            print(f"no notebook in chapters/ starts with {names}")
            return 1
    failed = 0
    for path in paths:
        try:
            run(path)
            print(f"{path.stem}: ran")
        except Exception as error:
            failed += 1
            print(f"{path.stem}: {error}", file=sys.stderr)
    return failed


def run(path: Path) -> None:
    """Execute one notebook and write it back, normalised."""
    notebook = nbformat.read(path, as_version=4)
    notebook.metadata = nbformat.from_dict({
        "kernelspec": KERNEL, "language_info": {"name": "python"}})
    give_ids(notebook.cells)
    client = NotebookClient(notebook, timeout=TIMEOUT, kernel_name="python3",
                            record_timing=False, store_widget_state=False,
                            resources={"metadata": {"path": path.parent}})
    client.execute()
    notebook.metadata = nbformat.from_dict({
        "kernelspec": KERNEL, "language_info": {"name": "python"}})
    for cell in notebook.cells:
        tidy(cell)
    notebook.nbformat_minor = 5
    path.write_text(text_of(notebook), "utf8")


def give_ids(cells: list[Any]) -> None:
    """Replace the random ids that editors give by slugs of the content."""
    used: set[str] = set()
    for cell in cells:
        name = cell.get("id", "")
        if not re.fullmatch(r"[a-z]+(-[a-z0-9]+)+", name) or name in used:
            name = slug(cell)
        base, number = name, 2
        while name in used:
            name = f"{base}-{number}"
            number += 1
        cell["id"] = name
        used.add(name)


def slug(cell: Any) -> str:
    """Name a cell by its kind and first words."""
    words = re.findall(r"[a-z]+[a-z0-9]*", cell.source.lower())[:5]
    return "-".join([cell.cell_type, *words] if words
                    else [cell.cell_type, "empty"])[:60]


def tidy(cell: Any) -> None:
    """Drop what differs between machines and editors."""
    keep = {"tags", "mystnb", "editable"}
    if "remove-cell" in cell.metadata.get("tags", []):
        keep |= {"jupyter"}  # what the site leaves out, JupyterLab folds
    cell.metadata = nbformat.from_dict(
        {key: value for key, value in sorted(cell.metadata.items())
         if key in keep})
    for output in cell.get("outputs", []):
        if "metadata" in output:
            output.metadata = nbformat.from_dict({})
    # A stream written in two pieces is one text; how it was cut is chance.
    merged: list[Any] = []
    for output in cell.get("outputs", []):
        last = merged[-1] if merged else None
        if (last is not None and output.output_type == "stream"
                and last.output_type == "stream" and last.name == output.name):
            last.text += output.text
        else:
            merged.append(output)
    if cell.cell_type == "code":
        cell.outputs = merged


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
