"""Exercises of chapter 7: combining heads."""

import numpy as np
from numpy import ndarray

from course.exercises import probes, solutions, starters
from course.exercises.bank.ch02 import SOFTMAX
from course.exercises.bank.ch05 import separated
from course.exercises.bank.inputs import (
    Generator,
    heads_in_one_axis,
    separated_heads,
    tokens_with_heads,
)
from course.exercises.mistakes.common import softmax, swap
from course.exercises.mistakes.heads import (
    merge_mistakes,
    through_heads_mistakes,
)
from course.exercises.mistakes.normalising import softmax_mistakes
from course.exercises.mistakes.projections import output_mistakes
from course.exercises.mistakes.scaling import (
    head_scale_mistakes,
    scale_mistakes,
)
from course.exercises.mistakes.scores import score_mistakes, value_mistakes
from course.exercises.predictions import Prediction, outcomes_of
from course.exercises.quizzes import Option, Question
from course.exercises.registry import register, register_quiz
from course.exercises.stages import Case, Exercise, Mistake, Stages, State

CHAPTER = 7


def joined(heads: ndarray) -> ndarray:
    """(batch, num_heads, seq_len, head_dim) -> (batch, seq_len, width)."""
    batch, num_heads, seq_len, head_dim = heads.shape
    return heads.swapaxes(1, 2).reshape(batch, seq_len, num_heads * head_dim)


def head_stages(q: str = "q", k: str = "k", v: str = "v") -> Stages:
    """Attention through separated heads, up to the merged heads."""
    return {
        "query": lambda s: separated(getattr(s, q), s.num_heads),
        "key": lambda s: separated(getattr(s, k), s.num_heads),
        "value": lambda s: separated(getattr(s, v), s.num_heads),
        "scores": lambda s: s.query @ swap(s.key),
        "scaled": lambda s: s.scores / np.sqrt(s.key.shape[-1]),
        "weights": lambda s: softmax(s.scaled),
        "heads": lambda s: s.weights @ s.value,
        "merged": lambda s: joined(s.heads),
    }


def _projected(rng: Generator) -> list[Case]:
    return tokens_with_heads(rng, ("q", "k", "v"))


def _with_output(rng: Generator) -> list[Case]:
    return separated_heads(rng, W_o=True)


def _contribution_mistakes() -> list[Mistake]:
    def rows(s: State) -> ndarray:
        heads, head_dim = s.heads.shape[1], s.heads.shape[3]
        return s.W_o.reshape(heads, head_dim, -1)

    fix = "heads @ W_o.reshape(num_heads, head_dim, embed_dim)"
    why = "Head h meets the rows h * head_dim to (h + 1) * head_dim - 1."
    return [
        Mistake("contribution-sum", "the sum over the heads",
                "What each head adds was added up already.",
                {"parts": lambda s: (s.heads @ rows(s)).sum(1)}, why=why,
                question="How many vectors does one token get?", fix=fix,
                explained=CHAPTER),
        Mistake("contribution-first-rows", "the first rows of W_o for every "
                "head", "All heads met the rows of head 0.",
                {"parts": lambda s: s.heads @ rows(s)[0]}, why=why,
                question="Which rows of W_o belong to head 1?", fix=fix,
                explained=CHAPTER),
        Mistake("contribution-interleaved", "every num_heads-th row of W_o",
                "The rows were dealt out like cards.",
                {"parts": lambda s: s.heads @ s.W_o.reshape(
                    s.heads.shape[3], s.heads.shape[1], -1).swapaxes(0, 1)},
                why=why, question="Which rows of W_o belong to head 0?",
                fix=fix, explained=CHAPTER),
        Mistake("contribution-reversed", "the heads met W_o in reverse order",
                "Head 0 met the rows of the last head.",
                {"parts": lambda s: s.heads @ rows(s)[::-1]}, why=why,
                question="Which rows of W_o belong to head 0?", fix=fix,
                explained=CHAPTER),
        Mistake("contribution-mean", "contributions divided by num_heads",
                "Their mean is the output, not their sum.",
                {"parts": lambda s: s.heads @ rows(s) / s.heads.shape[1]},
                why="The output is the sum over the heads.",
                question="What must the parts add up to?", fix=fix,
                explained=CHAPTER),
    ]


