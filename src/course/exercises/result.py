"""What a check says."""

from dataclasses import dataclass, field
from typing import Any

#: Every verdict that a check can come to.
VERDICTS = ("passed", "named", "either", "facts", "raised", "timed out",
            "not attempted", "checker failed")


@dataclass(frozen=True)
class StageMark:
    """Whether the right value of a stage occurred in the learner's run.

    Attributes:
        mark: "found", "differs" or "missing".
        stage: Name of the stage.
        text: Where it was found, or what was found instead.
    """

    mark: str
    stage: str
    text: str


@dataclass(frozen=True)
class Table:
    """A corner of the learner's result beside the right one.

    Attributes:
        where: Which inputs and which slice of the result.
        rows: Name of the axis that goes down; "" if there is one axis.
        columns: Name of the axis that goes across.
        first_row: Index of the first row shown.
        first_column: Index of the first column shown.
        yours: The learner's numbers.
        expected: The right numbers.
        wrong: Which of them differ.
    """

    where: str
    rows: str
    columns: str
    first_row: int
    first_column: int
    yours: list[list[Any]]
    expected: list[list[Any]]
    wrong: list[list[bool]]


@dataclass
class Result:
    """What a check says about one attempt.

    Attributes:
        exercise: Id of the exercise.
        verdict: One of ``VERDICTS``.
        title: The one sentence that matters most.
        alternatives: What was recognised: usually one tuple with one id; a
            tuple of two if two mistakes were made together; several tuples
            if the numbers fit each.
        effects: A sentence or two for each alternative.
        why: Why that is wrong.
        question: A question that points at the mistake.
        facts: Other true statements about the result.
        notes: Remarks.
        stages: Which stages were right.
        traced: Ids that were recognised in the middle of the run only.
        table: The first difference.
        first_wrong: Name of the first stage that went wrong, if known.
        seed: Draws the same inputs again.
        milliseconds: How long the check took.
        printed: What the function printed.
    """

    exercise: str
    verdict: str
    title: str
    alternatives: list[tuple[str, ...]] = field(default_factory=list)
    effects: list[str] = field(default_factory=list)
    why: str = ""
    question: str = ""
    facts: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    stages: list[StageMark] = field(default_factory=list)
    traced: tuple[str, ...] = ()
    table: Table | None = None
    first_wrong: str = ""
    seed: int | None = None
    milliseconds: float = 0.0
    printed: str = ""

    @property
    def passed(self) -> bool:
        """Whether the attempt is right."""
        return self.verdict == "passed"

    @property
    def mistakes(self) -> tuple[str, ...]:
        """Ids of all mistakes that were named."""
        return tuple(dict.fromkeys(
            name for alternative in self.alternatives
            for name in alternative))

    @property
    def name(self) -> str:
        """The finding in one word: ``a``, ``a+b``, ``a|b`` or the verdict.

        ``a+b`` means both mistakes together, ``a|b`` either of them.
        """
        if self.alternatives:
            return "|".join("+".join(sorted(each))
                            for each in self.alternatives)
        return self.verdict

    def __bool__(self) -> bool:
        return self.passed

    @property
    def text(self) -> str:
        """The whole message as plain text."""
        from course.exercises.render import as_text
        return as_text(self)

    @property
    def html(self) -> str:
        """The whole message as HTML."""
        from course.exercises.render import as_html
        return as_html(self)

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return self.text

    def _repr_mimebundle_(self, include: Any = None,
                          exclude: Any = None) -> dict[str, str]:
        return {"text/plain": self.text, "text/html": self.html}
