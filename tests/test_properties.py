"""What holds for every input: properties that no number is needed for."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from masks import causal, padding
from tolerances import assert_close, assert_same
from variants import VARIANTS

sizes = st.integers(1, 6)
seeds = st.integers(0, 2**32 - 1)
#: Powers of two that make scores from flat to saturated.
spreads = st.sampled_from([2.0 ** -4, 1.0, 4.0, 32.0])


@st.composite
def problems(draw, square=False, mask_share=None):
    """A query, key, value and a mask (or None) of any sizes."""
    rng = np.random.default_rng(draw(seeds))
    query_len, key_len = draw(sizes), draw(sizes)
    if square:
        key_len = query_len
    batch, heads = draw(st.integers(1, 2)), draw(st.integers(1, 3))
    width, value_dim, spread = draw(sizes), draw(sizes), draw(spreads)
    query = spread * rng.normal(size=(batch, heads, query_len, width))
    key = rng.normal(size=(batch, heads, key_len, width))
    value = rng.normal(size=(batch, heads, key_len, value_dim))
    share = draw(st.sampled_from([None, 0.0, 0.3, 0.7, 1.0]))
    if mask_share is not None:
        share = mask_share
    mask = (None if share is None else
            rng.random((batch, heads, query_len, key_len)) < share)
    return rng, query, key, value, mask


@st.composite
def layers(draw):
    """The sizes of a layer, and embeddings for it."""
    rng = np.random.default_rng(draw(seeds))
    batch, seq_len = draw(st.integers(1, 3)), draw(sizes)
    num_heads, head_dim = draw(st.integers(1, 3)), draw(st.integers(1, 4))
    embed_dim = draw(sizes)
    weights = {name: rng.normal(size=(embed_dim, num_heads * head_dim))
               for name in ("W_q", "W_k", "W_v")}
    weights["W_o"] = rng.normal(size=(num_heads * head_dim, embed_dim))
    x = rng.normal(size=(batch, seq_len, embed_dim))
    return rng, weights, num_heads, head_dim, x


def make(variant, weights, num_heads, head_dim):
    layer = variant.layer(len(weights["W_q"]), num_heads, head_dim=head_dim)
    layer.load_parameter_arrays(weights)
    return layer


@given(problem=problems())
def test_rows_sum_to_one_or_to_zero(variant, problem):
    _, query, key, _, mask = problem
    weights = variant.attention_weights(query, key, mask)
    somewhere = np.ones(weights.shape[:-1], bool)
    if mask is not None:
        somewhere = mask.any(axis=-1)
        np.testing.assert_array_equal(weights[~mask], 0)
    np.testing.assert_array_less(-1e-300, weights)
    np.testing.assert_allclose(weights.sum(-1), somewhere, atol=1e-14)


@given(problem=problems())
def test_output_lies_between_the_values_attended_to(variant, problem):
    """An average is never outside of what it averages."""
    _, query, key, value, mask = problem
    output = variant.scaled_dot_product_attention(query, key, value, mask)
    if mask is None:
        mask = np.ones((*output.shape[:-1], key.shape[-2]), bool)
    seen = np.where(mask[..., None], value[..., None, :, :], np.nan)
    somewhere = mask.any(axis=-1)
    lowest = np.nanmin(seen[somewhere], axis=-2, initial=np.inf)
    highest = np.nanmax(seen[somewhere], axis=-2, initial=-np.inf)
    np.testing.assert_array_less(lowest - 1e-12, output[somewhere])
    np.testing.assert_array_less(output[somewhere], highest + 1e-12)
    np.testing.assert_array_equal(output[~somewhere], 0)


@given(problem=problems())
def test_a_constant_added_to_the_scores_changes_nothing(variant, problem):
    """One vector added to every key adds one number to a query's scores."""
    rng, query, key, value, mask = problem
    moved = key + rng.normal(size=(*key.shape[:-2], 1, key.shape[-1]))
    before = variant.scaled_dot_product_attention(query, key, value, mask)
    after = variant.scaled_dot_product_attention(query, moved, value, mask)
    np.testing.assert_allclose(after, before, atol=1e-11)


