"""Which moves of blocks a step needs, on which queue of the device each goes, and what it must wait for.

A device has two queues: one computes, one copies to and from the host. Blocks go through *slots*: pieces of staging
memory with a device end and a pinned host end. A gather packs blocks into a slot, and one transfer takes it over, since
many small ones would be bound by how many they are (PagedAttention, SOSP'23, §5.1). The rows of the step wait for the
gather only, which runs at the speed of the device's memory:

    compute   gather a→s0 │ copies │ ░░░ rows of the step, a is written anew ░░░ │ end │ scatter s1→b │ next step
                     └──┐                                                                ┌──┘
    copy                send s0→host ─────────────────────── fetch host→s1 ──────────────┘

    hazard                                                     what holds it off
    1  a block is written again before its content has left    gather and rows: order of the compute queue
    2  a send reads a slot that is not packed yet              the send waits for the slot's gather
    3  a gather packs into a slot that is still sent           the gather waits for the slot's send
    4  a fetch fills a slot that is not scattered yet          the fetch waits for the slot's scatter
    5  a scatter reads a slot that is not filled yet           the scatter waits for the slot's fetch
    6  a fetch reads a host block before its content came,     sends and fetches: order of the copy queue
       a send writes one whose content has not left
    7  a row reads a block that is not back yet                rows of later steps are behind the scatter; none of this
                                                               step reads what it swaps in (`StepPlan`)
    8  the process reads or fills a slot's host end too early  it waits for the move that had the slot before
    9  the process reads swapped-out blocks, or a model goes   it waits until both queues are empty

So a slot is a chain: each move waits for the one that had the slot before it, where that ran elsewhere. All else is the
order of the queues, and staging memory is bounded: where a step moves more than the slots hold, its rows wait.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TypeVar

from gpu_node.engine.border.plan import BlockSwap

_Item = TypeVar("_Item")

NUM_SLOTS = 2
"""One is packed while the other goes over."""


class Lane(Enum):
    """What makes a move. Each makes its moves in their order."""

    COMPUTE = "the queue in which steps are computed"
    COPY = "the queue beside it"
    PROCESS = "this process, before it queues anything else"


class MoveKind(Enum):
    """What is moved; a slot has one end on the device and one on the host."""

    GATHER = "blocks of the device to the slot's device end"
    SEND = "the slot's device end to blocks of the host, or to its own host end"
    FETCH = "blocks of the host, or the slot's host end, to its device end"
    SCATTER = "the slot's device end to blocks of the device"
    TAKE = "the slot's host end to the process"
    GIVE = "content of the process to the slot's host end"


@dataclass(frozen=True, slots=True)
class Move:
    """Some blocks through one slot."""

    number: int
    """Moves count up."""
    kind: MoveKind
    lane: Lane
    slot: int
    blocks: tuple[int, ...]
    """In the order in which they lie in the slot: of the device for a gather or scatter, of the host for a send or
    fetch; for the process, places in its content."""
    has_host_end: bool = False
    """A send that ends, or a fetch that begins, at the slot's own host end; ``blocks`` are places then."""
    after: int | None = None
    """Number of the move that had the slot before, where it has to be waited for."""


@dataclass(frozen=True, slots=True)
class StepMoves:
    """The moves around the copies and the rows of a step."""

    before: tuple[Move, ...]
    behind: tuple[Move, ...]
    """In front of the next step."""


