"""One face for every variant: NumPy arrays in, NumPy arrays out.

A test that takes the fixture ``variant`` runs on each entry of ``VARIANTS``.
To test another variant, add one line there.
"""

from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
import torch

from self_attention import (
    numpy_reference,
    numpy_tiled,
    torch_eager,
    torch_fused,
    torch_tiled,
)

#: Distinct primes, so that no wrong axis fits by luck.
BATCH, HEADS, QUERY, KEY, HEAD_DIM, VALUE_DIM = 2, 3, 5, 7, 11, 13


@dataclass(frozen=True)
class Variant:
    """A module of ``self_attention`` that is called with NumPy arrays."""

    module: ModuleType
    is_torch: bool
    #: The dtypes in which the variant computes attention.
    dtypes: tuple[str, ...]

    @property
    def name(self) -> str:
        return self.module.__name__.rpartition(".")[2]

    def has(self, function: str) -> bool:
        return function in self.module.__all__

    def __getattr__(self, function: str) -> Any:
        if function.startswith("__"):
            raise AttributeError(function)
        native = getattr(self.module, function)

        def called(*args: Any, **kwargs: Any) -> Any:
            return self.to_numpy(native(*map(self.to_native, args), **kwargs))

        return called

    def to_native(self, value: Any, dtype: str | None = None) -> Any:
        """Turn an array into what the variant computes with."""
        if not isinstance(value, np.ndarray):
            return value
        if not self.is_torch:
            return value if dtype is None else value.astype(dtype)
        tensor = torch.from_numpy(np.array(value))
        return tensor if dtype is None else tensor.to(getattr(torch, dtype))

    def to_numpy(self, value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        value = value.detach()
        if value.dtype == torch.bfloat16:
            value = value.float()
        return value.numpy()

    def layer(self, embed_dim: int, num_heads: int, *,
              dtype: str = "float64", **kwargs: Any) -> Any:
        """Make a layer, by default in double precision."""
        library = torch if self.is_torch else np
        return self.module.MultiHeadSelfAttention(
            embed_dim, num_heads, dtype=getattr(library, dtype), **kwargs)

    def call(self, layer: Any, *args: Any, **kwargs: Any) -> Any:
        """Call a layer (or its bound method) with NumPy arrays."""
        return self.to_numpy(layer(*map(self.to_native, args), **kwargs))


VARIANTS = (
    Variant(numpy_reference, is_torch=False,
            dtypes=("float16", "float32", "float64")),
    Variant(numpy_tiled, is_torch=False,
            dtypes=("float16", "float32", "float64")),
    Variant(torch_eager, is_torch=True,
            dtypes=("bfloat16", "float16", "float32", "float64")),
    Variant(torch_fused, is_torch=True,
            dtypes=("bfloat16", "float16", "float32", "float64")),
    Variant(torch_tiled, is_torch=True,
            dtypes=("bfloat16", "float16", "float32", "float64")),
)


def by_name(name: str) -> Variant:
    return next(variant for variant in VARIANTS if variant.name == name)


def draw(rng: np.random.Generator, *, batch: tuple[int, ...] = (BATCH, HEADS),
         query_len: int = QUERY, key_len: int = KEY, head_dim: int = HEAD_DIM,
         value_dim: int = VALUE_DIM
         ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Draw a query, a key and a value in float64."""
    return (rng.normal(size=(*batch, query_len, head_dim)),
            rng.normal(size=(*batch, key_len, head_dim)),
            rng.normal(size=(*batch, key_len, value_dim)))
