"""Mistakes that people reported in public, each with the right value.

``data/cases.json`` holds one small input for each report; ``url`` names the
thread. Here each case is run through the course's own functions, on every
variant that has them, and must give the right value and not the wrong one.
In these files ``keep`` nonzero means "may attend", and a query without any
key gives zeros.

A case whose ``reference`` has no function yet stands in ``NOT_APPLICABLE``
with the reason.
"""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from self_attention import (
    convert,
    numpy_decoding,
    numpy_reference,
    torch_decoding,
)
from tolerances import TOLERANCES
from variants import VARIANTS, Variant, by_name

CASES = json.loads(
    (Path(__file__).parent / "data" / "cases.json").read_text("utf-8"))

NOT_APPLICABLE = {
    "PD-06": "no function stacks heads outside of the batch: one layout only",
    "DR-01": "dropout stands around attention: it belongs to the block",
    "DR-03": "dropout stands around attention: it belongs to the block",
    "DR-05": "dropout stands around attention: it belongs to the block",
    "DR-06": "dropout stands around attention: it belongs to the block",
    "PO-03": "codes of a batch of steps: no function repeats positions",
    "KE-03": "counts the weights of another library's layer",
}

#: Reports in which the suspected code was right: both values agree.
FALSE_ALARMS = {case["id"] for case in CASES
                if case["verdict"] == "false_alarm"}
#: Mistakes that show in one of several values only.
SHOWS_ELSEWHERE = {("FM-05", "weights"), ("XA-03", "out0")}

#: Masks that the course's functions make; they must equal the case's own.
MADE_MASKS = {
    **dict.fromkeys(
        ("MP-01", "CA-01", "CA-03", "CA-05", "TP-01", "MS-05", "TX-08"),
        lambda v: v.causal_mask(3)),
    "CO-01": lambda v: v.causal_mask(1, 3),
    "CO-05": lambda v: np.pad(v.causal_mask(2, 4), ((0, 0), (0, 1))),
    "PD-01": lambda v: v.padding_mask([2], 4),
    "PD-03": lambda v: v.padding_mask([1, 2], 2),
    "PD-10": lambda v: v.padding_mask([2], 4)[0, 0],
    **dict.fromkeys(
        ("CM-01", "CM-03"), lambda v: v.combine_masks(
            v.causal_mask(3), v.padding_mask([2], 3)[0, 0])),
    "FM-05": lambda v: v.padding_mask([1], 2)[0, 0],
}

TORCH = [variant for variant in VARIANTS if variant.is_torch]
EVERYWHERE = list(VARIANTS)


def numbers(values):
    """Lists with "nan" and "-inf" among them, as an array."""
    array = np.array(values)
    return array.astype(float) if array.dtype.kind in "US" else array


def floats(values):
    return numbers(values).astype(np.float64)


def mask_of(variant, case):
    """The mask of a case: made by the course where it can make it."""
    keep = case["input"].get("keep", case["input"].get("key_keep"))
    if keep is None:
        return None
    keep = numbers(keep).astype(bool)
    if case["id"] not in MADE_MASKS:
        return keep
    made = MADE_MASKS[case["id"]](variant)
    np.testing.assert_array_equal(np.broadcast_to(made, keep.shape), keep)
    return made


def run(variant, function, *arrays, dtype=None, mask=None, scale=None):
    native = [variant.to_native(array, dtype) for array in arrays]
    result = getattr(variant.module, function)(
        *native, variant.to_native(mask), scale=scale)
    return variant.to_numpy(result)


def identity_like(scores):
    """Keys that turn any scores into the products of a query with them."""
    *batch, _, key_len = scores.shape
    return np.broadcast_to(np.eye(key_len), (*batch, key_len, key_len)).copy()


def of_scores(variant, case):
    """Weights, and output where there are values, from given scores."""
    scores = floats(case["input"]["scores"])
    options = {"dtype": case["input"].get("dtype"), "scale": 1,
               "mask": mask_of(variant, case)}
    key = identity_like(scores)
    found = {"weights": run(variant, "attention_weights", scores, key,
                            **options)}
    if "V" in case["input"]:
        found["output"] = run(variant, "scaled_dot_product_attention", scores,
                              key, floats(case["input"]["V"]), **options)
    return found


