"""Attention as GPU kernels, in Triton: forward, and backward in two halves.

The algorithm is that of ``numpy_tiled``. One program computes one tile of
queries of one head: it walks over the tiles of the keys, keeps the running
maximum, the running sum and the running output in registers, and writes the
output once. The scores never reach the memory of the GPU.

Without a GPU the same text runs in Triton's interpreter, for small shapes:
set ``TRITON_INTERPRET=1`` before this module is imported.

Inputs may be float16, bfloat16 or float32; products are accumulated in
float32. A row that may attend nowhere gives zeros, as everywhere here.

Sources
-------
Dao, "FlashAttention-2" (2023), arXiv:2307.08691.
Tillet, Kung and Cox, "Triton" (2019), doi:10.1145/3315508.3329973.
"""

import os
from typing import Any

import torch
import triton
import triton.language as tl
from jaxtyping import Bool, Float
from torch import Tensor

from self_attention._checks import check_mask_broadcasts, check_scale
from self_attention._shapes import shape_checked

__all__ = ["HEAD_DIMS", "scaled_dot_product_attention"]

#: Widths of a head that the kernels take: a tile is a power of two.
HEAD_DIMS = (16, 32, 64, 128)
#: Warps that share one tile, and how many tiles are on their way at once.
WARPS, STAGES = 4, 2

_INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
INTERPRETED = tl.constexpr(_INTERPRETED)
LOG2_E = tl.constexpr(1.4426950408889634)  # exp(x) is exp2(x * log2(e))


@triton.jit
def dot(left, right):
    """Multiply two tiles, with sums in float32."""
    if INTERPRETED:  # which would multiply the bit patterns of bfloat16
        return tl.dot(left.to(tl.float32), right.to(tl.float32))
    return tl.dot(left, right, input_precision="ieee")


@triton.jit
def load_rows(pointer, rows, length, D: tl.constexpr):
    """Load rows of a (length, D) matrix; zeros beyond its end."""
    places = rows[:, None] * D + tl.arange(0, D)[None, :]
    return tl.load(pointer + places, mask=rows[:, None] < length, other=0.0)


@triton.jit
def store_rows(pointer, rows, length, tile, D: tl.constexpr):
    """Store rows of a (length, D) matrix, but none beyond its end."""
    places = rows[:, None] * D + tl.arange(0, D)[None, :]
    tl.store(pointer + places, tile.to(pointer.dtype.element_ty),
             mask=rows[:, None] < length)


@triton.jit
def scores_tile(q, k, scale, q_rows, k_rows, query_len, key_len, real,
                IS_CAUSAL: tl.constexpr, HAS_PADDING: tl.constexpr):
    """Scores of a tile in powers of two; -inf where masked."""
    allowed = (q_rows[:, None] < query_len) & (k_rows[None, :] < key_len)
    if IS_CAUSAL:  # bottom right: the last query sees the last key
        shift = key_len - query_len
        allowed = allowed & (k_rows[None, :] <= q_rows[:, None] + shift)
    if HAS_PADDING:
        kept = tl.load(real + k_rows, mask=k_rows < key_len, other=0)
        allowed = allowed & (kept[None, :] != 0)
    scores = dot(q, tl.trans(k)) * (scale * LOG2_E)
    return tl.where(allowed, scores, float("-inf"))


