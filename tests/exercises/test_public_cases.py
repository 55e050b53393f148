"""Mistakes that people reported in public: the checker names them.

``tests/data/cases.json`` holds the reports. For each that is a mistake in
code, a function with that mistake is handed to the check, which must name it
on every seed. For each report that was a false alarm, the suspected code must
pass. ``NOT_NAMEABLE`` says of the others why no exercise can tell.
"""

import json
from pathlib import Path

import pytest
from answers import canonical, load
from right_answers import HEADS, SOFTMAX

from course.exercises import check, tasks

CASES = {case["id"]: case for case in json.loads(
    (Path(__file__).parents[1] / "data" / "cases.json").read_text("utf8"))}

SDPA = SOFTMAX + """
def answer(q, k, v):
    return normalised(q @ k.swapaxes(-2, -1) * SCALE) @ v
"""
MASKED = SOFTMAX + """
def answer(scores, mask):
    return normalised(HIDE)
"""
CAUSAL = SOFTMAX + """
def answer(scores):
    n = scores.shape[-1]
    return normalised(HIDE)
"""
TRIANGLE = "np.tril(np.ones((n, n), bool)"


def masked(hide, template=MASKED):
    return template.replace("HIDE", hide)


#: Case: exercise, name that it must get, function with the mistake.
NAMED = {
    "SA-01": ("softmax", "softmax-over-queries", """
def answer(x):
    return torch.softmax(x, dim=-2)
"""),
    "SA-03": ("softmax", "softmax-size-one", """
def answer(x):
    return torch.softmax(x.unsqueeze(-1), dim=-1).squeeze(-1)
"""),
    "SA-05": ("weights_with_heads", "softmax-over-queries", """
def answer(q, k):
    return torch.softmax(q @ k.mT / q.shape[-1] ** 0.5, dim=2)
"""),
    "SA-06": ("attention_weights", "softmax-over-queries", SOFTMAX + """
def answer(q, k):
    return normalised(q @ k.swapaxes(1, 2) / np.sqrt(q.shape[2]), axis=1)
"""),
    "SC-01": ("scores_of_heads", "scale-by-sqrt-D", HEADS + """
def answer(q, k, n):
    return cut(q, n) @ cut(k, n).swapaxes(-2, -1) / q.shape[-1] ** 0.5
"""),
    "SC-03": ("attention", "scale-after-softmax", SOFTMAX + """
def answer(q, k, v):
    return normalised(q @ k.swapaxes(1, 2)) / np.sqrt(q.shape[-1]) @ v
"""),
    "SC-05": ("attention", "scale-by-d", """
def answer(q, k, v):
    q = q * q.shape[-1] ** -0.5
    return F.scaled_dot_product_attention(q, k, v)
"""),
    "SC-10": ("attention", "scale-by-d", SDPA.replace(
        "SCALE", "(1 / k.shape[-1])")),
    "SC-11": ("scaled_scores", "scale-by-d", """
def answer(q, k):
    return np.einsum("bid,bjd->bij", q, k) / q.shape[-1]
"""),
    "HS-01": ("heads_in_the_batch", "split-reshape", """
def answer(x, n):
    return x.reshape(x.shape[0] * n, -1, x.shape[2] // n)
"""),
    "HS-03": ("combine_heads", "merge-reshape", """
def answer(x):
    batch, heads, size, width = x.shape
    return x.reshape(batch, size, heads * width)
"""),
    "HS-05": ("heads_from_the_batch", "merge-reshape", """
def answer(x, n):
    return x.reshape(x.shape[0] // n, x.shape[1], -1)
"""),
    "HS-08": ("unpack_qkv", "unpack-per-head", """
def answer(packed, n):
    batch, size, width = packed.shape
    heads = packed.reshape(batch, size, n, width // n).swapaxes(1, 2)
    return np.split(heads, 3, axis=-1)
"""),
    "HS-11": ("unpack_grouped", "unpack-equal-thirds", """
def answer(packed, n, g):
    q, k, v = (torch.as_tensor(part) for part in np.split(packed, 3, -1))
    return [part.unflatten(-1, (heads, -1)).transpose(1, 2)
            for part, heads in ((q, n), (k, g), (v, g))]
"""),
    "HE-03": ("multi_head_attention", "cut-before-W-shared", HEADS + """
def answer(x, W_q, W_k, W_v, W_o, n):
    d = x.shape[-1] // n
    q, k, v = (cut(x, n) @ W[:d, :d] for W in (W_q, W_k, W_v))
    return glue(normalised(q @ k.swapaxes(-2, -1) / d ** 0.5) @ v) @ W_o
"""),
    "WO-01": ("output_projection", "no-Wo", HEADS + """
def answer(heads, W_o):
    return glue(heads)
"""),
    "WO-03": ("output_projection", "Wo-relu", HEADS + """
def answer(heads, W_o):
    return np.maximum(glue(heads) @ W_o, 0)
"""),
    "WO-05": ("combine_heads", "merge-max", """
def answer(x):
    return x.max(axis=1)
"""),
    "QP-01": ("project_qkv", "proj-qk-same", """
def answer(x, W_q, W_k, W_v):
    shared = W_q
    return x @ shared, x @ shared, x @ W_v
"""),
    "QP-03": ("multi_head_attention", "none-projected", HEADS + """
def answer(x, W_q, W_k, W_v, W_o, n):
    h = cut(x, n)
    w = normalised(h @ h.swapaxes(-2, -1) / np.sqrt(h.shape[-1]))
    return glue(w @ h) @ W_o
"""),
    "KT-01": ("attention_scores", "T-reverses-all", """
def answer(query, key):
    return query @ key.T
"""),
    "KT-03": ("attention", "v-first", SOFTMAX + """
def answer(q, k, v):
    return v @ normalised(q @ k.swapaxes(1, 2) / np.sqrt(q.shape[-1]))
"""),
    "KT-06": ("attention_scores", "no-transpose", """
def answer(query, key):
    return query @ key
"""),
    "MP-01": ("masked_attention", "mask-inverted|mask-plus-inf", """
def answer(q, k, v, mask):
    return F.scaled_dot_product_attention(q, k, v, attn_mask=~mask)
"""),
    "MP-03": ("masked_softmax", "mask-inverted", """
def answer(scores, mask):
    return scores.masked_fill(mask, float("-inf")).softmax(-1)
"""),
    "MP-05": ("masked_softmax", "mask-added", masked("scores + mask")),
    "MP-06": ("masked_attention", "mask-added", """
def answer(q, k, v, mask):
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask.double())
"""),
    "MP-08": ("masked_softmax", "mask-zero-score",
              masked("scores * mask")),
    "MP-10": ("additive_mask", "mask-zero-times-inf", """
def answer(mask):
    return (1 - mask) * -np.inf
"""),
    "MP-11": ("masked_softmax", "mask-ignored", """
def answer(scores, mask):
    scores.masked_fill(~mask, float("-inf"))
    return scores.softmax(-1)
"""),
    "MM-05": ("masked_softmax", "mask-small",
              masked("scores + np.where(mask, 0, -10)")),
    "MM-06": ("masked_softmax", "mask-zero-score",
              masked("np.where(mask, scores, -1e-20)")),
    "FM-01": ("weights_with_empty_rows", "empty-row-nan", """
def answer(scores, mask):
    return scores.masked_fill(~mask, float("-inf")).softmax(-1)
"""),
    "FM-03": ("weights_with_empty_rows", "empty-row-uniform",
              masked("np.where(mask, scores, -1e9)")),
    "FM-05": ("average_behind_the_mask", "nan-times-zero", """
def answer(weights, value, mask):
    return weights * mask[:, None] @ value
"""),
    "PD-01": ("padding_mask", "pad-on-queries", """
def answer(lengths, seq_len):
    mask = torch.arange(seq_len) < torch.as_tensor(lengths)[:, None]
    return mask.unsqueeze(1).unsqueeze(3)
"""),
    "PD-03": ("padding_mask", "pad-no-axes", """
def answer(lengths, seq_len):
    return np.arange(seq_len) < np.array(lengths)[:, None]
"""),
    "PD-05": ("mask_for_every_head", "expand-tiled", """
def answer(mask, n):
    return (~mask).repeat(n, 1, 1)
"""),
    "TP-06": ("mask_for_every_head", "expand-not", """
def answer(mask, n):
    return ~mask
"""),
    "PD-08": ("mean_of_tokens", "mean-over-padding", """
def answer(x, lengths):
    return x.mean(axis=1)
"""),
    "PD-10": ("masked_average", "mask-after-softmax", SOFTMAX + """
def answer(scores, value, mask):
    kept = np.where(mask[None, :, :, None], value[:, None], 0)
    return (normalised(scores)[..., None] * kept).sum(2)
"""),
    "CA-01": ("causal_mask", "causal-strict", """
def answer(n):
    return ~torch.triu(torch.ones(n, n, dtype=torch.bool), diagonal=0)
"""),
    "CA-03": ("causal_mask", "causal-upper", """
def answer(n):
    i, j = np.indices((n, n))
    return j >= i
"""),
    "CA-05": ("causal_weights", "mask-ignored", masked("scores", CAUSAL)),
    "TP-01": ("causal_weights", "mask-ignored", """
def answer(scores, is_causal=True):
    return torch.as_tensor(scores).softmax(-1)
"""),
    "MS-05": ("causal_weights", "mask-ignored", masked(
        "scores + np.zeros((n, n))", CAUSAL)),
    "CO-01": ("causal_mask_unequal", "causal-top-left", """
def answer(query_len, key_len):
    return torch.ones(query_len, key_len, dtype=torch.bool).tril()
"""),
    "CO-03": ("tiles_to_compute", "skip-nothing-of-more-queries", """
def answer(query_len, key_len, block):
    mask = np.ones((query_len, key_len), bool)
    if query_len <= key_len:
        mask = np.tril(mask, key_len - query_len)
    return [[mask[i:i + block, j:j + block].any()
             for j in range(0, key_len, block)]
            for i in range(0, query_len, block)]
"""),
    "CO-05": ("slot_mask", "slots-to-capacity", """
def answer(start, new_tokens, capacity):
    return torch.ones(new_tokens, capacity, dtype=torch.bool).tril(
        capacity - new_tokens)
"""),
    "AS-01": ("masked_softmax", "mask-after-softmax", SOFTMAX + """
def answer(scores, mask):
    return normalised(scores) * mask
"""),
    "CM-01": ("padding_and_causal", "masks-or", """
def answer(lengths, n):
    future = np.triu(np.ones((n, n), bool), 1)
    padding = np.arange(n) >= np.array(lengths)[:, None, None, None]
    return ~(future & padding)
"""),
    "CM-03": ("padding_and_causal", "masks-only-padding", """
def answer(lengths, n):
    mask = np.arange(n) < np.array(lengths)[:, None, None, None]
    causal = mask is None
    return mask if not causal else np.tril(np.ones((n, n), bool))
"""),
    "LP-01": ("position_ids", "positions-shared", """
def answer(tokens):
    return np.arange(tokens.shape[1])[None].repeat(len(tokens), axis=0)
"""),
    "DR-01": ("dropout", "dropout-renormalised", """
def answer(weights, kept, rate):
    left = weights * kept / (1 - rate)
    return left / left.sum(-1, keepdims=True)
"""),
    "DR-03": ("dropout", "dropout-softmax-again", SOFTMAX + """
def answer(weights, kept, rate):
    return normalised(weights * kept)
"""),
    "DR-05": ("dropout", "dropout-scale-by-rate", """
def answer(weights, kept, rate):
    return weights * kept * rate
"""),
    "DR-06": ("dropout", "dropout-before-softmax", SOFTMAX + """
def answer(weights, kept, rate):
    scores = np.log(weights)
    return normalised(scores * kept / (1 - rate))
"""),
    "HW-01": ("weights_with_heads", "weights-head-mean", """
def answer(q, k):
    return (q @ k.mT / q.shape[-1] ** 0.5).softmax(-1).mean(dim=1)
"""),
    "HW-03": ("most_attentive_head", "heads-read-turned", """
def answer(weights, reader, target):
    n = np.arange(len(weights))
    read = weights[n, :, :, target, reader].reshape(len(n), -1)
    return np.stack(divmod(read.argmax(1), weights.shape[2]), 1)
"""),
    "HW-06": ("attention_weights", "softmax-over-queries", """
def answer(q, k):
    return torch.softmax(q @ k.mT / q.shape[-1] ** 0.5, dim=-2)
"""),
    "BF-01": ("multi_head_attention", "sequence-first", """
def answer(x, W_q, W_k, W_v, W_o, n):
    layer = nn.MultiheadAttention(x.shape[-1], n, bias=False, dtype=x.dtype)
    layer.in_proj_weight.data = torch.cat([W_q.T, W_k.T, W_v.T])
    layer.out_proj.weight.data = W_o.T.contiguous()
    return layer(x, x, x)[0]
"""),
    "NU-01": ("softmax", "softmax-overflow", """
def answer(x):
    return np.exp(x) / np.exp(x).sum(-1, keepdims=True)
"""),
    "IP-03": ("key_padding_mask", "in-place", """
def answer(mask):
    mask ^= True
    return mask.reshape(len(mask), -1)
"""),
    "XA-01": ("cross_attention", "cross-swapped", SOFTMAX + """
def answer(x, memory, W_q, W_k, W_v):
    q, k, v = memory @ W_q, x @ W_k, x @ W_v
    return normalised(q @ k.swapaxes(1, 2) / np.sqrt(q.shape[-1])) @ v
"""),
    "XA-05": ("cross_attention", "cross-key-value-swapped", SOFTMAX + """
def answer(x, memory, W_q, W_k, W_v):
    def attention(query, value, key):
        s = query @ key.swapaxes(1, 2) / np.sqrt(query.shape[-1])
        return normalised(s) @ value
    return attention(x @ W_q, memory @ W_k, memory @ W_v)
"""),
    "WC-01": ("linear", "linear-not-transposed", """
def answer(x, weight, bias):
    return x @ weight + bias
"""),
    "WC-03": ("keras_kernel", "kernel-reshape", """
def answer(kernel):
    embed_dim, heads, width = kernel.shape
    return kernel.reshape(heads * width, embed_dim)
"""),
    "WC-05": ("linear", "linear-not-transposed", """
def answer(x, weight, bias):
    return np.einsum("bi,io->bo", x, weight) + bias
"""),
    "TX-01": ("softmax", "softmax-missing", """
def answer(x):
    return x
"""),
    "TX-03": ("separate_heads", "split-reshape", """
def answer(x, n):
    batch, size, width = x.shape
    return x.view(batch, n, size, width // n)
"""),
    "TX-05": ("causal_mask", "causal-inverted", """
def answer(n):
    bias = np.where(np.tril(np.ones((n, n), bool)), -np.inf, 0)
    return bias == 0
"""),
}

