"""What attention must give, by code that this course did not write.

``library_attention`` is PyTorch's own function. ``loop_attention`` is for the
variant that calls that very function: Python's exactly rounded ``math.fsum``
over single numbers, in another order than any of the variants.
"""

import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from variants import Variant


def library_attention(query, key, value, mask=None, scale=None):
    """F.scaled_dot_product_attention on float64 copies."""
    tensors = [torch.tensor(x, dtype=torch.float64)
               for x in (query, key, value)]
    if mask is not None:
        scores_shape = (*query.shape[:-1], key.shape[-2])
        mask = torch.tensor(np.broadcast_to(mask, scores_shape).copy())
    return F.scaled_dot_product_attention(
        *tensors, attn_mask=mask, scale=scale).numpy()


def loop_weights(query, key, mask=None, scale=None):
    """One query and one key at a time; a query without a key gets zeros."""
    shape = (*query.shape[:-1], key.shape[-2])
    allowed = np.broadcast_to(True if mask is None else mask, shape)
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    weights = np.zeros(shape)
    for index in np.ndindex(shape[:-1]):
        keys = [j for j in range(shape[-1]) if allowed[index][j]]
        scores = [scale * math.fsum(a * b for a, b in zip(
            query[index].tolist(), key[index[:-1]][j].tolist()))
            for j in keys]
        powers = [math.exp(score - max(scores)) for score in scores]
        for j, power in zip(keys, powers):
            weights[index][j] = power / math.fsum(powers)
    return weights


def loop_attention(query, key, value, mask=None, scale=None):
    weights = loop_weights(query, key, mask, scale)
    output = np.zeros((*weights.shape[:-1], value.shape[-1]))
    for *batch, i, c in np.ndindex(output.shape):
        output[(*batch, i, c)] = math.fsum(
            w * v for w, v in zip(weights[(*batch, i)].tolist(),
                                  value[(*batch, slice(None), c)].tolist())
            if w != 0)
    return output


def oracles_for(variant: Variant):
    """All oracles that are independent of the variant."""
    if variant.name == "torch_fused":  # it calls the library's function
        return (loop_attention,)
    return (library_attention, loop_attention)


def zero_rule(output, mask, query_len):
    """Refuse output for a query that may attend nowhere, unless zero."""
    mask = np.broadcast_to(mask, (*output.shape[:-2], query_len,
                                  np.shape(mask)[-1]))
    nowhere = ~mask.any(axis=-1)
    np.testing.assert_array_equal(output[nowhere], 0)
    return nowhere


def library_layer(arrays, num_heads, x, mask=None, *, bias):
    """nn.MultiheadAttention with the given weights, and its weights.

    It stores the transposed matrices, packs three of them, and its masks say
    True where a query may NOT attend.
    """
    embed_dim = x.shape[-1]
    layer = nn.MultiheadAttention(embed_dim, num_heads, bias=bias,
                                  batch_first=True, dtype=torch.float64)
    with torch.no_grad():
        packed = np.hstack([arrays[name] for name in ("W_q", "W_k", "W_v")])
        layer.in_proj_weight.copy_(torch.tensor(packed.T.copy()))
        layer.out_proj.weight.copy_(torch.tensor(arrays["W_o"].T.copy()))
        if bias:
            packed = np.hstack([arrays[f"b_{name}"] for name in "qkv"])
            layer.in_proj_bias.copy_(torch.tensor(packed))
            layer.out_proj.bias.copy_(torch.tensor(arrays["b_o"]))
    if mask is not None:
        batch, seq_len, _ = x.shape
        full = np.broadcast_to(mask, (batch, num_heads, seq_len, seq_len))
        mask = torch.tensor(~full.reshape(-1, seq_len, seq_len))
    tensor = torch.tensor(x)
    with torch.no_grad():
        output, weights = layer(tensor, tensor, tensor, attn_mask=mask,
                                average_attn_weights=False)
    return output.numpy(), weights.numpy()