@triton.jit
def forward_kernel(query, key, value, output, log_sum, real, scale, num_heads,
                   query_len, key_len, IS_CAUSAL: tl.constexpr,
                   HAS_PADDING: tl.constexpr, D: tl.constexpr,
                   Q_TILE: tl.constexpr, K_TILE: tl.constexpr):
    """One tile of queries of one head: all its keys, one tile at a time."""
    tile, head = tl.program_id(0), tl.program_id(1).to(tl.int64)
    query += head * query_len * D
    output += head * query_len * D
    key += head * key_len * D
    value += head * key_len * D
    real += (head // num_heads) * key_len
    q_rows = tile * Q_TILE + tl.arange(0, Q_TILE)
    q = load_rows(query, q_rows, query_len, D)
    largest = tl.full([Q_TILE], float("-inf"), tl.float32)
    total = tl.zeros([Q_TILE], tl.float32)
    summed = tl.zeros([Q_TILE, D], tl.float32)
    end = key_len
    if IS_CAUSAL:  # keys behind the last query of this tile are skipped
        last = (tile + 1) * Q_TILE + key_len - query_len
        end = tl.maximum(0, tl.minimum(last, key_len))
    for start in range(0, end, K_TILE):
        k_rows = start + tl.arange(0, K_TILE)
        k = load_rows(key, k_rows, key_len, D)
        v = load_rows(value, k_rows, key_len, D)
        scores = scores_tile(q, k, scale, q_rows, k_rows, query_len, key_len,
                             real, IS_CAUSAL, HAS_PADDING)
        new = tl.maximum(largest, tl.max(scores, 1))
        # While a row has seen no key, -inf - (-inf) would be NaN.
        shift = tl.where(new == float("-inf"), 0.0, new)
        powers = tl.exp2(scores - shift[:, None])
        kept = tl.exp2(largest - shift)
        total = total * kept + tl.sum(powers, 1)
        summed = summed * kept[:, None] + dot(powers.to(v.dtype), v)
        largest = new
    some = total > 0
    summed = summed / tl.where(some, total, 1.0)[:, None]
    store_rows(output, q_rows, query_len, summed, D)
    # +inf for an empty row makes its weights 0 in the backward pass.
    log = tl.where(some, largest + tl.log2(tl.where(some, total, 1.0)),
                   float("inf"))
    tl.store(log_sum + head * query_len + q_rows, log,
             mask=q_rows < query_len)


@triton.jit
def grad_key_value_kernel(query, key, value, grad_output, log_sum, inner,
                          grad_key, grad_value, real, scale, num_heads,
                          query_len, key_len, IS_CAUSAL: tl.constexpr,
                          HAS_PADDING: tl.constexpr, D: tl.constexpr,
                          Q_TILE: tl.constexpr, K_TILE: tl.constexpr):
    """One tile of keys of one head: what all queries send back to it."""
    tile, head = tl.program_id(0), tl.program_id(1).to(tl.int64)
    query += head * query_len * D
    grad_output += head * query_len * D
    key += head * key_len * D
    value += head * key_len * D
    grad_key += head * key_len * D
    grad_value += head * key_len * D
    log_sum += head * query_len
    inner += head * query_len
    real += (head // num_heads) * key_len
    k_rows = tile * K_TILE + tl.arange(0, K_TILE)
    k = load_rows(key, k_rows, key_len, D)
    v = load_rows(value, k_rows, key_len, D)
    to_key = tl.zeros([K_TILE, D], tl.float32)
    to_value = tl.zeros([K_TILE, D], tl.float32)
    begin = 0
    if IS_CAUSAL:  # queries before this tile's first key are skipped
        first = tl.maximum(0, tile * K_TILE - (key_len - query_len))
        begin = first // Q_TILE * Q_TILE
    for start in range(begin, query_len, Q_TILE):
        q_rows = start + tl.arange(0, Q_TILE)
        q = load_rows(query, q_rows, query_len, D)
        g = load_rows(grad_output, q_rows, query_len, D)
        here = q_rows < query_len
        log = tl.load(log_sum + q_rows, mask=here, other=float("inf"))
        row = tl.load(inner + q_rows, mask=here, other=0.0)
        scores = scores_tile(q, k, scale, q_rows, k_rows, query_len, key_len,
                             real, IS_CAUSAL, HAS_PADDING)
        weights = tl.exp2(scores - log[:, None])
        to_value += dot(tl.trans(weights.to(g.dtype)), g)
        to_scores = weights * (dot(g, tl.trans(v)) - row[:, None]) * scale
        to_key += dot(tl.trans(to_scores.to(q.dtype)), q)
    store_rows(grad_key, k_rows, key_len, to_key, D)
    store_rows(grad_value, k_rows, key_len, to_value, D)


@triton.jit
def grad_query_kernel(query, key, value, grad_output, log_sum, inner,
                      grad_query, real, scale, num_heads, query_len, key_len,
                      IS_CAUSAL: tl.constexpr, HAS_PADDING: tl.constexpr,
                      D: tl.constexpr, Q_TILE: tl.constexpr,
                      K_TILE: tl.constexpr):
    """One tile of queries of one head: what all its keys send back to it."""
    tile, head = tl.program_id(0), tl.program_id(1).to(tl.int64)
    query += head * query_len * D
    grad_output += head * query_len * D
    grad_query += head * query_len * D
    key += head * key_len * D
    value += head * key_len * D
    real += (head // num_heads) * key_len
    q_rows = tile * Q_TILE + tl.arange(0, Q_TILE)
    here = q_rows < query_len
    q = load_rows(query, q_rows, query_len, D)
    g = load_rows(grad_output, q_rows, query_len, D)
    log = tl.load(log_sum + head * query_len + q_rows, mask=here,
                  other=float("inf"))
    row = tl.load(inner + head * query_len + q_rows, mask=here, other=0.0)
    to_query = tl.zeros([Q_TILE, D], tl.float32)
    end = key_len
    if IS_CAUSAL:
        last = (tile + 1) * Q_TILE + key_len - query_len
        end = tl.maximum(0, tl.minimum(last, key_len))
    for start in range(0, end, K_TILE):
        k_rows = start + tl.arange(0, K_TILE)
        k = load_rows(key, k_rows, key_len, D)
        v = load_rows(value, k_rows, key_len, D)
        scores = scores_tile(q, k, scale, q_rows, k_rows, query_len, key_len,
                             real, IS_CAUSAL, HAS_PADDING)
        weights = tl.exp2(scores - log[:, None])
        to_scores = weights * (dot(g, tl.trans(v)) - row[:, None]) * scale
        to_query += dot(to_scores.to(k.dtype), k)
    store_rows(grad_query, q_rows, query_len, to_query, D)


@shape_checked
def scaled_dot_product_attention(
    query: Float[Tensor, "batch num_heads query_len head_dim"],
    key: Float[Tensor, "batch num_heads key_len head_dim"],
    value: Float[Tensor, "batch num_heads key_len head_dim"],
    attention_mask: Bool[Tensor, "batch 1 1 key_len"] | None = None,
    *,
    scale: float | int | None = None,
    is_causal: bool = False,
) -> Float[Tensor, "batch num_heads query_len head_dim"]:
    """Give each query the average of the values, weighted by attention.

    Args:
        query: float16, bfloat16 or float32, on a GPU.
        key: In the dtype of the query.
        value: In the dtype of the query; as wide as the keys.
        attention_mask: A padding mask, True = may attend.
        scale: Factor on the scores; ``1 / sqrt(head_dim)`` if None.
        is_causal: Also apply a causal mask, aligned at the bottom right.

    Returns:
        One row for each query, in its dtype; zeros where it may attend
        nowhere.

    Raises:
        ValueError: ``head_dim`` is not in ``HEAD_DIMS``, a shape does not
            fit, or the tensors are not on a GPU.
        TypeError: The dtypes differ or are not among those above.

    Source: Dao (2023), algorithms 1 and 2.
    """
    _check(query, key, value)
    scale = check_scale(scale, query.shape[-1])
    if attention_mask is not None:
        check_mask_broadcasts(attention_mask.shape,
                              (*query.shape[:-1], key.shape[-2]))
    return _Attention.apply(query, key, value, attention_mask, scale,
                            is_causal)


class _Attention(torch.autograd.Function):
    """The kernels, with one log-sum-exp a row kept for the way back."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor,
                real: Tensor | None, scale: float,
                is_causal: bool) -> Tensor:
        query, key, value = (t.contiguous() for t in (query, key, value))
        # Padding may hold NaN, and 0 * NaN is NaN in a tile's product.
        if real is not None:
            hidden = ~real.transpose(-2, -1)
            key, value = (t.masked_fill(hidden, 0) for t in (key, value))
            real = real.to(torch.int8).contiguous()
        output = torch.empty_like(query)
        log_sum = query.new_empty(query.shape[:-1], dtype=torch.float32)
        settings = _settings(query, key, real, scale, is_causal)
        grid = _grid(query, settings["Q_TILE"])
        if query.numel():
            forward_kernel[grid](
                query, key, value, output, log_sum, real if real is not None
                else query, **settings)
        ctx.save_for_backward(query, key, value, real, output, log_sum)
        ctx.scale, ctx.is_causal = scale, is_causal
        return output

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Any, ...]:
        query, key, value, real, output, log_sum = ctx.saved_tensors
        grad_output = grad_output.contiguous()
        inner = (grad_output.float() * output.float()).sum(-1)
        grads = [torch.zeros_like(t) for t in (query, key, value)]
        settings = _settings(query, key, real, ctx.scale, ctx.is_causal)
        given = (query, key, value, grad_output, log_sum, inner)
        mask = real if real is not None else query
        if query.numel() and key.numel():
            grad_key_value_kernel[_grid(key, settings["K_TILE"])](
                *given, *grads[1:], mask, **settings)
            grad_query_kernel[_grid(query, settings["Q_TILE"])](
                *given, grads[0], mask, **settings)
        return (*grads, None, None, None)


def _settings(query: Tensor, key: Tensor, real: Tensor | None, scale: float,
              is_causal: bool) -> dict[str, Any]:
    """What every kernel is told."""
    tile = tile_rows(query.dtype)
    return {"scale": scale, "num_heads": query.shape[1],
            "query_len": query.shape[2], "key_len": key.shape[2],
            "IS_CAUSAL": is_causal, "HAS_PADDING": real is not None,
            "D": query.shape[-1], "Q_TILE": tile, "K_TILE": tile,
            "num_warps": WARPS, "num_stages": STAGES}


def tile_rows(dtype: torch.dtype) -> int:
    """Rows of a tile; tools/compile_kernels.py shows that they fit a Hopper.

    float32 is multiplied without the tensor cores, which takes so many
    registers that larger tiles spill thousands of bytes.
    """
    return 16 if _INTERPRETED or dtype == torch.float32 else 64


def _grid(rows: Tensor, tile: int) -> tuple[int, int]:
    return triton.cdiv(rows.shape[2], tile), rows.shape[0] * rows.shape[1]


def _check(query: Tensor, key: Tensor, value: Tensor) -> None:
    if query.shape[-1] not in HEAD_DIMS:
        raise ValueError(f"head_dim={query.shape[-1]} must be one of "
                         f"{HEAD_DIMS}")
    dtypes = [t.dtype for t in (query, key, value)]
    if len(set(dtypes)) > 1 or dtypes[0] not in (
            torch.float16, torch.bfloat16, torch.float32):
        raise TypeError(f"query, key and value have the dtypes {dtypes}; they "
                        "must share one of float16, bfloat16 and float32")
    if not _INTERPRETED and query.device.type != "cuda":
        raise ValueError(f"query is on device={query.device}; the kernels run "
                         "on a GPU, or anywhere with TRITON_INTERPRET=1 set "
                         "before self_attention.triton_kernel is imported")
