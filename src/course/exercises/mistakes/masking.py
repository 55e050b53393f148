"""Mistakes in masks and in their use. True = may attend."""

from collections.abc import Callable

import numpy as np
from numpy import ndarray

from course.exercises.mistakes.common import hide, read, softmax, swap
from course.exercises.stages import Mistake, State

CHAPTER = 6


def use_mistakes(source: str = "scaled", stage: str = "masked",
                 weights: str = "weights",
                 mask: str | Callable[[State], ndarray] = "attention_mask",
                 transposable: bool = True) -> list[Mistake]:
    """Mistakes in using a mask on scores.

    Args:
        source: Name of the scores in the state.
        stage: Name of the stage that masks them.
        weights: Name of the stage of the softmax that follows.
        mask: Name of the mask, or a function that builds it.
        transposable: Whether the mask may be square and not symmetric.
    """
    x = read(source)
    m = read(mask) if isinstance(mask, str) else mask
    before = "np.where(attention_mask, scores, -np.inf)"
    mistakes = [
        Mistake(
            "mask-ignored", "attention without any mask",
            "The mask plays no part.", {stage: x},
            why="Without a mask, padding and future tokens take their share.",
            question="Does your result change when the mask changes?",
            fix=before, explained=CHAPTER),
        Mistake(
            "mask-inverted", "the mask the wrong way round",
            "What should be hidden is seen, and what should be seen is "
            "hidden.",
            {stage: lambda s: hide(x(s), ~m(s), s.style)}, styled=True,
            why="Here, and in F.scaled_dot_product_attention, True means "
                "\"may attend\"; in nn.MultiheadAttention and in masked_fill "
                "True means \"hide\".",
            question="Does True mean \"may attend\" or \"hide\" in the call "
                     "that you use?",
            fix="~attention_mask, or the two branches of np.where swapped",
            explained=CHAPTER),
        Mistake(
            "mask-zero-score", "masked scores set to 0 instead of -inf",
            "Masked keys keep the score 0, and exp(0) is 1, so they still "
            "get weight.",
            {stage: lambda s: np.where(m(s), x(s), 0.0)},
            why="Only -inf, or a huge negative number, becomes 0 under exp.",
            question="What is exp(0)?", fix=before, explained=CHAPTER),
        Mistake(
            "mask-tiny", "masked scores set to -1e-9 instead of -1e9",
            "Masked keys have the score -0.000000001, which is nearly 0.",
            {stage: lambda s: np.where(m(s), x(s), -1e-9)},
            why="1e-9 is a tiny number, 1e9 a huge one.",
            question="How large is 1e-9?", fix=before, in_pairs=False,
            explained=CHAPTER),
        Mistake(
            "mask-small", "-10 added to masked scores",
            "Masked keys still get weight: exp(-10) is not 0, and a score "
            "that is larger by 10 makes up for it.",
            {stage: lambda s: x(s) + np.where(m(s), 0.0, -10.0)},
            why="A mask must win against every score.",
            question="Could a masked score be larger than the others by 10?",
            fix=before, in_pairs=False, explained=CHAPTER),
        Mistake(
            "mask-added", "scores + mask, with True as 1 and False as 0",
            "Masked scores are lower by 1, which masks nothing.",
            {stage: lambda s: x(s) + m(s)},
            why="A float mask is added to the scores, so it must hold 0 and "
                "-inf.",
            question="What must be added to a score so that its weight "
                     "becomes 0?",
            fix=before, explained=CHAPTER),
        Mistake(
            "mask-plus-inf", "masked scores set to +inf instead of -inf",
            "Masked keys win.",
            {stage: lambda s: np.where(m(s), x(s), 1e9)},
            why="A large score means much attention.",
            question="Plus or minus?", fix=before, explained=CHAPTER),
        Mistake(
            "mask-plus-inf-added", "masked scores set to +inf instead of "
            "-inf", "Masked keys win.",
            {stage: lambda s: x(s) + np.where(m(s), 0.0, 1e9)},
            why="A large score means much attention.",
            question="Plus or minus?", fix=before, same_as="mask-plus-inf",
            in_pairs=False, explained=CHAPTER),
        Mistake(
            "mask-zero-times-inf", "(1 - mask) * -inf added to the scores",
            "Every pair that may attend became NaN: 0 * -inf is NaN.",
            {stage: lambda s: x(s) + (1.0 - m(s)) * -np.inf},
            why="The product gives -inf only where the mask is False; "
                "elsewhere it gives NaN, not 0.",
            question="What is 0 * -np.inf?", fix=before, in_pairs=False,
            explained=CHAPTER),
        Mistake(
            "mask-after-softmax", "weights set to 0 after the softmax",
            "The rows no longer sum to 1.",
            {stage: x, weights: lambda s: softmax(x(s), s.style) * m(s)},
            why="Masked keys have taken their share of the sum already. Mask "
                "the scores, then normalise.",
            question="What do the rows of your weights sum to?",
            fix=before, explained=CHAPTER),
        Mistake(
            "mask-inf-after-softmax", "weights set to -inf after the softmax",
            "The weights themselves are -inf where the mask is False.",
            {stage: x, weights: lambda s: np.where(
                m(s), softmax(x(s), s.style), -np.inf)},
            why="-inf belongs into the scores; the softmax turns it into 0.",
            question="Before or after the softmax?", fix=before,
            in_pairs=False, explained=CHAPTER),
        Mistake(
            "mask-scores-multiplied", "scores * mask",
            "Masked scores are 0, and exp(0) is 1, so masked keys still get "
            "weight.",
            {stage: lambda s: x(s) * m(s)},
            why="Only -inf, or a huge negative number, becomes 0 under exp.",
            question="What is exp(0)?", fix=before,
            same_as="mask-zero-score", in_pairs=False, explained=CHAPTER),
    ]
    if transposable:
        mistakes.append(Mistake(
            "mask-transposed", "the mask transposed",
            "Its rows were used for the keys and its columns for the "
            "queries.",
            {stage: lambda s: hide(x(s), swap(m(s)), s.style)}, styled=True,
            why="Entry [i, j] of a mask is about query i and key j.",
            question="Which index of the mask belongs to the query?",
            fix="attention_mask as it came", explained=CHAPTER))
    return mistakes


