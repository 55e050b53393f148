"""Self-attention in PyTorch, step by step, on any device.

The names, shapes and rules are those of ``numpy_reference``; the code was
written anew, so that their agreement is evidence for both. Every step is an
ordinary tensor operation that autograd can follow.

Sources
-------
Vaswani et al., "Attention Is All You Need" (2017), arXiv:1706.03762.
"""

import functools
from collections.abc import Mapping, Sequence

import torch
from jaxtyping import Bool, Float, Integer, Shaped
from numpy import ndarray
from torch import Tensor, nn

from self_attention._checks import (
    check_axis,
    check_divides,
    check_head_dim,
    check_lengths,
    check_mask_broadcasts,
    check_not_negative,
    check_parameter_shapes,
    check_scale,
    projection_shapes,
)
from self_attention._shapes import shape_checked

__all__ = [
    "MultiHeadSelfAttention",
    "attention_weights",
    "causal_mask",
    "combine_heads",
    "combine_masks",
    "padding_mask",
    "scaled_dot_product_attention",
    "separate_heads",
    "softmax",
]


@shape_checked
def softmax(scores: Float[Tensor, "..."],
            axis: int = -1) -> Float[Tensor, "..."]:
    """Turn scores into positive weights that sum to 1 along one axis.

    Args:
        scores: Floating-point numbers; ``-inf`` stands for "not at all".
        axis: The axis along which the weights sum to 1.

    Returns:
        Weights in [0, 1] with the shape and dtype of ``scores``; half
        precision is computed in float32 and rounded once. A slice whose
        scores are all ``-inf`` becomes zeros, and its gradient is zero.

    Raises:
        TypeError: ``scores`` is not a floating-point tensor. (Integers are
            refused: a tensor keeps its dtype, and weights need fractions.)
        IndexError: ``scores`` has no such axis.

    Source: Vaswani et al. (2017), eq. 1.
    """
    check_axis(axis, scores.dim())
    # Without a finite score, softmax would be NaN, and so would its gradient.
    nowhere = torch.isneginf(scores).all(dim=axis, keepdim=True)
    finite = scores.masked_fill(nowhere, 0)
    weights = torch.softmax(finite, dim=axis, dtype=_working_dtype(scores))
    return weights.masked_fill(nowhere, 0).to(scores.dtype)


@shape_checked
def causal_mask(query_len: int, key_len: int | None = None, *,
                device: torch.device | str | None = None
                ) -> Bool[Tensor, "query_len key_len"]:
    """Let each query attend to the keys at or before its own position.

    Args:
        query_len: Number of queries, at least 0.
        key_len: Number of keys, at least 0; as many as queries if None.
        device: Where the mask is made.

    Returns:
        Boolean mask, True = may attend, aligned at the bottom right: the last
        query may attend to every key.

    Raises:
        ValueError: A length is negative.

    Source: Vaswani et al. (2017), section 3.2.3.
    """
    key_len = query_len if key_len is None else key_len
    check_not_negative(query_len=query_len, key_len=key_len)
    everything = torch.ones(query_len, key_len, dtype=torch.bool,
                            device=device)
    return everything.tril(diagonal=key_len - query_len)


@shape_checked
def padding_mask(lengths: Sequence[int] | Integer[Tensor, "batch"],
                 seq_len: int, *, side: str = "right",
                 device: torch.device | str | None = None
                 ) -> Bool[Tensor, "batch 1 1 seq_len"]:
    """Let every query attend to the real tokens and to no padding.

    Args:
        lengths: Number of real tokens of each sequence, 0 to ``seq_len``.
        seq_len: Length to which the sequences were padded.
        side: Where the padding stands, "right" or "left".
        device: Where the mask is made; with a tensor of lengths, by default
            where that is.

    Returns:
        Boolean mask, True = may attend.

    Raises:
        ValueError: A length is outside 0..seq_len, or ``side`` is unknown.
    """
    if isinstance(lengths, Tensor):
        device = lengths.device if device is None else device
        lengths = lengths.tolist()
    check_lengths(lengths, seq_len, side)
    count = torch.tensor(lengths, dtype=torch.int64, device=device)
    position = torch.arange(seq_len, device=device)
    real = position < count[:, None]
    real = real.flip(-1) if side == "left" else real
    return real[:, None, None, :]


