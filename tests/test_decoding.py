"""Decoding: what a cache keeps must change nothing but the cost.

Oracles that were not written here decide: ``F.scaled_dot_product_attention``
(with ``enable_gqa``), ``nn.MultiheadAttention`` and PyTorch's own counter of
operations; beside them loops that make every row on its own.
"""

import inspect
import json
import math
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch.utils.flop_counter import FlopCounterMode

from masks import causal, padding, with_dead_rows
from oracles import library_attention, library_layer, loop_attention
from self_attention import (
    numpy_decoding,
    numpy_reference,
    torch_decoding,
    torch_eager,
)
from tolerances import assert_close, assert_same

BATCH, HEADS, HEAD_DIM, SEQ, EMBED = 2, 6, 4, 7, 11
KEY_HEADS = (6, 3, 2, 1)
CASES = {case["id"]: case for case in json.loads(
    (Path(__file__).parent / "data" / "cases.json").read_text("utf-8"))}


@dataclass(frozen=True)
class Library:
    """One of the two modules, called with NumPy arrays."""

    module: ModuleType

    @property
    def is_torch(self) -> bool:
        return self.module is torch_decoding

    def native(self, value: Any) -> Any:
        if self.is_torch and isinstance(value, np.ndarray):
            return torch.from_numpy(np.array(value))
        return value

    def dtype(self, name: str) -> Any:
        return getattr(torch if self.is_torch else np, name)

    def call(self, function: Any, *args: Any, **kwargs: Any) -> Any:
        kwargs = {name: self.native(value) for name, value in kwargs.items()}
        result = function(*map(self.native, args), **kwargs)
        if isinstance(result, torch.Tensor):
            return result.detach().numpy()
        return result

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        function = getattr(self.module, name)
        return lambda *args, **kwargs: self.call(function, *args, **kwargs)

    def layer(self, rng: np.random.Generator | None = None, *,
              embed_dim: int = EMBED, num_heads: int = HEADS,
              head_dim: int = HEAD_DIM, dtype: str = "float64",
              **kwargs: Any) -> Any:
        """Make a layer; with a generator, all its weights are drawn."""
        layer = self.module.CachedSelfAttention(
            embed_dim, num_heads, head_dim=head_dim,
            dtype=self.dtype(dtype), **kwargs)
        if rng is not None:
            layer.load_parameter_arrays({
                name: rng.normal(size=array.shape).astype(dtype)
                for name, array in layer.parameter_arrays().items()})
        return layer

    def cache(self, *sizes: int, dtype: str = "float64") -> Any:
        return self.module.KeyValueCache(*sizes, dtype=self.dtype(dtype))


LIBRARIES = [Library(numpy_decoding), Library(torch_decoding)]
NUMPY, TORCH = LIBRARIES


@pytest.fixture(params=LIBRARIES,
                ids=lambda library: library.module.__name__.split(".")[1])
def library(request):
    return request.param


def by_steps(library, layer, x, split=0, *, cache=None, padding_mask=None):
    """Prefill the first tokens, then one token at a time."""
    cache = layer.new_cache(*x.shape[:2]) if cache is None else cache
    parts = [library.call(layer.prefill, x[:, :split], cache,
                          None if padding_mask is None
                          else padding_mask[..., :split])]
    parts += [library.call(layer.step, x[:, t:t + 1], cache)
              for t in range(split, x.shape[1])]
    return np.concatenate(parts, axis=1)


# Prefill and steps against the full pass

@pytest.mark.parametrize("key_heads", KEY_HEADS)
@pytest.mark.parametrize("rotary", [False, True])
def test_every_split_gives_the_full_pass(library, rng, key_heads, rotary):
    layer = library.layer(rng, num_key_value_heads=key_heads, rotary=rotary,
                          bias=True)
    x = rng.normal(size=(BATCH, SEQ, EMBED))
    full = library.call(layer, x)
    for split in range(SEQ + 1):
        assert_close(by_steps(library, layer, x, split), full)


def test_every_cut_into_three_pieces_gives_the_full_pass(library, rng):
    layer = library.layer(rng, num_key_value_heads=2, rotary=True)
    x = rng.normal(size=(BATCH, SEQ, EMBED))
    full = library.call(layer, x)
    for first in range(SEQ + 1):
        for second in range(first, SEQ + 1):
            cache = layer.new_cache(BATCH, SEQ)
            parts = [library.call(layer.prefill, piece, cache) for piece
                     in np.split(x, [first, second], axis=1)]
            assert_close(np.concatenate(parts, axis=1), full)


def test_full_pass_is_the_reference_layer(library, rng):
    """With a key head for each query head nothing else is new."""
    layer = library.layer(rng, bias=True)
    x = rng.normal(size=(BATCH, SEQ, EMBED))
    for kept in (None, padding([3, SEQ], SEQ), padding([3, SEQ], SEQ, "left")):
        reference = numpy_reference.MultiHeadSelfAttention(
            EMBED, HEADS, head_dim=HEAD_DIM, bias=True)
        reference.load_parameter_arrays(layer.parameter_arrays())
        mask = causal(SEQ, SEQ) if kept is None else causal(SEQ, SEQ) & kept
        real = slice(None) if kept is None else kept[:, 0, 0]
        assert_close(library.call(layer, x, kept)[real],
                     reference(x, mask)[real])