def causal_use_mistakes(source: str = "scaled", stage: str = "masked",
                        weights: str = "weights") -> list[Mistake]:
    """Mistakes in hiding the future in square scores.

    Args:
        source: Name of the scores in the state.
        stage: Name of the stage that masks them.
        weights: Name of the stage of the softmax that follows.
    """
    x = read(source)

    def places(s: State) -> tuple[ndarray, ndarray]:
        place = np.arange(x(s).shape[-1])
        return place[:, None], place[None, :]

    def keep(rule: Callable[[ndarray, ndarray], ndarray]) -> Callable:
        return lambda s: hide(x(s), rule(*places(s)), s.style)

    past = use_mistakes(
        source, stage, weights,
        lambda s: places(s)[1] <= places(s)[0], transposable=False)
    wanted = ("mask-ignored", "mask-inverted", "mask-zero-score",
              "mask-after-softmax", "mask-scores-multiplied")
    return [m for m in past if m.id in wanted] + [
        Mistake(
            "causal-strict", "a triangle without its diagonal",
            "A position may not attend to itself.",
            {stage: keep(lambda i, j: j < i)}, styled=True,
            why="The first position may then attend nowhere.",
            question="May a token attend to itself?", fix="key <= query",
            explained=CHAPTER),
        Mistake(
            "causal-upper", "the upper triangle",
            "A position sees itself and the future, not the past.",
            {stage: keep(lambda i, j: j >= i)}, styled=True,
            why="Query i may attend to keys 0 to i: the lower triangle.",
            question="In row i, may the column be larger than i?",
            fix="np.tril, not np.triu", explained=CHAPTER),
        Mistake(
            "causal-plus-one", "a triangle that reaches one too far",
            "Every position sees one token of the future.",
            {stage: keep(lambda i, j: j <= i + 1)}, styled=True,
            why="The token to be predicted is then in plain sight.",
            question="What does the second argument of np.tril do?",
            fix="key <= query", explained=CHAPTER),
    ]


