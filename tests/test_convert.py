"""Weights and masks of other libraries: there and back, and the traps."""

import numpy as np
import pytest
import torch

from self_attention import convert, numpy_reference

EMBED_DIM, NUM_HEADS, HEAD_DIM = 10, 3, 7


def arrays(bias: bool, dtype=np.float64):
    layer = numpy_reference.MultiHeadSelfAttention(
        EMBED_DIM, NUM_HEADS, head_dim=HEAD_DIM, bias=bias,
        rng=np.random.default_rng(3), dtype=dtype)
    given = layer.parameter_arrays()
    rng = np.random.default_rng(4)
    for name in given:
        if name.startswith("b_"):
            given[name] = rng.standard_normal(given[name].shape).astype(dtype)
    return given


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("layout", convert.LAYOUTS)
def test_there_and_back_gives_the_same_bits(layout, bias, dtype):
    given = arrays(bias, dtype)
    theirs = convert.to_layout(given, layout, num_heads=NUM_HEADS)
    back = convert.from_layout(theirs, layout, num_heads=NUM_HEADS)
    assert set(back) == set(given)
    for name, array in given.items():
        assert back[name].dtype == array.dtype
        assert back[name].tobytes() == array.tobytes(), name


@pytest.mark.parametrize("layout", convert.LAYOUTS)
def test_results_are_copies(layout):
    given = arrays(True)
    kept = {name: array.copy() for name, array in given.items()}
    for array in convert.to_layout(given, layout, num_heads=3).values():
        array[...] = 0
    for name, array in kept.items():
        np.testing.assert_array_equal(given[name], array)


SHAPES = {
    "dense": {"query_dense/kernel": (10, 21), "combine_heads/kernel": (21, 10),
              "query_dense/bias": (21,), "combine_heads/bias": (10,)},
    "keras": {"query/kernel": (10, 3, 7), "attention_output/kernel":
              (3, 7, 10), "query/bias": (3, 7), "attention_output/bias":
              (10,)},
    "flax": {"query/kernel": (10, 3, 7), "out/kernel": (3, 7, 10),
             "key/bias": (3, 7), "out/bias": (10,)},
    "torch": {"in_proj_weight": (63, 10), "in_proj_bias": (63,),
              "out_proj.weight": (10, 21), "out_proj.bias": (10,)},
    "torch_separate": {"q_proj_weight": (21, 10), "in_proj_bias": (63,),
                       "out_proj.weight": (10, 21)},
    "bert": {"self.query.weight": (21, 10), "output.dense.weight": (10, 21),
             "self.value.bias": (21,)},
    "gpt2": {"c_attn.weight": (10, 63), "c_attn.bias": (63,),
             "c_proj.weight": (21, 10)},
    "per_head": {"query_key_value.weight": (63, 10), "dense.weight":
                 (10, 21)},
}


@pytest.mark.parametrize("layout", convert.LAYOUTS)
def test_shapes_are_those_of_the_library(layout):
    theirs = convert.to_layout(arrays(True), layout, num_heads=3)
    for name, shape in SHAPES[layout].items():
        assert theirs[name].shape == shape, name


@pytest.mark.parametrize("bias", [False, True])
def test_separate_matrices_are_those_of_pytorch(bias):
    """With keys and values of other widths PyTorch keeps three matrices."""
    rng = np.random.default_rng(5)
    shapes = {"W_q": (10, 10), "W_k": (7, 10), "W_v": (6, 10),
              "W_o": (10, 10)}
    if bias:
        shapes |= {f"b_{part}": (10,) for part in "qkvo"}
    given = {name: rng.standard_normal(s) for name, s in shapes.items()}
    layer = torch.nn.MultiheadAttention(
        10, 2, bias=bias, kdim=7, vdim=6, batch_first=True,
        dtype=torch.float64)
    theirs = convert.to_layout(given, "torch_separate", num_heads=2)
    own = dict(layer.named_parameters())
    assert set(own) == set(theirs)
    with torch.no_grad():
        for name, array in theirs.items():
            assert own[name].shape == array.shape, name
            own[name].copy_(torch.tensor(array))
    x, key, value = (rng.standard_normal((3, length, width))
                     for length, width in ((5, 10), (11, 7), (11, 6)))
    got = layer(*map(torch.tensor, (x, key, value)))[0]
    heads = [numpy_reference.separate_heads(
        tokens @ given[f"W_{part}"] + given.get(f"b_{part}", 0), 2)
        for part, tokens in zip("qkv", (x, key, value))]
    wanted = numpy_reference.combine_heads(
        numpy_reference.scaled_dot_product_attention(*heads))
    wanted = wanted @ given["W_o"] + given.get("b_o", 0)
    np.testing.assert_allclose(got.detach(), wanted, rtol=0, atol=1e-12)


