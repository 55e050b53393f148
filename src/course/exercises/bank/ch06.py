"""Exercises of chapter 6: masks. True = may attend."""

from collections.abc import Callable

import numpy as np
from numpy import ndarray

from course.exercises import probes, solutions, starters
from course.exercises.bank.ch02 import SOFTMAX
from course.exercises.bank.ch03 import ATTENTION, WEIGHTS_AXES
from course.exercises.bank.inputs import (
    Generator,
    random_mask,
    scores_and_mask,
    square_scores,
    with_mask,
)
from course.exercises.mistakes.common import hide, read, softmax
from course.exercises.mistakes.masking import (
    alignment_mistakes,
    causal_use_mistakes,
    padding_mistakes,
    triangle_mistakes,
    use_mistakes,
)
from course.exercises.mistakes.normalising import softmax_mistakes
from course.exercises.mistakes.scaling import scale_mistakes
from course.exercises.mistakes.scores import score_mistakes, value_mistakes
from course.exercises.predictions import Prediction, outcomes_of
from course.exercises.quizzes import Option, Question
from course.exercises.registry import register, register_quiz
from course.exercises.stages import (
    MASK_STYLES,
    Case,
    Exercise,
    Mistake,
    Stages,
    State,
)

CHAPTER = 6

MASKED_ATTENTION: Stages = {
    "scores": ATTENTION["scores"], "scaled": ATTENTION["scaled"],
    "masked": lambda s: hide(s.scaled, s.attention_mask, s.style),
    "weights": lambda s: softmax(s.masked, s.style),
    "output": ATTENTION["output"],
}


def lower_triangle(size: int) -> ndarray:
    """True at and below the diagonal."""
    place = np.arange(size)
    return place[None, :] <= place[:, None]


# -- building masks ---------------------------------------------------------

def _padded(rng: Generator) -> list[Case]:
    def case(batch: int, seq_len: int) -> Case:
        lengths = rng.permutation(np.arange(1, seq_len))[:batch]
        return Case(f"{batch} sequences of at most {seq_len}",
                    {"lengths": lengths, "seq_len": seq_len},
                    {"batch": batch, "seq_len": seq_len})

    square = Case("4 sequences of at most 4", {
        "lengths": rng.permutation(np.array([1, 2, 3, 4])), "seq_len": 4})
    return [case(3, 7), case(4, 6), square]


def _sizes(rng: Generator) -> list[Case]:
    return [Case(f"seq_len = {size}", {"seq_len": size})
            for size in (5, int(rng.integers(6, 9)), 1)]


def _unequal(rng: Generator) -> list[Case]:
    extra = int(rng.integers(2, 5))
    sizes = ((3, 3 + extra), (2, 6), (4, 4), (1, 5))
    return [Case(f"{queries} queries, {keys} keys",
                 {"query_len": queries, "key_len": keys},
                 {"query_len": queries, "key_len": keys})
            for queries, keys in sizes]


def _any_mask(rng: Generator) -> list[Case]:
    return [Case("5 queries, 7 keys",
                 {"attention_mask": random_mask(rng, 5, 7)}, {}),
            Case("4 queries, 4 keys",
                 {"attention_mask": random_mask(rng, 4, 4)}, {})]


def _padding(s: State) -> ndarray:
    lengths = np.asarray(s.lengths)[:, None, None, None]
    return np.arange(s.seq_len) < lengths


