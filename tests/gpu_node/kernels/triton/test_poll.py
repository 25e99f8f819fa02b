"""Whoever looks late catches up: every task is done once, in order, however the instances of a poll come along."""

from __future__ import annotations

import math
from threading import Thread

import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from gpu_node.kernels.triton.attention.attention_tile import UNBOUNDED
from gpu_node.kernels.triton.attention.poll import poll
from gpu_node.kernels.triton.attention.task_ring import PartMemory, PollCounters, TaskRing, Tasks
from gpu_node.kernels.triton.cache import CacheShape, Places
from tests.gpu_node.kernels.triton.buffers import DEVICE, FLOAT32_ERROR, error, numbers, wide

INSTANCES, SLOTS, SEQUENCES, BLOCKS, HEADS = 3, 2, 3, 3, 4
NUM_TASKS = 6
LONG_BLOCKS = 100
"""Of a context of four tiles."""
SHAPE = CacheShape(num_layers=2, block_size=2, num_kv_heads=2, head_dim=4)


class Asker:
    """Writes tasks into the ring, and knows what comes out of them. The receiver's own model is another one."""

    def __init__(self, num_instances: int = INSTANCES, num_blocks: int = BLOCKS, *, splits: bool = False) -> None:
        """``num_blocks`` of each sequence; its rows stand in the last of them."""
        lines = SHAPE.block_lines(4)
        self.num_blocks = num_blocks
        self.num_instances = num_instances
        self.places = Places(page_lines=SEQUENCES * num_blocks * lines, block_lines=lines)
        self.arena = numbers(SEQUENCES * num_blocks * lines * 16)
        self.memory = wide(self.arena)
        """The arena as it is when everything asked for is served."""
        columns, kv_columns = HEADS * SHAPE.head_dim, SHAPE.num_kv_heads * SHAPE.head_dim
        self.ring = TaskRing.new(SHAPE, SLOTS, SEQUENCES, num_blocks, columns, self.arena)
        for rows in (self.ring.q, self.ring.k, self.ring.v, self.ring.out):
            rows.fill_(torch.nan)
        assert self.ring.k.shape == (SLOTS, SEQUENCES, kv_columns)
        self.counters = PollCounters.new(num_instances, SLOTS, DEVICE)
        parts = PartMemory.new(self.ring, num_instances) if splits else None
        self.tasks = Tasks(self.counters, self.ring, parts=parts)
        self.expected: list[torch.Tensor] = []

    @property
    def num_asked(self) -> int:
        return len(self.expected)

    @property
    def num_served(self) -> int:
        return int(self.counters.served)

    def ask(self, num_sequences: int) -> None:
        """The next task, of one layer and one window or the other."""
        slot, layer = self.num_asked % SLOTS, self.num_asked % 2
        window = (UNBOUNDED, 3)[self.num_asked // 2 % 2]
        self.ring.num_sequences[slot] = num_sequences
        self.ring.firsts[slot] = layer * SHAPE.layer_numbers
        self.ring.windows[slot] = window
        self.ring.out[slot] = torch.nan
        rows = []
        for sequence in range(num_sequences):
            last = (self.num_asked + 2 * sequence) % (BLOCKS * SHAPE.block_size)
            position = (self.num_blocks - BLOCKS) * SHAPE.block_size + last
            blocks = [sequence + SEQUENCES * i for i in range(self.num_blocks)]
            self.ring.positions[slot, sequence] = position
            self.ring.block_lines[slot, sequence] = torch.tensor([self.places.line(block) for block in blocks])
            for one in (self.ring.q, self.ring.k, self.ring.v):
                one[slot, sequence] = numbers(one.shape[2])
            for head in range(SHAPE.num_kv_heads):
                key, value = self.slots(blocks, position, layer, head)
                columns = slice(4 * head, 4 * head + 4)
                self.memory[key] = wide(self.ring.k[slot, sequence])[columns]
                self.memory[value] = wide(self.ring.v[slot, sequence])[columns]
            rows.append(self.attention(self.ring.q[slot, sequence], blocks, position, window, layer))
        self.expected.append(torch.stack(rows) if rows else torch.empty(0, HEADS * SHAPE.head_dim, dtype=torch.float64))
        self.counters.asked.add_(1)

    def slots(self, blocks: list[int], token: int, layer: int, head: int) -> tuple[slice, slice]:
        """Where the key and the value of a token lie."""
        block = self.places.line(blocks[token // SHAPE.block_size]) * 16 + layer * SHAPE.layer_numbers
        key = block + head * 2 * SHAPE.block_size * 4 + token % SHAPE.block_size * 4
        value = key + SHAPE.block_size * 4
        return slice(key, key + 4), slice(value, value + 4)

    def attention(self, q: torch.Tensor, blocks: list[int], position: int, window: int, layer: int) -> torch.Tensor:
        """Token by token, head by head, in float64."""
        row = []
        for head, query in enumerate(wide(q).view(HEADS, -1)):
            places = [
                self.slots(blocks, token, layer, head // 2)
                for token in range(max(0, position + 1 - window), position + 1)
            ]
            keys, values = (torch.stack([self.memory[pair[i]] for pair in places]) for i in range(2))
            weights = (keys @ query / math.sqrt(SHAPE.head_dim)).softmax(0)
            row.append(weights @ values)
        return torch.cat(row)

    def poll(self, blind: frozenset[int] = frozenset()) -> None:
        """A poll in which some instances look too early: they see no more asked for than they have done."""
        done = self.counters.done.clone()
        early = torch.tensor([instance in blind for instance in range(self.num_instances)], device=DEVICE)
        self.counters.done[early] = self.num_asked
        poll(self.tasks, self.arena)
        self.counters.done[early] = done[early]

    def check(self) -> None:
        """Served is what all have done; its answers are there, and of what was not asked for there are none."""
        assert self.num_served == int(self.counters.done.min()) <= self.num_asked
        for task in range(max(0, self.num_asked - SLOTS), self.num_served):
            out, expected = self.ring.out[task % SLOTS], self.expected[task]
            assert error(out[: len(expected)], expected) < FLOAT32_ERROR
            assert bool(out[len(expected) :].isnan().all())
        arrived = [int((self.counters.done > task).sum()) for task in range(self.num_served, self.num_asked)]
        assert sorted(self.counters.arrived.tolist()) == sorted([*arrived, *[0] * (SLOTS - len(arrived))])


@given(st.lists(st.integers(0, SEQUENCES) | st.frozensets(st.integers(0, INSTANCES - 1)), max_size=8))
@settings(max_examples=10, deadline=None, phases=(Phase.generate,))
def test_every_task_is_done_once_and_in_order(events: list[int | frozenset[int]]) -> None:
    run(Asker(), events)


def run(asker: Asker, events: list[int | frozenset[int]]) -> None:
    """Numbers ask for a task of so many sequences, sets are polls in which these instances look too early."""
    for event in [*events, frozenset[int]()]:
        if isinstance(event, frozenset):
            asker.poll(event)
        elif asker.num_asked - asker.num_served < SLOTS:
            asker.ask(event)
        asker.check()
    assert asker.num_served == asker.num_asked
    assert bool((wide(asker.arena) == asker.memory).all())  # keys and values of all rows, and nothing else


def test_an_instance_that_looked_too_early_serves_at_the_next_poll() -> None:
    asker = Asker()
    asker.ask(SEQUENCES)
    asker.poll(blind=frozenset({1}))
    assert (asker.num_served, asker.counters.done.tolist()) == (0, [1, 0, 1])
    tiles = asker.ring.out[0].view(SEQUENCES * 2, -1).isnan().all(dim=1)  # a sequence and a KV head each
    assert tiles.tolist() == [False, True, False, False, True, False]
    asker.ask(1)
    asker.poll()
    assert (asker.num_served, asker.counters.done.tolist()) == (2, [2, 2, 2])
    asker.check()


@pytest.mark.parametrize("splits", [False, True], ids=["whole contexts", "split"])
def test_contexts_of_few_rows_are_split_among_instances(splits: bool) -> None:
    """One row of two KV heads, of which six instances are three each: its four tiles are two parts of two."""
    asker = Asker(num_instances=6, num_blocks=LONG_BLOCKS, splits=splits)
    asker.ask(1)
    asker.poll(blind=frozenset({1}))
    heads = asker.ring.out[0, 0].view(2, -1).isnan().all(dim=1)
    assert heads.tolist() == [
        splits,
        not splits,
    ]  # the first head's second part, or the second head
    asker.poll()
    asker.check()
    for _ in range(3):  # in either slot, of either layer, also with a window
        asker.ask(1)
        asker.poll()
        asker.check()
    assert asker.num_served == 4
    assert bool((wide(asker.arena) == asker.memory).all())


def test_rows_enough_for_all_instances_are_not_split() -> None:
    asker = Asker(num_instances=6, num_blocks=LONG_BLOCKS, splits=True)
    asker.ask(SEQUENCES)
    asker.poll()
    asker.check()
    assert asker.tasks.parts is not None
    assert int(asker.tasks.parts.arrived.sum()) == 0


@given(st.lists(st.integers(0, SEQUENCES) | st.frozensets(st.integers(0, 7)), max_size=6))
@settings(max_examples=5, deadline=None, phases=(Phase.generate,))
def test_parts_are_done_once_however_instances_come_along(events: list[int | frozenset[int]]) -> None:
    run(Asker(num_instances=8, num_blocks=LONG_BLOCKS, splits=True), events)


def test_a_poll_that_finds_nothing_changes_nothing() -> None:
    asker = Asker()
    asker.poll()
    assert [int(one.sum()) for one in (asker.counters.asked, asker.counters.served, asker.counters.done)] == [0, 0, 0]
    assert bool(asker.ring.out.isnan().all())


def test_a_ring_that_does_not_fit_is_refused() -> None:
    asker = Asker()
    with pytest.raises(ValueError, match="for each slot"):
        poll(Tasks(PollCounters.new(INSTANCES, SLOTS + 1, DEVICE), asker.ring), asker.arena)


def test_a_sender_beside_it_sends_and_gathers_while_the_device_polls() -> None:
    """Of another thread, as of another device: rows of its own, and a counter to wait for."""
    asker = Asker()
    answers: list[torch.Tensor] = []

    def send() -> None:
        for _ in range(NUM_TASKS):
            asker.ask(SEQUENCES)
            while asker.num_served < asker.num_asked:
                pass
            answers.append(asker.ring.out[(asker.num_asked - 1) % SLOTS].clone())

    sender = Thread(target=send)
    sender.start()
    while sender.is_alive():
        poll(asker.tasks, asker.arena)
    sender.join()
    assert len(answers) == NUM_TASKS
    for answer, expected in zip(answers, asker.expected, strict=True):
        assert error(answer, expected) < FLOAT32_ERROR
