"""Self-attention in PyTorch, through its fused kernels.

Two things differ from ``torch_eager``: query, key and value come out of one
packed matrix product, and the scores are never stored, because
``torch.nn.functional.scaled_dot_product_attention`` (SDPA) computes them in
tiles. The names and rules are the same.

What a fused kernel cannot keep: a value that is NaN and masked for *some*
queries only (by a causal mask, say) reaches the other rows of the same tile.
Keys that are masked for every query (padding) never matter, as elsewhere.

Sources
-------
Vaswani et al., "Attention Is All You Need" (2017), arXiv:1706.03762.
Dao et al., "FlashAttention" (2022), arXiv:2205.14135.
"""

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from numpy import ndarray
from torch import Tensor, nn

from self_attention._checks import (
    check_head_dim,
    check_parameter_shapes,
    check_scale,
    projection_shapes,
)
from self_attention._shapes import shape_checked
from self_attention.torch_eager import (
    attention_weights,
    causal_mask,
    check_alike,
    check_bias,
    check_floating,
    clear_unattended,
    combine_heads,
    combine_masks,
    padding_mask,
    separate_heads,
    to_array,
    to_tensor,
)

__all__ = [
    "MultiHeadSelfAttention",
    "attention_weights",
    "causal_mask",
    "combine_heads",
    "combine_masks",
    "padding_mask",
    "scaled_dot_product_attention",
    "separate_heads",
]


@shape_checked
def scaled_dot_product_attention(
    query: Float[Tensor, "*batch query_len head_dim"],
    key: Float[Tensor, "*batch key_len head_dim"],
    value: Float[Tensor, "*batch key_len value_dim"],
    attention_mask: Bool[Tensor, "..."] | None = None,
    *,
    scale: float | int | None = None,
    is_causal: bool = False,
) -> Float[Tensor, "*batch query_len value_dim"]:
    """Give each query the average of the values, weighted by attention.

    Args:
        query: One row for each token that asks.
        key: One row for each token that may be attended to.
        value: What each of those tokens has to give.
        attention_mask: True = may attend; broadcasts to
            ``(*batch, query_len, key_len)``.
        scale: Factor on the scores; ``1 / sqrt(head_dim)`` if None.
        is_causal: Also apply ``causal_mask(query_len, key_len)``, aligned at
            the bottom right. (PyTorch's own flag of this name is aligned at
            the top left.)

    Returns:
        One row for each query. A query that may attend nowhere gets zeros and
        finite gradients.

    Raises:
        ValueError, TypeError: As for ``attention_weights``.

    Source: Vaswani et al. (2017), eq. 1; Dao et al. (2022), algorithm 1.
    """
    check_alike(attention_mask, query=query, key=key, value=value)
    scale = check_scale(scale, query.shape[-1])
    query_len, key_len = query.shape[-2], key.shape[-2]
    # Without its own mask argument SDPA skips the tiles above the diagonal.
    skips_tiles = (is_causal and attention_mask is None
                   and query_len == key_len)
    if is_causal and not skips_tiles:
        corner = causal_mask(query_len, key_len, device=query.device)
        attention_mask = combine_masks(attention_mask, corner)
    if attention_mask is not None:
        key, value = clear_unattended(query, key, value, attention_mask)
        attention_mask = torch.atleast_2d(attention_mask)
    if key_len == 0:  # no kernel promises what the average of nothing is
        return query @ key.mT @ value
    return F.scaled_dot_product_attention(
        query, key, value, attn_mask=attention_mask, scale=scale,
        is_causal=skips_tiles)


