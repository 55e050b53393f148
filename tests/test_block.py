"""What stands around attention: NumPy against PyTorch, against PyTorch's own.

Oracles that were not written here decide: ``nn.LayerNorm``, ``nn.RMSNorm``,
``nn.MultiheadAttention``, ``nn.TransformerEncoderLayer``,
``nn.TransformerDecoderLayer`` and complex multiplication. Their boolean masks
say True = may *not* attend.
"""

import re

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from self_attention import numpy_block, torch_block
from self_attention.numpy_reference import (
    MultiHeadSelfAttention,
    causal_mask,
    combine_masks,
    padding_mask,
    scaled_dot_product_attention,
)

BATCH, HEADS, SEQ, MEMORY = 2, 3, 5, 7
EMBED, HIDDEN, MEMORY_DIM, HEAD_DIM = 33, 13, 19, 11
# Float64: sums of at most 33 products of numbers near 1.
EXACT = {"rtol": 1e-12, "atol": 1e-12}
F64 = torch.float64


@pytest.fixture
def rng():
    return np.random.default_rng(97)


def tensor(array):
    return torch.tensor(array)


def close(actual, desired, **tolerance):
    actual, desired = (a.detach().numpy() if isinstance(a, torch.Tensor)
                       else a for a in (actual, desired))
    assert actual.shape == desired.shape
    np.testing.assert_allclose(actual, desired, **(tolerance or EXACT))


def draw_weights(layer, rng):
    """Give every weight and bias a value of its own, none 0 or 1."""
    arrays = layer.parameter_arrays()
    layer.load_parameter_arrays({
        name: rng.standard_normal(array.shape) / np.sqrt(array.shape[0])
        for name, array in arrays.items()})
    return layer


def twins(name, *args, rng, **options):
    """Make one layer in NumPy and the same in PyTorch, float64."""
    mine = draw_weights(getattr(numpy_block, name)(*args, **options), rng)
    other = getattr(torch_block, name)(*args, dtype=F64, **options)
    other.load_parameter_arrays(mine.parameter_arrays())
    return mine, other


# The same names, written twice


def test_both_variants_have_the_same_public_names():
    assert numpy_block.__all__ == torch_block.__all__


@pytest.mark.parametrize("embed_dim", [1, 2, 11, 64])
@pytest.mark.parametrize("start", [0, 7])
def test_sinusoids_agree_and_follow_the_formula(embed_dim, start):
    rows = numpy_block.sinusoidal_positions(SEQ, embed_dim, start=start)
    other = torch_block.sinusoidal_positions(SEQ, embed_dim, start=start,
                                             dtype=F64)
    close(rows, other)
    for pos in range(SEQ):
        for feature in range(embed_dim):
            i = feature // 2
            angle = (start + pos) / 10000 ** (2 * i / embed_dim)
            wave = np.cos if feature % 2 else np.sin
            assert abs(rows[pos, feature] - wave(angle)) < 1e-12


@pytest.mark.parametrize("kept", [np.float16, np.float32])
def test_sinusoids_round_once(kept):
    exact = numpy_block.sinusoidal_positions(7, 6, start=50000)
    rows = numpy_block.sinusoidal_positions(7, 6, start=50000, dtype=kept)
    assert rows.dtype == kept
    np.testing.assert_array_equal(rows, exact.astype(kept))
    other = torch_block.sinusoidal_positions(
        7, 6, start=50000, dtype=getattr(torch, np.dtype(kept).name))
    np.testing.assert_array_equal(other.numpy(), rows)


def test_rotary_agrees_and_is_complex_multiplication(rng):
    x = rng.standard_normal((BATCH, HEADS, SEQ, 10))
    positions = np.array([3, 4, 6, 100, 0])
    mine = numpy_block.apply_rotary(x, positions, base=500)
    close(mine, torch_block.apply_rotary(tensor(x), tensor(positions),
                                         base=500))
    frequency = 500.0 ** (-np.arange(0, 10, 2) / 10)
    turn = np.exp(1j * positions[:, None] * frequency)
    oracle = (x[..., 0::2] + 1j * x[..., 1::2]) * turn
    close(mine[..., 0::2], oracle.real)
    close(mine[..., 1::2], oracle.imag)


def test_rotary_takes_positions_of_each_sequence(rng):
    x = rng.standard_normal((BATCH, HEADS, SEQ, 4))
    positions = np.array([[0, 1, 2, 3, 4], [0, 0, 0, 1, 2]])
    both = numpy_block.apply_rotary(x, positions[:, None])
    for sentence in range(BATCH):
        alone = numpy_block.apply_rotary(x[sentence], positions[sentence])
        np.testing.assert_array_equal(both[sentence], alone)
    other = torch_block.apply_rotary(tensor(x), tensor(positions[:, None]))
    close(both, other)


