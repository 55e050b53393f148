"""Attention on 2 and 4 processes equals attention on one."""

import socket

import pytest
import torch

import parallel_worker
from self_attention import parallel

pytestmark = pytest.mark.slow


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


@pytest.mark.parametrize("processes", [2, 4])
def test_several_processes_equal_one(processes):
    parallel_worker.spawn(processes, free_port())


def test_regrouped_rows_are_cut_into_whole_heads():
    packed = torch.arange(3 * 4)
    regrouped = parallel.regroup_rows(packed, 2)
    assert regrouped.tolist() == [0, 1, 4, 5, 8, 9, 2, 3, 6, 7, 10, 11]


def test_rows_that_cannot_be_cut_are_refused():
    with pytest.raises(ValueError, match=r"packed has 12 rows.*parts=15"):
        parallel.regroup_rows(torch.zeros(12), 5)
