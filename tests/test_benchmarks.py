"""The program behind ``make bench``: turns, medians, record; and no time.

Whether a variant is fast is told by the record, not by a test.
"""

import itertools
import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "benchmarks"))

import cells  # noqa: E402
import record  # noqa: E402

PLAIN = [cell for cell in cells.chosen(cells.PARTS, cells.LONGEST)
         if cell.kind == "plain"]


# --- what is timed, and in which order ---------------------------------------

@pytest.mark.parametrize("cell", cells.chosen(cells.PARTS, cells.LONGEST),
                         ids=str)
def test_every_round_calls_every_variant_once(cell):
    turns = list(cells.turns(cell))
    names = sorted(cell.names())
    rounds = [turns[i:i + len(names)]
              for i in range(0, len(turns), len(names))]
    assert len(rounds) == (3 if cell.is_long else 15)
    for number, one in enumerate(rounds):
        assert {turn.round for turn in one} == {number}
        assert sorted(turn.name for turn in one) == names


def test_no_variant_always_follows_the_same_other_one():
    names = [turn.name for turn in cells.turns(cells.Cell("plain", 1, 16))]
    before = {first for first, second in itertools.pairwise(names)
              if second == "torch_fused"}
    assert len(before) > 5
    again = [turn.name for turn in cells.turns(cells.Cell("plain", 1, 16))]
    assert names == again


def test_who_is_left_out_has_a_reason(monkeypatch):
    monkeypatch.setattr(cells, "is_installed", lambda package: True)
    for cell in PLAIN:
        assert {*cell.names(), *cell.left_out()} == set(cells.VARIANTS)
        assert {"torch_fused", "SDPA packed"} <= set(cell.names())
    assert set(PLAIN[0].names()) == set(cells.VARIANTS)
    long = cells.Cell("plain", 1, 8192)
    assert long.left_out()["torch_eager"] == "stores every score: too large"
    monkeypatch.setattr(cells, "is_installed",
                        lambda package: package != "jax")
    assert PLAIN[0].left_out() == {"JAX": "not installed: jax"}


def test_operations_are_those_of_the_products():
    small = cells.Cell("plain", 3, 5)
    projections = 4 * 2 * 3 * 5 * 512 * 512
    attention = 2 * 2 * 3 * 8 * 5 * 5 * 64
    assert small.operations == projections + attention
    both = cells.Cell("plain", 3, 5, with_backward=True)
    assert both.operations == 3 * small.operations


# --- the record --------------------------------------------------------------

def test_turns_are_merged_by_their_median():
    took = {"a": [(0.003, 0.01), (0.001, 0.03), (0.002, 0.02)],
            "b": [(1.0, 4.0)] * 3}
    merged = record.merge(took, {"a": 1e-7})
    assert merged["a"] == {"median_ms": 2, "quartiles_ms": [1, 3],
                           "fastest_ms": 1, "wall_ms": 20, "rounds": 3,
                           "error": 1e-7}
    assert merged["b"]["median_ms"] == 1000
    assert "error" not in merged["b"]


def entry(cell):
    return cell.entry() | {"load": 0.5, "commit": "abc", "results": {}}


def test_what_is_measured_again_is_taken_out_and_nothing_else():
    kept = {"limit": {"unit": "x"}, "memory": [{"commit": "abc"}],
            "times": [entry(cell) for cell in PLAIN], "provenance": {}}
    cells_again = cells.PARTS["bfloat16"]
    left = record.without(kept, ["bfloat16", "limit"], cells_again)
    assert left["limit"] == {}
    assert left["memory"]
    for cell in PLAIN:
        assert record.has(left, cell) == (cell.dtype == "float32")


def test_finished_record_is_sorted_and_says_how_it_was_made():
    kept = {"times": [entry(cell) for cell in reversed(PLAIN)],
            "memory": [{"commit": "def"}], "provenance": {}}
    kept["times"][0]["load"] = 1.5
    record.finished(kept)
    for one, cell in zip(kept["times"], PLAIN):
        assert record.is_of(one, cell)
    told = kept["provenance"]["note"]
    assert "abc, def" in told
    assert "0.5 to 1.5" in told


def test_committed_record_has_what_the_program_writes():
    kept = record.read(record.RECORD)
    assert set(kept) == {"provenance", "limit", "times", "memory"}
    assert set(kept["provenance"]) == {*record.provenance(), "load_at_end",
                                       "note"}
    for one in kept["times"]:
        assert set(one) == {*PLAIN[0].entry(), "load", "commit", "operations",
                            "results", "left_out"}
        for result in one["results"].values():
            assert result["median_ms"] > 0


# --- the program -------------------------------------------------------------

def run(path, *options):
    command = [sys.executable, "benchmarks/run.py", "--parts", "float32",
               "--longest", "16", "--seconds", "0", "--record", str(path),
               *options]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True,
                          timeout=300)


@pytest.mark.slow
def test_short_run_goes_on_where_it_was_stopped(tmp_path):
    path = tmp_path / "benchmarks_under_test.json"
    work = ROOT / "_build" / "bench" / path.name
    work.unlink(missing_ok=True)
    assert "no run to go on with" in run(path, "--resume").stderr
    done = run(path)
    assert done.returncode == 0, done.stdout + done.stderr
    first = json.loads(path.read_text())
    assert [one["pass"] for one in first["times"]] == [
        "forward", "forward and backward"]
    for one in first["times"]:
        assert {"torch_fused", "numpy_tiled"} <= set(one["results"])
        for result in one["results"].values():
            assert result["rounds"] == 3
            low, high = result["quartiles_ms"]
            assert 0 < low <= result["median_ms"] <= high
            if one["pass"] == "forward":
                assert result["error"] < 1e-5
    # As if it had been stopped in the second cell.
    stopped = json.loads(work.read_text())
    del stopped["times"][1]
    work.write_text(json.dumps(stopped))
    done = run(path, "--resume")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "forward-1x16" not in done.stdout
    assert "both-1x16" in done.stdout
    second = json.loads(path.read_text())
    assert second["times"][0] == first["times"][0]
    assert second["times"][1] != first["times"][1]
    for left in work.parent.glob(f"{work.stem}*"):
        left.unlink()


@pytest.mark.slow
def test_peak_of_a_process_is_that_of_the_scores():
    if not Path("/proc/self/clear_refs").exists():
        pytest.skip("Linux alone tells the peak of a process")
    done = subprocess.run(
        [sys.executable, "benchmarks/memory.py", "numpy_reference", "1024",
         "forward"], cwd=ROOT, capture_output=True, text=True, timeout=300)
    scores = 8 * 1024 ** 2 * 4 / 2 ** 20  # MiB
    assert scores < float(done.stdout.split()[-1]) < 10 * scores
