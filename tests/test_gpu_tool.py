"""The program behind ``make gpu``: all of it that needs no GPU.

The CPU stands in for the GPU and a counter for its clock, so the cases, the
judgement, the rounds, the table and the record are tested, and no time.
"""

import importlib.util
import json
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from self_attention import torch_eager, torch_fused

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tools"))

import gpu  # noqa: E402

SMALL = gpu.Case(2, 3, 5, 7, 16, "bfloat16", is_causal=True, lengths=(6, 0))
EAGER = gpu._called(torch_eager.scaled_dot_product_attention, True)
FUSED = gpu._called(torch_fused.scaled_dot_product_attention, False)


class Pretended:
    """A CPU that says it is a GPU, with a clock that counts its calls."""

    device = "cpu"

    def __init__(self):
        self.calls, self.tidied = 0, 0

    def milliseconds(self, job):
        job()
        self.calls += 1
        return float(self.calls)

    def describe(self):
        return {"chip": "NVIDIA Pretended 80GB (x2)", "processors": 3}

    def limits(self):
        return {"copy_tbytes_per_s": 1.0}

    def tidy(self):
        self.tidied += 1


@pytest.fixture
def records(tmp_path, monkeypatch):
    monkeypatch.setattr(gpu, "RECORDS", tmp_path / "benchmarks" / "records")
    return gpu.RECORDS


def test_without_a_gpu_one_line_and_no_file(records, monkeypatch, capsys):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert gpu.main() == 0
    told = capsys.readouterr().out
    assert told.count("\n") == 1
    assert "no GPU" in told
    assert not records.exists()


# --- cases -------------------------------------------------------------------

def test_checked_cases_cover_the_edges():
    cases = list(gpu.check_cases())
    assert len(set(cases)) == len(cases)
    assert {case.dtype for case in cases} == {"bfloat16", "float16",
                                              "float32"}
    masks = {(case.is_causal, case.lengths is not None) for case in cases
             if case.dtype == "bfloat16"}
    assert masks == {(a, b) for a in (False, True) for b in (False, True)}
    assert any(case.query_len > case.key_len for case in cases)
    assert any(case.query_len < case.key_len for case in cases)
    assert any(case.key_len == 1 for case in cases)
    assert any(0 in (case.lengths or ()) for case in cases)
    assert {case.head_dim for case in cases} == {16, 64, 128}
    # No length but 1 ends where a tile of 16 rows ends.
    assert all(case.key_len % 16 for case in cases)


def test_timed_cases_have_one_size():
    cases = list(gpu.time_cases())
    assert len(set(cases)) == len(cases)
    for case in cases:
        assert case.batch * case.query_len == 16384
        assert case.heads * case.head_dim == 2048
        assert case.dtype == "bfloat16"


@pytest.mark.parametrize("case", [
    SMALL, gpu.Case(2, 3, 7, 5, 16, "float32", is_causal=True),
    gpu.Case(1, 2, 4, 4, 16, "float32"),
    gpu.Case(2, 1, 3, 6, 16, "float32", lengths=(6, 2)),
], ids=str)
def test_pairs_are_those_of_the_mask(case):
    mask = torch.ones(case.batch, case.heads, case.query_len, case.key_len,
                      dtype=torch.bool)
    if case.lengths is not None:
        mask = mask & torch_eager.padding_mask(case.lengths, case.key_len)
    if case.is_causal:
        mask = mask & torch_eager.causal_mask(case.query_len, case.key_len)
    assert case.pairs() == int(mask.sum())


def test_work_is_counted_in_products():
    case = gpu.Case(8, 16, 4096, 4096, 64, "bfloat16")
    assert case.flops(backward=False) == 4 * 8 * 16 * 4096**2 * 64
    assert case.flops(backward=True) == 3.5 * case.flops(backward=False)
    assert case.score_bytes() == 4 * 8 * 16 * 4096**2


def test_case_can_be_read():
    assert str(SMALL) == ("2 × 3 heads, 5 × 7, width 16, bfloat16, causal, "
                          "real keys (6, 0)")


# --- checks ------------------------------------------------------------------

@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
@pytest.mark.parametrize("change", [
    {}, {"lengths": None}, {"is_causal": False, "lengths": None},
    {"query_len": 9}], ids=str)
def test_right_variants_pass(change, dtype):
    case = gpu.replace(SMALL, dtype=dtype, **change)
    rows = gpu.check({"torch_eager": EAGER, "torch_fused": FUSED}, case,
                     "cpu")
    assert [row["variant"] for row in rows] == ["torch_eager", "torch_fused"]
    for row in rows:
        assert row["passed"], row
        assert set(row["errors"]) == set(row["allowed"]) == set(gpu.PARTS)
    json.dumps(rows, allow_nan=False)


