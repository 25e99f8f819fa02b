"""Devices of a group see the memory of the tightest of them, so that all have the same blocks."""

from __future__ import annotations

import torch

from gpu_node.executors.memory.device_memory import GroupMemory, left_for_kv
from tests.gpu_node.thread_group import ThreadRank, run_ranks


class Stated:
    """A device with so much memory, of which so much is in use."""

    def __init__(self, total_bytes: int, used_bytes: int) -> None:
        self.total_bytes = total_bytes
        self._used_bytes = used_bytes

    def used_bytes(self) -> int:
        return self._used_bytes

    def trim(self) -> None:
        self._used_bytes = 0


def test_the_least_memory_and_the_most_use_count_for_all() -> None:
    huge = 140 << 30  # more than 32 bits hold
    own = [Stated(huge + 1, 7), Stated(huge, 5)]

    def look(rank: ThreadRank) -> torch.Tensor:
        memory = GroupMemory(own[rank.rank], rank, torch.device("cpu"))
        before = memory.used_bytes()
        if rank.rank == 0:
            memory.trim()
        return torch.tensor([memory.total_bytes, before, memory.used_bytes()])

    assert [found.tolist() for found in run_ranks([look, look])] == [[huge, 7, 5], [huge, 7, 5]]


def test_what_is_left_for_kv_is_a_share_less_what_is_used_beside_it() -> None:
    # of 900 that may be used, 200 were by others than KV
    assert left_for_kv(total_bytes=1000, share=0.9, used_bytes=300, kv_bytes=100) == 700
    assert left_for_kv(total_bytes=1000, share=0.1, used_bytes=300, kv_bytes=100) == -100, "more than the share"
