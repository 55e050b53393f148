"""Exercises of chapter 5: separating heads."""

import numpy as np
from numpy import ndarray

from course.exercises import probes, solutions, starters
from course.exercises.bank.inputs import Generator, tokens_with_heads
from course.exercises.mistakes.common import swap
from course.exercises.mistakes.heads import (
    bare_reshape,
    dealt_out,
    split_mistakes,
    unmoved,
    wide_matrix_mistakes,
)
from course.exercises.mistakes.scaling import (
    head_scale_mistakes,
    scale_mistakes,
)
from course.exercises.mistakes.scores import score_mistakes
from course.exercises.predictions import Prediction, outcomes_of
from course.exercises.quizzes import Option, Question
from course.exercises.registry import register, register_quiz
from course.exercises.stages import Case, Exercise, Mistake, State

CHAPTER = 5


def separated(x: ndarray, num_heads: int) -> ndarray:
    """(batch, seq_len, width) -> (batch, num_heads, seq_len, head_dim)."""
    return unmoved(x, num_heads).swapaxes(1, 2)


def _matrices(rng: Generator) -> list[Case]:
    return [Case(name, {"matrices": rng.normal(size=shape)}, dict(zip(
        ("num_heads", "embed_dim", "head_dim"), shape)))
        for name, shape in (("all sizes different", (2, 5, 3)),
                            ("all sizes equal", (3, 3, 3)),
                            ("3 heads", (3, 6, 4)))]


def _queries_and_keys(rng: Generator) -> list[Case]:
    return tokens_with_heads(rng, ("q", "k"))


