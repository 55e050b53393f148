"""Write the page of mistakes, chapters/common_mistakes.ipynb.

Usage: python tools/common_mistakes.py [--check]

Its texts come from the catalogue of the exercises; its numbers are computed
when the notebook runs (make notebooks ONLY=common). A code cell whose text
did not change keeps its output. With ``--check`` nothing is written; the
exit status says whether anything would change.
"""

import itertools
import sys

import nbformat

import colab
from course.exercises.catalogue import Entry, anchor, entries
from course.exercises.general import MISTAKES
from course.exercises.notebook import Cell, slug
from rewriting import CHAPTERS, rewrite, text_of

PAGE = CHAPTERS / "common_mistakes.ipynb"
KERNEL = {"kernelspec": {"display_name": "Python 3", "language": "python",
                         "name": "python3"},
          "language_info": {"name": "python"}}

TITLE = """(ch-common-mistakes)=
# Common mistakes

Nearly all mistakes in attention run without an error. The shapes fit, the
loss falls, and the result is wrong. This page lists {count} such mistakes:
what each does to an example small enough to follow by hand, how it shows, and
which chapter explains it. It is the catalogue that the exercises check with,
so it says what a check can tell you by name."""

GOALS = """## What you will be able to do

- Recognise a mistake by its symptom: a shape, a sum, a factor, a NaN.
- Say why one example is not enough, and which sizes make a mistake visible.
- Read what a check says, and what it does not say."""

NEEDS = """## What you need

The chapter that a mistake belongs to; each section names it. Use the page as a
reference: search it for a symptom or for the name that a check gave you. It
takes 10 minutes to read how it works, and an hour to read it all."""

IMPORTS = """from course.exercises import check
from course.exercises.catalogue import OnExample
from self_attention.numpy_reference import softmax"""

ATTEMPTS = """(mistakes-attempts)=
## Three attempts

Here are three wrong answers, and what the check of the exercise says. The
inputs are drawn afresh each time; here the seed is fixed, so that you see what
is described.

### Two mistakes at once

This function divides by $d$ instead of $\\sqrt{d}$, and lets the queries share
out each key instead of the other way round."""

FIRST = """def attention(query, key, value):
    scores = query @ key.swapaxes(-2, -1)
    scaled = scores / key.shape[-1]
    weights = softmax(scaled, axis=1)
    return weights @ value

first = check("attention", attention, seed=1, note=False)
assert set(first.mistakes) == {"scale-by-d", "softmax-over-queries"}
first"""

AFTER_FIRST = """The check ran the function on three fresh inputs and compared
the results with those of every mistake in its catalogue and of every pair. One
pair gives exactly these numbers on all three. It also followed the run line by
line: the scores are right, and line 3 is the first that is not.

### A reshape that fits

The shape is right, and for a learner who looks at shapes everything is."""

SECOND = """def separate_heads(x, num_heads):
    batch, seq_len, width = x.shape
    return x.reshape(batch, num_heads, seq_len, width // num_heads)

second = check("separate_heads", separate_heads, seed=1, note=False)
assert second.mistakes == ("split-reshape",)
second"""

AFTER_SECOND = """The message tells what landed in head 0, in the sizes of the
input that was drawn. It speaks of numbers, not of the code: other programs
give the same numbers, and a check cannot know what anybody meant.

### When numbers cannot decide

Every word gets the same weight here. That can come about in more than one
way."""

THIRD = """def attend_with_one_query(query, keys, values):
    return values.mean(axis=0)

third = check("attend_with_one_query", attend_with_one_query, seed=1,
              note=False)
assert third.verdict == "either"
assert set(third.mistakes) == {"q-with-q", "values-averaged"}
third"""

AFTER_THIRD = """A query that is compared with itself instead of the keys gives
equal scores, and so equal weights: the plain mean again. No input can tell the
two apart. The check then says "either … or …"; it never guesses.

(mistakes-reading)=
## How to read the tables

Each section shows one small example with its right result. Then come the
mistakes: the result that each gives, and how it shows on inputs as a check
draws them. A tuple of arrays is separated by semicolons; `T` and `F` stand for
True and False.

Some mistakes hide on some inputs. A scale by the wrong size is right where the
two sizes are equal; a mask that is its own transpose hides a transposition.
That is why a check uses several inputs: one with all sizes different, where a
wrong axis shows in the shape, and one with all sizes equal, where nothing
stops the mistake from giving numbers to compare."""

FORM = """(mistakes-form)=
## The form of an answer

These are found by looking at what comes back, whatever is computed."""

