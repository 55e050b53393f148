"""Exercises of chapter 1: query, key and value."""

import numpy as np

from course.exercises import solutions
from course.exercises.bank.inputs import Generator
from course.exercises.mistakes.projections import tuple_mistakes
from course.exercises.predictions import Outcomes, Prediction
from course.exercises.quizzes import Option, Question
from course.exercises.registry import register, register_quiz
from course.exercises.stages import Case, Exercise, Mistake

MATRICES = ("W_q", "W_k", "W_v")


def _word(rng: Generator) -> list[Case]:
    def case(name: str, embed_dim: int, head_dim: int) -> Case:
        return Case(name, {
            "x": rng.normal(size=embed_dim),
            **{matrix: rng.normal(size=(embed_dim, head_dim)) / 2
               for matrix in MATRICES}},
            {"embed_dim": embed_dim, "head_dim": head_dim})

    return [case("embed_dim 6, head_dim 4", 6, 4),
            case("embed_dim = head_dim = 5", 5, 5)]


def _words(rng: Generator) -> list[Case]:
    def case(name: str, batch: int, seq_len: int, embed_dim: int,
             head_dim: int) -> Case:
        return Case(name, {
            "x": rng.normal(size=(batch, seq_len, embed_dim)),
            **{matrix: rng.normal(size=(embed_dim, head_dim)) / 2
               for matrix in MATRICES}},
            {"batch": batch, "seq_len": seq_len, "embed_dim": embed_dim,
             "head_dim": head_dim})

    return [case("all sizes different", 2, 5, 6, 3),
            case("all sizes equal", 4, 4, 4, 4)]


def _tiny() -> Case:
    return Case("one sentence of two words", {
        "x": np.array([[[1.0, 2.0], [0.0, -1.0]]]),
        "W_q": np.array([[1.0, 2.0], [0.0, 1.0]]),
        "W_k": np.array([[0.0, 1.0], [1.0, 3.0]]),
        "W_v": np.array([[1.0, 0.0], [2.0, 1.0]])})


def _triple(s):
    return s.x @ s.W_q, s.x @ s.W_k, s.x @ s.W_v


def _query_shapes() -> Outcomes:
    def mistake(name: str, label: str, question: str) -> Mistake:
        return Mistake(name, label, "", {}, question=question, explained=1)

    return (3, 10, 64), [
        (mistake("shape-of-x", "the shape of x: a word keeps its 512 numbers",
                 "How many columns has W_q?"), (3, 10, 512)),
        (mistake("shape-of-W", "the shape of W_q, which is the same for all "
                 "words", "How many queries are there?"), (512, 64)),
        (mistake("shape-one-sentence", "one sentence of the three",
                 "What becomes of the first axis?"), (10, 64)),
        (mistake("shape-swapped", "words and features in each other's place",
                 "Is a word a row or a column?"), (3, 64, 10)),
        (mistake("shape-joined", "all words in one axis",
                 "Does `@` join the axes in front?"), (30, 64)),
    ]


register(Exercise(
    id="project_word", title="Three vectors of one word", chapter=1,
    difficulty=1, minutes=5,
    task="A word enters attention as its embedding and leaves this step as "
         "three shorter vectors: what it asks (query), what it answers to "
         "(key), and what it passes on (value).",
    solution=solutions.project_word, stages={"qkv": _triple}, cases=_word,
    mistakes=[m for m in tuple_mistakes(batched=False)
              if m.id != "proj-chained"],
    axes=("head_dim",), many=3, names=("query", "key", "value"),
    hints=("How long is the embedding, and how long must the query be? Which "
           "axis of W has which length?",
           "Entry j of the query is the sum over i of x[i] * W_q[i, j].",
           "`x @ W_q` is that sum for all j at once. Return the three "
           "products as a tuple.")))

register(Exercise(
    id="project_qkv", title="Three vectors of every word", chapter=1,
    difficulty=1, minutes=5,
    task="The same three matrices serve every word of every sequence. Write "
         "the step for a whole batch.",
    solution=solutions.project_qkv, stages={"qkv": _triple}, cases=_words,
    mistakes=tuple_mistakes(), axes=("batch", "seq_len", "head_dim"), many=3,
    names=("query", "key", "value"), tiny=_tiny,
    hints=("Does anything change for a word when others stand beside it?",
           "`@` treats all axes but the last two as a stack.",
           "Return x @ W_q, x @ W_k, x @ W_v.")))

register(Prediction(
    id="predict_query_shape", title="The shape of the queries", chapter=1,
    difficulty=1, minutes=2,
    task="Three sentences of ten words each, embedded in 512 numbers a "
         "word, give an array x of shape (3, 10, 512). W_q has the shape "
         "(512, 64). Predict the shape of x @ W_q before you run anything.",
    form="shape", placeholder="...  # a tuple such as (1, 2, 3)",
    solution=solutions.predict_query_shape,
    outcomes=_query_shapes,
    hints=("Between which two axes does `@` sum?",
           "The axes that meet, 512 and 512, vanish.",
           "The first axes of x stay; the last one becomes that of W_q.")))

register_quiz(1, [
    Question(
        "“Machines” stands twice in a sentence. How many keys does the "
        "sentence have for it?",
        [Option("Two: one for each position.", True,
                "Every position has a key of its own. They are equal as long "
                "as nothing tells the positions apart."),
         Option("One: a word has one key.", False,
                "Keys belong to positions. Otherwise the sentence could not "
                "be cut into rows of one array."),
         Option("None: only a word that asks has a key.", False,
                "Every word asks and every word answers; it has a query and "
                "a key.")]),
    Question(
        "All three products use `W_q` by an oversight. What is the symptom?",
        [Option("Query, key and value are equal, and no error is raised.",
                True, "The shapes fit, so nothing complains."),
         Option("An error: the shapes do not fit.", False,
                "The three matrices have the same shape, so any of them "
                "fits.", mistake="proj-same-W"),
         Option("Only the value is wrong.", False,
                "That is the result of using W_k for the value too.",
                mistake="proj-kv-same")]),
])
