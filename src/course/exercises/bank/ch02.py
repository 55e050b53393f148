"""Exercises of chapter 2: scoring one word."""

import numpy as np
from numpy import ndarray

from course.exercises import solutions
from course.exercises.bank.inputs import Generator
from course.exercises.mistakes.common import softmax
from course.exercises.mistakes.normalising import (
    overflow_mistakes,
    softmax_mistakes,
)
from course.exercises.mistakes.scaling import scale_mistakes
from course.exercises.predictions import Prediction, outcomes_of
from course.exercises.quizzes import Option, Question
from course.exercises.registry import register, register_quiz
from course.exercises.stages import Case, Exercise, Mistake, State

CHAPTER = 2
SOFTMAX = "from self_attention.numpy_reference import softmax"


def _pair(rng: Generator) -> list[Case]:
    return [Case(f"head_dim = {size}",
                 {"query": rng.normal(size=size), "key": rng.normal(size=size)
                  }, {"head_dim": size}) for size in (5, 8)]


def _one_query(rng: Generator, *, values: bool = False) -> list[Case]:
    def case(name: str, key_len: int, head_dim: int,
             value_dim: int) -> Case:
        # Small, or a wrong scale would leave one weight of 1 in any case.
        arguments = {"query": rng.normal(size=head_dim) * 0.6,
                     "keys": rng.normal(size=(key_len, head_dim)) * 0.6}
        dims = {"key_len": key_len, "head_dim": head_dim}
        if values:
            arguments["values"] = rng.normal(size=(key_len, value_dim))
            dims["value_dim"] = value_dim
        return Case(name, arguments, dims)

    return [case("all sizes different", 7, 5, 3),
            case("all sizes equal", 4, 4, 4)]


def _with_values(rng: Generator) -> list[Case]:
    return _one_query(rng, values=True)


def _scores_of_one(rng: Generator) -> list[Case]:
    return [Case("small scores", {"scores": rng.normal(size=6) * 2},
                 {"key_len": 6}),
            Case("a score of 1000", {"scores": np.append(
                rng.normal(size=3), 1000 + rng.normal())}, {"key_len": 4}),
            Case("scores around -1000", {"scores": rng.normal(size=5) - 1000},
                 {"key_len": 5})]


def _pair_mistakes() -> list[Mistake]:
    fix = "query @ key"

    def cosine(s: State) -> ndarray:
        sizes = np.linalg.norm(s.query) * np.linalg.norm(s.key)
        return s.query @ s.key / sizes

    return [
        Mistake("elementwise", "query * key, number by number",
                "The products were not added up.",
                {"score": lambda s: s.query * s.key},
                why="The score is one number: the sum of the products.",
                question="How many numbers is one score?", fix=fix,
                explained=CHAPTER),
        Mistake("score-scaled", "the score divided by √head_dim",
                "The division comes in a later step.",
                {"score": lambda s: s.query @ s.key / np.sqrt(s.key.size)},
                why="Here the plain dot product is asked for.",
                question="Does the task ask for the scaled score?", fix=fix,
                explained=CHAPTER),
        Mistake("product-of-sums", "the sum of the query times the sum of "
                "the key", "Every number met every other.",
                {"score": lambda s: s.query.sum() * s.key.sum()},
                why="In a dot product entry i meets entry i alone.",
                question="Which entries are multiplied with each other?",
                fix=fix, explained=CHAPTER),
        Mistake("outer", "all products of two entries, a table",
                "Every number met every other.",
                {"score": lambda s: np.outer(s.query, s.key)},
                why="In a dot product entry i meets entry i alone.",
                question="How many numbers is one score?", fix=fix,
                explained=CHAPTER),
        Mistake("cosine", "the cosine of the angle between the two",
                "The lengths of the vectors were divided out.",
                {"score": cosine},
                why="The score keeps the lengths: a longer key matches more "
                    "strongly.",
                question="Do the lengths of the vectors count?", fix=fix,
                explained=CHAPTER),
        Mistake("mean-of-products", "the mean of the products",
                "The sum was divided by head_dim.",
                {"score": lambda s: (s.query * s.key).mean()},
                why="A dot product is a sum.",
                question="Sum or mean?", fix=fix, explained=CHAPTER),
        Mistake("sum-of-both", "the sum of query and key",
                "The entries were added instead of multiplied.",
                {"score": lambda s: (s.query + s.key).sum()},
                why="Products are large where both are large and have the "
                    "same sign; sums are not.",
                question="Is 3 with -3 a good match or a bad one?", fix=fix,
                explained=CHAPTER),
    ]


