"""Check and time every variant on this machine's GPU, and record it.

Usage: make gpu, or python tools/gpu.py          (less than five minutes)

Every PyTorch variant and the Triton kernels are compared with float64, output
and gradients. Those that pass are timed beside the kernels of PyTorch's own
``scaled_dot_product_attention`` (SDPA). All of it, with where it comes from,
is written to benchmarks/records/gpu-<chip>.json. Where there is no GPU, one
line says so and nothing is written.

So far this program has NOT been run on a GPU. Its tests replace the GPU by
the CPU and the clock by a counter: the cases, the judgement, the order of the
rounds, the table and the record are tested; the CUDA events, the launch of
the kernels and the choice of SDPA's kernels are not.
"""

import importlib
import importlib.metadata
import json
import math
import os
import platform
import random
import re
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

if __name__ == "__main__":  # a time should be the kernel's, not the checks'
    os.environ.setdefault("JAXTYPING_DISABLE", "1")

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from self_attention import torch_eager

ROOT = Path(__file__).resolve().parents[1]
RECORDS = ROOT / "benchmarks" / "records"
NO_GPU = ("make gpu: PyTorch finds no GPU on this machine (or this build of "
          "PyTorch has no CUDA); nothing was checked, timed or written.")

VARIANTS = ("torch_eager", "torch_fused", "torch_tiled", "triton_kernel")
SDPA = {"SDPA cudnn": SDPBackend.CUDNN_ATTENTION,
        "SDPA flash": SDPBackend.FLASH_ATTENTION,
        "SDPA efficient": SDPBackend.EFFICIENT_ATTENTION,
        "SDPA math": SDPBackend.MATH}
#: What stores all scores is left out where they would be larger than this.
STORES_SCORES, MOST_BYTES = ("torch_eager", "SDPA math"), 10e9
PARTS = ("output", "grad_query", "grad_key", "grad_value")
WARM_UP, ROUNDS = 3, 10
#: Seconds from the start after which no check, and no time, is begun.
CHECK_UNTIL, TIME_UNTIL = 140, 260


@dataclass(frozen=True)
class Case:
    """One call of attention: its shapes, its dtype and its masks."""

    batch: int
    heads: int
    query_len: int
    key_len: int
    head_dim: int
    dtype: str
    is_causal: bool = False
    lengths: tuple[int, ...] | None = None

    def __str__(self) -> str:
        words = [f"{self.batch} × {self.heads} heads",
                 f"{self.query_len} × {self.key_len}",
                 f"width {self.head_dim}", self.dtype]
        words += ["causal"] * self.is_causal
        words += [f"real keys {self.lengths}"] * (self.lengths is not None)
        return ", ".join(words)

    def pairs(self) -> int:
        """Count the pairs of a query and a key that it may attend to."""
        shift = self.key_len - self.query_len
        return self.heads * sum(
            min(length, max(0, row + shift + 1)) if self.is_causal else length
            for length in self.lengths or [self.key_len] * self.batch
            for row in range(self.query_len))

    def flops(self, backward: bool) -> int:
        """Count what must be multiplied and added: 2 products, or 2 + 5."""
        return 2 * self.pairs() * self.head_dim * (7 if backward else 2)

    def score_bytes(self) -> int:
        """Size of all scores in float32."""
        return 4 * self.batch * self.heads * self.query_len * self.key_len


def check_cases() -> Iterator[Case]:
    """Yield what is checked, the most telling first.

    The lengths are no multiple of a tile; one sequence has no real key. Each
    pair of a dtype and a kind of mask is compiled anew, so not all are here.
    """
    square = Case(2, 3, 197, 197, 64, "bfloat16")
    padded = replace(square, lengths=(131, 0))
    both = replace(padded, is_causal=True)
    yield from (both, square, replace(square, is_causal=True), padded)
    # A decoder's last queries; then queries before the first key.
    yield replace(square, query_len=70, is_causal=True)
    yield replace(both, key_len=70, lengths=(51, 0))
    for dtype in ("float16", "float32"):
        yield from (replace(both, dtype=dtype), replace(square, dtype=dtype))
    yield from (replace(both, head_dim=128), replace(square, head_dim=128))
    yield replace(both, head_dim=16, dtype="float16")
    yield Case(1, 1, 1, 1, 64, "bfloat16")


