# ruff: noqa: D102, D103, E402
"""Time every variant beside its peers, in turns, and write a record.

``make bench`` runs this; on a quiet machine it takes about ten minutes. The
variants of a cell run in turns (A B C, A B C, ...), so that a slow minute hits
all of them; the median of the rounds is kept, with its quartiles, in CPU time
and in wall time. CPU time with one thread is what to compare: other programs
on the machine disturb it little. The turns are made here and not with
pytest-benchmark, which finishes one function before it begins the next, and on
a shared machine so compares two minutes and not two programs.

Memory is the peak of a fresh process for each number. A peer that is not
installed, or a cell that would take too long, is left out, and the record
says so.
"""

import argparse
import datetime
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from pathlib import Path

# Libraries read these when they are loaded.
THREADS = 2 if "--two-threads" in sys.argv else 1
os.environ.update({"OMP_NUM_THREADS": f"{THREADS}",
                   "OPENBLAS_NUM_THREADS": f"{THREADS}",
                   "MKL_NUM_THREADS": f"{THREADS}", "KERAS_BACKEND": "torch"})
if THREADS == 1:
    os.environ["XLA_FLAGS"] = ("--xla_cpu_multi_thread_eigen=false "
                               "intra_op_parallelism_threads=1")
for name in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE"):  # let BLAS decide
    os.environ.pop(name, None)

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from self_attention import (
    numpy_reference,
    numpy_tiled,
    torch_eager,
    torch_fused,
    torch_tiled,
)

WIDTH, HEADS = 512, 8
HEAD_DIM = WIDTH // HEADS
SIZES = [(1, 16), (8, 128), (4, 512), (1, 2048), (1, 8192)]
PADDED = [(4, 512), (2, 2048)]
PARTS = ["float32", "bfloat16", "masked", "two threads", "memory"]
ROOT = Path(__file__).resolve().parents[1]
RECORD = ROOT / "chapters" / "data" / "kernels_record.json"
#: Those that keep up at the largest sizes, and are worth the time there.
LEADERS = ("numpy_tiled", "torch_fused", "SDPA packed", "BERT sdpa")
SQUARE = ("numpy_reference", "torch_eager", "nn.MHA fast path",
          "nn.MHA with weights", "BERT eager", "JAX")


def arrays() -> dict[str, np.ndarray]:
    layer = numpy_reference.MultiHeadSelfAttention(
        WIDTH, HEADS, bias=True, dtype=np.float32,
        rng=np.random.default_rng(0))
    return layer.parameter_arrays()


class Packed(nn.Module):
    """SDPA with one packed projection and nothing around it: the yardstick."""

    def __init__(self, weights: dict[str, np.ndarray]) -> None:
        super().__init__()
        self.layer = torch_fused.MultiHeadSelfAttention(
            WIDTH, HEADS, bias=True)
        self.layer.load_parameter_arrays(weights)

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None,
                is_causal: bool = False) -> torch.Tensor:
        batch, length, _ = x.shape
        query, key, value = self.layer.W_qkv(x).view(
            batch, length, 3, HEADS, HEAD_DIM).permute(2, 0, 3, 1, 4)
        heads = F.scaled_dot_product_attention(
            query, key, value, attn_mask=mask, is_causal=is_causal)
        return self.layer.W_o(heads.transpose(1, 2).flatten(2))


def library_layer(weights: dict[str, np.ndarray]) -> nn.MultiheadAttention:
    layer = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)
    with torch.no_grad():
        layer.in_proj_weight.copy_(torch.tensor(np.hstack(
            [weights[f"W_{n}"] for n in "qkv"]).T.copy()))
        layer.out_proj.weight.copy_(torch.tensor(weights["W_o"].T.copy()))
    return layer


