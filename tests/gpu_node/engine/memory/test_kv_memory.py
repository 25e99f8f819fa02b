"""Executors hold what bookkeeping says they do: blocks that were away, and blocks of several models in one arena."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from gpu_node.engine.border.plan import BlockSwap, Draw, ScheduledSequence, StepPlan
from gpu_node.engine.engine import Engine
from gpu_node.executors.cpu.executor import CpuExecutor
from gpu_node.executors.reference.executor import ReferenceExecutor
from shared.config.engines.engine import EngineOptions, ModelSpec
from shared.messages.requests.payload import Sampling
from tests.gpu_node import tiny
from tests.gpu_node.logits import logits_by

GREEDY = Sampling(max_tokens=8, temperature=0.0)
MIB = 1 << 20

AnyExecutor = CpuExecutor | ReferenceExecutor
Make = Callable[..., AnyExecutor]


@pytest.fixture(params=["reference", "cpu"])
def make(request: pytest.FixtureRequest) -> Iterator[Make]:
    """Executors of both kinds with the given options, closed at the end."""
    made: list[CpuExecutor] = []

    def make(**options: Any) -> AnyExecutor:
        if request.param == "reference":
            return ReferenceExecutor(EngineOptions(**options))
        made.append(CpuExecutor(EngineOptions(**options), num_threads=2))
        return made[-1]

    yield make
    for executor in made:
        executor.close()


@pytest.fixture(scope="session")
def small_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One layer with one KV head, where the tiny model has two of each."""
    tensors = {
        name: values[: tiny.HEAD_DIM] if "attn_k." in name or "attn_v." in name else values
        for name, values in tiny.tensors_of(tiny.make_model(seed=9)).items()
        if not name.startswith("blk.1.")
    }
    metadata = {"llama__block_count": 1, "llama__attention__head_count_kv": 1}
    return tiny.write_gguf(tmp_path_factory.mktemp("small") / "small.gguf", tensors, **metadata)


def spec(name: str, path: Path) -> ModelSpec:
    return ModelSpec(name=name, source=str(path), max_model_len=tiny.CONTEXT)


def part(token_ids: list[int], start: int, table: list[int], number: int = 0) -> ScheduledSequence:
    return ScheduledSequence(number, tuple(token_ids), start, tuple(table), (Draw(number, GREEDY, 0),))


def logits(executor: AnyExecutor, sequence: ScheduledSequence, model: str = "") -> torch.Tensor:
    with torch.inference_mode():
        return logits_by(executor, [sequence], model)[0]


def test_a_sequence_that_was_away_goes_on_with_the_same_bits(make: Make, tiny_path: Path) -> None:
    executor = make(block_size=2, kv_cache_bytes=MIB, host_kv_bytes=MIB)
    executor.load_model(spec("tiny", tiny_path))
    text = [5, 6, 7]
    logits(executor, part(text, 0, [0, 1]))
    expected = logits(executor, part([8], 3, [0, 1]))
    # its blocks leave, and are overwritten by another sequence in the same step
    out = (BlockSwap(0, 3), BlockSwap(1, 2))
    executor.submit(StepPlan((part([9, 10, 11, 12], 0, [1, 0], 1),), swaps_out=out)).result()
    # they come back to other blocks, crosswise, while the other goes on
    back = (BlockSwap(4, 2), BlockSwap(5, 3))
    executor.submit(StepPlan((part([13], 4, [1, 0, 6], 1),), swaps_in=back)).result()
    assert logits(executor, part([8], 3, [5, 4])).equal(expected)


def test_blocks_that_are_read_and_written_to_others_hold_the_same_bits(make: Make, tiny_path: Path) -> None:
    executor = make(block_size=2, kv_cache_bytes=MIB, host_kv_bytes=MIB)
    model = executor.load_model(spec("tiny", tiny_path))
    text = [5, 6, 7]
    logits(executor, part(text, 0, [1, 0]))
    content, read_s = executor.read_blocks("tiny", [1, 0], swapped_out=False)
    assert (len(content), read_s > 0) == (2 * model.block_bytes, True)
    expected = logits(executor, part([8], 3, [1, 0]))
    executor.submit(StepPlan((), swaps_out=(BlockSwap(1, 3), BlockSwap(0, 2)))).result()
    from_host, _ = executor.read_blocks("tiny", [3], swapped_out=True)
    assert from_host == content[: model.block_bytes]
    executor.submit(StepPlan((part([9, 10, 11, 12], 0, [0, 1], 1),))).result()
    assert executor.write_blocks("tiny", [7, 1], content) > 0
    assert logits(executor, part([8], 3, [7, 1])).equal(expected)


def test_a_write_waits_for_the_steps_before_it_and_those_behind_it_for_the_write(make: Make, tiny_path: Path) -> None:
    executor = make(block_size=2, kv_cache_bytes=MIB)
    executor.load_model(spec("tiny", tiny_path))
    logits(executor, part([5, 6], 0, [0]))
    content, _ = executor.read_blocks("tiny", [0], swapped_out=False)
    expected = logits(executor, part([7], 2, [0, 1]))
    pending = executor.submit(StepPlan((part([9, 10, 11, 12], 0, [2, 3], 1),)))  # writes to block 2 too
    executor.write_blocks("tiny", [2], content)
    pending.result()
    assert logits(executor, part([7], 2, [2, 1])).equal(expected)


