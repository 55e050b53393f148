"""One function for each peer: our weights and masks in, its output out.

Every adapter converts with ``self_attention.convert``, so the suite tests the
conversions as well. A peer says what it can do (``Peer``); the tests decide
from that, and each claim is itself tested.
"""

import contextlib
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from self_attention import convert, numpy_reference

TORCH_DTYPES = {"float64": torch.float64, "float32": torch.float32}


@dataclass(frozen=True)
class Problem:
    """A layer, its input and its mask, in one dtype.

    ``memory`` is None for self-attention. ``lengths`` are real tokens of each
    sequence of keys, padded on the right.
    """

    x: np.ndarray
    memory: np.ndarray | None
    arrays: dict[str, np.ndarray]
    num_heads: int
    lengths: list[int] | None
    causal: bool
    dtype: str

    @property
    def keys(self) -> np.ndarray:
        return self.x if self.memory is None else self.memory

    @property
    def padding(self) -> np.ndarray | None:
        if self.lengths is None:
            return None
        return numpy_reference.padding_mask(self.lengths, self.keys.shape[1])

    @property
    def mask(self) -> np.ndarray | None:
        corner = (numpy_reference.causal_mask(self.x.shape[1])
                  if self.causal else None)
        return numpy_reference.combine_masks(self.padding, corner)

    @property
    def full_mask(self) -> np.ndarray | None:
        if self.mask is None:
            return None
        shape = (len(self.x), 1, self.x.shape[1], self.keys.shape[1])
        return np.broadcast_to(self.mask, shape).copy()

    def expected(self) -> np.ndarray:
        """The right output, in float64 from the weights as rounded."""
        a = {name: array.astype(np.float64)
             for name, array in self.arrays.items()}
        query, key, value = (
            numpy_reference.separate_heads(
                tokens.astype(np.float64) @ a[f"W_{part}"]
                + a.get(f"b_{part}", 0), self.num_heads)
            for part, tokens in zip("qkv", (self.x, self.keys, self.keys)))
        heads = numpy_reference.scaled_dot_product_attention(
            query, key, value, self.mask)
        joined = numpy_reference.combine_heads(heads)
        return joined @ a["W_o"] + a.get("b_o", 0)

    def to(self, layout: str) -> dict[str, np.ndarray]:
        return convert.to_layout(self.arrays, layout, num_heads=self.num_heads)


@dataclass(frozen=True)
class Peer:
    """A layer of another library and what it can do."""

    name: str
    run: Callable[[Problem], np.ndarray]
    needs: tuple[str, ...] = ()
    masks: frozenset[str] = frozenset({"none", "padding", "causal", "both"})
    cross: bool = False
    biases: frozenset[bool] = frozenset({False, True})
    float64: bool = True
    zeroes_padded_queries: bool = False
    note: str = field(default="", compare=False)

    def missing(self) -> str | None:
        """The first module that this peer needs and this machine lacks."""
        return next((module for module in self.needs
                     if importlib.util.find_spec(module) is None), None)


def tensor(array: np.ndarray | None) -> torch.Tensor | None:
    return None if array is None else torch.tensor(array)


def array_of(output: torch.Tensor) -> np.ndarray:
    return output.detach().to(torch.float64).numpy()


def fill(module: nn.Module, arrays: dict[str, np.ndarray]) -> None:
    """Copy arrays into the parameters of these names, or fail."""
    own = dict(module.named_parameters())
    with torch.no_grad():
        for name, array in arrays.items():
            assert own[name].shape == array.shape, name
            own[name].copy_(torch.tensor(array))


# --- PyTorch ---------------------------------------------------------------