def bert(weights: dict[str, np.ndarray], kind: str) -> nn.Module:
    from transformers import BertConfig
    from transformers.models.bert.modeling_bert import BertSelfAttention
    config = BertConfig(hidden_size=WIDTH, num_attention_heads=HEADS,
                        attention_probs_dropout_prob=0.0)
    config._attn_implementation = kind
    core, out = BertSelfAttention(config), nn.Linear(WIDTH, WIDTH)
    with torch.no_grad():
        for n, linear in (("q", core.query), ("k", core.key),
                          ("v", core.value), ("o", out)):
            linear.weight.copy_(torch.tensor(weights[f"W_{n}"].T.copy()))
            linear.bias.zero_()

    class Bert(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.core, self.out = core, out

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.out(self.core(x)[0])

    return Bert()


def keras_layer(weights: dict[str, np.ndarray]) -> nn.Module:
    import keras
    layer = keras.layers.MultiHeadAttention(HEADS, HEAD_DIM)
    layer.build((1, 4, WIDTH), (1, 4, WIDTH))
    inward = (WIDTH, HEADS, HEAD_DIM)
    for n, dense in (("q", layer.query_dense), ("k", layer.key_dense),
                     ("v", layer.value_dense)):
        dense.set_weights([weights[f"W_{n}"].reshape(inward),
                           np.zeros((HEADS, HEAD_DIM), np.float32)])
    layer.output_dense.set_weights([
        weights["W_o"].reshape(HEADS, HEAD_DIM, WIDTH),
        np.zeros(WIDTH, np.float32)])

    class Keras(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = layer

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layer(x, x)

    return Keras()


def jax_runs(weights, x, grad, with_backward):
    import jax
    import jax.numpy as jnp
    packed = jnp.asarray(np.hstack([weights[f"W_{n}"] for n in "qkv"]))
    out = jnp.asarray(weights["W_o"])

    def layer(x, packed, out):
        batch, length, _ = x.shape
        query, key, value = jnp.moveaxis((x @ packed).reshape(
            batch, length, 3, HEADS, HEAD_DIM), 2, 0)
        heads = jax.nn.dot_product_attention(query, key, value)
        return heads.reshape(batch, length, WIDTH) @ out

    x, grad = jnp.asarray(x), jnp.asarray(grad)
    if with_backward:
        run = jax.jit(lambda *a: jax.vjp(layer, *a)[1](grad))
        return lambda: np.asarray(run(x, packed, out)[0].block_until_ready())
    run = jax.jit(layer)
    return lambda: np.asarray(run(x, packed, out).block_until_ready())


def torch_runs(module, x, grad, with_backward, dtype, call=None):
    module = module.to(dtype)
    call = module if call is None else call
    tensor = torch.from_numpy(x).to(dtype)
    grad = torch.from_numpy(grad).to(dtype)

    def forward():
        with torch.inference_mode():
            return call(tensor)

    def both():
        leaf = tensor.clone().requires_grad_()
        call(leaf).backward(grad)
        for parameter in module.parameters():
            parameter.grad = None
        return leaf.grad

    return both if with_backward else forward


def numpy_runs(layer, x, grad, with_backward):
    if not with_backward:
        return lambda: layer(x)
    if hasattr(layer, "forward"):
        def both():
            _, kept = layer.forward(x)
            return layer.backward(x, grad, kept=kept)[0]
        return both
    return lambda: layer.backward(x, grad)[0]


def candidates(batch, length, with_backward, dtype="float32", names=None):
    """Give what can be called, by name, and why some names are missing."""
    weights, missing = arrays(), {}
    rng = np.random.default_rng(1)
    x, grad = rng.standard_normal((2, batch, length, WIDTH)).astype("f4")
    kind = getattr(torch, dtype)
    runs = {}

    def library(train, with_weights):
        layer = library_layer(weights).train(train or with_backward)
        return layer, lambda t: layer(t, t, t, need_weights=with_weights)[0]

    def add_torch(name, make):
        def build():
            made = make()
            module, call = made if isinstance(made, tuple) else (made, None)
            return torch_runs(module, x, grad, with_backward, kind, call)
        builders[name] = build

    def ours(module):
        layer = module.MultiHeadSelfAttention(WIDTH, HEADS, bias=True)
        layer.load_parameter_arrays(weights)
        return layer

    def ours_numpy(module):
        layer = module.MultiHeadSelfAttention(
            WIDTH, HEADS, bias=True, dtype=np.float32)
        layer.load_parameter_arrays(weights)
        return numpy_runs(layer, x, grad, with_backward)

    builders = {}
    if dtype == "float32":
        builders["numpy_reference"] = lambda: ours_numpy(numpy_reference)
        builders["numpy_tiled"] = lambda: ours_numpy(numpy_tiled)
    add_torch("torch_eager", lambda: ours(torch_eager))
    # The same weights in the same place: at 16 tokens it matters where.
    packed = Packed(weights)
    add_torch("torch_fused", lambda: packed.layer)
    add_torch("torch_tiled", lambda: ours(torch_tiled))
    add_torch("SDPA packed", lambda: packed)
    if not with_backward:
        add_torch("nn.MHA fast path", lambda: library(False, False))
    add_torch("nn.MHA", lambda: library(True, False))
    add_torch("nn.MHA with weights", lambda: library(True, True))
    add_torch("BERT eager", lambda: bert(weights, "eager").eval())
    add_torch("BERT sdpa", lambda: bert(weights, "sdpa").eval())
    if dtype == "float32":
        add_torch("Keras", lambda: keras_layer(weights))
        builders["JAX"] = lambda: jax_runs(weights, x, grad, with_backward)
    for name, build in builders.items():
        if names is not None and name not in names:
            continue
        if name in SQUARE and length > 4096:
            missing[name] = "stores every score: too large"
            continue
        if length > 4096 and names is None and name not in LEADERS:
            missing[name] = "left out: it would take too long"
            continue
        try:
            runs[name] = build()
        except ImportError as error:
            missing[name] = f"not installed: {error.name}"
    return runs, missing


def masked_candidates(batch, length, is_causal):
    """Padded or causal batches: lengths from n/8 to 7n/8."""
    weights = arrays()
    x = np.random.default_rng(1).standard_normal(
        (batch, length, WIDTH)).astype("f4")
    tensor = torch.from_numpy(x)
    lengths = np.linspace(length / 8, 7 * length / 8, batch).astype(int)
    mask = numpy_reference.padding_mask(lengths, length)
    how = {}
    if is_causal:
        mask, how = None, {"is_causal": True}
    torch_mask = None if mask is None else torch.from_numpy(mask)
    tiled = numpy_tiled.MultiHeadSelfAttention(WIDTH, HEADS, bias=True,
                                               dtype=np.float32)
    tiled.load_parameter_arrays(weights)
    runs = {"numpy_tiled": lambda: tiled(x, mask, **how)}
    packed = Packed(weights)
    layers = {"torch_fused": torch_fused, "torch_tiled": torch_tiled}
    library = library_layer(weights).train()
    for name, module in layers.items():
        layer = module.MultiHeadSelfAttention(WIDTH, HEADS, bias=True)
        layer.load_parameter_arrays(weights)
        runs[name] = lambda layer=layer: layer(tensor, torch_mask, **how)
    runs["SDPA packed"] = lambda: packed(tensor, torch_mask, **how)
    corner = ~torch_fused.causal_mask(length)
    hidden = None if is_causal else ~torch_mask[:, 0, 0]
    runs["nn.MHA"] = lambda: library(
        tensor, tensor, tensor, key_padding_mask=hidden,
        attn_mask=corner if is_causal else None, need_weights=False)[0]

    def quiet(run):
        def call():
            with torch.inference_mode():
                return run()
        return call

    return {name: quiet(run) for name, run in runs.items()}


def exact(batch, length):
    """The layer in float64, by the reference, where it is not too large."""
    if length > 2048:
        return None
    layer = numpy_reference.MultiHeadSelfAttention(WIDTH, HEADS, bias=True)
    layer.load_parameter_arrays(
        {k: v.astype(np.float64) for k, v in arrays().items()})
    x = np.random.default_rng(1).standard_normal(
        (2, batch, length, WIDTH)).astype("f4")[0]
    return layer(x.astype(np.float64))


def to_array(value):
    if isinstance(value, torch.Tensor):
        value = value.detach().float().numpy()
    return np.asarray(value, dtype=np.float64)


def timed(run, times=1):
    """CPU and wall seconds of one call."""
    wall, cpu = time.perf_counter(), time.process_time()
    for _ in range(times):
        value = run()
    return ((time.process_time() - cpu) / times,
            (time.perf_counter() - wall) / times, value)


def in_turns(runs, seconds, right=None):
    """Time all runs in turns; medians and quartiles in milliseconds."""
    errors, first = {}, {}
    for name, run in runs.items():
        *first[name], value = timed(run)
        if right is not None:
            errors[name] = float(np.abs(to_array(value) - right).max())
    total = sum(cpu for cpu, _ in first.values())
    # Where one call takes seconds, the first is as good as the others.
    is_long = total > 4
    took = {name: [one] if is_long else [] for name, one in first.items()}
    rounds = 3 if is_long else max(5, min(60, int(seconds / total)))
    while any(len(times) < rounds for times in took.values()):
        for name, run in runs.items():
            times = max(1, int(0.01 / max(first[name][0], 1e-6)))
            took[name].append(timed(run, times)[:2])
    results = {}
    for name, both in took.items():
        cpu, wall = zip(*both)
        low, middle, high = statistics.quantiles(cpu, n=4)
        results[name] = {"median_ms": round(1e3 * middle, 4),
                         "quartiles_ms": [round(1e3 * low, 4),
                                          round(1e3 * high, 4)],
                         "fastest_ms": round(1e3 * min(cpu), 4),
                         "wall_ms": round(1e3 * statistics.median(wall), 4),
                         "rounds": len(cpu)}
        if name in errors:
            results[name]["error"] = errors[name]
    return results


def limit():
    """Operations a second of this machine's matrix products, one thread."""
    def best(run, operations, rounds=15):
        times = []
        run()
        for _ in range(rounds):
            start = time.process_time()
            run()
            times.append(time.process_time() - start)
        return round(operations / min(times) / 1e9, 1)

    square = np.random.default_rng(0).standard_normal(
        (1024, 1024)).astype("f4")
    tensor, out = torch.from_numpy(square), np.empty_like(square)
    query = np.ascontiguousarray(square[:512, :64])
    key = np.ascontiguousarray(square[:256, :64])
    tile, half = np.empty((512, 256), "f4"), tensor.bfloat16()
    return {"unit": "Gflop/s, one thread, best of 15",
            "numpy 1024 x 1024": best(
                lambda: np.matmul(square, square, out=out), 2 * 1024 ** 3),
            "torch 1024 x 1024": best(
                lambda: tensor @ tensor, 2 * 1024 ** 3),
            "torch 1024 x 1024, bfloat16": best(
                lambda: half @ half, 2 * 1024 ** 3, rounds=3),
            "numpy score tile 512 x 64 x 256": best(
                lambda: [np.matmul(query, key.T, out=tile)
                         for _ in range(20)], 20 * 2 * 512 * 64 * 256)}


def operations(batch, length, with_backward):
    once = batch * (8 * length * WIDTH ** 2 + 4 * length ** 2 * WIDTH)
    return once * (3 if with_backward else 1)


def peak_of(name, length, with_backward):
    """Peak memory above the start, in MiB, in a process of its own."""
    code = [sys.executable, __file__, "--memory", name, str(length),
            str(int(with_backward))]
    done = subprocess.run(code, capture_output=True, text=True, check=True)
    lines = done.stdout.split()
    return float(lines[-1])


def status(key):
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(key):
            return int(line.split()[1]) / 1024
    raise KeyError(key)


def measure_memory(name, length, with_backward):
    warm, _ = candidates(1, 64, with_backward, names=[name])
    warm[name]()
    runs, _ = candidates(1, length, with_backward, names=[name])
    Path("/proc/self/clear_refs").write_text("5")  # forget the old peak
    before = status("VmRSS")
    runs[name]()
    print(status("VmHWM") - before)


def provenance():
    model = next((line.partition(":")[2].strip()
                  for line in Path("/proc/cpuinfo").read_text().splitlines()
                  if line.startswith("model name")), platform.processor())
    flags = Path("/proc/cpuinfo").read_text()
    versions = {"python": platform.python_version(),
                "numpy": np.__version__, "torch": torch.__version__}
    for package in ("transformers", "keras", "jax"):
        try:
            versions[package] = __import__(package).__version__
        except ImportError:
            versions[package] = None
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"],
                            cwd=ROOT, capture_output=True, text=True,
                            check=False).stdout.strip()
    return {"date": datetime.date.today().isoformat(), "processor": model,
            "command": "python benchmarks/bench.py", "commit": commit,
            "vector_units": [u for u in ("avx2", "avx512f", "avx512_bf16")
                             if f" {u} " in flags.replace("\n", " ")],
            "cores": os.cpu_count(),
            "load_at_start": os.getloadavg()[0], "versions": versions,
            "native_bfloat16": torch_fused.NATIVE_HALF[torch.bfloat16],
            "width": WIDTH, "heads": HEADS}


def main(seconds, path, parts):
    torch.set_num_threads(THREADS)
    fresh = {"provenance": provenance(), "limit": limit(), "times": [],
             "memory": []}
    # A part that is measured again is added to what is there.
    record = (json.loads(path.read_text())
              if path.exists() and parts != PARTS else fresh)

    def save():
        record["provenance"]["load_at_end"] = os.getloadavg()[0]
        path.write_text(json.dumps(record, indent=1) + "\n")

    def cell(kind, batch, length, dtype, with_backward, runs, missing,
             right=None):
        results = in_turns(runs, seconds, right)
        record["times"].append({
            "kind": kind, "batch": batch, "length": length, "dtype": dtype,
            "pass": "forward and backward" if with_backward else "forward",
            "threads": THREADS, "load": round(os.getloadavg()[0], 1),
            "operations": operations(batch, length, with_backward),
            "results": results, "left_out": missing})
        print(kind, (batch, length), dtype, with_backward, THREADS,
              {n: r["median_ms"] for n, r in results.items()}, flush=True)
        save()

    def plain(dtype):
        for with_backward, (batch, length) in plain_cells(dtype):
            names = NAMES.get(("two threads" if THREADS == 2 else dtype,
                               length > 128))
            runs, missing = candidates(batch, length, with_backward, dtype,
                                       names)
            right = None if with_backward else exact(batch, length)
            cell("plain", batch, length, dtype, with_backward, runs, missing,
                 right)

    if "float32" in parts:
        plain("float32")
    for kind, sizes in (("padded", PADDED), ("causal", [(4, 512), (1, 2048)])):
        for batch, length in sizes if "masked" in parts else ():
            runs = masked_candidates(batch, length, kind == "causal")
            cell(kind, batch, length, "float32", False, runs, {})
    if "memory" in parts:
        for one in memory():
            record["memory"].append(one)
            save()
    if "bfloat16" in parts:
        plain("bfloat16")
    if "two threads" in parts and THREADS == 2:
        plain("float32")
    elif "two threads" in parts:  # in a process of its own
        subprocess.run([sys.executable, __file__, "--two-threads",
                        "--seconds", f"{seconds}", "--record", path,
                        "--parts", "two threads"], check=True)


NAMES = {
    ("bfloat16", False): ("torch_eager", "torch_fused", "SDPA packed",
                          "nn.MHA", "BERT sdpa"),
    ("bfloat16", True): ("torch_fused", "SDPA packed", "BERT sdpa"),
    ("two threads", True): ("numpy_reference", "numpy_tiled", "torch_eager",
                            "torch_fused", "SDPA packed", "BERT sdpa",
                            "Keras", "JAX")}
NAMES["two threads", False] = NAMES["two threads", True]


def plain_cells(dtype):
    """Whether with a backward pass, and the size, of every plain cell.

    Emulated bfloat16 at the largest size would take minutes for one call.
    """
    for size in SIZES:
        if dtype == "float32" or size[1] < 4096:
            yield False, size
            if THREADS == 1:
                yield True, size


def memory():
    """Peak memory of what matters, at two lengths, and how it grows."""
    for with_backward in (False, True):
        for name in ("numpy_reference", "numpy_tiled", "torch_eager",
                     "torch_fused", "torch_tiled", "SDPA packed",
                     "nn.MHA fast path"):
            if with_backward and name == "nn.MHA fast path":
                continue
            # A small peak hides in what the process had already freed.
            lengths = (1024, 4096) if name in SQUARE else (4096, 8192)
            peaks = {n: peak_of(name, n, with_backward) for n in lengths}
            before, last = peaks.values()
            growth = float(np.log(last / before)
                           / np.log(lengths[1] / lengths[0]))
            print(name, with_backward, peaks, growth, flush=True)
            yield {"name": name, "peak_mib": peaks, "growth": growth,
                   "pass": "forward and backward" if with_backward
                   else "forward"}


if __name__ == "__main__":
    if sys.argv[1:2] == ["--memory"]:
        torch.set_num_threads(1)
        measure_memory(sys.argv[2], int(sys.argv[3]), sys.argv[4] == "1")
    else:
        parser = argparse.ArgumentParser(description=__doc__)
        parser.add_argument("--seconds", type=float, default=5,
                            help="CPU seconds for each cell, at least")
        parser.add_argument("--record", type=Path, default=RECORD)
        parser.add_argument("--parts", nargs="+", default=PARTS,
                            choices=PARTS, help="measure these, and add them")
        parser.add_argument("--two-threads", action="store_true",
                            help="a process of its own for that part")
        given = parser.parse_args()
        main(given.seconds, given.record, given.parts)