@shape_checked
def combine_masks(*masks: Bool[Tensor, "..."] | None
                  ) -> Bool[Tensor, "..."] | None:
    """Let a query attend where every mask lets it: a logical "and".

    Args:
        *masks: Boolean masks, True = may attend, whose shapes broadcast;
            None stands for "no mask".

    Returns:
        The combined mask, or None if there was none to combine.

    Raises:
        ValueError: The shapes do not broadcast, or the devices differ.
    """
    given = {f"masks[{index}]": mask for index, mask in enumerate(masks)
             if mask is not None}
    if not given:
        return None
    check_alike(**given)
    try:
        return functools.reduce(torch.logical_and, given.values())
    except RuntimeError:
        shapes = ", ".join(str(tuple(mask.shape)) for mask in given.values())
        raise ValueError(f"combine_masks: masks of shapes {shapes} do not "
                         "broadcast to one shape") from None


@shape_checked
def attention_weights(
    query: Float[Tensor, "*batch query_len head_dim"],
    key: Float[Tensor, "*batch key_len head_dim"],
    attention_mask: Bool[Tensor, "..."] | None = None,
    *,
    scale: float | int | None = None,
) -> Float[Tensor, "*batch query_len key_len"]:
    """Say how much each query attends to each key.

    Args:
        query: One row for each token that asks.
        key: One row for each token that may be attended to.
        attention_mask: True = may attend; broadcasts to
            ``(*batch, query_len, key_len)``.
        scale: Factor on the scores; ``1 / sqrt(head_dim)`` if None.

    Returns:
        Weights in [0, 1] in the dtype of the query. Each row sums to 1; a
        query that may attend nowhere has the row zero, and finite gradients.
        Half precision is computed in float32 and rounded once.

    Raises:
        ValueError: A shape does not fit, the mask does not broadcast,
            ``scale`` is not finite, or the devices differ.
        TypeError: An argument is not a floating-point tensor, the dtypes
            differ, or the mask is not boolean.

    Source: Vaswani et al. (2017), eq. 1, the softmax factor.
    """
    check_alike(attention_mask, query=query, key=key)
    scale = check_scale(scale, query.shape[-1])
    working = _working_dtype(query)
    scores = query.to(working) @ key.to(working).mT * scale
    if attention_mask is not None:
        check_mask_broadcasts(attention_mask.shape, scores.shape)
        scores = scores.masked_fill(~attention_mask, -torch.inf)
    return softmax(scores).to(query.dtype)


@shape_checked
def scaled_dot_product_attention(
    query: Float[Tensor, "*batch query_len head_dim"],
    key: Float[Tensor, "*batch key_len head_dim"],
    value: Float[Tensor, "*batch key_len value_dim"],
    attention_mask: Bool[Tensor, "..."] | None = None,
    *,
    scale: float | int | None = None,
) -> Float[Tensor, "*batch query_len value_dim"]:
    """Give each query the average of the values, weighted by attention.

    Args:
        query: One row for each token that asks.
        key: One row for each token that may be attended to.
        value: What each of those tokens has to give.
        attention_mask: True = may attend; broadcasts to
            ``(*batch, query_len, key_len)``.
        scale: Factor on the scores; ``1 / sqrt(head_dim)`` if None.

    Returns:
        One row for each query. A query that may attend nowhere gets zeros and
        finite gradients. A masked key and its value have no part in the
        result, not even when they are NaN; when no query may attend to them
        (padding), they have no part in the gradients either.

    Raises:
        ValueError, TypeError: As for :func:`attention_weights`.

    Source: Vaswani et al. (2017), eq. 1.
    """
    check_alike(attention_mask, query=query, key=key, value=value)
    if attention_mask is not None:
        key, value = clear_unattended(query, key, value, attention_mask)
    weights = attention_weights(query, key, attention_mask, scale=scale)
    return weighted_sum(weights, value, attention_mask)


def weighted_sum(weights: Tensor, value: Tensor,
                 attention_mask: Tensor | None) -> Tensor:
    """Average the values, and keep what is masked out of it, even NaN."""
    if attention_mask is None or torch.isfinite(value).all():
        return weights @ value
    # 0 * NaN is NaN: a masked value must be left out, not multiplied by 0.
    hidden = ~attention_mask.expand(weights.shape).unsqueeze(-1)
    values_of_each_query = value.unsqueeze(-3).masked_fill(hidden, 0)
    return (weights.unsqueeze(-2) @ values_of_each_query).squeeze(-2)


