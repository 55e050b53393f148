"""Wrong and odd calls: what each is told, or the right answer that it gets.

Every row runs on every variant, unless it says why not. A message names the
argument, its value and the rule; a pattern below is the part that must be
there, and the exception's type must be exactly the one given.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch

from tolerances import assert_same
from variants import (
    BATCH,
    HEAD_DIM,
    HEADS,
    KEY,
    QUERY,
    VALUE_DIM,
    VARIANTS,
    by_name,
)

NUMPY = ("numpy_reference", "numpy_tiled")
TORCH = ("torch_eager", "torch_fused", "torch_tiled")
STEPS = ("numpy_reference", "torch_eager")  # those that have softmax
ALL = (*NUMPY, *TORCH)


class Calls:
    """Short names for right calls, to be made wrong in one place."""

    def __init__(self, variant):
        self.variant, self.module = variant, variant.module
        self.is_torch = variant.is_torch

    def zeros(self, *shape, dtype="float64"):
        return self.variant.to_native(np.zeros(shape), dtype)

    def array(self, values):
        return self.variant.to_native(np.array(values))

    def ones(self, *shape):
        """A boolean mask without an effect."""
        return self.variant.to_native(np.ones(shape, bool))

    def foreign(self, *shape):
        """An array of the other library."""
        array = np.zeros(shape)
        return array if self.is_torch else torch.from_numpy(array)

    def dtype(self, name):
        return getattr(torch if self.is_torch else np, name)

    def attend(self, mask=None, **changed):
        arrays = {"query": self.zeros(BATCH, HEADS, QUERY, HEAD_DIM),
                  "key": self.zeros(BATCH, HEADS, KEY, HEAD_DIM),
                  "value": self.zeros(BATCH, HEADS, KEY, VALUE_DIM)}
        return self.module.scaled_dot_product_attention(
            **(arrays | changed), attention_mask=mask)

    def weigh(self, mask=None, **changed):
        arrays = {"query": self.zeros(BATCH, HEADS, QUERY, HEAD_DIM),
                  "key": self.zeros(BATCH, HEADS, KEY, HEAD_DIM)}
        return self.module.attention_weights(
            **(arrays | changed), attention_mask=mask)

    def layer(self, embed_dim=6, num_heads=3, **kwargs):
        kwargs = {"dtype": self.dtype("float64")} | kwargs
        return self.module.MultiHeadSelfAttention(
            embed_dim, num_heads, **kwargs)

    def arrays(self, **changed):
        reference = by_name("numpy_reference").layer(6, 3, bias=True)
        return reference.parameter_arrays() | changed

    def load(self, arrays, **kwargs):
        self.layer(**({"bias": True} | kwargs)).load_parameter_arrays(arrays)


@dataclass(frozen=True)
class Refused:
    what: str
    call: Any
    error: type[Exception]
    pattern: str
    variants: tuple[str, ...] = ALL


@dataclass(frozen=True)
class Answered:
    what: str
    call: Any
    expected: Any
    variants: tuple[str, ...] = ALL


REAL = r"it must be a (NumPy array of real|PyTorch tensor of floating-point)"
BOOLS = (r"it must be a (NumPy array|PyTorch tensor) of booleans "
         r"\(True = may attend\) or None")
FLOATS = r"it must be a NumPy array of floating-point numbers$"
COUNTS = (r"it must be a sequence of int or a (NumPy array|PyTorch tensor) "
          r"of integers with axes \(batch\)")

REFUSED = [
    # Arrays
    Refused("a list for the query", lambda c: c.attend(query=[[1.0]]),
            TypeError, r"query=\[\[1.0\]\] is of type list; " + REAL),
    Refused("None for the key", lambda c: c.attend(key=None),
            TypeError, r"key=None is of type NoneType; " + REAL),
    Refused("a number for the value", lambda c: c.attend(value=1.0),
            TypeError, r"value=1.0 is of type float; " + REAL),
    Refused("an array of the other library",
            lambda c: c.attend(query=c.foreign(2, 3)), TypeError,
            r"query=(tensor|array)\(.*is of type (torch.Tensor|numpy.ndarray)"
            "; " + REAL),
    Refused("complex numbers",
            lambda c: c.attend(query=c.zeros(5, 11, dtype="complex128")),
            TypeError, r"query has dtype (torch\.)?complex128; " + REAL),
    Refused("truth values as numbers", lambda c: c.attend(key=c.ones(7, 11)),
            TypeError, r"key has dtype (torch\.)?bool; " + REAL),
    Refused("Python objects",
            lambda c: c.attend(query=np.array([[None]])), TypeError,
            r"query has dtype object; it must be a NumPy array of real",
            NUMPY),
    Refused("integers in PyTorch",
            lambda c: c.attend(query=c.zeros(5, 11, dtype="int64")),
            TypeError, r"query has dtype torch.int64; " + REAL, TORCH),
    Refused("a query of one axis", lambda c: c.attend(query=c.zeros(11)),
            ValueError, r"query has shape \(11,\); .* with axes "
            r"\(\*batch, query_len, head_dim\)"),
    Refused("a key of another width",
            lambda c: c.attend(key=c.zeros(2, 3, 7, 10)), ValueError,
            r"key has shape \(2, 3, 7, 10\); .* with axes \(\*batch, key_len, "
            r"head_dim\) where .*head_dim=11"),
    Refused("fewer values than keys",
            lambda c: c.attend(value=c.zeros(2, 3, 6, 13)), ValueError,
            r"value has shape \(2, 3, 6, 13\); .* where .*key_len=7"),
    Refused("batches that differ",
            lambda c: c.attend(key=c.zeros(1, 3, 7, 11)), ValueError,
            r"key has shape \(1, 3, 7, 11\); .* batch=\(2, 3\)"),
    Refused("keys transposed",
            lambda c: c.weigh(key=c.zeros(2, 3, 11, 7)), ValueError,
            r"attention_weights: key has shape \(2, 3, 11, 7\); "),
    Refused("a value of another dtype in PyTorch",
            lambda c: c.attend(value=c.zeros(2, 3, 7, 13, dtype="float32")),
            TypeError, r"value has dtype torch.float32, but query has "
            r"torch.float64; they must be the same", TORCH),
    Refused("a key of another dtype in PyTorch",
            lambda c: c.weigh(key=c.zeros(2, 3, 7, 11, dtype="float16")),
            TypeError, r"key has dtype torch.float16, but query has "
            r"torch.float64; they must be the same", TORCH),
    Refused("a key on another device",
            lambda c: c.attend(key=c.zeros(2, 3, 7, 11).to("meta")),
            ValueError, r"key is on device meta, but query on cpu; it must be "
            "the same", TORCH),
    Refused("a query of width 0 without a scale",
            lambda c: c.attend(query=c.zeros(2, 3, 5, 0),
                               key=c.zeros(2, 3, 7, 0)),
            ValueError, r"head_dim=0: .* give one, or a head_dim of at least "
            "1"),
    # The scale
    Refused("a scale that is infinite",
            lambda c: c.attend(scale=float("inf")), ValueError,
            r"scale=inf must be a finite number"),
    Refused("a scale that is minus infinity",
            lambda c: c.weigh(scale=-np.inf), ValueError,
            r"scale=-inf must be a finite number"),
    Refused("a scale that is not a number",
            lambda c: c.attend(scale=float("nan")), ValueError,
            r"scale=nan must be a finite number"),
    Refused("a scale beyond every float", lambda c: c.attend(scale=10**400),
            ValueError, r"scale=10000.* must be a finite number"),
    Refused("a scale in words", lambda c: c.attend(scale="sqrt"), TypeError,
            r"scale='sqrt' is of type str; it must be float or int or None"),
    Refused("a scale that is an array",
            lambda c: c.attend(scale=c.array(1.0)), TypeError,
            r"scale=.* is of type (torch.Tensor|numpy.ndarray); it must be "
            "float or int or None"),
    Refused("a truth value for the scale", lambda c: c.attend(scale=True),
            TypeError, r"scale=True is of type bool; it must be float or int"),
    # The mask
    Refused("a mask of integers",
            lambda c: c.attend(c.array([[1] * 7] * 5)), TypeError,
            r"attention_mask has dtype (torch\.)?int64; " + BOOLS),
    Refused("an additive mask", lambda c: c.attend(c.zeros(5, 7)), TypeError,
            r"attention_mask has dtype (torch\.)?float64; " + BOOLS),
    Refused("a mask that is a list", lambda c: c.attend([[True]]), TypeError,
            r"attention_mask=\[\[True\]\] is of type list; " + BOOLS),
    Refused("a mask that is a truth value", lambda c: c.attend(True),
            TypeError, r"attention_mask=True is of type bool; " + BOOLS),
    Refused("a transposed mask", lambda c: c.attend(c.ones(7, 5)), ValueError,
            r"attention_mask has shape \(7, 5\), which does not broadcast to "
            r"the scores' \(\*batch, query_len, key_len\) = \(2, 3, 5, 7\)"),
    Refused("a padding mask without axes for heads and queries",
            lambda c: c.attend(c.ones(2, 7)), ValueError,
            r"attention_mask has shape \(2, 7\), which does not broadcast"),
    Refused("a mask with more axes than the scores",
            lambda c: c.attend(c.ones(1, 1, 1, 5, 7)), ValueError,
            r"attention_mask has shape \(1, 1, 1, 5, 7\), which does not"),
    Refused("a mask of one axis too long", lambda c: c.weigh(c.ones(8)),
            ValueError, r"attention_mask has shape \(8,\), which does not"),
    Refused("a mask of one axis that has the queries' length",
            lambda c: c.attend(c.ones(5)), ValueError,
            r"attention_mask has shape \(5,\), which does not"),
    Refused("a mask on another device",
            lambda c: c.attend(c.ones(5, 7).to("meta")), ValueError,
            r"attention_mask is on device meta, but query on cpu", TORCH),
    Refused("weights with a mask on another device",
            lambda c: c.weigh(c.ones(5, 7).to("meta")), ValueError,
            r"attention_mask is on device meta, but query on cpu", TORCH),
    # Calls that do not fit
    Refused("no value",
            lambda c: c.module.scaled_dot_product_attention(
                c.zeros(5, 11), c.zeros(7, 11)), TypeError,
            r"scaled_dot_product_attention: missing a required argument: "
            r"'value'; it takes query, key, value, attention_mask, scale"),
    Refused("another library's name for the mask",
            lambda c: c.attend(attn_mask=None), TypeError,
            r"got an unexpected keyword argument 'attn_mask'; it takes query"),
    Refused("the scale by position",
            lambda c: c.module.attention_weights(
                c.zeros(5, 11), c.zeros(7, 11), None, 1.0), TypeError,
            r"attention_weights: too many positional arguments; it takes "
            r"query, key, attention_mask, scale"),
    Refused("is_causal that is not a truth value",
            lambda c: c.attend(is_causal=1), TypeError,
            r"is_causal=1 is of type int; it must be bool", ("torch_fused",)),
    # Lengths and positions
    Refused("a negative number of queries",
            lambda c: c.module.causal_mask(-1), ValueError,
            r"query_len=-1 must be at least 0"),
    Refused("a negative number of keys",
            lambda c: c.module.causal_mask(2, -3), ValueError,
            r"key_len=-3 must be at least 0"),
    Refused("a number of queries that is a float",
            lambda c: c.module.causal_mask(2.0), TypeError,
            r"causal_mask: query_len=2.0 is of type float; it must be int"),
    Refused("a truth value for a number of queries",
            lambda c: c.module.causal_mask(True), TypeError,
            r"query_len=True is of type bool; it must be int"),
    Refused("a truth value for a number of keys",
            lambda c: c.module.causal_mask(1, True), TypeError,
            r"key_len=True is of type bool; it must be int or None"),
    Refused("no number of queries", lambda c: c.module.causal_mask(),
            TypeError, r"missing a required argument: 'query_len'"),
    Refused("more tokens than the sequence is long",
            lambda c: c.module.padding_mask([2, 4], 3), ValueError,
            r"lengths contains 4; each must be in 0..seq_len=3"),
    Refused("an array with more tokens than the sequence is long",
            lambda c: c.module.padding_mask(c.array([2, 4]), 3), ValueError,
            r"lengths contains 4; each must be in 0..seq_len=3"),
    Refused("a negative number of tokens",
            lambda c: c.module.padding_mask([-1], 3), ValueError,
            r"lengths contains -1; each must be in 0..seq_len=3"),
    Refused("a negative length of the sequence",
            lambda c: c.module.padding_mask([], -2), ValueError,
            r"seq_len=-2 must be at least 0"),
    Refused("lengths that are fractions",
            lambda c: c.module.padding_mask([1, 1.5], 3), TypeError,
            r"lengths contains 1.5 of type float; " + COUNTS),
    Refused("lengths that are truth values",
            lambda c: c.module.padding_mask([2, True], 3), TypeError,
            r"lengths contains True of type bool; " + COUNTS),
    Refused("lengths in words", lambda c: c.module.padding_mask("12", 3),
            TypeError, r"lengths contains '1' of type str; " + COUNTS),
    Refused("one length that is no list",
            lambda c: c.module.padding_mask(3, 3), TypeError,
            r"lengths=3 is of type int; " + COUNTS),
    Refused("no lengths", lambda c: c.module.padding_mask(None, 3), TypeError,
            r"lengths=None is of type NoneType; " + COUNTS),
    Refused("a mask for the lengths",
            lambda c: c.module.padding_mask(c.ones(3), 3), TypeError,
            r"lengths has dtype (torch\.)?bool; " + COUNTS),
    Refused("an array of lengths that are floats",
            lambda c: c.module.padding_mask(c.array([1.0]), 3), TypeError,
            r"lengths has dtype (torch\.)?float64; " + COUNTS),
    Refused("lengths with two axes",
            lambda c: c.module.padding_mask(c.array([[1]]), 3), ValueError,
            r"lengths has shape \(1, 1\); " + COUNTS),
    Refused("an unknown side",
            lambda c: c.module.padding_mask([1], 3, side="middle"),
            ValueError, r"side='middle' must be 'right' or 'left'"),
    Refused("the side by position",
            lambda c: c.module.padding_mask([1], 3, "left"), TypeError,
            r"padding_mask: too many positional arguments"),
    # Masks together
    Refused("masks that do not fit together",
            lambda c: c.module.combine_masks(c.ones(2, 2), None,
                                             c.ones(3, 2)),
            ValueError, r"combine_masks: masks of shapes \(2, 2\), \(3, 2\) "
            "do not broadcast to one shape"),
    Refused("a mask of integers among masks",
            lambda c: c.module.combine_masks(c.ones(2), c.array([1, 0])),
            TypeError, r"masks has dtype (torch\.)?int64; " + BOOLS),
    Refused("a list of masks",
            lambda c: c.module.combine_masks([c.ones(2, 2)]), TypeError,
            r"masks=\[.*\] is of type list; " + BOOLS),
    Refused("masks on two devices",
            lambda c: c.module.combine_masks(
                c.ones(2), None, c.ones(2).to("meta")), ValueError,
            r"masks\[2\] is on device meta, but masks\[0\] on cpu", TORCH),
    # Heads
    Refused("no head", lambda c: c.module.separate_heads(c.zeros(5, 6), 0),
            ValueError, r"num_heads=0 must be at least 1"),
    Refused("fewer heads than none",
            lambda c: c.module.separate_heads(c.zeros(5, 6), -2),
            ValueError, r"num_heads=-2 must be at least 1"),
    Refused("heads that do not divide the width",
            lambda c: c.module.separate_heads(c.zeros(5, 6), 4),
            ValueError, r"width=6 is not divisible by num_heads=4"),
    Refused("a fraction of heads",
            lambda c: c.module.separate_heads(c.zeros(5, 6), 2.0),
            TypeError, r"num_heads=2.0 is of type float; it must be int"),
    Refused("a truth value of heads",
            lambda c: c.module.separate_heads(c.zeros(5, 6), True),
            TypeError, r"num_heads=True is of type bool; it must be int"),
    Refused("features of one axis",
            lambda c: c.module.separate_heads(c.zeros(6), 2), ValueError,
            r"separate_heads: x has shape \(6,\); it must be a "
            r"(NumPy array|PyTorch tensor) with axes \(\*batch, seq_len, "
            r"width\)"),
    Refused("heads without an axis of heads",
            lambda c: c.module.combine_heads(c.zeros(5, 6)), ValueError,
            r"combine_heads: x has shape \(5, 6\); .* \(\*batch, num_heads, "
            r"seq_len, head_dim\)"),
    Refused("heads in a list", lambda c: c.module.combine_heads([[[1.0]]]),
            TypeError, r"combine_heads: x=\[\[\[1.0\]\]\] is of type list"),
    # Softmax
    Refused("an axis that is not there",
            lambda c: c.module.softmax(c.zeros(2, 3), 2), IndexError,
            r"axis=2 does not exist: scores has 2 axes", STEPS),
    Refused("an axis before the first",
            lambda c: c.module.softmax(c.zeros(2, 3), -3), IndexError,
            r"axis=-3 does not exist: scores has 2 axes", STEPS),
    Refused("scores without an axis",
            lambda c: c.module.softmax(c.array(1.0)), IndexError,
            r"axis=-1 does not exist: scores has 0 axes", STEPS),
    Refused("no axis", lambda c: c.module.softmax(c.zeros(2), None),
            TypeError, r"axis=None is of type NoneType; it must be int",
            STEPS),
    Refused("two axes", lambda c: c.module.softmax(c.zeros(2, 3), (0, 1)),
            TypeError, r"axis=\(0, 1\) is of type tuple; it must be int",
            STEPS),
    Refused("a list of scores", lambda c: c.module.softmax([1.0, 2.0]),
            TypeError, r"softmax: scores=\[1.0, 2.0\] is of type list; "
            + REAL, STEPS),
    Refused("integer scores in PyTorch",
            lambda c: c.module.softmax(c.array([1, 2])), TypeError,
            r"scores has dtype torch.int64; " + REAL, ("torch_eager",)),
    # The layer's sizes
    Refused("a width that the heads do not divide",
            lambda c: c.layer(10, 3), ValueError,
            r"embed_dim=10 is not divisible by num_heads=3"),
    Refused("a layer without heads", lambda c: c.layer(6, 0), ValueError,
            r"num_heads=0 must be at least 1"),
    Refused("a layer without heads but with a width of one",
            lambda c: c.layer(6, 0, head_dim=2), ValueError,
            r"num_heads=0 must be at least 1"),
    Refused("a layer of width 0", lambda c: c.layer(0, 1), ValueError,
            r"embed_dim=0 must be at least 1"),
    Refused("a layer of negative width",
            lambda c: c.layer(-6, 3, head_dim=2), ValueError,
            r"embed_dim=-6 must be at least 1"),
    Refused("heads of width 0", lambda c: c.layer(6, 3, head_dim=0),
            ValueError, r"head_dim=0 must be at least 1"),
    Refused("a width that is a float", lambda c: c.layer(6.0, 3), TypeError,
            r"MultiHeadSelfAttention: embed_dim=6.0 is of type float; it must "
            "be int"),
    Refused("a width in words", lambda c: c.layer("6", 3), TypeError,
            r"embed_dim='6' is of type str; it must be int"),
    Refused("a truth value of heads in a layer", lambda c: c.layer(6, True),
            TypeError, r"num_heads=True is of type bool; it must be int"),
    Refused("a width of heads that is a float",
            lambda c: c.layer(6, 3, head_dim=2.0), TypeError,
            r"head_dim=2.0 is of type float; it must be int or None"),
    Refused("a bias of 1", lambda c: c.layer(bias=1), TypeError,
            r"bias=1 is of type int; it must be bool"),
    Refused("no number of heads",
            lambda c: c.module.MultiHeadSelfAttention(6), TypeError,
            r"MultiHeadSelfAttention: missing a required argument: "
            r"'num_heads'; it takes embed_dim, num_heads, head_dim, bias"),
    Refused("an argument of another library's layer",
            lambda c: c.layer(dropout=0.1), TypeError,
            r"got an unexpected keyword argument 'dropout'; it takes embed"),
    Refused("weights of integers", lambda c: c.layer(dtype=c.dtype("int64")),
            ValueError, r"dtype=.*int64.* must be a floating-point dtype"),
    Refused("weights of complex numbers",
            lambda c: c.layer(dtype=c.dtype("complex64")), ValueError,
            r"dtype=.*complex64.* must be a floating-point dtype"),
    Refused("a dtype that NumPy does not know",
            lambda c: c.layer(dtype="floaty"), ValueError,
            r"dtype=floaty must be a floating-point dtype", NUMPY),
    Refused("PyTorch's dtype in NumPy",
            lambda c: c.layer(dtype=torch.float64), TypeError,
            r"dtype=torch.float64 is of type torch.dtype; it must be type or "
            "numpy.dtype or str", NUMPY),
    Refused("NumPy's dtype in PyTorch", lambda c: c.layer(dtype=np.float64),
            TypeError, r"dtype=<class 'numpy.float64'> is of type type; it "
            "must be torch.dtype or None", TORCH),
    Refused("a seed for the generator", lambda c: c.layer(rng=3), TypeError,
            r"rng=3 is of type int; it must be numpy.random.Generator or",
            NUMPY),
    Refused("an unknown device", lambda c: c.layer(device="nonsense"),
            RuntimeError, r"nonsense", TORCH),
    # The layer's input
    Refused("embeddings of a sequence without a batch",
            lambda c: c.layer()(c.zeros(5, 6)), ValueError,
            r"MultiHeadSelfAttention: x has shape \(5, 6\); .* with axes "
            r"\(batch, seq_len, embed_dim=6\)"),
    Refused("embeddings of another width",
            lambda c: c.layer()(c.zeros(2, 5, 7)), ValueError,
            r"x has shape \(2, 5, 7\); .*embed_dim=6\) where batch=2, "
            "seq_len=5"),
    Refused("embeddings of another width for the weights",
            lambda c: c.layer().attention_weights(c.zeros(2, 5, 7)),
            ValueError, r"MultiHeadSelfAttention.attention_weights: x has "
            r"shape \(2, 5, 7\)"),
    Refused("embeddings in a list", lambda c: c.layer()([[1.0]]), TypeError,
            r"x=\[\[1.0\]\] is of type list; " + REAL),
    Refused("no embeddings", lambda c: c.layer()(None), TypeError,
            r"x=None is of type NoneType; " + REAL),
    Refused("token numbers for a layer in PyTorch",
            lambda c: c.layer()(c.zeros(2, 5, 6, dtype="int64")), TypeError,
            r"x has dtype torch.int64; " + REAL, TORCH),
    Refused("embeddings of another dtype than the weights",
            lambda c: c.layer()(c.zeros(2, 5, 6, dtype="float32")), TypeError,
            r"x has dtype torch.float32, but weight has torch.float64", TORCH),
    Refused("embeddings on another device than the weights",
            lambda c: c.layer(device="meta")(c.zeros(2, 5, 6)), ValueError,
            r"x is on device cpu, but weight on meta; it must be the same",
            TORCH),
    Refused("a padding mask (batch, seq_len)",
            lambda c: c.layer()(c.zeros(2, 5, 6), c.ones(2, 5)), ValueError,
            r"attention_mask has shape \(2, 5\), which does not broadcast to "
            r".* = \(2, 3, 5, 5\)"),
    Refused("a mask without an axis for the heads",
            lambda c: c.layer()(c.zeros(2, 5, 6), c.ones(2, 5, 5)),
            ValueError, r"attention_mask has shape \(2, 5, 5\), which does"),
    Refused("a mask of zeros and ones for a layer",
            lambda c: c.layer()(c.zeros(2, 5, 6), c.array([1] * 5)),
            TypeError, r"attention_mask has dtype (torch\.)?int64; " + BOOLS),
    # The layer's weights
    Refused("a weight that is missing",
            lambda c: c.load({k: v for k, v in c.arrays().items()
                              if k != "W_o"}), ValueError,
            r"arrays has the names .*'W_k', 'W_q', 'W_v', 'b_k'.*; they must "
            r"be \['W_k', 'W_o', 'W_q', 'W_v', 'b_k', 'b_o', 'b_q', 'b_v'\]"),
    Refused("a bias that is missing",
            lambda c: c.load({k: v for k, v in c.arrays().items()
                              if k != "b_q"}), ValueError,
            r"arrays has the names .*; they must be .*'b_q'"),
    Refused("a weight of an unknown name",
            lambda c: c.load(c.arrays(W_x=np.zeros((6, 6)))), ValueError,
            r"arrays has the names .*'W_x'.*; they must be"),
    Refused("a weight of the wrong shape",
            lambda c: c.load(c.arrays(W_q=np.zeros((6, 5)))), ValueError,
            r"arrays\['W_q'\] has shape \(6, 5\); it must be \(6, 6\)"),
    Refused("a bias of the wrong shape",
            lambda c: c.load(c.arrays(b_o=np.zeros((1, 6)))), ValueError,
            r"arrays\['b_o'\] has shape \(1, 6\); it must be \(6,\)"),
    Refused("a weight in a list",
            lambda c: c.load(c.arrays(W_v=[[1.0]])), TypeError,
            r"arrays\['W_v'\]=\[\[1.0\]\] is of type list; " + FLOATS),
    Refused("a weight that is a tensor",
            lambda c: c.load(c.arrays(W_v=torch.zeros(6, 6))), TypeError,
            r"arrays\['W_v'\]=tensor.* is of type torch.Tensor; " + FLOATS),
    Refused("a weight of integers",
            lambda c: c.load(c.arrays(W_k=np.eye(6, dtype=int))), TypeError,
            r"arrays\['W_k'\] has dtype int64; " + FLOATS),
    Refused("a weight of strings",
            lambda c: c.load(c.arrays(W_k=np.full((6, 6), "a"))), TypeError,
            r"arrays\['W_k'\] has dtype <U1; " + FLOATS),
    Refused("no weights", lambda c: c.load(None), TypeError,
            r"arrays=None is of type NoneType; it must be a mapping from str "
            "to a NumPy array of floating-point numbers"),
    Refused("biases for a layer that has none in PyTorch",
            lambda c: c.load(c.arrays(), bias=False), ValueError,
            r"arrays has the biases b_q..b_o, but the layer was made with "
            "bias=False", TORCH),
    Refused("no biases for a layer that has some in PyTorch",
            lambda c: c.load({k: v for k, v in c.arrays().items()
                              if k.startswith("W_")}), ValueError,
            r"arrays lacks the biases b_q..b_o, but the layer was made with "
            "bias=True", TORCH),
]

NOTHING = np.zeros((BATCH, HEADS, QUERY, VALUE_DIM))

ANSWERED = [
    Answered("an empty batch",
             lambda c: c.attend(query=c.zeros(0, 3, 5, 11),
                                key=c.zeros(0, 3, 7, 11),
                                value=c.zeros(0, 3, 7, 13)),
             np.zeros((0, 3, 5, 13))),
    Answered("no query", lambda c: c.attend(query=c.zeros(2, 3, 0, 11)),
             np.zeros((2, 3, 0, 13))),
    Answered("no key",
             lambda c: c.attend(key=c.zeros(2, 3, 0, 11),
                                value=c.zeros(2, 3, 0, 13)), NOTHING),
    Answered("no key, and its mask",
             lambda c: c.attend(c.ones(5, 0), key=c.zeros(2, 3, 0, 11),
                                value=c.zeros(2, 3, 0, 13)), NOTHING),
    Answered("values of width 0",
             lambda c: c.attend(value=c.zeros(2, 3, 7, 0)),
             np.zeros((2, 3, 5, 0))),
    Answered("a mask of one number", lambda c: c.attend(c.ones()), NOTHING),
    Answered("a mask of one axis", lambda c: c.attend(c.ones(7)), NOTHING),
    Answered("a scale of the integer 0", lambda c: c.attend(scale=0),
             NOTHING),
    Answered("one token that attends to itself",
             lambda c: c.weigh(query=c.zeros(1, 11), key=c.zeros(1, 11)),
             np.ones((1, 1))),
    Answered("a query that is not a number",
             lambda c: c.weigh(query=c.array([[np.nan]]),
                               key=c.array([[1.0], [2.0]])),
             np.full((1, 2), np.nan)),
    Answered("no sequence to pad", lambda c: c.module.padding_mask([], 3),
             np.zeros((0, 1, 1, 3), bool)),
    Answered("sequences of length 0",
             lambda c: c.module.padding_mask([0, 0], 0),
             np.zeros((2, 1, 1, 0), bool)),
    Answered("lengths in a tuple",
             lambda c: c.module.padding_mask((1,), 2),
             np.array([[[[True, False]]]])),
    Answered("a causal mask of nothing", lambda c: c.module.causal_mask(0),
             np.zeros((0, 0), bool)),
    Answered("masks that are all None",
             lambda c: c.module.combine_masks(None, None), None),
    Answered("features of width 0",
             lambda c: c.module.separate_heads(c.zeros(5, 0), 2),
             np.zeros((2, 5, 0))),
    Answered("softmax of nothing", lambda c: c.module.softmax(c.zeros(3, 0)),
             np.zeros((3, 0)), STEPS),
    Answered("softmax of an axis of none",
             lambda c: c.module.softmax(c.zeros(0, 3)), np.zeros((0, 3)),
             STEPS),
    Answered("scores that are all minus infinity",
             lambda c: c.module.softmax(c.array([-np.inf, -np.inf])),
             np.zeros(2), STEPS),
    Answered("integer scores in NumPy",
             lambda c: c.module.softmax(c.array([5, 5])), np.full(2, 0.5),
             NUMPY[:1]),
    Answered("integers in NumPy",
             lambda c: c.attend(query=c.zeros(2, 3, 5, 11, dtype="int64")),
             NOTHING, NUMPY),
    Answered("mixed dtypes in NumPy",
             lambda c: c.attend(key=c.zeros(2, 3, 7, 11, dtype="float32")),
             NOTHING, NUMPY),
    Answered("a layer without a batch",
             lambda c: c.layer()(c.zeros(0, 5, 6)), np.zeros((0, 5, 6))),
    Answered("a layer without tokens",
             lambda c: c.layer()(c.zeros(2, 0, 6)), np.zeros((2, 0, 6))),
    Answered("a layer of one feature",
             lambda c: c.layer(1, 1)(c.zeros(1, 1, 1)), np.zeros((1, 1, 1))),
    Answered("a layer of token numbers in NumPy",
             lambda c: c.layer()(c.zeros(2, 5, 6, dtype="int64")),
             np.zeros((2, 5, 6)), NUMPY),
    Answered("a layer that is called with keywords",
             lambda c: c.layer()(x=c.zeros(2, 5, 6),
                                 attention_mask=c.ones(5, 5)),
             np.zeros((2, 5, 6))),
]


def rows(table):
    return [pytest.param(by_name(name), row, id=f"{row.what}-{name}")
            for row in table for name in row.variants]


@pytest.mark.parametrize(("variant", "row"), rows(REFUSED))
def test_wrong_calls_are_told_what_is_wrong(variant, row):
    with pytest.raises(row.error, match=row.pattern) as caught:
        row.call(Calls(variant))
    assert caught.type is row.error
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("variant", "row"), rows(ANSWERED))
def test_odd_calls_get_the_right_answer(variant, row):
    answer = variant.to_numpy(row.call(Calls(variant)))
    if row.expected is None:
        assert answer is None
    else:
        assert_same(answer, row.expected)


def test_the_tables_are_long_enough():
    assert len(REFUSED) + len(ANSWERED) >= 100
    assert len({row.what for row in REFUSED + ANSWERED}) == len(
        REFUSED + ANSWERED)
    used = {name for row in REFUSED + ANSWERED for name in row.variants}
    assert used == {variant.name for variant in VARIANTS}


def test_a_wrong_call_says_nothing_about_how_it_was_checked(variant):
    """One sentence, without the type checker's report behind it."""
    calls = Calls(variant)
    for call in (lambda: calls.attend(query=[[1.0]]),
                 lambda: calls.attend(wrong=1)):
        with pytest.raises(TypeError, match="scaled_dot") as caught:
            call()
        shown = caught.value
        assert shown.__cause__ is None
        assert shown.__suppress_context__ or shown.__context__ is None