def torch_mha(*, training: bool, need_weights: bool, grad: bool,
              additive: bool = False) -> Callable[[Problem], np.ndarray]:
    def run(problem: Problem) -> np.ndarray:
        width = problem.x.shape[-1]
        dtype = TORCH_DTYPES[problem.dtype]
        layer = nn.MultiheadAttention(
            width, problem.num_heads, bias="b_q" in problem.arrays,
            batch_first=True, dtype=dtype)
        fill(layer, problem.to("torch"))
        padding, corner = problem.padding, None
        if padding is not None:
            padding = convert.to_key_padding(padding)
        if problem.causal:
            corner = convert.to_blocked(
                numpy_reference.causal_mask(problem.x.shape[1]))
        if additive:
            padding, corner = (
                None if m is None else convert.to_additive(~m, problem.dtype)
                for m in (padding, corner))
        keys = tensor(problem.keys)
        with torch.set_grad_enabled(grad):
            output, _ = layer.train(training)(
                tensor(problem.x), keys, keys, need_weights=need_weights,
                key_padding_mask=tensor(padding), attn_mask=tensor(corner))
        return array_of(output)

    return run


def torch_functional(problem: Problem) -> np.ndarray:
    theirs = {n: tensor(a) for n, a in problem.to("torch").items()}
    x, keys = (tensor(a).transpose(0, 1) for a in (problem.x, problem.keys))
    padding = problem.padding
    corner = (numpy_reference.causal_mask(problem.x.shape[1])
              if problem.causal else None)
    output, _ = F.multi_head_attention_forward(
        x, keys, keys, x.shape[-1], problem.num_heads,
        theirs["in_proj_weight"], theirs.get("in_proj_bias"), None, None,
        False, 0.0, theirs["out_proj.weight"], theirs.get("out_proj.bias"),
        training=False, need_weights=True,
        key_padding_mask=tensor(None if padding is None
                                else convert.to_key_padding(padding)),
        attn_mask=tensor(None if corner is None
                         else convert.to_blocked(corner)))
    return array_of(output.transpose(0, 1))


def torch_sdpa(backend: SDPBackend | None = None, *, additive: bool = False
               ) -> Callable[[Problem], np.ndarray]:
    def run(problem: Problem) -> np.ndarray:
        a = {name: tensor(array) for name, array in problem.arrays.items()}
        query, key, value = (
            (tensor(tokens) @ a[f"W_{part}"] + a.get(f"b_{part}", 0))
            .unflatten(-1, (problem.num_heads, -1)).transpose(1, 2)
            for part, tokens in zip("qkv", (problem.x, problem.keys,
                                            problem.keys)))
        mask = problem.full_mask
        if additive and mask is not None:
            mask = convert.to_additive(mask, problem.dtype)
        chosen = sdpa_kernel(backend) if backend else contextlib.nullcontext()
        with chosen:
            heads = F.scaled_dot_product_attention(query, key, value,
                                                   tensor(mask))
        joined = heads.transpose(1, 2).flatten(-2)
        return array_of(joined @ a["W_o"] + a.get("b_o", 0))

    return run


# --- Hugging Face transformers, built from a configuration ------------------

def bert(kernel: str) -> Callable[[Problem], np.ndarray]:
    def run(problem: Problem) -> np.ndarray:
        from transformers.models.bert.modeling_bert import (
            BertConfig,
            BertCrossAttention,
            BertSelfAttention,
            BertSelfOutput,
        )

        width = problem.x.shape[-1]
        config = BertConfig(hidden_size=width, intermediate_size=width,
                            num_attention_heads=problem.num_heads)
        config._attn_implementation = kernel
        dtype = TORCH_DTYPES[problem.dtype]
        kind, memory = BertSelfAttention, {}
        if problem.memory is not None:
            kind = BertCrossAttention
            memory = {"encoder_hidden_states": tensor(problem.memory)}
        attention = kind(config).to(dtype).eval()
        output = BertSelfOutput(config).to(dtype).eval()
        theirs = problem.to("bert")
        fill(attention, {name.removeprefix("self."): array
                         for name, array in theirs.items()
                         if name.startswith("self.")})
        fill(output, {name.removeprefix("output."): array
                      for name, array in theirs.items()
                      if name.startswith("output.")})
        heads = attention(tensor(problem.x), attention_mask=hugging_face_mask(
            problem, kernel), **memory)[0]
        return array_of(output.dense(heads))

    return run