@pytest.mark.parametrize("name", ["relu", "gelu"])
def test_activations_agree_with_pytorch(name, rng):
    x = np.concatenate([3 * rng.standard_normal(97), [0.0, -0.0, 30, -30]])
    mine = getattr(numpy_block, name)(x)
    close(mine, getattr(torch_block, name)(tensor(x)))
    close(mine, getattr(F, name)(tensor(x)))


@pytest.mark.parametrize(("name", "oracle"), [
    ("LayerNorm", nn.LayerNorm), ("RMSNorm", nn.RMSNorm)])
def test_norms_agree_with_pytorch(name, oracle, rng):
    mine, other = twins(name, EMBED, eps=0.01, rng=rng)
    theirs = oracle(EMBED, eps=0.01, dtype=F64)
    with torch.no_grad():
        theirs.weight.copy_(tensor(mine.scale))
        if name == "LayerNorm":
            theirs.bias.copy_(tensor(mine.shift))
    x = 4 + 3 * rng.standard_normal((BATCH, SEQ, EMBED))
    close(mine(x), other(tensor(x)))
    close(mine(x), theirs(tensor(x)))


@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("bias", [True, False])
def test_feed_forward_agrees_with_linear_layers(activation, bias, rng):
    mine, other = twins("FeedForward", EMBED, HIDDEN, activation=activation,
                        bias=bias, rng=rng)
    arrays = {name: tensor(array)
              for name, array in mine.parameter_arrays().items()}
    x = rng.standard_normal((BATCH, SEQ, EMBED))
    hidden = F.linear(tensor(x), arrays["W_1"].T, arrays.get("b_1"))
    theirs = F.linear(getattr(F, activation)(hidden), arrays["W_2"].T,
                      arrays.get("b_2"))
    close(mine(x), theirs)
    close(other(tensor(x)), theirs)


# Attention and blocks, against PyTorch's own layers


def copy_attention(theirs, arrays, start=""):
    """Fill an nn.MultiheadAttention from arrays of ours."""
    given = {name: tensor(arrays[f"{start}{name}"]) for name in
             ("W_q", "W_k", "W_v", "W_o", "b_q", "b_k", "b_v", "b_o")
             if f"{start}{name}" in arrays}
    with torch.no_grad():
        if theirs.in_proj_weight is None:
            theirs.q_proj_weight.copy_(given["W_q"].T)
            theirs.k_proj_weight.copy_(given["W_k"].T)
            theirs.v_proj_weight.copy_(given["W_v"].T)
        else:
            theirs.in_proj_weight.copy_(torch.cat(
                [given["W_q"], given["W_k"], given["W_v"]], dim=1).T)
        theirs.out_proj.weight.copy_(given["W_o"].T)
        if theirs.in_proj_bias is not None:
            theirs.in_proj_bias.copy_(torch.cat(
                [given["b_q"], given["b_k"], given["b_v"]]))
            theirs.out_proj.bias.copy_(given["b_o"])


def copy_rest(theirs, arrays, norms):
    """Fill the feed-forward and the norms of a nn.Transformer...Layer."""
    pairs = [(theirs.linear1, "feed_forward.W_1", "feed_forward.b_1"),
             (theirs.linear2, "feed_forward.W_2", "feed_forward.b_2")]
    pairs += [(getattr(theirs, f"norm{n}"), f"norm_{n}.scale",
               f"norm_{n}.shift") for n in norms]
    with torch.no_grad():
        for layer, weight, bias in pairs:
            layer.weight.copy_(tensor(arrays[weight]).T if "W" in weight
                               else tensor(arrays[weight]))
            layer.bias.copy_(tensor(arrays[bias]))


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("masked", [True, False])
def test_cross_attention_agrees_with_pytorch(bias, masked, rng):
    mine, other = twins("MultiHeadCrossAttention", EMBED, HEADS,
                        memory_dim=MEMORY_DIM, bias=bias, rng=rng)
    theirs = nn.MultiheadAttention(
        EMBED, HEADS, bias=bias, kdim=MEMORY_DIM, vdim=MEMORY_DIM,
        batch_first=True, dtype=F64)
    copy_attention(theirs, mine.parameter_arrays())
    x = rng.standard_normal((BATCH, SEQ, EMBED))
    memory = rng.standard_normal((BATCH, MEMORY, MEMORY_DIM))
    keep = padding_mask([7, 4], MEMORY) if masked else None
    ignore = tensor(~keep[:, 0, 0]) if masked else None
    output, weights = theirs(tensor(x), tensor(memory), tensor(memory),
                             key_padding_mask=ignore,
                             average_attn_weights=False)
    kept = None if keep is None else tensor(keep)
    close(mine(x, memory, keep), output)
    close(other(tensor(x), tensor(memory), kept), output)
    close(mine.attention_weights(x, memory, keep), weights)
    close(other.attention_weights(tensor(x), tensor(memory), kept), weights)