def time_cases() -> Iterator[Case]:
    """Yield what is timed: 16,384 tokens, 2,048 numbers for each.

    These are the sizes that Dao (2023) and Shah et al. (2024) report.
    """
    for length in (4096, 1024, 16384):
        for width in (64, 128):
            case = Case(16384 // length, 2048 // width, length, length,
                        width, "bfloat16")
            yield from (case, replace(case, is_causal=True))
    yield Case(4, 32, 4096, 4096, 64, "bfloat16",
               lengths=(4096, 3072, 2048, 1024))


Attend = Callable[[Tensor, Tensor, Tensor, Tensor | None, bool], Tensor]


def load_variants() -> tuple[dict[str, Attend], dict[str, str]]:
    """Import the variants; for those that are missing give the reason."""
    found, missing = {}, {}
    for name in VARIANTS:
        try:
            module = importlib.import_module(f"self_attention.{name}")
        except ModuleNotFoundError as error:
            missing[name] = f"{error.name} is not installed"
        else:
            found[name] = _called(module.scaled_dot_product_attention,
                                  makes_mask=name == "torch_eager")
    return found, missing


def _called(function: Callable[..., Tensor], makes_mask: bool) -> Attend:
    """Give every variant one way to be called."""
    def attend(query: Tensor, key: Tensor, value: Tensor,
               real: Tensor | None, is_causal: bool) -> Tensor:
        if not makes_mask:
            return function(query, key, value, real, is_causal=is_causal)
        corner = torch_eager.causal_mask(
            query.shape[-2], key.shape[-2],
            device=query.device) if is_causal else None
        return function(query, key, value,
                        torch_eager.combine_masks(real, corner))

    return attend


def sdpa(backend: SDPBackend) -> Attend:
    """Call PyTorch's own function with one kernel and no other."""
    def attend(query: Tensor, key: Tensor, value: Tensor,
               real: Tensor | None, is_causal: bool) -> Tensor:
        with sdpa_kernel(backend):
            return F.scaled_dot_product_attention(
                query, key, value, attn_mask=real, is_causal=is_causal)

    return attend


class Gpu:
    """The machine: where to compute, its clock, and what it is."""

    device = "cuda"

    def __init__(self) -> None:
        torch.set_float32_matmul_precision("highest")
        # Written before each call, so that no call finds a warm cache.
        self.scratch = torch.empty(2**28, dtype=torch.int8,
                                   device=self.device)

    def milliseconds(self, job: Callable[[], object]) -> float:
        """Time one call on the GPU's own clock."""
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        self.scratch.zero_()
        start.record()
        job()
        end.record()
        torch.cuda.synchronize()
        return start.elapsed_time(end)

    def describe(self) -> dict[str, Any]:
        """Name the chip."""
        chip = torch.cuda.get_device_properties(0)
        return {"chip": chip.name, "processors": chip.multi_processor_count,
                "memory_gb": round(chip.total_memory / 1e9, 1),
                "capability": f"{chip.major}.{chip.minor}",
                "cuda": torch.version.cuda}

    def limits(self, size: int = 8192, length: int = 2**30
               ) -> dict[str, float]:
        """Measure what the chip can do at best: products, and copying."""
        a, b = (torch.randn(size, size, device=self.device).bfloat16()
                for _ in range(2))
        source = torch.zeros(length, dtype=torch.int8, device=self.device)
        target = torch.empty_like(source)

        def best(job: Callable[[], object]) -> float:
            self.milliseconds(job)
            return min(self.milliseconds(job) for _ in range(20))

        product, copy = best(lambda: a @ b), best(lambda: target.copy_(source))
        return {"bfloat16_product_tflops": round(2e-9 * size**3 / product, 1),
                "copy_tbytes_per_s": round(2e-9 * length / copy, 3)}

    def tidy(self) -> None:
        """Give memory back, after a call that wanted too much."""
        torch.cuda.empty_cache()


def draw(case: Case, device: str) -> tuple[list[Tensor], Tensor | None]:
    """Draw query, key, value and a gradient of the output; make the mask."""
    generator = torch.Generator().manual_seed(15)
    lengths = (case.query_len, case.key_len, case.key_len, case.query_len)
    tensors = [torch.randn(case.batch, case.heads, length, case.head_dim,
                           generator=generator).to(device).to(
                               getattr(torch, case.dtype))
               for length in lengths]
    if case.lengths is None:
        return tensors, None
    return tensors, torch_eager.padding_mask(case.lengths, case.key_len,
                                             device=device)