def test_full_pass_is_that_of_pytorchs_own_layer(library, rng):
    layer = library.layer(rng, embed_dim=HEADS * HEAD_DIM, bias=True)
    x = rng.normal(size=(BATCH, SEQ, HEADS * HEAD_DIM))
    expected, _ = library_layer(layer.parameter_arrays(), HEADS, x,
                                causal(SEQ, SEQ), bias=True)
    assert_close(library.call(layer, x), expected)
    assert_close(by_steps(library, layer, x, 3), expected)


@pytest.mark.parametrize("key_heads", KEY_HEADS)
def test_numpy_steps_are_rows_on_their_own_bit_for_bit(rng, key_heads):
    """Same products, same order of sums: a step is the body of this loop."""
    layer = NUMPY.layer(rng, num_key_value_heads=key_heads)
    x = rng.normal(size=(BATCH, SEQ, EMBED))
    rows, keys, values = [], [], []
    for t in range(SEQ):
        query, key, value = layer.project(x[:, t:t + 1],
                                          np.full((BATCH, 1), t))
        keys.append(key)
        values.append(value)
        heads = numpy_decoding.grouped_query_attention(
            query, np.concatenate(keys, axis=2),
            np.concatenate(values, axis=2))
        rows.append(numpy_reference.combine_heads(heads) @ layer.W_o)
    assert_same(by_steps(NUMPY, layer, x), np.concatenate(rows, axis=1))


def test_capacity_changes_no_bit(library, rng):
    layer = library.layer(rng, num_key_value_heads=3)
    x = rng.normal(size=(BATCH, SEQ, EMBED))
    wide = layer.new_cache(BATCH, 5 * SEQ)
    assert_same(by_steps(library, layer, x, 2, cache=wide),
                by_steps(library, layer, x, 2))


def test_a_later_token_never_changes_an_earlier_row(library, rng):
    layer = library.layer(rng, num_key_value_heads=2, rotary=True)
    x = rng.normal(size=(BATCH, SEQ, EMBED))
    other = x.copy()
    other[:, 4:] += 1
    assert_same(library.call(layer, other)[:, :4],
                library.call(layer, x)[:, :4])


def test_empty_prefill_and_empty_batch(library, rng):
    layer = library.layer(rng)
    cache = layer.new_cache(BATCH, SEQ)
    none = rng.normal(size=(BATCH, 0, EMBED))
    assert library.call(layer.prefill, none, cache).shape == none.shape
    assert cache.length == 0
    x = rng.normal(size=(BATCH, SEQ, EMBED))
    assert_close(by_steps(library, layer, x, cache=cache),
                 library.call(layer, x))
    assert library.call(layer.prefill, none, cache).shape == none.shape
    nobody = rng.normal(size=(0, SEQ, EMBED))
    assert by_steps(library, layer, nobody, 2).shape == nobody.shape
    assert library.call(layer, none).shape == none.shape


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_short_dtypes_are_kept(library, rng, dtype):
    if dtype == "bfloat16" and not library.is_torch:
        pytest.skip("NumPy has no bfloat16")
    exact = library.layer(rng, num_key_value_heads=2)
    layer = library.module.CachedSelfAttention(
        EMBED, HEADS, head_dim=HEAD_DIM, num_key_value_heads=2,
        dtype=library.dtype(dtype))
    layer.load_parameter_arrays({
        name: array if library.is_torch else array.astype(dtype)
        for name, array in exact.parameter_arrays().items()})
    x = rng.normal(size=(1, SEQ, EMBED))
    expected = library.call(exact, x)
    short = library.native(x)
    short = (short.to(library.dtype(dtype)) if library.is_torch
             else short.astype(dtype))
    cache = layer.new_cache(1, SEQ)
    got = layer.prefill(short, cache)
    assert got.dtype == library.dtype(dtype)
    assert cache.key.dtype == library.dtype(dtype)
    got = got.float().numpy() if library.is_torch else got
    bound = {"float32": 1e-5, "float16": 0.02, "bfloat16": 0.15}[dtype]
    assert np.abs(got - expected).max() < bound * np.abs(expected).max()


# Several sequences

SHORT, LONG = 4, SEQ


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("rotary", [False, True])
@pytest.mark.parametrize("key_heads", [6, 2])
def test_padding_on_either_side_changes_nothing(library, rng, side, rotary,
                                                key_heads):
    """Three texts in one batch, and then three more tokens for each."""
    layer = library.layer(rng, num_key_value_heads=key_heads, rotary=rotary)
    lengths, more = [SHORT, LONG, 1], 3
    texts = [rng.normal(size=(1, n + more, EMBED)) for n in lengths]
    kept = padding(lengths, LONG, side)
    x = rng.normal(size=(3, LONG, EMBED))
    for row, (n, text) in enumerate(zip(lengths, texts)):
        x[row, kept[row, 0, 0]] = text[0, :n]
    cache = layer.new_cache(3, LONG + more)
    got = library.call(layer.prefill, x, cache, kept)
    steps = [library.call(layer.step, np.concatenate(
        [text[:, n + t:n + t + 1] for n, text in zip(lengths, texts)]),
        cache) for t in range(more)]
    for row, (n, text) in enumerate(zip(lengths, texts)):
        alone = library.call(layer, text)[0]
        real = kept[row, 0, 0]
        assert_close(got[row, real], alone[:n])
        np.testing.assert_array_equal(got[row, ~real], 0)
        assert_close(np.stack([step[row, 0] for step in steps]), alone[n:])
    assert_close(library.call(layer, x, kept), got)