SUMMARY = """## Summary

- A result of the right shape without an error proves little.
- Rows of weights that do not sum to 1, a constant factor, the right numbers in
  the wrong places: symptoms like these name their mistake.
- Equal sizes hide mistakes and unequal sizes reveal them. Test with both.
- A check says which mistakes give exactly your numbers. Where several do, it
  says so."""

READING = """## Further reading

- Many of the mistakes were reported in public by people who had lost days to
  them; the exercises made from such reports link to them.
- For the conventions in which libraries differ, see
  [Conventions of the libraries](conventions.ipynb); for claims about attention
  that are wrong or vague, see [Corrections](corrections.md).
- The formula that all of them distort: {cite}`vaswani2017attention`."""


def cells() -> list[Cell]:
    """Give the cells of the page."""
    found = entries()
    page = [Cell("markdown", "chapter-title",
                 TITLE.format(count=len(found) + len(MISTAKES))),
            Cell("markdown", "chapter-goals", GOALS),
            Cell("markdown", "chapter-needs", NEEDS),
            Cell("code", "code-imports", IMPORTS),
            Cell("markdown", "attempt-first", ATTEMPTS),
            Cell("code", "attempt-first-check", FIRST),
            Cell("markdown", "attempt-second", AFTER_FIRST),
            Cell("code", "attempt-second-check", SECOND),
            Cell("markdown", "attempt-third", AFTER_SECOND),
            Cell("code", "attempt-third-check", THIRD),
            Cell("markdown", "how-to-read", AFTER_THIRD)]
    for chapter, of_chapter in itertools.groupby(
            found, key=lambda entry: entry.mistake.explained):
        head = theme(chapter)
        for _, of_exercise in itertools.groupby(
                of_chapter, key=lambda entry: entry.exercise.id):
            group = list(of_exercise)
            name = slug(group[0].exercise)
            number = f"theme-{chapter:02d}-{name}"
            page += [Cell("markdown", number, head + described(group)),
                     Cell("code", f"{number}-numbers",
                          f'OnExample("{group[0].exercise.id}", {chapter})')]
            head = ""
    return [*page, Cell("markdown", "answer-form", form()),
            Cell("markdown", "chapter-summary", SUMMARY),
            Cell("markdown", "further-reading", READING)]


def theme(chapter: int) -> str:
    """Write the heading of a chapter's mistakes."""
    path = next(CHAPTERS.glob(f"{chapter:02d}_*.ipynb"))
    first = nbformat.read(path, as_version=4).cells[0].source
    title = next(line[2:] for line in first.splitlines()
                 if line.startswith("# "))
    return (f"(mistakes-{chapter:02d})=\n## {title}\n\nExplained in "
            f"[chapter {chapter}]({path.name}).\n\n")


def described(group: list[Entry]) -> str:
    """Write the texts of the mistakes that are shown on one example."""
    title = group[0].exercise.title.removeprefix("Find the bug: ")
    parts = [f"### {title[0].upper()}{title[1:]}"]
    for entry in group:
        mistake = entry.mistake
        text = [f"**`{mistake.id}`**: {mistake.label}.",
                mistake.effect_on(entry.exercise.tiny()), mistake.why]
        others = len(entry.known_to) - 1
        if others:
            text.append("(Named in " + ("one other exercise" if others == 1
                                        else f"{others} other exercises")
                        + " too.)")
        parts.append(f"({entry.anchor})=\n" + " ".join(filter(None, text)))
    return "\n\n".join(parts)


def form() -> str:
    """Write the mistakes that any exercise can show."""
    parts = [FORM]
    for mistake in MISTAKES.values():
        parts.append(f"({anchor(mistake.id)})=\n**`{mistake.id}`**: "
                     f"{mistake.label}. {mistake.effect}")
    return "\n\n".join(parts)


def page() -> str:
    """Give the text of the notebook file as it should be."""
    old = {}
    if PAGE.exists():
        old = {cell.id: cell for cell in nbformat.read(
            PAGE, as_version=4).cells}
    book = nbformat.v4.new_notebook(metadata=KERNEL)
    book.cells = [nbformat.from_dict(cell.as_json()) for cell in cells()]
    place = [cell.id for cell in book.cells].index(colab.AFTER) + 1
    book.cells.insert(place, colab.colab_cell())
    for new in book.cells:
        kept = old.get(new.id)
        if (kept is not None and kept.cell_type == "code" == new.cell_type
                and kept.source == new.source):
            new.outputs = kept.outputs
            new.execution_count = kept.execution_count
    return text_of(book)


def main(arguments: list[str]) -> int:
    """Write the page; give the exit status."""
    return rewrite(arguments, [PAGE], lambda path: page())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