def _flat_mistakes() -> list[Mistake]:
    def flat(heads: ndarray) -> ndarray:
        return heads.reshape(-1, *heads.shape[2:])

    fix = ("x.reshape(batch, seq_len, num_heads, head_dim).swapaxes(1, 2)"
           ".reshape(batch * num_heads, seq_len, head_dim)")
    question = ("For x = np.arange(24).reshape(1, 4, 6), which numbers "
                "should be in the first head, and which are?")
    return [
        Mistake("split-reshape", "a bare reshape, without a transpose",
                "A head holds a few tokens with all their features instead "
                "of all tokens with a few features.",
                {"flat": lambda s: flat(bare_reshape(s.x, s.num_heads))},
                why="reshape never moves a number in memory.",
                question=question, fix=fix, explained=CHAPTER),
        Mistake("split-interleaved", "features dealt out like cards",
                "Each head holds every num_heads-th feature.",
                {"flat": lambda s: flat(dealt_out(s.x, s.num_heads))},
                why="The features of one head stand side by side.",
                question=question, fix=fix, explained=CHAPTER),
        Mistake("split-head-major", "all sequences of head 0 first",
                "The head changes more slowly than the sequence.",
                {"flat": lambda s: separated(s.x, s.num_heads).swapaxes(
                    0, 1).reshape(-1, s.x.shape[1],
                                  s.x.shape[2] // s.num_heads)},
                why="A mask that is repeated for the heads of sequence 0 "
                    "first would then meet the wrong sequences.",
                question="In which order do sequence and head change along "
                         "the first axis?", fix=fix, explained=CHAPTER),
        Mistake("split-swap-T-dh", "heads with positions and features "
                "swapped", "Each head is (head_dim, seq_len).",
                {"flat": lambda s: flat(swap(separated(s.x, s.num_heads)))},
                why="Rows of a head are tokens.",
                question="What does each axis of your result stand for?",
                fix=fix, explained=CHAPTER),
    ]


def _tiny_heads() -> Case:
    return Case("2 tokens, 2 heads", {
        "x": np.arange(8.0).reshape(1, 2, 4), "num_heads": 2},
        {"batch": 1, "seq_len": 2, "num_heads": 2, "head_dim": 2})


def _tiny_matrices() -> Case:
    return Case("2 heads", {"matrices": np.arange(8.0).reshape(2, 2, 2)})


def _query(s: State) -> ndarray:
    return separated(s.q, s.num_heads)


def _key(s: State) -> ndarray:
    return separated(s.k, s.num_heads)


def _both(rearrange) -> dict:
    return {"query": lambda s: rearrange(s.q, s.num_heads),
            "key": lambda s: rearrange(s.k, s.num_heads)}


separate_heads = register(Exercise(
    id="separate_heads", title="Separate the heads", chapter=CHAPTER,
    difficulty=2, minutes=10,
    task="One wide product gives the features of all heads side by side. "
         "Give each head its own slice, as an axis.",
    solution=solutions.separate_heads,
    stages={"heads": lambda s: separated(s.x, s.num_heads)},
    cases=tokens_with_heads, mistakes=split_mistakes(),
    axes=("batch", "num_heads", "seq_len", "head_dim"), tiny=_tiny_heads,
    probe=probes.origin(("batch", "position", "feature"), "head"),
    hints=("Which numbers of x = np.arange(24).reshape(1, 4, 6) belong into "
           "head 0 of 2?",
           "reshape never moves a number, a transpose never cuts an axis. "
           "You need both: first cut the feature axis in two.",
           "x.reshape(batch, seq_len, num_heads, head_dim), then swap axes 1 "
           "and 2.")), "split_heads")

register(Exercise(
    id="wide_matrix", title="Eight small matrices, one wide one",
    chapter=CHAPTER, difficulty=2, minutes=8,
    task="Several heads cost no more than one wide product: put their "
         "matrices side by side, so that x @ wide gives the features of all "
         "heads.",
    solution=solutions.wide_matrix,
    stages={"wide": lambda s: np.concatenate(list(s.matrices), -1)},
    cases=_matrices, mistakes=wide_matrix_mistakes(),
    axes=("embed_dim", "width"), tiny=_tiny_matrices,
    hints=("Which columns of the wide matrix make the features of head 0?",
           "The first head_dim columns are the matrix of head 0, the next "
           "those of head 1.",
           "np.concatenate along the last axis.")))

register(Exercise(
    id="heads_in_the_batch", title="Find the bug: heads in the batch axis",
    chapter=CHAPTER, difficulty=2, minutes=8,
    task="Some programs put the heads into the batch axis. This one gave "
         "wrong results as soon as there was more than one head. Find out "
         "why.",
    solution=solutions.heads_in_the_batch,
    starter=starters.view_as_heads, planted="split-reshape",
    source="https://github.com/reczoo/FuxiCTR/issues/30",
    stages={"flat": lambda s: separated(s.x, s.num_heads).reshape(
        -1, s.x.shape[1], s.x.shape[2] // s.num_heads)},
    cases=tokens_with_heads, mistakes=_flat_mistakes(),
    axes=("batch·num_heads", "seq_len", "head_dim"),
    tiny=lambda: Case("two sequences of two tokens, two heads", {
        "x": np.arange(16.0).reshape(2, 2, 4), "num_heads": 2},
        {"batch": 2, "seq_len": 2, "num_heads": 2, "head_dim": 2}),
    hints=("What does the first head of sequence 0 hold for "
           "x = np.arange(24).reshape(1, 4, 6) and 2 heads?",
           "The shape is right, the numbers are not: the reshape cut across "
           "the tokens.",
           "Separate the heads first (reshape, then swapaxes); only then let "
           "batch and head become one axis.")))

register(Exercise(
    id="scores_of_heads", title="Find the bug: the width of what?",
    chapter=CHAPTER, difficulty=2, minutes=5,
    task="The weights of this model came out too even. With one head nobody "
         "noticed. Find the number that is not the width of one head.",
    solution=solutions.scores_of_heads, imports=("import numpy as np",),
    starter=starters.scale_by_the_embedding, planted="scale-by-sqrt-D",
    source="https://github.com/Graylab/DL4Proteins-notebooks/issues/12",
    stages={"query": _query, "key": _key,
            "scores": lambda s: s.query @ swap(s.key),
            "scaled": lambda s: s.scores / np.sqrt(s.key.shape[-1])},
    cases=_queries_and_keys,
    mistakes=[*score_mistakes(), *scale_mistakes(batched=False),
              *head_scale_mistakes("q"),
              Mistake("split-reshape", "heads cut by a bare reshape",
                      "A head holds a few tokens with all their features.",
                      _both(bare_reshape),
                      why="reshape never moves a number in memory.",
                      question="Which tokens are in your head 0?",
                      explained=CHAPTER),
              Mistake("split-interleaved", "features dealt out like cards",
                      "Each head holds every num_heads-th feature.",
                      _both(dealt_out),
                      why="The features of one head stand side by side.",
                      question="Which features are in your head 0?",
                      explained=CHAPTER)],
    axes=("batch", "num_heads", "query_len", "key_len"),
    hints=("Over how many numbers does the dot product of ONE head sum?",
           "width is the width of all heads together.",
           "Divide by np.sqrt(head_dim).")))

register(Prediction(
    id="predict_head_zero", title="What is in head 0?", chapter=CHAPTER,
    difficulty=2, minutes=3,
    task="x = np.arange(24).reshape(1, 4, 6): four tokens with six features. "
         "separate_heads(x, 2) gives two heads. Predict row 1 of head 0.",
    form="numbers", placeholder="...  # a list such as [1, 2, 3]",
    solution=solutions.predict_head_zero,
    outcomes=lambda: outcomes_of(
        "separate_heads", Case("", {
            "x": np.arange(24.0).reshape(1, 4, 6), "num_heads": 2},
            {"batch": 1, "seq_len": 4, "num_heads": 2, "head_dim": 3}),
        lambda row: row.tolist(), index=(0, 0, 1)),
    hints=("What are the six features of token 1?",
           "6 to 11. Which of them belong to head 0?",
           "Head 0 has the first three features of every token.")))

register_quiz(CHAPTER, [
    Question(
        "x.reshape(batch, num_heads, seq_len, head_dim) has the right shape. "
        "What is in head 0?",
        [Option("The first tokens, with all their features.", True,
                "The numbers stay in the order in memory, so the cut goes "
                "across the tokens.", mistake="split-reshape"),
         Option("All tokens, with the first features.", False,
                "That is what a reshape AND a transpose give."),
         Option("All tokens, with every num_heads-th feature.", False,
                "That is the result of another reshape.",
                mistake="split-interleaved")]),
    Question(
        "Eight heads of width 64 instead of one of width 512: how many more "
        "multiplications do the projections cost?",
        [Option("None.", True,
                "Eight products with (512, 64) are one product with (512, "
                "512), cut into slices."),
         Option("Eight times as many.", False,
                "Each of the eight products is eight times smaller."),
         Option("Eight times fewer.", False,
                "The eight results together have the same width.")]),
], shapes=("separate_heads",))
