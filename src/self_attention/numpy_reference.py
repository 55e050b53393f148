"""Self-attention in NumPy, from the scores of one word to the whole layer.

This is the text that the course reads.  It is written to be understood: one
step a line, words for names, no trick for speed.

Shapes are written in the annotations and executed at every call.
``*batch`` stands for any number of leading axes: none for a single sentence,
``(batch, num_heads)`` inside the layer.

Sources
-------
Vaswani et al., "Attention Is All You Need" (2017), arXiv:1706.03762.
"""

import math
from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np
from jaxtyping import Bool, Float, Integer, Real, Shaped
from numpy import ndarray

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
    "scaled_dot_product_attention_backward",
    "separate_heads",
    "softmax",
    "softmax_backward",
]


#: Where random weights come from: NumPy's generator, new or old.
Random: TypeAlias = np.random.Generator | np.random.RandomState


@shape_checked
def softmax(scores: Real[ndarray, "..."],
            axis: int = -1) -> Float[ndarray, "..."]:
    """Turn scores into positive weights that sum to 1 along one axis.

    The largest score is subtracted first, so that no exponential overflows;
    this changes no weight.

    Args:
        scores: Real numbers of any size; ``-inf`` stands for "not at all".
        axis: The axis along which the weights sum to 1. For attention it is
            the last one, the keys.

    Returns:
        Weights in [0, 1] with the shape of ``scores``, in its dtype (float64
        for integers). Half precision is computed in float32 and rounded once.
        A slice whose scores are all ``-inf``, or that is empty, has no
        weights to give: it becomes zeros, not NaN.

    Raises:
        TypeError: ``scores`` is not an array of real numbers.
        IndexError: ``scores`` has no such axis.

    Source: Vaswani et al. (2017), eq. 1; the shift by the maximum is
    standard, see Blanchard, Higham and Higham (2021), eq. 1.3.
    """
    check_axis(axis, scores.ndim)
    exact = scores.astype(_working_dtype(scores.dtype), copy=False)
    largest = exact.max(axis=axis, keepdims=True, initial=-np.inf)
    # Where every score is -inf, "minus the largest" would be -inf + inf.
    shift = np.where(np.isneginf(largest), 0, largest)
    exponentials = np.exp(exact - shift)
    total = exponentials.sum(axis=axis, keepdims=True)
    weights = exponentials / np.where(total == 0, 1, total)
    return weights.astype(_float_dtype(scores.dtype), copy=False)


@shape_checked
def causal_mask(
    query_len: int, key_len: int | None = None
) -> Bool[ndarray, "query_len key_len"]:
    """Let each query attend to the keys at or before its own position.

    The mask is aligned at the bottom right: the last query may attend to
    every key. So it is also right when the queries are the newest tokens of
    a longer text whose older keys are kept (chapter 16).

    Args:
        query_len: Number of queries, at least 0.
        key_len: Number of keys, at least 0; as many as queries if None.

    Returns:
        Boolean mask, True = may attend. With more queries than keys, the
        first ``query_len - key_len`` rows are all False.

    Raises:
        ValueError: A length is negative.

    Source: Vaswani et al. (2017), section 3.2.3.
    """
    key_len = query_len if key_len is None else key_len
    check_not_negative(query_len=query_len, key_len=key_len)
    query_position = np.arange(query_len)[:, None] + (key_len - query_len)
    key_position = np.arange(key_len)
    return key_position <= query_position


@shape_checked
def padding_mask(lengths: Sequence[int] | Integer[ndarray, "batch"],
                 seq_len: int, *,
                 side: str = "right") -> Bool[ndarray, "batch 1 1 seq_len"]:
    """Let every query attend to the real tokens and to no padding.

    Args:
        lengths: Number of real tokens of each sequence, 0 to ``seq_len``.
        seq_len: Length to which the sequences were padded.
        side: Where the padding stands: "right" (behind the tokens) or
            "left" (before them).

    Returns:
        Boolean mask, True = may attend, with axes for the heads and the
        queries, so that it broadcasts over both.

    Raises:
        ValueError: A length is outside 0..seq_len, or ``side`` is unknown.
    """
    check_lengths(lengths, seq_len, side)
    lengths = np.asarray(lengths, dtype=np.int64)
    position = np.arange(seq_len)
    if side == "left":
        position = position[::-1]
    return position < lengths[:, None, None, None]


