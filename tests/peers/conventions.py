"""Ask each peer what it means by a mask, a flag or an empty row.

A peer is reduced to one head whose projections are the identity, so that its
output shows its weights: row i is the average of the tokens that token i
attends to. Every entry of the table is the answer of such a call.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass

import adapters
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from self_attention import numpy_reference, torch_fused

WIDTH = 4
TORCH = {"float16": torch.float16, "float32": torch.float32}


@dataclass(frozen=True)
class Bare:
    """One path through one library.

    ``call(x, keys, mask, causal)`` takes the library's own tensors; ``mask``
    is in the library's own meaning. ``tensor`` makes such tensors. ``flag``
    names the causal flag; ``hint`` says that it describes a mask, which must
    be given as well.
    """

    name: str
    call: Callable[..., object]
    tensor: Callable[..., object]
    needs: tuple[str, ...] = ()
    framework: str = "torch"
    flag: str = ""
    hint: bool = False
    inference: bool = False
    num_heads: int = 1

    missing = adapters.Peer.missing


def torch_tensor(array: np.ndarray) -> torch.Tensor:
    return torch.tensor(array)


def jax_tensor(array: np.ndarray) -> object:
    return adapters.jax_modules()[1].asarray(array)


def identity_(module: nn.Module, dtype: torch.dtype) -> nn.Module:
    """Make every projection the identity, with zero bias."""
    module = module.to(dtype)
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            if parameter.dim() == 1:
                parameter.zero_()
            elif "c_attn" in name:
                parameter.copy_(torch.eye(WIDTH).repeat(1, 3))
            else:
                copies = parameter.shape[0] // WIDTH
                parameter.copy_(torch.eye(WIDTH).repeat(copies, 1))
    return module


def sdpa(x, keys, mask=None, causal=False):
    return F.scaled_dot_product_attention(x, keys, keys, attn_mask=mask,
                                          is_causal=causal)


def torch_layer(*, need_weights: bool, training: bool, num_heads: int = 1):
    def call(x, keys, mask=None, causal=False):
        layer = nn.MultiheadAttention(WIDTH, num_heads, batch_first=True)
        layer = identity_(layer, x.dtype).train(training)
        mask = None if mask is None else mask[0]
        return layer(x, keys, keys, attn_mask=mask, is_causal=causal,
                     need_weights=need_weights)[0]

    return call


def bert(kernel: str):
    def call(x, keys, mask=None, causal=False):
        from transformers.models.bert.modeling_bert import (
            BertConfig,
            BertSelfAttention,
        )

        config = BertConfig(hidden_size=WIDTH, num_attention_heads=1,
                            intermediate_size=WIDTH)
        config._attn_implementation = kernel
        layer = BertSelfAttention(config, is_causal=causal, layer_idx=0)
        layer = identity_(layer, x.dtype).eval()
        if mask is not None:
            mask = mask[:, None]
        # It has fewer queries than keys where a cache holds the first keys.
        cache = bert_cache(layer, keys[:, :keys.shape[1] - x.shape[1]])
        return layer(x, attention_mask=mask, cache=cache)[0]

    return call


def bert_cache(layer, first):
    from transformers import DynamicCache

    if not first.shape[1]:
        return None
    cache = DynamicCache()
    layer(first, cache=cache)
    return cache


def x_transformers(x, keys, mask=None, causal=False):
    from x_transformers.x_transformers import Attention

    layer = Attention(WIDTH, dim_head=WIDTH, heads=1, causal=causal)
    layer = identity_(layer, x.dtype).eval()
    # Its mask is for keys alone; its attn_mask is for queries and keys.
    return layer(x, context=None if keys is x else keys,
                 attn_mask=None if mask is None else mask[:, None])


def keras_layer(*, scores: bool):
    def call(x, keys, mask=None, causal=False):
        import keras

        layer = keras.layers.MultiHeadAttention(
            1, WIDTH, use_bias=False, dtype=str(x.dtype).split(".")[-1])
        layer.build((None, None, WIDTH), (None, None, WIDTH))
        layer.set_weights([np.eye(WIDTH).reshape(w.shape)
                           for w in layer.weights])
        output = layer(x, keys, attention_mask=mask, use_causal_mask=causal,
                       return_attention_scores=scores)
        return output[0] if scores else output

    return call


def jax_function(x, keys, mask=None, causal=False):
    jax, _ = adapters.jax_modules()
    mask = None if mask is None else mask[:, None]
    return jax.nn.dot_product_attention(
        x[:, :, None], keys[:, :, None], keys[:, :, None], mask=mask,
        is_causal=causal)[:, :, 0]


def flax_layer(x, keys, mask=None, causal=False):
    _, jnp = adapters.jax_modules()
    import flax.linen

    layer = flax.linen.MultiHeadDotProductAttention(
        num_heads=1, use_bias=False, dtype=x.dtype, deterministic=True)
    eye = {"kernel": jnp.eye(WIDTH)[:, None]}
    parameters = dict.fromkeys(("query", "key", "value"), eye)
    parameters["out"] = {"kernel": jnp.eye(WIDTH)[None]}
    mask = None if mask is None else mask[:, None]
    return layer.apply({"params": parameters}, x, keys, mask=mask)


def equinox_layer(x, keys, mask=None, causal=False):
    jax, jnp = adapters.jax_modules()
    import equinox

    layer = equinox.nn.MultiheadAttention(1, WIDTH, dtype=x.dtype,
                                          key=jax.random.PRNGKey(0))
    for name in ("query_proj", "key_proj", "value_proj", "output_proj"):
        layer = equinox.tree_at(
            lambda tree, name=name: getattr(tree, name).weight, layer,
            jnp.eye(WIDTH, dtype=x.dtype))
    if mask is None:
        return jax.vmap(lambda a, b: layer(a, b, b))(x, keys)
    return jax.vmap(lambda a, b, m: layer(a, b, b, mask=m))(x, keys, mask)


def ours(x, keys, mask=None, causal=False):
    return numpy_reference.scaled_dot_product_attention(x, keys, keys, mask)


def ours_fused(x, keys, mask=None, causal=False):
    return torch_fused.scaled_dot_product_attention(x, keys, keys, mask,
                                                    is_causal=causal)


BARE = [
    Bare("this course, NumPy", ours, np.asarray, framework="numpy"),
    Bare("this course, fused", ours_fused, torch_tensor, flag="is_causal"),
    Bare("F.scaled_dot_product_attention", sdpa, torch_tensor,
         flag="is_causal"),
    Bare("nn.MultiheadAttention, train, with weights",
         torch_layer(need_weights=True, training=True), torch_tensor,
         flag="is_causal", hint=True),
    Bare("nn.MultiheadAttention, train, without weights",
         torch_layer(need_weights=False, training=True), torch_tensor,
         flag="is_causal", hint=True),
    # Its fast path is taken for self-attention with an even number of heads.
    Bare("nn.MultiheadAttention, eval and no_grad",
         torch_layer(need_weights=False, training=False, num_heads=2),
         torch_tensor, flag="is_causal", hint=True, inference=True,
         num_heads=2),
    Bare("keras.layers.MultiHeadAttention", keras_layer(scores=False),
         torch_tensor, ("keras",), flag="use_causal_mask"),
    Bare("keras.layers.MultiHeadAttention, with scores",
         keras_layer(scores=True), torch_tensor, ("keras",),
         flag="use_causal_mask"),
    Bare("transformers BERT, eager", bert("eager"), torch_tensor,
         ("transformers",), flag="is_causal"),
    Bare("transformers BERT, sdpa", bert("sdpa"), torch_tensor,
         ("transformers",), flag="is_causal"),
    Bare("jax.nn.dot_product_attention", jax_function, jax_tensor, ("jax",),
         "jax", flag="is_causal"),
    Bare("flax.linen.MultiHeadDotProductAttention", flax_layer, jax_tensor,
         ("flax",), "jax"),
    Bare("equinox.nn.MultiheadAttention", equinox_layer, jax_tensor,
         ("equinox",), "jax"),
    Bare("x-transformers", x_transformers, torch_tensor, ("x_transformers",),
         flag="causal"),
]

X = np.array([[[1.0, 0, 0, 0], [0, 2, 0, 0], [0, 0, 3, 0]]], np.float32)


def array(output: object) -> np.ndarray:
    if isinstance(output, torch.Tensor):
        output = output.detach().cpu().float().numpy()
    return np.asarray(output, dtype=np.float64)


def ask(peer: Bare, x: np.ndarray, keys: np.ndarray | None = None,
        mask: np.ndarray | None = None, causal: bool = False) -> np.ndarray:
    """Call the peer; give its output as an array."""
    queries = peer.tensor(x)
    others = queries if keys is None else peer.tensor(keys)
    mask = None if mask is None else peer.tensor(mask)
    with torch.set_grad_enabled(not peer.inference):
        return array(peer.call(queries, others, mask, causal))


def outcome(question: Callable[[], str]) -> str:
    """The answer, or the kind of error in its place."""
    try:
        return question()
    except Exception as error:
        return f"refused: {type(error).__name__}"


def what_true_means(peer: Bare) -> str:
    first = np.zeros((1, 3, 3), bool)
    first[..., 0] = True

    def question() -> str:
        row = ask(peer, X, mask=first)[0, 0]
        if np.allclose(row, X[0, 0], atol=1e-5):
            return "may attend"
        blocked = ask(peer, X, mask=~first)[0, 0]
        if np.allclose(blocked, X[0, 0], atol=1e-5):
            return "may NOT attend"
        return "is added as the number 1"
    return outcome(question)


def float_mask(peer: Bare) -> str:
    added = np.zeros((1, 3, 3), np.float32)
    added[..., 1:] = -np.inf

    def question() -> str:
        row = ask(peer, X, mask=added)[0, 0]
        if np.allclose(row, X[0, 0], atol=1e-5):
            return "added to the scores"
        return "read as boolean: 0 / -inf means the opposite"
    return outcome(question)


def integer_mask(peer: Bare) -> str:
    ones = np.zeros((1, 3, 3), np.int64)
    ones[..., 0] = 1

    def question() -> str:
        row = ask(peer, X, mask=ones)[0, 0]
        if np.allclose(row, X[0, 0], atol=1e-5):
            return "1 = may attend"
        return "is added"
    return outcome(question)


def _own(peer: Bare, allowed: np.ndarray) -> np.ndarray:
    """Our mask in the peer's meaning."""
    meaning = what_true_means(peer)
    if meaning == "may attend":
        return allowed
    if meaning == "may NOT attend":
        return ~allowed
    lowest = np.finfo(np.float32).min
    return np.where(allowed, np.float32(0), np.float32(lowest))