def outcome(attend: Attend, case: Case, tensors: list[Tensor],
            real: Tensor | None) -> list[Tensor]:
    """Compute output and gradients, in double precision for comparing."""
    *inputs, grad = tensors
    inputs = [tensor.detach().clone().requires_grad_() for tensor in inputs]
    output = attend(*inputs, real, case.is_causal)
    grads = torch.autograd.grad(output, inputs, grad)
    return [tensor.detach().double() for tensor in (output, *grads)]


def allowed(part: str, dtype: str, yardstick: float, largest: float) -> float:
    """Say how large an error may be.

    float32 has a fixed limit. Half precision is judged by the error of plain
    code in the same dtype: twice that (three times for gradients, which
    round one more tile) and one unit in the last place of the largest number.
    """
    if dtype == "float32":
        return 1e-5
    unit = torch.finfo(getattr(torch, dtype)).eps
    times = 2 if part == "output" else 3
    exponent = math.floor(math.log2(max(largest, 1e-30)))
    return times * yardstick + unit * 2.0**exponent


def check(variants: Mapping[str, Attend], case: Case,
          device: str) -> list[dict[str, Any]]:
    """Compare every variant with float64 on one case."""
    eager = _called(torch_eager.scaled_dot_product_attention, True)
    tensors, real = draw(case, device)
    exact = outcome(eager, case, [t.double() for t in tensors], real)
    plain = outcome(eager, case, tensors, real)
    rows = []
    for name, attend in variants.items():
        row: dict[str, Any] = {"variant": name, "case": str(case)}
        try:
            got = outcome(attend, case, tensors, real)
        except Exception as error:  # recorded: the others still count
            row |= {"passed": False, "error": _first_line(error)}
        else:
            errors = {part: _distance(ours, wanted) for part, ours, wanted
                      in zip(PARTS, got, exact)}
            limits = {part: allowed(part, case.dtype, _distance(p, e),
                                    float(e.abs().max()))
                      for part, p, e in zip(PARTS, plain, exact)}
            passed = all(errors[part] <= limits[part] for part in PARTS)
            row |= {"passed": passed, "errors": _short(errors),
                    "allowed": _short(limits)}
        rows.append(row)
    return rows


def _distance(ours: Tensor, wanted: Tensor) -> float:
    return float((ours - wanted).abs().max())


def _short(numbers: Mapping[str, float]) -> dict[str, float | str]:
    """Two digits are enough; JSON has no NaN."""
    return {name: float(f"{number:.1e}") if math.isfinite(number)
            else str(number) for name, number in numbers.items()}


def _first_line(error: Exception) -> str:
    text = str(error).strip() or "no message"
    return f"{type(error).__name__}: {text.splitlines()[0][:120]}"


def jobs_of(kernels: Mapping[str, Attend], case: Case, device: str,
            backward: bool) -> dict[str, Callable[[], object]]:
    """Make for each kernel a call without arguments."""
    (*inputs, grad), real = draw(case, device)
    inputs = [tensor.requires_grad_(backward) for tensor in inputs]

    def job_of(attend: Attend) -> Callable[[], object]:
        def job() -> object:
            output = attend(*inputs, real, case.is_causal)
            return (torch.autograd.grad(output, inputs, grad) if backward
                    else output)

        return job

    return {name: job_of(attend) for name, attend in kernels.items()}


def take_turns(jobs: Mapping[str, Callable[[], object]], machine: Any
               ) -> dict[str, float | str]:
    """Give the median time of each job in ms, or why there is none.

    After the warm-up every round calls each job once, in an order drawn anew:
    what slows the machine for a while slows all of them.
    """
    results: dict[str, float | str] = {}
    times: dict[str, list[float]] = {}
    for name, job in jobs.items():
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # why a kernel is refused
                for _ in range(WARM_UP):
                    machine.milliseconds(job)
            times[name] = []
        except Exception as error:  # no such kernel here, or no memory
            results[name] = _first_line(error)
            machine.tidy()
    order, shuffle = list(times), random.Random(15).shuffle
    for _ in range(ROUNDS):
        shuffle(order)
        for name in order:
            times[name].append(machine.milliseconds(jobs[name]))
    return results | {name: statistics.median(found)
                      for name, found in times.items()}


