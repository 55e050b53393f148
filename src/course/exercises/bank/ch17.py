"""Exercises of chapter 17: many machines."""

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy import ndarray

from course.exercises import solutions
from course.exercises.bank.inputs import Generator
from course.exercises.mistakes.common import softmax, swap
from course.exercises.mistakes.heads import merge_mistakes, split_mistakes
from course.exercises.mistakes.normalising import softmax_mistakes
from course.exercises.mistakes.projections import output_mistakes
from course.exercises.mistakes.scaling import (
    head_scale_mistakes,
    scale_mistakes,
)
from course.exercises.mistakes.tiling import (
    Joined,
    join,
    merge_result_mistakes,
)
from course.exercises.predictions import Prediction, outcomes_of
from course.exercises.quizzes import Option, Question
from course.exercises.registry import register, register_quiz
from course.exercises.stages import (
    Case,
    Exercise,
    Mistake,
    StageFunction,
    Stages,
    State,
)

CHAPTER = 17


# -- cut by heads -----------------------------------------------------------

def _shares(rng: Generator) -> list[Case]:
    def case(name: str, batch: int, seq_len: int, num_heads: int,
             head_dim: int, rank: int, processes: int) -> Case:
        width = num_heads * head_dim
        return Case(name, {
            "x": rng.normal(size=(batch, seq_len, width)),
            **{matrix: 1.5 / np.sqrt(width) * rng.normal(size=(width, width))
               for matrix in ("W_q", "W_k", "W_v", "W_o")},
            "num_heads": num_heads, "rank": rank, "processes": processes},
            {"batch": batch, "seq_len": seq_len, "num_heads": num_heads,
             "own_heads": num_heads // processes, "head_dim": head_dim,
             "embed_dim": width})

    return [case("process 1 of 2, 4 heads each", 2, 5, 8, 3, 1, 2),
            case("process 1 of 3, 2 heads each", 2, 4, 6, 4, 1, 3),
            case("process 2 of 3, 1 head each", 3, 3, 3, 3, 2, 3)]


def _mine(s: State, rank: int | None = None) -> ndarray:
    """The columns of the heads of this process."""
    width = s.W_q.shape[1] // s.processes
    return np.arange(width) + (s.rank if rank is None else rank) * width


def _dealt(s: State) -> ndarray:
    """The columns of every n-th head, for n processes."""
    heads = np.arange(s.rank, s.num_heads, s.processes)
    width = s.W_q.shape[1] // s.num_heads
    return (heads[:, None] * width + np.arange(width)).ravel()


def _separated(x: ndarray, heads: int) -> ndarray:
    return x.reshape(*x.shape[:2], heads, -1).swapaxes(1, 2)


