"""Fresh inputs for the exercises.

Each kind comes in several cases. In one, all sizes differ, so that an axis is
known by its length; in another, all are equal, so that a mixed up axis raises
no error and gives numbers to compare.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy import ndarray

from course.exercises.stages import Case

Generator = np.random.Generator
Cases = Callable[[Generator], list[Case]]


def random_mask(rng: Generator, query_len: int, key_len: int) -> ndarray:
    """Draw a mask with a True and a False in every row and column.

    No mistake can hide behind an empty row, and a square mask is never its
    own transpose.
    """
    while True:
        mask = rng.random((query_len, key_len)) < 0.6
        mixed = all(0 < count < mask.shape[axis]
                    for axis in (0, 1) for count in mask.sum(axis))
        if mixed and (query_len != key_len or (mask != mask.T).any()):
            return mask


def queries_and_keys(rng: Generator, *, value: bool = False,
                     mask: bool = False) -> list[Case]:
    """Queries and keys for a batch, with values and a mask if asked for."""
    def case(name: str, batch: int, query_len: int, key_len: int,
             head_dim: int, value_dim: int) -> Case:
        arguments: dict[str, Any] = {
            "query": rng.normal(size=(batch, query_len, head_dim)) * 1.5,
            "key": rng.normal(size=(batch, key_len, head_dim)) * 1.5}
        dims = {"batch": batch, "query_len": query_len, "key_len": key_len,
                "head_dim": head_dim}
        if value:
            arguments["value"] = rng.normal(size=(batch, key_len, value_dim))
            dims["value_dim"] = value_dim
        if mask:
            arguments["attention_mask"] = random_mask(rng, query_len, key_len)
        return Case(name, arguments, dims)

    return [case("all sizes different", 2, 5, 7, 3, 6),
            case("as many queries as keys", 2, 5, 5, 3, 3),
            case("all sizes equal", 4, 4, 4, 4, 4)]


def with_values(rng: Generator) -> list[Case]:
    """Queries, keys and values for a batch."""
    return queries_and_keys(rng, value=True)


def with_mask(rng: Generator) -> list[Case]:
    """Queries, keys, values and a mask for a batch."""
    return queries_and_keys(rng, value=True, mask=True)


def heads_of_queries_and_keys(rng: Generator) -> list[Case]:
    """Queries and keys that have heads already."""
    def case(name: str, batch: int, num_heads: int, query_len: int,
             key_len: int, head_dim: int) -> Case:
        lead = (batch, num_heads)
        return Case(name, {
            "query": rng.normal(size=(*lead, query_len, head_dim)) * 1.5,
            "key": rng.normal(size=(*lead, key_len, head_dim)) * 1.5},
            {"batch": batch, "num_heads": num_heads, "query_len": query_len,
             "key_len": key_len, "head_dim": head_dim})

    return [case("all sizes different", 2, 3, 5, 7, 4),
            case("all sizes equal", 4, 4, 4, 4, 4)]


def scores_and_mask(rng: Generator, *, value: bool = False,
                    mask: bool = True, empty: bool = False) -> list[Case]:
    """Scores for a batch, with a mask, values or empty rows if asked for."""
    def case(name: str, batch: int, query_len: int, key_len: int,
             value_dim: int) -> Case:
        shape = (batch, query_len, key_len)
        arguments: dict[str, Any] = {"scores": rng.normal(size=shape) * 2}
        dims = {"batch": batch, "query_len": query_len, "key_len": key_len}
        if value:
            arguments["value"] = rng.normal(size=(batch, key_len, value_dim))
            dims["value_dim"] = value_dim
        if mask:
            allowed = random_mask(rng, query_len, key_len)
            if empty:
                none, one = rng.permutation(query_len)[:2]
                allowed[none] = False
                # A lone key gets the weight 1, whatever its score.
                allowed[one] = np.arange(key_len) == rng.integers(key_len)
            arguments["attention_mask"] = allowed
        return Case(name, arguments, dims)

    wide = case("all sizes different", 2, 5, 7, 3)
    square = case("all sizes equal", 4, 4, 4, 4)
    return [wide, square]


def square_scores(rng: Generator) -> list[Case]:
    """Scores of as many queries as keys."""
    return [Case(f"{batch} sequences of {size}",
                 {"scores": rng.normal(size=(batch, size, size)) * 2},
                 {"batch": batch, "seq_len": size})
            for batch, size in ((2, 5), (4, 4), (3, 7))]


def tokens_with_heads(rng: Generator, names: tuple[str, ...] = ("x",)
                      ) -> list[Case]:
    """Features of tokens, and a number of heads that divides the width."""
    def case(name: str, batch: int, seq_len: int, num_heads: int,
             head_dim: int) -> Case:
        width = num_heads * head_dim
        arguments: dict[str, Any] = {
            key: rng.normal(size=(batch, seq_len, width)) * (
                1.0 if names == ("x",) else 1.5) for key in names}
        return Case(name, {**arguments, "num_heads": num_heads},
                    {"batch": batch, "seq_len": seq_len,
                     "num_heads": num_heads, "head_dim": head_dim,
                     "width": width})

    cases = [case("3 heads", 2, 5, 3, 4), case("2 heads", 3, 4, 2, 5),
             case("all sizes equal", 3, 3, 3, 3)]
    if names == ("x",):
        cases.append(case("one head", 2, 4, 1, 5))
    return cases


def separated_heads(rng: Generator, *, W_o: bool = False) -> list[Case]:
    """Heads of tokens, with a W_o if asked for."""
    def case(name: str, batch: int, num_heads: int, seq_len: int,
             head_dim: int, embed_dim: int) -> Case:
        heads = rng.normal(size=(batch, num_heads, seq_len, head_dim))
        dims = {"batch": batch, "num_heads": num_heads, "seq_len": seq_len,
                "head_dim": head_dim}
        if not W_o:
            dims["width"] = num_heads * head_dim
            return Case(name, {"x": heads}, dims)
        weight = rng.normal(size=(num_heads * head_dim, embed_dim)) / 2
        return Case(name, {"heads": heads, "W_o": weight},
                    {**dims, "embed_dim": embed_dim})

    return [case("3 heads", 2, 3, 5, 4, 7), case("2 heads", 3, 2, 4, 5, 6),
            case("all sizes equal", 3, 3, 3, 3, 9)]


def heads_in_one_axis(rng: Generator) -> list[Case]:
    """Heads of tokens that share one axis with the batch."""
    def case(name: str, batch: int, num_heads: int, seq_len: int,
             head_dim: int) -> Case:
        shape = (batch * num_heads, seq_len, head_dim)
        return Case(name, {"x": rng.normal(size=shape),
                           "num_heads": num_heads},
                    {"batch": batch, "num_heads": num_heads,
                     "seq_len": seq_len, "head_dim": head_dim})

    return [case("2 heads", 3, 2, 4, 5), case("3 heads", 2, 3, 5, 4),
            case("all sizes equal", 2, 2, 2, 2)]


def layer_inputs(rng: Generator, *, mask: bool = False) -> list[Case]:
    """Embeddings, the four matrices, the number of heads, maybe a mask."""
    def case(name: str, batch: int, seq_len: int, num_heads: int,
             head_dim: int) -> Case:
        embed_dim = num_heads * head_dim
        arguments: dict[str, Any] = {
            "x": rng.normal(size=(batch, seq_len, embed_dim))}
        for name_of_matrix in ("W_q", "W_k", "W_v", "W_o"):
            arguments[name_of_matrix] = 1.5 / np.sqrt(embed_dim) * rng.normal(
                size=(embed_dim, embed_dim))
        arguments["num_heads"] = num_heads
        if mask:
            arguments["attention_mask"] = np.stack(
                [random_mask(rng, seq_len, seq_len)
                 for _ in range(batch)])[:, None]
        return Case(name, arguments, {
            "batch": batch, "seq_len": seq_len, "num_heads": num_heads,
            "head_dim": head_dim, "embed_dim": embed_dim})

    return [case("3 heads", 2, 5, 3, 4), case("2 heads", 2, 4, 2, 4),
            case("all sizes equal", 3, 3, 3, 3)]


def layer_inputs_with_mask(rng: Generator) -> list[Case]:
    """The same with a mask of its own for each sequence."""
    return layer_inputs(rng, mask=True)


def as_tensors(cases: Cases) -> Cases:
    """Give the same inputs as PyTorch tensors, numbers in float32."""
    def draw(rng: Generator) -> list[Case]:
        import torch

        def tensor(value: Any) -> Any:
            if not isinstance(value, ndarray):
                return value
            return torch.from_numpy(
                value.astype(np.float32) if value.dtype.kind == "f"
                else value)

        return [Case(case.name, {name: tensor(value) for name, value
                                 in case.arguments.items()}, case.dims)
                for case in cases(rng)]
    return draw
