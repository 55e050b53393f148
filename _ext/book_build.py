"""The Sphinx extension of this book.

It makes three things true that the tools alone do not:

* A page is never older than the sources. Notebooks are executed once and
  kept, but under a key that covers ``src/``, the lock and the data.
* The buttons that open a chapter on Binder or Colab, or its source, take the
  repository from the environment or from git, and are absent without one.
* Pages load without an error and without a word to another host.
* What a cell prints is on the page as it was printed.
"""

import contextlib
import functools
import hashlib
import importlib
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import myst_nb.core.render
from nbformat import NotebookNode
from numpy.typing import ArrayLike, DTypeLike
from sphinx.application import Sphinx
from sphinx.config import Config
from sphinx.util.typing import stringify_annotation

from book_repository import find_repository, find_site

BINDER = "https://mybinder.org"
COLAB = "https://colab.research.google.com"
CACHES = Path("_build", ".executed")


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the extension."""
    # A map of the site speaks of its address, so it needs one.
    if find_site(find_repository(Path(app.srcdir))):
        app.setup_extension("sphinx_sitemap")
    myst_nb.core.render.coalesce_streams = join_streams
    app.connect("config-inited", key_the_cache)
    app.connect("config-inited", point_to_repository)
    app.connect("env-before-read-docs", import_first)
    app.connect("source-read", list_modules)
    app.connect("html-page-context", clean_scripts, priority=900)
    app.connect("html-page-context", mend_html, priority=900)
    app.connect("autodoc-skip-member", skip_unlisted)
    app.connect("autodoc-process-signature", name_aliases)
    app.connect("autodoc-process-docstring", unsection)
    # Around napoleon, which takes "Weights: white to dark" for a type.
    comments: dict[str, list[str]] = {}
    app.connect("autodoc-process-docstring",
                functools.partial(set_aside, comments), priority=400)
    app.connect("autodoc-process-docstring",
                functools.partial(put_back, comments), priority=600)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def join_streams(outputs: list[NotebookNode]) -> list[NotebookNode]:
    """Join what came in pieces: a clock decides where a kernel cuts.

    myst-nb's own version ends every piece with a line break, so that a line
    that was cut in the middle became two.
    """
    joined: list[NotebookNode] = []
    streams: dict[str, NotebookNode] = {}
    for output in outputs:
        if output["output_type"] != "stream":
            joined.append(output)
        elif output["name"] in streams:
            streams[output["name"]]["text"] += output["text"]
        else:
            streams[output["name"]] = NotebookNode(output)
            joined.append(streams[output["name"]])
    return joined


def key_the_cache(app: Sphinx, config: Config) -> None:
    """Keep executed notebooks in a folder named after what they depend on.

    myst-nb reads every page again when the folder's name changes.
    """
    folder = Path(app.srcdir) / CACHES / sources_key(Path(app.srcdir))
    config.nb_execution_cache_path = str(folder)
    kept = sorted(folder.parent.glob("*"), key=lambda old: old.stat().st_mtime)
    for old in kept[:-3]:  # another build may be reading the last ones
        if old != folder:
            shutil.rmtree(old, ignore_errors=True)


def sources_key(root: Path) -> str:
    """Hash all that a notebook's outputs depend on besides its own cells."""
    paths = [path for pattern in ("src/**/*.py", "requirements/core.txt",
                                  "requirements/torch.txt",
                                  "chapters/data/**/*", "chapters/*.py")
             for path in root.glob(pattern) if path.is_file()]
    key = hashlib.sha256(sys.version.encode())
    for path in sorted(paths):
        key.update(path.relative_to(root).as_posix().encode() + b"\0")
        key.update(hashlib.sha256(path.read_bytes()).digest())
    return key.hexdigest()[:16]


def point_to_repository(app: Sphinx, config: Config) -> None:
    """Give the theme the repository, or take the buttons away."""
    options = config.html_theme_options
    repository = find_repository(Path(app.srcdir))
    for button in ("repository", "edit_page", "issues"):
        options[f"use_{button}_button"] = repository is not None
    options["launch_buttons"] = {}
    options["repository_url"] = ""
    if repository is not None:
        options["repository_url"] = repository.url
        options["repository_branch"] = repository.branch
        options["path_to_docs"] = ""
        options["launch_buttons"] = {"binderhub_url": BINDER,
                                     "notebook_interface": "jupyterlab"}
        if repository.provider == "github":  # Colab opens no others
            options["launch_buttons"]["colab_url"] = COLAB
    site = find_site(repository)
    if site:
        config.html_baseurl = site
        config.sitemap_url_scheme = "{link}"  # without /en/


