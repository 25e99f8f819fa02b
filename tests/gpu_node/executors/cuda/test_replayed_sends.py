"""A replayed step that sends is the launched one, bit by bit, however many of its rows are remote this time.

What a replay knew when it was captured, before anything was remote, would be wrong each time (`test_cuda_graphs`).
"""

from __future__ import annotations

import random
from functools import partial

import pytest
import torch

from gpu_node.executors.cuda.program.graphs.recording import RecordedGraphs, StepRecording
from gpu_node.executors.cuda.program.link_ends import AskedDevice
from gpu_node.graph.passes.offload.offload import offload
from gpu_node.graph.passes.offload.polls import insert_polls
from gpu_node.graph.passes.optimize import optimize
from gpu_node.graph.program import Program
from gpu_node.kernels.paged_batch import PagedSequence
from gpu_node.kernels.triton.attention.poll import poll
from gpu_node.kernels.triton.attention.remote_ring import RemoteRing
from gpu_node.kernels.triton.attention.task_ring import LentLines, PollCounters, TaskRing, Tasks
from gpu_node.kernels.triton.cache import CacheShape, Places
from gpu_node.kernels.triton.launch import INTERPRETED
from tests.gpu_node.family_programs import CONFIGS, HEAD_DIM, HEADS, LAYERS, VOCAB, config
from tests.gpu_node.kernels.triton.buffers import DEVICE, FLOAT32_ERROR
from tests.gpu_node.kernels.triton.device_program import (
    BLOCK_SIZE,
    LENGTH,
    MAX_SEQUENCES,
    NUM_BLOCKS,
    DeviceProgram,
    decodes,
)

pytestmark = [
    pytest.mark.filterwarnings("ignore:overflow encountered in exp:RuntimeWarning"),
    pytest.mark.skipif(not INTERPRETED, reason="graphs of a device cannot be looked into"),
]


class Pair:
    """A sender, and a receiver that looks at its ring when it is waited for."""

    def __init__(self, name: str, *, captures: bool, runs_ahead: bool = False) -> None:
        model = config(**CONFIGS[name])
        torch.manual_seed(7)
        shape = CacheShape(LAYERS, BLOCK_SIZE, model.num_kv_heads, HEAD_DIM)
        lines = shape.block_lines(4)
        places = Places(page_lines=4 * lines + 3, block_lines=lines)
        num_pages = NUM_BLOCKS // 4
        self.arena = torch.randn(num_pages * places.page_lines * 16)
        ring = TaskRing.new(shape, 2, MAX_SEQUENCES, LENGTH // BLOCK_SIZE, HEADS * HEAD_DIM, self.arena)
        counters = PollCounters.new(2, 2, DEVICE)
        self.tasks = Tasks(counters, ring, LentLines(torch.ones(num_pages, dtype=torch.int32), places.page_lines))
        self.ring = RemoteRing.new(counters, ring, places, max_looks=1)

        def change(program: Program) -> Program:
            return insert_polls(offload(optimize(program), runs_ahead=runs_ahead))

        meanwhile = partial(poll, self.tasks, self.arena)
        self.sender = DeviceProgram(model, change, asking=AskedDevice(self.ring), meanwhile=meanwhile)
        if captures:
            with torch.inference_mode():
                self.sender.program.capture(RecordedGraphs())

    def run(self, sequences: list[PagedSequence], token_ids: list[int], num_remote: int) -> torch.Tensor:
        self.sender.poison()
        logits = self.sender.run(sequences, token_ids, num_remote=num_remote)
        assert not self.ring.is_lost
        return logits

    def check_equal(self, other: Pair) -> None:
        assert self.arena.equal(other.arena)
        assert self.sender.arena.equal(other.sender.arena)


@pytest.mark.parametrize("name", ["llama3", "qwen2", "gpt2", "mixtral"])
def test_replays_send_as_many_rows_as_are_remote_this_time(name: str) -> None:
    numbers = random.Random(1)
    replayed, launched = (Pair(name, captures=captures) for captures in (True, False))
    num_tasks = 0
    for num_sequences, num_remote in ((3, 1), (4, 0), (2, 2), (4, 3), (1, 1)):
        sequences = decodes(numbers, num_sequences)
        token_ids = [numbers.randrange(VOCAB) for _ in sequences]
        ours, theirs = (pair.run(sequences, token_ids, num_remote) for pair in (replayed, launched))
        assert ours.equal(theirs)
        replayed.check_equal(launched)
        num_tasks += LAYERS * (num_remote > 0)
        assert int(replayed.tasks.counters.served) == num_tasks, "nothing is sent where nobody is remote"
    assert sorted(replayed.sender.program.replays) == [1, 2, 4]


def test_mixed_steps_that_send_are_replayed_up_to_their_draws() -> None:
    replayed, launched = (Pair("llama3", captures=captures) for captures in (True, False))
    found = replayed.sender.program.row_replays[MAX_SEQUENCES]
    assert isinstance(found, StepRecording)
    names = [launch.name for launch in found.launches]
    assert names.count("_send") == names.count("_gather") == LAYERS
    prompt, remote = PagedSequence(0, 2, [1]), PagedSequence(9, 1, [4, 2])
    for sequences in ([prompt, remote], [PagedSequence(2, 1, [1]), PagedSequence(0, 2, [6]), remote]):
        token_ids = [7 * row % VOCAB for row in range(sum(one.num_rows for one in sequences))]
        ours, theirs = (pair.run(sequences, token_ids, 1) for pair in (replayed, launched))
        assert float((ours - theirs).norm() / theirs.norm()) < FLOAT32_ERROR
        assert float((replayed.arena - launched.arena).norm() / launched.arena.norm()) < FLOAT32_ERROR
    assert int(replayed.tasks.counters.served) == 2 * LAYERS


def test_where_local_rows_run_ahead_steps_that_send_are_launched_and_others_replayed() -> None:
    numbers = random.Random(2)
    replayed, launched = (Pair("llama3", captures=captures, runs_ahead=True) for captures in (True, False))
    assert not replayed.sender.lowered.splits_on_device
    for num_remote in (0, 2):
        sequences = decodes(numbers, 4)
        ours, theirs = (pair.run(sequences, [1, 2, 3, 4], num_remote) for pair in (replayed, launched))
        assert ours.equal(theirs)
        replayed.check_equal(launched)


def test_what_is_not_lent_is_refused_with_nothing_written_and_the_receiver_is_lost() -> None:
    pair = Pair("llama3", captures=True)
    assert pair.tasks.lent is not None
    pair.tasks.lent.is_lent[0] = 0
    before = pair.arena.clone()
    pair.sender.run([PagedSequence(9, 1, [4, 2])], [1], num_remote=1)  # block 2 lies in the first page
    assert pair.ring.is_lost
    assert pair.arena.equal(before)
    assert int(pair.tasks.counters.served) == 1, "the first of two layers: then nothing is sent any more"
