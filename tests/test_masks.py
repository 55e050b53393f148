"""Masks, and the heads' way in and out, spelled out."""

import numpy as np
import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

import masks as by_hand
from tolerances import assert_close, assert_same
from variants import by_name, draw

T, F = True, False


@pytest.mark.parametrize(("sizes", "expected"), [
    ((3,), [[T, F, F], [T, T, F], [T, T, T]]),
    ((3, None), [[T, F, F], [T, T, F], [T, T, T]]),
    ((2, 4), [[T, T, T, F], [T, T, T, T]]),
    ((4, 2), [[F, F], [F, F], [T, F], [T, T]]),
    ((1, 3), [[T, T, T]]),
    ((3, 1), [[F], [F], [T]]),
    ((1,), [[T]]),
    ((0,), np.zeros((0, 0), bool)),
    ((0, 2), np.zeros((0, 2), bool)),
    ((2, 0), np.zeros((2, 0), bool)),
])
def test_causal_mask(variant, sizes, expected):
    assert_same(variant.causal_mask(*sizes), np.array(expected))


def test_causal_mask_of_many_sizes(variant):
    for query_len in range(6):
        for key_len in range(6):
            assert_same(variant.causal_mask(query_len, key_len),
                        by_hand.causal(query_len, key_len))


def test_causal_mask_is_the_lower_right_one_of_the_library(variant, rng):
    """PyTorch has a bias of that name; its attention is the oracle."""
    from torch.nn.attention.bias import causal_lower_right  # imports a lot

    for query_len, key_len in ((3, 3), (2, 5), (1, 4)):
        query, key, value = draw(rng, batch=(1, 1), query_len=query_len,
                                 key_len=key_len)
        tensors = [torch.from_numpy(x) for x in (query, key, value)]
        expected = scaled_dot_product_attention(
            *tensors, attn_mask=causal_lower_right(query_len, key_len)).numpy()
        output = variant.scaled_dot_product_attention(
            query, key, value, variant.causal_mask(query_len, key_len))
        assert_close(output, expected)


@pytest.mark.parametrize(("lengths", "seq_len", "side", "expected"), [
    ([1, 3], 3, "right", [[T, F, F], [T, T, T]]),
    ([1, 3], 3, "left", [[F, F, T], [T, T, T]]),
    ((2,), 4, "left", [[F, F, T, T]]),
    (range(3), 2, "right", [[F, F], [T, F], [T, T]]),
    ([0], 2, "right", [[F, F]]),
    ([0], 2, "left", [[F, F]]),
    ([0], 0, "right", np.zeros((1, 0), bool)),
    ([], 2, "right", np.zeros((0, 2), bool)),
    ([1], 1, "left", [[T]]),
])
def test_padding_mask(variant, lengths, seq_len, side, expected):
    expected = np.array(expected)[:, None, None, :]
    assert_same(variant.padding_mask(lengths, seq_len, side=side), expected)


def test_padding_mask_pads_on_the_right_by_default(variant):
    assert_same(variant.padding_mask([1], 2), np.array([[[[T, F]]]]))


@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.uint8])
def test_padding_mask_takes_an_array_of_lengths(variant, dtype):
    lengths = np.array([4, 0, 2], dtype)
    assert_same(variant.padding_mask(lengths, 5),
                by_hand.padding([4, 0, 2], 5))
    assert_same(variant.padding_mask(lengths, 5, side="left"),
                by_hand.padding([4, 0, 2], 5, "left"))


def test_combine_masks(variant, rng):
    first = by_hand.random(rng, 2, 1, 1, 5)
    second = by_hand.random(rng, 5, 5)
    third = by_hand.random(rng, 3, 1, 5)
    assert_same(variant.combine_masks(first, second, third),
                first & second & third)
    assert_same(variant.combine_masks(None, first, None, second),
                first & second)
    assert_same(variant.combine_masks(first), first)
    assert_same(variant.combine_masks(first, None), first)
    assert variant.combine_masks() is None
    assert variant.combine_masks(None, None) is None
    assert_same(variant.combine_masks(np.array(T), np.array(F)), np.array(F))


def test_head_zero_has_the_first_features_of_every_token(variant):
    x = np.arange(12.0).reshape(1, 2, 6)
    heads = [[[[0, 1], [6, 7]], [[2, 3], [8, 9]], [[4, 5], [10, 11]]]]
    assert_same(variant.separate_heads(x, 3), np.array(heads, float))
    assert_same(variant.combine_heads(np.array(heads, float)), x)


