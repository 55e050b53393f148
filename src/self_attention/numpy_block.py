"""What stands around attention, in NumPy: from positions to whole blocks.

Attention alone mixes tokens and knows no order. A block adds what is missing:
positions, a path that carries every token past each step (residual),
normalisation, a small network for each token (feed-forward), and dropout for
training.

The blocks take their masks as arguments: a decoder block is causal when it is
given ``causal_mask``, and not before.

Sources
-------
Vaswani et al., "Attention Is All You Need" (2017), arXiv:1706.03762.
Su et al., "RoFormer" (2021), arXiv:2104.09864: rotary positions.
Srivastava et al., "Dropout" (2014), JMLR 15.
Ba et al., "Layer Normalization" (2016), arXiv:1607.06450.
Zhang and Sennrich, "Root Mean Square Layer Normalization" (2019),
arXiv:1910.07467.
Hendrycks and Gimpel, "Gaussian Error Linear Units" (2016), arXiv:1606.08415.
Xiong et al., "On Layer Normalization in the Transformer Architecture" (2020),
arXiv:2002.04745: where the norm stands.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np
from jaxtyping import Bool, Float, Real
from numpy import ndarray
from numpy.typing import DTypeLike

from self_attention._checks import (
    check_activation,
    check_head_dim,
    check_named_shapes,
    check_not_negative,
    check_pairs,
    check_positive,
    check_probability,
    check_table_reaches,
    projection_shapes,
)
from self_attention._shapes import shape_checked
from self_attention.numpy_reference import (
    MultiHeadSelfAttention,
    Random,
    _float_dtype,
    _linear,
    _weighted_sum,
    _working_dtype,
    attention_weights,
    combine_heads,
    scaled_dot_product_attention,
    separate_heads,
)

__all__ = [
    "DecoderBlock",
    "EncoderBlock",
    "FeedForward",
    "LayerNorm",
    "LearnedPositions",
    "MultiHeadCrossAttention",
    "RMSNorm",
    "add_and_norm",
    "apply_rotary",
    "attention_with_dropout",
    "dropout",
    "gelu",
    "relu",
    "rotary_angles",
    "sinusoidal_positions",
]


@shape_checked
def sinusoidal_positions(
    seq_len: int, embed_dim: int, *, start: int = 0,
    dtype: DTypeLike = np.float64
) -> Float[ndarray, "seq_len embed_dim"]:
    """Describe each position by sines and cosines of many wavelengths.

    Features 2i and 2i + 1 are the sine and the cosine of the position times
    the frequency ``10000 ** (-2i / embed_dim)``. The rows are added to the
    embeddings, once, before the first block.

    Args:
        seq_len: Number of positions, at least 0.
        embed_dim: Width of a row, at least 1. Where it is odd, the last sine
            has no cosine beside it.
        start: The first position, at least 0.
        dtype: A floating-point dtype; the angles are computed in float64.

    Returns:
        One row for each position, each number in [-1, 1].

    Raises:
        ValueError: A size is too small, or ``dtype`` is not floating point.

    Source: Vaswani et al. (2017), section 3.5.
    """
    check_not_negative(seq_len=seq_len, start=start)
    check_positive(embed_dim=embed_dim)
    _check_floating("sinusoidal_positions", dtype)
    position = np.arange(start, start + seq_len)[:, None]
    feature = np.arange(embed_dim)
    pair = feature // 2
    angle = position * 10000.0 ** (-2 * pair / embed_dim)
    rows = np.where(feature % 2 == 0, np.sin(angle), np.cos(angle))
    return rows.astype(dtype)


@shape_checked
def rotary_angles(
    positions: Real[ndarray, "*batch seq_len"], head_dim: int, *,
    base: float | int = 10000.0
) -> Float[ndarray, "*batch seq_len half_dim"]:
    """Give the angle by which each pair of features is turned.

    Args:
        positions: Position of each token; any real numbers.
        head_dim: Width of one head's query and key; even.
        base: Pair i turns by ``base ** (-2i / head_dim)`` radians a position.

    Returns:
        Angles in radians, float64, one for each of ``head_dim / 2`` pairs.

    Raises:
        ValueError: ``head_dim`` is odd or below 1, or ``base`` is not above 0.

    Source: Su et al. (2021), section 3.2.2.
    """
    check_positive(head_dim=head_dim, base=base)
    check_pairs(head_dim)
    pair = np.arange(head_dim // 2)
    frequency = float(base) ** (-2 * pair / head_dim)
    return positions[..., None] * frequency


@shape_checked
def apply_rotary(
    x: Real[ndarray, "*batch seq_len head_dim"],
    positions: Real[ndarray, "*#batch seq_len"], *,
    base: float | int = 10000.0
) -> Float[ndarray, "*batch seq_len head_dim"]:
    """Turn each pair of features by an angle that grows with the position.

    It is applied to the queries and the keys of every head, in every layer,
    and not to the values. The score of a query and a key then depends on the
    positions through their difference alone.

    A pair is two *neighbours*, features 2i and 2i + 1, as in the paper. Many
    codes pair feature i with i + head_dim / 2 instead; weights trained for
    one layout need their columns reordered for the other.

    Args:
        x: Queries or keys; ``head_dim`` is even.
        positions: Position of each token; broadcasts over the leading axes.
        base: As for :func:`rotary_angles`.

    Returns:
        The turned features. Each pair, and so each row, keeps its length.
        The dtype is that of ``x`` (float64 for integers).

    Raises:
        ValueError: A shape does not fit, or as for :func:`rotary_angles`.

    Source: Su et al. (2021), eq. 15 and 34.
    """
    angle = rotary_angles(positions, x.shape[-1], base=base)
    dtype = _float_dtype(x.dtype)
    cos = np.cos(angle).astype(_working_dtype(dtype))
    sin = np.sin(angle).astype(_working_dtype(dtype))
    first, second = x[..., 0::2], x[..., 1::2]
    turned = np.empty(x.shape, dtype)
    turned[..., 0::2] = first * cos - second * sin
    turned[..., 1::2] = first * sin + second * cos
    return turned


@shape_checked
def dropout(x: Real[ndarray, "..."], p: float | int, *,
            rng: Random | None = None,
            training: bool = True) -> Float[ndarray, "..."]:
    """Set a random share of the numbers to 0, while training.

    What is kept is divided by ``1 - p``, so that the expected value of every
    number stays the same and nothing is left to do afterwards ("inverted"
    dropout).

    Args:
        x: Any numbers: attention weights, or the output of a sublayer.
        p: Probability that a number is dropped, in [0, 1).
        rng: Source of the draws; a fresh one if None.
        training: False gives ``x`` back as it is.

    Returns:
        Each number either exactly 0 or divided by ``1 - p``, in the dtype of
        ``x`` (float64 for integers).

    Raises:
        ValueError: ``p`` is outside [0, 1).

    Source: Srivastava et al. (2014), section 10 for the scaling.
    """
    check_probability(p=p)
    x = x.astype(_float_dtype(x.dtype), copy=False)
    if not training or p == 0:
        return x
    rng = np.random.default_rng() if rng is None else rng
    kept = rng.random(size=x.shape) >= p
    return np.where(kept, x / (1 - p), np.zeros((), x.dtype))


@shape_checked
def relu(x: Real[ndarray, "..."]) -> Float[ndarray, "..."]:
    """Replace each negative number by 0.

    Args:
        x: Any numbers.

    Returns:
        ``max(x, 0)``, in the dtype of ``x`` (float64 for integers).

    Source: Vaswani et al. (2017), eq. 2.
    """
    return np.maximum(x, 0).astype(_float_dtype(x.dtype), copy=False)


@shape_checked
def gelu(x: Real[ndarray, "..."]) -> Float[ndarray, "..."]:
    """Multiply each number by the chance that a normal draw is below it.

    This is the exact form. A common approximation by tanh differs from it by
    up to 0.0005.

    Args:
        x: Any finite numbers.

    Returns:
        ``x * Phi(x)``, in the dtype of ``x`` (float64 for integers).

    Source: Hendrycks and Gimpel (2016), section 2.
    """
    chance = _erfc(-x / math.sqrt(2)) / 2
    return (x * chance).astype(_float_dtype(x.dtype), copy=False)


#: NumPy has no error function; Python has one, for one number at a time.
_erfc = np.vectorize(math.erfc, otypes=[np.float64])

_ACTIVATIONS = {"gelu": gelu, "relu": relu}


class _Weights:
    """A layer's arrays, by name: they can be copied out and loaded."""

    _names: tuple[str, ...]

    def parameter_arrays(self) -> dict[str, ndarray]:
        """Copy the weights, by name.

        Returns:
            The arrays that the layer has; an absent bias is left out.
        """
        arrays = {name: getattr(self, name) for name in self._names}
        return {name: array.copy() for name, array in arrays.items()
                if array is not None}

    def load_parameter_arrays(self, arrays: Mapping[str, ndarray]) -> None:
        """Take over weights, exactly.

        Args:
            arrays: What ``parameter_arrays`` of any variant gives.

        Raises:
            ValueError: A name is missing or unknown, or a shape is wrong.
                Nothing is changed then.
        """
        check_named_shapes(_shapes(arrays), _shapes(self.parameter_arrays()))
        for name, array in arrays.items():
            setattr(self, name, np.array(array))


