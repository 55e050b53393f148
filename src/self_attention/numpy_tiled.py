"""Self-attention in NumPy without ever storing the scores.

``numpy_reference`` keeps a score for every query and every key: twice the
length, four times the memory. Here the scores exist one tile at a time, small
enough for the processor's cache. A running maximum and a running sum for each
query make the softmax exact all the same ("online softmax"), and the backward
pass computes each tile again from two numbers a query instead of keeping it.

The names, shapes and rules are those of ``numpy_reference``. Keys that no
query may attend to (padding) are never computed, nor are the tiles that a
causal mask hides whole.

Sources
-------
Milakov and Gimelshein, "Online normalizer calculation for softmax" (2018),
arXiv:1805.02867.
Rabe and Staats, "Self-attention Does Not Need O(n^2) Memory" (2021),
arXiv:2112.05682.
Dao et al., "FlashAttention" (2022), arXiv:2205.14135.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Real
from numpy import ndarray

from self_attention import numpy_reference as reference
from self_attention._checks import (
    check_head_dim,
    check_mask_broadcasts,
    check_parameter_shapes,
    check_positive,
    check_scale,
    projection_shapes,
)
from self_attention._shapes import shape_checked
from self_attention.numpy_reference import (
    Random,
    attention_weights,
    causal_mask,
    combine_heads,
    combine_masks,
    padding_mask,
    separate_heads,
)

__all__ = [
    "MultiHeadSelfAttention",
    "attention_and_log_sum",
    "attention_weights",
    "causal_mask",
    "combine_heads",
    "combine_masks",
    "merge_attention",
    "padding_mask",
    "scaled_dot_product_attention",
    "scaled_dot_product_attention_backward",
    "separate_heads",
]

#: Keys of one tile, which has four times as many queries: in float32 its
#: scores are 1 MB, about what a core's second-level cache holds.
BLOCK_SIZE = 256
#: Where no score and no value can be larger, nothing overflows without the
#: maximum: exp(40) is 2e17, and float32 reaches 3e38.
SAFE_SCORE, SAFE_VALUE = 40.0, 1e12


@shape_checked
def scaled_dot_product_attention(
    query: Real[ndarray, "*batch query_len head_dim"],
    key: Real[ndarray, "*batch key_len head_dim"],
    value: Real[ndarray, "*batch key_len value_dim"],
    attention_mask: Bool[ndarray, "..."] | None = None,
    *,
    scale: float | int | None = None,
    is_causal: bool = False,
    block_size: int = BLOCK_SIZE,
) -> Float[ndarray, "*batch query_len value_dim"]:
    """Give each query the average of the values, weighted by attention.

    Args:
        query: One row for each token that asks.
        key: One row for each token that may be attended to.
        value: What each of those tokens has to give.
        attention_mask: True = may attend; broadcasts to
            ``(*batch, query_len, key_len)``.
        scale: Factor on the scores; ``1 / sqrt(head_dim)`` if None.
        is_causal: Also apply ``causal_mask(query_len, key_len)``, aligned at
            the bottom right, without making it.
        block_size: Keys of one tile, at least 1. It changes the order of the
            sums, and so at most the last digits.

    Returns:
        What ``numpy_reference.scaled_dot_product_attention`` returns, with
        the same rules for masked keys, empty rows and dtypes.

    Raises:
        ValueError, TypeError: As there, and for a ``block_size`` below 1.

    Source: Dao et al. (2022), algorithm 1.
    """
    output, _ = attention_and_log_sum(
        query, key, value, attention_mask, scale=scale, is_causal=is_causal,
        block_size=block_size)
    return output


@shape_checked
def attention_and_log_sum(
    query: Real[ndarray, "*batch query_len head_dim"],
    key: Real[ndarray, "*batch key_len head_dim"],
    value: Real[ndarray, "*batch key_len value_dim"],
    attention_mask: Bool[ndarray, "..."] | None = None,
    *,
    scale: float | int | None = None,
    is_causal: bool = False,
    block_size: int = BLOCK_SIZE,
) -> tuple[Float[ndarray, "*batch query_len value_dim"],
           Float[ndarray, "*batch query_len"]]:
    """Attend, and say how large the sum of exponentials of each query was.

    Args:
        query: As for ``scaled_dot_product_attention``.
        key: As there.
        value: As there.
        attention_mask: As there.
        scale: As there.
        is_causal: As there.
        block_size: As there.

    Returns:
        The output, and for each query the logarithm of the sum over its keys
        of exp(score): all that a backward pass, or ``merge_attention``, needs
        to know of the scores. It is ``-inf`` for a query without a key, and
        at least float32.

    Source: Dao et al. (2022), algorithm 1, which keeps the same number.
    """
    dtype = reference._float_dtype(np.result_type(query, key, value))
    output = np.empty((*query.shape[:-1], value.shape[-1]), dtype)
    log_sum = np.empty(query.shape[:-1], reference._working_dtype(dtype))
    for at, head in _heads(query, key, value, attention_mask, scale,
                           is_causal, block_size):
        _forward(head, output[at], log_sum[at])
    return output, log_sum


@shape_checked
def merge_attention(
    output: Real[ndarray, "*batch query_len value_dim"],
    log_sum: Real[ndarray, "*batch query_len"],
    other_output: Real[ndarray, "*batch query_len value_dim"],
    other_log_sum: Real[ndarray, "*batch query_len"],
) -> tuple[Float[ndarray, "*batch query_len value_dim"],
           Float[ndarray, "*batch query_len"]]:
    """Join what the same queries got from two separate sets of keys.

    Args:
        output: What ``attention_and_log_sum`` gave for the one set of keys.
        log_sum: As above.
        other_output: What it gave for the other set.
        other_log_sum: As above.

    Returns:
        What it gives for both sets together.

    Source: Milakov and Gimelshein (2018), section 3.1.
    """
    together = np.logaddexp(log_sum, other_log_sum)
    shift = np.where(np.isneginf(together), 0, together)
    share, other_share = np.exp(log_sum - shift), np.exp(other_log_sum - shift)
    return (share[..., None] * output + other_share[..., None] * other_output,
            together)


@shape_checked
def scaled_dot_product_attention_backward(
    query: Real[ndarray, "*batch query_len head_dim"],
    key: Real[ndarray, "*batch key_len head_dim"],
    value: Real[ndarray, "*batch key_len value_dim"],
    grad_output: Real[ndarray, "*batch query_len value_dim"],
    attention_mask: Bool[ndarray, "..."] | None = None,
    *,
    scale: float | int | None = None,
    is_causal: bool = False,
    block_size: int = BLOCK_SIZE,
) -> tuple[Float[ndarray, "*batch query_len head_dim"],
           Float[ndarray, "*batch key_len head_dim"],
           Float[ndarray, "*batch key_len value_dim"]]:
    """Carry a gradient back through ``scaled_dot_product_attention``.

    Args:
        query: As in the forward pass.
        key: As in the forward pass.
        value: As in the forward pass.
        grad_output: Gradient of a loss with respect to the output.
        attention_mask: As in the forward pass.
        scale: As in the forward pass.
        is_causal: As in the forward pass.
        block_size: As in the forward pass.

    Returns:
        Gradients with respect to query, key and value, as
        ``numpy_reference.scaled_dot_product_attention_backward`` gives them.
        All inputs must be finite.

    Raises:
        ValueError, TypeError: As in the forward pass.

    Source: Dao et al. (2022), algorithm 4.
    """
    output, log_sum = attention_and_log_sum(
        query, key, value, attention_mask, scale=scale, is_causal=is_causal,
        block_size=block_size)
    grads = tuple(np.zeros(x.shape, np.result_type(output, grad_output))
                  for x in (query, key, value))
    for at, head in _heads(query, key, value, attention_mask, scale,
                           is_causal, block_size):
        _backward(head, output[at], log_sum[at], grad_output[at],
                  [grad[at] for grad in grads])
    return grads  # type: ignore[return-value]


def _heads(query: ndarray, key: ndarray, value: ndarray, mask: ndarray | None,
           scale: float | int | None, is_causal: bool, block: int
           ) -> Iterator[tuple[tuple[int, ...], "_Head"]]:
    """Yield where each head stands, and the head."""
    check_positive(block_size=block)
    scale = check_scale(scale, query.shape[-1])
    dtype = reference._working_dtype(np.result_type(query, key, value))
    *batch, query_len, key_len = *query.shape[:-1], key.shape[-2]
    if mask is not None:
        check_mask_broadcasts(mask.shape, (*batch, query_len, key_len))
        mask = np.atleast_2d(mask)  # one row for all queries stays one row
        mask = np.broadcast_to(mask, (*batch, mask.shape[-2], key_len))
    corner = key_len - query_len if is_causal else math.inf
    for at in np.ndindex(*batch):
        yield at, _Head(query[at], key[at], value[at],
                        None if mask is None else mask[at],
                        scale, dtype, corner, block)


class _Head:
    """One head, cut into tiles, without the keys that no query may see."""

    def __init__(self, query: ndarray, key: ndarray, value: ndarray,
                 mask: ndarray | None, scale: float, dtype: np.dtype,
                 corner: float, block: int) -> None:
        self.seen, self.mask = np.arange(len(key)), None
        if mask is not None:
            self.seen = np.flatnonzero(mask.any(axis=0))
            key, value = key[self.seen], value[self.seen]
            if not mask[:, self.seen].all():
                self.mask = np.broadcast_to(
                    mask[:, self.seen], (len(query), len(key)))
        self.query = np.multiply(query, scale, dtype=dtype, order="C")
        self.key, self.value = (
            x.astype(dtype, order="C", copy=False) for x in (key, value))
        self.scale, self.corner, self.block = scale, corner, block
        # Square tiles waste less on the diagonal of a causal mask.
        height = 4 * block if corner == math.inf else block
        self.rows = [slice(start, min(start + height, len(query)))
                     for start in range(0, len(query), height)]
        self.room = np.empty(
            (2, min(len(query), height) * min(len(key), block)), dtype)
        # No score is larger than the product of the two lengths. But a key
        # that a query must not see must not decide how it is computed.
        longest = [math.sqrt(np.einsum("ij,ij->i", x, x).max(initial=0))
                   for x in (self.query, self.key, self.value)]
        self.is_safe = (corner == math.inf and self.mask is None
                        and longest[2] <= SAFE_VALUE
                        and longest[0] * longest[1] <= SAFE_SCORE)

    def tiles(self, rows: slice
              ) -> Iterator[tuple[slice, ndarray | None, ndarray]]:
        """Yield the keys of each tile, who may attend (None: all), scores."""
        last = np.arange(rows.start, rows.stop)[:, None] + self.corner
        for start in range(0, len(self.key), self.block):
            columns, allowed = slice(start, start + self.block), None
            position = self.seen[columns]
            if position[0] > last[-1]:  # these keys and all others come later
                break
            if position[-1] > last[0]:
                allowed = position <= last
            if self.mask is not None:
                part = self.mask[rows, columns]
                allowed = part if allowed is None else part & allowed
            scores = self.product(self.query[rows], self.key[columns], 0)
            if allowed is not None:
                np.copyto(scores, -np.inf, where=~allowed)
            yield columns, allowed, scores

    def product(self, left: ndarray, right: ndarray, room: int) -> ndarray:
        """Compute ``left @ right.T`` in memory that stays in the cache."""
        shape = len(left), len(right)
        place = self.room[room, :math.prod(shape)].reshape(shape)
        return np.matmul(left, right.T, out=place)


def _forward(head: _Head, output: ndarray, log_sum: ndarray) -> None:
    """Write the output of one head, and the log-sum of each of its queries."""
    lowest = 0 if head.is_safe else np.finfo(log_sum.dtype).min / 2
    ones = np.ones((len(head.key), 1), log_sum.dtype)
    for rows in head.rows:
        mixed = np.zeros_like(output[rows], dtype=log_sum.dtype)
        total = np.zeros_like(mixed, shape=(len(mixed), 1))
        largest = np.full_like(total, lowest)
        for columns, allowed, weights in head.tiles(rows):
            if not head.is_safe:
                before = largest
                largest = np.maximum(before, weights.max(-1, keepdims=True))
                weights -= largest
                shrink = np.exp(before - largest)
                total *= shrink
                mixed *= shrink
            np.exp(weights, out=weights)
            total += weights @ ones[columns]  # faster than sum()
            mixed += reference._weighted_sum(
                weights, head.value[columns], allowed)
        output[rows] = mixed / np.where(total == 0, 1, total)
        with np.errstate(divide="ignore"):  # the logarithm of 0 is -inf
            log_sum[rows] = (largest + np.log(total))[:, 0]


def _backward(head: _Head, output: ndarray, log_sum: ndarray,
              grad_output: ndarray, grads: Sequence[ndarray]) -> None:
    """Write the gradients of one head; each tile is computed again."""
    grad_query, grad_key, grad_value = map(
        np.zeros_like, (head.query, head.key, head.value))
    inner = (output * grad_output).sum(-1, keepdims=True)
    log_sum = np.where(np.isneginf(log_sum), 0, log_sum)[:, None]
    for rows in head.rows:
        for columns, _, weights in head.tiles(rows):
            weights -= log_sum[rows]
            np.exp(weights, out=weights)
            grad_value[columns] += weights.T @ grad_output[rows]
            grad_scores = head.product(
                grad_output[rows], head.value[columns], 1)
            grad_scores -= inner[rows]
            grad_scores *= weights
            grad_query[rows] += grad_scores @ head.key[columns]
            grad_key[columns] += grad_scores.T @ head.query[rows]
    grads[0][...] = head.scale * grad_query
    grads[1][head.seen], grads[2][head.seen] = grad_key, grad_value


class MultiHeadSelfAttention:
    """Several heads of self-attention, with one packed projection.

    Attributes:
        embed_dim: Width of a token's embedding, and of the output.
        num_heads: Number of heads.
        head_dim: Width of one head's query, key and value.
        W_qkv: ``(embed_dim, 3 * num_heads * head_dim)``: the columns that
            make all queries, then all keys, then all values.
        W_o: ``(num_heads * head_dim, embed_dim)``.
        b_qkv, b_o: The biases, or None.

    Source: Vaswani et al. (2017), section 3.2.2.
    """

    @shape_checked
    def __init__(self, embed_dim: int, num_heads: int, *,
                 head_dim: int | None = None, bias: bool = False,
                 rng: Random | None = None,
                 dtype: type | np.dtype | str = np.float64) -> None:
        """Draw new weights; arguments as in ``numpy_reference``."""
        self.embed_dim, self.num_heads = embed_dim, num_heads
        self.head_dim = check_head_dim(embed_dim, num_heads, head_dim)
        drawn = reference.MultiHeadSelfAttention(
            embed_dim, num_heads, head_dim=head_dim, bias=bias, rng=rng,
            dtype=dtype)
        self.load_parameter_arrays(drawn.parameter_arrays())

    @shape_checked
    def project(self, x: Real[ndarray, "batch seq_len {self.embed_dim}"]
                ) -> tuple[Float[ndarray, "batch heads seq_len head_dim"],
                           Float[ndarray, "batch heads seq_len head_dim"],
                           Float[ndarray, "batch heads seq_len head_dim"]]:
        """Make the queries, keys and values of every head, in one product.

        Args:
            x: Embeddings of a batch of sequences.

        Returns:
            Query, key and value, each with the heads separated.
        """
        query, key, value = self._separate(_linear(x, self.W_qkv, self.b_qkv))
        return query, key, value

    def _separate(self, packed: ndarray) -> ndarray:
        split = packed.reshape(*packed.shape[:-1], 3, self.num_heads,
                               self.head_dim)
        return split.transpose(2, 0, 3, 1, 4)

    @shape_checked
    def __call__(self, x: Real[ndarray, "batch seq_len {self.embed_dim}"],
                 attention_mask: Bool[ndarray, "..."] | None = None, *,
                 is_causal: bool = False
                 ) -> Float[ndarray, "batch seq_len {self.embed_dim}"]:
        """Let every token gather from the tokens it may attend to.

        Args:
            x: Embeddings of a batch of sequences.
            attention_mask: True = may attend; broadcasts to
                ``(batch, num_heads, seq_len, seq_len)``.
            is_causal: Also let no token attend to a later one.

        Returns:
            The new embeddings. A token that may attend nowhere gets the bias
            ``b_o``, or zeros where there is none.

        Raises:
            ValueError, TypeError: As for ``attention_weights``.
        """
        output, _ = self.forward(x, attention_mask, is_causal=is_causal)
        return output

    @shape_checked
    def forward(self, x: Real[ndarray, "batch seq_len {self.embed_dim}"],
                attention_mask: Bool[ndarray, "..."] | None = None, *,
                is_causal: bool = False
                ) -> tuple[Float[ndarray, "batch seq_len {self.embed_dim}"],
                           tuple[ndarray, ...]]:
        """Call the layer, and keep what ``backward`` needs of it.

        Args:
            x: As for calling the layer.
            attention_mask: As for calling the layer.
            is_causal: As for calling the layer.

        Returns:
            The output; and query, key, value, the heads' outputs and their
            log-sums. All of it grows linearly with the length.
        """
        projected = self.project(x)
        shape = (*x.shape[:-1], self.num_heads, self.head_dim)
        heads = np.empty(shape, projected[0].dtype).swapaxes(1, 2)
        log_sum = np.empty(heads.shape[:-1],
                           reference._working_dtype(heads.dtype))
        for at, head in _heads(*projected, attention_mask, None, is_causal,
                               BLOCK_SIZE):
            _forward(head, heads[at], log_sum[at])
        output = _linear(combine_heads(heads), self.W_o, self.b_o)
        return output, (*projected, heads, log_sum)

    @shape_checked
    def backward(
        self, x: Real[ndarray, "batch seq_len {self.embed_dim}"],
        grad_output: Real[ndarray, "batch seq_len {self.embed_dim}"],
        attention_mask: Bool[ndarray, "..."] | None = None, *,
        is_causal: bool = False, kept: tuple[ndarray, ...] | None = None
    ) -> tuple[Float[ndarray, "batch seq_len {self.embed_dim}"],
               dict[str, ndarray]]:
        """Carry a gradient back through the whole layer.

        Args:
            x: Embeddings of a batch of sequences, as in the forward pass.
            grad_output: Gradient of a loss with respect to the output.
            attention_mask: As in the forward pass.
            is_causal: As in the forward pass.
            kept: What ``forward`` kept; computed again if None.

        Returns:
            The gradient with respect to ``x``, and the gradients with respect
            to the weights by name, ``W_q`` to ``W_o`` (and ``b_q`` to ``b_o``
            where there are biases).
        """
        if kept is None:
            _, kept = self.forward(x, attention_mask, is_causal=is_causal)
        *projected, heads, log_sum = kept
        grads = reference._linear_backward("o", combine_heads(heads),
                                           grad_output)
        grad_heads = separate_heads(grad_output @ self.W_o.T, self.num_heads)
        packed = np.zeros((*x.shape[:-1], self.W_qkv.shape[1]),
                          np.result_type(grad_heads, self.W_qkv))
        separated = self._separate(packed)  # a view: filling it fills packed
        for at, head in _heads(*projected, attention_mask, None, is_causal,
                               BLOCK_SIZE):
            _backward(head, heads[at], log_sum[at], grad_heads[at],
                      [grad[at] for grad in separated])
        joint = reference._linear_backward("qkv", x, packed)
        grads |= _unpacked(joint["W_qkv"], joint["b_qkv"])
        owned = self.parameter_arrays()
        return packed @ self.W_qkv.T, {name: grads[name] for name in owned}

    @shape_checked
    def attention_weights(
        self, x: Real[ndarray, "batch seq_len {self.embed_dim}"],
        attention_mask: Bool[ndarray, "..."] | None = None
    ) -> Float[ndarray, "batch {self.num_heads} seq_len seq_len"]:
        """Compute the weights that calling the layer never stores.

        Args:
            x: Embeddings of a batch of sequences.
            attention_mask: As for calling the layer.

        Returns:
            The weights of every head, by
            ``numpy_reference.attention_weights``, for looking at.
        """
        query, key, _ = self.project(x)
        return attention_weights(query, key, attention_mask)

    def parameter_arrays(self) -> dict[str, ndarray]:
        """Copy the weights, by name, in the layout of ``numpy_reference``.

        Returns:
            ``W_q`` to ``W_o``, and ``b_q`` to ``b_o`` where there are biases.
        """
        arrays = _unpacked(self.W_qkv, self.b_qkv)
        arrays |= {"W_o": self.W_o, "b_o": self.b_o}
        names = sorted(arrays, key=lambda name: ("Wb".index(name[0]),
                                                 "qkvo".index(name[-1])))
        return {name: arrays[name].copy() for name in names
                if arrays[name] is not None}

    @shape_checked
    def load_parameter_arrays(
        self, arrays: Mapping[str, Float[ndarray, "..."]]) -> None:
        """Take over weights, exactly.

        Args:
            arrays: What ``parameter_arrays`` of any variant gives. With
                ``b_q`` to ``b_o`` the layer has biases from now on, without
                them it has none.

        Raises:
            ValueError: A name is missing or unknown, or a shape is wrong.
            TypeError: Not a NumPy array of floating-point numbers.

        Nothing is changed then.
        """
        given = {name: array.shape for name, array in arrays.items()}
        check_parameter_shapes(given, projection_shapes(
            self.embed_dim, self.num_heads, self.head_dim))
        self.W_qkv = np.concatenate([arrays[f"W_{n}"] for n in "qkv"], axis=1)
        self.W_o, self.b_qkv, self.b_o = arrays["W_o"].copy(), None, None
        if "b_o" in arrays:
            self.b_qkv = np.concatenate([arrays[f"b_{n}"] for n in "qkv"])
            self.b_o = arrays["b_o"].copy()


def _unpacked(weight: ndarray, bias: ndarray | None) -> dict[str, Any]:
    """Name the three parts of a packed matrix, and of its bias."""
    arrays: dict[str, Any] = dict(zip(
        ("W_q", "W_k", "W_v"), np.split(weight, 3, axis=1)))
    if bias is not None:
        arrays |= zip(("b_q", "b_k", "b_v"), np.split(bias, 3))
    return arrays


def _linear(x: ndarray, weight: ndarray, bias: ndarray | None) -> ndarray:
    """One product for all tokens, the bias added in place."""
    product = x.reshape(-1, x.shape[-1]) @ weight
    if bias is not None:
        product += bias
    return product.reshape(*x.shape[:-1], weight.shape[1])
