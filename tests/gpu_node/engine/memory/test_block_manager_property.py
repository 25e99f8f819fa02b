"""Whatever two models do in whatever order, the books balance, and a sequence reads what its owner wrote.

The models share an arena; their blocks differ in tokens and in bytes. Beside it stand the bytes of device and host.
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from gpu_node.engine.border.model import LoadedModel
from gpu_node.engine.memory.arena import ArenaFullError, PageArena
from gpu_node.engine.memory.block_manager import BlockManager
from shared.config.engines.engine import SwapCopies
from shared.messages.prefixes.partitions import owner_of, partition_of
from shared.messages.prefixes.prefixes import chained_digest

PAGE_BYTES = 12
NUM_PAGES, NUM_HOST_PAGES = 5, 2
MAX_MODEL_LEN = 7


def model(name: str, block_size: int, block_bytes: int) -> LoadedModel:
    blocks_per_page = PAGE_BYTES // block_bytes
    return LoadedModel(
        name=name,
        num_blocks=NUM_PAGES * blocks_per_page,
        block_size=block_size,
        block_bytes=block_bytes,
        max_model_len=MAX_MODEL_LEN,
        vocab_size=2,
        eos_token_ids=frozenset(),
        num_pages=NUM_PAGES,
        num_host_blocks=NUM_HOST_PAGES * blocks_per_page,
        num_host_pages=NUM_HOST_PAGES,
    )


MODELS = (model("wide", block_size=3, block_bytes=4), model("tall", block_size=2, block_bytes=5))

# two tokens only, so that common prefixes are the rule; a digest of one byte, so that collisions are
tokens = st.lists(st.integers(0, 1), min_size=1, max_size=14)
which = st.integers(0, 1)
number = st.integers(0, 99)
owner = st.sampled_from(["", "legal", *(owner_of("", partition_of("", salt)) for salt in "ab")])


class Tenant:
    """A loaded model: its block manager, what its sequences wrote, and where its bytes lie."""

    def __init__(self, loaded: LoadedModel, device: PageArena, host: PageArena, copies: SwapCopies) -> None:
        self.model = loaded
        self.blocks = BlockManager(
            loaded, device, host, lambda parent, ids: chained_digest(parent, ids)[:1], swap_copies=copies
        )
        self.sequences: dict[int, list[int]] = {}
        self.owners: dict[int, str] = {}

    def place(self, block: int) -> int:
        """First byte of a block, on the device or in host memory."""
        page, slot = divmod(block, self.model.blocks_per_page)
        return page * PAGE_BYTES + slot * self.model.block_bytes

    def key(self, sequence_id: int, num_tokens: int) -> int:
        """Stands for the key of one of its tokens: it depends on model, owner and prefix."""
        return hash((self.model.name, self.owners[sequence_id], tuple(self.sequences[sequence_id][:num_tokens])))

    @property
    def here(self) -> list[int]:
        return [one for one in self.sequences if not self.blocks.is_swapped_out(one)]

    @property
    def out(self) -> list[int]:
        return [one for one in self.sequences if self.blocks.is_swapped_out(one)]


class TwoModels(RuleBasedStateMachine):
    """Drives two block managers over one arena."""

    copies: SwapCopies = "at_once"

    def __init__(self) -> None:
        super().__init__()
        self.arena, self.host_arena = PageArena(NUM_PAGES), PageArena(NUM_HOST_PAGES)
        self.device, self.host = [-1] * (NUM_PAGES * PAGE_BYTES), [-1] * (NUM_HOST_PAGES * PAGE_BYTES)
        self.tenants = [Tenant(loaded, self.arena, self.host_arena, self.copies) for loaded in MODELS]
        self.num_sequences = 0

    def move(self, tenant: Tenant, source: list[int], first: int, target: list[int], to: int) -> None:
        size = tenant.model.block_bytes
        target[to : to + size] = source[first : first + size]

    def write(self, tenant: Tenant, sequence_id: int, start: int) -> None:
        token_ids = tenant.sequences[sequence_id]
        for copy in tenant.blocks.append(sequence_id, start, len(token_ids)):
            self.move(tenant, self.device, tenant.place(copy.source), self.device, tenant.place(copy.destination))
        table = tenant.blocks.table(sequence_id)
        for position in range(start, len(token_ids)):
            block, slot = divmod(position, tenant.model.block_size)
            self.device[tenant.place(table[block]) + slot] = tenant.key(sequence_id, position + 1)
        tenant.blocks.publish(sequence_id, token_ids, len(token_ids))

    @rule(which=which, token_ids=tokens, owner=owner)
    def open(self, which: int, token_ids: list[int], owner: str) -> None:
        tenant = self.tenants[which]
        start = tenant.blocks.open(self.num_sequences, token_ids, owner)
        if tenant.blocks.num_new_blocks(self.num_sequences, start, len(token_ids)) > tenant.blocks.num_free_blocks:
            tenant.blocks.free(self.num_sequences)
            alone = tenant.blocks.num_used_blocks == 0
            assert not (alone and len(token_ids) <= MAX_MODEL_LEN), "one sequence always finds room"
        else:
            tenant.sequences[self.num_sequences] = token_ids
            tenant.owners[self.num_sequences] = owner
            self.write(tenant, self.num_sequences, start)
        self.num_sequences += 1

    @rule(which=which, number=number, token_ids=tokens)
    def append(self, which: int, number: int, token_ids: list[int]) -> None:
        tenant = self.tenants[which]
        for sequence_id in _pick(tenant.here, number):
            start = len(tenant.sequences[sequence_id])
            num_new = tenant.blocks.num_new_blocks(sequence_id, start, start + len(token_ids))
            num_free = tenant.blocks.num_free_blocks
            if num_new <= num_free:
                tenant.sequences[sequence_id] = tenant.sequences[sequence_id] + token_ids
                self.write(tenant, sequence_id, start)
                assert tenant.blocks.num_free_blocks == num_free - num_new

    @rule(which=which, number=number, token_ids=tokens, num_in_vain=st.integers(1, 5))
    def append_with_guesses(self, which: int, number: int, token_ids: list[int], num_in_vain: int) -> None:
        """Some of what is written does not hold: nobody finds it, and its blocks are free again."""
        tenant = self.tenants[which]
        for sequence_id in _pick(tenant.here, number):
            start, blocks = len(tenant.sequences[sequence_id]), tenant.blocks
            end, num_free = start + len(token_ids), blocks.num_free_blocks
            num_new = blocks.num_new_blocks(sequence_id, start, end)
            if blocks.num_new_blocks(sequence_id, start, end + num_in_vain) > num_free:
                continue
            for copy in blocks.append(sequence_id, start, end + num_in_vain):
                self.move(tenant, self.device, tenant.place(copy.source), self.device, tenant.place(copy.destination))
            table = blocks.table(sequence_id)
            for position in range(start, end + num_in_vain):
                block, slot = divmod(position, tenant.model.block_size)
                self.device[tenant.place(table[block]) + slot] = -2
            blocks.trim(sequence_id, end)
            tenant.sequences[sequence_id] = tenant.sequences[sequence_id] + token_ids
            self.write(tenant, sequence_id, start)
            assert blocks.num_free_blocks == num_free - num_new

    @rule(which=which, number=number)
    def fork(self, which: int, number: int) -> None:
        tenant = self.tenants[which]
        for sequence_id in _pick(tenant.here, number):
            tenant.blocks.fork(sequence_id, self.num_sequences)
            tenant.sequences[self.num_sequences] = list(tenant.sequences[sequence_id])
            tenant.owners[self.num_sequences] = tenant.owners[sequence_id]
            self.num_sequences += 1

    @rule(which=which, number=number)
    def free(self, which: int, number: int) -> None:
        tenant = self.tenants[which]
        for sequence_id in _pick(list(tenant.sequences), number):
            tenant.blocks.free(sequence_id)
            del tenant.sequences[sequence_id]

    @rule(which=which, number=number, size=st.integers(1, 3))
    def swap_out(self, which: int, number: int, size: int) -> None:
        tenant = self.tenants[which]
        group = tenant.here[number % 3 :][:size]
        if tenant.blocks.can_swap_out(group):
            for swap in tenant.blocks.swap_out(group):
                first, to = tenant.place(swap.device_block), tenant.place(swap.host_block)
                self.move(tenant, self.device, first, self.host, to)

    @rule(which=which, number=number, size=st.integers(1, 3))
    def swap_in(self, which: int, number: int, size: int) -> None:
        tenant = self.tenants[which]
        group = tenant.out[number % 3 :][:size]
        num_new, num_free = tenant.blocks.num_swap_in_blocks(group), tenant.blocks.num_free_blocks
        if num_new <= num_free:
            for swap in tenant.blocks.swap_in(group):
                first, to = tenant.place(swap.host_block), tenant.place(swap.device_block)
                self.move(tenant, self.host, first, self.device, to)
            assert tenant.blocks.num_free_blocks == num_free - num_new

    @precondition(lambda self: any(not tenant.sequences for tenant in self.tenants))
    @rule(which=which)
    def load_again(self, which: int) -> None:
        tenant, other = self.tenants[which], self.tenants[1 - which]
        if not tenant.sequences:
            tenant.blocks.close()
            if not other.sequences:
                assert other.blocks.num_free_blocks == other.model.num_blocks, "all pages came back"
            try:
                self.tenants[which] = Tenant(tenant.model, self.arena, self.host_arena, self.copies)
            except ArenaFullError:  # the other model has taken what was given back: it goes
                for sequence_id in other.sequences:
                    other.blocks.free(sequence_id)
                other.sequences.clear()
                self.tenants[which] = Tenant(tenant.model, self.arena, self.host_arena, self.copies)

    @invariant()
    def balances(self) -> None:
        for tenant in self.tenants:
            tenant.blocks.check()

    @invariant()
    def no_two_blocks_overlap(self) -> None:
        taken: list[int] = []
        for tenant in self.tenants:
            held = {block for one in tenant.here for block in tenant.blocks.table(one)}
            for block in {*held, *tenant.blocks.free_blocks}:
                taken += range(tenant.place(block), tenant.place(block) + tenant.model.block_bytes)
        assert len(set(taken)) == len(taken)

    @invariant()
    def every_sequence_reads_what_it_wrote(self) -> None:
        for tenant in self.tenants:
            for sequence_id in tenant.here:
                token_ids, table = tenant.sequences[sequence_id], tenant.blocks.table(sequence_id)
                for position in range(len(token_ids)):
                    block, slot = divmod(position, tenant.model.block_size)
                    assert self.device[tenant.place(table[block]) + slot] == tenant.key(sequence_id, position + 1)


def _pick(sequence_ids: list[int], number: int) -> list[int]:
    """One of them, or none where there is none."""
    return [sequence_ids[number % len(sequence_ids)]] if sequence_ids else []


TestTwoModels = TwoModels.TestCase
TestTwoModels.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)


class TwoModelsWhoseCopiesStay(TwoModels):
    """What host memory has is not copied again."""

    copies: SwapCopies = "kept"


TestTwoModelsWhoseCopiesStay = TwoModelsWhoseCopiesStay.TestCase
TestTwoModelsWhoseCopiesStay.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
