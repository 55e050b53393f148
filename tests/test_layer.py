"""The whole layer in every variant: numbers, weights, dtypes, devices."""

import copy
import pickle

import numpy as np
import pytest
import torch
from torch import nn

from masks import causal, padding, random, with_dead_rows
from oracles import library_layer, loop_attention, loop_weights
from tolerances import TOLERANCES, assert_close, assert_same
from variants import VARIANTS, by_name

EMBED_DIM, NUM_HEADS, HEAD_DIM, BATCH, SEQ_LEN = 33, 3, 11, 2, 7

MASKS = {
    "none": lambda rng: None,
    "padding right": lambda rng: padding([3, SEQ_LEN], SEQ_LEN),
    "padding left": lambda rng: padding([3, SEQ_LEN], SEQ_LEN, "left"),
    "causal": lambda rng: causal(SEQ_LEN, SEQ_LEN),
    "both": lambda rng: (causal(SEQ_LEN, SEQ_LEN)
                         & padding([3, SEQ_LEN], SEQ_LEN)),
    "per head": lambda rng: random(rng, BATCH, NUM_HEADS, SEQ_LEN, SEQ_LEN),
    "one axis": lambda rng: random(rng, SEQ_LEN),
}

PAIRS = [pytest.param(source, target, id=f"{source.name}-{target.name}")
         for source in VARIANTS for target in VARIANTS]


def weights_for(rng, *, bias, embed_dim=EMBED_DIM, num_heads=NUM_HEADS,
                head_dim=HEAD_DIM):
    inner = num_heads * head_dim
    arrays = {f"W_{name}": rng.normal(size=(embed_dim, inner))
              for name in "qkv"}
    arrays["W_o"] = rng.normal(size=(inner, embed_dim))
    if bias:
        arrays |= {f"b_{name}": rng.normal(size=inner) for name in "qkv"}
        arrays["b_o"] = rng.normal(size=embed_dim)
    return arrays


def loaded(variant, arrays, *, num_heads=NUM_HEADS, head_dim=HEAD_DIM):
    layer = variant.layer(len(arrays["W_q"]), num_heads, head_dim=head_dim,
                          bias="b_q" in arrays)
    layer.load_parameter_arrays(arrays)
    return layer


def heads_by_slices(arrays, x, num_heads, head_dim):
    """Query, key and value of every head, without a reshape."""
    parts = []
    for name in "qkv":
        product = np.einsum("bse,ew->bsw", x, arrays[f"W_{name}"])
        product = product + arrays.get(f"b_{name}", 0)
        parts.append(np.stack(
            [product[..., h * head_dim:(h + 1) * head_dim]
             for h in range(num_heads)], axis=1))
    return parts


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("kind", MASKS)
def test_the_layer_is_nn_multihead_attention(variant, rng, kind, bias):
    arrays = weights_for(rng, bias=bias)
    x = rng.normal(size=(BATCH, SEQ_LEN, EMBED_DIM))
    mask = MASKS[kind](rng)
    layer = loaded(variant, arrays)
    output, weights = library_layer(arrays, NUM_HEADS, x, mask, bias=bias)
    assert_close(variant.call(layer, x, mask), output)
    assert_close(variant.call(layer.attention_weights, x, mask), weights)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("head_dim", [1, 2, 13])
@pytest.mark.parametrize("dead", [False, True])
def test_head_dim_is_free(variant, rng, head_dim, bias, dead):
    """Any width of a head, and rows that may attend nowhere."""
    arrays = weights_for(rng, bias=bias, embed_dim=5, head_dim=head_dim)
    x = rng.normal(size=(BATCH, SEQ_LEN, 5))
    mask = with_dead_rows(rng, BATCH, NUM_HEADS, SEQ_LEN, SEQ_LEN)
    mask = mask if dead else None
    layer = loaded(variant, arrays, head_dim=head_dim)
    query, key, value = heads_by_slices(arrays, x, NUM_HEADS, head_dim)
    heads = loop_attention(query, key, value, mask)
    joined = np.concatenate(list(heads.swapaxes(0, 1)), axis=-1)
    expected = joined @ arrays["W_o"] + arrays.get("b_o", 0)
    assert_close(variant.call(layer, x, mask), expected)
    assert_close(variant.call(layer.attention_weights, x, mask),
                 loop_weights(query, key, mask))


def test_project_separates_the_heads(variant, rng):
    arrays = weights_for(rng, bias=True)
    x = rng.normal(size=(BATCH, SEQ_LEN, EMBED_DIM))
    layer = loaded(variant, arrays)
    found = layer.project(variant.to_native(x))
    assert len(found) == 3
    for part, expected in zip(found, heads_by_slices(
            arrays, x, NUM_HEADS, HEAD_DIM)):
        assert_close(variant.to_numpy(part), expected)


