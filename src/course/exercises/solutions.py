"""The right functions of the exercises: their one home.

The docstring of a function is the task's exact wording, its signature and
docstring make the stub, its source is the solution that a page unfolds, and
its results are what a check compares with. Where the library has the same
function, a test holds the two equal.

Each function stands alone: it needs NumPy, and what its exercise imports
above the stub. Shapes stand in the docstrings, not in annotations, so that a
stub reads like what a learner would write.
"""

import numpy as np

__all__: list[str] = []


# -- chapter 1: query, key and value ----------------------------------------

def project_word(x, W_q, W_k, W_v):
    """Give the query, the key and the value of one word.

    x: (embed_dim,), the embedding of the word.
    W_q, W_k, W_v: (embed_dim, head_dim).
    Returns the tuple (query, key, value), each (head_dim,).
    """
    return x @ W_q, x @ W_k, x @ W_v


def project_qkv(x, W_q, W_k, W_v):
    """Give the queries, keys and values of all words of all sequences.

    x: (batch, seq_len, embed_dim).
    W_q, W_k, W_v: (embed_dim, head_dim).
    Returns the tuple (query, key, value), each (batch, seq_len, head_dim).
    """
    return x @ W_q, x @ W_k, x @ W_v


# -- chapter 2: scoring one word --------------------------------------------

def score_of_pair(query, key):
    """Give the score of one query for one key: their dot product.

    query, key: (head_dim,).
    Returns one number. It is not scaled.
    """
    return query @ key


def scores_of_one_query(query, keys):
    """Give the scaled scores of one query for every key.

    query: (head_dim,).
    keys: (key_len, head_dim), one row for each word.
    Returns (key_len,): the dot products, divided by sqrt(head_dim).
    """
    return keys @ query / np.sqrt(query.shape[-1])


def weights_of_one_query(scores):
    """Turn the scores of one query into weights.

    scores: (key_len,), scaled already.
    Returns (key_len,): exp of each score, divided by the sum of all of them.
    """
    exponentials = np.exp(scores - scores.max())
    return exponentials / exponentials.sum()


def attend_with_one_query(query, keys, values):
    """Give the output of one query: the weighted sum of the values.

    query: (head_dim,).
    keys: (key_len, head_dim).
    values: (key_len, value_dim).
    Returns (value_dim,).
    """
    scores = keys @ query / np.sqrt(query.shape[-1])
    weights = softmax(scores)
    return weights @ values


# -- chapter 3: matrix form -------------------------------------------------

def attention_scores(query, key):
    """Give the dot product of every query with every key, for a batch.

    query: (batch, query_len, head_dim).
    key: (batch, key_len, head_dim).
    Returns (batch, query_len, key_len). The scores are not scaled.
    """
    return query @ key.swapaxes(-2, -1)


def attention_matrix(Q, K, V):
    """Attend with all words of one sentence at once: softmax(QKᵀ/√d)V.

    Q: (query_len, head_dim).
    K: (key_len, head_dim).
    V: (key_len, value_dim).
    Returns (query_len, value_dim).
    """
    weights = softmax(Q @ K.T / np.sqrt(K.shape[-1]))
    return weights @ V


def batch_without_loops(query, key, value):
    """Attend in every sequence of a batch, without a Python loop.

    query: (batch, query_len, head_dim).
    key: (batch, key_len, head_dim).
    value: (batch, key_len, value_dim).
    Returns (batch, query_len, value_dim).
    """
    scores = query @ key.swapaxes(-2, -1) / np.sqrt(key.shape[-1])
    return softmax(scores) @ value


# -- chapter 4: softmax and scale -------------------------------------------

def softmax(x):
    """Softmax over the last axis of x, which may have any number of axes.

    It must survive scores of 1000 and of -1000.
    """
    exponentials = np.exp(x - x.max(axis=-1, keepdims=True))
    return exponentials / exponentials.sum(axis=-1, keepdims=True)


def scaled_scores(query, key):
    """Give the scores, divided by the square root of the key's width.

    query: (batch, query_len, head_dim).
    key: (batch, key_len, head_dim).
    Returns (batch, query_len, key_len).
    """
    return query @ key.swapaxes(-2, -1) / np.sqrt(key.shape[-1])


def attention_weights(query, key):
    """Give the weights: the softmax, over the keys, of the scaled scores.

    query: (batch, query_len, head_dim).
    key: (batch, key_len, head_dim).
    Returns (batch, query_len, key_len); each row sums to 1.
    """
    scores = query @ key.swapaxes(-2, -1)
    return softmax(scores / np.sqrt(key.shape[-1]))


def attention(query, key, value):
    """Scaled dot-product attention for a batch.

    query: (batch, query_len, head_dim).
    key: (batch, key_len, head_dim).
    value: (batch, key_len, value_dim).
    Returns (batch, query_len, value_dim).
    """
    scores = query @ key.swapaxes(-2, -1)
    weights = softmax(scores / np.sqrt(key.shape[-1]))
    return weights @ value


def weights_with_heads(query, key):
    """Give the attention weights of every head.

    query: (batch, num_heads, query_len, head_dim).
    key: (batch, num_heads, key_len, head_dim).
    Returns (batch, num_heads, query_len, key_len); each row sums to 1.
    """
    scores = query @ key.swapaxes(-2, -1) / np.sqrt(key.shape[-1])
    exponentials = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return exponentials / exponentials.sum(axis=-1, keepdims=True)


def scaled_weights(query, key):
    """Give the softmax, over the keys, of the scores over √head_dim.

    query: (batch, query_len, head_dim).
    key: (batch, key_len, head_dim).
    Returns (batch, query_len, key_len); each row sums to 1.
    """
    scores = query @ key.swapaxes(-2, -1) / np.sqrt(key.shape[-1])
    exponentials = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return exponentials / exponentials.sum(axis=-1, keepdims=True)