def sums(variant, case):
    weights = of_scores(variant, case)["weights"]
    return {"weights": weights, "row_sums": weights.sum(-1),
            "col_sums": weights.sum(-2)}


def sdpa(variant, case):
    query, key, value = (numbers(case["input"][name]) for name in "QKV")
    dtype = case["input"].get("dtype")
    if dtype == "int64" and variant.is_torch:
        with pytest.raises(TypeError, match=r"query has dtype torch\.int64"):
            run(variant, "attention_weights", query, key)
        dtype = "float64"
    options = {"dtype": dtype, "mask": mask_of(variant, case)}
    if dtype is None:
        query, key, value = map(floats, (query, key, value))
    return {"weights": run(variant, "attention_weights", query, key,
                           **options),
            "output": run(variant, "scaled_dot_product_attention", query, key,
                          value, **options)}


def weights_of_queries_and_keys(variant, case):
    query, key = floats(case["input"]["Q"]), floats(case["input"]["K"])
    return {"weights": run(variant, "attention_weights", query, key)}


def scores_up_to_a_constant(variant, case):
    """Softmax hides one constant for each query; all else must be there."""
    query, key = floats(case["input"]["Q"]), floats(case["input"]["K"])
    weights = run(variant, "attention_weights", query, key, scale=1)
    scores = np.log(weights)
    first = (query * key[..., :1, :]).sum(-1, keepdims=True)
    return {"scores": scores - scores[..., :1] + first}


def variances(variant, case):
    """The score's variance over all queries and keys of ones and minus ones.

    A second key of zeros has the score 0; the log of the ratio of the two
    weights is the first key's scaled score.
    """
    d = case["input"]["d"]
    signs = np.array(np.meshgrid(*[[-1.0, 1.0]] * d)).reshape(d, -1).T
    query = np.repeat(signs, len(signs), axis=0)[:, None, :]
    key = np.stack([np.tile(signs, (len(signs), 1)),
                    np.zeros_like(query[:, 0])], axis=1)

    def variance(scale):
        weights = run(variant, "attention_weights", query, key, scale=scale)
        return np.log(weights[..., 0] / weights[..., 1]).var()

    return {"var_raw": variance(1), "var_over_sqrt_d": variance(None),
            "var_over_d": variance(1 / d)}


def separated(variant, case):
    heads = variant.separate_heads(floats(case["input"]["X"]),
                                   case["input"]["num_heads"])
    return {"heads": heads,
            "heads_flat": heads.reshape(-1, *heads.shape[-2:])}


def refused(variant, case):
    try:
        return separated(variant, case)
    except ValueError as error:
        return {"raises": type(error).__name__}


def combined(variant, case):
    inputs = case["input"]
    if "heads_flat" in inputs:
        flat = floats(inputs["heads_flat"])
        heads = flat.reshape(-1, inputs["num_heads"], *flat.shape[1:])
    else:
        heads = floats(inputs["heads"])
    return {"X": variant.combine_heads(heads)}


def make_layer(variant, num_heads, **matrices):
    """A layer; a matrix that is not given is the identity."""
    width = len(next(iter(matrices.values())))
    inner = matrices.get("W_q", np.eye(width)).shape[1]
    arrays = {f"W_{name}": np.eye(width, inner) for name in "qkv"}
    arrays["W_o"] = np.eye(inner, width)
    arrays |= {name: floats(matrix) for name, matrix in matrices.items()}
    bias = any(name.startswith("b_") for name in arrays)
    if bias:
        arrays = {f"b_{name}": np.zeros(inner) for name in "qkv"} | arrays
    layer = variant.layer(width, num_heads, head_dim=inner // num_heads,
                          bias=bias)
    layer.load_parameter_arrays(arrays)
    return layer


def whole_layer(variant, case):
    inputs = case["input"]
    layer = make_layer(variant, inputs["num_heads"], **{
        f"W_{name}": floats(inputs[f"W{name}"]) for name in "qkvo"})
    arguments = floats(inputs["X"]), mask_of(variant, case)
    return {"output": variant.call(layer, *arguments),
            "weights": variant.call(layer.attention_weights, *arguments)}


