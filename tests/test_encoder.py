"""The way into a pretrained model, and the extract that the book carries."""

import itertools
import json
import re
import struct
from pathlib import Path

import numpy as np
import pytest

from course import encoder
from course.encoder import WordPiece
from course.records import read_record
from self_attention.numpy_block import EncoderBlock
from self_attention.numpy_reference import (
    attention_weights,
    combine_heads,
    scaled_dot_product_attention,
    separate_heads,
)

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT / "chapters" / "data"
RECORD = read_record("heads_record")
MOST_BYTES = 4_600_000
#: What half precision may change in a weight: measured 1.0e-3 at most.
ROUNDING = 2e-3


@pytest.fixture(scope="module")
def extract():
    return encoder.load_arrays(DATA / "minilm_heads.npz",
                               RECORD["minilm"]["arrays"])


@pytest.fixture(scope="module")
def pairs(extract):
    return encoder.load_sentences(extract, RECORD["minilm"]["sentences"])


@pytest.fixture(scope="module")
def block(extract):
    return encoder.load_block(encoder.arrays_of("layer_2", extract),
                              num_heads=12)


def weights_of_layer_3(extract, y):
    own = encoder.arrays_of("layer_3", extract)
    return attention_weights(
        separate_heads(y @ own["W_q"] + own["b_q"], 12),
        separate_heads(y @ own["W_k"] + own["b_k"], 12))


def weights_of_heads(sentences, layer, head):
    """Weights on the two nouns, ``(sentences, 2)``, as recorded."""
    return np.array([s.recorded[layer, head][[s.first_noun, s.second_noun]]
                     for s in sentences])


# --- The extract ------------------------------------------------------------

def test_extract_is_small():
    files = [DATA / "minilm_heads.npz", DATA / "e5_heads.npz"]
    assert sum(path.stat().st_size for path in files) < MOST_BYTES


def test_extract_is_what_the_record_says(extract):
    assert encoder.digests(extract) == RECORD["minilm"]["arrays"]
    shapes = {name: array.shape for name, array in extract.items()}
    block = EncoderBlock(384, 12, 1536).parameter_arrays()
    expected = {f"layer_2.{name}": array.shape
                for name, array in block.items()}
    expected |= {f"layer_3.{name}": block[f"self_attention.{name}"].shape
                 for name in ("W_q", "b_q", "W_k", "b_k")}
    tokens = sum(len(entry["tokens"].split())
                 for entry in RECORD["minilm"]["sentences"])
    expected |= {"x": (tokens, 384), "recorded": (6, 12, tokens)}
    assert shapes == expected
    assert all(array.dtype == np.float16 for array in extract.values())
    assert all(np.isfinite(array).all() for array in extract.values())


def test_other_content_is_refused(tmp_path, extract):
    path = tmp_path / "extract.npz"
    arrays = {"a": extract["layer_3.b_q"], "b": extract["layer_3.b_k"]}
    encoder.save_arrays(path, arrays)
    names = encoder.digests(arrays)
    assert set(encoder.load_arrays(path, names)) == {"a", "b"}
    one_bit = arrays["a"].view(np.uint16).copy()
    one_bit[7] ^= 1
    encoder.save_arrays(path, arrays | {"a": one_bit.view(np.float16)})
    with pytest.raises(ValueError, match=r"not as recorded: a$"):
        encoder.load_arrays(path, names)
    encoder.save_arrays(path, {"a": arrays["a"]})
    with pytest.raises(ValueError, match=r"not as recorded: b$"):
        encoder.load_arrays(path, names)
    encoder.save_arrays(path, arrays | {"c": arrays["a"]})
    with pytest.raises(ValueError, match=r"not as recorded: c$"):
        encoder.load_arrays(path, names)


