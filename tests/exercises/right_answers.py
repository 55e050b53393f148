"""Right answers, written in many ways; each must pass on every seed.

Pairs of an exercise and a source that defines ``answer``.
"""

SOFTMAX = """
def normalised(a, axis=-1):
    a = a - np.max(a, axis=axis, keepdims=True)
    b = np.exp(a)
    return b / np.sum(b, axis=axis, keepdims=True)
"""
HEADS = SOFTMAX + """
def cut(a, n):
    return np.stack(np.split(a, n, axis=-1), axis=1)

def glue(a):
    return np.concatenate([a[:, h] for h in range(a.shape[1])], axis=-1)
"""

RIGHT = [
    # chapter 1
    ("project_word", """
def answer(x, W_q, W_k, W_v):
    return W_q.T @ x, W_k.T @ x, W_v.T @ x
"""),
    ("project_word", """
def answer(x, *matrices):
    return [[sum(x[i] * W[i, j] for i in range(len(x)))
             for j in range(W.shape[1])] for W in matrices]
"""),
    ("project_word", """
def answer(x, W_q, W_k, W_v):
    q, k, v = np.split(x @ np.hstack([W_q, W_k, W_v]), 3)
    return q, k, v
"""),
    ("project_qkv", """
def answer(x, W_q, W_k, W_v):
    return [np.einsum("btd,de->bte", x, W) for W in (W_q, W_k, W_v)]
"""),
    ("project_qkv", """
def answer(x, W_q, W_k, W_v):
    return F.linear(x, W_q.T), F.linear(x, W_k.T), F.linear(x, W_v.T)
"""),
    ("project_qkv", """
def answer(x, W_q, W_k, W_v):
    flat = x.reshape(-1, x.shape[-1]).astype(np.float32)
    return tuple((flat @ W).reshape(*x.shape[:-1], -1)
                 for W in (W_q, W_k, W_v))
"""),
    # chapter 2
    ("score_of_pair", """
def answer(query, key):
    total = 0.0
    for a, b in zip(query, key):
        total += a * b
    return total
"""),
    ("score_of_pair", "answer = np.dot"),
    ("score_of_pair", """
def answer(query, key):
    return torch.dot(torch.as_tensor(query), torch.as_tensor(key)).item()
"""),
    ("scores_of_one_query", """
def answer(query, keys):
    return [float(key @ query) / len(query) ** 0.5 for key in keys]
"""),
    ("scores_of_one_query", """
def answer(query, keys):
    return (query / np.sqrt(query.size)) @ keys.T
"""),
    ("weights_of_one_query", """
def answer(scores):
    return torch.softmax(torch.as_tensor(scores), 0)
"""),
    ("weights_of_one_query", """
def answer(scores):
    shifted = [float(s - max(scores)) for s in scores]
    e = [np.exp(s) for s in shifted]
    return [x / sum(e) for x in e]
"""),
    ("attend_with_one_query", SOFTMAX + """
def answer(query, keys, values):
    out = np.zeros(values.shape[1])
    weights = normalised(keys.dot(query) / np.sqrt(len(query)))
    for weight, value in zip(weights, values):
        out += weight * value
    return out
"""),
    ("attend_with_one_query", """
def answer(query, keys, values):
    q, k, v = query[None, None], keys[None], values[None]
    return F.scaled_dot_product_attention(q, k, v)[0, 0]
"""),
    # chapter 3
    ("attention_scores", """
def answer(query, key):
    return (query[:, :, None, :] * key[:, None, :, :]).sum(-1)
"""),
    ("attention_scores", """
def answer(query, key):
    return torch.bmm(query, key.transpose(1, 2))
"""),
    ("attention_scores", """
def answer(query, key):
    return np.stack([q @ k.T for q, k in zip(query, key)])
"""),
    ("attention_scores", """
def answer(query, key):
    return np.swapaxes(key @ np.swapaxes(query, 1, 2), 1, 2)
"""),
    ("attention_matrix", SOFTMAX + """
def answer(Q, K, V):
    rows = []
    for q in Q:
        w = normalised(np.array([q @ k for k in K]) / np.sqrt(q.size))
        rows.append(sum(a * v for a, v in zip(w, V)))
    return np.array(rows)
"""),
    ("attention_matrix", """
def answer(Q, K, V):
    return torch.softmax(Q @ K.mT / Q.shape[1] ** 0.5, dim=1) @ V
"""),
    ("attention_matrix", SOFTMAX + """
def answer(Q, K, V):
    return (V.T @ normalised(K @ Q.T / np.sqrt(Q.shape[1]), axis=0)).T
"""),
    ("batch_without_loops", SOFTMAX + """
def answer(query, key, value):
    s = np.einsum("bqd,bkd->bqk", query, key) / query.shape[-1] ** 0.5
    return np.einsum("bqk,bkv->bqv", normalised(s), value)
"""),
    # chapter 4
    ("softmax", """
def answer(x):
    return torch.softmax(torch.as_tensor(x), -1)
"""),
    ("softmax", """
def answer(x):
    flat = x.reshape(-1, x.shape[-1])
    rows = []
    for r in flat:
        e = np.exp(r - max(r))
        rows.append(e / sum(e))
    return np.array(rows).reshape(x.shape)
"""),
    ("softmax", """
def answer(x):
    m = x.max(-1, keepdims=True)
    logs = x - m - np.log(np.exp(x - m).sum(-1, keepdims=True))
    return np.exp(logs)
"""),
    ("softmax", """
def answer(x):
    e = np.exp((x - np.max(x, -1)[..., None]).astype(np.float32))
    return (e.T / e.sum(-1).T).T
"""),
    ("scaled_scores", """
def answer(query, key):
    query = query / query.shape[-1] ** 0.25
    key = key / key.shape[-1] ** 0.25
    return query @ np.moveaxis(key, -1, -2)
"""),
    ("scaled_scores", """
def answer(query, key):
    return torch.einsum("bqd,bkd->bqk", query, key) * query.size(-1) ** -0.5
"""),
    ("attention_weights", SOFTMAX + """
def answer(query, key):
    return normalised(query / np.sqrt(query.shape[-1])
                      @ key.transpose(0, 2, 1))
"""),
    ("attention_weights", """
def answer(query, key):
    eye = torch.eye(key.shape[1], dtype=key.dtype).expand(
        len(key), -1, -1)
    return F.scaled_dot_product_attention(query, key, eye)
"""),
    ("attention", """
def answer(query, key, value):
    return F.scaled_dot_product_attention(query, key, value)
"""),
    ("attention", """
def answer(query, key, value):
    out = np.zeros(query.shape[:2] + value.shape[-1:])
    for b in range(query.shape[0]):
        for i in range(query.shape[1]):
            s = np.array([query[b, i].dot(key[b, j])
                          for j in range(key.shape[1])])
            s /= query.shape[-1] ** .5
            w = np.exp(s - s.max())
            w /= w.sum()
            for j in range(key.shape[1]):
                out[b, i] += w[j] * value[b, j]
    return out
"""),
    ("attention", """
def answer(query, key, value):
    s = (key @ query.swapaxes(1, 2)) / np.sqrt(query.shape[-1])
    e = np.exp(s - s.max(1, keepdims=True))
    return (e / e.sum(1, keepdims=True)).swapaxes(1, 2) @ value
"""),
    ("attention", """
class Attention:
    def __call__(self, q, k, v):
        q, k, v = (torch.as_tensor(a) for a in (q, k, v))
        return F.scaled_dot_product_attention(q, k, v)

answer = Attention()
"""),
    ("attention", """
import functools

def scaled(power, q, k, v):
    e = np.exp(q @ k.swapaxes(1, 2) * q.shape[-1] ** power)
    return e / e.sum(-1, keepdims=True) @ v

answer = functools.partial(scaled, -0.5)
"""),
    ("attention", """
answer = lambda q, k, v: (lambda e: e / e.sum(-1, keepdims=True))(
    np.exp(q @ k.swapaxes(1, 2) / np.sqrt(q.shape[-1]))) @ v
"""),
    ("attention", """
def answer(query, key, value):
    query = query.astype(np.float32)
    print("shape", query.shape)
    s = query @ key.swapaxes(1, 2) / np.sqrt(query.shape[-1])
    e = np.exp(s)
    return (e @ value) / e.sum(-1, keepdims=True)
"""),
    ("weights_with_heads", """
def answer(query, key):
    return (query @ key.transpose(-2, -1)
            / query.shape[-1] ** 0.5).softmax(3)
"""),
    ("scaled_weights", SOFTMAX + """
def answer(query, key):
    return normalised(query @ key.swapaxes(1, 2) / np.sqrt(query.shape[2]))
"""),
    # chapter 5
    ("separate_heads", """
def answer(x, num_heads):
    return torch.as_tensor(x).unflatten(-1, (num_heads, -1)).transpose(1, 2)
"""),
    ("separate_heads", """
def answer(x, num_heads):
    return np.stack(np.split(x, num_heads, axis=-1), axis=1)
"""),
    ("separate_heads", """
def answer(x, num_heads):
    b, t, d = x.shape
    out = np.empty((b, num_heads, t, d // num_heads))
    for h in range(num_heads):
        out[:, h] = x[:, :, h * (d // num_heads):(h + 1) * (d // num_heads)]
    return out
"""),
    ("separate_heads", """
def answer(x, num_heads):
    b, t, d = x.shape
    return np.einsum("bthd->bhtd", x.reshape(b, t, num_heads, -1))
"""),
    ("wide_matrix", """
def answer(matrices):
    return np.hstack(matrices)
"""),
    ("wide_matrix", """
def answer(matrices):
    return np.moveaxis(matrices, 0, 1).reshape(matrices.shape[1], -1)
"""),
    ("heads_in_the_batch", """
def answer(x, num_heads):
    return np.concatenate([np.split(s, num_heads, axis=-1) for s in x])
"""),
    ("scores_of_heads", HEADS + """
def answer(q, k, num_heads):
    q, k = cut(q, num_heads), cut(k, num_heads)
    return np.einsum("bhid,bhjd->bhij", q, k) / q.shape[-1] ** 0.5
"""),
    # chapter 6
    ("padding_mask", """
def answer(lengths, seq_len):
    mask = np.zeros((len(lengths), 1, 1, seq_len), bool)
    for b, n in enumerate(lengths):
        mask[b, 0, 0, :n] = True
    return mask
"""),
    ("padding_mask", """
def answer(lengths, seq_len):
    lengths = torch.as_tensor(lengths)
    return (torch.arange(seq_len) < lengths[:, None])[:, None, None]
"""),
    ("causal_mask", """
def answer(seq_len):
    return np.tril(np.ones((seq_len, seq_len), dtype=bool))
"""),
    ("causal_mask", """
def answer(seq_len):
    return [[j <= i for j in range(seq_len)] for i in range(seq_len)]
"""),
    ("causal_mask_unequal", """
def answer(query_len, key_len):
    return np.tri(query_len, key_len, key_len - query_len, dtype=bool)
"""),
    ("causal_mask_unequal", """
def answer(query_len, key_len):
    return np.tril(np.ones((key_len, key_len), bool))[-query_len:]
"""),
    ("causal_mask_unequal", """
def answer(query_len, key_len):
    ones = torch.ones(query_len, key_len, dtype=torch.bool)
    return ones.tril(diagonal=key_len - query_len)
"""),
    ("padding_and_causal", """
def answer(lengths, seq_len):
    return np.array([[[[j <= i and j < n for j in range(seq_len)]
                       for i in range(seq_len)]] for n in lengths])
"""),
    ("padding_and_causal", """
def answer(lengths, seq_len):
    pad = np.arange(seq_len)[None, :] >= np.array(lengths)[:, None]
    future = np.triu(np.ones((seq_len, seq_len), bool), 1)
    return ~np.logical_or(pad[:, None, None, :], future)
"""),
    ("additive_mask", """
def answer(attention_mask):
    bias = np.zeros(attention_mask.shape)
    bias[~attention_mask] = -np.inf
    return bias
"""),
    ("additive_mask", """
def answer(attention_mask):
    with np.errstate(divide="ignore"):
        return np.log(attention_mask.astype(float))
"""),
    ("masked_softmax", """
def answer(scores, attention_mask):
    w = torch.softmax(torch.as_tensor(scores), -1)
    w = w * torch.as_tensor(attention_mask)
    return w / w.sum(-1, keepdim=True)
"""),
    ("masked_softmax", SOFTMAX + """
def answer(scores, attention_mask):
    return normalised(scores - 1e4 * ~attention_mask)
"""),
    ("masked_softmax", """
def answer(scores, attention_mask):
    hidden = torch.logical_not(attention_mask)
    return scores.masked_fill(hidden, -torch.inf).softmax(-1)
"""),
    ("masked_softmax", """
def answer(scores, attention_mask):
    e = np.where(attention_mask, np.exp(scores), 0.0)
    return e / e.sum(-1, keepdims=True)
"""),
    ("masked_attention", SOFTMAX + """
def answer(query, key, value, attention_mask):
    s = np.where(attention_mask, query @ key.swapaxes(1, 2), -1e9)
    return normalised(s / np.sqrt(query.shape[-1])) @ value
"""),
    ("masked_attention", """
def answer(query, key, value, attention_mask):
    return F.scaled_dot_product_attention(query, key, value,
                                          attn_mask=attention_mask)
"""),
    ("masked_attention", SOFTMAX + """
def answer(query, key, value, attention_mask):
    low = np.finfo(query.dtype).min
    s = query @ key.swapaxes(1, 2) / np.sqrt(query.shape[-1])
    return normalised(np.where(attention_mask, s, low)) @ value
"""),
    ("weights_with_empty_rows", """
def answer(scores, attention_mask):
    e = np.exp(scores - scores.max(-1, keepdims=True)) * attention_mask
    total = e.sum(-1, keepdims=True)
    return np.divide(e, total, out=np.zeros_like(e), where=total > 0)
"""),
    ("weights_with_empty_rows", """
def answer(scores, attention_mask):
    s = scores.masked_fill(~attention_mask, float("-inf"))
    return torch.nan_to_num(torch.softmax(s, dim=-1), nan=0.0)
"""),
    ("weights_with_empty_rows", SOFTMAX + """
def answer(scores, attention_mask):
    w = normalised(np.where(attention_mask, scores, -1e9))
    return w * attention_mask.any(-1)[:, None]
"""),
    ("key_padding_mask", """
def answer(attention_mask):
    return np.logical_not(attention_mask).squeeze((1, 2))
"""),
    ("key_padding_mask", """
def answer(attention_mask):
    return ~torch.as_tensor(attention_mask).flatten(1)
"""),
    ("mask_for_every_head", """
def answer(attention_mask, num_heads):
    return np.stack([~mask for mask in attention_mask
                     for _ in range(num_heads)])
"""),
    ("mask_for_every_head", """
def answer(attention_mask, num_heads):
    return (~attention_mask).repeat_interleave(num_heads, dim=0) if (
        torch.is_tensor(attention_mask)) else None
"""),
    ("mean_of_tokens", """
def answer(x, lengths):
    return [sequence[:n].mean(axis=0) for sequence, n in zip(x, lengths)]
"""),
    ("causal_weights", """
def answer(scores):
    weights = np.zeros_like(scores)
    for i in range(scores.shape[1]):
        e = np.exp(scores[:, i, :i + 1])
        weights[:, i, :i + 1] = e / e.sum(-1, keepdims=True)
    return weights
"""),
    ("masked_average", """
def answer(scores, value, attention_mask):
    bias = torch.zeros_like(scores).masked_fill(~attention_mask, -1e30)
    return (scores + bias).softmax(-1) @ value
"""),
    # chapter 7
    ("combine_heads", """
def answer(x):
    return np.concatenate(list(x.swapaxes(0, 1)), axis=-1)
"""),
    ("combine_heads", """
def answer(x):
    return torch.as_tensor(x).transpose(1, 2).flatten(2)
"""),
    ("combine_heads", """
def answer(x):
    b, h, t, d = x.shape
    return np.einsum("bhtd->bthd", x).reshape(b, t, h * d)
"""),
    ("attention_through_heads", HEADS + """
def answer(q, k, v, num_heads):
    outs = []
    for a, b, c in zip(*(np.split(x, num_heads, -1) for x in (q, k, v))):
        outs.append(normalised(a @ b.swapaxes(1, 2) / a.shape[-1] ** .5) @ c)
    return np.concatenate(outs, axis=-1)
"""),
    ("attention_through_heads", """
def answer(q, k, v, num_heads):
    q, k, v = (x.unflatten(-1, (num_heads, -1)).transpose(1, 2)
               for x in (q, k, v))
    out = F.scaled_dot_product_attention(q, k, v)
    return out.transpose(1, 2).flatten(2)
"""),
    ("output_projection", """
def answer(heads, W_o):
    h, d = heads.shape[1], heads.shape[3]
    return sum(heads[:, i] @ W_o[i * d:(i + 1) * d] for i in range(h))
"""),
    ("output_projection", """
def answer(heads, W_o):
    h, d = heads.shape[1], heads.shape[3]
    return np.einsum("bhtd,hde->bte", heads, W_o.reshape(h, d, -1))
"""),
    ("head_contributions", """
def answer(heads, W_o):
    d = heads.shape[3]
    return np.stack([heads[:, h] @ W_o[h * d:(h + 1) * d]
                     for h in range(heads.shape[1])], axis=1)
"""),
    ("heads_from_the_batch", """
def answer(x, num_heads):
    return np.array([np.concatenate(x[i:i + num_heads], axis=-1)
                     for i in range(0, len(x), num_heads)])
"""),
    # chapter 8
    ("multi_head_attention", HEADS + """
def answer(x, W_q, W_k, W_v, W_o, n):
    q, k, v = (cut(x @ W, n) for W in (W_q, W_k, W_v))
    return glue(normalised(q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1]))
                @ v) @ W_o
"""),
    ("multi_head_attention", """
def answer(x, W_q, W_k, W_v, W_o, n):
    q, k, v = [(x @ W).unflatten(-1, (n, -1)).transpose(1, 2)
               for W in (W_q, W_k, W_v)]
    out = F.scaled_dot_product_attention(q, k, v)
    return out.transpose(1, 2).flatten(2) @ W_o
"""),
    ("multi_head_attention", """
def answer(x, W_q, W_k, W_v, W_o, n):
    x, W_q, W_k, W_v, W_o = (torch.as_tensor(a)
                             for a in (x, W_q, W_k, W_v, W_o))
    layer = torch.nn.MultiheadAttention(x.shape[-1], n, bias=False,
                                        batch_first=True, dtype=x.dtype)
    with torch.no_grad():
        layer.in_proj_weight.copy_(torch.cat([W_q.T, W_k.T, W_v.T]))
        layer.out_proj.weight.copy_(W_o.T)
        return layer(x, x, x, need_weights=False)[0]
"""),
    ("masked_multi_head_attention", """
def answer(x, W_q, W_k, W_v, W_o, n, mask):
    q, k, v = [(x @ W).unflatten(-1, (n, -1)).transpose(1, 2)
               for W in (W_q, W_k, W_v)]
    out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    return out.transpose(1, 2).flatten(2) @ W_o
"""),
    ("masked_multi_head_attention", HEADS + """
def answer(x, W_q, W_k, W_v, W_o, n, mask):
    q, k, v = (cut(x @ W, n) for W in (W_q, W_k, W_v))
    s = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1]) - 1e9 * (1 - mask)
    return glue(normalised(s) @ v) @ W_o
"""),
    ("torch_mha", """
def answer(x, W_q, W_k, W_v, W_o, n):
    q, k, v = [F.linear(x, W).unflatten(-1, (n, -1)).transpose(1, 2)
               for W in (W_q, W_k, W_v)]
    out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    return F.linear(out.transpose(1, 2).flatten(2), W_o)
"""),
    ("torch_mha", """
def answer(x, W_q, W_k, W_v, W_o, n):
    batch, size, width = x.shape
    q, k, v = [torch.stack((x @ W.T).chunk(n, -1), 1)
               for W in (W_q, W_k, W_v)]
    s = torch.einsum("bhid,bhjd->bhij", q, k) * (width // n) ** -0.5
    s = s + torch.full((size, size), float("-inf")).triu(1)
    out = torch.cat((s.softmax(-1) @ v).unbind(1), -1)
    return out @ W_o.T
"""),
    ("self_attention_module", """
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
        return self.W_o(out.transpose(1, 2).flatten(2))
"""),
    ("unpack_qkv", """
def answer(packed, num_heads):
    return [np.stack(np.split(part, num_heads, -1), 1)
            for part in np.split(packed, 3, -1)]
"""),
    ("unpack_qkv", """
def answer(packed, num_heads):
    q, k, v = torch.as_tensor(packed).chunk(3, dim=-1)
    return tuple(a.unflatten(-1, (num_heads, -1)).transpose(1, 2)
                 for a in (q, k, v))
"""),
    ("linear", """
def answer(x, weight, bias):
    return F.linear(x, weight, bias)
"""),
    ("linear", """
def answer(x, weight, bias):
    return np.einsum("bi,oi->bo", x, weight) + bias
"""),
    ("cross_attention", """
def answer(x, memory, W_q, W_k, W_v):
    return F.scaled_dot_product_attention(x @ W_q, memory @ W_k,
                                          memory @ W_v)
"""),
    ("cross_attention", SOFTMAX + """
def answer(x, memory, W_q, W_k, W_v):
    s = x @ W_q @ W_k.T @ memory.swapaxes(1, 2) / np.sqrt(W_q.shape[1])
    return normalised(s) @ memory @ W_v
"""),
    # chapter 9
    ("positional_encoding", """
def answer(seq_len, width):
    a = np.outer(np.arange(seq_len),
                 np.exp(-np.log(10000.0) * np.arange(0, width, 2) / width))
    return np.stack([np.sin(a), np.cos(a)], -1).reshape(seq_len, width)
"""),
    ("positional_encoding", """
def answer(seq_len, width):
    return [[(np.cos if c % 2 else np.sin)(
        p / 10000 ** ((c // 2) * 2 / width)) for c in range(width)]
        for p in range(seq_len)]
"""),
    ("layer_norm", """
def answer(x, gamma, beta, eps):
    x, gamma, beta = (torch.as_tensor(a) for a in (x, gamma, beta))
    return F.layer_norm(x, x.shape[-1:], gamma, beta, eps)
"""),
    ("layer_norm", """
def answer(x, gamma, beta, eps):
    mean = np.mean(x, -1)[..., None]
    square = np.mean((x - mean) ** 2, -1)[..., None]
    return (x - mean) * (square + eps) ** -0.5 * gamma + beta
"""),
    ("feed_forward", """
def answer(x, W_1, b_1, W_2, b_2):
    return F.relu(x @ W_1 + b_1) @ W_2 + b_2
"""),
    ("feed_forward", """
def answer(x, W_1, b_1, W_2, b_2):
    h = np.einsum("btd,dh->bth", x, W_1) + b_1
    return (h * (h > 0)) @ W_2 + b_2
"""),
    ("dropout", """
def answer(weights, kept, rate):
    return weights * kept / (1 - rate)
"""),
    ("dropout", """
def answer(weights, kept, rate):
    out = np.zeros_like(weights)
    out[kept] = weights[kept] / (1 - rate)
    return out
"""),
    ("dropped_average", """
def answer(weights, kept, rate, value):
    return (weights * kept) @ value / (1 - rate)
"""),
    ("pre_norm_block", """
def answer(x, gamma, beta, eps, W):
    x, gamma, beta, W = (torch.as_tensor(a) for a in (x, gamma, beta, W))
    return x + F.layer_norm(x, x.shape[-1:], gamma, beta, eps) @ W
"""),
    ("post_norm_block", """
def answer(x, gamma, beta, eps, W):
    x, gamma, beta, W = (torch.as_tensor(a) for a in (x, gamma, beta, W))
    return F.layer_norm(x + x @ W, x.shape[-1:], gamma, beta, eps)
"""),
    ("position_ids", """
def answer(tokens):
    ids = []
    for row in tokens:
        n = 0
        ids.append([])
        for token in row:
            ids[-1].append(n if token else 0)
            n += int(token)
    return ids
"""),
    ("position_ids", """
def answer(tokens):
    return (torch.as_tensor(tokens).cumsum(1) - 1).clamp(min=0)
"""),
    # chapter 10
    ("softmax_gradient", """
def answer(weights, grad_weights):
    out = np.zeros_like(weights)
    for b, i in np.ndindex(weights.shape[:2]):
        a = weights[b, i]
        jacobian = np.diag(a) - np.outer(a, a)
        out[b, i] = jacobian @ grad_weights[b, i]
    return out
"""),
    ("softmax_gradient", """
def answer(weights, grad_weights):
    scores = torch.log(weights).requires_grad_()
    torch.softmax(scores, -1).backward(grad_weights)
    return scores.grad
"""),
    ("query_key_gradients", """
def answer(g, q, k):
    g = g / k.shape[-1] ** 0.5
    return (np.einsum("bij,bjd->bid", g, k), np.einsum("bij,bid->bjd", g, q))
"""),
    ("query_key_gradients", """
def answer(g, q, k):
    q, k = q.clone().requires_grad_(), k.clone().requires_grad_()
    (torch.bmm(q, k.mT) / q.shape[-1] ** 0.5).backward(g)
    return q.grad, k.grad
"""),
    ("linear_gradients", """
def answer(x, W, g):
    flat, slopes = x.reshape(-1, len(W)), g.reshape(-1, g.shape[-1])
    return g @ W.T, flat.T @ slopes, slopes.sum(0)
"""),
    ("linear_gradients", """
def answer(x, W, g):
    layer = nn.Linear(*W.shape, dtype=W.dtype)
    layer.weight.data = W.T.clone()
    x = x.clone().requires_grad_()
    layer(x).backward(g)
    return x.grad, layer.weight.grad.T, layer.bias.grad
"""),
    ("linear_gradients", """
def answer(x, W, g):
    grad_W, grad_b = np.zeros(W.shape), np.zeros(W.shape[1])
    for sentence, slopes in zip(x, g):
        for token, slope in zip(sentence, slopes):
            grad_W += np.outer(token, slope)
            grad_b += slope
    return [np.einsum("bto,io->bti", g, W), grad_W, grad_b]
"""),
    ("embedding_gradient", """
def answer(a, b, c, W_q, W_k, W_v):
    return np.concatenate([a, b, c], -1) @ np.hstack([W_q, W_k, W_v]).T
"""),
    ("embedding_gradient", """
def answer(a, b, c, W_q, W_k, W_v):
    total = 0
    for g, W in ((a, W_q), (b, W_k), (c, W_v)):
        total = total + np.einsum("bto,io->bti", g, W)
    return total
"""),
    # chapter 11
    ("choice_of_a_row", SOFTMAX + """
def answer(query, keys, first, second):
    w = normalised(keys @ query / np.sqrt(query.size))
    return np.log(w[first] / w[second])
"""),
    ("choice_of_a_row", """
def answer(query, keys, i, j):
    logs = F.log_softmax(keys @ query / len(query) ** 0.5, dim=0)
    return (logs[i] - logs[j]).item()
"""),
    ("without_head", """
def answer(weights, value, W_o, head):
    size = value.shape[-1]
    out = 0
    for h in range(weights.shape[1]):
        if h != head:
            z = weights[:, h] @ value[:, h]
            out = out + z @ W_o[h * size:(h + 1) * size]
    return out
"""),
    ("without_head", """
def answer(weights, value, W_o, head):
    size = value.shape[-1]
    z = np.concatenate(list((weights @ value).swapaxes(0, 1)), -1)
    z[..., head * size:(head + 1) * size] = 0
    return z @ W_o
"""),
    ("without_head", """
def answer(weights, value, W_o, head):
    gate = torch.ones(weights.shape[1], 1, 1, dtype=weights.dtype)
    gate[head] = 0
    return (weights @ value * gate).transpose(1, 2).flatten(2) @ W_o
"""),
    # chapter 12
    ("most_attentive_head", """
def answer(weights, reader, target):
    found = []
    for text, i, j in zip(weights, reader, target):
        best, where = -1.0, None
        for layer in range(text.shape[0]):
            for head in range(text.shape[1]):
                if text[layer, head, i, j] > best:
                    best, where = text[layer, head, i, j], [layer, head]
        found.append(where)
    return found
"""),
    ("most_attentive_head", """
def answer(weights, reader, target):
    pairs = []
    for w, i, j in zip(weights, reader, target):
        flat = int(np.argmax(w[:, :, i, j]))
        pairs.append(divmod(flat, w.shape[1]))
    return np.array(pairs)
"""),
    # chapter 13
    ("three_hot", """
def answer(token_ids, segment_ids, a, b, c):
    return np.hstack([np.eye(a)[token_ids], np.eye(b)[:len(token_ids)],
                      np.eye(c)[segment_ids]])
"""),
    ("three_hot", """
def answer(token_ids, segment_ids, a, b, c):
    rows = np.zeros((len(token_ids), a + b + c), dtype=int)
    for n, (token, segment) in enumerate(zip(token_ids, segment_ids)):
        for column in (token, a + n, a + b + segment):
            rows[n, column] += 1
    return rows
"""),
    ("score_terms", """
def answer(w, p, W_q, W_k):
    B = W_q @ W_k.T / W_q.shape[1] ** 0.5
    return [w @ B @ w.T, w @ B @ p.T, p @ B @ w.T, p @ B @ p.T]
"""),
    ("score_terms", """
def answer(w, p, W_q, W_k):
    both = torch.stack([w, p])
    q, k = both @ W_q, both @ W_k
    terms = torch.einsum("aid,bjd->abij", q, k) / q.shape[-1] ** 0.5
    return terms.flatten(0, 1)
"""),
    # chapter 14
    ("online_softmax_step", """
def answer(largest, total, summed, scores, value):
    m, l, z = largest[:, 0].copy(), total[:, 0].copy(), summed.copy()
    for i in range(len(scores)):
        for j in range(scores.shape[1]):
            new = max(m[i], scores[i, j])
            kept, share = np.exp(m[i] - new), np.exp(scores[i, j] - new)
            l[i] = l[i] * kept + share
            z[i] = z[i] * kept + share * value[j]
            m[i] = new
    return m[:, None], l[:, None], z
"""),
    ("online_softmax_step", """
def answer(m, l, z, s, v):
    new = torch.maximum(m, s.amax(dim=1, keepdim=True))
    p = torch.exp(s - new)
    c = torch.exp(m - new)
    return new, c * l + p.sum(1, keepdim=True), c * z + p @ v
"""),
    ("online_softmax_step", """
def answer(m, l, z, s, v):
    m, l, z, s, v = (a.astype(np.float32) for a in (m, l, z, s, v))
    new = np.concatenate([m, s], axis=1).max(axis=1, keepdims=True)
    p = np.exp(np.concatenate([m, s], axis=1) - new)
    l = np.einsum("ij,ij->i", p, np.concatenate([l, s * 0 + 1], 1))[:, None]
    return [new, l, p[:, :1] * z + np.einsum("ij,jd->id", p[:, 1:], v)]
"""),
    ("merge_partial_results", """
def answer(o, a, p, b):
    m = np.maximum(a, b)
    x, y = np.exp(a - m), np.exp(b - m)
    return (x[:, None] * o + y[:, None] * p) / (x + y)[:, None], (
        m + np.log(x + y))
"""),
    ("merge_partial_results", """
def answer(o, a, p, b):
    shares = torch.softmax(torch.stack([a, b]), 0)[..., None]
    return (shares * torch.stack([o, p])).sum(0), torch.logaddexp(a, b)
"""),
    ("merge_partial_results", """
def answer(o, a, p, b):
    share = 1 / (1 + np.exp(np.minimum(b - a, 700)))
    rows, sums = [], []
    for i, s in enumerate(share):
        rows.append(s * o[i] + (1 - s) * p[i])
        sums.append(b[i] - np.log(1 - s) if s < 0.5 else a[i] - np.log(s))
    return rows, sums
"""),
    ("attend_in_tiles", SOFTMAX + """
def answer(query, key, value, block):
    parts, sums = [], []
    for start in range(0, len(key), block):
        s = query @ key[start:start + block].T / np.sqrt(query.shape[1])
        parts.append(normalised(s) @ value[start:start + block])
        sums.append(np.logaddexp.reduce(s, axis=1))
    shares = normalised(np.array(sums), axis=0)
    return np.einsum("tq,tqd->qd", shares, np.array(parts))
"""),
    ("attend_in_tiles", """
def answer(query, key, value, block):
    out = []
    for q in query:
        m, l, z = -np.inf, 0.0, np.zeros(value.shape[1])
        for start in range(0, len(key), block):
            for k, v in zip(key[start:start + block],
                            value[start:start + block]):
                s = q @ k / len(q) ** 0.5
                new = max(m, s)
                l = l * np.exp(m - new) + np.exp(s - new)
                z = z * np.exp(m - new) + np.exp(s - new) * v
                m = new
        out.append(z / l)
    return np.array(out, dtype=np.float32)
"""),
    ("attend_in_tiles", """
def answer(query, key, value, block):
    state = None
    for k, v in zip(key.split(block), value.split(block)):
        s = query @ k.mT / k.shape[1] ** 0.5
        part = s.logsumexp(1, keepdim=True)
        out = s.softmax(1) @ v
        if state is None:
            state = out, part
        else:
            both = torch.logaddexp(state[1], part)
            state = (state[0] * (state[1] - both).exp()
                     + out * (part - both).exp()), both
    return state[0]
"""),
    ("attend_in_tiles", """
def answer(query, key, value, block):
    return F.scaled_dot_product_attention(query, key, value)
"""),
    ("tiles_to_compute", """
def answer(query_len, key_len, block):
    rows, columns = -(-query_len // block), -(-key_len // block)
    padded = np.zeros((rows * block, columns * block), bool)
    i, j = np.indices((query_len, key_len))
    padded[:query_len, :key_len] = j - i <= key_len - query_len
    return padded.reshape(rows, block, columns, block).any(axis=(1, 3))
"""),
    ("tiles_to_compute", """
def answer(query_len, key_len, block):
    needed = []
    for top in range(0, query_len, block):
        last = min(top + block, query_len) - 1 + key_len - query_len
        needed.append([left <= last for left in range(0, key_len, block)])
    return needed
"""),
    ("tiles_to_compute", """
def answer(query_len, key_len, block):
    mask = torch.ones(query_len, key_len).tril(key_len - query_len)
    size = (-query_len) % block, (-key_len) % block
    mask = F.pad(mask, (0, size[1], 0, size[0]))
    return F.max_pool2d(mask[None], block)[0] > 0
"""),
    ("attention_costs", """
def answer(n, width, heads, itemsize):
    per_head = 2 * n * n * (width // heads)
    table = heads * n ** 2
    return 2 * heads * per_head, table * itemsize, heads * 2 * n * itemsize
"""),
    ("attention_costs", """
def answer(n, width, heads, itemsize):
    operations = sum(4.0 * n * width for _ in range(n))
    scores = np.empty((heads, n, n), np.uint8).size * itemsize
    return [operations, scores, 2 * heads * n * itemsize]
"""),
    # chapter 15
    ("rows_of_program", """
def answer(program_id, block, length):
    rows = [program_id * block + place for place in range(block)]
    return rows, [row < length for row in rows]
"""),
    ("rows_of_program", """
def answer(program_id, block, length):
    rows = torch.arange(block) + block * program_id
    return rows, rows < length
"""),
    ("rows_of_program", """
def answer(program_id, block, length):
    rows = np.arange(program_id * block, (program_id + 1) * block)
    return rows, ~(rows >= length)
"""),
    ("scores_of_key_tile", """
def answer(query, key, start, block):
    out = np.full((len(query), block), -np.inf)
    real = key[start:start + block]
    out[:, :len(real)] = query @ real.T / np.sqrt(query.shape[1])
    return out
"""),
    ("scores_of_key_tile", """
def answer(query, key, start, block):
    rows = []
    for q in query:
        row = []
        for j in range(start, start + block):
            row.append(float(q @ key[j]) / len(q) ** 0.5
                       if j < len(key) else float("-inf"))
        rows.append(row)
    return rows
"""),
    ("scores_of_key_tile", """
def answer(query, key, start, block):
    tile = key[start:start + block]
    scores = torch.einsum("id,jd->ij", query, tile) / key.shape[1] ** 0.5
    return F.pad(scores, (0, block - len(tile)), value=-float("inf"))
"""),
    ("weights_of_tile", """
def answer(query, key, log_sum):
    s = np.einsum("id,jd->ij", query, key) / key.shape[-1] ** 0.5
    return np.exp(s) / np.exp(log_sum)[:, None]
"""),
    ("weights_of_tile", """
def answer(query, key, log_sum):
    return torch.exp(query @ key.T * key.shape[1] ** -0.5
                     - log_sum.unsqueeze(1))
"""),
    ("weights_of_tile", """
def answer(query, key, log_sum):
    query = query.astype(np.float32)
    return [[np.exp(q @ k / np.sqrt(len(k)) - total) for k in key]
            for q, total in zip(query, log_sum)]
"""),
    ("score_gradient_of_tile", """
def answer(query, key, value, output, grad_output, log_sum):
    out = np.zeros((len(query), len(key)))
    for i in range(len(query)):
        for j in range(len(key)):
            w = np.exp(query[i] @ key[j] / len(key[j]) ** 0.5 - log_sum[i])
            out[i, j] = w * (grad_output[i] @ (value[j] - output[i]))
    return out
"""),
    ("score_gradient_of_tile", """
def answer(query, key, value, output, grad_output, log_sum):
    w = torch.exp(query @ key.mT / key.shape[1] ** 0.5 - log_sum[:, None])
    inner = torch.einsum("id,id->i", grad_output, output)
    return w * (grad_output @ value.mT) - w * inner[:, None]
"""),
    # chapter 16
    ("cache_step", SOFTMAX + """
def answer(cached_keys, cached_values, q, k, v):
    keys = np.append(cached_keys, k, axis=2)
    values = np.append(cached_values, v, axis=2)
    s = np.einsum("bhid,bhjd->bhij", q, keys) / q.shape[-1] ** 0.5
    return np.einsum("bhij,bhjd->bhid", normalised(s), values), keys, values
"""),
    ("cache_step", """
def answer(cached_keys, cached_values, q, k, v):
    keys = torch.cat([cached_keys, k], dim=-2)
    values = torch.cat([cached_values, v], dim=-2)
    return F.scaled_dot_product_attention(q, keys, values), keys, values
"""),
    ("cache_step", """
def answer(cached_keys, cached_values, q, k, v):
    batch, heads, length, width = cached_keys.shape
    keys, values = np.empty((2, batch, heads, length + 1, width))
    keys[:, :, :-1], keys[:, :, -1:] = cached_keys, k
    values[:, :, :-1], values[:, :, -1:] = cached_values, v
    out = np.zeros((batch, heads, 1, width))
    for b in range(batch):
        for h in range(heads):
            w = np.exp(keys[b, h] @ q[b, h, 0] / np.sqrt(width))
            out[b, h, 0] = w / w.sum() @ values[b, h]
    return out, keys, values
"""),
    ("slot_mask", """
def answer(start, new_tokens, capacity):
    return np.tri(new_tokens, capacity, start, dtype=bool)
"""),
    ("slot_mask", """
def answer(start, new_tokens, capacity):
    return [[slot <= start + i for slot in range(capacity)]
            for i in range(new_tokens)]
"""),
    ("slot_mask", """
def answer(start, new_tokens, capacity):
    whole = torch.ones(capacity, capacity, dtype=torch.bool).tril()
    return whole[start:start + new_tokens]
"""),
    ("mask_of_positions", """
def answer(q, k):
    out = np.zeros((len(q), 1, q.shape[1], k.shape[1]), bool)
    for b in range(len(q)):
        for i, mine in enumerate(q[b]):
            for j, place in enumerate(k[b]):
                out[b, 0, i, j] = 0 <= place <= mine
    return out
"""),
    ("mask_of_positions", """
def answer(q, k):
    q, k = torch.as_tensor(q), torch.as_tensor(k)
    seen = q.unsqueeze(-1) >= k.unsqueeze(-2)
    return (seen & (k != -1).unsqueeze(1)).unsqueeze(1)
"""),
    ("mask_of_positions", """
def answer(q, k):
    far = np.where(k < 0, 10 ** 6, k)
    return np.less_equal.outer(far, q).diagonal(0, 0, 2).transpose(
        2, 1, 0)[:, None]
"""),
    ("repeat_key_heads", """
def answer(x, num_heads):
    group = num_heads // x.shape[1]
    return np.stack([x[:, h // group] for h in range(num_heads)], axis=1)
"""),
    ("repeat_key_heads", """
def answer(x, num_heads):
    return torch.repeat_interleave(x, num_heads // x.shape[1], dim=1)
"""),
    ("repeat_key_heads", """
def answer(x, num_heads):
    b, g, n, d = x.shape
    wide = np.broadcast_to(x[:, :, None], (b, g, num_heads // g, n, d))
    return wide.reshape(b, num_heads, n, d).astype(np.float32)
"""),
    ("unpack_grouped", """
def answer(packed, num_heads, num_key_heads):
    d = packed.shape[-1] // (num_heads + 2 * num_key_heads)
    parts = np.split(packed, [num_heads * d, (num_heads + num_key_heads) * d],
                     axis=-1)
    return [np.stack(np.split(part, part.shape[-1] // d, -1), 1)
            for part in parts]
"""),
    ("unpack_grouped", """
def answer(packed, n, g):
    packed = torch.as_tensor(packed)
    d = packed.shape[-1] // (n + 2 * g)
    parts = packed.split([n * d, g * d, g * d], dim=-1)
    return tuple(p.unflatten(-1, (-1, d)).transpose(1, 2) for p in parts)
"""),
    ("cache_bytes", """
def answer(layers, heads, key_heads, width, itemsize):
    total = 0
    for layer in range(layers):
        for head in range(key_heads):
            total += width * itemsize  # a key
            total += width * itemsize  # a value
    return total
"""),
    ("cache_bytes", """
def answer(layers, heads, key_heads, width, itemsize):
    return float(np.prod([2, layers, key_heads, width, itemsize]))
"""),
    # chapter 17
    ("partial_output", SOFTMAX + """
def answer(x, W_q, W_k, W_v, W_o, n, rank, processes):
    d = W_q.shape[1] // n
    out = 0
    for h in range(rank * n // processes, (rank + 1) * n // processes):
        own = slice(h * d, (h + 1) * d)
        q, k, v = x @ W_q[:, own], x @ W_k[:, own], x @ W_v[:, own]
        w = normalised(q @ k.swapaxes(1, 2) / np.sqrt(d))
        out = out + w @ v @ W_o[own]
    return out
"""),
    ("partial_output", """
def answer(x, W_q, W_k, W_v, W_o, n, rank, processes):
    q, k, v = ((x @ W.chunk(processes, 1)[rank]).unflatten(
        -1, (n // processes, -1)).transpose(1, 2) for W in (W_q, W_k, W_v))
    z = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
    return z @ W_o.chunk(processes, 0)[rank]
"""),
    ("partial_output", HEADS + """
def answer(x, W_q, W_k, W_v, W_o, n, rank, processes):
    q, k, v = (cut(x @ W, n) for W in (W_q, W_k, W_v))
    z = normalised(q @ k.swapaxes(2, 3) / np.sqrt(q.shape[-1])) @ v
    mine = np.arange(n) // (n // processes) == rank
    return glue(z * mine[:, None, None]) @ W_o
"""),
    ("add_partial_outputs", """
def answer(parts, b_o):
    total = b_o
    for part in parts:
        total = total + part
    return total
"""),
    ("add_partial_outputs", """
def answer(parts, b_o):
    return torch.einsum("pbte->bte", parts) + b_o
"""),
    ("regroup_packed_rows", """
def answer(packed, processes):
    q, k, v = np.split(packed, 3)
    return np.concatenate([np.split(part, processes)[p]
                           for p in range(processes) for part in (q, k, v)])
"""),
    ("regroup_packed_rows", """
def answer(packed, processes):
    rows = torch.arange(len(packed)).view(3, processes, -1)
    return packed[rows.transpose(0, 1).flatten()]
"""),
    ("regroup_packed_rows", """
def answer(packed, processes):
    inner = len(packed) // 3
    share = inner // processes
    out = np.empty_like(packed)
    for new in range(len(packed)):
        process, place = divmod(new, 3 * share)
        which, row = divmod(place, share)
        out[new] = packed[which * inner + process * share + row]
    return out
"""),
    ("ring_step", """
def answer(query, key, value, output, log_sum, rank, source):
    n = len(query)
    i, j = rank * n + np.arange(n), source * n + np.arange(n)
    scores = query @ key.T / np.sqrt(query.shape[1])
    powers = np.exp(scores) * (j <= i[:, None])
    old = np.exp(log_sum)
    total = old + powers.sum(1)
    return (old[:, None] * output + powers @ value) / total[:, None], (
        np.log(total))
"""),
    ("ring_step", """
def answer(query, key, value, output, log_sum, rank, source):
    if rank < source:
        return output, log_sum
    scores = query @ key.mT / key.shape[1] ** 0.5
    if rank == source:
        later = torch.ones_like(scores, dtype=torch.bool).triu(1)
        scores = scores.masked_fill(later, -float("inf"))
    both = torch.logaddexp(log_sum, scores.logsumexp(-1))
    kept = (log_sum - both).exp().unsqueeze(-1)
    return output * kept + (scores - both[:, None]).exp() @ value, both
"""),
    ("ring_step", """
def answer(query, key, value, output, log_sum, rank, source):
    outputs, sums = [], []
    for i, q in enumerate(query):
        seen = len(key) if source < rank else i + 1 if source == rank else 0
        m, l, z = log_sum[i], 1.0, output[i]
        for k, v in zip(key[:seen], value[:seen]):
            s = q @ k / np.sqrt(len(q))
            new = max(m, s)
            l, z = (l * np.exp(m - new) + np.exp(s - new),
                    z * np.exp(m - new) + np.exp(s - new) * v)
            if m == -np.inf:
                l = 1.0
            m = new
        outputs.append(z / l)
        sums.append(m + np.log(l))
    return outputs, sums
"""),
    ("all_reduce_bytes", """
def answer(seq_len, embed_dim, itemsize, processes):
    piece = seq_len * embed_dim * itemsize / processes
    sent = 0
    for turn in range(processes - 1):
        sent += piece  # to add up
        sent += piece  # to hand out
    return sent
"""),
    ("all_reduce_bytes", """
def answer(seq_len, embed_dim, itemsize, processes):
    size = seq_len * embed_dim * itemsize
    return 2 * size - 2 * size / processes
"""),
]