def _from_the_batch_mistakes() -> list[Mistake]:
    def heads(s: State) -> ndarray:
        return s.x.reshape(-1, s.num_heads, *s.x.shape[1:])

    fix = ("x.reshape(batch, num_heads, seq_len, head_dim).swapaxes(1, 2)"
           ".reshape(batch, seq_len, num_heads * head_dim)")
    why = ("Two axes can become one only when they are neighbours: first "
           "give the heads their axis, then move it.")
    question = "Which numbers must stand in row 0 of sequence 0?"
    return [
        Mistake("merge-reshape", "a bare reshape, without moving the heads "
                "back", "Row 0 is made of several positions of head 0.",
                {"merged": lambda s: s.x.reshape(
                    -1, s.x.shape[1], s.num_heads * s.x.shape[2])},
                why=why, question=question, fix=fix, explained=CHAPTER),
        Mistake("merge-head-major", "heads taken as the slow part of the "
                "axis", "Head and sequence changed places.",
                {"merged": lambda s: joined(s.x.reshape(
                    s.num_heads, -1, *s.x.shape[1:]).swapaxes(0, 1))},
                why="All heads of sequence 0 come first.",
                question="Which entry of the first axis is head 1 of "
                         "sequence 0?", fix=fix, explained=CHAPTER),
        Mistake("merge-swap-last", "a swap of the wrong two axes",
                "Positions and features changed places.",
                {"merged": lambda s: swap(heads(s)).reshape(
                    -1, s.x.shape[1], s.num_heads * s.x.shape[2])},
                why=why, question=question, fix=fix, explained=CHAPTER),
        Mistake("merge-interleaved", "features of the heads in turn",
                "A row holds feature 0 of every head, then feature 1.",
                {"merged": lambda s: heads(s).transpose(0, 2, 3, 1).reshape(
                    -1, s.x.shape[1], s.num_heads * s.x.shape[2])},
                why="The features of one head stay together.",
                question=question, fix=fix, explained=CHAPTER),
        Mistake("merge-sum", "the sum over the heads",
                "All heads were added up.",
                {"merged": lambda s: heads(s).sum(1)},
                why="A sum throws away what tells the heads apart.",
                question="How many features must come out?", fix=fix,
                explained=CHAPTER),
    ]


def _tiny_heads() -> Case:
    return Case("2 heads, 2 tokens", {
        "x": np.arange(8.0).reshape(1, 2, 2, 2)},
        {"batch": 1, "num_heads": 2, "seq_len": 2, "head_dim": 2})


def _tiny_output() -> Case:
    return Case("2 heads, 2 tokens", {
        "heads": np.array([[[[1.0], [-3.0]], [[2.0], [4.0]]]]),
        "W_o": np.array([[0.0, 1.0], [-1.0, 2.0]])},
        {"batch": 1, "num_heads": 2, "seq_len": 2, "head_dim": 1,
         "embed_dim": 2})


def _tiny_parts() -> Case:
    return Case("2 heads of width 2, 1 token", {
        "heads": np.array([[[[1.0, -3.0]], [[2.0, 4.0]]]]),
        "W_o": np.array([[0.0, 1.0], [-1.0, 2.0], [1.0, 0.0], [3.0, 1.0]])},
        {"batch": 1, "num_heads": 2, "seq_len": 1, "head_dim": 2,
         "embed_dim": 2})


def _tiny_through() -> Case:
    row = np.array([[[1.0, 0.0, 2.0, 1.0, 0.0, 1.0],
                     [0.0, 2.0, 1.0, 0.0, 1.0, 1.0]]])
    return Case("3 heads of width 2, 2 tokens", {
        "q": row, "k": row[:, ::-1] * 2, "v": row * 4, "num_heads": 3},
        {"batch": 1, "num_heads": 3, "seq_len": 2, "head_dim": 2})


register(Exercise(
    id="combine_heads", title="Combine the heads", chapter=CHAPTER,
    difficulty=2, minutes=8,
    task="The way back: what the heads found for a token comes to stand side "
         "by side. W_o is not part of it.",
    solution=solutions.combine_heads,
    stages={"merged": lambda s: joined(s.x)}, cases=separated_heads,
    mistakes=merge_mistakes(), axes=("batch", "seq_len", "width"),
    probe=probes.origin(("batch", "head", "position", "feature"),
                        "position"), tiny=_tiny_heads,
    hints=("Which numbers of np.arange(12).reshape(1, 2, 3, 2) belong into "
           "row 0?",
           "Head and feature must be neighbours before they become one axis: "
           "move the head axis first.",
           "x.swapaxes(1, 2), then reshape.")), "merge_heads")

register(Exercise(
    id="attention_through_heads", title="Attention through heads",
    chapter=CHAPTER, difficulty=3, minutes=15,
    task="Separate, attend in every head on its own, combine. The four steps "
         "of attention stay as they are; only the axes are more.",
    solution=solutions.attention_through_heads, imports=(SOFTMAX,),
    stages=head_stages(), cases=_projected,
    mistakes=[*through_heads_mistakes(),
              *merge_mistakes("heads", shrinking=False),
              *score_mistakes(value="value"),
              *scale_mistakes(weights="weights"),
              *head_scale_mistakes("q"), *softmax_mistakes(axes=4),
              *value_mistakes(stage="heads", returns=False)],
    axes=("batch", "seq_len", "width"), probe=probes.influence("q", "k", "v"),
    tiny=_tiny_through,
    hints=("What are the last two axes of the arrays that you multiply?",
           "(batch, num_heads, seq_len, head_dim): `@` works on the last two "
           "and treats batch and head as a stack.",
           "Divide by the root of the width of ONE head; swap the axes back "
           "before the last reshape.")))

