"""Change right programs by machine and see what the checker says.

A mutant is a right answer with one small change to its syntax tree: another
operator, a lost transpose, a changed number, swapped arguments. Nothing here
knows the catalogue of mistakes. Whether a mutant is still right is decided
by running it on inputs that the check has not seen and comparing it with
the solution. Then three things must never happen: a wrong program passes, a
right one is refused, or a name is given whose numbers are not the mutant's.

    python tests/exercises/ast_mutants.py [number]
"""

import ast
import collections
import copy
import dataclasses
import os
import random
import sys
import textwrap
import time

import numpy as np
import torch  # noqa: F401, as in a session that has used it
from answers import load
from right_answers import RIGHT

from course.exercises import check, find, tasks
from course.exercises.compare import same
from course.exercises.judge import _as_tensors, uses_torch
from course.exercises.sandbox import coarsest, run
from course.exercises.stages import Exercise

#: Findings that look at the form of an answer, not at its numbers.
FORM = {"returns-none", "wrong-structure", "random", "in-place",
        "mask-not-bool"}
#: A right mutant may be refused for these, with the reason said.
FAIR = {"in-place", "mask-not-bool"}
FRESH = 4  # sets of inputs that decide what is true

OTHER = {
    ast.Add: (ast.Sub, ast.Mult), ast.Sub: (ast.Add,),
    ast.Mult: (ast.Add, ast.Div, ast.MatMult),
    ast.Div: (ast.Mult, ast.FloorDiv), ast.MatMult: (ast.Mult,),
    ast.Pow: (ast.Mult,), ast.BitAnd: (ast.BitOr, ast.BitXor),
    ast.BitOr: (ast.BitAnd,), ast.Lt: (ast.LtE, ast.GtE, ast.Gt),
    ast.LtE: (ast.Lt, ast.GtE), ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt), ast.Eq: (ast.NotEq,)}


def changes(node, names):
    """Give the nodes that may stand in the place of one node."""
    if isinstance(node, ast.BinOp):
        for operator in OTHER.get(type(node.op), ()):
            yield ast.BinOp(node.left, operator(), node.right)
        yield ast.BinOp(node.right, node.op, node.left)
        yield node.left
        yield node.right
    elif isinstance(node, ast.Compare) and len(node.ops) == 1:
        for operator in OTHER.get(type(node.ops[0]), ()):
            yield ast.Compare(node.left, [operator()], node.comparators)
    elif isinstance(node, ast.UnaryOp):
        yield node.operand
    elif isinstance(node, ast.Constant) and type(node.value) in (int, float):
        value = node.value
        for other in dict.fromkeys((value + 1, value - 1, -value, 0, 1)):
            if other != value:
                yield ast.Constant(other)
    elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
        if node.id in names:
            yield from (ast.Name(name, ast.Load()) for name in names
                        if name != node.id)
    elif isinstance(node, ast.Attribute) and node.attr in ("T", "mT"):
        yield node.value
    elif isinstance(node, ast.Call):
        yield from changed_calls(node)


def changed_calls(node):
    """Give a call without itself, or with other arguments."""
    if isinstance(node.func, ast.Attribute):
        yield node.func.value
    if node.args:
        yield node.args[0]
    for place in range(len(node.keywords)):
        rest = node.keywords[:place] + node.keywords[place + 1:]
        yield ast.Call(node.func, node.args, rest)
    for place in range(len(node.args) - 1):
        swapped = list(node.args)
        swapped[place:place + 2] = swapped[place + 1], swapped[place]
        yield ast.Call(node.func, swapped, node.keywords)


class _Replace(ast.NodeTransformer):
    """Put one node in the place of another."""

    def __init__(self, old, new):
        self.old, self.new = old, new

    def visit(self, node):
        return self.new if node is self.old else self.generic_visit(node)


def mutants_of(source, names):
    """Give every mutant of a program, as text, without repeats."""
    tree = ast.parse(textwrap.dedent(source))
    found = {ast.unparse(tree): None}
    for number, node in enumerate(ast.walk(tree)):
        for choice in range(len(list(changes(node, names)))):
            again = copy.deepcopy(tree)
            old = list(ast.walk(again))[number]
            new = list(changes(old, names))[choice]
            changed = _Replace(old, new).visit(again)
            found[ast.unparse(ast.fix_missing_locations(changed))] = None
    return list(found)[1:]


def programs():
    """Give right programs: exercise, name of the function, source."""
    for exercise, source in RIGHT:
        yield exercise, "answer", source
    for task in tasks():
        if isinstance(task, Exercise):
            yield task.id, task.name, task.solution_cell()


def draw(number, seed=0):
    """Draw mutants, about as many of each program.

    Args:
        number: How many.
        seed: Decides which.

    Returns:
        Tuples of exercise, name of the function and source.
    """
    rng = random.Random(seed)
    stacks, seen = [], set()
    for exercise, name, source in programs():
        cases = find(exercise).cases(np.random.default_rng(0))
        stack = [(exercise, name, mutant) for mutant in mutants_of(
            source, list(cases[0].arguments))]
        rng.shuffle(stack)
        stacks.append(stack)
    rng.shuffle(stacks)
    drawn = []
    while len(drawn) < number and any(stacks):
        for stack in stacks:
            if stack:
                mutant = stack.pop()
                if (mutant[0], mutant[2]) not in seen:
                    seen.add((mutant[0], mutant[2]))
                    drawn.append(mutant)
    return drawn[:number]


