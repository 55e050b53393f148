"""Makes every turn an item of pytest, and the turns of a cell one entry.

The entry is written when the last turn of its cell is over, so a run that is
stopped keeps every cell that was finished.
"""

import os
import time
from pathlib import Path

import numpy as np
import pytest
import torch

import candidates
import cells
import record

STUDY = pytest.StashKey()


def pytest_addoption(parser):
    """What ``run.py`` tells."""
    parser.addoption("--parts", nargs="+", default=list(cells.PARTS))
    parser.addoption("--longest", type=int, default=cells.LONGEST)
    parser.addoption("--seconds", type=float, default=10)
    parser.addoption("--record", type=Path, required=True)


def pytest_configure(config):
    """Hold the threads to what the environment says."""
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))


# --- which turns, in which order ---------------------------------------------

def pytest_generate_tests(metafunc):
    """Give ``test_turn`` its turns: those of cells not measured yet."""
    if "turn" in metafunc.fixturenames:
        option = metafunc.config.getoption
        there = record.read(option("record"))
        metafunc.parametrize("turn", [
            turn for cell in cells.chosen(option("parts"), option("longest"))
            if cell.threads == torch.get_num_threads()
            and not record.has(there, cell) for turn in cells.turns(cell)],
            ids=str)


def pytest_collection_modifyitems(config, items):
    """Leave out the limits that are not asked for, or known."""
    there = record.read(config.getoption("record"))["limit"]
    wanted = ("limit" in config.getoption("parts")
              and torch.get_num_threads() == 1)
    items[:] = [item for item in items if _turn(item) or (
        wanted and item.callspec.params.get("name") not in
        {None, *there})]


def _turn(item):
    turn = item and item.callspec.params.get("turn")
    return turn if isinstance(turn, cells.Turn) else None


# --- one cell ----------------------------------------------------------------

class Study:
    """A cell while it is measured."""

    def __init__(self, cell: cells.Cell, seconds: float) -> None:
        self.cell, self.seconds = cell, seconds
        self.rounds, self.is_over = 0, False
        self.calls = candidates.calls(cell)
        self.took = {name: [] for name in self.calls}
        self.errors = {}
        # The first call is not timed: it may compile, and says how far the
        # variant is from float64. Where it takes seconds, it is as good as
        # any other.
        if not cell.is_long:
            right = candidates.exact(cell)
            for name, call in self.calls.items():
                output = candidates.to_array(call())
                if right is not None:
                    self.errors[name] = float(np.abs(output - right).max())
        self.start = time.process_time()

    def may_begin(self, turn: cells.Turn) -> bool:
        """Whether there is time for the round of this turn."""
        if turn.round == self.rounds and not self.is_over:
            used = time.process_time() - self.start
            self.is_over = (self.rounds >= cells.FEWEST_ROUNDS
                            and used >= self.seconds)
            self.rounds += not self.is_over
        return turn.round < self.rounds

    def entry(self) -> dict:
        """Give what the record keeps."""
        return self.cell.entry() | {
            "load": record.load(), "commit": record.commit(),
            "operations": self.cell.operations,
            "results": record.merge(self.took, self.errors),
            "left_out": self.cell.left_out()}


@pytest.fixture
def study(turn, request):
    """Give the cell of this turn, or skip what it has no more time for."""
    stash = request.config.stash
    if STUDY not in stash:
        stash[STUDY] = Study(turn.cell, request.config.getoption("seconds"))
    if not stash[STUDY].may_begin(turn):
        pytest.skip("the time of this cell is used up")
    return stash[STUDY]


@pytest.fixture
def limit(request):
    """Give the rates of the record, to be filled."""
    path = request.config.getoption("record")
    kept = record.read(path)
    yield kept["limit"]
    kept["limit"]["unit"] = "Gflop/s, one thread, best of 15 (bfloat16: 3)"
    record.write(path, kept)


def pytest_runtest_teardown(item, nextitem):
    """After the last turn of a cell, write its entry and let it go."""
    stash, turn, following = item.config.stash, _turn(item), _turn(nextitem)
    if turn is None or STUDY not in stash or (
            following and following.cell == turn.cell):
        return
    study = stash[STUDY]
    del stash[STUDY]
    if len({len(took) for took in study.took.values()}) > 1:
        return  # the last turn failed
    path = item.config.getoption("record")
    kept = record.read(path)
    kept["times"].append(study.entry())
    record.write(path, kept)
    times = {name: one["median_ms"]
             for name, one in kept["times"][-1]["results"].items()}
    print(f"{turn.cell}, {study.rounds} rounds, ms: {times}", flush=True)


# --- what one sees -----------------------------------------------------------

@pytest.hookimpl(tryfirst=True)
def pytest_report_teststatus(report, config):
    """Count the turns, without a dot for each."""
    if report.failed:
        return None
    return "turns" if report.passed and report.when == "call" else "", "", ""
