"""What is timed: the cells, who takes part in each, and the order of turns.

A cell is one size, one dtype, one pass. The variants of a cell run in turns,
round after round, so that a slow minute hits all of them. No library is
loaded here: what is going to be timed can be listed in a moment.
"""

import importlib.util
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

WIDTH, HEADS = 512, 8
HEAD_DIM = WIDTH // HEADS
SIZES = [(1, 16), (8, 128), (4, 512), (1, 2048), (1, 8192)]
LONGEST = SIZES[-1][1]
#: Rounds of a cell: the most, and the fewest where one takes long.
MOST_ROUNDS, FEWEST_ROUNDS = 15, 3

VARIANTS = ("numpy_reference", "numpy_tiled", "torch_eager", "torch_fused",
            "torch_tiled", "SDPA packed", "nn.MHA fast path", "nn.MHA",
            "nn.MHA with weights", "BERT eager", "BERT sdpa", "Keras", "JAX")
#: Those that are not part of PyTorch come with the peers.
PACKAGE = {"BERT eager": "transformers", "BERT sdpa": "transformers",
           "Keras": "keras", "JAX": "jax"}
#: Those that store every score: at 8,192 tokens they need gigabytes.
SQUARE = {"numpy_reference", "torch_eager", "nn.MHA fast path",
          "nn.MHA with weights", "BERT eager", "JAX"}
FLOAT32_ONLY = {"numpy_reference", "numpy_tiled", "Keras", "JAX"}
#: Those that keep up at the largest size, and are worth the time there.
LEADERS = {"numpy_tiled", "torch_fused", "SDPA packed", "BERT sdpa"}
#: Those that are compared on batches with a mask.
MASKED = {"numpy_tiled", "torch_fused", "torch_tiled", "SDPA packed",
          "nn.MHA"}
#: Where bfloat16 is emulated, one call of the others takes seconds.
HALF_SHORT = {"torch_eager", "torch_fused", "SDPA packed", "nn.MHA",
              "BERT sdpa"}
HALF_LONG = {"torch_fused", "SDPA packed", "BERT sdpa"}
TWO_THREADS = {"numpy_reference", "numpy_tiled", "torch_eager", "torch_fused",
               "SDPA packed", "BERT sdpa", "Keras", "JAX"}


@dataclass(frozen=True)
class Cell:
    """One size, one dtype, one pass: what the variants are compared on."""

    kind: str
    """``plain``, ``padded`` or ``causal``."""
    batch: int
    length: int
    dtype: str = "float32"
    with_backward: bool = False
    threads: int = 1

    @property
    def is_short(self) -> bool:
        """Whether a call is over in less than about a tenth of a second."""
        return self.operations < 5e9

    @property
    def is_long(self) -> bool:
        """Whether one call takes seconds."""
        return self.length > 4096

    @property
    def operations(self) -> int:
        """Count what the matrix products multiply and add, unmasked."""
        once = self.batch * (8 * self.length * WIDTH ** 2
                             + 4 * self.length ** 2 * WIDTH)
        return once * (3 if self.with_backward else 1)

    def entry(self) -> dict:
        """Give the cell as the record names it."""
        return {"kind": self.kind, "batch": self.batch, "length": self.length,
                "dtype": self.dtype, "threads": self.threads,
                "pass": ("forward and backward" if self.with_backward
                         else "forward")}

    def __str__(self) -> str:
        steps = "both" if self.with_backward else "forward"
        return (f"{self.kind}-{self.dtype}-{steps}-{self.batch}x{self.length}"
                f"-{self.threads}t")

    def why_not(self, name: str) -> str | None:
        """Say why a variant is left out here; None if it takes part."""
        if name in FLOAT32_ONLY and self.dtype != "float32":
            return "float32 only"
        if name == "nn.MHA fast path" and self.with_backward:
            return "has no backward pass"
        if name in SQUARE and self.is_long:
            return "stores every score: too large"
        if name not in self._chosen():
            return "left out to save time"
        if not is_installed(PACKAGE.get(name)):
            return f"not installed: {PACKAGE[name]}"
        return None

    def names(self) -> list[str]:
        """Give those that take part."""
        return [name for name in VARIANTS if self.why_not(name) is None]

    def left_out(self) -> dict[str, str]:
        """Give those that do not, each with the reason."""
        return {name: self.why_not(name) for name in VARIANTS
                if self.why_not(name) is not None}

    def _chosen(self) -> Iterable[str]:
        if self.kind != "plain":
            return MASKED
        if self.threads == 2:
            return TWO_THREADS
        if self.dtype == "bfloat16":
            return HALF_SHORT if self.length <= 128 else HALF_LONG
        return LEADERS if self.is_long else VARIANTS


def is_installed(package: str | None) -> bool:
    """Whether a package is there, without loading it."""
    return package is None or importlib.util.find_spec(package) is not None


def _plain(sizes: list[tuple[int, int]], dtype: str) -> list[Cell]:
    return [Cell("plain", *size, dtype, with_backward)
            for size in sizes for with_backward in (False, True)]


#: What can be measured by itself, in the order of a whole run. "limit" and
#: "memory" have no cells: bench_kernels.py and memory.py say what they are.
PARTS: dict[str, list[Cell]] = {
    "limit": [],
    "float32": _plain(SIZES, "float32"),
    "masked": [Cell("padded", 4, 512), Cell("padded", 2, 2048),
               Cell("causal", 4, 512), Cell("causal", 1, 2048)],
    # Emulated, one call with its backward pass takes a minute at the largest
    # size.
    "bfloat16": [cell for cell in _plain(SIZES, "bfloat16")
                 if not (cell.is_long and cell.with_backward)],
    "two-threads": [Cell("plain", *size, threads=2) for size in SIZES],
    "memory": [],
}


def chosen(parts: Iterable[str], longest: int) -> list[Cell]:
    """Give the cells of some parts, up to a length."""
    return [cell for part in parts for cell in PARTS[part]
            if cell.length <= longest]


@dataclass(frozen=True)
class Turn:
    """One variant's time in one round of a cell: one item of pytest."""

    cell: Cell
    round: int
    name: str

    def __str__(self) -> str:
        return f"{self.cell}-round{self.round:02}-{self.name}"


def turns(cell: Cell) -> Iterator[Turn]:
    """Give the turns of a cell, round after round, each in another order.

    At 16 tokens the weights are most of what a call reads, and who ran before
    decides what the cache still holds of them. In an order that never changes
    one variant would always follow the same other one.
    """
    for number in range(FEWEST_ROUNDS if cell.is_long else MOST_ROUNDS):
        names = cell.names()
        random.Random(f"{cell} {number}").shuffle(names)
        for name in names:
            yield Turn(cell, number, name)
