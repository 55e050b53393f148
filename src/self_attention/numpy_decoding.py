"""Decoding in NumPy: one token at a time, with the keys and values kept.

Under a causal mask a token never looks ahead. So what an old token computed
stays true when a new one arrives, and only its key and its value are needed
again: those are kept in a cache. One step then costs one row, not a table.

Every token has a *position*, and one rule decides who may attend to whom: a
key is visible to the queries at or after its position. Padding, and a slot
that nobody has written, have the position -1 and are visible to no query.
So the order of the slots in the cache means nothing, and padding may stand
on either side.

Sources
-------
Shazeer, "Fast Transformer Decoding" (2019), arXiv:1911.02150: incremental
decoding, and one key head for all queries.
Ainslie et al., "GQA" (2023), arXiv:2305.13245: a key head for each group.
Su et al., "RoFormer" (2021), arXiv:2104.09864: rotary positions.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Integer, Real, Shaped
from numpy import ndarray
from numpy.typing import DTypeLike

from self_attention._checks import (
    check_cache_fits,
    check_groups,
    check_head_dim,
    check_mask_broadcasts,
    check_not_negative,
    check_pairs,
    check_parameter_shapes,
    check_positive,
    check_rollback,
    check_room,
    grouped_projection_shapes,
)
from self_attention._shapes import shape_checked
from self_attention.numpy_block import _check_floating, apply_rotary
from self_attention.numpy_reference import (
    Random,
    _linear,
    combine_heads,
    scaled_dot_product_attention,
    separate_heads,
)

__all__ = [
    "CachedSelfAttention",
    "KeyValueCache",
    "StepCost",
    "grouped_query_attention",
    "position_ids",
    "position_mask",
    "repeat_key_value_heads",
]


@shape_checked
def position_ids(padding_mask: Bool[ndarray, "batch 1 1 seq_len"],
                 start: int | Integer[ndarray, "batch"] = 0
                 ) -> Integer[ndarray, "batch seq_len"]:
    """Count the real tokens of each sequence, from ``start``.

    Args:
        padding_mask: True = a real token, as ``padding_mask`` gives it.
        start: Position of the first real token, one for all sequences or one
            for each.

    Returns:
        The position of each real token; -1 for padding, on whichever side.
    """
    real = padding_mask[:, 0, 0, :]
    counted = np.cumsum(real, axis=-1) - 1 + np.reshape(start, (-1, 1))
    return np.where(real, counted, -1)


@shape_checked
def position_mask(query_positions: Integer[ndarray, "batch query_len"],
                  key_positions: Integer[ndarray, "batch key_len"]
                  ) -> Bool[ndarray, "batch 1 query_len key_len"]:
    """Let each query attend to the keys at or before its own position.

    Args:
        query_positions: Position of each query, -1 for padding.
        key_positions: Position of each key, in any order, -1 for padding and
            for slots that nobody has written.

    Returns:
        Boolean mask, True = may attend. For consecutive positions it is
        ``causal_mask``; a query at -1 may attend nowhere.
    """
    query = query_positions[:, None, :, None]
    key = key_positions[:, None, None, :]
    return (key >= 0) & (key <= query)


@shape_checked
def repeat_key_value_heads(
    x: Shaped[ndarray, "*batch kv_heads key_len head_dim"], num_heads: int
) -> Shaped[ndarray, "*batch {num_heads} key_len head_dim"]:
    """Give every query head a copy of the key or value head that it uses.

    Args:
        x: Keys or values of ``kv_heads`` heads.
        num_heads: Number of query heads, a multiple of ``kv_heads``.

    Returns:
        Head h is a copy of head ``h // (num_heads / kv_heads)``: neighbours
        share.

    Raises:
        ValueError: ``num_heads`` is not a multiple of ``kv_heads``.

    Source: Ainslie et al. (2023), section 2.2.
    """
    kv_heads = check_groups(num_heads, x.shape[-3])
    return np.repeat(x, num_heads // kv_heads, axis=-3)


@shape_checked
def grouped_query_attention(
    query: Real[ndarray, "*batch num_heads query_len head_dim"],
    key: Real[ndarray, "*batch kv_heads key_len head_dim"],
    value: Real[ndarray, "*batch kv_heads key_len value_dim"],
    attention_mask: Bool[ndarray, "..."] | None = None,
    *,
    scale: float | int | None = None,
) -> Float[ndarray, "*batch num_heads query_len value_dim"]:
    """Attend with several query heads to each key and value head.

    Nothing is repeated: the queries that share a key head are laid one below
    the other, and attend to it in one product.

    Args:
        query: One row for each head and each token that asks.
        key: As many heads (multi-head), fewer (grouped-query), or a single
            one (multi-query); their number divides ``num_heads``.
        value: As many heads as ``key``.
        attention_mask: True = may attend; broadcasts to
            ``(*batch, num_heads, query_len, key_len)``.
        scale: Factor on the scores; ``1 / sqrt(head_dim)`` if None.

    Returns:
        What ``scaled_dot_product_attention`` gives on the repeated heads.

    Raises:
        ValueError: ``num_heads`` is not a multiple of ``kv_heads``, or as for
            ``scaled_dot_product_attention``.
        TypeError: As for ``scaled_dot_product_attention``.

    Source: Shazeer (2019), section 3; Ainslie et al. (2023), section 2.2.
    """
    *batch, num_heads, query_len, head_dim = query.shape
    kv_heads, key_len, value_dim = value.shape[-3:]
    check_groups(num_heads, kv_heads)
    rows = num_heads // kv_heads * query_len
    if attention_mask is not None:
        shape = (*batch, num_heads, query_len, key_len)
        check_mask_broadcasts(attention_mask.shape, shape)
        attention_mask = np.broadcast_to(attention_mask, shape).reshape(
            *batch, kv_heads, rows, key_len)
    heads = scaled_dot_product_attention(
        query.reshape(*batch, kv_heads, rows, head_dim), key, value,
        attention_mask, scale=scale)
    return heads.reshape(*batch, num_heads, query_len, value_dim)


class KeyValueCache:
    """Room for the keys and values of a fixed number of tokens.

    Attributes:
        batch: Number of sequences.
        num_key_value_heads: Number of key heads, and of value heads.
        capacity: Number of slots of each sequence.
        head_dim: Width of a key and of a value.
        length: Number of slots that are filled, the same in all sequences.
        key_slots, value_slots: ``(batch, num_key_value_heads, capacity,
            head_dim)``. A slot that was never written holds NaN.
        position_slots: ``(batch, capacity)``; -1 for padding and for every
            slot from ``length`` on.

    Source: Shazeer (2019), section 2.4.
    """

    @shape_checked
    def __init__(self, batch: int, num_key_value_heads: int, capacity: int,
                 head_dim: int, *, dtype: DTypeLike = np.float64) -> None:
        """Reserve the memory, once.

        Args:
            batch: At least 0.
            num_key_value_heads: At least 1.
            capacity: At least 0.
            head_dim: At least 1.
            dtype: A floating-point dtype.

        Raises:
            ValueError: A size is too small, or ``dtype`` is not floating
                point.
        """
        check_not_negative(batch=batch, capacity=capacity)
        check_positive(num_key_value_heads=num_key_value_heads,
                       head_dim=head_dim)
        _check_floating("KeyValueCache", dtype)
        self.batch, self.num_key_value_heads = batch, num_key_value_heads
        self.capacity, self.head_dim = capacity, head_dim
        shape = (batch, num_key_value_heads, capacity, head_dim)
        # NaN: whoever reads a slot that nobody wrote will notice.
        self.key_slots = np.full(shape, np.nan, dtype)
        self.value_slots = np.full(shape, np.nan, dtype)
        self.position_slots = np.full((batch, capacity), -1)
        self.length = 0

    @property
    def key(self) -> ndarray:
        """The keys of the filled slots: a view, not a copy."""
        return self.key_slots[:, :, :self.length]

    @property
    def value(self) -> ndarray:
        """The values of the filled slots: a view, not a copy."""
        return self.value_slots[:, :, :self.length]

    @property
    def positions(self) -> ndarray:
        """The positions of the filled slots, -1 for padding: a view."""
        return self.position_slots[:, :self.length]

    @property
    def nbytes(self) -> int:
        """Bytes reserved for keys and values, filled or not."""
        return self.key_slots.nbytes + self.value_slots.nbytes

    @shape_checked
    def next_positions(
        self, new: int,
        padding_mask: Bool[ndarray, "{self.batch} 1 1 {new}"] | None = None
    ) -> Integer[ndarray, "{self.batch} {new}"]:
        """Say which positions the next tokens will have.

        Args:
            new: Number of tokens, at least 0.
            padding_mask: True = a real token; None: all are.

        Returns:
            For each sequence, what follows its last real token; -1 for
            padding.
        """
        check_not_negative(new=new)
        if padding_mask is None:
            padding_mask = np.ones((self.batch, 1, 1, new), bool)
        start = self.positions.max(axis=-1, initial=-1) + 1
        return position_ids(padding_mask, start)

    @shape_checked
    def append(
        self,
        key: Float[ndarray,
                   "{self.batch} {self.num_key_value_heads} new "
                   "{self.head_dim}"],
        value: Float[ndarray,
                     "{self.batch} {self.num_key_value_heads} new "
                     "{self.head_dim}"],
        positions: Integer[ndarray, "{self.batch} new"] | None = None
    ) -> tuple[Float[ndarray, "batch kv_heads length head_dim"],
               Float[ndarray, "batch kv_heads length head_dim"]]:
        """Write the keys and values of new tokens into the next slots.

        Args:
            key: In the dtype of the cache.
            value: In the dtype of the cache.
            positions: Position of each token, -1 for padding; those of
                ``next_positions`` if None.

        Returns:
            Views of all keys and values so far. They stay valid, and an
            append never moves what is already there.

        Raises:
            ValueError: A shape does not fit, or there are not enough slots.
            TypeError: The dtype differs.

        Nothing is changed then.
        """
        start, new = self.length, key.shape[2]
        check_room(start, new, self.capacity)
        for name, array in (("key", key), ("value", value)):
            if array.dtype != self.key_slots.dtype:
                raise TypeError(
                    f"{name} has dtype {array.dtype}, but the cache has "
                    f"{self.key_slots.dtype}; they must be the same")
        if positions is None:
            positions = self.next_positions(new)
        self.length = start + new
        self.key[:, :, start:] = key
        self.value[:, :, start:] = value
        self.positions[:, start:] = positions
        return self.key, self.value

    @shape_checked
    def rollback(self, length: int) -> None:
        """Forget all but the first ``length`` slots; they can be written anew.

        Args:
            length: Number of slots to keep, in all sequences.

        Raises:
            ValueError: ``length`` is negative, or more than are filled.
        """
        check_rollback(length, self.length)
        self.position_slots[:, length:] = -1
        self.length = length

    def reset(self) -> None:
        """Forget everything, to begin new texts in the same memory."""
        self.rollback(0)


@dataclass(frozen=True)
class StepCost:
    """What one step of one layer costs, for all sequences of a batch.

    Attributes:
        projection_flops: For the products with ``W_q`` to ``W_o``; a multiply
            and an add are two operations.
        attention_flops: For the scores and the weighted sum of the values.
            Softmax is not counted.
        weight_bytes: Read once, whatever the batch.
        cache_bytes: Keys and values read, all filled slots.
    """

    projection_flops: int
    attention_flops: int
    weight_bytes: int
    cache_bytes: int


class CachedSelfAttention:
    """Causal self-attention that can go on from where it stopped.

    The layer owns weights and nothing else. What it has read is in the cache
    that is handed to it, so one layer can serve many texts at once.

    Attributes:
        embed_dim: Width of a token's embedding, and of the output.
        num_heads: Number of query heads.
        num_key_value_heads: Number of key heads, and of value heads.
        head_dim: Width of one head.
        rotary: Whether queries and keys are turned by their position.
        W_q: ``(embed_dim, num_heads * head_dim)``, used as ``x @ W_q``.
        W_k, W_v: ``(embed_dim, num_key_value_heads * head_dim)``.
        W_o: ``(num_heads * head_dim, embed_dim)``.
        b_q, b_k, b_v, b_o: The biases, or None.

    Source: Shazeer (2019), sections 2.4 and 3; Ainslie et al. (2023).
    """

    @shape_checked
    def __init__(self, embed_dim: int, num_heads: int, *,
                 num_key_value_heads: int | None = None,
                 head_dim: int | None = None, bias: bool = False,
                 rotary: bool = False, rng: Random | None = None,
                 dtype: DTypeLike = np.float64) -> None:
        """Draw new weights.

        Args:
            embed_dim: Width of the embeddings, at least 1.
            num_heads: Number of query heads, at least 1.
            num_key_value_heads: Divides ``num_heads``, which it is if None.
            head_dim: Width of one head; ``embed_dim // num_heads`` if None.
            bias: Whether each of the four products adds a bias (zero at
                first).
            rotary: Whether to turn queries and keys by their position;
                ``head_dim`` must be even then.
            rng: Source of the weights; a fresh one if None.
            dtype: A floating-point dtype.

        Raises:
            ValueError: A size is below 1, does not divide as it should or is
                odd, or ``dtype`` is not floating point.
        """
        self.embed_dim, self.num_heads = embed_dim, num_heads
        self.head_dim = check_head_dim(embed_dim, num_heads, head_dim)
        self.num_key_value_heads = check_groups(num_heads,
                                                num_key_value_heads)
        self.rotary = rotary
        if rotary:
            check_pairs(self.head_dim)
        _check_floating("CachedSelfAttention", dtype)
        rng = np.random.default_rng() if rng is None else rng
        for name, shape in self._weight_shapes().items():
            limit = math.sqrt(6 / sum(shape))
            weight = rng.uniform(-limit, limit, size=shape)
            setattr(self, f"W_{name}", weight.astype(dtype))
            zeros = np.zeros(shape[1], dtype) if bias else None
            setattr(self, f"b_{name}", zeros)

    def _weight_shapes(self) -> dict[str, tuple[int, int]]:
        return grouped_projection_shapes(self.embed_dim, self.num_heads,
                                         self.num_key_value_heads,
                                         self.head_dim)

    @shape_checked
    def new_cache(self, batch: int, capacity: int) -> KeyValueCache:
        """Make an empty cache of the sizes and the dtype of this layer.

        Args:
            batch: Number of sequences, at least 0.
            capacity: Number of tokens of each, padding included.
        """
        return KeyValueCache(batch, self.num_key_value_heads, capacity,
                             self.head_dim, dtype=self.W_k.dtype)

    @shape_checked
    def project(self, x: Real[ndarray, "batch seq_len {self.embed_dim}"],
                positions: Integer[ndarray, "batch seq_len"]
                ) -> tuple[Float[ndarray, "batch heads seq_len head_dim"],
                           Float[ndarray, "batch kv_heads seq_len head_dim"],
                           Float[ndarray, "batch kv_heads seq_len head_dim"]]:
        """Make the queries, keys and values of every head.

        Args:
            x: Embeddings of a batch of sequences.
            positions: Position of each token, -1 for padding. Without rotary
                positions they change nothing.

        Returns:
            Query, key and value, turned by their position if the layer is
            ``rotary`` (the values never are).
        """
        query = separate_heads(_linear(x, self.W_q, self.b_q), self.num_heads)
        key, value = (
            separate_heads(_linear(x, W, b), self.num_key_value_heads)
            for W, b in ((self.W_k, self.b_k), (self.W_v, self.b_v)))
        if self.rotary:
            # Padding has no position; since nobody reads it, 0 will do.
            where = np.maximum(positions, 0)[:, None, :]
            query, key = apply_rotary(query, where), apply_rotary(key, where)
        return query, key, value

    @shape_checked
    def __call__(
        self, x: Real[ndarray, "batch seq_len {self.embed_dim}"],
        padding_mask: Bool[ndarray, "batch 1 1 seq_len"] | None = None
    ) -> Float[ndarray, "batch seq_len {self.embed_dim}"]:
        """Compute the full causal pass, without a cache.

        Args:
            x: Embeddings of a batch of sequences.
            padding_mask: True = a real token; None: all are.

        Returns:
            The new embeddings. A padding token gets the bias ``b_o``, or
            zeros where there is none.

        Raises:
            ValueError, TypeError: A shape or a dtype does not fit.
        """
        batch, seq_len, _ = x.shape
        if padding_mask is None:
            padding_mask = np.ones((batch, 1, 1, seq_len), bool)
        positions = position_ids(padding_mask)
        heads = grouped_query_attention(*self.project(x, positions),
                                        position_mask(positions, positions))
        return _linear(combine_heads(heads), self.W_o, self.b_o)

    @shape_checked
    def prefill(
        self, x: Real[ndarray, "batch seq_len {self.embed_dim}"],
        cache: KeyValueCache,
        padding_mask: Bool[ndarray, "batch 1 1 seq_len"] | None = None
    ) -> Float[ndarray, "batch seq_len {self.embed_dim}"]:
        """Read several tokens at once, after those that the cache holds.

        Args:
            x: Embeddings of the next tokens of each sequence.
            cache: Is extended by them; empty at the beginning of a text.
            padding_mask: True = a real token, for the tokens of ``x`` alone;
                None: all are.

        Returns:
            The rows that the full pass would give to these tokens. A padding
            token gets the bias ``b_o``, or zeros where there is none.

        Raises:
            ValueError: The cache has too few empty slots, or was made for
                other sizes.
            TypeError: The cache has another dtype.

        The cache is not changed then.
        """
        check_cache_fits(vars(cache), {
            "batch": len(x), "head_dim": self.head_dim,
            "num_key_value_heads": self.num_key_value_heads})
        positions = cache.next_positions(x.shape[1], padding_mask)
        query, key, value = self.project(x, positions)
        key, value = cache.append(key, value, positions)
        mask = position_mask(positions, cache.positions)
        # A newest token without padding sees all: it needs no mask.
        heads = grouped_query_attention(query, key, value,
                                        None if mask.all() else mask)
        return _linear(combine_heads(heads), self.W_o, self.b_o)

    @shape_checked
    def step(self, x: Real[ndarray, "batch 1 {self.embed_dim}"],
             cache: KeyValueCache
             ) -> Float[ndarray, "batch 1 {self.embed_dim}"]:
        """Read one more token of each sequence: a prefill of length 1.

        Args:
            x: Embedding of the newest token of each sequence.
            cache: Is extended by it.

        Returns:
            The last row of the full pass, for each sequence.

        Raises:
            ValueError, TypeError: As for :meth:`prefill`.
        """
        return self.prefill(x, cache)

    @shape_checked
    def step_cost(self, length: int, *, batch: int = 1) -> StepCost:
        """Count what a step costs, from the sizes alone.

        Args:
            length: Number of filled slots after the step, at least 1.
            batch: Number of sequences, at least 1.

        Returns:
            Operations and bytes; the attention's share grows with ``length``.
        """
        check_positive(length=length, batch=batch)
        numbers = sum(rows * columns for rows, columns
                      in self._weight_shapes().values())
        inner = self.num_heads * self.head_dim
        kept = 2 * self.num_key_value_heads * self.head_dim
        itemsize = self.W_k.dtype.itemsize
        return StepCost(projection_flops=2 * batch * numbers,
                        attention_flops=4 * batch * inner * length,
                        weight_bytes=numbers * itemsize,
                        cache_bytes=batch * kept * length * itemsize)

    def parameter_arrays(self) -> dict[str, ndarray]:
        """Copy the weights, by name, in the layout of this class.

        Returns:
            ``W_q`` to ``W_o``, and ``b_q`` to ``b_o`` where there are biases.
        """
        names = [f"W_{name}" for name in self._weight_shapes()]
        names += [f"b_{name}" for name in self._weight_shapes()]
        arrays = {name: getattr(self, name) for name in names}
        return {name: array.copy() for name, array in arrays.items()
                if array is not None}

    @shape_checked
    def load_parameter_arrays(
        self, arrays: Mapping[str, Float[ndarray, "..."]]) -> None:
        """Take over weights, exactly.

        Args:
            arrays: What ``parameter_arrays`` of any variant gives, also of
                ``MultiHeadSelfAttention`` where every head has its own key.

        Raises:
            ValueError: A name is missing or unknown, or a shape is wrong.
            TypeError: Not a NumPy array of floating-point numbers.

        Nothing is changed then.
        """
        given = {name: array.shape for name, array in arrays.items()}
        check_parameter_shapes(given, self._weight_shapes())
        for name in self._weight_shapes():
            setattr(self, f"W_{name}", arrays[f"W_{name}"].copy())
            bias = arrays.get(f"b_{name}")
            setattr(self, f"b_{name}", None if bias is None else bias.copy())
