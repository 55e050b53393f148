"""Attention in every variant against oracles, with each kind of mask."""

import math
import sys

import numpy as np
import pytest
import torch

from masks import MASKS, causal, padding, random
from oracles import (
    library_attention,
    loop_attention,
    loop_weights,
    oracles_for,
    zero_rule,
)
from tolerances import assert_close, assert_half_close, assert_same
from variants import (
    BATCH,
    HEAD_DIM,
    HEADS,
    KEY,
    QUERY,
    VALUE_DIM,
    VARIANTS,
    by_name,
    draw,
)

EVERY_DTYPE = [pytest.param(variant, dtype, id=f"{variant.name}-{dtype}")
               for variant in VARIANTS for dtype in variant.dtypes]
HALF = [pytest.param(variant, dtype, id=f"{variant.name}-{dtype}")
        for variant in VARIANTS for dtype in variant.dtypes
        if dtype in ("float16", "bfloat16")]


@pytest.fixture(params=MASKS)
def case(request, rng):
    """Query, key, value and mask of one kind."""
    query_len, key_len, mask = MASKS[request.param]
    return *draw(rng, query_len=query_len, key_len=key_len), mask(rng)


def test_the_oracles_agree(case):
    query, key, value, mask = case
    assert_close(loop_attention(query, key, value, mask),
                 library_attention(query, key, value, mask))


def test_output_in_double_precision(variant, case):
    query, key, value, mask = case
    output = variant.scaled_dot_product_attention(query, key, value, mask)
    assert output.dtype == np.float64
    for oracle in oracles_for(variant):
        assert_close(output, oracle(query, key, value, mask))


def test_weights_in_double_precision(variant, case):
    query, key, _, mask = case
    weights = variant.attention_weights(query, key, mask)
    assert_close(weights, loop_weights(query, key, mask))
    if mask is not None:
        hidden = ~np.broadcast_to(mask, weights.shape)
        np.testing.assert_array_equal(weights[hidden], 0)


def test_output_in_single_precision(variant, case):
    query, key, value, mask = case
    single = [x.astype(np.float32) for x in (query, key, value)]
    output = variant.scaled_dot_product_attention(*single, mask)
    assert output.dtype == np.float32
    assert_close(output, loop_attention(*single, mask), "float32")
    weights = variant.attention_weights(*single[:2], mask)
    assert weights.dtype == np.float32
    assert_close(weights, loop_weights(*single[:2], mask), "float32")


def textbook(query, key, value, mask):
    """Plain PyTorch, every step in the dtype of its inputs."""
    scores = query @ key.mT / math.sqrt(query.shape[-1])
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
    return torch.softmax(scores, -1).nan_to_num(0) @ value


@pytest.mark.parametrize(("variant", "dtype"), HALF)
def test_output_in_half_precision(variant, dtype, case):
    *arrays, mask = case
    rounded = [torch.tensor(x).to(getattr(torch, dtype)) for x in arrays]
    exact = loop_attention(*(x.double().numpy() for x in rounded), mask)
    mask_tensor = None if mask is None else torch.tensor(mask)
    if variant.name == "torch_eager":  # the yardstick of all the others
        yardstick = textbook(*rounded, mask_tensor)
    else:
        eager = by_name("torch_eager")
        yardstick = eager.module.scaled_dot_product_attention(
            *rounded, mask_tensor)
    native = [variant.to_native(x, dtype) for x in arrays]
    output = variant.module.scaled_dot_product_attention(
        *native, variant.to_native(mask))
    assert str(output.dtype).removeprefix("torch.") == dtype
    assert_half_close(variant.to_numpy(output), yardstick.float().numpy(),
                      exact, dtype)


@pytest.mark.parametrize(("variant", "dtype"), HALF)
def test_half_precision_weights_are_rounded_once(variant, dtype, rng):
    query, key, _ = draw(rng)
    rounded = [torch.tensor(x).to(getattr(torch, dtype)) for x in (query, key)]
    exact = loop_weights(*(x.double().numpy() for x in rounded))
    native = [variant.to_native(x, dtype) for x in (query, key)]
    weights = variant.module.attention_weights(*native)
    assert str(weights.dtype).removeprefix("torch.") == dtype
    half_unit = torch.finfo(getattr(torch, dtype)).eps / 2
    np.testing.assert_allclose(variant.to_numpy(weights), exact,
                               rtol=1.01 * half_unit, atol=6e-8)