def wrong_scale(query, key, value, real, is_causal):
    return FUSED(query * 1.2, key, value, real, is_causal)


def no_corner(query, key, value, real, is_causal):
    return FUSED(query, key, value, real, False)


def nan_row(query, key, value, real, is_causal):
    output = FUSED(query, key, value, real, is_causal)
    return output + torch.where(output == 0, torch.nan, 0.0)


def wrong_gradient(query, key, value, real, is_causal):
    output = FUSED(query, key, value, real, is_causal)
    return output + (query - query.detach()).mean(-1, keepdim=True)


@pytest.mark.parametrize("wrong", [wrong_scale, no_corner, nan_row,
                                   wrong_gradient])
def test_wrong_variants_fail(wrong):
    (row,) = gpu.check({"wrong": wrong}, SMALL, "cpu")
    assert not row["passed"]
    json.dumps(row, allow_nan=False)


def test_error_is_kept_in_one_line():
    def broken(*given):
        raise RuntimeError("out of luck\nand a long trace")

    (row,) = gpu.check({"broken": broken}, SMALL, "cpu")
    assert row["passed"] is False
    assert row["error"] == "RuntimeError: out of luck"


def test_allowed_error_grows_with_the_yardstick():
    assert gpu.allowed("output", "float32", 1.0, 1.0) == 1e-5
    unit = 2.0**-7
    assert gpu.allowed("output", "bfloat16", 0.01, 1.5) == 0.02 + unit
    assert gpu.allowed("output", "bfloat16", 0.0, 4.0) == 4 * unit
    assert gpu.allowed("grad_key", "bfloat16", 0.0, 0.0) < 1e-30
    np.testing.assert_allclose(
        gpu.allowed("grad_key", "bfloat16", 0.01, 1.5), 0.03 + unit)


# --- times -------------------------------------------------------------------

def test_every_round_calls_every_job_once():
    called = []
    jobs = {name: lambda name=name: called.append(name) for name in "abc"}
    results = gpu.take_turns(jobs, Pretended())
    assert set(results) == set("abc")
    warm_up = 3 * gpu.WARM_UP
    assert called[:warm_up] == [name for name in "abc"
                                for _ in range(gpu.WARM_UP)]
    rounds = [called[start:start + 3]
              for start in range(warm_up, len(called), 3)]
    assert len(rounds) == gpu.ROUNDS
    assert all(sorted(order) == list("abc") for order in rounds)
    assert len({tuple(order) for order in rounds}) > 1


def test_kernel_that_is_not_there_has_a_reason_and_no_time():
    def missing():
        raise RuntimeError("No available kernel")

    machine = Pretended()
    results = gpu.take_turns({"gone": missing, "here": lambda: None}, machine)
    assert results["gone"] == "RuntimeError: No available kernel"
    assert isinstance(results["here"], float)
    assert machine.tidied == 1


def test_table_has_a_line_for_each_time():
    rows = gpu.measure({"torch_fused": FUSED}, SMALL, Pretended())
    assert [row["backward"] for row in rows] == [False, True]
    assert all(row["ms"] > 0 for row in rows)
    lines = gpu.table([*rows, {"kernel": "x", "backward": False,
                               "none": "no such kernel"}]).splitlines()
    assert len(lines) == 3
    assert "forward + backward" in lines[1]
    assert "TFLOP/s" in lines[1]
    assert lines[2].endswith("no such kernel")


def test_rate_is_work_over_time(monkeypatch):
    monkeypatch.setattr(gpu, "take_turns", lambda jobs, machine: {"k": 1e-4})
    case = gpu.Case(1000, 7, 7, 7, 64, "bfloat16")
    row = gpu.measure({"k": FUSED}, case, Pretended())[0]
    assert row["tflops"] == round(case.flops(False) / 1e-7 / 1e12, 1) > 800


def test_scores_that_are_too_large_are_not_tried(monkeypatch):
    monkeypatch.setattr(gpu, "MOST_BYTES", 1)
    rows = gpu.measure({"torch_eager": EAGER, "torch_fused": FUSED}, SMALL,
                       Pretended())
    assert [row["kernel"] for row in rows if "none" in row] == [
        "torch_eager"] * 2


def test_sdpa_with_its_plain_kernel_is_the_same():
    (*inputs, _), _ = gpu.draw(SMALL, "cpu")
    got = gpu.sdpa(gpu.SDPA["SDPA math"])(*inputs, None, False)
    wanted = EAGER(*inputs, None, False)
    torch.testing.assert_close(got, wanted, rtol=0, atol=3e-2)


# --- the machine, as far as it can be pretended ------------------------------