class LearnedPositions(_Weights):
    """A table with one learned row for each position.

    Attributes:
        max_len: Number of positions that the table has.
        embed_dim: Width of a row.
        table: ``(max_len, embed_dim)``.

    Source: Vaswani et al. (2017), section 3.5, the variant they compare with.
    """

    _names = ("table",)

    @shape_checked
    def __init__(self, max_len: int, embed_dim: int, *,
                 rng: Random | None = None,
                 dtype: DTypeLike = np.float64) -> None:
        """Draw a new table from N(0, 0.02²).

        Args:
            max_len: Number of positions, at least 1.
            embed_dim: Width of a row, at least 1.
            rng: Source of the numbers; a fresh one if None.
            dtype: A floating-point dtype.

        Raises:
            ValueError: A size is below 1, or ``dtype`` is not floating point.
        """
        check_positive(max_len=max_len, embed_dim=embed_dim)
        _check_floating("LearnedPositions", dtype)
        self.max_len, self.embed_dim = max_len, embed_dim
        rng = np.random.default_rng() if rng is None else rng
        table = rng.normal(0.0, 0.02, size=(max_len, embed_dim))
        self.table = table.astype(dtype)

    @shape_checked
    def __call__(self, seq_len: int, *, start: int = 0
                 ) -> Float[ndarray, "seq_len {self.embed_dim}"]:
        """Look up the rows of successive positions.

        Args:
            seq_len: Number of positions, at least 0.
            start: The first position, at least 0.

        Returns:
            A copy of the rows, to be added to the embeddings.

        Raises:
            ValueError: The table has no such position. It was never trained
                there, and there is no rule that would continue it.
        """
        check_table_reaches(start, seq_len, self.max_len)
        return self.table[start:start + seq_len].copy()


