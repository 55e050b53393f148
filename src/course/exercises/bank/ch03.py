"""Exercises of chapter 3: matrix form."""

import numpy as np
from numpy import ndarray

from course.exercises import probes, solutions, starters
from course.exercises.bank.ch02 import SOFTMAX
from course.exercises.bank.inputs import (
    Generator,
    queries_and_keys,
    with_values,
)
from course.exercises.mistakes.common import softmax, swap
from course.exercises.mistakes.normalising import softmax_mistakes
from course.exercises.mistakes.scaling import scale_mistakes
from course.exercises.mistakes.scores import score_mistakes, value_mistakes
from course.exercises.predictions import Prediction, outcomes_of
from course.exercises.quizzes import Option, Question
from course.exercises.registry import register, register_quiz
from course.exercises.stages import Case, Exercise, Mistake, Stages, State

CHAPTER = 3
WEIGHTS_AXES = ("batch", "query_len", "key_len")

ATTENTION: Stages = {
    "scores": lambda s: s.query @ swap(s.key),
    "scaled": lambda s: s.scores / np.sqrt(s.key.shape[-1]),
    "weights": lambda s: softmax(s.scaled),
    "output": lambda s: s.weights @ s.value,
}


def attention_mistakes() -> list[Mistake]:
    """The catalogue for scaled dot-product attention of a batch."""
    return [*score_mistakes(value="value"), *scale_mistakes(weights="weights"),
            *softmax_mistakes(), *value_mistakes()]


def tiny_attention() -> Case:
    """Two queries, three keys, round numbers."""
    return Case("2 queries, 3 keys", {
        "query": np.array([[[2.0, 0.0], [0.0, 1.0]]]),
        "key": np.array([[[1.0, 0.0], [0.0, 2.0], [1.0, 1.0]]]),
        "value": np.array([[[4.0, 0.0], [0.0, 8.0], [2.0, 2.0]]])})


def tiny_square_attention() -> Case:
    """Two queries, two keys of width two: no wrong axis raises an error."""
    return Case("2 queries, 2 keys, head_dim 2", {
        "query": np.array([[[2.0, 0.0], [1.0, 1.0]]]),
        "key": np.array([[[1.0, 0.0], [1.0, 2.0]]]),
        "value": np.array([[[4.0, 0.0], [0.0, 8.0]]])})


def _tiny_batch() -> Case:
    return Case("two sentences of two words", {
        "query": np.array([[[2.0, 0.0], [1.0, 1.0]],
                           [[0.0, 1.0], [1.0, 0.0]]]),
        "key": np.array([[[1.0, 0.0], [1.0, 2.0]],
                         [[0.0, 3.0], [1.0, 1.0]]])})


def _sentence(rng: Generator) -> list[Case]:
    def case(name: str, query_len: int, key_len: int, head_dim: int,
             value_dim: int) -> Case:
        return Case(name, {
            "Q": rng.normal(size=(query_len, head_dim)) * 1.5,
            "K": rng.normal(size=(key_len, head_dim)) * 1.5,
            "V": rng.normal(size=(key_len, value_dim))},
            {"query_len": query_len, "key_len": key_len,
             "head_dim": head_dim, "value_dim": value_dim})

    return [case("all sizes different", 5, 7, 3, 6),
            case("as many queries as keys", 5, 5, 3, 3),
            case("all sizes equal", 4, 4, 4, 4)]


def _scores(s: State) -> ndarray:
    return s.Q @ s.K.T


register(Exercise(
    id="attention_scores", title="All scores at once", chapter=CHAPTER,
    difficulty=1, minutes=5,
    task="Every query meets every key, in every sequence of a batch. One "
         "product gives all the scores.",
    solution=solutions.attention_scores,
    stages={"scores": ATTENTION["scores"]}, cases=queries_and_keys,
    mistakes=score_mistakes(), axes=WEIGHTS_AXES,
    tiny=_tiny_batch,
    hints=("How many scores are there for 5 queries and 7 keys, and which "
           "axis is summed away?",
           "The last axis of the queries must meet the last axis of the "
           "keys: swap two axes of the keys.",
           "`query @ key.swapaxes(-2, -1)`.")))