def triangle_mistakes() -> list[Mistake]:
    """Mistakes in building a square causal mask from ``seq_len``."""
    def grid(rule: Callable[[ndarray, ndarray], ndarray]) -> Callable:
        def build(s: State) -> ndarray:
            place = np.arange(s.seq_len)
            return rule(place[:, None], place[None, :])
        return build

    return [
        Mistake(
            "causal-inverted", "the mask with True where it should be False",
            "True marks what must be hidden.",
            {"mask": grid(lambda i, j: j > i)},
            why="In this course True means \"may attend\".",
            question="Does True mean \"may attend\" or \"hide\" here?",
            fix="~mask", explained=CHAPTER),
        Mistake(
            "causal-strict", "a triangle without its diagonal",
            "A position may not attend to itself, so the first may attend "
            "nowhere.",
            {"mask": grid(lambda i, j: j < i)},
            why="Query i may attend to keys 0 to i, i included.",
            question="May a token attend to itself?",
            fix="key <= query (np.tril with k=0)", explained=CHAPTER),
        Mistake(
            "causal-upper", "the upper triangle",
            "A position sees itself and the future, not the past.",
            {"mask": grid(lambda i, j: j >= i)},
            why="Query i may attend to keys 0 to i: the lower triangle.",
            question="In row i, may the column be larger than i?",
            fix="np.tril, not np.triu", explained=CHAPTER),
        Mistake(
            "causal-plus-one", "a triangle that reaches one too far",
            "Every position sees one token of the future.",
            {"mask": grid(lambda i, j: j <= i + 1)},
            why="The token to be predicted is then in plain sight.",
            question="What does the second argument of np.tril do?",
            fix="key <= query (np.tril with k=0)", explained=CHAPTER),
        Mistake(
            "causal-all-true", "a mask that is True everywhere",
            "Nothing is hidden.",
            {"mask": grid(lambda i, j: j + i >= 0)},
            why="Query i must not see the keys behind it.",
            question="What must row 0 look like?", fix="key <= query",
            explained=CHAPTER),
        Mistake(
            "causal-identity", "a mask that is True on the diagonal alone",
            "Each position sees nothing but itself.",
            {"mask": grid(lambda i, j: j == i)},
            why="The past is visible.",
            question="What must the last row look like?",
            fix="key <= query", explained=CHAPTER),
        Mistake(
            "causal-additive", "a mask of 0 and -inf instead of True and "
            "False", "The numbers are those that are added to scores.",
            {"mask": grid(lambda i, j: np.where(j <= i, 0.0, -np.inf))},
            why="This course keeps masks boolean and turns them into -inf "
                "where the scores are masked.",
            question="Which dtype does np.where need for its condition?",
            fix="key <= query", explained=CHAPTER),
        Mistake(
            "causal-additive-inverted", "the mask with True where it should "
            "be False", "Numbers were returned, and 1 marks what must be "
            "hidden.",
            {"mask": grid(lambda i, j: (j > i).astype(float))},
            question="Does 1 mean \"may attend\" or \"hide\" here?",
            fix="~mask", same_as="causal-inverted", explained=CHAPTER),
    ]


def alignment_mistakes() -> list[Mistake]:
    """Mistakes in a causal mask for unequal lengths."""
    def grid(rule: Callable[[ndarray, ndarray, int], ndarray]) -> Callable:
        def build(s: State) -> ndarray:
            i = np.arange(s.query_len)[:, None]
            j = np.arange(s.key_len)[None, :]
            return rule(i, j, s.key_len - s.query_len)
        return build

    return [
        Mistake(
            "causal-top-left", "a triangle aligned at the top left",
            "Query 0 sees key 0 alone, as if the queries were the first "
            "tokens.",
            {"mask": grid(lambda i, j, gap: j <= i)},
            why="The queries are the newest tokens: the last query sees "
                "every key.",
            question="Which keys may the LAST query attend to?",
            fix="key <= query + (key_len - query_len)", explained=CHAPTER),
        Mistake(
            "causal-inverted", "the mask with True where it should be False",
            "True marks what must be hidden.",
            {"mask": grid(lambda i, j, gap: j > i + gap)},
            why="In this course True means \"may attend\".",
            question="Does True mean \"may attend\" or \"hide\" here?",
            fix="~mask", explained=CHAPTER),
        Mistake(
            "causal-strict", "a triangle without its diagonal",
            "A query may not attend to its own position.",
            {"mask": grid(lambda i, j, gap: j < i + gap)},
            why="A token may attend to itself.",
            question="May the last query attend to the last key?",
            fix="key <= query + (key_len - query_len)", explained=CHAPTER),
        Mistake(
            "causal-plus-one", "a triangle that reaches one too far",
            "Every query but the last sees one key of its future.",
            {"mask": grid(lambda i, j, gap: j <= i + gap + 1)},
            why="Only the last query may see the last key.",
            question="Which is the last key that the last but one query may "
                     "see?",
            fix="key <= query + (key_len - query_len)", explained=CHAPTER),
        Mistake(
            "causal-offset-sign", "a triangle shifted the wrong way",
            "key_len - query_len was subtracted instead of added.",
            {"mask": grid(lambda i, j, gap: j <= i - gap)},
            why="Query i stands at position i + (key_len - query_len) among "
                "the keys.",
            question="At which position among the keys does query 0 stand?",
            fix="key <= query + (key_len - query_len)", explained=CHAPTER),
        Mistake(
            "causal-upper", "the upper triangle",
            "A query sees its own position and the future, not the past.",
            {"mask": grid(lambda i, j, gap: j >= i + gap)},
            why="A query may attend to keys at or before its position.",
            question="May a query attend to the first key?",
            fix="key <= query + (key_len - query_len)", explained=CHAPTER),
        Mistake(
            "causal-transposed", "the mask transposed",
            "Queries stand across and keys down.",
            {"mask": lambda s: (np.arange(s.key_len)[:, None] <= np.arange(
                s.query_len)[None, :] + s.key_len - s.query_len)},
            why="The shape is (query_len, key_len): one row for each query.",
            question="What is the shape of the scores that it must fit?",
            fix="query positions in [:, None], key positions in [None, :]",
            explained=CHAPTER),
        Mistake(
            "causal-all-true", "a mask that is True everywhere",
            "Nothing is hidden.",
            {"mask": grid(lambda i, j, gap: i + j >= 0)},
            why="Only the last query may see every key.",
            question="May the first of several queries see the last key?",
            fix="key <= query + (key_len - query_len)", explained=CHAPTER),
    ]


