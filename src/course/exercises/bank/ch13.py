"""Exercises of chapter 13: adding embeddings."""

from collections.abc import Callable

import numpy as np
from numpy import ndarray

from course.exercises import solutions
from course.exercises.bank.inputs import Generator
from course.exercises.quizzes import Option, Question
from course.exercises.registry import register, register_quiz
from course.exercises.stages import Case, Exercise, Mistake, State

CHAPTER = 13


def _ids(rng: Generator) -> list[Case]:
    def case(seq_len: int, tokens: int, positions: int,
             segments: int) -> Case:
        first = int(rng.integers(1, seq_len))
        return Case(f"{seq_len} tokens of {tokens}", {
            "token_ids": rng.integers(0, tokens, size=seq_len),
            "segment_ids": (np.arange(seq_len) >= first).astype(int),
            "num_tokens": tokens, "num_positions": positions,
            "num_segments": segments},
            {"seq_len": seq_len, "num_tokens": tokens,
             "num_positions": positions, "num_segments": segments})

    return [case(6, 11, 8, 3), case(5, 9, 7, 2), case(8, 8, 8, 8)]


def _sums(rng: Generator) -> list[Case]:
    def case(name: str, seq_len: int, embed_dim: int,
             head_dim: int) -> Case:
        return Case(name, {
            "word": rng.normal(size=(seq_len, embed_dim)),
            "position": rng.normal(size=(seq_len, embed_dim)),
            "W_q": rng.normal(size=(embed_dim, head_dim)) / 2,
            "W_k": rng.normal(size=(embed_dim, head_dim)) / 2},
            {"seq_len": seq_len, "embed_dim": embed_dim,
             "head_dim": head_dim})

    return [case("all sizes different", 5, 7, 3),
            case("all sizes equal", 6, 6, 6)]


def _rows(s: State, *columns: ndarray, width: int | None = None) -> ndarray:
    """Zeros, with a one in each of the given columns of each row."""
    places = np.arange(len(s.token_ids))
    size = s.num_tokens + s.num_positions + s.num_segments
    rows = np.zeros((len(places), size if width is None else width))
    for column in columns:
        rows[places, column] = 1
    return rows


def _three_hot(s: State) -> ndarray:
    places = np.arange(len(s.token_ids))
    return _rows(s, s.token_ids, s.num_tokens + places,
                 s.num_tokens + s.num_positions + s.segment_ids)


def _hot_mistakes() -> list[Mistake]:
    fix = ("columns token_ids, num_tokens + place, and num_tokens + "
           "num_positions + segment_ids")
    why = ("The tables stand one below the other: tokens, then positions, "
           "then segments. The columns must be counted the same way.")

    def mistake(name: str, label: str, effect: str, question: str,
                give: Callable[[State, ndarray], ndarray],
                same_as: str = "") -> Mistake:
        return Mistake(
            name, label, effect,
            {"rows": lambda s: give(s, np.arange(len(s.token_ids)))},
            why=why, question=question, fix=fix, same_as=same_as,
            explained=CHAPTER)

    def added(s: State, places: ndarray) -> ndarray:
        return sum(_rows(s, column) for column in (
            s.token_ids, places, s.segment_ids))

    def size(s: State) -> int:
        return s.num_tokens + s.num_positions + s.num_segments

    return [
        mistake("hot-no-offsets", "columns that all count from 0",
                "Positions and segments were looked up in the token table.",
                "In which row of the stacked tables stands position 0?",
                lambda s, t: _rows(s, s.token_ids, t, s.segment_ids)),
        mistake("hot-no-offsets-added", "columns that all count from 0",
                "Positions and segments were looked up in the token table.",
                "In which row of the stacked tables stands position 0?",
                added, same_as="hot-no-offsets"),
        mistake("hot-segment-offset", "segments counted from the end of the "
                "tokens", "The segment was looked up in the position table.",
                "How many rows stand above segment 0?",
                lambda s, t: _rows(s, s.token_ids, s.num_tokens + t,
                                   s.num_tokens + s.segment_ids)),
        mistake("hot-order", "segments before positions",
                "The last two blocks are in each other's place.",
                "In which order are the tables stacked?",
                lambda s, t: _rows(
                    s, s.token_ids, s.num_tokens + s.segment_ids,
                    s.num_tokens + s.num_segments + t)),
        mistake("hot-positions-first", "positions before tokens",
                "The first two blocks are in each other's place.",
                "In which order are the tables stacked?",
                lambda s, t: _rows(
                    s, t, s.num_positions + s.token_ids,
                    s.num_tokens + s.num_positions + s.segment_ids)),
        mistake("hot-positions-from-1", "positions that count from 1",
                "The first token has position 1.",
                "Which position has the first token?",
                lambda s, t: _rows(
                    s, s.token_ids, s.num_tokens + t + 1,
                    s.num_tokens + s.num_positions + s.segment_ids)),
        mistake("hot-tokens-only", "the token alone",
                "Positions and segments are missing.",
                "How many ones has each row?",
                lambda s, t: _rows(s, s.token_ids)),
        mistake("hot-no-segment", "token and position alone",
                "The segments are missing.", "How many ones has each row?",
                lambda s, t: _rows(s, s.token_ids, s.num_tokens + t)),
        mistake("hot-same-position", "position 0 for every token",
                "All tokens stand at the same place.",
                "Does your position depend on the row?",
                lambda s, t: _rows(
                    s, s.token_ids, s.num_tokens + 0 * t,
                    s.num_tokens + s.num_positions + s.segment_ids)),
        mistake("hot-ids", "the ids instead of ones",
                "Where a 1 should stand there is the number of the row.",
                "By what is a row multiplied when it is looked up?",
                lambda s, t: _three_hot(s) * np.repeat(
                    np.stack([s.token_ids, t, s.segment_ids], 1),
                    [s.num_tokens, s.num_positions, s.num_segments], 1)),
        mistake("hot-transposed", "the transposed matrix",
                "Tokens stand in columns.",
                "What must its shape be, for the product with (rows of the "
                "tables, embed_dim)?",
                lambda s, t: _three_hot(s).T),
    ]


