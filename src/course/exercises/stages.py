"""Exercises as pipelines of named stages, and mistakes as wrong stages.

An exercise computes its answer in stages: scores, then scaled scores, then
weights, and so on. A mistake replaces one stage (or a few) by a wrong one.
So the numbers that a mistake gives can be computed for any input, and be
compared with the learner's.
"""

import ast
import functools
import inspect
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, TypeAlias

import numpy as np

from course.exercises.compare import Answer
from course.exercises.sandbox import Outcome, is_tensor

#: The arguments and the stages computed so far, by name, and ``style``.
State: TypeAlias = Any
StageFunction: TypeAlias = Callable[[State], Any]
Stages: TypeAlias = dict[str, StageFunction]


@dataclass(frozen=True)
class Style:
    """How a program writes "not at all", which right programs do variously.

    Attributes:
        hidden: Score of a masked pair: ``-inf`` or a huge negative number.
        added: Whether that is added to the score, or written over it.
        empty: What the softmax gives where every score is ``-inf``.
    """

    hidden: float = -np.inf
    added: bool = False
    empty: float = 0.0


PLAIN = Style()
#: The ways in which a program may mask, all of them right as long as every
#: query may attend somewhere. A mistake may show differently in each.
MASK_STYLES = (PLAIN, Style(empty=np.nan), Style(hidden=-1e9),
               Style(hidden=-1e9, added=True))


@dataclass(frozen=True)
class Case:
    """One set of inputs.

    Attributes:
        name: What is special about it.
        arguments: By name, in the order of the function's parameters.
        dims: Sizes by name, to name the axes of shapes.
    """

    name: str
    arguments: dict[str, Any]
    dims: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Mistake:
    """A wrong version of one stage or of several.

    Only behaviour is observed, so the texts speak of numbers, never of what
    somebody wrote.

    Attributes:
        id: Name for programs and tests, such as ``no-scale``.
        label: Completes "Your numbers are exactly those of ...".
        effect: What it does to the numbers; may depend on the case's sizes.
        why: Why that is wrong.
        question: Points at the mistake without giving the cure.
        fix: The line, or part of it, that is right.
        wrong: The wrong stages.
        same_as: Id of the mistake of which this is another spelling.
        in_pairs: Whether it is looked for together with a second one.
        styled: Whether its numbers depend on the :class:`Style`.
        explained: Chapter that explains it; that of the exercise if 0.
    """

    id: str
    label: str
    effect: str | Callable[[Case], str]
    wrong: Stages = field(hash=False)
    why: str = ""
    question: str = ""
    fix: str = ""
    same_as: str = ""
    in_pairs: bool = True
    styled: bool = False
    explained: int = 0

    @property
    def identity(self) -> str:
        """The id under which all spellings of the mistake are counted."""
        return self.same_as or self.id

    def effect_on(self, case: Case) -> str:
        """Say what the mistake does, with the sizes of one case."""
        return self.effect(case) if callable(self.effect) else self.effect


