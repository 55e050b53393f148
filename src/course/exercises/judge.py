"""The check: run an attempt on fresh inputs and say what came of it."""

import ast
import functools
import inspect
import os
import secrets
import textwrap
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import CodeType
from typing import Any

import numpy as np
from numpy import ndarray

from course.exercises import facts, general, ledger
from course.exercises.compare import Answer, same
from course.exercises.diagnose import Finding, break_tie, diagnose
from course.exercises.errors import error_title, explain_error
from course.exercises.predictions import Prediction
from course.exercises.registry import find
from course.exercises.result import Result
from course.exercises.sandbox import (
    Outcome,
    coarsest,
    run,
    torch_if_loaded,
)
from course.exercises.stages import Case, Exercise
from course.exercises.trace import Seen, filename_of, first_nan, record

TIME_LIMIT = 2.0


def check(exercise: Any, answer: Any = None, *, seed: int | None = None,
          time_limit: float = TIME_LIMIT, note: bool = True) -> Result:
    """Check an answer, and say which mistake it shows.

    Args:
        exercise: Name of the exercise; or the function itself, if it has
            the name of its exercise.
        answer: The learner's function, class or prediction.
        seed: Draws the inputs; a fresh one if None. Every result tells its
            seed, so that a check can be repeated.
        time_limit: Seconds that all runs together may take.
        note: Whether to keep the try in the progress.

    Returns:
        What was found. In a notebook it shows itself.

    Raises:
        UnknownExerciseError: There is no such exercise.
    """
    started = time.perf_counter()
    if answer is None and callable(exercise):
        exercise, answer = getattr(exercise, "__name__", "?"), exercise
    task = find(str(exercise))
    if isinstance(task, Prediction):
        result = task.judge(answer)
    else:
        seed = secrets.randbits(32) if seed is None else seed
        result = _checked(task, answer, seed, time_limit)
        result.seed = seed
    result.milliseconds = (time.perf_counter() - started) * 1e3
    if note:
        ledger.note(result, answer)
    return result


def _checked(exercise: Exercise, answer: Any, seed: int,
             time_limit: float) -> Result:
    if not callable(answer):
        if answer is None or answer is Ellipsis:
            return _not_attempted(exercise)
        return Result(exercise.id, "facts", "Hand in the function itself: "
                      f"check({exercise.id!r}, {exercise.name}), without "
                      "calling it.")
    if is_untouched(exercise, answer):
        return _not_attempted(exercise)
    try:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return _Check(exercise, answer, seed, time_limit).result()
    except Exception as error:
        # A fault of the checker must never look like one of the learner.
        if os.environ.get("COURSE_DEBUG"):
            raise
        return Result(exercise.id, "checker failed", "The checker itself "
                      "failed; your function may be right. Please report "
                      f"this: {type(error).__name__}: {error}.")


def _not_attempted(exercise: Exercise) -> Result:
    what = ("find the mistake in the function"
            if exercise.planted else "change the function"
            if exercise.starter else "write the body of the function")
    return Result(exercise.id, "not attempted",
                  f"Not attempted yet: {what}, then run this again.")


def is_untouched(exercise: Exercise, answer: Any) -> bool:
    """Say whether an answer is still the stub of its exercise."""
    if isinstance(answer, type):
        # A notebook gives the source of methods, not always of classes.
        answer = getattr(answer, "forward", answer)
    try:
        source = textwrap.dedent(inspect.getsource(answer))
        written = ast.parse(source).body[0]
    except (OSError, TypeError, SyntaxError, IndexError):
        return False
    return _is_empty(written) or _skeleton(written) == _stub_of(exercise)


@functools.cache
def _stub_of(exercise: Exercise) -> str:
    return _skeleton(ast.parse(exercise.stub()).body[-1])


def _is_empty(node: ast.stmt) -> bool:
    if not isinstance(node, ast.FunctionDef):
        return False
    body = [each for each in node.body
            if not (isinstance(each, ast.Expr)
                    and isinstance(each.value, ast.Constant))]
    if len(body) == 1 and isinstance(body[0], ast.Raise):
        return "NotImplementedError" in ast.dump(body[0])
    return not body or (len(body) == 1 and isinstance(body[0], ast.Pass))


def _skeleton(node: ast.stmt) -> str:
    """The program without its name and its docstrings."""
    node = ast.parse(ast.unparse(node)).body[0]
    for each in ast.walk(node):
        if isinstance(each, ast.FunctionDef | ast.ClassDef):
            if ast.get_docstring(each) is not None:
                each.body = each.body[1:] or [ast.Pass()]
            if each is node:
                each.name = "answer"
    return ast.dump(node)