def last_product(variant, case):
    """W_o after heads that give each token its own features back."""
    inputs = case["input"]
    if "heads" in inputs:
        joined = variant.combine_heads(floats(inputs["heads"]))
    else:
        joined = floats(inputs["concat"])
    bias = {"b_o": floats(inputs["bo"])} if "bo" in inputs else {}
    layer = make_layer(variant, 1, W_o=floats(inputs["Wo"]), **bias)
    only_itself = np.eye(joined.shape[1], dtype=bool)
    return {"output": variant.call(layer, joined, only_itself)}


def projected(variant, case):
    inputs = case["input"]
    layer = make_layer(variant, inputs["num_heads"], W_q=floats(inputs["W"]))
    query, _, _ = layer.project(variant.to_native(floats(inputs["X"])))
    return {"heads": variant.to_numpy(query)}


def scores_of_a_layer(variant, case):
    inputs = case["input"]
    if "stream" in inputs:  # the weights, in the order of their declaration
        pairs = floats(inputs["stream"]).reshape(-1, 2, 2)
        matrices = dict(zip(inputs["declared_order"], pairs))
    else:
        matrices = {"q": floats(inputs["Wq"]), "k": floats(inputs["Wk"])}
    layer = make_layer(variant, 1, W_q=matrices["q"], W_k=matrices["k"])
    query, key, _ = layer.project(
        variant.to_native(floats(inputs["X"])[None]))
    scores = variant.to_numpy(query) @ variant.to_numpy(key).swapaxes(-2, -1)
    return {"scores": scores[0, 0]}


def unpacked(variant, case):
    inputs = case["input"]
    packed = floats(inputs["packed"])
    layer = variant.layer(len(packed), inputs["num_heads"],
                          head_dim=inputs["head_dim"])
    with torch.no_grad():
        layer.W_qkv.weight.copy_(torch.from_numpy(packed).mT)
        parts = layer.project(torch.eye(len(packed))[None].double())
    return {name: variant.combine_heads(part.numpy())[0]
            for name, part in zip("QKV", parts)}


def stored_transposed(variant, case):
    x, weight = (floats(case["input"][name])
                 for name in ("x", "weight_out_in"))
    layer = variant.layer(2, 1)
    with torch.no_grad():
        layer.W_o.weight.copy_(torch.from_numpy(weight))
    by_name_of_ours = x @ layer.parameter_arrays()["W_o"]
    by_the_module = variant.call(layer.W_o, x)
    np.testing.assert_array_equal(by_name_of_ours, by_the_module)
    return {"y": by_name_of_ours}


def from_keras(variant, case):
    kernel = floats(case["input"]["kernel_ehd"])
    width, num_heads, head_dim = kernel.shape
    names = ("query", "key", "value")
    arrays = {f"{name}/kernel": kernel for name in names}
    arrays["attention_output/kernel"] = np.zeros((num_heads, head_dim, width))
    ours = convert.from_layout(arrays, "keras", num_heads=num_heads)
    layer = variant.layer(width, num_heads, head_dim=head_dim)
    layer.load_parameter_arrays(ours)
    linear = layer.W_qkv if hasattr(layer, "W_qkv") else layer.W_k
    first = linear.weight[:num_heads * head_dim]
    return {"weight_out_in": variant.to_numpy(first)}


def mean_of(variant, values, keep):
    """A query of zeros weighs every key that it may attend to the same."""
    query = np.zeros((len(values), 1))
    return run(variant, "scaled_dot_product_attention", query,
               np.ones((len(values), 1)), values, mask=keep)


def pooled(variant, case):
    outputs = floats(case["input"]["outputs"])
    return {"pooled": mean_of(variant, outputs, mask_of(variant, case))[0]}


def two_blocks(variant, case):
    x, keep = floats(case["input"]["X"]), mask_of(variant, case)
    for _ in range(case["input"]["blocks"]):
        x = x + mean_of(variant, x, keep)
    return {"real_rows": x[keep]}


def attend_self(variant, x, mask=None):
    return run(variant, "scaled_dot_product_attention", x, x, x, mask=mask)


def strict_self(variant, case):
    mask = mask_of(variant, case)
    before, after = (attend_self(variant, floats(case["input"][name]), mask)[2]
                     for name in ("X", "X_changed"))
    return {"row2_before": before, "row2_after": after,
            "row2_changed": int((before != after).any())}


