"""Exercises of chapter 11: learning to attend."""

from collections.abc import Callable

import numpy as np
from numpy import ndarray

from course.exercises import solutions
from course.exercises.bank.inputs import Generator
from course.exercises.mistakes.common import softmax
from course.exercises.quizzes import Option, Question
from course.exercises.registry import register, register_quiz
from course.exercises.stages import Case, Exercise, Mistake, State

CHAPTER = 11


def _row(rng: Generator) -> list[Case]:
    def case(name: str, key_len: int, head_dim: int) -> Case:
        first, second = rng.permutation(key_len)[:2]
        return Case(name, {
            "query": rng.normal(size=head_dim),
            "keys": rng.normal(size=(key_len, head_dim)),
            "first": int(first), "second": int(second)},
            {"key_len": key_len, "head_dim": head_dim})

    return [case("7 words, width 5", 7, 5), case("4 words, width 4", 4, 4),
            case("9 words, width 3", 9, 3)]


def _heads(rng: Generator) -> list[Case]:
    def case(name: str, batch: int, num_heads: int, query_len: int,
             key_len: int, head_dim: int, embed_dim: int) -> Case:
        shape = (batch, num_heads, query_len, key_len)
        return Case(name, {
            "weights": softmax(rng.normal(size=shape)),
            "value": rng.normal(size=(batch, num_heads, key_len, head_dim)),
            "W_o": rng.normal(size=(num_heads * head_dim, embed_dim)),
            "head": int(rng.integers(1, num_heads))},
            {"batch": batch, "num_heads": num_heads, "query_len": query_len,
             "key_len": key_len, "head_dim": head_dim,
             "embed_dim": embed_dim})

    return [case("3 heads", 2, 3, 5, 7, 4, 6),
            case("4 heads", 3, 4, 4, 4, 2, 8),
            case("all sizes equal", 4, 4, 4, 4, 4, 16)]


def _scaled(s: State) -> ndarray:
    return s.keys @ s.query / np.sqrt(s.keys.shape[-1])


def _choice_mistakes() -> list[Mistake]:
    fix = "query @ (keys[first] - keys[second]) / np.sqrt(head_dim)"
    why = ("The two weights share their denominator, so it cancels in their "
           "ratio: what is left is the difference of two scaled scores, and "
           "no other word has a say in it.")

    def mistake(name: str, label: str, effect: str, question: str,
                give: Callable[[State], ndarray]) -> Mistake:
        return Mistake(name, label, effect, {"choice": give}, why=why,
                       question=question, fix=fix, explained=CHAPTER)

    def weights(s: State) -> ndarray:
        return softmax(_scaled(s))

    def difference(s: State) -> ndarray:
        return _scaled(s)[s.first] - _scaled(s)[s.second]

    return [
        mistake("choice-no-scale", "the difference of the raw scores",
                "The division by √head_dim is missing.",
                "What goes into the softmax: the raw scores or the scaled "
                "ones?",
                lambda s: difference(s) * np.sqrt(s.keys.shape[-1])),
        mistake("choice-sign", "the second word's logarithm minus the "
                "first's", "The sign is the opposite.",
                "Must the number be positive or negative if the first word "
                "weighs more?", lambda s: -difference(s)),
        mistake("choice-of-weights", "the difference of the weights "
                "themselves", "No logarithm was taken, so every other word "
                "of the sentence has a say.",
                "Does your number change with a word that is neither of the "
                "two?",
                lambda s: weights(s)[s.first] - weights(s)[s.second]),
        mistake("choice-ratio", "the ratio of the weights, without the "
                "logarithm", "A ratio of 1 stands where 0 is asked for.",
                "What must come out if both weigh the same?",
                lambda s: np.exp(difference(s))),
        mistake("choice-log-of-scores", "the logarithm of the ratio of the "
                "scores", "The softmax plays no part; a negative ratio gives "
                "NaN.", "Of what is the logarithm taken: scores or weights?",
                lambda s: np.log(_scaled(s)[s.first]
                                 / _scaled(s)[s.second])),
        mistake("choice-one-word", "the logarithm of the first word's "
                "weight alone", "The second word plays no part of its own.",
                "Which argument plays no part?",
                lambda s: np.log(weights(s)[s.first])),
        mistake("choice-base-2", "logarithms with base 2",
                "Every number is 1.44 times too large.",
                "Which logarithm undoes exp?",
                lambda s: difference(s) / np.log(2)),
    ]