def _query_mistakes() -> list[Mistake]:
    fix = "keys @ query / np.sqrt(query.shape[-1])"
    return [
        Mistake("elementwise", "keys * query, number by number",
                "The products were not added up.",
                {"scores": lambda s: s.keys * s.query},
                why="Each key gives one score.",
                question="How many scores do 7 keys give?", fix=fix,
                explained=CHAPTER),
        Mistake("q-with-q", "the query's score for itself",
                "The keys play no part.",
                {"scores": lambda s: np.broadcast_to(
                    s.query @ s.query, s.keys.shape[:1])},
                why="The query is compared with every key.",
                question="Which argument plays no part?", fix=fix,
                in_pairs=False, explained=CHAPTER),
        Mistake("keys-transposed", "keys.T @ query",
                "Column j of the keys was taken for key j.",
                {"scores": lambda s: s.keys.T @ s.query},
                why="A key is a row.",
                question="Is a key a row or a column?", fix=fix,
                explained=CHAPTER),
    ]


def _average_mistakes() -> list[Mistake]:
    fix = "weights @ values"
    return [
        Mistake("uses-k-as-v", "weights @ keys",
                "The keys were averaged instead of the values.",
                {"output": lambda s: s.weights @ s.keys},
                why="Keys say where to look; values say what is read there.",
                question="What is read at the place that the keys point to?",
                fix=fix, explained=CHAPTER),
        Mistake("returns-weights", "the weights, not the output",
                "The values have not been averaged yet.",
                {"output": lambda s: s.weights},
                why="The weights say how much of each value goes into the "
                    "output.",
                question="What is left to do with the values?", fix=fix,
                explained=CHAPTER),
        Mistake("values-not-summed", "the weighted values, not added up",
                "There is one row for each key.",
                {"output": lambda s: s.weights[:, None] * s.values},
                why="The output of one query is one vector.",
                question="How many vectors is the output of one query?",
                fix=fix, explained=CHAPTER),
        Mistake("values-not-broadcast", "weights * values, weight by column",
                "Weight j was taken for feature j instead of word j; that "
                "works only where there are as many words as features.",
                {"output": lambda s: (s.weights * s.values).sum(0)},
                why="Broadcasting lines up the last axes: the weights need "
                    "an axis of length 1 behind them, or a product.",
                question="With which axis of the values does NumPy line up "
                         "the weights?",
                fix=fix, explained=CHAPTER),
        Mistake("v-transposed", "values.T in place of values",
                "Features and words changed places.",
                {"output": lambda s: s.weights @ s.values.T},
                why="Row i of the values belongs to word i, as weight i "
                    "does.",
                question="Which axis of the values counts words?", fix=fix,
                explained=CHAPTER),
        Mistake("values-averaged", "the plain mean of the values",
                "The weights play no part.",
                {"output": lambda s: s.values.mean(0)},
                why="The weights decide how much each value counts.",
                question="Does your result depend on the query?", fix=fix,
                in_pairs=False, explained=CHAPTER),
    ]


def _tiny_pair() -> Case:
    return Case("two vectors", {"query": np.array([1.0, 2.0]),
                                "key": np.array([3.0, 1.0])})


def _tiny_query() -> Case:
    return Case("two keys", {
        "query": np.array([2.0, 0.0]),
        "keys": np.array([[1.0, 1.0], [3.0, 0.0]]),
        "values": np.array([[4.0, 1.0], [0.0, 8.0]])})


def _scores(s: State) -> ndarray:
    return s.keys @ s.query


def _scaled(s: State) -> ndarray:
    return s.scores / np.sqrt(s.keys.shape[-1])


register(Exercise(
    id="score_of_pair", title="The score of one pair", chapter=CHAPTER,
    difficulty=1, minutes=3,
    task="How well does one key answer one query? Write the number that "
         "attention uses for it.",
    solution=solutions.score_of_pair,
    stages={"score": lambda s: s.query @ s.key}, cases=_pair,
    mistakes=_pair_mistakes(), axes=(), tiny=_tiny_pair,
    hints=("For (1, 2) and (3, 1) the score is 5. Where does 5 come from?",
           "Multiply entry by entry, then add up.",
           "`query @ key` does both.")))