@pytest.mark.parametrize("scale", [1, 0.25, 0, 0.0, -0.5, 3.5,
                                   np.float64(2.0)])
def test_scale_replaces_the_square_root(variant, rng, scale):
    query, key, value = draw(rng)
    output = variant.scaled_dot_product_attention(query, key, value,
                                                  scale=scale)
    for oracle in oracles_for(variant):
        assert_close(output, oracle(query, key, value, scale=float(scale)))
    assert_close(variant.attention_weights(query, key, scale=scale),
                 loop_weights(query, key, scale=float(scale)))


def test_the_largest_float_is_still_a_scale(variant, rng):
    query, key, value = draw(rng)
    output = variant.scaled_dot_product_attention(
        0 * query, key, value, scale=sys.float_info.max)
    average = np.broadcast_to(value.mean(-2, keepdims=True), output.shape)
    assert_close(output, average)


@pytest.mark.parametrize("batch", [(), (2,), (2, 3), (2, 1, 3), (1, 1)])
@pytest.mark.parametrize("sizes", [
    {"query_len": 1}, {"key_len": 1}, {"head_dim": 1}, {"value_dim": 1},
    {"query_len": 1, "key_len": 1, "head_dim": 1, "value_dim": 1},
    {"query_len": 11, "key_len": 3}, {"query_len": 3, "key_len": 17},
], ids=str)
def test_cross_attention_of_any_sizes(variant, rng, batch, sizes):
    query, key, value = draw(rng, batch=batch, **sizes)
    mask = random(rng, query.shape[-2], key.shape[-2])
    output = variant.scaled_dot_product_attention(query, key, value, mask)
    assert_close(output, loop_attention(query, key, value, mask))


def test_is_causal_means_the_mask_at_the_bottom_right(rng):
    module = by_name("torch_fused").module
    for query_len, key_len in ((KEY, KEY), (QUERY, KEY), (KEY, QUERY)):
        arrays = draw(rng, query_len=query_len, key_len=key_len)
        mask = random(rng, BATCH, 1, query_len, key_len)
        corner = causal(query_len, key_len)
        tensors = [torch.from_numpy(x) for x in arrays]
        plain = module.scaled_dot_product_attention(*tensors, is_causal=True)
        both = module.scaled_dot_product_attention(
            *tensors, torch.from_numpy(mask), is_causal=True)
        assert_close(plain, loop_attention(*arrays, corner))
        assert_close(both, loop_attention(*arrays, corner & mask))


def test_is_causal_skips_the_mask_where_it_can(rng, monkeypatch):
    """Without a mask of its own a fused kernel skips half of the tiles."""
    fused = by_name("torch_fused").module
    library = fused.F.scaled_dot_product_attention
    seen = []

    def spy(*args, **kwargs):
        seen.append((kwargs["attn_mask"], kwargs["is_causal"]))
        return library(*args, **kwargs)

    monkeypatch.setattr(fused.F, "scaled_dot_product_attention", spy)
    square = [torch.from_numpy(x) for x in draw(rng, query_len=KEY)]
    oblong = [torch.from_numpy(x) for x in draw(rng)]
    fused.scaled_dot_product_attention(*square, is_causal=True)
    assert seen.pop() == (None, True)
    fused.scaled_dot_product_attention(*square)
    assert seen.pop() == (None, False)
    fused.scaled_dot_product_attention(*oblong, is_causal=True)
    mask, is_causal = seen.pop()
    assert_same(mask.numpy(), causal(QUERY, KEY))
    assert not is_causal