def _both_mistakes() -> list[Mistake]:
    def mask(rule: Callable[[State], ndarray]) -> Stages:
        def build(s: State) -> ndarray:
            return np.broadcast_to(rule(s), (
                len(s.lengths), 1, s.seq_len, s.seq_len))
        return {"mask": build}

    def future(s: State) -> ndarray:
        return lower_triangle(s.seq_len)

    def queries(s: State) -> ndarray:
        return _padding(s).swapaxes(-2, -1)

    fix = "not_padding & not_future"
    rule = "A query may attend where every mask lets it: a logical and."
    question = "May a token attend to padding, or to the future?"
    return [
        Mistake("masks-or", "the masks joined by `or` instead of `and`",
                "A key is seen where one of the masks lets it.",
                mask(lambda s: _padding(s) | future(s)), why=rule,
                question=question, fix=fix, explained=CHAPTER),
        Mistake("masks-only-causal", "the causal mask alone",
                "The padding before a query's position is attended to.",
                mask(future), why=rule, question=question, fix=fix,
                explained=CHAPTER),
        Mistake("masks-only-padding", "the padding mask alone",
                "The future is attended to.", mask(_padding), why=rule,
                question=question, fix=fix, explained=CHAPTER),
        Mistake("masks-only-padding-thin", "the padding mask alone",
                "The future is attended to.",
                {"mask": lambda s: _padding(s)[:, :, :1]}, why=rule,
                question=question, fix=fix, same_as="masks-only-padding",
                explained=CHAPTER),
        Mistake("masks-xor", "the masks joined by `xor`",
                "A key is seen where exactly one of the masks lets it.",
                mask(lambda s: _padding(s) ^ future(s)), why=rule,
                question=question, fix=fix, explained=CHAPTER),
        Mistake("masks-inverted", "the mask with True where it should be "
                "False", "True marks what must be hidden.",
                mask(lambda s: ~(_padding(s) & future(s))),
                why="In this course True means \"may attend\".",
                question="Does True mean \"may attend\" or \"hide\" here?",
                fix=fix, explained=CHAPTER),
        Mistake("masks-or-of-hidden", "two \"hide\" masks joined by `and`",
                "Only what both masks hide is hidden, and True marks it.",
                mask(lambda s: ~_padding(s) & ~future(s)),
                why="Of masks whose True means \"hide\", the `or` is needed; "
                    "of masks whose True means \"may attend\", the `and`.",
                question="Is a key hidden if one mask hides it, or only if "
                         "both do?", fix=fix, explained=CHAPTER),
        Mistake("masks-pad-on-queries", "a padding mask on the queries",
                "The rows of padding tokens are hidden, not their columns.",
                mask(lambda s: queries(s) & future(s)),
                why="Padding must not be attended TO: it is a matter of "
                    "keys.",
                question="Which axis of (batch, heads, query, key) belongs "
                         "to the keys?", fix=fix, explained=CHAPTER),
        Mistake("masks-upper", "the upper triangle with the padding mask",
                "A query sees the future, not the past.",
                mask(lambda s: _padding(s) & future(s).T),
                why="Query i may attend to keys 0 to i.",
                question="In row i, may the column be larger than i?",
                fix=fix, explained=CHAPTER),
        Mistake("masks-strict", "a triangle without its diagonal",
                "A token may not attend to itself.",
                mask(lambda s: _padding(s) & future(s) & ~np.eye(
                    s.seq_len, dtype=bool)),
                why="Query i may attend to keys 0 to i, i included.",
                question="May a token attend to itself?", fix=fix,
                explained=CHAPTER),
    ]


def _additive_mistakes() -> list[Mistake]:
    m = read("attention_mask")
    fix = "np.where(attention_mask, 0.0, -np.inf)"
    return [
        Mistake("additive-inverted", "0 where the mask is False and -inf "
                "where it is True", "What should be seen is hidden.",
                {"bias": lambda s: np.where(m(s), -np.inf, 0.0)},
                why="Adding 0 leaves a score as it is.",
                question="What is added to a score that may be seen?",
                fix=fix, explained=CHAPTER),
        Mistake("mask-zero-times-inf", "(1 - mask) * -inf",
                "Every pair that may attend became NaN: 0 * -inf is NaN.",
                {"bias": lambda s: (1.0 - m(s)) * -np.inf},
                why="The product gives -inf only where the mask is False; "
                    "elsewhere it gives NaN, not 0.",
                question="What is 0 * -np.inf?", fix=fix,
                explained=CHAPTER),
        Mistake("additive-zero-one", "the mask as 0 and 1",
                "Added to scores it masks nothing.",
                {"bias": lambda s: m(s).astype(float)},
                why="A difference of 1 between scores is not the end of a "
                    "weight.",
                question="What must be added to a score so that its weight "
                         "becomes 0?", fix=fix, explained=CHAPTER),
        Mistake("mask-tiny", "-1e-9 instead of -inf",
                "The hidden scores are lowered by next to nothing.",
                {"bias": lambda s: np.where(m(s), 0.0, -1e-9)},
                why="1e-9 is a tiny number, 1e9 a huge one.",
                question="How large is 1e-9?", fix=fix, explained=CHAPTER),
        Mistake("mask-plus-inf", "+inf instead of -inf",
                "Hidden keys win.",
                {"bias": lambda s: np.where(m(s), 0.0, np.inf)},
                why="A large score means much attention.",
                question="Plus or minus?", fix=fix, explained=CHAPTER),
        Mistake("additive-large", "-1e9 instead of -inf",
                "A huge negative number stands where -inf is asked for.",
                {"bias": lambda s: np.where(m(s), 0.0, -1e9)},
                why="It serves as well where each query may attend somewhere; "
                    "where it may attend nowhere, all keys get the same "
                    "weight instead of none. In float16 it does not exist.",
                question="What is the largest number of float16?", fix=fix,
                explained=CHAPTER),
    ]