def clear_unattended(query: Tensor, key: Tensor, value: Tensor,
                     attention_mask: Tensor) -> tuple[Tensor, Tensor]:
    """Set to zero the keys and values that no query may attend to.

    Padding may hold anything, NaN as well. A masked score is replaced, but in
    the products of the backward pass a NaN would come back as 0 * NaN.

    Args:
        query: ``(*batch, query_len, head_dim)``, for its shape only.
        key: ``(*batch, key_len, head_dim)``.
        value: ``(*batch, key_len, value_dim)``.
        attention_mask: Boolean, True = may attend.

    Returns:
        Key and value, of unchanged shape.

    Raises:
        ValueError: The mask does not broadcast to the scores.
    """
    shape = (*query.shape[:-1], key.shape[-2])
    check_mask_broadcasts(attention_mask.shape, shape)
    attended = torch.atleast_2d(attention_mask).any(dim=-2).unsqueeze(-1)
    return key.masked_fill(~attended, 0), value.masked_fill(~attended, 0)


@shape_checked
def separate_heads(
    x: Shaped[Tensor, "*batch seq_len width"], num_heads: int
) -> Shaped[Tensor, "*batch {num_heads} seq_len head_dim"]:
    """Cut the features of every token into one slice for each head.

    Args:
        x: Features of all heads side by side.
        num_heads: Number of heads, at least 1; divides ``width``.

    Returns:
        The heads; ``combine_heads`` is the exact inverse.

    Raises:
        ValueError: ``num_heads`` is below 1 or does not divide the width.

    Source: Vaswani et al. (2017), section 3.2.2.
    """
    width = x.shape[-1]
    check_divides(width=width, num_heads=num_heads)
    return x.unflatten(-1, (num_heads, width // num_heads)).transpose(-3, -2)


@shape_checked
def combine_heads(
    x: Shaped[Tensor, "*batch num_heads seq_len head_dim"]
) -> Shaped[Tensor, "*batch seq_len width"]:
    """Put the heads of every token side by side again.

    Args:
        x: One slice of features for each head and token.

    Returns:
        The features, head 0 first. ``W_o`` is not part of this.

    Source: Vaswani et al. (2017), section 3.2.2, "Concat".
    """
    return x.transpose(-3, -2).flatten(-2)


class MultiHeadSelfAttention(nn.Module):
    """Several heads of self-attention and the matrix that combines them.

    Attributes:
        embed_dim: Width of a token's embedding, and of the output.
        num_heads: Number of heads.
        head_dim: Width of one head's query, key and value.
        W_q, W_k, W_v, W_o: ``nn.Linear``. A linear layer stores its matrix
            transposed, ``(out, in)``; ``parameter_arrays`` turns it round.

    Source: Vaswani et al. (2017), section 3.2.2.
    """

    @shape_checked
    def __init__(self, embed_dim: int, num_heads: int, *,
                 head_dim: int | None = None, bias: bool = False,
                 device: torch.device | str | None = None,
                 dtype: torch.dtype | None = None) -> None:
        """Draw new weights.

        Args:
            embed_dim: Width of the embeddings, at least 1.
            num_heads: Number of heads, at least 1.
            head_dim: Width of one head; ``embed_dim // num_heads`` if None.
            bias: Whether each of the four products adds a bias (zero at
                first).
            device: Where the weights live.
            dtype: A floating-point dtype; PyTorch's default if None.

        Raises:
            ValueError: A size is below 1, ``num_heads`` does not divide
                ``embed_dim``, or ``dtype`` is not floating point.
        """
        super().__init__()
        self.embed_dim, self.num_heads = embed_dim, num_heads
        self.head_dim = check_head_dim(embed_dim, num_heads, head_dim)
        check_floating(dtype)
        for name, (inward, outward) in self._weight_shapes().items():
            linear = nn.Linear(inward, outward, bias=bias, device=device,
                               dtype=dtype)
            nn.init.xavier_uniform_(linear.weight)
            if bias:
                nn.init.zeros_(linear.bias)
            self.add_module(f"W_{name}", linear)

    def _weight_shapes(self) -> dict[str, tuple[int, int]]:
        return projection_shapes(self.embed_dim, self.num_heads, self.head_dim)

    @shape_checked
    def project(self, x: Float[Tensor, "batch seq_len {self.embed_dim}"]
                ) -> tuple[Float[Tensor, "batch heads seq_len head_dim"],
                           Float[Tensor, "batch heads seq_len head_dim"],
                           Float[Tensor, "batch heads seq_len head_dim"]]:
        """Make the queries, keys and values of every head.

        Args:
            x: Embeddings of a batch of sequences.

        Returns:
            Query, key and value, each with the heads separated.

        Raises:
            TypeError: ``x`` has another dtype than the weights.
            ValueError: ``x`` has the wrong shape, or is on another device.
        """
        check_alike(weight=self.W_q.weight, x=x)
        return (separate_heads(self.W_q(x), self.num_heads),
                separate_heads(self.W_k(x), self.num_heads),
                separate_heads(self.W_v(x), self.num_heads))

    @shape_checked
    def forward(self, x: Float[Tensor, "batch seq_len {self.embed_dim}"],
                attention_mask: Bool[Tensor, "..."] | None = None
                ) -> Float[Tensor, "batch seq_len {self.embed_dim}"]:
        """Let every token gather from the tokens it may attend to.

        Args:
            x: Embeddings of a batch of sequences, in the weights' dtype.
            attention_mask: True = may attend; broadcasts to
                ``(batch, num_heads, seq_len, seq_len)``.

        Returns:
            The new embeddings. A token that may attend nowhere gets the bias
            of ``W_o``, or zeros where there is none.
        """
        query, key, value = self.project(x)
        heads = scaled_dot_product_attention(query, key, value, attention_mask)
        return self.W_o(combine_heads(heads))

    @shape_checked
    def attention_weights(
        self, x: Float[Tensor, "batch seq_len {self.embed_dim}"],
        attention_mask: Bool[Tensor, "..."] | None = None
    ) -> Float[Tensor, "batch {self.num_heads} seq_len seq_len"]:
        """Say how much each token attends to each other, in every head.

        Args:
            x: Embeddings of a batch of sequences.
            attention_mask: As for calling the layer.

        Returns:
            The weights that calling the layer uses; not averaged over heads.
        """
        query, key, _ = self.project(x)
        return attention_weights(query, key, attention_mask)

    def parameter_arrays(self) -> dict[str, ndarray]:
        """Copy the weights, by name, in the layout of ``numpy_reference``.

        Returns:
            NumPy arrays ``W_q`` to ``W_o``, used as ``x @ W_q``, and ``b_q``
            to ``b_o`` where there are biases. bfloat16, which NumPy lacks,
            comes as float32 (exactly).
        """
        weights = {f"W_{name}": self.get_submodule(f"W_{name}").weight.mT
                   for name in self._weight_shapes()}
        biases = {f"b_{name}": self.get_submodule(f"W_{name}").bias
                  for name in self._weight_shapes()}
        return {name: to_array(tensor)
                for name, tensor in (weights | biases).items()
                if tensor is not None}

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


def to_array(tensor: Tensor) -> ndarray:
    """Copy a tensor into a NumPy array; bfloat16 becomes float32."""
    tensor = tensor.detach().cpu()
    if tensor.dtype == torch.bfloat16:
        tensor = tensor.float()
    return tensor.contiguous().clone().numpy()


def to_tensor(array: ndarray) -> Tensor:
    """Copy a NumPy array into a tensor, whatever its strides."""
    return torch.from_numpy(array.copy())


def check_alike(attention_mask: Tensor | None = None,
                **tensors: Tensor) -> None:
    """Refuse tensors that differ in dtype or device.

    Args:
        attention_mask: Must be on the same device.
        **tensors: By the names that the message should use. Under autocast,
            which converts dtypes itself, only the device counts.

    Raises:
        TypeError: The dtypes differ.
        ValueError: The devices differ.
    """
    (first, one), *others = tensors.items()
    for name, other in others:
        if (other.dtype != one.dtype
                and not torch.is_autocast_enabled(one.device.type)):
            raise TypeError(f"{name} has dtype {other.dtype}, but {first} "
                            f"has {one.dtype}; they must be the same")
    if attention_mask is not None:
        others.append(("attention_mask", attention_mask))
    for name, other in others:
        if other.device != one.device:
            raise ValueError(f"{name} is on device {other.device}, but "
                             f"{first} on {one.device}; it must be the same")


def check_floating(dtype: torch.dtype | None) -> None:
    """Refuse a dtype that weights cannot have."""
    if dtype is not None and not dtype.is_floating_point:
        raise ValueError(f"MultiHeadSelfAttention: dtype={dtype} must be a "
                         "floating-point dtype")


def check_bias(has_bias: bool, arrays: Mapping[str, ndarray]) -> None:
    """Refuse biases that a layer has no place for, or lacks."""
    if has_bias != ("b_q" in arrays):
        raise ValueError(
            f"arrays {'has' if 'b_q' in arrays else 'lacks'} the biases "
            f"b_q..b_o, but the layer was made with bias={has_bias}")


def _working_dtype(tensor: Tensor) -> torch.dtype:
    """The dtype to compute in: at least float32, as float16 overflows."""
    return torch.promote_types(tensor.dtype, torch.float32)
