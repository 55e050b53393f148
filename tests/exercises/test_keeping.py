"""Progress, hints, the table, the command line and the notebooks."""

import itertools
import json
import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

import nbformat
import pytest
from answers import load

from course.exercises import (
    check,
    cli,
    export_progress,
    find,
    hint,
    ledger,
    notebook,
    progress,
    quiz,
    restore_progress,
    solution,
    tasks,
)
from course.exercises.quizzes import as_html, questions_of, shape_question
from course.exercises.registry import UnknownExerciseError, chapters

ROOT = Path(__file__).resolve().parents[2]
CHAPTERS = sorted((ROOT / "chapters").glob("[0-9][0-9]_*.ipynb"))
WITH_EXERCISES = [path for path in CHAPTERS
                  if int(path.name[:2]) in chapters()]

NO_SCALE = """
def attention_weights(query, key):
    s = query @ key.swapaxes(-2, -1)
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)
"""


@pytest.fixture
def kept(tmp_path, monkeypatch):
    """A progress file of its own."""
    file = tmp_path / "progress.json"
    monkeypatch.setenv("COURSE_PROGRESS", str(file))
    return file


# -- progress ---------------------------------------------------------------

def test_progress_is_kept_and_carried(kept, tmp_path, monkeypatch):
    right = load(find("softmax").solution_cell(), "softmax")
    assert check("softmax", right).passed
    assert not check("attention", lambda query, key, value: value).passed
    assert ledger.load()["softmax"]["passed"]
    assert "def softmax" in ledger.load()["softmax"]["source"]
    assert ledger.load()["attention"]["tries"] == 1
    text = export_progress()
    short = export_progress(with_code=False)
    assert len(short) < len(text) < 2000
    monkeypatch.setenv("COURSE_PROGRESS", str(tmp_path / "other.json"))
    assert ledger.load() == {}
    wrapped = "\n".join(text[n:n + 60] for n in range(0, len(text), 60))
    assert restore_progress(wrapped)["softmax"]["passed"]
    assert ledger.load()["attention"]["tries"] == 1


def test_restoring_never_loses_a_pass(kept):
    older = export_progress()
    check("softmax", load(find("softmax").solution_cell(), "softmax"))
    passed = ledger.load()["softmax"]["passed"]
    restore_progress(older)
    assert ledger.load()["softmax"]["passed"] == passed
    entry = {"softmax": {"tries": 9, "passed": None, "last": "no-scale"}}
    kept_elsewhere = ledger._merged(ledger.load()["softmax"],
                                    ledger._valid(entry)["softmax"])
    assert kept_elsewhere["passed"] == passed
    assert kept_elsewhere["tries"] == 9


@pytest.mark.parametrize("text", ["", "nonsense", "course1:", "course1:###",
                                  "course1:AAAA", "course2:eJyrrgUAAXUA-Q=="])
def test_a_damaged_export_is_refused(kept, text):
    with pytest.raises(ValueError, match=r"exported|damaged"):
        restore_progress(text)
    assert not kept.exists()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"softmax": 3}', "\0",
                                  '{"softmax": {"tries": "x"}}'])
def test_a_damaged_file_is_no_progress(kept, text):
    kept.write_text(text)
    assert not any(e.get("tries") for e in ledger.load().values())
    assert repr(progress())
    check("softmax", lambda x: x)
    assert json.loads(kept.read_text())["softmax"]["tries"] == 1


