"""Programs that an exercise starts from instead of an empty stub.

Each has the signature and docstring that its solution has. Those that hold a
mistake were made from public reports of that mistake, which their exercise
names.
"""

import numpy as np

from course.exercises.solutions import softmax

__all__: list[str] = []


def loop_over_the_batch(query, key, value):
    """Attend in every sequence of a batch, without a Python loop.

    query: (batch, query_len, head_dim).
    key: (batch, key_len, head_dim).
    value: (batch, key_len, value_dim).
    Returns (batch, query_len, value_dim).
    """
    outputs = []
    for q, k, v in zip(query, key, value):
        weights = softmax(q @ k.T / np.sqrt(k.shape[-1]))
        outputs.append(weights @ v)
    return np.stack(outputs)


def axis_for_three(query, key):
    """Give the attention weights of every head.

    query: (batch, num_heads, query_len, head_dim).
    key: (batch, num_heads, key_len, head_dim).
    Returns (batch, num_heads, query_len, key_len); each row sums to 1.
    """
    scores = query @ key.swapaxes(-2, -1) / np.sqrt(key.shape[-1])
    exponentials = np.exp(scores - scores.max(axis=2, keepdims=True))
    return exponentials / exponentials.sum(axis=2, keepdims=True)


def scale_at_the_end(query, key):
    """Give the softmax, over the keys, of the scores over √head_dim.

    query: (batch, query_len, head_dim).
    key: (batch, key_len, head_dim).
    Returns (batch, query_len, key_len); each row sums to 1.
    """
    scores = query @ key.swapaxes(-2, -1)
    exponentials = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights = exponentials / exponentials.sum(axis=-1, keepdims=True)
    return weights / np.sqrt(key.shape[-1])


def view_as_heads(x, num_heads):
    """Separate the heads and put them into the batch axis.

    x: (batch, seq_len, num_heads * head_dim).
    Returns (batch * num_heads, seq_len, head_dim): all heads of sequence 0
    first, then those of sequence 1, and so on.
    """
    batch, seq_len, width = x.shape
    return x.reshape(batch * num_heads, seq_len, width // num_heads)


def fill_where_true(scores):
    """Turn scores into weights that leave the future alone.

    scores: (batch, seq_len, seq_len), scaled already.
    Returns (batch, seq_len, seq_len): query i attends to keys 0 to i.
    """
    position = np.arange(scores.shape[-1])
    allowed = position[None, :] <= position[:, None]
    return softmax(np.where(allowed, -np.inf, scores))


def mask_the_weights(scores, value, attention_mask):
    """Average the values that a query may attend to.

    scores: (batch, query_len, key_len), scaled already.
    value: (batch, key_len, value_dim).
    attention_mask: booleans (query_len, key_len), True = may attend; every
    query may attend somewhere.
    Returns (batch, query_len, value_dim).
    """
    weights = softmax(scores)
    return np.where(attention_mask, weights, 0) @ value


def scale_by_the_embedding(q, k, num_heads):
    """Give the scaled scores of every head.

    q, k: (batch, seq_len, num_heads * head_dim), projected already.
    Returns (batch, num_heads, seq_len, seq_len), scaled for one head.
    """
    batch, seq_len, width = q.shape
    head_dim = width // num_heads
    query = q.reshape(batch, seq_len, num_heads, head_dim).swapaxes(1, 2)
    key = k.reshape(batch, seq_len, num_heads, head_dim).swapaxes(1, 2)
    return query @ key.swapaxes(-2, -1) / np.sqrt(width)


def join_without_moving(x, num_heads):
    """Take the heads out of the batch axis and put them side by side.

    x: (batch * num_heads, seq_len, head_dim): all heads of sequence 0 first,
    then those of sequence 1, and so on.
    Returns (batch, seq_len, num_heads * head_dim), head 0 first.
    """
    seq_len, head_dim = x.shape[1:]
    return x.reshape(-1, seq_len, num_heads * head_dim)


def scale_survivors_by_rate(weights, kept, rate, value):
    """Average the values with weights of which some were dropped.

    weights: (query_len, key_len).
    kept: booleans of the same shape, True = survives; drawn already.
    rate: the share that is dropped, at least 0 and below 1.
    value: (key_len, value_dim).
    Returns (query_len, value_dim). The survivors are divided by 1 - rate.
    """
    return np.where(kept, weights, 0.0) * rate @ value