@dataclass(eq=False)
class Exercise:
    """A function that a learner writes.

    Attributes:
        id: Name of the exercise and of its function.
        title: A few words for headings and tables.
        chapter: Number of the chapter that it belongs to.
        difficulty: 1 to 3.
        minutes: How long it takes, about.
        task: What it is about; the docstring of the solution says exactly
            what is to be computed.
        solution: The right function; its docstring and signature make the
            stub.
        stages: The pipeline; the last stage is the answer.
        cases: Draws fresh inputs.
        mistakes: The catalogue for this exercise.
        axes: Names of the result's axes.
        hints: Three, each saying more than the last.
        imports: Lines that stand above the stub.
        styles: Ways of masking that a right program may use.
        many: How many arrays the result has; 0 for one that is no tuple.
        names: Their names.
        boolean: Whether the result must have a boolean dtype.
        torch: Whether the inputs are PyTorch tensors.
        starter: A given program to start from, if it is not an empty stub.
        planted: Id of the mistake in the starter.
        adapt: Turns what the learner hands in (a class, say) into a function
            of the case's arguments.
        probe: Further true statements about a wrong function.
        avoid_loops: Whether to remark that it can be done without a loop.
        spared: Gives the shape of an array, and what it is, that a right
            program should not need; a remark says where it occurs.
        tiny: A small round case for the page of mistakes.
        tiny_more: Further ones, for mistakes that do not show on the first.
        source: Public report that the exercise was made from.
    """

    id: str
    title: str
    chapter: int
    difficulty: int
    minutes: int
    task: str
    solution: Callable[..., Any]
    stages: Stages
    cases: Callable[[np.random.Generator], list[Case]]
    mistakes: Sequence[Mistake]
    axes: tuple[str, ...]
    hints: tuple[str, str, str]
    imports: tuple[str, ...] = ()
    styles: tuple[Style, ...] = (PLAIN,)
    many: int = 0
    names: tuple[str, ...] = ()
    boolean: bool = False
    torch: bool = False
    starter: Callable[..., Any] | None = None
    planted: str = ""
    adapt: Callable[[Any], Callable[..., Any]] | None = None
    probe: Callable[..., list[str]] | None = None
    avoid_loops: bool = False
    spared: Callable[[Case], tuple[tuple[int, ...], str]] | None = None
    tiny: Callable[[], Case] | None = None
    tiny_more: tuple[Callable[[], Case], ...] = ()
    source: str = ""

    @property
    def name(self) -> str:
        """The name that the learner's function has in the notebook."""
        return self.solution.__name__

    def mistake(self, mistake_id: str) -> Mistake | None:
        """Give a mistake of this exercise by its id."""
        return next((m for m in self.mistakes if m.id == mistake_id), None)

    # -- prompt, stub and solution: all from the solution's source ----------

    @property
    def prompt(self) -> str:
        """What exactly is to be computed."""
        return inspect.cleandoc(self.solution.__doc__ or "")

    def solution_source(self) -> str:
        """The right function as text."""
        return _source(self.solution)

    def stub(self) -> str:
        """What the learner starts from.

        Returns:
            The signature and docstring of the solution without its body, or
            the given program where the exercise starts from one; above it
            the imports.
        """
        if self.starter is not None:
            start = self.starter.__name__
            return self._above(_source(self.starter).replace(
                start, self.name, 1))
        return self._above(_without_bodies(self.solution_source()))

    def solution_cell(self) -> str:
        """The right function with the imports above it."""
        return self._above(self.solution_source())

    def _above(self, source: str) -> str:
        if not self.imports:
            return source
        return "\n".join(self.imports) + "\n\n\n" + source

    # -- evaluation ---------------------------------------------------------

    @functools.cached_property
    def position(self) -> dict[str, int]:
        """The place of each stage in the pipeline."""
        return {name: place for place, name in enumerate(self.stages)}

    def evaluate(self, case: Case, wrong: Stages | None = None,
                 style: Style = PLAIN) -> State:
        """Compute every stage.

        Args:
            case: The inputs.
            wrong: Stages to replace.
            style: The way of masking.

        Returns:
            The arguments, the stages by name and the style.
        """
        state = SimpleNamespace(style=style)
        arguments = case.arguments
        if self.torch:
            arguments = {name: _as_numpy(value)
                         for name, value in arguments.items()}
        state.__dict__.update(arguments)
        return self.resume(state, 0, wrong or {})

    def resume(self, state: State, start: int, wrong: Stages) -> State:
        """Compute the stages from one on, in place."""
        for name in list(self.stages)[start:]:
            setattr(state, name, wrong.get(name, self.stages[name])(state))
        return state

    def answer(self, state: State) -> Answer:
        """The last stage as an array or a tuple of arrays."""
        value = getattr(state, self.last_stage)
        if isinstance(value, tuple):
            return tuple(np.asarray(item) for item in value)
        return np.asarray(value)

    @property
    def last_stage(self) -> str:
        """Name of the stage that is the answer."""
        return next(reversed(self.stages))

    def expected(self, case: Case) -> Answer:
        """The right answer."""
        with np.errstate(all="ignore"):
            return self.answer(self.evaluate(case))

    def outcome(self, case: Case, wrong: Stages,
                style: Style = PLAIN) -> Outcome:
        """What a program with these wrong stages would give."""
        try:
            with np.errstate(all="ignore"):
                value = self.answer(self.evaluate(case, wrong, style))
        except Exception as error:
            return Outcome("raise", error=error)
        return Outcome("value", value=value)


def _as_numpy(value: Any) -> Any:
    if is_tensor(value):
        value = value.detach().cpu()
        return (value.double() if value.is_floating_point()
                else value).numpy()
    return value


def _source(function: Callable[..., Any]) -> str:
    if hasattr(function, "source"):  # a solution that is imported late
        return str(function.source)
    return textwrap.dedent(inspect.getsource(inspect.unwrap(function)))


def _without_bodies(source: str) -> str:
    """Cut every documented function of a source after its docstring."""
    lines = source.splitlines()
    cuts = [(node.body[0].end_lineno or 0, node.end_lineno or 0,
             node.body[0].col_offset)
            for node in ast.walk(ast.parse(source))
            if isinstance(node, ast.FunctionDef)
            and ast.get_docstring(node) is not None]
    for begin, end, indent in sorted(cuts, reverse=True):
        lines[begin:end] = [" " * indent + "raise NotImplementedError"]
    return "\n".join(lines) + "\n"