def measure(kernels: Mapping[str, Attend], case: Case,
            machine: Any) -> list[dict[str, Any]]:
    """Time every kernel on one case, forward and with the backward pass."""
    rows = []
    for backward in (False, True):
        fit = {name: attend for name, attend in kernels.items()
               if name not in STORES_SCORES
               or case.score_bytes() <= MOST_BYTES}
        results = take_turns(jobs_of(fit, case, machine.device, backward),
                             machine)
        for name in kernels:
            result = results.get(
                name, f"its scores take {case.score_bytes() / 1e9:.0f} GB")
            row = {"kernel": name, "case": str(case), "backward": backward}
            if isinstance(result, str):
                row["none"] = result
            else:
                row["ms"] = round(result, 4)
                row["tflops"] = round(
                    1e-9 * case.flops(backward) / max(result, 1e-9), 1)
            rows.append(row)
    return rows


def table(rows: Iterable[Mapping[str, Any]]) -> str:
    """Write the times of one case as lines of text."""
    lines = []
    for row in rows:
        what = "forward + backward" if row["backward"] else "forward"
        result = (f"{row['ms']:9.3f} ms {row['tflops']:7.1f} TFLOP/s"
                  if "ms" in row else row["none"])
        lines.append(f"  {row['kernel']:15} {what:19} {result}")
    return "\n".join(lines)


def slug(chip: str) -> str:
    """Turn a chip's name into part of a file's name."""
    words = re.sub(r"[^a-z0-9]+", "-", chip.lower()).strip("-")
    return words.removeprefix("nvidia-")


def provenance(machine: Any) -> dict[str, Any]:
    """Say where the numbers come from."""
    def git(*words: str) -> str:
        try:
            return subprocess.run(["git", *words], cwd=ROOT, check=True,
                                  capture_output=True, text=True).stdout
        except (OSError, subprocess.CalledProcessError):
            return ""

    try:
        triton = importlib.metadata.version("triton")
    except importlib.metadata.PackageNotFoundError:
        triton = None
    return {
        "what": "Errors against float64, and times, of attention on a GPU",
        "made_by": "make gpu", **machine.describe(),
        "versions": {"python": platform.python_version(),
                     "torch": torch.__version__, "triton": triton},
        "commit": git("rev-parse", "--short", "HEAD").strip() or "unknown",
        "sources_changed": bool(git("status", "--porcelain", "src", "tools")),
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "statistic": f"median of {ROUNDS} rounds in shuffled order after "
                     f"{WARM_UP} calls to warm up; CUDA events; 256 MiB are "
                     "written before each call",
        "flops": "2 products forward, 7 with the backward pass, over the "
                 "pairs that may attend",
    }


def run(machine: Any, checks: Iterable[Case], timed: Iterable[Case],
        clock: Callable[[], float] = time.monotonic) -> int:
    """Check, time and record; 1 if a check failed, else 0."""
    began = clock()
    variants, missing = load_variants()
    record = provenance(machine) | {"missing": missing, "not_reached": []}
    record["checks"] = []
    for case in checks:
        if clock() - began > CHECK_UNTIL:
            record["not_reached"].append(f"check: {case}")
            continue
        rows = check(variants, case, machine.device)
        record["checks"] += rows
        for row in rows:
            print(f"{'passed' if row['passed'] else 'FAILED'}  "
                  f"{row['variant']:13} {case}", row.get("error", ""))
    failed = {row["variant"] for row in record["checks"]
              if not row["passed"]}
    kernels = {name: attend for name, attend in variants.items()
               if name not in failed}
    kernels |= {name: sdpa(backend) for name, backend in SDPA.items()}
    record |= {"limits": machine.limits(), "times": []}
    for case in timed:
        if clock() - began > TIME_UNTIL:
            record["not_reached"].append(f"time: {case}")
            continue
        rows = measure(kernels, case, machine)
        record["times"] += rows
        print(f"{case}\n{table(rows)}")
    for name, reason in missing.items():
        print(f"left out  {name}: {reason}")
    for what in record["not_reached"]:
        print(f"no time was left for  {what}")
    path = RECORDS / f"gpu-{slug(record['chip'])}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n",
                    encoding="utf-8")
    print(f"Written: {path.relative_to(RECORDS.parents[1])}"
          + (f". FAILED: {', '.join(sorted(failed))}" if failed else ""))
    return int(bool(failed))


def main() -> int:
    """Run on the GPU, if there is one."""
    if not torch.cuda.is_available():
        print(NO_GPU)
        return 0
    return run(Gpu(), check_cases(), time_cases())


if __name__ == "__main__":
    sys.exit(main())