def uses_torch(function: Any) -> bool:
    """Say whether a function mentions PyTorch, without importing it."""
    code = getattr(function, "__code__", None)
    names: set[str] = set()
    waiting = [code] if isinstance(code, CodeType) else []
    while waiting:
        each = waiting.pop()
        names |= set(each.co_names)
        waiting += [constant for constant in each.co_consts
                    if isinstance(constant, CodeType)]
    known = getattr(function, "__globals__", {})
    return any(name == "torch" or str(getattr(
        known.get(name), "__name__", "")).startswith("torch")
        for name in names)


@dataclass
class _Check:
    """One check of one function."""

    exercise: Exercise
    answer: Callable[..., Any]
    seed: int
    limit: float

    def result(self) -> Result:
        self._prepare()
        outcomes = self._run_all()
        if all(outcome.kind == "raise" for outcome in outcomes):
            outcomes = self._as_tensors_instead(outcomes)
        found = self._from_errors(outcomes)
        if found is None:
            found = general.wrong_structure(self.exercise, outcomes,
                                            self.expected)
        if found is not None:
            return self._with_printed(found, outcomes)
        self.precision = coarsest(outcomes)
        right = [outcome.kind == "value" and same(
            outcome.value, expected, self.precision)
            for outcome, expected in zip(outcomes, self.expected)]
        found = (self._all_right(outcomes) if all(right)
                 else self._wrong(outcomes, right))
        return self._with_printed(found, outcomes)

    def _prepare(self) -> None:
        exercise = self.exercise
        self.cases = exercise.cases(np.random.default_rng(self.seed))
        self.expected = [exercise.expected(case) for case in self.cases]
        self.filename = filename_of(self.answer)
        self.function = self.answer
        wants_tensors = uses_torch(self.answer)
        if exercise.adapt is not None:
            self.function = exercise.adapt(self.answer)
            self.filename = _file_of_class(self.answer)
            wants_tensors = True
        self.ceiling = not (wants_tensors or exercise.torch)
        self.given = [case.arguments for case in self.cases]
        if wants_tensors and not exercise.torch and torch_if_loaded():
            self.given = [_as_tensors(given) for given in self.given]

    def _run(self, arguments: dict[str, Any], limit: float,
             like: Answer | None = None) -> Outcome:
        return run(self.function, arguments, limit, many=self.exercise.many,
                   like=like, use_memory_ceiling=self.ceiling)

    def _run_all(self) -> list[Outcome]:
        outcomes, left = [], self.limit
        for arguments, expected in zip(self.given, self.expected):
            started = time.perf_counter()
            # On a busy machine a short rest would be no time at all.
            least = min(self.limit / 4, 0.5)
            outcomes.append(self._run(arguments, max(left, least), expected))
            left -= time.perf_counter() - started
            if outcomes[-1].kind == "timeout":
                break
        self.left = max(left, 0.2)
        return outcomes

    def _as_tensors_instead(self, outcomes: list[Outcome]) -> list[Outcome]:
        """Try tensors where a program fails on arrays.

        Whoever writes ``scores.softmax(-1)`` means tensors, though the word
        torch may not occur.
        """
        if (torch_if_loaded() is None or self.exercise.torch
                or self.exercise.adapt is not None):
            return outcomes
        before = self.given
        self.given = [_as_tensors(case.arguments) for case in self.cases]
        again = self._run_all()
        if any(outcome.kind == "value" for outcome in again):
            return again
        self.given = before
        return outcomes

    def _from_errors(self, outcomes: Sequence[Outcome]) -> Result | None:
        exercise = self.exercise
        if outcomes[-1].kind == "timeout":
            return Result(exercise.id, "timed out", "Stopped after "
                          f"{self.limit:g} s. Is there a loop that never "
                          "ends?")
        errors = [o.error for o in outcomes if o.kind == "raise"]
        if any(isinstance(e, NotImplementedError) for e in errors):
            return Result(exercise.id, "not attempted", "Not finished yet: "
                          "the code still reaches `raise "
                          "NotImplementedError`.")
        if len(errors) == len(outcomes) and errors[0] is not None:
            return Result(exercise.id, "raised", error_title(errors[0]),
                          facts=explain_error(errors[0], self.filename,
                                              self.cases[0]))
        without = [n for n, o in enumerate(outcomes)
                   if o.kind == "value" and o.raw is None]
        if without:
            where = "" if len(without) == len(outcomes) else (
                f" on the input “{self.cases[without[0]].name}”")
            return general.named(exercise, "returns-none",
                                 f"Your function returns None{where}.")
        if all(o.kind == "value" and o.raw is Ellipsis for o in outcomes):
            return _not_attempted(exercise)
        return None

    def _all_right(self, outcomes: Sequence[Outcome]) -> Result:
        exercise = self.exercise
        found = general.wrong_dtype(exercise, outcomes)
        if found is not None:
            return found
        changed = _changed(outcomes)
        if changed:
            return general.named(
                exercise, "in-place", "The numbers are right, but your "
                f"function overwrites its argument `{changed[0]}`.")
        notes = _notes(outcomes) + self._about_spared()
        if self.precision in ("float16", "bfloat16"):
            notes.append(f"Your result is {self.precision}: right, but to "
                         "about 3 digits only.")
        loop = _first_loop(self.answer) if exercise.avoid_loops else 0
        if loop:
            notes.append(f"There is still a loop in line {loop} of the "
                         "function. Can you do without?")
        return Result(exercise.id, "passed", "The same as the solution on "
                      f"{len(self.cases)} fresh inputs.", notes=notes)

    def _about_spared(self) -> list[str]:
        """Remark on an array that the exercise wants done without."""
        if self.exercise.spared is None:
            return []
        shape, what = self.exercise.spared(self.cases[0])
        line = next((each.line for each in record(
            self.function, self.given[0], self.left, self.filename)
            if each.value.shape == shape), None)
        return [] if line is None else [
            f"Line {line} holds {what}, {shape}: the numbers are right, but "
            "the exercise asks to do without that array."]

    def _wrong(self, outcomes: Sequence[Outcome],
               right: Sequence[bool]) -> Result:
        first = right.index(False)
        again = self._run(self.given[first], self.left)
        before = outcomes[first]
        if before.kind == again.kind == "value" and not same(
                before.value, again.value, self.precision):
            return general.named(self.exercise, "random", "Two calls with "
                                 "the same input give different results.")
        place = next((n for n, (outcome, good) in enumerate(
            zip(outcomes, right)) if not good and outcome.kind == "value"
            and outcome.value is not None), None)
        seen = self._watch(place)
        findings = self._diagnose(outcomes, place, seen)
        result = self._describe(findings, outcomes, right, place, seen)
        changed = _changed(outcomes)
        if changed:
            result.notes.append("Your function also overwrites its argument "
                                f"`{'`, `'.join(changed)}`.")
        result.notes = _notes(outcomes) + result.notes
        return result

    def _watch(self, place: int | None) -> list[Seen]:
        if place is None or len(self.exercise.stages) == 1:
            return []
        return record(self.function, self.given[place], self.left,
                      self.filename)

    def _diagnose(self, outcomes: Sequence[Outcome], place: int | None,
                  seen: list[Seen]) -> list[Finding]:
        exercise = self.exercise
        unseen = None
        if seen and place is not None:
            unseen = facts.unseen_stages(exercise, self.cases[place], seen)
        findings = diagnose(exercise, self.cases, outcomes, self.precision,
                            unseen)
        if len(findings) > 1 and seen and place is not None:
            findings = break_tie(exercise, self.cases[place], findings, seen)
        return findings

    def _describe(self, findings: list[Finding], outcomes: Sequence[Outcome],
                  right: Sequence[bool], place: int | None,
                  seen: list[Seen]) -> Result:
        exercise = self.exercise
        shown = place if place is not None else right.index(False)
        case = self.cases[shown]
        result = Result(exercise.id, "facts", "")
        if len(findings) == 1:
            _name_one(result, findings[0], case)
        elif findings:
            _name_several(result, findings, case)
        else:
            self._name_none(result, right, place, seen)
        result.facts = [
            fact for fact in self._facts(outcomes, right, place,
                                         bool(findings))
            if fact not in result.effects]
        if place is None:
            return result
        outcome = outcomes[place]
        assert outcome.value is not None
        result.table = facts.first_difference(
            exercise, case, outcome.value, self.expected[place])
        if len(exercise.stages) > 1:
            named = findings[0] if len(findings) == 1 else ()
            result.stages = facts.stage_marks(exercise, case, seen, named)
            self._look_at_stages(result, seen, bool(findings))
        return result

    def _look_at_stages(self, result: Result, seen: list[Seen],
                        named: bool) -> None:
        wrong = [each for each in result.stages if each.mark != "found"]
        if wrong:
            result.first_wrong = wrong[0].stage
        last = result.stages[-1] if result.stages else None
        if (not named and last is not None and last.mark == "found"
                and last.stage == self.exercise.last_stage):
            result.facts.insert(0, "The right result occurs in your run "
                                f"({last.text}), but you return something "
                                "else.")
        nan = first_nan(seen, self.filename)
        if nan:
            result.facts.insert(0, nan)

    def _name_none(self, result: Result, right: Sequence[bool],
                   place: int | None, seen: list[Seen]) -> None:
        case = self.cases[place or 0]
        found = facts.walk(self.exercise, case, seen) if seen else []
        result.traced = tuple(mistake.id for mistake, _ in found)
        result.effects = [f"Line {line} has the value of {mistake.label}."
                          for mistake, line in found]
        if found:
            result.question = found[0][0].question
        wrong = [each.name for each, good in zip(self.cases, right)
                 if not good]
        if any(right):
            result.title = (f"Right on {sum(right)} of {len(right)} inputs; "
                            f"wrong on: {_list(wrong)}.")
        elif found:
            result.title = ("More than one thing differs. Your steps, line "
                            "by line:")
        else:
            result.title = ("None of the known mistakes gives these numbers. "
                            "What can be said for sure:")

    def _facts(self, outcomes: Sequence[Outcome], right: Sequence[bool],
               place: int | None, named: bool) -> list[str]:
        exercise = self.exercise
        found = []
        crashed = [n for n, outcome in enumerate(outcomes)
                   if outcome.kind == "raise"]
        if crashed:
            error = outcomes[crashed[0]].error
            assert error is not None
            case = self.cases[crashed[0]]
            text = error_title(error).removeprefix("Your function stops with ")
            found.append(f"On the input “{case.name}” it stops with {text}")
            if not named:
                found += explain_error(error, self.filename, case)
        if place is None:
            return found
        value, case = outcomes[place].value, self.cases[place]
        assert value is not None
        found += facts.about_result(exercise, case, value,
                                    self.expected[place])
        if named:
            return found
        runner = functools.partial(self._run, limit=self.left)
        found += facts.about_arguments(runner, exercise, case,
                                       self.given[place], self.seed)
        if exercise.probe is not None and isinstance(value, ndarray):
            found += exercise.probe(self._probe_runner(), exercise, case)
        return found

    def _probe_runner(self) -> Callable[[dict[str, Any]], Outcome]:
        tensors = any(hasattr(value, "detach")
                      for value in self.given[0].values())

        def runner(arguments: dict[str, Any]) -> Outcome:
            if tensors and not self.exercise.torch:
                arguments = _as_tensors(arguments)
            return self._run(arguments, self.left)
        return runner

    def _with_printed(self, result: Result,
                      outcomes: Sequence[Outcome]) -> Result:
        result.printed = next((o.printed for o in outcomes if o.printed), "")
        return result