def test_digest_knows_dtype_and_shape():
    zeros = np.zeros((2, 3), np.float32)
    others = [zeros.astype(np.int32), zeros.reshape(3, 2), zeros + 1]
    assert len({encoder.digest(array) for array in [zeros, *others]}) == 4
    assert encoder.digest(zeros) == encoder.digest(zeros.astype(">f4"))
    assert encoder.digest(zeros.T) == encoder.digest(zeros.T.copy())


def test_same_arrays_give_the_same_file(tmp_path, extract):
    arrays = {"b": extract["layer_3.b_q"], "a": extract["layer_3.b_k"]}
    encoder.save_arrays(tmp_path / "one.npz", arrays)
    encoder.save_arrays(tmp_path / "two.npz", dict(reversed(arrays.items())))
    assert ((tmp_path / "one.npz").read_bytes()
            == (tmp_path / "two.npz").read_bytes())


def test_every_file_has_its_licence():
    notice = (DATA / "NOTICE").read_text("utf8")
    for path in [*DATA.glob("*.npz"), *DATA.glob("*.ttf")]:
        assert re.search(rf"^{path.name}$", notice, re.M), path.name
    for section in ("minilm", "e5"):
        assert RECORD[section]["file_sha256"] in notice
    assert "Version 2.0, January 2004" in (
        DATA / "LICENSE-APACHE-2.0").read_text("utf8")


# --- What our code computes from it -----------------------------------------

def test_weights_are_those_of_the_whole_model(extract, pairs, block):
    for s in itertools.chain(*pairs):
        x = s.x[None]
        rows = np.stack([block.self_attention.attention_weights(x)[0],
                         weights_of_layer_3(extract, block(x)[0])])
        np.testing.assert_allclose(rows[:, :, s.it], s.recorded[2:4],
                                   rtol=0, atol=ROUNDING)


def test_sentences_are_what_they_claim(pairs):
    assert len(pairs) == 31
    assert " ".join(pairs[0][0].tokens) == (
        "[CLS] the animal didn ' t cross the street because it was too tired "
        "[SEP]")
    for one, other in pairs:
        differ = [i for i, (a, b) in enumerate(zip(one.tokens, other.tokens))
                  if a != b]
        assert differ == [one.adjective] == [other.adjective]
        for s in (one, other):
            assert s.tokens[s.it] == "it"
            assert s.x.shape == (len(s.tokens), 384)
            assert s.first_noun < s.second_noun < s.it < s.adjective
            np.testing.assert_allclose(s.recorded.sum(-1), 1, atol=ROUNDING)


def test_heads_are_chosen_by_the_first_pair_alone(pairs):
    tired, wide = pairs[0]
    change = np.abs(tired.recorded - wide.recorded)[..., tired.first_noun]
    assert np.unravel_index(change.argmax(), (6, 12)) == (3, 1)
    reads = (tired.recorded + wide.recorded)[2, :, tired.adjective]
    assert sorted(np.argsort(reads)[-3:]) == [1, 3, 8]


def test_counts_on_held_out_pairs(pairs):
    """Chance: 15 of 30, 30 of 60, and 60 / 15 = 4 of 60."""
    both = np.array([weights_of_heads(pair, 3, 1) for pair in pairs[1:]])
    share = both[..., 0] / both.sum(axis=-1)
    assert ((share[:, 0] > share[:, 1]).sum(), len(share)) == (24, 30)
    assert (share[:, 0] > 0.5).sum() + (share[:, 1] < 0.5).sum() == 37
    for head in (1, 3, 8):
        assert all(s.recorded[2, head].argmax() == s.adjective
                   for s in itertools.chain(*pairs[1:]))