class LayerNorm(_Weights):
    """Give each token features of mean 0 and variance 1, then rescale them.

    Mean and variance are taken over the features of one token: never over the
    tokens or the batch. So padding and batch size change nothing.

    Attributes:
        embed_dim: Width of a token.
        eps: Added to the variance.
        scale: ``(embed_dim,)``, learned, 1 at first; also called gamma.
        shift: ``(embed_dim,)``, learned, 0 at first; also called beta.

    Source: Ba et al. (2016), eq. 3 and 4.
    """

    _names = ("scale", "shift")

    @shape_checked
    def __init__(self, embed_dim: int, *, eps: float = 1e-5,
                 dtype: DTypeLike = np.float64) -> None:
        """Start with scale 1 and shift 0.

        Args:
            embed_dim: Width of a token, at least 1.
            eps: Above 0. A token whose features are all equal becomes 0.
            dtype: A floating-point dtype.

        Raises:
            ValueError: A number is out of range, or ``dtype`` is not floating
                point.
        """
        check_positive(embed_dim=embed_dim, eps=eps)
        _check_floating("LayerNorm", dtype)
        self.embed_dim, self.eps = embed_dim, eps
        self.scale = np.ones(embed_dim, dtype)
        self.shift = np.zeros(embed_dim, dtype)

    @shape_checked
    def __call__(self, x: Real[ndarray, "*batch {self.embed_dim}"]
                 ) -> Float[ndarray, "*batch {self.embed_dim}"]:
        """Normalise every token by itself.

        Args:
            x: Features, on the last axis.

        Returns:
            The normalised features. Half precision is computed in float32 and
            rounded once.
        """
        dtype = _float_dtype(np.result_type(x, self.scale))
        x = x.astype(_working_dtype(dtype), copy=False)
        centred = x - x.mean(axis=-1, keepdims=True)
        variance = (centred**2).mean(axis=-1, keepdims=True)
        normalised = centred / np.sqrt(variance + self.eps)
        return (normalised * self.scale + self.shift).astype(dtype, copy=False)