def empty_row(peer: Bare) -> str:
    allowed = np.ones((1, 3, 3), bool)
    allowed[0, 0] = False

    def question() -> str:
        row = ask(peer, X, mask=_own(peer, allowed))[0, 0]
        if np.isnan(row).any():
            return "NaN"
        if not row.any():
            return "zeros"
        if np.allclose(row, X[0].mean(axis=0), atol=1e-5):
            return "average of all values"
        return "other"
    return outcome(question)


def empty_row_gradient(peer: Bare) -> str:
    """Gradient of a loss that reads only the rows that may attend."""
    if peer.inference:
        return "no gradient here"
    allowed = np.ones((1, 3, 3), bool)
    allowed[0, 0] = False
    read = np.ones_like(X)
    read[:, 0] = 0

    def question() -> str:
        mask = peer.tensor(_own(peer, allowed))
        x = peer.tensor(X)
        if peer.framework == "numpy":
            grad = sum(numpy_reference.scaled_dot_product_attention_backward(
                x, x, x, read, mask))
        elif peer.framework == "jax":
            jax, jnp = adapters.jax_modules()
            grad = jax.grad(lambda t: jnp.delete(
                peer.call(t, t, mask, False), 0, axis=1).sum())(x)
        else:
            x.requires_grad_()
            peer.call(x, x, mask, False)[:, 1:].sum().backward()
            grad = x.grad
        return "finite" if np.isfinite(array(grad)).all() else "NaN"
    return outcome(question)


