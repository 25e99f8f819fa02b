"""A device's operators are split by what it measures, for the sender that hides the least; times are made up here."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import cast

from gpu_node.executors.cpu.splits import MIN_STEPS, MIN_TASKS, CpuSplits
from gpu_node.kernels.cpu import CpuDevice, CpuLinkReceiver, CpuLinkShape, CpuProgram
from gpu_node.kernels.cpu.program import OperatorSeconds

MS = 1e-3
SHAPE = CpuLinkShape(10, 16, 8, 4, 32, 4, 8, 8, 64)
"""Of ten layers."""


@dataclass
class Device:
    attended: tuple[int, float] = (0, 0.0)
    num_drains: int = 0

    def drain(self) -> None:
        self.num_drains += 1


@dataclass(eq=False)
class Program:
    """Of three operators, the second of which cannot be split."""

    seconds: list[float] = field(default_factory=lambda: [0.0, 0.0, 0.0])
    num_steps: int = 0
    parts: list[int] = field(default_factory=lambda: [1, 1, 1])

    def times(self) -> OperatorSeconds:
        return OperatorSeconds(list(self.seconds), [True, False, True], self.num_steps)

    def split(self, num_parts: list[int]) -> None:
        self.parts = list(num_parts)

    def run(self, number: int, *seconds: float) -> None:
        self.num_steps += number
        self.seconds = [before + number * one for before, one in zip(self.seconds, seconds, strict=True)]


@dataclass
class Receiver:
    sender_times: tuple[float, float]
    shape: CpuLinkShape = SHAPE


class World:
    def __init__(self, *senders: tuple[float, float]) -> None:
        self.device, self.program = Device(), Program()
        self.receivers = [Receiver(times) for times in senders]
        self.splits = CpuSplits(cast("CpuDevice", self.device))
        self.look()

    def look(self) -> list[int]:
        programs = [cast("CpuProgram", self.program)]
        self.splits.look(programs, [cast("CpuLinkReceiver", one) for one in self.receivers])
        return self.program.parts

    def serve(self, number: int, seconds: float) -> None:
        before, all_s = self.device.attended
        self.device.attended = before + number, all_s + number * seconds


def busy(*senders: tuple[float, float]) -> World:
    """Operators of 8, 8 and 2 ms; tasks of 1 ms."""
    world = World(*senders)
    world.serve(MIN_TASKS, 1 * MS)
    world.program.run(MIN_STEPS, 8 * MS, 8 * MS, 2 * MS)
    return world


def test_what_is_longer_than_the_slack_is_split_where_it_can_be_until_waits_are_few() -> None:
    # K - N = 2.5 ms; 5 % of a step of 100 ms over ten tasks: .5 ms, which the second alone exceeds
    assert busy((3.5 * MS, 100 * MS)).look() == [4, 1, 1]
    # of a second: 5 ms are more than all waits
    assert busy((3.5 * MS, 1.0)).look() == [1, 1, 1]


def test_the_sender_that_hides_the_least_counts() -> None:
    assert busy((20 * MS, 100 * MS), (3.5 * MS, 100 * MS)).look() == [4, 1, 1]
    assert busy((20 * MS, 100 * MS)).look() == [1, 1, 1]


def test_nothing_is_split_before_there_are_means() -> None:
    world = busy((0.0, 0.0))
    assert world.look() == [1, 1, 1], "the sender has said nothing"
    world = World((3.5 * MS, 100 * MS))
    world.serve(MIN_TASKS, 1 * MS)
    world.program.run(MIN_STEPS - 1, 8 * MS, 8 * MS, 2 * MS)
    assert world.look() == [1, 1, 1]
    world.program.run(1, 8 * MS, 8 * MS, 2 * MS)
    assert world.look() == [4, 1, 1]


def test_a_plan_stays_until_what_it_rests_on_has_drifted() -> None:
    world = busy((3.5 * MS, 100 * MS))
    world.look()
    num_drains = world.device.num_drains
    world.program.run(MIN_STEPS, 9 * MS, 8 * MS, 2 * MS)
    assert (world.look(), world.device.num_drains) == ([4, 1, 1], num_drains)
    world.program.run(MIN_STEPS, 1 * MS, 1 * MS, 1 * MS)
    assert world.look() == [1, 1, 1]


def test_operators_are_whole_again_when_nobody_is_served() -> None:
    world = busy((3.5 * MS, 100 * MS))
    world.look()
    world.splits.join_parts([cast("CpuProgram", world.program)])
    assert world.program.parts == [1, 1, 1]
