"""Whatever happens in whatever order, the books balance, and a shared block holds just the tokens its sharers have."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from gpu_node.engine.block_manager import BlockManager
from gpu_node.engine.prefix import chained_digest

NUM_BLOCKS = 10
BLOCK_SIZE = 3

# two tokens only, so that common prefixes are the rule; a digest of one byte, so that collisions are
tokens = st.lists(st.integers(0, 1), min_size=1, max_size=14)


class BlockManagerMachine(RuleBasedStateMachine):
    """Drives a block manager beside a model of memory: what each block's slots hold."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = BlockManager(
            NUM_BLOCKS, BLOCK_SIZE, "m", digest=lambda parent, token_ids: chained_digest(parent, token_ids)[:1]
        )
        self.memory = [[-1] * BLOCK_SIZE for _ in range(NUM_BLOCKS)]
        self.history: list[tuple[int, ...]] = [()] * NUM_BLOCKS
        self.sequences: dict[int, list[int]] = {}
        self.num_sequences = 0

    def write(self, sequence_id: int, start: int) -> None:
        token_ids = self.sequences[sequence_id]
        for copy in self.blocks.append(sequence_id, start, len(token_ids)):
            self.memory[copy.destination] = list(self.memory[copy.source])
        table = self.blocks.table(sequence_id)
        for position in range(start, len(token_ids)):
            # a slot stands for a key: it depends on the whole prefix
            key = hash(tuple(token_ids[: position + 1]))
            self.memory[table[position // BLOCK_SIZE]][position % BLOCK_SIZE] = key
        self.blocks.publish(sequence_id, token_ids, len(token_ids))

    def pick(self, number: int) -> int:
        return list(self.sequences)[number % len(self.sequences)]

    @rule(token_ids=tokens)
    def open(self, token_ids: list[int]) -> None:
        start = self.blocks.open(self.num_sequences, token_ids)
        if self.blocks.num_new_blocks(self.num_sequences, start, len(token_ids)) > self.blocks.num_free_blocks:
            self.blocks.free(self.num_sequences)
        else:
            self.sequences[self.num_sequences] = token_ids
            self.write(self.num_sequences, start)
        self.num_sequences += 1

    @precondition(lambda self: self.sequences)
    @rule(number=st.integers(0, 99), token_ids=tokens)
    def append(self, number: int, token_ids: list[int]) -> None:
        sequence_id = self.pick(number)
        start = len(self.sequences[sequence_id])
        num_new = self.blocks.num_new_blocks(sequence_id, start, start + len(token_ids))
        if num_new <= self.blocks.num_free_blocks:
            self.sequences[sequence_id] = self.sequences[sequence_id] + token_ids
            num_free = self.blocks.num_free_blocks
            self.write(sequence_id, start)
            assert self.blocks.num_free_blocks == num_free - num_new

    @precondition(lambda self: self.sequences)
    @rule(number=st.integers(0, 99))
    def fork(self, number: int) -> None:
        sequence_id = self.pick(number)
        self.blocks.fork(sequence_id, self.num_sequences)
        self.sequences[self.num_sequences] = list(self.sequences[sequence_id])
        self.num_sequences += 1

    @precondition(lambda self: self.sequences)
    @rule(number=st.integers(0, 99))
    def free(self, number: int) -> None:
        sequence_id = self.pick(number)
        self.blocks.free(sequence_id)
        del self.sequences[sequence_id]

    @invariant()
    def balances(self) -> None:
        self.blocks.check()

    @invariant()
    def every_sequence_reads_what_it_wrote(self) -> None:
        for sequence_id, token_ids in self.sequences.items():
            table = self.blocks.table(sequence_id)
            for position in range(len(token_ids)):
                key = hash(tuple(token_ids[: position + 1]))
                assert self.memory[table[position // BLOCK_SIZE]][position % BLOCK_SIZE] == key


TestBlockManager = BlockManagerMachine.TestCase
TestBlockManager.settings = settings(max_examples=150, stateful_step_count=30, deadline=None)