def test_arrays_need_not_be_contiguous(variant, rng):
    query, key, value = draw(rng)
    mask = random(rng, BATCH, HEADS, QUERY, KEY)
    expected = variant.scaled_dot_product_attention(query, key, value, mask)

    def scattered(array):
        """The same numbers, with gaps, and the axes stored in reverse."""
        stored = np.zeros(tuple(2 * n for n in array.shape[::-1]),
                          array.dtype)
        view = stored[tuple(slice(None, None, 2) for _ in array.shape)].T
        view[...] = array
        if not variant.is_torch:
            return view
        strides = tuple(s // array.itemsize for s in view.strides)
        return torch.from_numpy(stored).as_strided(view.shape, strides)

    arrays = [scattered(x) for x in (query, key, value, mask)]
    output = variant.module.scaled_dot_product_attention(*arrays)
    assert_close(variant.to_numpy(output), expected)
    weights = variant.module.attention_weights(arrays[0], arrays[1], arrays[3])
    assert_close(variant.to_numpy(weights), loop_weights(query, key, mask))


def test_a_view_with_reversed_axes_in_numpy(rng):
    variant = by_name("numpy_reference")
    query, key, value = draw(rng)
    output = variant.scaled_dot_product_attention(
        query[..., ::-1, :], key[..., ::-1], value)
    assert_close(output, loop_attention(
        query[..., ::-1, :].copy(), key[..., ::-1].copy(), value))


def test_inputs_are_never_changed(variant, case):
    arrays = [variant.to_native(x) for x in case]
    before = [None if x is None else variant.to_numpy(x).copy()
              for x in arrays]
    variant.module.scaled_dot_product_attention(*arrays)
    variant.module.attention_weights(arrays[0], arrays[1], arrays[3])
    variant.module.combine_masks(arrays[3], arrays[3])
    for array, old in zip(arrays, before):
        if old is not None:
            assert_same(variant.to_numpy(array), old)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(("batch", "query_len", "key_len", "value_dim"), [
    ((0, HEADS), QUERY, KEY, VALUE_DIM), ((BATCH, 0), QUERY, KEY, VALUE_DIM),
    ((BATCH, HEADS), 0, KEY, VALUE_DIM), ((BATCH, HEADS), QUERY, 0, VALUE_DIM),
    ((BATCH, HEADS), 0, 0, VALUE_DIM), ((BATCH, HEADS), QUERY, KEY, 0),
    ((), QUERY, 0, VALUE_DIM),
])
def test_empty_axes(variant, rng, batch, query_len, key_len, value_dim,
                    masked):
    query, key, value = draw(rng, batch=batch, query_len=query_len,
                             key_len=key_len, value_dim=value_dim)
    mask = np.ones((query_len, key_len), bool) if masked else None
    output = variant.scaled_dot_product_attention(query, key, value, mask)
    assert_same(output, np.zeros((*batch, query_len, value_dim)))
    weights = variant.attention_weights(query, key, mask)
    assert weights.shape == (*batch, query_len, key_len)


def test_a_query_of_width_zero_with_a_scale_averages(variant, rng):
    query, key, value = draw(rng, head_dim=0)
    output = variant.scaled_dot_product_attention(query, key, value, scale=1)
    mean = value.mean(axis=-2, keepdims=True)
    assert_close(output, np.broadcast_to(mean, output.shape))


@pytest.mark.parametrize("dtype", [np.int64, np.int8, np.uint8])
def test_numpy_takes_integers(rng, dtype):
    """As real numbers: without overflow, and with a result of fractions."""
    variant = by_name("numpy_reference")
    query, key, value = (rng.integers(0, 100, size=x.shape).astype(dtype)
                         for x in draw(rng))
    exact = [x.astype(np.float64) for x in (query, key, value)]
    output = variant.scaled_dot_product_attention(query, key, value)
    assert output.dtype == np.float64
    assert_close(output, loop_attention(*exact))
    weights = variant.attention_weights(query, key)
    assert weights.dtype == np.float64
    assert_close(weights, loop_weights(*exact[:2]))
    layer = variant.layer(6, 3)
    x = rng.integers(-9, 9, size=(2, 5, 6))
    assert_close(layer(x), layer(x.astype(np.float64)))


@pytest.mark.parametrize("wide", [0, 1, 2])
def test_numpy_promotes_mixed_dtypes(rng, wide):
    arrays = [x.astype(np.float32) for x in draw(rng)]
    arrays[wide] = arrays[wide].astype(np.float64)
    output = by_name("numpy_reference").scaled_dot_product_attention(*arrays)
    assert output.dtype == np.float64
    tolerance = "float32" if wide == 2 else "float64"
    assert_close(output, loop_attention(*arrays), tolerance)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_nothing_comes_from_padding(variant, rng, bad):
    query, key, value = draw(rng)
    mask = padding([3, KEY], KEY)
    expected = variant.scaled_dot_product_attention(query, key, value, mask)
    key[0, :, 3:], value[0, :, 3:] = np.nan, bad
    output = variant.scaled_dot_product_attention(query, key, value, mask)
    assert_close(output, expected)
    weights = variant.attention_weights(query, key, mask)
    assert_close(weights, loop_weights(query, key, mask))


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_nothing_comes_from_a_key_that_some_queries_must_not_see(
        variant, rng, bad):
    if variant.name == "torch_fused":
        pytest.skip("a fused kernel cannot keep this; its page says so")
    query, key, value = draw(rng, query_len=KEY)
    mask = causal(KEY, KEY)
    expected = variant.scaled_dot_product_attention(query, key, value, mask)
    key[..., 4, :], value[..., 4, :] = np.nan, bad
    output = variant.scaled_dot_product_attention(query, key, value, mask)
    assert_close(output[..., :4, :], expected[..., :4, :])
    assert np.isnan(output[..., 4:, :]).all(), "those who see it show it"


def test_nothing_is_hidden_where_there_is_no_mask(variant, rng):
    query, key, value = draw(rng)
    value[..., 2, 5] = np.nan
    output = variant.scaled_dot_product_attention(query, key, value)
    assert np.isnan(output[..., 5]).all()
    assert np.isfinite(np.delete(output, 5, axis=-1)).all()
    query[0, 0, 0] = np.nan
    output = variant.scaled_dot_product_attention(query, key, value)
    assert np.isnan(output[0, 0, 0]).all()


def test_a_query_that_may_attend_nowhere_gets_zeros(variant, rng):
    query, key, value = draw(rng)
    mask = random(rng, BATCH, HEADS, QUERY, KEY)
    mask[0, 1, 2], mask[1, :, 4] = False, False
    output = variant.scaled_dot_product_attention(query, key, value, mask)
    assert zero_rule(output, mask, QUERY).sum() == 1 + HEADS
    weights = variant.attention_weights(query, key, mask)
    assert zero_rule(weights, mask, QUERY).sum() == 1 + HEADS


@pytest.mark.parametrize(("variant", "dtype"), EVERY_DTYPE)
def test_a_query_that_may_attend_nowhere_in_every_dtype(variant, dtype, rng):
    arrays = [variant.to_native(x, dtype) for x in draw(rng)]
    mask = variant.to_native(np.zeros((QUERY, KEY), bool))
    output = variant.module.scaled_dot_product_attention(*arrays, mask)
    np.testing.assert_array_equal(variant.to_numpy(output), 0)


@pytest.mark.parametrize("size", [1e3, 1e5, 1e100])
def test_large_scores_do_not_overflow(variant, rng, size):
    query, key, value = draw(rng)
    query *= size
    mask = random(rng, QUERY, KEY)
    output = variant.scaled_dot_product_attention(query, key, value, mask)
    assert_close(output, loop_attention(query, key, value, mask))


@pytest.mark.parametrize(("variant", "dtype"), HALF)
def test_half_precision_scores_above_its_largest_number(variant, dtype):
    """80000 is beyond the 65504 of float16, though its inputs are not."""
    query, key = np.full((1, 4), 100.0), np.full((2, 4), 200.0)
    key[1, 3] = 201
    arrays = [variant.to_native(x, dtype)
              for x in (query, key, np.array([[0.0], [1.0]]))]
    output = variant.module.scaled_dot_product_attention(*arrays, scale=1)
    np.testing.assert_array_equal(variant.to_numpy(output), [[1.0]])
    weights = variant.module.attention_weights(*arrays[:2], scale=1)
    np.testing.assert_array_equal(variant.to_numpy(weights), [[0.0, 1.0]])


def test_a_masked_key_may_have_the_largest_score(variant):
    """Masking after the exponentials would leave nothing of the rest."""
    query, value = np.ones((1, 1)), np.array([[2.0], [4.0], [8.0]])
    key, mask = np.array([[0.0], [0.0], [1e4]]), np.array([True, True, False])
    output = variant.scaled_dot_product_attention(query, key, value, mask)
    assert_close(output, [[3.0]])


def test_the_worked_example(variant):
    """Scores of 112 and 96, divided by 8: 0.8808 and 0.1192."""
    query, key = np.zeros((1, 64)), np.zeros((2, 64))
    query[0, 0], key[:, 0] = 16, (7, 6)
    weights = variant.attention_weights(query, key)
    np.testing.assert_array_equal(weights.round(4), [[0.8808, 0.1192]])
    assert query.shape[-1] == 64 > HEAD_DIM
