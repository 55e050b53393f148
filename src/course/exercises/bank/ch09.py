"""Exercises of chapter 9: the block."""

import numpy as np
from numpy import ndarray

from course.exercises import probes, solutions, starters
from course.exercises.bank.inputs import Generator
from course.exercises.mistakes.blocks import (
    dropout_mistakes,
    feed_forward_mistakes,
    norm_mistakes,
    normalise,
    position_mistakes,
    residual_mistakes,
    sines,
)
from course.exercises.predictions import Prediction, outcomes_of
from course.exercises.quizzes import Option, Question
from course.exercises.registry import register, register_quiz
from course.exercises.stages import Case, Exercise, Mistake, State

CHAPTER = 9
#: Large on purpose: with it, a mistake about eps shows in the numbers.
EPS = 0.1


def _lengths(rng: Generator) -> list[Case]:
    longer, pairs = int(rng.integers(7, 12)), int(rng.integers(2, 4))
    sizes = ((6, 8), (longer, 2 * pairs), (6, 6))
    return [Case(f"{seq_len} positions, width {width}",
                 {"seq_len": seq_len, "width": width},
                 {"seq_len": seq_len, "width": width})
            for seq_len, width in sizes]


def _tokens(rng: Generator, *, matrix: bool = False) -> list[Case]:
    def case(name: str, batch: int, seq_len: int, width: int) -> Case:
        arguments = {
            "x": rng.normal(size=(batch, seq_len, width)) * 0.7 + 0.5,
            "gamma": rng.normal(size=width) + 1,
            "beta": rng.normal(size=width), "eps": EPS}
        if matrix:
            arguments["W"] = rng.normal(size=(width, width)) / 2
        return Case(name, arguments, {"batch": batch, "seq_len": seq_len,
                                      "width": width})

    return [case("all sizes different", 2, 5, 4),
            case("all sizes equal", 4, 4, 4)]


def _with_matrix(rng: Generator) -> list[Case]:
    return _tokens(rng, matrix=True)


def _feed(rng: Generator) -> list[Case]:
    def case(name: str, batch: int, seq_len: int, width: int,
             hidden: int) -> Case:
        return Case(name, {
            "x": rng.normal(size=(batch, seq_len, width)),
            "W_1": rng.normal(size=(width, hidden)),
            "b_1": rng.normal(size=hidden),
            "W_2": rng.normal(size=(hidden, width)) / 2,
            "b_2": rng.normal(size=width)},
            {"batch": batch, "seq_len": seq_len, "width": width,
             "hidden": hidden})

    return [case("all sizes different", 2, 5, 3, 7),
            case("all sizes equal", 4, 4, 4, 4)]


def _dropped(rng: Generator, *, value: bool = False) -> list[Case]:
    def case(query_len: int, key_len: int, rate: float) -> Case:
        raw = np.exp(rng.normal(size=(query_len, key_len)))
        kept = np.ones((query_len, key_len), bool)
        while kept.all() or not kept.any(-1).all():
            kept = rng.random((query_len, key_len)) >= rate
        arguments = {"weights": raw / raw.sum(-1, keepdims=True),
                     "kept": kept, "rate": rate}
        dims = {"query_len": query_len, "key_len": key_len}
        if value:
            arguments["value"] = rng.normal(size=(key_len, 3))
            dims["value_dim"] = 3
        return Case(f"rate {rate}", arguments, dims)

    return [case(5, 7, 0.25), case(4, 4, 0.4)]


def _dropped_with_value(rng: Generator) -> list[Case]:
    return _dropped(rng, value=True)


def _average_mistakes() -> list[Mistake]:
    def dropped(s: State) -> ndarray:
        return np.where(s.kept, s.weights, 0.0) / (1 - s.rate)

    return [*dropout_mistakes(), Mistake(
        "returns-weights", "the dropped weights, not the output",
        "The values have not been averaged yet.", {"output": dropped},
        why="The weights say how much of each value goes into the output.",
        question="What is left to do with the values?",
        fix="dropped @ value", explained=3)]


def _numbered(rng: Generator) -> list[Case]:
    cases = []
    for batch, seq_len in ((3, 6), (4, 4)):
        lengths = rng.permutation(np.arange(1, seq_len))[:batch]
        lengths = np.resize(lengths, batch)
        tokens = np.arange(seq_len) >= seq_len - lengths[:, None]
        cases.append(Case(f"{batch} sequences of at most {seq_len}",
                          {"tokens": tokens},
                          {"batch": batch, "seq_len": seq_len}))
    return cases