def test_padding_in_the_middle(library, rng):
    """Two prefills, each padded: only positions decide."""
    layer = library.layer(rng, rotary=True)
    x = rng.normal(size=(BATCH, SEQ, EMBED))
    kept = np.ones((BATCH, 1, 1, SEQ), bool)
    kept[0, ..., [2, 3]] = kept[1, ..., [0, 3, 6]] = False
    cache = layer.new_cache(BATCH, SEQ)
    parts = [library.call(layer.prefill, x[:, part], cache, kept[..., part])
             for part in (slice(0, 4), slice(4, SEQ))]
    got = np.concatenate(parts, axis=1)
    for row in range(BATCH):
        real = kept[row, 0, 0]
        assert_close(got[row, real], library.call(
            layer, x[row:row + 1, real])[0])


def test_what_stands_in_the_padding_changes_no_bit(library, rng):
    layer = library.layer(rng, num_key_value_heads=2, rotary=True)
    kept = padding([SHORT, LONG], LONG, "left")
    x = rng.normal(size=(BATCH, LONG, EMBED))
    other = np.where(kept[:, 0, 0, :, None], x, 1e3)
    newest = rng.normal(size=(BATCH, 1, EMBED))
    results = []
    for start in (x, other):
        cache = layer.new_cache(BATCH, LONG + 1)
        first = library.call(layer.prefill, start, cache, kept)
        results.append((first, library.call(layer.step, newest, cache)))
    assert_same(results[0][0], results[1][0])
    assert_same(results[0][1], results[1][1])


def test_nan_in_the_padding_stays_there(library, rng):
    layer = library.layer(rng, num_key_value_heads=2)
    kept = padding([SHORT, LONG], LONG, "left")
    x = rng.normal(size=(BATCH, LONG, EMBED))
    x[~kept[:, 0, 0]] = np.nan
    cache = layer.new_cache(BATCH, LONG + 1)
    got = library.call(layer.prefill, x, cache, kept)
    assert np.isfinite(got[kept[:, 0, 0]]).all()
    newest = rng.normal(size=(BATCH, 1, EMBED))
    assert np.isfinite(library.call(layer.step, newest, cache)).all()


def test_sequences_do_not_leak_into_each_other(library, rng):
    layer = library.layer(rng, num_key_value_heads=3, rotary=True)
    x = rng.normal(size=(3, SEQ, EMBED))
    other = x.copy()
    other[1:] = rng.normal(size=(2, SEQ, EMBED))
    assert_same(by_steps(library, layer, other, 3)[0],
                by_steps(library, layer, x, 3)[0])


def test_two_caches_of_one_layer_do_not_meet(library, rng):
    layer = library.layer(rng, num_key_value_heads=3)
    x, y = rng.normal(size=(2, BATCH, SEQ, EMBED))
    one, two = (layer.new_cache(BATCH, SEQ) for _ in range(2))
    turns = [(library.call(layer.step, x[:, t:t + 1], one),
              library.call(layer.step, y[:, t:t + 1], two))
             for t in range(SEQ)]
    assert_same(np.concatenate([a for a, _ in turns], axis=1),
                by_steps(library, layer, x))
    assert_same(np.concatenate([b for _, b in turns], axis=1),
                by_steps(library, layer, y))


# The cache

def test_append_gives_views_that_stay_valid(library, rng):
    cache = library.cache(BATCH, 3, SEQ, HEAD_DIM)
    key, value = rng.normal(size=(2, BATCH, 3, SEQ, HEAD_DIM))
    early = cache.append(*map(library.native,
                              (key[:, :, :2], value[:, :, :2])))
    late = cache.append(*map(library.native,
                             (key[:, :, 2:], value[:, :, 2:])))
    for views, array, slots in zip(zip(early, late), (key, value),
                                   (cache.key_slots, cache.value_slots)):
        assert_same(np.asarray(views[0]), array[:, :, :2])
        assert_same(np.asarray(views[1]), array)
        for view in views:
            assert np.shares_memory(np.asarray(view), np.asarray(slots))
    np.testing.assert_array_equal(cache.positions, [range(SEQ)] * BATCH)
    assert cache.nbytes == 2 * key.nbytes


def test_a_copy_goes_in(library, rng):
    cache = library.cache(BATCH, 1, 3, HEAD_DIM)
    key = library.native(rng.normal(size=(BATCH, 1, 2, HEAD_DIM)))
    before = np.asarray(key).copy()
    cache.append(key, key)
    key[:] = 0
    assert_same(np.asarray(cache.key), before)


def test_a_slot_nobody_wrote_cannot_go_unnoticed(library, rng):
    cache = library.cache(BATCH, 3, SEQ, HEAD_DIM)
    new = library.native(rng.normal(size=(BATCH, 3, 2, HEAD_DIM)))
    cache.append(new, new)
    for slots in (cache.key_slots, cache.value_slots):
        assert np.isnan(np.asarray(slots)[:, :, 2:]).all()
    np.testing.assert_array_equal(
        cache.position_slots, [[0, 1] + [-1] * (SEQ - 2)] * BATCH)


def test_all_slots_with_their_positions_give_the_same(library, rng):
    """Code that needs fixed shapes attends to the unwritten slots as well."""
    cache = library.cache(BATCH, 2, SEQ, HEAD_DIM)
    new = library.native(rng.normal(size=(BATCH, 2, 4, HEAD_DIM)))
    key, value = cache.append(new, new)
    query = rng.normal(size=(BATCH, HEADS, 2, HEAD_DIM))
    positions = np.array([[2, 3]] * BATCH)
    over_all = library.grouped_query_attention(
        query, cache.key_slots, cache.value_slots,
        library.position_mask(positions, cache.position_slots))
    assert_close(over_all, library.grouped_query_attention(
        query, key, value, causal(2, 4)))