def gpt2(kernel: str) -> Callable[[Problem], np.ndarray]:
    def run(problem: Problem) -> np.ndarray:
        from transformers.models.gpt2.modeling_gpt2 import (
            GPT2Attention,
            GPT2Config,
        )

        config = GPT2Config(n_embd=problem.x.shape[-1],
                            n_head=problem.num_heads)
        config._attn_implementation = kernel
        cross = problem.memory is not None
        layer = GPT2Attention(config, is_cross_attention=cross, layer_idx=0)
        layer = layer.to(TORCH_DTYPES[problem.dtype]).eval()
        # It is causal by itself; the mask we give decides alone.
        layer.is_causal = False
        theirs, mask = problem.to("gpt2"), hugging_face_mask(problem, kernel)
        given = {"attention_mask": mask}
        if cross:  # it keeps the query's matrix apart, and wants other names
            for kind in ("weight", "bias"):
                theirs[f"q_attn.{kind}"], theirs[f"c_attn.{kind}"] = np.split(
                    theirs[f"c_attn.{kind}"], [problem.x.shape[-1]], axis=-1)
            given = {"encoder_hidden_states": tensor(problem.memory),
                     "encoder_attention_mask": mask}
        fill(layer, theirs)
        return array_of(layer(tensor(problem.x), **given)[0])

    return run


def hugging_face_mask(problem: Problem,
                      kernel: str) -> torch.Tensor | None:
    """Boolean for its SDPA path, additive for its eager path."""
    mask = problem.full_mask
    if mask is None:
        return None
    if kernel == "sdpa":
        return tensor(mask)
    lowest = float(np.finfo(problem.dtype).min)
    return tensor(convert.to_additive(mask, problem.dtype, fill=lowest))


# --- x-transformers ----------------------------------------------------------

def x_transformers(problem: Problem) -> np.ndarray:
    from x_transformers.x_transformers import Attention

    width = problem.x.shape[-1]
    layer = Attention(width, dim_head=width // problem.num_heads,
                      heads=problem.num_heads, causal=problem.causal)
    layer = layer.to(TORCH_DTYPES[problem.dtype]).eval()
    theirs = problem.to("bert")
    names = {"self.query": "to_q", "self.key": "to_k", "self.value": "to_v",
             "output.dense": "to_out"}
    fill(layer, {f"{own}.weight": theirs[f"{name}.weight"]
                 for name, own in names.items()})
    padding = problem.padding
    real = None if padding is None else tensor(padding[:, 0, 0])
    if problem.memory is None:
        return array_of(layer(tensor(problem.x), mask=real))
    return array_of(layer(tensor(problem.x), tensor(problem.memory),
                          context_mask=real))


# --- Keras -------------------------------------------------------------------

def keras_mha(*, scores: bool) -> Callable[[Problem], np.ndarray]:
    def run(problem: Problem) -> np.ndarray:
        import keras

        width = problem.x.shape[-1]
        layer = keras.layers.MultiHeadAttention(
            problem.num_heads, width // problem.num_heads,
            use_bias="b_q" in problem.arrays, dtype=problem.dtype)
        layer.build((None, None, width), (None, None, width))
        theirs = problem.to("keras")
        set_keras_weights(layer, [
            theirs[f"{name}/{kind}"]
            for name in ("query", "key", "value", "attention_output")
            for kind in ("kernel", "bias") if f"{name}/{kind}" in theirs])
        mask = problem.full_mask
        inputs = (keras.ops.convert_to_tensor(a)
                  for a in (problem.x, problem.keys))
        output = layer(
            *inputs, training=False, return_attention_scores=scores,
            attention_mask=None if mask is None
            else keras.ops.convert_to_tensor(mask[:, 0]))
        output = output[0] if scores else output
        return keras.ops.convert_to_numpy(output).astype(np.float64)

    return run


def notes_layer(problem: Problem) -> np.ndarray:
    """The Keras layer of the study notes, rebuilt for Keras 3."""
    import keras

    layer = make_notes_layer(problem.x.shape[-1], problem.num_heads,
                             problem.dtype, "b_q" in problem.arrays)
    output = layer(keras.ops.convert_to_tensor(problem.x))
    theirs = problem.to("dense")
    for name in ("query_dense", "key_dense", "value_dense", "combine_heads"):
        set_keras_weights(getattr(layer, name), [
            theirs[f"{name}/{kind}"] for kind in ("kernel", "bias")
            if f"{name}/{kind}" in theirs])
    output = layer(keras.ops.convert_to_tensor(problem.x))
    return keras.ops.convert_to_numpy(output).astype(np.float64)