class RMSNorm(_Weights):
    """Give each token features of root mean square 1, then rescale them.

    Like ``LayerNorm`` without its mean and its shift.

    Attributes:
        embed_dim: Width of a token.
        eps: Added to the mean square.
        scale: ``(embed_dim,)``, learned, 1 at first.

    Source: Zhang and Sennrich (2019), eq. 4.
    """

    _names = ("scale",)

    @shape_checked
    def __init__(self, embed_dim: int, *, eps: float = 1e-5,
                 dtype: DTypeLike = np.float64) -> None:
        """Start with scale 1; the arguments are those of ``LayerNorm``."""
        check_positive(embed_dim=embed_dim, eps=eps)
        _check_floating("RMSNorm", dtype)
        self.embed_dim, self.eps = embed_dim, eps
        self.scale = np.ones(embed_dim, dtype)

    @shape_checked
    def __call__(self, x: Real[ndarray, "*batch {self.embed_dim}"]
                 ) -> Float[ndarray, "*batch {self.embed_dim}"]:
        """Normalise every token by itself.

        Args:
            x: Features, on the last axis.

        Returns:
            The rescaled features. Half precision is computed in float32 and
            rounded once.
        """
        dtype = _float_dtype(np.result_type(x, self.scale))
        x = x.astype(_working_dtype(dtype), copy=False)
        mean_square = (x**2).mean(axis=-1, keepdims=True)
        normalised = x / np.sqrt(mean_square + self.eps)
        return (normalised * self.scale).astype(dtype, copy=False)


class FeedForward(_Weights):
    """A small network with one hidden layer, the same for every token.

    Attributes:
        embed_dim: Width of a token.
        hidden_dim: Width of the hidden layer; often ``4 * embed_dim``.
        activation: "relu" or "gelu".
        W_1, b_1: ``(embed_dim, hidden_dim)`` and ``(hidden_dim,)``.
        W_2, b_2: ``(hidden_dim, embed_dim)`` and ``(embed_dim,)``. The biases
            may be None.

    Source: Vaswani et al. (2017), eq. 2.
    """

    _names = ("W_1", "b_1", "W_2", "b_2")

    @shape_checked
    def __init__(self, embed_dim: int, hidden_dim: int, *,
                 activation: str = "relu", bias: bool = True,
                 rng: Random | None = None,
                 dtype: DTypeLike = np.float64) -> None:
        """Draw new weights.

        Args:
            embed_dim: Width of a token, at least 1.
            hidden_dim: Width of the hidden layer, at least 1.
            activation: "relu" or "gelu" (the exact one).
            bias: Whether the two products add a bias (zero at first).
            rng: Source of the weights; a fresh one if None.
            dtype: A floating-point dtype.

        Raises:
            ValueError: A size is below 1, the activation is unknown, or
                ``dtype`` is not floating point.
        """
        check_positive(embed_dim=embed_dim, hidden_dim=hidden_dim)
        check_activation(activation, _ACTIVATIONS)
        _check_floating("FeedForward", dtype)
        self.embed_dim, self.hidden_dim = embed_dim, hidden_dim
        self.activation = activation
        rng = np.random.default_rng() if rng is None else rng
        self.W_1 = _glorot(rng, (embed_dim, hidden_dim), dtype)
        self.W_2 = _glorot(rng, (hidden_dim, embed_dim), dtype)
        self.b_1 = np.zeros(hidden_dim, dtype) if bias else None
        self.b_2 = np.zeros(embed_dim, dtype) if bias else None

    @shape_checked
    def __call__(self, x: Real[ndarray, "*batch {self.embed_dim}"]
                 ) -> Float[ndarray, "*batch {self.embed_dim}"]:
        """Transform every token by itself.

        Args:
            x: Features, on the last axis.

        Returns:
            New features for each token, from that token alone.
        """
        activation = _ACTIVATIONS[self.activation]
        hidden = activation(_linear(x, self.W_1, self.b_1))
        return _linear(hidden, self.W_2, self.b_2)


