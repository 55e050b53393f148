"""One layer of attention on several processes.

There are two ways to cut it. *By heads*: each process owns some heads, that
is some columns of ``W_q``, ``W_k``, ``W_v`` and the matching rows of ``W_o``;
the partial outputs are added up once. *By sequence*: each process owns a
slice of the tokens, and either the keys and values travel round a ring, or
an all-to-all trades slices of tokens for heads and back.

Communication is torch.distributed's: gloo between processes on one machine,
NCCL between GPUs, by the same code. The sequence cuts are written with its
primitives; torch's own ``context_parallel`` covers the same ground on CUDA,
but has no CPU kernel to run with, and so could not be checked here.

Sources
-------
Shoeybi et al., "Megatron-LM" (2019), arXiv:1909.08053.
Liu et al., "Ring Attention" (2023), arXiv:2310.01889.
Jacobs et al., "DeepSpeed Ulysses" (2023), arXiv:2309.14509.
"""

import copy
import math
from typing import Any

import torch
import torch.distributed as dist
from jaxtyping import Float
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.nn.functional import all_to_all_single
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)

from self_attention import torch_eager, torch_fused
from self_attention._checks import check_scale
from self_attention._shapes import shape_checked

__all__ = ["all_to_all_attention", "regroup_rows", "ring_attention",
           "shard_heads"]

Layer = (torch_eager.MultiHeadSelfAttention
         | torch_fused.MultiHeadSelfAttention)


def shard_heads(layer: Layer, mesh: DeviceMesh) -> Layer:
    """Give each process of a mesh its share of a layer's heads.

    Args:
        layer: A layer with the same weights on every process.
        mesh: One-dimensional; its size divides the number of heads.

    Returns:
        A copy of the layer that takes the whole input and gives the whole
        output on every process. Its forward pass needs one all-reduce, after
        ``W_o``. ``num_heads`` is the number of heads of this process.

    Raises:
        ValueError: The processes do not divide the heads.

    Source: Shoeybi et al. (2019), section 3.
    """
    parts = mesh.size()
    _check_parts(num_heads=layer.num_heads, processes=parts)
    shard = copy.deepcopy(layer)
    plan: dict[str, Any] = {"W_o": RowwiseParallel()}
    if isinstance(shard, torch_fused.MultiHeadSelfAttention):
        with torch.no_grad():
            for tensor in shard.W_qkv.parameters():
                tensor.copy_(regroup_rows(tensor, parts))
        plan["W_qkv"] = ColwiseParallel()
    else:
        plan |= {name: ColwiseParallel() for name in ("W_q", "W_k", "W_v")}
    shard.num_heads = layer.num_heads // parts
    return parallelize_module(shard, mesh, plan)


def regroup_rows(packed: Tensor, parts: int) -> Tensor:
    """Reorder the rows of a packed projection so that it can be cut.

    Packed rows stand as all queries, all keys, all values. Cut into equal
    parts, the first process would get queries only, and the shapes would
    still fit: a wrong answer without an error.

    Args:
        packed: ``(3 * num_heads * head_dim, ...)``, weight or bias.
        parts: Number of processes; divides the number of heads.

    Returns:
        The rows of the queries, keys and values of the first process, then
        those of the second.

    Raises:
        ValueError: The rows cannot be divided like that.
    """
    if packed.shape[0] % (3 * parts) != 0:
        raise ValueError(f"packed has {packed.shape[0]} rows, which is not "
                         f"divisible by 3 * parts={3 * parts}")
    by_part = packed.unflatten(0, (3, parts, -1)).transpose(0, 1)
    return by_part.flatten(0, 2)


@shape_checked
def ring_attention(
    query: Float[Tensor, "*batch slice_len head_dim"],
    key: Float[Tensor, "*batch slice_len head_dim"],
    value: Float[Tensor, "*batch slice_len value_dim"],
    *,
    scale: float | int | None = None,
    is_causal: bool = False,
    group: dist.ProcessGroup | None = None,
) -> Float[Tensor, "*batch slice_len value_dim"]:
    """Attend to the whole sequence while holding one slice of it.

    Keys and values travel round the ring of processes. Each process merges
    what it sees into its own output, as the tiles of an online softmax are
    merged. In the backward pass their gradients travel along and come home.

    Args:
        query: The slice of this process; slice r is the r-th of the sequence,
            and all slices are equally long.
        key: The same slice of the keys.
        value: The same slice of the values.
        scale: Factor on the scores; ``1 / sqrt(head_dim)`` if None.
        is_causal: Let no token attend to a later one.
        group: The processes; all of them if None.

    Returns:
        The output for the tokens of this process.

    Source: Liu et al. (2023), algorithm 1.
    """
    scale = check_scale(scale, query.shape[-1])
    return _Ring.apply(query, key, value, scale, is_causal, group)


