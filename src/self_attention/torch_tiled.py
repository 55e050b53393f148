"""Self-attention in PyTorch, in tiles, with its own backward pass.

What a fused kernel does inside, written out in tensor operations that run on
any device: the scores exist one tile at a time, a running maximum and a
running sum for each query keep the softmax exact ("online softmax"), and the
backward pass computes every tile again instead of keeping it. Memory grows
linearly with the length, forward and backward. ``torch_fused`` is faster;
this is the one to read.

The names and rules are those of ``torch_eager``.

Sources
-------
Milakov and Gimelshein, "Online normalizer calculation for softmax" (2018),
arXiv:1805.02867.
Rabe and Staats, "Self-attention Does Not Need O(n^2) Memory" (2021),
arXiv:2112.05682.
Dao et al., "FlashAttention" (2022), arXiv:2205.14135.
"""

from collections.abc import Iterator
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from self_attention import torch_fused
from self_attention._checks import (
    check_mask_broadcasts,
    check_positive,
    check_scale,
)
from self_attention._shapes import shape_checked
from self_attention.torch_eager import (
    attention_weights,
    causal_mask,
    check_alike,
    clear_unattended,
    combine_heads,
    combine_masks,
    padding_mask,
    separate_heads,
    weighted_sum,
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

#: Queries, and keys, of one tile.
BLOCK_SIZE = 256


@shape_checked
def scaled_dot_product_attention(
    query: Float[Tensor, "*batch query_len head_dim"],
    key: Float[Tensor, "*batch key_len head_dim"],
    value: Float[Tensor, "*batch key_len value_dim"],
    attention_mask: Bool[Tensor, "..."] | None = None,
    *,
    scale: float | int | None = None,
    is_causal: bool = False,
    block_size: int = BLOCK_SIZE,
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
            the bottom right, without making it.
        block_size: Queries, and keys, of one tile, at least 1.

    Returns:
        What ``torch_eager.scaled_dot_product_attention`` returns, with the
        same rules for masked keys and empty rows; half precision is computed
        in float32 and rounded once. It has first derivatives only.

    Raises:
        ValueError, TypeError: As there, and for a ``block_size`` below 1.

    Source: Dao et al. (2022), algorithms 1 and 4.
    """
    check_alike(attention_mask, query=query, key=key, value=value)
    check_positive(block_size=block_size)
    scale = check_scale(scale, query.shape[-1])
    if attention_mask is not None:
        check_mask_broadcasts(attention_mask.shape,
                              (*query.shape[:-1], key.shape[-2]))
    return _attend(query, key, value, attention_mask, scale, is_causal,
                   block_size)


def _attend(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None,
            scale: float, is_causal: bool, block: int = BLOCK_SIZE) -> Tensor:
    if mask is not None:
        key, value = clear_unattended(query, key, value, mask)
        mask = torch.atleast_2d(mask)
    corner = key.shape[-2] - query.shape[-2] if is_causal else None
    return _Tiled.apply(query, key, value, mask, scale, corner, block)


class _Tiled(torch.autograd.Function):
    """Attention in tiles, and its gradient in the same tiles."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor,
                mask: Tensor | None, scale: float, corner: int | None,
                block: int) -> Tensor:
        wide = torch.promote_types(query.dtype, torch.float32)
        output = value.new_empty(*query.shape[:-1], value.shape[-1])
        log_sum = query.new_empty(*query.shape[:-1], 1, dtype=wide)
        for rows in _blocks(query.shape[-2], block):
            mixed = torch.zeros_like(output[..., rows, :], dtype=wide)
            total = torch.zeros_like(log_sum[..., rows, :])
            largest = torch.full_like(total, torch.finfo(wide).min / 2)
            for columns, allowed in _tiles(rows, key, mask, corner, block):
                scores = _scores(query, key, rows, columns, allowed, scale)
                before = largest
                largest = torch.maximum(before, scores.amax(-1, keepdim=True))
                shrink = torch.exp(before - largest)
                weights = scores.sub_(largest).exp_()
                total.mul_(shrink).add_(weights.sum(-1, keepdim=True))
                mixed.mul_(shrink).add_(weighted_sum(
                    weights, value[..., columns, :].to(wide), allowed))
            output[..., rows, :] = mixed / total.masked_fill(total == 0, 1)
            log_sum[..., rows, :] = largest + total.log()
        ctx.save_for_backward(query, key, value, output, log_sum, mask)
        ctx.scale, ctx.corner, ctx.block = scale, corner, block
        return output

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, output, log_sum, mask = ctx.saved_tensors
        wide = log_sum.dtype
        grad_output = grad_output.to(wide)
        inner = (output * grad_output).sum(-1, keepdim=True)
        log_sum = log_sum.masked_fill(log_sum.isneginf(), 0)
        grads = [torch.zeros_like(x, dtype=wide) for x in (query, key, value)]
        grad_query, grad_key, grad_value = grads
        for rows in _blocks(query.shape[-2], ctx.block):
            for columns, allowed in _tiles(rows, key, mask, ctx.corner,
                                           ctx.block):
                scores = _scores(query, key, rows, columns, allowed,
                                 ctx.scale)
                weights = scores.sub_(log_sum[..., rows, :]).exp_()
                grad_rows = grad_output[..., rows, :]
                grad_value[..., columns, :] += weights.mT @ grad_rows
                grad_weights = grad_rows @ value[..., columns, :].to(wide).mT
                grad_scores = weights.mul_(
                    grad_weights.sub_(inner[..., rows, :])).mul_(ctx.scale)
                grad_query[..., rows, :] += (
                    grad_scores @ key[..., columns, :].to(wide))
                grad_key[..., columns, :] += (
                    grad_scores.mT @ query[..., rows, :].to(wide))
        return (*(grad.to(query.dtype) for grad in grads),
                None, None, None, None)


def _blocks(length: int, block: int) -> Iterator[slice]:
    for start in range(0, length, block):
        yield slice(start, min(start + block, length))


def _tiles(rows: slice, key: Tensor, mask: Tensor | None, corner: int | None,
           block: int) -> Iterator[tuple[slice, Tensor | None]]:
    """Yield the keys of every tile in which some query sees a key.

    With them comes who may attend to whom; None is all to all.
    """
    for columns in _blocks(key.shape[-2], block):
        allowed = None
        if corner is not None:
            if columns.start > rows.stop - 1 + corner:
                return
            last = torch.arange(rows.start, rows.stop, device=key.device)
            position = torch.arange(columns.start, columns.stop,
                                    device=key.device)
            allowed = position <= last[:, None] + corner
        if mask is not None:
            part = mask[..., rows if mask.shape[-2] > 1 else slice(None),
                        columns if mask.shape[-1] > 1 else slice(None)]
            allowed = part if allowed is None else part & allowed
        if allowed is None or allowed.all():
            yield columns, None
        elif allowed.any():
            yield columns, allowed


def _scores(query: Tensor, key: Tensor, rows: slice, columns: slice,
            allowed: Tensor | None, scale: float) -> Tensor:
    """Compute one tile of scores, ``-inf`` where none may attend."""
    wide = torch.promote_types(query.dtype, torch.float32)
    scores = (query[..., rows, :].to(wide) * scale
              ) @ key[..., columns, :].to(wide).mT
    return scores if allowed is None else scores.masked_fill_(
        ~allowed, -torch.inf)


class MultiHeadSelfAttention(torch_fused.MultiHeadSelfAttention):
    """The layer of ``torch_fused``, with the tiles of this module.

    Attributes:
        embed_dim: Width of a token's embedding, and of the output.
        num_heads: Number of heads.
        head_dim: Width of one head's query, key and value.
        W_qkv: ``nn.Linear`` whose output is the queries of all heads, then
            their keys, then their values.
        W_o: ``nn.Linear``.

    Source: Vaswani et al. (2017), section 3.2.2.
    """

    _attend = staticmethod(_attend)
