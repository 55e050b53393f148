"""Exercises of chapter 10: gradients."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy import ndarray

from course.exercises import solutions
from course.exercises.bank.inputs import Generator
from course.exercises.mistakes.common import softmax, swap
from course.exercises.quizzes import Option, Question
from course.exercises.registry import register, register_quiz
from course.exercises.stages import Case, Exercise, Mistake, State

CHAPTER = 10


def _rows(rng: Generator) -> list[Case]:
    def case(name: str, batch: int, query_len: int, key_len: int) -> Case:
        shape = (batch, query_len, key_len)
        return Case(name, {"weights": softmax(rng.normal(size=shape)),
                           "grad_weights": rng.normal(size=shape)},
                    {"batch": batch, "query_len": query_len,
                     "key_len": key_len})

    return [case("all sizes different", 2, 5, 7),
            case("all sizes equal", 4, 4, 4)]


def _scores(rng: Generator) -> list[Case]:
    def case(name: str, batch: int, query_len: int, key_len: int,
             head_dim: int) -> Case:
        return Case(name, {
            "grad_scaled": rng.normal(size=(batch, query_len, key_len)),
            "query": rng.normal(size=(batch, query_len, head_dim)),
            "key": rng.normal(size=(batch, key_len, head_dim))},
            {"batch": batch, "query_len": query_len, "key_len": key_len,
             "head_dim": head_dim})

    return [case("all sizes different", 2, 5, 7, 3),
            case("all sizes equal", 4, 4, 4, 4)]


def _linear(rng: Generator) -> list[Case]:
    def case(name: str, batch: int, seq_len: int, in_features: int,
             out_features: int) -> Case:
        return Case(name, {
            "x": rng.normal(size=(batch, seq_len, in_features)),
            "W": rng.normal(size=(in_features, out_features)),
            "grad_y": rng.normal(size=(batch, seq_len, out_features))},
            {"batch": batch, "seq_len": seq_len, "in_features": in_features,
             "out_features": out_features})

    return [case("all sizes different", 2, 5, 3, 4),
            case("all sizes equal", 4, 4, 4, 4)]


def _three_paths(rng: Generator) -> list[Case]:
    def case(name: str, batch: int, seq_len: int, embed_dim: int,
             width: int) -> Case:
        return Case(name, {
            **{grad: rng.normal(size=(batch, seq_len, width))
               for grad in ("grad_q", "grad_k", "grad_v")},
            **{matrix: rng.normal(size=(embed_dim, width))
               for matrix in ("W_q", "W_k", "W_v")}},
            {"batch": batch, "seq_len": seq_len, "embed_dim": embed_dim,
             "width": width})

    return [case("all sizes different", 2, 5, 6, 4),
            case("all sizes equal", 4, 4, 4, 4)]


def _softmax_mistakes() -> list[Mistake]:
    fix = ("average = (weights * grad_weights).sum(-1, keepdims=True); "
           "weights * (grad_weights - average)")
    why = ("Raising one score lowers the other weights of the row. So a "
           "weight's slope counts only as far as it exceeds the row's "
           "average, taken with the weights.")

    def mistake(name: str, label: str, effect: str, question: str,
                grad: Callable[[ndarray, ndarray], ndarray]) -> Mistake:
        return Mistake(name, label, effect,
                       {"grad_scores": lambda s: grad(
                           s.weights, s.grad_weights)},
                       why=why, question=question, fix=fix,
                       explained=CHAPTER)

    def average(a: ndarray, g: ndarray, axis: int | None = -1) -> ndarray:
        return (a * g).sum(axis=axis, keepdims=True)

    return [
        mistake("softmax-grad-diagonal", "weights * (1 - weights) * "
                "grad_weights, the diagonal alone",
                "Every score was taken to move its own weight and no other.",
                "If one weight grows, what becomes of the others?",
                lambda a, g: a * (1 - a) * g),
        mistake("softmax-grad-no-average", "weights * grad_weights, with "
                "nothing subtracted",
                "The row's average was not taken out.",
                "What must the slopes of one row sum to, if adding 1 to all "
                "its scores changes nothing?", lambda a, g: a * g),
        mistake("softmax-grad-over-queries", "an average over the queries",
                "The average was taken down the columns.",
                "Along which axis do the weights sum to 1?",
                lambda a, g: a * (g - average(a, g, -2))),
        mistake("softmax-grad-over-all", "one average for the whole array",
                "All rows share one average.",
                "Does one query's loss reach another query's scores?",
                lambda a, g: a * (g - average(a, g, None))),
        mistake("softmax-grad-plain-mean", "the plain mean of the slopes",
                "In the average all keys count alike.",
                "How much does a key with weight 0 count in the average?",
                lambda a, g: a * (g - g.mean(-1, keepdims=True))),
        mistake("softmax-grad-plain-sum", "the plain sum of the slopes",
                "The slopes were added up without their weights.",
                "How much does a key with weight 0 count in the average?",
                lambda a, g: a * (g - g.sum(-1, keepdims=True))),
        mistake("softmax-grad-no-weights", "grad_weights minus their "
                "average, without the factor weights",
                "A key that has no weight is pulled as hard as any other.",
                "What is the slope for the score of a masked key?",
                lambda a, g: g - average(a, g)),
        mistake("softmax-grad-sign", "the gradient with the wrong sign",
                "Every slope has the opposite sign.",
                "Does a step against your gradient lower the loss?",
                lambda a, g: a * (average(a, g) - g)),
        mistake("softmax-grad-twice", "a softmax of the weights used as "
                "weights", "The weights were taken for scores and went "
                "through the softmax once more.",
                "Is `weights` what goes into the softmax or what comes out?",
                lambda a, g: softmax(a) * (g - average(softmax(a), g))),
    ]


def _query_key_mistakes() -> list[Mistake]:
    fix = ("grad_scaled @ key / np.sqrt(head_dim), "
           "grad_scaled.swapaxes(-2, -1) @ query / np.sqrt(head_dim)")
    scale_why = ("The scores were divided by √head_dim on the way forward, "
                 "so the slopes are divided by it once on the way back.")

    def pair(give: Callable[[ndarray, ndarray, ndarray, float],
                            tuple[ndarray, ndarray]]) -> Callable[
                                [State], Any]:
        return lambda s: give(s.grad_scaled, s.query, s.key,
                              float(np.sqrt(s.key.shape[-1])))

    def mistake(name: str, label: str, effect: str, why: str, question: str,
                give: Callable[[ndarray, ndarray, ndarray, float],
                               tuple[ndarray, ndarray]]) -> Mistake:
        return Mistake(name, label, effect, {"gradients": pair(give)},
                       why=why, question=question, fix=fix,
                       explained=CHAPTER)

    return [
        mistake("qk-grad-no-scale", "the gradients without the factor "
                "1/√head_dim", "Both are √head_dim times too large.",
                scale_why, "What stood between the product and the scaled "
                "scores?", lambda g, q, k, r: (g @ k, swap(g) @ q)),
        mistake("qk-grad-scale-twice", "the gradients divided by head_dim",
                "The scale was used twice.", scale_why,
                "By what were the scores divided, and how often?",
                lambda g, q, k, r: (g @ k / r**2, swap(g) @ q / r**2)),
        mistake("qk-grad-scale-multiplied", "the gradients multiplied by "
                "√head_dim", "The scale was inverted.", scale_why,
                "Is the slope of x / 2 equal to 2 or to 1/2?",
                lambda g, q, k, r: (g @ k * r, swap(g) @ q * r)),
        mistake("qk-grad-no-transpose", "grad_scaled @ query as the "
                "gradient of the keys",
                "Rows of grad_scaled, which belong to queries, were taken "
                "for rows of keys.",
                "Key j is heard by every query: its slopes are column j of "
                "grad_scaled.",
                "Do the slopes of key j stand in a row or in a column?",
                lambda g, q, k, r: (g @ k / r, g @ q / r)),
        mistake("qk-grad-transposed-query", "the transpose used for the "
                "queries instead of for the keys",
                "Rows and columns changed roles.",
                "Query i has its slopes in row i, key j in column j.",
                "Do the slopes of query i stand in a row or in a column?",
                lambda g, q, k, r: (swap(g) @ k / r, g @ q / r)),
        mistake("qk-grad-swapped", "the two gradients in each other's "
                "place", "Both are right, but not their order.",
                "The order is query, key.",
                "In which order are the two to be returned?",
                lambda g, q, k, r: (swap(g) @ q / r, g @ k / r)),
        mistake("qk-grad-own", "each gradient made of the array itself",
                "The gradient of the queries was made of the queries, that "
                "of the keys of the keys.",
                "The slope of a product a * b for a is b, the other one.",
                "By what is a key multiplied in the score?",
                lambda g, q, k, r: (g @ q / r, swap(g) @ k / r)),
    ]


def _linear_mistakes() -> list[Mistake]:
    order = ("grad_y @ W.T, np.einsum('bti,bto->io', x, grad_y), "
             "grad_y.sum(axis=(0, 1))")
    shared = ("W and b are used once for every token of every sentence, so "
              "their slopes are added up over both axes.")

    def right(s: State) -> tuple[ndarray, ndarray, ndarray]:
        return (s.grad_y @ s.W.T, np.einsum("bti,bto->io", s.x, s.grad_y),
                s.grad_y.sum((0, 1)))

    def mistake(name: str, label: str, effect: str, why: str, question: str,
                change: Callable[..., tuple]) -> Mistake:
        return Mistake(name, label, effect,
                       {"gradients": lambda s: change(s, *right(s))},
                       why=why, question=question, fix=order,
                       explained=CHAPTER)

    def tokens(s: State) -> int:
        return s.x.shape[0] * s.x.shape[1]

    return [
        mistake("linear-grad-first", "the first sentence alone for W and b",
                "The other sentences add nothing.", shared,
                "Does the second sentence use W?",
                lambda s, x, W, b: (x, s.x[0].T @ s.grad_y[0],
                                    s.grad_y[0].sum(0))),
        mistake("linear-grad-mean-batch", "the mean over the batch for W "
                "and b", "The sum over the sentences was divided by their "
                "number.", shared + " If the loss is a mean, grad_y holds "
                "that division already.",
                "Where does the division by the batch come from, if the "
                "loss is given as one number?",
                lambda s, x, W, b: (x, W / len(s.x), b / len(s.x))),
        mistake("linear-grad-mean-tokens", "the mean over all tokens for W "
                "and b", "The sum over the tokens was divided by their "
                "number.", shared,
                "Is a slope added up or averaged where a number is used "
                "several times?",
                lambda s, x, W, b: (x, W / tokens(s), b / tokens(s))),
        mistake("linear-grad-W-transposed", "grad_y.T @ x, the transposed "
                "gradient of W", "The gradient of W is (out, in).",
                "A gradient has the shape of what it is the gradient of. "
                "nn.Linear stores W transposed, and so its gradient.",
                "Which shape has W, and which shape has your gradient?",
                lambda s, x, W, b: (x, W.T, b)),
        mistake("linear-grad-bias-one-axis", "the bias summed over the "
                "batch alone", "There is a slope for each position.",
                shared, "How many numbers has b?",
                lambda s, x, W, b: (x, W, s.grad_y.sum(0))),
        mistake("linear-grad-bias-positions", "the bias summed over the "
                "positions alone", "There is a slope for each sentence.",
                shared, "How many numbers has b?",
                lambda s, x, W, b: (x, W, s.grad_y.sum(1))),
        mistake("linear-grad-W-per-sentence", "a gradient of W for every "
                "sentence", "It has a batch axis, as W has not.", shared,
                "Which shape has W?",
                lambda s, x, W, b: (x, swap(s.x) @ s.grad_y, b)),
        mistake("linear-grad-x-W", "grad_y @ W, without the transpose",
                "W was used in the direction of the way forward.",
                "Entry W[i, o] carries input i to output o; on the way back "
                "it carries the slope of o to i.",
                "Which axis of W has as many entries as grad_y has "
                "features?",
                lambda s, x, W, b: (s.grad_y @ s.W, W, b)),
        mistake("linear-grad-order", "the gradients of x and W in each "
                "other's place", "The arrays are right, but not their "
                "order.", "The order is x, W, b.",
                "In which order are the three to be returned?",
                lambda s, x, W, b: (W, x, b)),
    ]


def _path_mistakes() -> list[Mistake]:
    fix = "grad_q @ W_q.T + grad_k @ W_k.T + grad_v @ W_v.T"
    sum_why = ("x is used three times. Where one number is used several "
               "times, its slopes are added up.")

    def mistake(name: str, label: str, effect: str, why: str, question: str,
                give: Callable[[State], ndarray]) -> Mistake:
        return Mistake(name, label, effect, {"grad_x": give}, why=why,
                       question=question, fix=fix, explained=CHAPTER)

    def q(s: State) -> ndarray:
        return s.grad_q @ s.W_q.T

    def k(s: State) -> ndarray:
        return s.grad_k @ s.W_k.T

    def v(s: State) -> ndarray:
        return s.grad_v @ s.W_v.T

    def reshaped(W: ndarray) -> ndarray:
        return W.reshape(W.shape[::-1])

    return [
        mistake("paths-value-only", "the value's path alone",
                "The slopes that come through the weights are missing.",
                sum_why, "How many times is x used?", v),
        mistake("paths-no-value", "the paths of queries and keys alone",
                "The slopes that come through the values are missing.",
                sum_why, "How many times is x used?", lambda s: q(s) + k(s)),
        mistake("paths-no-query", "the paths of keys and values alone",
                "What a word asks for gets no slope.", sum_why,
                "How many times is x used?", lambda s: k(s) + v(s)),
        mistake("paths-no-key", "the paths of queries and values alone",
                "What a word answers to gets no slope.", sum_why,
                "How many times is x used?", lambda s: q(s) + v(s)),
        mistake("paths-mean", "the mean of the three paths",
                "The sum was divided by 3.", sum_why,
                "Is a slope added up or averaged where a number is used "
                "several times?", lambda s: (q(s) + k(s) + v(s)) / 3),
        mistake("paths-W", "W in place of W.T",
                "The matrices were used in the direction of the way "
                "forward.",
                "Entry W[i, o] carries input i to output o; on the way back "
                "it carries the slope of o to i.",
                "Which axis of W has as many entries as the embedding?",
                lambda s: (s.grad_q @ s.W_q + s.grad_k @ s.W_k
                           + s.grad_v @ s.W_v)),
        mistake("paths-W-reshaped", "W reshaped instead of transposed",
                "The shape fits, but the numbers of W are mixed up.",
                "reshape never moves a number in memory.",
                "Is W[0, 1] where it belongs?",
                lambda s: (s.grad_q @ reshaped(s.W_q)
                           + s.grad_k @ reshaped(s.W_k)
                           + s.grad_v @ reshaped(s.W_v))),
        mistake("paths-one-matrix", "W_q used for all three paths",
                "W_k and W_v play no part.",
                "Each path goes back through its own matrix.",
                "Which matrices play no part?",
                lambda s: (s.grad_q + s.grad_k + s.grad_v) @ s.W_q.T),
    ]


def _tiny_row() -> Case:
    return Case("one row of two weights", {
        "weights": np.array([[[0.75, 0.25], [0.5, 0.5]]]),
        "grad_weights": np.array([[[4.0, 0.0], [1.0, 3.0]]])})


def _tiny_scores() -> Case:
    return Case("two queries, two keys, width 4", {
        "grad_scaled": np.array([[[1.0, -1.0], [2.0, -2.0]]]),
        "query": np.array([[[2.0, 0.0, 0.0, 4.0], [0.0, 2.0, 4.0, 0.0]]]),
        "key": np.array([[[4.0, 0.0, 2.0, 0.0], [0.0, 2.0, 0.0, 2.0]]])},
        {"head_dim": 4})


def _tiny_linear() -> Case:
    return Case("two sentences of one word", {
        "x": np.array([[[1.0, 2.0]], [[3.0, 0.0]]]),
        "W": np.array([[1.0, 2.0], [0.0, 1.0]]),
        "grad_y": np.array([[[1.0, 0.0]], [[2.0, 1.0]]])})


def _tiny_paths() -> Case:
    return Case("one word", {
        "grad_q": np.array([[[1.0, 0.0]]]), "grad_k": np.array([[[0.0, 2.0]]]),
        "grad_v": np.array([[[1.0, 1.0]]]),
        "W_q": np.array([[1.0, 2.0], [0.0, 1.0]]),
        "W_k": np.array([[0.0, 1.0], [1.0, 3.0]]),
        "W_v": np.array([[1.0, 0.0], [2.0, 1.0]])})


register(Exercise(
    id="softmax_gradient", title="Back through the softmax",
    chapter=CHAPTER, difficulty=2, minutes=8,
    task="You know how the loss changes with every weight. How does it "
         "change with every score?",
    solution=solutions.softmax_gradient,
    stages={"grad_scores": lambda s: s.weights * (
        s.grad_weights - (s.weights * s.grad_weights).sum(
            -1, keepdims=True))},
    cases=_rows, mistakes=_softmax_mistakes(),
    axes=("batch", "query_len", "key_len"), tiny=_tiny_row,
    hints=("If 1 is added to all scores of a row nothing changes. What must "
           "the slopes of a row sum to?",
           "Take from every slope the row's average, in which each slope "
           "counts with its weight.",
           "average = (weights * grad_weights).sum(-1, keepdims=True); then "
           "weights * (grad_weights - average).")))

register(Exercise(
    id="query_key_gradients", title="Back to queries and keys",
    chapter=CHAPTER, difficulty=2, minutes=8,
    task="From the scaled scores the way back splits: one branch leads to "
         "the queries, one to the keys.",
    solution=solutions.query_key_gradients,
    stages={"gradients": lambda s: (
        s.grad_scaled @ s.key / np.sqrt(s.key.shape[-1]),
        swap(s.grad_scaled) @ s.query / np.sqrt(s.key.shape[-1]))},
    cases=_scores, mistakes=_query_key_mistakes(),
    axes=("batch", "positions", "head_dim"), many=2,
    names=("grad_query", "grad_key"), tiny=_tiny_scores,
    hints=("Which shapes must the two gradients have?",
           "Query i meets key j in entry [i, j]. Its slope is the sum over j "
           "of grad_scaled[i, j] * key[j], times the scale.",
           "For the keys the sum runs over i: transpose grad_scaled, then "
           "@ query.")))

register(Exercise(
    id="linear_gradients", title="Back through a linear layer",
    chapter=CHAPTER, difficulty=2, minutes=10,
    task="Every matrix of a model is met in y = x @ W + b. Write its way "
         "back for a batch: three gradients, each shaped like its array.",
    solution=solutions.linear_gradients,
    stages={"gradients": lambda s: (
        s.grad_y @ s.W.T, np.einsum("bti,bto->io", s.x, s.grad_y),
        s.grad_y.sum((0, 1)))},
    cases=_linear, mistakes=_linear_mistakes(),
    axes=("batch", "seq_len", "features"), many=3,
    names=("grad_x", "grad_W", "grad_b"), tiny=_tiny_linear,
    hints=("Which shape must each of the three gradients have, and over "
           "which axes must you add up to get there?",
           "W[i, o] is used once for every token: its slope is the sum of "
           "x[..., i] * grad_y[..., o] over all tokens.",
           "grad_y @ W.T; np.einsum('bti,bto->io', x, grad_y); "
           "grad_y.sum(axis=(0, 1)).")))

register(Exercise(
    id="embedding_gradient", title="Three ways back to a word",
    chapter=CHAPTER, difficulty=1, minutes=5,
    task="A word asks, answers and passes on. What does the loss tell its "
         "embedding?",
    solution=solutions.embedding_gradient,
    stages={"grad_x": lambda s: (s.grad_q @ s.W_q.T + s.grad_k @ s.W_k.T
                                 + s.grad_v @ s.W_v.T)},
    cases=_three_paths, mistakes=_path_mistakes(),
    axes=("batch", "seq_len", "embed_dim"), tiny=_tiny_paths,
    hints=("How often is x used on the way forward?",
           "Each use gives a gradient of x; they are added up.",
           "grad_q @ W_q.T is the first of the three.")))

register_quiz(CHAPTER, [
    Question(
        "A weight of a row is exactly 0, because its key is masked. What is "
        "the slope of the loss for its score?",
        [Option("0.", True, "The weight stands as a factor in front. A "
                "masked key cannot be pulled."),
         Option("The slope for the weight, minus the row's average.", False,
                "The factor in front, the weight itself, is missing.",
                mistake="softmax-grad-no-weights"),
         Option("It cannot be computed: log(0) is infinite.", False,
                "No logarithm occurs on the way back.")]),
    Question(
        "The gradient of W for a batch of 8 sentences is computed as the "
        "mean over the sentences. The loss is the sum over all tokens. What "
        "is the symptom?",
        [Option("It is 8 times too small.", True,
                "W is used in every sentence, so the slopes are added up.",
                mistake="linear-grad-mean-batch"),
         Option("None: a mean and a sum point the same way.", False,
                "The direction is right, the length is not: a check with "
                "finite differences fails."),
         Option("Its shape is wrong.", False,
                "Sum and mean over an axis have the same shape.")]),
], shapes=("linear_gradients",))