def full_cache(library, rng):
    layer = library.layer(rng, num_key_value_heads=3)
    x = rng.normal(size=(BATCH, SEQ, EMBED))
    cache = layer.new_cache(BATCH, SEQ)
    library.call(layer.prefill, x, cache)
    return layer, x, cache


def test_a_full_cache_says_its_capacity_and_keeps_what_it_has(library, rng):
    layer, x, cache = full_cache(library, rng)
    before = [np.asarray(array).copy()
              for array in (cache.key, cache.positions)]
    with pytest.raises(ValueError, match=r"capacity=7 is too small: 7 slots "
                       r"are filled, and 1 more would need 8"):
        library.call(layer.step, x[:, :1], cache)
    cache.rollback(5)
    with pytest.raises(ValueError, match=r"capacity=7 is too small: 5 slots "
                       r"are filled, and 3 more would need 8"):
        library.call(layer.prefill, x[:, :3], cache)
    assert cache.length == 5
    library.call(layer.prefill, x[:, 5:], cache)
    for array, now in zip(before, (cache.key, cache.positions)):
        assert_close(np.asarray(now), array)


@pytest.mark.parametrize("length", range(SEQ + 1))
def test_rollback_then_again_gives_the_same_bits(library, rng, length):
    layer = library.layer(rng, num_key_value_heads=2, rotary=True)
    x = rng.normal(size=(BATCH, SEQ, EMBED))
    cache = layer.new_cache(BATCH, SEQ)
    first = by_steps(library, layer, x, cache=cache)
    cache.rollback(length)
    assert cache.length == length
    again = [library.call(layer.step, x[:, t:t + 1], cache)
             for t in range(length, SEQ)]
    for t, row in enumerate(again, length):
        assert_same(row, first[:, t:t + 1])


def test_rollback_counts_on_from_what_is_left(library, rng):
    layer = library.layer(rng)
    cache = layer.new_cache(BATCH, SEQ)
    kept = padding([1, 3], 3, "left")
    library.call(layer.prefill, rng.normal(size=(BATCH, 3, EMBED)), cache,
                 kept)
    library.call(layer.step, rng.normal(size=(BATCH, 1, EMBED)), cache)
    np.testing.assert_array_equal(cache.positions,
                                  [[-1, -1, 0, 1], [0, 1, 2, 3]])
    cache.rollback(2)
    np.testing.assert_array_equal(library.call(cache.next_positions, 2),
                                  [[0, 1], [2, 3]])
    np.testing.assert_array_equal(cache.position_slots[:, 2:], -1)


def test_reset_leaves_nothing_behind(library, rng):
    layer, _, cache = full_cache(library, rng)
    cache.reset()
    assert cache.length == 0
    assert cache.key.shape[2] == cache.positions.shape[1] == 0
    y = rng.normal(size=(BATCH, SEQ, EMBED))
    assert_same(by_steps(library, layer, y, 2, cache=cache),
                by_steps(library, layer, y, 2))


# Positions

def test_position_ids_count_real_tokens(library):
    kept = np.array([[0, 0, 1, 1], [1, 1, 0, 0], [1, 0, 1, 0], [0, 0, 0, 0]],
                    bool)[:, None, None]
    expected = [[-1, -1, 0, 1], [0, 1, -1, -1], [0, -1, 1, -1], [-1] * 4]
    np.testing.assert_array_equal(library.position_ids(kept), expected)
    start = np.array([5, 0, 2, 9])
    shifted = np.where(np.array(expected) >= 0,
                       np.array(expected) + start[:, None], -1)
    np.testing.assert_array_equal(library.position_ids(kept, start), shifted)
    np.testing.assert_array_equal(
        library.position_ids(kept, 3),
        np.where(np.array(expected) >= 0, np.array(expected) + 3, -1))


def test_position_mask_is_the_rule_in_words(library, rng):
    query = rng.integers(-1, 6, size=(BATCH, 5))
    key = rng.integers(-1, 6, size=(BATCH, SEQ))
    expected = [[[[0 <= k <= q for k in key[b]] for q in query[b]]]
                for b in range(BATCH)]
    np.testing.assert_array_equal(library.position_mask(query, key), expected)


def test_position_mask_is_the_causal_mask(library):
    for query_len, key_len in ((7, 7), (2, 7), (1, 7), (0, 7)):
        keys = np.arange(key_len)[None]
        np.testing.assert_array_equal(
            library.position_mask(keys[:, key_len - query_len:], keys)[0, 0],
            causal(query_len, key_len))


def test_case_of_shared_positions(library):
    """LP-01: one row of positions for a whole left-padded batch."""
    case = CASES["LP-01"]
    kept = np.array(case["input"]["keep"], bool)[:, None, None]
    found = np.maximum(library.position_ids(kept), 0)
    np.testing.assert_array_equal(found, case["right"]["positions"])
    assert not np.array_equal(found, case["wrong"]["positions"])


def test_case_of_unwritten_slots(library):
    """CO-05: an offset taken from the allocated length."""
    case = CASES["CO-05"]
    given, kept = case["input"], case["input"]["keep"]
    slots = np.full((1, len(kept[0])), -1)
    slots[0, :given["valid_len"]] = range(given["valid_len"])
    query = given["start_position"] + np.arange(len(kept))[None]
    np.testing.assert_array_equal(
        library.position_mask(query, slots)[0, 0], kept)