def test_clock_runs_from_event_to_event(monkeypatch):
    told = []

    class Event:
        def __init__(self, enable_timing):
            assert enable_timing

        def record(self):
            told.append("event")

        def elapsed_time(self, other):
            return 2.5

    machine = object.__new__(gpu.Gpu)
    machine.scratch = SimpleNamespace(zero_=lambda: told.append("written"))
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "synchronize",
                        lambda: told.append("waited"))
    assert machine.milliseconds(lambda: told.append("job")) == 2.5
    assert told == ["written", "event", "job", "event", "waited"]


def test_limits_are_work_over_the_best_time(monkeypatch):
    machine = object.__new__(gpu.Gpu)
    machine.device = "cpu"
    monkeypatch.setattr(machine, "milliseconds", lambda job: (job(), 1e-6)[1])
    limits = machine.limits(size=64, length=4096)
    assert limits == {"bfloat16_product_tflops": round(2e-3 * 64**3, 1),
                      "copy_tbytes_per_s": round(2e-3 * 4096, 3)}


def test_chip_is_named(monkeypatch):
    chip = SimpleNamespace(name="NVIDIA H200", multi_processor_count=132,
                           total_memory=150e9, major=9, minor=0)
    monkeypatch.setattr(torch.cuda, "get_device_properties",
                        lambda number: chip)
    told = object.__new__(gpu.Gpu).describe()
    assert (told["chip"], told["capability"]) == ("NVIDIA H200", "9.0")
    assert (told["processors"], told["memory_gb"]) == (132, 150.0)


# --- the record --------------------------------------------------------------

def test_record_says_where_it_comes_from(records, monkeypatch, capsys):
    monkeypatch.setattr(gpu, "load_variants", lambda: (
        {"torch_fused": FUSED, "wrong": wrong_scale},
        {"triton_kernel": "triton is not installed"}))
    code = gpu.run(Pretended(), [SMALL], [SMALL])
    told = capsys.readouterr().out
    assert code == 1
    assert "FAILED  wrong" in told
    assert "left out  triton_kernel: triton is not installed" in told
    record = json.loads((records / "gpu-pretended-80gb-x2.json").read_text())
    assert {"chip", "versions", "commit", "date", "made_by", "statistic",
            "limits", "missing", "sources_changed"} <= set(record)
    assert record["not_reached"] == []
    assert [row["passed"] for row in record["checks"]] == [True, False]
    # What computes something else is not worth a time.
    assert {row["kernel"] for row in record["times"]} == {
        "torch_fused", *gpu.SDPA}
    assert str(ROOT) not in json.dumps(record)


def test_time_that_runs_out_is_told(records, monkeypatch, capsys):
    monkeypatch.setattr(gpu, "load_variants", lambda: ({}, {}))
    seconds = iter([0, gpu.CHECK_UNTIL + 1, gpu.TIME_UNTIL + 1])
    assert gpu.run(Pretended(), [SMALL], [SMALL],
                   clock=lambda: next(seconds)) == 0
    (path,) = records.iterdir()
    record = json.loads(path.read_text())
    assert record["checks"] == record["times"] == []
    assert record["not_reached"] == [f"check: {SMALL}", f"time: {SMALL}"]
    assert "no time was left" in capsys.readouterr().out
    assert gpu.TIME_UNTIL < 300 - 30


def test_all_variants_are_found_or_have_a_reason(monkeypatch):
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    found, missing = gpu.load_variants()
    assert {"torch_eager", "torch_fused"} <= set(found)
    assert set(found) | set(missing) == set(gpu.VARIANTS)
    for attend in (found["torch_eager"], found["torch_fused"]):
        (*inputs, _), real = gpu.draw(SMALL, "cpu")
        assert attend(*inputs, real, True).shape == (2, 3, 5, 16)


@pytest.mark.parametrize(("chip", "name"), [
    ("NVIDIA H200", "h200"), ("NVIDIA H100 80GB HBM3", "h100-80gb-hbm3"),
    ("AMD Instinct MI300X", "amd-instinct-mi300x")])
def test_chip_names_the_file(chip, name):
    assert gpu.slug(chip) == name


@pytest.mark.peer
@pytest.mark.filterwarnings("default")
@pytest.mark.skipif(importlib.util.find_spec("triton") is None,
                    reason="triton is not installed (make test ALL=1 does)")
@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_interpreted_kernels_pass_the_checks(dtype, monkeypatch):
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    from self_attention import triton_kernel

    if not triton_kernel._INTERPRETED:
        pytest.skip("triton_kernel was imported without the interpreter")
    attend = gpu._called(triton_kernel.scaled_dot_product_attention, False)
    case = gpu.replace(SMALL, query_len=19, key_len=21, dtype=dtype,
                       lengths=(18, 0))
    (row,) = gpu.check({"triton_kernel": attend}, case, "cpu")
    assert row["passed"], row