def test_packing_per_head_is_not_packing_in_thirds():
    """A packed matrix read with the other packing is scrambled (HS-08)."""
    given = arrays(False)
    theirs = convert.to_layout(given, "per_head", num_heads=3)
    misread = convert.from_layout(
        {"in_proj_weight": theirs["query_key_value.weight"],
         "out_proj.weight": theirs["dense.weight"]}, "torch", num_heads=3)
    assert misread["W_q"].shape == given["W_q"].shape
    np.testing.assert_array_equal(misread["W_q"][:, :7], given["W_q"][:, :7])
    np.testing.assert_array_equal(misread["W_q"][:, 7:14],
                                  given["W_k"][:, :7])


@pytest.mark.parametrize(("call", "message"), [
    (lambda a: convert.to_layout(a, "keras3", num_heads=3),
     r"layout='keras3' must be one of dense, keras"),
    (lambda a: convert.to_layout(a, "torch", num_heads=4),
     r"width=21 is not divisible by num_heads=4"),
    (lambda a: convert.to_layout({"W_q": a["W_q"]}, "torch", num_heads=3),
     r"arrays has the names \['W_q'\]; they must be \['W_k'"),
    (lambda a: convert.from_layout(a, "torch", num_heads=3),
     r"they must be \['in_proj_weight', 'out_proj.weight'\]"),
    (lambda a: convert.from_layout(
        convert.to_layout(a, "keras", num_heads=3), "keras", num_heads=7),
     r"its axis of heads is 3, not num_heads=7"),
    (lambda a: convert.from_layout(
        convert.to_layout(a, "gpt2", num_heads=3), "gpt2", num_heads=4),
     r"packed width 63 is not divisible by 3 \* num_heads=12"),
])
def test_wrong_weights_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call(arrays(False))


MASK = np.array([[True, False, True], [False, True, True]])


@pytest.mark.parametrize(("there", "back"), [
    (convert.to_blocked, convert.from_blocked),
    (convert.to_integer, convert.from_integer),
    (convert.to_additive, convert.from_additive),
    (lambda m: convert.to_additive(m, np.float16), convert.from_additive),
    (lambda m: convert.to_additive(m, fill=-1e9), convert.from_additive),
])
def test_masks_there_and_back(there, back):
    np.testing.assert_array_equal(back(there(MASK)), MASK)
    assert there(MASK).tobytes() != MASK.tobytes()


def test_additive_mask_has_the_dtype_and_the_fill():
    added = convert.to_additive(MASK, np.float16, fill=-60000)
    assert added.dtype == np.float16
    np.testing.assert_array_equal(added, np.where(MASK, 0, -60000))
    assert convert.to_additive(MASK).dtype == np.float32
    assert np.isneginf(convert.to_additive(MASK)[0, 1])


def test_key_padding_there_and_back():
    mask = numpy_reference.padding_mask([3, 0], 3)
    theirs = convert.to_key_padding(mask)
    np.testing.assert_array_equal(theirs, [[0, 0, 0], [1, 1, 1]])
    np.testing.assert_array_equal(convert.from_key_padding(theirs), mask)


@pytest.mark.parametrize(("query_len", "key_len"), [(3, 3), (2, 5), (5, 2)])
def test_causal_alignment(query_len, key_len):
    ours = convert.causal_flag_mask(query_len, key_len,
                                    alignment="bottom-right")
    np.testing.assert_array_equal(
        ours, numpy_reference.causal_mask(query_len, key_len))
    theirs = convert.causal_flag_mask(query_len, key_len,
                                      alignment="top-left")
    assert theirs[0].tolist() == [True] + [False] * (key_len - 1)
    assert np.array_equal(ours, theirs) == (query_len == key_len)


@pytest.mark.parametrize(("call", "error", "message"), [
    (lambda: convert.to_additive(MASK, np.float16, fill=-1e9), ValueError,
     r"fill=-1000000000.0 is -inf in float16"),
    (lambda: convert.to_additive(MASK, np.int64), ValueError,
     r"dtype=.*int64.* must be a floating-point dtype"),
    (lambda: convert.to_additive(MASK, fill=1.0), ValueError,
     r"fill=1.0 must be negative"),
    (lambda: convert.to_additive(MASK, fill=float("nan")), ValueError,
     r"fill=nan must be negative"),
    (lambda: convert.from_additive(MASK.astype(float)), ValueError,
     r"mask contains 1.0; an additive mask has 0"),
    (lambda: convert.from_additive(np.array([0.0, np.nan])), ValueError,
     r"mask contains nan"),
    (lambda: convert.from_integer(np.array([0, 2])), ValueError,
     r"mask contains 2; it must hold 1"),
    (lambda: convert.from_integer(MASK), TypeError, r"mask has dtype bool"),
    (lambda: convert.to_blocked(MASK.astype(int)), TypeError,
     r"mask has dtype int64"),
    (lambda: convert.to_key_padding(MASK), ValueError,
     r"mask has shape \(2, 3\)"),
    (lambda: convert.causal_flag_mask(2, 3, alignment="left"), ValueError,
     r"alignment='left' must be"),
    (lambda: convert.causal_flag_mask(-1, 3, alignment="top-left"),
     ValueError, r"query_len=-1 must be at least 0"),
])
def test_wrong_masks_are_refused(call, error, message):
    with pytest.raises(error, match=message):
        call()