@given(seed=seeds, constant=st.floats(-1e6, 1e6))
def test_a_constant_added_before_softmax_changes_nothing(seed, constant):
    scores = np.random.default_rng(seed).normal(size=(3, 5))
    for variant in VARIANTS:
        if variant.has("softmax"):
            np.testing.assert_allclose(variant.softmax(scores + constant),
                                       variant.softmax(scores), atol=1e-9)


@given(problem=problems())
def test_the_order_of_keys_with_their_values_does_not_matter(
        variant, problem):
    rng, query, key, value, mask = problem
    order = rng.permutation(key.shape[-2])
    moved = None if mask is None else mask[..., order]
    assert_close(
        variant.scaled_dot_product_attention(
            query, key[..., order, :], value[..., order, :], moved),
        variant.scaled_dot_product_attention(query, key, value, mask))


@given(problem=problems())
def test_each_query_is_answered_on_its_own(variant, problem):
    _, query, key, value, mask = problem
    together = variant.scaled_dot_product_attention(query, key, value, mask)
    for i in range(query.shape[-2]):
        one = slice(i, i + 1)
        alone = variant.scaled_dot_product_attention(
            query[..., one, :], key, value,
            None if mask is None else mask[..., one, :])
        assert_close(alone, together[..., one, :])


@given(problem=problems())
def test_the_output_is_linear_in_the_values(variant, problem):
    rng, query, key, value, mask = problem
    other = rng.normal(size=value.shape)

    def attend(values):
        return variant.scaled_dot_product_attention(query, key, values, mask)

    assert_close(attend(2 * value - 3 * other),
                 2 * attend(value) - 3 * attend(other))


@given(problem=problems())
def test_a_closer_key_weighs_more(variant, problem):
    """The sign of the scores: a key along the query is attended to most."""
    _, query, key, _, _ = problem
    assume(key.shape[-2] >= 2)
    length = np.linalg.norm(query, axis=-1, keepdims=True)
    key = key.copy()
    key[..., 0, :] = (query / length)[..., 0, :] * (
        1 + np.abs(key).sum(axis=(-1, -2)))[..., None]
    weights = variant.attention_weights(query, key)[..., 0, :]
    np.testing.assert_array_equal(weights.argmax(axis=-1), 0)
    # Values that are the rows of the identity give the weights themselves.
    value = np.broadcast_to(np.eye(key.shape[-2]),
                            (*key.shape[:-1], key.shape[-2])).copy()
    output = variant.scaled_dot_product_attention(query, key, value)
    assert_close(output[..., 0, :], weights)


@given(problem=problems(square=True, mask_share=1.0), position=sizes)
def test_a_later_token_never_changes_an_earlier_row(
        variant, problem, position):
    """Bit for bit, under the causal mask."""
    rng, query, key, value, _ = problem
    length = key.shape[-2]
    position = min(position, length - 1)
    mask = causal(length, length)
    before = variant.scaled_dot_product_attention(query, key, value, mask)
    for array in (query, key, value):
        array[..., position:, :] = rng.normal(
            size=array[..., position:, :].shape)
    after = variant.scaled_dot_product_attention(query, key, value, mask)
    assert_same(after[..., :position, :], before[..., :position, :])


@given(problem=problems(), fill=st.sampled_from([0.0, 1e3, -1e300, np.nan]))
def test_what_stands_in_the_padding_never_matters(variant, problem, fill):
    rng, query, key, value, _ = problem
    lengths = rng.integers(0, key.shape[-2] + 1, size=len(key)).tolist()
    side = "left" if rng.random() < 0.5 else "right"
    mask = padding(lengths, key.shape[-2], side)
    before = variant.scaled_dot_product_attention(query, key, value, mask)
    hidden = np.broadcast_to(~mask[:, :, 0, :], key.shape[:-1])
    key[hidden], value[hidden] = fill, fill
    after = variant.scaled_dot_product_attention(query, key, value, mask)
    assert_close(after, before)


@given(problem=problems())
def test_padding_is_as_good_as_cutting_off(variant, problem):
    rng, query, key, value, _ = problem
    length = int(rng.integers(1, key.shape[-2] + 1))
    mask = padding([length] * len(key), key.shape[-2])
    assert_close(
        variant.scaled_dot_product_attention(query, key, value, mask),
        variant.scaled_dot_product_attention(
            query, key[..., :length, :], value[..., :length, :]))