def _list(names: Sequence[str], most: int = 3) -> str:
    """The names of some inputs; they may hold commas themselves."""
    more = len(names) - most
    return "; ".join(names[:most]) + (f"; and {more} more" if more > 0
                                      else "")


def _name_one(result: Result, finding: Finding, case: Case) -> None:
    labels = _labels(finding)
    result.verdict = "named"
    result.title = f"Your numbers are exactly those of {labels}."
    result.alternatives = [tuple(mistake.id for mistake in finding)]
    result.effects = [" ".join(mistake.effect_on(case)
                               for mistake in finding)]
    result.why = " ".join(dict.fromkeys(
        mistake.why for mistake in finding if mistake.why))
    result.question = " ".join(dict.fromkeys(
        mistake.question for mistake in finding if mistake.question))


def _labels(finding: Finding, *, quoted: bool = False) -> str:
    if len(finding) == 1 and not quoted:
        return finding[0].label
    return " together with ".join(f"“{each.label}”" for each in finding)


def _name_several(result: Result, findings: Sequence[Finding],
                  case: Case) -> None:
    labels = [_labels(finding, quoted=True) for finding in findings]
    result.verdict = "either"
    result.title = ("Your numbers are exactly those of either "
                    f"{' or '.join(labels)}.")
    result.alternatives = [tuple(mistake.id for mistake in finding)
                           for finding in findings]
    result.effects = ["For {}: {}".format(
        label, " ".join(mistake.effect_on(case) for mistake in finding))
        for label, finding in zip(labels, findings)]
    result.question = findings[0][0].question


def _changed(outcomes: Sequence[Outcome]) -> list[str]:
    return sorted({name for outcome in outcomes for name in outcome.changed})


def _notes(outcomes: Sequence[Outcome]) -> list[str]:
    return list(dict.fromkeys(
        note for outcome in outcomes for note in outcome.notes))


def _as_tensors(arguments: dict[str, Any]) -> dict[str, Any]:
    torch = torch_if_loaded()
    assert torch is not None
    return {name: torch.from_numpy(value.copy())
            if isinstance(value, ndarray) else value
            for name, value in arguments.items()}


def _file_of_class(answer: Any) -> str | None:
    forward = getattr(answer, "forward", None)
    return getattr(getattr(forward, "__code__", None), "co_filename", None)


def _first_loop(function: Any) -> int:
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError, SyntaxError):
        return 0
    loops = (ast.For, ast.While, ast.ListComp, ast.GeneratorExp)
    return min((node.lineno for node in ast.walk(tree)
                if isinstance(node, loops)), default=0)
