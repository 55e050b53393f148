"""Decoding in PyTorch: one token at a time, on any device.

The names, shapes and rules are those of ``numpy_decoding``; the code was
written anew. ``CachedSelfAttention.forward`` is an ordinary differentiable
pass; ``prefill`` and ``step`` write into the cache and record no gradient,
since a text that is being written has no loss yet.

Sources
-------
Shazeer, "Fast Transformer Decoding" (2019), arXiv:1911.02150.
Ainslie et al., "GQA" (2023), arXiv:2305.13245.
Su et al., "RoFormer" (2021), arXiv:2104.09864.
"""

from collections.abc import Mapping

import torch
from jaxtyping import Bool, Float, Integer, Shaped
from numpy import ndarray
from torch import Tensor, nn

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
    check_scale,
    grouped_projection_shapes,
)
from self_attention._shapes import shape_checked
from self_attention.torch_block import _float_or_default, apply_rotary
from self_attention.torch_eager import (
    _working_dtype,
    causal_mask,
    check_alike,
    check_bias,
    combine_heads,
    combine_masks,
    separate_heads,
    softmax,
    to_array,
    to_tensor,
    weighted_sum,
)

__all__ = [
    "CachedSelfAttention",
    "KeyValueCache",
    "grouped_query_attention",
    "position_ids",
    "position_mask",
    "repeat_key_value_heads",
]


@shape_checked
def position_ids(padding_mask: Bool[Tensor, "batch 1 1 seq_len"],
                 start: int | Integer[Tensor, "batch"] = 0
                 ) -> Integer[Tensor, "batch seq_len"]:
    """Count the real tokens of each sequence, from ``start``.

    Args:
        padding_mask: True = a real token.
        start: Position of the first real token, one for all sequences or one
            for each.

    Returns:
        The position of each real token; -1 for padding, on whichever side.
    """
    real = padding_mask.flatten(1)
    before = real.cumsum(dim=1) - real.long()
    if isinstance(start, Tensor):
        start = start.unsqueeze(1)
    return (before + start).masked_fill(~real, -1)


@shape_checked
def position_mask(query_positions: Integer[Tensor, "batch query_len"],
                  key_positions: Integer[Tensor, "batch key_len"]
                  ) -> Bool[Tensor, "batch 1 query_len key_len"]:
    """Let each query attend to the keys at or before its own position.

    Args:
        query_positions: Position of each query, -1 for padding.
        key_positions: Position of each key, in any order, -1 for padding and
            for slots that nobody has written.

    Returns:
        Boolean mask, True = may attend.
    """
    distance = query_positions.unsqueeze(2) - key_positions.unsqueeze(1)
    written = (key_positions != -1).unsqueeze(1)
    return ((distance >= 0) & written).unsqueeze(1)