def padding_mistakes() -> list[Mistake]:
    """Mistakes in building a padding mask from ``lengths``, ``seq_len``."""
    def pattern(rule: Callable[[ndarray, ndarray, int], ndarray]
                ) -> Callable[[State], ndarray]:
        def build(s: State) -> ndarray:
            lengths = np.asarray(s.lengths)[:, None]
            return rule(np.arange(s.seq_len)[None, :], lengths, s.seq_len)
        return build

    def keys(rule: Callable[[ndarray, ndarray, int], ndarray]) -> Callable:
        return lambda s: pattern(rule)(s)[:, None, None, :]

    right = pattern(lambda j, n, size: j < n)
    return [
        Mistake(
            "pad-inverted", "the mask with True at the padding",
            "Every entry is the opposite of the right one.",
            {"mask": keys(lambda j, n, size: j >= n)},
            why="In this course True means \"may attend\".",
            question="Does True mark the tokens or the padding?",
            fix="position < length", explained=CHAPTER),
        Mistake(
            "pad-off-by-one", "a mask that keeps one padding token",
            "Position `length` is kept too.",
            {"mask": keys(lambda j, n, size: j <= n)},
            why="Positions count from 0, so the last token stands at "
                "length - 1.",
            question="With length 1, which positions hold tokens?",
            fix="position < length", explained=CHAPTER),
        Mistake(
            "pad-off-by-minus-one", "a mask that hides the last token",
            "Position length - 1 is hidden too.",
            {"mask": keys(lambda j, n, size: j < n - 1)},
            why="Positions count from 0, so the last token stands at "
                "length - 1.",
            question="With length 1, which positions hold tokens?",
            fix="position < length", explained=CHAPTER),
        Mistake(
            "pad-on-queries", "a mask that hides queries instead of keys",
            "It varies along the query axis, (batch, 1, seq_len, 1), so "
            "padding is still attended to.",
            {"mask": lambda s: right(s)[:, None, :, None]},
            why="In (batch, heads, query, key) the keys are the last axis.",
            question="Which axis of (batch, heads, query, key) belongs to "
                     "the keys?",
            fix="mask[:, None, None, :]", explained=CHAPTER),
        Mistake(
            "pad-no-axes", "a mask without axes for heads and queries",
            "The pattern is right, but (batch, seq_len) would be lined up "
            "with (query, key).",
            {"mask": right},
            why="Broadcasting lines up the last axes.",
            question="With which axes of (batch, heads, query, key) does "
                     "NumPy line up (batch, seq_len)?",
            fix="mask[:, None, None, :]", explained=CHAPTER),
        Mistake(
            "pad-one-axis-short", "a mask with one axis too few",
            "In (batch, 1, seq_len) the batch is lined up with the heads.",
            {"mask": lambda s: right(s)[:, None, :]},
            why="Broadcasting lines up the last axes.",
            question="From which side does broadcasting line up shapes?",
            fix="mask[:, None, None, :]", explained=CHAPTER),
        Mistake(
            "pad-at-front", "a mask that hides the first positions",
            "The padding stands behind the tokens, not before them.",
            {"mask": keys(lambda j, n, size: j >= size - n)},
            why="This exercise pads on the right.",
            question="Where does the padding stand?",
            fix="position < length", explained=CHAPTER),
    ]
