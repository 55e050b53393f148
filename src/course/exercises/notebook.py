"""The exercise section of a chapter, as notebook cells.

Everything in it comes from the bank: task, stub, hints, check and solution.
So a page cannot drift from what the checker knows.
"""

from dataclasses import dataclass, field
from typing import Any

from course.exercises.modules import Deferred
from course.exercises.overview import LEVELS
from course.exercises.predictions import Prediction
from course.exercises.quizzes import chapter_html
from course.exercises.registry import chapters, tasks
from course.exercises.stages import Exercise

#: Cells with these ids are ours; the section is replaced as a whole.
OWN = ("exercise-", "exercises-")
#: The section stands before the cell with this id.
BEFORE = "chapter-summary"

_INTRODUCTION = """## Exercises

Write a function, run the cell below it, and read what the check says. It runs
your function on fresh inputs of unequal sizes, accepts every right way of
writing it, and otherwise names the mistake whose numbers are exactly yours.
`hint("…")` gives hints in steps, `solution("…")` the solution after three
tries, and `progress()` shows what is done."""

_SETUP = """import numpy as np

from course.exercises import check, hint, progress, solution"""


@dataclass(frozen=True)
class Cell:
    """One cell of a notebook.

    Attributes:
        kind: "markdown" or "code".
        id: A stable slug.
        source: Its text.
        tags: Its tags.
    """

    kind: str
    id: str
    source: str
    tags: tuple[str, ...] = field(default=())

    def as_json(self) -> dict[str, Any]:
        """Write the cell as a notebook file has it, without outputs."""
        metadata = {"tags": list(self.tags)} if self.tags else {}
        cell: dict[str, Any] = {"cell_type": self.kind, "id": self.id,
                                "metadata": metadata, "source": self.source}
        if self.kind == "code":
            cell |= {"execution_count": None, "outputs": []}
        return cell


def section(chapter: int) -> list[Cell]:
    """Give the cells of a chapter's exercise section.

    Args:
        chapter: Number of the chapter.

    Returns:
        No cells for a chapter without exercises.
    """
    if chapter not in chapters():
        return []
    cells = [Cell("markdown", "exercises-introduction", _INTRODUCTION),
             Cell("code", "exercises-setup", _SETUP)]
    for task in tasks(chapter):
        cells += task_cells(task)
    quiz = chapter_html(chapter)
    if quiz:
        cells.append(Cell("markdown", "exercises-questions", _questions(quiz)))
    cells.append(Cell("code", "exercises-progress", f"progress({chapter})",
                      ("progress",)))
    return cells


def _questions(html: str) -> str:
    return ("### Questions\n\nDecide first, then open your answer.\n\n"
            f"{html}")


def slug(task: Exercise | Prediction) -> str:
    """The name of an exercise as it stands in ids and labels."""
    return task.id.replace("_", "-").lower()


def task_cells(task: Exercise | Prediction) -> list[Cell]:
    """Give the five cells of one exercise."""
    name = f"exercise-{slug(task)}"
    return [
        Cell("markdown", f"{name}-task", _task(task)),
        Cell("code", f"{name}-stub", task.stub().rstrip("\n"),
             ("exercise",)),
        Cell("markdown", f"{name}-hints", _hints(task)),
        Cell("code", f"{name}-check", f'check("{task.id}", {task.name})',
             ("check",)),
        Cell("markdown", f"{name}-solution", _solution(task)),
    ]


def _task(task: Exercise | Prediction) -> str:
    lines = [f":::{{exercise}} {task.title}", f":label: ex-{slug(task)}", "",
             f"*Level {task.difficulty} of 3 ({LEVELS[task.difficulty]}), "
             f"about {task.minutes} minutes.* {task.task}"]
    source = getattr(task, "source", "")
    if source:
        lines += ["", f"Made from [a public report]({source})."]
    return "\n".join([*lines, ":::"])


def _hints(task: Exercise | Prediction) -> str:
    hints = "\n\n".join(
        f"<details><summary>Hint {number}</summary>\n\n{text}\n\n</details>"
        for number, text in enumerate(task.hints, start=1))
    what = ("Then let your prediction be checked."
            if isinstance(task, Prediction) else
            "Then let it be checked, on fresh inputs each time.")
    return f"{hints}\n\n{what}"


def _solution(task: Exercise | Prediction) -> str:
    late = isinstance(task.solution, Deferred)
    file = "solutions_torch" if late else "solutions"
    return "\n".join([
        f":::{{solution}} ex-{slug(task)}", ":class: dropdown", "",
        # JupyterLab leaves out what the site takes from the file below.
        f'In a notebook, `solution("{task.id}")` shows it too.', "",
        f"```{{literalinclude}} ../src/course/exercises/{file}.py",
        f":pyobject: {task.solution.__name__}", "```", ":::"])


def insert(cells: list[dict[str, Any]],
           chapter: int) -> list[dict[str, Any]]:
    """Put the exercise section into the cells of a chapter.

    Args:
        cells: The cells of the notebook.
        chapter: Number of the chapter.

    Returns:
        The cells with today's section, before the summary. A code cell whose
        text did not change keeps its output.

    Raises:
        ValueError: The notebook has no summary cell.
    """
    old = {cell["id"]: cell for cell in cells
           if str(cell.get("id", "")).startswith(OWN)}
    rest = [cell for cell in cells if cell.get("id") not in old]
    place = next((n for n, cell in enumerate(rest)
                  if cell.get("id") == BEFORE), None)
    new = [_kept(old.get(cell.id), cell) for cell in section(chapter)]
    if place is None:
        if new:
            raise ValueError(f"there is no cell with the id {BEFORE!r}")
        return rest
    return [*rest[:place], *new, *rest[place:]]


def _kept(old: dict[str, Any] | None, cell: Cell) -> dict[str, Any]:
    new = cell.as_json()
    if (old is not None and old["cell_type"] == "code" == cell.kind
            and "".join(old["source"]) == cell.source):
        new["outputs"] = old["outputs"]
        new["execution_count"] = old["execution_count"]
    return new


def solved(cells: list[dict[str, Any]],
           chapter: int) -> list[dict[str, Any]]:
    """Replace every stub of a chapter by its solution.

    Args:
        cells: The cells of the notebook, with its exercise section.
        chapter: Number of the chapter.
    """
    answers = {f"exercise-{slug(task)}-stub": task.solution_cell()
               for task in tasks(chapter)}
    return [{**cell, "source": answers[cell["id"]]}
            if cell.get("id") in answers else cell for cell in cells]
