"""Masks for the tests, built here without any function under test."""

import numpy as np

from variants import BATCH, HEADS, KEY, QUERY


def causal(query_len, key_len):
    """The last query sees every key; each query before it sees one less."""
    return np.array([[j - (key_len - 1) <= i - (query_len - 1)
                      for j in range(key_len)] for i in range(query_len)],
                    dtype=bool).reshape(query_len, key_len)


def padding(lengths, seq_len, side="right"):
    rows = [[True] * n + [False] * (seq_len - n) for n in lengths]
    rows = [row if side == "right" else row[::-1] for row in rows]
    return np.array(rows, dtype=bool).reshape(len(lengths), 1, 1, seq_len)


def random(rng, *shape):
    """A mask without order, in which every query has some key."""
    mask = rng.random(shape) < 0.5
    mask[..., 0] |= ~mask.any(axis=-1)
    return mask


def with_dead_rows(rng, *shape):
    """Some queries may attend nowhere, one whole sample among them."""
    mask = random(rng, *shape)
    mask[..., ::2, :] = False
    mask[0] = False
    return mask


#: name: (query_len, key_len, mask of a random generator)
MASKS = {
    "none": (QUERY, KEY, lambda rng: None),
    "everything": (QUERY, KEY, lambda rng: np.ones((QUERY, KEY), bool)),
    "padding right": (QUERY, KEY, lambda rng: padding([3, KEY], KEY)),
    "padding left": (QUERY, KEY, lambda rng: padding([3, KEY], KEY, "left")),
    "padding of a whole sequence":
        (QUERY, KEY, lambda rng: padding([0, 5], KEY)),
    "causal": (KEY, KEY, lambda rng: causal(KEY, KEY)),
    "causal, fewer queries": (QUERY, KEY, lambda rng: causal(QUERY, KEY)),
    "causal, more queries": (KEY, QUERY, lambda rng: causal(KEY, QUERY)),
    "causal and padding right":
        (KEY, KEY, lambda rng: causal(KEY, KEY) & padding([3, 6], KEY)),
    "causal and padding left":
        (KEY, KEY,
         lambda rng: causal(KEY, KEY) & padding([3, 6], KEY, "left")),
    "one axis (key)": (QUERY, KEY, lambda rng: random(rng, KEY)),
    "no axis": (QUERY, KEY, lambda rng: np.array(True)),
    "(query, key)": (QUERY, KEY, lambda rng: random(rng, QUERY, KEY)),
    "(query, 1)": (QUERY, KEY, lambda rng: rng.random((QUERY, 1)) < 0.5),
    "(batch, 1, 1, key)":
        (QUERY, KEY, lambda rng: random(rng, BATCH, 1, 1, KEY)),
    "(heads, 1, key)": (QUERY, KEY, lambda rng: random(rng, HEADS, 1, KEY)),
    "(batch, heads, query, key)":
        (QUERY, KEY, lambda rng: random(rng, BATCH, HEADS, QUERY, KEY)),
    "dead rows":
        (QUERY, KEY,
         lambda rng: with_dead_rows(rng, BATCH, HEADS, QUERY, KEY)),
    "nowhere": (QUERY, KEY, lambda rng: np.zeros((QUERY, KEY), bool)),
}
