"""Exercises of chapter 4: softmax and scale."""

import numpy as np

from course.exercises import probes, solutions, starters
from course.exercises.bank.ch02 import SOFTMAX
from course.exercises.bank.ch03 import (
    ATTENTION,
    WEIGHTS_AXES,
    attention_mistakes,
    tiny_attention,
    tiny_square_attention,
)
from course.exercises.bank.inputs import (
    Generator,
    heads_of_queries_and_keys,
    queries_and_keys,
    with_values,
)
from course.exercises.mistakes.common import softmax
from course.exercises.mistakes.normalising import (
    overflow_mistakes,
    softmax_mistakes,
)
from course.exercises.mistakes.scaling import scale_mistakes
from course.exercises.mistakes.scores import score_mistakes
from course.exercises.predictions import Prediction, outcomes_of
from course.exercises.quizzes import Option, Question
from course.exercises.registry import register, register_quiz
from course.exercises.stages import Case, Exercise, Mistake

CHAPTER = 4


def _rows(rng: Generator) -> list[Case]:
    def draw(*shape: int) -> np.ndarray:
        return rng.normal(size=shape) * 2

    large = draw(2, 3, 5)
    large[0, 0] += 1000
    large[1, 2] -= 1000
    large[1, 0, 0] += 1000  # a large and a small score in one row
    dims = {"batch": 2, "rows": 3, "key_len": 5}
    return [Case("three axes", {"x": draw(2, 3, 5)}, dims),
            Case("all sizes equal", {"x": draw(4, 4, 4)}),
            Case("one row", {"x": draw(6)}, {"key_len": 6}),
            Case("scores of 1000 and -1000", {"x": large}, dims)]


def _tiny_rows() -> Case:
    return Case("two queries, two keys; one score of 800", {
        "x": np.array([[[0.0, np.log(3)], [0.0, 800.0]]])})


def _tiny_scaled() -> Case:
    return Case("one query, three keys, width 4", {
        "query": np.array([[[2.0, 1.0, 0.0, 1.0]]]),
        "key": np.array([[[2.0, 0.0, 1.0, 0.0], [0.0, 2.0, 0.0, 0.0],
                          [3.0, 1.0, 0.0, 1.0]]])})


def _tiny_two_heads() -> Case:
    return Case("two opposite heads", {
        "query": np.array([[[[2.0], [1.0]], [[1.0], [2.0]]]]),
        "key": np.array([[[[1.0], [0.0]], [[0.0], [1.0]]]])})


def _head_mean_mistakes() -> list[Mistake]:
    return [Mistake(
        "weights-head-mean", "weights averaged over the heads",
        "One table is left for all heads.",
        {"weights": lambda s: softmax(s.scaled).mean(1)},
        why="Two heads that look in opposite directions average to a head "
            "that looks nowhere. (nn.MultiheadAttention gives that average "
            "unless average_attn_weights=False.)",
        question="How many tables of weights have two heads?",
        fix="keep axis 1", explained=12)]


def _pointer_mistakes() -> list[Mistake]:
    return [Mistake(
        "softmax-size-one", "a softmax over an axis of length 1",
        "Every weight is 1: a lone score has nothing to share with.",
        {"weights": lambda s: np.ones(s.x.shape)},
        why="A new last axis of length 1 makes every score its own row.",
        question="How long is the axis that you normalise?",
        fix="axis=-1 on the scores as they came", explained=CHAPTER)]


register(Exercise(
    id="softmax", title="Softmax", chapter=CHAPTER, difficulty=2, minutes=10,
    task="Turn scores into weights, row by row, for scores of any size.",
    solution=solutions.softmax,
    stages={"weights": lambda s: softmax(s.x)}, cases=_rows,
    mistakes=[*softmax_mistakes("x"), *overflow_mistakes("x"),
              *_pointer_mistakes()],
    axes=("batch", "rows", "key_len"), tiny=_tiny_rows,
    hints=("Each row of the result is positive and sums to 1. Over which "
           "axis do you sum?",
           "Subtract the row's maximum, take exp, divide by the row's sum.",
           "Both x.max and .sum need axis=-1 and keepdims=True.")))

register(Exercise(
    id="scaled_scores", title="Scaled scores", chapter=CHAPTER,
    difficulty=1, minutes=5,
    task="Divide the scores so that their size does not grow with the width "
         "of the vectors.",
    solution=solutions.scaled_scores,
    stages={name: ATTENTION[name] for name in ("scores", "scaled")},
    cases=queries_and_keys,
    mistakes=[*score_mistakes(), *scale_mistakes()], axes=WEIGHTS_AXES,
    tiny=_tiny_scaled,
    hints=("A dot product of d independent terms has the variance d. What "
           "is its standard deviation?",
           "Divide by the square root of the width of one key.",
           "The width is key.shape[-1].")))