def pad_position(variant, case):
    inputs = case["input"]
    results = [attend_self(
        variant, floats(inputs["embedding"]) + floats(inputs[name]),
        mask_of(variant, case))[inputs["real_rows"]]
        for name in ("positions_a", "positions_b")]
    np.testing.assert_array_equal(*results)
    return {"real_rows": results[0]}


def prefix(variant, case):
    short, long = (floats(case["input"][name])
                   for name in ("X_short", "X_long"))
    rows = [attend_self(variant, x, variant.causal_mask(len(x)))[:len(short)]
            for x in (short, long)]
    np.testing.assert_allclose(*rows, **TOLERANCES["float64"])
    return {"rows": rows[1]}


def permuted(variant, case):
    x = floats(case["input"]["X"])
    return {"output_of_permuted": attend_self(
        variant, x[case["input"]["perm"]])}


def crossed(variant, case):
    one, two = floats(case["input"]["feat0"]), floats(case["input"]["feat1"])
    return {"out0": run(variant, "scaled_dot_product_attention", one, two,
                        two),
            "out1": run(variant, "scaled_dot_product_attention", two, one,
                        one)}


def given_weights(variant, case):
    """Weights come out of attention as they are if their logs go in."""
    name = "A" if "A" in case["input"] else "weights"
    weights = floats(case["input"][name])
    query, key = np.log(weights), np.eye(weights.shape[-1])
    found = run(variant, "attention_weights", query, key, scale=1)
    if "V" in case["input"]:
        return {"output": run(
            variant, "scaled_dot_product_attention", query, key,
            floats(case["input"]["V"]), scale=1)}
    sums_to_one = [axis for axis in (0, 1)
                   if np.allclose(found.sum(axis), 1, rtol=1e-12)]
    answer = {"sum_over_axis": sums_to_one[0], "sums": found.sum(-1)}
    if "query" in case["input"]:
        answer["key"] = int(found[case["input"]["query"]].argmax())
    return answer


def per_head(variant, case):
    """Weights of 0 and 1 come from a mask; a layer keeps heads apart."""
    hard = floats(case["input"]["head_weights"])
    layer = make_layer(variant, len(hard), W_q=np.eye(2))
    x = np.zeros((1, hard.shape[-1], 2))
    weights = variant.call(layer.attention_weights, x, hard.astype(bool))
    return {"weights": weights[0]}


def masked_positions(variant, case):
    return {"masked": ~variant.causal_mask(case["input"]["n"])}


def corner(variant, case):
    return {"keep": variant.causal_mask(case["input"]["L"],
                                        case["input"]["S"])}


def additive(variant, case):
    mask = (variant.causal_mask(case["input"]["n"]) if "n" in case["input"]
            else mask_of(variant, case))
    return {"bias": convert.to_additive(mask)}


def expanded(variant, case):
    """One axis for the heads, and broadcasting does what repeating did."""
    keep, num_heads = (case["input"][name]
                       for name in ("keep_bn", "num_heads"))
    lengths = floats(keep).sum(-1).astype(int).tolist()
    mask = variant.padding_mask(lengths, len(keep[0]))
    whole = np.broadcast_to(mask, (len(keep), num_heads, 1, len(keep[0])))
    return {"expanded": whole.reshape(-1, len(keep[0]))}


def unchanged(variant, case):
    mask = np.array(case["input"]["keep"], bool)
    native = variant.to_native(mask)
    zeros = variant.to_native(np.zeros((2, 2)))
    variant.module.scaled_dot_product_attention(zeros, zeros, zeros, native)
    variant.module.attention_weights(zeros, zeros, native)
    return {"keep_after": variant.to_numpy(native)}


def output_length(variant, case):
    lengths, seq_len = (case["input"][name]
                        for name in ("lengths", "seq_len"))
    layer = make_layer(variant, 1, W_q=np.eye(2))
    output = variant.call(layer, np.ones((len(lengths), seq_len, 2)),
                          variant.padding_mask(lengths, seq_len))
    return {"out_len": output.shape[1]}


def too_long(variant, case):
    tokens = np.ones((1, case["input"]["T"], 2))
    layer = make_layer(variant, 1, W_q=np.eye(2))
    try:
        variant.call(layer, tokens,
                     variant.causal_mask(case["input"]["block_size"]))
    except ValueError as error:
        return {"raises": type(error).__name__}
    return {}


