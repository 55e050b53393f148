"""Weights and masks of other libraries, from and to ours.

Plain arrays in, plain arrays out: no library is imported, so that a layer can
be moved where only one of the two is installed.

Our layout is that of ``numpy_reference``: ``W_q``, ``W_k``, ``W_v`` of shape
``(embed_dim, num_heads * head_dim)`` and ``W_o`` of shape
``(num_heads * head_dim, embed_dim)``, all used as ``x @ W``; ``b_q`` to
``b_o`` where there are biases. Every conversion moves numbers and computes
none, so there and back gives the same bits.

======================  =====================================================
layout                  whose, and how it differs from ours
======================  =====================================================
``dense``               four Keras ``Dense`` layers: (in, out) like ours,
                        names ``query_dense/kernel`` to ``combine_heads/bias``
``keras``               ``keras.layers.MultiHeadAttention``: heads as an axis,
                        (embed_dim, num_heads, head_dim)
``flax``                ``flax.linen.MultiHeadDotProductAttention``: as Keras,
                        other names
``torch``               ``torch.nn.MultiheadAttention``: (out, in), the three
                        inputs packed in ``in_proj_weight``
``torch_separate``      the same with ``kdim`` or ``vdim``: three matrices
``bert``                BERT's self-attention and its output: four
                        ``nn.Linear``, (out, in)
``gpt2``                GPT-2's ``Conv1D``: packed, but (in, out)
``per_head``            packed (out, in) with q, k and v of head 0 first, then
                        those of head 1 (GPT-NeoX, Megatron-LM)
======================  =====================================================
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Integer, Real
from numpy import ndarray
from numpy.typing import DTypeLike

from self_attention._checks import check_divides, check_not_negative
from self_attention._shapes import shape_checked

__all__ = [
    "LAYOUTS",
    "causal_flag_mask",
    "from_additive",
    "from_blocked",
    "from_integer",
    "from_key_padding",
    "from_layout",
    "to_additive",
    "to_blocked",
    "to_integer",
    "to_key_padding",
    "to_layout",
]

Arrays = Mapping[str, ndarray]
_INPUTS = ("q", "k", "v")


def to_layout(arrays: Arrays, layout: str, *,
              num_heads: int) -> dict[str, ndarray]:
    """Rewrite our weights in the layout of another library.

    Args:
        arrays: ``W_q`` to ``W_o``, and ``b_q`` to ``b_o`` or none of them;
            what ``parameter_arrays`` of any variant gives.
        layout: A name of ``LAYOUTS``.
        num_heads: Number of heads of the layer.

    Returns:
        Copies by the names that the other library uses.

    Raises:
        ValueError: The layout is unknown, a name is missing or unknown, or
            ``num_heads`` does not divide the width.
    """
    chosen = _layout(layout)
    _check_names(arrays, _our_names("b_q" in arrays))
    check_divides(width=arrays["W_q"].shape[1], num_heads=num_heads)
    moved = chosen.write(dict(arrays), num_heads)
    return {name: np.ascontiguousarray(a).copy() for name, a in moved.items()}


def from_layout(arrays: Arrays, layout: str, *,
                num_heads: int) -> dict[str, ndarray]:
    """Read the weights of another library into our layout.

    Args:
        arrays: The weights by the names of the other library.
        layout: A name of ``LAYOUTS``.
        num_heads: Number of heads of the layer.

    Returns:
        Copies named ``W_q`` to ``W_o``, and ``b_q`` to ``b_o`` where the
        other layer has biases; for ``load_parameter_arrays`` of any variant.

    Raises:
        ValueError: The layout is unknown, a name is missing or unknown, or
            ``num_heads`` does not divide the width.
    """
    chosen = _layout(layout)
    bias = chosen.biases[0] in arrays
    _check_names(arrays, chosen.names(bias))
    moved = chosen.read(dict(arrays), num_heads)
    check_divides(width=moved["W_q"].shape[1], num_heads=num_heads)
    return {name: np.ascontiguousarray(a).copy() for name, a in moved.items()}


@dataclass(frozen=True)
class _Layout:
    """How one library writes our weights, and how to read them back."""

    write: Callable[[dict[str, ndarray], int], dict[str, ndarray]]
    read: Callable[[dict[str, ndarray], int], dict[str, ndarray]]
    weights: tuple[str, ...]
    biases: tuple[str, ...]

    def names(self, bias: bool) -> tuple[str, ...]:
        return self.weights + self.biases if bias else self.weights


def _one_by_one(weights: tuple[str, ...], biases: tuple[str, ...],
                write: Callable[[ndarray, str, int], ndarray],
                read: Callable[[ndarray, str, int], ndarray]) -> _Layout:
    """A layout that keeps the four projections apart."""
    ours = tuple(f"W_{part}" for part in "qkvo")
    ours += tuple(f"b_{part}" for part in "qkvo")
    names = dict(zip(ours, weights + biases))

    def write_all(arrays: dict[str, ndarray],
                  num_heads: int) -> dict[str, ndarray]:
        return {names[name]: write(array, name, num_heads)
                for name, array in arrays.items()}

    def read_all(arrays: dict[str, ndarray],
                 num_heads: int) -> dict[str, ndarray]:
        return {name: read(arrays[theirs], name, num_heads)
                for name, theirs in names.items() if theirs in arrays}

    return _Layout(write_all, read_all, weights, biases)


def _same(array: ndarray, name: str, num_heads: int) -> ndarray:
    return array


def _turned(array: ndarray, name: str, num_heads: int) -> ndarray:
    return array.T  # a bias has one axis: .T leaves it as it is


def _with_head_axis(array: ndarray, name: str, num_heads: int) -> ndarray:
    if name == "b_o":
        return array
    if name == "W_o":
        return array.reshape(num_heads, -1, array.shape[1])
    check_divides(width=array.shape[-1], num_heads=num_heads)
    return array.reshape(*array.shape[:-1], num_heads, -1)


def _without_head_axis(array: ndarray, name: str, num_heads: int) -> ndarray:
    if name == "b_o":
        return array
    if name == "W_o":
        return array.reshape(-1, array.shape[-1])
    if array.shape[-2] != num_heads:
        raise ValueError(f"{name} has shape {array.shape}: its axis of heads "
                         f"is {array.shape[-2]}, not num_heads={num_heads}")
    return array.reshape(*array.shape[:-2], -1)


def _packed(weight: str, bias: str, out_weight: str, out_bias: str, *,
            turned: bool, per_head: bool = False) -> _Layout:
    """A layout that keeps q, k and v in one matrix."""

    def write(arrays: dict[str, ndarray],
              num_heads: int) -> dict[str, ndarray]:
        packed = _pack([arrays[f"W_{p}"] for p in _INPUTS], num_heads,
                       per_head)
        moved = {weight: packed.T if turned else packed,
                 out_weight: arrays["W_o"].T if turned else arrays["W_o"]}
        if "b_q" in arrays:
            moved[bias] = _pack([arrays[f"b_{p}"] for p in _INPUTS],
                                num_heads, per_head)
            moved[out_bias] = arrays["b_o"]
        return moved

    def read(arrays: dict[str, ndarray], num_heads: int) -> dict[str, ndarray]:
        packed, out = arrays[weight], arrays[out_weight]
        if turned:
            packed, out = packed.T, out.T
        parts = _unpack(packed, num_heads, per_head, weight)
        moved = dict(zip(("W_q", "W_k", "W_v", "W_o"), (*parts, out)))
        if bias in arrays:
            parts = _unpack(arrays[bias], num_heads, per_head, bias)
            moved |= zip(("b_q", "b_k", "b_v", "b_o"),
                         (*parts, arrays[out_bias]))
        return moved

    return _Layout(write, read, (weight, out_weight), (bias, out_bias))


def _pack(parts: list[ndarray], num_heads: int, per_head: bool) -> ndarray:
    if not per_head:
        return np.concatenate(parts, axis=-1)
    lead = parts[0].shape[:-1]
    heads = [part.reshape(*lead, num_heads, 1, -1) for part in parts]
    return np.concatenate(heads, axis=-2).reshape(*lead, -1)


def _unpack(packed: ndarray, num_heads: int, per_head: bool,
            name: str) -> list[ndarray]:
    width = packed.shape[-1]
    if width % (3 * num_heads) != 0:
        raise ValueError(f"{name}: its packed width {width} is not divisible "
                         f"by 3 * num_heads={3 * num_heads}")
    if not per_head:
        return np.split(packed, 3, axis=-1)
    lead = packed.shape[:-1]
    heads = packed.reshape(*lead, num_heads, 3, -1)
    return [heads[..., part, :].reshape(*lead, -1) for part in range(3)]


def _torch_separate() -> _Layout:
    """Three input matrices, but one packed bias."""
    weights = ("q_proj_weight", "k_proj_weight", "v_proj_weight")

    def write(arrays: dict[str, ndarray],
              num_heads: int) -> dict[str, ndarray]:
        moved = {name: arrays[f"W_{p}"].T for name, p in zip(weights, _INPUTS)}
        moved["out_proj.weight"] = arrays["W_o"].T
        if "b_q" in arrays:
            moved["in_proj_bias"] = np.concatenate(
                [arrays[f"b_{p}"] for p in _INPUTS])
            moved["out_proj.bias"] = arrays["b_o"]
        return moved

    def read(arrays: dict[str, ndarray], num_heads: int) -> dict[str, ndarray]:
        moved = {f"W_{p}": arrays[name].T for name, p in zip(weights, _INPUTS)}
        moved["W_o"] = arrays["out_proj.weight"].T
        if "in_proj_bias" in arrays:
            parts = np.split(arrays["in_proj_bias"], 3)
            moved |= zip(("b_q", "b_k", "b_v", "b_o"),
                         (*parts, arrays["out_proj.bias"]))
        return moved

    return _Layout(write, read, (*weights, "out_proj.weight"),
                   ("in_proj_bias", "out_proj.bias"))


def _named(pattern: str, parts: tuple[str, ...], weight: str,
           bias: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    return (tuple(pattern.format(part, weight) for part in parts),
            tuple(pattern.format(part, bias) for part in parts))


_TABLE = {
    "dense": _one_by_one(
        *_named("{}/{}", ("query_dense", "key_dense", "value_dense",
                          "combine_heads"), "kernel", "bias"),
        _same, _same),
    "keras": _one_by_one(
        *_named("{}/{}", ("query", "key", "value", "attention_output"),
                "kernel", "bias"), _with_head_axis, _without_head_axis),
    "flax": _one_by_one(
        *_named("{}/{}", ("query", "key", "value", "out"), "kernel", "bias"),
        _with_head_axis, _without_head_axis),
    "torch": _packed("in_proj_weight", "in_proj_bias", "out_proj.weight",
                     "out_proj.bias", turned=True),
    "torch_separate": _torch_separate(),
    "bert": _one_by_one(
        *_named("{}.{}", ("self.query", "self.key", "self.value",
                          "output.dense"), "weight", "bias"),
        _turned, _turned),
    "gpt2": _packed("c_attn.weight", "c_attn.bias", "c_proj.weight",
                    "c_proj.bias", turned=False),
    "per_head": _packed("query_key_value.weight", "query_key_value.bias",
                        "dense.weight", "dense.bias", turned=True,
                        per_head=True),
}

#: The layouts that ``to_layout`` and ``from_layout`` know.
LAYOUTS = tuple(_TABLE)


def _layout(layout: str) -> _Layout:
    if layout not in _TABLE:
        raise ValueError(
            f"layout={layout!r} must be one of {', '.join(LAYOUTS)}")
    return _TABLE[layout]


def _our_names(bias: bool) -> tuple[str, ...]:
    kinds = ("W", "b") if bias else ("W",)
    return tuple(f"{kind}_{part}" for kind in kinds for part in "qkvo")


def _check_names(arrays: Arrays, expected: tuple[str, ...]) -> None:
    if set(arrays) != set(expected):
        raise ValueError(f"arrays has the names {sorted(arrays)}; "
                         f"they must be {sorted(expected)}")


@shape_checked
def to_blocked(mask: Bool[ndarray, "..."]) -> Bool[ndarray, "..."]:
    """Turn our mask into one whose True means "may not attend".

    That is what a boolean ``attn_mask`` of ``nn.MultiheadAttention`` means.

    Args:
        mask: True = may attend.
    """
    return ~mask


@shape_checked
def from_blocked(mask: Bool[ndarray, "..."]) -> Bool[ndarray, "..."]:
    """Read a mask whose True means "may not attend".

    Args:
        mask: True = may not attend.

    Returns:
        Our mask, True = may attend.
    """
    return ~mask


@shape_checked
def to_additive(mask: Bool[ndarray, "..."], dtype: DTypeLike = np.float32, *,
                fill: float | int = -np.inf) -> Float[ndarray, "..."]:
    """Turn our mask into numbers that are added to the scores.

    Args:
        mask: True = may attend.
        dtype: The floating-point dtype of the scores.
        fill: What is added where a query may not attend. ``-inf`` masks
            exactly; a large finite number leaves a fully masked row uniform.

    Returns:
        0 where the query may attend, ``fill`` elsewhere.

    Raises:
        ValueError: ``dtype`` is not floating point, ``fill`` is not negative,
            or a finite ``fill`` becomes infinite in ``dtype`` (-1e9 does in
            float16).
    """
    if not np.issubdtype(np.dtype(dtype), np.floating):
        raise ValueError(f"dtype={dtype} must be a floating-point dtype")
    if not fill < 0:
        raise ValueError(f"fill={fill} must be negative")
    with np.errstate(over="ignore"):
        value = np.asarray(fill, dtype=np.float64).astype(dtype)
    if np.isinf(value) and not np.isinf(fill):
        raise ValueError(f"fill={fill} is -inf in {np.dtype(dtype)}; pass "
                         "-inf on purpose, or a smaller number")
    return np.where(mask, np.zeros((), dtype), value)


@shape_checked
def from_additive(mask: Real[ndarray, "..."]) -> Bool[ndarray, "..."]:
    """Read a mask that is added to the scores.

    Args:
        mask: 0 where a query may attend, elsewhere -1e4 or less.

    Returns:
        Our mask, True = may attend.

    Raises:
        ValueError: Another number stands in it: a bias such as ALiBi's, or a
            mask of ones and zeros, says more or other than yes and no.
    """
    attends, blocked = mask == 0, mask <= -1e4
    if not (attends | blocked).all():
        odd = mask[~(attends | blocked)].flat[0]
        raise ValueError(f"mask contains {odd}; an additive mask has 0 (may "
                         "attend) and numbers of at most -1e4 (may not)")
    return attends


@shape_checked
def to_integer(mask: Bool[ndarray, "..."]) -> Integer[ndarray, "..."]:
    """Turn our mask into ones (may attend) and zeros.

    Args:
        mask: True = may attend.
    """
    return mask.astype(np.int64)


@shape_checked
def from_integer(mask: Integer[ndarray, "..."]) -> Bool[ndarray, "..."]:
    """Read a mask of ones (may attend) and zeros, as tokenizers give it.

    Args:
        mask: Ones and zeros.

    Returns:
        Our mask, True = may attend.

    Raises:
        ValueError: Another number stands in it.
    """
    if not ((mask == 0) | (mask == 1)).all():
        odd = mask[(mask != 0) & (mask != 1)].flat[0]
        raise ValueError(f"mask contains {odd}; it must hold 1 (may attend) "
                         "and 0 (may not)")
    return mask == 1


@shape_checked
def to_key_padding(mask: Bool[ndarray, "batch 1 1 key_len"]
                   ) -> Bool[ndarray, "batch key_len"]:
    """Turn our padding mask into a ``key_padding_mask``, True = padding.

    Args:
        mask: What ``padding_mask`` gives.
    """
    return ~mask[:, 0, 0, :]


@shape_checked
def from_key_padding(mask: Bool[ndarray, "batch key_len"]
                     ) -> Bool[ndarray, "batch 1 1 key_len"]:
    """Read a ``key_padding_mask``, True = padding.

    Args:
        mask: One row for each sequence.

    Returns:
        Our mask, True = may attend.
    """
    return ~mask[:, None, None, :]


@shape_checked
def causal_flag_mask(query_len: int, key_len: int, *,
                     alignment: str) -> Bool[ndarray, "query_len key_len"]:
    """Write out what a library's causal flag means.

    Args:
        query_len: Number of queries.
        key_len: Number of keys.
        alignment: "bottom-right" (ours: the last query sees every key) or
            "top-left" (PyTorch, Keras, JAX: the first query sees the first
            key only). They agree when the two lengths do.

    Returns:
        Our mask, True = may attend.

    Raises:
        ValueError: A length is negative, or the alignment is unknown.
    """
    check_not_negative(query_len=query_len, key_len=key_len)
    if alignment not in ("bottom-right", "top-left"):
        raise ValueError(f"alignment={alignment!r} must be 'bottom-right' or "
                         "'top-left'")
    shift = key_len - query_len if alignment == "bottom-right" else 0
    return np.tri(query_len, key_len, shift, dtype=bool)
