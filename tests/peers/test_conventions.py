"""The conventions that the book prints are those that the peers have today.

``pytest tests/peers --record`` writes them to
``chapters/data/conventions.json``; without it the record is compared.
"""

import inspect
import json
import sys
from importlib.metadata import version
from pathlib import Path

import conventions
import pytest

RECORD = (Path(__file__).resolve().parents[2] / "chapters" / "data"
          / "conventions.json")
LIBRARIES = ("numpy", "torch", "keras", "jax", "flax", "equinox",
             "transformers", "x-transformers")

pytestmark = [pytest.mark.peer, pytest.mark.filterwarnings("default")]


def versions() -> dict[str, str]:
    found = {name: version(name).partition("+")[0] for name in LIBRARIES}
    return {"python": ".".join(map(str, sys.version_info[:2])), **found}


@pytest.fixture(scope="module")
def record(request):
    for module in ("keras", "jax", "flax", "equinox", "transformers",
                   "x_transformers"):
        pytest.importorskip(module, reason=f"{module} is not installed "
                            "(make test ALL=1 does it)")
    if request.config.getoption("--record", default=False):
        found = {"versions": versions(), "answers": conventions.table(),
                 "defaults": conventions.defaults(),
                 "weights": conventions.weights_returned()}
        RECORD.write_text(json.dumps(found, indent=1) + "\n")
    return json.loads(RECORD.read_text())


@pytest.mark.parametrize("peer", conventions.BARE, ids=lambda peer: peer.name)
def test_answers_are_those_recorded(peer, record):
    found = {question: ask(peer)
             for question, ask in conventions.QUESTIONS.items()}
    assert found == record["answers"][peer.name], (
        f"recorded with {record['versions']}, asked with {versions()}")


def test_every_peer_is_recorded(record):
    assert list(record["answers"]) == [p.name for p in conventions.BARE]


def test_defaults_are_those_recorded(record):
    assert conventions.defaults() == record["defaults"]
    assert conventions.weights_returned() == record["weights"]


def test_ours_keeps_its_rules(record):
    for name in ("this course, NumPy", "this course, fused"):
        answers = record["answers"][name]
        assert answers["True in a boolean mask"] == "may attend"
        assert answers["query that may attend nowhere"] == "zeros"
        assert answers["scores beyond float16"] == "right"
        assert "bottom right" in answers[
            "causal flag with fewer queries than keys"] or "NumPy" in name


def test_a_hint_needs_its_mask_and_may_drop_it(record):
    """What the page says of nn.MultiheadAttention, path by path."""
    alone, other = "causal flag without a mask", "causal flag and another mask"
    told = {peer.name.partition(", ")[2]: record["answers"][peer.name]
            for peer in conventions.BARE if peer.hint}
    assert {path: (row[alone], row[other]) for path, row in told.items()} == {
        "train, with weights": ("refused: RuntimeError", "the mask decides"),
        "train, without weights": ("refused: RuntimeError",
                                   "the mask is dropped"),
        "eval and no_grad": ("no effect", "the mask decides")}


@pytest.mark.usefixtures("record")
def test_flags_are_those_of_the_signatures():
    """No library has a causal flag that its row does not name."""
    import equinox
    import flax.linen
    import keras
    import x_transformers.x_transformers as theirs
    from torch import nn
    from transformers.models.bert.modeling_bert import BertSelfAttention

    layers = {"nn.MultiheadAttention": nn.MultiheadAttention,
              "keras.layers.MultiHeadAttention":
                  keras.layers.MultiHeadAttention,
              "transformers BERT": BertSelfAttention,
              "flax.linen.MultiHeadDotProductAttention":
                  flax.linen.MultiHeadDotProductAttention,
              "equinox.nn.MultiheadAttention": equinox.nn.MultiheadAttention,
              "x-transformers": theirs.Attention}
    for name, layer in layers.items():
        found = {parameter for method in ("__init__", "forward", "call",
                                          "__call__")
                 for parameter in signature_of(layer, method)
                 if "causal" in parameter}
        named = {peer.flag for peer in conventions.BARE
                 if peer.name.startswith(name) and peer.flag}
        assert found == named, name


def signature_of(layer: type, method: str) -> list[str]:
    function = getattr(layer, method, None)
    return list(inspect.signature(function).parameters) if function else []