MASKS = ["none", "padding", "causal", "both"]


def make_masks(kind):
    """Our mask, and PyTorch's two, which say the opposite."""
    keep = padding_mask([5, 3], SEQ) if kind in ("padding", "both") else None
    lower = causal_mask(SEQ) if kind in ("causal", "both") else None
    return combine_masks(keep, lower), {
        "key_padding": None if keep is None else tensor(~keep[:, 0, 0]),
        "mask": None if lower is None else tensor(~lower)}


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("kind", MASKS)
def test_encoder_block_is_pytorchs(norm_first, activation, kind, rng):
    mine, other = twins("EncoderBlock", EMBED, HEADS, HIDDEN, rng=rng,
                        norm_first=norm_first, activation=activation)
    theirs = nn.TransformerEncoderLayer(
        EMBED, HEADS, HIDDEN, dropout=0.0, activation=activation,
        batch_first=True, norm_first=norm_first, dtype=F64)
    arrays = mine.parameter_arrays()
    copy_attention(theirs.self_attn, arrays, "self_attention.")
    copy_rest(theirs, arrays, norms=(1, 2))
    x = rng.standard_normal((BATCH, SEQ, EMBED))
    keep, ignore = make_masks(kind)
    oracle = theirs(tensor(x), src_mask=ignore["mask"],
                    src_key_padding_mask=ignore["key_padding"])
    close(mine(x, keep), oracle)
    close(other(tensor(x), None if keep is None else tensor(keep)), oracle)


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("kind", MASKS)
def test_decoder_block_is_pytorchs(norm_first, kind, rng):
    mine, other = twins("DecoderBlock", EMBED, HEADS, HIDDEN, rng=rng,
                        norm_first=norm_first)
    theirs = nn.TransformerDecoderLayer(
        EMBED, HEADS, HIDDEN, dropout=0.0, batch_first=True,
        norm_first=norm_first, dtype=F64)
    arrays = mine.parameter_arrays()
    copy_attention(theirs.self_attn, arrays, "self_attention.")
    copy_attention(theirs.multihead_attn, arrays, "cross_attention.")
    copy_rest(theirs, arrays, norms=(1, 2, 3))
    x = rng.standard_normal((BATCH, SEQ, EMBED))
    memory = rng.standard_normal((BATCH, MEMORY, EMBED))
    keep, ignore = make_masks(kind)
    asked = padding_mask([4, 7], MEMORY)
    oracle = theirs(tensor(x), tensor(memory), tgt_mask=ignore["mask"],
                    tgt_key_padding_mask=ignore["key_padding"],
                    memory_key_padding_mask=tensor(~asked[:, 0, 0]))
    close(mine(x, memory, keep, asked), oracle)
    close(other(tensor(x), tensor(memory),
                None if keep is None else tensor(keep), tensor(asked)),
          oracle)


def test_decoder_block_takes_a_memory_of_another_width(rng):
    mine, other = twins("DecoderBlock", EMBED, HEADS, HIDDEN,
                        memory_dim=MEMORY_DIM, bias=False, rng=rng)
    x = rng.standard_normal((BATCH, SEQ, EMBED))
    memory = rng.standard_normal((BATCH, MEMORY, MEMORY_DIM))
    close(mine(x, memory), other(tensor(x), tensor(memory)))


# Moving weights


BLOCKS = [
    ("LearnedPositions", (SEQ, EMBED), {}),
    ("LayerNorm", (EMBED,), {}),
    ("RMSNorm", (EMBED,), {}),
    ("FeedForward", (EMBED, HIDDEN), {}),
    ("FeedForward", (EMBED, HIDDEN), {"bias": False}),
    ("MultiHeadCrossAttention", (EMBED, HEADS), {"memory_dim": MEMORY_DIM}),
    ("EncoderBlock", (EMBED, HEADS, HIDDEN), {}),
    ("EncoderBlock", (EMBED, HEADS, HIDDEN), {"bias": False}),
    ("DecoderBlock", (EMBED, HEADS, HIDDEN), {"memory_dim": MEMORY_DIM}),
]


@pytest.mark.parametrize(("name", "sizes", "options"), BLOCKS)
def test_weights_move_exactly_both_ways(name, sizes, options, rng):
    mine, other = twins(name, *sizes, rng=rng, **options)
    sent, back = mine.parameter_arrays(), other.parameter_arrays()
    assert list(sent) == list(back)
    for key, array in sent.items():
        np.testing.assert_array_equal(back[key], array)
        assert not np.shares_memory(array, mine.parameter_arrays()[key])
    fresh = getattr(numpy_block, name)(*sizes, **options)
    fresh.load_parameter_arrays(back)
    for key, array in fresh.parameter_arrays().items():
        np.testing.assert_array_equal(array, sent[key])


