"""Exercises of chapter 16: decoding."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy import ndarray

from course.exercises import solutions
from course.exercises.bank.inputs import Generator
from course.exercises.mistakes.common import softmax, swap
from course.exercises.mistakes.heads import split_mistakes
from course.exercises.mistakes.normalising import softmax_mistakes
from course.exercises.mistakes.scaling import scale_mistakes
from course.exercises.predictions import Prediction, outcomes_of
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

CHAPTER = 16


# -- one step ---------------------------------------------------------------

def _steps(rng: Generator) -> list[Case]:
    def case(name: str, batch: int, num_heads: int, length: int,
             head_dim: int) -> Case:
        old, new = ((batch, num_heads, size, head_dim)
                    for size in (length, 1))
        return Case(name, {
            "cached_keys": rng.normal(size=old) * 1.5,
            "cached_values": rng.normal(size=old),
            "query": rng.normal(size=new) * 1.5,
            "key": rng.normal(size=new) * 1.5,
            "value": rng.normal(size=new)},
            {"batch": batch, "num_heads": num_heads, "length": length,
             "length + 1": length + 1, "head_dim": head_dim})

    return [case("all sizes different", 2, 3, 5, 4),
            case("all sizes equal", 3, 3, 3, 3),
            case("one old token", 2, 2, 1, 3)]


_STEP: Stages = {
    "keys": lambda s: np.concatenate([s.cached_keys, s.key], 2),
    "values": lambda s: np.concatenate([s.cached_values, s.value], 2),
    "scores": lambda s: s.query @ swap(s.keys),
    "scaled": lambda s: s.scores / np.sqrt(s.keys.shape[-1]),
    "weights": lambda s: softmax(s.scaled),
    "output": lambda s: s.weights @ s.values,
    "step": lambda s: (s.output, s.keys, s.values)}


def _first_key_alone(s: State) -> ndarray:
    allowed = np.arange(s.scaled.shape[-1]) == 0
    return softmax(np.where(allowed, s.scaled, -np.inf))


def _overwritten(old: ndarray, new: ndarray) -> ndarray:
    return np.concatenate([old[:, :, :-1], new], 2)


def _pushed_out(old: ndarray, new: ndarray) -> ndarray:
    return np.concatenate([old[:, :, 1:], new], 2)


def _step_mistakes() -> list[Mistake]:
    fix = "np.concatenate([cached_keys, key], axis=2)"

    def mistake(name: str, label: str, effect: str, question: str, why: str,
                **wrong: StageFunction) -> Mistake:
        return Mistake(name, label, effect, dict(wrong), why=why,
                       question=question, fix=fix, explained=CHAPTER)

    itself = "A token attends to itself too: append first, then attend."
    grows = ("Each token read adds one key and one value at the end. The old "
             "ones stay.")
    return [
        mistake("cache-not-appended", "a cache that stays as it was",
                "The new token neither attends to itself, nor will a later "
                "one see it.", "How long are the caches after the step?",
                grows, keys=lambda s: s.cached_keys,
                values=lambda s: s.cached_values),
        mistake("cache-attends-to-old", "attention to the old tokens alone",
                "The new token did not see itself.",
                "Does a token attend to itself?", itself,
                scores=lambda s: s.query @ swap(s.cached_keys),
                output=lambda s: s.weights @ s.cached_values),
        mistake("cache-new-only", "the new key and value alone",
                "The old tokens are forgotten; the only weight is 1.",
                "What is the cache for?", grows, keys=lambda s: s.key,
                values=lambda s: s.value),
        mistake("cache-attends-to-new", "attention to the new token alone",
                "The only weight is 1, so the output is the new value.",
                "Which tokens does the newest one see?",
                "The newest token sees all that were read, and itself.",
                scores=lambda s: s.query @ swap(s.key),
                output=lambda s: s.weights @ s.value),
        mistake("cache-at-front", "the new token before the old ones",
                "The sum over the keys has no order, so the output does not "
                "show it. But the next mask will go by the slots' order.",
                "Where does the newest token stand?", grows,
                keys=lambda s: np.concatenate([s.key, s.cached_keys], 2),
                values=lambda s: np.concatenate(
                    [s.value, s.cached_values], 2)),
        mistake("cache-last-overwritten", "the new token in the place of the "
                "last old one", "The token before was lost.",
                "How many tokens are in the cache after the step?", grows,
                keys=lambda s: _overwritten(s.cached_keys, s.key),
                values=lambda s: _overwritten(s.cached_values, s.value)),
        mistake("cache-first-dropped", "a cache that dropped its oldest "
                "token", "The caches are as long as before.",
                "How many tokens are in the cache after the step?", grows,
                keys=lambda s: _pushed_out(s.cached_keys, s.key),
                values=lambda s: _pushed_out(s.cached_values, s.value)),
        mistake("cache-key-as-value", "the new key in the cache of the "
                "values", "The new value plays no part.",
                "Which argument plays no part?", grows,
                values=lambda s: np.concatenate(
                    [s.cached_values, s.key], 2)),
        mistake("cache-query-kept", "the query in the cache of the keys",
                "The new key plays no part.",
                "Which argument plays no part?", "Old queries are never "
                "needed again; old keys are.",
                keys=lambda s: np.concatenate([s.cached_keys, s.query], 2)),
        mistake("cache-returned-swapped", "the two caches in the wrong order",
                "Keys and values changed places in the result.",
                "In which order are the three arrays asked for?",
                "The order is output, keys, values.",
                step=lambda s: (s.output, s.values, s.keys)),
        mistake("cache-top-left", "the first key alone: a causal mask "
                "aligned at the top left", "The new token was taken for "
                "token 0 of the text, which sees nothing but itself.",
                "Which row of the causal mask does the newest token need?",
                "One query and many keys: the mask's last row is needed, and "
                "it hides nothing.", weights=_first_key_alone),
        *(replace(each, question="Over which axis must the weights of a "
                  "query sum to 1?")
          for each in softmax_mistakes(axes=4)
          if each.id in ("softmax-global", "softmax-no-sum",
                         "softmax-no-sum-shifted", "softmax-over-heads")),
        mistake("cache-softmax-size-one", "a softmax over the queries, of "
                "which there is one", "Every weight is 1.",
                "Over which axis must the weights sum to 1?",
                "One query's weights over all keys sum to 1.",
                weights=lambda s: np.ones(s.scaled.shape)),
        *(each for each in scale_mistakes(key="keys")
          if each.id not in ("scale-by-sqrt-B", "scale-floor")),
    ]


# -- slots that nobody has written ------------------------------------------

def _slots(rng: Generator) -> list[Case]:
    more = int(rng.integers(2, 5))
    sizes = ((2, 2, 5), (0, 3, 4), (3, 1, 8), (4, 3, 7), (1, 4, 5 + more),
             (3, 3, 9))
    return [Case(f"{start} written, {new} new, {capacity} slots",
                 {"start": start, "new_tokens": new, "capacity": capacity},
                 {"new_tokens": new, "capacity": capacity})
            for start, new, capacity in sizes]


def _slot_rule(rule: Callable[[State, ndarray, ndarray], ndarray]
               ) -> StageFunction:
    """Give a mask by the numbers of the slots and of the new tokens."""
    def mask(s: State) -> ndarray:
        slot, token = np.indices((s.new_tokens, s.capacity))[::-1]
        return rule(s, slot, token)
    return mask


def _slot_mistakes() -> list[Mistake]:
    fix = "np.arange(capacity) <= start + np.arange(new_tokens)[:, None]"
    rule = ("New token i is number start + i of the text. It sees the slots "
            "up to that number, whatever the capacity is.")

    def mistake(name: str, label: str, effect: str, question: str,
                allowed: Callable[[State, ndarray, ndarray], ndarray],
                why: str = rule) -> Mistake:
        return Mistake(name, label, effect, {"mask": _slot_rule(allowed)},
                       why=why, question=question, fix=fix,
                       explained=CHAPTER)

    return [
        mistake("slots-to-capacity", "a mask whose corner is at the last "
                "slot", "The tokens see slots that nobody has written.",
                "Is the last slot the slot of the last token?",
                lambda s, slot, token: slot <= token + s.capacity
                - s.new_tokens),
        mistake("slots-top-left", "a mask that begins at slot 0",
                "The new tokens were taken for the first of the text.",
                "Which number in the text has the first new token?",
                lambda s, slot, token: slot <= token),
        mistake("slots-all-written", "all slots that are written",
                "A new token sees those that come after it.",
                "May the first new token see the second?",
                lambda s, slot, token: slot < s.start + s.new_tokens),
        mistake("slots-old-only", "the old slots alone",
                "The new tokens see neither themselves nor each other.",
                "Does a token attend to itself?",
                lambda s, slot, token: slot < s.start),
        mistake("slots-strict", "slots before the token, without its own",
                "A token may not attend to itself.",
                "Does a token attend to itself?",
                lambda s, slot, token: slot < s.start + token),
        mistake("slots-one-more", "one slot too many",
                "A token sees the one that comes after it.",
                "What stands in slot start + 1 when the first new token "
                "asks?", lambda s, slot, token: slot <= s.start + token + 1),
        mistake("slots-new-only", "the new slots alone",
                "The old tokens are hidden.", "What is the cache for?",
                lambda s, slot, token: (slot >= s.start)
                & (slot <= s.start + token)),
        mistake("slots-own-only", "each token's own slot alone",
                "Nothing but itself is seen.", "What is the cache for?",
                lambda s, slot, token: slot == s.start + token),
        mistake("slots-everything", "every slot of the cache",
                "Nothing is hidden.", "What does an unwritten slot hold?",
                lambda s, slot, token: slot >= 0),
        mistake("slots-inverted", "the mask with True where it should be "
                "False", "True marks what must be hidden.",
                "Does True mean \"may attend\" or \"hide\" here?",
                lambda s, slot, token: slot > s.start + token,
                "In this course True means \"may attend\"."),
        Mistake("slots-transposed", "a mask with slots down and tokens "
                "across", "Rows and columns changed places.",
                {"mask": lambda s: _slot_rule(
                    lambda t, slot, token: slot <= t.start + token)(s).T},
                why="Queries go down, keys across.",
                question="Which axis comes first, that of the queries or of "
                         "the keys?", fix=fix, explained=CHAPTER),
    ]


# -- a padded batch ---------------------------------------------------------

def _positions(rng: Generator) -> list[Case]:
    def padded(lengths: tuple[int, ...], size: int) -> ndarray:
        return np.stack([np.arange(size) - (size - length)
                         for length in lengths]).clip(-1)

    def case(name: str, query: ndarray, key: ndarray) -> Case:
        return Case(name, {"query_positions": query, "key_positions": key},
                    {"batch": len(key), "query_len": query.shape[1],
                     "key_len": key.shape[1]})

    left = padded((3, 6, 5), 6)
    mixed = rng.permuted(padded((4, 6), 7), axis=1)
    slots = np.concatenate([padded((5, 2), 5), np.full((2, 2), -1)], 1)
    return [case("a prompt, padded on the left", left, left),
            case("one new token, and slots that nobody has written",
                 np.array([[5], [2]]), np.concatenate(
                     [slots[:, :5], [[5], [2]], slots[:, 5:]], 1)),
            case("keys in any order", np.array([[2, 3, 4], [3, -1, 0]]),
                 mixed),
            case("as many sequences as tokens", padded((3, 1, 2), 3),
                 padded((3, 1, 2), 3))]


def _position_rule(rule: Callable[[ndarray, ndarray], ndarray]
                   ) -> StageFunction:
    return lambda s: rule(s.query_positions[:, None, :, None],
                          s.key_positions[:, None, None, :])


def _position_mistakes() -> list[Mistake]:
    fix = "(key >= 0) & (key <= query)"
    seen = "A query sees the positions up to its own, and -1 is no position."

    def mistake(name: str, label: str, effect: str, question: str,
                rule: Callable[[ndarray, ndarray], ndarray] | None = None,
                why: str = seen, mask: StageFunction | None = None
                ) -> Mistake:
        stage = _position_rule(rule) if rule else mask
        assert stage is not None
        return Mistake(name, label, effect, {"mask": stage}, why=why,
                       question=question, fix=fix, explained=CHAPTER)

    def right(query: ndarray, key: ndarray) -> ndarray:
        return (key >= 0) & (key <= query)

    def by_slot(s: State) -> ndarray:
        queries, keys = (a.shape[1] for a in (s.query_positions,
                                              s.key_positions))
        causal = (np.arange(keys) <= np.arange(queries)[:, None]
                  + keys - queries)
        return (s.key_positions >= 0)[:, None, None, :] & causal

    def of_the_first(s: State) -> ndarray:
        one = SimpleNamespace(
            query_positions=np.broadcast_to(s.query_positions[:1],
                                            s.query_positions.shape),
            key_positions=np.broadcast_to(s.key_positions[:1],
                                          s.key_positions.shape))
        return np.asarray(_position_rule(right)(one))

    return [
        mistake("posmask-padding-seen", "key <= query alone, padding and all",
                "-1 is smaller than every position, so padding is seen by "
                "everybody.", "Is -1 <= 0?", lambda q, k: k <= q),
        mistake("posmask-future-seen", "every key that is no padding",
                "The future is seen.",
                "May a query see a position after its own?",
                lambda q, k: (k >= 0) & (q >= q)),
        mistake("posmask-strict", "keys before the query's own position",
                "A token may not attend to itself.",
                "May a token attend to itself?",
                lambda q, k: (k >= 0) & (k < q)),
        mistake("posmask-turned", "keys at the query's position and after",
                "A query sees the future, not the past.",
                "Which way round is the comparison?",
                lambda q, k: (k >= 0) & (k >= q)),
        mistake("posmask-zero-hidden", "positions above 0",
                "The first token of every sequence is taken for padding.",
                "Which number has the first real token?",
                lambda q, k: (k > 0) & (k <= q)),
        mistake("posmask-query-padding", "padding that was looked for among "
                "the queries", "The rows of padding are hidden; its columns "
                "are not.", "Must nobody READ padding, or must padding read "
                "nobody?", lambda q, k: (q >= 0) & (k <= q)),
        mistake("posmask-inverted", "the mask with True where it should be "
                "False", "True marks what must be hidden.",
                "Does True mean \"may attend\" or \"hide\" here?",
                lambda q, k: ~right(q, k),
                "In this course True means \"may attend\"."),
        mistake("posmask-by-slot", "a triangle by slots instead of "
                "positions", "Right only while the keys stand in the order "
                "of the text.", "Do the keys stand in the order of their "
                "positions?", None,
                "The number of a slot says nothing; the position counts.",
                by_slot),
        mistake("posmask-first-sequence", "the first sequence's mask for "
                "all", "The other sequences' positions play no part.",
                "Do all sequences begin in the same slot?", None,
                "Every sequence has positions of its own.", of_the_first),
        mistake("posmask-no-head-axis", "a mask without an axis for the "
                "heads", "Its axes are (batch, query_len, key_len).",
                "How many axes have the scores of several heads?", None,
                "The axis of length 1 is there to be broadcast over the "
                "heads.", lambda s: _position_rule(right)(s)[:, 0]),
        mistake("posmask-transposed", "a mask with keys down and queries "
                "across", "Rows and columns changed places.",
                "Which axis comes first, that of the queries or of the "
                "keys?", None, "Queries go down, keys across.",
                lambda s: swap(_position_rule(right)(s))),
    ]


# -- fewer key heads --------------------------------------------------------

def _few_heads(rng: Generator) -> list[Case]:
    def case(name: str, batch: int, key_heads: int, key_len: int,
             head_dim: int, num_heads: int) -> Case:
        return Case(name, {
            "x": rng.normal(size=(batch, key_heads, key_len, head_dim)),
            "num_heads": num_heads},
            {"batch": batch, "num_key_heads": key_heads, "key_len": key_len,
             "head_dim": head_dim, "num_heads": num_heads})

    return [case("2 key heads for 6 query heads", 5, 2, 7, 4, 6),
            case("3 key heads for 12 query heads", 2, 3, 4, 5, 12),
            case("all sizes equal, 9 query heads", 3, 3, 3, 3, 9),
            case("one key head for all", 2, 1, 3, 4, 5)]


def _each(s: State) -> int:
    return int(s.num_heads // s.x.shape[1])


def _repeat_mistakes() -> list[Mistake]:
    fix = "np.repeat(x, num_heads // x.shape[1], axis=1)"
    order = ("Query head h uses key head h // (num_heads / num_key_heads): "
             "neighbours share.")

    def mistake(name: str, label: str, effect: str, question: str,
                repeated: StageFunction, why: str = order) -> Mistake:
        return Mistake(name, label, effect, {"repeated": repeated}, why=why,
                       question=question, fix=fix, explained=CHAPTER)

    axis = "The heads are axis 1; all else stays."
    return [
        mistake("group-tiled", "all key heads, again and again",
                "The order is 0 1 0 1 instead of 0 0 1 1, as np.tile gives "
                "it. Most query heads get a wrong key head.",
                "Which key head must query head 1 get?",
                lambda s: np.tile(s.x, (1, _each(s), 1, 1))),
        mistake("group-first-only", "key head 0 for all",
                "The other key heads play no part.",
                "Which key heads play no part?",
                lambda s: np.repeat(s.x[:, :1], s.num_heads, 1)),
        mistake("group-mean", "the mean of the key heads for all",
                "Every query head gets the same.",
                "Does a query head use one key head, or all of them?",
                lambda s: np.repeat(s.x.mean(1, keepdims=True), s.num_heads,
                                    1)),
        mistake("group-not-repeated", "key heads as they came",
                "There are fewer heads than query heads.",
                "How many heads must the result have?", lambda s: s.x),
        mistake("group-too-many", "every key head num_heads times",
                "There are num_heads · num_key_heads heads.",
                "How many query heads share one key head?",
                lambda s: np.repeat(s.x, s.num_heads, 1)),
        mistake("group-reversed", "key heads in the opposite order",
                "Query head 0 gets the last key head.",
                "Which key head must query head 0 get?",
                lambda s: np.repeat(s.x[:, ::-1], _each(s), 1)),
        mistake("group-positions-repeated", "positions that were repeated "
                "instead of heads", "Every key stands there several times.",
                "Which axis counts heads?",
                lambda s: np.repeat(s.x, _each(s), 2), axis),
        mistake("group-batch-repeated", "sequences that were repeated "
                "instead of heads", "Every sequence stands there several "
                "times.", "Which axis counts heads?",
                lambda s: np.repeat(s.x, _each(s), 0), axis),
        mistake("group-flattened", "numbers that were repeated one by one",
                "The result is one long row.",
                "Which axis counts heads?",
                lambda s: np.repeat(s.x, _each(s)),
                "Without axis=, np.repeat makes one row of all numbers."),
        mistake("group-axis-kept", "an axis of its own for the group",
                "The axes are (batch, num_key_heads, group, key_len, "
                "head_dim).", "How many axes must the result have?",
                lambda s: np.repeat(s.x[:, :, None], _each(s), 2), axis),
        mistake("group-bare-reshape", "copies that were reshaped into the "
                "wrong heads", "The copies were made along the positions, so "
                "a head mixes keys.", "Which axis must the copies be next to "
                "before they become heads?",
                lambda s: np.repeat(s.x, _each(s), 2).reshape(
                    len(s.x), s.num_heads, *s.x.shape[2:]),
                "reshape never moves a number: make the copies next to the "
                "head axis."),
    ]


def _packed(rng: Generator) -> list[Case]:
    def case(name: str, batch: int, seq_len: int, num_heads: int,
             key_heads: int, head_dim: int) -> Case:
        width = (num_heads + 2 * key_heads) * head_dim
        return Case(name, {
            "packed": rng.normal(size=(batch, seq_len, width)),
            "num_heads": num_heads, "num_key_heads": key_heads},
            {"batch": batch, "seq_len": seq_len, "num_heads": num_heads,
             "num_key_heads": key_heads, "head_dim": head_dim})

    return [case("6 query heads, 3 key heads", 2, 5, 6, 3, 4),
            case("4 query heads, 1 key head", 3, 5, 4, 1, 2),
            case("8 query heads, 2 key heads", 2, 2, 8, 2, 2)]


def _parts(s: State, order: str = "qkv") -> Iterator[ndarray]:
    heads = {"q": s.num_heads, "k": s.num_key_heads, "v": s.num_key_heads}
    width = s.packed.shape[-1] // sum(heads.values())
    place, found = 0, {}
    for name in order:
        size = heads[name] * width
        found[name] = s.packed[..., place:place + size]
        place += size
    return (found[name] for name in "qkv")


def _heads_of(s: State, parts: Iterator[ndarray],
              rearrange: Callable[[ndarray, int], Any]) -> tuple[Any, ...]:
    counts = (s.num_heads, s.num_key_heads, s.num_key_heads)
    return tuple(rearrange(part, count)
                 for part, count in zip(parts, counts))


def _separated(x: ndarray, heads: int) -> ndarray:
    return x.reshape(*x.shape[:2], heads, -1).swapaxes(1, 2)


def _per_group(s: State) -> tuple[ndarray, ...]:
    """Read as q q k v, q q k v: each group with its own keys and values."""
    batch, seq_len, _ = s.packed.shape
    each = s.num_heads // s.num_key_heads
    heads = s.packed.reshape(batch, seq_len, s.num_key_heads, each + 2, -1)
    query, key, value = np.split(heads, [each, each + 1], 3)
    return tuple(part.reshape(batch, seq_len, -1, heads.shape[-1]).swapaxes(
        1, 2) for part in (query, key, value))


def _dealt(s: State) -> tuple[ndarray, ...]:
    heads = s.num_heads + 2 * s.num_key_heads
    batch, seq_len, _ = s.packed.shape
    each = s.packed.reshape(batch, seq_len, -1, heads).transpose(0, 3, 1, 2)
    return tuple(np.split(each, [s.num_heads, s.num_heads
                                 + s.num_key_heads], 1))


def _reshaped(s: State) -> tuple[ndarray, ...]:
    heads = s.num_heads + 2 * s.num_key_heads
    batch, seq_len, _ = s.packed.shape
    return tuple(np.split(
        s.packed.reshape(batch, heads, seq_len, -1),
        [s.num_heads, s.num_heads + s.num_key_heads], 1))


def _unpack_mistakes() -> list[Mistake]:
    fix = "heads[:, :num_heads], heads[:, num_heads:num_heads + num_key_heads]"
    stand = ("All query heads come first, then all key heads, then all value "
             "heads; and there are fewer of the latter.")

    def mistake(name: str, label: str, effect: str, question: str,
                heads: StageFunction, why: str = stand) -> Mistake:
        return Mistake(name, label, effect, {"heads": heads}, why=why,
                       question=question, fix=fix, explained=CHAPTER)

    def within(each: Mistake) -> Mistake:
        """The same mistake, made in each of the three parts."""
        wrong = each.wrong["heads"]

        def heads(s: State) -> tuple[Any, ...]:
            return _heads_of(s, _parts(s), lambda x, n: wrong(
                SimpleNamespace(x=x, num_heads=n)))
        return replace(each, wrong={"heads": heads})

    return [
        mistake("unpack-equal-thirds", "three parts of equal width",
                "The query is wider than the key and the value. Where the "
                "width has no third this is an error; else the keys get "
                "features of the query.",
                "How many heads has the query, and how many the key?",
                lambda s: _heads_of(s, iter(np.split(s.packed, 3, -1)),
                                    _separated)),
        mistake("unpack-key-value-swapped", "keys and values swapped",
                "What is compared and what is read changed places.",
                "Which comes second in the packed array?",
                lambda s: _heads_of(s, _parts(s, "qvk"), _separated)),
        mistake("unpack-query-last", "an order of keys, values, queries",
                "The first features were taken for keys.",
                "Which comes first in the packed array?",
                lambda s: _heads_of(s, _parts(s, "kvq"), _separated)),
        mistake("unpack-per-key-head", "each key head with its queries, its "
                "key and its value side by side", "Some checkpoints are "
                "packed like that; this one is not.",
                "Do all queries stand together in this array?", _per_group),
        mistake("unpack-heads-dealt", "features dealt out to the heads like "
                "cards", "Head 0 holds every n-th feature.",
                "Which of the two new axes changes fastest in memory?",
                _dealt),
        mistake("unpack-reshape", "a reshape straight to (batch, heads, "
                "seq_len, head_dim)", "Each head gets a stretch of tokens "
                "instead of a stretch of features.",
                "Which axis must be cut into heads, and where do the heads "
                "go then?", _reshaped, "reshape never moves a number: cut "
                "the last axis, then swap the heads with the positions."),
        *(within(each) for each in split_mistakes()
          if each.id in ("split-reshape", "split-no-transpose",
                         "split-interleaved", "split-swap-T-dh")),
    ]


# -- bytes ------------------------------------------------------------------

def _models(rng: Generator) -> list[Case]:
    def case(name: str, layers: int, heads: int, key_heads: int, width: int,
             itemsize: int) -> Case:
        return Case(name, {"num_layers": layers, "num_heads": heads,
                           "num_key_heads": key_heads, "head_dim": width,
                           "itemsize": itemsize}, {})

    return [case("in bfloat16", int(rng.integers(20, 40)), 35, 7, 128, 2),
            case("in float32", 11, 12, 3, int(rng.integers(60, 90)), 4),
            case("one key head, in 8 bits", 5, 13, 1, 17, 1)]


def _byte_mistakes() -> list[Mistake]:
    fix = "2 * num_layers * num_key_heads * head_dim * itemsize"
    why = "A key and a value, in every layer, of every key head."

    def mistake(name: str, label: str, effect: str, question: str,
                count: Callable[[State, int], Any]) -> Mistake:
        return Mistake(name, label, effect, {"bytes": lambda s: count(
            s, _bytes(s))}, why=why, question=question, fix=fix,
            explained=CHAPTER)

    return [
        mistake("kept-one-of-two", "keys without values, or values without "
                "keys", "Half is missing.",
                "What is kept of a token: one vector of each head, or two?",
                lambda s, right: right // 2),
        mistake("kept-query-heads", "a key and a value for each QUERY head",
                "num_key_heads plays no part.",
                "How many heads does the cache have?",
                lambda s, right: right // s.num_key_heads * s.num_heads),
        mistake("kept-queries-too", "queries, keys and values",
                "Old queries were counted, which nobody needs again.",
                "Is an old query ever used again?",
                lambda s, right: right + right // (2 * s.num_key_heads)
                * s.num_heads),
        mistake("kept-one-layer", "the cache of one layer",
                "num_layers plays no part.", "Do the layers share a cache?",
                lambda s, right: right // s.num_layers),
        mistake("kept-one-head", "the cache of one head",
                "num_key_heads plays no part.",
                "Do the heads share a key?",
                lambda s, right: right // s.num_key_heads),
        mistake("kept-numbers", "numbers instead of bytes",
                "itemsize plays no part.", "How many bytes has one number?",
                lambda s, right: right / s.itemsize),
        mistake("kept-bits", "bits instead of bytes",
                "Every byte was counted 8 times.",
                "Is itemsize given in bits or in bytes?",
                lambda s, right: right * 8),
    ]


def _bytes(s: State) -> int:
    return int(2 * s.num_layers * s.num_key_heads * s.head_dim * s.itemsize)


# -- small examples ---------------------------------------------------------

def _tiny_step() -> Case:
    def row(*numbers: float) -> ndarray:
        return np.array([[[list(numbers)]]])

    return Case("one old token, one new", {
        "cached_keys": row(2.0, 0.0, 0.0, 0.0),
        "cached_values": row(1.0, 0.0, 0.0, 0.0),
        "query": row(1.0, 2.0, 0.0, 0.0), "key": row(0.0, 3.0, 0.0, 0.0),
        "value": row(0.0, 4.0, 0.0, 0.0)})


def _tiny_slots() -> Case:
    return Case("two slots written, two new tokens, five slots", {
        "start": 2, "new_tokens": 2, "capacity": 5},
        {"new_tokens": 2, "capacity": 5})


def _tiny_positions() -> Case:
    return Case("one old and one new token; in the second sequence the old "
                "one is padding", {
                    "query_positions": np.array([[0, 1], [-1, 0]]),
                    "key_positions": np.array([[1, 0], [0, -1]])},
                {"batch": 2, "query_len": 2, "key_len": 2})


def _tiny_few() -> Case:
    return Case("two key heads for four query heads, two keys", {
        "x": np.array([[[[1.0], [2.0]], [[3.0], [4.0]]]]), "num_heads": 4})


def _tiny_packed() -> Case:
    return Case("two tokens; 4 query heads and 2 key heads of width 2", {
        "packed": np.arange(32.0).reshape(1, 2, 16), "num_heads": 4,
        "num_key_heads": 2}, {"batch": 1, "seq_len": 2, "num_heads": 4,
                              "num_key_heads": 2, "head_dim": 2})


def _tiny_model() -> Case:
    return Case("3 layers, 4 query and 2 key heads of width 5, 2 bytes", {
        "num_layers": 3, "num_heads": 4, "num_key_heads": 2, "head_dim": 5,
        "itemsize": 2})


register(Exercise(
    id="cache_step", title="One step with a cache", chapter=CHAPTER,
    difficulty=2, minutes=10,
    task="A new token has been projected. Everything else that is needed is "
         "in the cache: read it, and leave it ready for the next token.",
    solution=solutions.cache_step, stages=_STEP, cases=_steps,
    mistakes=_step_mistakes(),
    axes=("batch", "num_heads", "tokens", "head_dim"), many=3,
    names=("output", "keys", "values"), tiny=_tiny_step,
    hints=("Which tokens does the newest one see, and is it one of them?",
           "Append the key and the value first, along the axis of the "
           "tokens. Then attend to all of them; no mask is needed.",
           "np.concatenate([cached_keys, key], axis=2), the same for the "
           "values, then the attention you know.")))

register(Exercise(
    id="slot_mask", title="Slots that nobody has written", chapter=CHAPTER,
    difficulty=2, minutes=8,
    task="The memory of a cache was reserved in advance, so part of it is "
         "empty. Say which slots the new tokens may read.",
    solution=solutions.slot_mask, stages={"mask": _slot_rule(
        lambda s, slot, token: slot <= s.start + token)},
    cases=_slots, mistakes=_slot_mistakes(),
    axes=("new_tokens", "capacity"), boolean=True, tiny=_tiny_slots,
    source="https://github.com/onnx/onnx/issues/8054",
    hints=("In which slot is new token number i itself?",
           "In slot start + i. It sees that slot and those before; how many "
           "slots there are plays no part.",
           "np.arange(capacity) <= start + np.arange(new_tokens)[:, "
           "None].")))

register(Exercise(
    id="mask_of_positions", title="Positions decide", chapter=CHAPTER,
    difficulty=2, minutes=10,
    task="Prompts of different length, padded on the left; a cache whose "
         "slots are in no order. One comparison of positions is the mask for "
         "all of it.",
    solution=solutions.mask_of_positions,
    stages={"mask": _position_rule(lambda q, k: (k >= 0) & (k <= q))},
    cases=_positions, mistakes=_position_mistakes(),
    axes=("batch", "1", "query_len", "key_len"), boolean=True,
    tiny=_tiny_positions,
    hints=("Is -1 smaller than the position of every query?",
           "Two conditions on a key: it is no padding, and it is not after "
           "the query.",
           "Bring the queries to (batch, 1, query_len, 1) and the keys to "
           "(batch, 1, 1, key_len); then (key >= 0) & (key <= query).")))

register(Exercise(
    id="repeat_key_heads", title="One key head for several queries",
    chapter=CHAPTER, difficulty=1, minutes=5,
    task="Grouped-query attention has fewer key heads than query heads. Give "
         "every query head its copy, in the right order.",
    solution=solutions.repeat_key_heads,
    stages={"repeated": lambda s: np.repeat(s.x, _each(s), 1)},
    cases=_few_heads, mistakes=_repeat_mistakes(),
    axes=("batch", "num_heads", "key_len", "head_dim"), tiny=_tiny_few,
    hints=("With 2 key heads and 6 query heads, which key head does query "
           "head 2 use?",
           "The order is 0 0 0 1 1 1, not 0 1 0 1 0 1.",
           "np.repeat gives the first order, np.tile the second; in PyTorch "
           "they are repeat_interleave and repeat.")))

register(Exercise(
    id="unpack_grouped", title="A packed projection with fewer key heads",
    chapter=CHAPTER, difficulty=2, minutes=10,
    task="Query, key and value come out of one product, side by side, and "
         "the query is wider than the other two. Cut them apart, into "
         "heads.",
    solution=solutions.unpack_grouped,
    stages={"heads": lambda s: _heads_of(s, _parts(s), _separated)},
    cases=_packed, mistakes=_unpack_mistakes(),
    axes=("batch", "num_heads", "seq_len", "head_dim"), many=3,
    names=("query", "key", "value"), tiny=_tiny_packed,
    source="https://github.com/vllm-project/vllm/issues/13686",
    hints=("How many heads are there in all, and how wide is one?",
           "num_heads + 2 * num_key_heads heads, all of the same width. Cut "
           "into heads first, as in chapter 5; then the first num_heads are "
           "the query's.",
           "heads = packed.reshape(batch, seq_len, -1, "
           "head_dim).swapaxes(1, 2); then three slices of axis 1.")))

register(Exercise(
    id="cache_bytes", title="Bytes for each token", chapter=CHAPTER,
    difficulty=1, minutes=4,
    task="How much memory does a model need for every token of a text that "
         "it is reading? The number decides how many texts fit on a GPU.",
    solution=solutions.cache_bytes, stages={"bytes": _bytes}, cases=_models,
    mistakes=_byte_mistakes(), axes=(), tiny=_tiny_model,
    hints=("What is kept of each token, and in how many places?",
           "A key and a value of each key head, in each layer.",
           "Multiply: 2, layers, key heads, width, bytes of a number.")))

register(Prediction(
    id="predict_cache_bytes", title="A token of a real model",
    chapter=CHAPTER, difficulty=1, minutes=3,
    task="A model has 32 layers with 32 query heads and 8 key heads of width "
         "128, and keeps its cache in bfloat16. How many KiB (2¹⁰ bytes) "
         "does the cache need for one token?",
    form="number", placeholder="...  # a whole number", digits=0,
    unit="KiB", solution=solutions.predict_cache_bytes,
    outcomes=lambda: outcomes_of(
        "cache_bytes", Case("", {
            "num_layers": 32, "num_heads": 32, "num_key_heads": 8,
            "head_dim": 128, "itemsize": 2}),
        lambda count: float(count) / 2**10),
    hints=("Of which heads are keys and values kept?",
           "2 vectors of 128 numbers for each of 8 heads in 32 layers.",
           "2 * 8 * 128 * 32 numbers of 2 bytes.")))

register_quiz(CHAPTER, [
    Question(
        "A library's `is_causal` is aligned at the top left. It is used for a "
        "step with a cache. What does the new token see?",
        [Option("The first token of the text, and nothing else.", True,
                "It is taken for row 0. The prompt was right, and then the "
                "model repeats itself.", mistake="cache-top-left"),
         Option("Everything but itself.", False,
                "Row 0 of a causal mask has a single True, at the front.",
                mistake="cache-attends-to-old"),
         Option("All tokens, as it should.", False,
                "That would be the last row, and top left gives the first.",
                mistake="cache-top-left")]),
    Question(
        "A left-padded batch keeps one count of positions, 0, 1, 2, … from "
        "the first slot on. Which sequences go wrong?",
        [Option("All but the longest.", True,
                "Only the longest has its first token in slot 0.",
                mistake="positions-shared"),
         Option("The longest alone.", False,
                "It has no padding, so slot and position agree.",
                mistake="positions-shared"),
         Option("None, if padding is masked.", False,
                "The mask hides padding; the positions of real tokens are "
                "shifted all the same.", mistake="positions-shared")]),
    Question(
        "Padding on the left is masked. Somebody gives it position 1 instead "
        "of −1. Does the output of real tokens change?",
        [Option("No: nobody reads a masked key, wherever it claims to be.",
                True, "But the mask must not be made from those positions."),
         Option("Yes: real tokens would attend to it.", False,
                "Only if the mask were made from positions that hide the "
                "padding.", mistake="posmask-padding-seen"),
         Option("Yes: all positions shift by one.", False,
                "Each token has a position of its own; another token's does "
                "not move it.")]),
], shapes=("repeat_key_heads",))