def test_a_token_that_may_attend_nowhere_gets_the_bias(variant, rng):
    arrays = weights_for(rng, bias=True)
    x = rng.normal(size=(BATCH, SEQ_LEN, EMBED_DIM))
    nowhere = np.zeros((SEQ_LEN, SEQ_LEN), bool)
    output = variant.call(loaded(variant, arrays), x, nowhere)
    assert_same(output, np.broadcast_to(arrays["b_o"], x.shape))
    del arrays["b_q"], arrays["b_k"], arrays["b_v"], arrays["b_o"]
    output = variant.call(loaded(variant, arrays), x, nowhere)
    assert_same(output, np.zeros_like(x))


def test_is_causal_of_the_fused_layer(rng):
    variant = by_name("torch_fused")
    layer = loaded(variant, weights_for(rng, bias=True))
    x = rng.normal(size=(BATCH, SEQ_LEN, EMBED_DIM))
    mask = padding([3, SEQ_LEN], SEQ_LEN)
    corner = causal(SEQ_LEN, SEQ_LEN)
    assert_close(variant.call(layer, x, is_causal=True),
                 variant.call(layer, x, corner))
    assert_close(variant.call(layer, x, mask, is_causal=True),
                 variant.call(layer, x, mask & corner))


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_weights_move_bit_for_bit(source, target, rng, bias):
    arrays = weights_for(rng, bias=bias)
    given = loaded(source, arrays).parameter_arrays()
    moved = loaded(target, given).parameter_arrays()
    assert set(given) == set(moved) == set(arrays)
    for name, array in arrays.items():
        assert_same(given[name], array)
        assert_same(moved[name], array)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_drawn_weights_move_in_every_dtype(source, target, dtype):
    layer = source.layer(6, 3, dtype=dtype, bias=True)
    other = target.layer(6, 3, dtype=dtype, bias=True)
    other.load_parameter_arrays(layer.parameter_arrays())
    for name, array in layer.parameter_arrays().items():
        assert array.dtype == dtype
        assert_same(other.parameter_arrays()[name], array)


def test_bfloat16_moves_exactly_through_float32(torch_variant):
    layer = torch_variant.layer(6, 3, dtype="bfloat16", bias=True)
    other = torch_variant.layer(6, 3, dtype="bfloat16", bias=True)
    arrays = layer.parameter_arrays()
    assert {array.dtype for array in arrays.values()} == {
        np.dtype("float32")}
    other.load_parameter_arrays(arrays)
    for mine, theirs in zip(layer.parameters(), other.parameters()):
        assert mine.dtype == torch.bfloat16
        assert torch.equal(mine, theirs)


def test_weights_are_copies(variant, rng):
    arrays = weights_for(rng, bias=True)
    kept = {name: array.copy() for name, array in arrays.items()}
    layer = loaded(variant, arrays)
    for array in arrays.values():
        array += 1
    given = layer.parameter_arrays()
    for name, array in given.items():
        assert_same(array, kept[name])
        array += 1
    for name, array in layer.parameter_arrays().items():
        assert_same(array, kept[name])


def test_weights_of_any_strides_are_taken(variant, rng):
    arrays = weights_for(rng, bias=True)
    odd = {name: array.T.copy().T[::-1].copy()[::-1]
           for name, array in arrays.items()}
    for name, array in loaded(variant, odd).parameter_arrays().items():
        assert_same(array, arrays[name])
        assert array.flags.c_contiguous


@pytest.mark.parametrize("bad", [
    lambda arrays: arrays.pop("W_v"),
    lambda arrays: arrays.update(W_o=arrays["W_o"][:-1]),
    lambda arrays: arrays.update(b_o=arrays["b_o"].tolist()),
], ids=["name", "shape", "type"])
def test_nothing_is_loaded_if_something_is_wrong(variant, rng, bad):
    layer = loaded(variant, weights_for(rng, bias=True))
    before = layer.parameter_arrays()
    arrays = weights_for(rng, bias=True)
    bad(arrays)
    with pytest.raises((ValueError, TypeError), match="arrays"):
        layer.load_parameter_arrays(arrays)
    for name, array in layer.parameter_arrays().items():
        assert_same(array, before[name])


