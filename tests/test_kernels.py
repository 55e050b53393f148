"""What the fast variants do beside being right: which kernel, what memory."""

import subprocess
import sys

import numpy as np
import pytest
import torch

from masks import causal, padding
from oracles import loop_attention
from self_attention import numpy_tiled, torch_eager, torch_fused, torch_tiled
from tolerances import assert_close, assert_same
from variants import by_name, draw

LONG = torch_fused.SHORTEST_CUT + 3


def scattered(lengths, key_len):
    """Real keys that do not follow each other."""
    mask = padding(lengths, key_len)
    mask[..., 1] = False
    return mask


LINES = {
    "right": lambda n: padding([5, n, 0], n),
    "left": lambda n: padding([5, n, 0], n, "left"),
    "with gaps": lambda n: scattered([9, n, 4], n),
    "one line for all": lambda n: padding([7], n),
    "a line without axes": lambda n: padding([7], n)[0, 0, 0],
}


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("kind", LINES)
def test_padding_is_cut_off_and_nothing_else(rng, kind, is_causal):
    arrays = draw(rng, batch=(3, 2), query_len=LONG, key_len=LONG,
                  head_dim=2, value_dim=3)
    mask = LINES[kind](LONG)
    both = mask & causal(LONG, LONG) if is_causal else mask
    results = []
    for module in (torch_fused, torch_eager):
        leaves = [torch.tensor(x, requires_grad=True) for x in arrays]
        if module is torch_fused:
            output = module.scaled_dot_product_attention(
                *leaves, torch.tensor(mask), is_causal=is_causal)
        else:
            output = module.scaled_dot_product_attention(
                *leaves, torch.tensor(both))
        (output * torch.arange(3)).sum().backward()
        results.append([output.detach(), *(x.grad for x in leaves)])
    for ours, theirs in zip(*results):
        torch.testing.assert_close(ours, theirs, rtol=1e-11, atol=1e-11)


def test_the_kernel_never_sees_padding(rng, monkeypatch):
    library = torch_fused.F.scaled_dot_product_attention
    seen = []

    def spy(query, key, value, **kwargs):
        seen.append((key.shape[-2], kwargs["attn_mask"],
                     kwargs["is_causal"]))
        return library(query, key, value, **kwargs)

    monkeypatch.setattr(torch_fused.F, "scaled_dot_product_attention", spy)
    arrays = [torch.tensor(x) for x in draw(
        rng, batch=(2, 1), query_len=LONG, key_len=LONG, head_dim=2)]
    attend = torch_fused.scaled_dot_product_attention
    attend(*arrays, torch.tensor(padding([9, LONG], LONG)))
    assert seen == [(9, None, False), (LONG, None, False)]
    seen.clear()
    attend(*arrays, torch.tensor(padding([9, LONG], LONG)), is_causal=True)
    assert seen == [(9, None, True), (LONG, None, True)]
    seen.clear()
    full = torch.tensor(padding([9, LONG], LONG)).expand(-1, 1, LONG, -1)
    attend(*arrays, full)
    assert [n for n, _, _ in seen] == [LONG]


