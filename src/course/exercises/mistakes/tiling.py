"""Mistakes in a softmax that is computed in parts."""

from collections.abc import Callable, Iterator
from typing import TypeAlias

import numpy as np
from numpy import ndarray

from course.exercises.mistakes.common import read, softmax
from course.exercises.stages import Mistake, StageFunction, Stages, State

CHAPTER = 14

#: (largest, total, summed) of every query, after some tiles.
Running: TypeAlias = tuple[ndarray, ndarray, ndarray]
#: Takes one tile of scores and values into the running numbers.
Step: TypeAlias = Callable[[Running, ndarray, ndarray], Running]
#: Computed from output, log_sum, other_output and other_log_sum.
Joined: TypeAlias = Callable[[ndarray, ndarray, ndarray, ndarray], ndarray]
#: Makes of it the stage of that name: "joined", the output of both, or
#: "together", their log_sum.
JoinStage: TypeAlias = Callable[[str, Joined], StageFunction]

ONE_SCALE = ("Every term of a sum must be measured by the same largest "
             "score. When that grows, all old terms shrink by exp(old - new), "
             "in the sum of exponentials and in the sum of values alike.")
SHARE = "share = exp(log_sum - together); share * output + other_share * ..."


# -- one tile after the other -----------------------------------------------

def take_in(running: Running, scores: ndarray, value: ndarray, *,
            keeps_total: bool = True, keeps_summed: bool = True) -> Running:
    """Take one tile in; rightly, unless a correction is switched off."""
    largest, total, summed = running
    new = np.maximum(largest, scores.max(1, keepdims=True))
    kept, powers = np.exp(largest - new), np.exp(scores - new)
    return (new,
            total * (kept if keeps_total else 1.0)
            + powers.sum(1, keepdims=True),
            summed * (kept if keeps_summed else 1.0) + powers @ value)


def correction_mistakes(stage_of: Callable[[Step], dict[str, StageFunction]]
                        ) -> list[Mistake]:
    """Mistakes of the old sums when a new largest score arrives.

    Args:
        stage_of: Gives the wrong stages for a wrong step.
    """
    def mistake(name: str, label: str, effect: str, question: str,
                keeps_total: bool, keeps_summed: bool) -> Mistake:
        return Mistake(
            name, label, effect,
            stage_of(lambda running, scores, value: take_in(
                running, scores, value, keeps_total=keeps_total,
                keeps_summed=keeps_summed)),
            why=ONE_SCALE, question=question,
            fix="kept = np.exp(largest - new)", explained=CHAPTER)

    return [
        mistake("online-no-correction", "old sums that keep their old scale",
                "Neither sum shrinks when a new largest score arrives.",
                "By what were the old terms measured, and by what the new?",
                False, False),
        mistake("online-total-not-corrected", "a sum of exponentials that "
                "keeps its old scale", "Only the sum of values shrinks when "
                "a new largest score arrives.",
                "Which of the two sums must shrink when the largest score "
                "grows?", False, True),
        mistake("online-values-not-corrected", "a sum of values that keeps "
                "its old scale", "Only the sum of exponentials shrinks when "
                "a new largest score arrives.",
                "Which of the two sums must shrink when the largest score "
                "grows?", True, False),
    ]


def tiles_of(scores: ndarray, value: ndarray, block: int
             ) -> Iterator[tuple[ndarray, ndarray]]:
    """Cut scores and values into tiles of keys."""
    for start in range(0, scores.shape[1], block):
        yield scores[:, start:start + block], value[start:start + block]


def walk(scores: ndarray, value: ndarray, block: int,
         step: Step = take_in) -> Running:
    """Take in all tiles, one after the other."""
    running: Running = (np.full((len(scores), 1), -np.inf),
                        np.zeros((len(scores), 1)),
                        np.zeros((len(scores), value.shape[1])))
    for part, own in tiles_of(scores, value, block):
        running = step(running, part, own)
    return running


# -- two partial results ----------------------------------------------------

def join(output: ndarray, log_sum: ndarray, other: ndarray,
         other_sum: ndarray) -> tuple[ndarray, ndarray]:
    """Join two partial results rightly; -inf is a set without a key."""
    together = np.logaddexp(log_sum, other_sum)
    shares = (np.exp(log_sum - together), np.exp(other_sum - together))
    return (shares[0][:, None] * output + shares[1][:, None] * other,
            together)


