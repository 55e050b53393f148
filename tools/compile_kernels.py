"""Compile the Triton kernels for a Hopper GPU, without one, and report.

Usage: python tools/compile_kernels.py [--record]

Prints the registers, spilled bytes and shared memory of every kernel, dtype
and width of a head, and fails if one would not fit the chip. ``--record``
writes them to chapters/data/triton_record.json, which chapter 15 shows.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

os.environ["TRITON_INTERPRET"] = "0"

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from self_attention import triton_kernel

RECORD = (Path(__file__).resolve().parents[1] / "chapters" / "data"
          / "triton_record.json")
TARGET = GPUTarget("cuda", 90, 32)
#: Of one thread block on compute capability 9.0 (CUDA programming guide).
SHARED_LIMIT, REGISTER_LIMIT = 232_448, 255
DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16,
          "fp32": torch.float32}
KERNELS = (triton_kernel.forward_kernel, triton_kernel.grad_key_value_kernel,
           triton_kernel.grad_query_kernel)
FLOATS = ("log_sum", "inner")
INTEGERS = ("num_heads", "query_len", "key_len")


def compiled(kernel: object, dtype: str, head_dim: int) -> object:
    """Compile one kernel as a launch with these types would."""
    tile = triton_kernel.tile_rows(DTYPES[dtype])
    constants = {"IS_CAUSAL": True, "HAS_PADDING": True, "D": head_dim,
                 "Q_TILE": tile, "K_TILE": tile}
    signature, attributes = {}, {}
    for place, name in enumerate(kernel.arg_names):
        if name in constants:
            signature[name] = "constexpr"
        elif name in INTEGERS:
            signature[name] = "i32"
        elif name == "scale":
            signature[name] = "fp32"
        else:
            kind = ("fp32" if name in FLOATS
                    else "i8" if name == "real" else dtype)
            signature[name] = f"*{kind}"
            # Tensors start at multiples of 16 bytes; so does the JIT assume.
            attributes[(place,)] = [["tt.divisibility", 16]]
    source = ASTSource(kernel, signature, constants, attributes)
    return triton.compile(source, target=TARGET, options={
        "num_warps": triton_kernel.WARPS, "num_stages": triton_kernel.STAGES})


def usage(program: object) -> dict[str, int]:
    """Read registers and spills off the machine code."""
    binary = (Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
              / "cuobjdump")
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(program.asm["cubin"])
        file.flush()
        text = subprocess.run([str(binary), "-res-usage", file.name],
                              capture_output=True, text=True).stdout
    found = {name: int(number)
             for name, number in re.findall(r"(REG|STACK):(\d+)", text)}
    return {"registers": found["REG"], "spills": found["STACK"],
            "shared": program.metadata.shared,
            "tensor cores": "wgmma" in program.asm["ptx"]
            or "mma.sync" in program.asm["ptx"]}


def main(record: bool) -> int:
    """Compile all; give the number of kernels that would not fit."""
    rows, misfits = [], 0
    for kernel in KERNELS:
        for dtype in DTYPES:
            for head_dim in (64, 128):
                row = usage(compiled(kernel, dtype, head_dim))
                fits = (row["shared"] <= SHARED_LIMIT
                        and row["registers"] <= REGISTER_LIMIT)
                misfits += not fits
                name = kernel.__name__
                tile = triton_kernel.tile_rows(DTYPES[dtype])
                rows.append({"kernel": name, "dtype": dtype,
                             "head_dim": head_dim, "tile": tile, **row})
                print(f"{name:22} {dtype} {head_dim:4} "
                      f"registers {row['registers']:4} spills "
                      f"{row['spills']:4} shared {row['shared']:7} "
                      f"{'fits' if fits else 'DOES NOT FIT'}")
    if record:
        RECORD.write_text(json.dumps({
            "what": "Kernels compiled for compute capability 9.0, causal "
                    "with padding; nothing was run on a GPU",
            "versions": {"triton": triton.__version__,
                         "torch": torch.__version__.partition("+")[0]},
            "warps": triton_kernel.WARPS, "stages": triton_kernel.STAGES,
            "limits": {"shared": SHARED_LIMIT, "registers": REGISTER_LIMIT},
            "rows": rows}, indent=1) + "\n")
    return misfits


if __name__ == "__main__":
    sys.exit(main("--record" in sys.argv))
