"""Self-attention in PyTorch, through its fused kernels.

Two things differ from ``torch_eager``: query, key and value come out of one
packed matrix product, and the scores are never stored, because
``torch.nn.functional.scaled_dot_product_attention`` (SDPA) computes them in
tiles. The names and rules are the same.

Which kernel runs is chosen here, by rules that were measured:

- Keys that are padding are cut off, one sequence after the other, on a
  processor. Its kernels compute what a mask hides, and then throw it away.
- A processor that has no half-precision products emulates them, several times
  slower than float32. There the layer works in float32, and rounds once.
- A causal mask is passed on as a flag where SDPA means the same by it, so that
  the tiles above the diagonal are skipped.
- On a GPU ``kernels_for`` says which of SDPA's kernels may run, fastest first.

``torch.compile`` works on the layer without a break. Compiled code cannot ask
what a mask holds, so padding is masked there and not cut off.

What a fused kernel cannot keep: a value that is NaN and masked for *some*
queries only (by a causal mask, say) reaches the other rows of the same tile.
Keys that are masked for every query (padding) never matter, as elsewhere.

Sources
-------
Vaswani et al., "Attention Is All You Need" (2017), arXiv:1706.03762.
Dao et al., "FlashAttention" (2022), arXiv:2205.14135.
"""

import inspect
from collections.abc import Mapping

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from numpy import ndarray
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from self_attention._checks import (
    check_head_dim,
    check_mask_broadcasts,
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
    "kernels_for",
    "padding_mask",
    "scaled_dot_product_attention",
    "separate_heads",
]


_MKLDNN = torch.ops.mkldnn
#: Whether this processor multiplies matrices in half precision itself.
NATIVE_HALF = {
    dtype: bool(getattr(_MKLDNN, f"_is_mkldnn_{name}_supported", bool)())
    for dtype, name in ((torch.bfloat16, "bf16"), (torch.float16, "fp16"))}
#: Fewer keys than this are masked and not cut off: it would cost more.
SHORTEST_CUT = 128
_CAN_ORDER = "set_priority" in inspect.signature(sdpa_kernel).parameters