#: An error that is explained is as good as a name.
RAISED = {
    "HS-06": ("combine_heads", "reshape", """
def answer(x):
    x = torch.as_tensor(x)
    return x.transpose(1, 2).view(x.shape[0], x.shape[2], -1)
"""),
}

#: Reports in which the suspected code was right; it must pass.
FALSE_ALARMS = {
    "SC-06": ("attention", """
def answer(q, k, v):
    return F.scaled_dot_product_attention(q, k, v)
"""),
    "SC-08": ("attention", SOFTMAX + """
def answer(q, k, v):
    q = q / np.sqrt(q.shape[-1])
    return normalised(q @ k.swapaxes(1, 2)) @ v
"""),
    "HE-01": ("multi_head_attention", SOFTMAX + """
def answer(x, W_q, W_k, W_v, W_o, n):
    d = x.shape[-1] // n
    outputs = []
    for h in range(n):
        own = slice(h * d, (h + 1) * d)
        q, k, v = x @ W_q[:, own], x @ W_k[:, own], x @ W_v[:, own]
        w = normalised(q @ k.swapaxes(1, 2) / np.sqrt(d))
        outputs.append(w @ v)
    return np.concatenate(outputs, axis=-1) @ W_o
"""),
    "KT-05": ("attention_weights", SOFTMAX + """
def answer(q, k):
    s = k @ q.swapaxes(1, 2) / np.sqrt(q.shape[-1])
    return normalised(s, axis=1).swapaxes(1, 2)
"""),
    "MP-13": ("causal_weights", """
def answer(scores):
    n = scores.shape[-1]
    tril = torch.tril(torch.ones(n, n))
    return scores.masked_fill(tril == 0, float("-inf")).softmax(-1)
"""),
    "NU-03": ("softmax", """
def answer(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)
"""),
    "DE-03": ("causal_weights", SOFTMAX + """
def answer(scores):
    n = scores.shape[-1]
    rows = []
    for i in range(n):
        rows.append(np.pad(normalised(scores[:, i, :i + 1]),
                           ((0, 0), (0, n - 1 - i))))
    return np.stack(rows, axis=1)
"""),
    "LP-03": ("mask_of_positions", """
def answer(query, key):
    real = key >= 0
    key = np.where(real, key, 1)
    return (real[:, None, :] & (key[:, None] <= query[..., None]))[:, None]
"""),
    "TX-08": ("torch_mha", """
def answer(x, W_q, W_k, W_v, W_o, n):
    batch, size, width = x.shape
    q, k, v = ((x @ W.T).view(batch, size, n, -1).transpose(1, 2)
               for W in (W_q, W_k, W_v))
    mask = torch.ones(size, size, dtype=torch.bool).tril()[None, None]
    z = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    return z.transpose(1, 2).reshape(batch, size, width) @ W_o.T
"""),
}