def _numbering_mistakes() -> list[Mistake]:
    fix = "np.maximum(np.cumsum(tokens, axis=1) - 1, 0)"
    why = "The same text must get the same positions, however it is padded."
    question = "Which position has the first token of a padded sequence?"

    def columns(s: State) -> ndarray:
        return np.broadcast_to(np.arange(s.tokens.shape[1]), s.tokens.shape)

    return [
        Mistake("positions-shared", "one numbering for the whole batch",
                "The padding was counted as text.", {"ids": columns},
                why=why, question=question, fix=fix, explained=CHAPTER),
        Mistake("positions-from-1", "positions that count from 1",
                "The first token has position 1.",
                {"ids": lambda s: np.cumsum(s.tokens, 1)}, why=why,
                question=question, fix=fix, explained=CHAPTER),
        Mistake("positions-minus-one", "padding with position -1",
                "The padding was numbered -1, which picks the last row of a "
                "table.", {"ids": lambda s: np.cumsum(s.tokens, 1) - 1},
                why="An index of -1 is a valid one: the last.",
                question="What does codes[-1] give?", fix=fix,
                explained=CHAPTER),
        Mistake("positions-backwards", "positions counted from the end",
                "The last token has position 0.",
                {"ids": lambda s: columns(s)[:, ::-1]}, why=why,
                question="Which token has position 0?", fix=fix,
                explained=CHAPTER),
        Mistake("positions-masked-columns", "column numbers, with 0 at the "
                "padding", "The first token has the position of its column.",
                {"ids": lambda s: columns(s) * s.tokens}, why=why,
                question=question, fix=fix, explained=CHAPTER),
    ]


def _tiny_tokens() -> Case:
    return Case("two tokens, eps = 4", {
        "x": np.array([[[1.0, 3.0, 5.0, 7.0], [0.0, 0.0, 8.0, 0.0]]]),
        "gamma": np.full(4, 3.0), "beta": np.full(4, 1.0), "eps": 4.0})


def _tiny_block() -> Case:
    case = _tiny_tokens()
    case.arguments["W"] = np.eye(4, k=1) / 2
    return case


def _tiny_dropped() -> Case:
    return Case("one query, rate 0.2", {
        "weights": np.array([[0.5, 0.3, 0.2]]),
        "kept": np.array([[True, False, True]]), "rate": 0.2})


def _tiny_feed() -> Case:
    return Case("one token", {
        "x": np.array([[[1.0, -2.0]]]), "W_1": np.array([[1.0, 0.0],
                                                        [1.0, 1.0]]),
        "b_1": np.array([2.0, 1.0]), "W_2": np.array([[1.0, -1.0],
                                                     [2.0, 1.0]]),
        "b_2": np.array([0.5, -3.0])})


register(Exercise(
    id="positional_encoding", title="Sinusoidal positions", chapter=CHAPTER,
    difficulty=2, minutes=12,
    task="Attention has no sense of order. The paper adds waves to the "
         "embeddings: each pair of columns turns at its own speed.",
    solution=solutions.positional_encoding,
    stages={"codes": lambda s: sines(s.seq_len, s.width)}, cases=_lengths,
    mistakes=position_mistakes(), axes=("position", "column"),
    tiny=lambda: Case("2 positions, width 4", {"seq_len": 2, "width": 4}),
    hints=("What must row 0 look like?",
           "The angle of column pair i is position / 10000 ** (2i / width); "
           "one column has its sine, the next its cosine.",
           "codes[:, 0::2] = np.sin(angle); codes[:, 1::2] = "
           "np.cos(angle).")))

register(Exercise(
    id="layer_norm", title="Layer normalisation", chapter=CHAPTER,
    difficulty=2, minutes=10,
    task="Keep the numbers at one size through many blocks: every token gets "
         "mean 0 and spread 1, then a scale and a shift that are learned.",
    solution=solutions.layer_norm,
    stages={"normed": lambda s: normalise(s.x, s.gamma, s.beta, s.eps)},
    cases=_tokens, mistakes=norm_mistakes(),
    axes=("batch", "seq_len", "width"), probe=probes.normalisation,
    tiny=_tiny_tokens,
    hints=("Over which axis is the mean taken, and how many means are "
           "there?",
           "One mean and one variance for each token: axis=-1, "
           "keepdims=True.",
           "gamma * (x - mean) / np.sqrt(variance + eps) + beta.")))

register(Exercise(
    id="feed_forward", title="Feed-forward network", chapter=CHAPTER,
    difficulty=1, minutes=6,
    task="After attention each token is worked on by itself: two products "
         "with a ReLU between them.",
    solution=solutions.feed_forward,
    stages={"inner": lambda s: s.x @ s.W_1 + s.b_1,
            "hidden": lambda s: np.maximum(s.inner, 0),
            "output": lambda s: s.hidden @ s.W_2 + s.b_2},
    cases=_feed, mistakes=feed_forward_mistakes(),
    axes=("batch", "seq_len", "width"), tiny=_tiny_feed,
    hints=("What happens to a negative number between the two products?",
           "ReLU is max(x, 0), entry by entry.",
           "np.maximum(x @ W_1 + b_1, 0) @ W_2 + b_2.")))

register(Exercise(
    id="dropout", title="Dropout of attention weights", chapter=CHAPTER,
    difficulty=2, minutes=6,
    task="In training some weights are set to 0 at random, and the others "
         "make up for it.",
    solution=solutions.dropout,
    stages={"dropped": lambda s: np.where(s.kept, s.weights, 0.0)
            / (1 - s.rate)},
    cases=_dropped, mistakes=dropout_mistakes(), axes=("query", "key"),
    imports=("import numpy as np",), tiny=_tiny_dropped,
    hints=("What is the average of a weight w that survives with probability "
           "1 - rate and is then divided by 1 - rate?",
           "Set the dropped weights to 0; divide the others by 1 - rate.",
           "np.where(kept, weights, 0) / (1 - rate). Nothing is normalised "
           "after it.")))

