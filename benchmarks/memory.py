"""Peak memory: one fresh process for each number.

A timer of calls cannot see memory, and what a process has freed once hides
the next peak. So every number has a process of its own, in which the layer is
called once, small, and once more at the length that counts. Linux tells the
peak; elsewhere this part stops with an error.

    python benchmarks/memory.py NAME LENGTH PASS        prints the peak in MiB
"""

import math
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import record
from cells import SQUARE, Cell

NAMES = ("numpy_reference", "numpy_tiled", "torch_eager", "torch_fused",
         "torch_tiled", "SDPA packed", "nn.MHA fast path")
PASSES = {"forward": False, "forward and backward": True}


def entries(kept: list[dict], environment: dict) -> Iterator[dict]:
    """Measure, for each variant and pass, what is not measured yet."""
    there = {(one["name"], one["pass"]) for one in kept}
    for steps, with_backward in PASSES.items():
        for name in NAMES:
            # Without a backward pass of its own, it is left out there.
            if ((name, steps) not in there
                    and Cell("plain", 1, 64, with_backward=with_backward)
                    .why_not(name) is None):
                yield entry(name, steps, environment)


def entry(name: str, steps: str, environment: dict) -> dict:
    """Give the peaks of a variant at two lengths, and how they grow."""
    # A small peak hides in what the process had already freed.
    lengths = (1024, 4096) if name in SQUARE else (8192, 16384)
    peaks = {length: peak_of(name, length, steps, environment)
             for length in lengths}
    growth = (math.log(peaks[lengths[1]] / peaks[lengths[0]])
              / math.log(lengths[1] / lengths[0]))
    return {"name": name, "peak_mib": peaks, "growth": growth, "pass": steps,
            "commit": record.commit()}


def peak_of(name: str, length: int, steps: str, environment: dict) -> float:
    """Start a process that measures, and read what it prints."""
    done = subprocess.run(
        [sys.executable, __file__, name, str(length), steps],
        env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return float(done.stdout.split()[-1])


def measure(name: str, length: int, steps: str) -> float:
    """Give the peak above the start, in MiB, of this process."""
    from candidates import calls
    small, large = (Cell("plain", 1, n, with_backward=PASSES[steps])
                    for n in (64, length))
    calls(small, [name])[name]()
    call = calls(large, [name])[name]
    Path("/proc/self/clear_refs").write_text("5")  # forget the old peak
    before = status("VmRSS")
    call()
    return status("VmHWM") - before


def status(key: str) -> float:
    """Read a line of what Linux knows about this process, in MiB."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(key):
            return int(line.split()[1]) / 1024
    raise KeyError(key)


if __name__ == "__main__":
    print(measure(sys.argv[1], int(sys.argv[2]), sys.argv[3]))