NO_FLAG = "no flag of its own"


def causal_corner(peer: Bare) -> str:
    """What the first of two queries sees of three keys.

    Where the flag needs a mask beside it, that mask hides nothing.
    """
    if not peer.flag:
        return NO_FLAG

    def question() -> str:
        nothing_hidden = np.ones((1, 2, 3), bool)
        mask = _own(peer, nothing_hidden) if peer.hint else None
        row = ask(peer, X[:, 1:], X, mask, causal=True)[0, 0]
        seen = np.count_nonzero(row)
        where = {1: "top left", 2: "bottom right", 3: "no effect"}[seen]
        if peer.hint:
            where = ("the mask decides" if seen == 3
                     else f"{where}, the mask is dropped")
        return f"{peer.flag}: {where}"
    return outcome(question)


def causal_alone(peer: Bare) -> str:
    if not peer.flag:
        return NO_FLAG

    def question() -> str:
        sees = ask(peer, X, causal=True)[0] > 0
        if not sees[0, 1:].any():
            return "causal"
        return "no effect"
    return outcome(question)


def causal_and_mask(peer: Bare) -> str:
    """The flag, and a mask that hides token 2 from all, token 1 from none."""
    if not peer.flag:
        return NO_FLAG
    allowed = np.ones((1, 3, 3), bool)
    allowed[..., 2] = False

    def question() -> str:
        sees = ask(peer, X, mask=_own(peer, allowed), causal=True)[0] > 0
        flag_heeded, mask_heeded = not sees[0, 1], not sees[2, 2]
        if flag_heeded and mask_heeded:
            return "both hold"
        return "the mask decides" if mask_heeded else "the mask is dropped"
    return outcome(question)


