"""Time every variant beside its peers, and write the record.

``make bench ALL=1`` runs this; on a quiet machine with two cores it takes
about sixteen minutes. One process of pytest measures with one thread, another
one with two, and memory has fresh processes. A peer that is not installed is
left out, and the record says so; ALL=1 installs them.

What is finished is kept in ``_build/bench``, beside the raw data of
pytest-benchmark. When all of it is, it becomes the record that the chapters
read. After a stop, ``--resume`` goes on.
"""

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

import memory
import record
from cells import LONGEST, PACKAGE, PARTS, chosen, is_installed

WORK = record.ROOT / "_build" / "bench"


def environment(threads: int) -> dict[str, str]:
    """Give what libraries read when they are loaded."""
    # What a user told BLAS about the processor; it decides by itself.
    kept = {name: value for name, value in os.environ.items()
            if name not in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")}
    kept |= {"OMP_NUM_THREADS": f"{threads}", "MKL_NUM_THREADS": f"{threads}",
             "OPENBLAS_NUM_THREADS": f"{threads}", "KERAS_BACKEND": "torch"}
    if threads == 1:
        kept["XLA_FLAGS"] = ("--xla_cpu_multi_thread_eigen=false "
                             "intra_op_parallelism_threads=1")
    return kept


def time_all(threads: int, path: Path, told: list[str]) -> int:
    """Run the turns in a process of pytest; give its exit status."""
    raw = path.with_suffix(f".{threads}-threads.{time.time():.0f}.json")
    return subprocess.run(
        [sys.executable, "-m", "pytest", "benchmarks/bench_kernels.py",
         "-q", "-s", "--no-header", "-x", "-rf", "-W", "ignore",
         "--benchmark-quiet", "--benchmark-disable-gc",
         f"--benchmark-json={raw}", f"--record={path}", *told],
        cwd=record.ROOT, env=environment(threads)).returncode


def measure_memory(path: Path) -> None:
    """Add the peaks to the record, one after the other."""
    kept = record.read(path)
    for entry in memory.entries(kept["memory"], environment(1)):
        kept["memory"].append(entry)
        record.write(path, kept)
        print(f"memory-{entry['pass']}-{entry['name']}, MiB:",
              entry["peak_mib"], flush=True)


def start(given: argparse.Namespace, path: Path) -> None:
    """Write the record that this run will fill."""
    is_whole = set(given.parts) == set(PARTS) and given.longest >= LONGEST
    if given.resume:
        if not path.exists():
            sys.exit("There is no run to go on with.")
        kept = record.read(path)
    elif is_whole or not given.record.exists():
        kept = record.empty()
    else:
        kept = record.without(record.read(given.record), given.parts,
                              chosen(given.parts, given.longest))
    if not record.is_comparable(kept):
        sys.exit("What is there was measured on another machine or with other "
                 "versions: measure all parts.")
    record.write(path, kept)


def main(given: argparse.Namespace) -> int:
    """Measure; give the exit status."""
    path = WORK / given.record.name
    start(given, path)
    missing = sorted({package for package in PACKAGE.values()
                      if not is_installed(package)})
    if missing:
        print(f"Left out, not installed: {', '.join(missing)} "
              "(ALL=1 installs them)", flush=True)
    told = ["--parts", *given.parts, f"--seconds={given.seconds}",
            f"--longest={given.longest}"]
    threads = {cell.threads for cell in chosen(given.parts, given.longest)}
    if "limit" in given.parts:
        threads.add(1)
    try:
        # pytest says 5 where a run goes on that had finished this.
        stopped = any(time_all(number, path, told) not in (0, 5)
                      for number in sorted(threads))
        if not stopped and "memory" in given.parts:
            measure_memory(path)
    except KeyboardInterrupt:
        stopped = True
    if stopped:
        print(f"Not finished: what was measured is kept in {path}; the same "
              "with --resume goes on.", file=sys.stderr)
        return 1
    record.write(given.record, record.finished(record.read(path)))
    print(f"Written: {given.record}")
    return 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--parts", nargs="+", default=list(PARTS),
                        choices=PARTS, help="measure these again")
    parser.add_argument("--longest", type=int, default=LONGEST,
                        help="leave out longer sequences")
    parser.add_argument("--seconds", type=float, default=10,
                        help="CPU seconds for each cell, about")
    parser.add_argument("--record", type=Path, default=record.RECORD)
    parser.add_argument("--resume", action="store_true",
                        help="go on where the last run was stopped")
    sys.exit(main(parser.parse_args()))