class BlockMoves:
    """Plans the moves of one model's blocks; it remembers which move had each slot last."""

    def __init__(self, slot_blocks: int, *, overlaps: bool = True) -> None:
        """``slot_blocks`` fit into a slot. ``overlaps=False`` is the plain path: one queue for all."""
        assert slot_blocks > 0
        self.slot_blocks = slot_blocks
        self._copies = Lane.COPY if overlaps else Lane.COMPUTE
        self._num_moves = 0
        self._next_slot = 0
        self._last: list[Move | None] = [None] * NUM_SLOTS

    def step(self, swaps_out: Sequence[BlockSwap], swaps_in: Sequence[BlockSwap]) -> StepMoves:
        """Content leaves before anything is written, and comes back for the steps that follow."""
        before: list[Move] = []
        behind: list[Move] = []
        for chunk in self._chunks(by_host_block(swaps_out)):
            slot = self._take_slot()
            before.append(self._move(MoveKind.GATHER, slot, [swap.device_block for swap in chunk]))
            before.append(self._move(MoveKind.SEND, slot, [swap.host_block for swap in chunk]))
        fetched: deque[tuple[int, Sequence[BlockSwap]]] = deque()
        for chunk in self._chunks(by_host_block(swaps_in)):
            fetches = before
            if len(fetched) == NUM_SLOTS:  # the next slot is free only behind the rows
                behind.append(self._scatter(*fetched.popleft()))
                fetches = behind
            slot = self._take_slot()
            fetches.append(self._move(MoveKind.FETCH, slot, [swap.host_block for swap in chunk]))
            fetched.append((slot, chunk))
        behind += [self._scatter(slot, chunk) for slot, chunk in fetched]
        return StepMoves(tuple(before), tuple(behind))

    def read(self, blocks: Sequence[int]) -> list[Move]:
        """Blocks of the device to the process, behind the steps that are queued."""
        moves: list[Move] = []
        sent: deque[tuple[int, Sequence[int]]] = deque()
        for places in self._chunks(range(len(blocks))):
            if len(sent) == NUM_SLOTS:
                moves.append(self._move(MoveKind.TAKE, *sent.popleft()))
            slot = self._take_slot()
            moves.append(self._move(MoveKind.GATHER, slot, [blocks[place] for place in places]))
            moves.append(self._move(MoveKind.SEND, slot, places, has_host_end=True))
            sent.append((slot, places))
        return moves + [self._move(MoveKind.TAKE, slot, places) for slot, places in sent]

    def write(self, blocks: Sequence[int]) -> list[Move]:
        """From the process to blocks of the device, behind the steps that are queued."""
        moves: list[Move] = []
        for places in self._chunks(range(len(blocks))):
            slot = self._take_slot()
            moves.append(self._move(MoveKind.GIVE, slot, places))
            moves.append(self._move(MoveKind.FETCH, slot, places, has_host_end=True))
            moves.append(self._move(MoveKind.SCATTER, slot, [blocks[place] for place in places]))
        return moves

    def _scatter(self, slot: int, chunk: Sequence[BlockSwap]) -> Move:
        return self._move(MoveKind.SCATTER, slot, [swap.device_block for swap in chunk])

    def _chunks(self, blocks: Sequence[_Item]) -> Iterator[Sequence[_Item]]:
        for first in range(0, len(blocks), self.slot_blocks):
            yield blocks[first : first + self.slot_blocks]

    def _take_slot(self) -> int:
        slot = self._next_slot
        self._next_slot = (slot + 1) % NUM_SLOTS
        return slot

    def _move(self, kind: MoveKind, slot: int, blocks: Sequence[int], *, has_host_end: bool = False) -> Move:
        lane, last = self._lane(kind), self._last[slot]
        is_elsewhere = last is not None and last.lane not in (lane, Lane.PROCESS)
        after = last.number if last is not None and is_elsewhere else None
        move = Move(self._num_moves, kind, lane, slot, tuple(blocks), has_host_end, after)
        self._num_moves += 1
        self._last[slot] = move
        return move

    def _lane(self, kind: MoveKind) -> Lane:
        if kind in (MoveKind.GATHER, MoveKind.SCATTER):
            return Lane.COMPUTE
        return self._copies if kind in (MoveKind.SEND, MoveKind.FETCH) else Lane.PROCESS


def by_host_block(swaps: Iterable[BlockSwap]) -> list[BlockSwap]:
    """In the order of host memory, where neighbours are one transfer."""
    return sorted(swaps, key=lambda swap: swap.host_block)
