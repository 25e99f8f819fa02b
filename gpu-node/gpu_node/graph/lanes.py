"""Lanes of a program: queues of operators that run beside each other, with events between them (NanoFlow, OSDI'25).

In a lane, operators run in order; an operator that waits for others begins when those have ended. What a program means
is the order in which it lists its operators: lanes permit other orders, and `check_queues` proves that no hazard of the
listed order can turn around in any of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum


class ProgramLane(StrEnum):
    """What a queue's operators are bound by."""

    COMPUTE = "compute"
    MEMORY = "memory"
    NETWORK = "network"
    COPY = "copy"


@dataclass(frozen=True, slots=True)
class LaneTurn:
    """An operator in its lane."""

    operator: int
    """Its index in the program."""
    device_part: float
    """Of the device, that it is meant to have: above 0, at most 1."""
    waits: tuple[int, ...] = ()
    """Operators of other lanes that end before it begins."""


@dataclass(frozen=True, slots=True)
class LaneQueue:
    """Operators in the order in which their lane runs them."""

    lane: ProgramLane
    turns: tuple[LaneTurn, ...]


@dataclass(frozen=True, slots=True)
class Placement:
    """Where an operator shall run."""

    lane: ProgramLane
    device_part: float


def queues_of(
    order: Sequence[int], placements: Sequence[Placement], conflicts: Sequence[Sequence[int]]
) -> tuple[LaneQueue, ...]:
    """Queues of operators in ``order``, with no wait that follows from others.

    ``order``: every index once, none before one that it conflicts with; the others by index.
    """
    turns: dict[ProgramLane, list[LaneTurn]] = {}
    place_of: dict[int, tuple[ProgramLane, int]] = {}
    clocks: dict[int, Mapping[ProgramLane, int]] = {}
    rank = {index: number for number, index in enumerate(order)}
    for index in order:
        placement = placements[index]
        queue = turns.setdefault(placement.lane, [])
        clock: dict[ProgramLane, int] = dict(clocks[queue[-1].operator]) if queue else {}
        clock[placement.lane] = len(queue)
        waits = []
        for other in sorted(conflicts[index], key=rank.__getitem__, reverse=True):
            lane, place = place_of[other]
            if clock.get(lane, 0) <= place:
                waits.append(other)
                _advance(clock, clocks[other])
        queue.append(LaneTurn(index, placement.device_part, tuple(sorted(waits))))
        place_of[index] = placement.lane, len(queue) - 1
        clocks[index] = {**clock, placement.lane: len(queue)}
    return tuple(LaneQueue(lane, tuple(turns[lane])) for lane in ProgramLane if lane in turns)


def check_queues(queues: Sequence[LaneQueue], num_operators: int, conflicts: Sequence[Sequence[int]]) -> None:
    """Assert that every operator runs once, that none waits for ever, and that no hazard depends on luck.

    An operator knows of another that it has ended if it waited for it, or for one that knew, or follows one that did in
    its lane: so each carries how far every lane is for sure when it begins.
    """
    place_of = {turn.operator: (queue.lane, place) for queue in queues for place, turn in enumerate(queue.turns)}
    num_turns = sum(len(queue.turns) for queue in queues)
    assert len({queue.lane for queue in queues}) == len(queues), "a lane is one queue"
    assert len(place_of) == num_turns == num_operators, "each operator has one turn"
    assert sorted(place_of) == list(range(num_operators)), "each operator has one turn"
    known: dict[int, Mapping[ProgramLane, int]] = {}

    def run(queue: LaneQueue, place: int) -> None:
        turn = queue.turns[place]
        assert 0 < turn.device_part <= 1, f"operator {turn.operator} has a part of the device"
        clock = dict(known[queue.turns[place - 1].operator]) if place else {}
        for other in turn.waits:
            _advance(clock, known[other])
        for other in conflicts[turn.operator]:
            lane, needed = place_of[other]
            assert clock.get(lane, 0) > needed, f"operator {turn.operator} may begin before {other} has ended"
        known[turn.operator] = {**clock, queue.lane: place + 1}

    _play(queues, run, first_ready)


def permitted_order(queues: Sequence[LaneQueue], choose: Callable[[int], int]) -> list[int]:
    """Operators in an order that lanes permit; ``choose``, of so many that could be next, the index of one."""
    order: list[int] = []
    _play(queues, lambda queue, place: order.append(queue.turns[place].operator), choose)
    return order


def first_ready(num_ready: int) -> int:
    """The first of those that could be next."""
    del num_ready
    return 0


def _play(queues: Sequence[LaneQueue], run: Callable[[LaneQueue, int], None], choose: Callable[[int], int]) -> None:
    ended: set[int] = set()
    places = [0] * len(queues)
    num_left = sum(len(queue.turns) for queue in queues)
    while num_left:
        ready = [
            number
            for number, (queue, place) in enumerate(zip(queues, places, strict=True))
            if place < len(queue.turns) and ended.issuperset(queue.turns[place].waits)
        ]
        assert ready, "lanes wait for each other"
        number = ready[choose(len(ready))]
        run(queues[number], places[number])
        ended.add(queues[number].turns[places[number]].operator)
        places[number] += 1
        num_left -= 1


def _advance(clock: dict[ProgramLane, int], other: Mapping[ProgramLane, int]) -> None:
    for lane, place in other.items():
        clock[lane] = max(clock.get(lane, 0), place)
