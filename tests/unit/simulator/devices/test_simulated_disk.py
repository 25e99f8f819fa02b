"""A disk in virtual time."""

from __future__ import annotations

from gpu_node.engine.memory.prefix import Chains
from gpu_node.engine.memory.tiers.ssd_index import Slot
from gpu_node.engine.tiers.block_jobs import BlockJob, Done
from services.simulator.devices.simulated_disk import READ_BYTES_PER_S, WRITE_BYTES_PER_S, SimulatedDisk

SLOT_BYTES = 1 << 20


class Time:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def job(number: int, *, is_read: bool, owner: object = None) -> BlockJob:
    cache = Chains()
    prefix = cache.extend(cache.root, (number,))
    return BlockJob(owner, is_read, Slot(0, number, SLOT_BYTES), prefix, (), number)


def test_reads_follow_one_another_and_writes_go_on_beside_them() -> None:
    time = Time()
    disk = SimulatedDisk(time)
    first, second, write = job(1, is_read=True), job(2, is_read=True), job(3, is_read=False)
    for one in (first, second, write):
        disk.ask(one)
    assert disk.answers() == []
    time.now = SLOT_BYTES / READ_BYTES_PER_S
    assert disk.answers() == [Done(first)]
    time.now = SLOT_BYTES / WRITE_BYTES_PER_S
    assert disk.answers() == [Done(write)]
    time.now = 2 * SLOT_BYTES / READ_BYTES_PER_S
    assert disk.answers() == [Done(second)]
    assert disk.settle()


def test_jobs_of_one_who_leaves_are_answered_at_once() -> None:
    disk = SimulatedDisk(Time())
    mine, other = job(1, is_read=True, owner="me"), job(2, is_read=False, owner="other")
    disk.ask(mine)
    disk.ask(other)
    disk.cancel("me")
    assert disk.answers() == [Done(mine, is_cancelled=True)]
    assert not disk.settle()