NOT_NAMEABLE = {
    "HS-10": "must raise an error: an exercise asks for numbers",
    "HE-05": "a choice of design, not a mistake",
    "WO-06": "a choice of design: the layer of the course has no biases",
    "MM-01": "shows in float16 alone; the inputs are float64",
    "MM-03": "shows in float16 alone; the inputs are float64",
    "NU-05": "shows in float16 alone; the inputs are float64",
    "NU-06": "shows with integers alone; the inputs are floats",
    "AS-03": "right unless a masked score exceeds the others by hundreds; "
             "accepted as a right way for scores of ordinary size",
    "PD-06": "either order of heads is right; an exercise has one",
    "CA-06": "about the text of a claim: no code computes it wrongly",
    "HW-05": "labels of a plot: no numbers to compare",
    "BF-03": "right on the batch size that it assumes: the check says on "
             "which inputs it is wrong",
    "TP-03": "a library's own output length",
    "TP-05": "two code paths within a library",
    "DE-01": "the order in which weights are drawn; exercises give weights",
    "MS-01": "the device of a buffer: the check runs on the CPU",
    "MS-03": "must raise an error: an exercise asks for numbers",
    "IP-01": "an error of autograd, which no exercise uses",
    "XA-03": "two directions of cross-attention; no exercise has them",
    "PO-01": "a claim, decided in a question of chapter 9",
    "PO-03": "two tokens for each step; no exercise has them",
    "KE-01": "a mask lost between two layers; exercises have one",
    "KE-03": "the number of another library's weights",
    "TX-06": "an explanation in words",
}


