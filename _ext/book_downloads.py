"""What a reader can carry off: the notebooks as a bundle, the book on paper.

The bundle is written with every build of the site. The PDF files are made by
``make pdf``; a build that changes the site takes the old ones away. The page
chapters/take_away offers what is there, and nothing else, so no link leads
nowhere.
"""

import re
import zipfile
from collections.abc import Iterator
from pathlib import Path

from sphinx.application import Sphinx

BUNDLE = "self-attention-notebooks.zip"
BOOK = "self-attention-step-by-step.pdf"
SHEET = "self-attention-cheat-sheet.pdf"
#: What each file is, in the order in which they are offered.
OFFERED = {BUNDLE: "The notebooks, their code and their data",
           BOOK: "The whole book", SHEET: "The cheat sheet, two pages"}
PATTERNS = ("README.md", "LICENSE*", "CITATION.cff", "pyproject.toml",
            "requirements/*", "chapters/*.ipynb", "chapters/*.md",
            "chapters/data/**/*", "src/**/*.py", "_static/picture.png")
PLACE = re.compile(r'(<div id="course-downloads">).*?(</div>)', re.DOTALL)
# A zip file has no earlier date; the same sources give the same bytes.
DATE = (1980, 1, 1, 0, 0, 0)
START = """# Start here

This is "Self-Attention, Step by Step" as notebooks, with all that they need.
You need Python 3.10 or newer. In this folder:

    python3 -m venv .venv
    .venv/bin/python -m pip install -r requirements/torch.txt
    .venv/bin/python -m pip install -c requirements/core.txt -e . jupyterlab
    .venv/bin/jupyter lab chapters/01_query_key_value.ipynb

On Windows the folder `bin` is called `Scripts`. On Linux without a GPU, take
PyTorch's small build: its own page on how to install it says how. Chapters 1
to 7 need no PyTorch before their last section.

The answers to the exercises are checked in the notebook; there is nothing to
send anywhere. `README.md` says more about the course. It speaks of commands
that need the whole repository; the notebooks do not.
"""


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the extension."""
    app.connect("build-finished", finish)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def finish(app: Sphinx, exception: Exception | None) -> None:
    """Write the bundle beside a built site, and offer what is there."""
    if exception is None and app.builder.name == "html":
        site = Path(app.outdir)
        write_bundle(Path(app.srcdir), site / "downloads" / BUNDLE)
        drop_stale(site)
        offer(site)


def drop_stale(site: Path) -> None:
    """Remove the PDF files that are older than the site."""
    written = (site / "searchindex.js").stat().st_mtime
    for name in (BOOK, SHEET):
        path = site / "downloads" / name
        if path.exists() and path.stat().st_mtime < written:
            path.unlink()


def bundled(root: Path) -> Iterator[Path]:
    """Give the files of the bundle, in order."""
    found = {path for pattern in PATTERNS for path in root.glob(pattern)
             if path.is_file()}
    yield from sorted(path for path in found if not any(
        part.startswith((".", "__pycache__"))
        for part in path.relative_to(root).parts))


def write_bundle(root: Path, path: Path) -> None:
    """Write the bundle: the same bytes for the same sources.

    Args:
        root: The root of the repository.
        path: The zip file to write.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as bundle:
        add(bundle, "START_HERE.md", START.encode())
        for file in bundled(root):
            add(bundle, file.relative_to(root).as_posix(), file.read_bytes())


def add(bundle: zipfile.ZipFile, name: str, content: bytes) -> None:
    """Add a file below a folder that carries the name of the course."""
    info = zipfile.ZipInfo(f"{Path(BUNDLE).stem}/{name}", DATE)
    info.compress_type = zipfile.ZIP_DEFLATED
    info.external_attr = 0o644 << 16
    bundle.writestr(info, content)


def offer(site: Path) -> None:
    """List on the page what is there to be downloaded.

    Args:
        site: The folder of the built site.
    """
    page = site / "chapters" / "take_away.html"
    if not page.exists():
        return
    lines = [f'<li><a href="../downloads/{name}" download>{what}</a> '
             f"({Path(name).suffix[1:].upper()}, "
             f"{size(site / 'downloads' / name)})</li>"
             if (site / "downloads" / name).exists() else
             f"<li>{what}: not in this copy of the site</li>"
             for name, what in OFFERED.items()]
    text = page.read_text(encoding="utf-8")
    new = PLACE.sub(rf"\g<1><ul>{''.join(lines)}</ul>\g<2>", text)
    if new != text:
        page.write_text(new, encoding="utf-8")


def size(path: Path) -> str:
    """Write the size of a file in words."""
    count = path.stat().st_size
    return (f"{count / 1e6:.1f} MB" if count >= 1e6
            else f"{max(1, round(count / 1e3))} kB")
