"""Mistakes in the softmax."""

from dataclasses import replace

import numpy as np
from numpy import ndarray

from course.exercises.mistakes.common import read, softmax, softmax_over
from course.exercises.stages import Mistake, State

CHAPTER = 4


def softmax_mistakes(source: str = "scaled", stage: str = "weights",
                     axes: int = 3, masked: bool = False) -> list[Mistake]:
    """Mistakes of a stage that is a softmax over the last axis.

    Args:
        source: Name of the scores in the state.
        stage: Name of the stage.
        axes: How many axes the scores have.
        masked: Whether scores may be -inf, or a huge negative number in
            another style.
    """
    mistakes = _softmax_mistakes(source, stage)
    if axes >= 2:
        mistakes += _wrong_axis(source, stage, axes)
    return [replace(mistake, styled=masked) for mistake in mistakes]


def _softmax_mistakes(source: str, stage: str) -> list[Mistake]:
    x = read(source)
    fix = "np.exp(x) / np.exp(x).sum(axis=-1, keepdims=True)"
    return [
        Mistake(
            "softmax-missing", "scores without any softmax",
            "The weights are the scores as they came.",
            {stage: x},
            why="Scores may be negative and sum to anything; weights are "
                "positive and sum to 1.",
            question="Can a weight be negative?", fix=fix,
            explained=CHAPTER),
        Mistake(
            "softmax-no-exp", "x / x.sum(-1) without the exponential",
            "Every score was divided by the sum of its row.",
            {stage: lambda s: x(s) / x(s).sum(-1, keepdims=True)},
            why="Without exp a negative score gives a negative weight.",
            question="What makes every weight positive?", fix=fix,
            in_pairs=False, explained=CHAPTER),
        Mistake(
            "softmax-no-sum", "exp(x) without the division by the sum",
            "The weights are positive but do not sum to 1.",
            {stage: lambda s: np.exp(x(s))},
            why="The weights of a query are shares of 1.",
            question="What must the weights of one query sum to?", fix=fix,
            explained=CHAPTER),
        Mistake(
            "softmax-no-sum-shifted",
            "exp(x - max) without the division by the sum",
            "The largest weight of every row is 1.",
            {stage: lambda s: np.exp(x(s) - x(s).max(-1, keepdims=True))},
            why="The weights of a query are shares of 1.",
            question="What must the weights of one query sum to?", fix=fix,
            same_as="softmax-no-sum", in_pairs=False, explained=CHAPTER),
        Mistake(
            "softmax-twice", "a softmax of a softmax",
            "The weights came out too even.",
            {stage: lambda s: softmax(softmax(x(s), s.style), s.style)},
            why="The second softmax sees numbers between 0 and 1, which are "
                "nearly equal to it.",
            question="What goes into your softmax: scores, or weights "
                     "already?",
            fix="one softmax", explained=CHAPTER),
        Mistake(
            "log-softmax", "the logarithm of the softmax",
            "Every weight was replaced by its logarithm, which is negative.",
            {stage: lambda s: np.log(softmax(x(s), s.style))},
            why="log_softmax serves a loss; an average needs the weights "
                "themselves.",
            question="Can a weight be negative?", fix="softmax",
            in_pairs=False, explained=CHAPTER),
        Mistake(
            "log-softmax-stable", "the logarithm of the softmax",
            "Every weight was replaced by its logarithm, which is negative.",
            {stage: lambda s: _log_softmax(x(s))},
            why="log_softmax serves a loss; an average needs the weights "
                "themselves.",
            question="Can a weight be negative?", fix="softmax",
            same_as="log-softmax", in_pairs=False, explained=CHAPTER),
        Mistake(
            "sigmoid", "1 / (1 + exp(-x)), a sigmoid",
            "Every score was squashed on its own.",
            {stage: lambda s: 1 / (1 + np.exp(-x(s)))},
            why="In a softmax the keys compete: more for one is less for "
                "the others.",
            question="Does raising one score lower the other weights?",
            fix=fix, in_pairs=False, explained=CHAPTER),
        Mistake(
            "softmax-base-2", "2ˣ / Σ 2ˣ",
            "The base is 2 instead of e, so the weights are too even.",
            {stage: lambda s: softmax(x(s) * np.log(2), s.style)},
            why="The softmax is defined with e.",
            question="Which function grows into e at 1?", fix=fix,
            in_pairs=False, explained=CHAPTER),
        Mistake(
            "softmax-negative", "softmax(-x)",
            "The smallest score got the largest weight.",
            {stage: lambda s: softmax(-x(s), s.style)},
            why="A larger score means a better match.",
            question="Which key should get the largest weight?", fix=fix,
            in_pairs=False, explained=CHAPTER),
        Mistake(
            "hardmax", "1 at the largest score and 0 elsewhere",
            "One key got everything.",
            {stage: lambda s: (x(s) == x(s).max(-1, keepdims=True)
                               ).astype(float)},
            why="The softmax shares; only a very large lead takes all.",
            question="May the second best key get nothing?", fix=fix,
            in_pairs=False, explained=CHAPTER),
    ]


