"""Mistakes in the product of queries and keys."""

import numpy as np

from course.exercises.mistakes.common import read, swap
from course.exercises.stages import Mistake

CHAPTER = 3


def score_mistakes(query: str = "query", key: str = "key",
                   value: str | None = None, stage: str = "scores",
                   batched: bool = True) -> list[Mistake]:
    """Mistakes of a stage that is ``query @ keyᵀ``.

    Args:
        query: Name of the queries in the state.
        key: Name of the keys.
        value: Name of the values, where there are any.
        stage: Name of the stage.
        batched: Whether there is a batch axis.
    """
    q, k = read(query), read(key)
    mistakes = [
        Mistake(
            "no-transpose", "query @ key, without swapping the key's axes",
            "Row i of the queries was multiplied with column j of the keys, "
            "so feature 0 of all keys stands where key 0 should.",
            {stage: lambda s: q(s) @ k(s)},
            why="Score [i, j] is the dot product of query i and key j, so "
                "their feature axes must meet.",
            question="Which axis of the keys must stand next to the last "
                     "axis of the queries in a matrix product?",
            fix="query @ key.swapaxes(-2, -1)", explained=CHAPTER),
        Mistake(
            "scores-transposed", "the transposed scores, key @ queryᵀ",
            "There is one row for each key where one for each query is due.",
            {stage: lambda s: k(s) @ swap(q(s))},
            why="A query asks, so its row is what the softmax makes sum "
                "to 1.",
            question="Does row i of the scores belong to query i or to "
                     "key i?",
            fix="query @ key.swapaxes(-2, -1)", explained=CHAPTER),
        Mistake(
            "q-with-q", "query @ queryᵀ: the query used twice",
            "The keys play no part.",
            {stage: lambda s: q(s) @ swap(q(s))},
            why="A query is compared with keys, not with the other queries.",
            question="Which argument plays no part in your result?",
            fix="query @ key.swapaxes(-2, -1)", explained=CHAPTER),
        Mistake(
            "k-with-k", "key @ keyᵀ: the key used twice",
            "The queries play no part.",
            {stage: lambda s: k(s) @ swap(k(s))},
            why="A query is compared with keys; here keys meet keys.",
            question="Which argument plays no part in your result?",
            fix="query @ key.swapaxes(-2, -1)", explained=CHAPTER),
        Mistake(
            "elementwise", "query * key, number by number",
            "Nothing was summed over the features.",
            {stage: lambda s: q(s) * k(s)},
            why="`*` multiplies entry by entry; `@` also sums over the axis "
                "that both share.",
            question="Which of `*` and `@` sums something?",
            fix="query @ key.swapaxes(-2, -1)", explained=CHAPTER),
        Mistake(
            "sum-of-elementwise", "(query * key).sum(-1)",
            "Query i was compared with key i alone, which gives one number "
            "for each position.",
            {stage: lambda s: (q(s) * k(s)).sum(-1)},
            why="Every query is compared with every key.",
            question="How many scores are there for 5 queries and 7 keys?",
            fix="query @ key.swapaxes(-2, -1)", explained=CHAPTER),
    ]
    if batched:
        mistakes += [
            Mistake(
                "T-reverses-all", "query @ key.T on a stack of matrices",
                "`.T` reversed all axes of the keys, the batch axis too.",
                {stage: lambda s: q(s) @ k(s).T},
                why="With more than two axes `.T` turns (batch, key_len, "
                    "head_dim) into (head_dim, key_len, batch).",
                question="What is the shape of key.T when key has three "
                         "axes?",
                fix="key.swapaxes(-2, -1)", explained=CHAPTER),
            Mistake(
                "batch-summed", "scores summed over the batch",
                "The scores of all sequences were added up.",
                {stage: lambda s: np.broadcast_to(
                    (q(s) @ swap(k(s))).sum(0, keepdims=True),
                    (q(s) @ swap(k(s))).shape)},
                why="The sequences of a batch know nothing of each other.",
                question="Which letters stand behind the arrow of your "
                         "einsum?",
                fix="np.einsum('bqd,bkd->bqk', query, key)",
                in_pairs=False, explained=CHAPTER),
        ]
    if value is not None:
        v = read(value)
        mistakes.append(Mistake(
            "scores-with-v", "query @ valueᵀ",
            "The values stand where the keys should.",
            {stage: lambda s: q(s) @ swap(v(s))},
            why="Keys say where to look; values say what is read there.",
            question="What are the keys for, and what are the values for?",
            fix="query @ key.swapaxes(-2, -1)", explained=CHAPTER))
    return mistakes


def value_mistakes(weights: str = "weights", value: str = "value",
                   key: str | None = "key", query: str | None = "query",
                   stage: str = "output",
                   returns: bool = True) -> list[Mistake]:
    """Mistakes of a stage that is ``weights @ value``.

    Args:
        weights: Name of the weights in the state.
        value: Name of the values.
        key: Name of the keys, where there are any.
        query: Name of the queries, where there are any.
        stage: Name of the stage.
        returns: Whether the stage is the answer.
    """
    w, v = read(weights), read(value)
    mistakes = [
        Mistake(
            "weights-transposed", "weightsᵀ @ value",
            "The values were summed over the queries' axis.",
            {stage: lambda s: swap(w(s)) @ v(s)},
            why="Row i of the weights belongs to query i and holds one "
                "weight for each key.",
            question="Does query i own a row or a column of the weights?",
            fix="weights @ value", explained=CHAPTER),
        Mistake(
            "v-transposed", "weights @ valueᵀ",
            "The values were transposed before the product.",
            {stage: lambda s: w(s) @ swap(v(s))},
            why="In (query_len, key_len) times (key_len, value_dim) the key "
                "axes meet already.",
            question="Between which two axes does `@` sum, and do the keys "
                     "meet there?",
            fix="weights @ value", explained=CHAPTER),
        Mistake(
            "out-elementwise", "weights * value, number by number",
            "Nothing was summed over the keys.",
            {stage: lambda s: w(s) * v(s)},
            why="The output of a query is a sum over all keys.",
            question="Which of `*` and `@` sums something?",
            fix="weights @ value", in_pairs=False, explained=CHAPTER),
        Mistake(
            "v-first", "value @ weights",
            "The factors stand in the other order.",
            {stage: lambda s: v(s) @ w(s)},
            why="Rows of the result belong to queries, so the weights come "
                "first.",
            question="In which order do (query_len, key_len) and (key_len, "
                     "value_dim) fit?",
            fix="weights @ value", in_pairs=False, explained=CHAPTER),
    ]
    if key is not None:
        k = read(key)
        mistakes.append(Mistake(
            "uses-k-as-v", "weights @ key",
            "The keys were averaged instead of the values.",
            {stage: lambda s: w(s) @ k(s)},
            why="Keys say where to look; values say what is read there.",
            question="What is read at the place that the keys point to?",
            fix="weights @ value", explained=CHAPTER))
    if query is not None:
        q = read(query)
        mistakes.append(Mistake(
            "uses-q-as-v", "weights @ query",
            "The queries were averaged instead of the values.",
            {stage: lambda s: w(s) @ q(s)},
            why="Queries ask; values say what is read.",
            question="What is read at the place that the keys point to?",
            fix="weights @ value", explained=CHAPTER))
    if returns:
        mistakes.append(Mistake(
            "returns-weights", "the weights, not the output",
            "The values have not been averaged yet.",
            {stage: w},
            why="The weights say how much of each value goes into the "
                "output.",
            question="What is left to do with the values?",
            fix="weights @ value", explained=CHAPTER))
    return mistakes
