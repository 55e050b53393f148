"""Exercises of chapter 14: kernels."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy import ndarray

from course.exercises import solutions
from course.exercises.bank.inputs import Generator
from course.exercises.mistakes.common import softmax
from course.exercises.mistakes.scaling import scale_mistakes
from course.exercises.mistakes.tiling import (
    Joined,
    Running,
    Step,
    correction_mistakes,
    join,
    merge_result_mistakes,
    overflow_merges,
    take_in,
    tiles_of,
    walk,
)
from course.exercises.predictions import Prediction, outcomes_of
from course.exercises.quizzes import Option, Question
from course.exercises.registry import register, register_quiz
from course.exercises.stages import (
    Case,
    Exercise,
    Mistake,
    StageFunction,
    State,
)

CHAPTER = 14


# -- one more tile ----------------------------------------------------------

def _tile_and_sums(rng: Generator) -> list[Case]:
    def case(name: str, query_len: int, block: int, value_dim: int,
             seen: int) -> Case:
        scores = rng.normal(size=(query_len, seen + block)) * 2
        value = rng.normal(size=(seen + block, value_dim))
        if seen:  # in one query the largest score grows, in one it does not
            scores[0, 0], scores[1, seen] = 6.0, 7.0
        largest, total, summed = walk(scores[:, :seen], value[:seen], block)
        return Case(name, {"largest": largest, "total": total,
                           "summed": summed, "scores": scores[:, seen:],
                           "value": value[seen:]},
                    {"query_len": query_len, "block": block,
                     "value_dim": value_dim})

    return [case("all sizes different", 5, 4, 3, 6),
            case("the first tile", 3, 2, 4, 0),
            case("all sizes equal", 4, 4, 4, 4)]


def _right_sums(s: State) -> Running:
    return (s.new, s.total * s.kept + s.powers.sum(1, keepdims=True),
            s.summed * s.kept + s.powers @ s.value)


def _as_step(step: Step) -> dict[str, StageFunction]:
    return {"sums": lambda s: step((s.largest, s.total, s.summed), s.scores,
                                   s.value)}


def _step_mistakes() -> list[Mistake]:
    tile = "new = np.maximum(largest, scores.max(axis=1, keepdims=True))"
    sums = "total * kept + powers.sum(axis=1, keepdims=True)"
    one_scale = ("Old terms are measured by the old largest score, new terms "
                 "by the new one. exp(old - new) turns the one into the "
                 "other.")
    so_far = ("The running number is the largest score SO FAR, of each query "
              "by itself. Then no exponential is larger than 1.")

    def mistake(name: str, label: str, effect: str, question: str,
                why: str, fix: str, **wrong: StageFunction) -> Mistake:
        return Mistake(name, label, effect, dict(wrong), why=why,
                       question=question, fix=fix, explained=CHAPTER)

    def shifted(s: State) -> ndarray:
        return s.powers.sum(1, keepdims=True)

    return [
        *correction_mistakes(_as_step),
        mistake("online-correction-inverted", "old sums multiplied by "
                "exp(new - old)", "The old sums grow where they should "
                "shrink; before the first tile they become NaN.",
                "Must an old term get smaller or larger when the largest "
                "score grows?", one_scale, "kept = np.exp(largest - new)",
                kept=lambda s: np.exp(s.new - s.largest)),
        mistake("online-new-terms-corrected", "a correction of the new terms "
                "too", "The whole sum was multiplied, not the old part "
                "alone.", "By which largest score are the new terms "
                "measured already?", one_scale, sums,
                sums=lambda s: (s.new, (s.total + shifted(s)) * s.kept,
                                (s.summed + s.powers @ s.value) * s.kept)),
        mistake("online-corrects-the-new", "a correction of the new terms "
                "instead of the old", "The factor went to the wrong part.",
                "Which terms are measured by an outdated largest score?",
                one_scale, sums,
                sums=lambda s: (s.new, s.total + shifted(s) * s.kept,
                                s.summed + s.powers @ s.value * s.kept)),
        mistake("online-old-largest", "new terms measured by the old largest "
                "score", "In the first tile that is -inf, and the "
                "exponentials are infinite.",
                "By which number must all terms of one sum be measured?",
                one_scale, "powers = np.exp(scores - new)",
                powers=lambda s: np.exp(s.scores - s.largest)),
        mistake("online-not-shifted", "exp(scores), measured by nothing",
                "The new terms are exp(score), the old ones "
                "exp(score - largest).",
                "By which number must all terms of one sum be measured?",
                one_scale, "powers = np.exp(scores - new)",
                powers=lambda s: np.exp(s.scores)),
        mistake("online-tile-largest", "the largest score of the new tile "
                "alone", "Where the old one is larger, it is forgotten.",
                "What is the largest score so far if the new tile has only "
                "small ones?", so_far, tile,
                new=lambda s: s.scores.max(1, keepdims=True)),
        mistake("online-one-largest", "one largest score for all queries",
                "Every query is measured by the same number. A query with "
                "small scores may lose all its terms to rounding.",
                "Do the queries share a softmax?", so_far, tile,
                new=lambda s: np.maximum(s.largest, s.scores.max())),
        mistake("online-largest-kept", "the old largest score, handed back "
                "with new sums", "The next tile will correct the sums by a "
                "wrong factor.", "By which number are the sums measured that "
                "you hand back?", so_far, tile,
                sums=lambda s: (s.largest, *_right_sums(s)[1:])),
        mistake("online-tile-softmax", "a finished softmax of the tile added "
                "to the sums", "The new terms were divided by their own sum "
                "first.", "When may the division come: after each tile, or "
                "once at the end?", "Only the sum over ALL keys may divide.",
                sums, powers=lambda s: softmax(s.scores)),
        mistake("online-divided-early", "a sum of values that was divided by "
                "the total already", "The next tile would add undivided "
                "terms to divided ones.",
                "When may the division come: after each tile, or once at the "
                "end?", "Only the sum over ALL keys may divide.", sums,
                sums=lambda s: (*_right_sums(s)[:2], _right_sums(s)[2]
                                / _right_sums(s)[1])),
        mistake("online-mean-of-values", "values that were averaged without "
                "weights", "Every key of the tile adds its value with weight "
                "1.", "How much does a key with a very small score add?",
                "Each value counts with its exponential.",
                "summed * kept + powers @ value",
                sums=lambda s: (*_right_sums(s)[:2], s.summed * s.kept
                                + s.value.sum(0))),
    ]


# -- two sets of keys -------------------------------------------------------

def _two_results(rng: Generator) -> list[Case]:
    def case(name: str, query_len: int, value_dim: int, level: float = 0.0,
             empty: bool = False) -> Case:
        def result() -> tuple[ndarray, ndarray]:
            return (rng.normal(size=(query_len, value_dim)),
                    level + rng.normal(size=query_len) * 1.5 + 1)

        (output, log_sum), (other, other_sum) = result(), result()
        if empty:
            output[0], log_sum[0] = 0.0, -np.inf
        return Case(name, {"output": output, "log_sum": log_sum,
                           "other_output": other,
                           "other_log_sum": other_sum},
                    {"query_len": query_len, "value_dim": value_dim})

    return [case("5 queries", 5, 3), case("4 queries, 4 values", 4, 4),
            case("a query without a key in one set", 3, 2, empty=True),
            case("large scores", 3, 5, level=900.0)]


def _of_both(name: str, value: Joined) -> StageFunction:
    return lambda s: value(s.output, s.log_sum, s.other_output,
                           s.other_log_sum)


# -- all tiles --------------------------------------------------------------

def _tiled(rng: Generator) -> list[Case]:
    def case(name: str, query_len: int, key_len: int, head_dim: int,
             value_dim: int, block: int, level: float = 0.0) -> Case:
        query, key = (rng.normal(size=(length, head_dim)) * 1.5
                      for length in (query_len, key_len))
        if level:  # every score is near it, and exact in float32 too
            query, key = query.round(), key.round()
            query[:, 0], key[:, 0] = 32.0, level * np.sqrt(head_dim) / 32
        return Case(name, {
            "query": query, "key": key,
            "value": rng.normal(size=(key_len, value_dim)), "block": block},
            {"query_len": query_len, "key_len": key_len,
             "head_dim": head_dim, "value_dim": value_dim, "block": block})

    return [case("tiles of 2, the last with one key", 4, 7, 3, 5, 2),
            case("tiles of 3, all whole", 3, 6, 4, 3, 3),
            case("one key in each tile", 5, 5, 5, 5, 1),
            case("one tile that is not full", 2, 3, 2, 4, 4),
            case("large scores", 3, 5, 4, 2, 2, level=896.0)]


def _walked(step: Step) -> dict[str, StageFunction]:
    def sums(s: State) -> Running:
        return walk(s.scaled, s.value, s.block, step)

    return {"total": lambda s: sums(s)[1], "summed": lambda s: sums(s)[2]}


def _tiles(s: State) -> list[tuple[ndarray, ndarray]]:
    return list(tiles_of(s.scaled, s.value, s.block))


def _outputs(s: State) -> list[ndarray]:
    return [softmax(scores) @ value for scores, value in _tiles(s)]


def _divided(running: Running, scores: ndarray, value: ndarray) -> Running:
    largest, total, summed = take_in(running, scores, value)
    return largest, total, summed / total


def _whole_tiles(s: State) -> Running:
    whole = s.scaled.shape[1] // s.block * s.block
    return walk(s.scaled[:, :whole], s.value[:whole], s.block)


def _overlapping(s: State) -> Running:
    running = walk(s.scaled[:, :0], s.value[:0], s.block)
    for start in range(0, s.scaled.shape[1], s.block):
        tile = slice(start, start + s.block + 1)
        running = take_in(running, s.scaled[:, tile], s.value[tile])
    return running


def _unshifted(s: State) -> ndarray:
    return np.exp(s.scaled)


def _tiled_mistakes() -> list[Mistake]:
    all_keys = ("A softmax is a share of ALL keys. The tiles' own shares "
                "cannot be added up, unless each is weighed by its sum of "
                "exponentials.")

    def mistake(name: str, label: str, effect: str, question: str, why: str,
                fix: str, **wrong: StageFunction) -> Mistake:
        return Mistake(name, label, effect, dict(wrong), why=why,
                       question=question, fix=fix, explained=CHAPTER)

    loop = "for start in range(0, len(key), block)"
    return [
        *correction_mistakes(_walked),
        mistake("tiles-softmax-added", "the sum of the tiles' own outputs",
                "Each tile was given a softmax of its own; the weights of a "
                "query sum to the number of tiles.",
                "What do all weights of one query sum to?", all_keys,
                "summed / total",
                output=lambda s: np.sum(_outputs(s), axis=0)),
        mistake("tiles-softmax-averaged", "the mean of the tiles' own "
                "outputs", "All tiles count alike, whatever their scores.",
                "Should a tile with tiny scores count as much as one with "
                "large scores?", all_keys, "summed / total",
                output=lambda s: np.mean(_outputs(s), axis=0)),
        mistake("tiles-weighed-by-length", "the tiles' own outputs, weighed "
                "by their number of keys", "All tiles of the same length "
                "count alike.", "Should a tile with tiny scores count as much "
                "as one with large scores?", all_keys, "summed / total",
                output=lambda s: np.sum([
                    len(tile[1]) / len(s.value) * own
                    for tile, own in zip(_tiles(s), _outputs(s))], axis=0)),
        mistake("tiles-not-divided", "a sum of values that nothing was "
                "divided by", "The last division is missing.",
                "What must the running sum of values be divided by, and "
                "when?", "The weights are exponentials over their total.",
                "summed / total", output=lambda s: s.summed),
        mistake("tiles-divided-each-time", "a division after each tile "
                "instead of one at the end", "The next tile is added "
                "undivided to a sum that is divided already.",
                "How often may a sum be divided by its total?",
                "Only the sum over ALL keys may divide.", "summed / total",
                summed=lambda s: walk(s.scaled, s.value, s.block,
                                      _divided)[2],
                output=lambda s: s.summed),
        mistake("tiles-overflow", "exp(score), measured by nothing",
                "Right for small scores; from about 710 on exp gives inf, and "
                "inf / inf is NaN.", "What is np.exp(1000)?",
                "Measured by the largest score so far, no exponential is "
                "larger than 1.", "powers = np.exp(scores - new)",
                total=lambda s: _unshifted(s).sum(1, keepdims=True),
                summed=lambda s: _unshifted(s) @ s.value),
        mistake("tiles-last-only", "the output of the last tile alone",
                "Each tile replaces what was found before.",
                "Do you begin anew in every turn of the loop?",
                "The running numbers must live outside of the loop.",
                "summed = summed * kept + powers @ value[tile]",
                output=lambda s: _outputs(s)[-1]),
        mistake("tiles-first-only", "the output of the first tile alone",
                "The other keys were never looked at.",
                "How many turns has your loop for 7 keys in tiles of 2?",
                "Every query meets every key.", loop,
                output=lambda s: _outputs(s)[0]),
        mistake("tiles-ragged-lost", "attention without the last keys, where "
                "the tiles do not come out even", "Only whole tiles were "
                "computed.", "How many tiles of 2 do 7 keys need?",
                "key_len // block drops what is left over.", loop,
                total=lambda s: _whole_tiles(s)[1],
                summed=lambda s: _whole_tiles(s)[2]),
        mistake("tiles-overlap", "tiles that share a key with their "
                "neighbour", "The first key of each tile was counted twice, "
                "except the very first.", "Which keys does "
                "key[start:start + block] hold: is the end one of them?",
                "A slice ends before its end.", "slice(start, start + block)",
                total=lambda s: _overlapping(s)[1],
                summed=lambda s: _overlapping(s)[2]),
        *scale_mistakes(batched=False),
    ]


# -- tiles that a causal mask leaves ----------------------------------------

def _tile_sizes(rng: Generator) -> list[Case]:
    extra = int(rng.integers(1, 4))
    sizes = ((6, 6, 2), (5, 9, 3), (7, 12, 4), (2, 9, 3), (9, 5, 2),
             (8, 8, 8), (1, 7, 2), (6, 6 + extra, 1), (4, 11, 3), (3, 10, 3),
             (5, 7, 3))
    return [Case(f"{queries} queries, {keys} keys, blocks of {block}",
                 {"query_len": queries, "key_len": keys, "block": block},
                 {"query_blocks": -(-queries // block),
                  "key_blocks": -(-keys // block)})
            for queries, keys, block in sizes]


#: Gives the tiles from the first and last query and key of each, and from
#: how many keys there are more than queries.
Rule = Callable[[ndarray, ndarray, ndarray, ndarray, int], ndarray]


def _by_rule(rule: Rule) -> StageFunction:
    def tiles(s: State) -> ndarray:
        first, left = (np.arange(0, size, s.block)
                       for size in (s.query_len, s.key_len))
        last = np.minimum(first + s.block, s.query_len) - 1
        right = np.minimum(left + s.block, s.key_len) - 1
        return rule(first[:, None], last[:, None], left[None], right[None],
                    s.key_len - s.query_len)
    return tiles


def _whole_blocks(s: State) -> ndarray:
    return _needed(s)[:s.query_len // s.block, :s.key_len // s.block]


def _triangle_of_blocks(s: State) -> ndarray:
    rows, columns = _needed(s).shape
    return np.tri(rows, columns, columns - rows, dtype=bool)


_needed = _by_rule(lambda first, last, left, right, more: left <= last + more)


def _skip_mistakes() -> list[Mistake]:
    fix = "first_key <= last_query + key_len - query_len"
    corner = ("The mask is aligned at the bottom right: query i may attend "
              "to keys 0 to i + key_len - query_len.")
    some = ("A tile is needed as soon as ONE of its queries may attend to "
            "ONE of its keys: the last query sees most, and the first key is "
            "seen first.")

    def mistake(name: str, label: str, effect: str, question: str, why: str,
                rule: Rule | None = None,
                tiles: StageFunction | None = None) -> Mistake:
        stage = tiles if rule is None else _by_rule(rule)
        assert stage is not None
        return Mistake(name, label, effect, {"needed": stage}, why=why,
                       question=question, fix=fix, explained=CHAPTER)

    return [
        mistake("skip-top-left", "tiles of a mask that is aligned at the top "
                "left", "key_len - query_len plays no part.",
                "Which key may the last query attend to?", corner,
                lambda first, last, left, right, more: left <= last),
        mistake("skip-corner-sign", "tiles of a mask that was moved the "
                "wrong way", "The difference of the lengths has the wrong "
                "sign.", "With more keys than queries, may the first query "
                "see one key or more?", corner,
                lambda first, last, left, right, more: left <= last - more),
        mistake("skip-first-query", "the tiles that a block's FIRST query "
                "needs, or a corner rounded down to whole blocks",
                "Tiles on the diagonal that only later queries need are "
                "skipped.", "Which query of a block sees the most keys?",
                some, lambda first, last, left, right, more: (
                    left <= first + more)),
        mistake("skip-corner-of-blocks", "a triangle of blocks, moved by "
                "the difference of their numbers", "key_blocks - "
                "query_blocks stands for key_len - query_len.",
                "Which key does the last query of block 0 see, and in which "
                "block is it?", "Where the blocks do not come out even, the "
                "numbers of blocks differ by another amount than the "
                "lengths.", tiles=_triangle_of_blocks),
        mistake("skip-last-key", "the tiles of which the last query sees "
                "every key", "Tiles on the diagonal that are seen in part "
                "are skipped.", "Is a tile needed if only its first key is "
                "seen?", some, lambda first, last, left, right, more: (
                    right <= last + more)),
        mistake("skip-only-whole", "the tiles in which everybody sees "
                "everything", "The tiles that cross the diagonal are "
                "skipped.", "Is a tile needed of which a part is masked?",
                some, lambda first, last, left, right, more: (
                    right <= first + more)),
        mistake("skip-strict", "tiles without their last key",
                "A tile whose first key is the very last that is seen is "
                "skipped.", "May a token attend to itself?", some,
                lambda first, last, left, right, more: left < last + more),
        mistake("skip-nothing-of-more-queries", "all tiles, where there are "
                "more queries than keys", "The first query_len - key_len "
                "queries may attend nowhere, and their tiles hold nothing.",
                "With 4 queries and 2 keys, which key may query 0 attend "
                "to?", corner, lambda first, last, left, right, more: (
                    (left <= last + more) | (more < 0))),
        mistake("skip-nothing", "all tiles", "None is skipped.",
                "Which tiles hold only later keys?",
                "A tile above the diagonal adds nothing.",
                lambda first, last, left, right, more: (
                    left + last >= 0)),
        mistake("skip-inverted", "the tiles that may be skipped",
                "True and False changed places.",
                "What does True mean here: to compute, or to skip?",
                "True marks a tile that is computed.",
                lambda first, last, left, right, more: left > last + more),
        mistake("skip-ragged-lost", "whole blocks alone",
                "Where a length is not a multiple of block, the last block "
                "is missing.", "How many blocks of 3 do 5 queries need?",
                "A length of 5 needs two blocks of 3.", None, _whole_blocks),
        mistake("skip-transposed", "tiles with keys down and queries across",
                "Rows and columns changed places.",
                "Which axis comes first, that of the queries or of the keys?",
                "Query blocks go down, key blocks across.", None,
                lambda s: _needed(s).T),
    ]


# -- the cost ---------------------------------------------------------------

def _layers(rng: Generator) -> list[Case]:
    def case(name: str, seq_len: int, num_heads: int, head_dim: int,
             itemsize: int) -> Case:
        return Case(name, {
            "seq_len": seq_len, "embed_dim": num_heads * head_dim,
            "num_heads": num_heads, "itemsize": itemsize}, {})

    return [case("in float32", int(rng.integers(100, 200)), 7, 11, 4),
            case("in bfloat16", int(rng.integers(300, 900)), 12, 32, 2),
            case("in float64", int(rng.integers(20, 40)), 3, 5, 8)]


def _costs(s: State) -> tuple[int, int, int]:
    return (4 * s.seq_len**2 * s.embed_dim,
            s.num_heads * s.seq_len**2 * s.itemsize,
            2 * s.num_heads * s.seq_len * s.itemsize)


def _cost_mistakes() -> list[Mistake]:
    fix = ("4 * seq_len**2 * embed_dim, num_heads * seq_len**2 * itemsize, "
           "2 * num_heads * seq_len * itemsize")

    def mistake(name: str, label: str, effect: str, question: str, why: str,
                *wrong: Callable[[State], Any] | None) -> Mistake:
        def costs(s: State) -> tuple[Any, ...]:
            return tuple(right if change is None else change(s)
                         for right, change in zip(_costs(s), wrong))
        return Mistake(name, label, effect, {"costs": costs}, why=why,
                       question=question, fix=fix, explained=CHAPTER)

    products = ("Scores and weighted values: two products, each of "
                "seq_len² · embed_dim multiplications and as many additions, "
                "all heads together.")
    heads = "Every head has a score for every pair of tokens."
    running = "Every query of every head has two running numbers."
    return [
        mistake("costs-half", "half the operations: one of the two products, "
                "or one operation for a multiplication and an addition",
                "A factor 2 is missing in the operations.",
                "How many products of matrices are there, and how many "
                "operations has each of their terms?", products,
                lambda s: 2 * s.seq_len**2 * s.embed_dim, None, None),
        mistake("costs-quarter", "one operation for each pair and feature",
                "A factor 4 is missing in the operations.",
                "How many products of matrices are there, and how many "
                "operations has each of their terms?", products,
                lambda s: s.seq_len**2 * s.embed_dim, None, None),
        mistake("costs-times-heads", "operations multiplied by the number of "
                "heads", "embed_dim is the width of all heads together "
                "already.", "How wide is one head?", products,
                lambda s: 4 * s.seq_len**2 * s.embed_dim * s.num_heads, None,
                None),
        mistake("costs-of-one-head", "operations of a single head",
                "They were divided by the number of heads.",
                "How wide are all heads together?", products,
                lambda s: 4 * s.seq_len**2 * s.embed_dim // s.num_heads, None,
                None),
        mistake("costs-scores-of-one-head", "stored scores of a single head",
                "num_heads plays no part in them.",
                "How many tables of scores has a layer?", heads,
                None, lambda s: s.seq_len**2 * s.itemsize, None),
        mistake("costs-scores-as-wide", "stored scores multiplied by "
                "embed_dim", "A score is one number, not a vector.",
                "How many numbers is one score?", heads, None,
                lambda s: s.embed_dim * s.seq_len**2 * s.itemsize, None),
        mistake("costs-scores-half", "stored scores of the lower triangle "
                "alone", "They are half of what is asked for.",
                "Is there a causal mask in the question?",
                "Without a mask every pair has a score; and a plain product "
                "computes all of them even with one.", None,
                lambda s: s.num_heads * s.seq_len**2 * s.itemsize / 2, None),
        replace(mistake(
            "costs-memory-of-one-head", "bytes of a single head",
            "num_heads plays no part in them.",
            "Do the heads share scores, or a softmax?",
            f"{heads} {running}", None,
            lambda s: s.seq_len**2 * s.itemsize,
            lambda s: 2 * s.seq_len * s.itemsize),
            same_as="costs-scores-of-one-head"),
        mistake("costs-numbers", "numbers instead of bytes",
                "itemsize plays no part.",
                "How many bytes has one number?",
                "Bytes are numbers times the bytes of one.", None,
                lambda s: s.num_heads * s.seq_len**2,
                lambda s: 2 * s.num_heads * s.seq_len),
        mistake("costs-one-running", "one running number for each query and "
                "head", "A factor 2 is missing in the last count.",
                "Which numbers must be known of the softmax of a query: one "
                "or two?", running, None, None,
                lambda s: s.num_heads * s.seq_len * s.itemsize),
        mistake("costs-running-of-one-head", "running numbers of a single "
                "head", "num_heads plays no part in the last count.",
                "Do the heads share a softmax?", running, None, None,
                lambda s: 2 * s.seq_len * s.itemsize),
        mistake("costs-running-of-all", "running numbers for each pair",
                "The last count grows with the square of the length.",
                "How many softmaxes has a query in one head?", running, None,
                None,
                lambda s: 2 * s.num_heads * s.seq_len**2 * s.itemsize),
    ]


# -- small examples ---------------------------------------------------------

def _tiny_step() -> Case:
    return Case("two queries; some keys were seen, a tile of two comes", {
        "largest": np.array([[1.0], [0.0]]),
        "total": np.array([[1.5], [1.0]]),
        "summed": np.array([[2.0], [3.0]]),
        "scores": np.array([[0.0, -1.0], [2.0, 0.0]]),
        "value": np.array([[4.0], [8.0]])})


def _tiny_merge() -> Case:
    return Case("one query with a small sum, one with a large sum", {
        "output": np.array([[1.0], [1.0]]),
        "log_sum": np.array([0.0, 999.0]),
        "other_output": np.array([[5.0], [5.0]]),
        "other_log_sum": np.array([1.0, 1000.0])})


def _tiny_tiles() -> Case:
    return Case("one query, three keys, tiles of two", {
        "query": np.array([[1.0, 0.0, 0.0, 0.0]]),
        "key": np.array([[2.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0],
                         [4.0, 0.0, 0.0, 0.0]]),
        "value": np.array([[8.0], [0.0], [4.0]]), "block": 2})


def _tiny_large_scores() -> Case:
    case = _tiny_tiles()
    return Case("the same with scores near 1,000", case.arguments | {
        "query": case.arguments["query"] * 500})


def _tiny_skip() -> Case:
    return Case("7 queries, 4 keys, blocks of 2", {
        "query_len": 7, "key_len": 4, "block": 2},
        {"query_blocks": 4, "key_blocks": 2})


def _tiny_costs() -> Case:
    return Case("10 tokens, two heads of width 3, float32", {
        "seq_len": 10, "embed_dim": 6, "num_heads": 2, "itemsize": 4})


register(Exercise(
    id="online_softmax_step", title="One more tile", chapter=CHAPTER,
    difficulty=2, minutes=10,
    task="The heart of every tiled kernel: three running arrays, and a tile "
         "of scores that may bring a new largest score. Take it in.",
    solution=solutions.online_softmax_step,
    stages={"new": lambda s: np.maximum(s.largest,
                                        s.scores.max(1, keepdims=True)),
            "kept": lambda s: np.exp(s.largest - s.new),
            "powers": lambda s: np.exp(s.scores - s.new),
            "sums": _right_sums},
    cases=_tile_and_sums, mistakes=_step_mistakes(),
    axes=("query_len", "value_dim"), many=3,
    names=("largest", "total", "summed"), tiny=_tiny_step,
    hints=("The old sums are measured by the old largest score. By what must "
           "they be multiplied to be measured by the new one?",
           "exp(score - new) is exp(score - old) times exp(old - new): one "
           "factor for each query, for both sums.",
           "kept = np.exp(largest - new), powers = np.exp(scores - new); "
           "then sum * kept + what the tile adds.")))

register(Exercise(
    id="merge_partial_results", title="Two sets of keys become one",
    chapter=CHAPTER, difficulty=2, minutes=10,
    task="One half of the keys was attended to here, the other half on "
         "another machine. Join the two results into that of all keys.",
    solution=solutions.merge_partial_results,
    stages={"joined": _of_both("joined", lambda *given: join(*given)[0]),
            "together": _of_both("together", lambda *given: join(*given)[1]),
            "merged": lambda s: (s.joined, s.together)},
    cases=_two_results,
    mistakes=[*merge_result_mistakes(_of_both), *overflow_merges(_of_both)],
    axes=("query_len", "value_dim"), many=2, names=("output", "log_sum"),
    tiny=_tiny_merge,
    hints=("If the sums of exponentials were 1 and 3, how much would each "
           "output count?",
           "Each output counts as much as its sum of exponentials, "
           "exp(log_sum), out of both together. Subtract before you take the "
           "exponential: then nothing overflows.",
           "together = np.logaddexp(log_sum, other_log_sum); the shares are "
           "np.exp(log_sum - together) and np.exp(other_log_sum - "
           "together).")))

register(Exercise(
    id="attend_in_tiles", title="Attention over tiles", chapter=CHAPTER,
    difficulty=3, minutes=15,
    task="Put the step into a loop: attention whose largest array of scores "
         "is one tile. The result is exact, for every block size.",
    solution=solutions.attend_in_tiles,
    stages={"scores": lambda s: s.query @ s.key.T,
            "scaled": lambda s: s.scores / np.sqrt(s.key.shape[-1]),
            **_walked(take_in),
            "output": lambda s: s.summed / s.total},
    cases=_tiled, mistakes=_tiled_mistakes(),
    axes=("query_len", "value_dim"), tiny=_tiny_tiles,
    tiny_more=(_tiny_large_scores,),
    spared=lambda case: (
        (case.dims["query_len"], case.dims["key_len"]),
        "the scores of all keys"),
    hints=("What must be known of the tiles seen so far, when the next one "
           "comes?",
           "Three things: the largest score, the sum of exponentials and the "
           "sum of values, each corrected when the largest score grows.",
           "Begin with -inf, 0 and 0; take in key[start:start + block] in "
           "each turn; divide summed by total after the loop.")))

register(Exercise(
    id="tiles_to_compute", title="Tiles above the diagonal",
    chapter=CHAPTER, difficulty=2, minutes=10,
    task="Under a causal mask nearly half of the tiles hold nothing. Say "
         "which must be computed, also where there are more keys than "
         "queries and where the last block is shorter.",
    solution=solutions.tiles_to_compute, stages={"needed": _needed},
    cases=_tile_sizes, mistakes=_skip_mistakes(),
    axes=("query_blocks", "key_blocks"), boolean=True, tiny=_tiny_skip,
    hints=("Which query of a block sees the most keys, and which key of a "
           "block is seen first?",
           "The last query of a block, number i, sees the keys up to "
           "i + key_len - query_len. The last block may end early.",
           "The first key of block j is j * block. Compare it with the last "
           "key that the block of queries sees.")))

register(Exercise(
    id="attention_costs", title="Count before you run", chapter=CHAPTER,
    difficulty=1, minutes=6,
    task="What does attention cost for one sentence: operations, bytes of "
         "stored scores, and bytes of what a tiled kernel keeps in their "
         "place?",
    solution=solutions.attention_costs, stages={"costs": _costs},
    cases=_layers, mistakes=_cost_mistakes(), axes=(), many=3,
    names=("operations", "stored", "running"), tiny=_tiny_costs,
    hints=("How many pairs of tokens are there, and how many features does "
           "each pair's score sum over, all heads together?",
           "Scores: seq_len² pairs, embed_dim features in all, a "
           "multiplication and an addition each. The weighted values: the "
           "same again.",
           "4 * seq_len² * embed_dim operations; num_heads * seq_len² "
           "scores; 2 * num_heads * seq_len running numbers.")))

register(Prediction(
    id="predict_stored_scores", title="A layer of scores", chapter=CHAPTER,
    difficulty=1, minutes=3,
    task="A layer with 8 heads and embed_dim 512 reads a text of 4,096 "
         "tokens in float32 and stores its scores. How many MiB (2²⁰ bytes) "
         "do they take?",
    form="number", placeholder="...  # a whole number", digits=0,
    unit="MiB", solution=solutions.predict_stored_scores,
    outcomes=lambda: outcomes_of(
        "attention_costs", Case("", {
            "seq_len": 4096, "embed_dim": 512, "num_heads": 8,
            "itemsize": 4}), lambda stored: float(stored) / 2**20, index=1),
    hints=("How many pairs of tokens are there, and in how many heads?",
           "8 * 4096 * 4096 numbers of 4 bytes.",
           "4096 is 2¹², so that is 2³ · 2²⁴ · 2² bytes.")))

register(Prediction(
    id="predict_computed_tiles", title="How many tiles?", chapter=CHAPTER,
    difficulty=1, minutes=3,
    task="1,024 tokens attend to themselves under a causal mask, in blocks "
         "of 128. How many of the 64 tiles must be computed?",
    form="number", placeholder="...  # a whole number", digits=0,
    solution=solutions.predict_computed_tiles,
    outcomes=lambda: outcomes_of(
        "tiles_to_compute", Case("", {
            "query_len": 1024, "key_len": 1024, "block": 128}),
        lambda needed: int(needed.sum())),
    hints=("Is a tile on the diagonal needed?",
           "There are 8 blocks. The first needs one tile, the second two.",
           "1 + 2 + 3 + 4 + 5 + 6 + 7 + 8.")))

register_quiz(CHAPTER, [
    Question(
        "A tiled kernel computes exactly as many products as plain code. Why "
        "is it faster on a long text?",
        [Option("It writes no scores to memory and reads none.", True,
                "Moving the scores takes longer than computing them."),
         Option("It leaves out small scores.", False,
                "The result is exact: every pair counts."),
         Option("The time grows with the length alone.", False,
                "Every query still meets every key: the time grows with the "
                "square. It is the memory that grows with the length.")]),
    Question(
        "Two halves of the keys gave two outputs. Somebody takes their mean. "
        "When is that right?",
        [Option("When both sums of exponentials are equal.", True,
                "Then both shares are one half.", mistake="partial-mean"),
         Option("When both halves have as many keys.", False,
                "A half with large scores counts more, however many keys "
                "there are.", mistake="tiles-weighed-by-length"),
         Option("Always: each output is an average.", False,
                "The mean of two averages is the average of all only if both "
                "stand for the same total weight.",
                mistake="partial-mean")]),
], shapes=("tiles_to_compute",))