@pytest.mark.parametrize("variant", [numpy_block, torch_block])
@pytest.mark.parametrize(("name", "sizes", "options"), BLOCKS)
def test_a_refused_load_changes_nothing(variant, name, sizes, options):
    layer = getattr(variant, name)(*sizes, **options)
    before = layer.parameter_arrays()
    last = list(before)[-1]
    wrong = {key: array + 1 for key, array in before.items()}
    for bad in ({**wrong, last: np.zeros((2, 3, 5))},
                {**wrong, "extra": np.zeros(3)},
                {key: array for key, array in wrong.items() if key != last}):
        with pytest.raises(ValueError, match="arrays"):
            layer.load_parameter_arrays(bad)
    for key, array in layer.parameter_arrays().items():
        np.testing.assert_array_equal(array, before[key])


def test_dotted_names_of_the_blocks():
    encoder = numpy_block.EncoderBlock(EMBED, HEADS, HIDDEN)
    parts = [name.split(".")[0] for name in encoder.parameter_arrays()]
    assert list(dict.fromkeys(parts)) == [
        "self_attention", "norm_1", "feed_forward", "norm_2"]
    torch_names = dict(torch_block.DecoderBlock(
        EMBED, HEADS, HIDDEN).named_children())
    assert list(torch_names) == [
        "self_attention", "norm_1", "cross_attention", "norm_2",
        "feed_forward", "norm_3"]


def test_first_weights_are_drawn_in_glorots_range():
    layer = numpy_block.FeedForward(200, 100, rng=np.random.default_rng(3))
    limit = np.sqrt(6 / 300)
    for weight in (layer.W_1, layer.W_2,
                   torch_block.FeedForward(200, 100).W_1.weight.detach()):
        assert 0.98 * limit < abs(weight).max() <= limit
        assert abs(float(weight.mean())) < 0.01 * limit
    assert not layer.b_1.any()
    assert not layer.b_2.any()


def test_learned_rows_are_those_of_the_table(rng):
    mine, other = twins("LearnedPositions", SEQ, EMBED, rng=rng)
    np.testing.assert_array_equal(mine(2, start=3), mine.table[3:])
    np.testing.assert_array_equal(other(2, start=3).detach(), mine.table[3:])
    rows = mine(SEQ)
    rows[:] = 0
    assert mine.table.any()
    assert 0.01 < numpy_block.LearnedPositions(
        97, 89, rng=rng).table.std() < 0.03


# Properties


@given(order=st.permutations(range(SEQ)), norm_first=st.booleans())
@settings(max_examples=20, deadline=None)
def test_encoder_block_is_equivariant(order, norm_first):
    rng = np.random.default_rng(5)
    block = numpy_block.EncoderBlock(EMBED, HEADS, HIDDEN, rng=rng,
                                     norm_first=norm_first)
    x = rng.standard_normal((BATCH, SEQ, EMBED))
    close(block(x[:, order]), block(x)[:, order])


@given(query_at=st.integers(-50, 50), key_at=st.integers(-50, 50),
       shift=st.integers(-1000, 1000))
@settings(max_examples=50, deadline=None)
def test_rotary_scores_depend_on_the_distance_alone(query_at, key_at, shift):
    rng = np.random.default_rng(7)
    q, k = rng.standard_normal((2, 1, 12))

    def score(first, second):
        turned_q = numpy_block.apply_rotary(q, np.array([first]))
        turned_k = numpy_block.apply_rotary(k, np.array([second]))
        return (turned_q @ turned_k.T).item()

    assert abs(score(query_at, key_at)
               - score(query_at + shift, key_at + shift)) < 1e-10
    np.testing.assert_allclose(
        np.linalg.norm(numpy_block.apply_rotary(q, np.array([query_at]))),
        np.linalg.norm(q), rtol=1e-12)


def test_rotary_pairs_neighbours_and_leaves_position_zero():
    x = np.array([[1.0, 2.0, 3.0, 4.0]])
    np.testing.assert_array_equal(
        numpy_block.apply_rotary(x, np.array([0])), x)
    quarter = numpy_block.apply_rotary(x, np.array([np.pi / 2]))
    close(quarter[:, :2], np.array([[-2.0, 1.0]]))


