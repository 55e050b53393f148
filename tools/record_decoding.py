"""Time one step of decoding, and write chapters/data/decoding_record.json.

Usage: python tools/record_decoding.py [rounds]      (a few minutes)

One thread, CPU time: what other programs do at the same time hardly counts.
Each round runs every variant once, in an order drawn anew, and the median of
the rounds is kept. The checks of shapes are switched off, since they cost the
same at every length and no library has them in this place.
"""

import json
import os
import platform
import random
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.update(JAXTYPING_DISABLE="1", OMP_NUM_THREADS="1",
                  OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

import numpy as np
import torch

from self_attention import numpy_decoding, torch_decoding

ROOT = Path(__file__).resolve().parents[1]
RECORD = ROOT / "chapters" / "data" / "decoding_record.json"
EMBED_DIM, NUM_HEADS = 512, 8
LENGTHS = (16, 32, 64, 128, 256, 512, 1024)
KEY_HEADS = (8, 2, 1)
BATCHES = (1, 8)


def main(rounds: int) -> None:
    """Measure everything and write the record."""
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    jobs = {}
    for library in ("numpy", "torch"):
        for key_heads in KEY_HEADS:
            layer, draw = prepare(library, key_heads)
            for batch in BATCHES:
                for length in LENGTHS:
                    what = f"{key_heads} key head{'s' * (key_heads > 1)}"
                    name = (library, batch, what, length)
                    jobs[name] = step_of(layer, draw(batch, length))
            if key_heads == NUM_HEADS:
                for length in LENGTHS:
                    name = (library, 1, "without a cache", length)
                    jobs[name] = whole_of(layer, draw(1, length))
    write(take_turns(jobs, rounds), rounds)


def prepare(library: str, key_heads: int) -> tuple[Any, Callable]:
    """Make a layer, and what draws its inputs."""
    rng = np.random.default_rng(16)
    made = numpy_decoding.CachedSelfAttention(
        EMBED_DIM, NUM_HEADS, num_key_value_heads=key_heads, rng=rng,
        dtype=np.float32)
    if library == "numpy":
        return made, lambda *shape: rng.standard_normal(
            (*shape, EMBED_DIM), np.float32)
    layer = torch_decoding.CachedSelfAttention(
        EMBED_DIM, NUM_HEADS, num_key_value_heads=key_heads)
    layer.load_parameter_arrays(made.parameter_arrays())
    return layer, lambda *shape: torch.randn(*shape, EMBED_DIM)


def step_of(layer: Any, x: Any) -> Callable[[], float]:
    """Time the step that fills the last of ``length`` slots."""
    batch, length, _ = x.shape
    cache = layer.new_cache(batch, length)
    layer.prefill(x[:, :-1], cache)
    newest = x[:, -1:]

    def job() -> float:
        cache.rollback(length - 1)
        start = time.process_time()
        layer.step(newest, cache)
        return time.process_time() - start

    return job


def whole_of(layer: Any, x: Any) -> Callable[[], float]:
    """Time the full pass that gives the same last row."""
    def job() -> float:
        start = time.process_time()
        layer(x)
        return time.process_time() - start

    return job


def take_turns(jobs: dict[tuple, Callable[[], float]],
               rounds: int) -> dict[tuple, float]:
    """Run all jobs in turn, and give the median of each in ms."""
    times: dict[tuple, list[float]] = {name: [] for name in jobs}
    order, shuffle = list(jobs), random.Random(16).shuffle
    for number in range(rounds + 1):
        shuffle(order)
        for name in order:
            seconds = jobs[name]()
            if number:  # the first round warms up
                times[name].append(1e3 * seconds)
    return {name: statistics.median(found) for name, found in times.items()}


def limits() -> dict[str, float]:
    """What one core can do at best: products, and reading from memory."""
    a = np.ones((1024, 1024), np.float32)
    product = min(timed(lambda: a @ a) for _ in range(20))
    long = np.ones(2**26, np.float32)  # 256 MiB, larger than any cache
    reading = min(timed(lambda: long @ long) for _ in range(10))
    return {"matrix_product_gflops": round(2 * 1024**3 / product / 1e9, 1),
            "read_gbytes": round(long.nbytes / reading / 1e9, 1)}


def timed(job: Callable[[], object]) -> float:
    """Give the CPU time of one call in seconds."""
    start = time.process_time()
    job()
    return time.process_time() - start


def processor() -> str:
    """Name the processor, with what tells its generation."""
    path = Path("/proc/cpuinfo")
    if not path.exists():
        return platform.processor() or platform.machine()
    fields = dict(line.split(":", 1) for line in path.read_text().splitlines()
                  if ":" in line)
    found = {name.strip(): value.strip() for name, value in fields.items()}
    return (f"{found.get('model name', platform.machine())} (family "
            f"{found.get('cpu family')}, model {found.get('model')})")


def write(medians: dict[tuple, float], rounds: int) -> None:
    """Write the record, with where it comes from."""
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT,
                            capture_output=True, text=True, check=False)
    rows = {}
    for (library, batch, what, _), ms in medians.items():
        row = rows.setdefault(f"{library}, batch {batch}", {})
        row.setdefault(what, []).append(round(ms, 3))
    record = {
        "what": "CPU time of one step of decoding in ms, float32, one thread",
        "made_by": "python tools/record_decoding.py",
        "rounds": rounds, "statistic": "median of rounds in shuffled order",
        "embed_dim": EMBED_DIM, "num_heads": NUM_HEADS,
        "processor": processor(), "cores": os.cpu_count(),
        "limits_of_one_core": limits(),
        "versions": {"python": platform.python_version(),
                     "numpy": np.__version__, "torch": torch.__version__},
        "commit": commit.stdout.strip(),
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "lengths": list(LENGTHS), "ms": rows}
    text = json.dumps(record, indent=1)
    RECORD.write_text(flat_lists(text) + "\n", encoding="utf-8")


def flat_lists(text: str) -> str:
    """Put each list of numbers on one line."""
    return re.sub(r"\[\s+([^\[\]]*?)\s+\]",
                  lambda found: f"[{' '.join(found[1].split())}]", text)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 15)