def make_notes_layer(embed_dim: int, num_heads: int, dtype: str,
                     bias: bool = True) -> object:
    """Build the layer: four Dense, reshape and transpose, no mask."""
    import keras
    from keras import ops

    class NotesLayer(keras.layers.Layer):
        def __init__(self) -> None:
            super().__init__(dtype=dtype)
            if embed_dim % num_heads != 0:
                raise ValueError(f"embed_dim={embed_dim} is not divisible by "
                                 f"num_heads={num_heads}")
            self.query_dense, self.key_dense, self.value_dense, \
                self.combine_heads = (
                    keras.layers.Dense(embed_dim, use_bias=bias, dtype=dtype)
                    for _ in range(4))

        def separate_heads(self, x: object) -> object:
            batch = ops.shape(x)[0]
            split = ops.reshape(x, (batch, -1, num_heads,
                                    embed_dim // num_heads))
            return ops.transpose(split, (0, 2, 1, 3))

        def call(self, inputs: object) -> object:
            query, key, value = (
                self.separate_heads(dense(inputs)) for dense in
                (self.query_dense, self.key_dense, self.value_dense))
            scores = ops.matmul(query, ops.swapaxes(key, -2, -1))
            scores = scores / ops.sqrt(ops.cast(ops.shape(key)[-1],
                                                scores.dtype))
            heads = ops.matmul(ops.softmax(scores, axis=-1), value)
            heads = ops.transpose(heads, (0, 2, 1, 3))
            joined = ops.reshape(heads, (ops.shape(inputs)[0], -1, embed_dim))
            return self.combine_heads(joined)

    return NotesLayer()


def set_keras_weights(layer: object, arrays: list[np.ndarray]) -> None:
    shapes = [tuple(w.shape) for w in layer.weights]
    assert shapes == [a.shape for a in arrays], (shapes, layer.weights)
    layer.set_weights(arrays)


# --- JAX ---------------------------------------------------------------------

def jax_modules() -> tuple[object, object]:
    import jax

    jax.config.update("jax_enable_x64", True)
    return jax, jax.numpy


def jax_function(problem: Problem) -> np.ndarray:
    jax, jnp = jax_modules()
    a = {name: jnp.asarray(array) for name, array in problem.arrays.items()}
    query, key, value = (
        (jnp.asarray(tokens) @ a[f"W_{part}"] + a.get(f"b_{part}", 0))
        .reshape(*tokens.shape[:2], problem.num_heads, -1)
        for part, tokens in zip("qkv", (problem.x, problem.keys,
                                        problem.keys)))
    mask = problem.full_mask
    heads = jax.nn.dot_product_attention(
        query, key, value, mask=None if mask is None else jnp.asarray(mask))
    joined = heads.reshape(*problem.x.shape[:2], -1)
    return np.asarray(joined @ a["W_o"] + a.get("b_o", 0), dtype=np.float64)


def flax_layer(problem: Problem) -> np.ndarray:
    _, jnp = jax_modules()
    import flax.linen

    width = problem.x.shape[-1]
    layer = flax.linen.MultiHeadDotProductAttention(
        num_heads=problem.num_heads, qkv_features=width,
        use_bias="b_q" in problem.arrays, dtype=problem.dtype,
        param_dtype=problem.dtype, deterministic=True)
    nested: dict[str, dict[str, object]] = {}
    for name, array in problem.to("flax").items():
        part, kind = name.split("/")
        nested.setdefault(part, {})[kind] = jnp.asarray(array)
    mask = problem.full_mask
    output = layer.apply(
        {"params": nested}, jnp.asarray(problem.x), jnp.asarray(problem.keys),
        mask=None if mask is None else jnp.asarray(mask))
    return np.asarray(output, dtype=np.float64)


def equinox_layer(problem: Problem) -> np.ndarray:
    jax, jnp = jax_modules()
    import equinox

    bias = "b_q" in problem.arrays
    layer = equinox.nn.MultiheadAttention(
        problem.num_heads, problem.x.shape[-1], use_query_bias=bias,
        use_key_bias=bias, use_value_bias=bias, use_output_bias=bias,
        dtype=jnp.dtype(problem.dtype), key=jax.random.PRNGKey(0))
    theirs = problem.to("bert")
    for own, name in (("query_proj", "self.query"), ("key_proj", "self.key"),
                      ("value_proj", "self.value"),
                      ("output_proj", "output.dense")):
        for kind in ("weight", "bias") if bias else ("weight",):
            layer = equinox.tree_at(
                lambda tree, own=own, kind=kind:
                getattr(getattr(tree, own), kind),
                layer, jnp.asarray(theirs[f"{name}.{kind}"]))
    mask = problem.full_mask
    mask = np.ones((len(problem.x), 1, problem.x.shape[1],
                    problem.keys.shape[1]), bool) if mask is None else mask
    output = jax.vmap(lambda x, keys, kept: layer(x, keys, keys, mask=kept))(
        jnp.asarray(problem.x), jnp.asarray(problem.keys),
        jnp.asarray(mask[:, 0]))
    return np.asarray(output, dtype=np.float64)


NO_MASK = frozenset({"none"})
KERAS_FLOAT32 = ("float64 becomes float32 in keras.ops.matmul and in its "
                 "fused attention")
JAX_FLOAT32 = "the softmax is always float32"

PEERS = [
    Peer("F.scaled_dot_product_attention", torch_sdpa(), cross=True),
    Peer("F.scaled_dot_product_attention, math",
         torch_sdpa(SDPBackend.MATH), cross=True),
    Peer("F.scaled_dot_product_attention, flash",
         torch_sdpa(SDPBackend.FLASH_ATTENTION), cross=True),
    Peer("F.scaled_dot_product_attention, additive mask",
         torch_sdpa(additive=True), cross=True),
    Peer("F.multi_head_attention_forward", torch_functional, cross=True),
    *(Peer(f"nn.MultiheadAttention, {mode}, "
           f"{'with' if need else 'without'} weights",
           torch_mha(training=mode == "train", need_weights=need,
                     grad=mode == "train"), cross=True)
      for mode in ("train", "eval") for need in (True, False)),
    Peer("nn.MultiheadAttention, additive mask",
         torch_mha(training=True, need_weights=True, grad=True,
                   additive=True), cross=True),
    Peer("transformers BERT, eager", bert("eager"), ("transformers",),
         cross=True, biases=frozenset({True})),
    Peer("transformers BERT, sdpa", bert("sdpa"), ("transformers",),
         cross=True, biases=frozenset({True})),
    Peer("transformers GPT-2, eager", gpt2("eager"), ("transformers",),
         cross=True, biases=frozenset({True})),
    Peer("transformers GPT-2, sdpa", gpt2("sdpa"), ("transformers",),
         cross=True, biases=frozenset({True})),
    Peer("x-transformers", x_transformers, ("x_transformers",),
         cross=True, biases=frozenset({False}), float64=False,
         zeroes_padded_queries=True, note=JAX_FLOAT32),
    Peer("Keras layer of the study notes", notes_layer, ("keras",),
         masks=NO_MASK, float64=False, note=KERAS_FLOAT32),
    Peer("keras.layers.MultiHeadAttention", keras_mha(scores=False),
         ("keras",), cross=True, float64=False, note=KERAS_FLOAT32),
    Peer("keras.layers.MultiHeadAttention, with scores",
         keras_mha(scores=True), ("keras",), cross=True),
    Peer("jax.nn.dot_product_attention", jax_function, ("jax",), cross=True,
         float64=False, note=JAX_FLOAT32),
    Peer("flax.linen.MultiHeadDotProductAttention", flax_layer, ("flax",),
         cross=True),
    Peer("equinox.nn.MultiheadAttention", equinox_layer, ("equinox",),
         cross=True),
]
