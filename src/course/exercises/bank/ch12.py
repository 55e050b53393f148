"""Exercises of chapter 12: heads of a real model."""

from collections.abc import Callable

import numpy as np
from numpy import ndarray

from course.exercises import solutions
from course.exercises.bank.inputs import Generator
from course.exercises.mistakes.common import softmax
from course.exercises.quizzes import Option, Question
from course.exercises.registry import register, register_quiz
from course.exercises.stages import Case, Exercise, Mistake, State

CHAPTER = 12


def _texts(rng: Generator) -> list[Case]:
    def case(name: str, texts: int, layers: int, heads: int,
             seq_len: int) -> Case:
        shape = (texts, layers, heads, seq_len, seq_len)
        places = np.array([rng.permutation(seq_len)[:2]
                           for _ in range(texts)])
        return Case(name, {
            "weights": softmax(rng.normal(size=shape) * 2),
            "reader": places[:, 0], "target": places[:, 1]},
            {"texts": texts, "layers": layers, "heads": heads,
             "seq_len": seq_len})

    return [case("12 texts", 12, 3, 4, 7), case("9 texts", 9, 4, 2, 5),
            case("8 texts", 8, 3, 3, 8)]


def _read(s: State) -> ndarray:
    return s.weights[np.arange(len(s.weights)), :, :, s.reader, s.target]


def _best(read: ndarray) -> ndarray:
    flat = read.reshape(len(read), -1).argmax(1)
    return np.stack(np.unravel_index(flat, read.shape[1:]), 1)


def _head_mistakes() -> list[Mistake]:
    fix = ("weights[texts, :, :, reader, target], then the argmax over both "
           "layers and heads")

    def read(name: str, label: str, effect: str, why: str, question: str,
             wrong: Callable[[State], ndarray]) -> Mistake:
        return Mistake(name, label, effect, {"read": wrong}, why=why,
                       question=question, fix=fix, explained=CHAPTER)

    def best(name: str, label: str, effect: str, why: str, question: str,
             wrong: Callable[[ndarray], ndarray]) -> Mistake:
        return Mistake(name, label, effect,
                       {"best": lambda s: wrong(s.read)}, why=why,
                       question=question, fix=fix, explained=CHAPTER)

    def separately(r: ndarray) -> ndarray:
        return np.stack([r.mean(2).argmax(1), r.mean(1).argmax(1)], 1)

    def separately_by_max(r: ndarray) -> ndarray:
        layer = r.mean(2).argmax(1)
        return np.stack([layer, r[np.arange(len(r)), layer].argmax(1)], 1)

    def of_all(r: ndarray) -> ndarray:
        return np.repeat(_best(r.mean(0, keepdims=True)), len(r), 0)

    def texts(s: State) -> ndarray:
        return np.arange(len(s.weights))

    def of_first(s: State) -> ndarray:
        return s.weights[:, :, :, s.reader[0], s.target[0]]

    return [
        read("heads-read-turned", "the weight from the target to the reader",
             "Query and key are in each other's place.",
             "Row i of the weights belongs to the query, column j to the "
             "key: [reader, target].",
             "Which of the two words is the query?",
             lambda s: s.weights[texts(s), :, :, s.target, s.reader]),
        read("heads-read-column", "all the weight that the target gets",
             "The reader plays no part.",
             "A word can be read by all words and not by this one.",
             "Which argument plays no part?",
             lambda s: s.weights.sum(3)[texts(s), :, :, s.target]),
        read("heads-read-first-places", "the places of the first text used "
             "for all texts", "The reader's place differs from text to "
             "text.", "Each text has its own reader and target.",
             "Which places do you read in the second text?", of_first),
        best("heads-best-swapped", "head and layer in each other's place",
             "The numbers are right, but not their order.",
             "The order is layer, head.",
             "In which order are the two to be given?",
             lambda r: _best(r)[:, ::-1]),
        best("heads-best-smallest", "the head with the smallest weight",
             "The minimum was taken.", "The largest weight is asked for.",
             "argmin or argmax?", lambda r: _best(-r)),
        best("heads-best-separate", "the best layer and the best head, each "
             "found by itself", "The layer is the best on average over its "
             "heads, the head the best on average over the layers.",
             "The head with number 3 in one layer has nothing to do with "
             "number 3 in another. Search all layers and heads together.",
             "Is your head the best in your layer?", separately),
        best("heads-best-layer-first", "the best head of the layer that is "
             "best on average", "The layer was chosen by the mean over its "
             "heads.", "An average hides a single sharp head.",
             "Can the best head stand in a layer that is weak on average?",
             separately_by_max),
        best("heads-best-of-mean", "one head for all texts",
             "The weights were averaged over the texts first.",
             "Each text has its own answer here.",
             "How many different answers may there be?", of_all),
        best("heads-best-flat", "the place in the flattened table",
             "Layer and head are hidden in one number.",
             "np.unravel_index turns the place into layer and head.",
             "How many numbers are asked for in each text?",
             lambda r: r.reshape(len(r), -1).argmax(1)),
    ]


def _tiny() -> Case:
    heads = np.array([[[[1, 2, 9], [6, 7, 5]], [[5, 8, 5], [4, 1, 6]]],
                      [[[3, 7, 2], [5, 4, 6]], [[6, 7, 5], [1, 8, 2]]]]) / 10
    weights = np.empty((2, 2, 3, 2, 2))
    weights[..., 0, 1], weights[..., 1, 0] = heads[:, 0], heads[:, 1]
    weights[..., 0, 0], weights[..., 1, 1] = 1 - heads[:, 0], 1 - heads[:, 1]
    return Case("two texts of two words, two layers of three heads", {
        "weights": weights, "reader": np.array([0, 1]),
        "target": np.array([1, 0])})


register(Exercise(
    id="most_attentive_head", title="Find the head that reads a word",
    chapter=CHAPTER, difficulty=2, minutes=10,
    task="Which head lets “it” read the adjective? Search all heads of all "
         "layers, in every text.",
    solution=solutions.most_attentive_head,
    stages={"read": _read, "best": lambda s: _best(s.read)}, cases=_texts,
    mistakes=_head_mistakes(), axes=("text", "layer and head"), tiny=_tiny,
    hints=("Which four numbers pick one weight out of one text?",
           "With texts = np.arange(len(weights)), weights[texts, :, :, "
           "reader, target] has the shape (texts, layers, heads).",
           "Flatten layers and heads, take the argmax, and turn it back "
           "with np.unravel_index.")))

register_quiz(CHAPTER, [
    Question(
        "A head gives “it” → “animal” the weight 0.6, the largest of all "
        "heads. What does that prove?",
        [Option("That this head reads “animal” from “it” in this sentence.",
                True, "No more: what the model does with it is another "
                "question."),
         Option("That the model knows what “it” refers to.", False,
                "The best of very many heads looks good by chance on one "
                "sentence. Try it on held-out ones."),
         Option("That “animal” reads “it”.", False,
                "Rows are queries: “it” is the one who reads.",
                mistake="heads-read-turned")]),
    Question(
        "To find the head that reads the adjective, somebody takes the mean "
        "over the heads of each layer first. What goes wrong?",
        [Option("One sharp head disappears among its neighbours.", True,
                "The best head may stand in a layer that is weak on "
                "average.", mistake="heads-best-layer-first"),
         Option("Nothing: the mean keeps the order.", False,
                "The mean is about a layer, and says nothing about one "
                "head."),
         Option("The rows no longer sum to 1.", False,
                "A mean of rows that sum to 1 sums to 1.")]),
])