@shape_checked
def combine_masks(*masks: Bool[ndarray, "..."] | None
                  ) -> Bool[ndarray, "..."] | None:
    """Let a query attend where every mask lets it: a logical "and".

    Args:
        *masks: Boolean masks, True = may attend, whose shapes broadcast;
            None stands for "no mask".

    Returns:
        The combined mask, or None if there was none to combine.

    Raises:
        ValueError: The shapes do not broadcast.
    """
    given = [mask for mask in masks if mask is not None]
    if not given:
        return None
    try:
        together = np.stack(np.broadcast_arrays(*given))
    except ValueError:
        shapes = ", ".join(str(mask.shape) for mask in given)
        raise ValueError(f"combine_masks: masks of shapes {shapes} do not "
                         "broadcast to one shape") from None
    return np.asarray(together.all(axis=0))


@shape_checked
def attention_weights(
    query: Real[ndarray, "*batch query_len head_dim"],
    key: Real[ndarray, "*batch key_len head_dim"],
    attention_mask: Bool[ndarray, "..."] | None = None,
    *,
    scale: float | int | None = None,
) -> Float[ndarray, "*batch query_len key_len"]:
    """Say how much each query attends to each key.

    Args:
        query: One row for each token that asks.
        key: One row for each token that may be attended to.
        attention_mask: True = may attend; broadcasts to
            ``(*batch, query_len, key_len)``. None: every query may attend to
            every key.
        scale: Factor on the scores; ``1 / sqrt(head_dim)`` if None.

    Returns:
        Weights in [0, 1]. Each row (one query) sums to 1, except that a query
        that may attend nowhere has the row zero. Masked weights are exactly 0.
        The dtype is that of the inputs (float64 for integers); half precision
        is computed in float32 and rounded once.

    Raises:
        ValueError: A shape does not fit, the mask does not broadcast, or
            ``scale`` is not finite.
        TypeError: An argument is not a NumPy array, or the mask is not
            boolean.

    Source: Vaswani et al. (2017), eq. 1, the softmax factor.
    """
    scale = check_scale(scale, query.shape[-1])
    dtype = np.result_type(query, key)
    query = query.astype(_working_dtype(dtype), copy=False)
    scores = query @ key.swapaxes(-2, -1) * scale
    if attention_mask is not None:
        check_mask_broadcasts(attention_mask.shape, scores.shape)
        scores = np.where(attention_mask, scores, -np.inf)
    return softmax(scores).astype(_float_dtype(dtype), copy=False)


@shape_checked
def scaled_dot_product_attention(
    query: Real[ndarray, "*batch query_len head_dim"],
    key: Real[ndarray, "*batch key_len head_dim"],
    value: Real[ndarray, "*batch key_len value_dim"],
    attention_mask: Bool[ndarray, "..."] | None = None,
    *,
    scale: float | int | None = None,
) -> Float[ndarray, "*batch query_len value_dim"]:
    """Give each query the average of the values, weighted by attention.

    The queries may come from another sequence than the keys and values
    (cross-attention), and the values may have a width of their own.

    Args:
        query: One row for each token that asks.
        key: One row for each token that may be attended to.
        value: What each of those tokens has to give.
        attention_mask: True = may attend; broadcasts to
            ``(*batch, query_len, key_len)``.
        scale: Factor on the scores; ``1 / sqrt(head_dim)`` if None.

    Returns:
        One row for each query. A query that may attend nowhere gets zeros.
        A masked key and its value have no part in the result, not even when
        they are NaN. The dtype is that of the inputs (float64 for integers).

    Raises:
        ValueError, TypeError: As for :func:`attention_weights`.

    Source: Vaswani et al. (2017), eq. 1.
    """
    weights = attention_weights(query, key, attention_mask, scale=scale)
    return _weighted_sum(weights, value, attention_mask)


