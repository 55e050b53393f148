"""The timing itself: every turn of every variant is one item of pytest.

pytest-benchmark times an item to its end before it begins the next. So an
item is one short turn, ``conftest.py`` puts the turns of a cell in order,
round after round, and the medians of the rounds are what is compared.

The name keeps this file out of ``make test``, which collects ``test_*.py``.
"""

import statistics
import time

import numpy as np
import pytest
import torch

#: CPU seconds that a turn of short calls lasts, and in how many parts.
TURN, PARTS = 0.05, 5


class Clock:
    """CPU time with one thread, wall time with two.

    Other programs disturb CPU time little. But threads that wait for each
    other use it up, so with two of them only wall time says who is faster.
    pytest-benchmark takes one clock. This one notes the wall time whenever it
    is read, so that both are known of the same calls.
    """

    def __init__(self) -> None:
        self.walls: list[float] = []

    def __call__(self) -> float:
        """Give the time in seconds."""
        self.walls.append(time.perf_counter())
        if torch.get_num_threads() > 1:
            return self.walls[-1]
        return time.process_time()

    def wall_times(self, iterations: int) -> list[float]:
        """Give the wall seconds of a call, for each part of this turn."""
        starts, ends = self.walls[::2], self.walls[1::2]
        self.walls = []
        return [(end - start) / iterations
                for start, end in zip(starts, ends)]


clock = Clock()


def products():
    """Large matrix products, and one of the size of a tile.

    Gives for each name the call, its operations, and the rounds.
    """
    square = np.random.default_rng(0).standard_normal(
        (1024, 1024)).astype("f4")
    tensor, out = torch.from_numpy(square), np.empty_like(square)
    query = np.ascontiguousarray(square[:512, :64])
    key = np.ascontiguousarray(square[:256, :64])
    tile, half = np.empty((512, 256), "f4"), tensor.bfloat16()
    large, small = 2 * 1024 ** 3, 2 * 512 * 64 * 256
    return {
        "numpy 1024 x 1024": (
            lambda: np.matmul(square, square, out=out), large, 15),
        "torch 1024 x 1024": (lambda: tensor @ tensor, large, 15),
        "torch 1024 x 1024, bfloat16": (lambda: half @ half, large, 3),
        "numpy score tile 512 x 64 x 256": (
            lambda: [np.matmul(query, key.T, out=tile) for _ in range(20)],
            20 * small, 15)}


@pytest.mark.benchmark(timer=time.process_time, group="limit")
@pytest.mark.parametrize("name", list(products()))
def test_limit(limit, name, benchmark):
    """How many operations a second can one core do?"""
    call, operations, rounds = products()[name]
    call()
    benchmark.pedantic(call, rounds=rounds)
    limit[name] = round(operations / benchmark.stats.stats.min / 1e9, 1)


@pytest.mark.benchmark(timer=clock)
def test_turn(study, turn, benchmark):
    """How long does a call take, in this turn?"""
    call, fit = study.calls[turn.name], 1
    if turn.cell.is_short:
        # Untimed, so that whoever ran before has no say in what the cache
        # holds; then several calls, or the clock's own time would count.
        start = time.process_time()
        call()
        fit = max(1, int(TURN / (time.process_time() - start)))
    rounds = min(fit, PARTS)
    iterations = fit // rounds
    benchmark.pedantic(call, rounds=rounds, iterations=iterations)
    walls = clock.wall_times(iterations)
    benchmark.group = str(turn.cell)
    benchmark.extra_info.update(turn=turn.round, variant=turn.name,
                                wall=walls)
    study.took[turn.name].append(
        (statistics.median(benchmark.stats.stats.data),
         statistics.median(walls)))
