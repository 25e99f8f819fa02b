"""Sequences that go to a receiver and come back: the books balance, and each reads what it wrote, wherever it lies."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from gpu_node.engine.border.model import LoadedModel
from gpu_node.engine.border.plan import BlockMove
from gpu_node.engine.memory.arena import PageArena
from gpu_node.engine.memory.block_manager import BlockManager

BLOCK_SIZE, BLOCKS_PER_PAGE, NUM_PAGES, NUM_REMOTE_PAGES = 2, 3, 4, 5


def manager() -> BlockManager:
    model = LoadedModel(
        name="m",
        num_blocks=NUM_PAGES * BLOCKS_PER_PAGE,
        block_size=BLOCK_SIZE,
        block_bytes=1,
        max_model_len=8,
        vocab_size=2,
        eos_token_ids=frozenset(),
        num_pages=NUM_PAGES,
    )
    blocks = BlockManager(model, PageArena(NUM_PAGES), PageArena(1))
    blocks.connect(BLOCKS_PER_PAGE)
    return blocks


def test_full_blocks_go_ahead_and_the_rest_follows_with_the_sequence() -> None:
    blocks = manager()
    blocks.remote.pages.grant([4, 1])
    blocks.open(0, [0, 1, 0, 1, 0])
    blocks.append(0, 0, 5)
    table = list(blocks.table(0))
    # blocks of page 1 are 3, 4, 5
    assert blocks.send_ahead(0, 3) == [BlockMove(table[0], 3)]
    assert blocks.send_ahead(0, 3) == []
    assert blocks.send(0) == [BlockMove(table[1], 4), BlockMove(table[2], 5)]
    assert (list(blocks.table(0)), blocks.num_used_blocks) == ([3, 4, 5], 3)
    assert blocks.settle() == []
    assert blocks.num_used_blocks == 0
    assert blocks.append(0, 5, 7) == ()
    assert list(blocks.table(0)) == [3, 4, 5, 12]  # the first of page 4
    blocks.check()


def gone_over() -> BlockManager:
    """A sequence of three tokens lies in the only page that is granted."""
    blocks = manager()
    blocks.remote.pages.grant([0])
    blocks.open(0, [0, 1, 0])
    blocks.append(0, 0, 3)
    blocks.send(0)
    blocks.settle()
    return blocks


def test_what_is_called_back_leaves_its_blocks_when_the_plan_is_made() -> None:
    """The same plan may send others there, and moves are in no order."""
    blocks = gone_over()
    assert blocks.remote.num_free == 1
    blocks.call_back(0)
    assert (blocks.remote.num_free, blocks.remote.num_used) == (1, 2)
    blocks.settle()
    assert (blocks.remote.num_free, blocks.remote.num_used) == (3, 0)
    blocks.check()


def test_what_is_called_back_is_offered_when_it_has_come() -> None:
    blocks = gone_over()
    blocks.forget_cached()
    blocks.call_back(0)
    blocks.settle()
    blocks.publish(0, [0, 1, 0], 3)
    assert blocks.match([0, 1, 0]) == [], "the step that moves it has not run, and may lose it"
    blocks.arrive(0)
    blocks.publish(0, [0, 1, 0], 3)
    assert blocks.match([0, 1, 0]) == [blocks.table(0)[0]]


def test_pages_that_are_wanted_back_come_when_the_last_sequence_has_left_them() -> None:
    blocks = manager()
    blocks.remote.pages.grant([0, 1, 2])
    blocks.open(0, [0, 1, 0])
    blocks.append(0, 0, 3)
    blocks.send(0)
    blocks.settle()
    assert blocks.remote.pages.withdraw(3) == [1, 2]
    assert (blocks.remote.pages.num_owed, blocks.remote.num_free) == (1, 0)
    assert not blocks.has_room(0, 3, 5)
    assert [move.remote_block for move in blocks.call_back(0)] == [0, 1]
    assert blocks.settle() == [0]
    assert (blocks.remote.pages.num_owed, blocks.remote.pages.num_granted) == (0, 0)
    blocks.check()


class Lent(RuleBasedStateMachine):
    """One model, its device, a receiver whose pages come and go, and what lies in each block."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = manager()
        self.device = [[-1] * BLOCK_SIZE for _ in range(NUM_PAGES * BLOCKS_PER_PAGE)]
        self.receiver = [[-1] * BLOCK_SIZE for _ in range(NUM_REMOTE_PAGES * BLOCKS_PER_PAGE)]
        self.lengths: dict[int, int] = {}
        self.withheld = set(range(NUM_REMOTE_PAGES))
        self.next_id = 0

    def content(self, sequence_id: int) -> list[list[int]]:
        return self.receiver if self.blocks.remote.has(sequence_id) else self.device

    def write(self, sequence_id: int, length: int) -> None:
        start = self.lengths[sequence_id]
        self.blocks.append(sequence_id, start, length)
        table = self.blocks.table(sequence_id)
        for position in range(start, length):
            self.content(sequence_id)[table[position // BLOCK_SIZE]][position % BLOCK_SIZE] = (
                sequence_id * 100 + position
            )
        self.lengths[sequence_id] = length

    def send(self, moves: list[BlockMove]) -> None:
        for move in moves:
            self.receiver[move.remote_block] = list(self.device[move.device_block])

    def pick(self, number: int, *, remote: bool) -> list[int]:
        found = [one for one in self.lengths if self.blocks.remote.has(one) == remote]
        return [found[number % len(found)]] if found else []

    @rule(number=st.integers(1, 9))
    def open(self, number: int) -> None:
        sequence_id, self.next_id = self.next_id, self.next_id + 1
        self.blocks.open(sequence_id, [sequence_id % 2] * number)
        if self.blocks.has_room(sequence_id, 0, number):
            self.lengths[sequence_id] = 0
            self.write(sequence_id, number)
        else:
            self.blocks.free(sequence_id)

    @rule(number=st.integers(0, 99), grown=st.integers(1, 3), remote=st.booleans())
    def append(self, number: int, grown: int, remote: bool) -> None:
        for one in self.pick(number, remote=remote):
            if self.blocks.has_room(one, self.lengths[one], self.lengths[one] + grown):
                self.write(one, self.lengths[one] + grown)

    @rule(number=st.integers(0, 99))
    def go_ahead(self, number: int) -> None:
        for one in self.pick(number, remote=False):
            self.send(self.blocks.send_ahead(one, self.lengths[one]))

    @rule(number=st.integers(0, 99))
    def go_over(self, number: int) -> None:
        for one in self.pick(number, remote=False):
            if self.blocks.can_send(one):
                self.send(self.blocks.send(one))

    @rule(number=st.integers(0, 99))
    def come_back(self, number: int) -> None:
        for one in self.pick(number, remote=True):
            if len(self.blocks.table(one)) <= self.blocks.num_free_blocks:
                for move in self.blocks.call_back(one):
                    self.device[move.device_block] = list(self.receiver[move.remote_block])

    @rule(number=st.integers(0, 99), remote=st.booleans())
    def free(self, number: int, remote: bool) -> None:
        for one in self.pick(number, remote=remote):
            self.blocks.free(one)
            del self.lengths[one]
            self.withheld.update(self.blocks.remote.pages.give_back())

    @rule()
    def settle(self) -> None:
        self.withheld.update(self.blocks.settle())

    @rule(number=st.integers(1, 3))
    def grant(self, number: int) -> None:
        pages = sorted(self.withheld)[:number]
        self.withheld.difference_update(pages)
        self.blocks.remote.pages.grant(pages)
        self.withheld.update(self.blocks.remote.pages.give_back())

    @rule(number=st.integers(1, 3))
    def withdraw(self, number: int) -> None:
        self.withheld.update(self.blocks.remote.pages.withdraw(number))

    @invariant()
    def balances(self) -> None:
        self.blocks.check()
        granted = self.blocks.remote.pages.num_granted
        assert granted + len(self.withheld) == NUM_REMOTE_PAGES, "a page is granted or not"

    @invariant()
    def everybody_reads_what_it_wrote(self) -> None:
        for one, length in self.lengths.items():
            table, content = self.blocks.table(one), self.content(one)
            found = [content[table[place // BLOCK_SIZE]][place % BLOCK_SIZE] for place in range(length)]
            assert found == [one * 100 + place for place in range(length)]
            if self.blocks.remote.has(one):
                assert all(block // BLOCKS_PER_PAGE not in self.withheld for block in table)


TestLent = Lent.TestCase
TestLent.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
