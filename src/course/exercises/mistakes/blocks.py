"""Mistakes in what stands around attention."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy import ndarray

from course.exercises.stages import Mistake, State

CHAPTER = 9


def sines(seq_len: int, width: int, *, base: float = 10000.0,
          start: int = 0, factor: float = 1.0, swapped: bool = False,
          in_halves: bool = False) -> ndarray:
    """Sinusoidal positions, right by default and wrong by request."""
    pair = np.arange(width // 2)[None, :]
    position = np.arange(seq_len)[:, None] + start
    angle = position / base ** (factor * 2 * pair / width)
    first, second = np.sin(angle), np.cos(angle)
    if swapped:
        first, second = second, first
    if in_halves:
        return np.concatenate([first, second], axis=1)
    codes = np.empty((seq_len, width))
    codes[:, 0::2], codes[:, 1::2] = first, second
    return codes


def position_mistakes() -> list[Mistake]:
    """Mistakes in sinusoidal positions of ``seq_len`` and ``width``."""
    def with_options(**options: Any) -> dict[str, Callable[[State], Any]]:
        return {"codes": lambda s: sines(s.seq_len, s.width, **options)}

    def own_frequency(s: State) -> ndarray:
        column = np.arange(s.width)[None, :]
        angle = np.arange(s.seq_len)[:, None] / 10000 ** (column / s.width)
        return np.where(column % 2 == 0, np.sin(angle), np.cos(angle))

    angle = "position / 10000 ** (2 * i / width)"
    return [
        Mistake(
            "pe-halves", "all sines first, then all cosines",
            "Sine and cosine of one frequency stand width / 2 apart.",
            with_options(in_halves=True),
            why="In the paper they take turns: column 2i is a sine, column "
                "2i + 1 a cosine.",
            question="Which columns hold sines?",
            fix="codes[:, 0::2] = np.sin(angle)", explained=CHAPTER),
        Mistake(
            "pe-swapped", "cosines in the even columns",
            "Sine and cosine changed places.", with_options(swapped=True),
            why="Position 0 has the sine 0 in column 0.",
            question="What must row 0 look like?",
            fix="codes[:, 0::2] = np.sin(angle)", explained=CHAPTER),
        Mistake(
            "pe-from-1", "positions that count from 1",
            "Every row is the one that belongs to the next position.",
            with_options(start=1), why="The first position is 0.",
            question="What must row 0 look like?",
            fix="np.arange(seq_len)", explained=CHAPTER),
        Mistake(
            "pe-exponent", "the exponent i / width instead of 2i / width",
            "The frequencies fall half as fast along the columns.",
            with_options(factor=0.5),
            why="i counts pairs of columns; 2i is the column itself.",
            question="What is i for column 2?", fix=angle,
            explained=CHAPTER),
        Mistake(
            "pe-exponent-4i", "the exponent 4i / width instead of 2i / width",
            "The frequencies fall twice as fast along the columns.",
            with_options(factor=2.0),
            why="np.arange(0, width, 2) counts in twos already.",
            question="What is i for column 2?", fix=angle,
            explained=CHAPTER),
        Mistake(
            "pe-base-1000", "the base 1000 instead of 10000",
            "The slow columns turn too fast.", with_options(base=1000.0),
            why="The paper's base is 10000.",
            question="How many zeros has the base?", fix=angle,
            explained=CHAPTER),
        Mistake(
            "pe-multiplied", "position * 10000 ** (2i / width)",
            "The columns turn faster and faster instead of slower.",
            with_options(factor=-1.0),
            why="The position is divided, so that later columns turn more "
                "slowly.",
            question="Which column should turn fastest?", fix=angle,
            explained=CHAPTER),
        Mistake(
            "pe-own-frequency", "a frequency of its own for every column",
            "Sine and cosine of a pair turn at different speeds.",
            {"codes": own_frequency},
            why="Both columns of a pair share 2i.",
            question="Which columns share one frequency?", fix=angle,
            explained=CHAPTER),
        Mistake(
            "pe-only-sin", "sines in both columns of a pair",
            "The cosines are missing.",
            {"codes": lambda s: np.repeat(
                sines(s.seq_len, s.width)[:, 0::2], 2, axis=1)},
            why="Sine and cosine together tell the angle; the sine alone "
                "does not.",
            question="What stands in the odd columns?",
            fix="codes[:, 1::2] = np.cos(angle)", explained=CHAPTER),
        Mistake(
            "pe-transposed", "the codes transposed",
            "The shape is (width, seq_len).",
            {"codes": lambda s: sines(s.seq_len, s.width).T},
            why="Rows are positions.",
            question="Is a position a row or a column?",
            fix="codes of shape (seq_len, width)", explained=CHAPTER),
    ]


def normalise(x: ndarray, gamma: ndarray | float, beta: ndarray | float,
              eps: float, *,
              axis: int | tuple[int, ...] = -1, ddof: int = 0,
              root: Callable[[ndarray, float], ndarray] | None = None,
              centred: bool = True) -> ndarray:
    """Layer normalisation, right by default and wrong by request."""
    mean = x.mean(axis=axis, keepdims=True)
    variance = x.var(axis=axis, keepdims=True, ddof=ddof)
    spread = (np.sqrt(variance + eps) if root is None
              else root(variance, eps))
    return gamma * (x - mean if centred else x) / spread + beta


def norm_mistakes() -> list[Mistake]:
    """Mistakes in layer normalisation of x with gamma, beta and eps."""
    def with_options(**options: Any) -> dict[str, Callable[[State], Any]]:
        return {"normed": lambda s: normalise(
            s.x, s.gamma, s.beta, s.eps, **options)}

    def plain(s: State) -> ndarray:
        return normalise(s.x, 1.0, 0.0, s.eps)

    def mean_square(s: State) -> ndarray:
        return np.sqrt((s.x ** 2).mean(-1, keepdims=True) + s.eps)

    mean = "x.mean(axis=-1, keepdims=True)"
    root = "np.sqrt(variance + eps)"
    last = "gamma * normalised + beta"
    features = "Each token is normalised over its own features."
    return [
        Mistake(
            "ln-axis-positions", "a mean and variance over the positions",
            "Axis 1 was normalised.", with_options(axis=1), why=features,
            question="Over which axis do you average?", fix=mean,
            explained=CHAPTER),
        Mistake(
            "ln-axis-batch", "a mean and variance over the batch",
            "Axis 0 was normalised, as in batch normalisation.",
            with_options(axis=0), why=features,
            question="Over which axis do you average?", fix=mean,
            explained=CHAPTER),
        Mistake(
            "ln-axis-all", "one mean and variance for the whole array",
            "All tokens of all sequences were normalised together.",
            with_options(axis=(0, 1, 2)), why=features,
            question="What does x.mean() give without an axis?", fix=mean,
            explained=CHAPTER),
        Mistake(
            "ln-axis-T-D", "one mean and variance for each sequence",
            "All tokens of a sequence were normalised together.",
            with_options(axis=(1, 2)), why=features,
            question="How many means are there for 2 sequences of 5 tokens?",
            fix=mean, explained=CHAPTER),
        Mistake(
            "ln-ddof", "a variance divided by width - 1",
            "The spread came out slightly too large.",
            with_options(ddof=1),
            why="Layer normalisation divides by the width. torch.var divides "
                "by width - 1 unless told otherwise.",
            question="Does your variance divide by the width, or by one "
                     "less?",
            fix="x.var(axis=-1, keepdims=True)", explained=CHAPTER),
        Mistake(
            "ln-eps-outside", "a division by sqrt(variance) + eps",
            "eps was added after the square root.",
            with_options(root=lambda v, e: np.sqrt(v) + e),
            why="eps belongs under the root.",
            question="Where does eps stand in the formula?", fix=root,
            explained=CHAPTER),
        Mistake(
            "ln-no-eps", "a division by sqrt(variance), without eps",
            "eps plays no part.",
            with_options(root=lambda v, e: np.sqrt(v)),
            why="Without eps a token whose features are all equal gives "
                "0 / 0.",
            question="Which argument plays no part?", fix=root,
            explained=CHAPTER),
        Mistake(
            "ln-by-var", "a division by the variance",
            "The square root is missing.",
            with_options(root=lambda v, e: v + e),
            why="The standard deviation has the unit of x; the variance has "
                "its square.",
            question="Variance or standard deviation?", fix=root,
            explained=CHAPTER),
        Mistake(
            "ln-no-gamma", "a result without gamma", "gamma plays no part.",
            {"normed": lambda s: plain(s) + s.beta},
            why="gamma gives every feature a size of its own again.",
            question="Which argument plays no part?", fix=last,
            explained=CHAPTER),
        Mistake(
            "ln-no-beta", "a result without beta", "beta plays no part.",
            {"normed": lambda s: s.gamma * plain(s)},
            why="beta gives every feature a mean of its own again.",
            question="Which argument plays no part?", fix=last,
            explained=CHAPTER),
        Mistake(
            "ln-no-affine", "a result without gamma and beta",
            "Neither plays a part.", {"normed": plain},
            why="gamma and beta are what the layer learns.",
            question="Which arguments play no part?", fix=last,
            explained=CHAPTER),
        Mistake(
            "ln-no-mean", "a result whose mean was not subtracted",
            "x was divided by its standard deviation and nothing else.",
            with_options(centred=False),
            why="The variance is around the mean, so the mean must go.",
            question="What is the mean of your rows before gamma and beta?",
            fix="x - mean", explained=CHAPTER),
        Mistake(
            "ln-beta-inside", "gamma * (normalised + beta)",
            "beta was multiplied by gamma.",
            {"normed": lambda s: s.gamma * (plain(s) + s.beta)},
            why="gamma scales, then beta shifts.",
            question="In which order do gamma and beta act?", fix=last,
            explained=CHAPTER),
        Mistake(
            "ln-gamma-beta-swapped", "gamma and beta in each other's place",
            "beta was multiplied and gamma added.",
            {"normed": lambda s: plain(s) * s.beta + s.gamma},
            why="gamma scales, beta shifts.",
            question="Which of the two is multiplied?", fix=last,
            explained=CHAPTER),
        Mistake(
            "ln-rms", "RMS normalisation",
            "x was divided by the root of its mean square, and no mean was "
            "subtracted.",
            {"normed": lambda s: s.x / mean_square(s) * s.gamma + s.beta},
            why="That is a layer of its own, which other models use.",
            question="What is the mean of your rows before gamma and beta?",
            fix="x - mean", explained=CHAPTER),
    ]


def feed_forward_mistakes() -> list[Mistake]:
    """Mistakes in relu(x @ W_1 + b_1) @ W_2 + b_2."""
    def relu(x: ndarray) -> ndarray:
        return np.maximum(x, 0)

    fix = "np.maximum(x @ W_1 + b_1, 0) @ W_2 + b_2"
    return [
        Mistake(
            "ff-no-relu", "two products without the ReLU between them",
            "Negative numbers of the hidden layer were kept.",
            {"hidden": lambda s: s.inner},
            why="Without it the two matrices are as good as one.",
            question="What happens to a negative number between the two "
                     "products?", fix=fix, explained=CHAPTER),
        Mistake(
            "ff-relu-at-end", "a ReLU after the second product instead",
            "Negative numbers of the output became 0.",
            {"hidden": lambda s: s.inner,
             "output": lambda s: relu(s.hidden @ s.W_2 + s.b_2)},
            why="The ReLU stands between the two products.",
            question="May the output hold negative numbers?", fix=fix,
            explained=CHAPTER),
        Mistake(
            "ff-relu-twice", "a ReLU after both products",
            "Negative numbers of the output became 0.",
            {"output": lambda s: relu(s.hidden @ s.W_2 + s.b_2)},
            why="The ReLU stands between the two products only.",
            question="May the output hold negative numbers?", fix=fix,
            explained=CHAPTER),
        Mistake(
            "ff-no-b1", "the first product without its bias",
            "b_1 plays no part.", {"inner": lambda s: s.x @ s.W_1},
            why="Each product has a bias.",
            question="Which argument plays no part?", fix=fix,
            explained=CHAPTER),
        Mistake(
            "ff-no-b2", "the second product without its bias",
            "b_2 plays no part.", {"output": lambda s: s.hidden @ s.W_2},
            why="Each product has a bias.",
            question="Which argument plays no part?", fix=fix,
            explained=CHAPTER),
        Mistake(
            "ff-bias-after-relu", "the first bias added after the ReLU",
            "b_1 could not decide which numbers the ReLU keeps.",
            {"inner": lambda s: s.x @ s.W_1,
             "hidden": lambda s: relu(s.inner) + s.b_1},
            why="The bias moves the point at which the ReLU cuts.",
            question="What comes first, the bias or the ReLU?", fix=fix,
            explained=CHAPTER),
        Mistake(
            "ff-abs", "absolute values instead of a ReLU",
            "Negative numbers changed their sign instead of becoming 0.",
            {"hidden": lambda s: np.abs(s.inner)},
            why="The ReLU is max(x, 0).",
            question="What must -3 become?", fix=fix, explained=CHAPTER),
        Mistake(
            "ff-sigmoid", "a sigmoid instead of a ReLU",
            "The hidden numbers lie between 0 and 1.",
            {"hidden": lambda s: 1 / (1 + np.exp(-s.inner))},
            why="The ReLU is max(x, 0).",
            question="What must 3 become?", fix=fix, explained=CHAPTER),
        Mistake(
            "ff-residual", "a result to which x was added",
            "The residual is in it already.",
            {"output": lambda s: s.hidden @ s.W_2 + s.b_2 + s.x},
            why="The residual belongs to the block around this part.",
            question="What does the formula say about x after the first "
                     "product?", fix=fix, explained=CHAPTER),
    ]


def dropout_mistakes() -> list[Mistake]:
    """Mistakes in dropping ``weights`` by ``kept`` at a ``rate``."""
    fix = "np.where(kept, weights, 0) / (1 - rate)"

    def survivors(s: State) -> ndarray:
        return np.where(s.kept, s.weights, 0.0)

    def renormalised(s: State) -> ndarray:
        left = survivors(s)
        return left / left.sum(-1, keepdims=True)

    def softmax_again(s: State) -> ndarray:
        exponentials = np.exp(survivors(s))
        return exponentials / exponentials.sum(-1, keepdims=True)

    def before_softmax(s: State, scale: float = 1.0) -> ndarray:
        scores = np.where(s.kept, np.log(s.weights), 0.0) * scale
        exponentials = np.exp(scores)
        return exponentials / exponentials.sum(-1, keepdims=True)

    def softmax_of_the_rest(s: State) -> ndarray:
        exponentials = np.where(s.kept, np.exp(s.weights), 0.0)
        return exponentials / exponentials.sum(-1, keepdims=True)

    expectation = ("Dividing by 1 - rate keeps every weight right on "
                   "average.")
    return [
        Mistake(
            "dropout-no-scale", "survivors that were not scaled up",
            "The rows sum to less than 1 on average.",
            {"dropped": survivors}, why=expectation,
            question="What is the average of a weight that survives half of "
                     "the time?", fix=fix, explained=CHAPTER),
        Mistake(
            "dropout-scale-by-rate", "survivors multiplied by the rate",
            "They got smaller instead of larger.",
            {"dropped": lambda s: survivors(s) * s.rate}, why=expectation,
            question="Should a survivor get larger or smaller?", fix=fix,
            explained=CHAPTER),
        Mistake(
            "dropout-divided-by-rate", "survivors divided by the rate",
            "The rate is the share that is dropped, not the share that is "
            "kept.",
            {"dropped": lambda s: survivors(s) / s.rate}, why=expectation,
            question="Which share of the weights survives?", fix=fix,
            explained=CHAPTER),
        Mistake(
            "dropout-scale-by-keep", "survivors multiplied by 1 - rate",
            "They got smaller instead of larger.",
            {"dropped": lambda s: survivors(s) * (1 - s.rate)},
            why=expectation,
            question="Should a survivor get larger or smaller?", fix=fix,
            explained=CHAPTER),
        Mistake(
            "dropout-inverted", "the dropped weights kept, the others "
            "dropped", "`kept` was used the wrong way round.",
            {"dropped": lambda s: np.where(s.kept, 0.0, s.weights)
             / (1 - s.rate)},
            why="True marks what survives.",
            question="What does True mean in `kept`?", fix=fix,
            explained=CHAPTER),
        Mistake(
            "dropout-renormalised", "survivors scaled so that rows sum to 1",
            "Every row was divided by what is left of it.",
            {"dropped": renormalised},
            why="Dropout divides by the same 1 - rate everywhere; a single "
                "row may sum to more or less than 1.",
            question="Must a single row sum to 1 after dropout?", fix=fix,
            explained=CHAPTER),
        Mistake(
            "dropout-softmax-again", "a softmax of the dropped weights",
            "Dropped weights came back: exp(0) is 1.",
            {"dropped": softmax_again},
            why="Dropout comes last; nothing is normalised after it.",
            question="What is left to do after the weights were dropped?",
            fix=fix, explained=CHAPTER),
        Mistake(
            "dropout-softmax-of-rest", "a second softmax of the survivors",
            "The surviving weights were made too even.",
            {"dropped": softmax_of_the_rest},
            why="Dropout comes last; nothing is normalised after it.",
            question="What is left to do after the weights were dropped?",
            fix=fix, explained=CHAPTER),
        Mistake(
            "dropout-ignored", "weights of which none was dropped",
            "`kept` plays no part.", {"dropped": lambda s: s.weights},
            why="In training some weights are set to 0.",
            question="Which argument plays no part?", fix=fix,
            explained=CHAPTER),
        Mistake(
            "dropout-scaled-only", "all weights divided by 1 - rate",
            "None was dropped.",
            {"dropped": lambda s: s.weights / (1 - s.rate)},
            why="In training some weights are set to 0.",
            question="Which argument plays no part?", fix=fix,
            explained=CHAPTER),
        Mistake(
            "dropout-before-softmax", "dropout of the scores, before the "
            "softmax", "A dropped score is 0, and exp(0) is 1, so dropped "
            "keys still get weight.",
            {"dropped": before_softmax},
            why="Dropout acts on the weights, behind the softmax.",
            question="What is exp(0)?", fix=fix, explained=CHAPTER),
        Mistake(
            "dropout-before-softmax-scaled", "dropout of the scores, before "
            "the softmax", "A dropped score is 0, and exp(0) is 1, so "
            "dropped keys still get weight.",
            {"dropped": lambda s: before_softmax(s, 1 / (1 - s.rate))},
            why="Dropout acts on the weights, behind the softmax.",
            question="What is exp(0)?", fix=fix,
            same_as="dropout-before-softmax", explained=CHAPTER),
    ]


def residual_mistakes(order: str) -> list[Mistake]:
    """Mistakes in a residual around x @ W with a normalisation.

    Args:
        order: "pre" for x + norm(x) @ W, "post" for norm(x + x @ W).
    """
    def norm(s: State, x: ndarray) -> ndarray:
        return normalise(x, s.gamma, s.beta, s.eps)

    def pre(s: State) -> ndarray:
        return s.x + norm(s, s.x) @ s.W

    def post(s: State) -> ndarray:
        return norm(s, s.x + s.x @ s.W)

    other = {"pre": post, "post": pre}[order]
    fix = {"pre": "x + normalise(x) @ W", "post": "normalise(x + x @ W)"}
    names = {"pre": "post-norm, normalise(x + x @ W),",
             "post": "pre-norm, x + normalise(x) @ W,"}
    common: dict[str, tuple[str, str, Callable[[State], ndarray], str, str]]
    common = {
        "block-no-residual": (
            "a result to which x was not added",
            "The block replaces x instead of adding to it.",
            (lambda s: norm(s, s.x) @ s.W) if order == "pre" else
            (lambda s: norm(s, s.x @ s.W)),
            "The residual gives the gradient a way around the block.",
            "Where does x itself come back in?"),
        "block-no-norm": (
            "x + x @ W, without a normalisation",
            "gamma and beta play no part.", lambda s: s.x + s.x @ s.W,
            "The normalisation keeps the numbers at one size through many "
            "blocks.", "Which arguments play no part?"),
        "block-norm-both": (
            "a sum of two normalised parts" if order == "pre" else
            "normalise(x) + x @ W",
            "The residual was normalised too." if order == "pre" else
            "Only the residual was normalised, not the sum.",
            (lambda s: norm(s, s.x) + norm(s, s.x) @ s.W)
            if order == "pre" else (lambda s: norm(s, s.x) + s.x @ s.W),
            "In pre-norm the residual passes by untouched."
            if order == "pre" else "In post-norm the sum is normalised.",
            "What exactly is normalised?"),
        "block-norm-after-matrix": (
            "x + normalise(x @ W)",
            "The matrix came before the normalisation, which saw neither x "
            "nor the sum.",
            lambda s: s.x + norm(s, s.x @ s.W),
            "In pre-norm x is normalised, then multiplied."
            if order == "pre" else "In post-norm the sum is normalised.",
            "What exactly is normalised?"),
        "block-both-norms": (
            "normalise(x + normalise(x) @ W)",
            "There is one normalisation too many.",
            lambda s: norm(s, s.x + norm(s, s.x) @ s.W),
            "One normalisation for each part of a block.",
            "How many normalisations does the formula have?"),
        "block-product": (
            "a product with x instead of a sum",
            "x was multiplied in, entry by entry.",
            (lambda s: s.x * (norm(s, s.x) @ s.W)) if order == "pre" else
            (lambda s: norm(s, s.x * (s.x @ s.W))),
            "A residual is a sum.", "How does x come back in?"),
        "block-W-transposed": (
            "W.T instead of W", "W was transposed before the product.",
            (lambda s: s.x + norm(s, s.x) @ s.W.T) if order == "pre" else
            (lambda s: norm(s, s.x + s.x @ s.W.T)),
            "W is used as x @ W.", "Is W stored as (in, out)?"),
    }
    first = Mistake(
        "block-post-norm" if order == "pre" else "block-pre-norm",
        f"{names[order]} not {order}-norm",
        "The normalisation stands at the other end of the block.",
        {"output": other},
        why="Both exist; the paper has post-norm, most later models "
            "pre-norm.",
        question="What is normalised: x before the product, or the sum?",
        fix=fix[order], explained=CHAPTER)
    return [first, *(
        Mistake(name, label, effect, {"output": wrong}, why=why,
                question=question, fix=fix[order], explained=CHAPTER)
        for name, (label, effect, wrong, why, question) in common.items())]