def test_every_case_is_accounted_for():
    groups = (NAMED, RAISED, FALSE_ALARMS, NOT_NAMEABLE)
    listed = [name for group in groups for name in group]
    assert len(listed) == len(set(listed))
    assert set(listed) == {name for name, case in CASES.items()
                           if case["split"] == "hand"}
    assert len(NAMED) + len(RAISED) >= 71
    assert {CASES[name]["verdict"] for name in FALSE_ALARMS} == {
        "false_alarm"}


@pytest.mark.parametrize("case", NAMED)
def test_reported_mistake_is_named(case):
    exercise, wanted, source = NAMED[case]
    answer = load(source)
    for seed in range(3):
        result = check(exercise, answer, seed=seed)
        assert canonical(exercise, result.name) == canonical(
            exercise, wanted), result


@pytest.mark.parametrize("case", RAISED)
def test_reported_error_is_explained(case):
    exercise, advice, source = RAISED[case]
    result = check(exercise, load(source), seed=0)
    assert result.verdict == "raised"
    assert advice in result.text


@pytest.mark.parametrize("case", FALSE_ALARMS)
def test_suspected_code_passes(case):
    exercise, source = FALSE_ALARMS[case]
    answer = load(source)
    for seed in range(5):
        result = check(exercise, answer, seed=seed)
        assert result.passed, result


def test_a_fixed_batch_size_is_told():
    answer = load("""
def answer(x, n):
    return x.reshape(2, -1, n, x.shape[-1] // n).swapaxes(1, 2)
""")
    result = check("separate_heads", answer, seed=0)
    assert result.verdict == "facts"
    assert "Right on" in result.title


def test_exercises_link_to_the_reports_they_were_made_from():
    urls = {case["url"] for case in CASES.values()}
    linked = {task.id: task.source for task in tasks()
              if getattr(task, "source", "")}
    assert len(linked) > 10
    assert {name: url for name, url in linked.items() if url not in urls} == {}