def _weighted_sum(weights: ndarray, value: ndarray,
                  attention_mask: ndarray | None) -> ndarray:
    if attention_mask is None or np.isfinite(value).all():
        return weights @ value
    # 0 * NaN is NaN: a masked value must be left out, not multiplied by 0.
    kept = np.broadcast_to(attention_mask, weights.shape)[..., None]
    values_of_each_query = np.where(kept, value[..., None, :, :], 0)
    return (weights[..., None, :] @ values_of_each_query)[..., 0, :]


@shape_checked
def softmax_backward(
    weights: Float[ndarray, "*slices"], grad_weights: Real[ndarray, "*slices"],
    axis: int = -1
) -> Float[ndarray, "*slices"]:
    """Carry a gradient back through ``softmax``, from weights to scores.

    Args:
        weights: What ``softmax`` gave.
        grad_weights: Gradient of a loss with respect to the weights.
        axis: The axis along which the weights sum to 1.

    Returns:
        Gradient with respect to the scores. It sums to 0 along the axis, and
        is 0 wherever the weight is, so also where the score was masked.

    Source: The Jacobian of softmax is ``diag(a) - a a^T``; this is its
    product with a vector, never the matrix itself.
    """
    inner = (weights * grad_weights).sum(axis=axis, keepdims=True)
    return weights * (grad_weights - inner)


