"""Mistakes in separating heads and in combining them."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy import ndarray

from course.exercises.mistakes.common import read, swap
from course.exercises.stages import Case, Mistake, State

SEPARATED, COMBINED = 5, 7
SPLIT = "x.reshape(batch, seq_len, num_heads, head_dim).swapaxes(1, 2)"
MERGE = "x.swapaxes(1, 2).reshape(batch, seq_len, num_heads * head_dim)"

Rearrange = Callable[[ndarray, int], ndarray]


def _sizes(x: ndarray, num_heads: int) -> tuple[int, int, int, int]:
    batch, seq_len, width = x.shape
    return batch, seq_len, num_heads, width // num_heads


def bare_reshape(x: ndarray, num_heads: int) -> ndarray:
    """(batch, seq_len, width) read as (batch, num_heads, seq_len, d)."""
    batch, seq_len, heads, head_dim = _sizes(x, num_heads)
    return x.reshape(batch, heads, seq_len, head_dim)


def unmoved(x: ndarray, num_heads: int) -> ndarray:
    """Cut right, but the head axis stays behind the positions."""
    return x.reshape(_order(x, num_heads))


def _order(x: ndarray, num_heads: int) -> tuple[int, int, int, int]:
    batch, seq_len, heads, head_dim = _sizes(x, num_heads)
    return batch, seq_len, heads, head_dim


def dealt_out(x: ndarray, num_heads: int) -> ndarray:
    """Every head gets each num_heads-th feature."""
    batch, seq_len, heads, head_dim = _sizes(x, num_heads)
    return x.reshape(batch, seq_len, head_dim, heads).transpose(0, 3, 1, 2)


def _features_first(x: ndarray, num_heads: int) -> ndarray:
    return unmoved(x, num_heads).transpose(0, 2, 3, 1)


def _transposed_first(x: ndarray, num_heads: int) -> ndarray:
    batch, seq_len, heads, head_dim = _sizes(x, num_heads)
    return swap(x).reshape(batch, heads, seq_len, head_dim)


def _reshaped_then_swapped(x: ndarray, num_heads: int) -> ndarray:
    batch, seq_len, heads, head_dim = _sizes(x, num_heads)
    return swap(x.reshape(batch, heads, head_dim, seq_len))


def _heads_before_batch(x: ndarray, num_heads: int) -> ndarray:
    return unmoved(x, num_heads).transpose(2, 0, 1, 3)


def _bare_reshape_effect(case: Case) -> str:
    dims = case.dims
    seq_len, head_dim = dims["seq_len"], dims["head_dim"]
    width = head_dim * dims["num_heads"]
    numbers = seq_len * head_dim  # of one head, taken in the order in memory
    last = (numbers - 1) // width
    part = "" if numbers % width == 0 else " (the last in part)"
    return (f"Head 0 holds positions 0 to {last} with all {width} "
            f"features{part} instead of all {seq_len} positions with "
            f"features 0 to {head_dim - 1}.")


def _dealt_out_effect(case: Case) -> str:
    heads = case.dims["num_heads"]
    return (f"Head 0 holds features 0, {heads}, {2 * heads}, ... instead of "
            f"features 0 to {case.dims['head_dim'] - 1}.")


def split_mistakes(source: str = "x", stage: str = "heads",
                   num_heads: str = "num_heads") -> list[Mistake]:
    """Mistakes of a stage that separates heads.

    Args:
        source: Name of the array in the state.
        stage: Name of the stage.
        num_heads: Name of the number of heads.
    """
    x, n = read(source), read(num_heads)

    def stage_of(rearrange: Rearrange) -> dict[str, Callable[[State], Any]]:
        return {stage: lambda s: rearrange(x(s), n(s))}

    return [
        Mistake(
            "split-reshape", "a bare reshape, without a transpose",
            _bare_reshape_effect, stage_of(bare_reshape),
            why="reshape never moves a number in memory. Cut the feature "
                "axis in two first, then move the head axis.",
            question="For x = np.arange(24).reshape(1, 4, 6), which numbers "
                     "should be in head 0, and which are?",
            fix=SPLIT, explained=SEPARATED),
        Mistake(
            "split-no-transpose", "heads that stand behind the positions",
            "The cut is right, but the axes are (batch, seq_len, num_heads, "
            "head_dim).", stage_of(unmoved),
            why="`@` works on the last two axes, which must be (seq_len, "
                "head_dim).",
            question="Where must the head axis stand so that `@` multiplies "
                     "(seq_len, head_dim)?",
            fix=SPLIT, explained=SEPARATED),
        Mistake(
            "split-interleaved", "features dealt out like cards",
            _dealt_out_effect, stage_of(dealt_out),
            why="In reshape(batch, seq_len, head_dim, num_heads) the head is "
                "the axis that changes fastest.",
            question="Which of the two new axes changes fastest in memory?",
            fix=SPLIT, explained=SEPARATED),
        Mistake(
            "split-swap-T-dh", "heads with positions and features swapped",
            "Each head is (head_dim, seq_len).", stage_of(_features_first),
            why="Rows of a head are tokens.",
            question="What does each axis of your result stand for?",
            fix=SPLIT, explained=SEPARATED),
        Mistake(
            "split-transpose-first", "a transpose before the reshape",
            "Positions and features changed places first, so the cut goes "
            "across the positions.", stage_of(_transposed_first),
            why="Cut first, then move.",
            question="In which order do you cut and move?",
            fix=SPLIT, explained=SEPARATED),
        Mistake(
            "split-reshape-then-swap",
            "a bare reshape, then a swap of the last two axes",
            "The cut goes across the positions.",
            stage_of(_reshaped_then_swapped),
            why="A reshape to (batch, num_heads, head_dim, seq_len) cuts the "
                "numbers in the order in memory.",
            question="Which axis does your reshape cut in two?",
            fix=SPLIT, explained=SEPARATED),
        Mistake(
            "split-batch-last", "heads that stand before the batch",
            "The axes are (num_heads, batch, seq_len, head_dim).",
            stage_of(_heads_before_batch),
            why="The batch comes first everywhere in this course.",
            question="What does each axis of your result stand for?",
            fix=SPLIT, explained=SEPARATED),
    ]


def _merged(x: ndarray) -> tuple[int, int, int]:
    batch, heads, seq_len, head_dim = x.shape
    return batch, seq_len, heads * head_dim


def _bare_merge_effect(case: Case) -> str:
    heads = case.dims["num_heads"]
    return (f"Row 0 is made of the first {heads} positions of head 0 instead "
            f"of position 0 of all {heads} heads.")


def merge_mistakes(source: str = "x", stage: str = "merged",
                   shrinking: bool = True) -> list[Mistake]:
    """Mistakes of a stage that combines heads.

    Args:
        source: Name of the heads in the state.
        stage: Name of the stage.
        shrinking: Whether to list those that change the width as well.
    """
    x = read(source)
    mistakes = [
        Mistake(
            "merge-reshape", "a bare reshape, without moving the heads back",
            _bare_merge_effect, {stage: lambda s: x(s).reshape(
                _merged(x(s)))},
            why="Two axes can become one only when they are neighbours: "
                "first move the head axis next to the features.",
            question="Which two axes must be neighbours before they can "
                     "become one?",
            fix=MERGE, explained=COMBINED),
        Mistake(
            "merge-swap-last", "a swap of the wrong two axes",
            "Positions and features changed places instead of heads and "
            "positions.",
            {stage: lambda s: swap(x(s)).reshape(_merged(x(s)))},
            why="Heads (axis 1) and positions (axis 2) must change places.",
            question="Which two axes does your transpose swap?",
            fix=MERGE, explained=COMBINED),
        Mistake(
            "merge-interleaved", "features of the heads in turn",
            "A row holds feature 0 of every head, then feature 1 of every "
            "head, and so on.",
            {stage: lambda s: x(s).transpose(0, 2, 3, 1).reshape(
                _merged(x(s)))},
            why="The features of one head stay together.",
            question="Which axis changes fastest in your result?",
            fix=MERGE, explained=COMBINED),
    ]
    if shrinking:
        mistakes += [
            Mistake(
                "merge-mean", "the mean over the heads",
                "All heads were averaged into one.",
                {stage: lambda s: x(s).mean(1)},
                why="An average throws away what tells the heads apart.",
                question="How many features must come out?", fix=MERGE,
                explained=COMBINED),
            Mistake(
                "merge-sum", "the sum over the heads",
                "All heads were added up.", {stage: lambda s: x(s).sum(1)},
                why="A sum throws away what tells the heads apart.",
                question="How many features must come out?", fix=MERGE,
                explained=COMBINED),
            Mistake(
                "merge-max", "the maximum over the heads",
                "Of all heads only the largest number was kept.",
                {stage: lambda s: x(s).max(1)},
                why="A maximum throws away what tells the heads apart.",
                question="How many features must come out?", fix=MERGE,
                explained=COMBINED),
            Mistake(
                "merge-no-reshape", "heads moved back but not joined",
                "The axes are (batch, seq_len, num_heads, head_dim).",
                {stage: lambda s: x(s).transpose(0, 2, 1, 3)},
                why="The last two axes become one.",
                question="How many axes must the result have?", fix=MERGE,
                explained=COMBINED),
            Mistake(
                "merge-concat-time", "heads joined along the positions",
                "The heads stand one after another in time.",
                {stage: lambda s: x(s).reshape(
                    x(s).shape[0], -1, x(s).shape[3])},
                why="The heads of one token stand side by side.",
                question="How many positions must come out?", fix=MERGE,
                explained=COMBINED),
        ]
    return mistakes


def through_heads_mistakes(num_heads: str = "num_heads",
                           width: str = "x") -> list[Mistake]:
    """Mistakes that spread over several stages of attention with heads.

    The stages must be called q, k, v (projected), query, key, value (the
    same with separated heads), heads and merged.

    Args:
        num_heads: Name of the number of heads.
        width: Name of an array of the shape that the merged heads have.
    """
    n = read(num_heads)

    def all_three(rearrange: Rearrange) -> dict[str, Callable[[State], Any]]:
        return {"query": lambda s: rearrange(s.q, n(s)),
                "key": lambda s: rearrange(s.k, n(s)),
                "value": lambda s: rearrange(s.v, n(s))}

    def one_head(x: ndarray, num_heads: int) -> ndarray:
        return x[:, None]

    unmoved_effect = ("The head axis stayed behind the positions, so at each "
                      "position the heads attend to each other.")
    unmoved_why = ("`@` works on the last two axes, which must be (seq_len, "
                   "head_dim).")
    unmoved_question = "What are the last two axes where you use `@`?"
    return [
        Mistake(
            "split-reshape", "heads cut by a bare reshape",
            _bare_reshape_effect, all_three(bare_reshape),
            why="reshape never moves a number in memory. Cut the feature "
                "axis in two first, then move the head axis.",
            question="For np.arange(24).reshape(1, 4, 6), which numbers are "
                     "in your head 0?",
            fix=SPLIT, explained=SEPARATED),
        Mistake(
            "split-interleaved", "features dealt out like cards",
            _dealt_out_effect, all_three(dealt_out),
            why="In reshape(batch, seq_len, head_dim, num_heads) the head is "
                "the axis that changes fastest.",
            question="Which of the two new axes changes fastest in memory?",
            fix=SPLIT, explained=SEPARATED),
        Mistake(
            "heads-attend-heads",
            "attention between heads instead of positions", unmoved_effect,
            {**all_three(unmoved),
             "merged": lambda s: s.heads.reshape(s.q.shape)},
            why=unmoved_why, question=unmoved_question, fix=SPLIT,
            explained=SEPARATED),
        Mistake(
            "heads-attend-heads-swapped",
            "attention between heads instead of positions", unmoved_effect,
            {**all_three(unmoved),
             "merged": lambda s: s.heads.transpose(0, 2, 1, 3).reshape(
                 s.q.shape)},
            why=unmoved_why, question=unmoved_question, fix=SPLIT,
            same_as="heads-attend-heads", in_pairs=False,
            explained=SEPARATED),
        Mistake(
            "single-head", "one head as wide as the embedding",
            "num_heads plays no part.",
            {**all_three(one_head), "merged": lambda s: s.heads[:, 0]},
            why="Several heads have several sets of weights.",
            question="Where does num_heads come in?", fix=SPLIT,
            explained=SEPARATED),
    ]


def wide_matrix_mistakes() -> list[Mistake]:
    """Mistakes in putting the heads' matrices side by side."""
    def sizes(s: State) -> tuple[int, int, int]:
        return s.matrices.shape

    fix = ("matrices.transpose(1, 0, 2).reshape(embed_dim, num_heads * "
           "head_dim)")
    why = ("Columns h * head_dim to (h + 1) * head_dim - 1 are the matrix of "
           "head h.")
    return [
        Mistake(
            "wide-reshape", "a bare reshape of the stack",
            "Row 0 holds row 0 of head 0, then row 1 of head 0, and so on.",
            {"wide": lambda s: s.matrices.reshape(sizes(s)[1], -1)},
            why="reshape keeps the order in memory, where all of head 0 "
                "comes before head 1.",
            question="Which numbers stand in row 0 of your result?",
            fix=fix, explained=SEPARATED),
        Mistake(
            "wide-interleaved", "columns of the heads in turn",
            "Column 0 of every head comes first, then column 1 of every "
            "head.",
            {"wide": lambda s: s.matrices.transpose(1, 2, 0).reshape(
                sizes(s)[1], -1)},
            why=why, question="Which head do columns 0 and 1 belong to?",
            fix=fix, explained=SEPARATED),
        Mistake(
            "wide-stacked", "the matrices one below the other",
            "The result is (num_heads * embed_dim, head_dim).",
            {"wide": lambda s: s.matrices.reshape(-1, sizes(s)[2])},
            why=why, question="How many rows must a matrix have that is used "
                              "as x @ W?",
            fix=fix, explained=SEPARATED),
        Mistake(
            "wide-sum", "the sum of the matrices",
            "All heads were added into one.",
            {"wide": lambda s: s.matrices.sum(0)},
            why=why, question="How many columns must come out?", fix=fix,
            explained=SEPARATED),
        Mistake(
            "wide-transposed", "the wide matrix transposed",
            "The result is (num_heads * head_dim, embed_dim).",
            {"wide": lambda s: s.matrices.transpose(0, 2, 1).reshape(
                -1, sizes(s)[1])},
            why="This course uses matrices as x @ W; nn.Linear stores the "
                "transpose.",
            question="Which axis of W meets the features of x?", fix=fix,
            explained=SEPARATED),
        Mistake(
            "wide-reversed", "the heads in reverse order",
            "The last head stands first.",
            {"wide": lambda s: np.concatenate(list(s.matrices[::-1]), -1)},
            why=why, question="Which head owns column 0?", fix=fix,
            explained=SEPARATED),
    ]
