"""What each process of the parallel tests does.

``torchrun`` runs this file as a script, with gloo on CPUs and NCCL on GPUs:
``torchrun --nproc-per-node 2 tests/parallel_worker.py``.
"""

import copy
import os

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.debug import CommDebugMode
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)

from self_attention import parallel, torch_eager, torch_fused

BATCH, SEQ_LEN, EMBED_DIM, HEADS, HEAD_DIM = 2, 12, 10, 4, 3


def spawn(processes: int, port: int) -> None:
    mp.spawn(_start, (processes, port), nprocs=processes)


def _start(rank: int, processes: int, port: int) -> None:
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port),
                      RANK=str(rank), WORLD_SIZE=str(processes))
    torch.set_num_threads(1)
    main("cpu")


def main(device: str) -> None:
    dist.init_process_group("nccl" if device == "cuda" else "gloo")
    try:
        for dtype, atol in ((torch.float64, 1e-12), (torch.float32, 1e-6)):
            check_heads(device, dtype, atol)
            check_sequence(device, dtype, atol)
        check_packed_rows(device)
        check_communication(device)
        check_refusals(device)
    finally:
        dist.destroy_process_group()


def close(got: torch.Tensor, wanted: torch.Tensor, atol: float) -> None:
    torch.testing.assert_close(got, wanted, rtol=0, atol=atol)


def random(shape: tuple[int, ...], seed: int, device: str,
           dtype: torch.dtype) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator,
                       dtype=torch.float64).to(device, dtype)


def make(module: object, device: str, dtype: torch.dtype,
         bias: bool = True) -> torch.nn.Module:
    """The same layer on every process."""
    layer = module.MultiHeadSelfAttention(
        EMBED_DIM, HEADS, head_dim=HEAD_DIM, bias=bias, device=device,
        dtype=dtype)
    with torch.no_grad():
        for seed, parameter in enumerate(layer.parameters()):
            parameter.copy_(
                random(parameter.shape, seed, device, dtype) / 3)
    return layer


def check_heads(device: str, dtype: torch.dtype, atol: float) -> None:
    mesh = init_device_mesh(device, (dist.get_world_size(),))
    mask = torch_eager.causal_mask(SEQ_LEN, device=device)
    for module in (torch_eager, torch_fused):
        layer = make(module, device, dtype)
        shard = parallel.shard_heads(layer, mesh)
        x = random((BATCH, SEQ_LEN, EMBED_DIM), 7, device, dtype)
        grad = random(x.shape, 8, device, dtype)
        inputs = [x.clone().requires_grad_() for _ in range(2)]
        wanted = layer(inputs[0], mask)
        got = shard(inputs[1], mask)
        close(got, wanted, atol)
        wanted.backward(grad)
        got.backward(grad)
        close(inputs[1].grad, inputs[0].grad, 10 * atol)
        whole = dict(layer.named_parameters())
        for name, parameter in shard.named_parameters():
            grad_whole = whole[name].grad
            if name.startswith("W_qkv"):
                grad_whole = parallel.regroup_rows(grad_whole,
                                                   dist.get_world_size())
            close(parameter.grad.full_tensor(), grad_whole, 10 * atol)


def check_sequence(device: str, dtype: torch.dtype, atol: float) -> None:
    rank, parts = dist.get_rank(), dist.get_world_size()
    shape = (BATCH, HEADS, SEQ_LEN, HEAD_DIM)
    whole = [random(shape, seed, device, dtype) for seed in range(4)]
    here = slice(rank * SEQ_LEN // parts, (rank + 1) * SEQ_LEN // parts)
    for attend in (parallel.ring_attention, parallel.all_to_all_attention):
        for is_causal in (False, True):
            single = [t.clone().requires_grad_() for t in whole[:3]]
            wanted = torch_fused.scaled_dot_product_attention(
                *single, is_causal=is_causal)
            wanted.backward(whole[3])
            sliced = [t[:, :, here].clone().requires_grad_()
                      for t in whole[:3]]
            got = attend(*sliced, is_causal=is_causal)
            close(got, wanted[:, :, here], atol)
            got.backward(whole[3][:, :, here])
            for ours, theirs in zip(sliced, single):
                close(ours.grad, theirs.grad[:, :, here], 10 * atol)


def check_packed_rows(device: str) -> None:
    """Cut a packed projection without regrouping: no error, wrong numbers."""
    mesh = init_device_mesh(device, (dist.get_world_size(),))
    layer = make(torch_fused, device, torch.float64)
    naive = copy.deepcopy(layer)
    naive.num_heads //= mesh.size()
    naive = parallelize_module(naive, mesh, {"W_qkv": ColwiseParallel(),
                                             "W_o": RowwiseParallel()})
    x = random((BATCH, SEQ_LEN, EMBED_DIM), 7, device, torch.float64)
    wanted = layer(x)
    wrong = naive(x)
    assert wrong.shape == wanted.shape
    assert (wrong - wanted).abs().max() > 0.05


def check_communication(device: str) -> None:
    """One all-reduce forward, and nothing else."""
    mesh = init_device_mesh(device, (dist.get_world_size(),))
    shard = parallel.shard_heads(make(torch_eager, device, torch.float32),
                                 mesh)
    x = random((BATCH, SEQ_LEN, EMBED_DIM), 7, device, torch.float32)
    with CommDebugMode() as counted:
        shard(x)
    counts = {str(kind): n for kind, n in counted.get_comm_counts().items()}
    assert sum(counts.values()) == 1, counts
    assert "all_reduce" in next(iter(counts)), counts


def check_refusals(device: str) -> None:
    mesh = init_device_mesh(device, (dist.get_world_size(),))
    layer = torch_eager.MultiHeadSelfAttention(9, 3, device=device)
    for call in (lambda: parallel.shard_heads(layer, mesh),
                 lambda: parallel.all_to_all_attention(
                     *[torch.zeros(1, 3, 2, 3, device=device)] * 3)):
        with pytest.raises(ValueError, match="num_heads=3 is not divisible"):
            call()


if __name__ == "__main__":
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        main("cuda")
    else:
        main("cpu")
    print(f"rank {os.environ['RANK']}: equal to one process")
