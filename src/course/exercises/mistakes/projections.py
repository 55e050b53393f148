"""Mistakes in the products with W_q, W_k, W_v and W_o."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy import ndarray

from course.exercises.stages import Mistake, State

CHAPTER = 1
Product = Callable[[ndarray, ndarray], ndarray]


def _forward(x: ndarray, W: ndarray) -> ndarray:
    return x @ W


def _turned(x: ndarray, W: ndarray) -> ndarray:
    return x @ W.T


def tuple_mistakes(stage: str = "qkv", batched: bool = True
                   ) -> list[Mistake]:
    """Mistakes of a stage that is the tuple (query, key, value).

    Args:
        stage: Name of the stage.
        batched: Whether x has axes besides the features.
    """
    def give(function: Callable[[State], Any]) -> dict[
            str, Callable[[State], Any]]:
        return {stage: function}

    order = "x @ W_q, x @ W_k, x @ W_v"
    mistakes = [
        Mistake(
            "proj-transposed", "x @ W.T for all three matrices",
            "The matrices were transposed before the product.",
            give(lambda s: (s.x @ s.W_q.T, s.x @ s.W_k.T, s.x @ s.W_v.T)),
            why="This course stores W as (embed_dim, head_dim), used as "
                "x @ W. nn.Linear stores the transpose.",
            question="Which axis of W has as many entries as x has "
                     "features?",
            fix=order, explained=CHAPTER),
        Mistake(
            "proj-order", "query and key in each other's place",
            "All three arrays are right, but not their order.",
            give(lambda s: (s.x @ s.W_k, s.x @ s.W_q, s.x @ s.W_v)),
            why="The order is query, key, value.",
            question="In which order are the three to be returned?",
            fix=order, explained=CHAPTER),
        Mistake(
            "proj-order-kv", "key and value in each other's place",
            "All three arrays are right, but not their order.",
            give(lambda s: (s.x @ s.W_q, s.x @ s.W_v, s.x @ s.W_k)),
            why="The order is query, key, value. (Keras asks for value "
                "before key.)",
            question="In which order are the three to be returned?",
            fix=order, explained=CHAPTER),
        Mistake(
            "proj-same-W", "W_q used for all three",
            "Query, key and value are the same.",
            give(lambda s: (s.x @ s.W_q,) * 3),
            why="Three matrices make three different vectors of each word.",
            question="Which matrices play no part?", fix=order,
            explained=CHAPTER),
        Mistake(
            "proj-kv-same", "W_k used for the value too",
            "W_v plays no part.",
            give(lambda s: (s.x @ s.W_q, s.x @ s.W_k, s.x @ s.W_k)),
            why="Keys say where to look; values say what is read there.",
            question="Which matrix plays no part?", fix=order,
            explained=CHAPTER),
        Mistake(
            "proj-qk-same", "W_q used for the key too",
            "W_k plays no part, so the scores will be symmetric.",
            give(lambda s: (s.x @ s.W_q, s.x @ s.W_q, s.x @ s.W_v)),
            why="With one matrix for both, word i attends to word j exactly "
                "as j scores i.",
            question="Which matrix plays no part?", fix=order,
            explained=CHAPTER),
        Mistake(
            "proj-relu", "a ReLU after each product",
            "Every negative number became 0.",
            give(lambda s: (np.maximum(s.x @ s.W_q, 0),
                            np.maximum(s.x @ s.W_k, 0),
                            np.maximum(s.x @ s.W_v, 0))),
            why="The three maps are plain products.",
            question="May a query hold negative numbers?", fix=order,
            explained=CHAPTER),
        Mistake(
            "proj-chained", "each product made of the one before",
            "The key was made from the query and the value from the key.",
            give(lambda s: (s.x @ s.W_q, s.x @ s.W_q @ s.W_k,
                            s.x @ s.W_q @ s.W_k @ s.W_v)),
            why="All three are made from the embedding.",
            question="What is each of the three made from?", fix=order,
            explained=CHAPTER),
    ]
    if batched:
        mistakes.append(Mistake(
            "proj-W-first", "W @ x", "Positions were mixed, not features.",
            give(lambda s: (s.W_q @ s.x, s.W_k @ s.x, s.W_v @ s.x)),
            why="Rows are tokens, so the matrix stands on the right: "
                "x @ W.",
            question="Which axis of x must meet W?", fix=order,
            explained=CHAPTER))
    return mistakes


def layer_projection_mistakes(stored: str = "in_out") -> list[Mistake]:
    """Mistakes of the stages q, k, v and output of a whole layer.

    Args:
        stored: "in_out" if the matrices are used as x @ W, "out_in" if they
            are stored as in nn.Linear and used as x @ W.T.
    """
    plain, turned = ((_forward, _turned) if stored == "in_out"
                     else (_turned, _forward))
    used = "x @ W" if stored == "in_out" else "x @ W.T"
    wrong = "x @ W.T" if stored == "in_out" else "x @ W"
    return [*_queries_keys_values(plain, turned, used, wrong),
            *output_mistakes(plain, turned, used, wrong),
            Mistake(
                "all-W-transposed", f"{wrong} for all four matrices",
                "All four were transposed before the product.",
                {"q": lambda s: turned(s.x, s.W_q),
                 "k": lambda s: turned(s.x, s.W_k),
                 "v": lambda s: turned(s.x, s.W_v),
                 "output": lambda s: turned(s.merged, s.W_o)},
                why="Square matrices hide this mistake: no shape complains.",
                question="Is W stored as (in, out) or as (out, in)?",
                fix=used, explained=8)]


def _queries_keys_values(plain: Product, turned: Product, used: str,
                         wrong: str) -> list[Mistake]:
    return [
        Mistake(
            "W-transposed", f"{wrong} for W_q, W_k and W_v",
            "The three were transposed before the product.",
            {"q": lambda s: turned(s.x, s.W_q),
             "k": lambda s: turned(s.x, s.W_k),
             "v": lambda s: turned(s.x, s.W_v)},
            why="Square matrices hide this mistake: no shape complains.",
            question="Is W stored as (in, out) or as (out, in)?", fix=used,
            explained=8),
        Mistake(
            "q-not-projected", "x itself as the query",
            "W_q plays no part.", {"q": lambda s: s.x},
            why="The layer learns what to ask through W_q.",
            question="Which matrix plays no part?", fix=used,
            in_pairs=False, explained=CHAPTER),
        Mistake(
            "k-not-projected", "x itself as the key",
            "W_k plays no part.", {"k": lambda s: s.x},
            why="The layer learns what a word answers to through W_k.",
            question="Which matrix plays no part?", fix=used,
            in_pairs=False, explained=CHAPTER),
        Mistake(
            "v-not-projected", "x itself as the value",
            "W_v plays no part.", {"v": lambda s: s.x},
            why="The layer learns what a word passes on through W_v.",
            question="Which matrix plays no part?", fix=used,
            explained=CHAPTER),
        Mistake(
            "none-projected", "x itself as query, key and value",
            "W_q, W_k and W_v play no part.",
            {"q": lambda s: s.x, "k": lambda s: s.x, "v": lambda s: s.x},
            why="Attention without its matrices has nothing to learn.",
            question="Which matrices play no part?", fix=used,
            in_pairs=False, explained=CHAPTER),
        Mistake(
            "k-uses-Wq", "W_q used for the key", "W_k plays no part.",
            {"k": lambda s: plain(s.x, s.W_q)},
            why="Query and key need matrices of their own.",
            question="Which matrix plays no part?", fix=used,
            explained=CHAPTER),
        Mistake(
            "v-uses-Wk", "W_k used for the value", "W_v plays no part.",
            {"v": lambda s: plain(s.x, s.W_k)},
            why="Key and value need matrices of their own.",
            question="Which matrix plays no part?", fix=used,
            explained=CHAPTER),
    ]


def output_mistakes(plain: Product = _forward, turned: Product = _turned,
                    used: str = "x @ W", wrong: str = "x @ W.T"
                    ) -> list[Mistake]:
    """Mistakes of a stage that is the merged heads times W_o."""
    return [
        Mistake(
            "no-Wo", "the merged heads without W_o", "W_o plays no part.",
            {"output": lambda s: s.merged},
            why="Without W_o the heads stay side by side; W_o mixes what "
                "they found.",
            question="Which matrix plays no part?", fix="merged @ W_o",
            explained=7),
        Mistake(
            "Wo-transposed", f"{wrong} for W_o",
            "W_o was transposed before the product.",
            {"output": lambda s: turned(s.merged, s.W_o)},
            why="A square matrix hides this mistake: no shape complains.",
            question="Is W_o stored as (in, out) or as (out, in)?",
            fix=used, explained=7),
        Mistake(
            "Wo-relu", "a ReLU after W_o",
            "Every negative number became 0.",
            {"output": lambda s: np.maximum(plain(s.merged, s.W_o), 0)},
            why="The output is a plain product; the nonlinearity comes in "
                "the feed-forward part.",
            question="May the output hold negative numbers?",
            fix="merged @ W_o", in_pairs=False, explained=7),
    ]