def _translation_mistakes() -> list[Mistake]:
    m = read("attention_mask")
    fix = "~attention_mask[:, 0, 0, :]"
    return [
        Mistake("polarity-kept", "the mask with its polarity unchanged",
                "True still means \"may attend\", and the other library "
                "will ignore every real token.",
                {"ignored": lambda s: m(s)[:, 0, 0, :]},
                why="In nn.MultiheadAttention True means \"ignore\".",
                question="What does True mean to the other library?",
                fix=fix, explained=CHAPTER),
        Mistake("axes-kept", "the mask turned round, but with four axes",
                "The other library wants (batch, seq_len).",
                {"ignored": lambda s: ~m(s)},
                why="nn.MultiheadAttention adds the axes for heads and "
                    "queries itself.",
                question="How many axes does the other library want?",
                fix=fix, explained=CHAPTER),
        Mistake("axes-kept-polarity-kept", "the mask as it came",
                "Neither the polarity nor the axes were changed.",
                {"ignored": m},
                why="In nn.MultiheadAttention True means \"ignore\".",
                question="What does True mean to the other library?",
                fix=fix, explained=CHAPTER),
    ]


def _four_axes(rng: Generator) -> list[Case]:
    cases = []
    for batch, seq_len in ((3, 7), (4, 4)):
        lengths = rng.permutation(np.arange(1, seq_len + 1))[:batch]
        mask = np.arange(seq_len) < lengths[:, None, None, None]
        cases.append(Case(f"{batch} sequences of at most {seq_len}",
                          {"attention_mask": mask},
                          {"batch": batch, "seq_len": seq_len}))
    return cases


def _mask_and_heads(rng: Generator) -> list[Case]:
    return [Case(f"{batch} sequences, {heads} heads", {
        "attention_mask": np.stack([random_mask(rng, queries, keys)
                                    for _ in range(batch)]),
        "num_heads": heads}, {"batch": batch, "num_heads": heads,
                              "query_len": queries, "key_len": keys})
        for batch, heads, queries, keys in ((2, 3, 4, 5), (3, 3, 4, 4))]


def _every_head_mistakes() -> list[Mistake]:
    m = read("attention_mask")
    fix = "np.repeat(~attention_mask, num_heads, axis=0)"
    order = ("With the heads of sequence 0 first, its mask must stand "
             "num_heads times before that of sequence 1.")
    return [
        Mistake("expand-tiled", "the masks of all sequences, again and again",
                "The order is m0, m1, m0, m1 instead of m0, m0, m1, m1.",
                {"expanded": lambda s: np.tile(~m(s), (s.num_heads, 1, 1))},
                why=order, question="Which mask must stand second?", fix=fix,
                explained=CHAPTER),
        Mistake("polarity-kept", "the masks with their polarity unchanged",
                "True still means \"may attend\".",
                {"expanded": lambda s: np.repeat(m(s), s.num_heads, 0)},
                why="In nn.MultiheadAttention True means \"must not "
                    "attend\".",
                question="What does True mean to the other library?",
                fix=fix, explained=CHAPTER),
        Mistake("expand-tiled-polarity-kept", "the masks of all sequences, "
                "again and again, with their polarity unchanged",
                "Both the order and the polarity are those of another "
                "library.",
                {"expanded": lambda s: np.tile(m(s), (s.num_heads, 1, 1))},
                why=order, question="Which mask must stand second?", fix=fix,
                explained=CHAPTER),
        Mistake("expand-not", "one mask for each sequence, not for each head",
                "The heads have no masks of their own.",
                {"expanded": lambda s: ~m(s)}, why=order,
                question="How many masks do 2 sequences with 3 heads need?",
                fix=fix, explained=CHAPTER),
        Mistake("expand-head-axis", "an axis of its own for the heads",
                "The result is (batch, num_heads, query_len, key_len).",
                {"expanded": lambda s: np.repeat(
                    ~m(s)[:, None], s.num_heads, 1)},
                why="This module wants batch and heads in one axis.",
                question="How many axes does the other library want?",
                fix=fix, explained=CHAPTER),
    ]


# -- using masks ------------------------------------------------------------

def _masked_scores(s: State) -> ndarray:
    return hide(s.scores, s.attention_mask, s.style)


def _weights(s: State) -> ndarray:
    return softmax(s.masked, s.style)


def _with_empty(rng: Generator) -> list[Case]:
    return scores_and_mask(rng, empty=True)


def _with_values(rng: Generator) -> list[Case]:
    return scores_and_mask(rng, value=True)


