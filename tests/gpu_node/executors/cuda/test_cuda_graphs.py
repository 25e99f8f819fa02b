"""A step that is replayed is the step that is launched, bit by bit, whatever is in the batch this time.

Where kernels are interpreted, a replay is a list of launches whose arguments were bound at the capture
(`gpu_node.executors.cuda.program.graphs.recording`): had one of them been taken from the batch of that time,
these tests would fail.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
import torch

from gpu_node.executors.cuda.program.graphs.graphs import CudaGraphs, Graphs
from gpu_node.executors.cuda.program.graphs.recording import CaptureError, RecordedGraphs, StepRecording
from gpu_node.graph.passes.draft import Pass
from gpu_node.graph.passes.offload.polls import insert_polls
from gpu_node.graph.passes.offload.split import even_plan, split_operators
from gpu_node.graph.passes.optimize import optimize
from gpu_node.graph.program import Program
from gpu_node.kernels.paged_batch import PagedSequence
from gpu_node.kernels.token_draw import cell_mark
from gpu_node.kernels.triton.attention.attention_tile import UNBOUNDED
from gpu_node.kernels.triton.launch import INTERPRETED
from tests.gpu_node.family_programs import CONFIGS, VOCAB, config
from tests.gpu_node.kernels.triton.buffers import DEVICE, FLOAT32_ERROR
from tests.gpu_node.kernels.triton.device_program import BLOCK_SIZE, MAX_SEQUENCES, NUM_CELLS, DeviceProgram, decodes
from tests.gpu_node.random_pipelines import random_pipeline

pytestmark = pytest.mark.filterwarnings("ignore:overflow encountered in exp:RuntimeWarning")
only_interpreted = pytest.mark.skipif(not INTERPRETED, reason="graphs of a device cannot be looked into")


def graphs() -> Graphs:
    return RecordedGraphs() if INTERPRETED else CudaGraphs(DEVICE)


def made(name: str, change: Pass = optimize) -> DeviceProgram:
    torch.manual_seed(7)
    return DeviceProgram(config(**CONFIGS[name]), change)


def captured(name: str, change: Pass = optimize) -> DeviceProgram:
    device = made(name, change)
    with torch.inference_mode():
        device.program.capture(graphs())
    return device


def split(program: Program) -> Program:
    return split_operators(optimize(program), even_plan(optimize(program), 2))


@pytest.mark.parametrize(
    ("name", "change", "nums_sequences"),
    [
        ("llama3", optimize, [1, 3, MAX_SEQUENCES, 2]),
        ("llama3", split, [3]),
        ("qwen2", optimize, [3, 1]),
        ("gpt2", optimize, [3]),
        ("mixtral", optimize, [3, 1]),
    ],
    ids=["llama3", "llama3 in parts", "qwen2 with windows", "gpt2", "mixtral"],
)
def test_replays_are_the_launched_steps_for_any_batch(name: str, change: Pass, nums_sequences: list[int]) -> None:
    """Batches of all sizes, contexts on both sides of blocks and tiles, tokens that only the device knows."""
    numbers = random.Random(1)
    replayed, launched = captured(name, change), made(name, change)
    for num_sequences in nums_sequences:
        sequences = decodes(numbers, num_sequences)
        choices = [*range(VOCAB), *map(cell_mark, range(NUM_CELLS))]
        token_ids = [numbers.choice(choices) for _ in sequences]
        for device in (replayed, launched):
            device.poison()
            device.cells.copy_(torch.tensor([num_sequences * cell for cell in range(NUM_CELLS)]))
        ours, theirs = replayed.run(sequences, token_ids), launched.run(sequences, token_ids)
        assert ours.shape == (num_sequences, VOCAB)
        assert bool(ours.isfinite().all())
        assert ours.equal(theirs)
        assert replayed.arena.equal(launched.arena)


def test_the_largest_step_is_captured_in_lanes_and_smaller_ones_are_not() -> None:
    torch.manual_seed(7)
    piped = DeviceProgram(config(**CONFIGS["llama3"]), optimize, random_pipeline(4))
    with torch.inference_mode():
        piped.program.capture(graphs())
    assert sorted(piped.program.replays) == [1, 2, 4]
    assert list(piped.program.piped_replays) == [4]
    plain = made("llama3")
    numbers = random.Random(3)
    for num_sequences in (3, MAX_SEQUENCES):
        sequences, token_ids = decodes(numbers, num_sequences), [numbers.randrange(VOCAB) for _ in range(num_sequences)]
        for device in (piped, plain):
            device.poison()
        ours, theirs = piped.run(sequences, token_ids), plain.run(sequences, token_ids)
        assert float((ours - theirs).norm() / theirs.norm()) < FLOAT32_ERROR
        assert ours.equal(theirs) or num_sequences == MAX_SEQUENCES, "products of fewer rows may round otherwise"


def test_a_context_grows_over_the_ends_of_blocks_and_prompts_come_between() -> None:
    """As a sequence lives: each step reads what those before it wrote, replayed or not."""
    replayed, launched = captured("llama3"), made("llama3")
    table = [7, 0]
    for device in (replayed, launched):
        device.run([PagedSequence(0, 3, table)], [3, 1, 4])
        device.run([PagedSequence(3, 3, table)], [1, 5, 9])
    for position in range(6, 10):
        beside = [PagedSequence(0, 2, [3])] if position == 8 else []
        sequences = [PagedSequence(position, 1, table[: position // BLOCK_SIZE + 1]), *beside]
        token_ids = [position, *[8, 9][: 2 * len(beside)]]
        assert difference(replayed.run(sequences, token_ids), launched.run(sequences, token_ids)) < FLOAT32_ERROR
    assert difference(replayed.arena, launched.arena) < FLOAT32_ERROR


def difference(ours: torch.Tensor, theirs: torch.Tensor) -> float:
    """Products of more rows may round otherwise."""
    return float((ours - theirs).norm() / theirs.norm())


@pytest.mark.parametrize("name", ["llama3", "qwen2", "gpt2", "mixtral"])
def test_mixed_steps_are_replayed_up_to_their_draws(name: str) -> None:
    """Prompts and decodes in any number, on both sides of tiles, some of which draw nothing."""
    replayed, launched = captured(name), made(name)
    assert sorted(replayed.program.row_replays) == [MAX_SEQUENCES]
    steps: list[tuple[list[PagedSequence], list[int]]] = [
        ([PagedSequence(0, 3, [1])], [2]),
        ([PagedSequence(9, 1, [4, 2, 3]), PagedSequence(3, 2, [1, 5])], [0, 2]),
        ([PagedSequence(0, 2, [6]), PagedSequence(10, 1, [4, 2, 3]), PagedSequence(5, 1, [1, 5])], [2, 3]),
        ([PagedSequence(2, 2, [6]), PagedSequence(0, 2, [7])], []),
    ]
    for sequences, draw_rows in steps:
        token_ids = [7 * row % VOCAB for row in range(sum(one.num_rows for one in sequences))]
        for device in (replayed, launched):
            device.poison()
        ours, theirs = replayed.run(sequences, token_ids, draw_rows), launched.run(sequences, token_ids, draw_rows)
        assert ours.shape == theirs.shape == (len(draw_rows), VOCAB)
        assert not draw_rows or difference(ours, theirs) < FLOAT32_ERROR
        assert difference(replayed.arena, launched.arena) < FLOAT32_ERROR


@only_interpreted
def test_the_graph_of_a_mixed_step_ends_before_its_draws() -> None:
    found = captured("llama3").program.row_replays[MAX_SEQUENCES]
    assert isinstance(found, StepRecording)
    attention = ["_decode", "_combine", "_prefill"]
    layer = ["_norm", "mm.out", "_write_kv", *attention, "addmm_.default", "_norm", "mm.out", "_silu_mul"]
    names = [launch.name for launch in found.launches]
    assert names == ["_lookup", "_lookup", *layer, "addmm_.default", "_norm", "mm.out", "_write_kv", *attention]


def test_a_step_of_more_prompts_than_a_graph_has_programs_for_is_launched() -> None:
    torch.manual_seed(7)
    device, plain = DeviceProgram(config(**CONFIGS["llama3"]), optimize, max_prompts=0), made("llama3")
    with torch.inference_mode():
        device.program.capture(graphs())
    sequences = [PagedSequence(0, 2, [3]), PagedSequence(0, 2, [4])]
    assert device.run(sequences, [1, 2, 3, 4], [1, 3]).equal(plain.run(sequences, [1, 2, 3, 4], [1, 3]))


def test_rows_of_nobody_are_written_nowhere_and_change_no_other() -> None:
    """Three rows in a step of four, and each in a step of its own."""
    padded, alone = captured("llama3"), made("llama3")
    sequences = decodes(random.Random(2), 3)
    before = padded.arena.clone()
    padded.poison()
    ours = padded.run(sequences, [1, 2, 3])
    changed = (padded.arena != before).nonzero()[:, 0] // padded.block_numbers
    assert set(changed.tolist()) == {sequence.block_table[-1] for sequence in sequences}
    for row, sequence in enumerate(sequences):
        theirs = alone.run([sequence], [row + 1])
        assert float((ours[row] - theirs[0]).norm() / theirs.norm()) < FLOAT32_ERROR


def test_capturing_and_warming_up_leave_the_arena_as_it_was() -> None:
    device = made("llama3")
    before = device.arena.clone()
    with torch.inference_mode():
        device.program.capture(graphs())
        device.program.warm_up()
    assert device.arena.equal(before)
    assert sorted(device.program.replays) == [1, 2, 4]
    assert sorted(device.program.row_replays) == [4]


def test_graphs_that_are_forgotten_are_captured_again_one_by_one_when_they_are_needed() -> None:
    device, plain = captured("llama3"), made("llama3")
    device.program.forget_graphs()
    sequences = [PagedSequence(9, 1, [1, 2]), PagedSequence(0, 2, [3])]
    assert difference(device.run(sequences, [1, 2, 3]), plain.run(sequences, [1, 2, 3])) < FLOAT32_ERROR
    assert (list(device.program.replays), list(device.program.row_replays)) == ([], [4])
    sequences = decodes(random.Random(4), 2)
    assert device.run(sequences, [1, 2]).equal(plain.run(sequences, [1, 2]))
    assert list(device.program.replays) == [2]


def test_a_step_too_large_is_refused() -> None:
    device = made("llama3")
    with pytest.raises(ValueError, match="a step with 5 token_ids; 4 are the most"):
        device.run([PagedSequence(0, 5, [1])], [1] * 5)


def test_a_replayed_poll_does_what_waits() -> None:
    """A program with polls gives what it gives without, and the attention that somebody asks for meanwhile."""

    def polled(program: Program) -> Program:
        return insert_polls(optimize(program))

    device, plain = captured("llama3", polled), made("llama3")
    sequences = decodes(random.Random(3), 1)
    assert device.run(sequences, [1]).equal(plain.run(sequences, [1]))
    tasks, table, layer = device.tasks, [9, 4, 3], 1
    ring = tasks.ring
    ring.num_sequences[0], ring.firsts[0], ring.windows[0] = 1, device.caches[layer].first, UNBOUNDED
    ring.positions[0, 0] = 19
    ring.block_lines[0, 0, : len(table)] = torch.tensor([device.places.line(block) for block in table])
    for rows in (ring.q, ring.k, ring.v):
        rows[0, 0] = torch.randn(rows.shape[2])
    before = with_own(device, ring.k[0, 0], ring.v[0, 0], table, 19, layer)
    tasks.counters.asked.add_(1)
    device.run(sequences, [2])
    assert int(tasks.counters.served) == 1
    expected = attention_of(device, before, ring.q[0, 0], table, 19, layer)
    assert float((ring.out[0, 0].cpu() - expected).norm() / expected.norm()) < FLOAT32_ERROR


def with_own(
    device: DeviceProgram, k: torch.Tensor, v: torch.Tensor, table: list[int], position: int, layer: int
) -> torch.Tensor:
    """The arena as it is, with key and value of one token in their places."""
    cache, head_numbers = device.caches[layer], BLOCK_SIZE * device.caches[layer].shape.head_dim
    numbers = cache.numbers.clone()
    block = numbers.view(-1, device.block_numbers)[table[position // BLOCK_SIZE], cache.first :]
    for head in range(cache.shape.num_kv_heads):
        columns = slice(head * cache.shape.head_dim, (head + 1) * cache.shape.head_dim)
        for kind, values in enumerate((k, v)):
            at = (2 * head + kind) * head_numbers + position % BLOCK_SIZE * cache.shape.head_dim
            block[at : at + cache.shape.head_dim] = values[columns]
    return numbers


def attention_of(
    device: DeviceProgram, numbers: torch.Tensor, q: torch.Tensor, table: list[int], position: int, layer: int
) -> torch.Tensor:
    """Token by token, in float64."""
    shape = device.caches[layer].shape
    blocks = numbers.view(-1, device.block_numbers)[:, device.caches[layer].first :]
    heads = blocks[:, : shape.layer_numbers].view(-1, shape.num_kv_heads, 2, BLOCK_SIZE, shape.head_dim).double().cpu()
    rows = []
    for head, query in enumerate(q.double().cpu().view(-1, shape.head_dim)):
        own = heads[table, head // 2].transpose(0, 1).reshape(2, -1, shape.head_dim)[:, : position + 1]
        rows.append((own[0] @ query / shape.head_dim**0.5).softmax(0) @ own[1])
    return torch.cat(rows)


@only_interpreted
def test_a_layer_of_a_decode_step_is_nine_launches() -> None:
    """Ten, where contexts are split and the parts are put together: those in a window of 7 tokens are not."""
    before = ["_norm", "mm.out", "_write_kv", "_decode"]
    behind = ["addmm_.default", "_norm", "mm.out", "_silu_mul", "addmm_.default"]
    draws = ["index_select.out"] * 2  # of the last layer, what is behind attention is for rows that draw
    step = ["_lookup", "_lookup", *before, *behind, *before, *draws, *behind, "_norm", "mm.out"]
    assert launches(captured("mistral"), 4) == step
    assert launches(captured("llama3"), 4) == [
        name for launch in step for name in ([launch, "_combine"] if launch == "_decode" else [launch])
    ]


def launches(device: DeviceProgram, size: int) -> list[str]:
    found = device.program.replays[size]
    assert isinstance(found, StepRecording)
    return [launch.name for launch in found.launches]


@only_interpreted
@pytest.mark.parametrize(
    ("breaks", "operation"),
    [
        (lambda x: x + x, "aten.add.Tensor"),
        (lambda x: x[0].item(), "aten._local_scalar_dense"),
        (lambda x: x.copy_(torch.tensor([1.0, 2.0])), "aten.lift_fresh"),
        (lambda x: x[x > 0], "aten.gt.Scalar"),
        (lambda x: x.to(torch.float64), "aten._to_copy"),
    ],
    ids=["a result of its own", "a value for the host", "values of the host", "a size unknown", "a copy"],
)
def test_what_no_graph_could_replay_is_refused(breaks: Callable[[torch.Tensor], object], operation: str) -> None:
    x = torch.ones(2)
    with pytest.raises(CaptureError, match=operation):
        RecordedGraphs().capture(lambda: breaks(x))


@only_interpreted
def test_a_capture_runs_nothing_and_a_replay_reads_what_is_there_by_then() -> None:
    x, out = torch.ones(2, 2), torch.zeros(2, 2)
    recording = RecordedGraphs().capture(lambda: torch.mm(x, x[:, :2], out=out))
    assert float(out.sum()) == 0.0
    x.fill_(2.0)
    recording.replay()
    assert out.tolist() == [[8.0, 8.0], [8.0, 8.0]]