def test_cutting_the_adjective_heads_leaves_no_move(extract, pairs, block):
    attention = block.self_attention

    def share(s, cut):
        heads = scaled_dot_product_attention(
            *(part[0] for part in attention.project(s.x[None])))
        heads[cut, s.it] = 0
        y = combine_heads(heads) @ attention.W_o + attention.b_o
        y = block.norm_1(s.x + y)
        y = block.norm_2(y + block.feed_forward(y))
        row = weights_of_layer_3(extract, y)[1, s.it]
        return row[s.first_noun] / (row[s.first_noun] + row[s.second_noun])

    def mean_move(cut):
        return np.mean([share(a, cut) - share(b, cut) for a, b in pairs[1:]])

    ways = list(itertools.combinations(range(12), 3))
    recorded = dict(zip(ways, RECORD["minilm"]["moves_of_triples"]))
    assert len(recorded) == 220
    assert abs(mean_move([]) - 0.177) < 1e-3
    for cut in [(1, 3, 8), (0, 5, 6)]:
        assert abs(mean_move(list(cut)) - recorded[cut]) < 1e-3
    assert min(ways, key=lambda cut: abs(recorded[cut])) == (1, 3, 8)
    assert abs(recorded[1, 3, 8]) < 0.005 < 0.2 < recorded[0, 5, 6]


def test_two_heads_of_the_multilingual_model():
    record = RECORD["e5"]
    arrays = encoder.load_arrays(DATA / "e5_heads.npz", record["arrays"])
    for role in ("noun", "adjective"):
        own = encoder.arrays_of(role, arrays)
        assert own["W_q"].shape == own["W_k"].shape == (384, 32)
        lengths = [len(s["tokens"].split()) for s in record["sentences"]]
        xs = np.split(own["x"], np.cumsum(lengths)[:-1])
        assert list(map(len, xs)) == lengths == [16, 15]
        for x, s in zip(xs, record["sentences"]):
            row = attention_weights(x @ own["W_q"] + own["b_q"],
                                    x @ own["W_k"] + own["b_k"])[s["it"]]
            np.testing.assert_allclose(row, s["recorded"][role], rtol=0,
                                       atol=ROUNDING)


def test_glyphs_are_there_for_every_chinese_label():
    ttlib = pytest.importorskip("fontTools.ttLib")
    font = ttlib.TTFont(DATA / "chinese_glyphs.ttf")
    has = font.getBestCmap()
    font.close()
    for sentence in RECORD["e5"]["sentences"]:
        missing = {sign for sign in sentence["text"] if ord(sign) not in has}
        assert not missing


# --- The way in: files, tokens, embeddings ----------------------------------

def test_safetensors_round_trip(tmp_path):
    rng = np.random.default_rng(3)
    arrays = {"a": rng.standard_normal((2, 3)).astype(np.float32),
              "b": rng.standard_normal(5).astype(np.float16),
              "c": np.arange(4).reshape(2, 2), "empty": np.zeros((0, 3))}
    names = {"float32": "F32", "float16": "F16", "int64": "I64",
             "float64": "F64"}
    header, body = {"__metadata__": {"format": "np"}}, b""
    for name, array in arrays.items():
        header[name] = {"dtype": names[str(array.dtype)],
                        "shape": list(array.shape),
                        "data_offsets": [len(body), len(body) + array.nbytes]}
        body += array.tobytes()
    text = json.dumps(header).encode()
    path = tmp_path / "weights.safetensors"
    path.write_bytes(struct.pack("<Q", len(text)) + text + body)
    found = encoder.read_safetensors(path)
    assert list(found) == list(arrays)
    for name, array in arrays.items():
        assert found[name].dtype == array.dtype
        np.testing.assert_array_equal(found[name], array)


def test_safetensors_refuses_an_unknown_dtype(tmp_path):
    text = b'{"a":{"dtype":"BF16","shape":[1],"data_offsets":[0,2]}}'
    path = tmp_path / "weights.safetensors"
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"\0\0")
    with pytest.raises(ValueError, match="BF16"):
        encoder.read_safetensors(path)


TOKENIZER = WordPiece(["[UNK]", "[CLS]", "[SEP]", "un", "##aff", "##able",
                       "cafe", "it", "'", "s", ".", "动", "##s"])