def _own(s: State, W: ndarray, columns: ndarray) -> ndarray:
    return _separated(s.x @ W[:, columns], s.num_heads // s.processes)


def _cut(columns: Callable[[State], ndarray],
         heads: Callable[[State], int] | None = None) -> Stages:
    """Queries, keys and values of certain columns."""
    def stage(name: str) -> StageFunction:
        def projected(s: State) -> ndarray:
            count = (s.num_heads // s.processes if heads is None
                     else heads(s))
            return _separated(s.x @ getattr(s, name)[:, columns(s)], count)
        return projected
    return {"query": stage("W_q"), "key": stage("W_k"),
            "value": stage("W_v")}


def _rows_of(columns: Callable[[State], ndarray]) -> StageFunction:
    return lambda s: s.merged @ s.W_o[columns(s)]


_SHARE: Stages = {
    **_cut(_mine), "scores": lambda s: s.query @ swap(s.key),
    "scaled": lambda s: s.scores / np.sqrt(s.key.shape[-1]),
    "weights": lambda s: softmax(s.scaled),
    "heads": lambda s: s.weights @ s.value,
    "merged": lambda s: s.heads.swapaxes(1, 2).reshape(
        len(s.heads), s.heads.shape[2], -1),
    "output": _rows_of(_mine)}


def _rows_of_inputs() -> Stages:
    """Cut the matrices of the queries, keys and values by ROWS."""
    def stage(name: str) -> StageFunction:
        return lambda s: _separated(
            s.x[..., _mine(s)] @ getattr(s, name)[_mine(s)], s.num_heads)
    return {"query": stage("W_q"), "key": stage("W_k"),
            "value": stage("W_v"), "output": lambda s: s.merged @ s.W_o}


def _bare_reshapes() -> list[Mistake]:
    """The mistakes of separating heads, made three times alike."""
    def again(each: Mistake) -> Mistake:
        wrong = each.wrong["heads"]

        def stage(name: str) -> StageFunction:
            return lambda s: wrong(SimpleNamespace(
                x=s.x @ getattr(s, name)[:, _mine(s)],
                num_heads=s.num_heads // s.processes))
        return replace(each, effect="All three are cut like that.", wrong={
            "query": stage("W_q"), "key": stage("W_k"),
            "value": stage("W_v")})

    return [again(each) for each in split_mistakes()
            if each.id in ("split-reshape", "split-interleaved")]


def _share_mistakes() -> list[Mistake]:
    fix = "mine = slice(rank * width, (rank + 1) * width)"
    cut = ("A head owns columns of W_q, W_k and W_v, since columns make "
           "features; and rows of W_o, since rows take features up.")

    def mistake(name: str, label: str, effect: str, question: str,
                wrong: Stages, why: str = cut,
                in_pairs: bool = True) -> Mistake:
        return Mistake(name, label, effect, wrong, why=why,
                       question=question, fix=fix, in_pairs=in_pairs,
                       explained=CHAPTER)

    def first(s: State) -> ndarray:
        return _mine(s, 0)

    def everything(s: State) -> ndarray:
        return np.arange(s.W_q.shape[1])

    whole = {**_cut(everything, lambda s: s.num_heads),
             "output": _rows_of(everything)}
    return [
        mistake("share-of-rank-0", "the share of process 0 for every process",
                "rank plays no part.", "Which argument plays no part?",
                {**_cut(first), "output": _rows_of(first)}, in_pairs=False),
        mistake("share-Wo-first-rows", "the right heads with the first rows "
                "of W_o", "Heads meet rows of W_o that belong to other "
                "heads.", "Which rows of W_o take up the features of head "
                "number 2?", {"output": _rows_of(first)}),
        mistake("share-heads-of-rank-0", "the heads of process 0 with the "
                "right rows of W_o", "W_q, W_k and W_v were cut at the "
                "front.", "Which columns of W_q belong to this process?",
                _cut(first), in_pairs=False),
        mistake("share-is-whole", "the output of the whole layer",
                "Every process computes everything; their sum is the output "
                "times the number of processes.",
                "What is the sum of the results of all processes?", whole,
                in_pairs=False),
        mistake("share-whole-divided", "the output of the whole layer, "
                "divided by the number of processes", "The sum is right, and "
                "no work was shared out.",
                "How many heads does one process compute?",
                {**whole, "output": lambda s: s.merged @ s.W_o
                 / s.processes}, in_pairs=False),
        mistake("share-divided", "a share divided by the number of processes",
                "The all-reduce adds; it does not average.",
                "Is the sum or the mean of the parts the output?",
                {"output": lambda s: _rows_of(_mine)(s) / s.processes}),
        mistake("share-heads-dealt", "every n-th head instead of neighbours",
                "The sum over the processes is right, but this process has "
                "other heads than asked for.",
                "Which heads does process 0 have: 0 and 1, or 0 and n?",
                {**_cut(_dealt), "output": _rows_of(_dealt)},
                in_pairs=False),
        mistake("share-columns-dealt", "every n-th head, with the rows of "
                "W_o of neighbours", "Heads meet rows of W_o that belong to "
                "other heads.", "Do the rows of W_o belong to the heads that "
                "you took?", _cut(_dealt), in_pairs=False),
        mistake("share-rows-of-inputs", "rows of W_q, W_k and W_v with the "
                "matching features of x", "Queries, keys and values are "
                "parts of sums that nobody adds up before the softmax.",
                "May a softmax be taken of a part of a score?",
                _rows_of_inputs(), in_pairs=False),
        mistake("share-Wo-columns", "columns of W_o, turned, instead of rows",
                "W_o was cut in the wrong direction.",
                "Which axis of W_o meets the heads?",
                {"output": lambda s: s.merged @ s.W_o[:, _mine(s)].T}),
        mistake("share-all-heads", "the number of heads of the whole layer",
                "The share was cut into num_heads heads, each too narrow.",
                "How many heads does one process have?",
                _cut(_mine, lambda s: s.num_heads), in_pairs=False),
        *_bare_reshapes(),
        mistake("share-one-head", "one wide head in each process",
                "The heads of a process were not separated.",
                "How many heads does one process have?",
                _cut(_mine, lambda s: 1), in_pairs=False),
        mistake("share-scaled-by-share", "scores divided by the root of the "
                "width of the share", "All heads of the process together are "
                "wider than one head.", "Over how many numbers does the dot "
                "product of ONE head sum?",
                {"scaled": lambda s: s.scores / np.sqrt(
                    len(_mine(s)))}, in_pairs=False),
        *scale_mistakes(weights="weights"), *head_scale_mistakes("x"),
        *(replace(each, effect="Positions and heads are mixed up.")
          if callable(each.effect) else each
          for each in merge_mistakes("heads", shrinking=False)),
        *(each for each in output_mistakes() if each.id == "no-Wo"),
        *(each for each in softmax_mistakes(axes=4)
          if each.id in ("softmax-over-queries", "softmax-over-heads")),
    ]


# -- add up -----------------------------------------------------------------

def _parts(rng: Generator) -> list[Case]:
    return [Case(f"{processes} processes", {
        "parts": rng.normal(size=(processes, batch, seq_len, width)),
        "b_o": rng.normal(size=width)},
        {"processes": processes, "batch": batch, "seq_len": seq_len,
         "embed_dim": width})
        for processes, batch, seq_len, width in (
            (3, 2, 4, 5), (2, 3, 5, 4), (4, 4, 4, 4))]


def _adding_mistakes() -> list[Mistake]:
    once = ("The layer adds its bias once. It belongs after the sum, or to "
            "one process alone.")
    parts = "The output is the sum of what the heads give; nothing else."

    def mistake(name: str, label: str, effect: str, question: str, why: str,
                output: StageFunction) -> Mistake:
        return Mistake(name, label, effect, {"output": output}, why=why,
                       question=question, fix="parts.sum(axis=0) + b_o",
                       explained=CHAPTER)

    return [
        mistake("reduce-bias-each", "a bias for every process",
                "The bias was added as often as there are processes.",
                "How often does the whole layer add its bias?", once,
                lambda s: (s.parts + s.b_o).sum(0)),
        mistake("reduce-no-bias", "a sum without the bias",
                "b_o plays no part.", "Which argument plays no part?", once,
                lambda s: s.parts.sum(0)),
        mistake("reduce-bias-share", "a sum with a part of the bias",
                "The bias was divided by the number of processes, and added "
                "once.", "How much of the bias arrives in the sum?", once,
                lambda s: s.parts.sum(0) + s.b_o / len(s.parts)),
        mistake("reduce-mean", "the mean of the parts, with the bias",
                "The parts were divided by the number of processes.",
                "Is the output the sum or the mean of its parts?", parts,
                lambda s: s.parts.mean(0) + s.b_o),
        mistake("reduce-mean-of-all", "the sum of all, bias included, "
                "divided by the number of processes", "The parts and the "
                "bias were divided.", "Is the output the sum or the mean of "
                "its parts?", parts,
                lambda s: (s.parts.sum(0) + s.b_o) / len(s.parts)),
        mistake("reduce-one-part", "the part of one process, with the bias",
                "The other processes' heads are missing.",
                "Which parts play no part?", parts,
                lambda s: s.parts[0] + s.b_o),
        mistake("reduce-max", "the largest of the parts, with the bias",
                "A maximum stands where a sum is due.",
                "Is the output a sum over heads?", parts,
                lambda s: s.parts.max(0) + s.b_o),
        mistake("reduce-batch", "a sum over the batch",
                "The sequences were added up, not the processes.",
                "Which axis counts processes?", parts,
                lambda s: s.parts.sum(1) + s.b_o),
        mistake("reduce-positions", "a sum over the positions",
                "The tokens were added up, not the processes.",
                "Which axis counts processes?", parts,
                lambda s: s.parts.sum(2) + s.b_o),
    ]


# -- a packed projection ----------------------------------------------------

def _packed(rng: Generator) -> list[Case]:
    return [Case(f"{processes} processes, 3 · {inner} rows", {
        "packed": rng.normal(size=(3 * inner, width)),
        "processes": processes},
        {"inner": inner, "embed_dim": width, "processes": processes})
        for processes, inner, width in ((2, 8, 5), (4, 8, 3), (3, 6, 4),
                                        (5, 10, 2))]


def _regrouped(s: State, shape: tuple[int, ...],
               axes: tuple[int, ...]) -> ndarray:
    parts = s.packed.reshape(*shape, s.packed.shape[1])
    return parts.transpose(*axes, len(shape)).reshape(s.packed.shape)


def _regroup_mistakes() -> list[Mistake]:
    fix = "packed.reshape(3, processes, -1, embed_dim).swapaxes(0, 1)"
    order = ("A cut gives each process neighbouring rows. So its queries, its "
             "keys and its values must stand side by side before.")

    def mistake(name: str, label: str, effect: str, question: str,
                rows: StageFunction) -> Mistake:
        return Mistake(name, label, effect, {"rows": rows}, why=order,
                       question=question, fix=fix, explained=CHAPTER)

    return [
        mistake("regroup-not", "the rows as they came",
                "Process 0 gets queries only, and takes some of them for "
                "keys and values. No shape complains.",
                "Which rows does process 0 get, if this is cut into equal "
                "parts?", lambda s: s.packed),
        mistake("regroup-backwards", "the way back: from regrouped rows to "
                "packed ones", "The axes for q, k, v and for the processes "
                "were cut in the wrong order.",
                "Which changes more slowly in the packed rows: q, k, v, or "
                "the process?",
                lambda s: _regrouped(s, (s.processes, 3, -1), (1, 0, 2))),
        mistake("regroup-row-by-row", "one row of q, k and v in turn",
                "The shares of one process are interleaved row by row.",
                "Does the order within a share stay?",
                lambda s: _regrouped(s, (3, -1), (1, 0))),
        mistake("regroup-dealt", "rows dealt out to the processes like cards",
                "Process 0 gets every n-th row.",
                "Are the rows of one head neighbours?",
                lambda s: _regrouped(s, (3, -1, s.processes), (2, 0, 1))),
        mistake("regroup-processes-reversed", "the processes in the opposite "
                "order", "Process 0 gets the last heads.",
                "Which heads does process 0 have?",
                lambda s: s.packed.reshape(
                    3, s.processes, -1, s.packed.shape[1]).swapaxes(
                    0, 1)[::-1].reshape(s.packed.shape)),
        mistake("regroup-axis-kept", "an axis of its own for the processes",
                "The numbers are right; the shape is (processes, rows, "
                "embed_dim).", "How many axes has the matrix that is asked "
                "for?",
                lambda s: s.packed.reshape(
                    3, s.processes, -1, s.packed.shape[1]).swapaxes(
                    0, 1).reshape(s.processes, -1, s.packed.shape[1])),
        mistake("regroup-transposed", "the matrix turned",
                "Rows and columns changed places.",
                "Which axis counts the rows?",
                lambda s: _regrouped(s, (3, s.processes, -1),
                                     (1, 0, 2)).T),
    ]


# -- round the ring ---------------------------------------------------------

def _ring(rng: Generator) -> list[Case]:
    def case(name: str, slice_len: int, head_dim: int, value_dim: int,
             rank: int, source: int) -> Case:
        def draw(*shape: int) -> ndarray:
            return rng.normal(size=shape)

        first = rank == source
        return Case(name, {
            "query": draw(slice_len, head_dim) * 1.5,
            "key": draw(slice_len, head_dim) * 1.5,
            "value": draw(slice_len, value_dim),
            "output": (np.zeros((slice_len, value_dim)) if first
                       else draw(slice_len, value_dim)),
            "log_sum": (np.full(slice_len, -np.inf) if first
                        else draw(slice_len) + 1),
            "rank": rank, "source": source},
            {"slice_len": slice_len, "head_dim": head_dim,
             "value_dim": value_dim})

    return [case("an earlier slice", 4, 3, 5, 2, 0),
            case("its own slice", 5, 2, 3, 1, 1),
            case("a later slice", 3, 4, 2, 1, 2),
            case("the slice before, all sizes equal", 4, 4, 4, 3, 2)]


#: Says who may attend to whom in the slice that came.
Allowed = Callable[[State], Any]


def _triangle(s: State) -> ndarray:
    return np.tri(len(s.query), dtype=bool)


def _causal(s: State) -> Any:
    return _triangle(s) if s.source == s.rank else s.source < s.rank


def _hidden(allowed: Allowed) -> dict[str, StageFunction]:
    return {"masked": lambda s: np.where(allowed(s), s.scaled, -np.inf)}


def _part(s: State) -> tuple[ndarray, ndarray]:
    """Output and log_sum of the slice alone; -inf where it shows no key."""
    largest = s.masked.max(1)
    shift = np.where(np.isneginf(largest), 0.0, largest)
    log_sum = np.log(np.exp(s.masked - shift[:, None]).sum(1)) + shift
    return softmax(s.masked) @ s.value, log_sum


def _taken_in(name: str, value: Joined) -> StageFunction:
    """Join where the slice shows a key; else keep what was there."""
    def stage(s: State) -> ndarray:
        if np.isneginf(s.masked).all():
            return np.asarray(s.output if name == "joined" else s.log_sum)
        return value(s.output, s.log_sum, *_part(s))
    return stage


_JOINED: Stages = {
    "joined": _taken_in("joined", lambda *given: join(*given)[0]),
    "together": _taken_in("together", lambda *given: join(*given)[1])}


def _ring_mistakes() -> list[Mistake]:
    order = ("Slice number `source` lies before, at or after slice number "
             "`rank`: it is seen whole, as a triangle, or not at all.")

    def mistake(name: str, label: str, effect: str, question: str,
                allowed: Allowed) -> Mistake:
        return Mistake(name, label, effect, dict(_hidden(allowed)),
                       why=order, question=question,
                       fix="if source > rank: return output, log_sum",
                       explained=CHAPTER)

    return [
        mistake("ring-no-mask", "a slice that everybody sees, wherever it "
                "comes from", "The future is seen, in its own slice and in "
                "later ones.", "Which argument plays no part?",
                lambda s: True),
        mistake("ring-later-seen", "later slices that are seen",
                "Its own slice is masked, but what comes after it is not.",
                "May a query see a slice that comes after its own?",
                lambda s: _triangle(s) if s.source == s.rank else True),
        mistake("ring-own-unmasked", "the process's own slice "
                "without a triangle",
                "Within that slice the future is seen.",
                "May token 0 of the slice see token 1?",
                lambda s: s.source <= s.rank),
        mistake("ring-always-triangle", "a triangle in every slice up to the "
                "process's own", "Of earlier slices only a part is seen.",
                "Which tokens of an EARLIER slice may token 0 see?",
                lambda s: _triangle(s) & (s.source <= s.rank)),
        mistake("ring-triangle-everywhere", "a triangle in every slice",
                "Of earlier slices only a part is seen, and of later ones "
                "as much.", "Which tokens of an EARLIER slice may token 0 "
                "see?", _triangle),
        Mistake("ring-zero-scores", "a score of 0 for the later tokens of "
                "the process's own slice", "The scores above the diagonal "
                "are 0, not -inf, so they count: each adds exp(0) = 1 to the "
                "sum.",
                {"masked": lambda s: (np.tril(s.scaled)
                                      if s.source == s.rank else np.where(
                                          _causal(s), s.scaled, -np.inf))},
                why="A softmax gives weight to a score of 0. Only -inf has "
                    "no weight.",
                question="What weight does a softmax give to a score of 0?",
                fix="np.where(np.tri(len(query), dtype=bool), scores, "
                    "-np.inf)", explained=CHAPTER),
        mistake("ring-own-skipped", "earlier slices alone",
                "Its own slice was skipped.", "May a token attend to itself?",
                lambda s: s.source < s.rank),
        mistake("ring-earlier-skipped", "the process's own slice "
                "alone",
                "What came round the ring plays no part.",
                "What does the ring bring the slices for?",
                lambda s: _triangle(s) & (s.source == s.rank)),
        mistake("ring-turned", "later slices instead of earlier ones",
                "The comparison of source and rank is turned round.",
                "Is a slice with a smaller number earlier or later?",
                lambda s: (_triangle(s) if s.source == s.rank
                           else s.source > s.rank)),
        Mistake("ring-replaced", "the result of the new slice alone",
                "What was seen before is forgotten.",
                {"joined": _taken_in("joined", lambda o, a, p, b: p),
                 "together": _taken_in("together", lambda o, a, p, b: b)},
                why="The state stands for all slices so far; the new one is "
                    "merged into it.",
                question="Which arguments play no part?",
                fix="np.exp(log_sum - together)[:, None] * output + added",
                explained=CHAPTER),
        *merge_result_mistakes(_taken_in),
        *(each for each in scale_mistakes(batched=False)
          if each.id != "scale-floor"),
    ]


# -- bytes ------------------------------------------------------------------

def _arrays(rng: Generator) -> list[Case]:
    return [Case(f"{processes} processes", {
        "seq_len": int(rng.integers(500, 900)), "embed_dim": width,
        "itemsize": itemsize, "processes": processes}, {})
        for width, itemsize, processes in ((256, 2, 4), (77, 4, 7),
                                           (11, 8, 3), (512, 2, 16))]


def _sent(s: State) -> float:
    return float(2 * (s.processes - 1) / s.processes * s.seq_len
                 * s.embed_dim * s.itemsize)


def _sent_mistakes() -> list[Mistake]:
    fix = "2 * (processes - 1) / processes * size"
    why = ("A process sends one piece of 1 / processes in each turn. Adding "
           "up takes processes - 1 turns, handing out as many.")

    def mistake(name: str, label: str, effect: str, question: str,
                count: Callable[[float, int], float]) -> Mistake:
        return Mistake(name, label, effect, {"bytes": lambda s: count(
            _sent(s), s.processes)}, why=why, question=question, fix=fix,
            explained=CHAPTER)

    return [
        mistake("sent-once-round", "one round of the pieces",
                "Half is missing: the sums must be handed out too.",
                "Who has the sum of a piece after the first round?",
                lambda right, n: right / 2),
        mistake("sent-whole-twice", "the whole array twice",
                "A process sent its own piece to itself, too.",
                "How many of the pieces leave a process in one round?",
                lambda right, n: right * n / (n - 1)),
        mistake("sent-whole-once", "the array once",
                "No round was counted.", "Into how many pieces is the array "
                "cut, and how many turns are there?",
                lambda right, n: right / 2 * n / (n - 1)),
        mistake("sent-to-everybody", "the whole array to every other process",
                "That is what a program without a ring would send.",
                "How large is what a process sends in one turn?",
                lambda right, n: right / 2 * n),
        mistake("sent-by-all", "the whole array in every turn, or what all "
                "processes send together", "It is as many times too large as "
                "there are processes.", "How large is what ONE process sends "
                "in one turn?", lambda right, n: right * n),
        mistake("sent-piece-more", "as many turns as processes, and one "
                "less in the divisor", "n / (n - 1) stands where (n - 1) / n "
                "should.", "With a very large number of processes, is more "
                "or less than twice the array sent?",
                lambda right, n: right * (n / (n - 1)) ** 2),
        mistake("sent-one-turn", "two pieces",
                "Only one turn of each round was counted.",
                "How many turns does a piece need to have met every "
                "process?", lambda right, n: right / (n - 1)),
        Mistake("sent-numbers", "numbers instead of bytes",
                "itemsize plays no part.", {"bytes": lambda s: _sent(s)
                                            / s.itemsize}, why="Bytes are "
                "numbers times the bytes of one.", question="How many bytes "
                "has one number?", fix=fix, explained=CHAPTER),
    ]


# -- small examples ---------------------------------------------------------

def _tiny_share() -> Case:
    return Case("two words, four heads of width 1; process 1 of 2", {
        "x": np.array([[[1.0, 0.0, 2.0, 1.0], [0.0, 2.0, 1.0, 3.0]],
                       [[2.0, 1.0, 0.0, 1.0], [1.0, 1.0, 3.0, 0.0]]]),
        "W_q": np.array([[1.0, 0.0, 1.0, 2.0], [0.0, 1.0, 0.0, 1.0],
                         [1.0, 1.0, 2.0, 0.0], [0.0, 2.0, 1.0, 0.0]]),
        "W_k": np.array([[0.0, 1.0, 1.0, 0.0], [1.0, 0.0, 0.0, 1.0],
                         [0.0, 1.0, 0.0, 1.0], [1.0, 0.0, 0.5, 0.0]]),
        "W_v": np.array([[1.0, 0.0, 2.0, 0.0], [0.0, 1.0, 0.0, 3.0],
                         [2.0, 0.0, 1.0, 0.0], [0.0, 3.0, 0.0, 1.0]]),
        "W_o": np.array([[1.0, 0.0, 0.0, 2.0], [0.0, 1.0, 1.0, 0.0],
                         [2.0, 0.0, 1.0, 0.0], [0.0, 3.0, 0.0, 1.0]]),
        "num_heads": 4, "rank": 1, "processes": 2},
        {"batch": 2, "seq_len": 2, "num_heads": 4, "own_heads": 2,
         "head_dim": 1, "embed_dim": 4})


def _tiny_parts() -> Case:
    return Case("two processes, one sequence of one word", {
        "parts": np.array([[[[1.0, 5.0]]], [[[3.0, 2.0]]]]),
        "b_o": np.array([10.0, 20.0])})


def _tiny_packed() -> Case:
    return Case("two processes; rows q0 to q3, k0 to k3, v0 to v3", {
        "packed": np.arange(12.0)[:, None], "processes": 2})


def _tiny_ring() -> Case:
    return _slice("an earlier slice", 0)


def _tiny_own() -> Case:
    own = _slice("its own slice", 1)
    first = {"output": np.zeros((2, 1)), "log_sum": np.full(2, -np.inf)}
    return replace(own, arguments={**own.arguments, **first})


def _tiny_later() -> Case:
    return _slice("a later slice", 2)


def _slice(name: str, source: int) -> Case:
    return Case(name, {
        "query": np.array([[1.0, 0.0, 0.0, 0.0], [0.0, 2.0, 0.0, 0.0]]),
        "key": np.array([[2.0, 0.0, 0.0, 0.0], [1.0, 1.0, 0.0, 0.0]]),
        "value": np.array([[4.0], [8.0]]),
        "output": np.array([[0.0], [2.0]]), "log_sum": np.array([0.5, 1.5]),
        "rank": 1, "source": source})


def _tiny_array() -> Case:
    return Case("10 tokens of width 6, float32, 4 processes", {
        "seq_len": 10, "embed_dim": 6, "itemsize": 4, "processes": 4})


register(Exercise(
    id="partial_output", title="One process's share", chapter=CHAPTER,
    difficulty=3, minutes=15,
    task="Cut a layer by heads. You are one of several processes, all with "
         "the same input. Compute your part of the output, so that adding up "
         "the parts is all that is left to do.",
    solution=solutions.partial_output, stages=_SHARE, cases=_shares,
    mistakes=_share_mistakes(), axes=("batch", "seq_len", "embed_dim"),
    tiny=_tiny_share,
    hints=("Which columns of W_q make the features of this process's heads, "
           "and which rows of W_o take them up?",
           "The same numbers for both: width = W_q.shape[1] // processes, "
           "and the process has width columns from rank * width on.",
           "Cut W_q, W_k and W_v by columns, attend in num_heads // "
           "processes heads, merge them, and multiply by those rows of "
           "W_o.")))

register(Exercise(
    id="add_partial_outputs", title="Adding up, with a bias",
    chapter=CHAPTER, difficulty=1, minutes=3,
    task="The all-reduce, on one machine: all parts are in one array, and "
         "the output bias is still missing.",
    solution=solutions.add_partial_outputs,
    stages={"output": lambda s: s.parts.sum(0) + s.b_o}, cases=_parts,
    mistakes=_adding_mistakes(), axes=("batch", "seq_len", "embed_dim"),
    tiny=_tiny_parts,
    hints=("How often does a layer on one machine add its bias?",
           "The output is the sum over the heads, and then the bias, once.",
           "parts.sum(axis=0) + b_o.")))

register(Exercise(
    id="regroup_packed_rows", title="Before a packed projection is cut",
    chapter=CHAPTER, difficulty=2, minutes=8,
    task="Query, key and value in one matrix: cut it into equal parts and "
         "every shape fits, but process 0 holds nothing but queries. Put the "
         "rows in order first.",
    solution=solutions.regroup_packed_rows,
    stages={"rows": lambda s: _regrouped(s, (3, s.processes, -1),
                                         (1, 0, 2))},
    cases=_packed, mistakes=_regroup_mistakes(), axes=("rows", "embed_dim"),
    tiny=_tiny_packed,
    hints=("With the rows q0 q1 k0 k1 v0 v1 and two processes, which three "
           "must stand first?",
           "Cut the rows into (3, processes, share). Then the processes must "
           "come first.",
           "packed.reshape(3, processes, -1, embed_dim).swapaxes(0, 1), and "
           "back to two axes.")))

register(Exercise(
    id="ring_step", title="What comes round the ring", chapter=CHAPTER,
    difficulty=3, minutes=15,
    task="You hold one slice of the queries. A slice of keys and values has "
         "arrived from the process before you. Take in what your "
         "queries may see of it.",
    solution=solutions.ring_step,
    stages={"scores": lambda s: s.query @ s.key.T,
            "scaled": lambda s: s.scores / np.sqrt(s.key.shape[-1]),
            **_hidden(_causal), **_JOINED,
            "state": lambda s: (s.joined, s.together)},
    cases=_ring, mistakes=_ring_mistakes(), axes=("slice_len", "value_dim"),
    many=2, names=("output", "log_sum"), tiny=_tiny_ring,
    tiny_more=(_tiny_own, _tiny_later),
    hints=("Is a slice whose number is larger than yours earlier or later in "
           "the text?",
           "Later: give back the state as it is. Yours: mask with a "
           "triangle. Earlier: see all of it. Then merge as in "
           "merge_partial_results.",
           "part = the logarithm of the sum of exp(scores) of each row; "
           "together = np.logaddexp(log_sum, part); the old output counts "
           "np.exp(log_sum - together).")))

register(Exercise(
    id="all_reduce_bytes", title="What an all-reduce sends",
    chapter=CHAPTER, difficulty=1, minutes=4,
    task="The one message of a layer that is cut by heads: how many bytes "
         "does each process send?",
    solution=solutions.all_reduce_bytes, stages={"bytes": _sent},
    cases=_arrays, mistakes=_sent_mistakes(), axes=(), tiny=_tiny_array,
    hints=("How large is one piece, and in how many turns does a process "
           "send one?",
           "A piece is size / processes. It takes processes - 1 turns to add "
           "up, and as many to hand out.",
           "2 * (processes - 1) / processes * size.")))

register(Prediction(
    id="predict_all_reduce", title="One message of a large layer",
    chapter=CHAPTER, difficulty=1, minutes=3,
    task="8 processes share a layer by heads. A text of 8,192 tokens, "
         "embed_dim 4,096, bfloat16. How many MiB (2²⁰ bytes) does each "
         "process send in the ring all-reduce?",
    form="number", placeholder="...  # a whole number", digits=0,
    unit="MiB", solution=solutions.predict_all_reduce,
    outcomes=lambda: outcomes_of(
        "all_reduce_bytes", Case("", {
            "seq_len": 8192, "embed_dim": 4096, "itemsize": 2,
            "processes": 8}), lambda count: float(count) / 2**20),
    hints=("How many MiB has the whole array?",
           "8192 * 4096 numbers of 2 bytes are 64 MiB; a piece is an eighth "
           "of that.",
           "Seven turns to add up and seven to hand out, 8 MiB each.")))

register_quiz(CHAPTER, [
    Question(
        "Every process adds the output bias to its part before the "
        "all-reduce. What is the symptom, with 4 processes?",
        [Option("The output is off by 3 times the bias.", True,
                "It arrives four times instead of once. With a bias of zero, "
                "as at the start of training, nothing shows.",
                mistake="reduce-bias-each"),
         Option("None: each process adds a quarter of the bias.", False,
                "Each adds all of it.", mistake="reduce-bias-each"),
         Option("An error: the shapes do not fit.", False,
                "Every part has the shape of the output, and the bias fits "
                "it.")]),
    Question(
        "A packed projection of queries, keys and values is cut into four "
        "equal parts without regrouping. What happens?",
        [Option("No error; the numbers are wrong.", True,
                "The shapes fit. Process 0 takes some of its queries for "
                "keys and values.", mistake="regroup-not"),
         Option("An error in the first product.", False,
                "Every shape is as it should be.", mistake="regroup-not"),
         Option("The right output, with the heads in another order.", False,
                "The parts are no heads: queries stand where keys should.",
                mistake="regroup-not")]),
    Question(
        "In a ring with a causal mask, slice r of the queries may see slices "
        "0 to r. Which process has the most to do?",
        [Option("The last.", True, "It sees every slice. The others wait for "
                "it, unless each process owns a slice from the front and one "
                "from the back."),
         Option("All have the same.", False,
                "They receive the same, but process 0 can use only its own.",
                mistake="ring-no-mask"),
         Option("The first.", False,
                "Its tokens see nobody before them.",
                mistake="ring-turned")]),
], shapes=("partial_output",))