@shape_checked
def all_to_all_attention(
    query: Float[Tensor, "batch num_heads slice_len head_dim"],
    key: Float[Tensor, "batch num_heads slice_len head_dim"],
    value: Float[Tensor, "batch num_heads slice_len value_dim"],
    *,
    scale: float | int | None = None,
    is_causal: bool = False,
    group: dist.ProcessGroup | None = None,
) -> Float[Tensor, "batch num_heads slice_len value_dim"]:
    """Trade slices of the sequence for heads, attend, and trade back.

    Args:
        query: All heads, the slice of this process.
        key: The same slice of the keys.
        value: The same slice of the values.
        scale: Factor on the scores; ``1 / sqrt(head_dim)`` if None.
        is_causal: Let no token attend to a later one.
        group: The processes; all of them if None. They must divide the heads.

    Returns:
        The output for the tokens of this process.

    Raises:
        ValueError: The processes do not divide the heads.

    Source: Jacobs et al. (2023), section 3.
    """
    parts = dist.get_world_size(group)
    _check_parts(num_heads=query.shape[1], processes=parts)
    whole = [_trade(t, 1, 2, group) for t in (query, key, value)]
    heads = torch_fused.scaled_dot_product_attention(
        *whole, scale=scale, is_causal=is_causal)
    return _trade(heads, 2, 1, group)


def _trade(tensor: Tensor, cut: int, join: int,
           group: dist.ProcessGroup | None) -> Tensor:
    """Send part p of one axis to process p; join what comes on another."""
    parts = dist.get_world_size(group)
    sent = torch.stack(tensor.chunk(parts, dim=cut)).contiguous()
    received = all_to_all_single(torch.empty_like(sent), sent, group=group)
    return torch.cat(received.unbind(0), dim=join)


class _Ring(torch.autograd.Function):
    """Keys and values go round once; their gradients go with them."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor,
                scale: float, is_causal: bool,
                group: dist.ProcessGroup | None) -> Tensor:
        rank, parts = dist.get_rank(group), dist.get_world_size(group)
        output = torch.zeros_like(query[..., :1]) * value[..., :1, :]
        total = torch.full_like(query[..., :1], -math.inf)
        travelling = (key, value)
        for step in range(parts):
            scores = _scores(query, travelling[0], scale, is_causal, rank,
                             (rank - step) % parts)
            if scores is not None:
                output, total = _merge(output, total, scores, travelling[1])
            if step < parts - 1:
                travelling = _pass_on(travelling, group)
        ctx.save_for_backward(query, key, value, output, total)
        ctx.settings = (scale, is_causal, group)
        return output

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Any, ...]:
        query, key, value, output, total = ctx.saved_tensors
        scale, is_causal, group = ctx.settings
        rank, parts = dist.get_rank(group), dist.get_world_size(group)
        inner = (grad_output * output).sum(-1, keepdim=True)
        grad_query = torch.zeros_like(query)
        travelling = (key, value, torch.zeros_like(key),
                      torch.zeros_like(value))
        for step in range(parts):
            k, v, grad_k, grad_v = travelling
            scores = _scores(query, k, scale, is_causal, rank,
                             (rank - step) % parts)
            if scores is not None:
                weights = torch.exp(scores - total)
                grad_scores = weights * (grad_output @ v.mT - inner) * scale
                grad_query = grad_query + grad_scores @ k
                grad_k = grad_k + grad_scores.mT @ query
                grad_v = grad_v + weights.mT @ grad_output
            travelling = _pass_on((k, v, grad_k, grad_v), group)
        return (grad_query, *travelling[2:], None, None, None)


def _scores(query: Tensor, key: Tensor, scale: float, is_causal: bool,
            rank: int, source: int) -> Tensor | None:
    """Scores against a slice of the keys; None if all of it is later."""
    if is_causal and source > rank:
        return None
    scores = query @ key.mT * scale
    if is_causal and source == rank:
        later = torch.ones_like(scores, dtype=torch.bool).triu(1)
        scores = scores.masked_fill(later, -math.inf)
    return scores


def _merge(output: Tensor, total: Tensor, scores: Tensor,
           value: Tensor) -> tuple[Tensor, Tensor]:
    """Merge one more slice; ``total`` is the log-sum-exp so far."""
    part = torch.logsumexp(scores, dim=-1, keepdim=True)
    new_total = torch.logaddexp(total, part)
    kept = torch.exp(total - new_total)
    return output * kept + torch.exp(scores - new_total) @ value, new_total


def _pass_on(tensors: tuple[Tensor, ...],
             group: dist.ProcessGroup | None) -> tuple[Tensor, ...]:
    """Send to the next process of the ring, receive from the one before."""
    rank, parts = dist.get_rank(group), dist.get_world_size(group)
    if parts == 1:
        return tensors
    sent = [tensor.contiguous() for tensor in tensors]
    received = [torch.empty_like(tensor) for tensor in sent]
    after, before = ((rank + step) % parts for step in (1, -1))
    if group is not None:
        after, before = (dist.get_global_rank(group, r)
                         for r in (after, before))
    moves = [dist.P2POp(dist.isend, tensor, after, group) for tensor in sent]
    moves += [dist.P2POp(dist.irecv, tensor, before, group)
              for tensor in received]
    for move in dist.batch_isend_irecv(moves):
        move.wait()
    return tuple(received)


def _check_parts(*, num_heads: int, processes: int) -> None:
    if num_heads % processes != 0:
        raise ValueError(f"num_heads={num_heads} is not divisible by the "
                         f"number of processes, {processes}")
