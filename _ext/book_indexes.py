"""Lists that the build makes: all figures and all exercises, with links.

A page asks for one with the directive ``figure-index`` or ``exercise-index``.
Numbers and places come from the book as it was read, difficulty and minutes
from the bank of exercises; nothing is listed by hand.
"""

import re
from collections.abc import Iterator

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util.docutils import SphinxDirective

FIGURES, EXERCISES = "figures", "exercises"
#: The chapters, and the page that says how to run one.
CHAPTER, HOW = re.compile(r"chapters/\d\d_"), "chapters/take_away"
#: Pages that may hold a list.
INDEX = re.compile(r"/index_of_\w+$")
# The first sentence ends here, though not within "Fig. 3" or "e.g. this".
SENTENCE = re.compile(r"(?<=[.?!])\s+(?=[A-Z“\"])")


class index_list(nodes.General, nodes.Element):  # noqa: N801  as docutils does
    """The place of a list that is made when the whole book was read."""


class IndexDirective(SphinxDirective):
    """Ask for a list; its name says which."""

    def run(self) -> list[nodes.Node]:
        """Give the place of the list."""
        kind = FIGURES if self.name.startswith("figure") else EXERCISES
        return [index_list(kind=kind)]


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the extension."""
    app.add_node(index_list)
    app.add_directive("figure-index", IndexDirective)
    app.add_directive("exercise-index", IndexDirective)
    app.connect("env-before-read-docs", note_reading)
    app.connect("env-updated", write_again)
    app.connect("doctree-resolved", fill_lists)
    app.connect("doctree-resolved", say_where_to_run)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def note_reading(app: Sphinx, env: BuildEnvironment,
                 docnames: list[str]) -> None:
    """Remember whether any page is read anew."""
    app.book_was_read = bool(docnames)  # type: ignore[attr-defined]


def write_again(app: Sphinx, env: BuildEnvironment) -> list[str]:
    """Write the lists again whenever a page was read.

    Captions bring formulas with them, so their script is needed.
    """
    found = [name for name in env.found_docs if INDEX.search(name)]
    for name in found:
        env.domaindata["math"]["has_equations"][name] = True
    return found if app.book_was_read else []  # type: ignore[attr-defined]


def fill_lists(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Put the lists where they were asked for."""
    make = {FIGURES: list_figures, EXERCISES: list_exercises}
    for place in list(doctree.findall(index_list)):
        place.replace_self(make[place["kind"]](app, docname))


def say_where_to_run(app: Sphinx, doctree: nodes.document,
                     docname: str) -> None:
    """Say above a chapter's exercises where a reader of the page runs them.

    Who has the notebook open need not be told, so it stands on the page only.
    """
    if app.builder.format != "html" or not CHAPTER.match(docname):
        return
    for section in doctree.findall(nodes.section):
        if section[0].astext() != "Exercises" or HOW not in app.env.found_docs:
            continue
        way = link(app, docname, HOW, "run-a-chapter", nodes.Text(
            "on your machine, on Binder or in Colab"))
        section.insert(1, nodes.paragraph(
            "", "", nodes.Text("This page cannot run what you write. Do the "
                               "exercises in the notebook of this chapter: "),
            way, nodes.Text("."), classes=["where-to-run"]))


def pages(env: BuildEnvironment, page: str) -> Iterator[str]:
    """Give a page and all below it, in the order of the contents."""
    yield page
    for child in env.toctree_includes.get(page, []):
        yield from pages(env, child)


def number(app: Sphinx, page: str, kind: str, name: str) -> str:
    """Give the number of a figure or exercise as its page shows it."""
    numbers = app.env.toc_fignumbers.get(page, {}).get(kind, {}).get(name, ())
    return ".".join(map(str, numbers))


def link(app: Sphinx, here: str, page: str, name: str,
         *content: nodes.Node) -> nodes.reference:
    """Make a link to a place of the book."""
    address = app.builder.get_relative_uri(here, page)
    return nodes.reference("", "", *content, internal=True,
                           refuri=f"{address}#{name}" if name else address)


