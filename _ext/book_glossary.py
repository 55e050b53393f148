"""Lead the first use of a glossary's word to its entry, and show its meaning.

Nobody marks the uses by hand: on each chapter's page the first use of a term
in running text becomes a link. The meaning stands beside the link in the
page, hidden until the reader points at the link or reaches it with the
keyboard; ``aria-describedby`` gives it to a screen reader. Without scripts
all that works too; a script only moves the box and lets Escape close it.
"""

import functools
import re
from collections.abc import Iterable
from dataclasses import dataclass
from html import escape
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util.docutils import SphinxDirective

#: The page with the entries, and the pages whose first uses lead there.
GLOSSARY = "chapters/glossary"
PAGES = re.compile(r"chapters/\d\d_|chapters/conventions$")
# A term is left alone in these: they name it, show code, or lead elsewhere.
NOT_PROSE = (nodes.title, nodes.literal, nodes.literal_block, nodes.reference,
             nodes.math, nodes.math_block, nodes.caption, nodes.legend,
             nodes.figure, nodes.table, nodes.term, nodes.strong,
             nodes.citation, nodes.raw, nodes.rubric, addnodes.desc,
             addnodes.pending_xref)
LINK = re.compile(r'<a class="glossary-term [^"]*" href="[^"#]*'
                  r'#(?P<id>[^"]+)">.*?</a>', re.DOTALL)


@dataclass(frozen=True)
class Entry:
    """One word of the glossary.

    Attributes:
        term: The word.
        id: Where its entry stands on the page of the glossary.
        meaning: Its meaning, in HTML.
        chinese: The Chinese term.
    """

    term: str
    id: str
    meaning: str
    chinese: str = ""


class chinese_list(nodes.General, nodes.Element):  # noqa: N801  as docutils
    """The place of the list from Chinese to English."""


class ChineseDirective(SphinxDirective):
    """Ask for the list from Chinese to English."""

    def run(self) -> list[nodes.Node]:
        """Give the place of the list."""
        return [chinese_list()]


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the extension."""
    app.add_node(chinese_list)
    app.add_directive("glossary-chinese", ChineseDirective)
    app.connect("env-before-read-docs", note_change)
    app.connect("env-updated", write_again)
    app.connect("doctree-resolved", link_first_uses)
    app.connect("doctree-resolved", list_chinese)
    app.connect("html-page-context", show_meanings, priority=950)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def note_change(app: Sphinx, env: BuildEnvironment,
                docnames: list[str]) -> None:
    """Remember whether the glossary is read anew."""
    app.glossary_changed = GLOSSARY in docnames  # type: ignore[attr-defined]
    app.glossary = None  # type: ignore[attr-defined]


def write_again(app: Sphinx, env: BuildEnvironment) -> list[str]:
    """Write every chapter again when the glossary changed."""
    if not app.glossary_changed:  # type: ignore[attr-defined]
        return []
    return [name for name in env.found_docs if PAGES.match(name)]


def glossary_of(app: Sphinx) -> dict[str, Entry]:
    """Give the entries by their terms in small letters, read once."""
    if app.glossary is None:  # type: ignore[attr-defined]
        env = app.env
        found = ([] if GLOSSARY not in env.found_docs
                 else list(entries(env.get_doctree(GLOSSARY))))
        app.glossary = {  # type: ignore[attr-defined]
            normal(entry.term): entry for entry in found}
    return app.glossary  # type: ignore[attr-defined]


def entries(page: nodes.document) -> Iterable[Entry]:
    """Read the entries: a term, and a definition whose start is its meaning.

    The second paragraph begins with the Chinese term.
    """
    for item in page.findall(nodes.definition_list_item):
        term = next(item.findall(nodes.term))
        meaning, more = list(item.findall(nodes.paragraph))[:2]
        chinese = more.astext().partition("·")[0].strip()
        yield Entry(term.astext(), term["ids"][0],
                    f"{escape(meaning.astext())} "
                    f'<span lang="zh-Hans">{escape(chinese)}</span>',
                    chinese)


def list_chinese(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Write the list from Chinese to English where it was asked for.

    The order of the characters' numbers is that of their radicals and
    strokes, as in a dictionary.
    """
    for place in list(doctree.findall(chinese_list)):
        found = sorted((entry.chinese, entry.id, entry.term)
                       for entry in entries(doctree)
                       if entry.chinese != entry.term)
        lines = "".join(
            f'<li><span lang="zh-Hans">{escape(chinese)}</span> '
            f'<a href="#{name}">{escape(term)}</a></li>\n'
            for chinese, name, term in found)
        place.replace_self(nodes.raw(
            "", f'<ul class="glossary-chinese">\n{lines}</ul>',
            format="html"))


