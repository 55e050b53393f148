"""The worked example that the chapters follow, as real arrays.

The example "Thinking Machines" is known from Jay Alammar's "The Illustrated
Transformer" (2018), which prints the scores 112 and 96 but never the vectors
that give them. Here the embeddings are drawn at random once, and the three
matrices are *solved for*: among all matrices that map the two embeddings to
the wanted queries and keys we take the one nearest to a random draw. So
``q1 @ k1`` is 112 because the numbers multiply to 112, not because we say so.

The random numbers come from ``np.random.RandomState``, whose streams NumPy
keeps the same in all versions and on all machines.
"""

from dataclasses import dataclass

import numpy as np
from numpy import ndarray

__all__ = ["EMBED_DIM", "HEAD_DIM", "NUM_HEADS", "SCORES", "SENTENCE",
           "TOKENS", "EightHeads", "WorkedExample", "eight_heads",
           "embeddings", "thinking_machines"]

EMBED_DIM = 512
HEAD_DIM = 64
NUM_HEADS = 8

#: The two words of the example, and the longer sentence that takes over where
#: two words are too few. "Machines" stands in it twice, on purpose.
TOKENS = ("Thinking", "Machines")
SENTENCE = ("Thinking", "Machines", "read", "what", "other", "Machines",
            "write")

#: The scores that the example is solved for; row = query, column = key.
SCORES = np.array([[112.0, 96.0], [80.0, 104.0]])


@dataclass(frozen=True)
class WorkedExample:
    """The two words, their embeddings and the matrices of one head.

    Attributes:
        tokens: ("Thinking", "Machines").
        X: Embeddings, ``(2, 512)``, one row for each word.
        W_q, W_k, W_v: ``(512, 64)``, used as ``X @ W_q``.
    """

    tokens: tuple[str, ...]
    X: ndarray
    W_q: ndarray
    W_k: ndarray
    W_v: ndarray


@dataclass(frozen=True)
class EightHeads:
    """The matrices of eight heads; head 0 is the head of the example.

    Attributes:
        W_q, W_k, W_v: ``(8, 512, 64)``, one matrix for each head.
        W_o: ``(512, 512)``, combines the heads.
    """

    W_q: ndarray
    W_k: ndarray
    W_v: ndarray
    W_o: ndarray


def embeddings(tokens: tuple[str, ...] | list[str]) -> ndarray:
    """Look up the made-up embedding of each token.

    Args:
        tokens: Words; the same word always has the same embedding.

    Returns:
        ``(len(tokens), 512)``, float64, each number drawn from N(0, 1).
    """
    rows = [np.random.RandomState(list(token.encode())).standard_normal(
        EMBED_DIM) for token in tokens]
    return np.stack(rows) if rows else np.empty((0, EMBED_DIM))


def thinking_machines() -> WorkedExample:
    """Build the worked example.

    Returns:
        Embeddings and matrices for which ``(X @ W_q) @ (X @ W_k).T`` equals
        ``SCORES`` up to rounding in the twelfth digit.
    """
    X = embeddings(TOKENS)
    random = np.random.RandomState(2017)
    draws = random.standard_normal((3, EMBED_DIM, HEAD_DIM))
    W_q, W_k, W_v = draws / np.sqrt(EMBED_DIM)
    query = X @ W_q
    # Size 1.4 for each number: with 64 of them, 64 * 1.4 * 1.4 is near 112.
    query *= 1.4 / np.sqrt(np.mean(query**2, axis=1, keepdims=True))
    W_q = _nearest_map(W_q, X, query)
    key = X @ W_k
    key += (SCORES.T - key @ query.T) @ np.linalg.pinv(query.T)
    W_k = _nearest_map(W_k, X, key)
    return WorkedExample(TOKENS, X, W_q, W_k, W_v)


def _nearest_map(W: ndarray, X: ndarray, wanted: ndarray) -> ndarray:
    """The matrix nearest to W that maps the rows of X to the wanted rows."""
    return W + np.linalg.pinv(X) @ (wanted - X @ W)


def eight_heads() -> EightHeads:
    """Build eight heads whose first is the head of the worked example.

    Returns:
        The matrices; heads 1 to 7 and ``W_o`` are random draws.
    """
    example = thinking_machines()
    random = np.random.RandomState(8)
    shape = (3, NUM_HEADS, EMBED_DIM, HEAD_DIM)
    heads = random.standard_normal(shape) / np.sqrt(EMBED_DIM)
    heads[:, 0] = example.W_q, example.W_k, example.W_v
    W_o = random.standard_normal((EMBED_DIM, EMBED_DIM)) / np.sqrt(EMBED_DIM)
    return EightHeads(*heads, W_o)