def test_a_step_may_do_nothing_but_move_blocks(make: Make, tiny_path: Path) -> None:
    executor = make(block_size=4, kv_cache_bytes=MIB, host_kv_bytes=MIB)
    executor.load_model(spec("tiny", tiny_path))
    logits(executor, part([5, 6, 7], 0, [0]))
    expected = logits(executor, part([8], 3, [0]))
    for plan in (StepPlan((), swaps_out=(BlockSwap(0, 1),)), StepPlan((), swaps_in=(BlockSwap(9, 1),))):
        assert executor.submit(plan).result().token_ids == {}
    assert logits(executor, part([8], 3, [9])).equal(expected)


def test_blocks_of_every_page_are_found(make: Make, tiny_path: Path, small_path: Path) -> None:
    executor = make(block_size=16, kv_cache_bytes=6 * MIB, max_models=2)
    executor.load_model(spec("tiny", tiny_path))
    small = executor.load_model(spec("small", small_path))
    last = small.num_blocks - 1
    text = [number % 90 + 3 for number in range(30)]
    logits(executor, part(text, 0, [last, small.blocks_per_page]), "small")
    content, _ = executor.read_blocks("small", [last, small.blocks_per_page], swapped_out=False)
    expected = logits(executor, part([8], 30, [last, small.blocks_per_page]), "small")
    executor.write_blocks("small", [3, last - 1], content)
    assert logits(executor, part([8], 30, [3, last - 1]), "small").equal(expected)


def test_models_of_different_shapes_share_an_arena(make: Make, tiny_path: Path, small_path: Path) -> None:
    options: dict[str, Any] = {"block_size": 16, "kv_cache_bytes": 6 * MIB, "max_models": 2}
    paths = {"tiny": tiny_path, "small": small_path}
    executor, alone = make(**options), {name: make(**options) for name in paths}
    loaded = {name: executor.load_model(spec(name, path)) for name, path in paths.items()}
    assert loaded["tiny"].block_bytes == 4 * loaded["small"].block_bytes
    for name, path in paths.items():
        alone[name].load_model(spec(name, path))
    text = [number % 90 + 3 for number in range(40)]
    # pages 0 and 2 are the tiny model's and page 1 the small one's; then page 0 is lent
    first, middle = ({name: page * model.blocks_per_page for name, model in loaded.items()} for page in (0, 1))
    last = 2 * loaded["tiny"].blocks_per_page
    small_end = 2 * loaded["small"].blocks_per_page - 1  # last block of page 1
    steps = [
        ("tiny", part(text, 0, [last, first["tiny"], last + 1])),
        ("small", part(text, 0, [middle["small"], small_end, middle["small"] + 1])),
        ("tiny", part([5], 40, [last, first["tiny"], last + 1])),
        ("small", part([6], 40, [middle["small"], small_end, middle["small"] + 1])),
        ("tiny", part(text[:20], 0, [last + 2, last + 3])),
        ("small", part(text[:30], 0, [first["small"], first["small"] + 3])),
        ("tiny", part([7], 20, [last + 2, last + 3])),
        ("small", part([8], 41, [middle["small"], small_end, middle["small"] + 1])),
    ]
    for model, step in steps:
        assert logits(executor, step, model).equal(logits(alone[model], step)), (model, step)


def test_requests_of_two_models_interleave(make: Make, tiny_path: Path, small_path: Path) -> None:
    options: dict[str, Any] = {"block_size": 16, "kv_cache_bytes": 6 * MIB, "max_models": 2}
    paths = {"tiny": tiny_path, "small": small_path}

    def answers(models: list[str]) -> dict[str, list[int]]:
        engine = Engine(make(**options), EngineOptions(**options))
        for name in models:
            engine.load_model(spec(name, paths[name]))
        payloads = [
            tiny.request(f"{name}-{number}", range(3 + number, 30 + 9 * number), 12, model=name)
            for number in range(4)
            for name in models
        ]
        outputs = tiny.run(engine, payloads)
        return {payload.request_id: output for payload, output in zip(payloads, outputs, strict=True)}

    assert answers(["tiny", "small"]) == {**answers(["tiny"]), **answers(["small"])}


def test_a_model_that_is_gone_takes_nothing_with_it(make: Make, tiny_path: Path, small_path: Path) -> None:
    executor = make(block_size=16, kv_cache_bytes=6 * MIB, max_models=2)
    executor.load_model(spec("tiny", tiny_path))
    executor.load_model(spec("small", small_path))
    logits(executor, part([5, 6, 7], 0, [0]), "tiny")
    expected = logits(executor, part([8], 3, [0]), "tiny")
    executor.unload_model("small")
    assert logits(executor, part([8], 3, [0])).equal(expected)


def test_a_model_may_go_while_a_step_of_aborted_requests_computes(
    make: Make, tiny_path: Path, small_path: Path
) -> None:
    """The next model's blocks lie where that step writes."""
    options: dict[str, Any] = {"kv_cache_bytes": MIB, "max_num_seqs": 32, "step_tokens": 2048}
    payloads = [tiny.request(str(number), range(3 + number, 30 + number), 12, model="small") for number in range(4)]
    outputs = []
    for is_disturbed in (True, False):
        engine = Engine(make(**options), EngineOptions(**options))
        if is_disturbed:
            engine.load_model(spec("tiny", tiny_path))
            for number in range(32):
                engine.add(tiny.request(f"long-{number}", [number] * 60, 12))
            assert engine.step(now=0.0) == []
            engine.abort(f"long-{number}" for number in range(32))
        engine.load_model(spec("small", small_path))
        assert engine.has_work == is_disturbed, "the step in flight is still to be taken in"
        outputs.append(tiny.run(engine, payloads))
    assert outputs[0] == outputs[1]