@given(shift=st.floats(-100, 100), factor=st.floats(0.1, 100))
@settings(max_examples=30, deadline=None)
def test_layer_norm_forgets_shift_and_factor(shift, factor):
    x = np.random.default_rng(11).standard_normal((SEQ, EMBED))
    norm = numpy_block.LayerNorm(EMBED, eps=1e-18)
    output = norm(x)
    close(norm(factor * x + shift), output, rtol=1e-9, atol=1e-9)
    close(output.mean(axis=-1), np.zeros(SEQ))
    close(output.var(axis=-1), np.ones(SEQ))
    rms = numpy_block.RMSNorm(EMBED, eps=1e-18)
    close(rms(factor * x), rms(x))
    close((rms(x)**2).mean(axis=-1), np.ones(SEQ))


def test_layer_norm_of_equal_features_is_the_shift():
    for variant in (numpy_block, torch_block):
        norm = variant.LayerNorm(3)
        x = np.full((1, 3), 7.0)
        x = torch.tensor(x) if variant is torch_block else x
        assert not norm(x).any()


def test_feed_forward_sees_one_token_at_a_time(rng):
    layer = draw_weights(numpy_block.FeedForward(EMBED, HIDDEN), rng)
    x = rng.standard_normal((BATCH, SEQ, EMBED))
    for sentence in range(BATCH):
        for token in range(SEQ):
            close(layer(x[sentence, token]), layer(x)[sentence, token])


@pytest.mark.parametrize("norm_first", [False, True])
def test_a_later_token_never_changes_an_earlier_row(norm_first, rng):
    block, other = twins("DecoderBlock", EMBED, HEADS, HIDDEN, rng=rng,
                         norm_first=norm_first)
    x = rng.standard_normal((BATCH, SEQ, EMBED))
    memory = rng.standard_normal((BATCH, MEMORY, EMBED))
    changed = x.copy()
    changed[:, 3:] = 1e3
    mask = causal_mask(SEQ)
    np.testing.assert_array_equal(block(changed, memory, mask)[:, :3],
                                  block(x, memory, mask)[:, :3])
    rows = [other(tensor(a), tensor(memory), tensor(mask))
            for a in (x, changed)]
    torch.testing.assert_close(rows[0][:, :3], rows[1][:, :3], rtol=0, atol=0)


@pytest.mark.parametrize("training", [False, True])
def test_padding_never_matters_even_when_it_is_nan(training, rng):
    block, other = twins("EncoderBlock", EMBED, HEADS, HIDDEN, rng=rng,
                         attention_dropout=0.5)
    other.train(training)
    x = rng.standard_normal((BATCH, SEQ, EMBED))
    hole = x.copy()
    hole[1, 3:] = np.nan
    mask = padding_mask([5, 3], SEQ)

    def rows(a):
        torch.manual_seed(13)
        draws = np.random.default_rng(13)
        return (block(a, mask, training=training, rng=draws),
                other(tensor(a), tensor(mask)).detach().numpy())

    for kept, holed in zip(rows(x), rows(hole), strict=True):
        np.testing.assert_allclose(holed[1, :3], kept[1, :3], **EXACT)
        np.testing.assert_allclose(holed[0], kept[0], **EXACT)


def test_cross_attention_to_nothing_gives_the_bias(rng):
    mine, other = twins("MultiHeadCrossAttention", EMBED, HEADS, bias=True,
                        rng=rng)
    x = rng.standard_normal((BATCH, SEQ, EMBED))
    nowhere = np.zeros((SEQ, SEQ), bool)
    wanted = np.broadcast_to(mine.b_o, x.shape)
    close(mine(x, x, nowhere), wanted)
    close(other(tensor(x), tensor(x), tensor(nowhere)), wanted)
    close(mine(x, x[:, :0]), wanted)


# Dropout


def dropouts():
    """Both versions as a function of an array, with fixed draws."""
    def numpy_one(x, p, **options):
        return numpy_block.dropout(x, p, rng=np.random.default_rng(17),
                                   **options)

    def torch_one(x, p, **options):
        generator = torch.Generator().manual_seed(17)
        return torch_block.dropout(tensor(x), p, generator=generator,
                                   **options).numpy()

    return [numpy_one, torch_one]


@pytest.mark.parametrize("drop", dropouts())
@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_dropout_drops_a_share_and_keeps_the_mean(drop, p):
    x = np.full((100, 1000), 3.0)
    kept = drop(x, p)
    np.testing.assert_allclose(kept[kept != 0], 3 / (1 - p), rtol=1e-15)
    # 100,000 draws: the share is within 5 standard deviations.
    assert abs((kept == 0).mean() - p) < 5 * np.sqrt(p * (1 - p) / 1e5)
    assert abs(kept.mean() - 3) < 15 * np.sqrt(p / (1 - p) / 1e5)


