"""Mistakes in the factor on the scores."""

import numpy as np

from course.exercises.mistakes.common import read, softmax
from course.exercises.stages import Mistake, State

CHAPTER = 4


def scale_mistakes(scores: str = "scores", key: str = "key",
                   stage: str = "scaled", weights: str | None = None,
                   batched: bool = True) -> list[Mistake]:
    """Mistakes of a stage that divides scores by √head_dim.

    Args:
        scores: Name of the unscaled scores in the state.
        key: Name of the keys, whose last axis is head_dim.
        stage: Name of the stage.
        weights: Name of the stage of the softmax that follows, if any.
        batched: Whether there is a batch axis.
    """
    raw, k = read(scores), read(key)

    def width(s: State) -> int:
        return int(k(s).shape[-1])

    mistakes = [
        Mistake(
            "no-scale", "scores that were not divided by √head_dim",
            "The scores are √head_dim times too large.",
            {stage: raw},
            why="A dot product of head_dim independent terms spreads like "
                "√head_dim; undivided, the softmax puts nearly everything "
                "on one key.",
            question="How does the size of a dot product change when the "
                     "vectors get longer?",
            fix="scores / np.sqrt(key.shape[-1])", explained=CHAPTER),
        Mistake(
            "scale-by-d", "scores divided by head_dim (or twice by its root)",
            "The scores are √head_dim times too small.",
            {stage: lambda s: raw(s) / width(s)},
            why="The variance of a dot product grows like head_dim, so its "
                "spread grows like √head_dim.",
            question="By what must a number with variance 64 be divided to "
                     "have variance 1?",
            fix="scores / np.sqrt(key.shape[-1])", explained=CHAPTER),
        Mistake(
            "scale-multiplied", "scores multiplied by √head_dim",
            "The scores are head_dim times too large.",
            {stage: lambda s: raw(s) * np.sqrt(width(s))},
            why="The division keeps the scores near size 1; a product makes "
                "them larger still.",
            question="Should the scores get larger or smaller?",
            fix="scores / np.sqrt(key.shape[-1])", explained=CHAPTER),
        Mistake(
            "scale-by-sqrt-T", "scores divided by √key_len",
            "The number of keys stands where the width of a key should.",
            {stage: lambda s: raw(s) / np.sqrt(k(s).shape[-2])},
            why="key.shape[-2] says how many keys there are, key.shape[-1] "
                "how wide each is.",
            question="Over which axis did the dot product sum?",
            fix="key.shape[-1]", explained=CHAPTER),
        Mistake(
            "scale-floor", "floor division by √head_dim",
            "Every score was rounded down to a whole number.",
            {stage: lambda s: raw(s) // np.sqrt(width(s))},
            why="`//` drops the fraction.",
            question="What is 7 / 2, and what is 7 // 2?",
            fix="scores / np.sqrt(key.shape[-1])", in_pairs=False,
            explained=CHAPTER),
    ]
    if batched:
        mistakes.append(Mistake(
            "scale-by-sqrt-B", "scores divided by √batch",
            "The size of the first axis stands where head_dim should.",
            {stage: lambda s: raw(s) / np.sqrt(k(s).shape[0])},
            why="key.shape[0] is the number of sequences.",
            question="Which axis of the keys is shape[0]?",
            fix="key.shape[-1]", in_pairs=False, explained=CHAPTER))
    if weights is not None:
        mistakes.append(Mistake(
            "scale-after-softmax", "weights divided by √head_dim",
            "The division came after the softmax, so the rows sum to "
            "1/√head_dim.",
            {stage: raw,
             weights: lambda s: (softmax(getattr(s, stage), s.style)
                                 / np.sqrt(width(s)))},
            why="The softmax of undivided scores is as peaked as before; "
                "dividing it afterwards only makes all weights smaller.",
            question="What do the rows of your weights sum to?",
            fix="softmax(scores / np.sqrt(key.shape[-1]))",
            explained=CHAPTER))
    return mistakes


def head_scale_mistakes(width: str, num_heads: str = "num_heads",
                        scores: str = "scores",
                        stage: str = "scaled") -> list[Mistake]:
    """Mistakes of the same stage that exist only where there are heads.

    Args:
        width: Name of an array whose last axis is embed_dim.
        num_heads: Name of the number of heads.
        scores: Name of the unscaled scores.
        stage: Name of the stage.
    """
    raw, x = read(scores), read(width)
    return [
        Mistake(
            "scale-by-sqrt-D", "scores divided by √embed_dim",
            "The width of the whole embedding stands where the width of one "
            "head should.",
            {stage: lambda s: raw(s) / np.sqrt(x(s).shape[-1])},
            why="The dot product of one head sums over head_dim = embed_dim "
                "/ num_heads terms. With one head the mistake is invisible.",
            question="Over how many numbers does the dot product of ONE head "
                     "sum?",
            fix="np.sqrt(embed_dim // num_heads)", explained=5),
        Mistake(
            "scale-by-sqrt-H", "scores divided by √num_heads",
            "The number of heads stands where the width of one head should.",
            {stage: lambda s: raw(s) / np.sqrt(getattr(s, num_heads))},
            why="The number of terms in a dot product is head_dim.",
            question="Over how many numbers does the dot product of ONE head "
                     "sum?",
            fix="np.sqrt(embed_dim // num_heads)", in_pairs=False,
            explained=5),
    ]