@given(seed=seeds, shape=st.tuples(sizes, sizes), num_heads=sizes,
       head_dim=sizes)
def test_heads_round_trip(variant, seed, shape, num_heads, head_dim):
    x = np.random.default_rng(seed).normal(
        size=(*shape, num_heads * head_dim))
    heads = variant.separate_heads(x, num_heads)
    assert_same(variant.combine_heads(heads), x)
    assert_same(variant.separate_heads(variant.combine_heads(heads),
                                       num_heads), heads)


@given(seed=seeds, length=sizes)
def test_masks_combine_like_and(variant, seed, length):
    rng = np.random.default_rng(seed)
    a, b, c = (rng.random((2, 1, length, length)) < 0.6 for _ in range(3))
    combine = variant.combine_masks
    assert_same(combine(a, b), combine(b, a))
    assert_same(combine(combine(a, b), c), combine(a, combine(b, c)))
    assert_same(combine(a, a), a)
    assert_same(combine(a, np.ones((length, length), bool)), a)
    assert_same(combine(a, None), a)
    assert not combine(a, ~a).any()


@given(query_len=st.integers(0, 6), key_len=st.integers(0, 6))
def test_a_causal_mask_counts_up_to_every_key(variant, query_len, key_len):
    mask = variant.causal_mask(query_len, key_len)
    wanted = np.clip(key_len - query_len + 1 + np.arange(query_len), 0,
                     key_len)
    np.testing.assert_array_equal(mask.sum(-1), wanted)
    np.testing.assert_array_equal(np.sort(mask)[:, ::-1], mask)


@given(lengths=st.lists(st.integers(0, 6), max_size=4))
def test_a_padding_mask_counts_the_tokens(variant, lengths):
    for side in ("right", "left"):
        mask = variant.padding_mask(lengths, 6, side=side)
        np.testing.assert_array_equal(mask.sum(-1).reshape(-1), lengths)
    flipped = variant.padding_mask(lengths, 6, side="right")[..., ::-1]
    assert_same(mask, flipped)


@given(problem=layers())
def test_permuting_tokens_permutes_the_outputs(variant, problem):
    rng, weights, num_heads, head_dim, x = problem
    layer = make(variant, weights, num_heads, head_dim)
    order = rng.permutation(x.shape[1])
    assert_close(variant.call(layer, x[:, order]),
                 variant.call(layer, x)[:, order])


@given(problem=layers())
def test_each_sequence_of_a_batch_is_on_its_own(variant, problem):
    _, weights, num_heads, head_dim, x = problem
    layer = make(variant, weights, num_heads, head_dim)
    together = variant.call(layer, x)
    for i in range(len(x)):
        assert_close(variant.call(layer, x[i:i + 1]), together[i:i + 1])


@given(problem=layers())
def test_a_layer_is_the_sum_of_its_heads(variant, problem):
    _, weights, num_heads, head_dim, x = problem
    whole = variant.call(make(variant, weights, num_heads, head_dim), x)
    total = np.zeros_like(whole)
    for head in range(num_heads):
        own = slice(head * head_dim, (head + 1) * head_dim)
        alone = {name: weight[:, own] for name, weight in weights.items()
                 if name != "W_o"} | {"W_o": weights["W_o"][own]}
        total += variant.call(make(variant, alone, 1, head_dim), x)
    assert_close(whole, total)


@given(problem=layers())
def test_a_layer_never_looks_ahead_under_a_causal_mask(variant, problem):
    _, weights, num_heads, head_dim, x = problem
    layer = make(variant, weights, num_heads, head_dim)
    length = x.shape[1]
    whole = variant.call(layer, x, causal(length, length))
    for end in range(1, length + 1):
        start = variant.call(layer, x[:, :end], causal(end, end))
        assert_close(whole[:, :end], start)


@pytest.mark.parametrize("bits", range(8))
def test_the_zero_rule_for_every_mask_of_three_keys(variant, rng, bits):
    mask = np.array([bits & 1, bits & 2, bits & 4], bool)
    query, key = rng.normal(size=(1, 4)), rng.normal(size=(3, 4))
    weights = variant.attention_weights(query, key, mask[None])
    np.testing.assert_allclose(weights.sum(), float(mask.any()), rtol=1e-14)
    assert ((weights > 0) == mask).all()
