"""How each variant and each peer is called: same weights, same input.

``calls(cell)`` gives one function without arguments for each variant of a
cell; only those are timed. All layers hold the weights of one NumPy layer,
so that their outputs can be compared with the same layer in float64.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from cells import HEAD_DIM, HEADS, WIDTH, Cell
from self_attention import (
    numpy_reference,
    numpy_tiled,
    torch_eager,
    torch_fused,
    torch_tiled,
)

Call = Callable[[], Any]


@cache
def weights() -> dict[str, np.ndarray]:
    """Give the weights that all variants share; the biases are zero."""
    layer = numpy_reference.MultiHeadSelfAttention(
        WIDTH, HEADS, bias=True, dtype=np.float32,
        rng=np.random.default_rng(0))
    return layer.parameter_arrays()


@dataclass
class Problem:
    """The input of a cell, and what its variants have in common."""

    cell: Cell
    x: np.ndarray = field(init=False)
    grad: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        self.x, self.grad = np.random.default_rng(1).standard_normal(
            (2, self.cell.batch, self.cell.length, WIDTH)).astype("f4")
        # The yardstick and ours work with the same tensors in the same
        # place: at 16 tokens it matters where the weights lie.
        self.packed = Packed()

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the PyTorch variants."""
        return getattr(torch, self.cell.dtype)

    def how(self, tensors: bool) -> dict[str, Any]:
        """Give the mask, by the name that our layers have for it."""
        if self.cell.kind == "plain":
            return {}
        if self.cell.kind == "causal":
            return {"is_causal": True}
        mask = self.padding()
        return {"attention_mask": torch.from_numpy(mask) if tensors else mask}

    def padding(self) -> np.ndarray:
        """Hide the padding of lengths from an eighth to seven eighths."""
        batch, length = self.cell.batch, self.cell.length
        lengths = np.linspace(length / 8, 7 * length / 8, batch).astype(int)
        return numpy_reference.padding_mask(lengths, length)


class Packed(nn.Module):
    """SDPA with one packed projection and nothing around it: the yardstick."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = ours(torch_fused)

    def forward(self, x: torch.Tensor,
                attention_mask: torch.Tensor | None = None,
                is_causal: bool = False) -> torch.Tensor:
        """Project, attend, project."""
        batch, length, _ = x.shape
        query, key, value = self.layer.W_qkv(x).view(
            batch, length, 3, HEADS, HEAD_DIM).permute(2, 0, 3, 1, 4)
        heads = F.scaled_dot_product_attention(
            query, key, value, attn_mask=attention_mask, is_causal=is_causal)
        return self.layer.W_o(heads.transpose(1, 2).flatten(2))


def ours(module: Any, **options: Any) -> Any:
    """Give the layer of one of our modules."""
    layer = module.MultiHeadSelfAttention(WIDTH, HEADS, bias=True, **options)
    layer.load_parameter_arrays(weights())
    return layer


# --- how NumPy and PyTorch are called ----------------------------------------

def numpy_call(module: Any, problem: Problem) -> Call:
    """Call one of our NumPy layers."""
    layer, x = ours(module, dtype=np.float32), problem.x
    how = problem.how(tensors=False)
    if not problem.cell.with_backward:
        return lambda: layer(x, **how)
    if not hasattr(layer, "forward"):
        return lambda: layer.backward(x, problem.grad, **how)[0]

    def both() -> np.ndarray:
        _, kept = layer.forward(x, **how)
        return layer.backward(x, problem.grad, kept=kept, **how)[0]
    return both


def torch_call(module: nn.Module, problem: Problem, call: Any = None) -> Call:
    """Call a PyTorch layer: for inference, or with all its gradients."""
    module.to(problem.dtype)
    how = problem.how(tensors=True)
    call = call or (lambda tensor: module(tensor, **how))
    tensor = torch.from_numpy(problem.x).to(problem.dtype)
    grad = torch.from_numpy(problem.grad).to(problem.dtype)

    def forward() -> torch.Tensor:
        with torch.inference_mode():
            return call(tensor)

    def both() -> torch.Tensor:
        leaf = tensor.clone().requires_grad_()
        call(leaf).backward(grad)
        for parameter in module.parameters():
            parameter.grad = None
        return leaf.grad

    return both if problem.cell.with_backward else forward


# --- the peers ---------------------------------------------------------------

def library(problem: Problem, *, train: bool, need_weights: bool) -> Call:
    """PyTorch's own layer; it takes its fast path only in eval mode."""
    layer = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)
    with torch.no_grad():
        layer.in_proj_weight.copy_(torch.tensor(np.hstack(
            [weights()[f"W_{n}"] for n in "qkv"]).T.copy()))
        layer.out_proj.weight.copy_(torch.tensor(weights()["W_o"].T.copy()))
    layer.train(train or problem.cell.with_backward)
    how = {"need_weights": need_weights}
    if problem.cell.kind == "padded":  # here, True hides
        how["key_padding_mask"] = torch.from_numpy(
            ~problem.padding()[:, 0, 0])
    if problem.cell.kind == "causal":
        how["attn_mask"] = ~torch_fused.causal_mask(problem.cell.length)
    return torch_call(layer, problem, lambda x: layer(x, x, x, **how)[0])