def _empty_row_mistakes() -> list[Mistake]:
    m = read("attention_mask")

    def empty(s: State) -> ndarray:
        return ~m(s).any(-1, keepdims=True)

    def weights(s: State) -> ndarray:
        return softmax(np.where(m(s), s.scores, -np.inf))

    fix = "weights / np.where(total > 0, total, 1)"
    rule = "A query that may attend nowhere has nothing to average: zeros."
    return [
        Mistake("empty-row-nan", "NaN for a query that may attend nowhere",
                "Its row became 0 / 0, or -inf - -inf.",
                {"weights": lambda s: np.where(empty(s), np.nan,
                                               weights(s))},
                why="The maximum of the row is -inf and its sum is 0. A NaN "
                    "spreads to everything computed from it.",
                question="What is the maximum of a row of -inf, and what is "
                         "-inf - -inf?", fix=fix, explained=CHAPTER),
        Mistake("empty-row-uniform", "equal weights for a query that may "
                "attend nowhere", "It attends to everything, the padding "
                "included.",
                {"weights": lambda s: np.where(
                    empty(s), 1 / s.scores.shape[-1], weights(s))},
                why="With -1e9 in all places the scores are equal again, and "
                    "the softmax only sees differences.",
                question="What is the softmax of five equal numbers?",
                fix=fix, explained=CHAPTER),
        Mistake("empty-row-unmasked", "unmasked weights for a query that may "
                "attend nowhere", "It attends as if there were no mask.",
                {"weights": lambda s: np.where(
                    empty(s), softmax(s.scores), weights(s))},
                why="Adding -1e9 to all scores of a row changes no "
                    "difference between them.",
                question="What does adding the same number to all scores "
                         "change?", fix=fix, explained=CHAPTER),
        Mistake("empty-row-first", "the first key for a query that may "
                "attend nowhere", "It attends to key 0.",
                {"weights": lambda s: np.where(
                    empty(s), np.arange(s.scores.shape[-1]) == 0.0,
                    weights(s))},
                why=rule, question="Which key may this query attend to?",
                fix=fix, explained=CHAPTER),
        Mistake("empty-row-nan-to-zero-everywhere", "zeros for every query",
                "Rows that may attend somewhere became zero too.",
                {"weights": lambda s: np.where(
                    empty(s).any(), 0.0 * s.scores, weights(s))},
                why=rule, question="Which rows must still sum to 1?",
                fix=fix, explained=CHAPTER),
    ]


def _mean_inputs(rng: Generator) -> list[Case]:
    cases = []
    for batch, seq_len, width in ((3, 5, 4), (4, 4, 4)):
        lengths = rng.permutation(np.arange(1, seq_len + 1))[:batch]
        cases.append(Case(f"{batch} sequences of at most {seq_len}", {
            "x": rng.normal(size=(batch, seq_len, width)) + 1,
            "lengths": lengths},
            {"batch": batch, "seq_len": seq_len, "width": width}))
    return cases


def _kept(s: State) -> ndarray:
    lengths = np.asarray(s.lengths)[:, None]
    return (np.arange(s.x.shape[1]) < lengths)[:, :, None]


def _mean_mistakes() -> list[Mistake]:
    def total(s: State) -> ndarray:
        return np.where(_kept(s), s.x, 0).sum(1)

    fix = "np.where(kept, x, 0).sum(axis=1) / lengths[:, None]"
    return [
        Mistake("mean-over-padding", "the mean over all positions",
                "The padding was averaged in.",
                {"mean": lambda s: s.x.mean(1)},
                why="The attention mask hides padding as keys; its rows are "
                    "still there afterwards.",
                question="Does the result change when the padding changes?",
                fix=fix, explained=CHAPTER),
        Mistake("mean-wrong-count", "the tokens' sum divided by seq_len",
                "Short sequences came out too small.",
                {"mean": lambda s: total(s) / s.x.shape[1]},
                why="The mean of n tokens divides by n.",
                question="By what is the sum of 2 tokens divided?", fix=fix,
                explained=CHAPTER),
        Mistake("mean-of-padding", "the mean of the padding",
                "The mask was used the wrong way round.",
                {"mean": lambda s: np.where(_kept(s), 0, s.x).sum(1)
                 / np.maximum(s.x.shape[1] - np.asarray(s.lengths), 1
                              )[:, None]},
                why="The tokens stand before the padding.",
                question="Which positions are smaller than the length?",
                fix=fix, explained=CHAPTER),
        Mistake("mean-sum", "the sum of the tokens",
                "It was not divided by their number.", {"mean": total},
                why="A mean divides by the number of terms.",
                question="Sum or mean?", fix=fix, explained=CHAPTER),
    ]