@pytest.mark.parametrize(("text", "pieces"), [
    ("unaffable", ["un", "##aff", "##able"]),
    ("Café", ["cafe"]),
    ("It's.", ["it", "'", "s", "."]),
    ("its", ["it", "##s"]),
    ("xyz it", ["[UNK]", "it"]),
    ("动it", ["动", "it"]),
    (" \t\n", []),
])
def test_words_are_cut_into_the_longest_pieces(text, pieces):
    assert TOKENIZER(text) == ["[CLS]", *pieces, "[SEP]"]


def test_tokens_have_the_numbers_of_their_lines(tmp_path):
    path = tmp_path / "vocab.txt"
    path.write_text("\n".join(TOKENIZER.ids) + "\n", "utf8")
    read = WordPiece.from_file(path)
    assert read.ids == TOKENIZER.ids
    assert read.numbers(["[CLS]", "it"]).tolist() == [1, 7]


def tiny_tensors(rng, width=6, hidden=10, layers=2):
    """Weights by BERT's names, every width different."""
    shapes = {"embeddings.word_embeddings.weight": (7, width),
              "embeddings.position_embeddings.weight": (5, width),
              "embeddings.token_type_embeddings.weight": (2, width),
              "embeddings.LayerNorm.weight": (width,),
              "embeddings.LayerNorm.bias": (width,)}
    for layer in range(layers):
        start = f"encoder.layer.{layer}."
        for name, shape in {
                "attention.self.query": (width, width),
                "attention.self.key": (width, width),
                "attention.self.value": (width, width),
                "attention.output.dense": (width, width),
                "intermediate.dense": (hidden, width),
                "output.dense": (width, hidden),
                "attention.output.LayerNorm": (width,),
                "output.LayerNorm": (width,)}.items():
            shapes[f"{start}{name}.weight"] = shape
            shapes[f"{start}{name}.bias"] = shape[:1]
    return {name: rng.standard_normal(shape) for name, shape in shapes.items()}


def test_encoder_is_its_parts_one_after_the_other(rng):
    tensors = tiny_tensors(rng)
    model = encoder.bert_encoder(tensors, num_heads=2, eps=1e-5)
    ids = np.array([3, 0, 6])
    states = model(ids)
    assert states.shape == (3, 3, 6)
    total = (tensors["embeddings.word_embeddings.weight"][ids]
             + tensors["embeddings.position_embeddings.weight"][:3]
             + tensors["embeddings.token_type_embeddings.weight"][0])
    centred = total - total.mean(-1, keepdims=True)
    normal = centred / np.sqrt(centred.var(-1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(
        states[0], normal * tensors["embeddings.LayerNorm.weight"]
        + tensors["embeddings.LayerNorm.bias"], atol=1e-12)
    np.testing.assert_array_equal(states[2],
                                  model.blocks[1](states[1][None])[0])
    weights = model.attention_weights(states)
    assert weights.shape == (2, 2, 3, 3)
    np.testing.assert_allclose(weights.sum(-1), 1)


def test_layer_is_turned_into_our_layout(rng):
    tensors = tiny_tensors(rng)
    arrays = encoder.bert_layer(tensors, 1, num_heads=2)
    start = "encoder.layer.1."
    np.testing.assert_array_equal(
        arrays["feed_forward.W_1"],
        tensors[f"{start}intermediate.dense.weight"].T)
    np.testing.assert_array_equal(
        arrays["self_attention.W_o"],
        tensors[f"{start}attention.output.dense.weight"].T)
    np.testing.assert_array_equal(
        arrays["norm_2.shift"], tensors[f"{start}output.LayerNorm.bias"])
    block = encoder.load_block(arrays, num_heads=2, dtype=np.float32)
    assert {array.dtype for array in block.parameter_arrays().values()} == {
        np.dtype(np.float32)}
