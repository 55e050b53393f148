"""Wrong answers with a known mistake, each with the name it must get.

``a+b`` means both mistakes together, ``a|b`` that both fit the numbers.
"""

from right_answers import HEADS, SOFTMAX

TORCH_LAYER = """
def layer(x, W_q, W_k, W_v, W_o, n, scale=None, mask="right", glue=True,
          dim=-1, use=lambda a, W: a @ W.T):
    batch, size, width = x.shape
    q, k, v = [torch.stack(use(x, W).chunk(n, -1), 1)
               for W in (W_q, W_k, W_v)]
    s = torch.einsum("bhid,bhjd->bhij", q, k) / (scale or (width // n) ** .5)
    full = torch.ones(size, size, dtype=torch.bool)
    hidden = {"right": full.triu(1), "none": ~full, "past": full.tril(),
              "strict": full.triu(0), "late": full.triu(2),
              "upper": full.tril(-1)}[mask]
    w = s.masked_fill(hidden, float("-inf")).softmax(dim)
    out = w @ v
    out = (torch.cat(list(out.unbind(1)), -1) if glue
           else out.reshape(batch, size, width))
    return use(out, W_o)
"""

WRONG = [
    # chapter 1
    ("project_word", "proj-transposed", """
def answer(x, W_q, W_k, W_v):
    return W_q @ x, W_k @ x, W_v @ x
"""),
    ("project_word", "proj-qk-same", """
def answer(x, W_q, W_k, W_v):
    return x @ W_q, x @ W_q, x @ W_v
"""),
    ("project_word", "proj-relu", """
def answer(x, *matrices):
    return [np.where(x @ W > 0, x @ W, 0) for W in matrices]
"""),
    ("project_qkv", "proj-transposed", """
def answer(x, W_q, W_k, W_v):
    return F.linear(x, W_q), F.linear(x, W_k), F.linear(x, W_v)
"""),
    ("project_qkv", "proj-kv-same", """
def answer(x, W_q, W_k, W_v):
    return [x.dot(W_q), x.dot(W_k), x.dot(W_k)]
"""),
    ("project_qkv", "proj-W-first", """
def answer(x, W_q, W_k, W_v):
    return tuple(np.matmul(W, x) for W in (W_q, W_k, W_v))
"""),
    ("project_qkv", "proj-order", """
def answer(x, W_q, W_k, W_v):
    k, q, v = (x @ W for W in (W_q, W_k, W_v))
    return q, k, v
"""),
    # chapter 2
    ("score_of_pair", "elementwise", """
def answer(query, key):
    return np.array([a * b for a, b in zip(query, key)])
"""),
    ("score_of_pair", "score-scaled", """
def answer(query, key):
    return np.dot(query, key) / len(key) ** 0.5
"""),
    ("scores_of_one_query", "no-scale", """
def answer(query, keys):
    return np.array([query.dot(key) for key in keys])
"""),
    ("scores_of_one_query", "scale-by-sqrt-T", """
def answer(query, keys):
    return keys @ query / np.sqrt(len(keys))
"""),
    ("weights_of_one_query", "softmax-overflow", """
def answer(scores):
    e = np.exp(scores)
    return e / e.sum()
"""),
    ("weights_of_one_query", "softmax-no-sum", """
def answer(scores):
    return np.exp(scores - np.max(scores))
"""),
    ("attend_with_one_query", "scale-after-softmax", SOFTMAX + """
def answer(query, keys, values):
    w = normalised(keys @ query) / np.sqrt(query.size)
    return w @ values
"""),
    ("attend_with_one_query", "hardmax", """
def answer(query, keys, values):
    return values[(keys @ query).argmax()]
"""),
    # chapter 3
    ("attention_scores", "T-reverses-all", """
def answer(query, key):
    return query @ np.transpose(key)
"""),
    ("attention_scores", "q-with-q", """
def answer(query, key):
    return np.einsum("bid,bjd->bij", query, query)
"""),
    ("attention_scores", "sum-of-elementwise", """
def answer(query, key):
    return np.einsum("bid,bid->bi", query, key)
"""),
    ("attention_scores", "batch-summed", """
def answer(query, key):
    out = np.zeros((len(query), query.shape[1], key.shape[1]))
    out += np.einsum("bqd,bkd->qk", query, key)
    return out
"""),
    ("attention_matrix", "v-transposed", SOFTMAX + """
def answer(Q, K, V):
    return normalised(Q @ K.T / np.sqrt(K.shape[1])) @ V.T
"""),
    ("attention_matrix", "softmax-over-queries", """
def answer(Q, K, V):
    return torch.softmax(Q @ K.T / K.shape[1] ** 0.5, dim=0) @ V
"""),
    ("batch_without_loops", "no-transpose", SOFTMAX + """
def answer(query, key, value):
    return normalised(query @ key / np.sqrt(key.shape[-1])) @ value
"""),
    # chapter 4
    ("softmax", "softmax-over-queries", """
def answer(x):
    if x.ndim == 1:
        raise ValueError("two axes are needed")
    e = np.exp(x - x.max(axis=-2, keepdims=True))
    return e / e.sum(axis=-2, keepdims=True)
"""),
    ("softmax", "softmax-global", """
def answer(x):
    e = np.exp(x - np.max(x))
    return e / np.sum(e)
"""),
    ("softmax", "softmax-global-max", """
def answer(x):
    z = np.exp(x - x.max())
    return z / z.sum(-1, keepdims=True)
"""),
    ("softmax", "softmax-no-exp", """
def answer(x):
    return x / np.sum(x, axis=-1, keepdims=True)
"""),
    ("softmax", "log-softmax", """
def answer(x):
    return F.log_softmax(torch.as_tensor(x), dim=-1)
"""),
    ("softmax", "softmax-min", """
def answer(x):
    e = np.exp(x - x.min(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)
"""),
    ("softmax", "softmax-size-one", """
def answer(x):
    return F.softmax(torch.as_tensor(x).unsqueeze(-1), -1).squeeze(-1)
"""),
    ("scaled_scores", "scale-by-d", """
def answer(query, key):
    d_k = query.shape[2]
    return query @ key.swapaxes(1, 2) / d_k
"""),
    ("scaled_scores", "scale-by-d", """
def answer(query, key):
    root = np.sqrt(query.shape[-1])
    return (query / root) @ key.swapaxes(1, 2) / root
"""),
    ("scaled_scores", "scale-by-sqrt-T", """
def answer(query, key):
    b, n, d = key.shape
    return query @ key.swapaxes(1, 2) / np.sqrt(n)
"""),
    ("scaled_scores", "scale-floor", """
def answer(query, key):
    return query @ key.swapaxes(1, 2) // np.sqrt(key.shape[-1])
"""),
    ("attention_weights", "softmax-over-queries", """
def answer(query, key):
    s = torch.einsum("bid,bjd->bij", query, key) / query.shape[-1] ** 0.5
    return torch.softmax(s, dim=1)
"""),
    ("attention_weights", "softmax-twice", SOFTMAX + """
def answer(query, key):
    s = query @ key.swapaxes(1, 2) / np.sqrt(query.shape[-1])
    return normalised(normalised(s))
"""),
    ("attention_weights", "no-scale+softmax-over-queries", SOFTMAX + """
def answer(query, key):
    return normalised(query @ key.swapaxes(1, 2), axis=-2)
"""),
    ("attention", "no-scale", SOFTMAX + """
def answer(query, key, value):
    return normalised(query @ key.swapaxes(1, 2)) @ value
"""),
    ("attention", "weights-transposed", SOFTMAX + """
def answer(query, key, value):
    w = normalised(query @ key.swapaxes(1, 2) / np.sqrt(query.shape[-1]))
    return np.einsum("bji,bjd->bid", w, value)
"""),
    ("attention", "v-transposed", SOFTMAX + """
def answer(query, key, value):
    w = normalised(query @ key.swapaxes(1, 2) / np.sqrt(query.shape[-1]))
    return w @ value.swapaxes(1, 2)
"""),
    ("attention", "scale-by-d+softmax-over-queries", SOFTMAX + """
def answer(query, key, value):
    a = query @ key.transpose(0, 2, 1) / query.shape[-1]
    return normalised(a, 1) @ value
"""),
    ("attention", "no-scale+uses-k-as-v", """
def answer(query, key, value):
    return torch.softmax(query @ key.mT, -1) @ key
"""),
    ("weights_with_heads", "softmax-over-heads", """
def answer(query, key):
    s = query @ key.transpose(-2, -1) / query.shape[-1] ** 0.5
    return s.softmax(1)
"""),
    # chapter 5
    ("separate_heads", "split-reshape", """
def answer(x, num_heads):
    return np.reshape(x, (x.shape[0], num_heads, x.shape[1], -1))
"""),
    ("separate_heads", "split-no-transpose", """
def answer(x, num_heads):
    return x.reshape(*x.shape[:2], num_heads, -1)
"""),
    ("separate_heads", "split-swap-T-dh", """
def answer(x, num_heads):
    b, t, d = x.shape
    return np.einsum("bthd->bhdt", x.reshape(b, t, num_heads, -1))
"""),
    ("separate_heads", "split-interleaved", """
def answer(x, num_heads):
    return np.stack([x[:, :, h::num_heads] for h in range(num_heads)], 1)
"""),
    ("wide_matrix", "wide-stacked", """
def answer(matrices):
    return np.concatenate(matrices)
"""),
    ("wide_matrix", "wide-reshape", """
def answer(matrices):
    return matrices.reshape(matrices.shape[1], -1)
"""),
    ("heads_in_the_batch", "split-head-major", """
def answer(x, num_heads):
    return np.concatenate(np.split(x, num_heads, axis=-1))
"""),
    ("scores_of_heads", "scale-by-sqrt-H", HEADS + """
def answer(q, k, num_heads):
    q, k = cut(q, num_heads), cut(k, num_heads)
    return q @ k.swapaxes(2, 3) / num_heads ** 0.5
"""),
    # chapter 6
    ("padding_mask", "pad-inverted", """
def answer(lengths, seq_len):
    m = np.zeros((len(lengths), 1, 1, seq_len), bool)
    for b, n in enumerate(lengths):
        m[b, 0, 0, n:] = True
    return m
"""),
    ("padding_mask", "pad-on-queries", """
def answer(lengths, seq_len):
    return (np.arange(seq_len) < lengths[:, None])[:, None, :, None]
"""),
    ("padding_mask", "pad-one-axis-short", """
def answer(lengths, seq_len):
    return (np.arange(seq_len) < lengths[:, None])[:, None]
"""),
    ("causal_mask", "causal-strict", """
def answer(seq_len):
    return np.tril(np.ones((seq_len, seq_len), dtype=bool), -1)
"""),
    ("causal_mask", "causal-plus-one", """
def answer(seq_len):
    return np.tri(seq_len, seq_len, 1, dtype=bool)
"""),
    ("causal_mask", "causal-additive", """
def answer(seq_len):
    return np.triu(np.full((seq_len, seq_len), -np.inf), 1)
"""),
    ("causal_mask_unequal", "causal-top-left", """
def answer(query_len, key_len):
    return np.tril(np.ones((query_len, key_len), dtype=bool))
"""),
    ("causal_mask_unequal", "causal-offset-sign", """
def answer(query_len, key_len):
    return np.tri(query_len, key_len, query_len - key_len, dtype=bool)
"""),
    ("padding_and_causal", "masks-or", """
def answer(lengths, seq_len):
    pad = np.arange(seq_len) < np.array(lengths)[:, None]
    return pad[:, None, None] | np.tri(seq_len, dtype=bool)
"""),
    ("padding_and_causal", "masks-pad-on-queries", """
def answer(lengths, seq_len):
    pad = np.arange(seq_len) < np.array(lengths)[:, None]
    return pad[:, None, :, None] & np.tri(seq_len, dtype=bool)
"""),
    ("additive_mask", "mask-zero-times-inf", """
def answer(attention_mask):
    return (1 - attention_mask) * float("-inf")
"""),
    ("masked_softmax", "mask-inverted", SOFTMAX + """
def answer(scores, attention_mask):
    s = scores.copy()
    s[:, attention_mask] = -np.inf
    return normalised(s)
"""),
    ("masked_softmax", "mask-zero-score", SOFTMAX + """
def answer(scores, attention_mask):
    return normalised(scores * attention_mask)
"""),
    ("masked_softmax", "mask-after-softmax", SOFTMAX + """
def answer(scores, attention_mask):
    w = normalised(scores)
    w[..., ~attention_mask] = 0
    return w
"""),
    ("masked_softmax", "softmax-over-queries", SOFTMAX + """
def answer(scores, attention_mask):
    return normalised(np.where(attention_mask, scores, -1e9), -2)
"""),
    ("masked_softmax", "mask-plus-inf", SOFTMAX + """
def answer(scores, attention_mask):
    return normalised(scores + (~attention_mask) * 1e9)
"""),
    ("masked_softmax", "mask-added", SOFTMAX + """
def answer(scores, attention_mask):
    return normalised(np.where(attention_mask, scores, scores - 1))
"""),
    ("masked_softmax", "mask-ignored", """
def answer(scores, attention_mask):
    scores.masked_fill(~attention_mask, float("-inf"))
    return scores.softmax(-1)
"""),
    ("masked_attention", "mask-inverted|mask-plus-inf", """
def answer(query, key, value, attention_mask):
    return F.scaled_dot_product_attention(query, key, value,
                                          attn_mask=~attention_mask)
"""),
    ("masked_attention", "mask-added", """
def answer(query, key, value, attention_mask):
    return F.scaled_dot_product_attention(
        query, key, value, attn_mask=attention_mask.to(query.dtype))
"""),
    ("masked_attention", "mask-after-softmax", SOFTMAX + """
def answer(query, key, value, attention_mask):
    s = query @ key.swapaxes(1, 2) / np.sqrt(query.shape[-1])
    return (normalised(s) * attention_mask) @ value
"""),
    ("masked_attention", "mask-ignored+scale-by-d", SOFTMAX + """
def answer(query, key, value, attention_mask):
    s = query @ key.swapaxes(1, 2) / query.shape[-1]
    return normalised(s) @ value
"""),
    ("weights_with_empty_rows", "empty-row-nan", SOFTMAX + """
def answer(scores, attention_mask):
    return normalised(np.where(attention_mask, scores, -np.inf))
"""),
    ("weights_with_empty_rows", "empty-row-uniform", SOFTMAX + """
def answer(scores, attention_mask):
    return normalised(np.where(attention_mask, scores, -1e9))
"""),
    ("weights_with_empty_rows", "empty-row-unmasked", SOFTMAX + """
def answer(scores, attention_mask):
    return normalised(scores + np.where(attention_mask, 0, -1e9))
"""),
    ("key_padding_mask", "polarity-kept", """
def answer(attention_mask):
    return attention_mask.squeeze((1, 2))
"""),
    ("mask_for_every_head", "expand-tiled", """
def answer(attention_mask, num_heads):
    return np.concatenate([~attention_mask] * num_heads)
"""),
    ("mean_of_tokens", "mean-over-padding", """
def answer(x, lengths):
    return x.mean(axis=1)
"""),
    ("mean_of_tokens", "mean-wrong-count", """
def answer(x, lengths):
    return np.array([row[:n].sum(0) / len(row) for row, n in zip(x, lengths)])
"""),
    ("causal_weights", "causal-strict", """
def answer(scores):
    hidden = torch.ones(scores.shape[1:], dtype=torch.bool).triu()
    return scores.masked_fill(hidden, float("-inf")).softmax(-1)
"""),
    ("causal_weights", "causal-upper", SOFTMAX + """
def answer(scores):
    keep = np.triu(np.ones(scores.shape[1:]))
    return normalised(np.where(keep, scores, -1e9))
"""),
    ("masked_average", "mask-ignored", SOFTMAX + """
def answer(scores, value, attention_mask):
    return normalised(scores) @ value
"""),
    # chapter 7
    ("combine_heads", "merge-reshape", """
def answer(x):
    b, h, t, d = x.shape
    return np.reshape(x, (b, t, -1))
"""),
    ("combine_heads", "merge-sum", """
def answer(x):
    return sum(x[:, h] for h in range(x.shape[1]))
"""),
    ("combine_heads", "merge-swap-last", """
def answer(x):
    b, h, t, d = x.shape
    return x.transpose(0, 1, 3, 2).reshape(b, t, h * d)
"""),
    ("combine_heads", "merge-concat-time", """
def answer(x):
    return np.concatenate([x[:, h] for h in range(x.shape[1])], axis=1)
"""),
    ("attention_through_heads", "single-head", SOFTMAX + """
def answer(q, k, v, num_heads):
    return normalised(q @ k.swapaxes(1, 2) / q.shape[-1] ** 0.5) @ v
"""),
    ("attention_through_heads", "merge-reshape", HEADS + """
def answer(q, k, v, num_heads):
    a, b, c = (cut(x, num_heads) for x in (q, k, v))
    out = normalised(a @ b.swapaxes(2, 3) / a.shape[-1] ** 0.5) @ c
    return out.reshape(q.shape)
"""),
    ("output_projection", "no-Wo", """
def answer(heads, W_o):
    return np.concatenate(list(heads.swapaxes(0, 1)), axis=-1)
"""),
    ("output_projection", "Wo-relu", HEADS + """
def answer(heads, W_o):
    return np.clip(glue(heads) @ W_o, 0, None)
"""),
    ("head_contributions", "contribution-first-rows", """
def answer(heads, W_o):
    return heads @ W_o[:heads.shape[-1]]
"""),
    ("heads_from_the_batch", "merge-head-major", HEADS + """
def answer(x, num_heads):
    return glue(np.stack(np.split(x, num_heads), axis=1))
"""),
    # chapter 8
    ("multi_head_attention", "no-Wo", HEADS + """
def answer(x, W_q, W_k, W_v, W_o, n):
    q, k, v = (cut(x @ W, n) for W in (W_q, W_k, W_v))
    return glue(normalised(q @ k.swapaxes(-1, -2) / q.shape[-1] ** .5) @ v)
"""),
    ("multi_head_attention", "single-head", SOFTMAX + """
def answer(x, W_q, W_k, W_v, W_o, n):
    q, k, v = x @ W_q, x @ W_k, x @ W_v
    return normalised(q @ k.swapaxes(-1, -2) / x.shape[-1] ** .5) @ v @ W_o
"""),
    ("multi_head_attention", "merge-reshape+split-reshape", SOFTMAX + """
def answer(x, W_q, W_k, W_v, W_o, n):
    B, T, D = x.shape
    q, k, v = [(x @ W).reshape(B, n, T, -1) for W in (W_q, W_k, W_v)]
    out = normalised(q @ k.swapaxes(-1, -2) / np.sqrt(D // n)) @ v
    return out.reshape(B, T, D) @ W_o
"""),
    ("multi_head_attention", "heads-attend-heads", SOFTMAX + """
def answer(x, W_q, W_k, W_v, W_o, n):
    B, T, D = x.shape
    q, k, v = [(x @ W).reshape(B, T, n, -1) for W in (W_q, W_k, W_v)]
    out = normalised(q @ k.swapaxes(-1, -2) / np.sqrt(D // n)) @ v
    return out.reshape(B, T, D) @ W_o
"""),
    ("multi_head_attention", "v-not-projected", HEADS + """
def answer(x, W_q, W_k, W_v, W_o, n):
    q, k, v = cut(x @ W_q, n), cut(x @ W_k, n), cut(x, n)
    w = normalised(q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1]))
    return glue(w @ v) @ W_o
"""),
    ("multi_head_attention", "no-Wo+no-scale", HEADS + """
def answer(x, W_q, W_k, W_v, W_o, n):
    q, k, v = (cut(x @ W, n) for W in (W_q, W_k, W_v))
    return glue(normalised(q @ k.swapaxes(-1, -2)) @ v)
"""),
    ("masked_multi_head_attention", "mask-inverted", HEADS + """
def answer(x, W_q, W_k, W_v, W_o, n, mask):
    q, k, v = (cut(x @ W, n) for W in (W_q, W_k, W_v))
    s = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    return glue(normalised(np.where(mask, -np.inf, s)) @ v) @ W_o
"""),
    ("torch_mha", "causal-strict", TORCH_LAYER + """
def answer(*given):
    return layer(*given, mask="strict")
"""),
    ("torch_mha", "causal-upper", TORCH_LAYER + """
def answer(*given):
    return layer(*given, mask="upper")
"""),
    ("torch_mha", "scale-by-sqrt-D", TORCH_LAYER + """
def answer(x, *given):
    return layer(x, *given, scale=x.shape[-1] ** .5)
"""),
    ("torch_mha", "mask-inverted", TORCH_LAYER + """
def answer(*given):
    return layer(*given, mask="past")
"""),
    ("torch_mha", "all-W-transposed", TORCH_LAYER + """
def answer(*given):
    return layer(*given, use=lambda a, W: a @ W)
"""),
    ("torch_mha", "merge-reshape", TORCH_LAYER + """
def answer(*given):
    return layer(*given, glue=False)
"""),
    ("self_attention_module", "no-Wo", """
class answer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        for name in ("W_q", "W_k", "W_v", "W_o"):
            setattr(self, name, nn.Linear(width, width, bias=False))

    def forward(self, x, mask):
        q, k, v = (f(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
                   for f in (self.W_q, self.W_k, self.W_v))
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return out.transpose(1, 2).flatten(2)
"""),
    ("unpack_qkv", "unpack-per-head", """
def answer(packed, num_heads):
    b, t, width = packed.shape
    x = packed.reshape(b, t, num_heads, 3, -1).transpose(3, 0, 2, 1, 4)
    return tuple(x)
"""),
    ("linear", "linear-not-transposed", """
def answer(x, weight, bias):
    return np.dot(x, weight) + bias
"""),
    ("cross_attention", "cross-swapped", """
def answer(x, memory, W_q, W_k, W_v):
    return F.scaled_dot_product_attention(memory @ W_q, x @ W_k, x @ W_v)
"""),
    ("cross_attention", "cross-self", """
def answer(x, memory, W_q, W_k, W_v):
    return F.scaled_dot_product_attention(x @ W_q, x @ W_k, x @ W_v)
"""),
    # chapter 9
    ("positional_encoding", "pe-exponent", """
def answer(seq_len, width):
    out = np.zeros((seq_len, width))
    for p in range(seq_len):
        for i in range(width // 2):
            out[p, 2 * i] = np.sin(p / 10000 ** (i / width))
            out[p, 2 * i + 1] = np.cos(p / 10000 ** (i / width))
    return out
"""),
    ("positional_encoding", "pe-own-frequency", """
def answer(seq_len, width):
    out = np.zeros((seq_len, width))
    for p in range(seq_len):
        for i in range(width):
            a = p / 10000 ** (i / width)
            out[p, i] = np.cos(a) if i % 2 else np.sin(a)
    return out
"""),
    ("positional_encoding", "pe-from-1", """
def answer(seq_len, width):
    a = np.outer(range(1, seq_len + 1),
                 1 / 10000 ** (np.arange(0, width, 2) / width))
    return np.stack([np.sin(a), np.cos(a)], -1).reshape(seq_len, width)
"""),
    ("layer_norm", "ln-ddof", """
def answer(x, gamma, beta, eps):
    x, gamma, beta = (torch.as_tensor(a) for a in (x, gamma, beta))
    spread = torch.sqrt(x.var(-1, keepdim=True) + eps)
    return gamma * (x - x.mean(-1, keepdim=True)) / spread + beta
"""),
    ("layer_norm", "ln-axis-positions", """
def answer(x, gamma, beta, eps):
    m, s = x.mean(1, keepdims=True), x.var(1, keepdims=True)
    return (x - m) / (s + eps) ** .5 * gamma + beta
"""),
    ("layer_norm", "ln-no-affine", """
def answer(x, gamma, beta, eps):
    return F.layer_norm(x, x.shape[-1:], eps=eps)
"""),
    ("layer_norm", "ln-by-var", """
def answer(x, gamma, beta, eps):
    centred = x - x.mean(-1, keepdims=True)
    return centred / (x.var(-1, keepdims=True) + eps) * gamma + beta
"""),
    ("feed_forward", "ff-no-relu", """
def answer(x, W_1, b_1, W_2, b_2):
    return (x @ W_1 + b_1) @ W_2 + b_2
"""),
    ("feed_forward", "ff-relu-twice", """
def answer(x, W_1, b_1, W_2, b_2):
    return F.relu(F.relu(x @ W_1 + b_1) @ W_2 + b_2)
"""),
    ("dropout", "dropout-no-scale", """
def answer(weights, kept, rate):
    return weights * kept
"""),
    ("dropout", "dropout-softmax-again", SOFTMAX + """
def answer(weights, kept, rate):
    return normalised(weights * kept)
"""),
    ("dropped_average", "dropout-divided-by-rate", """
def answer(weights, kept, rate, value):
    return (weights * kept / rate) @ value
"""),
    ("pre_norm_block", "block-post-norm", """
def answer(x, gamma, beta, eps, W):
    y = torch.as_tensor(x + x @ W)
    gamma, beta = torch.as_tensor(gamma), torch.as_tensor(beta)
    return F.layer_norm(y, y.shape[-1:], gamma, beta, eps)
"""),
    ("post_norm_block", "block-no-residual", """
def answer(x, gamma, beta, eps, W):
    y = x @ W
    y = (y - y.mean(-1, keepdims=True)) / np.sqrt(
        y.var(-1, keepdims=True) + eps)
    return y * gamma + beta
"""),
    ("position_ids", "positions-shared", """
def answer(tokens):
    return [list(range(len(row))) for row in tokens]
"""),
    # chapter 10
    ("softmax_gradient", "softmax-grad-diagonal", """
def answer(a, g):
    return g * a - g * a ** 2
"""),
    ("softmax_gradient", "softmax-grad-over-queries", """
def answer(a, g):
    return a * (g - np.einsum("bij,bij->bj", a, g)[:, None])
"""),
    ("softmax_gradient", "softmax-grad-plain-mean", """
def answer(a, g):
    return a * (g - g.sum(-1, keepdims=True) / g.shape[-1])
"""),
    ("query_key_gradients", "qk-grad-scale-twice", """
def answer(g, q, k):
    g = g / np.sqrt(q.shape[-1])
    g = g / np.sqrt(k.shape[-1])
    return g @ k, g.transpose(0, 2, 1) @ q
"""),
    ("query_key_gradients", "qk-grad-no-transpose", """
def answer(g, q, k):
    g = g / q.shape[-1] ** 0.5
    return torch.bmm(g, k), torch.bmm(g, q)
"""),
    ("linear_gradients", "linear-grad-first", """
def answer(x, W, g):
    return g @ W.T, np.outer(x[0, 0], g[0, 0]) + sum(
        np.outer(x[0, t], g[0, t]) for t in range(1, x.shape[1])), sum(g[0])
"""),
    ("linear_gradients", "linear-grad-mean-tokens", """
def answer(x, W, g):
    x2, g2 = x.reshape(-1, x.shape[-1]), g.reshape(-1, g.shape[-1])
    return g @ W.T, x2.T @ g2 / len(x2), g2.mean(0)
"""),
    ("linear_gradients", "linear-grad-bias-one-axis", """
def answer(x, W, g):
    return g @ W.T, np.tensordot(x, g, axes=([0, 1], [0, 1])), sum(g)
"""),
    ("embedding_gradient", "paths-value-only", """
def answer(a, b, c, W_q, W_k, W_v):
    return np.einsum("bto,io->bti", c, W_v)
"""),
    ("embedding_gradient", "paths-W-reshaped", """
def answer(a, b, c, W_q, W_k, W_v):
    size = W_q.shape[::-1]
    return sum(g @ W.reshape(*size) for g, W in (
        (a, W_q), (b, W_k), (c, W_v)))
"""),
    # chapter 11
    ("choice_of_a_row", "choice-of-weights", SOFTMAX + """
def answer(query, keys, i, j):
    w = normalised(keys @ query / np.sqrt(query.size))
    return w[i] - w[j]
"""),
    ("choice_of_a_row", "choice-no-scale", SOFTMAX + """
def answer(query, keys, i, j):
    w = np.log(normalised(keys @ query))
    return w[i] - w[j]
"""),
    ("without_head", "ablate-uniform", """
def answer(weights, value, W_o, head):
    scores = weights.log()
    scores[:, head] = 0
    return (scores.softmax(-1) @ value).transpose(1, 2).flatten(2) @ W_o
"""),
    ("without_head", "ablate-columns", """
def answer(weights, value, W_o, head):
    size, W = value.shape[-1], W_o.copy()
    W[:, head * size:(head + 1) * size] = 0
    z = np.concatenate(list((weights @ value).swapaxes(0, 1)), -1)
    return z @ W
"""),
    ("without_head", "ablate-others", """
def answer(weights, value, W_o, head):
    size = value.shape[-1]
    rows = W_o[head * size:(head + 1) * size]
    return weights[:, head] @ value[:, head] @ rows
"""),
    # chapter 12
    ("most_attentive_head", "heads-read-turned", """
def answer(weights, reader, target):
    found = []
    for text, i, j in zip(weights, reader, target):
        found.append(np.unravel_index(text[:, :, j, i].argmax(),
                                      text.shape[:2]))
    return found
"""),
    ("most_attentive_head", "heads-best-separate", """
def answer(weights, reader, target):
    read = np.stack([w[:, :, i, j] for w, i, j in zip(
        weights, reader, target)])
    return np.stack([read.sum(2).argmax(1), read.sum(1).argmax(1)], 1)
"""),
    # chapter 13
    ("three_hot", "hot-no-offsets", """
def answer(tokens, segments, a, b, c):
    rows = np.zeros((len(tokens), a + b + c))
    for n in range(len(tokens)):
        for column in (tokens[n], n, segments[n]):
            rows[n, column] = 1
    return rows
"""),
    ("three_hot", "hot-order", """
def answer(tokens, segments, a, b, c):
    return np.hstack([np.eye(a)[tokens], np.eye(c)[segments],
                      np.eye(b)[:len(tokens)]])
"""),
    ("score_terms", "terms-cross-swapped", """
def answer(w, p, W_q, W_k):
    return np.stack([(a @ W_q) @ (b @ W_k).T for b in (w, p)
                     for a in (w, p)]) / np.sqrt(W_k.shape[1])
"""),
    ("score_terms", "terms-scale-on-one", """
def answer(w, p, W_q, W_k):
    q, k = w @ W_q, p @ W_k
    first = q @ (w @ W_k).T / np.sqrt(q.shape[1])
    return [first, q @ k.T, (p @ W_q) @ (w @ W_k).T, (p @ W_q) @ k.T]
"""),
    # chapter 14
    ("online_softmax_step", "online-values-not-corrected", """
def answer(m, l, z, s, v):
    new = np.concatenate([m, s], 1).max(1)[:, None]
    p = np.exp(s - new)
    return new, l * np.exp(m - new) + p.sum(1)[:, None], z + p @ v
"""),
    ("online_softmax_step", "online-correction-inverted", """
def answer(m, l, z, s, v):
    new = torch.maximum(m, s.amax(1, keepdim=True))
    p, c = (s - new).exp(), (new - m).exp()
    return new, c * l + p.sum(1, keepdim=True), c * z + p @ v
"""),
    ("online_softmax_step", "online-tile-largest", """
def answer(m, l, z, s, v):
    new = s.max(1)[:, None]
    p, c = np.exp(s - new), np.exp(m - new)
    return new, l * c + np.einsum("ij->i", p)[:, None], z * c + p @ v
"""),
    ("online_softmax_step", "online-divided-early", """
def answer(m, l, z, s, v):
    new = np.maximum(m, s.max(1, keepdims=True))
    p, c = np.exp(s - new), np.exp(m - new)
    l = l * c + p.sum(1, keepdims=True)
    return new, l, (z * c + p @ v) / l
"""),
    ("merge_partial_results", "partial-mean", """
def answer(o, a, p, b):
    return 0.5 * o + 0.5 * p, torch.logaddexp(a, b)
"""),
    ("merge_partial_results", "partial-overflow", """
def answer(o, a, p, b):
    x, y = np.exp(a), np.exp(b)
    z = (x[:, None] * o + y[:, None] * p) / (x + y)[:, None]
    return z, np.log(x + y)
"""),
    ("merge_partial_results", "partial-log-sums-added", """
def answer(o, a, p, b):
    m = np.maximum(a, b)
    x, y = np.exp(a - m), np.exp(b - m)
    share = (x / (x + y))[:, None]
    return share * o + (1 - share) * p, a + b
"""),
    ("attend_in_tiles", "online-no-correction", """
def answer(query, key, value, block):
    m = np.full(len(query), -np.inf)
    l, z = np.zeros(len(query)), np.zeros((len(query), value.shape[1]))
    for start in range(0, len(key), block):
        s = query @ key[start:start + block].T / np.sqrt(key.shape[1])
        m = np.maximum(m, s.max(1))
        p = np.exp(s - m[:, None])
        l = l + p.sum(1)
        z = z + p @ value[start:start + block]
    return z / l[:, None]
"""),
    ("attend_in_tiles", "tiles-softmax-averaged", """
def answer(query, key, value, block):
    parts = [F.scaled_dot_product_attention(query, k, v)
             for k, v in zip(key.split(block), value.split(block))]
    return torch.stack(parts).mean(0)
"""),
    ("attend_in_tiles", "tiles-ragged-lost", SOFTMAX + """
def answer(query, key, value, block):
    n = len(key) - len(key) % block
    s = query @ key[:n].T / np.sqrt(key.shape[1])
    e = np.exp(s - (s.max(1, keepdims=True) if n else 0))
    return e @ value[:n] / e.sum(1, keepdims=True)
"""),
    ("attend_in_tiles", "tiles-last-only", SOFTMAX + """
def answer(query, key, value, block):
    for start in range(0, len(key), block):
        s = query @ key[start:start + block].T / np.sqrt(key.shape[1])
        out = normalised(s) @ value[start:start + block]
    return out
"""),
    ("attend_in_tiles", "tiles-overflow", """
def answer(query, key, value, block):
    total, summed = 0, 0
    for start in range(0, len(key), block):
        tile = slice(start, start + block)
        powers = np.exp(query @ key[tile].T / np.sqrt(key.shape[1]))
        total = total + powers.sum(1, keepdims=True)
        summed = summed + powers @ value[tile]
    return summed / total
"""),
    ("tiles_to_compute", "skip-top-left", """
def answer(query_len, key_len, block):
    rows, columns = -(-query_len // block), -(-key_len // block)
    return np.array([[j <= i for j in range(columns)] for i in range(rows)])
"""),
    ("tiles_to_compute", "skip-only-whole", """
def answer(query_len, key_len, block):
    mask = np.tri(query_len, key_len, key_len - query_len, dtype=bool)
    return [[mask[i:i + block, j:j + block].all()
             for j in range(0, key_len, block)]
            for i in range(0, query_len, block)]
"""),
    ("attention_costs", "costs-scores-of-one-head", """
def answer(n, width, heads, itemsize):
    return 4 * n * n * width, n * n * itemsize, 2 * heads * n * itemsize
"""),
    ("attention_costs", "costs-memory-of-one-head", """
def answer(n, width, heads, itemsize):
    return 4 * n * n * width, n * n * itemsize, 2 * n * itemsize
"""),
    ("attention_costs", "costs-half", """
def answer(n, width, heads, itemsize):
    flops = heads * 2 * n ** 2 * (width / heads)
    return flops, heads * n ** 2 * itemsize, 2 * heads * n * itemsize
"""),
    # chapter 15
    ("rows_of_program", "program-one-too-many", """
def answer(program_id, block, length):
    rows = torch.arange(program_id * block, program_id * block + block)
    return rows, ~(rows > length)
"""),
    ("rows_of_program", "program-id-added", """
def answer(program_id, block, length):
    rows = np.arange(program_id, program_id + block)
    return rows, rows < length
"""),
    ("rows_of_program", "program-tile-cut", """
def answer(program_id, block, length):
    rows = list(range(length))[program_id * block:(program_id + 1) * block]
    return rows, [True] * len(rows)
"""),
    ("scores_of_key_tile", "ragged-zero-score", """
def answer(query, key, start, block):
    tile = key[start:start + block]
    tile = F.pad(tile, (0, 0, 0, block - len(tile)))
    return query @ tile.T / key.shape[1] ** 0.5
"""),
    ("scores_of_key_tile", "ragged-cut", """
def answer(query, key, start, block):
    return query @ key[start:start + block].T / np.sqrt(key.shape[1])
"""),
    ("scores_of_key_tile", "ragged-repeated", """
def answer(query, key, start, block):
    rows = [min(start + n, len(key) - 1) for n in range(block)]
    return np.einsum("id,jd->ij", query, key[rows]) / key.shape[1] ** 0.5
"""),
    ("scores_of_key_tile", "ragged-large", """
def answer(query, key, start, block):
    out = np.full((len(query), block), -1e9)
    tile = key[start:start + block]
    out[:, :len(tile)] = query @ tile.T / np.sqrt(key.shape[1])
    return out
"""),
    ("weights_of_tile", "again-softmax", """
def answer(query, key, log_sum):
    return torch.softmax(query @ key.T / key.shape[1] ** 0.5, dim=1)
"""),
    ("weights_of_tile", "no-scale", """
def answer(query, key, log_sum):
    return np.exp(query @ key.T) / np.exp(log_sum)[:, None]
"""),
    ("weights_of_tile", "again-log-sum-added", """
def answer(query, key, log_sum):
    s = query @ key.T / np.sqrt(key.shape[1])
    return np.exp(s) * np.exp(log_sum).reshape(-1, 1)
"""),
    ("score_gradient_of_tile", "tile-average-of-tile", """
def answer(query, key, value, output, g, log_sum):
    w = torch.exp(query @ key.T / key.shape[1] ** 0.5 - log_sum[:, None])
    dw = g @ value.T
    return w * (dw - (w * dw).sum(1, keepdim=True))
"""),
    ("score_gradient_of_tile", "tile-no-average", """
def answer(query, key, value, output, g, log_sum):
    s = query @ key.T / np.sqrt(key.shape[1])
    return np.exp(s - log_sum[:, None]) * np.einsum("id,jd->ij", g, value)
"""),
    ("score_gradient_of_tile", "again-softmax", SOFTMAX + """
def answer(query, key, value, output, g, log_sum):
    w = normalised(query @ key.T / np.sqrt(key.shape[1]))
    return w * (g @ value.T - np.sum(g * output, axis=1)[:, None])
"""),
    # chapter 16
    ("cache_step", "cache-top-left", """
def answer(cached_keys, cached_values, q, k, v):
    keys = torch.cat([cached_keys, k], 2)
    values = torch.cat([cached_values, v], 2)
    out = F.scaled_dot_product_attention(q, keys, values, is_causal=True)
    return out, keys, values
"""),
    ("cache_step", "cache-attends-to-old", """
def answer(cached_keys, cached_values, q, k, v):
    out = F.scaled_dot_product_attention(q, cached_keys, cached_values)
    return (out, torch.cat([cached_keys, k], 2),
            torch.cat([cached_values, v], 2))
"""),
    ("cache_step", "cache-last-overwritten", SOFTMAX + """
def answer(cached_keys, cached_values, q, k, v):
    keys, values = cached_keys.copy(), cached_values.copy()
    keys[:, :, -1:], values[:, :, -1:] = k, v
    w = normalised(q @ keys.swapaxes(2, 3) / np.sqrt(q.shape[-1]))
    return w @ values, keys, values
"""),
    ("cache_step", "cache-softmax-size-one", """
def answer(cached_keys, cached_values, q, k, v):
    keys = torch.cat([cached_keys, k], 2)
    values = torch.cat([cached_values, v], 2)
    scores = q @ keys.mT / q.shape[-1] ** 0.5
    return scores.softmax(dim=2) @ values, keys, values
"""),
    ("slot_mask", "slots-to-capacity", """
def answer(start, new_tokens, capacity):
    return np.tri(new_tokens, capacity, capacity - new_tokens, dtype=bool)
"""),
    ("slot_mask", "slots-top-left", """
def answer(start, new_tokens, capacity):
    return torch.ones(new_tokens, capacity, dtype=torch.bool).tril()
"""),
    ("slot_mask", "slots-all-written", """
def answer(start, new_tokens, capacity):
    mask = np.zeros((new_tokens, capacity), bool)
    mask[:, :start + new_tokens] = True
    return mask
"""),
    ("mask_of_positions", "posmask-padding-seen", """
def answer(q, k):
    return torch.as_tensor(k)[:, None, None] <= torch.as_tensor(
        q)[:, None, :, None]
"""),
    ("mask_of_positions", "posmask-by-slot", """
def answer(q, k):
    causal = np.tri(q.shape[1], k.shape[1], k.shape[1] - q.shape[1]) > 0
    return (k != -1)[:, None, None, :] & causal
"""),
    ("mask_of_positions", "posmask-zero-hidden", """
def answer(q, k):
    return np.array([[[[0 < j <= i for j in keys] for i in queries]]
                     for queries, keys in zip(q, k)])
"""),
    ("repeat_key_heads", "group-flattened", """
def answer(x, num_heads):
    return np.repeat(x, num_heads // x.shape[1])
"""),
    ("unpack_grouped", "unpack-reshape", """
def answer(packed, num_heads, num_key_heads):
    batch, seq_len, width = packed.shape
    heads = packed.reshape(batch, num_heads + 2 * num_key_heads, seq_len, -1)
    return (heads[:, :num_heads], heads[:, num_heads:-num_key_heads],
            heads[:, -num_key_heads:])
"""),
    ("repeat_key_heads", "group-tiled", """
def answer(x, num_heads):
    return x.repeat(1, num_heads // x.shape[1], 1, 1).clone()
"""),
    ("repeat_key_heads", "group-tiled", """
def answer(x, num_heads):
    return np.concatenate([x] * (num_heads // x.shape[1]), axis=1)
"""),
    ("repeat_key_heads", "group-bare-reshape", """
def answer(x, num_heads):
    b, g, n, d = x.shape
    copies = np.stack([x] * (num_heads // g), axis=3)
    return copies.reshape(b, num_heads, n, d)
"""),
    ("unpack_grouped", "unpack-equal-thirds", """
def answer(packed, n, g):
    batch, size, width = packed.shape
    if width % 3:
        raise ValueError("not three parts")
    q, k, v = np.split(packed, 3, axis=-1)
    return [part.reshape(batch, size, heads, -1).swapaxes(1, 2)
            for part, heads in ((q, n), (k, g), (v, g))]
"""),
    ("unpack_grouped", "unpack-key-value-swapped", """
def answer(packed, n, g):
    packed = torch.as_tensor(packed)
    d = packed.shape[-1] // (n + 2 * g)
    q, v, k = packed.unflatten(-1, (-1, d)).transpose(1, 2).split(
        [n, g, g], dim=1)
    return q, k, v
"""),
    ("cache_bytes", "kept-query-heads", """
def answer(layers, heads, key_heads, width, itemsize):
    return layers * heads * width * itemsize * 2
"""),
    ("cache_bytes", "kept-one-of-two", """
def answer(layers, heads, key_heads, width, itemsize):
    return sum(key_heads * width * itemsize for _ in range(layers))
"""),
    # chapter 17
    ("partial_output", "share-Wo-first-rows", """
def answer(x, W_q, W_k, W_v, W_o, n, rank, processes):
    q, k, v = ((x @ W.chunk(processes, 1)[rank]).unflatten(
        -1, (n // processes, -1)).transpose(1, 2) for W in (W_q, W_k, W_v))
    z = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
    return z @ W_o[:z.shape[-1]]
"""),
    ("partial_output", "share-all-heads", HEADS + """
def answer(x, W_q, W_k, W_v, W_o, n, rank, processes):
    size = W_q.shape[1] // processes
    own = slice(rank * size, rank * size + size)
    q, k, v = (cut(x @ W[:, own], n) for W in (W_q, W_k, W_v))
    z = normalised(q @ k.swapaxes(2, 3) / np.sqrt(q.shape[-1])) @ v
    return glue(z) @ W_o[own]
"""),
    ("partial_output", "share-is-whole", HEADS + """
def answer(x, W_q, W_k, W_v, W_o, n, rank, processes):
    q, k, v = (cut(x @ W, n) for W in (W_q, W_k, W_v))
    z = normalised(q @ k.swapaxes(2, 3) / np.sqrt(q.shape[-1])) @ v
    return glue(z) @ W_o
"""),
    ("partial_output", "share-one-head", HEADS + """
def answer(x, W_q, W_k, W_v, W_o, n, rank, processes):
    q, k, v = (np.split(x @ W, processes, -1)[rank]
               for W in (W_q, W_k, W_v))
    z = normalised(q @ k.swapaxes(1, 2) / np.sqrt(q.shape[-1])) @ v
    return z @ np.split(W_o, processes)[rank]
"""),
    ("add_partial_outputs", "reduce-bias-each", """
def answer(parts, b_o):
    total = 0
    for part in parts:
        total = total + part + b_o
    return total
"""),
    ("add_partial_outputs", "reduce-mean", """
def answer(parts, b_o):
    return torch.as_tensor(parts).mean(0) + torch.as_tensor(b_o)
"""),
    ("regroup_packed_rows", "regroup-not", """
def answer(packed, processes):
    return np.concatenate(np.split(packed, processes))
"""),
    ("regroup_packed_rows", "regroup-backwards", """
def answer(packed, processes):
    parts = torch.as_tensor(packed).unflatten(0, (processes, 3, -1))
    return parts.transpose(0, 1).flatten(0, 2)
"""),
    ("regroup_packed_rows", "regroup-row-by-row", """
def answer(packed, processes):
    q, k, v = np.split(packed, 3)
    return np.array([row for rows in zip(q, k, v) for row in rows])
"""),
    ("ring_step", "ring-own-unmasked", """
def answer(query, key, value, output, log_sum, rank, source):
    if source > rank:
        return output, log_sum
    s = query @ key.T / key.shape[1] ** 0.5
    both = torch.logaddexp(log_sum, torch.logsumexp(s, 1))
    kept = torch.exp(log_sum - both)[:, None]
    return kept * output + torch.exp(s - both[:, None]) @ value, both
"""),
    ("ring_step", "ring-no-mask", """
def answer(query, key, value, output, log_sum, rank, source):
    p = np.exp(query @ key.T / np.sqrt(key.shape[1]))
    old = np.exp(log_sum)
    total = old + p.sum(1)
    return (old[:, None] * output + p @ value) / total[:, None], np.log(total)
"""),
    ("ring_step", "partial-sum", """
def answer(query, key, value, output, log_sum, rank, source):
    if source > rank:
        return output, log_sum
    s = query @ key.T / np.sqrt(key.shape[1])
    p = np.exp(s) * (np.tri(len(s)) if source == rank else 1)
    part = p.sum(1)
    return (output + p @ value / part[:, None],
            np.logaddexp(log_sum, np.log(part)))
"""),
    ("all_reduce_bytes", "sent-once-round", """
def answer(seq_len, embed_dim, itemsize, processes):
    piece = seq_len * embed_dim * itemsize / processes
    return sum(piece for _ in range(1, processes))
"""),
    ("all_reduce_bytes", "sent-to-everybody", """
def answer(seq_len, embed_dim, itemsize, processes):
    return (processes - 1) * seq_len * embed_dim * itemsize
"""),
]
