"""Whole models whose pass `offload` asks another device through a link: every logit bit by bit that of home."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from gpu_node.executors.cpu.lowering import lower
from gpu_node.graph.passes.draft import Pass
from gpu_node.graph.passes.offload.offload import offload
from gpu_node.graph.passes.offload.polls import insert_polls
from gpu_node.graph.passes.offload.split import even_plan, split_operators
from gpu_node.graph.passes.optimize import optimize
from gpu_node.graph.passes.pipeline.nano_batches import nano_batches
from gpu_node.graph.program import Program
from gpu_node.kernels.cpu import (
    CpuArena,
    CpuCacheShape,
    CpuDevice,
    CpuLinkReceiver,
    CpuLinkSender,
    CpuLinkShape,
    CpuRemote,
    CpuRemotes,
    CpuStep,
    Limits,
)
from gpu_node.models.architectures.families import build_program
from gpu_node.models.config import ModelConfig
from tests.gpu_node.batch_cuts import RandomCuts
from tests.gpu_node.family_programs import (
    BLOCK_SIZE,
    CONFIGS,
    HEAD_DIM,
    HEADS,
    LAYERS,
    LENGTH,
    VOCAB,
    config,
    of_program,
    random_weights,
)
from tests.gpu_node.offload.attention_engine import int32
from tests.gpu_node.offload.waiting import wait_until
from tests.gpu_node.own_arena import program_with_arena
from tests.gpu_node.random_pipelines import random_pipeline

PROMPTS = (20, 5, 33, 16)
NUM_BLOCKS, TABLE = 16, 4
NUM_DECODES = 4
NUM_SLOTS = 8
AHEAD: Pass = partial(offload, runs_ahead=True)


def shape(model: ModelConfig) -> CpuCacheShape:
    return CpuCacheShape(LAYERS, NUM_BLOCKS, BLOCK_SIZE, model.num_kv_heads, HEAD_DIM)


@contextmanager
def linked(
    model: ModelConfig, other: CpuDevice, folder: Path, num_slots: int = NUM_SLOTS, level: str = ""
) -> Iterator[tuple[CpuLinkSender, CpuArena]]:
    """A link to a device, all of whose memory is lent."""
    heads = (HEADS, model.num_kv_heads, HEAD_DIM)
    link_shape = CpuLinkShape(LAYERS, BLOCK_SIZE, *heads, num_slots, 8, 8, NUM_BLOCKS)
    with (
        closing(CpuArena(1, NUM_BLOCKS * shape(model).block_bytes)) as arena,
        closing(CpuLinkSender(link_shape, "hot", "cold", deadline_s=60.0, folder=folder)) as sender,
        closing(
            CpuLinkReceiver(link_shape, "hot", "cold", device=other, arena=arena, level=level, folder=folder)
        ) as receiver,
    ):
        receiver.lend([0])
        wait_until(lambda: sender.is_open)
        yield sender, arena


def run(
    device: CpuDevice,
    model: ModelConfig,
    program: Program,
    stored: dict[str, torch.Tensor],
    remote: Collection[int],
    receiver: tuple[CpuLinkSender, CpuArena] | None = None,
    num_parts: int = 1,
    piped: Program | None = None,
    level: str = "",
) -> torch.Tensor:
    """Prompts at home, then decodes with ``remote`` sequences last, their blocks at the receiver if there is one.

    The device runs its operators in so many parts, where it can; or in the lanes of ``piped``.
    """
    cache, order = shape(model), [number for number in range(len(PROMPTS)) if number not in remote]
    tables = [list(range(TABLE * number, TABLE * (number + 1))) for number in range(len(PROMPTS))]
    numbers = np.random.default_rng(7)
    outputs = []
    limits, shared = Limits(128, 8, LENGTH, VOCAB), HEADS // model.num_kv_heads
    with program_with_arena(limits, cache, shared, level) as (lowered, arena, _):
        lower(program, of_program(piped or program, stored), lowered, LENGTH, piped=piped)
        if num_parts > 1:
            may_split = lowered.times().may_split
            assert any(may_split)
            lowered.split([num_parts if may else 1 for may in may_split])

        def step(rows: dict[int, tuple[int, int]], remotes: tuple[CpuRemote, ...]) -> None:
            num_rows = int32([rows[number][1] for number in rows])
            logits = np.empty((len(rows), VOCAB), dtype=np.float32)
            one = CpuStep(
                starts=int32([rows[number][0] for number in rows]),
                num_rows=num_rows,
                num_blocks=int32([TABLE] * len(rows)),
                block_tables=int32([block for number in rows for block in tables[number]]),
                token_ids=numbers.integers(0, VOCAB, int(num_rows.sum())).astype(np.int32),
                draw_rows=np.cumsum(num_rows, dtype=np.int32) - 1,
                copies=int32([]),
                logits=logits,
                remotes=CpuRemotes.of(remotes),
                in_lanes=piped is not None,
            )
            device.wait(device.submit(lowered, one))
            assert not one.remotes.lost.any()
            outputs.append(torch.from_numpy(logits))

        step({number: (0, length) for number, length in enumerate(PROMPTS)}, ())
        parts: tuple[CpuRemote, ...] = ()
        if receiver is not None:
            link, elsewhere = receiver
            for number in remote:
                there = [NUM_BLOCKS - 1 - block for block in tables[number]]
                for block, other in zip(tables[number], there, strict=True):
                    source = arena.block(block, NUM_BLOCKS, cache.block_bytes)
                    elsewhere.block(other, NUM_BLOCKS, cache.block_bytes)[:] = source
                    source[:] = 0xFF  # nobody reads there any more
                tables[number] = there
            parts = (CpuRemote(link, link.generation, len(remote)),) if remote else ()
        for later in range(NUM_DECODES):
            step({number: (PROMPTS[number] + later, 1) for number in (*order, *remote)}, parts)
    return torch.cat(outputs)


@pytest.mark.parametrize("form", [offload, AHEAD])
@pytest.mark.parametrize("name", CONFIGS)
def test_any_sequences_at_another_device_give_the_same_bits(name: str, form: Pass, tmp_path: Path) -> None:
    model = config(**CONFIGS[name])
    plain = build_program(model)
    stored = random_weights(model, plain)
    offloaded = form(optimize(plain))
    programs = [
        form(plain),
        insert_polls(split_operators(offloaded, even_plan(offloaded, 2))),
        form(RandomCuts(6)(optimize(plain))),  # remote rows are sent in parts
    ]
    with CpuDevice(2) as device, CpuDevice(1) as other, linked(model, other, tmp_path) as receiver:
        for program, remote in zip(programs, ((1, 3), (0, 1, 2, 3), (1, 2, 3)), strict=True):
            theirs = run(device, model, plain, stored, remote)
            assert run(device, model, program, stored, remote, receiver).equal(theirs)


@pytest.mark.parametrize("num_threads", [1, 2, 3])
@pytest.mark.parametrize("name", CONFIGS)
def test_in_lanes_any_sequences_at_another_device_give_the_same_bits(
    name: str, num_threads: int, tmp_path: Path
) -> None:
    model = config(**CONFIGS[name])
    plain = build_program(model)
    stored = random_weights(model, plain)
    optimized = optimize(plain)
    programs = [offload(plain), insert_polls(offload(optimized)), offload(RandomCuts(8)(optimized))]
    with (
        CpuDevice(num_threads) as device,
        CpuDevice(1) as other,
        linked(model, other, tmp_path, num_slots=64) as receiver,
    ):
        for seed, (program, remote) in enumerate(zip(programs, ((1, 3), (0, 1, 2, 3), (1, 2, 3)), strict=True)):
            theirs = run(device, model, plain, stored, remote)
            piped = nano_batches(program, random_pipeline(seed + 3 * num_threads))
            listed = replace(piped, lanes=())
            assert run(device, model, listed, stored, remote, receiver).equal(theirs)
            assert run(device, model, listed, stored, remote, receiver, piped=piped).equal(theirs)
            assert run(device, model, listed, stored, (), piped=piped).equal(run(device, model, plain, stored, ()))


@pytest.mark.parametrize("num_parts", [2, 3, 64])
@pytest.mark.parametrize("num_threads", [1, 3])
def test_operators_that_are_run_in_parts_give_the_same_bits(num_threads: int, num_parts: int) -> None:
    model = config(**next(iter(CONFIGS.values())))
    plain = build_program(model)
    stored = random_weights(model, plain)
    polled = insert_polls(optimize(plain))
    with CpuDevice(num_threads) as device:
        whole = run(device, model, polled, stored, ())
        assert run(device, model, polled, stored, (), num_parts=num_parts).equal(whole)
