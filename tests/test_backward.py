"""The backward pass by hand against autograd and finite differences."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from self_attention import numpy_reference as attention

ATOL = 1e-9


def autograd(query, key, value, grad_output, mask, scale):
    """The oracle: float64 autograd through an explicit softmax."""
    q, k, v = (torch.tensor(a, requires_grad=True)
               for a in (query, key, value))
    factor = 1 / query.shape[-1]**0.5 if scale is None else scale
    scores = torch.einsum("...qd,...kd->...qk", q, k) * factor
    if mask is None:
        weights = scores.softmax(-1)
    else:
        kept = torch.tensor(np.broadcast_to(mask, scores.shape).copy())
        exps = torch.exp(scores - scores.detach().amax(-1, keepdim=True))
        exps = torch.where(kept, exps, 0.0)
        total = exps.sum(-1, keepdim=True)
        weights = exps / torch.where(total == 0, 1.0, total)
    output = torch.einsum("...qk,...kv->...qv", weights, v)
    output.backward(torch.tensor(grad_output))
    return [t.grad.numpy() for t in (q, k, v)]


@st.composite
def problems(draw):
    sizes = st.integers(1, 7)
    batch = tuple(draw(st.lists(sizes, max_size=2)))
    q_len, k_len, d, d_v = (draw(sizes) for _ in range(4))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    arrays = [rng.standard_normal((*batch, *s)) for s in (
        (q_len, d), (k_len, d), (k_len, d_v), (q_len, d_v))]
    kind = draw(st.sampled_from(["none", "random", "rows", "causal"]))
    mask = {"none": None,
            "random": rng.random((*batch, q_len, k_len)) < 0.6,
            "rows": rng.random((q_len, 1)) < 0.5,
            "causal": attention.causal_mask(q_len, k_len)}[kind]
    scale = draw(st.sampled_from([None, 0.3, 1]))
    return arrays, mask, scale


@settings(max_examples=120, deadline=None, derandomize=True)
@given(problems())
def test_three_gradients_are_autograds(problem):
    arrays, mask, scale = problem
    got = attention.scaled_dot_product_attention_backward(
        *arrays, mask, scale=scale)
    for ours, theirs in zip(got, autograd(*arrays, mask, scale)):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=ATOL)


def finite_difference(function, array, step=1e-6):
    grad = np.zeros_like(array)
    for index in np.ndindex(array.shape):
        kept = array[index]
        array[index] = kept + step
        above = function()
        array[index] = kept - step
        below = function()
        array[index] = kept
        grad[index] = (above - below) / (2 * step)
    return grad


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("masked", [False, True])
def test_layer_against_finite_differences(bias, masked):
    rng = np.random.default_rng(0)
    layer = attention.MultiHeadSelfAttention(
        5, 3, head_dim=2, bias=bias, rng=rng)
    x = rng.standard_normal((2, 3, 5))
    grad_output = rng.standard_normal(x.shape)
    mask = attention.combine_masks(
        attention.causal_mask(3), attention.padding_mask([3, 0], 3))
    mask = mask if masked else None

    def loss():
        return (layer(x, mask) * grad_output).sum()

    grad_x, grads = layer.backward(x, grad_output, mask)
    np.testing.assert_allclose(grad_x, finite_difference(loss, x), atol=1e-7)
    assert list(grads) == list(layer.parameter_arrays())
    for name, grad in grads.items():
        expected = finite_difference(loss, getattr(layer, name))
        np.testing.assert_allclose(grad, expected, atol=1e-7, err_msg=name)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(seed=st.integers(0, 2**32 - 1), heads=st.integers(1, 3),
       head_dim=st.integers(1, 5), embed_dim=st.integers(1, 7),
       seq_len=st.integers(1, 6), bias=st.booleans(), masked=st.booleans())
def test_layer_against_autograd(seed, heads, head_dim, embed_dim, seq_len,
                                bias, masked):
    from self_attention import torch_eager

    rng = np.random.default_rng(seed)
    layer = attention.MultiHeadSelfAttention(
        embed_dim, heads, head_dim=head_dim, bias=bias, rng=rng)
    other = torch_eager.MultiHeadSelfAttention(
        embed_dim, heads, head_dim=head_dim, bias=bias, dtype=torch.float64)
    other.load_parameter_arrays(layer.parameter_arrays())
    x = rng.standard_normal((2, seq_len, embed_dim))
    grad_output = rng.standard_normal(x.shape)
    mask = rng.random((2, 1, seq_len, seq_len)) < 0.6 if masked else None
    x_torch = torch.tensor(x, requires_grad=True)
    output = other(x_torch, None if mask is None else torch.tensor(mask))
    output.backward(torch.tensor(grad_output))
    grad_x, grads = layer.backward(x, grad_output, mask)
    np.testing.assert_allclose(grad_x, x_torch.grad, rtol=0, atol=ATOL)
    for name in "qkvo":
        linear = other.get_submodule(f"W_{name}")
        np.testing.assert_allclose(grads[f"W_{name}"], linear.weight.grad.T,
                                   rtol=0, atol=ATOL)
        if bias:
            np.testing.assert_allclose(grads[f"b_{name}"], linear.bias.grad,
                                       rtol=0, atol=ATOL)


def test_nothing_flows_where_nothing_may_attend():
    rng = np.random.default_rng(2)
    query, key, value, grad = (rng.standard_normal((2, 3, n, 4))
                               for n in (5, 7, 7, 5))
    mask = np.ones((5, 7), dtype=bool)
    mask[2], mask[:, 4] = False, False
    grads = attention.scaled_dot_product_attention_backward(
        query, key, value, grad, mask)
    assert not grads[0][:, :, 2].any()
    assert not grads[1][:, :, 4].any()
    assert not grads[2][:, :, 4].any()


def test_softmax_gradient_sums_to_zero():
    rng = np.random.default_rng(5)
    weights = attention.softmax(rng.standard_normal((3, 5)), axis=0)
    grad = attention.softmax_backward(weights, rng.standard_normal((3, 5)),
                                      axis=0)
    np.testing.assert_allclose(grad.sum(axis=0), 0, atol=1e-15)


def test_wrong_gradient_is_refused():
    query = np.zeros((5, 3))
    with pytest.raises(ValueError, match=r"grad_output has shape \(4, 3\)"):
        attention.scaled_dot_product_attention_backward(
            query, query, query, np.zeros((4, 3)))