@shape_checked
def attention_with_dropout(
    query: Real[ndarray, "*batch query_len head_dim"],
    key: Real[ndarray, "*batch key_len head_dim"],
    value: Real[ndarray, "*batch key_len value_dim"],
    attention_mask: Bool[ndarray, "..."] | None = None,
    *,
    p: float | int,
    rng: Random | None = None,
    training: bool = True,
) -> Float[ndarray, "*batch query_len value_dim"]:
    """Attend as always, but drop some of the weights while training.

    The dropout stands *after* the softmax. In training a row of weights then
    no longer sums to 1, except on average.

    Args:
        query: One row for each token that asks.
        key: One row for each token that may be attended to.
        value: What each of those tokens has to give.
        attention_mask: True = may attend.
        p: Probability that a weight is dropped, in [0, 1).
        rng: Source of the draws; a fresh one if None.
        training: False gives ``scaled_dot_product_attention``.

    Returns:
        One row for each query.

    Raises:
        ValueError, TypeError: As for ``attention_weights`` and ``dropout``.

    Source: Srivastava et al. (2014). Vaswani et al. (2017), section 5.4, do
    not name the weights; their published code drops them, and so do most
    libraries.
    """
    weights = attention_weights(query, key, attention_mask)
    weights = dropout(weights, p, rng=rng, training=training)
    return _weighted_sum(weights, value, attention_mask)


class MultiHeadCrossAttention(_Weights):
    """Attention whose keys and values come from another sequence.

    Attributes:
        embed_dim: Width of the tokens that ask, and of the output.
        num_heads: Number of heads.
        memory_dim: Width of the tokens that are asked.
        head_dim: Width of one head's query, key and value.
        W_q: ``(embed_dim, num_heads * head_dim)``.
        W_k, W_v: ``(memory_dim, num_heads * head_dim)``.
        W_o: ``(num_heads * head_dim, embed_dim)``.
        b_q, b_k, b_v, b_o: The biases, or None.

    Source: Vaswani et al. (2017), section 3.2.3, "encoder-decoder attention".
    """

    _names = ("W_q", "W_k", "W_v", "W_o", "b_q", "b_k", "b_v", "b_o")

    @shape_checked
    def __init__(self, embed_dim: int, num_heads: int, *,
                 memory_dim: int | None = None, head_dim: int | None = None,
                 bias: bool = False, rng: Random | None = None,
                 dtype: DTypeLike = np.float64) -> None:
        """Draw new weights.

        Args:
            embed_dim: Width of the tokens that ask, at least 1.
            num_heads: Number of heads, at least 1.
            memory_dim: Width of the memory; ``embed_dim`` if None.
            head_dim: Width of one head; ``embed_dim // num_heads`` if None.
            bias: Whether each of the four products adds a bias.
            rng: Source of the weights; a fresh one if None.
            dtype: A floating-point dtype.

        Raises:
            ValueError: As for ``MultiHeadSelfAttention``, or ``memory_dim``
                is below 1.
        """
        memory_dim = embed_dim if memory_dim is None else memory_dim
        self.head_dim = check_head_dim(embed_dim, num_heads, head_dim)
        check_positive(memory_dim=memory_dim)
        _check_floating("MultiHeadCrossAttention", dtype)
        self.embed_dim, self.num_heads = embed_dim, num_heads
        self.memory_dim = memory_dim
        rng = np.random.default_rng() if rng is None else rng
        shapes = projection_shapes(embed_dim, num_heads, self.head_dim)
        shapes |= {name: (memory_dim, shapes[name][1]) for name in "kv"}
        for name, shape in shapes.items():
            setattr(self, f"W_{name}", _glorot(rng, shape, dtype))
            zeros = np.zeros(shape[1], dtype) if bias else None
            setattr(self, f"b_{name}", zeros)

    @shape_checked
    def project(
        self, x: Real[ndarray, "batch seq_len {self.embed_dim}"],
        memory: Real[ndarray, "batch memory_len {self.memory_dim}"]
    ) -> tuple[Float[ndarray, "batch heads seq_len head_dim"],
               Float[ndarray, "batch heads memory_len head_dim"],
               Float[ndarray, "batch heads memory_len head_dim"]]:
        """Make queries from the one sequence, keys and values from the other.

        Args:
            x: The tokens that ask.
            memory: The tokens that are asked.

        Returns:
            Query, key and value, each with the heads separated.
        """
        return (
            separate_heads(_linear(x, self.W_q, self.b_q), self.num_heads),
            separate_heads(_linear(memory, self.W_k, self.b_k),
                           self.num_heads),
            separate_heads(_linear(memory, self.W_v, self.b_v),
                           self.num_heads))

    @shape_checked
    def __call__(
        self, x: Real[ndarray, "batch seq_len {self.embed_dim}"],
        memory: Real[ndarray, "batch memory_len {self.memory_dim}"],
        attention_mask: Bool[ndarray, "..."] | None = None
    ) -> Float[ndarray, "batch seq_len {self.embed_dim}"]:
        """Let every token gather from the tokens of the memory.

        Args:
            x: The tokens that ask.
            memory: The tokens that are asked, such as an encoder's output.
            attention_mask: True = may attend; broadcasts to
                ``(batch, num_heads, seq_len, memory_len)``.

        Returns:
            One row for each token of ``x``. A token that may attend nowhere
            gets the bias ``b_o``, or zeros where there is none.
        """
        heads = scaled_dot_product_attention(*self.project(x, memory),
                                             attention_mask)
        return _output(self, heads)

    @shape_checked
    def attention_weights(
        self, x: Real[ndarray, "batch seq_len {self.embed_dim}"],
        memory: Real[ndarray, "batch memory_len {self.memory_dim}"],
        attention_mask: Bool[ndarray, "..."] | None = None
    ) -> Float[ndarray, "batch {self.num_heads} seq_len memory_len"]:
        """Say how much each token attends to each token of the memory.

        Args:
            x: The tokens that ask.
            memory: The tokens that are asked.
            attention_mask: As for calling the layer.

        Returns:
            The weights that calling the layer uses; not averaged over heads.
        """
        query, key, _ = self.project(x, memory)
        return attention_weights(query, key, attention_mask)