def _nan_behind(rng: Generator) -> list[Case]:
    def case(name: str, batch: int, query_len: int, key_len: int,
             value_dim: int) -> Case:
        lengths = rng.integers(1, key_len, size=batch)
        lengths[-1] = key_len  # one sequence without padding
        kept = np.arange(key_len) < lengths[:, None]
        weights = np.exp(rng.normal(size=(batch, query_len, key_len)))
        weights = np.where(kept[:, None], weights, 0.0)
        value = rng.normal(size=(batch, key_len, value_dim))
        value[~kept, 0] = np.nan
        return Case(name, {
            "weights": weights / weights.sum(-1, keepdims=True),
            "value": value, "attention_mask": kept},
            {"batch": batch, "query_len": query_len, "key_len": key_len,
             "value_dim": value_dim})

    return [case("all sizes different", 2, 5, 7, 3),
            case("all sizes equal", 4, 4, 4, 4)]


def _nan_mistakes() -> list[Mistake]:
    fix = "weights @ np.where(attention_mask[:, :, None], value, 0)"
    why = ("0 * NaN is NaN. A value that must not count has to be left out, "
           "not multiplied by 0.")

    def mistake(name: str, label: str, effect: str, why: str, question: str,
                give: Callable[[State], ndarray]) -> Mistake:
        return Mistake(name, label, effect, {"output": give}, why=why,
                       question=question, fix=fix, explained=CHAPTER)

    return [
        mistake("nan-times-zero", "weights @ value, or the same with a "
                "factor of 0 in it",
                "One NaN behind the mask spoils its whole column.", why,
                "What is 0 * NaN?", lambda s: s.weights @ s.value),
        mistake("nan-after-average", "NaN turned into 0 behind the average",
                "What the NaN had spoilt became 0.",
                "The NaN has reached the sum already. Take it out before "
                "the product.",
                "Is the average right once a NaN has reached it?",
                lambda s: np.nan_to_num(s.weights @ s.value)),
        mistake("nan-mask-inverted", "the tokens taken out, not the padding",
                "True was read as \"hide\".",
                "In this course True means \"may attend\".",
                "Which values does True mark?",
                lambda s: s.weights @ np.where(
                    s.attention_mask[:, :, None], 0.0, s.value)),
    ]


def _tiny_masked() -> Case:
    return Case("2 queries, 3 keys", {
        "scores": np.array([[[0.0, np.log(2), np.log(5)],
                             [np.log(3), 0.0, 0.0]]]),
        "value": np.array([[[8.0], [4.0], [16.0]]]),
        "attention_mask": np.array([[True, True, False],
                                    [True, False, True]])})


def _tiny_square() -> Case:
    return Case("2 queries, 2 keys", {
        "scores": np.array([[[0.0, np.log(3)], [np.log(3), 0.0]]]),
        "attention_mask": np.array([[True, False], [True, True]])})


def _tiny_empty() -> Case:
    return Case("the second query may attend nowhere", {
        "scores": np.array([[[0.0, np.log(3)], [np.log(3), 0.0]]]),
        "attention_mask": np.array([[True, True], [False, False]])})


def _tiny_causal() -> Case:
    return Case("3 tokens", {"scores": np.log(
        np.array([[[1.0, 3, 4], [1, 3, 4], [1, 3, 4]]]))})


register(Exercise(
    id="padding_mask", title="Padding mask", chapter=CHAPTER, difficulty=2,
    minutes=8,
    task="Sequences of unequal lengths were filled up behind their tokens. "
         "Say which positions may be attended to.",
    solution=solutions.padding_mask, stages={"mask": _padding},
    cases=_padded, mistakes=padding_mistakes(),
    axes=("batch", "1", "1", "seq_len"), boolean=True,
    imports=("import numpy as np",),
    tiny=lambda: Case("lengths 1 and 3", {
        "lengths": np.array([1, 3]), "seq_len": 3}),
    hints=("With length 2 and seq_len 5, which positions may be attended "
           "to?",
           "Compare np.arange(seq_len) with the lengths; both need axes so "
           "that every length meets every position.",
           "position < lengths[:, None, None, None].")))

register(Exercise(
    id="causal_mask", title="Causal mask", chapter=CHAPTER, difficulty=1,
    minutes=5,
    task="In a decoder no token may look ahead: build the mask that sees to "
         "it.",
    solution=solutions.causal_mask,
    stages={"mask": lambda s: lower_triangle(s.seq_len)}, cases=_sizes,
    mistakes=triangle_mistakes(), axes=("query", "key"), boolean=True,
    tiny=lambda: Case("3 tokens", {"seq_len": 3}),
    hints=("What are the rows for three tokens?",
           "Row 0: True False False. Row 2: True True True.",
           "Compare column numbers with row numbers: key <= query, or use "
           "np.tri.")))