@pytest.mark.parametrize("name", ["torch_fused", "torch_tiled"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_no_worse_than_eager(rng, name, dtype):
    """The layer against float64 with the same, rounded weights."""
    x = torch.tensor(rng.normal(size=(2, 40, 32))).to(dtype)
    eager = torch_eager.MultiHeadSelfAttention(32, 4, bias=True, dtype=dtype)
    arrays = eager.parameter_arrays()
    exact = torch_eager.MultiHeadSelfAttention(32, 4, bias=True,
                                               dtype=torch.float64)
    exact.load_parameter_arrays(arrays)
    layer = by_name(name).module.MultiHeadSelfAttention(
        32, 4, bias=True, dtype=dtype)
    layer.load_parameter_arrays(arrays)
    with torch.no_grad():
        right = exact(x.double())
        allowed = (eager(x).double() - right).abs().max()
        output = layer(x)
    assert output.dtype == dtype
    assert (output.double() - right).abs().max() <= 2 * allowed
    leaf = x.clone().requires_grad_()
    layer(leaf).float().sum().backward()
    assert leaf.grad.dtype == layer.W_qkv.weight.grad.dtype == dtype


@pytest.mark.parametrize("native", [False, True])
def test_half_precision_works_either_way(rng, monkeypatch, native):
    """Where the processor has the products, and where it has not."""
    monkeypatch.setattr(torch_fused, "NATIVE_HALF",
                        dict.fromkeys(torch_fused.NATIVE_HALF, native))
    layer = torch_fused.MultiHeadSelfAttention(6, 3, dtype=torch.bfloat16)
    x = torch.tensor(rng.normal(size=(2, 5, 6))).bfloat16()
    assert layer(x).dtype == torch.bfloat16
    assert {part.dtype for part in layer.project(x)} == {torch.bfloat16}


CUT = torch_fused.SHORTEST_CUT


def spans_of(mask, *, batch=2, queries=CUT, axes=4, is_causal=False):
    """Where the keys begin and end, as the layer's attention asks for it."""
    shape = {4: (batch, 3, queries, 5), 3: (batch, queries, 5)}[axes]
    return torch_fused._spans(torch.zeros(shape), mask.shape[-1],
                              torch.tensor(mask), is_causal)


@pytest.mark.parametrize("is_causal", [False, True])
def test_spans_are_where_the_keys_are(is_causal):
    def spans(mask, **sizes):
        return spans_of(mask, is_causal=is_causal, **sizes)

    assert spans(padding([5, 0], CUT)) == [(0, 5), (0, 0)]
    assert spans(padding([5, CUT], CUT, "left")) == [(CUT - 5, CUT), (0, CUT)]
    assert spans(padding([7], CUT), batch=1) == [(0, 7)]
    assert spans(padding([7], CUT)) == [(0, 7)]
    assert spans(padding([7], CUT)[0, 0]) == [(0, 7)]
    assert spans(padding([7], CUT)[0, 0, 0]) == [(0, 7)]


def test_spans_are_left_alone_where_they_would_be_wrong_or_slow(monkeypatch):
    mask = padding([5, 9], CUT)
    assert spans_of(mask) is not None
    assert spans_of(scattered([5, 9], CUT)) is None  # more than two ends
    assert spans_of(padding([5, 9], CUT - 1), queries=CUT - 1) is None
    assert spans_of(mask, queries=CUT + 1) is not None
    assert spans_of(mask, queries=CUT + 1, is_causal=True) is None
    assert spans_of(mask & causal(CUT, CUT)) is None  # rows of their own
    assert spans_of(mask[:, 0], axes=3) is None
    assert spans_of(mask[:0], batch=0) is None
    elsewhere = torch.zeros(2, 3, CUT, 5, device="meta")
    assert torch_fused._spans(elsewhere, CUT, torch.tensor(mask),
                              False) is None
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    assert spans_of(mask) is None


def test_a_processor_chooses_its_kernel_itself(rng, monkeypatch):
    def refuse(*arguments, **options):
        raise AssertionError("the choice of kernels is for a GPU")

    monkeypatch.setattr(torch_fused, "sdpa_kernel", refuse)
    leaves = [torch.tensor(x) for x in draw(rng)]
    torch_fused.scaled_dot_product_attention(*leaves)


def test_whether_there_is_a_mask_is_said_by_name():
    with pytest.raises(TypeError, match="positional"):
        torch_fused.kernels_for(torch.zeros(1), True)
    assert torch_fused.kernels_for(query=torch.zeros(1))


@pytest.mark.parametrize("native", [True, False])
def test_half_precision_is_multiplied_where_it_can_be(monkeypatch, native):
    monkeypatch.setattr(torch_fused, "NATIVE_HALF", {torch.bfloat16: native})
    linear = torch.nn.Linear(3, 5, dtype=torch.bfloat16)
    x = torch.ones(2, 3, dtype=torch.bfloat16)
    product = torch_fused._multiply(x, linear, x)
    assert product.dtype == (torch.bfloat16 if native else torch.float32)
    if not native:  # what came out of it goes on in float32
        product = torch_fused._multiply(x.float(), linear, x)
        assert product.dtype == torch.float32


def test_which_kernels_may_run_on_a_processor():
    query = torch.zeros(1, 1, 1, 1)
    names = [kernel.name for kernel in torch_fused.kernels_for(query)]
    assert names == ["FLASH_ATTENTION", "MATH"]


@pytest.mark.parametrize("capability", [(8, 0), (9, 0)])
def test_which_kernels_may_run_on_a_gpu(monkeypatch, capability):
    """Without a GPU: the rule, not its effect."""
    monkeypatch.setattr(torch.cuda, "get_device_capability",
                        lambda device: capability)

    class Query:
        device = torch.device("cuda")
        dtype = torch.bfloat16

    first = torch_fused.kernels_for(Query)[0].name
    assert first == ("CUDNN_ATTENTION" if capability >= (9, 0)
                     else "FLASH_ATTENTION")
    assert torch_fused.kernels_for(Query, is_masked=True)[0].name == (
        "EFFICIENT_ATTENTION")
    Query.dtype = torch.float32
    assert torch_fused.kernels_for(Query)[0].name == "EFFICIENT_ATTENTION"


@pytest.mark.parametrize("backend", [
    "aot_eager", pytest.param("inductor", marks=pytest.mark.slow)])
def test_the_layer_compiles_without_a_break(backend):
    """With and without a mask; in a process of its own.

    The first backend reads the code and its gradients into graphs, the second
    makes machine code of them, for which it needs a C++ compiler.
    """
    code = f"""
import torch
from self_attention import torch_fused
torch.manual_seed(0)
layer = torch_fused.MultiHeadSelfAttention(64, 4, bias=True)
compiled = torch.compile(layer, fullgraph=True, backend={backend!r})
x = torch.randn(2, 200, 64)
mask = torch_fused.padding_mask([200, 7], 200)
for arguments in ((x,), (x, mask)):
    torch.testing.assert_close(compiled(*arguments), layer(*arguments))
torch.testing.assert_close(compiled(x, is_causal=True),
                           layer(x, is_causal=True))
compiled(x).sum().backward()
assert layer.W_qkv.weight.grad is not None
"""
    done = subprocess.run([sys.executable, "-c", code], text=True,
                          capture_output=True, check=False)
    if "InvalidCxxCompiler" in done.stderr:
        pytest.skip("torch.compile needs a C++ compiler")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("block_size", [1, 2, 3, 4, 100])
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("size", [1.0, 30.0])
def test_torch_tiles_of_every_size(rng, block_size, is_causal, size):
    query, key, value = draw(rng)
    query *= size
    mask = rng.random((*query.shape[:-1], key.shape[-2])) < 0.6
    corner = causal(query.shape[-2], key.shape[-2])
    both = mask & corner if is_causal else mask
    found = []
    for module, masks, how in (
            (torch_tiled, mask, {"is_causal": is_causal,
                                 "block_size": block_size}),
            (torch_eager, both, {})):
        leaves = [torch.tensor(x, requires_grad=True)
                  for x in (query, key, value)]
        output = module.scaled_dot_product_attention(
            *leaves, torch.tensor(masks), **how)
        (output * torch.arange(output.shape[-1])).sum().backward()
        found.append([output.detach(), *(x.grad for x in leaves)])
    assert_close(found[0][0].numpy(), loop_attention(query, key, value, both))
    for ours, theirs in zip(*found):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-9)


def test_numpy_gradients_are_those_of_autograd(rng):
    query, key, value = draw(rng)
    grad = rng.normal(size=(*query.shape[:-1], value.shape[-1]))
    leaves = [torch.tensor(x, requires_grad=True)
              for x in (query, key, value)]
    torch.nn.functional.scaled_dot_product_attention(*leaves).backward(
        torch.tensor(grad))
    found = numpy_tiled.scaled_dot_product_attention_backward(
        query, key, value, grad, block_size=2)
    for ours, leaf in zip(found, leaves):
        np.testing.assert_allclose(ours, leaf.grad, rtol=1e-9, atol=1e-9)


def test_what_forward_keeps_saves_the_backward_pass_a_forward_pass(rng):
    layer = numpy_tiled.MultiHeadSelfAttention(6, 3, bias=True, rng=rng)
    x, grad = rng.normal(size=(2, 2, 5, 6))
    output, kept = layer.forward(x)
    assert_same(output, layer(x))
    grad_x, grads = layer.backward(x, grad, kept=kept)
    other_x, others = layer.backward(x, grad)
    assert_same(grad_x, other_x)
    for name, array in grads.items():
        assert_same(array, others[name])


def test_torch_tiles_store_no_scores():
    """The largest tensor of either pass grows with the length alone."""
    class Largest(torch.utils._python_dispatch.TorchDispatchMode):
        numbers = 0

        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            result = function(*args, **(kwargs or {}))
            for one in result if isinstance(result, tuple) else (result,):
                if isinstance(one, torch.Tensor):
                    self.numbers = max(self.numbers, one.numel())
            return result

    def largest(length):
        leaves = [torch.randn(length, 4, requires_grad=True)
                  for _ in range(3)]
        with Largest() as mode:
            torch_tiled.scaled_dot_product_attention(
                *leaves, block_size=8).sum().backward()
        return mode.numbers

    assert largest(256) == 256 * 4
    assert largest(512) == 2 * largest(256)