def test_case_of_equal_chunks():
    """HS-11: the packed projection of fewer key heads is not in thirds."""
    case = CASES["HS-11"]
    packed = np.array(case["input"]["packed"])
    with pytest.raises(ValueError, match="equal"):
        np.split(packed, 3, axis=-1)
    layer = numpy_decoding.CachedSelfAttention(8, 2, num_key_value_heads=1,
                                               head_dim=2)
    widths = [layer.parameter_arrays()[f"W_{name}"].shape[1]
              for name in "qkv"]
    assert widths == case["input"]["sizes"]
    parts = np.split(packed, np.cumsum(widths)[:-1], axis=-1)
    for part, name in zip(parts, "QKV"):
        np.testing.assert_array_equal(part, case["right"][name])


def test_rotary_sees_distances_only(library, rng):
    """The same text, moved by a hundred positions, keeps its numbers."""
    layer = library.layer(rng, rotary=True)
    x = rng.normal(size=(1, SEQ, EMBED))
    heads = []
    for start in (0, 100):
        positions = np.arange(SEQ)[None] + start
        query, key, value = layer.project(*map(library.native, (x, positions)))
        heads.append(library.grouped_query_attention(
            query, key, value, causal(SEQ, SEQ)))
    assert_close(heads[1], heads[0])
    plain = library.layer(head_dim=HEAD_DIM)
    plain.load_parameter_arrays(layer.parameter_arrays())
    assert np.abs(library.call(plain, x) - library.call(layer, x)).max() > 0.1


# Grouped heads

def draw_heads(rng, key_heads, query_len=5, key_len=SEQ, value_dim=13):
    return (rng.normal(size=(BATCH, HEADS, query_len, HEAD_DIM)),
            rng.normal(size=(BATCH, key_heads, key_len, HEAD_DIM)),
            rng.normal(size=(BATCH, key_heads, key_len, value_dim)))


MASKS = {
    "none": lambda rng: None,
    "causal": lambda rng: causal(5, SEQ),
    "padding": lambda rng: padding([3, SEQ], SEQ),
    "per head, dead rows":
        lambda rng: with_dead_rows(rng, BATCH, HEADS, 5, SEQ),
    "one axis": lambda rng: np.arange(SEQ) < 3,
    "(heads, 1, key)": lambda rng: rng.random((HEADS, 1, SEQ)) < 0.7,
}


@pytest.mark.parametrize("key_heads", KEY_HEADS)
@pytest.mark.parametrize("mask", MASKS)
def test_grouped_is_pytorchs_grouped(library, rng, key_heads, mask):
    query, key, value = draw_heads(rng, key_heads)
    mask = MASKS[mask](rng)
    shape = (BATCH, HEADS, 5, SEQ)
    expected = F.scaled_dot_product_attention(
        *map(torch.tensor, (query, key, value)), enable_gqa=True,
        attn_mask=None if mask is None
        else torch.tensor(np.broadcast_to(mask, shape).copy()))
    got = library.grouped_query_attention(query, key, value, mask)
    assert_close(got, expected.numpy())


