"""The pass `offload`: what a layer becomes, and the same logits with any sequences at a receiver."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial

import pytest
import torch

from gpu_node.executors.reference.interpreter import InterpreterInputs, ReferenceDevice, run_program
from gpu_node.executors.reference.receiver import NoReceiverError
from gpu_node.graph.cost import NumberBytes, program_costs
from gpu_node.graph.passes.draft import Pass
from gpu_node.graph.passes.fuse import fuse
from gpu_node.graph.passes.offload.offload import offload
from gpu_node.graph.passes.offload.polls import insert_polls
from gpu_node.graph.passes.offload.split import even_plan, split_operators
from gpu_node.graph.passes.optimize import optimize
from gpu_node.graph.passes.pipeline.nano_batches import nano_batches
from gpu_node.graph.program import OperatorClass, OperatorKind, Program
from gpu_node.graph.share import LOCAL, REMOTE
from gpu_node.graph.step_shape import SequencePart, StepShape
from gpu_node.kernels.paged_batch import PagedSequence, paged_batch
from gpu_node.models.architectures.families import build_program
from gpu_node.models.config import Family, ModelConfig
from tests.gpu_node.batch_cuts import TWICE, RandomCuts, in_shares
from tests.gpu_node.family_programs import BLOCK_SIZE, CONFIGS, HEAD_DIM, LAYERS, VOCAB, of_program, random_weights
from tests.gpu_node.family_programs import config as family
from tests.gpu_node.graph.test_program_cost import config
from tests.gpu_node.in_memory_receiver import InMemoryReceiver
from tests.gpu_node.random_pipelines import ONE_DEVICE, PROFILED, random_pipeline

AHEAD: Pass = partial(offload, runs_ahead=True)
FORMS = [offload, AHEAD]
NUM_BLOCKS = 32
PROMPTS = (20, 5, 33, 16)


def told(program: Program) -> list[str]:
    """Operators with their share, where it is not the whole."""
    return [
        str(one.kind) if one.share.is_whole else f"{one.kind} {'L' if one.share == LOCAL else 'R'}"
        for one in program.operators
    ]


# --- the program ------------------------------------------------------------------------------------------------------


def test_a_layer_sends_attends_and_gathers() -> None:
    """All of two fused Llama layers. What is local is written while the task is under way."""
    layer = [
        *("rms_norm", "linear", "rope R", "rope R", "send R", "rope_write_kv L", "paged_attention L", "gather R"),
        *("linear_add", "rms_norm", "gated_linear", "linear_add"),
    ]
    program = offload(fuse(build_program(config(num_layers=2))))
    assert told(program) == ["embedding", "rope_angles", *layer, *layer, "select_draws", "rms_norm", "linear"]
    send, gather = (next(one for one in program.operators if one.kind == kind) for kind in ("send", "gather"))
    assert (send.inputs, send.outputs, send.layer) == (("q", "k", "v"), (), 0)
    assert (gather.inputs, gather.outputs, gather.layer) == ((), ("attended",), 0)
    assert send.operator_class is gather.operator_class is OperatorClass.NETWORK


def test_local_rows_run_ahead_to_the_next_layer() -> None:
    program = AHEAD(fuse(build_program(config(num_layers=2))))
    between = ["linear_add", "rms_norm", "gated_linear", "linear_add", "rms_norm", "linear"]
    assert told(program) == [
        *("embedding", "rope_angles", "rms_norm", "linear"),
        *("rope R", "rope R", "send R", "rope_write_kv L", "paged_attention L"),
        *(f"{kind} L" for kind in between),
        "gather R",
        *(f"{kind} R" for kind in between),
        *("rope R", "rope R", "send R", "rope_write_kv L", "paged_attention L", "gather R"),
        *("linear_add", "rms_norm", "gated_linear", "linear_add", "select_draws", "rms_norm", "linear"),
    ]


@pytest.mark.parametrize("form", FORMS)
def test_a_program_that_offloads_stays_as_it_is_and_polls_stand_behind_all(form: Pass) -> None:
    program = form(fuse(build_program(config())))
    assert form(program) is program
    assert form(insert_polls(fuse(build_program(config())))) == insert_polls(program)


def test_a_window_goes_with_what_is_sent() -> None:
    sent = [one for one in offload(build_program(family(**CONFIGS["qwen2"]))).operators if one.kind == "send"]
    assert [one.attributes.get("window") for one in sent] == [None, 20]


def test_the_check_finds_what_is_gathered_before_it_is_sent_and_who_writes_for_the_other() -> None:
    program = offload(fuse(build_program(config())))
    send = next(one for one in program.operators if one.kind is OperatorKind.SEND)
    early = [one for one in program.operators if one is not send]
    with pytest.raises(AssertionError, match="gathers what was not sent"):
        Program((*early, send), program.buffers, program.weights, program.result).check()
    attention = next(one for one in fuse(build_program(config())).operators if one.kind == "paged_attention")
    with pytest.raises(AssertionError, match="is about local rows"):
        Program((*program.operators, attention), program.buffers, program.weights, program.result).check()
    halves = offload(in_shares(fuse(build_program(config(num_layers=1))), TWICE))
    first, second = (index for index, one in enumerate(halves.operators) if one.kind is OperatorKind.GATHER)
    turned = list(halves.operators)
    turned[first], turned[second] = turned[second], turned[first]
    with pytest.raises(AssertionError, match="gathers what was not sent first"):
        Program(tuple(turned), halves.buffers, halves.weights, halves.result).check()


def test_what_is_sent_goes_over_the_wire_and_costs_no_context_here() -> None:
    model = config()
    step = StepShape((SequencePart(9, 1), SequencePart(19, 1)), num_draws=2, num_remote=1)
    program = offload(build_program(model))
    costs = dict(zip((one.kind for one in program.operators), program_costs(program, step, NumberBytes()), strict=True))
    columns = model.num_heads * model.head_dim, model.num_kv_heads * model.head_dim
    assert costs[OperatorKind.SEND].wire_bytes == 4 * (columns[0] + 2 * columns[1])
    assert costs[OperatorKind.PAGED_ATTENTION].kv_bytes == 4 * 10 * 2 * columns[1]
    assert costs[OperatorKind.GATHER].buffer_bytes == 4 * columns[0]


# --- its numbers ------------------------------------------------------------------------------------------------------


def run(
    model: ModelConfig,
    program: Program,
    stored: dict[str, torch.Tensor],
    remote: set[int],
    *,
    moves: bool,
    choose: Callable[[int], int] | None = None,
) -> torch.Tensor:
    """Prompts here, then five decodes with ``remote`` sequences last: at a receiver, or counted so and kept here.

    ``choose``: which operator comes next, of those that lanes permit.
    """
    shape = (NUM_BLOCKS, 2, BLOCK_SIZE, model.num_kv_heads, HEAD_DIM)
    here, there = ([torch.full(shape, torch.nan) for _ in range(LAYERS)] for _ in range(2))
    receiver = InMemoryReceiver(there)
    device = ReferenceDevice(of_program(program, stored), here, receiver=receiver)
    tables = [[4 * number + 3 - block for block in range(4)] for number in range(len(PROMPTS))]
    numbers = torch.Generator().manual_seed(3)

    def step(rows: dict[int, tuple[int, int]]) -> torch.Tensor:
        sequences = [PagedSequence(*rows[number], tables[number]) for number in rows]
        ends = torch.tensor([one.num_rows for one in sequences]).cumsum(0)
        ids = torch.randint(0, VOCAB, (int(ends[-1]),), generator=numbers)
        batch = paged_batch(sequences, BLOCK_SIZE, len(remote & rows.keys()) if len(ends) == len(ids) else 0)
        with torch.inference_mode():
            return run_program(program, device, InterpreterInputs(ids, batch, ends - 1), choose)

    outputs = [step({number: (0, length) for number, length in enumerate(PROMPTS)})]
    for number in remote if moves else ():
        elsewhere = [NUM_BLOCKS - 1 - block for block in tables[number]]
        for source, target in zip(here, there, strict=True):
            target[elsewhere] = source[tables[number]]
            source[tables[number]] = torch.nan  # nobody reads there any more
        tables[number] = elsewhere
    order = [*(set(range(len(PROMPTS))) - remote), *remote]
    outputs += [step({number: (PROMPTS[number] + later, 1) for number in order}) for later in range(5)]
    return torch.cat(outputs)


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("form", FORMS)
def test_any_sequences_at_a_receiver_give_the_same_bits(name: str, form: Pass) -> None:
    model = family(**CONFIGS[name])
    plain = build_program(model)
    stored = random_weights(model, plain)
    optimized = optimize(plain)
    cut = split_operators(optimized, even_plan(optimized, 2))
    for number, remote in enumerate((set[int](), {1, 3}, {0, 1, 2, 3})):
        theirs = run(model, plain, stored, remote, moves=False)
        for program in (form(plain), insert_polls(form(cut)), form(RandomCuts(number)(optimized))):
            ours = run(model, program, stored, remote, moves=True)
            assert ours.isfinite().all()
            torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)
        # sums are made in the same order where the same rows are taken together
        together = run(model, in_shares(optimized, (LOCAL, REMOTE)), stored, remote, moves=False)
        apart = form(in_shares(optimized, (LOCAL, REMOTE)))
        assert run(model, apart, stored, remote, moves=True).equal(together)


@pytest.mark.parametrize("name", CONFIGS)
def test_in_lanes_every_permitted_order_gives_the_same_bits(name: str) -> None:
    """What is sent first is gathered first, whatever else comes between."""
    model = family(**CONFIGS[name])
    plain = build_program(model)
    stored = random_weights(model, plain)
    optimized = optimize(plain)
    cut = split_operators(optimized, even_plan(optimized, 2))
    for number, remote in enumerate((set[int](), {1, 3}, {0, 1, 2, 3})):
        theirs = run(model, plain, stored, remote, moves=False)
        for seed, program in enumerate((offload(plain), insert_polls(offload(cut)), offload(RandomCuts(7)(optimized)))):
            piped = nano_batches(program, random_pipeline(10 * number + seed, names=ONE_DEVICE if seed else PROFILED))
            listed = run(model, piped, stored, remote, moves=True)
            torch.testing.assert_close(listed, theirs, rtol=1e-4, atol=1e-4)
            for order in range(2):
                choose = random.Random(order).randrange
                assert run(model, piped, stored, remote, moves=True, choose=choose).equal(listed)


def test_remote_rows_without_a_receiver_are_refused() -> None:
    model = family(family=Family.LLAMA)
    program = offload(build_program(model))
    shape = (NUM_BLOCKS, 2, BLOCK_SIZE, model.num_kv_heads, HEAD_DIM)
    device = ReferenceDevice(random_weights(model, program), [torch.zeros(shape) for _ in range(LAYERS)])
    ids, draws = torch.tensor([1, 2]), torch.tensor([0, 1])
    tables = [PagedSequence(3, 1, [number]) for number in range(2)]
    with torch.inference_mode():
        assert len(run_program(program, device, InterpreterInputs(ids, paged_batch(tables, BLOCK_SIZE), draws))) == 2
        remote = InterpreterInputs(ids, paged_batch(tables, BLOCK_SIZE, num_remote=1), draws)
        with pytest.raises(NoReceiverError, match="1 rows of layer 0 are remote; this device has no receiver"):
            run_program(program, device, remote)
