"""Tiles change the order of the work and nothing else."""

import tracemalloc

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from self_attention import numpy_reference, numpy_tiled

ATOL = 1e-12


def draw(rng, batch=(2, 3), query_len=5, key_len=7, head_dim=11,
         value_dim=13, size=1.0):
    shapes = ((query_len, head_dim), (key_len, head_dim),
              (key_len, value_dim), (query_len, value_dim))
    return [rng.standard_normal((*batch, *shape)) * size for shape in shapes]


def masks(rng, query_len=5, key_len=7):
    rows = rng.random((query_len, 1)) < 0.5
    return {"none": None,
            "padding": numpy_reference.padding_mask([key_len, 3], key_len),
            "left": numpy_reference.padding_mask([4, 0], key_len,
                                                 side="left"),
            "random": rng.random((2, 3, query_len, key_len)) < 0.5,
            "rows": np.broadcast_to(rows, (query_len, key_len)),
            "table": rng.random((query_len, key_len)) < 0.7}


@pytest.mark.parametrize("size", [0.3, 1.0, 30.0])
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("kind", ["none", "padding", "left", "random",
                                  "rows", "table"])
@pytest.mark.parametrize("block_size", [1, 2, 3, 5, 7, 64])
def test_every_block_size_gives_the_same(block_size, kind, is_causal, size):
    rng = np.random.default_rng(3)
    query, key, value, grad = draw(rng, size=size)
    mask = masks(rng)[kind]
    corner = numpy_reference.causal_mask(5, 7) if is_causal else None
    both = numpy_reference.combine_masks(mask, corner)
    wanted = numpy_reference.scaled_dot_product_attention(
        query, key, value, both)
    got = numpy_tiled.scaled_dot_product_attention(
        query, key, value, mask, is_causal=is_causal, block_size=block_size)
    np.testing.assert_allclose(got, wanted, rtol=0, atol=ATOL * size)
    wanted = numpy_reference.scaled_dot_product_attention_backward(
        query, key, value, grad, both)
    got = numpy_tiled.scaled_dot_product_attention_backward(
        query, key, value, grad, mask, is_causal=is_causal,
        block_size=block_size)
    for ours, theirs in zip(got, wanted):
        np.testing.assert_allclose(ours, theirs, rtol=0,
                                   atol=ATOL * max(1, size) ** 4)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(seed=st.integers(0, 2**32 - 1), query_len=st.integers(0, 9),
       key_len=st.integers(0, 9), block_size=st.integers(1, 11),
       is_causal=st.booleans(), masked=st.booleans())
def test_against_an_oracle_that_we_did_not_write(
        seed, query_len, key_len, block_size, is_causal, masked):
    rng = np.random.default_rng(seed)
    query, key, value, _ = draw(rng, query_len=query_len, key_len=key_len)
    mask = rng.random((2, 1, query_len, key_len)) < 0.6 if masked else None
    kept = np.ones((2, 1, query_len, key_len), bool) if mask is None else mask
    if is_causal:
        kept = kept & np.tri(query_len, key_len, key_len - query_len,
                             dtype=bool)
    got = numpy_tiled.scaled_dot_product_attention(
        query, key, value, mask, is_causal=is_causal, block_size=block_size)
    if query_len == 0 or key_len == 0:
        assert got.shape == (2, 3, query_len, 13)
        assert not got.any()
        return
    wanted = F.scaled_dot_product_attention(
        *map(torch.tensor, (query, key, value, kept)))
    np.testing.assert_allclose(got, wanted, rtol=0, atol=ATOL)


@pytest.mark.parametrize("cut", range(8))
def test_two_sets_of_keys_merge(cut):
    query, key, value, _ = draw(np.random.default_rng(5))
    first = numpy_tiled.attention_and_log_sum(
        query, key[..., :cut, :], value[..., :cut, :])
    second = numpy_tiled.attention_and_log_sum(
        query, key[..., cut:, :], value[..., cut:, :])
    output, log_sum = numpy_tiled.merge_attention(*first, *second)
    wanted, wanted_sum = numpy_tiled.attention_and_log_sum(query, key, value)
    np.testing.assert_allclose(output, wanted, rtol=0, atol=ATOL)
    np.testing.assert_allclose(log_sum, wanted_sum, rtol=0, atol=ATOL)
    scores = query @ key.swapaxes(-2, -1) / np.sqrt(11)
    np.testing.assert_allclose(
        wanted_sum, torch.logsumexp(torch.tensor(scores), -1), atol=ATOL)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("is_causal", [False, True])
