"""A buffer that a device may still read is not given to be written."""

from __future__ import annotations

import torch

from gpu_node.executors.cuda.memory.marks import Mark
from gpu_node.executors.cuda.memory.pinned_ring import PinnedRing
from tests.gpu_node.kernels.triton.buffers import DEVICE


class Copied:
    """Notes that it was waited for."""

    def __init__(self, number: int, waited: list[int]) -> None:
        self._number = number
        self._waited = waited

    def wait(self) -> None:
        self._waited.append(self._number)

    def is_passed(self) -> bool:
        return False

    def since_s(self, earlier: Mark) -> float:
        raise NotImplementedError


def test_each_buffer_is_given_again_when_its_own_copy_is_over() -> None:
    ring, waited = PinnedRing(2, torch.Size((3,)), torch.int32, DEVICE), list[int]()
    given = []
    for number in range(5):
        given.append(ring.next().data_ptr())
        assert waited == list(range(number - 1))  # not for the copy just before, which may go on
        ring.queued(Copied(number, waited))
    assert given == [given[0], given[1]] * 2 + [given[0]]
    assert given[0] != given[1]


def test_what_was_asked_for_and_not_sent_is_given_again() -> None:
    ring = PinnedRing(2, torch.Size((3,)), torch.int32, DEVICE)
    assert ring.next().data_ptr() == ring.next().data_ptr()