@shape_checked
def scaled_dot_product_attention_backward(
    query: Real[ndarray, "*batch query_len head_dim"],
    key: Real[ndarray, "*batch key_len head_dim"],
    value: Real[ndarray, "*batch key_len value_dim"],
    grad_output: Real[ndarray, "*batch query_len value_dim"],
    attention_mask: Bool[ndarray, "..."] | None = None,
    *,
    scale: float | int | None = None,
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

    Returns:
        Gradients with respect to query, key and value. A query that may
        attend nowhere gives and gets zeros; so does a key that no query may
        attend to. All inputs must be finite.

    Raises:
        ValueError, TypeError: As in the forward pass.

    Source: The chain rule on Vaswani et al. (2017), eq. 1; written out in
    Dao et al. (2022), appendix B.2.
    """
    scale = check_scale(scale, query.shape[-1])
    weights = attention_weights(query, key, attention_mask, scale=scale)
    grad_value = weights.swapaxes(-2, -1) @ grad_output
    grad_weights = grad_output @ value.swapaxes(-2, -1)
    grad_scores = softmax_backward(weights, grad_weights) * scale
    grad_query = grad_scores @ key
    grad_key = grad_scores.swapaxes(-2, -1) @ query
    return grad_query, grad_key, grad_value


@shape_checked
def separate_heads(
    x: Shaped[ndarray, "*batch seq_len width"], num_heads: int
) -> Shaped[ndarray, "*batch {num_heads} seq_len head_dim"]:
    """Cut the features of every token into one slice for each head.

    Args:
        x: Features of all heads side by side; head 0 has the first
            ``width / num_heads`` of them.
        num_heads: Number of heads, at least 1; divides ``width``.

    Returns:
        The heads, each with all tokens and its own slice of the features.
        ``combine_heads`` is the exact inverse.

    Raises:
        ValueError: ``num_heads`` is below 1 or does not divide the width.

    Source: Vaswani et al. (2017), section 3.2.2.
    """
    *batch, seq_len, width = x.shape
    check_divides(width=width, num_heads=num_heads)
    split = x.reshape(*batch, seq_len, num_heads, width // num_heads)
    # The reshape alone leaves heads inside tokens; heads must stand outside.
    return split.swapaxes(-3, -2)


@shape_checked
def combine_heads(
    x: Shaped[ndarray, "*batch num_heads seq_len head_dim"]
) -> Shaped[ndarray, "*batch seq_len width"]:
    """Put the heads of every token side by side again.

    This is the exact inverse of ``separate_heads``. The product with ``W_o``
    that follows in the layer is not part of it.

    Args:
        x: One slice of features for each head and token.

    Returns:
        The features, ``width = num_heads * head_dim``, head 0 first.

    Source: Vaswani et al. (2017), section 3.2.2, "Concat".
    """
    *batch, num_heads, seq_len, head_dim = x.shape
    return x.swapaxes(-3, -2).reshape(*batch, seq_len, num_heads * head_dim)


class MultiHeadSelfAttention:
    """Several heads of self-attention and the matrix that combines them.

    Attributes:
        embed_dim: Width of a token's embedding, and of the output.
        num_heads: Number of heads.
        head_dim: Width of one head's query, key and value.
        W_q, W_k, W_v: ``(embed_dim, num_heads * head_dim)``, used as
            ``x @ W_q``. Head h owns the columns from ``h * head_dim``.
        W_o: ``(num_heads * head_dim, embed_dim)``.
        b_q, b_k, b_v, b_o: The biases, or None.

    Source: Vaswani et al. (2017), section 3.2.2. The paper has no biases;
    many libraries do.
    """

    @shape_checked
    def __init__(self, embed_dim: int, num_heads: int, *,
                 head_dim: int | None = None, bias: bool = False,
                 rng: Random | None = None,
                 dtype: type | np.dtype | str = np.float64) -> None:
        """Draw new weights.

        Args:
            embed_dim: Width of the embeddings, at least 1.
            num_heads: Number of heads, at least 1.
            head_dim: Width of one head; ``embed_dim // num_heads`` if None,
                which must then be a whole number.
            bias: Whether each of the four products adds a bias (zero at
                first).
            rng: Source of the weights; a fresh one if None.
            dtype: A floating-point dtype.

        Raises:
            ValueError: A size is below 1, ``num_heads`` does not divide
                ``embed_dim``, or ``dtype`` is not floating point.
        """
        self.embed_dim, self.num_heads = embed_dim, num_heads
        self.head_dim = check_head_dim(embed_dim, num_heads, head_dim)
        if not _is_floating(dtype):
            raise ValueError(f"MultiHeadSelfAttention: dtype={dtype} must be "
                             "a floating-point dtype")
        rng = np.random.default_rng() if rng is None else rng
        for name, shape in self._weight_shapes().items():
            # Glorot's uniform range keeps the variance the same on both sides.
            limit = math.sqrt(6 / sum(shape))
            weight = rng.uniform(-limit, limit, size=shape)
            setattr(self, f"W_{name}", weight.astype(dtype))
            zeros = np.zeros(shape[1], dtype) if bias else None
            setattr(self, f"b_{name}", zeros)

    def _weight_shapes(self) -> dict[str, tuple[int, int]]:
        return projection_shapes(self.embed_dim, self.num_heads, self.head_dim)

    @shape_checked
    def project(self, x: Real[ndarray, "batch seq_len {self.embed_dim}"]
                ) -> tuple[Float[ndarray, "batch heads seq_len head_dim"],
                           Float[ndarray, "batch heads seq_len head_dim"],
                           Float[ndarray, "batch heads seq_len head_dim"]]:
        """Make the queries, keys and values of every head.

        Args:
            x: Embeddings of a batch of sequences.

        Returns:
            Query, key and value, each with the heads separated.
        """
        return (separate_heads(_linear(x, self.W_q, self.b_q), self.num_heads),
                separate_heads(_linear(x, self.W_k, self.b_k), self.num_heads),
                separate_heads(_linear(x, self.W_v, self.b_v), self.num_heads))

    @shape_checked
    def __call__(self, x: Real[ndarray, "batch seq_len {self.embed_dim}"],
                 attention_mask: Bool[ndarray, "..."] | None = None
                 ) -> Float[ndarray, "batch seq_len {self.embed_dim}"]:
        """Let every token gather from the tokens it may attend to.

        Args:
            x: Embeddings of a batch of sequences.
            attention_mask: True = may attend; broadcasts to
                ``(batch, num_heads, seq_len, seq_len)``.

        Returns:
            The new embeddings. A token that may attend nowhere gets the bias
            ``b_o``, or zeros where there is none.

        Raises:
            ValueError, TypeError: As for :func:`attention_weights`.
        """
        query, key, value = self.project(x)
        heads = scaled_dot_product_attention(query, key, value, attention_mask)
        return _linear(combine_heads(heads), self.W_o, self.b_o)

    @shape_checked
    def attention_weights(
        self, x: Real[ndarray, "batch seq_len {self.embed_dim}"],
        attention_mask: Bool[ndarray, "..."] | None = None
    ) -> Float[ndarray, "batch {self.num_heads} seq_len seq_len"]:
        """Say how much each token attends to each other, in every head.

        Args:
            x: Embeddings of a batch of sequences.
            attention_mask: As for calling the layer.

        Returns:
            The weights that calling the layer uses; not averaged over heads.
        """
        query, key, _ = self.project(x)
        return attention_weights(query, key, attention_mask)

    @shape_checked
    def backward(
        self, x: Real[ndarray, "batch seq_len {self.embed_dim}"],
        grad_output: Real[ndarray, "batch seq_len {self.embed_dim}"],
        attention_mask: Bool[ndarray, "..."] | None = None
    ) -> tuple[Float[ndarray, "batch seq_len {self.embed_dim}"],
               dict[str, ndarray]]:
        """Carry a gradient back through the whole layer.

        Args:
            x: Embeddings of a batch of sequences, as in the forward pass.
            grad_output: Gradient of a loss with respect to the output.
            attention_mask: As in the forward pass.

        Returns:
            The gradient with respect to ``x``, and the gradients with respect
            to the weights by name, ``W_q`` to ``W_o`` (and ``b_q`` to ``b_o``
            where there are biases).
        """
        projected = self.project(x)
        heads = scaled_dot_product_attention(*projected, attention_mask)
        grads = _linear_backward("o", combine_heads(heads), grad_output)
        grad_heads = separate_heads(grad_output @ self.W_o.T, self.num_heads)
        grad_x = np.zeros(x.shape, np.result_type(grad_heads, self.W_q))
        for name, grad in zip("qkv", scaled_dot_product_attention_backward(
                *projected, grad_heads, attention_mask)):
            grad = combine_heads(grad)
            grads |= _linear_backward(name, x, grad)
            # x was used three times, so three gradients meet in it.
            grad_x = grad_x + grad @ getattr(self, f"W_{name}").T
        owned = self.parameter_arrays()
        return grad_x, {name: grads[name] for name in owned}

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
            arrays: What ``parameter_arrays`` of any variant gives. With
                ``b_q`` to ``b_o`` the layer has biases from now on, without
                them it has none.

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


def _linear(x: ndarray, weight: ndarray, bias: ndarray | None) -> ndarray:
    return x @ weight if bias is None else x @ weight + bias


def _is_floating(dtype: type | np.dtype | str) -> bool:
    try:
        return np.issubdtype(np.dtype(dtype), np.floating)
    except TypeError:  # NumPy knows no such dtype
        return False


def _linear_backward(name: str, x: ndarray,
                     grad_output: ndarray) -> dict[str, ndarray]:
    """Gradients of ``x @ W + b`` with respect to W and b, over all tokens."""
    x = x.reshape(-1, x.shape[-1])
    grad = grad_output.reshape(-1, grad_output.shape[-1])
    return {f"W_{name}": x.T @ grad, f"b_{name}": grad.sum(axis=0)}


def _float_dtype(dtype: np.dtype) -> np.dtype:
    """The dtype of the result: the input's own, float64 for integers."""
    return dtype if np.issubdtype(dtype, np.floating) else np.dtype(np.float64)


def _working_dtype(dtype: np.dtype) -> np.dtype:
    """The dtype to compute in: at least float32, as float16 overflows."""
    return np.result_type(_float_dtype(dtype), np.float32)
