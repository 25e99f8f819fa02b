"""Programs whose pass `offload` asks another device, by the launches of the CUDA device: the numbers of home."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import pytest
import torch

from gpu_node.executors.cuda.program.inputs import InputLimits, StepInputs
from gpu_node.executors.cuda.program.link_ends import AskedDevice, Serving
from gpu_node.executors.cuda.program.lowered import Lowered
from gpu_node.executors.cuda.program.lowering import lower
from gpu_node.executors.cuda.program.program import CudaProgram
from gpu_node.graph.passes.draft import Pass
from gpu_node.graph.passes.offload.offload import offload
from gpu_node.graph.passes.optimize import optimize
from gpu_node.graph.program import Program
from gpu_node.kernels.triton.attention.attention_tile import UNBOUNDED
from gpu_node.kernels.triton.attention.poll import poll
from gpu_node.kernels.triton.attention.prefill_attention import rows_together
from gpu_node.kernels.triton.attention.remote_ring import RemoteRing
from gpu_node.kernels.triton.attention.task_ring import PollCounters, TaskRing, Tasks
from gpu_node.kernels.triton.cache import CacheShape, LayerCache, Places
from gpu_node.kernels.triton.launch import INTERPRETED
from gpu_node.models.architectures.families import build_program
from gpu_node.models.config import ModelConfig
from tests.gpu_node.family_programs import (
    BLOCK_SIZE,
    CONFIGS,
    HEAD_DIM,
    HEADS,
    LAYERS,
    LENGTH,
    NUM_BLOCKS,
    SHORT,
    config,
    of_program,
    random_weights,
    steps,
)
from tests.gpu_node.kernels.triton.buffers import DEVICE

pytestmark = pytest.mark.skipif(not INTERPRETED, reason="two devices in one process are interpreted")

MAX_ROWS = 64
NUM_SLOTS, MAX_SEQUENCES, MAX_BLOCKS = 2, 2, 5
LINE_NUMBERS = 16
AHEAD: Pass = partial(offload, runs_ahead=True)


class Receiver:
    """A device that lends blocks, in pages of three and a bit: its own model's are of another size."""

    def __init__(self, model: ModelConfig, max_looks: int) -> None:
        self.shape = CacheShape(LAYERS, BLOCK_SIZE, model.num_kv_heads, HEAD_DIM)
        lines = self.shape.block_lines(4)
        self.places = Places(3 * lines + 5, lines)
        pages = -(-NUM_BLOCKS // self.places.blocks_per_page)
        self.numbers = torch.full((pages * self.places.page_lines * LINE_NUMBERS,), torch.nan).share_memory_()  # type: ignore[no-untyped-call]
        ring = TaskRing.new(self.shape, NUM_SLOTS, MAX_SEQUENCES, MAX_BLOCKS, HEADS * HEAD_DIM, torch.empty(0))
        counters = PollCounters.new(3, NUM_SLOTS, torch.device("cpu"))
        for one in (ring, counters):
            for name in one.__slots__:
                if isinstance(tensor := getattr(one, name), torch.Tensor):
                    tensor.share_memory_()  # type: ignore[no-untyped-call]
        self.tasks = Tasks(counters, ring)
        self.remote_ring = RemoteRing.new(counters, ring, self.places, max_looks)

    def poll(self) -> None:
        poll(self.tasks, self.numbers)

    def take(self, block: int, there: int, home: torch.Tensor) -> None:
        """Keep one of the sender's blocks, whose numbers nobody needs there any more."""
        size = self.shape.block_lines(4) * LINE_NUMBERS
        begin, own = block * size, self.places.line(there) * LINE_NUMBERS
        self.numbers[own : own + size] = home[begin : begin + size]
        home[begin : begin + size] = torch.nan


def run(
    model: ModelConfig,
    program: Program,
    stored: dict[str, torch.Tensor],
    receiver: Receiver | None = None,
    served_behind: Callable[[Lowered], Lowered] = lambda lowered: lowered,
    tasks: Tasks | None = None,
    first_remote: int = 1,
) -> torch.Tensor:
    """Logits of all draws; from step ``first_remote`` on, the last sequence is the receiver's, if there is one."""
    shape = CacheShape(LAYERS, BLOCK_SIZE, model.num_kv_heads, HEAD_DIM)
    lines = shape.block_lines(4)
    numbers = torch.full((NUM_BLOCKS * lines * LINE_NUMBERS,), torch.nan, device=DEVICE)
    lowered = lower(
        program,
        {name: values.to(DEVICE, torch.float32) for name, values in of_program(program, stored).items()},
        [LayerCache(numbers, shape, layer) for layer in range(LAYERS)],
        max_rows=MAX_ROWS,
        max_draws=2,
        max_positions=LENGTH,
        serving=Serving(tasks),
        asking=AskedDevice(receiver.remote_ring if receiver else None),
    )
    limits = InputLimits(
        MAX_ROWS, 2, NUM_BLOCKS, LENGTH, rows_together(HEADS // model.num_kv_heads), model.num_kv_heads
    )
    ours = CudaProgram(
        served_behind(lowered),
        StepInputs(limits, torch.zeros(1, dtype=torch.int32, device=DEVICE), DEVICE),
        Places(NUM_BLOCKS * lines, lines),
        BLOCK_SIZE,
    )
    outputs = []
    moved: dict[int, int] = {}
    with torch.inference_mode():
        for number, step in enumerate(steps(SHORT)):
            sequences, num_remote = list(step.sequences), 0
            if receiver is not None and number >= first_remote:
                last, num_remote = sequences[-1], 1
                for block in last.block_table:
                    if block not in moved:
                        moved[block] = NUM_BLOCKS - 1 - block
                        receiver.take(block, moved[block], numbers)
                sequences[-1] = replace(last, block_table=[moved[block] for block in last.block_table])
            outputs.append(ours.run(sequences, step.token_ids, step.draw_rows, num_remote).to("cpu", copy=True))
    return torch.cat(outputs)


def polls_behind_each(receiver: Receiver, lowered: Lowered) -> Lowered:
    """As if the receiver's operators took as long as the sender's."""

    def beside(launch: Callable[..., None]) -> Callable[..., None]:
        def both(step: object) -> None:
            launch(step)
            receiver.poll()

        return both

    return replace(lowered, launches=tuple(map(beside, lowered.launches)))


@pytest.mark.parametrize("form", [offload, AHEAD])
@pytest.mark.parametrize("name", ["llama3", "mistral", "opt", "mixtral"])
def test_a_sequence_at_another_device_gives_the_numbers_of_home(name: str, form: Pass) -> None:
    """A poll goes through a context in other pieces than decode attention does, and where local rows run ahead torch
    multiplies fewer at a time; all else is bit by bit the same.
    """
    model = config(**CONFIGS[name])
    plain = build_program(model)
    stored = random_weights(model, plain)
    program = form(optimize(plain))
    receiver = Receiver(model, max_looks=1)
    ours = run(model, program, stored, receiver, partial(polls_behind_each, receiver))
    theirs = run(model, optimize(plain), stored)
    num_equal = 2 if form is offload else 1
    assert ours[:num_equal].equal(theirs[:num_equal])
    assert torch.allclose(ours, theirs, rtol=1e-4, atol=1e-5)
    assert not receiver.remote_ring.is_lost
    num_tasks = 2 * LAYERS
    assert [int(one) for one in (receiver.remote_ring.sent, receiver.remote_ring.gathered)] == [num_tasks, num_tasks]
    assert int(receiver.tasks.counters.served) == num_tasks


def test_where_nobody_is_remote_nothing_is_sent() -> None:
    model = config(**CONFIGS["llama3"])
    plain = build_program(model)
    stored = random_weights(model, plain)
    receiver = Receiver(model, max_looks=1)
    ours = run(model, offload(optimize(plain)), stored, receiver, first_remote=3)
    assert ours.equal(run(model, optimize(plain), stored))
    assert int(receiver.tasks.counters.asked) == 0


def test_a_receiver_that_does_not_answer_is_lost_and_local_rows_stand() -> None:
    """The first task of the second step is asked for and given up; nothing is sent any more."""
    model = config(**CONFIGS["llama3"])
    plain = build_program(model)
    stored = random_weights(model, plain)
    receiver = Receiver(model, max_looks=2)
    ours = run(model, offload(optimize(plain)), stored, receiver)
    theirs = run(model, optimize(plain), stored)
    assert receiver.remote_ring.is_lost
    assert int(receiver.tasks.counters.asked) == 1
    assert ours[:2].equal(theirs[:2]), "a prompt that ends at home; the other is draw 2"
    assert bool(ours.isfinite().all())
    assert not torch.allclose(ours[2], theirs[2], rtol=1e-2)
    receiver.poll()
    assert int(receiver.tasks.counters.served) == 1
    assert receiver.remote_ring.is_lost, "a late answer changes nothing"


def test_a_gather_serves_what_others_ask_of_its_device() -> None:
    """No operator of the program polls; whom it waits for may wait for it."""
    model = config(**CONFIGS["llama3"])
    plain = build_program(model)
    stored = random_weights(model, plain)
    receiver, asks = Receiver(model, max_looks=2), Receiver(model, max_looks=1)
    counters = PollCounters.new(1, NUM_SLOTS, torch.device("cpu"))
    counters.asked.fill_(1)
    asks.tasks.ring.num_sequences[0] = 1
    asks.tasks.ring.windows.fill_(UNBOUNDED)
    asks.tasks.ring.k.fill_(2.0)
    asks.tasks.ring.v.fill_(3.0)
    block = NUM_BLOCKS - 1  # of this device's own arena, where nobody's tokens lie
    asks.tasks.ring.block_lines[0, 0] = block * asks.shape.block_lines(4)
    run(model, offload(optimize(plain)), stored, receiver, tasks=Tasks(counters, asks.tasks.ring))
    assert receiver.remote_ring.is_lost, "nobody polls there"
    assert int(counters.served) == 1
    assert bool((asks.tasks.ring.out[0, 0] == 3.0).all()), "of one token, its value"


@contextmanager
def polling(receiver: Receiver) -> Iterator[None]:
    """In a process of its own: the memory is shared, no code is."""
    stop = torch.zeros(1, dtype=torch.int64).share_memory_()  # type: ignore[no-untyped-call]

    def loop() -> None:
        while not int(stop):
            receiver.poll()

    process = multiprocessing.get_context("fork").Process(target=loop, daemon=True)
    process.start()
    try:
        yield
    finally:
        stop.fill_(1)
        process.join(30.0)
        assert process.exitcode == 0


def test_a_receiver_in_another_process_answers_while_the_sender_waits() -> None:
    model = config(**CONFIGS["qwen2"])
    plain = build_program(model)
    stored = random_weights(model, plain)
    receiver = Receiver(model, max_looks=1_000_000)
    with polling(receiver):
        ours = run(model, offload(optimize(plain)), stored, receiver)
    assert not receiver.remote_ring.is_lost
    assert torch.allclose(ours, run(model, optimize(plain), stored), rtol=1e-4, atol=1e-5)