@shape_checked
def add_and_norm(
    x: Real[ndarray, "batch seq_len embed_dim"],
    sublayer: Callable[[ndarray], ndarray],
    norm: Callable[[ndarray], ndarray], *, norm_first: bool
) -> Float[ndarray, "batch seq_len embed_dim"]:
    """Put the residual path and the norm around a sublayer.

    Args:
        x: The tokens on their way through the block.
        sublayer: Attention or feed-forward, dropout included; keeps shapes.
        norm: ``LayerNorm`` or ``RMSNorm``.
        norm_first: False: ``norm(x + sublayer(x))``, "post-norm", the paper's
            order. True: ``x + sublayer(norm(x))``, "pre-norm".

    Returns:
        The tokens behind the sublayer.

    Source: Vaswani et al. (2017), section 3.1; Xiong et al. (2020), table 1.
    """
    if norm_first:
        return x + sublayer(norm(x))
    return norm(x + sublayer(x))


_Attention: TypeAlias = MultiHeadSelfAttention | MultiHeadCrossAttention
_Mode: TypeAlias = dict[str, Any]  # training, and where the draws come from


class _Block:
    """Sublayers on one stream of tokens; their weights have dotted names."""

    _parts: tuple[str, ...]

    def _keep_settings(self, norm_first: bool, dropout: float,
                       attention_dropout: float) -> None:
        check_probability(dropout=dropout, attention_dropout=attention_dropout)
        self.norm_first, self.dropout = norm_first, dropout
        self.attention_dropout = attention_dropout

    def _attend(self, layer: _Attention, projected: tuple[ndarray, ...],
                attention_mask: ndarray | None, mode: _Mode) -> ndarray:
        heads = attention_with_dropout(
            *projected, attention_mask, p=self.attention_dropout, **mode)
        return dropout(_output(layer, heads), self.dropout, **mode)

    def parameter_arrays(self) -> dict[str, ndarray]:
        """Copy the weights of all parts.

        Returns:
            Arrays by dotted name, such as ``self_attention.W_q``.
        """
        return {f"{part}.{name}": array for part in self._parts for name, array
                in getattr(self, part).parameter_arrays().items()}

    def load_parameter_arrays(self, arrays: Mapping[str, ndarray]) -> None:
        """Take over the weights of all parts, exactly.

        Args:
            arrays: What ``parameter_arrays`` of any variant gives.

        Raises:
            ValueError: A name is missing or unknown, or a shape is wrong.
                Nothing is changed then.
        """
        check_named_shapes(_shapes(arrays), _shapes(self.parameter_arrays()))
        for part in self._parts:
            start = f"{part}."
            getattr(self, part).load_parameter_arrays(
                {name.removeprefix(start): array for name, array
                 in arrays.items() if name.startswith(start)})