def test_layer_is_the_reference_layer(bias, is_causal):
    rng = np.random.default_rng(6)
    layer = numpy_reference.MultiHeadSelfAttention(
        10, 3, head_dim=7, bias=bias, rng=rng)
    if bias:
        for name in ("b_q", "b_k", "b_v", "b_o"):
            getattr(layer, name)[:] = rng.standard_normal(
                getattr(layer, name).shape)
    tiled = numpy_tiled.MultiHeadSelfAttention(10, 3, head_dim=7, bias=bias)
    tiled.load_parameter_arrays(layer.parameter_arrays())
    back = tiled.parameter_arrays()
    for name, array in layer.parameter_arrays().items():
        np.testing.assert_array_equal(back[name], array)
    assert list(back) == list(layer.parameter_arrays())
    x = rng.standard_normal((2, 5, 10))
    grad = rng.standard_normal(x.shape)
    padding = numpy_reference.padding_mask([5, 2], 5)
    corner = numpy_reference.causal_mask(5) if is_causal else None
    mask = numpy_reference.combine_masks(padding, corner)
    np.testing.assert_allclose(tiled(x, padding, is_causal=is_causal),
                               layer(x, mask), rtol=0, atol=ATOL)
    np.testing.assert_allclose(tiled.attention_weights(x, mask),
                               layer.attention_weights(x, mask), atol=ATOL)
    grad_x, grads = tiled.backward(x, grad, padding, is_causal=is_causal)
    wanted_x, wanted = layer.backward(x, grad, mask)
    np.testing.assert_allclose(grad_x, wanted_x, rtol=0, atol=ATOL)
    assert list(grads) == list(wanted)
    for name, array in wanted.items():
        np.testing.assert_allclose(grads[name], array, rtol=0, atol=ATOL)


def peak_memory(seq_len: int, mask: np.ndarray | None = None) -> int:
    arrays = draw(np.random.default_rng(7), batch=(1, 1), query_len=seq_len,
                  key_len=seq_len, head_dim=8, value_dim=8)
    tracemalloc.start()
    numpy_tiled.scaled_dot_product_attention_backward(
        *arrays, mask, block_size=32)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def test_memory_grows_with_the_length_not_its_square():
    short, long = peak_memory(512), peak_memory(2048)
    assert long < 5 * short
    assert long < 2048 * 2048 * 8 / 4


def test_a_mask_of_one_row_is_not_written_out():
    gaps = np.arange(2048) % 3 > 0  # one of three keys is hidden
    peak = peak_memory(2048, gaps[None])
    assert peak < 1.2 * peak_memory(2048) + 2048 * 32


@pytest.mark.parametrize(("dtype", "atol"), [(np.float32, 2e-6),
                                             (np.float16, 2e-3)])
def test_shorter_dtypes(dtype, atol):
    arrays = [a.astype(dtype) for a in draw(np.random.default_rng(8))[:3]]
    got = numpy_tiled.scaled_dot_product_attention(*arrays, block_size=3)
    assert got.dtype == dtype
    wanted = numpy_reference.scaled_dot_product_attention(
        *(a.astype(np.float64) for a in arrays))
    np.testing.assert_allclose(got, wanted, rtol=0, atol=atol)


def test_padding_may_hold_nan():
    query, key, value, _ = draw(np.random.default_rng(9))
    mask = numpy_reference.padding_mask([4, 7], 7)
    wanted = numpy_tiled.scaled_dot_product_attention(query, key, value, mask)
    key[0, :, 4:], value[0, :, 4:] = np.nan, np.nan
    got = numpy_tiled.scaled_dot_product_attention(query, key, value, mask)
    np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize(("call", "error", "message"), [
    (lambda q, k, v: numpy_tiled.scaled_dot_product_attention(
        q, k, v, block_size=0), ValueError, r"block_size=0"),
    (lambda q, k, v: numpy_tiled.scaled_dot_product_attention(
        q, k[..., :4], v), ValueError, r"key has shape \(2, 3, 7, 4\)"),
    (lambda q, k, v: numpy_tiled.scaled_dot_product_attention(
        q, k, v, np.ones((5, 6), bool)), ValueError, r"attention_mask has"),
    (lambda q, k, v: numpy_tiled.scaled_dot_product_attention(
        q, k, None), TypeError, r"value=None"),
    (lambda q, k, v: numpy_tiled.MultiHeadSelfAttention(10, 3), ValueError,
     r"embed_dim=10 is not divisible by num_heads=3"),
])
def test_wrong_calls_are_refused(call, error, message):
    query, key, value, _ = draw(np.random.default_rng(10))
    with pytest.raises(error, match=message):
        call(query, key, value)
