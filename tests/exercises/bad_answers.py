"""Answers that a checker must survive, each with the verdict it must give."""

from right_answers import SOFTMAX

BAD = [
    ("attention", "not attempted", '''
def answer(query, key, value):
    """A docstring."""
    raise NotImplementedError
'''),
    ("attention", "not attempted", """
def answer(query, key, value):
    ...
"""),
    ("attention", "not attempted", """
def answer(query, key, value):
    pass
"""),
    ("attention", "not attempted", """
def answer(query, key, value):
    scores = query @ key.swapaxes(1, 2)
    raise NotImplementedError("to do")
"""),
    ("attention", "returns-none", """
def answer(query, key, value):
    scores = query @ key.swapaxes(1, 2)
    print(scores.shape)
"""),
    ("ring_step", "returns-none", """
def answer(query, key, value, output, log_sum, rank, source):
    if source > rank:
        return  # nothing to see, and the state was forgotten
    return output, log_sum
"""),
    ("rows_of_program", "wrong-structure", """
def answer(program_id, block, length):
    rows = program_id * block + np.arange(block)
    return (rows, rows < length) if length > 9 else "too short"
"""),
    ("attention", "raised", """
def answer(query, key, value):
    return undefined_name @ value
"""),
    ("attention", "raised", """
def answer(query, key, value):
    return value.weights
"""),
    ("attention", "raised", """
def answer(query, key):
    return query @ key
"""),
    ("attention", "raised", """
def answer(query, key, value):
    return answer(query, key, value)
"""),
    ("attention", "raised", """
def answer(query, key, value):
    import sys
    sys.exit(1)
"""),
    ("attention", "raised", """
def answer(query, key, value):
    exit()
"""),
    ("attention", "timed out", """
def answer(query, key, value):
    while True:
        pass
"""),
    ("attention", "timed out", """
def answer(query, key, value):
    while True:
        try:
            query = query + 1
        except:
            pass
"""),
    ("attention", "timed out", """
def answer(query, key, value):
    import time
    time.sleep(60)
"""),
    ("attention", "timed out", """
def answer(query, key, value):
    while True:
        print("and on", end=" ")
"""),
    ("attention", "facts", """
def answer(query, key, value):
    return np.full(query.shape[:2] + value.shape[-1:], np.nan)
"""),
    ("attention", "facts", """
def answer(query, key, value):
    return np.array([[0.1, 0.2], [0.3, 0.4]])
"""),
    ("attention", "facts", """
def answer(query, key, value):
    return 1.5
"""),
    ("attention", "facts", """
def answer(query, key, value):
    return np.zeros((0, 5, 6))
"""),
    ("attention", "facts", """
def answer(query, key, value):
    return np.ones(query.shape[:2] + value.shape[-1:], dtype=complex)
"""),
    ("attention", "wrong-structure", SOFTMAX + """
def answer(query, key, value):
    w = normalised(query @ key.swapaxes(1, 2) / np.sqrt(query.shape[-1]))
    return w @ value, w
"""),
    ("attention", "wrong-structure", """
def answer(query, key, value):
    return "an answer"
"""),
    ("attention", "wrong-structure", """
def answer(query, key, value):
    return query.sum
"""),
    ("attention", "wrong-structure", """
def answer(query, key, value):
    return {"output": value}
"""),
    ("attention", "wrong-structure", """
def answer(query, key, value):
    return []
"""),
    ("attention", "wrong-structure", """
def answer(query, key, value):
    rows = []
    rows.append(rows)
    return rows
"""),
    ("attention", "wrong-structure", """
def answer(query, key, value):
    return np.array([None, query], dtype=object)
"""),
    ("attention", "random", """
def answer(query, key, value):
    return np.random.normal(size=query.shape[:2] + value.shape[-1:])
"""),
    ("attention", "random", """
calls = []

def answer(query, key, value):
    calls.append(1)
    return len(calls) * np.ones(query.shape[:2] + value.shape[-1:])
"""),
    ("attention", "in-place", """
def answer(query, key, value):
    query /= np.sqrt(query.shape[-1])
    e = np.exp(query @ key.swapaxes(1, 2))
    return e / e.sum(-1, keepdims=True) @ value
"""),
    ("softmax", "in-place", """
def answer(x):
    x -= x.max(-1, keepdims=True)
    np.exp(x, out=x)
    x /= x.sum(-1, keepdims=True)
    return x
"""),
    ("masked_softmax", "in-place", SOFTMAX + """
def answer(scores, attention_mask):
    scores[:, ~attention_mask] = -np.inf
    return normalised(scores)
"""),
    ("masked_softmax", "in-place", """
def answer(scores, attention_mask):
    return scores.masked_fill_(~attention_mask, float("-inf")).softmax(-1)
"""),
    ("causal_mask", "mask-not-bool", """
def answer(seq_len):
    return np.tril(np.ones((seq_len, seq_len)))
"""),
    ("torch_mha", "raised", """
def answer(x, W_q, W_k, W_v, W_o, n):
    return x.numpy() @ W_q
"""),
    ("combine_heads", "raised", """
def answer(x):
    x = torch.as_tensor(x)
    return x.transpose(1, 2).view(x.shape[0], x.shape[2], -1)
"""),
    ("softmax", "facts", """
def answer(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return (e / e.sum(-1, keepdims=True)).astype(int)
"""),
    ("project_qkv", "wrong-structure", """
def answer(x, W_q, W_k, W_v):
    return x @ W_q
"""),
    ("project_qkv", "wrong-structure", """
def answer(x, W_q, W_k, W_v):
    return x @ W_q, x @ W_k
"""),
    ("project_qkv", "wrong-structure", """
def answer(x, W_q, W_k, W_v):
    return "q", "k", "v"
"""),
    ("attention", "raised", """
def answer(query, key, value):
    return np.zeros((10 ** 7, 10 ** 7, 10 ** 3))
"""),
    ("attention", "raised", """
def answer(query, key, value):
    return np.zeros((3000, 3000))
"""),
    ("attention", "raised", """
def answer(query, key, value):
    raise KeyboardError("no such error")
"""),
    ("attention", "raised", """
def answer(query, key, value):
    raise BaseException()
"""),
    ("self_attention_module", "raised", """
class answer(nn.Module):
    def forward(self, x, mask):
        return x
"""),
    ("self_attention_module", "not attempted", """
class answer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.W_q = self.W_k = self.W_v = self.W_o = nn.Linear(width, width)
"""),
    ("self_attention_module", "raised", """
class Layer(nn.Module):
    def forward(self, x, mask):
        return x

answer = Layer()
"""),
]