def test_numpy_takes_and_drops_biases(rng):
    layer = by_name("numpy_reference").layer(EMBED_DIM, NUM_HEADS)
    assert layer.b_q is layer.b_o is None
    layer.load_parameter_arrays(weights_for(rng, bias=True))
    assert layer.b_q.shape == layer.b_o.shape == (EMBED_DIM,)
    layer.load_parameter_arrays(weights_for(rng, bias=False))
    assert layer.b_k is layer.b_v is None


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("head_dim", [None, 2])
def test_new_weights_are_glorot_uniform(variant, bias, head_dim):
    """Drawn for each of the four matrices by its own two widths."""
    layer = variant.layer(60, 3, head_dim=head_dim, bias=bias)
    assert (layer.embed_dim, layer.num_heads) == (60, 3)
    assert layer.head_dim == (20 if head_dim is None else head_dim)
    inner = 3 * layer.head_dim
    arrays = layer.parameter_arrays()
    assert set(arrays) == {"W_q", "W_k", "W_v", "W_o"} | (
        {"b_q", "b_k", "b_v", "b_o"} if bias else set())
    limit = np.sqrt(6 / (60 + inner))
    for name, array in arrays.items():
        if name.startswith("b_"):
            assert_same(array, np.zeros(60 if name == "b_o" else inner))
            continue
        assert array.shape == ((inner, 60) if name == "W_o" else (60, inner))
        assert array.dtype == np.float64
        np.testing.assert_array_less(np.abs(array), limit)
        np.testing.assert_allclose(np.abs(array).max(), limit, rtol=0.05)
        np.testing.assert_allclose(array.mean(), 0, atol=0.15 * limit)
        np.testing.assert_allclose(array.std(), limit / np.sqrt(3), rtol=0.1)
    matrices = [arrays[f"W_{name}"].ravel() for name in "qkvo"]
    assert len({matrix[0] for matrix in matrices}) == 4


def test_numpy_draws_from_the_generator():
    numpy_layer = by_name("numpy_reference").module.MultiHeadSelfAttention
    for make in (np.random.default_rng, np.random.RandomState):
        one = numpy_layer(6, 3, rng=make(5)).parameter_arrays()
        two = numpy_layer(6, 3, rng=make(5)).parameter_arrays()
        other = numpy_layer(6, 3, rng=make(6)).parameter_arrays()
        for name in one:
            assert_same(one[name], two[name])
            assert (one[name] != other[name]).all()
    fresh = [numpy_layer(6, 3).W_q for _ in range(2)]
    assert (fresh[0] != fresh[1]).all()


def test_default_dtypes():
    assert by_name("numpy_reference").module.MultiHeadSelfAttention(
        6, 3).W_q.dtype == np.float64
    for name in ("torch_eager", "torch_fused"):
        layer = by_name(name).module.MultiHeadSelfAttention(6, 3)
        assert {p.dtype for p in layer.parameters()} == {torch.float32}


def test_the_names_of_the_weights():
    layer = by_name("numpy_reference").layer(6, 3, head_dim=5, bias=True)
    for name in "qkv":
        assert getattr(layer, f"W_{name}").shape == (6, 15)
        assert getattr(layer, f"b_{name}").shape == (15,)
    assert layer.W_o.shape == (15, 6)
    assert layer.b_o.shape == (6,)
    layer = by_name("torch_eager").layer(6, 3, head_dim=5, bias=True)
    for name in ("W_q", "W_k", "W_v"):
        linear = getattr(layer, name)
        assert isinstance(linear, nn.Linear)
        assert (linear.in_features, linear.out_features) == (6, 15)
        assert linear.bias.shape == (15,)
    assert (layer.W_o.in_features, layer.W_o.out_features) == (15, 6)
    layer = by_name("torch_fused").layer(6, 3, head_dim=5, bias=True)
    assert (layer.W_qkv.in_features, layer.W_qkv.out_features) == (6, 45)
    assert (layer.W_o.in_features, layer.W_o.out_features) == (15, 6)


def test_state_dict_holds_weights_alone(torch_variant):
    """No mask, so that a layer loads at any length."""
    names = {"torch_eager": ["W_q", "W_k", "W_v", "W_o"],
             "torch_fused": ["W_qkv", "W_o"],
             "torch_tiled": ["W_qkv", "W_o"]}[torch_variant.name]
    layer = torch_variant.layer(6, 3, bias=True)
    layer(torch.zeros(2, 5, 6, dtype=torch.float64),
          torch.ones(5, 5, dtype=torch.bool))
    assert set(layer.state_dict()) == {
        f"{name}.{kind}" for name in names for kind in ("weight", "bias")}
    other = torch_variant.layer(6, 3, bias=True)
    other.load_state_dict(layer.state_dict())
    for name, array in layer.parameter_arrays().items():
        assert_same(other.parameter_arrays()[name], array)
    plain = torch_variant.layer(6, 3)
    assert set(plain.state_dict()) == {f"{name}.weight" for name in names}