def scale_of(peer: Bare) -> str:
    """Read the factor on the scores off the ratio of two weights."""
    def question() -> str:
        x = np.zeros((1, 2, WIDTH), np.float32)
        x[0, 0, 0], x[0, 1, 1] = 1.0, 1.0
        row = ask(peer, x)[0, 0]
        factor = np.log(row[0] / row[1])
        assert np.isclose(
            factor, np.sqrt(peer.num_heads / WIDTH), atol=1e-4), factor
        return "1 / sqrt(head_dim)"
    return outcome(question)


def no_tokens(peer: Bare) -> str:

    def question() -> str:
        return f"shape {ask(peer, X[:, :0]).shape}"
    return outcome(question)


def one_token(peer: Bare) -> str:

    def question() -> str:
        one = ask(peer, X[:, :1])
        return "its own value" if np.allclose(one, X[:, :1]) else "other"
    return outcome(question)


def half_overflow(peer: Bare) -> str:
    """Scores of 360,000 do not fit float16, whose largest number is 65,504."""
    def question() -> str:
        big = (X * np.array([600, 300, 200])[:, None]).astype(np.float16)
        row = ask(peer, big)[0, 0]
        if not np.isfinite(row).all():
            return "NaN"
        right = np.allclose(row[:2], big[0, 0, :2].astype(float), rtol=1e-2)
        return "right" if right else "wrong"
    return outcome(question)


def half_fill(peer: Bare) -> str:
    """An additive mask of -1e9 is -inf in float16."""
    added = np.zeros((1, 3, 3))
    added[0, 0] = -1e9
    with np.errstate(over="ignore"):
        added = added.astype(np.float16)

    def question() -> str:
        row = ask(peer, X.astype(np.float16), mask=added)[0, 0]
        if np.isnan(row).any():
            return "NaN"
        return "zeros" if not row.any() else "a finite average"
    return outcome(question)