def _shared(first: ndarray, output: ndarray, second: ndarray,
            other: ndarray) -> ndarray:
    return first[:, None] * output + second[:, None] * other


def _larger(o: ndarray, a: ndarray, p: ndarray, b: ndarray) -> ndarray:
    return np.where((a >= b)[:, None], o, p)


def merge_result_mistakes(join_stage: JoinStage) -> list[Mistake]:
    """Mistakes in joining the results of two sets of keys.

    Args:
        join_stage: Makes a stage of what is computed from both results.
    """
    weigh = ("Each result is an average over its own keys. In the average "
             "over all keys it counts as much as its keys do: exp(log_sum).")

    def mistake(name: str, label: str, effect: str, question: str,
                output: Joined | None = None, log_sum: Joined | None = None,
                why: str = weigh) -> Mistake:
        wrong = {}
        if output is not None:
            wrong["joined"] = join_stage("joined", output)
        if log_sum is not None:
            wrong["together"] = join_stage("together", log_sum)
        return Mistake(name, label, effect, wrong, why=why,
                       question=question, fix=SHARE, explained=CHAPTER)

    both = ("The sum over both sets is exp(log_sum) + exp(other_log_sum); "
            "what is asked for is its logarithm.")
    return [
        mistake("partial-mean", "the plain mean of the two outputs",
                "Both sets count alike, whatever their scores.",
                "Should a set of keys with tiny scores count as much as one "
                "with large scores?", lambda o, a, p, b: (o + p) / 2),
        mistake("partial-sum", "the sum of the two outputs",
                "The weights of a query sum to 2.",
                "What must all weights of one query sum to?",
                lambda o, a, p, b: o + p),
        mistake("partial-swapped", "the two outputs with each other's share",
                "The set with the smaller scores counts more.",
                "Which output belongs to which log_sum?",
                lambda o, a, p, b: join(p, a, o, b)[0]),
        mistake("partial-larger", "the output of the set with the larger "
                "log_sum alone", "The other set plays no part.",
                "Has a key with a smaller score no weight at all?", _larger),
        mistake("partial-logs-as-shares", "shares in proportion to the "
                "logarithms themselves", "log_sum / (log_sum + "
                "other_log_sum) was used as the share.",
                "Of what is log_sum the logarithm?",
                lambda o, a, p, b: _shared(a / (a + b), o, b / (a + b), p)),
        mistake("partial-not-divided", "shares that were not divided by their "
                "sum", "exp(log_sum) was used as the share.",
                "What must the two shares sum to?",
                lambda o, a, p, b: _shared(np.exp(a), o, np.exp(b), p)),
        mistake("partial-log-sums-added", "the two log_sums added",
                "The log_sum is that of the product of both sums.",
                "Is log(a + b) the same as log(a) + log(b)?",
                None, lambda o, a, p, b: a + b, both),
        mistake("partial-log-sum-max", "the larger of the two log_sums",
                "The smaller sum is missing in the log_sum.",
                "What becomes of the smaller of the two sums?",
                None, lambda o, a, p, b: np.maximum(a, b), both),
        mistake("partial-log-sum-kept", "the first log_sum, unchanged",
                "Whatever is merged next will be weighed wrongly.",
                "Which keys does the log_sum stand for after the merge?",
                None, lambda o, a, p, b: a, both),
        mistake("partial-no-log", "the sum itself instead of its logarithm",
                "exp(log_sum) stands where log_sum should.",
                "What does the docstring ask for: the sum or its logarithm?",
                None, lambda o, a, p, b: np.exp(np.logaddexp(a, b)), both),
    ]