@pytest.mark.parametrize("copied", [
    copy.deepcopy, lambda layer: pickle.loads(pickle.dumps(layer))],
    ids=["deepcopy", "pickle"])
def test_a_copy_is_the_same_and_is_independent(variant, rng, copied):
    layer = loaded(variant, weights_for(rng, bias=True))
    x = rng.normal(size=(BATCH, SEQ_LEN, EMBED_DIM))
    output = variant.call(layer, x)
    twin = copied(layer)
    assert_same(variant.call(twin, x), output)
    twin.load_parameter_arrays(weights_for(rng, bias=True))
    assert_same(variant.call(layer, x), output)


@pytest.mark.parametrize("dtype", ["float16", "float32", "bfloat16"])
def test_the_layer_in_other_dtypes(variant, rng, dtype):
    if dtype not in variant.dtypes:
        pytest.skip(f"{variant.name} has no {dtype}: NumPy lacks it")
    layer = variant.layer(EMBED_DIM, NUM_HEADS, dtype=dtype, bias=True)
    x = rng.normal(size=(BATCH, SEQ_LEN, EMBED_DIM))
    output = layer(variant.to_native(x, dtype))
    assert str(output.dtype).removeprefix("torch.") == dtype
    exact = loaded(by_name("numpy_reference"), {
        name: array.astype(np.float64)
        for name, array in layer.parameter_arrays().items()})(
            variant.to_numpy(variant.to_native(x, dtype)).astype(np.float64))
    tolerance = TOLERANCES.get(dtype, {
        # Four products one after the other, each rounded to half precision:
        # a few units in the last place of the largest intermediate.
        "rtol": 0, "atol": 8 * torch.finfo(getattr(torch, dtype)).eps})
    np.testing.assert_allclose(
        variant.to_numpy(output).astype(np.float64), exact, **tolerance)


@pytest.mark.parametrize(("batch", "seq_len"),
                         [(0, 5), (2, 0), (0, 0), (1, 1), (3, 1)])
def test_short_and_empty_batches(variant, rng, batch, seq_len):
    arrays = weights_for(rng, bias=True)
    layer = loaded(variant, arrays)
    x = rng.normal(size=(batch, seq_len, EMBED_DIM))
    output = variant.call(layer, x)
    assert output.shape == x.shape
    if seq_len == 1:  # a token alone attends to itself
        value = x @ arrays["W_v"] + arrays["b_v"]
        assert_close(output, value @ arrays["W_o"] + arrays["b_o"])
    weights = variant.call(layer.attention_weights, x)
    assert weights.shape == (batch, NUM_HEADS, seq_len, seq_len)


def test_the_layer_moves_to_the_meta_device(torch_variant):
    layer = torch_variant.layer(6, 3, bias=True, device="meta")
    assert {p.device.type for p in layer.parameters()} == {"meta"}
    x = torch.zeros(2, 5, 6, dtype=torch.float64, device="meta")
    assert layer(x).shape == (2, 5, 6)
    assert layer(x).device.type == "meta"


def test_the_layer_runs_on_the_gpu(torch_variant, rng):
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device: there is none here")
    layer = torch_variant.layer(EMBED_DIM, NUM_HEADS, bias=True)
    x = torch.from_numpy(rng.normal(size=(BATCH, SEQ_LEN, EMBED_DIM)))
    mask = torch_variant.module.causal_mask(SEQ_LEN)
    with torch.no_grad():
        expected = layer(x, mask)
        output = layer.to("cuda")(x.to("cuda"), mask.to("cuda"))
    assert output.device.type == "cuda"
    torch.testing.assert_close(output.cpu(), expected, **TOLERANCES["float64"])


def test_autocast_converts_the_dtypes_itself(torch_variant):
    layer = torch_variant.layer(6, 3, dtype="float32")
    x = torch.randn(2, 5, 6)
    mask = torch_variant.module.causal_mask(5)
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        output = layer(x, mask)
        from_half = layer(x.bfloat16(), mask)
    assert output.dtype == from_half.dtype == torch.bfloat16
    with torch.no_grad():
        torch.testing.assert_close(output.float(), layer(x, mask),
                                   rtol=0.05, atol=0.05)


def test_training_changes_all_weights(torch_variant):
    layer = torch_variant.layer(6, 3, bias=True)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    before = layer.parameter_arrays()
    x = torch.randn(2, 5, 6, dtype=torch.float64)
    layer(x).square().sum().backward()
    optimizer.step()
    for name, array in layer.parameter_arrays().items():
        if name != "b_k":  # adds one number to a whole row of scores
            assert (array != before[name]).any(), name


def test_repr_names_the_parts(torch_variant):
    text = repr(torch_variant.layer(6, 3))
    assert "W_o" in text
    assert "in_features=6" in text
