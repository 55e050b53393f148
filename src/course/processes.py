"""A layer on two real processes, for the chapter on many machines.

``start(2)``, or ``torchrun --nproc-per-node 2 -m course.processes``, starts
them. Each makes the same layer, takes its share of the heads, and compares
with the whole.
This module imports PyTorch; nothing else of ``course`` imports it.
"""

import subprocess
import sys

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.debug import CommDebugMode

from self_attention import parallel, torch_eager, torch_fused


def start(processes: int) -> str:
    """Start the processes on this machine, and wait for what they say.

    Args:
        processes: How many; they share the 8 heads and 16 tokens evenly.

    Returns:
        What the first process printed.

    Raises:
        RuntimeError: A process failed; the message holds what it printed.
    """
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone",
               "--nproc-per-node", str(processes), "-m", "course.processes"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=110)
    if run.returncode:
        raise RuntimeError(run.stderr)
    return run.stdout


def main() -> None:
    """Compare one process with several, for each way to cut."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    try:
        report(by_heads(), by_sequence())
    finally:
        dist.destroy_process_group()


def by_heads() -> list[str]:
    """Cut a layer by heads; say what differs and what was sent."""
    _ = torch.manual_seed(0)
    layer = torch_eager.MultiHeadSelfAttention(64, 8, dtype=torch.float64)
    x = torch.randn(2, 16, 64, dtype=torch.float64)
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    shard = parallel.shard_heads(layer, mesh)
    with CommDebugMode() as sent:
        output = shard(x)
    difference = float((output - layer(x)).abs().max())
    calls = sum(sent.get_comm_counts().values())
    return [f"heads of each process: {shard.num_heads}",
            f"messages in the forward pass: {calls} (an all-reduce)",
            f"by heads, equal to one process: {difference < 1e-12}"]


def by_sequence() -> list[str]:
    """Cut a sequence into slices; say whether the output is the same."""
    _ = torch.manual_seed(1)
    query, key, value = torch.randn(3, 1, 4, 16, 8, dtype=torch.float64)
    whole = torch_fused.scaled_dot_product_attention(query, key, value,
                                                     is_causal=True)
    rank, parts = dist.get_rank(), dist.get_world_size()
    here = slice(16 * rank // parts, 16 * (rank + 1) // parts)
    found = []
    for name, attend in (("ring", parallel.ring_attention),
                         ("all-to-all", parallel.all_to_all_attention)):
        output = attend(query[:, :, here], key[:, :, here],
                        value[:, :, here], is_causal=True)
        difference = float((output - whole[:, :, here]).abs().max())
        found.append(f"{name}, equal to one process: {difference < 1e-12}")
    return found


def report(*parts: list[str]) -> None:
    """Print once, from the first process."""
    if dist.get_rank() == 0:
        print("\n".join(line for part in parts for line in part))


if __name__ == "__main__":
    main()