def defaults() -> dict[str, dict[str, str]]:
    """Read bias, dropout and layout off the constructors."""
    found: dict[str, dict[str, str]] = {}

    def read(name: str, function: Callable[..., object],
             **wanted: str) -> None:
        parameters = inspect.signature(function).parameters
        found[name] = {what: str(parameters[where].default)
                       for what, where in wanted.items()}

    read("nn.MultiheadAttention", nn.MultiheadAttention.__init__,
         bias="bias", dropout="dropout", batch_first="batch_first")
    read("F.scaled_dot_product_attention", _sdpa_signature,
         dropout="dropout_p")
    import equinox
    import flax.linen
    import keras
    from transformers import BertConfig, GPT2Config

    read("keras.layers.MultiHeadAttention",
         keras.layers.MultiHeadAttention.__init__, bias="use_bias",
         dropout="dropout")
    read("equinox.nn.MultiheadAttention",
         equinox.nn.MultiheadAttention.__init__, bias="use_query_bias",
         dropout="dropout_p")
    read("flax.linen.MultiHeadDotProductAttention",
         flax.linen.MultiHeadDotProductAttention.__init__, bias="use_bias",
         dropout="dropout_rate")
    found["transformers BERT"] = {
        "bias": "True",
        "dropout": str(BertConfig().attention_probs_dropout_prob)}
    found["transformers GPT-2"] = {
        "bias": "True", "dropout": str(GPT2Config().attn_pdrop)}
    return found


def _sdpa_signature(query, key, value, attn_mask=None, dropout_p=0.0,
                    is_causal=False):
    """PyTorch's function has no Python signature; ours is checked by call."""


def weights_returned() -> dict[str, str]:
    """What each layer returns as weights, for 2 heads and 3 tokens."""
    x = torch.zeros(1, 3, WIDTH)
    layer = nn.MultiheadAttention(WIDTH, 2, batch_first=True)
    found = {"F.scaled_dot_product_attention": "none",
             "nn.MultiheadAttention": _heads_of(layer(x, x, x)[1].shape)}
    import keras

    layer = keras.layers.MultiHeadAttention(2, 2)
    weights = layer(x, x, return_attention_scores=True)[1]
    found["keras.layers.MultiHeadAttention"] = _heads_of(weights.shape)
    from transformers.models.bert.modeling_bert import (
        BertConfig,
        BertSelfAttention,
    )

    for kernel in ("eager", "sdpa"):
        config = BertConfig(hidden_size=WIDTH, num_attention_heads=2,
                            intermediate_size=WIDTH)
        config._attn_implementation = kernel
        weights = BertSelfAttention(config).eval()(x)[1]
        found[f"transformers BERT, {kernel}"] = (
            "none" if weights is None else _heads_of(weights.shape))
    return found


def _heads_of(shape: tuple[int, ...]) -> str:
    if tuple(shape) == (1, 2, 3, 3):
        return "every head"
    if tuple(shape) == (1, 3, 3):
        return "averaged over the heads"
    return f"shape {tuple(shape)}"


QUESTIONS = {
    "True in a boolean mask": what_true_means,
    "float mask of 0 and -inf": float_mask,
    "integer mask of 1 and 0": integer_mask,
    "query that may attend nowhere": empty_row,
    "gradient of the other rows then": empty_row_gradient,
    "causal flag with fewer queries than keys": causal_corner,
    "causal flag without a mask": causal_alone,
    "causal flag and another mask": causal_and_mask,
    "factor on the scores": scale_of,
    "no tokens": no_tokens,
    "one token": one_token,
    "scores beyond float16": half_overflow,
    "additive -1e9 in float16, whole row": half_fill,
}


def table() -> dict[str, dict[str, str]]:
    """Ask every installed peer every question."""
    return {peer.name: {question: ask_it(peer)
                        for question, ask_it in QUESTIONS.items()}
            for peer in BARE if peer.missing() is None}