register(Exercise(
    id="pre_norm_block", title="Pre-norm", chapter=CHAPTER, difficulty=2,
    minutes=8,
    task="A block adds to its input instead of replacing it. In most models "
         "since 2019 the normalisation stands before the part that is added.",
    solution=solutions.pre_norm_block,
    stages={"output": lambda s: s.x + normalise(
        s.x, s.gamma, s.beta, s.eps) @ s.W},
    cases=_with_matrix, mistakes=residual_mistakes("pre"),
    axes=("batch", "seq_len", "width"), tiny=_tiny_block,
    hints=("What is added to what?",
           "x itself goes round the normalisation.",
           "x + normalise(x) @ W.")))

register(Exercise(
    id="post_norm_block", title="Post-norm", chapter=CHAPTER, difficulty=2,
    minutes=6,
    task="The block of the paper normalises the sum.",
    solution=solutions.post_norm_block,
    stages={"output": lambda s: normalise(
        s.x + s.x @ s.W, s.gamma, s.beta, s.eps)},
    cases=_with_matrix, mistakes=residual_mistakes("post"),
    axes=("batch", "seq_len", "width"), tiny=_tiny_block,
    hints=("What exactly is normalised?",
           "First the sum, then the normalisation.",
           "normalise(x + x @ W).")))

register(Exercise(
    id="position_ids", title="Positions behind padding", chapter=CHAPTER,
    difficulty=2, minutes=6,
    task="Padded on the left, a sequence begins in the middle of its row. "
         "Number its tokens from 0 all the same.",
    solution=solutions.position_ids, imports=("import numpy as np",),
    stages={"ids": lambda s: np.maximum(np.cumsum(s.tokens, 1) - 1, 0)},
    cases=_numbered, mistakes=_numbering_mistakes(),
    axes=("batch", "seq_len"),
    tiny=lambda: Case("two places of padding, then three tokens", {
        "tokens": np.array([[False, False, True, True, True]])}),
    hints=("Which position has the first token after two places of padding?",
           "Count the tokens up to and with each place, minus 1.",
           "np.cumsum counts; np.maximum keeps the padding at 0.")))

register(Exercise(
    id="dropped_average", title="Find the bug: survivors that shrink",
    chapter=CHAPTER, difficulty=2, minutes=5,
    task="With dropout switched on, this model's outputs are far too small. "
         "Mend the line.",
    solution=solutions.dropped_average, imports=("import numpy as np",),
    starter=starters.scale_survivors_by_rate,
    planted="dropout-scale-by-rate",
    source="https://github.com/NVIDIA/apex/pull/816",
    stages={"dropped": lambda s: np.where(s.kept, s.weights, 0.0)
            / (1 - s.rate), "output": lambda s: s.dropped @ s.value},
    cases=_dropped_with_value, mistakes=_average_mistakes(),
    axes=("query_len", "value_dim"),
    hints=("Should a survivor get larger or smaller?",
           "With the rate 0.25 three of four survive; each must make up for "
           "a third of a dropped one.",
           "Divide by 1 - rate.")))

register(Prediction(
    id="predict_dropped_weight", title="A surviving weight",
    chapter=CHAPTER, difficulty=1, minutes=2,
    task="A weight of 0.3 survives dropout at the rate 0.25. Predict its new "
         "value, to two digits.",
    form="number", placeholder="...  # a number such as 0.25", digits=2,
    solution=solutions.predict_dropped_weight,
    outcomes=lambda: outcomes_of(
        "dropout", Case("", {
            "weights": np.array([[0.3, 0.2, 0.5]]),
            "kept": np.array([[True, False, True]]), "rate": 0.25}),
        lambda result: float(result), index=(0, 0)),
    hints=("Does a survivor get larger or smaller?",
           "It is divided by the share that survives.",
           "0.3 / 0.75.")))

register_quiz(CHAPTER, [
    Question(
        "Without positions, the tokens of a sentence are shuffled. What "
        "happens to the outputs?",
        [Option("They are shuffled in the same way.", True,
                "Self-attention is equivariant: each token gets what it got "
                "before."),
         Option("They stay as they are.", False,
                "That would be invariance; only a mean over all tokens has "
                "it."),
         Option("They become meaningless.", False,
                "Each token's output is the same as before, in its new "
                "place.")]),
    Question(
        "In training with dropout, the weights of one query sum to 1.2. Is "
        "that a mistake?",
        [Option("No: only their average over many draws sums to 1.", True,
                "Survivors are divided by 1 - rate, whichever they are."),
         Option("Yes, they must be normalised again.", False,
                "Then a row with many dropped weights would count as much as "
                "any other.", mistake="dropout-renormalised"),
         Option("Yes, a softmax is missing.", False,
                "A softmax after dropout brings dropped weights back.",
                mistake="dropout-softmax-again")]),
], shapes=("positional_encoding",))
