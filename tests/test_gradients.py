"""Gradients: right by finite differences, and finite where rows are dead."""

import numpy as np
import pytest
import torch

from masks import MASKS, causal, padding
from tolerances import GRADCHECK
from variants import draw

#: Small, since finite differences call the function once for each number.
SIZES = {"batch": (2, 3), "query_len": 2, "key_len": 3, "head_dim": 2,
         "value_dim": 5}


def tensors(rng, **sizes):
    return [torch.from_numpy(x).requires_grad_()
            for x in draw(rng, **(SIZES | sizes))]


def small_masks(rng):
    dead = rng.random((2, 3, 2, 3)) < 0.5
    dead[0, 1], dead[1, :, 1] = False, False
    return {
        "none": None,
        "padding": torch.from_numpy(padding([1, 3], 3)),
        "a whole sequence is padding": torch.from_numpy(padding([0, 2], 3)),
        "causal": torch.from_numpy(causal(2, 3)),
        "dead rows": torch.from_numpy(dead),
        "nowhere": torch.zeros(2, 3, dtype=torch.bool),
    }


@pytest.mark.parametrize("name", small_masks(np.random.default_rng(0)))
def test_gradients_by_finite_differences(torch_variant, rng, name):
    module, mask = torch_variant.module, small_masks(rng)[name]

    def attend(query, key, value):
        return module.scaled_dot_product_attention(query, key, value, mask)

    def weigh(query, key):
        return module.attention_weights(query, key, mask)

    arguments = tensors(rng)
    assert torch.autograd.gradcheck(attend, arguments, **GRADCHECK)
    assert torch.autograd.gradcheck(weigh, arguments[:2], **GRADCHECK)


def test_second_derivatives_of_the_eager_form(rng):
    from self_attention import torch_eager
    assert torch.autograd.gradgradcheck(
        torch_eager.scaled_dot_product_attention,
        tensors(rng, batch=(), value_dim=2))


@pytest.mark.parametrize("bias", [False, True])
def test_gradients_of_the_layer(torch_variant, rng, bias):
    layer = torch_variant.layer(6, 3, bias=bias)
    x = torch.from_numpy(rng.normal(size=(2, 3, 6))).requires_grad_()
    mask = torch.from_numpy(padding([2, 3], 3) & causal(3, 3))
    names, weights = zip(*layer.named_parameters())

    def run(x, *values):
        return torch.func.functional_call(
            layer, dict(zip(names, values)), (x, mask))

    assert torch.autograd.gradcheck(run, (x, *weights), **GRADCHECK)


@pytest.mark.parametrize("kind", MASKS)
def test_gradients_agree_between_the_variants(rng, kind):
    from self_attention import torch_eager, torch_fused
    query_len, key_len, make = MASKS[kind]
    arrays = draw(rng, query_len=query_len, key_len=key_len)
    mask = make(rng)
    mask = None if mask is None else torch.from_numpy(mask)
    found = []
    for module in (torch_eager, torch_fused):
        leaves = [torch.from_numpy(x.copy()).requires_grad_() for x in arrays]
        output = module.scaled_dot_product_attention(*leaves, mask)
        (output * torch.arange(output.shape[-1])).sum().backward()
        found.append([leaf.grad for leaf in leaves])
    torch.testing.assert_close(found[0], found[1], rtol=1e-11, atol=1e-11)


def test_a_dead_row_has_a_gradient_of_zero(torch_variant, rng):
    query, key, value = tensors(rng)
    mask = torch.ones(2, 3, dtype=torch.bool)
    mask[1] = False
    output = torch_variant.module.scaled_dot_product_attention(
        query, key, value, mask)
    output.square().sum().backward()
    for leaf in (query, key, value):
        assert torch.isfinite(leaf.grad).all()
    assert (query.grad[..., 1, :] == 0).all()
    assert (query.grad[..., 0, :] != 0).all()


def test_rows_that_are_all_dead_have_gradients_of_zero(torch_variant, rng):
    leaves = tensors(rng)
    mask = torch.zeros(2, 3, dtype=torch.bool)
    output = torch_variant.module.scaled_dot_product_attention(*leaves, mask)
    output.sum().backward()
    for leaf in leaves:
        torch.testing.assert_close(leaf.grad, torch.zeros_like(leaf))


def test_no_key_at_all_has_gradients_of_zero(torch_variant, rng):
    leaves = tensors(rng, key_len=0)
    output = torch_variant.module.scaled_dot_product_attention(*leaves)
    output.sum().backward()
    for leaf in leaves:
        torch.testing.assert_close(leaf.grad, torch.zeros_like(leaf))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32,
                                   torch.bfloat16])
def test_nan_in_the_padding_never_reaches_a_gradient(
        torch_variant, rng, dtype):
    query, key, value = (torch.from_numpy(x).to(dtype)
                         for x in draw(rng, **SIZES))
    mask = torch.from_numpy(padding([1, 3], 3))
    key[0, :, 1:], value[0, :, 1:] = torch.nan, torch.nan
    leaves = [x.requires_grad_() for x in (query, key, value)]
    output = torch_variant.module.scaled_dot_product_attention(*leaves, mask)
    output.float().square().sum().backward()
    for leaf in leaves:
        assert torch.isfinite(leaf.grad).all()
    for leaf in (key, value):
        assert (leaf.grad[0, :, 1:] == 0).all()
        assert (leaf.grad[1] != 0).any()


def test_nan_in_a_hidden_value_never_reaches_the_gradient_of_weights(rng):
    """Even where other queries see it, the rows before it learn as usual."""
    from self_attention import torch_eager
    gradients = []
    for bad in (1.0, torch.nan):
        query, key, value = (torch.from_numpy(x) for x in draw(
            np.random.default_rng(3), query_len=3, **{
                name: size for name, size in SIZES.items()
                if name != "query_len"}))
        value[..., 2, :] = bad
        query.requires_grad_()
        output = torch_eager.scaled_dot_product_attention(
            query, key, value, torch_eager.causal_mask(3))
        output[..., :2, :].square().sum().backward()
        gradients.append(query.grad[..., :2, :])
    torch.testing.assert_close(*gradients, rtol=1e-12, atol=1e-12)


def test_softmax_has_finite_gradients_everywhere():
    from self_attention import torch_eager
    rows = [[0.0, 1.0, 2.0], [0.0, -torch.inf, 1.0], [-torch.inf] * 3]
    scores = torch.tensor(rows, dtype=torch.float64, requires_grad=True)
    torch_eager.softmax(scores).square().sum().backward()
    assert torch.isfinite(scores.grad).all()
    assert (scores.grad[2] == 0).all()
    assert scores.grad[1, 1] == 0
    torch.testing.assert_close(scores.grad.sum(-1),
                               torch.zeros(3, dtype=torch.float64))