register(Exercise(
    id="attention_weights", title="Attention weights", chapter=CHAPTER,
    difficulty=2, minutes=8,
    task="Scores, scale, softmax: how much does each query attend to each "
         "key?",
    solution=solutions.attention_weights, imports=(SOFTMAX,),
    stages={name: ATTENTION[name]
            for name in ("scores", "scaled", "weights")},
    cases=queries_and_keys,
    mistakes=[*score_mistakes(), *scale_mistakes(weights="weights"),
              *softmax_mistakes()],
    axes=WEIGHTS_AXES, tiny=tiny_attention,
    hints=("Which of your steps changes the shape?",
           "(batch, query_len, key_len) from the first step on; the softmax "
           "runs over the last axis.",
           "softmax(query @ key.swapaxes(-2, -1) / "
           "np.sqrt(key.shape[-1])).")))

register(Exercise(
    id="attention", title="The full attention", chapter=CHAPTER,
    difficulty=2, minutes=10,
    task="All four steps for a batch: the function that everything later is "
         "built on.",
    solution=solutions.attention, imports=(SOFTMAX,), stages=ATTENTION,
    cases=with_values, mistakes=attention_mistakes(),
    axes=("batch", "query_len", "value_dim"), probe=probes.weights_used,
    tiny=tiny_square_attention,
    hints=("What is the shape after each of the four steps: scores, scale, "
           "softmax, average?",
           "(batch, query_len, key_len) three times, then (batch, query_len, "
           "value_dim).",
           "weights = softmax(query @ key.swapaxes(-2, -1) / "
           "np.sqrt(key.shape[-1])); return weights @ value.")))

register(Exercise(
    id="weights_with_heads", title="Find the bug: an axis by number",
    chapter=CHAPTER, difficulty=2, minutes=5,
    task="This worked as long as there was no head axis. Now the scores have "
         "four axes and the results are wrong, without any error. Find the "
         "line and mend it.",
    solution=solutions.weights_with_heads, imports=("import numpy as np",),
    starter=starters.axis_for_three, planted="softmax-over-queries",
    source="https://github.com/FudanNLP/fastNLP/issues/254",
    stages={name: ATTENTION[name]
            for name in ("scores", "scaled", "weights")},
    cases=heads_of_queries_and_keys,
    mistakes=[*score_mistakes(batched=False),
              *scale_mistakes(weights="weights", batched=False),
              *softmax_mistakes(axes=4), *_head_mean_mistakes()],
    axes=("batch", "num_heads", "query_len", "key_len"), tiny=_tiny_two_heads,
    hints=("Print the sums of your weights over each axis. Which are all 1?",
           "With three axes the keys were axis 2. Which axis are they now?",
           "Count from the end: axis=-1 is right for any number of axes.")))

register(Exercise(
    id="scaled_weights", title="Find the bug: rows that sum to 1/√d",
    chapter=CHAPTER, difficulty=1, minutes=5,
    task="The rows of these weights do not sum to 1. Find the line that does "
         "its step at the wrong time.",
    solution=solutions.scaled_weights, imports=("import numpy as np",),
    starter=starters.scale_at_the_end, planted="scale-after-softmax",
    source="https://github.com/FrancescoSaverioZuppichini/ViT/issues/2",
    stages={name: ATTENTION[name]
            for name in ("scores", "scaled", "weights")},
    cases=queries_and_keys,
    mistakes=[*score_mistakes(), *scale_mistakes(weights="weights"),
              *softmax_mistakes()],
    axes=WEIGHTS_AXES,
    hints=("What do the rows sum to, as a function of head_dim?",
           "Scaling is for the scores; nothing comes after the softmax.",
           "Move the division by np.sqrt(key.shape[-1]) to the scores.")))

register(Prediction(
    id="predict_scaled_score", title="A scaled score in numbers",
    chapter=CHAPTER, difficulty=1, minutes=2,
    task="A query of 16 ones meets a key of 16 twos. Predict their scaled "
         "score.",
    form="number", placeholder="...  # a number", digits=2,
    solution=solutions.predict_scaled_score,
    outcomes=lambda: outcomes_of(
        "scaled_scores", Case("", {"query": np.ones((1, 1, 16)),
                                   "key": np.full((1, 1, 16), 2.0)}),
        lambda result: float(result), index=(0, 0, 0)),
    hints=("What is the dot product?", "It is 32. And the width?",
           "32 divided by the square root of 16.")))

register_quiz(CHAPTER, [
    Question(
        "`weights.sum(-1)` is not all ones, but `weights.sum(-2)` is. What "
        "happened?",
        [Option("The softmax ran over the queries.", True,
                "Each column sums to 1: the queries share out each key.",
                mistake="softmax-over-queries"),
         Option("The scores were not scaled.", False,
                "The rows would sum to 1 all the same.",
                mistake="no-scale"),
         Option("Nothing: rows or columns, both are attention.", False,
                "Only rows that sum to 1 make each output an average of the "
                "values.")]),
    Question(
        "A model of width 512 with 8 heads divides its scores by √512. What "
        "does that change?",
        [Option("All weights are too even.", True,
                "One head's dot product has 64 terms; √512 is √8 times too "
                "much.", mistake="scale-by-sqrt-D"),
         Option("Nothing, the softmax takes out constant factors.", False,
                "It takes out a constant that is added, not one that is "
                "multiplied."),
         Option("The rows no longer sum to 1.", False,
                "That happens when the division comes after the softmax.",
                mistake="scale-after-softmax")]),
], shapes=("attention_weights",))