@pytest.mark.parametrize("drop", dropouts())
def test_dropout_is_off_when_told_so(drop):
    x = np.arange(7.0)
    np.testing.assert_array_equal(drop(x, 0.5, training=False), x)
    np.testing.assert_array_equal(drop(x, 0), x)


@pytest.mark.parametrize("drop", dropouts())
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_dropout_keeps_the_dtype_and_drops_nan_too(drop, dtype):
    dropped = drop(np.full(1000, np.nan, dtype), 0.5)
    assert dropped.dtype == dtype
    assert (dropped == 0).any()


def test_attention_dropout_stands_after_the_softmax():
    rng = np.random.default_rng(19)
    query, key = rng.standard_normal((2, HEADS, SEQ, HEAD_DIM))
    value = np.broadcast_to(np.eye(SEQ), (HEADS, SEQ, SEQ))
    weights = scaled_dot_product_attention(query, key, value)
    dropped = numpy_block.attention_with_dropout(query, key, value, p=0.5,
                                                 rng=rng)
    kept = dropped != 0
    assert 0 < kept.mean() < 1
    close(dropped[kept], 2 * weights[kept])
    off = numpy_block.attention_with_dropout(query, key, value, p=0.5,
                                             training=False)
    close(off, weights)
    torch.manual_seed(19)
    other = torch_block.attention_with_dropout(
        *map(torch.tensor, (query, key, value)), p=0.5).numpy()
    kept = other != 0
    assert 0 < kept.mean() < 1
    close(other[kept], 2 * weights[kept])


@pytest.mark.parametrize("where", ["dropout", "attention_dropout"])
@pytest.mark.parametrize("name", ["EncoderBlock", "DecoderBlock"])
def test_blocks_drop_in_training_alone(name, where, rng):
    block, other = twins(name, EMBED, HEADS, HIDDEN, rng=rng, **{where: 0.5})
    x = rng.standard_normal((BATCH, SEQ, EMBED))
    args = (x,) if name == "EncoderBlock" else (x, x)
    tensors = tuple(map(torch.tensor, args))
    np.testing.assert_array_equal(block(*args), block(*args))
    close(other.eval()(*tensors), block(*args))
    first, second = (block(*args, training=True, rng=rng) for _ in range(2))
    assert not np.allclose(first, second)
    other.train()
    assert not torch.allclose(other(*tensors), other(*tensors))


@pytest.mark.parametrize("variant", [numpy_block, torch_block])
def test_dropout_hits_sublayer_outputs_not_the_residual_path(variant):
    # Pre-norm with a dropout near 1: almost every row passes unchanged.
    block = variant.EncoderBlock(EMBED, HEADS, HIDDEN, norm_first=True,
                                 dropout=0.999)
    x = np.random.default_rng(23).standard_normal((BATCH, SEQ, EMBED))
    if variant is torch_block:
        torch.manual_seed(23)
        passed = block.double()(tensor(x)).detach().numpy()
    else:
        passed = block(x, training=True, rng=np.random.default_rng(23))
    assert (passed == x).mean() > 0.98


# Gradients, dtypes, edges


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("name", ["EncoderBlock", "DecoderBlock"])
def test_gradients_of_the_blocks(name, norm_first):
    torch.manual_seed(29)
    block = getattr(torch_block, name)(6, 2, 5, norm_first=norm_first,
                                       activation="gelu", dtype=F64)
    x = torch.randn(2, 3, 6, dtype=F64, requires_grad=True)
    mask = torch.tensor(combine_masks(causal_mask(3), padding_mask([3, 0], 3)))
    if name == "EncoderBlock":
        assert torch.autograd.gradcheck(lambda a: block(a, mask), (x,))
        return
    memory = torch.randn(2, 5, 6, dtype=F64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda a, m: block(a, m, mask),
                                    (x, memory))


def test_gradients_of_the_small_parts():
    torch.manual_seed(31)
    x = torch.randn(3, 6, dtype=F64, requires_grad=True)
    positions = torch.arange(3)
    parts = [torch_block.gelu, torch_block.LayerNorm(6, dtype=F64),
             torch_block.RMSNorm(6, dtype=F64),
             lambda a: torch_block.apply_rotary(a, positions)]
    for part in parts:
        assert torch.autograd.gradcheck(part, (x,))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_rounded_once(dtype):
    torch.manual_seed(37)
    x = 100 * torch.randn(SEQ, 10).to(dtype)
    positions = torch.arange(SEQ)
    for part in (lambda a: torch_block.LayerNorm(10, dtype=a.dtype)(a),
                 lambda a: torch_block.RMSNorm(10, dtype=a.dtype)(a),
                 lambda a: torch_block.apply_rotary(a, positions)):
        half = part(x)
        assert half.dtype == dtype
        assert torch.isfinite(half).all()
        torch.testing.assert_close(half, part(x.double()).to(dtype))
    if dtype == torch.float16:
        for part in (numpy_block.LayerNorm(10, dtype=np.float16),
                     numpy_block.RMSNorm(10, dtype=np.float16)):
            half = part(x.numpy())
            assert half.dtype == np.float16
            wide = part(x.double().numpy())
            np.testing.assert_allclose(half, wide, rtol=1e-3, atol=1e-3)