def _terms(s: State) -> ndarray:
    scale = np.sqrt(s.W_k.shape[-1])
    return np.stack([(a @ s.W_q) @ (b @ s.W_k).T / scale
                     for a in (s.word, s.position)
                     for b in (s.word, s.position)])


def _term_mistakes() -> list[Mistake]:
    fix = "(asks @ W_q) @ (answers @ W_k).T / np.sqrt(head_dim)"
    exact = ("The four terms must add up to the scores of word + position, "
             "entry by entry.")
    sum_question = "Do your four terms add up to the scores of the sum?"

    def mistake(name: str, label: str, effect: str, why: str, question: str,
                give: Callable[[State], ndarray]) -> Mistake:
        return Mistake(name, label, effect, {"terms": give}, why=why,
                       question=question, fix=fix, explained=CHAPTER)

    def picked(order: list[int]) -> Callable[[State], ndarray]:
        return lambda s: _terms(s)[order]

    def scaled_once(s: State) -> ndarray:
        root = np.sqrt(s.W_k.shape[-1])
        return _terms(s) * np.array([1, root, root, root])[:, None, None]

    def one_matrix(s: State) -> ndarray:
        return np.stack([(a @ s.W_q) @ (b @ s.W_q).T
                         / np.sqrt(s.W_k.shape[-1])
                         for a in (s.word, s.position)
                         for b in (s.word, s.position)])

    return [
        mistake("terms-cross-swapped", "the two mixed terms in each other's "
                "place", "Word with position stands where position with "
                "word belongs.", "The query is named first, and queries are "
                "made with W_q.", "Which of the two is the query in the "
                "second term?", picked([0, 2, 1, 3])),
        mistake("terms-cross-doubled", "word with position in both mixed "
                "places", "Position with word is missing.",
                "The two mixed terms differ: W_q and W_k are not the same. "
                + exact, sum_question, picked([0, 1, 1, 3])),
        mistake("terms-cross-transposed", "word with position transposed in "
                "place of position with word", "The third term is the "
                "second one turned.",
                "Only with W_q = W_k are the two the transposes of each "
                "other.", "Which matrix belongs to the position when the "
                "position asks?",
                lambda s: np.stack([_terms(s)[0], _terms(s)[1],
                                    _terms(s)[1].T, _terms(s)[3]])),
        mistake("terms-no-cross", "mixed terms of 0",
                "Words and positions were taken to ignore each other.",
                exact, sum_question,
                lambda s: _terms(s) * np.array([1, 0, 0, 1])[
                    :, None, None]),
        mistake("terms-no-scale", "the terms without the factor 1/√head_dim",
                "All are √head_dim times too large.",
                "Scaled scores are asked for.",
                "By what is a score divided before the softmax?",
                lambda s: _terms(s) * np.sqrt(s.W_k.shape[-1])),
        mistake("terms-scale-on-one", "the scale on the first term alone",
                "The three others are √head_dim times too large.",
                "A sum is divided by dividing every term.", sum_question,
                scaled_once),
        mistake("terms-scale-by-embed", "the terms divided by √embed_dim",
                "The width of the embedding was used instead of that of the "
                "head.", "The dot product has head_dim terms.",
                "How many products does one score add up?",
                lambda s: _terms(s) * np.sqrt(
                    s.W_k.shape[-1] / s.W_k.shape[0])),
        mistake("terms-one-matrix", "W_q used for the keys too",
                "W_k plays no part.",
                "What a word answers to is made with W_k.",
                "Which matrix plays no part?", one_matrix),
        mistake("terms-transposed", "every term transposed",
                "Queries stand across and keys down.",
                "Row i belongs to query i.",
                "What belongs to a row: a query or a key?",
                lambda s: _terms(s).swapaxes(1, 2)),
        mistake("terms-sum", "the sum of the four terms",
                "The scores were not split.", "Each term is asked for by "
                "itself.", "How many axes must the result have?",
                lambda s: _terms(s).sum(0)),
    ]


