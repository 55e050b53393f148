"""What every notebook keeps to, read from its file without running it."""

import ast
import copy
import itertools
import json
import re
import sys
from pathlib import Path

import nbformat
import pytest

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tools"))

import colab  # noqa: E402

NOTEBOOKS = sorted((ROOT / "chapters").glob("*.ipynb"))
CITED = set(re.findall(r"^@\w+\{([^,]+),",
                       (ROOT / "references.bib").read_text("utf8"), re.M))

FIRST_CELLS = ["chapter-title", "chapter-goals"]
LAST_CELLS = ["chapter-summary", "further-reading"]
NUMPY_CHAPTERS = range(1, 8)  # NumPy alone, up to "... in PyTorch"
MAY_IMPORT = {"course", "dataclasses", "itertools", "json", "math",
              "matplotlib", "numpy", "pathlib", "self_attention", "time",
              "torch", "warnings"}
MOST_LINES = 16
MOST_BYTES = 2_000_000

# Words that tell a learner who does not see it that they should.
NOT_TO_A_LEARNER = re.compile(
    r"\b(simply|obvious|obviously|trivial|trivially|clearly|just|"
    r"of course|needless to say)\b", re.I)
AMERICAN = re.compile(
    r"\b(behaviors?|colors?|colored|centers?|centered|fav?ors|favorite|gray|"
    r"neighbors?|neighboring|labeled|labeling|modeled|modeling|canceled|"
    r"catalog|analyz\w+|\w{3,}(?<!s)iz(?:e|es|ed|ing|ation|ations))\b", re.I)
NOT_AMERICAN = {"size", "sizes", "sized", "resize", "resized", "prize",
                "seize", "seized", "capsize"}

ADDRESS = re.compile(r"\b0x[0-9a-f]{5,}\b")
PLACE = re.compile(r"(?<![\w.])/(?:home|root|tmp|usr|work|Users|var|opt)/"
                   r"|[A-Z]:\\\\|ipykernel_\d+")
CLOCK = re.compile(r"\b20\d\d-\d\d-\d\d\b|\b\d\d:\d\d:\d\d\b"
                   r"|\b\d+(?:\.\d+)? ?(?:ms|µs|us|ns|seconds)\b")


def text_of(cell):
    """The prose of a markdown cell, without code, formulas and links."""
    text = re.sub(r"^(`{3,}|~{3,}).*?^\1`*\s*$", "", cell.source,
                  flags=re.M | re.S)
    text = re.sub(r"\$\$.*?\$\$|\$[^$\n]+\$", "", text, flags=re.S)
    text = re.sub(r"(`+).+?\1", "", text, flags=re.S)
    return re.sub(r"\]\([^)]*\)|<[^>]+>|https?://\S+", "", text)


