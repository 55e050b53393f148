"""Exercises of chapter 15: a GPU kernel."""

import numpy as np
from numpy import ndarray

from course.exercises import solutions
from course.exercises.bank.inputs import Generator
from course.exercises.mistakes.scaling import scale_mistakes
from course.exercises.mistakes.tiling import again_mistakes
from course.exercises.quizzes import Option, Question
from course.exercises.registry import register, register_quiz
from course.exercises.stages import (
    Case,
    Exercise,
    Mistake,
    StageFunction,
    Stages,
    State,
)

CHAPTER = 15


# -- which rows a program has -----------------------------------------------

def _programs(rng: Generator) -> list[Case]:
    last = int(rng.integers(9, 12))  # of 3 blocks of 4, the last is ragged
    sizes = ((2, 4, last), (0, 4, 10), (1, 3, 9), (1, 5, 6), (3, 2, 7),
             (0, 4, 3))
    return [Case(f"program {program} of {-(-length // block)}, block "
                 f"{block}, {length} rows",
                 {"program_id": program, "block": block, "length": length},
                 {"block": block})
            for program, block, length in sizes]


def _place(s: State) -> ndarray:
    return np.arange(s.block)


def _row_mistakes() -> list[Mistake]:
    def mistake(name: str, label: str, effect: str, question: str, why: str,
                fix: str, **wrong: StageFunction) -> Mistake:
        return Mistake(name, label, effect, dict(wrong), why=why,
                       question=question, fix=fix, explained=CHAPTER)

    where = "Program p has the rows p * block to p * block + block - 1."
    rows = "program_id * block + np.arange(block)"
    end = ("Rows are numbered from 0, so the last one is length - 1. What is "
           "compared is the number of the row, not its place in the tile.")
    real = "rows < length"
    fixed = ("A tile has a fixed number of places. Those beyond the end stay, "
             "and the mask says so.")
    return [
        mistake("program-first-rows", "the rows of program 0 for every "
                "program", "program_id plays no part.",
                "Which argument plays no part?", where, rows, rows=_place),
        mistake("program-id-added", "program_id + place, without the block",
                "The tiles overlap: program 1 begins one row after program "
                "0.", "How many rows lie before the first row of program 2?",
                where, rows, rows=lambda s: s.program_id + _place(s)),
        mistake("program-strided", "every n-th row, where there are n "
                "programs", "The rows of a program are not neighbours.",
                "Does one program work on neighbouring rows?", where, rows,
                rows=lambda s: s.program_id + _place(s) * (
                    -(-s.length // s.block))),
        mistake("program-id-from-1", "the rows of the program before",
                "The programs were counted from 1.",
                "Which number has the first program?", where, rows,
                rows=lambda s: (s.program_id - 1) * s.block + _place(s)),
        mistake("program-rows-from-1", "rows that are counted from 1",
                "Every number is one too large.",
                "Which number has the first row?", where, rows,
                rows=lambda s: s.program_id * s.block + _place(s) + 1),
        mistake("program-tile-cut", "a last tile with fewer places",
                "The places beyond the end are missing.",
                "How many places has a tile?", fixed, rows,
                rows=lambda s: _own(s)[_own(s) < s.length]),
        mistake("program-row-repeated", "the last row again at the places "
                "beyond the end", "The numbers were clipped, so the mask "
                "finds nothing to hide.", "What must a program do with "
                "places beyond the end: hide them, or use another row "
                "twice?", fixed, rows,
                rows=lambda s: np.minimum(_own(s), s.length - 1)),
        mistake("program-wrapped", "the first rows again at the places "
                "beyond the end", "The numbers start again at 0.",
                "What must a program do with places beyond the end: hide "
                "them, or use another row twice?", fixed, rows,
                rows=lambda s: _own(s) % s.length),
        mistake("program-one-too-many", "a mask with one row too many",
                "The row number `length` counts as real.",
                "Which number has the last row?", end, real,
                real=lambda s: s.rows <= s.length),
        mistake("program-one-too-few", "a mask without the last row",
                "The row number length - 1 counts as missing.",
                "Which number has the last row?", end, real,
                real=lambda s: s.rows < s.length - 1),
        mistake("program-mask-of-place", "a mask that compares the place in "
                "the tile", "Each tile is masked as if it were the first.",
                "Is `length` compared with the place in the tile or with the "
                "number of the row?", end, real,
                real=lambda s: _place(s) < s.length),
        mistake("program-no-mask", "a mask that is True everywhere",
                "The places beyond the end count as real.",
                "How many rows are left for the last program?", end, real,
                real=lambda s: np.ones(s.rows.shape, bool)),
        mistake("program-mask-inverted", "the mask of the places beyond the "
                "end", "True and False changed places.",
                "What does True mean in this mask?", end, real,
                real=lambda s: s.rows >= s.length),
    ]


def _own(s: State) -> ndarray:
    return s.program_id * s.block + _place(s)


# -- a ragged last tile -----------------------------------------------------

def _key_tiles(rng: Generator) -> list[Case]:
    def case(name: str, query_len: int, key_len: int, head_dim: int,
             start: int, block: int) -> Case:
        query, key = (rng.normal(size=(length, head_dim)) * 1.5
                      for length in (query_len, key_len))
        return Case(name, {"query": query, "key": key, "start": start,
                           "block": block},
                    {"query_len": query_len, "key_len": key_len,
                     "head_dim": head_dim, "block": block})

    return [case("the last tile, one key left", 5, 7, 3, 6, 2),
            case("a whole tile in the middle", 3, 9, 2, 4, 4),
            case("the last tile, two keys left", 2, 10, 5, 8, 4),
            case("one tile that is not full", 3, 3, 2, 0, 4),
            case("all sizes equal", 4, 4, 4, 0, 4)]


def _columns(s: State) -> ndarray:
    return s.start + np.arange(s.block)


def _loaded(s: State) -> ndarray:
    """The keys of the tile, zeros beyond the end."""
    padded = np.concatenate([s.key, np.zeros((s.block, s.key.shape[1]))])
    return padded[_columns(s)]


def _hidden(s: State) -> ndarray:
    return np.where(_columns(s) < len(s.key), s.scaled, -np.inf)


_TILE: Stages = {
    "tile": _loaded, "scores": lambda s: s.query @ s.tile.T,
    "scaled": lambda s: s.scores / np.sqrt(s.key.shape[-1]),
    "masked": _hidden}


def _ragged_mistakes() -> list[Mistake]:
    def mistake(name: str, label: str, effect: str, question: str,
                why: str = "", **wrong: StageFunction) -> Mistake:
        return Mistake(
            name, label, effect, dict(wrong), why=why or (
                "There is no key beyond the last one. Its score must be "
                "-inf: then its weight is 0, and it adds nothing to the sum "
                "of exponentials."),
            question=question,
            fix="np.where(columns < len(key), scores, -np.inf)",
            explained=CHAPTER)

    def shown(s: State) -> ndarray:
        return s.scaled

    return [
        mistake("ragged-zero-score", "a score of 0 for keys that do not "
                "exist", "Beyond the end zeros were loaded, and their scores "
                "of 0 count: each adds exp(0) = 1 to the sum.",
                "What weight does a softmax give to a score of 0?",
                masked=shown),
        mistake("ragged-cut", "a tile that is narrower at the end",
                "The columns beyond the end are missing.",
                "How many columns has every tile?",
                "A kernel's tiles all have the same shape.",
                masked=lambda s: s.scaled[:, _columns(s) < len(s.key)]),
        mistake("ragged-repeated", "the last key again beyond the end",
                "The last key counts more than once.",
                "Which key stands at a place beyond the end?",
                tile=lambda s: s.key[np.minimum(_columns(s),
                                                len(s.key) - 1)],
                masked=shown),
        mistake("ragged-wrapped", "the first keys again beyond the end",
                "The first keys count twice.",
                "Which key stands at a place beyond the end?",
                tile=lambda s: s.key[_columns(s) % len(s.key)],
                masked=shown),
        mistake("ragged-moved-back", "the last tile moved back until it is "
                "full", "Keys of the tile before count twice.",
                "Which keys does the tile before have?",
                tile=lambda s: s.key[min(s.start, len(s.key) - s.block):][
                    :s.block],
                masked=shown),
        mistake("ragged-one-too-many", "one key too many",
                "The first place beyond the end has the score 0.",
                "Which number has the last key?",
                masked=lambda s: np.where(_columns(s) <= len(s.key),
                                          s.scaled, -np.inf)),
        mistake("ragged-one-too-few", "one key too few",
                "The last key is hidden.",
                "Which number has the last key?",
                masked=lambda s: np.where(_columns(s) < len(s.key) - 1,
                                          s.scaled, -np.inf)),
        mistake("ragged-mask-of-place", "a mask that compares the place in "
                "the tile", "Every tile is masked as if it were the first.",
                "Is the number of keys compared with the place in the tile "
                "or with the number of the key?",
                masked=lambda s: np.where(np.arange(s.block) < len(s.key),
                                          s.scaled, -np.inf)),
        mistake("ragged-first-tile", "the first tile, whatever `start` is",
                "`start` plays no part.", "Which argument plays no part?",
                "The tile begins at key number `start`.",
                tile=lambda s: np.concatenate([s.key, np.zeros(
                    (s.block, s.key.shape[1]))])[:s.block]),
        mistake("ragged-large", "-1e9 instead of -inf beyond the end",
                "A huge negative number stands where -inf is asked for.",
                "What is the largest number of float16?",
                "In a tile that has no real key at all, every weight would "
                "be the same instead of 0; and in float16 it does not exist.",
                masked=lambda s: np.where(_columns(s) < len(s.key),
                                          s.scaled, -1e9)),
        mistake("ragged-plus-inf", "+inf instead of -inf beyond the end",
                "A key that does not exist wins.", "Plus or minus?",
                masked=lambda s: np.where(_columns(s) < len(s.key),
                                          s.scaled, np.inf)),
        *(each for each in scale_mistakes(batched=False)
          if each.id != "scale-floor"),
    ]


# -- the way back -----------------------------------------------------------

def _whole_and_tile(rng: Generator, back: bool) -> list[Case]:
    def case(name: str, query_len: int, key_len: int, head_dim: int,
             value_dim: int, start: int, block: int) -> Case:
        query, key = (rng.normal(size=(length, head_dim)) * 1.5
                      for length in (query_len, key_len))
        value = rng.normal(size=(key_len, value_dim))
        powers = np.exp(query @ key.T / np.sqrt(head_dim))
        total = powers.sum(1)
        tile = slice(start, start + block)
        arguments = {"query": query, "key": key[tile]}
        if back:
            arguments |= {
                "value": value[tile],
                "output": powers @ value / total[:, None],
                "grad_output": rng.normal(size=(query_len, value_dim))}
        return Case(name, {**arguments, "log_sum": np.log(total)},
                    {"query_len": query_len, "block": block,
                     "head_dim": head_dim, "value_dim": value_dim})

    return [case("all sizes different", 5, 9, 3, 6, 2, 4),
            case("the last tile", 2, 8, 5, 3, 5, 3),
            case("all sizes equal", 4, 9, 4, 4, 4, 4)]


def _tile_of_keys(rng: Generator) -> list[Case]:
    return _whole_and_tile(rng, back=False)


def _tile_back(rng: Generator) -> list[Case]:
    return _whole_and_tile(rng, back=True)


_AGAIN: Stages = {
    "scores": lambda s: s.query @ s.key.T,
    "scaled": lambda s: s.scores / np.sqrt(s.key.shape[-1]),
    "weights": lambda s: np.exp(s.scaled - s.log_sum[:, None])}


def _tile_gradient_mistakes() -> list[Mistake]:
    fix = "weights * (grad_output @ value.T - average)"

    def mistake(name: str, label: str, effect: str, question: str,
                why: str = "", **wrong: StageFunction) -> Mistake:
        return Mistake(
            name, label, effect, dict(wrong), why=why or (
                "The row's average of the slopes goes over ALL keys, and one "
                "tile does not have them. But it equals the inner product of "
                "grad_output and output, of each query."),
            question=question, fix=fix, explained=CHAPTER)

    return [
        mistake("tile-average-of-tile", "an average over the keys of this "
                "tile alone", "The keys of the other tiles are missing in "
                "the average.", "Over which keys goes the average of a row?",
                average=lambda s: (s.weights * s.grad_weights).sum(
                    1, keepdims=True)),
        mistake("tile-no-average", "slopes from which no average was taken",
                "output plays no part.", "Which argument plays no part?",
                average=lambda s: np.zeros((len(s.query), 1))),
        mistake("tile-average-mean", "a mean where a sum is due",
                "The average was divided by value_dim.",
                "Is an inner product a sum or a mean?",
                average=lambda s: (s.grad_output * s.output).mean(
                    1, keepdims=True)),
        mistake("tile-average-of-all", "one average for all queries",
                "The inner products of all queries were added up.",
                "Does one query's loss reach another query's scores?",
                average=lambda s: (s.grad_output * s.output).sum()),
        mistake("tile-average-of-grad", "the plain sum of grad_output",
                "output plays no part.", "Which argument plays no part?",
                average=lambda s: s.grad_output.sum(1, keepdims=True)),
        mistake("tile-average-added", "an average that was added",
                "The sign of the average is the opposite.",
                "What must the slopes of a whole row sum to?",
                grad_scaled=lambda s: s.weights * (s.grad_weights
                                                   + s.average)),
        mistake("tile-no-weights", "slopes without the factor weights",
                "A key that has no weight is pulled as hard as any other.",
                "What is the slope for the score of a key with weight 0?",
                "d weight / d score carries the weight as a factor.",
                grad_scaled=lambda s: s.grad_weights - s.average),
        mistake("tile-slope-of-product", "the slope for the product before "
                "the scale", "Every number is √head_dim times too small.",
                "For which scores is the slope asked: scaled or not?",
                "The scale belongs to the next step back, to queries and "
                "keys.",
                grad_scaled=lambda s: s.weights * (
                    s.grad_weights - s.average) / np.sqrt(s.key.shape[-1])),
        mistake("tile-slope-of-weights", "the slope for the weights",
                "The way back through the softmax is missing.",
                "Which step of the way forward lies between scores and "
                "weights?", "The softmax has a way back of its own.",
                grad_scaled=lambda s: s.grad_weights),
    ]


# -- small examples ---------------------------------------------------------

def _tiny_program() -> Case:
    return Case("program 1, blocks of 3, 5 rows", {
        "program_id": 1, "block": 3, "length": 5}, {"block": 3})


def _tiny_ragged() -> Case:
    return Case("one query, three keys, the tile from key 2 on", {
        "query": np.array([[2.0, 0.0, 0.0, 2.0]]),
        "key": np.array([[1.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 2.0],
                         [3.0, 0.0, 0.0, 1.0]]), "start": 2, "block": 2})


def _tiny_again() -> Case:
    return Case("two queries, a tile of two keys; all sums are 4", {
        "query": np.array([[2.0, 0.0, 0.0, 0.0], [0.0, 2.0, 0.0, 0.0]]),
        "key": np.array([[1.0, 0.0, 0.0, 0.0], [0.0, 0.5, 0.0, 0.0]]),
        "log_sum": np.log([4.0, 8.0])})


def _tiny_back() -> Case:
    return Case("two queries, a tile of two keys", {
        "query": np.array([[2.0, 0.0, 0.0, 0.0], [0.0, 2.0, 0.0, 0.0]]),
        "key": np.array([[1.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0]]),
        "value": np.array([[4.0, 1.0], [0.0, 3.0]]),
        "output": np.array([[1.0, 2.0], [2.0, 0.0]]),
        "grad_output": np.array([[1.0, 2.0], [3.0, 1.0]]),
        "log_sum": np.log([8.0, 4.0])})


register(Exercise(
    id="rows_of_program", title="Which rows are mine?", chapter=CHAPTER,
    difficulty=1, minutes=5,
    task="All programs of a grid run the same lines; only their number "
         "differs. From it each finds its rows, and masks what lies beyond "
         "the end.",
    solution=solutions.rows_of_program,
    stages={"rows": _own, "real": lambda s: s.rows < s.length,
            "answer": lambda s: (s.rows, s.real)},
    cases=_programs, mistakes=_row_mistakes(), axes=("block",), many=2,
    names=("rows", "real"), tiny=_tiny_program,
    hints=("How many rows do the programs before this one have, together?",
           "program_id * block rows lie before; then come places 0 to "
           "block - 1.",
           "rows = program_id * block + np.arange(block); a row is real if "
           "its number is below length.")))

register(Exercise(
    id="scores_of_key_tile", title="The ragged last tile", chapter=CHAPTER,
    difficulty=2, minutes=10,
    task="A kernel's tiles all have the same shape, and the keys seldom "
         "come out even. Write the scores of one tile so that the places "
         "beyond the last key add nothing to a softmax.",
    solution=solutions.scores_of_key_tile, stages=_TILE, cases=_key_tiles,
    mistakes=_ragged_mistakes(), axes=("query_len", "block"),
    tiny=_tiny_ragged,
    hints=("Which score gives a key no weight at all: 0?",
           "Load zeros beyond the end, compute the scores, and then write "
           "-inf over the columns that have no key.",
           "columns = start + np.arange(block); a column is real if it is "
           "below len(key).")))

register(Exercise(
    id="weights_of_tile", title="The weights, once more", chapter=CHAPTER,
    difficulty=1, minutes=6,
    task="The backward kernel has no stored weights. It has one number for "
         "each query, and computes the weights of a tile again.",
    solution=solutions.weights_of_tile, stages=_AGAIN, cases=_tile_of_keys,
    mistakes=[*again_mistakes(), *scale_mistakes(batched=False)],
    axes=("query_len", "block"), tiny=_tiny_again,
    hints=("A weight is exp(score) over the sum of all exponentials. Which "
           "argument knows that sum?",
           "log_sum is its logarithm, and a division is a minus inside exp.",
           "np.exp(scores - log_sum[:, None]): one number for each query, so "
           "it is laid down the rows.")))

register(Exercise(
    id="score_gradient_of_tile", title="A tile on the way back",
    chapter=CHAPTER, difficulty=3, minutes=12,
    task="The way back through the softmax needs an average over the whole "
         "row. A tile does not have the row. Get the average from what the "
         "way forward kept.",
    solution=solutions.score_gradient_of_tile,
    stages={**_AGAIN, "grad_weights": lambda s: s.grad_output @ s.value.T,
            "average": lambda s: (s.grad_output * s.output).sum(
                1, keepdims=True),
            "grad_scaled": lambda s: s.weights * (s.grad_weights
                                                  - s.average)},
    cases=_tile_back,
    mistakes=[*again_mistakes(), *_tile_gradient_mistakes(),
              *scale_mistakes(batched=False)],
    axes=("query_len", "block"), tiny=_tiny_back,
    hints=("The average is the sum over all keys of weight * (grad_output @ "
           "value). What is the sum over all keys of weight * value?",
           "It is the output. So the average is grad_output @ output, query "
           "by query.",
           "average = (grad_output * output).sum(axis=1, keepdims=True); "
           "weights as in weights_of_tile.")))

register_quiz(CHAPTER, [
    Question(
        "A length of 1,000 is cut into tiles of 128. How many programs does "
        "the grid need, and what do the last one's spare places do?",
        [Option("8; they are masked.", True,
                "7 tiles hold 896 rows; the eighth has 104 real rows and 24 "
                "places that are masked."),
         Option("7; there are no spare places.", False,
                "Then the last 104 rows are never computed.",
                mistake="tiles-ragged-lost"),
         Option("8; they read the row before again.", False,
                "A key that is read twice counts twice.",
                mistake="ragged-repeated")]),
    Question(
        "Beyond the last key a kernel loads zeros and leaves their scores as "
        "they are. What is the symptom?",
        [Option("The weights of real keys are too small, for some lengths "
                "only.", True,
                "Each spare place adds exp(0) to the sum. A length that comes "
                "out even hides it.", mistake="ragged-zero-score"),
         Option("None: zeros have no weight.", False,
                "A score of 0 has the weight of any score of 0.",
                mistake="ragged-zero-score"),
         Option("NaN in the last rows.", False,
                "All numbers are finite, which makes it hard to see.")]),
], shapes=("scores_of_key_tile",))