class MultiHeadSelfAttention(nn.Module):
    """Several heads of self-attention, with one packed projection.

    Attributes:
        embed_dim: Width of a token's embedding, and of the output.
        num_heads: Number of heads.
        head_dim: Width of one head's query, key and value.
        W_qkv: ``nn.Linear`` whose output is the queries of all heads, then
            their keys, then their values.
        W_o: ``nn.Linear``.

    Source: Vaswani et al. (2017), section 3.2.2.
    """

    @shape_checked
    def __init__(self, embed_dim: int, num_heads: int, *,
                 head_dim: int | None = None, bias: bool = False,
                 device: torch.device | str | None = None,
                 dtype: torch.dtype | None = None) -> None:
        """Draw new weights; the arguments are those of ``torch_eager``."""
        super().__init__()
        self.embed_dim, self.num_heads = embed_dim, num_heads
        self.head_dim = check_head_dim(embed_dim, num_heads, head_dim)
        check_floating(dtype)
        inner = num_heads * self.head_dim
        self.W_qkv = nn.Linear(embed_dim, 3 * inner, bias=bias, device=device,
                               dtype=dtype)
        self.W_o = nn.Linear(inner, embed_dim, bias=bias, device=device,
                             dtype=dtype)
        # Each third is a matrix of its own: draw it by its own two widths.
        for weight in (*self.W_qkv.weight.chunk(3), self.W_o.weight):
            nn.init.xavier_uniform_(weight)
        if bias:
            nn.init.zeros_(self.W_qkv.bias)
            nn.init.zeros_(self.W_o.bias)

    def _weight_shapes(self) -> dict[str, tuple[int, int]]:
        return projection_shapes(self.embed_dim, self.num_heads, self.head_dim)

    @shape_checked
    def project(self, x: Float[Tensor, "batch seq_len {self.embed_dim}"]
                ) -> tuple[Float[Tensor, "batch heads seq_len head_dim"],
                           Float[Tensor, "batch heads seq_len head_dim"],
                           Float[Tensor, "batch heads seq_len head_dim"]]:
        """Make the queries, keys and values of every head, in one product.

        Args:
            x: Embeddings of a batch of sequences.

        Returns:
            Query, key and value, each with the heads separated.

        Raises:
            TypeError: ``x`` has another dtype than the weights.
            ValueError: ``x`` has the wrong shape, or is on another device.
        """
        check_alike(weight=self.W_qkv.weight, x=x)
        query, key, value = self.W_qkv(x).chunk(3, dim=-1)
        return (separate_heads(query, self.num_heads),
                separate_heads(key, self.num_heads),
                separate_heads(value, self.num_heads))

    @shape_checked
    def forward(self, x: Float[Tensor, "batch seq_len {self.embed_dim}"],
                attention_mask: Bool[Tensor, "..."] | None = None, *,
                is_causal: bool = False
                ) -> Float[Tensor, "batch seq_len {self.embed_dim}"]:
        """Let every token gather from the tokens it may attend to.

        Args:
            x: Embeddings of a batch of sequences, in the weights' dtype.
            attention_mask: True = may attend; broadcasts to
                ``(batch, num_heads, seq_len, seq_len)``.
            is_causal: Also let no token attend to a later one.

        Returns:
            The new embeddings. A token that may attend nowhere gets the bias
            of ``W_o``, or zeros where there is none.
        """
        query, key, value = self.project(x)
        heads = scaled_dot_product_attention(
            query, key, value, attention_mask, is_causal=is_causal)
        return self.W_o(combine_heads(heads))

    @shape_checked
    def attention_weights(
        self, x: Float[Tensor, "batch seq_len {self.embed_dim}"],
        attention_mask: Bool[Tensor, "..."] | None = None
    ) -> Float[Tensor, "batch {self.num_heads} seq_len seq_len"]:
        """Compute the weights that the fused kernel never stores.

        Args:
            x: Embeddings of a batch of sequences.
            attention_mask: As for calling the layer.

        Returns:
            The weights of every head, computed step by step by
            ``torch_eager.attention_weights`` for looking at.
        """
        query, key, _ = self.project(x)
        return attention_weights(query, key, attention_mask)

    def parameter_arrays(self) -> dict[str, ndarray]:
        """Copy the weights, by name, in the layout of ``numpy_reference``.

        Returns:
            NumPy arrays ``W_q`` to ``W_o``, used as ``x @ W_q``, and ``b_q``
            to ``b_o`` where there are biases.
        """
        tensors = dict(zip(("W_q", "W_k", "W_v"),
                           self.W_qkv.weight.mT.chunk(3, dim=-1)))
        tensors["W_o"] = self.W_o.weight.mT
        if self.W_o.bias is not None:
            biases = (*self.W_qkv.bias.chunk(3), self.W_o.bias)
            tensors |= zip(("b_q", "b_k", "b_v", "b_o"), biases)
        return {name: to_array(tensor) for name, tensor in tensors.items()}

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
        check_bias(self.W_o.bias is not None, arrays)
        tensors = {name: to_tensor(array) for name, array in arrays.items()}
        with torch.no_grad():
            packed = [tensors[name] for name in ("W_q", "W_k", "W_v")]
            self.W_qkv.weight.copy_(torch.cat(packed, dim=-1).mT)
            self.W_o.weight.copy_(tensors["W_o"].mT)
            if self.W_o.bias is not None:
                packed = [tensors[name] for name in ("b_q", "b_k", "b_v")]
                self.W_qkv.bias.copy_(torch.cat(packed))
                self.W_o.bias.copy_(tensors["b_o"])