def import_first(app: Sphinx, env: object, docnames: list[str]) -> None:
    """Import what the API pages show, before autodoc mocks Triton.

    PyTorch looks for Triton when some of its parts are first imported, and
    would take the mock for the real one.
    """
    if not any(name.startswith("chapters/api") for name in docnames):
        return
    for package in ("self_attention", "course"):
        folder = Path(app.srcdir, "src", package)
        for path in sorted(folder.glob("[a-z]*.py")):
            with contextlib.suppress(ImportError):
                importlib.import_module(f"{package}.{path.stem}")


def list_modules(app: Sphinx, docname: str, source: list[str]) -> None:
    """Replace ``<!-- modules: course -->`` by a section for each module."""
    def sections(found: re.Match[str]) -> str:
        package = found[2]
        folder = Path(app.srcdir, "src", *package.split("."))
        names = sorted(path.stem for path in folder.glob("[a-z]*.py"))
        return "\n".join(
            f"{found[1]} {name.replace('_', ' ').capitalize()}\n\n"
            f"```{{eval-rst}}\n.. automodule:: {package}.{name}\n```\n"
            for name in names)

    source[0] = re.sub(r"<!-- (#+) modules: ([\w.]+) -->", sections,
                       source[0])


def clean_scripts(app: Sphinx, pagename: str, templatename: str,
                  context: dict[str, Any], doctree: object) -> None:
    """Drop repeated scripts and those of Thebe, which the book does not use.

    Sphinx 7.4 writes an extension's inline scripts twice, and Jupyter Book
    always adds Thebe's: ``const THEBE_JS_URL`` a second time is an error on
    every page.
    """
    kept, seen = [], set()
    for script in context.get("script_files", []):
        name = str(getattr(script, "filename", script))
        body = getattr(script, "attributes", {}).get("body") or ""
        if "thebe" in (name + body).lower() or (body or name) in seen:
            continue
        seen.add(body or name)
        kept.append(script)
    context["script_files"][:] = kept
    context["css_files"][:] = [
        style for style in context.get("css_files", [])
        if "thebe" not in str(getattr(style, "filename", style))]


def mend_html(app: Sphinx, pagename: str, templatename: str,
              context: dict[str, Any], doctree: object) -> None:
    """Mend what a screen reader or a keyboard would stumble over.

    Long signatures are written as a list without terms, references as a list
    without items, and a wide formula cannot be scrolled without a mouse.
    """
    body = context.get("body")
    if not body:
        return
    body = re.sub(r"<dl>\n(<dd>.*?)</dl>", _signature_lines, body,
                  flags=re.DOTALL)
    body = re.sub(r' role="(?:list|doc-biblioentry)"', "", body)
    # Every exercise, solution and theorem calls its content the same.
    body = re.sub(r' id="(?:exercise|solution|proof)-content"', "", body)
    body = body.replace('<div class="math notranslate nohighlight"',
                        '<div tabindex="0" class="math notranslate '
                        'nohighlight"')
    context["body"] = body


def _signature_lines(found: re.Match[str]) -> str:
    lines = found[1].replace("<dd>", '<span class="sig-line">')
    return lines.replace("</dd>", "</span>")


def skip_unlisted(app: Sphinx, what: str, name: str, obj: object,
                  skip: bool, options: object) -> bool | None:
    """Leave out what a module's ``__all__`` does not name."""
    module = sys.modules.get(app.env.temp_data.get("autodoc:module") or "")
    listed = getattr(module, "__all__", None)
    if what == "module" and listed is not None and name not in listed:
        return True
    return None


def unsection(app: Sphinx, what: str, name: str, obj: object,
              options: object, lines: list[str]) -> None:
    """Make the headings of a docstring small, so that no page hangs below.

    A heading in a module's docstring would take all its functions as its
    subsections.
    """
    for number in range(len(lines) - 1, 0, -1):
        if re.fullmatch("-{3,}", lines[number]) and lines[number - 1].strip():
            heading = lines[number - 1].strip()
            lines[number - 1:number + 1] = [f".. rubric:: {heading}", ""]


def set_aside(comments: dict[str, list[str]], app: Sphinx, what: str,
              name: str, obj: object, options: object,
              lines: list[str]) -> None:
    """Hide the comment on a variable from napoleon."""
    if what in ("data", "attribute", "property"):
        comments[name] = lines[:]
        lines.clear()


def put_back(comments: dict[str, list[str]], app: Sphinx, what: str,
             name: str, obj: object, options: object,
             lines: list[str]) -> None:
    """Give the comment back as it was written."""
    if name in comments:
        lines[:] = comments.pop(name)


def name_aliases(app: Sphinx, what: str, name: str, obj: object,
                 options: object, signature: str | None, returns: str | None
                 ) -> tuple[str | None, str | None]:
    """Write ``DTypeLike`` instead of the eight types that it stands for."""
    for alias, hint in (("DTypeLike", DTypeLike), ("ArrayLike", ArrayLike)):
        spelt = stringify_annotation(hint, "smart")
        signature = signature and signature.replace(
            spelt, f"~numpy.typing.{alias}")
    return signature, returns
