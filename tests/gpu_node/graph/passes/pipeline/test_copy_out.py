"""Copies of full blocks to the host as operators of a pipeline: whole in any permitted order, behind all writes."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
import torch

from gpu_node.engine.border.plan import BlockSwap
from gpu_node.executors.reference.interpreter import InterpreterInputs, ReferenceDevice, run_program
from gpu_node.graph.lanes import LaneQueue, ProgramLane
from gpu_node.graph.passes.offload.polls import insert_polls
from gpu_node.graph.passes.optimize import optimize
from gpu_node.graph.passes.pipeline.copy_out import copy_out
from gpu_node.graph.passes.pipeline.nano_batches import nano_batches
from gpu_node.graph.program import KV_WRITERS, Operator, OperatorKind, Program
from gpu_node.kernels.paged_batch import paged_batch
from gpu_node.models.architectures.families import build_program
from gpu_node.models.config import ModelConfig
from shared.config.pipelines.pipeline_file import PipelineOperator
from tests.gpu_node.family_programs import (
    BLOCK_SIZE,
    CONFIGS,
    HEAD_DIM,
    LAYERS,
    NUM_BLOCKS,
    config,
    of_program,
    random_weights,
    steps,
)
from tests.gpu_node.random_pipelines import ONE_DEVICE, pipeline_of, random_pipeline

COPIES = tuple(BlockSwap(device, host) for host, device in enumerate((3, 1, 5, 8)))
"""Blocks that the first step writes: the copies have to wait for it."""
WITH_COPIES = (*ONE_DEVICE, "Copy")


def copied(model: ModelConfig, program: Program, weights: dict[str, torch.Tensor], seed: int) -> list[torch.Tensor]:
    """What is on the host after the first step, and on the device where it came from."""
    shape = (NUM_BLOCKS, 2, BLOCK_SIZE, model.num_kv_heads, HEAD_DIM)
    device, host = ([torch.zeros(shape) for _ in range(LAYERS)] for _ in range(2))
    step = steps()[0]
    inputs = InterpreterInputs(
        torch.tensor(step.token_ids), paged_batch(step.sequences, BLOCK_SIZE), torch.tensor(step.draw_rows), COPIES
    )
    memory = ReferenceDevice(weights, device, host=host)
    with torch.inference_mode():
        run_program(program, memory, inputs, random.Random(seed).randrange)
    blocks = [copy.device_block for copy in COPIES]
    return [torch.stack([cache[blocks] for cache in device]), torch.stack([cache[: len(COPIES)] for cache in host])]


def piped(name: str, seed: int, names: tuple[str, ...] = WITH_COPIES) -> Program:
    return nano_batches(copy_out(optimize(build_program(config(**CONFIGS[name])))), random_pipeline(seed, names=names))


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("names", [ONE_DEVICE, WITH_COPIES])
def test_in_any_permitted_order_all_of_each_block_is_copied_as_the_step_leaves_it(
    name: str, names: tuple[str, ...]
) -> None:
    model = config(**CONFIGS[name])
    stored = random_weights(model, build_program(model))
    for seed in range(3):
        program = piped(name, seed, names)
        here, there = copied(model, program, of_program(program, stored), seed)
        assert here.abs().sum() > 0
        assert there.equal(here)


def copies_of(program: Program) -> list[tuple[int, Operator]]:
    return [(at, one) for at, one in enumerate(program.operators) if one.kind is OperatorKind.COPY_OUT]


def test_one_a_layer_behind_its_blocks_and_what_follows_them_in_the_lane_of_copies() -> None:
    program = copy_out(insert_polls(optimize(build_program(config(**CONFIGS["llama3"])))))
    for layer, (at, one) in enumerate(copies_of(program)):
        assert one.layer == layer
        assert program.operators[at - 1].kind is OperatorKind.POLL
        assert program.operators[at - 2].kind is OperatorKind.PAGED_ATTENTION
    assert len(copies_of(program)) == LAYERS
    parts = [PipelineOperator(part, (0, 64), "compute", 1.0, 0.1 * at, 0.1) for at, part in enumerate(ONE_DEVICE)]
    in_lanes = nano_batches(program, pipeline_of(parts, 64))
    (lane,) = (queue for queue in in_lanes.lanes if queue.lane is ProgramLane.COPY)
    assert [in_lanes.operators[turn.operator].layer for turn in lane.turns] == list(range(LAYERS))


def test_parts_of_it_are_fractions_of_the_blocks_that_go() -> None:
    names = [name for name in ONE_DEVICE if name != "Copy"]
    parts = [PipelineOperator(part, (0, 64), "compute", 1.0, 0.0, 0.1) for part in names]
    parts += [PipelineOperator("Copy", rows, "copy", 0.1, 0.0, 0.1) for rows in ((0, 16), (16, 64))]
    program = nano_batches(copy_out(optimize(build_program(config(**CONFIGS["llama3"])))), pipeline_of(parts, 64))
    fractions = [tuple(one.attributes[name] for name in ("first", "end", "count")) for _, one in copies_of(program)]
    assert fractions == [(3, 4, 4), (0, 3, 4)] * LAYERS


def test_a_copy_that_does_not_wait_for_the_writes_of_its_layer_is_found() -> None:
    """Each event of the lane of copies is one that is needed."""
    parts = [PipelineOperator(part, (0, 64), "compute", 1.0, 0.1 * at, 0.1) for at, part in enumerate(ONE_DEVICE)]
    program = nano_batches(copy_out(optimize(build_program(config(**CONFIGS["llama3"])))), pipeline_of(parts, 64))
    (lane,) = (queue for queue in program.lanes if queue.lane is ProgramLane.COPY)
    for place, turn in enumerate(lane.turns):
        (before,) = turn.waits
        assert program.operators[before].kind in KV_WRITERS
        turns = (*lane.turns[:place], replace(turn, waits=()), *lane.turns[place + 1 :])
        lanes = tuple(LaneQueue(one.lane, turns) if one is lane else one for one in program.lanes)
        with pytest.raises(AssertionError, match="may begin before"):
            replace(program, lanes=lanes).check()