def _tiny_ids() -> Case:
    return Case("two tokens", {
        "token_ids": np.array([2, 0]), "segment_ids": np.array([0, 1]),
        "num_tokens": 3, "num_positions": 3, "num_segments": 2})


def _tiny_sum() -> Case:
    return Case("two words, width 2, head of 4", {
        "word": np.array([[1.0, 2.0], [2.0, 1.0]]),
        "position": np.array([[3.0, 0.0], [0.0, 1.0]]),
        "W_q": np.array([[2.0, 0.0, 0.0, 0.0], [0.0, 2.0, 0.0, 0.0]]),
        "W_k": np.array([[1.0, 1.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0]])})


register(Exercise(
    id="three_hot", title="Three look-ups in one row", chapter=CHAPTER,
    difficulty=2, minutes=8,
    task="Adding the embeddings of token, position and segment is one "
         "product with three tables stacked on each other. Build the matrix "
         "of zeros and ones that does it.",
    solution=solutions.three_hot, stages={"rows": _three_hot}, cases=_ids,
    mistakes=_hot_mistakes(), axes=("token", "row of the tables"),
    tiny=_tiny_ids,
    hints=("In which row of the stacked tables does the position table "
           "begin?",
           "Below all the tokens: at num_tokens. The segments begin at "
           "num_tokens + num_positions.",
           "rows[places, num_tokens + places] = 1 sets the positions.")))

register(Exercise(
    id="score_terms", title="One score, four terms", chapter=CHAPTER,
    difficulty=2, minutes=8,
    task="The embedding is a sum, so every score is a sum of four: who asks "
         "may be the word or its position, and so may who answers. Take the "
         "scores apart.",
    solution=solutions.score_terms, stages={"terms": _terms}, cases=_sums,
    mistakes=_term_mistakes(), axes=("term", "query", "key"),
    tiny=_tiny_sum,
    hints=("What is (w + p) @ W_q, multiplied out?",
           "(w + p) @ W_q is w @ W_q + p @ W_q, and so for the keys. Their "
           "product has four terms.",
           "(asks @ W_q) @ (answers @ W_k).T / np.sqrt(head_dim), for asks "
           "and answers in (word, position).")))

register_quiz(CHAPTER, [
    Question(
        "Token ids run from 0 to 8, and the position table stands below the "
        "token table. Position 0 is looked up in row 0. What is added?",
        [Option("The embedding of token 0.", True,
                "The rows of the stacked tables are counted on: position 0 "
                "stands in row 9.", mistake="hot-no-offsets"),
         Option("The first position.", False, "That stands in row 9."),
         Option("Nothing: row 0 is empty.", False,
                "Row 0 holds the embedding of token 0.")]),
    Question(
        "Is the term word–position the transpose of the term "
        "position–word?",
        [Option("Only if W_q and W_k are equal.", True,
                "In one the word asks, in the other it answers, each with "
                "its own matrix."),
         Option("Always: a dot product does not care about the order.",
                False, "The matrices change sides with it.",
                mistake="terms-cross-transposed"),
         Option("Never.", False, "With W_q = W_k it is.")]),
], shapes=("score_terms",))