@pytest.mark.parametrize("key_heads", KEY_HEADS)
def test_grouped_is_the_repeated_heads(library, rng, key_heads):
    query, key, value = draw_heads(rng, key_heads)
    group = HEADS // key_heads
    for array in (key, value):
        by_hand = np.stack([array[:, h // group] for h in range(HEADS)],
                           axis=1)
        assert_same(library.repeat_key_value_heads(array, HEADS), by_hand)
    repeated = [np.stack([array[:, h // group] for h in range(HEADS)], axis=1)
                for array in (key, value)]
    got = library.grouped_query_attention(query, key, value, scale=0.3)
    for oracle in (library_attention, loop_attention):
        assert_close(got, oracle(query, *repeated, scale=0.3))


@pytest.mark.parametrize("key_heads", KEY_HEADS)
def test_grouped_layer_is_a_layer_with_copied_weights(library, rng,
                                                      key_heads):
    """Copy each key head's columns to all heads of its group: same layer."""
    layer = library.layer(rng, num_key_value_heads=key_heads, bias=True)
    arrays = layer.parameter_arrays()
    for name in ("W_k", "W_v", "b_k", "b_v"):
        array = arrays[name]
        heads = array.reshape(*array.shape[:-1], key_heads, HEAD_DIM)
        arrays[name] = np.repeat(heads, HEADS // key_heads, axis=-2).reshape(
            *array.shape[:-1], HEADS * HEAD_DIM)
    reference = numpy_reference.MultiHeadSelfAttention(
        EMBED, HEADS, head_dim=HEAD_DIM, bias=True)
    reference.load_parameter_arrays(arrays)
    x = rng.normal(size=(BATCH, SEQ, EMBED))
    expected = reference(x, causal(SEQ, SEQ))
    assert_close(library.call(layer, x), expected)
    assert_close(by_steps(library, layer, x, 3), expected)


def test_grouped_repeats_nothing_in_numpy(rng):
    """The keys are read where they lie, whatever the number of heads."""
    query, key, value = draw_heads(rng, 2)
    folded = query.reshape(BATCH, 2, 15, HEAD_DIM)
    assert np.shares_memory(folded, query)
    assert_same(numpy_decoding.grouped_query_attention(query, key, value),
                numpy_reference.scaled_dot_product_attention(
                    folded, key, value).reshape(BATCH, HEADS, 5, 13))


def test_masked_nan_has_no_part(library, rng):
    query, key, value = draw_heads(rng, 2)
    mask = rng.random((5, SEQ)) < 0.6
    mask[:, 0] = True
    mask[:, 4] = False  # for all queries
    mask[:3, 2] = False  # for some
    expected = library.grouped_query_attention(query, key, value, mask)
    value[:, :, [2, 4]] = np.nan
    key[:, :, 4] = np.nan
    got = library.grouped_query_attention(query, key, value, mask)
    assert_close(got[..., :3, :], expected[..., :3, :])


def test_grouped_gradients(rng):
    """Also past a masked NaN, which a backward pass would multiply by 0."""
    q, k, v = (torch.tensor(a, requires_grad=True)
               for a in draw_heads(rng, 2, query_len=3, key_len=4))
    mask = torch.tensor(causal(3, 4))
    mask[0] = False
    assert torch.autograd.gradcheck(
        lambda *t: torch_decoding.grouped_query_attention(*t, mask),
        (q, k, v))
    hidden = torch.tensor([True, True, False, True])
    with torch.no_grad():
        k[:, :, 2], v[:, :, 2] = torch.nan, torch.nan
    torch_decoding.grouped_query_attention(q, k, v, hidden).sum().backward()
    assert all(t.grad.isfinite().all() for t in (q, k, v))


def test_full_pass_learns_and_steps_do_not(rng):
    layer = TORCH.layer(rng, num_key_value_heads=2)
    x = torch.tensor(rng.normal(size=(1, SEQ, EMBED)))
    layer(x).sum().backward()
    assert all(p.grad.abs().sum() > 0 for p in layer.parameters())
    cache = layer.new_cache(1, SEQ)
    assert not layer.prefill(x, cache).requires_grad
    assert not cache.key.requires_grad


# NumPy and PyTorch

@pytest.mark.parametrize("key_heads", KEY_HEADS)
@pytest.mark.parametrize("bias", [False, True])
def test_weights_travel_exactly(rng, key_heads, bias):
    ours = NUMPY.layer(rng, num_key_value_heads=key_heads, bias=bias)
    theirs = TORCH.layer(num_key_value_heads=key_heads, bias=bias)
    theirs.load_parameter_arrays(ours.parameter_arrays())
    back = NUMPY.layer(num_key_value_heads=key_heads, bias=bias)
    back.load_parameter_arrays(theirs.parameter_arrays())
    for name, array in ours.parameter_arrays().items():
        assert_same(theirs.parameter_arrays()[name], array)
        assert_same(back.parameter_arrays()[name], array)


@pytest.mark.parametrize("key_heads", KEY_HEADS)
def test_torch_equals_numpy(rng, key_heads):
    ours = NUMPY.layer(rng, num_key_value_heads=key_heads, rotary=True,
                       bias=True)
    theirs = TORCH.layer(num_key_value_heads=key_heads, rotary=True,
                         bias=True)
    theirs.load_parameter_arrays(ours.parameter_arrays())
    x = rng.normal(size=(BATCH, SEQ, EMBED))
    kept = padding([SHORT, LONG], LONG, "left")
    assert_close(TORCH.call(theirs, x, kept), ours(x, kept))
    assert_close(
        by_steps(TORCH, theirs, x, 5, padding_mask=kept),
        by_steps(NUMPY, ours, x, 5, padding_mask=kept))


def parameters(function):
    local = {"rng", "device", "dtype"}
    return [(p.name, p.kind, p.default)
            for p in inspect.signature(function).parameters.values()
            if p.name not in local]


def test_the_modules_mirror_each_other():
    counted_once = {"StepCost"}  # counting needs no library
    ours, theirs = (set(module.__all__) for module
                    in (numpy_decoding, torch_decoding))
    assert ours - theirs == counted_once
    assert not theirs - ours
    for name in theirs:
        one, other = (getattr(module, name) for module
                      in (numpy_decoding, torch_decoding))
        if inspect.isfunction(one):
            assert parameters(one) == parameters(other)
            continue
        methods = [method for method, what in vars(one).items()
                   if inspect.isfunction(what) and method[0] != "_"]
        for method in {"__init__", *methods} - {"step_cost"}:
            assert (parameters(getattr(one, method))
                    == parameters(getattr(other, method))), method
    assert (parameters(numpy_decoding.CachedSelfAttention.__call__)
            == parameters(torch_decoding.CachedSelfAttention.forward))


# What it costs

@pytest.mark.parametrize("key_heads", KEY_HEADS)
@pytest.mark.parametrize("length", [2, 5])
def test_operations_are_those_that_pytorch_counts(rng, key_heads, length):
    layer = TORCH.layer(rng, num_key_value_heads=key_heads)
    cache = layer.new_cache(BATCH, length)
    x = torch.tensor(rng.normal(size=(BATCH, length, EMBED)))
    layer.prefill(x[:, :-1], cache)
    with FlopCounterMode(display=False) as counter:
        layer.step(x[:, -1:], cache)
    cost = NUMPY.layer(num_key_value_heads=key_heads).step_cost(
        length, batch=BATCH)
    assert (cost.projection_flops + cost.attention_flops
            == counter.get_total_flops())


@pytest.mark.parametrize("key_heads", KEY_HEADS)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_bytes_are_those_of_the_arrays(rng, key_heads, dtype):
    layer = NUMPY.layer(rng, num_key_value_heads=key_heads, dtype=dtype)
    cache = layer.new_cache(BATCH, SEQ)
    layer.prefill(rng.normal(size=(BATCH, 5, EMBED)).astype(dtype), cache)
    cost = layer.step_cost(5, batch=BATCH)
    assert cost.cache_bytes == cache.key.nbytes + cache.value.nbytes
    assert cost.weight_bytes == sum(
        array.nbytes for array in layer.parameter_arrays().values())
    assert cache.nbytes == cost.cache_bytes * SEQ // 5


# Wrong calls

def layer_of(library, **kwargs):
    return library.layer(**{"num_key_value_heads": 2} | kwargs)


def zeros(library, *shape, dtype="float64"):
    return library.native(np.zeros(shape, dtype))


def grouped(library, key_heads=2, mask=None, **changed):
    arrays = {"query": zeros(library, BATCH, HEADS, 5, HEAD_DIM),
              "key": zeros(library, BATCH, key_heads, SEQ, HEAD_DIM),
              "value": zeros(library, BATCH, key_heads, SEQ, 13)}
    return library.module.grouped_query_attention(
        **(arrays | changed), attention_mask=mask)


def prefilled(library, x=None, mask=None, *, layer=None, **sizes):
    layer = layer_of(library) if layer is None else layer
    sizes = {"batch": BATCH, "num_key_value_heads": 2, "capacity": SEQ,
             "head_dim": HEAD_DIM} | sizes
    x = zeros(library, BATCH, 5, EMBED) if x is None else x
    return layer.prefill(x, library.cache(*sizes.values()), mask)


def appended(library, *, new=1, capacity=SEQ, dtype="float64", **changed):
    cache = library.cache(BATCH, 2, capacity, HEAD_DIM)
    one = zeros(library, BATCH, 2, new, HEAD_DIM, dtype=dtype)
    return cache.append(**({"key": one, "value": one} | changed))


REFUSED = [
    ("groups that do not divide", ValueError,
     "num_heads=6 is not divisible by num_key_value_heads=4",
     lambda c: layer_of(c, num_key_value_heads=4)),
    ("more key heads than heads", ValueError,
     "num_heads=6 is not divisible by num_key_value_heads=12",
     lambda c: layer_of(c, num_key_value_heads=12)),
    ("no key head", ValueError, "num_key_value_heads=0 must be at least 1",
     lambda c: layer_of(c, num_key_value_heads=0)),
    ("a number of key heads that is a float", TypeError,
     r"num_key_value_heads=2.0 is of type float",
     lambda c: layer_of(c, num_key_value_heads=2.0)),
    ("an odd width with rotary positions", ValueError, "head_dim=5 is odd",
     lambda c: layer_of(c, head_dim=5, rotary=True)),
    ("a negative capacity", ValueError, "capacity=-1 must be at least 0",
     lambda c: layer_of(c).new_cache(BATCH, -1)),
    ("a negative batch", ValueError, "batch=-2 must be at least 0",
     lambda c: c.cache(-2, 1, 1, 1)),
    ("a width of 0", ValueError, "head_dim=0 must be at least 1",
     lambda c: c.cache(1, 1, 1, 0)),
    ("integers in the cache", ValueError,
     "KeyValueCache: dtype=.*int64.* must be a floating-point dtype",
     lambda c: c.cache(1, 1, 1, 1, dtype="int64")),
    ("grouped attention, groups", ValueError,
     "num_heads=6 is not divisible by num_key_value_heads=4",
     lambda c: grouped(c, key_heads=4)),
    ("grouped attention, fewer value heads", ValueError,
     r"value has shape \(2, 3, 7, 13\)",
     lambda c: grouped(c, value=zeros(c, BATCH, 3, SEQ, 13))),
    ("grouped attention, mask", ValueError,
     r"attention_mask has shape \(2, 2, 5, 7\), which does not broadcast to "
     r"the scores' .* = \(2, 6, 5, 7\)",
     lambda c: grouped(c, mask=c.native(np.ones((2, 2, 5, 7), bool)))),
    ("grouped attention, integer mask", TypeError,
     r"it must be a .* of booleans \(True = may attend\)",
     lambda c: grouped(c, mask=c.native(np.ones((5, 7), int)))),
    ("repeat to a number that does not divide", ValueError,
     "num_heads=5 is not divisible by num_key_value_heads=2",
     lambda c: c.repeat_key_value_heads(np.zeros((2, 3, 4)), 5)),
    ("a cache of another batch", ValueError,
     "cache has batch=3; the layer and its input need batch=2",
     lambda c: prefilled(c, batch=3)),
    ("a cache of other heads", ValueError,
     "cache has num_key_value_heads=6; .* need num_key_value_heads=2",
     lambda c: prefilled(c, num_key_value_heads=6)),
    ("a cache of another width", ValueError,
     "cache has head_dim=3; .* need head_dim=4",
     lambda c: prefilled(c, head_dim=3)),
    ("a cache too small for the prompt", ValueError,
     "capacity=4 is too small: 0 slots are filled, and 5 more would need 5",
     lambda c: prefilled(c, capacity=4)),
    ("no cache", TypeError, "cache=None is of type NoneType",
     lambda c: layer_of(c).prefill(zeros(c, BATCH, 5, EMBED), None)),
    ("the cache of the other library", TypeError, "cache=.* is of type",
     lambda c: layer_of(c).prefill(
         zeros(c, BATCH, 5, EMBED),
         next(o for o in LIBRARIES if o != c).cache(BATCH, 2, 7, 4))),
    ("a step of two tokens", ValueError,
     r"step: x has shape \(2, 2, 11\)",
     lambda c: layer_of(c).step(zeros(c, BATCH, 2, EMBED),
                                c.cache(BATCH, 2, SEQ, HEAD_DIM))),
    ("embeddings of another width", ValueError,
     r"x has shape \(2, 5, 12\); .* embed_dim=11",
     lambda c: prefilled(c, zeros(c, BATCH, 5, 12))),
    ("a padding mask for all slots", ValueError,
     r"padding_mask has shape \(2, 1, 1, 7\)",
     lambda c: prefilled(c, mask=c.native(np.ones((2, 1, 1, 7), bool)))),
    ("a padding mask of two axes", ValueError,
     r"padding_mask has shape \(2, 5\); .* with axes \(batch, 1, 1, seq_len",
     lambda c: prefilled(c, mask=c.native(np.ones((2, 5), bool)))),
    ("a padding mask of integers", TypeError,
     r"padding_mask has dtype (torch\.)?int64",
     lambda c: prefilled(c, mask=c.native(np.ones((2, 1, 1, 5), int)))),
    ("append in another dtype", TypeError,
     r"key has dtype (torch\.)?float32, but (the )?cache has (torch\.)?"
     r"float64", lambda c: appended(c, dtype="float32")),
    ("append with another width", ValueError,
     r"key has shape \(2, 2, 1, 3\); .* head_dim=4",
     lambda c: appended(c, key=zeros(c, BATCH, 2, 1, 3))),
    ("append more values than keys", ValueError,
     r"value has shape \(2, 2, 3, 4\)",
     lambda c: appended(c, value=zeros(c, BATCH, 2, 3, HEAD_DIM))),
    ("append too much", ValueError,
     "capacity=2 is too small: 0 slots are filled, and 3 more would need 3",
     lambda c: appended(c, new=3, capacity=2)),
    ("positions that are not whole numbers", TypeError,
     r"positions has dtype (torch\.)?float64",
     lambda c: appended(c, positions=zeros(c, BATCH, 1))),
    ("positions for other tokens", ValueError,
     r"positions has shape \(2, 3\)",
     lambda c: appended(c, positions=c.native(np.zeros((BATCH, 3), int)))),
    ("rollback to more than there is", ValueError,
     r"length=3 must be in 0..0: 0 slots are filled",
     lambda c: c.cache(1, 1, 5, 1).rollback(3)),
    ("rollback to less than nothing", ValueError, r"length=-1 must be in",
     lambda c: c.cache(1, 1, 5, 1).rollback(-1)),
    ("next positions of -1 tokens", ValueError, "new=-1 must be at least 0",
     lambda c: c.cache(1, 1, 5, 1).next_positions(-1)),
    ("weights of all heads for fewer key heads", ValueError,
     r"arrays\['W_k'\] has shape \(11, 24\); it must be \(11, 8\)",
     lambda c: layer_of(c).load_parameter_arrays(
         layer_of(c, num_key_value_heads=6).parameter_arrays())),
]


@pytest.mark.parametrize(("error", "pattern", "call"),
                         [row[1:] for row in REFUSED],
                         ids=[row[0] for row in REFUSED])
def test_a_wrong_call_is_answered_in_words(library, error, pattern, call):
    with pytest.raises(error, match=pattern) as caught:
        call(library)
    assert caught.type is error


def test_a_refused_append_changes_nothing(library, rng):
    cache = library.cache(BATCH, 2, SEQ, HEAD_DIM)
    new = rng.normal(size=(BATCH, 2, 2, HEAD_DIM))
    cache.append(*map(library.native, (new, new)))
    slots = (cache.key_slots, cache.value_slots, cache.position_slots)
    before = [np.asarray(array).copy() for array in slots]
    for wrong in (new.astype(np.float32), new[:, :1],
                  np.concatenate([new] * 3, axis=2)):
        with pytest.raises((TypeError, ValueError)):
            cache.append(*map(library.native, (wrong, wrong)))
    assert cache.length == 2
    for array, was in zip(slots, before):
        assert_same(np.asarray(array), was)


def test_step_cost_needs_a_token(rng):
    layer = NUMPY.layer()
    with pytest.raises(ValueError, match="length=0 must be at least 1"):
        layer.step_cost(0)
    with pytest.raises(ValueError, match="batch=0 must be at least 1"):
        layer.step_cost(1, batch=0)


def test_scale_and_width_are_checked(library):
    with pytest.raises(ValueError, match="scale=nan must be a finite number"):
        library.grouped_query_attention(
            *(np.zeros((1, 2, 3)) for _ in range(3)), scale=math.nan)


def test_the_device_of_the_cache_must_be_that_of_the_layer():
    layer = TORCH.layer()
    cache = torch_decoding.KeyValueCache(
        1, HEADS, SEQ, HEAD_DIM, device="meta", dtype=torch.float64)
    with pytest.raises(ValueError, match=r"on device cpu, but .* on meta"):
        layer.prefill(torch.zeros(1, 2, EMBED, dtype=torch.float64), cache)
    assert cache.length == 0


def test_torch_eager_and_decoding_share_their_masks():
    """The full pass must not be causal by accident of the positions."""
    positions = torch.arange(SEQ)[None]
    assert torch.equal(
        torch_decoding.position_mask(positions, positions)[0, 0],
        torch_eager.causal_mask(SEQ))
