"""Same weights, same input, same mask: the same numbers in every library.

``pytest tests/peers --record`` also writes the largest
differences to ``chapters/data/parity.json``, which the conventions page shows.
"""

import json
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest
from adapters import PEERS, Peer, Problem

RECORD = (Path(__file__).resolve().parents[2] / "chapters" / "data"
          / "parity.json")
#: Largest absolute difference allowed. Outputs are of size 1 to 4, sums have
#: up to 30 terms: float64 rounds at 2e-16 of that, float32 at 1e-7.
ATOL = {"float64": 1e-12, "float32": 5e-6}
#: A peer that computes in float32 although it is given float64 differs by
#: more than this and less than float32's tolerance.
QUIET = 1e-9

MASKS = {"none": (None, False), "padding": ([7, 4, 1], False),
         "causal": (None, True), "both": ([7, 4, 1], True)}
EMBED_DIM, NUM_HEADS, BATCH, SEQ_LEN, MEMORY_LEN = 15, 3, 3, 7, 11

pytestmark = [pytest.mark.peer, pytest.mark.filterwarnings("default")]


def problem(mask: str, dtype: str, bias: bool, cross: bool) -> Problem:
    rng = np.random.default_rng(11)
    shapes = {f"W_{part}": (EMBED_DIM, EMBED_DIM) for part in "qkvo"}
    if bias:
        shapes |= {f"b_{part}": (EMBED_DIM,) for part in "qkvo"}
    arrays = {name: (rng.standard_normal(shape) / 3).astype(dtype)
              for name, shape in shapes.items()}
    x = rng.standard_normal((BATCH, SEQ_LEN, EMBED_DIM)).astype(dtype)
    memory = rng.standard_normal((BATCH, MEMORY_LEN, EMBED_DIM))
    lengths, causal = MASKS[mask]
    if cross:
        lengths = None if lengths is None else [11, 6, 1]
    return Problem(x, memory.astype(dtype) if cross else None, arrays,
                   NUM_HEADS, lengths, causal, dtype)


def cases(peer: Peer):
    for bias in sorted(peer.biases):
        for mask in MASKS:
            if mask in peer.masks:
                yield mask, bias, False
        if peer.cross:
            for mask in ("none", "padding"):
                yield mask, bias, True


def largest(peer: Peer, dtype: str) -> dict[str, float]:
    found: dict[str, float] = {}
    for mask, bias, cross in cases(peer):
        given = problem(mask, dtype, bias, cross)
        difference = np.abs(peer.run(given) - given.expected())
        if (peer.zeroes_padded_queries and not cross
                and given.padding is not None):
            # Nobody reads these rows; this peer clears them on its way out.
            difference = difference[given.padding[:, 0, 0]]
        difference = difference.max()
        name = f"cross {mask}" if cross else mask
        found[name] = max(found.get(name, 0.0), float(difference))
    return found


@pytest.fixture(scope="module")
def record(request):
    rows: dict[str, object] = {}
    yield rows
    if request.config.getoption("--record", default=False):
        names = ("numpy", "torch", "keras", "jax", "flax", "equinox",
                 "transformers", "x-transformers")
        RECORD.parent.mkdir(exist_ok=True)
        text = json.dumps({
            "what": "Largest absolute difference to numpy_reference in "
                    "float64, outputs of size 1 to 5",
            "versions": {name: version(name) for name in names},
            "rows": rows}, indent=1)
        RECORD.write_text(text + "\n")


@pytest.mark.parametrize("peer", PEERS, ids=lambda peer: peer.name)
def test_same_numbers(peer, record):
    if missing := peer.missing():
        pytest.skip(f"{missing} is not installed (make test ALL=1 does it)")
    found = {dtype: largest(peer, dtype) for dtype in ATOL}
    record[peer.name] = {
        dtype: {mask: float(f"{d:.1e}") for mask, d in row.items()}
        for dtype, row in found.items()} | {"note": peer.note}
    for mask, difference in found["float32"].items():
        assert difference <= ATOL["float32"], ("float32", mask)
    for mask, difference in found["float64"].items():
        if peer.float64:
            assert difference <= ATOL["float64"], ("float64", mask)
        else:
            # Named as one that quietly computes in float32: so it must.
            assert difference <= ATOL["float32"], ("float64", mask)
            assert difference > QUIET, "keeps float64 after all"


def test_the_suite_can_fail():
    given = problem("both", "float64", True, False)
    swapped = dict(given.arrays)
    swapped["W_q"], swapped["W_k"] = swapped["W_k"], swapped["W_q"]
    wrong = Problem(given.x, None, swapped, NUM_HEADS, given.lengths,
                    given.causal, "float64")
    difference = np.abs(PEERS[0].run(wrong) - given.expected()).max()
    assert difference > 0.1