# -- chapter 5: separating heads --------------------------------------------

def separate_heads(x, num_heads):
    """Cut the features of every token into one slice for each head.

    x: (batch, seq_len, num_heads * head_dim).
    Returns (batch, num_heads, seq_len, head_dim). Head h has the features
    h * head_dim to (h + 1) * head_dim - 1 of every token.
    """
    batch, seq_len, width = x.shape
    split = x.reshape(batch, seq_len, num_heads, width // num_heads)
    return split.swapaxes(1, 2)


def wide_matrix(matrices):
    """Put the matrices of all heads side by side into one wide matrix.

    matrices: (num_heads, embed_dim, head_dim).
    Returns (embed_dim, num_heads * head_dim). Columns h * head_dim to
    (h + 1) * head_dim - 1 are the matrix of head h.
    """
    return np.concatenate(list(matrices), axis=-1)


def heads_in_the_batch(x, num_heads):
    """Separate the heads and put them into the batch axis.

    x: (batch, seq_len, num_heads * head_dim).
    Returns (batch * num_heads, seq_len, head_dim): all heads of sequence 0
    first, then those of sequence 1, and so on.
    """
    batch, seq_len, width = x.shape
    head_dim = width // num_heads
    split = x.reshape(batch, seq_len, num_heads, head_dim).swapaxes(1, 2)
    return split.reshape(batch * num_heads, seq_len, head_dim)


def scores_of_heads(q, k, num_heads):
    """Give the scaled scores of every head.

    q, k: (batch, seq_len, num_heads * head_dim), projected already.
    Returns (batch, num_heads, seq_len, seq_len), scaled for one head.
    """
    batch, seq_len, width = q.shape
    head_dim = width // num_heads
    query = q.reshape(batch, seq_len, num_heads, head_dim).swapaxes(1, 2)
    key = k.reshape(batch, seq_len, num_heads, head_dim).swapaxes(1, 2)
    return query @ key.swapaxes(-2, -1) / np.sqrt(head_dim)


# -- chapter 6: masks -------------------------------------------------------

def padding_mask(lengths, seq_len):
    """Let every query attend to the tokens and to no padding.

    lengths: (batch,), how many tokens each sequence has; the padding stands
    behind them.
    Returns booleans (batch, 1, 1, seq_len), True = may attend.
    """
    position = np.arange(seq_len)
    return position < np.asarray(lengths)[:, None, None, None]


def causal_mask(seq_len):
    """Let each token attend to itself and to the tokens before it.

    Returns booleans (seq_len, seq_len), True = may attend; row = query,
    column = key.
    """
    position = np.arange(seq_len)
    return position[None, :] <= position[:, None]


def causal_mask_unequal(query_len, key_len):
    """Give a causal mask where the queries are the newest of the tokens.

    There are key_len tokens; the queries are the last query_len of them.
    Each may attend to its own position and to all before it.
    Returns booleans (query_len, key_len), True = may attend.
    """
    query_position = np.arange(query_len)[:, None] + (key_len - query_len)
    return np.arange(key_len)[None, :] <= query_position


def padding_and_causal(lengths, seq_len):
    """Give one mask that hides both the padding and the future.

    lengths: (batch,), how many tokens each sequence has.
    Returns booleans (batch, 1, seq_len, seq_len), True = may attend.
    """
    position = np.arange(seq_len)
    not_padding = position < np.asarray(lengths)[:, None, None, None]
    not_future = position[None, :] <= position[:, None]
    return not_padding & not_future


def additive_mask(attention_mask):
    """Turn a boolean mask into numbers that are added to the scores.

    attention_mask: booleans of any shape, True = may attend.
    Returns the same shape: 0 where it is True, -inf where it is False.
    """
    return np.where(attention_mask, 0.0, -np.inf)


def masked_softmax(scores, attention_mask):
    """Softmax over the keys that a query may attend to.

    scores: (batch, query_len, key_len).
    attention_mask: booleans (query_len, key_len), True = may attend; every
    query may attend somewhere.
    Returns (batch, query_len, key_len); masked weights are 0.
    """
    return softmax(np.where(attention_mask, scores, -np.inf))


def masked_attention(query, key, value, attention_mask):
    """Scaled dot-product attention with a mask.

    query: (batch, query_len, head_dim).
    key: (batch, key_len, head_dim).
    value: (batch, key_len, value_dim).
    attention_mask: booleans (query_len, key_len), True = may attend; every
    query may attend somewhere.
    Returns (batch, query_len, value_dim).
    """
    scores = query @ key.swapaxes(-2, -1) / np.sqrt(key.shape[-1])
    return softmax(np.where(attention_mask, scores, -np.inf)) @ value


def weights_with_empty_rows(scores, attention_mask):
    """Masked weights, where a query may attend nowhere.

    scores: (batch, query_len, key_len).
    attention_mask: booleans (query_len, key_len), True = may attend; whole
    rows may be False.
    Returns (batch, query_len, key_len). A query that may attend nowhere gets
    zeros, every other row sums to 1.
    """
    scores = np.where(attention_mask, scores, -np.inf)
    largest = scores.max(axis=-1, keepdims=True)
    exponentials = np.exp(scores - np.where(largest > -np.inf, largest, 0))
    total = exponentials.sum(axis=-1, keepdims=True)
    return exponentials / np.where(total > 0, total, 1)


def average_behind_the_mask(weights, value, attention_mask):
    """Average the values, whatever stands where nobody may look.

    weights: (batch, query_len, key_len), 0 at masked keys already.
    value: (batch, key_len, value_dim); at masked keys it may hold NaN.
    attention_mask: (batch, key_len), True = a token, False = padding that
    no query may attend to.
    Returns (batch, query_len, value_dim), without a NaN.
    """
    return weights @ np.where(attention_mask[:, :, None], value, 0.0)


def causal_weights(scores):
    """Turn scores into weights that leave the future alone.

    scores: (batch, seq_len, seq_len), scaled already.
    Returns (batch, seq_len, seq_len): query i attends to keys 0 to i.
    """
    position = np.arange(scores.shape[-1])
    allowed = position[None, :] <= position[:, None]
    return softmax(np.where(allowed, scores, -np.inf))


def masked_average(scores, value, attention_mask):
    """Average the values that a query may attend to.

    scores: (batch, query_len, key_len), scaled already.
    value: (batch, key_len, value_dim).
    attention_mask: booleans (query_len, key_len), True = may attend; every
    query may attend somewhere.
    Returns (batch, query_len, value_dim).
    """
    weights = softmax(np.where(attention_mask, scores, -np.inf))
    return weights @ value


def key_padding_mask(attention_mask):
    """Translate a padding mask for torch's nn.MultiheadAttention.

    attention_mask: booleans (batch, 1, 1, seq_len), True = may attend.
    Returns booleans (batch, seq_len), True = padding, to be ignored.
    """
    return ~attention_mask[:, 0, 0, :]


def mask_for_every_head(attention_mask, num_heads):
    """Give nn.MultiheadAttention a mask of its own for each sequence.

    That module wants one mask for each sequence and head, in one axis, the
    heads of sequence 0 first, and True = must NOT attend.
    attention_mask: booleans (batch, query_len, key_len), True = may attend.
    Returns booleans (batch * num_heads, query_len, key_len).
    """
    return np.repeat(~attention_mask, num_heads, axis=0)


def mean_of_tokens(x, lengths):
    """Average the tokens of every sequence, without the padding.

    x: (batch, seq_len, width).
    lengths: (batch,), how many tokens each sequence has, at least 1.
    Returns (batch, width).
    """
    kept = np.arange(x.shape[1]) < np.asarray(lengths)[:, None]
    total = np.where(kept[:, :, None], x, 0).sum(axis=1)
    return total / np.asarray(lengths)[:, None]


# -- chapter 7: combining heads ---------------------------------------------

def combine_heads(x):
    """Put the heads of every token side by side again.

    x: (batch, num_heads, seq_len, head_dim).
    Returns (batch, seq_len, num_heads * head_dim), head 0 first: the inverse
    of separate_heads.
    """
    batch, num_heads, seq_len, head_dim = x.shape
    return x.swapaxes(1, 2).reshape(batch, seq_len, num_heads * head_dim)


def attention_through_heads(q, k, v, num_heads):
    """Attend in every head on its own and put the results side by side.

    q, k, v: (batch, seq_len, num_heads * head_dim), projected already.
    Returns (batch, seq_len, num_heads * head_dim); there is no W_o here.
    """
    batch, seq_len, width = q.shape

    def separate(x):
        split = x.reshape(batch, seq_len, num_heads, width // num_heads)
        return split.swapaxes(1, 2)

    query, key, value = separate(q), separate(k), separate(v)
    scores = query @ key.swapaxes(-2, -1) / np.sqrt(key.shape[-1])
    heads = softmax(scores) @ value
    return heads.swapaxes(1, 2).reshape(batch, seq_len, width)


def output_projection(heads, W_o):
    """Combine the heads and multiply by W_o.

    heads: (batch, num_heads, seq_len, head_dim).
    W_o: (num_heads * head_dim, embed_dim).
    Returns (batch, seq_len, embed_dim).
    """
    batch, num_heads, seq_len, head_dim = heads.shape
    merged = heads.swapaxes(1, 2).reshape(
        batch, seq_len, num_heads * head_dim)
    return merged @ W_o


def head_contributions(heads, W_o):
    """Say what each head adds to the output of the layer.

    heads: (batch, num_heads, seq_len, head_dim).
    W_o: (num_heads * head_dim, embed_dim).
    Returns (batch, num_heads, seq_len, embed_dim). Summed over the heads it
    is the output of the layer.
    """
    num_heads, head_dim = heads.shape[1], heads.shape[3]
    return heads @ W_o.reshape(num_heads, head_dim, W_o.shape[-1])


def heads_from_the_batch(x, num_heads):
    """Take the heads out of the batch axis and put them side by side.

    x: (batch * num_heads, seq_len, head_dim): all heads of sequence 0 first,
    then those of sequence 1, and so on.
    Returns (batch, seq_len, num_heads * head_dim), head 0 first.
    """
    seq_len, head_dim = x.shape[1:]
    heads = x.reshape(-1, num_heads, seq_len, head_dim)
    return heads.swapaxes(1, 2).reshape(-1, seq_len, num_heads * head_dim)


# -- chapter 8: the layer ---------------------------------------------------

def multi_head_attention(x, W_q, W_k, W_v, W_o, num_heads):
    """Multi-head self-attention, the whole layer, without a mask.

    x: (batch, seq_len, embed_dim).
    W_q, W_k, W_v, W_o: (embed_dim, embed_dim), used as x @ W.
    Returns (batch, seq_len, embed_dim).
    """
    batch, seq_len, embed_dim = x.shape

    def separate(projected):
        split = projected.reshape(
            batch, seq_len, num_heads, embed_dim // num_heads)
        return split.swapaxes(1, 2)

    query, key, value = separate(x @ W_q), separate(x @ W_k), separate(x @ W_v)
    scores = query @ key.swapaxes(-2, -1) / np.sqrt(key.shape[-1])
    heads = softmax(scores) @ value
    merged = heads.swapaxes(1, 2).reshape(batch, seq_len, embed_dim)
    return merged @ W_o


def masked_multi_head_attention(x, W_q, W_k, W_v, W_o, num_heads,
                                attention_mask):
    """Multi-head self-attention with a mask.

    x: (batch, seq_len, embed_dim).
    W_q, W_k, W_v, W_o: (embed_dim, embed_dim), used as x @ W.
    attention_mask: booleans (batch, 1, seq_len, seq_len), True = may attend;
    every token may attend somewhere.
    Returns (batch, seq_len, embed_dim).
    """
    batch, seq_len, embed_dim = x.shape

    def separate(projected):
        split = projected.reshape(
            batch, seq_len, num_heads, embed_dim // num_heads)
        return split.swapaxes(1, 2)

    query, key, value = separate(x @ W_q), separate(x @ W_k), separate(x @ W_v)
    scores = query @ key.swapaxes(-2, -1) / np.sqrt(key.shape[-1])
    weights = softmax(np.where(attention_mask, scores, -np.inf))
    heads = weights @ value
    merged = heads.swapaxes(1, 2).reshape(batch, seq_len, embed_dim)
    return merged @ W_o


def unpack_qkv(packed, num_heads):
    """Cut a packed projection into query, key and value.

    Many models compute all three with one wide matrix and put them side by
    side: first the queries of all heads, then the keys of all heads, then
    the values of all heads.
    packed: (batch, seq_len, 3 * num_heads * head_dim).
    Returns the tuple (query, key, value), each (batch, num_heads, seq_len,
    head_dim).
    """
    batch, seq_len, width = packed.shape
    head_dim = width // (3 * num_heads)
    split = packed.reshape(batch, seq_len, 3, num_heads, head_dim)
    query, key, value = split.transpose(2, 0, 3, 1, 4)
    return query, key, value


def keras_kernel(kernel):
    """Turn a kernel of Keras into a weight of nn.Linear.

    kernel: (embed_dim, num_heads, head_dim), as MultiHeadAttention of Keras
    keeps the matrices of its heads: head h computes x @ kernel[:, h].
    Returns (num_heads * head_dim, embed_dim), which nn.Linear uses as
    x @ weight.T; the heads stand one after another.
    """
    return kernel.reshape(len(kernel), -1).T


def linear(x, weight, bias):
    """Do what torch's nn.Linear does with its stored weight.

    x: (batch, in_dim).
    weight: (out_dim, in_dim), as nn.Linear stores it.
    bias: (out_dim,).
    Returns (batch, out_dim).
    """
    return x @ weight.T + bias


def cross_attention(x, memory, W_q, W_k, W_v):
    """Let a decoder attend to what the encoder read, with one head.

    x: (batch, query_len, embed_dim), the decoder's tokens, which ask.
    memory: (batch, key_len, embed_dim), the encoder's output, which answers.
    W_q, W_k, W_v: (embed_dim, head_dim), used as x @ W.
    Returns (batch, query_len, head_dim).
    """
    query, key, value = x @ W_q, memory @ W_k, memory @ W_v
    scores = query @ key.swapaxes(-2, -1) / np.sqrt(key.shape[-1])
    return softmax(scores) @ value


# -- chapter 9: the block ---------------------------------------------------

def positional_encoding(seq_len, width):
    """Give the sinusoidal positions of "Attention Is All You Need".

    width is even. Column 2i is sin(position / 10000 ** (2i / width)), column
    2i + 1 the cosine of the same angle.
    Returns (seq_len, width).
    """
    position = np.arange(seq_len)[:, None]
    angle = position / 10000 ** (np.arange(0, width, 2) / width)
    codes = np.empty((seq_len, width))
    codes[:, 0::2], codes[:, 1::2] = np.sin(angle), np.cos(angle)
    return codes


def layer_norm(x, gamma, beta, eps):
    """Normalise every token over its features, then scale and shift.

    x: (batch, seq_len, width).
    gamma, beta: (width,).
    Returns gamma * (x - mean) / sqrt(variance + eps) + beta.
    """
    mean = x.mean(axis=-1, keepdims=True)
    variance = x.var(axis=-1, keepdims=True)
    return gamma * (x - mean) / np.sqrt(variance + eps) + beta


def feed_forward(x, W_1, b_1, W_2, b_2):
    """Give relu(x @ W_1 + b_1) @ W_2 + b_2, token by token.

    x: (batch, seq_len, width).
    W_1: (width, hidden), b_1: (hidden,), W_2: (hidden, width), b_2: (width,).
    Returns (batch, seq_len, width).
    """
    hidden = np.maximum(x @ W_1 + b_1, 0)
    return hidden @ W_2 + b_2


def dropout(weights, kept, rate):
    """Drop attention weights as in training.

    weights: (query_len, key_len).
    kept: booleans of the same shape, True = survives; drawn already.
    rate: the share that is dropped, at least 0 and below 1.
    Returns the weights with the dropped ones 0 and the survivors divided by
    1 - rate.
    """
    return np.where(kept, weights, 0.0) / (1 - rate)


def dropped_average(weights, kept, rate, value):
    """Average the values with weights of which some were dropped.

    weights: (query_len, key_len).
    kept: booleans of the same shape, True = survives; drawn already.
    rate: the share that is dropped, at least 0 and below 1.
    value: (key_len, value_dim).
    Returns (query_len, value_dim). The survivors are divided by 1 - rate.
    """
    return np.where(kept, weights, 0.0) / (1 - rate) @ value


def pre_norm_block(x, gamma, beta, eps, W):
    """Add a part of a block to x, with the normalisation before it.

    The part is one matrix here, W; in a model it is attention or the
    feed-forward network. normalise means: over the features, with gamma,
    beta and eps, as in layer_norm.
    x: (batch, seq_len, width), W: (width, width).
    Returns x + normalise(x) @ W.
    """
    mean = x.mean(axis=-1, keepdims=True)
    variance = x.var(axis=-1, keepdims=True)
    normalised = gamma * (x - mean) / np.sqrt(variance + eps) + beta
    return x + normalised @ W


def post_norm_block(x, gamma, beta, eps, W):
    """Add a part of a block to x, with the normalisation after it.

    The part is one matrix here, W. normalise means: over the features, with
    gamma, beta and eps, as in layer_norm.
    x: (batch, seq_len, width), W: (width, width).
    Returns normalise(x + x @ W).
    """
    total = x + x @ W
    mean = total.mean(axis=-1, keepdims=True)
    variance = total.var(axis=-1, keepdims=True)
    return gamma * (total - mean) / np.sqrt(variance + eps) + beta


def position_ids(tokens):
    """Number the tokens of sequences that are padded on the left.

    tokens: booleans (batch, seq_len), True = a token, False = padding.
    Returns integers (batch, seq_len): the first token of every sequence has
    position 0, the next 1, and so on; padding has 0 too.
    """
    return np.maximum(np.cumsum(tokens, axis=1) - 1, 0)


# -- predictions ------------------------------------------------------------

def predict_query_shape():
    """`@` sums over 512; what is left of x comes first, then 64."""
    return (np.zeros((3, 10, 512)) @ np.zeros((512, 64))).shape


def predict_first_weight():
    """The scaled scores are 14 and 12; exp(-2) is what the second adds."""
    return 1 / (1 + np.exp((96 - 112) / np.sqrt(64)))


def predict_scores_shape():
    """Every one of 5 queries meets every one of 7 keys, in 2 sequences."""
    query, key = np.zeros((2, 5, 3)), np.zeros((2, 7, 3))
    return (query @ key.swapaxes(-2, -1)).shape


def predict_scaled_score():
    """The dot product is 32; the root of the width 16 is 4."""
    query, key = np.ones(16), np.full(16, 2.0)
    return query @ key / np.sqrt(16)


def predict_head_zero():
    """Token 1 has the features 6 to 11; head 0 gets the first three."""
    x = np.arange(24).reshape(1, 4, 6)
    return x.reshape(1, 4, 2, 3).swapaxes(1, 2)[0, 0, 1].tolist()


def predict_masked_weight():
    """The exponentials are 1, 2 and 5; without the 5, 2 out of 3."""
    exponentials = np.exp([0, np.log(2), np.log(5)]) * [1, 1, 0]
    return exponentials[1] / exponentials.sum()


def predict_combined_row():
    """Token 0 is 0, 1 in head 0 and 6, 7 in head 1."""
    x = np.arange(12).reshape(1, 2, 3, 2)
    return x.swapaxes(1, 2).reshape(1, 3, 4)[0, 0].tolist()


def predict_parameters():
    """W_q, W_k, W_v and W_o, each 512 by 512 for all heads together."""
    return 4 * 512 * 512


def predict_dropped_weight():
    """A survivor is divided by the share that survives, 0.75."""
    return 0.3 / (1 - 0.25)


def predict_stored_scores():
    """8 heads, 4096 * 4096 pairs each, 4 bytes a number: 2**29 bytes."""
    return 8 * 4096 * 4096 * 4 / 2**20


def predict_computed_tiles():
    """Row i of 8 rows of tiles needs its first i + 1: 1 + 2 + ... + 8."""
    return sum(range(1, 8 + 1))


def predict_cache_bytes():
    """A key and a value, in 32 layers, of 8 heads of 128 numbers."""
    return 2 * 32 * 8 * 128 * 2 / 2**10


def predict_all_reduce():
    """The array has 64 MiB. 7/8 go round to add, 7/8 to hand out."""
    return 2 * (8 - 1) / 8 * (8192 * 4096 * 2) / 2**20


# -- chapter 10: gradients --------------------------------------------------

def softmax_gradient(weights, grad_weights):
    """Carry a gradient back through the softmax.

    weights: (batch, query_len, key_len), what the softmax gave; each row
    sums to 1.
    grad_weights: the same shape, the slope of the loss for each weight.
    Returns the same shape: the slope of the loss for each score.
    """
    average = (weights * grad_weights).sum(axis=-1, keepdims=True)
    return weights * (grad_weights - average)


def query_key_gradients(grad_scaled, query, key):
    """Carry a gradient back from the scaled scores to queries and keys.

    grad_scaled: (batch, query_len, key_len), the slope of the loss for each
    entry of query @ key.swapaxes(-2, -1) / sqrt(head_dim).
    query: (batch, query_len, head_dim), key: (batch, key_len, head_dim).
    Returns the tuple (grad_query, grad_key), shaped like query and key.
    """
    scale = 1 / np.sqrt(key.shape[-1])
    grad_query = grad_scaled @ key * scale
    grad_key = grad_scaled.swapaxes(-2, -1) @ query * scale
    return grad_query, grad_key


def linear_gradients(x, W, grad_y):
    """Carry a gradient back through y = x @ W + b, for a batch.

    x: (batch, seq_len, in_features), W: (in_features, out_features).
    grad_y: (batch, seq_len, out_features), the slope of the loss for y. The
    loss is one number for the whole batch.
    Returns the tuple (grad_x, grad_W, grad_b), shaped like x, W and b.
    """
    grad_x = grad_y @ W.T
    grad_W = np.einsum("bti,bto->io", x, grad_y)
    grad_b = grad_y.sum(axis=(0, 1))
    return grad_x, grad_W, grad_b


def embedding_gradient(grad_q, grad_k, grad_v, W_q, W_k, W_v):
    """Give the gradient of the embeddings of a self-attention layer.

    The embeddings x are used three times: q = x @ W_q, k = x @ W_k and
    v = x @ W_v.
    grad_q, grad_k, grad_v: (batch, seq_len, width), the slopes of the loss
    for q, k and v.
    W_q, W_k, W_v: (embed_dim, width).
    Returns (batch, seq_len, embed_dim).
    """
    return grad_q @ W_q.T + grad_k @ W_k.T + grad_v @ W_v.T


# -- chapter 11: learning to attend -----------------------------------------

def choice_of_a_row(query, keys, first, second):
    """Say how much more one word weighs than another, as a logarithm.

    query: (head_dim,), keys: (key_len, head_dim). The weights are the
    softmax of the scaled scores over all keys.
    first, second: places of two words among the keys.
    Returns one number: log(weight of first) - log(weight of second).
    """
    return query @ (keys[first] - keys[second]) / np.sqrt(keys.shape[-1])


def without_head(weights, value, W_o, head):
    """Give the output of attention with one head switched off.

    The weights of that head are set to 0, so that it adds nothing; all else
    stays.
    weights: (batch, num_heads, query_len, key_len).
    value: (batch, num_heads, key_len, head_dim).
    W_o: (num_heads * head_dim, embed_dim).
    head: the number of the head.
    Returns (batch, query_len, embed_dim).
    """
    kept = weights.copy()
    kept[:, head] = 0.0
    heads = kept @ value
    batch, num_heads, query_len, head_dim = heads.shape
    merged = heads.transpose(0, 2, 1, 3).reshape(
        batch, query_len, num_heads * head_dim)
    return merged @ W_o


# -- chapter 12: heads of a real model --------------------------------------

def most_attentive_head(weights, reader, target):
    """Find, for every text, the head that reads one word from another.

    weights: (texts, num_layers, num_heads, query_len, key_len).
    reader, target: (texts,) whole numbers, for each text the place of the
    word that reads and of the word that is read.
    Returns (texts, 2): the layer and the head in which the reader gives the
    largest weight to the target.
    """
    texts = np.arange(len(weights))
    read = weights[texts, :, :, reader, target]
    best = read.reshape(len(weights), -1).argmax(axis=1)
    return np.stack(np.unravel_index(best, read.shape[1:]), axis=1)


# -- chapter 13: adding embeddings ------------------------------------------

def three_hot(token_ids, segment_ids, num_tokens, num_positions,
              num_segments):
    """Put the one-hot rows of token, position and segment side by side.

    token_ids, segment_ids: (seq_len,) whole numbers.
    num_tokens, num_positions, num_segments: the lengths of the three tables.
    Returns (seq_len, num_tokens + num_positions + num_segments): zeros, and
    three ones in each row, so that the product with the three tables, one
    below the other in this order, adds the three embeddings.
    """
    places = np.arange(len(token_ids))
    rows = np.zeros((len(places), num_tokens + num_positions + num_segments))
    rows[places, token_ids] = 1
    rows[places, num_tokens + places] = 1
    rows[places, num_tokens + num_positions + segment_ids] = 1
    return rows


def score_terms(word, position, W_q, W_k):
    """Split the scaled scores of a sum of embeddings into four terms.

    word, position: (seq_len, embed_dim); the embeddings are word + position.
    W_q, W_k: (embed_dim, head_dim).
    Returns (4, seq_len, seq_len): word with word, word with position,
    position with word, position with position. The query is named first.
    """
    scale = 1 / np.sqrt(W_k.shape[-1])
    return np.stack([(asks @ W_q) @ (answers @ W_k).T * scale
                     for asks in (word, position)
                     for answers in (word, position)])


# -- chapter 14: kernels ----------------------------------------------------

def online_softmax_step(largest, total, summed, scores, value):
    """Take one more tile of keys into a running softmax.

    largest: (query_len, 1), the largest score of each query so far; -inf
    before the first tile.
    total: (query_len, 1), the sum of exp(score - largest) so far.
    summed: (query_len, value_dim), the sum of exp(score - largest) * value
    so far.
    scores: (query_len, block), the scaled scores of the new tile.
    value: (block, value_dim), the values of the new tile.
    Returns the tuple (largest, total, summed) with the tile taken in: the
    largest score of each query so far, and both sums measured by it.
    """
    new = np.maximum(largest, scores.max(axis=1, keepdims=True))
    kept = np.exp(largest - new)
    powers = np.exp(scores - new)
    return (new, total * kept + powers.sum(axis=1, keepdims=True),
            summed * kept + powers @ value)


def merge_partial_results(output, log_sum, other_output, other_log_sum):
    """Join what the same queries got from two separate sets of keys.

    output: (query_len, value_dim), attention over the one set of keys.
    log_sum: (query_len,), the logarithm of the sum of exp(score) over that
    set; it may be so large that its exponential is infinite, or -inf for a
    query that had no key in the set.
    other_output, other_log_sum: the same for the other set.
    Returns the tuple (output, log_sum) for both sets together.
    """
    together = np.logaddexp(log_sum, other_log_sum)
    share = np.exp(log_sum - together)[:, None]
    other_share = np.exp(other_log_sum - together)[:, None]
    return share * output + other_share * other_output, together


def attend_in_tiles(query, key, value, block):
    """Attend without ever holding the scores of all keys.

    query: (query_len, head_dim).
    key: (key_len, head_dim), value: (key_len, value_dim).
    block: the number of keys of one tile; the last tile may have fewer.
    Returns (query_len, value_dim): exactly softmax(scores) @ value, with the
    scores divided by sqrt(head_dim); they may be so large that their
    exponentials are infinite.
    """
    largest = np.full((len(query), 1), -np.inf)
    total, summed = 0.0, 0.0
    for start in range(0, len(key), block):
        tile = slice(start, start + block)
        scores = query @ key[tile].T / np.sqrt(key.shape[1])
        new = np.maximum(largest, scores.max(axis=1, keepdims=True))
        kept, powers = np.exp(largest - new), np.exp(scores - new)
        total = total * kept + powers.sum(axis=1, keepdims=True)
        summed = summed * kept + powers @ value[tile]
        largest = new
    return summed / total


def tiles_to_compute(query_len, key_len, block):
    """Say which tiles a causal mask leaves to be computed.

    Queries and keys are cut into blocks of `block`; the last of each may be
    shorter. The mask is aligned at the bottom right: the last query may
    attend to the last key.
    Returns booleans (query_blocks, key_blocks): True where some query of the
    tile may attend to some key of it.
    """
    after = np.minimum(np.arange(0, query_len, block) + block, query_len)
    last_seen = after - 1 + key_len - query_len
    first_key = np.arange(0, key_len, block)
    return first_key <= last_seen[:, None]


def attention_costs(seq_len, embed_dim, num_heads, itemsize):
    """Count what attention needs for one sequence, without projections.

    embed_dim: the width of all heads together.
    itemsize: the bytes of one number.
    Returns the tuple (operations, stored, running), whole numbers:
    operations of the scores and of the weighted values, where a
    multiplication and an addition are two (the softmax is not counted);
    bytes of the scores of all heads, if they are stored;
    bytes of the two running numbers (largest and total) of every query in
    every head, if they are not.
    """
    operations = 2 * 2 * seq_len**2 * embed_dim
    stored = num_heads * seq_len**2 * itemsize
    running = 2 * num_heads * seq_len * itemsize
    return operations, stored, running


# -- chapter 15: a GPU kernel -----------------------------------------------

def rows_of_program(program_id, block, length):
    """Say which rows one program of a grid works on.

    Each program takes `block` rows in a row, program 0 the first ones. Every
    program has the same number of places, so those of the last may lie
    beyond the end.
    Returns the tuple (rows, real), both (block,): the numbers of the rows,
    and booleans, True where there is such a row among `length` rows.
    """
    rows = program_id * block + np.arange(block)
    return rows, rows < length


def scores_of_key_tile(query, key, start, block):
    """Give the scores of the tile of `block` keys that begins at `start`.

    query: (query_len, head_dim), key: (key_len, head_dim).
    Returns (query_len, block): the scores divided by sqrt(head_dim), and
    -inf at the places of the tile that lie beyond the last key.
    """
    columns = start + np.arange(block)
    real = columns < len(key)
    tile = np.zeros((block, key.shape[1]))
    tile[real] = key[columns[real]]
    scores = query @ tile.T / np.sqrt(key.shape[1])
    return np.where(real, scores, -np.inf)


def weights_of_tile(query, key, log_sum):
    """Compute the weights of one tile again, for the way back.

    query: (query_len, head_dim).
    key: (block, head_dim), the keys of this tile alone.
    log_sum: (query_len,), kept from the way forward: the logarithm of the
    sum of exp(scaled score) over ALL keys.
    Returns (query_len, block): these columns of the softmax over all keys,
    with scores divided by sqrt(head_dim).
    """
    scores = query @ key.T / np.sqrt(key.shape[1])
    return np.exp(scores - log_sum[:, None])


def score_gradient_of_tile(query, key, value, output, grad_output, log_sum):
    """Give the slope of the loss for the scaled scores of one tile.

    query: (query_len, head_dim).
    key: (block, head_dim), value: (block, value_dim), of this tile alone.
    output: (query_len, value_dim), what attention over ALL keys gave.
    grad_output: (query_len, value_dim), the slope of the loss for it.
    log_sum: (query_len,), of all keys, as in weights_of_tile.
    Returns (query_len, block): the slope for query @ key.T / sqrt(head_dim).
    """
    scores = query @ key.T / np.sqrt(key.shape[1])
    weights = np.exp(scores - log_sum[:, None])
    average = (grad_output * output).sum(axis=1, keepdims=True)
    return weights * (grad_output @ value.T - average)


# -- chapter 16: decoding ---------------------------------------------------

def cache_step(cached_keys, cached_values, query, key, value):
    """Read one more token: keep its key and its value, and attend.

    cached_keys, cached_values: (batch, num_heads, length, head_dim), of the
    tokens read so far, the oldest first.
    query, key, value: (batch, num_heads, 1, head_dim), of the new token.
    Returns the tuple (output, keys, values): the new token's output, (batch,
    num_heads, 1, head_dim), and both caches with one token more.
    """
    keys = np.concatenate([cached_keys, key], axis=2)
    values = np.concatenate([cached_values, value], axis=2)
    scores = query @ keys.swapaxes(-2, -1) / np.sqrt(keys.shape[-1])
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights = powers / powers.sum(axis=-1, keepdims=True)
    return weights @ values, keys, values


def slot_mask(start, new_tokens, capacity):
    """Say which slots of a cache the new tokens may attend to.

    The cache has `capacity` slots, reserved in advance. `start` of them were
    written before; the new tokens' keys are in the next `new_tokens` slots;
    nobody has written the rest. Slots are filled in the order of the text.
    Returns booleans (new_tokens, capacity), True = may attend: a token sees
    those before it, and itself.
    """
    place = start + np.arange(new_tokens)
    return np.arange(capacity) <= place[:, None]


def mask_of_positions(query_positions, key_positions):
    """Make the mask of a padded batch from positions alone.

    query_positions: (batch, query_len), key_positions: (batch, key_len),
    whole numbers from 0, in any order; -1 for padding.
    Returns booleans (batch, 1, query_len, key_len), True = may attend: a
    query sees the keys at its own position and before, and never padding. A
    padding query sees nothing.
    """
    query = query_positions[:, None, :, None]
    key = key_positions[:, None, None, :]
    return (key >= 0) & (key <= query)


def repeat_key_heads(x, num_heads):
    """Give every query head a copy of the key head that it uses.

    x: (batch, num_key_heads, key_len, head_dim), keys or values.
    num_heads: the number of query heads, a multiple of num_key_heads.
    Neighbouring query heads share a key head.
    Returns (batch, num_heads, key_len, head_dim).
    """
    return np.repeat(x, num_heads // x.shape[1], axis=1)


def unpack_grouped(packed, num_heads, num_key_heads):
    """Unpack a projection whose keys and values have fewer heads.

    packed: (batch, seq_len, (num_heads + 2 * num_key_heads) * head_dim): all
    query heads, then all key heads, then all value heads.
    Returns the tuple (query, key, value): (batch, num_heads, seq_len,
    head_dim), and twice (batch, num_key_heads, seq_len, head_dim).
    """
    batch, seq_len, width = packed.shape
    head_dim = width // (num_heads + 2 * num_key_heads)
    heads = packed.reshape(batch, seq_len, -1, head_dim).swapaxes(1, 2)
    after_keys = num_heads + num_key_heads
    return (heads[:, :num_heads], heads[:, num_heads:after_keys],
            heads[:, after_keys:])


def cache_bytes(num_layers, num_heads, num_key_heads, head_dim, itemsize):
    """Give the bytes that a key-value cache needs for each token.

    num_layers: the layers of the model; each has a cache of its own.
    num_heads, num_key_heads: of one layer, for queries and for keys; there
    are as many value heads as key heads.
    itemsize: the bytes of one number.
    Returns one whole number.
    """
    return 2 * num_layers * num_key_heads * head_dim * itemsize


# -- chapter 17: many machines ----------------------------------------------

def partial_output(x, W_q, W_k, W_v, W_o, num_heads, rank, processes):
    """Compute one process's share of a layer that is cut by heads.

    x: (batch, seq_len, embed_dim), the whole input.
    W_q, W_k, W_v: (embed_dim, num_heads * head_dim), whole.
    W_o: (num_heads * head_dim, embed_dim), whole.
    num_heads: of the whole layer. rank: the number of this process, from 0.
    processes: how many there are; they divide the heads. Process 0 has the
    first num_heads / processes heads, process 1 the next, and so on.
    Returns (batch, seq_len, embed_dim), so that the sum over all processes
    is the layer's output. There is no mask.
    """
    batch, seq_len, _ = x.shape
    width = W_q.shape[1] // processes
    mine = slice(rank * width, (rank + 1) * width)
    shape = (batch, seq_len, num_heads // processes, -1)
    query, key, value = ((x @ W[:, mine]).reshape(shape).swapaxes(1, 2)
                         for W in (W_q, W_k, W_v))
    scores = query @ key.swapaxes(-2, -1) / np.sqrt(key.shape[-1])
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    heads = powers / powers.sum(axis=-1, keepdims=True) @ value
    merged = heads.swapaxes(1, 2).reshape(batch, seq_len, width)
    return merged @ W_o[mine]


def add_partial_outputs(parts, b_o):
    """Add up what the processes computed, with the output bias.

    parts: (processes, batch, seq_len, embed_dim); no part has the bias yet.
    b_o: (embed_dim,), the bias of the whole layer.
    Returns (batch, seq_len, embed_dim), the output of the whole layer.
    """
    return parts.sum(axis=0) + b_o


def regroup_packed_rows(packed, processes):
    """Order the rows of a packed projection so that it can be cut.

    packed: (3 * inner, embed_dim): the rows of all queries, then of all
    keys, then of all values. processes divides inner.
    Returns the same rows in another order: process 0's share of the query
    rows, of the key rows and of the value rows, then those of process 1, and
    so on. Within a share the order stays.
    """
    by_process = packed.reshape(3, processes, -1, packed.shape[1])
    return by_process.swapaxes(0, 1).reshape(packed.shape)


def ring_step(query, key, value, output, log_sum, rank, source):
    """Take in the slice of keys that has just come round the ring.

    The sequence is cut into equal slices, and a causal mask holds.
    query: (slice_len, head_dim), the slice of this process, number `rank`.
    key: (slice_len, head_dim), value: (slice_len, value_dim): slice `source`.
    output: (slice_len, value_dim), log_sum: (slice_len,), of the slices seen
    before; at first 0 and -inf. The first that a process sees is its own.
    Returns the tuple (output, log_sum) with this slice merged in; both as
    they were if no query may attend to it.
    """
    if source > rank:
        return output, log_sum
    scores = query @ key.T / np.sqrt(key.shape[1])
    if source == rank:
        scores = np.where(np.tri(len(query), dtype=bool), scores, -np.inf)
    largest = scores.max(axis=1)
    part = largest + np.log(np.exp(scores - largest[:, None]).sum(axis=1))
    together = np.logaddexp(log_sum, part)
    added = np.exp(scores - together[:, None]) @ value
    return np.exp(log_sum - together)[:, None] * output + added, together


def all_reduce_bytes(seq_len, embed_dim, itemsize, processes):
    """Give the bytes that each process sends in a ring all-reduce.

    The array has seq_len * embed_dim numbers of itemsize bytes. It is cut
    into as many pieces as there are processes; pieces go round once to be
    added up, and once more to be handed out.
    Returns one number.
    """
    size = seq_len * embed_dim * itemsize
    return 2 * (processes - 1) / processes * size
