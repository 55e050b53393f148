"""Chapter 13's sample and record against the tables they were taken from."""

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest

from course.encoder import digests, load_arrays
from course.records import read_record

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "chapters" / "data"
RECORD = read_record("embeddings_record")

pytestmark = pytest.mark.peer


@pytest.fixture(scope="module")
def model():
    sys.path.insert(0, str(ROOT / "tools"))
    try:
        import extract_minilm_embeddings as tool
    finally:
        sys.path.remove(str(ROOT / "tools"))
    if importlib.util.find_spec(tool.PACKAGE) is None:
        pytest.skip(f"{tool.PACKAGE} is not installed: see "
                    "requirements/models.txt")
    return tool, *tool.read_model(tool.model_folder())


def test_sample_is_rebuilt(model):
    tool, tensors, tokenizer = model
    assert tool.sample_of_words(tokenizer) == RECORD["words"]
    assert tokenizer(tool.SENTENCE) == RECORD["sentence"]
    rebuilt = tool.build(tensors, tokenizer)
    assert digests(rebuilt) == RECORD["arrays"]
    stored = load_arrays(DATA / "minilm_embeddings.npz", RECORD["arrays"])
    for name, array in rebuilt.items():
        np.testing.assert_array_equal(stored[name], array, err_msg=name)


def test_record_is_measured_again(model):
    tool, tensors, tokenizer = model
    measured = tool.measure(tensors, tokenizer)
    assert measured.keys() == RECORD["measured"].keys()
    for name, recorded in RECORD["measured"].items():
        # A probe may decide one of 2,000 draws otherwise on another machine.
        np.testing.assert_allclose(measured[name], recorded, rtol=0,
                                   atol=2e-3, err_msg=name)
