"""The right answers of the exercises that ask for PyTorch.

They stand apart so that the other exercises never import PyTorch.
"""

import torch
from torch import nn

__all__: list[str] = []


def torch_mha(x, W_q, W_k, W_v, W_o, num_heads):
    """Causal multi-head self-attention in PyTorch, the whole layer.

    x: (batch, seq_len, embed_dim).
    W_q, W_k, W_v, W_o: (embed_dim, embed_dim), stored like the weight of
    nn.Linear, (out, in), and so used as x @ W.T.
    Each token may attend to itself and to the tokens before it.
    Returns (batch, seq_len, embed_dim).
    """
    batch, seq_len, _ = x.shape

    def separate(projected):
        return projected.view(batch, seq_len, num_heads, -1).transpose(1, 2)

    query, key, value = (separate(x @ W.T) for W in (W_q, W_k, W_v))
    scores = query @ key.transpose(-2, -1) / key.shape[-1] ** 0.5
    allowed = torch.ones(seq_len, seq_len, dtype=torch.bool).tril()
    weights = scores.masked_fill(~allowed, float("-inf")).softmax(dim=-1)
    merged = (weights @ value).transpose(1, 2).reshape(x.shape)
    return merged @ W_o.T


class SelfAttention(nn.Module):
    """Multi-head self-attention as a module.

    The four maps are given. Write forward.
    """

    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.W_q = nn.Linear(embed_dim, embed_dim, bias=False)
        self.W_k = nn.Linear(embed_dim, embed_dim, bias=False)
        self.W_v = nn.Linear(embed_dim, embed_dim, bias=False)
        self.W_o = nn.Linear(embed_dim, embed_dim, bias=False)

    def forward(self, x, attention_mask):
        """Let every token attend where the mask allows it.

        x: (batch, seq_len, embed_dim).
        attention_mask: booleans (batch, 1, seq_len, seq_len), True = may
        attend; every token may attend somewhere.
        Returns (batch, seq_len, embed_dim).
        """
        batch, seq_len, _ = x.shape

        def separate(projected):
            return projected.view(
                batch, seq_len, self.num_heads, -1).transpose(1, 2)

        query, key, value = (separate(self.W_q(x)), separate(self.W_k(x)),
                             separate(self.W_v(x)))
        scores = query @ key.transpose(-2, -1) / key.shape[-1] ** 0.5
        scores = scores.masked_fill(~attention_mask, float("-inf"))
        heads = scores.softmax(dim=-1) @ value
        return self.W_o(heads.transpose(1, 2).reshape(x.shape))
