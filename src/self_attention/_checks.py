"""The rules on sizes that every variant keeps, with their error messages.

Plain Python on integers and shapes: no array library is needed to say that
10 is not divisible by 3.
"""

import math
import sys
from collections.abc import Iterable, Mapping, Sequence

Shape = tuple[int, ...]


def check_not_negative(**lengths: int) -> None:
    """Refuse a negative length."""
    for name, length in lengths.items():
        if length < 0:
            raise ValueError(f"{name}={length} must be at least 0")


def check_axis(axis: int, num_axes: int) -> None:
    """Refuse an axis that an array of so many axes does not have."""
    if not -num_axes <= axis < num_axes:
        raise IndexError(f"axis={axis} does not exist: scores has "
                         f"{num_axes} axes")


def check_divides(*, num_heads: int, **width: int) -> None:
    """Refuse a number of heads that does not divide the named width."""
    if num_heads < 1:
        raise ValueError(f"num_heads={num_heads} must be at least 1")
    for name, size in width.items():
        if size % num_heads != 0:
            raise ValueError(
                f"{name}={size} is not divisible by num_heads={num_heads}")


def check_head_dim(embed_dim: int, num_heads: int,
                   head_dim: int | None) -> int:
    """Give the width of one head, or refuse the sizes of a layer."""
    if embed_dim < 1:
        raise ValueError(f"embed_dim={embed_dim} must be at least 1")
    if head_dim is None:
        check_divides(embed_dim=embed_dim, num_heads=num_heads)
        return embed_dim // num_heads
    check_divides(num_heads=num_heads)
    if head_dim < 1:
        raise ValueError(f"head_dim={head_dim} must be at least 1")
    return head_dim


def check_scale(scale: float | None, head_dim: int) -> float:
    """Give the factor on the scores, 1 / sqrt(head_dim) if there is none."""
    if scale is None:
        if head_dim == 0:
            raise ValueError("head_dim=0: a query of width 0 has no scale; "
                             "give one, or a head_dim of at least 1")
        return 1 / math.sqrt(head_dim)
    if not abs(scale) <= sys.float_info.max:  # neither for NaN
        raise ValueError(f"scale={scale} must be a finite number")
    return float(scale)


def check_mask_broadcasts(mask_shape: Sequence[int],
                          scores_shape: Sequence[int]) -> None:
    """Refuse a mask that does not broadcast to the scores."""
    mask, scores = tuple(mask_shape), tuple(scores_shape)
    fits = len(mask) <= len(scores) and all(
        size in (1, wanted)
        for size, wanted in zip(reversed(mask), reversed(scores)))
    if not fits:
        raise ValueError(
            f"attention_mask has shape {mask}, which does not broadcast to "
            f"the scores' (*batch, query_len, key_len) = {scores}")


def check_lengths(lengths: Iterable[int], seq_len: int, side: str) -> None:
    """Refuse lengths of real tokens that a padded sequence cannot have."""
    check_not_negative(seq_len=seq_len)
    for length in lengths:
        if not 0 <= length <= seq_len:
            raise ValueError(f"lengths contains {length}; each must be in "
                             f"0..seq_len={seq_len}")
    if side not in ("right", "left"):
        raise ValueError(f"side={side!r} must be 'right' or 'left'")


def projection_shapes(embed_dim: int, num_heads: int,
                      head_dim: int) -> dict[str, tuple[int, int]]:
    """Give the shapes of W_q, W_k, W_v and W_o, used as ``x @ W``."""
    inner = num_heads * head_dim
    inward, outward = (embed_dim, inner), (inner, embed_dim)
    return {"q": inward, "k": inward, "v": inward, "o": outward}


def check_parameter_shapes(given: Mapping[str, Shape],
                           shapes: Mapping[str, tuple[int, int]]) -> None:
    """Refuse weights whose names or shapes are not those of the layer."""
    expected: dict[str, Shape] = {
        f"W_{name}": shape for name, shape in shapes.items()}
    if any(name.startswith("b_") for name in given):
        expected |= {f"b_{name}": shape[1:] for name, shape in shapes.items()}
    if set(given) != set(expected):
        raise ValueError(f"arrays has the names {sorted(given)}; "
                         f"they must be {sorted(expected)}")
    for name, shape in expected.items():
        if tuple(given[name]) != shape:
            raise ValueError(f"arrays[{name!r}] has shape "
                             f"{tuple(given[name])}; it must be {shape}")