def _merge(heads: ndarray) -> ndarray:
    batch, num_heads, query_len, head_dim = heads.shape
    return heads.transpose(0, 2, 1, 3).reshape(batch, query_len,
                                               num_heads * head_dim)


def _without(weights: ndarray, place: object, filling: float) -> ndarray:
    changed = weights.copy()
    changed[place] = filling  # type: ignore[index]
    return changed


def _ablation_mistakes() -> list[Mistake]:
    fix = "kept = weights.copy(); kept[:, head] = 0"
    nothing = ("A head that is switched off must add nothing: its rows of "
               "weights, and with them its output before W_o, are 0.")
    every = slice(None)

    def mistake(name: str, label: str, effect: str, question: str,
                kept: Callable[[State], ndarray],
                why: str = nothing) -> Mistake:
        return Mistake(name, label, effect, {"kept": kept}, why=why,
                       question=question, fix=fix, explained=CHAPTER)

    def only(s: State) -> ndarray:
        return s.weights - _without(s.weights, (every, s.head), 0.0)

    def part(s: State) -> slice:
        size = s.value.shape[-1]
        return slice(s.head * size, (s.head + 1) * size)

    return [
        mistake("ablate-ignored", "all heads at work",
                "The argument `head` plays no part.",
                "Does your output change with `head`?",
                lambda s: s.weights),
        mistake("ablate-uniform", "the head with equal weights for all keys",
                "It reads the mean of all values, which is not nothing.",
                "What does a head add whose scores are all 0?",
                lambda s: _without(s.weights, (every, s.head),
                                   1 / s.weights.shape[-1]),
                "Scores of 0 give equal weights. " + nothing),
        mistake("ablate-others", "that head alone",
                "All the other heads were switched off.",
                "Which heads are left in your output?", only),
        mistake("ablate-query", "query number `head` switched off in every "
                "head", "The wrong axis was indexed.",
                "Which axis of (batch, num_heads, query, key) counts heads?",
                lambda s: _without(s.weights, (every, every, s.head), 0.0)),
        mistake("ablate-key", "key number `head` hidden in every head",
                "The wrong axis was indexed.",
                "Which axis of (batch, num_heads, query, key) counts heads?",
                lambda s: _without(s.weights, (..., s.head), 0.0)),
        mistake("ablate-sequence", "sequence number `head` of the batch "
                "switched off", "The wrong axis was indexed.",
                "Which axis of (batch, num_heads, query, key) counts heads?",
                lambda s: _without(s.weights, s.head, 0.0)),
        mistake("ablate-from-1", "the head before it switched off",
                "The heads were counted from 1.",
                "Which number has the first head?",
                lambda s: _without(s.weights, (every, s.head - 1), 0.0)),
        mistake("ablate-rescaled", "the other heads scaled up to make up "
                "for it", "They were multiplied by num_heads / (num_heads - "
                "1), as dropout does.",
                "May the other heads change when one is switched off?",
                lambda s: _without(s.weights, (every, s.head), 0.0)
                * s.weights.shape[1] / (s.weights.shape[1] - 1),
                "An ablation asks what is missing without the head; so "
                "nothing else may change."),
        Mistake("ablate-columns", "columns of W_o set to 0 instead of rows",
                "Features of the output are missing, for all heads.",
                {"kept": lambda s: s.weights,
                 "output": lambda s: s.merged @ _without(
                     s.W_o, (every, part(s)), 0.0)},
                why="Rows h * head_dim to (h + 1) * head_dim - 1 of W_o are "
                    "those of head h.",
                question="Which axis of W_o meets the heads?", fix=fix,
                in_pairs=False, explained=CHAPTER),
    ]