register(Exercise(
    id="scores_of_one_query", title="One query, all keys", chapter=CHAPTER,
    difficulty=1, minutes=5,
    task="A query is compared with every key of the sentence, its own word's "
         "key included. Give all its scores at once, scaled.",
    solution=solutions.scores_of_one_query,
    stages={"scores": _scores, "scaled": _scaled}, cases=_one_query,
    mistakes=[*_query_mistakes(),
              *scale_mistakes(key="keys", batched=False)],
    axes=("key_len",), tiny=_tiny_query,
    hints=("How many numbers must come out for 7 keys?",
           "Row j of the keys times the query is score j.",
           "`keys @ query`, then divide by the root of the width of ONE "
           "key.")))

register(Exercise(
    id="weights_of_one_query", title="Scores into weights", chapter=CHAPTER,
    difficulty=1, minutes=5,
    task="Scores may be negative and sum to anything. Turn those of one "
         "query into weights: positive, and 1 in total.",
    solution=solutions.weights_of_one_query,
    stages={"weights": lambda s: softmax(s.scores)}, cases=_scores_of_one,
    mistakes=[*softmax_mistakes("scores", axes=1),
              *(m for m in overflow_mistakes("scores")
                if m.id != "softmax-global-max")],
    axes=("key_len",),
    hints=("Which function makes every number positive and keeps their "
           "order?",
           "exp of each score, divided by the sum of all of them.",
           "exp(1000) overflows. Subtract the largest score first: that "
           "changes no weight.")))

register(Exercise(
    id="attend_with_one_query", title="From query to output",
    chapter=CHAPTER, difficulty=2, minutes=8,
    task="Put the steps together for one query: scores, scale, softmax, and "
         "the sum of the values, each times its weight.",
    solution=solutions.attend_with_one_query, imports=(SOFTMAX,),
    stages={"scores": _scores, "scaled": _scaled,
            "weights": lambda s: softmax(s.scaled),
            "output": lambda s: s.weights @ s.values},
    cases=_with_values,
    mistakes=[*(m for m in _query_mistakes() if m.id != "elementwise"),
              *scale_mistakes(key="keys", weights="weights", batched=False),
              *(m for m in softmax_mistakes(axes=1)),
              *_average_mistakes()],
    axes=("value_dim",), tiny=_tiny_query,
    hints=("Which shape has your result after each of the four steps?",
           "(key_len,), (key_len,), (key_len,), (value_dim,).",
           "weights = softmax(keys @ query / np.sqrt(head_dim)); then "
           "weights @ values.")))


def _example() -> Case:
    from course.examples import thinking_machines
    words = thinking_machines()
    return Case("", {"query": (words.X @ words.W_q)[0],
                     "keys": words.X @ words.W_k,
                     "values": words.X @ words.W_v})


register(Prediction(
    id="predict_first_weight", title="One weight in numbers",
    chapter=CHAPTER, difficulty=2, minutes=3,
    task="The query of “Thinking” has the scores 112 (for itself) and 96 "
         "(for “Machines”); head_dim is 64. Predict the weight that "
         "“Thinking” gives to itself, to two digits. exp(-2) is about "
         "0.135.",
    form="number", placeholder="...  # a number such as 0.25", digits=2,
    solution=solutions.predict_first_weight,
    outcomes=lambda: outcomes_of(
        "attend_with_one_query", _example(),
        lambda result: float(result), stage="weights", index=0),
    hints=("By what are the scores divided, and what is left of 112 and 96?",
           "14 and 12: their difference is 2.",
           "The weight is 1 / (1 + exp(-2)).")))

register_quiz(CHAPTER, [
    Question(
        "The scores of one query are 14 and 12. What happens to the weights "
        "if 100 is added to both?",
        [Option("Nothing.", True,
                "Both exponentials grow by the same factor, which the "
                "division takes out again. That is why the maximum may be "
                "subtracted."),
         Option("Both grow.", False, "They still sum to 1."),
         Option("The first one becomes 1.", False,
                "That would take a larger difference between the scores, as "
                "when the division by 8 is left out.", mistake="no-scale")]),
    Question(
        "In “softmax the scores and divide by 8” the steps are in the wrong "
        "order. What is the symptom?",
        [Option("The weights sum to 1/8.", True,
                "A division after the softmax makes all weights smaller and "
                "leaves them as peaked as before.",
                mistake="scale-after-softmax"),
         Option("None: the order does not matter.", False,
                "exp is not linear: softmax(scores / 8) and softmax(scores) "
                "/ 8 differ."),
         Option("The weights become negative.", False,
                "Neither exp nor a division by 8 gives a negative "
                "number.")]),
], shapes=("attend_with_one_query",))