@pytest.mark.parametrize("batch", [(), (2,), (2, 5), (0,)])
@pytest.mark.parametrize("num_heads", [1, 3, 33])
@pytest.mark.parametrize("seq_len", [0, 1, 7])
def test_heads_round_trip_exactly(variant, rng, batch, num_heads, seq_len):
    x = rng.normal(size=(*batch, seq_len, 33))
    heads = variant.separate_heads(x, num_heads)
    assert heads.shape == (*batch, num_heads, seq_len, 33 // num_heads)
    assert_same(variant.combine_heads(heads), x)
    for head in range(num_heads):
        width = 33 // num_heads
        assert_same(heads[..., head, :, :],
                    x[..., head * width:(head + 1) * width])


@pytest.mark.parametrize("dtype", [np.float32, np.int64, bool])
def test_heads_of_any_dtype(variant, rng, dtype):
    x = rng.integers(0, 2, size=(2, 5, 6)).astype(dtype)
    heads = variant.separate_heads(x, 3)
    assert heads.dtype == dtype
    assert_same(variant.combine_heads(heads), x)


def test_a_width_of_zero_has_heads_of_width_zero(variant):
    heads = variant.separate_heads(np.zeros((5, 0)), 2)
    assert heads.shape == (2, 5, 0)
    assert variant.combine_heads(heads).shape == (5, 0)
    assert variant.combine_heads(np.zeros((0, 5, 6))).shape == (5, 0)


def test_masks_are_made_on_the_device(torch_variant):
    module = torch_variant.module
    lengths = torch.tensor([1, 2])
    assert module.causal_mask(2).device.type == "cpu"
    assert module.causal_mask(2, device="meta").device.type == "meta"
    assert module.padding_mask([1], 2, device="meta").device.type == "meta"
    assert module.padding_mask(lengths, 2).device.type == "cpu"
    on_meta = module.padding_mask(lengths, 2, device="meta", side="left")
    assert on_meta.device.type == "meta"
    assert on_meta.shape == (2, 1, 1, 2)


def test_padding_mask_stays_where_the_lengths_are(torch_variant):
    if not torch.cuda.is_available():
        pytest.skip("needs a second device that holds numbers: no GPU here")
    lengths = torch.tensor([1, 2], device="cuda")
    mask = torch_variant.module.padding_mask(lengths, 2)
    assert mask.device == lengths.device


@pytest.fixture(params=["numpy_reference", "torch_eager"])
def softmax_variant(request):
    return by_name(request.param)


@pytest.mark.parametrize("axis", [-3, -2, -1, 0, 1, 2])
def test_softmax_along_each_axis(softmax_variant, rng, axis):
    scores = rng.normal(size=(2, 3, 5))
    weights = softmax_variant.softmax(scores, axis)
    expected = torch.softmax(torch.from_numpy(scores), axis).numpy()
    np.testing.assert_allclose(weights, expected, rtol=1e-14)
    np.testing.assert_allclose(weights.sum(axis), 1, rtol=1e-14)


def test_softmax_takes_the_last_axis_by_default(softmax_variant, rng):
    scores = rng.normal(size=(3, 5))
    assert_same(softmax_variant.softmax(scores),
                softmax_variant.softmax(scores, axis=1))


@pytest.mark.parametrize(("scores", "expected"), [
    ([0.0, np.log(3)], [0.25, 0.75]),
    ([1000.0, 1000 + np.log(3)], [0.25, 0.75]),
    ([-1000.0, -1000 + np.log(3)], [0.25, 0.75]),
    ([-1e9] * 5, [0.2] * 5),
    ([0.0, -np.inf], [1.0, 0.0]),
    ([-np.inf, -np.inf], [0.0, 0.0]),
    ([-8e307, 8e307], [0.0, 1.0]),
    ([7.0], [1.0]),
    ([[-np.inf, 1.0], [-np.inf, -np.inf]], [[0.0, 1.0], [0.0, 0.0]]),
    ([], []),
    ([0.0, np.nan], [np.nan, np.nan]),
    ([-np.inf, np.nan], [np.nan, np.nan]),
])
def test_softmax_by_hand(softmax_variant, scores, expected):
    weights = softmax_variant.softmax(np.array(scores))
    np.testing.assert_allclose(weights, expected, rtol=2e-13, atol=0)
    assert weights.shape == np.shape(expected)


@pytest.mark.parametrize("shape", [(3, 0), (0, 3), (0,)])
def test_softmax_of_nothing(softmax_variant, shape):
    assert_same(softmax_variant.softmax(np.zeros(shape)), np.zeros(shape))


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_softmax_keeps_the_dtype_and_the_input(softmax_variant, rng, dtype):
    scores = rng.normal(size=(3, 5)).astype(dtype)
    before = scores.copy()
    weights = softmax_variant.module.softmax(softmax_variant.to_native(scores))
    assert softmax_variant.to_numpy(weights).dtype == dtype
    assert_same(scores, before)


def test_softmax_of_integers_in_numpy():
    weights = by_name("numpy_reference").softmax(np.array([0, 0, 255],
                                                          np.uint8))
    assert weights.dtype == np.float64
    np.testing.assert_allclose(weights, [np.exp(-255), np.exp(-255), 1],
                               rtol=1e-13)