def _merge_reshape() -> Mistake:
    return Mistake(
        "merge-reshape", "a bare reshape, without moving the heads back",
        "Positions and heads are mixed up.",
        {"merged": lambda s: s.heads.reshape(_merge(s.heads).shape)},
        why="Two axes can become one only when they are neighbours: first "
            "move the head axis next to the features.",
        question="Which two axes must be neighbours before they can become "
                 "one?", fix="heads.transpose(0, 2, 1, 3).reshape(...)",
        explained=7)


def _tiny_choice() -> Case:
    return Case("three words", {
        "query": np.array([2.0, 0.0, 0.0, 2.0]),
        "keys": np.array([[3.0, 1.0, 0.0, 0.0], [1.0, 0.0, 2.0, 0.0],
                          [0.0, 0.0, 0.0, 1.0]]),
        "first": 0, "second": 1})


def _tiny_ablation() -> Case:
    return Case("two sequences of two words, two heads; head 1 is off", {
        "weights": np.array([[[[0.5, 0.5], [1.0, 0.0]],
                              [[0.25, 0.75], [0.0, 1.0]]],
                             [[[0.0, 1.0], [0.5, 0.5]],
                              [[1.0, 0.0], [0.5, 0.5]]]]),
        "value": np.array([[[[2.0], [4.0]], [[8.0], [0.0]]],
                           [[[6.0], [0.0]], [[4.0], [2.0]]]]),
        "W_o": np.array([[1.0, 2.0], [3.0, 1.0]]), "head": 1})


register(Exercise(
    id="choice_of_a_row", title="What can make a row choose",
    chapter=CHAPTER, difficulty=2, minutes=8,
    task="The proof that one layer cannot choose its noun by the adjective "
         "is one line. Turn it into code: compare two weights of one row, "
         "and see which words have a say.",
    solution=solutions.choice_of_a_row,
    stages={"choice": lambda s: _scaled(s)[s.first] - _scaled(s)[s.second]},
    cases=_row, mistakes=_choice_mistakes(), axes=(), tiny=_tiny_choice,
    hints=("A weight is exp(score) / total. What is its logarithm?",
           "score - log(total), and the total is the same for both words.",
           "So the difference of the logarithms is the difference of the "
           "two scaled scores.")))

register(Exercise(
    id="without_head", title="Switch off a head", chapter=CHAPTER,
    difficulty=2, minutes=8,
    task="Is a head's pattern the cause of the answer? Take the head away "
         "and look again. Write the output of a layer without it.",
    solution=solutions.without_head,
    stages={"kept": lambda s: _without(s.weights, (slice(None), s.head),
                                       0.0),
            "heads": lambda s: s.kept @ s.value,
            "merged": lambda s: _merge(s.heads),
            "output": lambda s: s.merged @ s.W_o},
    cases=_heads, mistakes=[*_ablation_mistakes(), _merge_reshape()],
    axes=("batch", "query_len", "embed_dim"), tiny=_tiny_ablation,
    hints=("What must the head's z be, so that it adds nothing?",
           "With weights of 0 the head's z is 0. With scores of 0 it is "
           "not.",
           "kept = weights.copy(); kept[:, head] = 0. The copy keeps the "
           "caller's array as it is.")))

register_quiz(CHAPTER, [
    Question(
        "In one layer, the query of “it” and the keys of both nouns stay as "
        "they are, and “tired” becomes “wide”. What changes in the row of "
        "“it”?",
        [Option("The weights of both nouns, but not their ratio.", True,
                "The adjective takes part in the sum that both are divided "
                "by."),
         Option("Nothing at all.", False,
                "The adjective has a weight of its own in the row, and takes "
                "it from the others."),
         Option("The ratio of the two nouns' weights.", False,
                "Their ratio depends on their own two scores alone. Only the "
                "difference of the weights changes.",
                mistake="choice-of-weights")]),
    Question(
        "To switch off a head, somebody sets its scores to 0. What does the "
        "head do now?",
        [Option("It reads the mean of all values.", True,
                "Equal scores give equal weights.",
                mistake="ablate-uniform"),
         Option("Nothing.", False,
                "For that its weights must be 0, not its scores."),
         Option("It gives NaN.", False,
                "Only a row whose scores are all -inf does.")]),
])