def test_float32_stays_float32(rng):
    block = numpy_block.DecoderBlock(EMBED, HEADS, HIDDEN, dtype=np.float32,
                                     dropout=0.1, attention_dropout=0.1)
    x = rng.standard_normal((BATCH, SEQ, EMBED)).astype(np.float32)
    assert block(x, x).dtype == np.float32
    assert block(x, x, training=True).dtype == np.float32
    assert all(array.dtype == np.float32
               for array in block.parameter_arrays().values())


def test_integers_and_empty_batches_get_answers():
    whole = np.arange(12).reshape(1, 3, 4)
    block = numpy_block.EncoderBlock(4, 2, 3)
    close(block(whole), block(whole.astype(float)))
    for part in (numpy_block.relu, numpy_block.gelu,
                 numpy_block.LayerNorm(4), numpy_block.FeedForward(4, 3)):
        assert part(whole).dtype == np.float64
        assert part(np.empty((0, 4))).shape == (0, 4)
    assert numpy_block.dropout(whole, 0.5).dtype == np.float64
    assert block(np.empty((0, 3, 4))).shape == (0, 3, 4)
    assert block(np.empty((2, 0, 4))).shape == (2, 0, 4)
    assert numpy_block.sinusoidal_positions(0, 4).shape == (0, 4)
    assert numpy_block.LearnedPositions(3, 4)(0).shape == (0, 4)


def test_inputs_are_not_changed(rng):
    x = rng.standard_normal((BATCH, SEQ, EMBED))
    kept = x.copy()
    block = numpy_block.DecoderBlock(EMBED, HEADS, HIDDEN, dropout=0.5)
    block(x, x, training=True)
    numpy_block.apply_rotary(x[..., :8], np.arange(SEQ))
    np.testing.assert_array_equal(x, kept)


def test_state_dict_holds_parameters_and_nothing_else():
    block = torch_block.DecoderBlock(6, 2, 5)
    assert set(block.state_dict()) == {
        name for name, _ in block.named_parameters()}


# Wrong calls, answered in words


