"""The Triton kernels: right in the interpreter, and they compile for Hopper.

``make gpu`` runs them on a real GPU; here there may be none.
"""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from self_attention import numpy_reference, torch_eager

ROOT = Path(__file__).resolve().parents[2]

pytestmark = [
    pytest.mark.peer, pytest.mark.filterwarnings("default"),
    pytest.mark.skipif(importlib.util.find_spec("triton") is None,
                       reason="triton is not installed (make test ALL=1 "
                              "does it)")]

#: Half precision is judged against eager in the same dtype, as elsewhere.
ATOL = {torch.float32: 2e-6, torch.float16: 4e-3, torch.bfloat16: 3e-2}
SHAPES = {"square": (19, 19), "fewer queries": (5, 21),
          "more queries": (18, 7), "one": (1, 1)}


@pytest.fixture(scope="module")
def kernel():
    os.environ["TRITON_INTERPRET"] = "1"
    from self_attention import triton_kernel

    if not triton_kernel._INTERPRETED:
        pytest.skip("triton_kernel was imported without the interpreter")
    return triton_kernel


def draw(query_len, key_len, dtype, head_dim=16):
    generator = torch.Generator().manual_seed(query_len + 31 * key_len)
    shapes = [(2, 2, n, head_dim)
              for n in (query_len, key_len, key_len, query_len)]
    return [torch.randn(shape, generator=generator).to(dtype)
            for shape in shapes]


@pytest.mark.parametrize("padded", [False, True], ids=["", "padding"])
@pytest.mark.parametrize("is_causal", [False, True], ids=["", "causal"])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", ATOL, ids=str)
def test_same_numbers_and_gradients(kernel, dtype, shape, is_causal, padded):
    query_len, key_len = SHAPES[shape]
    *inputs, grad = draw(query_len, key_len, dtype)
    padding = torch_eager.padding_mask([max(key_len - 2, 0), 0], key_len)
    padding = padding if padded else None
    corner = torch_eager.causal_mask(query_len, key_len)
    mask = torch_eager.combine_masks(padding, corner if is_causal else None)

    exact = [t.double().requires_grad_() for t in inputs]
    wanted = torch_eager.scaled_dot_product_attention(*exact, mask)
    wanted.backward(grad.double())
    given = [t.clone().requires_grad_() for t in inputs]
    got = kernel.scaled_dot_product_attention(*given, padding,
                                              is_causal=is_causal)
    got.backward(grad)
    assert got.dtype == dtype
    torch.testing.assert_close(got.double(), wanted, rtol=0, atol=ATOL[dtype])
    for ours, theirs in zip(given, exact):
        torch.testing.assert_close(ours.grad.double(), theirs.grad, rtol=0,
                                   atol=4 * ATOL[dtype])


def test_same_numbers_as_numpy(kernel):
    query, key, value, _ = draw(19, 19, torch.float32, head_dim=32)
    wanted = numpy_reference.scaled_dot_product_attention(
        *(t.double().numpy() for t in (query, key, value)), scale=0.3)
    got = kernel.scaled_dot_product_attention(query, key, value, scale=0.3)
    np.testing.assert_allclose(got, wanted, rtol=0, atol=2e-6)


def test_padding_may_hold_nan(kernel):
    query, key, value, _ = draw(5, 7, torch.float32)
    mask = torch_eager.padding_mask([4, 7], 7)
    wanted = kernel.scaled_dot_product_attention(query, key, value, mask)
    key[0, :, 4:], value[0, :, 4:] = float("nan"), float("nan")
    got = kernel.scaled_dot_product_attention(query, key, value, mask)
    torch.testing.assert_close(got, wanted, rtol=0, atol=0)


@pytest.mark.parametrize(("change", "error", "message"), [
    (lambda q, k, v: (q[..., :7], k[..., :7], v[..., :7]), ValueError,
     r"head_dim=7 must be one of"),
    (lambda q, k, v: (q, k.double(), v), TypeError, r"dtypes"),
    (lambda q, k, v: (q, k[:, :, :3], v), ValueError, r"value has shape"),
    (lambda q, k, v: (q.double(), k.double(), v.double()), TypeError,
     r"must share one of"),
    (lambda q, k, v: (q, k, v, torch_eager.causal_mask(5, 7)), ValueError,
     r"attention_mask has shape \(5, 7\)"),
])
def test_wrong_calls_are_refused(kernel, change, error, message):
    query, key, value, _ = draw(5, 7, torch.float32)
    with pytest.raises(error, match=message):
        kernel.scaled_dot_product_attention(*change(query, key, value))


def test_traps_of_the_interpreter_are_as_told(kernel):
    """Chapter 15 tells of them; ``dot`` and ATOL are there because of them."""
    from interpreted import multiply, to_bfloat16

    one, product = torch.eye(16).bfloat16(), torch.empty(16, 16)
    multiply[(1,)](one, one, product, N=16)
    assert torch.equal(product, 264_257_536 * torch.eye(16))
    numbers = torch.randn(1024)
    cut = torch.empty(1024, dtype=torch.bfloat16)
    to_bfloat16[(1,)](numbers, cut, N=1024)
    assert (cut.float().abs() <= numbers.abs()).all()
    assert not torch.equal(cut, numbers.bfloat16())


def test_kernels_compile_for_hopper():
    """Registers, spills and shared memory, without a GPU."""
    environment = {**os.environ, "TRITON_INTERPRET": "0"}
    run = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "compile_kernels.py")],
        capture_output=True, text=True, env=environment, timeout=500)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "spills" in run.stdout
