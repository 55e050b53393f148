"""What stands around attention, in PyTorch: from positions to whole blocks.

The names and rules are those of ``numpy_block``; the code was written anew,
from ordinary tensor operations, so that their agreement is evidence for both.
Dropout follows ``module.train()`` and ``module.eval()``, as everywhere in
PyTorch.

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

import torch
from jaxtyping import Bool, Float, Real
from numpy import ndarray
from torch import Tensor, nn

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
from self_attention.torch_eager import (
    MultiHeadSelfAttention,
    attention_weights,
    clear_unattended,
    combine_heads,
    scaled_dot_product_attention,
    separate_heads,
    to_array,
    weighted_sum,
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
    device: torch.device | str | None = None,
    dtype: torch.dtype | None = None
) -> Float[Tensor, "seq_len embed_dim"]:
    """Describe each position by sines and cosines of many wavelengths.

    Args:
        seq_len: Number of positions, at least 0.
        embed_dim: Width of a row, at least 1. Where it is odd, the last sine
            has no cosine beside it.
        start: The first position, at least 0.
        device: Where the rows are wanted.
        dtype: A floating-point dtype, PyTorch's default if None; the angles
            are computed in float64.

    Returns:
        One row for each position, to be added to the embeddings.

    Raises:
        ValueError: A size is too small, or ``dtype`` is not floating point.

    Source: Vaswani et al. (2017), section 3.5.
    """
    check_not_negative(seq_len=seq_len, start=start)
    check_positive(embed_dim=embed_dim)
    dtype = _float_or_default("sinusoidal_positions", dtype)
    position = torch.arange(start, start + seq_len, dtype=torch.float64)
    even = torch.arange(0, embed_dim, 2, dtype=torch.float64)
    frequency = torch.exp(even * (-math.log(10000.0) / embed_dim))
    angle = torch.outer(position, frequency)
    pairs = torch.stack([angle.sin(), angle.cos()], dim=-1)
    return pairs.flatten(-2)[:, :embed_dim].to(device, dtype)


@shape_checked
def rotary_angles(
    positions: Real[Tensor, "*batch seq_len"], head_dim: int, *,
    base: float | int = 10000.0
) -> Float[Tensor, "*batch seq_len half_dim"]:
    """Give the angle by which each pair of features is turned.

    Args:
        positions: Position of each token; any real numbers.
        head_dim: Width of one head's query and key; even.
        base: Pair i turns by ``base ** (-2i / head_dim)`` radians a position.

    Returns:
        Angles in radians, at least float32, on the device of ``positions``;
        float64 where that device has it.

    Raises:
        ValueError: ``head_dim`` is odd or below 1, or ``base`` is not above 0.

    Source: Su et al. (2021), section 3.2.2.
    """
    check_positive(head_dim=head_dim, base=base)
    check_pairs(head_dim)
    # Apple's GPUs have no float64.
    exact = (torch.float32 if positions.device.type == "mps"
             else torch.float64)
    even = torch.arange(0, head_dim, 2, device=positions.device, dtype=exact)
    frequency = torch.exp(even * (-math.log(base) / head_dim))
    return positions.to(exact).unsqueeze(-1) * frequency


@shape_checked
def apply_rotary(
    x: Float[Tensor, "*batch seq_len head_dim"],
    positions: Real[Tensor, "*#batch seq_len"], *,
    base: float | int = 10000.0
) -> Float[Tensor, "*batch seq_len head_dim"]:
    """Turn each pair of neighbouring features by position times frequency.

    Args:
        x: Queries or keys, not values; ``head_dim`` is even. A pair is the
            features 2i and 2i + 1, as in the paper.
        positions: Position of each token; broadcasts over the leading axes.
        base: As for :func:`rotary_angles`.

    Returns:
        The turned features in the dtype of ``x``; half precision is computed
        in float32 and rounded once.

    Raises:
        ValueError: A shape does not fit, or as for :func:`rotary_angles`.
        TypeError: ``x`` is not a floating-point tensor.

    Source: Su et al. (2021), eq. 15 and 34.
    """
    angle = rotary_angles(positions, x.shape[-1], base=base)
    working = torch.promote_types(x.dtype, torch.float32)
    cos, sin = angle.cos().to(working), angle.sin().to(working)
    first, second = x.to(working).unflatten(-1, (-1, 2)).unbind(-1)
    turned = torch.stack([first * cos - second * sin,
                          second * cos + first * sin], dim=-1)
    return turned.flatten(-2).to(x.dtype)


@shape_checked
def dropout(x: Float[Tensor, "..."], p: float | int, *,
            generator: torch.Generator | None = None,
            training: bool = True) -> Float[Tensor, "..."]:
    """Set a random share of the numbers to 0, while training.

    Args:
        x: Attention weights, or the output of a sublayer.
        p: Probability that a number is dropped, in [0, 1).
        generator: Source of the draws, on the device of ``x``; PyTorch's own
            if None.
        training: False gives ``x`` back as it is.

    Returns:
        Each number either exactly 0 or divided by ``1 - p``.

    Raises:
        ValueError: ``p`` is outside [0, 1).
        TypeError: ``x`` is not a floating-point tensor.

    Source: Srivastava et al. (2014), section 10 for the scaling.
    """
    check_probability(p=p)
    if not training or p == 0:
        return x
    draws = torch.rand(x.shape, generator=generator, device=x.device)
    return (x / (1 - p)).masked_fill(draws < p, 0)


@shape_checked
def relu(x: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """Replace each negative number by 0.

    Args:
        x: Any numbers.

    Returns:
        ``max(x, 0)``.

    Source: Vaswani et al. (2017), eq. 2.
    """
    return x.clamp(min=0)


@shape_checked
def gelu(x: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """Multiply each number by the chance that a normal draw is below it.

    Args:
        x: Any finite numbers.

    Returns:
        ``x * Phi(x)``: the exact form, not the approximation by tanh.

    Source: Hendrycks and Gimpel (2016), section 2.
    """
    return 0.5 * x * (1 + torch.erf(x * math.sqrt(0.5)))


_ACTIVATIONS = {"gelu": gelu, "relu": relu}


class _Weights(nn.Module):
    """A module whose weights are known by the names of ``numpy_block``."""

    def _tensors(self) -> dict[str, Tensor | None]:
        """Views of the parameters, in the layout of ``numpy_block``."""
        return dict(self.named_parameters())

    def parameter_arrays(self) -> dict[str, ndarray]:
        """Copy the weights, by name, in the layout of ``numpy_block``.

        Returns:
            NumPy arrays; an absent bias is left out. bfloat16, which NumPy
            lacks, comes as float32 (exactly).
        """
        return {name: to_array(tensor)
                for name, tensor in self._tensors().items()
                if tensor is not None}

    def load_parameter_arrays(self, arrays: Mapping[str, ndarray]) -> None:
        """Take over weights, exactly where the dtype can hold them.

        Args:
            arrays: What ``parameter_arrays`` of any variant gives.

        Raises:
            ValueError: A name is missing or unknown, or a shape is wrong.
                Nothing is changed then.
        """
        check_named_shapes(_shapes(arrays), _shapes(self.parameter_arrays()))
        with torch.no_grad():
            for name, tensor in self._tensors().items():
                if tensor is not None:
                    tensor.copy_(torch.tensor(arrays[name]))


class LearnedPositions(_Weights):
    """A table with one learned row for each position.

    Attributes:
        max_len: Number of positions that the table has.
        embed_dim: Width of a row.
        table: Parameter, ``(max_len, embed_dim)``.

    Source: Vaswani et al. (2017), section 3.5, the variant they compare with.
    """

    @shape_checked
    def __init__(self, max_len: int, embed_dim: int, *,
                 device: torch.device | str | None = None,
                 dtype: torch.dtype | None = None) -> None:
        """Draw a new table from N(0, 0.02²).

        Args:
            max_len: Number of positions, at least 1.
            embed_dim: Width of a row, at least 1.
            device: Where the table lives.
            dtype: A floating-point dtype; PyTorch's default if None.

        Raises:
            ValueError: A size is below 1, or ``dtype`` is not floating point.
        """
        check_positive(max_len=max_len, embed_dim=embed_dim)
        dtype = _float_or_default("LearnedPositions", dtype)
        super().__init__()
        self.max_len, self.embed_dim = max_len, embed_dim
        self.table = nn.Parameter(torch.empty(
            max_len, embed_dim, device=device, dtype=dtype))
        nn.init.normal_(self.table, std=0.02)

    @shape_checked
    def forward(self, seq_len: int, *, start: int = 0
                ) -> Float[Tensor, "seq_len {self.embed_dim}"]:
        """Look up the rows of successive positions.

        Args:
            seq_len: Number of positions, at least 0.
            start: The first position, at least 0.

        Returns:
            The rows, to be added to the embeddings.

        Raises:
            ValueError: The table has no such position.
        """
        check_table_reaches(start, seq_len, self.max_len)
        return self.table.narrow(0, start, seq_len)


class LayerNorm(_Weights):
    """Give each token features of mean 0 and variance 1, then rescale them.

    Attributes:
        embed_dim: Width of a token.
        eps: Added to the variance.
        scale, shift: Parameters, ``(embed_dim,)``, 1 and 0 at first.
            ``nn.LayerNorm`` calls them weight and bias.

    Source: Ba et al. (2016), eq. 3 and 4.
    """

    @shape_checked
    def __init__(self, embed_dim: int, *, eps: float = 1e-5,
                 device: torch.device | str | None = None,
                 dtype: torch.dtype | None = None) -> None:
        """Start with scale 1 and shift 0.

        Args:
            embed_dim: Width of a token, at least 1.
            eps: Above 0. A token whose features are all equal becomes 0.
            device: Where the parameters live.
            dtype: A floating-point dtype; PyTorch's default if None.

        Raises:
            ValueError: A number is out of range, or ``dtype`` is not floating
                point.
        """
        check_positive(embed_dim=embed_dim, eps=eps)
        dtype = _float_or_default("LayerNorm", dtype)
        super().__init__()
        self.embed_dim, self.eps = embed_dim, eps
        ones = torch.ones(embed_dim, device=device, dtype=dtype)
        self.scale = nn.Parameter(ones)
        self.shift = nn.Parameter(torch.zeros_like(ones))

    @shape_checked
    def forward(self, x: Float[Tensor, "*batch {self.embed_dim}"]
                ) -> Float[Tensor, "*batch {self.embed_dim}"]:
        """Normalise every token by itself.

        Args:
            x: Features, on the last axis.

        Returns:
            The normalised features. Half precision is computed in float32 and
            rounded once.
        """
        dtype = torch.promote_types(x.dtype, self.scale.dtype)
        x = x.to(torch.promote_types(dtype, torch.float32))
        variance, mean = torch.var_mean(x, dim=-1, correction=0, keepdim=True)
        normalised = (x - mean) * torch.rsqrt(variance + self.eps)
        return torch.addcmul(self.shift.to(x.dtype), normalised,
                             self.scale.to(x.dtype)).to(dtype)


class RMSNorm(_Weights):
    """Give each token features of root mean square 1, then rescale them.

    Attributes:
        embed_dim: Width of a token.
        eps: Added to the mean square.
        scale: Parameter, ``(embed_dim,)``, 1 at first.

    Source: Zhang and Sennrich (2019), eq. 4.
    """

    @shape_checked
    def __init__(self, embed_dim: int, *, eps: float = 1e-5,
                 device: torch.device | str | None = None,
                 dtype: torch.dtype | None = None) -> None:
        """Start with scale 1; the arguments are those of ``LayerNorm``."""
        check_positive(embed_dim=embed_dim, eps=eps)
        dtype = _float_or_default("RMSNorm", dtype)
        super().__init__()
        self.embed_dim, self.eps = embed_dim, eps
        self.scale = nn.Parameter(
            torch.ones(embed_dim, device=device, dtype=dtype))

    @shape_checked
    def forward(self, x: Float[Tensor, "*batch {self.embed_dim}"]
                ) -> Float[Tensor, "*batch {self.embed_dim}"]:
        """Normalise every token by itself.

        Args:
            x: Features, on the last axis.

        Returns:
            The rescaled features. Half precision is computed in float32 and
            rounded once.
        """
        dtype = torch.promote_types(x.dtype, self.scale.dtype)
        x = x.to(torch.promote_types(dtype, torch.float32))
        mean_square = x.square().mean(dim=-1, keepdim=True)
        shrunk = x * torch.rsqrt(mean_square + self.eps)
        return (self.scale * shrunk).to(dtype)


class FeedForward(_Weights):
    """A small network with one hidden layer, the same for every token.

    Attributes:
        embed_dim: Width of a token.
        hidden_dim: Width of the hidden layer.
        activation: "relu" or "gelu".
        W_1, W_2: ``nn.Linear``.

    Source: Vaswani et al. (2017), eq. 2.
    """

    @shape_checked
    def __init__(self, embed_dim: int, hidden_dim: int, *,
                 activation: str = "relu", bias: bool = True,
                 device: torch.device | str | None = None,
                 dtype: torch.dtype | None = None) -> None:
        """Draw new weights.

        Args:
            embed_dim: Width of a token, at least 1.
            hidden_dim: Width of the hidden layer, at least 1.
            activation: "relu" or "gelu" (the exact one).
            bias: Whether the two products add a bias (zero at first).
            device: Where the weights live.
            dtype: A floating-point dtype; PyTorch's default if None.

        Raises:
            ValueError: A size is below 1, the activation is unknown, or
                ``dtype`` is not floating point.
        """
        check_positive(embed_dim=embed_dim, hidden_dim=hidden_dim)
        check_activation(activation, _ACTIVATIONS)
        dtype = _float_or_default("FeedForward", dtype)
        super().__init__()
        self.embed_dim, self.hidden_dim = embed_dim, hidden_dim
        self.activation = activation
        options = {"bias": bias, "device": device, "dtype": dtype}
        self.W_1 = _linear(embed_dim, hidden_dim, **options)
        self.W_2 = _linear(hidden_dim, embed_dim, **options)

    def _tensors(self) -> dict[str, Tensor | None]:
        return {"W_1": self.W_1.weight.mT, "b_1": self.W_1.bias,
                "W_2": self.W_2.weight.mT, "b_2": self.W_2.bias}

    @shape_checked
    def forward(self, x: Float[Tensor, "*batch {self.embed_dim}"]
                ) -> Float[Tensor, "*batch {self.embed_dim}"]:
        """Transform every token by itself.

        Args:
            x: Features, on the last axis.

        Returns:
            New features for each token, from that token alone.
        """
        return self.W_2(_ACTIVATIONS[self.activation](self.W_1(x)))


@shape_checked
def attention_with_dropout(
    query: Float[Tensor, "*batch query_len head_dim"],
    key: Float[Tensor, "*batch key_len head_dim"],
    value: Float[Tensor, "*batch key_len value_dim"],
    attention_mask: Bool[Tensor, "..."] | None = None,
    *,
    p: float | int,
    generator: torch.Generator | None = None,
    training: bool = True,
) -> Float[Tensor, "*batch query_len value_dim"]:
    """Attend as always, but drop some of the weights while training.

    Args:
        query: One row for each token that asks.
        key: One row for each token that may be attended to.
        value: What each of those tokens has to give.
        attention_mask: True = may attend.
        p: Probability that a weight is dropped, in [0, 1).
        generator: Source of the draws; PyTorch's own if None.
        training: False gives ``scaled_dot_product_attention``.

    Returns:
        One row for each query.

    Raises:
        ValueError, TypeError: As for ``attention_weights`` and ``dropout``.

    Source: Srivastava et al. (2014), applied to the weights.
    """
    check_probability(p=p)
    if not training or p == 0:
        return scaled_dot_product_attention(query, key, value, attention_mask)
    if attention_mask is not None:
        key, value = clear_unattended(query, key, value, attention_mask)
    weights = attention_weights(query, key, attention_mask)
    weights = dropout(weights, p, generator=generator)
    return weighted_sum(weights, value, attention_mask)


class MultiHeadCrossAttention(_Weights):
    """Attention whose keys and values come from another sequence.

    Attributes:
        embed_dim: Width of the tokens that ask, and of the output.
        num_heads: Number of heads.
        memory_dim: Width of the tokens that are asked.
        head_dim: Width of one head's query, key and value.
        W_q, W_k, W_v, W_o: ``nn.Linear``.

    Source: Vaswani et al. (2017), section 3.2.3, "encoder-decoder attention".
    """

    @shape_checked
    def __init__(self, embed_dim: int, num_heads: int, *,
                 memory_dim: int | None = None, head_dim: int | None = None,
                 bias: bool = False,
                 device: torch.device | str | None = None,
                 dtype: torch.dtype | None = None) -> None:
        """Draw new weights.

        Args:
            embed_dim: Width of the tokens that ask, at least 1.
            num_heads: Number of heads, at least 1.
            memory_dim: Width of the memory; ``embed_dim`` if None.
            head_dim: Width of one head; ``embed_dim // num_heads`` if None.
            bias: Whether each of the four products adds a bias.
            device: Where the weights live.
            dtype: A floating-point dtype; PyTorch's default if None.

        Raises:
            ValueError: As for ``MultiHeadSelfAttention``, or ``memory_dim``
                is below 1.
        """
        memory_dim = embed_dim if memory_dim is None else memory_dim
        head_dim = check_head_dim(embed_dim, num_heads, head_dim)
        check_positive(memory_dim=memory_dim)
        dtype = _float_or_default("MultiHeadCrossAttention", dtype)
        super().__init__()
        self.embed_dim, self.num_heads = embed_dim, num_heads
        self.memory_dim, self.head_dim = memory_dim, head_dim
        for name, sizes in projection_shapes(embed_dim, num_heads,
                                             head_dim).items():
            inward = memory_dim if name in ("k", "v") else sizes[0]
            self.add_module(f"W_{name}", _linear(
                inward, sizes[1], bias=bias, device=device, dtype=dtype))

    def _tensors(self) -> dict[str, Tensor | None]:
        linears = {name: self.get_submodule(f"W_{name}") for name in "qkvo"}
        weights = {f"W_{name}": linear.weight.mT
                   for name, linear in linears.items()}
        return weights | {f"b_{name}": linear.bias
                          for name, linear in linears.items()}

    @shape_checked
    def project(
        self, x: Float[Tensor, "batch seq_len {self.embed_dim}"],
        memory: Float[Tensor, "batch memory_len {self.memory_dim}"]
    ) -> tuple[Float[Tensor, "batch heads seq_len head_dim"],
               Float[Tensor, "batch heads memory_len head_dim"],
               Float[Tensor, "batch heads memory_len head_dim"]]:
        """Make queries from the one sequence, keys and values from the other.

        Args:
            x: The tokens that ask.
            memory: The tokens that are asked.

        Returns:
            Query, key and value, each with the heads separated.
        """
        return (separate_heads(self.W_q(x), self.num_heads),
                separate_heads(self.W_k(memory), self.num_heads),
                separate_heads(self.W_v(memory), self.num_heads))

    @shape_checked
    def forward(
        self, x: Float[Tensor, "batch seq_len {self.embed_dim}"],
        memory: Float[Tensor, "batch memory_len {self.memory_dim}"],
        attention_mask: Bool[Tensor, "..."] | None = None
    ) -> Float[Tensor, "batch seq_len {self.embed_dim}"]:
        """Let every token gather from the tokens of the memory.

        Args:
            x: The tokens that ask.
            memory: The tokens that are asked, such as an encoder's output.
            attention_mask: True = may attend; broadcasts to
                ``(batch, num_heads, seq_len, memory_len)``.

        Returns:
            One row for each token of ``x``. A token that may attend nowhere
            gets the bias of ``W_o``, or zeros where there is none.
        """
        query, key, value = self.project(x, memory)
        heads = scaled_dot_product_attention(query, key, value, attention_mask)
        return self.W_o(combine_heads(heads))

    @shape_checked
    def attention_weights(
        self, x: Float[Tensor, "batch seq_len {self.embed_dim}"],
        memory: Float[Tensor, "batch memory_len {self.memory_dim}"],
        attention_mask: Bool[Tensor, "..."] | None = None
    ) -> Float[Tensor, "batch {self.num_heads} seq_len memory_len"]:
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
    x: Float[Tensor, "batch seq_len embed_dim"],
    sublayer: Callable[[Tensor], Tensor],
    norm: Callable[[Tensor], Tensor], *, norm_first: bool
) -> Float[Tensor, "batch seq_len embed_dim"]:
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
    return x + sublayer(norm(x)) if norm_first else norm(x + sublayer(x))


class _Block(nn.Module):
    """Sublayers on one stream of tokens; their weights have dotted names."""

    def __init__(self, norm_first: bool, dropout: float,
                 attention_dropout: float) -> None:
        check_probability(dropout=dropout, attention_dropout=attention_dropout)
        super().__init__()
        self.norm_first, self.dropout = norm_first, dropout
        self.attention_dropout = attention_dropout

    def _attend(self, layer: nn.Module, projected: tuple[Tensor, ...],
                attention_mask: Tensor | None) -> Tensor:
        heads = attention_with_dropout(
            *projected, attention_mask, p=self.attention_dropout,
            training=self.training)
        return self._drop(layer.W_o(combine_heads(heads)))

    def _digest(self, x: Tensor) -> Tensor:
        return self._drop(self.feed_forward(x))

    def _drop(self, x: Tensor) -> Tensor:
        return dropout(x, self.dropout, training=self.training)

    def parameter_arrays(self) -> dict[str, ndarray]:
        """Copy the weights of all parts, in the layout of ``numpy_block``.

        Returns:
            Arrays by dotted name, such as ``self_attention.W_q``.
        """
        return {f"{part}.{name}": array
                for part, layer in self.named_children()
                for name, array in layer.parameter_arrays().items()}

    def load_parameter_arrays(self, arrays: Mapping[str, ndarray]) -> None:
        """Take over the weights of all parts.

        Args:
            arrays: What ``parameter_arrays`` of any variant gives.

        Raises:
            ValueError: A name is missing or unknown, or a shape is wrong.
                Nothing is changed then.
        """
        check_named_shapes(_shapes(arrays), _shapes(self.parameter_arrays()))
        for part, layer in self.named_children():
            names = [name.split(".", 1)[1] for name in arrays
                     if name.split(".", 1)[0] == part]
            layer.load_parameter_arrays(
                {name: arrays[f"{part}.{name}"] for name in names})


class EncoderBlock(_Block):
    """Self-attention, then feed-forward, each with residual and norm.

    Attributes:
        self_attention: ``MultiHeadSelfAttention``.
        feed_forward: ``FeedForward``.
        norm_1, norm_2: ``LayerNorm`` of these two sublayers.
        norm_first, dropout, attention_dropout: As given.

    Source: Vaswani et al. (2017), section 3.1 and figure 1, left.
    """

    @shape_checked
    def __init__(self, embed_dim: int, num_heads: int, hidden_dim: int, *,
                 norm_first: bool = False, activation: str = "relu",
                 bias: bool = True, dropout: float | int = 0.0,
                 attention_dropout: float | int = 0.0, eps: float = 1e-5,
                 device: torch.device | str | None = None,
                 dtype: torch.dtype | None = None) -> None:
        """Draw new weights.

        Args:
            embed_dim: Width of a token; ``num_heads`` divides it.
            num_heads: Number of heads, at least 1.
            hidden_dim: Width of the feed-forward's hidden layer.
            norm_first: False is the paper's order (post-norm), True that of
                most later models (pre-norm).
            activation: "relu" or "gelu".
            bias: Whether attention and feed-forward add biases.
            dropout: Probability for the outputs of the sublayers.
            attention_dropout: Probability for the attention weights.
            eps: Of the norms.
            device: Where the weights live.
            dtype: A floating-point dtype; PyTorch's default if None.

        Raises:
            ValueError: A number is out of range; see the parts.
        """
        super().__init__(norm_first, dropout, attention_dropout)
        place = {"device": device,
                 "dtype": _float_or_default("EncoderBlock", dtype)}
        self.embed_dim = embed_dim
        self.self_attention = MultiHeadSelfAttention(
            embed_dim, num_heads, bias=bias, **place)
        self.norm_1 = LayerNorm(embed_dim, eps=eps, **place)
        self.feed_forward = FeedForward(
            embed_dim, hidden_dim, activation=activation, bias=bias, **place)
        self.norm_2 = LayerNorm(embed_dim, eps=eps, **place)

    @shape_checked
    def forward(self, x: Float[Tensor, "batch seq_len {self.embed_dim}"],
                attention_mask: Bool[Tensor, "..."] | None = None
                ) -> Float[Tensor, "batch seq_len {self.embed_dim}"]:
        """Let every token gather from the others, then digest by itself.

        Args:
            x: Embeddings with their positions, or an earlier block's output.
            attention_mask: True = may attend; broadcasts to
                ``(batch, num_heads, seq_len, seq_len)``.

        Returns:
            The new embeddings.
        """
        def attention(y: Tensor) -> Tensor:
            layer = self.self_attention
            return self._attend(layer, layer.project(y), attention_mask)

        order = {"norm_first": self.norm_first}
        x = add_and_norm(x, attention, self.norm_1, **order)
        return add_and_norm(x, self._digest, self.norm_2, **order)


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

    @shape_checked
    def __init__(self, embed_dim: int, num_heads: int, hidden_dim: int, *,
                 memory_dim: int | None = None, norm_first: bool = False,
                 activation: str = "relu", bias: bool = True,
                 dropout: float | int = 0.0,
                 attention_dropout: float | int = 0.0, eps: float = 1e-5,
                 device: torch.device | str | None = None,
                 dtype: torch.dtype | None = None) -> None:
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
            device: Where the weights live.
            dtype: A floating-point dtype; PyTorch's default if None.

        Raises:
            ValueError: A number is out of range; see the parts.
        """
        super().__init__(norm_first, dropout, attention_dropout)
        place = {"device": device,
                 "dtype": _float_or_default("DecoderBlock", dtype)}
        self.embed_dim = embed_dim
        self.memory_dim = embed_dim if memory_dim is None else memory_dim
        self.self_attention = MultiHeadSelfAttention(
            embed_dim, num_heads, bias=bias, **place)
        self.norm_1 = LayerNorm(embed_dim, eps=eps, **place)
        self.cross_attention = MultiHeadCrossAttention(
            embed_dim, num_heads, memory_dim=memory_dim, bias=bias, **place)
        self.norm_2 = LayerNorm(embed_dim, eps=eps, **place)
        self.feed_forward = FeedForward(
            embed_dim, hidden_dim, activation=activation, bias=bias, **place)
        self.norm_3 = LayerNorm(embed_dim, eps=eps, **place)

    @shape_checked
    def forward(self, x: Float[Tensor, "batch seq_len {self.embed_dim}"],
                memory: Float[Tensor, "batch memory_len {self.memory_dim}"],
                attention_mask: Bool[Tensor, "..."] | None = None,
                memory_mask: Bool[Tensor, "..."] | None = None
                ) -> Float[Tensor, "batch seq_len {self.embed_dim}"]:
        """Gather from the own tokens, then from the memory, then digest.

        Args:
            x: Embeddings with their positions, or an earlier block's output.
            memory: The output of the last encoder block.
            attention_mask: True = may attend; broadcasts to
                ``(batch, num_heads, seq_len, seq_len)``. For a decoder that
                writes word by word, ``causal_mask(seq_len)`` or more.
            memory_mask: True = may attend; broadcasts to
                ``(batch, num_heads, seq_len, memory_len)``.

        Returns:
            The new embeddings.
        """
        def attention(y: Tensor) -> Tensor:
            layer = self.self_attention
            return self._attend(layer, layer.project(y), attention_mask)

        def cross_attention(y: Tensor) -> Tensor:
            layer = self.cross_attention
            return self._attend(layer, layer.project(y, memory), memory_mask)

        order = {"norm_first": self.norm_first}
        x = add_and_norm(x, attention, self.norm_1, **order)
        x = add_and_norm(x, cross_attention, self.norm_2, **order)
        return add_and_norm(x, self._digest, self.norm_3, **order)


def _linear(inward: int, outward: int, *, bias: bool,
            device: torch.device | str | None,
            dtype: torch.dtype) -> nn.Linear:
    linear = nn.Linear(inward, outward, bias=bias, device=device, dtype=dtype)
    nn.init.xavier_uniform_(linear.weight)
    if bias:
        nn.init.zeros_(linear.bias)
    return linear


def _shapes(arrays: Mapping[str, ndarray]) -> dict[str, tuple[int, ...]]:
    return {name: tuple(array.shape) for name, array in arrays.items()}


def _float_or_default(where: str, dtype: torch.dtype | None) -> torch.dtype:
    dtype = torch.get_default_dtype() if dtype is None else dtype
    if not dtype.is_floating_point:
        raise ValueError(f"{where}: dtype={dtype} must be a floating-point "
                         "dtype")
    return dtype