X = np.zeros((BATCH, SEQ, 6))
WRONG = [
    (lambda v, a: v.sinusoidal_positions(-1, 4), ValueError,
     "seq_len=-1 must be at least 0"),
    (lambda v, a: v.sinusoidal_positions(3, 0), ValueError,
     "embed_dim=0 must be at least 1"),
    (lambda v, a: v.sinusoidal_positions(3, 4, start=-2), ValueError,
     "start=-2 must be at least 0"),
    (lambda v, a: v.sinusoidal_positions(3.0, 4), TypeError,
     "seq_len=3.0 is of type float"),
    (lambda v, a: v.LearnedPositions(4, 6)(3, start=2), ValueError,
     "start=2 and seq_len=3 need 5 positions, .* max_len=4"),
    (lambda v, a: v.LearnedPositions(0, 6), ValueError,
     "max_len=0 must be at least 1"),
    (lambda v, a: v.apply_rotary(a(X[..., :5]), a(np.arange(5))), ValueError,
     "head_dim=5 is odd"),
    (lambda v, a: v.apply_rotary(a(X), a(np.arange(4))), ValueError,
     r"positions has shape \(4,\).*seq_len"),
    (lambda v, a: v.apply_rotary(a(X), list(range(5))), TypeError,
     "positions=.* is of type list"),
    (lambda v, a: v.rotary_angles(a(np.arange(5)), 6, base=0), ValueError,
     "base=0 must be at least 1|base=0 must be a finite number above 0"),
    (lambda v, a: v.dropout(a(X), 1), ValueError,
     "p=1 must be at least 0 and below 1"),
    (lambda v, a: v.dropout(a(X), -0.1), ValueError,
     "p=-0.1 must be at least 0 and below 1"),
    (lambda v, a: v.dropout(a(X), float("nan")), ValueError,
     "p=nan must be at least 0 and below 1"),
    (lambda v, a: v.dropout(X.tolist(), 0.5), TypeError,
     "x=.* is of type list"),
    (lambda v, a: v.LayerNorm(6, eps=0.0), ValueError,
     "eps=0.0 must be a finite number above 0"),
    (lambda v, a: v.LayerNorm(5)(a(X)), ValueError,
     r"LayerNorm: x has shape \(2, 5, 6\).*embed_dim=5"),
    (lambda v, a: v.RMSNorm(0), ValueError, "embed_dim=0 must be at least 1"),
    (lambda v, a: v.FeedForward(6, 0), ValueError,
     "hidden_dim=0 must be at least 1"),
    (lambda v, a: v.FeedForward(6, 5, activation="tanh"), ValueError,
     "activation='tanh' must be 'gelu' or 'relu'"),
    (lambda v, a: v.FeedForward(6, 5)(a(X[..., :5])), ValueError,
     r"FeedForward: x has shape \(2, 5, 5\).*embed_dim=6"),
    (lambda v, a: v.MultiHeadCrossAttention(6, 4), ValueError,
     "embed_dim=6 is not divisible by num_heads=4"),
    (lambda v, a: v.MultiHeadCrossAttention(6, 2, memory_dim=0), ValueError,
     "memory_dim=0 must be at least 1"),
    (lambda v, a: v.EncoderBlock(6, 2, 5, dropout=1.0), ValueError,
     "dropout=1.0 must be at least 0 and below 1"),
    (lambda v, a: v.EncoderBlock(6, 2, 5, attention_dropout=-1), ValueError,
     "attention_dropout=-1 must be at least 0 and below 1"),
    (lambda v, a: v.EncoderBlock(6, 0, 5), ValueError,
     "num_heads=0 must be at least 1"),
    (lambda v, a: v.EncoderBlock(6, 2, 5)(a(X[0])), ValueError,
     r"EncoderBlock: x has shape \(5, 6\).*batch, seq_len, embed_dim=6"),
    (lambda v, a: v.EncoderBlock(6, 2, 5)(a(X), a(np.ones((4, 4), bool))),
     ValueError, r"attention_mask has shape \(4, 4\)"),
    (lambda v, a: v.EncoderBlock(6, 2, 5)(a(X), a(np.ones((5, 5)))),
     TypeError, "attention_mask has dtype .*booleans"),
    (lambda v, a: v.DecoderBlock(6, 2, 5)(a(X), a(X[:1])), ValueError,
     r"DecoderBlock: memory has shape \(1, 5, 6\).*batch=2"),
    (lambda v, a: v.DecoderBlock(6, 2, 5)(a(X), None), TypeError,
     "memory=None is of type NoneType"),
    (lambda v, a: v.MultiHeadCrossAttention(6, 2, memory_dim=7)(a(X), a(X)),
     ValueError, "memory has shape .*memory_dim=7"),
]


@pytest.mark.parametrize("variant", [numpy_block, torch_block],
                         ids=["numpy", "torch"])
@pytest.mark.parametrize(("call", "kind", "message"), WRONG)
def test_wrong_calls_are_answered_in_words(variant, call, kind, message):
    def array(x):
        if variant is numpy_block:
            return x
        whole = np.issubdtype(x.dtype, np.floating)
        return torch.tensor(x, dtype=torch.float32 if whole else None)

    with pytest.raises(kind) as caught:
        call(variant, array)
    assert type(caught.value) is kind
    assert re.search(message, str(caught.value))


@pytest.mark.parametrize(("name", "sizes"), [
    ("sinusoidal_positions", (3, 4)), ("LearnedPositions", (3, 4)),
    ("LayerNorm", (4,)), ("RMSNorm", (4,)), ("FeedForward", (4, 3)),
    ("MultiHeadCrossAttention", (4, 2)), ("EncoderBlock", (4, 2, 3)),
    ("DecoderBlock", (4, 2, 3))])
def test_integer_weights_are_refused(name, sizes):
    for variant, dtype in ((numpy_block, np.int64),
                           (torch_block, torch.int64)):
        with pytest.raises(ValueError, match="must be a floating-point dtype"):
            getattr(variant, name)(*sizes, dtype=dtype)


def test_torch_refuses_integers():
    for call in (torch_block.relu, torch_block.gelu,
                 torch_block.LayerNorm(6), torch_block.FeedForward(6, 5),
                 lambda x: torch_block.dropout(x, 0.5)):
        with pytest.raises(TypeError, match="floating-point numbers"):
            call(torch.zeros(2, 6, dtype=torch.int64))


def test_self_attention_of_the_blocks_is_the_layer(rng):
    block = draw_weights(numpy_block.EncoderBlock(
        EMBED, HEADS, HIDDEN, norm_first=True), rng)
    layer = MultiHeadSelfAttention(EMBED, HEADS, bias=True)
    layer.load_parameter_arrays(block.self_attention.parameter_arrays())
    x = rng.standard_normal((BATCH, SEQ, EMBED))
    after = x + layer(block.norm_1(x))
    close(block(x), after + block.feed_forward(block.norm_2(after)))