def kernels_for(query: Tensor, *, is_masked: bool = False) -> list[SDPBackend]:
    """Say which of SDPA's kernels may run, the fastest first.

    Args:
        query: For its device and dtype only.
        is_masked: Whether there is a mask that is not a flag.

    Returns:
        Kernels; PyTorch takes the first that can do the sizes at hand. The
        order on a GPU follows published figures: cuDNN's kernel leads in half
        precision from compute capability 9.0 (Hopper) on.

    Source: Shah et al., "FlashAttention-3" (2024), arXiv:2407.08608, fig. 5.
    """
    if query.device.type != "cuda":
        return [SDPBackend.FLASH_ATTENTION, SDPBackend.MATH]
    if is_masked or query.dtype not in NATIVE_HALF:
        return [SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
    hopper = torch.cuda.get_device_capability(query.device) >= (9, 0)
    fast = [SDPBackend.CUDNN_ATTENTION] if hopper else []
    return [*fast, SDPBackend.FLASH_ATTENTION,
            SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]


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
    if attention_mask is not None:
        check_mask_broadcasts(attention_mask.shape,
                              (*query.shape[:-1], key.shape[-2]))
    return _attend(query, key, value, attention_mask, scale, is_causal)


def _attend(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None,
            scale: float, is_causal: bool) -> Tensor:
    """Choose how to say to the kernel what the mask says."""
    query_len, key_len = query.shape[-2], key.shape[-2]
    if mask is not None:
        spans = _spans(query, key_len, mask, is_causal)
        if spans is not None:
            return _attend_in_spans(query, key, value, spans, scale, is_causal)
    # Without a mask beside it the flag skips the tiles above the diagonal.
    skips_tiles = is_causal and mask is None and query_len == key_len
    if is_causal and not skips_tiles:
        corner = causal_mask(query_len, key_len, device=query.device)
        mask = combine_masks(mask, corner)
    if mask is None:
        return _kernel(query, key, value, None, scale, skips_tiles)
    key, value = clear_unattended(query, key, value, mask)
    mask = torch.atleast_2d(mask)
    # Not every kernel knows a query that may attend nowhere: let it attend
    # everywhere, and drop the result with its gradient.
    nowhere = ~mask.any(dim=-1, keepdim=True)
    output = _kernel(query, key, value, mask | nowhere, scale, False)
    return output.masked_fill(nowhere, 0)


def _kernel(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None,
            scale: float, is_causal: bool) -> Tensor:
    if key.shape[-2] == 0:  # no kernel promises what the average of none is
        return query @ key.mT @ value
    how = {"attn_mask": mask, "is_causal": is_causal, "scale": scale}
    if query.device.type != "cuda" or not _CAN_ORDER:
        return F.scaled_dot_product_attention(query, key, value, **how)
    kernels = kernels_for(query, is_masked=mask is not None)
    with sdpa_kernel(kernels, set_priority=True):
        return F.scaled_dot_product_attention(query, key, value, **how)


def _spans(query: Tensor, key_len: int, mask: Tensor,
           is_causal: bool) -> list[tuple[int, int]] | None:
    """Find where the keys of each sequence begin and end.

    None where the mask says more than that, where it is too short to be worth
    the work, and on a GPU, which would have to wait for the answer.
    """
    if (torch.compiler.is_compiling() or query.device.type != "cpu"
            or query.dim() != 4 or len(query) == 0 or key_len < SHORTEST_CUT
            or ((1,) * 4 + mask.shape)[-3:] != (1, 1, key_len)
            or (is_causal and query.shape[-2] != key_len)):
        return None
    spans = []
    for row in mask.reshape(-1, key_len):
        places = row.nonzero().squeeze(-1).tolist()
        start, stop = (places[0], places[-1] + 1) if places else (0, 0)
        if len(places) != stop - start:  # there are gaps
            return None
        spans.append((start, stop))
    return spans


def _attend_in_spans(query: Tensor, key: Tensor, value: Tensor,
                     spans: list[tuple[int, int]], scale: float,
                     is_causal: bool) -> Tensor:
    """Attend one sequence after the other, without its padding."""
    size = len(query) // len(spans)  # 1, or all where they share one mask
    outputs = []
    for (start, stop), q, k, v in zip(
            spans, query.split(size), key.split(size), value.split(size)):
        # Under a causal mask, what stands before the first key sees none.
        first = start if is_causal else 0
        late = _kernel(q[..., first:, :], k[..., start:stop, :],
                       v[..., start:stop, :], None, scale, is_causal)
        outputs.append(F.pad(late, (0, 0, first, 0)))
    return torch.cat(outputs)


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
        self._check(x)
        query, key, value = self._separate(_multiply(x, self.W_qkv, x))
        return _narrow(query, x), _narrow(key, x), _narrow(value, x)

    def _check(self, x: Tensor, attention_mask: Tensor | None = None) -> None:
        weight = self.W_qkv.weight
        # At 16 tokens even a check shows: ask first whether there is a need.
        if (attention_mask is not None or x.dtype != weight.dtype
                or x.device != weight.device):
            check_alike(attention_mask, weight=weight, x=x)

    def _separate(self, packed: Tensor) -> tuple[Tensor, ...]:
        split = packed.view(*packed.shape[:-1], 3, self.num_heads,
                            self.head_dim)
        return split.permute(2, 0, 3, 1, 4).unbind()

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
        self._check(x, attention_mask)
        query, key, value = self._separate(_multiply(x, self.W_qkv, x))
        if attention_mask is not None:
            check_mask_broadcasts(attention_mask.shape,
                                  (*query.shape[:-1], x.shape[1]))
        heads = self._attend(query, key, value, attention_mask,
                             check_scale(None, self.head_dim), is_causal)
        joined = heads.transpose(1, 2).flatten(-2)
        return _narrow(_multiply(joined, self.W_o, x), x)

    # The layer made query, key and value itself: no need to check them.
    _attend = staticmethod(_attend)

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


def _narrow(tensor: Tensor, x: Tensor) -> Tensor:
    """Round to the dtype of ``x``, unless autocast has chosen another."""
    if tensor.dtype == x.dtype or torch.is_autocast_enabled(x.device.type):
        return tensor
    return tensor.to(x.dtype)


def _multiply(tensor: Tensor, linear: nn.Linear, x: Tensor) -> Tensor:
    """Apply a linear layer, in float32 where the processor lacks x's dtype."""
    if (x.dtype not in NATIVE_HALF or NATIVE_HALF[x.dtype]
            or x.device.type != "cpu" or torch.is_autocast_enabled("cpu")):
        return linear(tensor)
    bias = None if linear.bias is None else linear.bias.float()
    return F.linear(tensor.float(), linear.weight.float(), bias)
