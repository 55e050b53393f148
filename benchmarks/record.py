"""The record: medians of turns, where they come from, and one JSON file.

While a run goes on, what is finished stands in a file under ``_build``;
``run.py`` puts it in the place of the committed record at the end.
"""

import datetime
import importlib.metadata
import json
import os
import platform
import statistics
import subprocess
from collections.abc import Iterable
from pathlib import Path

from cells import HEADS, PARTS, WIDTH, Cell

ROOT = Path(__file__).resolve().parents[1]
RECORD = ROOT / "chapters" / "data" / "kernels_record.json"


def read(path: Path) -> dict:
    """Read a record."""
    return json.loads(path.read_text("utf8"))


def write(path: Path, record: dict) -> None:
    """Write a record; whoever stops the run finds the last whole one."""
    record["provenance"]["load_at_end"] = load()
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_suffix(".new")
    new.write_text(json.dumps(record, indent=1) + "\n", "utf8")
    new.replace(path)


def empty() -> dict:
    """Give a record of nothing yet."""
    return {"provenance": provenance(), "limit": {}, "times": [],
            "memory": []}


def without(record: dict, parts: Iterable[str],
            cells: Iterable[Cell]) -> dict:
    """Take out what is going to be measured again."""
    for part in {"limit", "memory"} & set(parts):
        record[part].clear()
    record["times"] = [one for one in record["times"]
                       if not any(is_of(one, cell) for cell in cells)]
    return record


def is_of(entry: dict, cell: Cell) -> bool:
    """Whether an entry of the record is that of a cell."""
    return cell.entry().items() <= entry.items()


def has(record: dict, cell: Cell) -> bool:
    """Whether a cell was measured."""
    return any(is_of(one, cell) for one in record["times"])


def merge(took: dict[str, list[tuple[float, float]]],
          errors: dict[str, float]) -> dict[str, dict]:
    """Give medians and quartiles of the turns, in milliseconds.

    Args:
        took: For each variant the seconds of a call by the cell's clock
            and by that on the wall, one pair for each of its turns.
        errors: The largest difference from float64, where it is known.
    """
    results = {}
    for name, pairs in took.items():
        times, wall = ([1e3 * one for one in both] for both in zip(*pairs))
        low, middle, high = statistics.quantiles(times, n=4)
        results[name] = {
            "median_ms": round(middle, 4),
            "quartiles_ms": [round(low, 4), round(high, 4)],
            "fastest_ms": round(min(times), 4),
            "wall_ms": round(statistics.median(wall), 4),
            "rounds": len(times)}
        if name in errors:
            results[name]["error"] = errors[name]
    return results


def finished(record: dict) -> dict:
    """Sort the cells as a whole run measures them, and say what they are."""
    order = [cell for cells in PARTS.values() for cell in cells]
    record["times"].sort(key=lambda one: next(
        (i for i, cell in enumerate(order) if is_of(one, cell)), len(order)))
    record["provenance"]["note"] = note(record)
    return record


def note(record: dict) -> str:
    """Say what was measured by which clock, and how busy the machine was."""
    commits = sorted({one["commit"]
                      for one in record["times"] + record["memory"]})
    loads = [one["load"] for one in record["times"] if one["load"] is not None]
    busy = (f" The load, the number of programs that wanted the cores, was "
            f"{min(loads)} to {max(loads)}." if loads else "")
    return (f"CPU time with one thread, wall time with two. Measured at "
            f"{', '.join(commits)}.{busy}")


# --- where the numbers come from ---------------------------------------------

def provenance() -> dict:
    """Give the machine, the versions and the commit."""
    import torch

    from self_attention import torch_fused
    model, flags = processor()
    return {"date": datetime.date.today().isoformat(), "processor": model,
            "command": "make bench ALL=1", "commit": commit(),
            "vector_units": [unit for unit in ("avx2", "avx512f",
                                               "avx512_bf16")
                             if unit in flags],
            "cores": os.cpu_count(), "load_at_start": load(),
            "versions": {"python": platform.python_version()} | {
                name: version(name) for name in
                ("numpy", "torch", "transformers", "keras", "jax")},
            "native_bfloat16": torch_fused.NATIVE_HALF[torch.bfloat16],
            "width": WIDTH, "heads": HEADS}


def is_comparable(record: dict) -> bool:
    """Whether what is measured here and now may stand beside the record."""
    here = provenance()
    return all(record["provenance"][name] == here[name]
               for name in ("processor", "cores", "versions"))


def processor() -> tuple[str, list[str]]:
    """Name the processor and its flags, where Linux tells them."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    found = {}
    for line in lines:
        name, _, value = line.partition(":")
        found.setdefault(name.strip(), value.strip())
    return (found.get("model name", platform.processor()),
            found.get("flags", "").split())


def version(package: str) -> str | None:
    """Give the version of a package; None if it is not there."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def commit() -> str:
    """Name the commit, and say where the code is no longer what it holds."""
    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=ROOT, capture_output=True,
                              text=True, check=False).stdout.strip()
    changed = git("status", "--porcelain", "--", "src", "benchmarks")
    return git("rev-parse", "--short", "HEAD") + (
        " with changes" if changed else "")


def load() -> float:
    """Give the average number of programs that wanted a core, of late."""
    return round(os.getloadavg()[0], 1)