register(Exercise(
    id="output_projection", title="W_o", chapter=CHAPTER, difficulty=2,
    minutes=6,
    task="Side by side the heads know nothing of each other. The last matrix "
         "of the layer mixes what they found.",
    solution=solutions.output_projection,
    stages={"merged": lambda s: joined(s.heads),
            "output": lambda s: s.merged @ s.W_o},
    cases=_with_output,
    mistakes=[*merge_mistakes("heads", shrinking=False),
              *output_mistakes()],
    axes=("batch", "seq_len", "embed_dim"), tiny=_tiny_output,
    hints=("Which axis of W_o has num_heads * head_dim entries?",
           "Combine the heads first, then multiply from the right.",
           "merged @ W_o.")))

register(Exercise(
    id="head_contributions", title="What each head adds", chapter=CHAPTER,
    difficulty=3, minutes=10,
    task="The product with W_o is a sum over heads: each head has its own "
         "rows of W_o. Give the parts of the sum.",
    solution=solutions.head_contributions,
    stages={"parts": lambda s: s.heads @ s.W_o.reshape(
        s.heads.shape[1], s.heads.shape[3], -1)},
    cases=_with_output, mistakes=_contribution_mistakes(),
    axes=("batch", "num_heads", "seq_len", "embed_dim"), tiny=_tiny_parts,
    hints=("Which rows of W_o meet the features of head 1?",
           "The rows head_dim to 2 * head_dim - 1. Give W_o an axis for "
           "heads.",
           "heads @ W_o.reshape(num_heads, head_dim, embed_dim).")))

register(Exercise(
    id="heads_from_the_batch", title="Find the bug: rows of one head",
    chapter=CHAPTER, difficulty=2, minutes=8,
    task="This program takes the heads out of the batch axis. No error was "
         "raised, but its outputs were not those of nn.MultiheadAttention. "
         "Mend it.",
    solution=solutions.heads_from_the_batch,
    starter=starters.join_without_moving, planted="merge-reshape",
    source="https://github.com/meta-pytorch/opacus/pull/825",
    stages={"merged": lambda s: joined(s.x.reshape(
        -1, s.num_heads, *s.x.shape[1:]))},
    cases=heads_in_one_axis, mistakes=_from_the_batch_mistakes(),
    axes=("batch", "seq_len", "width"),
    tiny=lambda: Case("two sequences of two tokens, two heads", {
        "x": np.arange(8.0).reshape(4, 2, 1), "num_heads": 2},
        {"batch": 2, "num_heads": 2, "seq_len": 2, "head_dim": 1}),
    hints=("What stands in row 0 for x = np.arange(12).reshape(2, 3, 2) and "
           "2 heads, and what should?",
           "The head needs an axis of its own before it can move.",
           "Reshape to four axes, swap axes 1 and 2, reshape to three.")))

register(Prediction(
    id="predict_combined_row", title="A row of combined heads",
    chapter=CHAPTER, difficulty=1, minutes=3,
    task="x = np.arange(12).reshape(1, 2, 3, 2): two heads, three tokens, "
         "two features. Predict row 0 of combine_heads(x).",
    form="numbers", placeholder="...  # a list such as [1, 2, 3]",
    solution=solutions.predict_combined_row,
    outcomes=lambda: outcomes_of(
        "combine_heads", Case("", {
            "x": np.arange(12.0).reshape(1, 2, 3, 2)},
            {"batch": 1, "num_heads": 2, "seq_len": 3, "head_dim": 2}),
        lambda row: row.tolist(), index=(0, 0)),
    hints=("Which numbers belong to token 0 in head 0, and which in head 1?",
           "0 and 1 in head 0; head 1 begins with 6.",
           "Token 0 of every head, side by side.")))

register_quiz(CHAPTER, [
    Question(
        "A model was trained with heads that were joined by a bare reshape. "
        "The loss fell. Is the model right?",
        [Option("No: each row mixes positions of one head.", True,
                "W_o can learn to live with the mixture, so a falling loss "
                "proves nothing.", mistake="merge-reshape"),
         Option("Yes, or the loss would not fall.", False,
                "A model learns from what it gets, right or wrong."),
         Option("Yes, the order of the features does not matter.", False,
                "It would not if positions stayed apart; they do not.")]),
    Question(
        "The heads are averaged instead of put side by side. What is lost?",
        [Option("What tells the heads apart.", True,
                "If one head looks left and one looks right, their mean "
                "looks nowhere.", mistake="merge-mean"),
         Option("Nothing, W_o mixes them anyway.", False,
                "W_o mixes with weights that it learns; a mean cannot be "
                "undone."),
         Option("Only speed.", False, "A mean is cheaper, not slower.")]),
], shapes=("combine_heads",))