def code_cells(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def markdown_cells(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "markdown"]


def is_left_out(cell):
    """Whether the site leaves a cell out, so that no reader sees it there."""
    return "remove-cell" in cell.metadata.get("tags", [])


def headings(notebook):
    """(level, text, cell id) of each heading, in order."""
    for cell in markdown_cells(notebook):
        text = re.sub(r"^(`{3,}).*?^\1`*\s*$", "", cell.source,
                      flags=re.M | re.S)
        for marks, words in re.findall(r"^(#{1,6}) +(.+)$", text, re.M):
            yield len(marks), words.strip(), cell.id


def output_texts(cell):
    """All text that a cell printed or showed."""
    for output in cell.outputs:
        data = output.get("data", {"text/plain": output.get("text", "")})
        for kind, value in data.items():
            if kind.startswith("text/") or kind == "application/json":
                yield value if isinstance(value, str) else json.dumps(value)


# Each rule gives a sentence for each fault that it finds.

def cells_were_run_in_order(notebook, path):
    counts = [cell.execution_count for cell in code_cells(notebook)]
    if counts != list(range(1, len(counts) + 1)):
        yield f"counts are {counts}: run make notebooks"


def file_is_in_normal_form(notebook, path):
    text = nbformat.writes(notebook, indent=1).rstrip("\n") + "\n"
    if path.read_text("utf8") != text:
        yield "an editor has reformatted the file: run make notebooks"
    if set(notebook.metadata) != {"kernelspec", "language_info"}:
        yield f"metadata of a machine: {sorted(notebook.metadata)}"
    for cell in notebook.cells:
        may = {"tags", "mystnb", "editable"}
        extra = set(cell.metadata) - may - (
            {"jupyter"} if is_left_out(cell) else set())
        if extra:
            yield f"{cell.id}: metadata {sorted(extra)}"


def file_is_small(notebook, path):
    size = path.stat().st_size
    if size > MOST_BYTES:
        yield f"{size} bytes are more than {MOST_BYTES}"


def ids_are_slugs(notebook, path):
    ids = [cell.id for cell in notebook.cells]
    for name in ids:
        if not re.fullmatch(r"[a-z]+(-[a-z0-9]+)+", name):
            yield f"{name} is not a slug of at least two words"
        if ids.count(name) > 1:
            yield f"{name} is there twice"


def frame_is_complete(notebook, path):
    ids = [cell.id for cell in notebook.cells]
    if ids[:2] != FIRST_CELLS:
        yield f"begins with {ids[:2]}, not {FIRST_CELLS}"
    if ids[-2:] != LAST_CELLS:
        yield f"ends with {ids[-2:]}, not {LAST_CELLS}"
    titles = [words for _, words, _ in headings(notebook)]
    for title in ("What you will be able to do", "What you need", "Summary",
                  "Further reading"):
        if titles.count(title) != 1:
            yield f"the heading {title!r} is there {titles.count(title)} times"
    if not notebook.cells[0].source.startswith("(ch-"):
        yield "the title has no label (ch-...)="


def headings_step_down_by_one(notebook, path):
    level = 0
    for number, words, name in headings(notebook):
        if number > level + 1:
            yield f"{name}: {words!r} jumps from level {level} to {number}"
        if number == 1 and level:
            yield f"{name}: {words!r} is a second title"
        level = number


def titles_have_no_number(notebook, path):
    for _, words, name in headings(notebook):
        if re.match(r"\d", words):
            yield f"{name}: the table of contents numbers {words!r}"


def prose_stands_between_code(notebook, path):
    cells = [cell for cell in notebook.cells if not is_left_out(cell)]
    for first, second in itertools.pairwise(cells):
        if first.cell_type == second.cell_type == "code":
            yield f"{first.id}, {second.id}: two code cells in a row"


def code_is_short(notebook, path):
    for cell in code_cells(notebook):
        if "exercise" in cell.metadata.get("tags", []):
            continue  # a stub is as long as what it asks for
        lines = cell.source.count("\n") + 1
        if lines > MOST_LINES or not cell.source.strip():
            yield f"{cell.id}: {lines} lines"


def code_does_not_end_with_semicolon(notebook, path):
    # nbval does not know that it hides a cell's last value.
    for cell in code_cells(notebook):
        if cell.source.rstrip().endswith(";"):
            yield f"{cell.id}: ends with a semicolon"


def imports_are_allowed(notebook, path):
    number = re.match(r"\d+", path.name)
    framed = bool(number) and int(number[0]) in NUMPY_CHAPTERS
    torch_may = False
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            for line in cell.source.splitlines():
                torch_may |= bool(re.match(r"#+ .*PyTorch", line))
            continue
        if is_left_out(cell):
            continue  # must run before anything is installed
        for module in imported(cell.source):
            package = module.partition(".")[0]
            if package not in MAY_IMPORT:
                yield f"{cell.id}: imports {module}"
            if framed and not torch_may and "torch" in module:
                yield f"{cell.id}: imports {module} before '... PyTorch'"


def imported(source):
    """The modules that a cell imports; submodules by their full name."""
    source = re.sub(r"^[%!].*$", "", source, flags=re.M)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def what_is_left_out_is_the_cell_for_colab(notebook, path):
    left_out = [cell for cell in notebook.cells if is_left_out(cell)]
    if [cell.id for cell in left_out] != [colab.NAME]:
        yield f"the site leaves out {[cell.id for cell in left_out]}"
    elif not colab.is_fresh(left_out[0]):
        yield "another cell for Colab: run tools/colab.py, make notebooks"
    for before, cell in zip(notebook.cells, notebook.cells[1:]):
        if is_left_out(cell) and before.id != colab.AFTER:
            yield f"{cell.id} stands after {before.id}, not {colab.AFTER}"


def outputs_are_the_same_everywhere(notebook, path):
    for cell in code_cells(notebook):
        for output in cell.outputs:
            if output.output_type == "error":
                yield f"{cell.id}: stopped with {output.ename}"
            if output.get("name") == "stderr":
                yield f"{cell.id}: a warning: {output.text[:60]!r}"
        patterns = [("an address", ADDRESS), ("a path", PLACE)]
        if "nbval-ignore-output" not in cell.metadata.get("tags", []):
            patterns.append(("a time", CLOCK))
        for text in output_texts(cell):
            for what, pattern in patterns:
                found = pattern.search(text)
                if found:
                    yield f"{cell.id}: prints {what}: {found[0]!r}"


def unstable_outputs_are_asserted(notebook, path):
    # Whatever a cell prints that is not compared, it must assert something.
    for cell in code_cells(notebook):
        if ("nbval-ignore-output" in cell.metadata.get("tags", [])
                and "assert" not in cell.source):
            yield f"{cell.id}: output not compared and nothing asserted"


def figures_speak(notebook, path):
    for cell in code_cells(notebook):
        if not any("image/png" in output.get("data", {})
                   for output in cell.outputs):
            continue
        meta = cell.metadata.get("mystnb", {})
        alt = meta.get("image", {}).get("alt", "")
        figure = meta.get("figure", {})
        if len(alt) < 40 or re.search(r"\.(png|svg)$", alt):
            yield f"{cell.id}: the figure's alt text is {alt!r}"
        if len(figure.get("caption", "")) < 15:
            yield f"{cell.id}: the figure has no caption"
        if not re.fullmatch(r"fig(-[a-z0-9]+)+", figure.get("name", "")):
            yield f"{cell.id}: the figure's name is {figure.get('name')!r}"


def claims_are_decided(notebook, path):
    for number, cell in enumerate(notebook.cells):
        if "check-claim" not in cell.source:
            continue
        if not re.search(r"^\(claim-[a-z0-9-]+\)=$", cell.source, re.M):
            yield f"{cell.id}: the claim has no label (claim-...)="
        following = notebook.cells[number + 1:number + 4]
        code = [next_cell.source for next_cell in following
                if next_cell.cell_type == "code"]
        if (following[0].cell_type != "code"
                or not any("assert" in source for source in code)):
            yield f"{cell.id}: no cell decides the claim"


def words_are_kind(notebook, path):
    for cell in markdown_cells(notebook):
        if "check-claim" in cell.source:  # speaks with the note's words
            continue
        for found in NOT_TO_A_LEARNER.finditer(text_of(cell)):
            yield f"{cell.id}: {found[0]!r}"


def spelling_is_british(notebook, path):
    for cell in markdown_cells(notebook):
        for found in AMERICAN.finditer(text_of(cell)):
            if found[0].lower() not in NOT_AMERICAN:
                yield f"{cell.id}: {found[0]!r}"


def sources_are_listed(notebook, path):
    for cell in markdown_cells(notebook):
        for keys in re.findall(r"\{cite(?::\w+)?\}`([^`]+)`", cell.source):
            for key in keys.split(","):
                if key.strip() not in CITED:
                    yield f"{cell.id}: {key.strip()} is not in references.bib"


RULES = [
    cells_were_run_in_order, file_is_in_normal_form, file_is_small,
    ids_are_slugs, frame_is_complete, headings_step_down_by_one,
    titles_have_no_number, prose_stands_between_code, code_is_short,
    code_does_not_end_with_semicolon, imports_are_allowed,
    what_is_left_out_is_the_cell_for_colab,
    outputs_are_the_same_everywhere, unstable_outputs_are_asserted,
    figures_speak, claims_are_decided, words_are_kind, spelling_is_british,
    sources_are_listed,
]


def read(path):
    return nbformat.read(path, as_version=4)


def test_there_are_chapters():
    numbers = [int(path.name[:2]) for path in NOTEBOOKS
               if path.name[0].isdigit()]
    assert set(range(1, 10)) <= set(numbers)
    assert len(numbers) == len(set(numbers))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_chapter_keeps(rule, path):
    problems = list(rule(read(path), path))
    assert not problems, f"{path.name}\n  " + "\n  ".join(problems)


def test_figures_have_different_names():
    names = [cell.metadata["mystnb"]["figure"]["name"] for path in NOTEBOOKS
             for cell in code_cells(read(path))
             if "figure" in cell.metadata.get("mystnb", {})]
    assert len(names) == len(set(names))


# A rule that cannot fail checks nothing: each one must see its fault.

GOOD = [
    ("markdown", "chapter-title", "(ch-good)=\n# Good\n\nA lead."),
    ("markdown", "chapter-goals", "## What you will be able to do\n\n- Add."),
    ("markdown", "chapter-needs", "## What you need\n\nNothing."),
    ("code", "code-colab", colab.SOURCE),
    ("code", "code-imports", "import numpy as np"),
    ("markdown", "claim-text", "(claim-x)=\n:::{admonition} Check the claim\n"
     ":class: check-claim\nA sum of 2.\n:::\n\n`simply` {cite}`ba2016layer`"),
    ("code", "claim-cell", "assert np.add(1, 1) == 2"),
    ("markdown", "same-torch", "## The same in PyTorch"),
    ("code", "same-import", "import torch"),
    ("markdown", "chapter-summary", "## Summary\n\nThe size is 2."),
    ("markdown", "further-reading", "## Further reading"),
]


@pytest.fixture
def good(tmp_path):
    """A small chapter without a fault, and where it lies."""
    cells, count = [], 0
    for kind, name, source in GOOD:
        if kind == "code":
            count += 1
            cell = nbformat.v4.new_code_cell(source, execution_count=count)
        else:
            cell = nbformat.v4.new_markdown_cell(source)
        cell.id = name
        if name == colab.NAME:
            cell.metadata = nbformat.from_dict(colab.METADATA)
        cells.append(cell)
    notebook = nbformat.v4.new_notebook(cells=cells, metadata={
        "kernelspec": {"display_name": "Python 3", "language": "python",
                       "name": "python3"},
        "language_info": {"name": "python"}})
    path = tmp_path / "01_good.ipynb"
    path.write_text(nbformat.writes(notebook, indent=1) + "\n", "utf8")
    return read(path), path


def test_good_chapter_has_no_problem(good):
    assert [list(rule(*good)) for rule in RULES] == [[]] * len(RULES)


def figure(**mystnb):
    output = nbformat.v4.new_output("display_data", {"image/png": "aGk="})
    return {"outputs": [output], "metadata": {"mystnb": mystnb}}


def shows(text, **metadata):
    return {"outputs": [nbformat.v4.new_output("stream", text=text)],
            "metadata": metadata}


UNSTABLE = {"tags": ["nbval-ignore-output"]}
BAD = [  # (rule, id of the cell, what to change in it)
    (cells_were_run_in_order, "code-imports", {"execution_count": None}),
    (file_is_in_normal_form, "code-imports", {"metadata": {"id": 3}}),
    (ids_are_slugs, "claim-cell", {"id": "a1b2c3"}),
    (frame_is_complete, "chapter-summary", {"id": "the-summary"}),
    (headings_step_down_by_one, "chapter-needs", {"source": "#### Deep"}),
    (headings_step_down_by_one, "chapter-needs", {"source": "# Again"}),
    (titles_have_no_number, "chapter-needs", {"source": "## 3 Things"}),
    (prose_stands_between_code, "claim-text", {"cell_type": "code"}),
    (code_is_short, "code-imports", {"source": "x = 1\n" * 17}),
    (code_does_not_end_with_semicolon, "code-imports", {"source": "x;"}),
    (imports_are_allowed, "code-imports", {"source": "import torch.nn"}),
    (imports_are_allowed, "code-imports",
     {"source": "from self_attention import torch_eager"}),
    (imports_are_allowed, "same-import", {"source": "import keras"}),
    (what_is_left_out_is_the_cell_for_colab, "code-colab",
     {"source": "import sys"}),
    (what_is_left_out_is_the_cell_for_colab, "code-colab", {"metadata": {}}),
    (what_is_left_out_is_the_cell_for_colab, "code-imports", {"metadata": {
        "tags": ["remove-cell"]}}),
    (what_is_left_out_is_the_cell_for_colab, "chapter-needs",
     {"id": "other-needs"}),
    (outputs_are_the_same_everywhere, "code-imports",
     shows("<object at 0x7f00deadbeef>")),
    (outputs_are_the_same_everywhere, "code-imports",
     shows("/tmp/ipykernel_12/3.py", **UNSTABLE)),
    (outputs_are_the_same_everywhere, "code-imports", shows("took 3.2 ms")),
    (outputs_are_the_same_everywhere, "code-imports",
     {"outputs": [nbformat.v4.new_output("error", ename="E", evalue="",
                                         traceback=[])]}),
    (unstable_outputs_are_asserted, "code-imports",
     shows("took 3.2 ms", **UNSTABLE)),
    (figures_speak, "code-imports", figure()),
    (figures_speak, "code-imports", figure(
        image={"alt": "x" * 50}, figure={"caption": "y" * 20, "name": "f"})),
    (claims_are_decided, "claim-cell", {"source": "print(1 + 1)"}),
    (words_are_kind, "chapter-needs", {"source": "This is Simply so."}),
    (spelling_is_british, "chapter-needs", {"source": "We normalize."}),
    (spelling_is_british, "chapter-needs", {"source": "The color."}),
    (sources_are_listed, "claim-text", {"source": "{cite}`nobody1999none`"}),
]


@pytest.mark.parametrize(("rule", "name", "change"), BAD,
                         ids=[f"{rule.__name__}-{number}" for number,
                              (rule, _, _) in enumerate(BAD)])
def test_rule_sees_its_fault(rule, name, change, good):
    notebook, path = copy.deepcopy(good[0]), good[1]
    cell = next(cell for cell in notebook.cells if cell.id == name)
    if change.get("cell_type") == "code":
        cell.update(outputs=[], execution_count=9)
    cell.update(nbformat.from_dict(change))
    assert list(rule(notebook, path))


def test_every_rule_is_seen_to_fail():
    assert {rule for rule, _, _ in BAD} | {file_is_small} == set(RULES)
