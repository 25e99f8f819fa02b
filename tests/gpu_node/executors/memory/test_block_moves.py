"""Whatever the queues of a device do first, as far as they may: moved content is what it is where all goes in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpu_node.engine.border.plan import BlockCopy, BlockSwap
from gpu_node.executors.memory.block_moves import NUM_SLOTS, BlockMoves, Lane, Move, MoveKind

NUM_BLOCKS = 8
Content = list[object]
Change = Callable[[Move], Move]


def as_planned(move: Move) -> Move:
    return move


class Permuting:
    """A device whose queues are run in any order that what they wait for permits; content of blocks are numbers."""

    def __init__(self, choices: Random, slot_blocks: int, change: Change = as_planned) -> None:
        self._choices = choices
        self._change = change
        self._queues: dict[object, deque[tuple[int, int | None, Callable[[], None]]]] = {}
        self._done: set[int] = set()
        self.device: Content = [f"device {number}" for number in range(NUM_BLOCKS)]
        self.host: Content = [f"host {number}" for number in range(NUM_BLOCKS)]
        self._device_ends: list[Content] = [["nothing"] * slot_blocks for _ in range(NUM_SLOTS)]
        self._host_ends: list[Content] = [["nothing"] * slot_blocks for _ in range(NUM_SLOTS)]

    def rows(self, work: Callable[[], None]) -> None:
        """Copies, or the rows of a step, in the queue that computes."""
        self._queue(Lane.COMPUTE, -1, None, work)

    def make(self, moves: Iterable[Move], content: Content | None = None) -> None:
        for planned in moves:
            move = self._change(planned)
            if move.lane is Lane.PROCESS:
                while move.after is not None and move.after not in self._done:
                    self._run_one()
                self._do(move, content)
            else:
                self._queue(move.lane, move.number, move.after, partial(self._do, move, content))

    def drain(self) -> None:
        while any(self._queues.values()):
            self._run_one()

    def _queue(self, lane: object, number: int, after: int | None, work: Callable[[], None]) -> None:
        self._queues.setdefault(lane, deque()).append((number, after, work))
        while self._choices.random() < 0.4 and any(self._queues.values()):
            self._run_one()

    def _run_one(self) -> None:
        heads = [queue for queue in self._queues.values() if queue]
        ready = [queue for queue in heads if queue[0][1] is None or queue[0][1] in self._done]
        assert ready, "queues wait for each other"
        number, _, work = self._choices.choice(ready).popleft()
        work()
        self._done.add(number)

    def _do(self, move: Move, content: Content | None) -> None:
        device_end, host_end = self._device_ends[move.slot], self._host_ends[move.slot]
        host, places = (host_end, range(len(move.blocks))) if move.has_host_end else (self.host, move.blocks)
        for number, (block, place) in enumerate(zip(move.blocks, places, strict=True)):
            match move.kind:
                case MoveKind.GATHER:
                    device_end[number] = self.device[block]
                case MoveKind.SCATTER:
                    self.device[block] = device_end[number]
                case MoveKind.SEND:
                    host[place] = device_end[number]
                case MoveKind.FETCH:
                    device_end[number] = host[place]
                case MoveKind.TAKE:
                    assert content is not None
                    content[block] = host_end[number]
                case MoveKind.GIVE:
                    assert content is not None
                    host_end[number] = content[block]


class Checked:
    """Does everything twice: at once and in order, and by `BlockMoves` on a permuting device."""

    def __init__(
        self, choices: Random, slot_blocks: int, change: Change = as_planned, *, overlaps: bool = True
    ) -> None:
        self._moves = BlockMoves(slot_blocks, overlaps=overlaps)
        self.permuted = Permuting(choices, slot_blocks, change)
        self.device, self.host = list(self.permuted.device), list(self.permuted.host)
        self._num_written = 0
        self.seen: Content = []
        self.expected: Content = []

    def step(
        self,
        swaps_out: Sequence[tuple[int, int]] = (),
        copies: Sequence[tuple[int, int]] = (),
        reads: Sequence[int] = (),
        writes: Sequence[int] = (),
        swaps_in: Sequence[tuple[int, int]] = (),
    ) -> None:
        """Swaps are (block of the device, block of the host), copies (source, destination)."""
        written = {block: f"row {self._num_written + number}" for number, block in enumerate(writes)}
        self._num_written += len(writes)
        outs, ins = ([BlockSwap(*swap) for swap in swaps] for swaps in (swaps_out, swaps_in))

        def compute(device: Content, seen: Content) -> None:
            seen += [device[block] for block in reads]
            for block, content in written.items():
                device[block] = content

        for swap in outs:
            self.host[swap.host_block] = self.device[swap.device_block]
        _copy(self.device, [BlockCopy(*copy) for copy in copies])
        compute(self.device, self.expected)
        for swap in ins:
            self.device[swap.device_block] = self.host[swap.host_block]

        moves = self._moves.step(outs, ins)
        permuted = self.permuted
        permuted.make(moves.before)
        permuted.rows(lambda: _copy(permuted.device, [BlockCopy(*copy) for copy in copies]))
        permuted.rows(lambda: compute(permuted.device, self.seen))
        permuted.make(moves.behind)

    def read(self, blocks: Sequence[int]) -> None:
        content: Content = ["nothing"] * len(blocks)
        self.permuted.make(self._moves.read(blocks), content)
        self.seen += content
        self.expected += [self.device[block] for block in blocks]

    def write(self, blocks: Sequence[int]) -> None:
        content: Content = [f"image {self._num_written + number}" for number in range(len(blocks))]
        self._num_written += len(blocks)
        for block, one in zip(blocks, content, strict=True):
            self.device[block] = one
        self.permuted.make(self._moves.write(blocks), list(content))

    def is_right(self) -> bool:
        """Whether content is the same everywhere, and whoever read saw the same."""
        self.permuted.drain()
        same_memory = (self.permuted.device, self.permuted.host) == (self.device, self.host)
        return same_memory and self.seen == self.expected


def _copy(device: Content, copies: Sequence[BlockCopy]) -> None:
    contents = [device[copy.source] for copy in copies]
    for copy, content in zip(copies, contents, strict=True):
        device[copy.destination] = content


def script(checked: Checked) -> None:
    """Every hazard that the drawing in `block_moves` names, more blocks than slots hold."""
    checked.step(swaps_out=[(0, 0), (1, 1), (2, 2), (3, 3), (4, 4)], writes=[0, 1, 2, 3, 4])
    checked.step(reads=[0, 1], swaps_in=[(5, 0), (6, 1), (7, 2)], copies=[(3, 4), (4, 3)])
    checked.step(swaps_out=[(0, 0), (5, 1), (6, 2)], reads=[3, 4, 7], writes=[0, 5])
    checked.step(swaps_in=[(0, 0), (1, 1), (2, 2), (6, 3), (7, 4)], writes=[3])
    checked.read([0, 7, 6, 2, 1])
    checked.write([3, 1, 2, 5])
    checked.step(swaps_out=[(3, 5), (1, 6)], reads=[3, 1, 2, 5], writes=[3, 1])
    checked.write([3, 1, 2, 5, 6])
    checked.step(reads=[3, 1, 2, 5, 6])
    checked.read([3, 1])


blocks_ = st.lists(st.integers(0, NUM_BLOCKS - 1), unique=True, max_size=NUM_BLOCKS)


@st.composite
def swaps(draw: st.DrawFn) -> list[tuple[int, int]]:
    return list(zip(draw(blocks_), draw(blocks_), strict=False))


@settings(max_examples=150, deadline=None)
@given(
    data=st.data(),
    choices=st.randoms(use_true_random=False),
    slot_blocks=st.integers(1, 3),
    overlaps=st.booleans(),
)
def test_content_is_right_in_every_order(
    data: st.DataObject, choices: Random, slot_blocks: int, *, overlaps: bool
) -> None:
    checked = Checked(choices, slot_blocks, overlaps=overlaps)
    for kind in data.draw(st.lists(st.sampled_from(["step", "read", "write"]), max_size=8)):
        if kind == "step":
            swaps_in = data.draw(swaps())
            # what is swapped in is neither copied nor computed on in this step (`StepPlan`)
            others = [block for block in range(NUM_BLOCKS) if block not in {block for block, _ in swaps_in}]
            mine = st.lists(st.sampled_from(others), unique=True) if others else st.just([])
            copies = list(zip(data.draw(mine), data.draw(mine), strict=False))
            checked.step(data.draw(swaps()), copies, data.draw(mine), data.draw(mine), swaps_in)
        else:
            getattr(checked, kind)(data.draw(blocks_))
    assert checked.is_right()


def is_ever_wrong(change: Change) -> bool:
    """In one of many orders."""
    for seed in range(60):
        checked = Checked(Random(seed), 1, change)
        script(checked)
        if not checked.is_right():
            return True
    return False


def test_the_script_is_right_as_planned() -> None:
    assert not is_ever_wrong(as_planned)


@pytest.mark.parametrize("kind", MoveKind, ids=lambda kind: kind.name)
def test_no_wait_can_be_left_out(kind: MoveKind) -> None:
    assert is_ever_wrong(lambda move: replace(move, after=None) if move.kind is kind else move)


def test_content_comes_back_behind_what_left() -> None:
    """Sends and fetches share a queue: in two of their own, a fetch would be ahead of what it is to fetch."""

    def parted(move: Move) -> Move:
        return replace(move, lane=move.kind) if move.kind is MoveKind.FETCH else move  # type: ignore[arg-type]

    assert is_ever_wrong(parted)


def test_rows_wait_for_the_gather_and_not_for_the_transfer() -> None:
    moves = BlockMoves(slot_blocks=4).step([BlockSwap(0, 7), BlockSwap(1, 6)], [BlockSwap(2, 5), BlockSwap(3, 4)])
    gather, send, fetch = moves.before
    (scatter,) = moves.behind
    assert (gather.kind, gather.lane, gather.blocks, gather.after) == (MoveKind.GATHER, Lane.COMPUTE, (1, 0), None)
    assert (send.kind, send.lane, send.blocks, send.after) == (MoveKind.SEND, Lane.COPY, (6, 7), gather.number)
    assert (fetch.kind, fetch.lane, fetch.blocks, fetch.after) == (MoveKind.FETCH, Lane.COPY, (4, 5), None)
    assert (scatter.kind, scatter.lane, scatter.blocks, scatter.after) == (
        MoveKind.SCATTER,
        Lane.COMPUTE,
        (3, 2),
        fetch.number,
    )
    assert len({move.slot for move in (send, fetch)}) == NUM_SLOTS == 2


def test_the_plain_path_has_one_queue_and_waits_for_nothing() -> None:
    moves = BlockMoves(slot_blocks=1, overlaps=False).step([BlockSwap(0, 7)], [BlockSwap(2, 5)])
    assert {(move.lane, move.after) for move in (*moves.before, *moves.behind)} == {(Lane.COMPUTE, None)}