def check_positive(**sizes: float) -> None:
    """Refuse a width that is not at least 1, or an eps that is not above 0."""
    for name, size in sizes.items():
        if isinstance(size, int) and size < 1:
            raise ValueError(f"{name}={size} must be at least 1")
        if not (size > 0 and math.isfinite(size)):
            raise ValueError(f"{name}={size} must be a finite number above 0")


def check_probability(**probabilities: float) -> None:
    """Refuse a share to drop that leaves nothing, or is none at all."""
    for name, p in probabilities.items():
        if not 0 <= p < 1:
            raise ValueError(f"{name}={p} must be at least 0 and below 1")


def check_pairs(head_dim: int) -> None:
    """Refuse a width that cannot be cut into pairs of features."""
    if head_dim % 2 != 0:
        raise ValueError(f"head_dim={head_dim} is odd; a rotary position "
                         "turns pairs of features")


def check_activation(activation: str, known: Iterable[str]) -> None:
    """Refuse the name of an activation that there is not."""
    if activation not in known:
        names = " or ".join(map(repr, sorted(known)))
        raise ValueError(f"activation={activation!r} must be {names}")


def check_table_reaches(start: int, seq_len: int, max_len: int) -> None:
    """Refuse positions that a table of learned rows does not have."""
    check_not_negative(start=start, seq_len=seq_len)
    if start + seq_len > max_len:
        raise ValueError(
            f"start={start} and seq_len={seq_len} need {start + seq_len} "
            f"positions, but the table was made with max_len={max_len}")


def check_named_shapes(given: Mapping[str, Shape],
                       expected: Mapping[str, Shape]) -> None:
    """Refuse weights whose names or shapes are not those expected."""
    missing = sorted(set(expected) - set(given))
    unknown = sorted(set(given) - set(expected))
    if missing or unknown:
        raise ValueError(f"arrays lacks the names {missing} and has the "
                         f"unknown names {unknown}")
    for name, shape in expected.items():
        if tuple(given[name]) != tuple(shape):
            raise ValueError(f"arrays[{name!r}] has shape "
                             f"{tuple(given[name])}; it must be "
                             f"{tuple(shape)}")


def check_groups(num_heads: int, num_key_value_heads: int | None) -> int:
    """Give the number of key and value heads, as many as heads if None."""
    if num_key_value_heads is None:
        return num_heads
    check_positive(num_key_value_heads=num_key_value_heads)
    if num_heads % num_key_value_heads != 0:
        raise ValueError(f"num_heads={num_heads} is not divisible by "
                         f"num_key_value_heads={num_key_value_heads}")
    return num_key_value_heads


def grouped_projection_shapes(embed_dim: int, num_heads: int,
                              num_key_value_heads: int, head_dim: int
                              ) -> dict[str, tuple[int, int]]:
    """Give the shapes of W_q to W_o where several heads share a key."""
    narrow = (embed_dim, num_key_value_heads * head_dim)
    return projection_shapes(embed_dim, num_heads, head_dim) | {
        "k": narrow, "v": narrow}


def check_room(length: int, new: int, capacity: int) -> None:
    """Refuse more tokens than a cache has empty slots for."""
    if length + new > capacity:
        raise ValueError(
            f"capacity={capacity} is too small: {length} slots are filled, "
            f"and {new} more would need {length + new}")


def check_rollback(length: int, filled: int) -> None:
    """Refuse to go back to a length that a cache does not have."""
    if not 0 <= length <= filled:
        raise ValueError(f"length={length} must be in 0..{filled}: "
                         f"{filled} slots are filled")


def check_cache_fits(cache: Mapping[str, int],
                     needed: Mapping[str, int]) -> None:
    """Refuse a cache that was made for other sizes."""
    for name, size in needed.items():
        if cache[name] != size:
            raise ValueError(f"cache has {name}={cache[name]}; the layer and "
                             f"its input need {name}={size}")