@dataclasses.dataclass
class Verdicts:
    """What came of many mutants; the three lists must stay empty."""

    counts: collections.Counter = dataclasses.field(
        default_factory=collections.Counter)
    false_passes: list = dataclasses.field(default_factory=list)
    false_names: list = dataclasses.field(default_factory=list)
    refused: list = dataclasses.field(default_factory=list)
    times: list = dataclasses.field(default_factory=list)


def fresh_outcomes(exercise, answer, number):
    """Run a program on inputs of its own, as the check would run it."""
    function, tensors = answer, uses_torch(answer)
    if exercise.adapt is not None:
        function = exercise.adapt(answer)
    cases = [case for seed in range(FRESH) for case in exercise.cases(
        np.random.default_rng([77, number, seed]))]
    plain = exercise.torch or exercise.adapt is not None

    def outcomes(tensors):
        return [run(function, _as_tensors(case.arguments)
                    if tensors and not plain else case.arguments, 0.5,
                    many=exercise.many, like=exercise.expected(case))
                for case in cases]

    found = outcomes(tensors)
    if not plain and all(each.kind == "raise" for each in found):
        found = outcomes(not tensors)  # written for the other kind of array
    return cases, found


def right_answers_of(exercise, cases):
    """Give what the solution computes, each a value or None."""
    solution = exercise.solution
    if exercise.adapt is not None:
        solution = exercise.adapt(solution)
    return [run(solution, case.arguments, 5.0, many=exercise.many).value
            for case in cases]


def name_is_true(exercise, alternative, cases, outcomes):
    """Say whether the numbers are those of the named mistakes."""
    wrong = {stage: function for name in alternative
             for stage, function in exercise.mistake(name).wrong.items()}
    precision = coarsest(outcomes)

    def fits(case, outcome, style):
        named = exercise.outcome(case, wrong, style)
        return named.kind == outcome.kind and (
            named.kind == "raise"
            or same(outcome.value, named.value, precision))

    return any(all(fits(case, outcome, style)
                   for case, outcome in zip(cases, outcomes))
               for style in exercise.styles)


def judge(mutants):
    """Check every mutant and find out whether the verdict is true."""
    verdicts = Verdicts()
    for number, (name, function, source) in enumerate(mutants):
        exercise = find(name)
        try:
            answer = load(source, function)
        except Exception:
            verdicts.counts["does not load"] += 1
            continue
        started = time.process_time()  # other programs do not count
        result = check(name, answer, seed=number, time_limit=0.5)
        if result.verdict != "timed out":
            verdicts.times.append((1e3 * (time.process_time() - started),
                                   mutants[number]))
        _count(verdicts, exercise, answer, result, (name, source, number))
    return verdicts


def _count(verdicts, exercise, answer, result, entry):
    if result.verdict == "timed out":
        verdicts.counts["timed out"] += 1
        return
    cases, outcomes = fresh_outcomes(exercise, answer, entry[2])
    wanted = right_answers_of(exercise, cases)
    precision = coarsest(outcomes)
    is_right = all(
        outcome.kind == "value" and same(outcome.value, value, precision)
        for outcome, value in zip(outcomes, wanted))
    verdicts.counts["right" if is_right else "wrong"] += 1
    if is_right:
        if result.passed:
            verdicts.counts["right: passed"] += 1
        elif result.name in FAIR:
            verdicts.counts[f"right: told {result.name}"] += 1
        else:
            verdicts.refused.append((*entry, result.name))
        return
    if result.passed:
        verdicts.false_passes.append(entry)
        return
    kind = result.verdict
    if result.mistakes and set(result.mistakes) <= FORM:
        kind = "form"
    elif result.mistakes:
        if not all(name_is_true(exercise, each, cases, outcomes)
                   for each in result.alternatives):
            verdicts.false_names.append((*entry, result.name))
    elif result.traced:
        kind = "traced"
    verdicts.counts[f"wrong: {kind}"] += 1


def main(arguments):
    """Report on a number of mutants."""
    os.environ.update(COURSE_PROGRESS="off", COURSE_DEBUG="1")
    verdicts = judge(draw(int(arguments[0]) if arguments else 2400))
    for name, count in sorted(verdicts.counts.items()):
        print(f"{count:6d}  {name}")
    for what in ("false_passes", "false_names", "refused"):
        entries = getattr(verdicts, what)
        print(f"{len(entries):6d}  {what}")
        for entry in entries[:20]:
            print("-" * 20, entry[0], *entry[2:])
            print(entry[1])
    times = np.array([spent for spent, _ in verdicts.times])
    print(f"milliseconds of the processor: median {np.median(times):.1f}, "
          f"95th percentile {np.percentile(times, 95):.1f}, largest "
          f"{times.max():.0f}")
    for spent, (exercise, _, source) in sorted(verdicts.times)[-2:]:
        print(f"{spent:.0f} ms: {exercise}", source, sep="\n")


if __name__ == "__main__":
    main(sys.argv[1:])