register(Exercise(
    id="attention_matrix", title="One sentence as matrices",
    chapter=CHAPTER, difficulty=2, minutes=8,
    task="The formula of the paper, softmax(QKᵀ/√d)V, for one sentence: "
         "rows are words.",
    solution=solutions.attention_matrix, imports=(SOFTMAX,),
    stages={"scores": _scores,
            "scaled": lambda s: s.scores / np.sqrt(s.K.shape[-1]),
            "weights": lambda s: softmax(s.scaled),
            "output": lambda s: s.weights @ s.V},
    cases=_sentence,
    mistakes=[*score_mistakes("Q", "K", "V", batched=False),
              *scale_mistakes(key="K", weights="weights", batched=False),
              *softmax_mistakes(axes=2),
              *value_mistakes(value="V", key="K", query="Q")],
    axes=("query_len", "value_dim"),
    hints=("What shape has QKᵀ for 5 queries and 7 keys?",
           "softmax works on the last axis, the keys: each row sums to 1.",
           "weights = softmax(Q @ K.T / np.sqrt(K.shape[-1])); then "
           "weights @ V.")))

register(Exercise(
    id="batch_without_loops", title="A batch without a loop",
    chapter=CHAPTER, difficulty=2, minutes=8,
    task="The program below is right, but it takes one sequence after "
         "another in a Python loop. Write it without the loop.",
    solution=solutions.batch_without_loops, imports=(
        "import numpy as np", SOFTMAX),
    starter=starters.loop_over_the_batch, avoid_loops=True,
    stages=ATTENTION, cases=with_values, mistakes=attention_mistakes(),
    axes=("batch", "query_len", "value_dim"), probe=probes.weights_used,
    hints=("What does `@` do with three axes?",
           "`@` multiplies the last two axes and treats the others as a "
           "stack; `.T` reverses all axes, so it will not do.",
           "Replace k.T by key.swapaxes(-2, -1); everything else works on "
           "the whole batch as it stands.")))

register(Prediction(
    id="predict_scores_shape", title="The shape of the scores",
    chapter=CHAPTER, difficulty=1, minutes=2,
    task="query has the shape (2, 5, 3) and key the shape (2, 7, 3). Predict "
         "the shape of the scores.",
    form="shape", placeholder="...  # a tuple such as (1, 2, 3)",
    solution=solutions.predict_scores_shape,
    outcomes=lambda: outcomes_of(
        "attention_scores", Case("", {"query": np.zeros((2, 5, 3)),
                                      "key": np.zeros((2, 7, 3))}),
        np.shape),
    hints=("Which of the sizes is summed away?",
           "Every one of 5 queries meets every one of 7 keys.",
           "The batch stays in front; rows are queries.")))

register_quiz(CHAPTER, [
    Question(
        "query and key have the same shape (2, 5, 5): `query @ key` runs. "
        "What does entry [0, i, j] hold?",
        [Option("Query i times column j of the keys: no score at all.", True,
                "The feature j of all keys took the place of key j. With "
                "unequal sizes an error would have told.",
                mistake="no-transpose"),
         Option("The score of query i for key j.", False,
                "For that the keys' axes must be swapped."),
         Option("The score of query j for key i.", False,
                "That is key @ queryᵀ.", mistake="scores-transposed")]),
    Question(
        "Why can the batch axis not be left to `key.T`?",
        [Option("It reverses all axes, the batch axis too.", True,
                "(2, 7, 3) becomes (3, 7, 2).", mistake="T-reverses-all"),
         Option("It copies the array and is slow.", False,
                "`.T` copies nothing."),
         Option("It only exists for two axes.", False,
                "It exists for any number; that is what makes it "
                "dangerous.")]),
], shapes=("attention_scores", "batch_without_loops"))
