"""The table of what was done and what is left."""

from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from typing import Any

from course.exercises import ledger
from course.exercises.registry import tasks

LEVELS = {1: "●○○", 2: "●●○", 3: "●●●"}


@dataclass(frozen=True)
class Line:
    """One line of the table."""

    chapter: int
    name: str
    title: str
    level: str
    minutes: int
    tries: int
    passed: bool

    @property
    def state(self) -> str:
        """What was done, in words."""
        if self.passed:
            return "✓ done"
        tries = "1 try" if self.tries == 1 else f"{self.tries} tries"
        return f"✗ {tries}" if self.tries else "○ to do"


class Overview:
    """The progress as a table, in text and in HTML.

    Args:
        chapter: Number of a chapter; all if None.
    """

    def __init__(self, chapter: int | None = None) -> None:
        self.chapter = chapter

    def lines(self) -> Iterator[Line]:
        """Give the lines of the table."""
        entries = ledger.load()
        for task in tasks(self.chapter):
            entry = entries.get(task.id, {})
            yield Line(task.chapter, task.id, task.title,
                       LEVELS[task.difficulty], task.minutes,
                       entry.get("tries", 0), bool(entry.get("passed")))

    def _summary(self) -> str:
        lines = list(self.lines())
        if not lines:
            return f"Chapter {self.chapter} has no exercises."
        done = sum(line.passed for line in lines)
        left = sum(line.minutes for line in lines if not line.passed)
        return (f"{done} of {len(lines)} exercises done; about {left} "
                "minutes left.")

    def __repr__(self) -> str:
        rows = [f"{line.chapter:>2}  {line.state:<10} {line.level}  "
                f"{line.minutes:>2} min  {line.name:<28} {line.title}"
                for line in self.lines()]
        return "\n".join([*rows, self._summary()])

    def _repr_html_(self) -> str:
        head = "".join(f'<th scope="col">{name}</th>' for name in (
            "Chapter", "Exercise", "Name", "Level", "Minutes", "State"))
        body = "".join(
            f"<tr><td>{line.chapter}</td><td>{escape(line.title)}</td>"
            f"<td><code>{line.name}</code></td><td><span "
            f'aria-label="level {line.level.count("●")} of 3">{line.level}'
            f"</span></td><td>{line.minutes}</td><td>{line.state}</td></tr>"
            for line in self.lines())
        return (f'<table><caption style="caption-side:top">{self._summary()}'
                f"</caption><thead><tr>{head}</tr></thead><tbody>{body}"
                "</tbody></table>")

    def _repr_mimebundle_(self, include: Any = None,
                          exclude: Any = None) -> dict[str, str]:
        return {"text/plain": repr(self), "text/html": self._repr_html_()}


def progress(chapter: int | None = None) -> Overview:
    """Show what is done and what is left.

    Args:
        chapter: Number of a chapter; all if None.
    """
    return Overview(chapter)