def overflow_merges(join_stage: JoinStage) -> list[Mistake]:
    """The ways in which the exponential of a large log_sum shows."""
    def log(o: ndarray, a: ndarray, p: ndarray, b: ndarray) -> ndarray:
        return np.log(np.exp(a) + np.exp(b))

    def divided(o: ndarray, a: ndarray, p: ndarray, b: ndarray) -> ndarray:
        total = np.exp(a) + np.exp(b)
        return _shared(np.exp(a) / total, o, np.exp(b) / total, p)

    def divided_last(o: ndarray, a: ndarray, p: ndarray,
                     b: ndarray) -> ndarray:
        total = np.exp(a) + np.exp(b)
        return _shared(np.exp(a), o, np.exp(b), p) / total[:, None]

    def subtracted(o: ndarray, a: ndarray, p: ndarray,
                   b: ndarray) -> ndarray:
        together = log(o, a, p, b)
        return _shared(np.exp(a - together), o, np.exp(b - together), p)

    def divided_late(o: ndarray, a: ndarray, p: ndarray,
                     b: ndarray) -> ndarray:
        return _shared(np.exp(a), o, np.exp(b), p) / np.exp(
            join(o, a, p, b)[1])[:, None]

    ways: dict[str, tuple[Joined | None, Joined | None]] = {
        "": (divided, log), "-subtracted": (subtracted, log),
        "-divided-last": (divided_last, log), "-shares": (divided, None),
        "-shares-divided-last": (divided_last, None),
        "-shares-divided-late": (divided_late, None), "-log": (None, log)}

    def stages(output: Joined | None, log_sum: Joined | None) -> Stages:
        pairs = {"joined": output, "together": log_sum}
        return {name: join_stage(name, value) for name, value in pairs.items()
                if value is not None}

    return [Mistake(
        "partial-overflow" + name, "exp(log_sum) of a large log_sum, which "
        "is infinite", "Right for small numbers; from about 710 on exp gives "
        "inf, and inf / inf is NaN.", stages(*way),
        why="Only the difference of two log_sums matters: measure both by "
            "the larger one, or by their logaddexp.",
        question="What is np.exp(1000)?",
        fix="np.exp(log_sum - np.logaddexp(log_sum, other_log_sum))",
        same_as="partial-overflow" if name else "", in_pairs=False,
        explained=CHAPTER) for name, way in ways.items()]


# -- the weights of a tile, again -------------------------------------------

def again_mistakes(stage: str = "weights", scaled: str = "scaled",
                   log_sum: str = "log_sum") -> list[Mistake]:
    """Mistakes of a stage that is exp(scaled - log_sum)."""
    x, total = read(scaled), read(log_sum)
    why = ("A weight is a share of ALL keys. log_sum knows the sum over all "
           "of them; the tile does not.")

    def mistake(name: str, label: str, effect: str, question: str,
                weights: Callable[[State], ndarray],
                why: str = why) -> Mistake:
        return Mistake(name, label, effect, {stage: weights}, why=why,
                       question=question,
                       fix="np.exp(scores - log_sum[:, None])",
                       explained=CHAPTER)

    return [
        mistake("again-softmax", "a softmax over this tile alone",
                "The weights of one tile sum to 1; those of all tiles "
                "together sum to the number of tiles.",
                "What do the weights of one query sum to: in one tile, or "
                "in all tiles together?", lambda s: softmax(x(s))),
        mistake("again-own-largest", "exponentials measured by the tile's "
                "own largest score", "log_sum plays no part, and nothing was "
                "divided.", "Which argument plays no part?",
                lambda s: np.exp(x(s) - x(s).max(-1, keepdims=True))),
        mistake("again-no-log-sum", "exponentials that nothing was divided "
                "by", "log_sum plays no part.",
                "Which argument plays no part?", lambda s: np.exp(x(s))),
        mistake("again-log-sum-added", "exp(score + log_sum)",
                "The sum of exponentials multiplies instead of dividing.",
                "Is a division inside exp a plus or a minus?",
                lambda s: np.exp(x(s) + total(s)[:, None])),
        mistake("again-divided-by-log", "exp(score) divided by log_sum",
                "The logarithm of the sum stands where the sum should.",
                "Of what is log_sum the logarithm?",
                lambda s: np.exp(x(s)) / total(s)[:, None]),
        mistake("again-no-exp", "score - log_sum, without the exponential",
                "These are the logarithms of the weights.",
                "Can a weight be negative?",
                lambda s: x(s) - total(s)[:, None]),
        mistake("again-per-key", "the log_sum of query j for key j",
                "log_sum was laid along the keys, not along the queries.",
                "Does log_sum have a number for each query or for each key?",
                lambda s: np.exp(x(s) - total(s)[None, :]),
                "log_sum has one number for each query: [:, None] lays it "
                "down the rows. Without that, NumPy lays it along the "
                "columns, if the sizes happen to fit."),
        mistake("again-base-2", "2 ** (score - log_sum)",
                "The base of the power and of the logarithm differ.",
                "Which base does the logarithm have?",
                lambda s: np.exp2(x(s) - total(s)[:, None]),
                "exp2 needs scores and log_sum in powers of two, both times "
                "log2(e)."),
    ]