def device_of_the_mask(variant, case):
    """Any second device shows it; "meta" is on every machine."""
    device = "meta"
    mask = variant.module.causal_mask(2, device=device)
    other = variant.module.causal_mask(2)
    assert other.device.type == case["wrong"]["mask_device"]
    assert mask.device.type == device
    return {"mask_device": case["input"]["scores_device"]}


def gradient_of_scores(variant, case):
    scores = torch.tensor([case["input"]["scores"]], dtype=torch.float64,
                          requires_grad=True)
    length = scores.shape[-1]
    value = torch.tensor(case["input"]["V"], dtype=torch.float64)[:, None]
    output = variant.module.scaled_dot_product_attention(
        scores, torch.eye(length, dtype=torch.float64), value,
        torch.from_numpy(mask_of(variant, case)), scale=1)
    output.sum().backward()
    return {"grad_scores": scores.grad[0].numpy()}


def gradient_of_softmax(variant, case):
    """The derivative of a weight by its own (scaled) score."""
    def slope(scale):
        scores = torch.tensor([[case["input"]["gap"], 0.0]],
                              dtype=torch.float64, requires_grad=True)
        weights = variant.module.attention_weights(
            scores, torch.eye(2, dtype=torch.float64), scale=scale)
        weights[0, 0].backward()
        return scores.grad[0, 0].item() / scale

    return {"grad_unscaled": slope(1.0),
            "grad_scaled": slope(case["input"]["d_k"] ** -0.5)}


def axes_of_the_figure(variant, case):
    from course.figures.weights import weight_table
    weights = floats(case["input"]["weights"])
    axes = weight_table(weights, ["a", "b"], ["a", "b", "c"]).axes[0]
    return {"x_ticks": len(axes.get_xticks()),
            "y_ticks": len(axes.get_yticks()),
            "x_axis": axes.get_xlabel(), "y_axis": axes.get_ylabel()}


def shared_key_heads(variant, case):
    """A layer whose matrices take the packed features apart by size."""
    packed, sizes = floats(case["input"]["packed"]), case["input"]["sizes"]
    num_heads, key_heads = 2, 1
    width = len(packed[0])
    layer = variant.module.CachedSelfAttention(
        width, num_heads, num_key_value_heads=key_heads,
        head_dim=sizes[0] // num_heads,
        dtype=torch.float64 if variant.is_torch else np.float64)
    parts = np.split(np.eye(width), np.cumsum(sizes)[:-1], axis=1)
    layer.load_parameter_arrays(
        {f"W_{name}": part for name, part in zip("qkv", parts)}
        | {"W_o": np.zeros((sizes[0], width))})
    positions = np.zeros((1, len(packed)), int)
    heads = layer.project(*map(variant.to_native, (packed[None], positions)))
    return {name: numpy_reference.combine_heads(variant.to_numpy(part))[0]
            for name, part in zip("QKV", heads)}


def positions_of_tokens(variant, case):
    """Padding is -1 here and 0 in the case; nobody reads either."""
    keep = floats(case["input"]["keep"]).astype(bool)
    found = variant.position_ids(keep[:, None, None, :])
    np.testing.assert_array_equal(found == -1, ~keep)
    return {"positions": np.maximum(found, 0)}


NUMPY = [by_name("numpy_reference")]
DECODING = [Variant(numpy_decoding, False, ("float64",)),
            Variant(torch_decoding, True, ("float64",))]