register(Exercise(
    id="causal_mask_unequal", title="Causal mask, unequal lengths",
    chapter=CHAPTER, difficulty=2, minutes=8,
    task="While a model writes, the keys of all earlier tokens are kept, and "
         "only the newest tokens ask. Which keys may each of them see?",
    solution=solutions.causal_mask_unequal,
    stages={"mask": lambda s: np.arange(s.key_len)[None, :] <= (
        np.arange(s.query_len)[:, None] + s.key_len - s.query_len)},
    cases=_unequal, mistakes=alignment_mistakes(), axes=("query", "key"),
    boolean=True,
    tiny=lambda: Case("2 queries, 4 keys", {"query_len": 2, "key_len": 4}),
    hints=("One query and five keys: which keys may it see?",
           "All five: it is the newest token. In general query i stands at "
           "position i + (key_len - query_len).",
           "np.arange(key_len) <= np.arange(query_len)[:, None] + (key_len - "
           "query_len).")))

register(Exercise(
    id="padding_and_causal", title="Both masks at once", chapter=CHAPTER,
    difficulty=2, minutes=8,
    task="A decoder trained on sequences of unequal lengths needs both: no "
         "padding, and no future.",
    solution=solutions.padding_and_causal,
    stages={"mask": lambda s: _padding(s) & lower_triangle(s.seq_len)},
    cases=_padded, mistakes=_both_mistakes(),
    axes=("batch", "1", "seq_len", "seq_len"), boolean=True,
    tiny=lambda: Case("length 2 of 3", {
        "lengths": np.array([2]), "seq_len": 3}),
    hints=("May a token attend to a key that one mask allows and the other "
           "forbids?",
           "Build both with True = may attend and join them by a logical "
           "and.",
           "(batch, 1, 1, seq_len) & (seq_len, seq_len) broadcasts to the "
           "shape that is asked for.")))

register(Exercise(
    id="additive_mask", title="A mask that is added", chapter=CHAPTER,
    difficulty=1, minutes=5,
    task="Some libraries add the mask to the scores. Translate a boolean "
         "mask into one that may be added.",
    solution=solutions.additive_mask,
    stages={"bias": lambda s: np.where(s.attention_mask, 0.0, -np.inf)},
    cases=_any_mask, mistakes=_additive_mistakes(), axes=("query", "key"),
    tiny=lambda: Case("one query", {
        "attention_mask": np.array([[True, False, True]])},
        {}),
    hints=("What must be added to a score that stays as it is, and what to "
           "one that must vanish?",
           "0 and -inf. Mind that 0 * -inf is NaN.",
           "np.where chooses without multiplying.")))

register(Exercise(
    id="masked_softmax", title="Masked softmax", chapter=CHAPTER,
    difficulty=2, minutes=8,
    task="Hide keys from queries: their weights become 0, and the others "
         "share out the whole.",
    solution=solutions.masked_softmax, imports=(SOFTMAX,),
    stages={"masked": _masked_scores, "weights": _weights},
    cases=scores_and_mask,
    mistakes=[*use_mistakes("scores"),
              *softmax_mistakes("masked", masked=True)],
    axes=WEIGHTS_AXES, styles=MASK_STYLES, tiny=_tiny_square,
    hints=("What must a score be so that exp makes it 0?",
           "Put -inf where the mask is False, before the softmax.",
           "softmax(np.where(attention_mask, scores, -np.inf)).")))

register(Exercise(
    id="masked_attention", title="Attention with a mask", chapter=CHAPTER,
    difficulty=2, minutes=10,
    task="Put the mask where it belongs in the four steps.",
    solution=solutions.masked_attention, imports=(SOFTMAX,),
    stages=MASKED_ATTENTION, cases=with_mask,
    mistakes=[*score_mistakes(value="value"), *scale_mistakes(),
              *use_mistakes(), *softmax_mistakes("masked", masked=True),
              *value_mistakes()],
    axes=("batch", "query_len", "value_dim"), styles=MASK_STYLES,
    probe=probes.weights_used,
    hints=("Between which two of your steps does the mask belong?",
           "After the scale, before the softmax.",
           "softmax(np.where(attention_mask, scores, -np.inf)) @ value.")))