def test_a_crash_while_writing_leaves_the_old_file(kept, monkeypatch):
    check("softmax", lambda x: x)
    before = kept.read_text()

    def crash(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", crash)
    with pytest.raises(KeyboardInterrupt):
        check("softmax", lambda x: x)
    assert kept.read_text() == before
    assert list(kept.parent.iterdir()) == [kept]


def test_a_folder_that_cannot_be_written_is_no_error(monkeypatch, tmp_path):
    monkeypatch.setenv("COURSE_PROGRESS", str(tmp_path / "no" / "folder"))
    assert not check("softmax", lambda x: x).passed


def test_an_untouched_stub_leaves_no_trace(kept):
    check("softmax", load(find("softmax").stub(), "softmax"))
    check("predict_parameters", ...)
    assert not kept.exists()


def test_the_table_shows_what_was_done(kept):
    check("separate_heads",
          load(find("separate_heads").solution_cell(), "separate_heads"))
    table = progress(5)
    assert repr(table).count("✓ done") == 1
    assert "1 of 5 exercises done" in repr(table)
    assert "<th scope" in table._repr_html_()
    assert repr(progress()).count("\n") == len(list(tasks()))


# -- hints ------------------------------------------------------------------

def test_hints_go_up_and_fit_the_last_mistake(kept):
    assert "How" not in str(hint("attention_weights"))[:6]
    first = str(hint("attention_weights", 1))
    assert find("attention_weights").hints[0] in first
    check("attention_weights", load(NO_SCALE, "attention_weights"))
    fitted = find("attention_weights").mistake("no-scale")
    assert fitted.question in str(hint("attention_weights"))
    seen = [str(hint("attention_weights")) for _ in range(4)]
    assert seen[0].startswith("Hint 2 of 4")
    assert fitted.fix in seen[-1]
    assert seen[-1] == seen[-2]


def test_the_solution_waits_for_three_tries(kept):
    assert "after 3 more checks" in str(solution("softmax"))
    for _ in range(3):
        check("softmax", lambda x: x)
    assert "def softmax" in str(solution("softmax"))
    assert "def attention" in str(solution("attention", now=True))
    assert "```python" in solution("softmax")._repr_markdown_()


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(UnknownExerciseError, match="separate_heads"):
        check("separate_head", lambda x: x)


def test_two_ways_of_calling_check():
    softmax = load(find("softmax").solution_cell(), "softmax")
    assert check(softmax).passed
    split = load(find("separate_heads").solution_cell(), "separate_heads")
    assert check("split_heads", split).exercise == "separate_heads"
    called = check("softmax", 3.0)
    assert called.verdict == "facts"
    assert "without calling it" in called.text


def test_result_shows_itself():
    result = check("softmax", lambda x: x + "<b>", seed=1)
    shown = result._repr_mimebundle_()
    assert shown["text/plain"] == result.text == str(result)
    assert "<b>" not in shown["text/html"]
    assert not result


# -- quizzes ----------------------------------------------------------------

@pytest.mark.parametrize("chapter", chapters())
def test_questions_have_one_right_answer(chapter):
    questions = questions_of(chapter)
    assert len(questions) >= 2
    for number, question in enumerate(questions, 1):
        assert sum(option.right for option in question.options) == 1
        assert len(question.options) >= 2
        texts = [option.text for option in question.options]
        assert len(set(texts)) == len(texts)
        html = as_html(question, number)
        assert html.count("<details>") == len(question.options)
        assert "<script" not in html
    named = [option.mistake for question in questions
             for option in question.options if option.mistake]
    known = {m.id for task in tasks() for m in task.mistakes}
    assert set(named) <= known
    assert named, "wrong options are the results of mistakes"
    assert "<section" in quiz(chapter)._repr_html_()
    assert "a)" in repr(quiz(chapter))


def test_shape_question_is_computed():
    question = shape_question("attention_scores")
    right = next(o for o in question.options if o.right)
    assert right.text == "`(batch, query_len, key_len)`"
    wrong = {o.mistake for o in question.options if not o.right}
    assert "scores-transposed" in wrong


# -- command line -----------------------------------------------------------

def command(*arguments, cwd, timeout=120):
    return subprocess.run(
        [sys.executable, "-m", "course.exercises", *arguments], cwd=cwd,
        capture_output=True, text=True, timeout=timeout,
        env={**os.environ, "COURSE_PROGRESS": str(cwd / "p.json"),
             "OMP_NUM_THREADS": "1"})


def test_command_line_from_new_to_export(tmp_path):
    new = command("new", "mine.py", "softmax", "split_heads",
                  "predict_parameters", cwd=tmp_path)
    assert new.returncode == 0, new.stderr
    assert command("new", "mine.py", cwd=tmp_path).returncode == 2
    stubs = command("check", "mine.py", cwd=tmp_path)
    assert stubs.returncode == 1
    assert stubs.stdout.count("Not attempted yet") == 3
    file = tmp_path / "mine.py"
    text = file.read_text()
    text = text.replace("    raise NotImplementedError", "    pass")
    file.write_text(text + "\n\n" + "\n\n".join(
        find(name).solution_cell() for name in (
            "softmax", "separate_heads", "predict_parameters")))
    right = command("check", "mine.py", "--json", cwd=tmp_path)
    assert right.returncode == 0, right.stdout + right.stderr
    reports = [json.loads(line) for line in right.stdout.splitlines()]
    assert [report["verdict"] for report in reports] == ["passed"] * 3
    exported = command("export", cwd=tmp_path).stdout.strip()
    assert exported.startswith("course1:")
    (tmp_path / "p.json").unlink()
    restored = command("restore", exported, cwd=tmp_path)
    assert "3 exercises are done" in restored.stdout
    assert command("restore", "nonsense", cwd=tmp_path).returncode == 2
    listed = command("list", cwd=tmp_path).stdout
    assert listed.count("✓ done") == 3


def test_the_command_line_names_its_own_commands(kept, tmp_path, capsys):
    file = tmp_path / "answers.py"
    file.write_text("def softmax(x):\n    return x\n")
    assert cli.main(["check", str(file), "softmax", "--seed", "4"]) == 1
    told = capsys.readouterr().out
    assert "`hint softmax` gives a hint" in told
    assert "The same inputs again: --seed 4" in told
    cli.main(["solution", "softmax"])
    told = capsys.readouterr().out
    assert "`hint softmax` helps; `solution softmax --now`" in told
    assert "hint('" not in told
    cli.main(["check", str(file), "softmax", "--json"])
    assert "hint('softmax')" in json.loads(capsys.readouterr().out)["text"]


def test_a_chapter_without_exercises_is_said():
    assert repr(progress(99)) == "Chapter 99 has no exercises."


def test_command_line_kills_what_hangs(tmp_path):
    (tmp_path / "mine.py").write_text("""
import os
import signal
import time
import numpy as np

def softmax(x):
    signal.setitimer(signal.ITIMER_REAL, 0)
    while True:
        time.sleep(1)

def causal_mask(seq_len):
    os._exit(3)

def additive_mask(mask):
    return np.where(mask, 0.0, -np.inf)
""")
    done = command("check", "mine.py", "--patience", "2", cwd=tmp_path)
    assert done.returncode == 1
    assert "✗ softmax: Not yet. Killed after 2 s" in done.stdout
    assert "✗ causal_mask: Not yet. The process" in done.stdout
    assert "✓ additive_mask" in done.stdout
    assert "1 of 3 right" in done.stdout


def test_command_line_watches_a_file(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text("import numpy as np\ndef causal_mask(n):\n"
                    "    return np.triu(np.ones((n, n), bool))\n")
    process = subprocess.Popen(
        [sys.executable, "-u", "-m", "course.exercises", "watch", "mine.py"],
        cwd=tmp_path, stdout=subprocess.PIPE, text=True,
        # A shell's background job, which these tests may be, is deaf to it.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        env={**os.environ, "COURSE_PROGRESS": "off", "OMP_NUM_THREADS": "1"})
    clock = threading.Timer(180, process.kill)  # or a fault would hang here
    clock.start()
    try:
        def read_until(words):
            lines = []
            for line in process.stdout:  # ends when the process ends
                lines.append(line)
                if words in line:
                    return "".join(lines)
            raise AssertionError("".join(lines))

        assert "the upper triangle" in read_until("0 of 1 right")
        file.write_text(file.read_text().replace("triu", "tril"))
        assert "✓ causal_mask" in read_until("1 of 1 right")
        file.unlink()  # an editor may take it away while it saves
        file.write_text("def causal_mask(n)\n")
        read_until("---")
        file.write_text("import numpy as np\ndef causal_mask(n):\n"
                        "    return np.tri(n, dtype=bool)\n")
        read_until("1 of 1 right")
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0
    finally:
        clock.cancel()
        process.kill()
        process.stdout.close()
        process.wait()


def test_watching_sees_a_change_within_one_tick(tmp_path, monkeypatch):
    """A file that is emptied, looked at and filled has one time of change."""
    file = tmp_path / "mine.py"
    seen, texts, naps = [], ["", "first", "other"], itertools.count(1)

    def save(text):
        file.write_text(text)
        os.utime(file, ns=(10**18, 10**18))

    def sleep(seconds):
        nap = next(naps)
        if nap == len(texts):
            raise KeyboardInterrupt
        save(texts[nap])

    save(texts[0])
    monkeypatch.setattr(cli.time, "sleep", sleep)
    monkeypatch.setattr(cli, "_check",
                        lambda options: seen.append(file.read_text()))
    assert cli.main(["watch", str(file)]) == 0
    assert seen == texts


@pytest.mark.parametrize(("text", "told"), [
    ("def softmax(x)\n    return x", "line 1"),
    ("x = 1", "no answer"),
    (None, "cannot be read")])
def test_command_line_says_what_is_wrong_with_a_file(tmp_path, text, told):
    if text is not None:
        (tmp_path / "mine.py").write_text(text)
    done = command("check", "mine.py", cwd=tmp_path)
    assert done.returncode == 2
    assert told in done.stderr


def test_command_line_says_what_cannot_be_imported(tmp_path):
    (tmp_path / "mine.py").write_text("import no_such\ndef softmax(x):\n"
                                      "    return x\n")
    done = command("check", "mine.py", cwd=tmp_path)
    assert done.returncode == 1
    assert "ModuleNotFoundError" in done.stdout
    unknown = command("hint", "no_such", cwd=tmp_path)
    assert unknown.returncode == 2
    assert "There is no exercise" in unknown.stderr


# -- notebooks --------------------------------------------------------------

def own(cells):
    return [cell for cell in cells
            if cell["id"].startswith(notebook.OWN)]


@pytest.mark.parametrize("chapter", chapters())
def test_section_is_well_formed(chapter):
    cells = notebook.section(chapter)
    ids = [cell.id for cell in cells]
    assert len(set(ids)) == len(ids)
    assert all(re.fullmatch(r"[a-z]+(-[a-z0-9]+)+", name) for name in ids)
    kinds = [cell.kind for cell in cells]
    assert ("code", "code") not in set(itertools.pairwise(kinds))
    assert cells[0].source.startswith("## Exercises")
    tried = [cell for cell in cells if cell.id.endswith("-check")]
    assert len(tried) == len(list(tasks(chapter)))
    assert all(cell.source.count("\n") < 100 for cell in cells)


def test_inserting_twice_changes_nothing():
    cells = [{"cell_type": "markdown", "id": name, "metadata": {},
              "source": name} for name in ("chapter-title", "chapter-summary",
                                           "further-reading")]
    once = notebook.insert(cells, 5)
    assert once[0]["id"] == "chapter-title"
    assert [cell["id"] for cell in once][-2:] == ["chapter-summary",
                                                  "further-reading"]
    code = next(cell for cell in once if cell["id"].endswith("-check"))
    code["outputs"], code["execution_count"] = ["kept"], 7
    again = notebook.insert(once, 5)
    assert again == once
    code["source"] = "check()"
    changed = next(cell for cell in notebook.insert(once, 5)
                   if cell["id"] == code["id"])
    assert changed["outputs"] == []
    with pytest.raises(ValueError, match="chapter-summary"):
        notebook.insert(cells[:1], 5)
    assert notebook.insert(cells, 99) == cells


@pytest.mark.parametrize("path", WITH_EXERCISES, ids=lambda path: path.stem)
def test_notebook_has_todays_exercises(path):
    book = nbformat.read(path, as_version=4)
    wanted = [cell.as_json() for cell in notebook.section(
        int(path.name[:2]))]
    found = own(book.cells)
    assert [(c["id"], c["cell_type"], c["source"], c["metadata"])
            for c in found] == [
        (c["id"], c["cell_type"], c["source"], c["metadata"])
        for c in wanted], "run python tools/exercises.py"


@pytest.mark.parametrize("path", WITH_EXERCISES, ids=lambda path: path.stem)
def test_stored_outputs_are_those_of_untouched_stubs(path):
    book = nbformat.read(path, as_version=4)
    for cell in own(book.cells):
        if cell["id"].endswith("-check"):
            shown = cell.outputs[0].data["text/plain"]
            assert "Not done yet. Not attempted yet" in shown, cell["id"]
        if cell["id"] == "exercises-progress":
            assert "\n0 of " in cell.outputs[0].data["text/plain"]


@pytest.mark.slow
@pytest.mark.parametrize("path", WITH_EXERCISES, ids=lambda path: path.stem)
def test_solutions_make_every_check_pass(path, tmp_path):
    from nbclient import NotebookClient
    number = int(path.name[:2])
    book = nbformat.read(path, as_version=4)
    cells = notebook.insert([dict(cell) for cell in book.cells], number)
    book.cells = [nbformat.from_dict(cell)
                  for cell in notebook.solved(cells, number)]
    NotebookClient(book, timeout=300, kernel_name="python3", resources={
        "metadata": {"path": path.parent}}).execute()
    checks = [cell for cell in own(book.cells)
              if cell.id.endswith("-check")]
    assert len(checks) == len(list(tasks(number)))
    for cell in checks:
        assert "Correct" in cell.outputs[0].data["text/plain"], cell.id