def bert(problem: Problem, kind: str) -> Call:
    """BERT's attention with the output projection that follows it."""
    from transformers import BertConfig
    from transformers.models.bert.modeling_bert import BertSelfAttention
    config = BertConfig(hidden_size=WIDTH, num_attention_heads=HEADS,
                        attention_probs_dropout_prob=0.0)
    config._attn_implementation = kind
    core, out = BertSelfAttention(config), nn.Linear(WIDTH, WIDTH)
    with torch.no_grad():
        for n, linear in (("q", core.query), ("k", core.key),
                          ("v", core.value), ("o", out)):
            linear.weight.copy_(torch.tensor(weights()[f"W_{n}"].T.copy()))
            linear.bias.zero_()
    both = nn.ModuleList([core, out]).eval()
    return torch_call(both, problem, lambda x: out(core(x)[0]))


def keras_layer(problem: Problem) -> Call:
    """Keras' layer on its PyTorch backend."""
    import keras
    layer = keras.layers.MultiHeadAttention(HEADS, HEAD_DIM)
    layer.build((1, 4, WIDTH), (1, 4, WIDTH))
    for n, dense in (("q", layer.query_dense), ("k", layer.key_dense),
                     ("v", layer.value_dense)):
        dense.set_weights([
            weights()[f"W_{n}"].reshape(WIDTH, HEADS, HEAD_DIM),
            np.zeros((HEADS, HEAD_DIM), np.float32)])
    layer.output_dense.set_weights([
        weights()["W_o"].reshape(HEADS, HEAD_DIM, WIDTH),
        np.zeros(WIDTH, np.float32)])
    return torch_call(layer, problem, lambda x: layer(x, x))


def jax_call(problem: Problem) -> Call:
    """JAX's own attention with one packed projection, compiled."""
    import jax
    import jax.numpy as jnp
    packed = jnp.asarray(np.hstack([weights()[f"W_{n}"] for n in "qkv"]))
    out = jnp.asarray(weights()["W_o"])

    def layer(x, packed, out):
        batch, length, _ = x.shape
        query, key, value = jnp.moveaxis((x @ packed).reshape(
            batch, length, 3, HEADS, HEAD_DIM), 2, 0)
        heads = jax.nn.dot_product_attention(query, key, value)
        return heads.reshape(batch, length, WIDTH) @ out

    x, grad = jnp.asarray(problem.x), jnp.asarray(problem.grad)
    if problem.cell.with_backward:
        # All gradients come out, or the compiler would drop the rest.
        run = jax.jit(lambda *a: jax.vjp(layer, *a)[1](grad))
        return lambda: np.asarray(
            jax.block_until_ready(run(x, packed, out))[0])
    run = jax.jit(layer)
    return lambda: np.asarray(run(x, packed, out).block_until_ready())


# --- all of them -------------------------------------------------------------

BUILDERS: dict[str, Callable[[Problem], Call]] = {
    "numpy_reference": lambda p: numpy_call(numpy_reference, p),
    "numpy_tiled": lambda p: numpy_call(numpy_tiled, p),
    "torch_eager": lambda p: torch_call(ours(torch_eager), p),
    "torch_fused": lambda p: torch_call(p.packed.layer, p),
    "torch_tiled": lambda p: torch_call(ours(torch_tiled), p),
    "SDPA packed": lambda p: torch_call(p.packed, p),
    "nn.MHA fast path": lambda p: library(p, train=False, need_weights=False),
    "nn.MHA": lambda p: library(p, train=True, need_weights=False),
    "nn.MHA with weights": lambda p: library(p, train=True, need_weights=True),
    "BERT eager": lambda p: bert(p, "eager"),
    "BERT sdpa": lambda p: bert(p, "sdpa"),
    "Keras": keras_layer,
    "JAX": jax_call,
}


def calls(cell: Cell, names: Iterable[str] | None = None) -> dict[str, Call]:
    """Give what can be called, by name: the variants of a cell, or a few."""
    problem = Problem(cell)
    return {name: BUILDERS[name](problem)
            for name in (cell.names() if names is None else names)}


def exact(cell: Cell) -> np.ndarray | None:
    """Give the right output, in float64, where the reference can."""
    if cell.kind != "plain" or cell.with_backward or cell.is_long:
        return None
    layer = numpy_reference.MultiHeadSelfAttention(WIDTH, HEADS, bias=True)
    layer.load_parameter_arrays(
        {name: w.astype(np.float64) for name, w in weights().items()})
    return layer(Problem(cell).x.astype(np.float64))


def to_array(value: Any) -> np.ndarray:
    """Give what a call returned as an array of float64."""
    if isinstance(value, torch.Tensor):
        value = value.detach().float().numpy()
    return np.asarray(value, dtype=np.float64)