register(Exercise(
    id="weights_with_empty_rows", title="Nowhere to look", chapter=CHAPTER,
    difficulty=3, minutes=12,
    task="A mask may leave a query no key at all: a row of padding, say. "
         "The rule of this course: such a query gets zeros, never NaN.",
    solution=solutions.weights_with_empty_rows,
    stages={"weights": lambda s: softmax(
        np.where(s.attention_mask, s.scores, -np.inf))},
    cases=_with_empty, mistakes=_empty_row_mistakes(), axes=WEIGHTS_AXES,
    tiny=_tiny_empty,
    hints=("What are the maximum and the sum of exp of a row that is all "
           "-inf?",
           "-inf - -inf is NaN, and 0 / 0 is NaN. Both must be avoided.",
           "Subtract 0 where the maximum is -inf; divide by 1 where the sum "
           "is 0.")))

register(Exercise(
    id="key_padding_mask", title="The other polarity", chapter=CHAPTER,
    difficulty=1, minutes=5,
    task="torch's nn.MultiheadAttention has a parameter key_padding_mask "
         "with the opposite meaning. Translate.",
    solution=solutions.key_padding_mask,
    stages={"ignored": lambda s: ~s.attention_mask[:, 0, 0, :]},
    cases=_four_axes, mistakes=_translation_mistakes(),
    axes=("batch", "seq_len"), boolean=True,
    tiny=lambda: Case("length 2 of 3", {
        "attention_mask": np.array([[[[True, True, False]]]])}, {}),
    hints=("What does True mean here, and what does it mean there?",
           "There True means \"ignore\"; and the shape is (batch, "
           "seq_len).",
           "Drop the two axes of length 1 and negate with `~`.")))

register(Exercise(
    id="mask_for_every_head", title="A mask for every head",
    chapter=CHAPTER, difficulty=2, minutes=6,
    task="The parameter attn_mask of nn.MultiheadAttention wants sequences "
         "and heads in one axis, and True for what must be hidden. In which "
         "order do the masks come?",
    solution=solutions.mask_for_every_head,
    imports=("import numpy as np",),
    source="https://github.com/pytorch/pytorch/issues/64706",
    stages={"expanded": lambda s: np.repeat(
        ~s.attention_mask, s.num_heads, axis=0)},
    cases=_mask_and_heads, mistakes=_every_head_mistakes(),
    axes=("batch·num_heads", "query_len", "key_len"), boolean=True,
    tiny=lambda: Case("two sequences, two heads", {
        "attention_mask": np.array([[[True, False], [True, True]],
                                    [[True, True], [False, True]]]),
        "num_heads": 2}),
    hints=("For 2 sequences and 2 heads: m0 m0 m1 m1 or m0 m1 m0 m1?",
           "The heads of sequence 0 come first: m0 m0 m1 m1.",
           "np.repeat repeats each entry; np.tile repeats the whole.")))

register(Exercise(
    id="mean_of_tokens", title="The mean without the padding",
    chapter=CHAPTER, difficulty=2, minutes=6,
    task="One vector for a whole sequence: the mean of its tokens. The "
         "attention mask does not help here, for padding rows have outputs "
         "too.",
    solution=solutions.mean_of_tokens, imports=("import numpy as np",),
    stages={"mean": lambda s: np.where(
        _kept(s), s.x, 0).sum(1) / np.asarray(s.lengths)[:, None]},
    cases=_mean_inputs, mistakes=_mean_mistakes(), axes=("batch", "width"),
    tiny=lambda: Case("lengths 1 and 2", {
        "x": np.array([[[4.0], [100.0]], [[2.0], [6.0]]]),
        "lengths": np.array([1, 2])}),
    hints=("Which rows may take part, and how many are they?",
           "Set the padding rows to 0, sum, divide by the lengths.",
           "np.where(kept[:, :, None], x, 0).sum(axis=1) / "
           "lengths[:, None].")))

register(Exercise(
    id="average_behind_the_mask", title="NaN behind the mask",
    chapter=CHAPTER, difficulty=2, minutes=5,
    task="Padding was filled with NaN, so that nobody could use it by "
         "mistake. Every weight there is 0, and yet all outputs are NaN: "
         "0 * NaN is NaN. Write the average so that masked values never "
         "reach it.",
    solution=solutions.average_behind_the_mask,
    imports=("import numpy as np",),
    stages={"output": lambda s: s.weights @ np.where(
        s.attention_mask[:, :, None], s.value, 0.0)},
    cases=_nan_behind, mistakes=_nan_mistakes(),
    axes=("batch", "query_len", "value_dim"),
    tiny=lambda: Case("two sequences, the first with padding", {
        "weights": np.array([[[1.0, 0.0]], [[0.25, 0.75]]]),
        "value": np.array([[[3.0, 1.0], [np.nan, 2.0]],
                           [[4.0, 8.0], [0.0, -4.0]]]),
        "attention_mask": np.array([[True, False], [True, True]])}),
    hints=("What is 0 * NaN?",
           "Replace the masked values before the product.",
           "np.where(attention_mask[:, :, None], value, 0) picks; "
           "value * attention_mask[:, :, None] would multiply.")))