#: How each kind of case is run, and on which variants.
RUNNERS = {
    "softmax_rows": (of_scores, EVERYWHERE),
    "masked_output": (of_scores, EVERYWHERE),
    "softmax_sums": (sums, EVERYWHERE),
    "sdpa": (sdpa, EVERYWHERE),
    "weights_qk": (weights_of_queries_and_keys, EVERYWHERE),
    "scores_batched": (scores_up_to_a_constant, EVERYWHERE),
    "dot_variance": (variances, EVERYWHERE),
    "split": (separated, EVERYWHERE),
    "split_flat": (separated, EVERYWHERE),
    "must_divide": (refused, EVERYWHERE),
    "combine": (combined, EVERYWHERE),
    "combine_flat": (combined, EVERYWHERE),
    "mha": (whole_layer, EVERYWHERE),
    "linear": (last_product, EVERYWHERE),
    "linear_bias": (last_product, EVERYWHERE),
    "combine_linear": (last_product, EVERYWHERE),
    "project_split": (projected, EVERYWHERE),
    "scores_qk": (scores_of_a_layer, EVERYWHERE),
    "seed_order": (scores_of_a_layer, EVERYWHERE),
    "split_sizes": (shared_key_heads, DECODING),
    "positions": (positions_of_tokens, DECODING),
    "unpack_qkv": (unpacked, [by_name("torch_fused")]),
    "linear_t": (stored_transposed, TORCH),
    "keras_to_linear": (from_keras, TORCH),
    "matmul": (given_weights, EVERYWHERE),
    "most_attended": (given_weights, EVERYWHERE),
    "normalised_axis": (given_weights, EVERYWHERE),
    "per_head": (per_head, EVERYWHERE),
    "mean_pool": (pooled, EVERYWHERE),
    "two_blocks": (two_blocks, EVERYWHERE),
    "strict_self": (strict_self, EVERYWHERE),
    "pad_position": (pad_position, EVERYWHERE),
    "causal_prefix": (prefix, EVERYWHERE),
    "perm_attn": (permuted, EVERYWHERE),
    "cross_pair": (crossed, EVERYWHERE),
    "causal_masked": (masked_positions, EVERYWHERE),
    "bottom_right": (corner, EVERYWHERE),
    "additive_mask": (additive, EVERYWHERE),
    "causal_bias": (additive, EVERYWHERE),
    "expand_mask": (expanded, EVERYWHERE),
    "mask_after": (unchanged, EVERYWHERE),
    "out_len": (output_length, EVERYWHERE),
    "too_long": (too_long, EVERYWHERE),
    "mask_device": (device_of_the_mask, TORCH),
    "grad_scores": (gradient_of_scores, TORCH),
    "softmax_grad": (gradient_of_softmax, TORCH),
    "ticks": (axes_of_the_figure, NUMPY),
}

RUN = [case for case in CASES if case["id"] not in NOT_APPLICABLE]


def tolerance(case):
    if case["input"].get("dtype") == "float16":
        # Weights in float16, of inputs that were rounded to it.
        return {"rtol": 2e-3, "atol": 1e-7}
    return TOLERANCES["float64"]


def same(found, stated, case):
    """Whether a value is the stated one; words must be equal."""
    if isinstance(stated, str):
        return found == stated
    found, stated = np.asarray(found, float), floats(stated)
    if found.shape != stated.shape:
        return False
    try:
        np.testing.assert_allclose(found, stated, **tolerance(case))
    except AssertionError:
        return False
    return True


@pytest.mark.parametrize(
    ("variant", "case"),
    [pytest.param(variant, case, id=f"{case['id']}-{variant.name}")
     for case in RUN for variant in RUNNERS[case["reference"]][1]])
def test_case(variant, case):
    found = RUNNERS[case["reference"]][0](variant, case)
    for name, right in case["right"].items():
        if isinstance(right, str):
            assert found[name] == right
        else:
            np.testing.assert_allclose(
                np.asarray(found[name], float), floats(right),
                err_msg=f"{case['id']} {name}: {case['cause']}",
                **tolerance(case))
    for name, wrong in case["wrong"].items():
        if name not in found:  # the mistake ends in an error
            continue
        alike = case["id"] in FALSE_ALARMS or (case["id"],
                                               name) in SHOWS_ELSEWHERE
        assert same(found[name], wrong, case) == alike


def test_every_case_is_run_or_says_why_not():
    ids = [case["id"] for case in CASES]
    assert len(ids) == len(set(ids)) == 105
    assert set(NOT_APPLICABLE) < set(ids)
    assert set(MADE_MASKS) < set(ids)
    for case in CASES:
        in_table = case["id"] in NOT_APPLICABLE
        assert in_table or case["reference"] in RUNNERS
    assert all(len(reason) > 20 for reason in NOT_APPLICABLE.values())


def test_how_many_cases_ran():
    assert len(RUN) == 98
    mistakes = [case for case in RUN if case["id"] not in FALSE_ALARMS]
    assert len(mistakes) == 89


def test_a_wrong_value_would_be_noticed():
    """For nearly every mistake the wrong value is there to be compared."""
    compared = [case for case in RUN if case["id"] not in FALSE_ALARMS
                and set(case["wrong"]) & set(case["right"])]
    assert len(compared) >= 75
