"""Blocks that move on a CUDA device: whatever the staging memory, they arrive, by two queues as by one."""

from __future__ import annotations

import pytest
import torch

from gpu_node.engine.border.model import LoadedModel
from gpu_node.engine.border.plan import BlockCopy, BlockSwap, StepPlan
from gpu_node.executors.cuda.memory.arena import CudaArena
from gpu_node.executors.cuda.memory.blocks import CudaBlocks
from gpu_node.executors.cuda.memory.lanes import copy_stream, lanes
from gpu_node.executors.memory.host_bytes import bytes_of
from shared.files.kv_paging import Paging
from tests.gpu_node.kernels.triton.buffers import DEVICE

BLOCK_BYTES = 192  # three lines
PAGE = 2 * BLOCK_BYTES + 64  # a line is left over, so neighbours in two pages do not lie side by side
MODEL = LoadedModel(
    "m", num_blocks=6, block_size=4, block_bytes=BLOCK_BYTES, max_model_len=8, vocab_size=2, eos_token_ids=frozenset()
)


class Memories:
    """Six blocks on the device and as many on the host; each is full of its number, the host's of 100 and more."""

    def __init__(self, num_staged_blocks: int, *, overlaps: bool) -> None:
        self.device = CudaArena(Paging(3, PAGE), DEVICE)
        self.host = CudaArena(Paging(3, PAGE), torch.device("cpu"), is_pinned=DEVICE.type == "cuda")
        for block in range(MODEL.num_blocks):
            self.device.runs(MODEL, [block])[0].fill_(block)
            self.host.runs(MODEL, [block])[0].fill_(100 + block)
        self.blocks = CudaBlocks(
            self.device,
            self.host,
            MODEL,
            lanes(copy_stream(DEVICE)),
            staging_bytes=num_staged_blocks * BLOCK_BYTES,
            overlaps=overlaps,
        )

    def on_device(self) -> list[int]:
        return _numbers(self.blocks.read(range(6), swapped_out=False))

    def on_host(self) -> list[int]:
        return _numbers(self.blocks.read(range(6), swapped_out=True))


def _numbers(content: memoryview) -> list[int]:
    """By what is in them, whole."""
    words = torch.frombuffer(content, dtype=torch.int64).view(-1, BLOCK_BYTES // 8)
    assert words.equal(words[:, :1].expand_as(words))
    return words[:, 0].tolist()


@pytest.mark.parametrize("overlaps", [True, False])
@pytest.mark.parametrize("num_staged_blocks", [0, 1, 2, 64])  # a slot has room for one block at least
def test_a_step_moves_what_it_says_in_its_order(num_staged_blocks: int, *, overlaps: bool) -> None:
    memories = Memories(num_staged_blocks, overlaps=overlaps)
    plan = StepPlan(
        (),
        swaps_out=(BlockSwap(0, 3), BlockSwap(1, 2), BlockSwap(5, 4)),
        copies=(BlockCopy(0, 1), BlockCopy(1, 0)),
        swaps_in=(BlockSwap(4, 2), BlockSwap(2, 1), BlockSwap(3, 0), BlockSwap(5, 5)),
    )
    memories.blocks.before_rows(plan)
    memories.device.runs(MODEL, [0])[0].fill_(7)  # a row of the step
    memories.blocks.behind_rows()
    assert memories.on_device() == [7, 0, 101, 100, 1, 105]
    assert memories.on_host() == [100, 101, 1, 0, 5, 105]


@pytest.mark.parametrize("num_staged_blocks", [1, 2, 64])
def test_content_goes_out_and_in_through_little_staging_memory(num_staged_blocks: int) -> None:
    memories = Memories(num_staged_blocks, overlaps=True)
    content = memories.blocks.read([4, 0, 3, 1, 5], swapped_out=False)
    assert _numbers(content) == [4, 0, 3, 1, 5]
    memories.blocks.write([2, 3, 4], memoryview(bytes(content[: 3 * BLOCK_BYTES])))
    assert memories.on_device() == [0, 1, 4, 0, 3, 5]
    memories.blocks.write([], memoryview(b""))
    assert memories.blocks.read([], swapped_out=False).nbytes == memories.blocks.read([], swapped_out=True).nbytes == 0


@pytest.mark.parametrize("num_staged_blocks", [1, 2, 64])
def test_copies_that_do_not_meet_take_little_memory_on_the_way(num_staged_blocks: int) -> None:
    memories = Memories(num_staged_blocks, overlaps=True)
    memories.blocks.before_rows(StepPlan((), copies=(BlockCopy(0, 3), BlockCopy(5, 1), BlockCopy(0, 2))))
    memories.blocks.behind_rows()
    assert memories.on_device() == [0, 5, 0, 0, 4, 5]


def test_warming_up_changes_no_block() -> None:
    memories = Memories(2, overlaps=True)
    memories.blocks.warm_up()
    assert memories.on_device() == [0, 1, 2, 3, 4, 5]


def test_neighbours_in_a_page_are_one_transfer() -> None:
    arena = CudaArena(Paging(3, PAGE), torch.device("cpu"))
    arena.words.copy_(torch.arange(len(arena.words)))
    assert [len(run) for run in arena.runs(MODEL, [0, 1, 2, 3, 5])] == [2, 2, 1]
    assert [len(run) for run in arena.runs(MODEL, [1, 0, 4])] == [1, 1, 1]
    assert arena.runs(MODEL, [3])[0][0, 0] == (PAGE + BLOCK_BYTES) // 8
    assert bytes_of(arena.runs(MODEL, [2, 3])[0]).nbytes == 2 * BLOCK_BYTES