@shape_checked
def repeat_key_value_heads(
    x: Shaped[Tensor, "*batch kv_heads key_len head_dim"], num_heads: int
) -> Shaped[Tensor, "*batch {num_heads} key_len head_dim"]:
    """Give every query head a copy of the key or value head that it uses.

    Args:
        x: Keys or values of ``kv_heads`` heads.
        num_heads: Number of query heads, a multiple of ``kv_heads``.

    Returns:
        Head h is a copy of head ``h // (num_heads / kv_heads)``.

    Raises:
        ValueError: ``num_heads`` is not a multiple of ``kv_heads``.

    Source: Ainslie et al. (2023), section 2.2.
    """
    kv_heads = check_groups(num_heads, x.shape[-3])
    return x.repeat_interleave(num_heads // kv_heads, dim=-3)


@shape_checked
def grouped_query_attention(
    query: Float[Tensor, "*batch num_heads query_len head_dim"],
    key: Float[Tensor, "*batch kv_heads key_len head_dim"],
    value: Float[Tensor, "*batch kv_heads key_len value_dim"],
    attention_mask: Bool[Tensor, "..."] | None = None,
    *,
    scale: float | int | None = None,
) -> Float[Tensor, "*batch num_heads query_len value_dim"]:
    """Attend with several query heads to each key and value head.

    Args:
        query: One row for each head and each token that asks.
        key: As many heads, fewer, or a single one; their number divides
            ``num_heads``.
        value: As many heads as ``key``.
        attention_mask: True = may attend; broadcasts to
            ``(*batch, num_heads, query_len, key_len)``.
        scale: Factor on the scores; ``1 / sqrt(head_dim)`` if None.

    Returns:
        What ``scaled_dot_product_attention`` gives on the repeated heads.

    Raises:
        ValueError: ``num_heads`` is not a multiple of ``kv_heads``, a shape
            or a device does not fit, or ``scale`` is not finite.
        TypeError: An argument is not a floating-point tensor, the dtypes
            differ, or the mask is not boolean.

    Source: Shazeer (2019), section 3; Ainslie et al. (2023), section 2.2.
    """
    check_alike(attention_mask, query=query, key=key, value=value)
    scale = check_scale(scale, query.shape[-1])
    kv_heads = check_groups(query.shape[-3], key.shape[-3])
    groups = (kv_heads, query.shape[-3] // kv_heads)
    if attention_mask is not None:
        shape = (*query.shape[:-1], key.shape[-2])
        check_mask_broadcasts(attention_mask.shape, shape)
        attention_mask = attention_mask.expand(shape).unflatten(-3, groups)
        if torch.is_grad_enabled():
            key, value = _clear_unattended(key, value, attention_mask)
    # Letters: k key head, g query head of its group, q query, t key, d width.
    working = _working_dtype(query)
    scores = scale * torch.einsum(
        "...kgqd,...ktd->...kgqt",
        query.to(working).unflatten(-3, groups), key.to(working))
    if attention_mask is not None:
        scores = scores.masked_fill(~attention_mask, -torch.inf)
    weights = softmax(scores).to(query.dtype)
    return _sum_in_groups(weights, value, attention_mask).flatten(-4, -3)


def _clear_unattended(key: Tensor, value: Tensor,
                      attention_mask: Tensor) -> tuple[Tensor, Tensor]:
    """Set to zero what no query of the group may attend to.

    In the backward pass a masked NaN would come back as 0 * NaN.
    """
    unattended = ~attention_mask.flatten(-3, -2).any(dim=-2).unsqueeze(-1)
    return key.masked_fill(unattended, 0), value.masked_fill(unattended, 0)


def _sum_in_groups(weights: Tensor, value: Tensor,
                   attention_mask: Tensor | None) -> Tensor:
    """Average the values of each group, and keep a masked NaN out of it."""
    if attention_mask is None or torch.isfinite(value).all():
        return torch.einsum("...kgqt,...ktv->...kgqv", weights, value)
    group = weights.shape[-3]
    spread = value.unsqueeze(-3).expand(*value.shape[:-2], group,
                                        *value.shape[-2:])
    return weighted_sum(weights, spread, attention_mask)


class KeyValueCache:
    """Room for the keys and values of a fixed number of tokens.

    Attributes:
        batch: Number of sequences.
        num_key_value_heads: Number of key heads, and of value heads.
        capacity: Number of slots of each sequence.
        head_dim: Width of a key and of a value.
        length: Number of slots that are filled, the same in all sequences.
        has_padding: Whether a slot may have been filled with padding.
        key_slots, value_slots: ``(batch, num_key_value_heads, capacity,
            head_dim)``. A slot that was never written holds NaN.
        position_slots: ``(batch, capacity)``; -1 for padding and for every
            slot from ``length`` on.

    Source: Shazeer (2019), section 2.4.
    """

    @shape_checked
    def __init__(self, batch: int, num_key_value_heads: int, capacity: int,
                 head_dim: int, *, device: torch.device | str | None = None,
                 dtype: torch.dtype | None = None) -> None:
        """Reserve the memory, once.

        Args:
            batch: At least 0.
            num_key_value_heads: At least 1.
            capacity: At least 0.
            head_dim: At least 1.
            device: Where the cache lives.
            dtype: A floating-point dtype; PyTorch's default if None.

        Raises:
            ValueError: A size is too small, or ``dtype`` is not floating
                point.
        """
        check_not_negative(batch=batch, capacity=capacity)
        check_positive(num_key_value_heads=num_key_value_heads,
                       head_dim=head_dim)
        dtype = _float_or_default("KeyValueCache", dtype)
        self.batch, self.num_key_value_heads = batch, num_key_value_heads
        self.capacity, self.head_dim = capacity, head_dim
        shape = (batch, num_key_value_heads, capacity, head_dim)
        self.key_slots, self.value_slots = (
            torch.full(shape, torch.nan, dtype=dtype, device=device)
            for _ in range(2))
        self.position_slots = torch.full((batch, capacity), -1, device=device)
        self.length, self.has_padding = 0, False

    @property
    def key(self) -> Tensor:
        """The keys of the filled slots: a view, not a copy."""
        return self.key_slots.narrow(2, 0, self.length)

    @property
    def value(self) -> Tensor:
        """The values of the filled slots: a view, not a copy."""
        return self.value_slots.narrow(2, 0, self.length)

    @property
    def positions(self) -> Tensor:
        """The positions of the filled slots, -1 for padding: a view."""
        return self.position_slots.narrow(1, 0, self.length)

    @property
    def nbytes(self) -> int:
        """Bytes reserved for keys and values, filled or not."""
        return self.key_slots.nbytes + self.value_slots.nbytes

    @shape_checked
    def next_positions(
        self, new: int,
        padding_mask: Bool[Tensor, "{self.batch} 1 1 {new}"] | None = None
    ) -> Integer[Tensor, "{self.batch} {new}"]:
        """Say which positions the next tokens will have.

        Args:
            new: Number of tokens, at least 0.
            padding_mask: True = a real token; None: all are.

        Returns:
            For each sequence, what follows its last real token; -1 for
            padding.
        """
        check_not_negative(new=new)
        device = self.position_slots.device
        # Unwritten slots count as -1: there is always a largest position.
        before = self.position_slots.new_full((self.batch, 1), -1)
        start = torch.cat([before, self.positions], dim=1).amax(dim=1) + 1
        if padding_mask is not None:
            return position_ids(padding_mask, start)
        return start.unsqueeze(1) + torch.arange(new, device=device)

    @shape_checked
    def append(
        self,
        key: Float[Tensor,
                   "{self.batch} {self.num_key_value_heads} new "
                   "{self.head_dim}"],
        value: Float[Tensor,
                     "{self.batch} {self.num_key_value_heads} new "
                     "{self.head_dim}"],
        positions: Integer[Tensor, "{self.batch} new"] | None = None
    ) -> tuple[Float[Tensor, "batch kv_heads length head_dim"],
               Float[Tensor, "batch kv_heads length head_dim"]]:
        """Write the keys and values of new tokens into the next slots.

        Args:
            key: In the dtype and on the device of the cache. Its gradient is
                not recorded.
            value: As ``key``.
            positions: Position of each token, -1 for padding; those of
                ``next_positions`` if None.

        Returns:
            Views of all keys and values so far.

        Raises:
            ValueError: A shape or a device does not fit, or there are not
                enough slots.
            TypeError: The dtype differs.

        Nothing is changed then.
        """
        start, new = self.length, key.shape[2]
        check_room(start, new, self.capacity)
        check_alike(cache=self.key_slots, key=key, value=value)
        self.has_padding |= positions is not None
        if positions is None:
            positions = self.next_positions(new)
        self.length = start + new
        with torch.no_grad():
            self.key.narrow(2, start, new).copy_(key)
            self.value.narrow(2, start, new).copy_(value)
            self.positions.narrow(1, start, new).copy_(positions)
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
        self.has_padding &= length > 0

    def reset(self) -> None:
        """Forget everything, to begin new texts in the same memory."""
        self.rollback(0)


class CachedSelfAttention(nn.Module):
    """Causal self-attention that can go on from where it stopped.

    Attributes:
        embed_dim: Width of a token's embedding, and of the output.
        num_heads: Number of query heads.
        num_key_value_heads: Number of key heads, and of value heads.
        head_dim: Width of one head.
        rotary: Whether queries and keys are turned by their position.
        W_q, W_k, W_v, W_o: ``nn.Linear``; ``W_k`` and ``W_v`` give
            ``num_key_value_heads * head_dim`` features.

    Source: Shazeer (2019), sections 2.4 and 3; Ainslie et al. (2023).
    """

    @shape_checked
    def __init__(self, embed_dim: int, num_heads: int, *,
                 num_key_value_heads: int | None = None,
                 head_dim: int | None = None, bias: bool = False,
                 rotary: bool = False,
                 device: torch.device | str | None = None,
                 dtype: torch.dtype | None = None) -> None:
        """Draw new weights; the arguments are those of ``numpy_decoding``.

        Args:
            embed_dim: Width of the embeddings, at least 1.
            num_heads: Number of query heads, at least 1.
            num_key_value_heads: Divides ``num_heads``, which it is if None.
            head_dim: Width of one head; ``embed_dim // num_heads`` if None.
            bias: Whether each of the four products adds a bias.
            rotary: Whether to turn queries and keys by their position.
            device: Where the weights live.
            dtype: A floating-point dtype; PyTorch's default if None.

        Raises:
            ValueError: A size is below 1, does not divide as it should or is
                odd, or ``dtype`` is not floating point.
        """
        super().__init__()
        self.embed_dim, self.num_heads = embed_dim, num_heads
        self.head_dim = check_head_dim(embed_dim, num_heads, head_dim)
        self.num_key_value_heads = check_groups(num_heads,
                                                num_key_value_heads)
        self.rotary = rotary
        if rotary:
            check_pairs(self.head_dim)
        dtype = _float_or_default("CachedSelfAttention", dtype)
        for name, (inward, outward) in self._weight_shapes().items():
            linear = nn.Linear(inward, outward, bias=bias, device=device,
                               dtype=dtype)
            nn.init.xavier_uniform_(linear.weight)
            if bias:
                nn.init.zeros_(linear.bias)
            self.add_module(f"W_{name}", linear)

    def _weight_shapes(self) -> dict[str, tuple[int, int]]:
        return grouped_projection_shapes(self.embed_dim, self.num_heads,
                                         self.num_key_value_heads,
                                         self.head_dim)

    @shape_checked
    def new_cache(self, batch: int, capacity: int) -> KeyValueCache:
        """Make an empty cache that fits this layer, on its device.

        Args:
            batch: Number of sequences, at least 0.
            capacity: Number of tokens of each, padding included.
        """
        weight = self.W_k.weight
        return KeyValueCache(batch, self.num_key_value_heads, capacity,
                             self.head_dim, device=weight.device,
                             dtype=weight.dtype)

    @shape_checked
    def project(self, x: Float[Tensor, "batch seq_len {self.embed_dim}"],
                positions: Integer[Tensor, "batch seq_len"]
                ) -> tuple[Float[Tensor, "batch heads seq_len head_dim"],
                           Float[Tensor, "batch kv_heads seq_len head_dim"],
                           Float[Tensor, "batch kv_heads seq_len head_dim"]]:
        """Make the queries, keys and values of every head.

        Args:
            x: Embeddings of a batch of sequences.
            positions: Position of each token, -1 for padding. Without rotary
                positions they change nothing.

        Returns:
            Query, key and value; the first two turned if the layer is
            ``rotary``.
        """
        check_alike(weight=self.W_q.weight, x=x)
        query = separate_heads(self.W_q(x), self.num_heads)
        key = separate_heads(self.W_k(x), self.num_key_value_heads)
        value = separate_heads(self.W_v(x), self.num_key_value_heads)
        if self.rotary:
            where = positions.clamp(min=0).unsqueeze(1)
            query, key = apply_rotary(query, where), apply_rotary(key, where)
        return query, key, value

    @shape_checked
    def forward(
        self, x: Float[Tensor, "batch seq_len {self.embed_dim}"],
        padding_mask: Bool[Tensor, "batch 1 1 seq_len"] | None = None
    ) -> Float[Tensor, "batch seq_len {self.embed_dim}"]:
        """Compute the full causal pass, without a cache.

        Args:
            x: Embeddings of a batch of sequences, in the weights' dtype.
            padding_mask: True = a real token; None: all are.

        Returns:
            The new embeddings. A padding token gets the bias of ``W_o``, or
            zeros where there is none.

        Raises:
            ValueError, TypeError: A shape, dtype or device does not fit.
        """
        batch, seq_len, _ = x.shape
        mask = causal_mask(seq_len, device=x.device)
        if padding_mask is None:
            positions = torch.arange(seq_len, device=x.device)
            positions = positions.expand(batch, seq_len)
        else:
            positions = position_ids(padding_mask)
            # The queries' own axis too: padding asks for nothing.
            mask = combine_masks(mask, padding_mask, padding_mask.mT)
        heads = grouped_query_attention(*self.project(x, positions), mask)
        return self.W_o(combine_heads(heads))

    @shape_checked
    def prefill(
        self, x: Float[Tensor, "batch seq_len {self.embed_dim}"],
        cache: KeyValueCache,
        padding_mask: Bool[Tensor, "batch 1 1 seq_len"] | None = None
    ) -> Float[Tensor, "batch seq_len {self.embed_dim}"]:
        """Read several tokens at once, after those that the cache holds.

        Args:
            x: Embeddings of the next tokens of each sequence.
            cache: Is extended by them; empty at the beginning of a text.
            padding_mask: True = a real token, for the tokens of ``x`` alone;
                None: all are.

        Returns:
            The rows that the full pass would give to these tokens, without a
            gradient.

        Raises:
            ValueError: The cache has too few empty slots, was made for other
                sizes, or is on another device.
            TypeError: The cache has another dtype.

        The cache is not changed then.
        """
        check_cache_fits(vars(cache), {
            "batch": len(x), "head_dim": self.head_dim,
            "num_key_value_heads": self.num_key_value_heads})
        new = x.shape[1]
        positions = cache.next_positions(new, padding_mask)
        with torch.no_grad():
            query, key, value = self.project(x, positions)
            key, value = cache.append(
                key, value, None if padding_mask is None else positions)
            # A newest token without padding sees all: it needs no mask.
            mask = (None if new == 1 and not cache.has_padding
                    else position_mask(positions, cache.positions))
            heads = grouped_query_attention(query, key, value, mask)
            return self.W_o(combine_heads(heads))

    @shape_checked
    def step(self, x: Float[Tensor, "batch 1 {self.embed_dim}"],
             cache: KeyValueCache
             ) -> Float[Tensor, "batch 1 {self.embed_dim}"]:
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

    def parameter_arrays(self) -> dict[str, ndarray]:
        """Copy the weights, by name, in the layout of ``numpy_decoding``.

        Returns:
            NumPy arrays ``W_q`` to ``W_o``, used as ``x @ W_q``, and ``b_q``
            to ``b_o`` where there are biases.
        """
        linears = {name: self.get_submodule(f"W_{name}")
                   for name in self._weight_shapes()}
        arrays = {f"W_{name}": to_array(linear.weight.mT)
                  for name, linear in linears.items()}
        return arrays | {f"b_{name}": to_array(linear.bias)
                         for name, linear in linears.items()
                         if linear.bias is not None}

    @shape_checked
    def load_parameter_arrays(
        self, arrays: Mapping[str, Float[ndarray, "..."]]) -> None:
        """Take over weights, exactly where the dtype can hold them.

        Args:
            arrays: What ``parameter_arrays`` of any variant gives. The layer
                must have been made with ``bias=True`` if there are biases.

        Raises:
            ValueError: A name is missing or unknown, or a shape is wrong.
            TypeError: Not a NumPy array of floating-point numbers.

        Nothing is changed then.
        """
        given = {name: array.shape for name, array in arrays.items()}
        check_parameter_shapes(given, self._weight_shapes())
        check_bias(self.W_q.bias is not None, arrays)
        with torch.no_grad():
            for name in self._weight_shapes():
                linear = self.get_submodule(f"W_{name}")
                linear.weight.copy_(to_tensor(arrays[f"W_{name}"]).mT)
                if linear.bias is not None:
                    linear.bias.copy_(to_tensor(arrays[f"b_{name}"]))