class EncoderBlock(_Block):
    """Self-attention, then feed-forward, each with residual and norm.

    Attributes:
        self_attention: ``MultiHeadSelfAttention``.
        feed_forward: ``FeedForward``.
        norm_1, norm_2: ``LayerNorm`` of these two sublayers.
        norm_first, dropout, attention_dropout: As given.

    Source: Vaswani et al. (2017), section 3.1 and figure 1, left.
    """

    _parts = ("self_attention", "norm_1", "feed_forward", "norm_2")

    @shape_checked
    def __init__(self, embed_dim: int, num_heads: int, hidden_dim: int, *,
                 norm_first: bool = False, activation: str = "relu",
                 bias: bool = True, dropout: float | int = 0.0,
                 attention_dropout: float | int = 0.0, eps: float = 1e-5,
                 rng: Random | None = None,
                 dtype: DTypeLike = np.float64) -> None:
        """Draw new weights.

        Args:
            embed_dim: Width of a token; ``num_heads`` divides it.
            num_heads: Number of heads, at least 1.
            hidden_dim: Width of the feed-forward's hidden layer.
            norm_first: False is the paper's order (post-norm), True that of
                most later models (pre-norm).
            activation: "relu" or "gelu".
            bias: Whether attention and feed-forward add biases.
            dropout: Probability for the outputs of the sublayers; the paper
                has 0.1.
            attention_dropout: Probability for the attention weights.
            eps: Of the norms.
            rng: Source of the weights; a fresh one if None.
            dtype: A floating-point dtype.

        Raises:
            ValueError: A number is out of range; see the parts.
        """
        self._keep_settings(norm_first, dropout, attention_dropout)
        rng = np.random.default_rng() if rng is None else rng
        self.embed_dim = embed_dim
        self.self_attention = MultiHeadSelfAttention(
            embed_dim, num_heads, bias=bias, rng=rng, dtype=dtype)
        self.norm_1 = LayerNorm(embed_dim, eps=eps, dtype=dtype)
        self.feed_forward = FeedForward(
            embed_dim, hidden_dim, activation=activation, bias=bias, rng=rng,
            dtype=dtype)
        self.norm_2 = LayerNorm(embed_dim, eps=eps, dtype=dtype)

    @shape_checked
    def __call__(self, x: Real[ndarray, "batch seq_len {self.embed_dim}"],
                 attention_mask: Bool[ndarray, "..."] | None = None, *,
                 training: bool = False, rng: Random | None = None
                 ) -> Float[ndarray, "batch seq_len {self.embed_dim}"]:
        """Let every token gather from the others, then digest by itself.

        Args:
            x: Embeddings with their positions, or an earlier block's output.
            attention_mask: True = may attend; broadcasts to
                ``(batch, num_heads, seq_len, seq_len)``.
            training: Whether dropout is on.
            rng: Source of the draws of dropout; a fresh one if None.

        Returns:
            The new embeddings.
        """
        mode = {"training": training, "rng": rng}

        def attention(y: ndarray) -> ndarray:
            projected = self.self_attention.project(y)
            return self._attend(self.self_attention, projected,
                                attention_mask, mode)

        def feed_forward(y: ndarray) -> ndarray:
            return dropout(self.feed_forward(y), self.dropout, **mode)

        x = add_and_norm(x, attention, self.norm_1, norm_first=self.norm_first)
        return add_and_norm(x, feed_forward, self.norm_2,
                            norm_first=self.norm_first)