register(Exercise(
    id="causal_weights", title="Find the bug: filled where True",
    chapter=CHAPTER, difficulty=1, minutes=5,
    task="A mask that says \"may attend\" was used as if it said \"hide\", "
         "as in several public reports. Mend it.",
    solution=solutions.causal_weights,
    imports=("import numpy as np", SOFTMAX),
    starter=starters.fill_where_true, planted="mask-inverted",
    source="https://github.com/lucidrains/halonet-pytorch/issues/4",
    stages={"masked": lambda s: hide(
        s.scores, lower_triangle(s.scores.shape[-1]), s.style),
        "weights": _weights},
    cases=square_scores,
    mistakes=[*causal_use_mistakes("scores"),
              *softmax_mistakes("masked", masked=True)],
    axes=("batch", "query", "key"), styles=MASK_STYLES, tiny=_tiny_causal,
    hints=("Which weights of row 0 are not 0, and which should be?",
           "np.where(condition, a, b) gives a where the condition is True.",
           "Swap the last two arguments of np.where.")))

register(Exercise(
    id="masked_average", title="Find the bug: masked too late",
    chapter=CHAPTER, difficulty=2, minutes=6,
    task="The masked weights are 0, as they should be. Yet the outputs are "
         "too small. Find out why.",
    solution=solutions.masked_average,
    imports=("import numpy as np", SOFTMAX),
    starter=starters.mask_the_weights, planted="mask-after-softmax",
    source="https://github.com/huggingface/pytorch-image-models/pull/2236",
    stages={"masked": _masked_scores, "weights": _weights,
            "output": ATTENTION["output"]},
    cases=_with_values,
    mistakes=[*use_mistakes("scores"),
              *softmax_mistakes("masked", masked=True),
              *value_mistakes(key=None, query=None)],
    axes=("batch", "query_len", "value_dim"), styles=MASK_STYLES,
    tiny=_tiny_masked,
    hints=("What do the rows of the weights sum to?",
           "The masked keys took their share in the softmax.",
           "Mask the scores with -inf, then take the softmax.")))

register(Prediction(
    id="predict_masked_weight", title="A masked weight in numbers",
    chapter=CHAPTER, difficulty=2, minutes=3,
    task="The scores of one query are 0, ln 2 and ln 5; the mask hides the "
         "third key. Predict the weight of the second key, to two digits.",
    form="number", placeholder="...  # a number such as 0.25", digits=2,
    solution=solutions.predict_masked_weight,
    outcomes=lambda: outcomes_of(
        "masked_softmax", Case("", {
            "scores": np.log(np.array([[[1.0, 2.0, 5.0]]])),
            "attention_mask": np.array([[True, True, False]])}),
        lambda result: float(result), index=(0, 0, 1)),
    hints=("What are the exponentials of the three scores?",
           "1, 2 and 5; the 5 is hidden and takes no part.",
           "2 out of 1 + 2.")))

register_quiz(CHAPTER, [
    Question(
        "Two masks, both with True = hide, are to be combined. How?",
        [Option("With `or`.", True,
                "A key is hidden if one mask hides it. For masks whose True "
                "means \"may attend\" it is `and`."),
         Option("With `and`.", False,
                "Only what both hide would stay hidden.",
                mistake="masks-or-of-hidden"),
         Option("By adding them.", False,
                "True + True is 2 in numbers, which is no polarity at "
                "all.")]),
    Question(
        "A 0/1 mask is added to the scores. Which weight has a key with the "
        "mask 0?",
        [Option("About a third of what it would have.", True,
                "Its score is lower by 1, so its exponential is lower by the "
                "factor e.", mistake="mask-added"),
         Option("0.", False, "For that, -inf must be added."),
         Option("NaN.", False,
                "That is what (1 - mask) * -inf gives where the mask is 1.",
                mistake="mask-zero-times-inf")]),
    Question(
        "One new token, five keys in the cache. A library aligns its causal "
        "mask at the top left. What does the token see?",
        [Option("The first key alone.", True,
                "Row 0 of a square mask belongs to the first token; this one "
                "is the last.", mistake="causal-top-left"),
         Option("All five keys.", False,
                "That would be right, and is what a mask aligned at the "
                "bottom right gives."),
         Option("Nothing.", False, "Key 0 is on the diagonal.")]),
], shapes=("padding_mask", "masked_attention"))