def normal(words: str) -> str:
    """Write a term in one way: small, one kind of space and of dash."""
    return re.sub(r"\s+", " ", words.replace("–", "-")).lower()


@functools.cache
def pattern(terms: tuple[str, ...]) -> re.Pattern[str]:
    """Find any of the terms, also as a plural; the longest one first."""
    spelt = []
    for term in sorted(terms, key=len, reverse=True):
        text = re.escape(term).replace(r"\ ", r"\s+").replace(r"\-", "[-–]")
        text = f"{text[:-1]}(?:y|ies)" if text.endswith("y") else text
        spelt.append(f"(?P<t{terms.index(term)}>{text}(?:e?s)?)")
    return re.compile(rf"(?<![\w–-])(?:{'|'.join(spelt)})(?![\w–-])",
                      re.IGNORECASE)


def link_first_uses(app: Sphinx, doctree: nodes.document,
                    docname: str) -> None:
    """Turn the first use of each term on a page into a link."""
    if app.builder.format != "html" or not PAGES.match(docname):
        return
    glossary = glossary_of(app)
    waiting = set(glossary)
    page = app.builder.get_relative_uri(docname, GLOSSARY)
    for text in list(doctree.findall(nodes.Text)):
        if waiting and is_prose(text):
            pieces = linked(text.astext(), glossary, waiting, page)
            if len(pieces) > 1:
                text.parent.replace(text, pieces)


def is_prose(text: nodes.Text) -> bool:
    """Whether a text stands in a paragraph and in nothing else special."""
    node, in_paragraph = text.parent, False
    while node is not None:
        if isinstance(node, NOT_PROSE) or "cell_output" in node.get(
                "classes", []):
            return False
        in_paragraph = in_paragraph or isinstance(node, nodes.paragraph)
        node = node.parent
    return in_paragraph


def linked(text: str, glossary: dict[str, Entry], waiting: set[str],
           page: str) -> list[nodes.Node]:
    """Cut a text at the terms that still wait for their first use.

    Args:
        text: The text.
        glossary: All entries, since "mask" is not found in "causal mask".
        waiting: The terms not used so far; those found here are removed.
        page: Address of the glossary.
    """
    pieces: list[nodes.Node] = []
    terms, done = tuple(glossary), 0
    for found in pattern(terms).finditer(text):
        term = terms[int(str(found.lastgroup)[1:])]
        if term in waiting:
            waiting.remove(term)
            pieces += [nodes.Text(text[done:found.start()]),
                       nodes.reference("", found[0], internal=True,
                                       refuri=f"{page}#{glossary[term].id}",
                                       classes=["glossary-term"])]
            done = found.end()
    return [*pieces, nodes.Text(text[done:])]


def show_meanings(app: Sphinx, pagename: str, templatename: str,
                  context: dict[str, Any], doctree: object) -> None:
    """Put the meaning beside each link.

    It is put into the page, not into the document: the search would find
    every page that mentions the word.
    """
    if context.get("body") and PAGES.match(pagename):
        meanings = {entry.id: entry.meaning
                    for entry in glossary_of(app).values()}
        context["body"] = LINK.sub(
            lambda found: with_meaning(found, meanings), context["body"])


def with_meaning(found: re.Match[str], meanings: dict[str, str]) -> str:
    """Write a link with its meaning."""
    name = "meaning-" + found["id"]
    link = found[0].replace("<a ", f'<a aria-describedby="{name}" ', 1)
    return (f'<span class="glossary-use">{link}<span class="glossary-meaning" '
            f'role="tooltip" id="{name}">{meanings[found["id"]]}</span>'
            "</span>")