class DecoderBlock(_Block):
    """Self-attention, cross-attention, feed-forward: three sublayers.

    Attributes:
        self_attention: ``MultiHeadSelfAttention``, over the block's tokens.
        cross_attention: ``MultiHeadCrossAttention``, into the memory.
        feed_forward: ``FeedForward``.
        norm_1, norm_2, norm_3: ``LayerNorm`` of these three sublayers.
        norm_first, dropout, attention_dropout: As given.

    Source: Vaswani et al. (2017), section 3.1 and figure 1, right.
    """

    _parts = ("self_attention", "norm_1", "cross_attention", "norm_2",
              "feed_forward", "norm_3")

    @shape_checked
    def __init__(self, embed_dim: int, num_heads: int, hidden_dim: int, *,
                 memory_dim: int | None = None, norm_first: bool = False,
                 activation: str = "relu", bias: bool = True,
                 dropout: float | int = 0.0,
                 attention_dropout: float | int = 0.0, eps: float = 1e-5,
                 rng: Random | None = None,
                 dtype: DTypeLike = np.float64) -> None:
        """Draw new weights.

        Args:
            embed_dim: Width of a token; ``num_heads`` divides it.
            num_heads: Number of heads of both attentions, at least 1.
            hidden_dim: Width of the feed-forward's hidden layer.
            memory_dim: Width of the memory's tokens; ``embed_dim`` if None.
            norm_first: False for post-norm, True for pre-norm.
            activation: "relu" or "gelu".
            bias: Whether attention and feed-forward add biases.
            dropout: Probability for the outputs of the sublayers.
            attention_dropout: Probability for the attention weights.
            eps: Of the norms.
            rng: Source of the weights; a fresh one if None.
            dtype: A floating-point dtype.

        Raises:
            ValueError: A number is out of range; see the parts.
        """
        self._keep_settings(norm_first, dropout, attention_dropout)
        rng = np.random.default_rng() if rng is None else rng
        self.self_attention = MultiHeadSelfAttention(
            embed_dim, num_heads, bias=bias, rng=rng, dtype=dtype)
        self.cross_attention = MultiHeadCrossAttention(
            embed_dim, num_heads, memory_dim=memory_dim, bias=bias, rng=rng,
            dtype=dtype)
        self.feed_forward = FeedForward(
            embed_dim, hidden_dim, activation=activation, bias=bias, rng=rng,
            dtype=dtype)
        self.embed_dim = embed_dim
        self.memory_dim = self.cross_attention.memory_dim
        for name in ("norm_1", "norm_2", "norm_3"):
            setattr(self, name, LayerNorm(embed_dim, eps=eps, dtype=dtype))

    @shape_checked
    def __call__(self, x: Real[ndarray, "batch seq_len {self.embed_dim}"],
                 memory: Real[ndarray, "batch memory_len {self.memory_dim}"],
                 attention_mask: Bool[ndarray, "..."] | None = None,
                 memory_mask: Bool[ndarray, "..."] | None = None, *,
                 training: bool = False, rng: Random | None = None
                 ) -> Float[ndarray, "batch seq_len {self.embed_dim}"]:
        """Gather from the own tokens, then from the memory, then digest.

        Args:
            x: Embeddings with their positions, or an earlier block's output.
            memory: The output of the last encoder block.
            attention_mask: True = may attend; broadcasts to
                ``(batch, num_heads, seq_len, seq_len)``. For a decoder that
                writes word by word, ``causal_mask(seq_len)`` or more.
            memory_mask: True = may attend; broadcasts to
                ``(batch, num_heads, seq_len, memory_len)``. Most often the
                ``padding_mask`` of the memory.
            training: Whether dropout is on.
            rng: Source of the draws of dropout; a fresh one if None.

        Returns:
            The new embeddings.
        """
        mode = {"training": training, "rng": rng}

        def attention(y: ndarray) -> ndarray:
            projected = self.self_attention.project(y)
            return self._attend(self.self_attention, projected,
                                attention_mask, mode)

        def cross_attention(y: ndarray) -> ndarray:
            projected = self.cross_attention.project(y, memory)
            return self._attend(self.cross_attention, projected,
                                memory_mask, mode)

        def feed_forward(y: ndarray) -> ndarray:
            return dropout(self.feed_forward(y), self.dropout, **mode)

        norm_first = self.norm_first
        x = add_and_norm(x, attention, self.norm_1, norm_first=norm_first)
        x = add_and_norm(x, cross_attention, self.norm_2,
                         norm_first=norm_first)
        return add_and_norm(x, feed_forward, self.norm_3,
                            norm_first=norm_first)


def _output(layer: "_Attention", heads: ndarray) -> ndarray:
    return _linear(combine_heads(heads), layer.W_o, layer.b_o)


def _glorot(rng: Random, shape: tuple[int, int], dtype: DTypeLike) -> ndarray:
    limit = math.sqrt(6 / sum(shape))
    return rng.uniform(-limit, limit, size=shape).astype(dtype)


def _shapes(arrays: Mapping[str, ndarray]) -> dict[str, tuple[int, ...]]:
    return {name: np.shape(array) for name, array in arrays.items()}


def _check_floating(where: str, dtype: DTypeLike) -> None:
    if not np.issubdtype(np.dtype(dtype), np.floating):
        raise ValueError(f"{where}: dtype={dtype} must be a floating-point "
                         "dtype")