def heading(app: Sphinx, here: str, page: str) -> nodes.rubric:
    """Name the page that the next lines belong to, with its number."""
    found = re.match(r"chapters/(\d+)_", page)
    title = app.env.titles[page].astext()
    if found:
        title = f"{int(found[1])}. {title}"
    return nodes.rubric("", "", link(app, here, page, "", nodes.Text(title)))


def figures_of(app: Sphinx, page: str
               ) -> Iterator[tuple[str, str, list[nodes.Node]]]:
    """Give name, number and first sentence of each figure of a page."""
    for figure in app.env.get_doctree(page).findall(nodes.figure):
        caption = next(figure.findall(nodes.caption), None)
        name = next(iter(figure["ids"]), "")
        shown = number(app, page, "figure", name)
        if caption is not None and shown:
            yield name, shown, first_sentence(caption)


def first_sentence(caption: nodes.caption) -> list[nodes.Node]:
    """Copy a caption up to the end of its first sentence."""
    words: list[nodes.Node] = []
    for node in caption.children:
        if isinstance(node, nodes.Text):
            start, *rest = SENTENCE.split(str(node), maxsplit=1)
            words.append(nodes.Text(start))
            if rest:
                break
        elif isinstance(node, nodes.literal | nodes.math | nodes.emphasis):
            words.append(node.deepcopy())
        else:
            words.append(nodes.Text(node.astext()))
    return words


def list_figures(app: Sphinx, here: str) -> list[nodes.Node]:
    """Write a list of figures for each page that has some."""
    found: list[nodes.Node] = []
    for page in pages(app.env, app.config.root_doc):
        lines = [nodes.list_item("", nodes.paragraph("", "", link(
                     app, here, page, name, nodes.Text(
                         app.config.numfig_format["figure"] % shown)),
                     nodes.Text(" "), *sentence))
                 for name, shown, sentence in figures_of(app, page)]
        if lines:
            found += [heading(app, here, page),
                      nodes.bullet_list("", *lines, classes=["figure-index"])]
    return found


def exercises_of(app: Sphinx, page: str) -> Iterator[tuple[str, str]]:
    """Give the label and the number of each exercise of a page."""
    for node in app.env.get_doctree(page).findall(nodes.Element):
        if node.tagname == "exercise_enumerable_node":
            yield node["label"], number(app, page, "exercise", node["label"])


def list_exercises(app: Sphinx, here: str) -> list[nodes.Node]:
    """Write a table of exercises for each chapter that has some."""
    # Imported late: a book without exercises needs no bank.
    from course.exercises.notebook import slug
    from course.exercises.registry import tasks
    bank = {f"ex-{slug(task)}": task for task in tasks()}
    found: list[nodes.Node] = []
    for page in pages(app.env, app.config.root_doc):
        rows = []
        for label, shown in exercises_of(app, page):
            task = bank[label]
            title = link(app, here, page, label, nodes.Text(task.title))
            rows.append([[nodes.Text(shown)], [title],
                         [nodes.Text(f"{task.difficulty} of 3")],
                         [nodes.Text(str(task.minutes))]])
        if rows:
            found += [heading(app, here, page), table(
                ["Number", "Exercise", "Level", "Minutes"], rows)]
    return found


def table(head: list[str], rows: list[list[list[nodes.Node]]]) -> nodes.table:
    """Make a table of one line of heads and some rows."""
    def row(cells: list[list[nodes.Node]]) -> nodes.row:
        return nodes.row("", *[nodes.entry("", nodes.paragraph("", "", *cell))
                               for cell in cells])

    group = nodes.tgroup("", cols=len(head))
    group += [nodes.colspec(colwidth=1) for _ in head]
    group += nodes.thead("", row([[nodes.Text(name)] for name in head]))
    group += nodes.tbody("", *[row(cells) for cells in rows])
    return nodes.table("", group, classes=["exercise-index"])