def _wrong_axis(source: str, stage: str, axes: int) -> list[Mistake]:
    x = read(source)
    mistakes = [
        Mistake(
            "softmax-over-queries", "a softmax over the queries (axis -2)",
            "Every column sums to 1 instead of every row.",
            {stage: lambda s: softmax_over(x(s), -2)},
            why="Row i says how query i spreads its attention over the keys, "
                "so it is the row that sums to 1.",
            question="Print weights.sum(-1) and weights.sum(-2). Which of "
                     "them should be all ones?",
            fix="axis=-1", explained=CHAPTER),
        Mistake(
            "softmax-global", "one softmax over the whole array",
            "All entries together sum to 1.",
            {stage: lambda s: softmax_over(x(s), None)},
            why="Without `axis`, sum() and max() run over every axis.",
            question="What does x.sum() give without an axis?",
            fix="axis=-1, keepdims=True", explained=CHAPTER),
        Mistake(
            "softmax-no-keepdims", "exp(x) / exp(x).sum(-1) without keepdims",
            "Column j was divided by the sum of row j.",
            {stage: lambda s: _without_keepdims(
                x(s) - x(s).max(-1, keepdims=True))},
            why="Without keepdims the sums have one axis less, and "
                "broadcasting lines them up with the wrong one.",
            question="What is the shape of the sum that you divide by?",
            fix="keepdims=True", in_pairs=False, explained=CHAPTER),
        Mistake(
            "softmax-no-keepdims-plain",
            "exp(x) / exp(x).sum(-1) without keepdims",
            "Column j was divided by the sum of row j.",
            {stage: lambda s: _without_keepdims(x(s))},
            why="Without keepdims the sums have one axis less, and "
                "broadcasting lines them up with the wrong one.",
            question="What is the shape of the sum that you divide by?",
            fix="keepdims=True", same_as="softmax-no-keepdims",
            in_pairs=False, explained=CHAPTER),
        Mistake(
            "softmax-no-keepdims-both",
            "a softmax whose max and sum lack keepdims",
            "The maximum and the sum of row j were used for column j.",
            {stage: lambda s: _without_keepdims(x(s) - x(s).max(-1))},
            why="Without keepdims both have one axis less, and broadcasting "
                "lines them up with the wrong one.",
            question="What are the shapes of your maximum and your sum?",
            fix="keepdims=True", same_as="softmax-no-keepdims",
            in_pairs=False, explained=CHAPTER),
    ]
    if axes >= 3:
        mistakes += [
            Mistake(
                "softmax-over-batch", "a softmax over axis 0, the batch",
                "The sequences of the batch compete with each other.",
                {stage: lambda s: softmax_over(x(s), 0)},
                why="The sequences of a batch know nothing of each other.",
                question="Which axis is axis 0 here?", fix="axis=-1",
                in_pairs=False, explained=CHAPTER),
            Mistake(
                "softmax-per-matrix", "one softmax for each whole matrix",
                "Each (query_len, key_len) matrix sums to 1, not each row.",
                {stage: lambda s: softmax_over(x(s), (-2, -1))},
                why="Every query has weights of its own.",
                question="How many rows must sum to 1?", fix="axis=-1",
                in_pairs=False, explained=CHAPTER),
        ]
    if axes >= 4:
        mistakes.append(Mistake(
            "softmax-over-heads", "a softmax over axis 1, the heads",
            "The heads compete with each other.",
            {stage: lambda s: softmax_over(x(s), 1)},
            why="In (batch, num_heads, query_len, key_len) axis 1 is the "
                "head; the keys are the last axis, -1.",
            question="Which axis is axis 1 once there are heads?",
            fix="axis=-1", explained=5))
    return mistakes


def overflow_mistakes(source: str, stage: str = "weights") -> list[Mistake]:
    """Mistakes that show only for large scores.

    Args:
        source: Name of the scores in the state.
        stage: Name of the stage.
    """
    x = read(source)

    def shifted(s: State, shift: ndarray) -> ndarray:
        exponentials = np.exp(x(s) - shift)
        return exponentials / exponentials.sum(-1, keepdims=True)

    fix = "np.exp(x - x.max(axis=-1, keepdims=True))"
    return [
        Mistake(
            "softmax-overflow", "a softmax without subtracting the maximum",
            "Small scores come out right, large ones as NaN: exp(1000) is "
            "inf, and inf / inf is NaN.",
            {stage: lambda s: shifted(s, np.zeros(()))},
            why="softmax(x) equals softmax(x - c) for every c; with the "
                "row's maximum as c, exp never overflows.",
            question="What is np.exp(1000)? What may be subtracted from a "
                     "row without changing its softmax?",
            fix=fix, explained=CHAPTER),
        Mistake(
            "softmax-global-max", "a softmax with one maximum for all rows",
            "A row far below the largest score of the whole array comes out "
            "as 0 / 0.",
            {stage: lambda s: shifted(s, x(s).max())},
            why="Every row needs its own maximum.",
            question="Which maximum does x.max() give without an axis?",
            fix=fix, explained=CHAPTER),
        Mistake(
            "softmax-min", "a softmax that subtracts the minimum",
            "Large scores still overflow.",
            {stage: lambda s: shifted(s, x(s).min(-1, keepdims=True))},
            why="After subtracting the maximum every exponent is 0 or "
                "negative.",
            question="What is the largest exponent that is left?",
            fix=fix, explained=CHAPTER),
    ]


def _log_softmax(x: ndarray) -> ndarray:
    shifted = x - x.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


def _without_keepdims(x: ndarray) -> ndarray:
    exponentials = np.exp(x)
    return exponentials / exponentials.sum(-1)
