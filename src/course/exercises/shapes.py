"""Write a shape with the names of its axes."""

import itertools
from collections.abc import Mapping, Sequence

Dims = Mapping[str, int]


def axis_names(shape: Sequence[int], dims: Dims) -> str:
    """Name every axis of a shape.

    Args:
        shape: A shape.
        dims: The sizes that an exercise's inputs have, by name.

    Returns:
        For instance ``(batch, key_len, query_len)``; ``?`` where no name has
        that size, ``a/b`` where two names have.
    """
    parts = [_name(int(size), dims) for size in shape]
    return f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"


def _name(size: int, dims: Dims) -> str:
    if size == 1:
        return "1"
    names = [name for name, length in dims.items() if length == size]
    if names:
        return "/".join(names)
    for (a, x), (b, y) in itertools.combinations(dims.items(), 2):
        if x * y == size:
            return f"{a}·{b}"
    return "?"


def named_shape(shape: Sequence[int], dims: Dims) -> str:
    """Write a shape as ``(2, 7, 5) = (batch, key_len, query_len)``."""
    sizes = tuple(int(size) for size in shape)
    if any(list(dims.values()).count(size) > 2 for size in sizes):
        return str(sizes)  # all sizes are equal: names would say nothing
    return f"{sizes} = {axis_names(sizes, dims)}" if dims and sizes else (
        str(sizes))
