"""Two processes that share each model's heads give the tokens that one gives, and end together."""

from __future__ import annotations

import os
import random
import select
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch

from gpu_node.engine.border.executor import Executor
from gpu_node.engine.border.plan import DRAWN, Draw, ScheduledSequence, StepPlan
from gpu_node.engine.engine import Engine
from gpu_node.engine.process.protocol.protocol import ModelLoaded, RunAttempt
from gpu_node.engine.requests.image import Kept
from gpu_node.executors.group.part import RankSpec
from gpu_node.executors.group.tensor_parallel import RankError, TensorParallelExecutor
from gpu_node.executors.reference.executor import ReferenceExecutor
from shared.config.config import ConfigError, parse_config
from shared.config.engines.adapters import AdapterSpec
from shared.config.engines.engine import EngineOptions, ModelSpec
from shared.files.model_file import ModelFileError
from shared.messages.requests.payload import Sampling
from tests.gpu_node import embedding_model, score_model, tiny
from tests.gpu_node.adapter_folders import modules_of, save_adapter
from tests.gpu_node.engine.process.test_process import started
from tests.gpu_node.masks import mask_of
from tests.gpu_node.models.test_families_models import save
from tests.gpu_node.workload import Answers, answers, mixed_requests

OPTIONS: dict[str, Any] = {
    "kv_cache_bytes": 1 << 20,
    "host_kv_bytes": 1 << 20,
    "block_size": 4,
    "max_num_seqs": 96,
    "step_tokens": 256,
}
NUM_TOKENS = 12
END_S = 10.0
"""Within which the kernel ends a process."""


@pytest.fixture(scope="module")
def group() -> Iterator[TensorParallelExecutor]:
    """Two devices for all tests that leave them alive."""
    executor = TensorParallelExecutor(EngineOptions(**OPTIONS), [RankSpec(), RankSpec()])
    yield executor
    executor.close()


def engine_of(executor: Executor, path: Path, **options: Any) -> Engine:
    engine = Engine(executor, EngineOptions(**OPTIONS | options))
    engine.load_model(spec(path))
    return engine


def spec(path: Path, name: str = "tiny") -> ModelSpec:
    return ModelSpec(name=name, source=str(path), max_model_len=tiny.CONTEXT)


Load = Callable[..., Engine]


@pytest.fixture
def load(group: TensorParallelExecutor) -> Iterator[Load]:
    """An engine with a model in the group, which is gone afterwards."""
    engines: list[Engine] = []

    def load(path: Path, **options: Any) -> Engine:
        engines.append(engine_of(group, path, **options))
        return engines[-1]

    yield load
    for _ in engines:
        group.unload_model("tiny")


def prompts(num_prompts: int, longest: int = 24) -> list[list[int]]:
    numbers = random.Random(5)
    return [[numbers.randrange(3, tiny.VOCAB) for _ in range(numbers.randint(1, longest))] for _ in range(num_prompts)]


def run(engine: Engine, texts: list[list[int]], num_tokens: int = NUM_TOKENS, **sampling: Any) -> list[list[int]]:
    return tiny.run(engine, [tiny.request(str(i), text, num_tokens, **sampling) for i, text in enumerate(texts)])


@pytest.mark.parametrize("name", ["llama", "qwen3", "gpt2", "mixtral", "opt"])
def test_tokens_are_those_of_one_device(load: Load, name: str, tmp_path: Path) -> None:
    save(name, tmp_path)
    alone = engine_of(ReferenceExecutor(EngineOptions(**OPTIONS)), tmp_path)
    expected = [run(alone, prompts(6)), run(alone, prompts(6), temperature=0.8, seed=3)]
    together = load(tmp_path)
    assert [run(together, prompts(6)), run(together, prompts(6), temperature=0.8, seed=3)] == expected


@pytest.mark.parametrize("name", ["qwen3", "opt"])
def test_embeddings_are_those_of_one_device(group: TensorParallelExecutor, name: str, tmp_path: Path) -> None:
    model = save(name, tmp_path)
    engine = Engine(group, EngineOptions(**OPTIONS))
    engine.load_model(embedding_model.spec(tmp_path))
    found = embedding_model.embedded(engine, prompts(6))
    group.unload_model("tiny")
    torch.testing.assert_close(found, embedding_model.expected(model, prompts(6)), rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize("save_model", [score_model.save_language_model, score_model.save_classifier])
def test_scores_are_those_of_one_device(
    group: TensorParallelExecutor, save_model: Callable[[str, Path], Any], tmp_path: Path
) -> None:
    """Two rows are cut, one is on each device."""
    model = save_model("qwen3", tmp_path)
    engine = Engine(group, EngineOptions(**OPTIONS))
    engine.load_model(score_model.spec(tmp_path))
    found = embedding_model.embedded(engine, prompts(6))
    group.unload_model("tiny")
    torch.testing.assert_close(found, score_model.expected(model, prompts(6)), rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_adapters_are_divided_as_their_model(group: TensorParallelExecutor, name: str, tmp_path: Path) -> None:
    model = save(name, tmp_path / "model")
    merged = save_adapter(model, tmp_path / "legal", modules_of(name))
    adapted = replace(spec(tmp_path / "model"), adapters=(AdapterSpec("legal", str(tmp_path / "legal")),))
    engine = Engine(group, EngineOptions(**OPTIONS))
    engine.load_model(adapted)
    asked = [(text, adapter) for text in prompts(3) for adapter in ("", "legal")]
    payloads = [
        replace(tiny.request(str(number), text, NUM_TOKENS), adapter=adapter)
        for number, (text, adapter) in enumerate(asked)
    ]
    outputs = tiny.run(engine, payloads)
    group.unload_model("tiny")
    assert outputs == [tiny.greedy(merged if adapter else model, text, NUM_TOKENS)[0] for text, adapter in asked]


def test_adapters_come_to_all_devices_under_a_request(group: TensorParallelExecutor, tmp_path: Path) -> None:
    model = save("llama", tmp_path / "model")
    merged = save_adapter(model, tmp_path / "legal", modules_of("llama"))
    engine = Engine(group, EngineOptions(**OPTIONS))
    engine.load_model(spec(tmp_path / "model"))
    texts = prompts(2)
    assert engine.add(tiny.request("running", texts[0], NUM_TOKENS)) == []
    tokens = {"running": [token for _ in range(4) for chunk in engine.step(0.0) for token in chunk.token_ids]}
    engine.load_model(replace(spec(tmp_path / "model"), adapters=(AdapterSpec("legal", str(tmp_path / "legal")),)))
    assert engine.add(replace(tiny.request("late", texts[1], NUM_TOKENS), adapter="legal")) == []
    for chunks in tiny.steps(engine):
        for chunk in chunks:
            tokens.setdefault(chunk.request_id, []).extend(chunk.token_ids)
    group.unload_model("tiny")
    assert tokens["running"] == tiny.greedy(model, texts[0], NUM_TOKENS)[0]
    assert tokens["late"] == tiny.greedy(merged, texts[1], NUM_TOKENS)[0]


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path]:
    """A model and where it is saved; half of its heads take 3 KiB a token, so 340 tokens fill a device's memory."""
    path = tmp_path_factory.mktemp("wide")
    return save("llama", path, num_hidden_layers=3, num_key_value_heads=4, head_dim=64), path


def load_under_pressure(load: Load, path: Path, preemption: str) -> Engine:
    """An engine that has seen outputs of one token only, so it admits more than there is room for."""
    engine = load(path, preemption=preemption)
    run(engine, [[number] for number in range(64)], 1)
    return engine


def test_tokens_do_not_depend_on_preemption_and_prefix_hits(load: Load, wide: tuple[Any, Path]) -> None:
    model, path = wide
    engine = load_under_pressure(load, path, "recompute")
    common = list(range(20, 40))
    texts = [[*common, *text] for text in prompts(16, 4)]
    outputs = run(engine, texts, 40)
    assert engine.num_preemptions > 0
    for text, output in list(zip(texts, outputs, strict=True))[-4:]:  # the newest were preempted
        assert output == tiny.greedy(model, text, 40)[0]


def test_requests_of_every_kind_get_what_one_device_gives_through_copies_and_swaps(
    load: Load, wide: tuple[Any, Path]
) -> None:
    _, path = wide
    alone = engine_of(ReferenceExecutor(EngineOptions(**OPTIONS)), path, async_scheduling=False)
    expected: Answers = {}
    for payload in mixed_requests(24, seed=2):
        expected |= answers(alone, [payload])
    engine = load_under_pressure(load, path, "swap")
    assert answers(engine, mixed_requests(24, seed=2)) == expected
    assert engine.num_preemptions > 0


def test_all_devices_draw_what_masks_allow(load: Load, group: TensorParallelExecutor, tiny_path: Path) -> None:
    """Else the next step of one would begin with another token than that of the others."""
    load(tiny_path)
    greedy = Sampling(max_tokens=9, temperature=0.0)
    first = ScheduledSequence(0, (5, 6, 7), 0, (0,), (Draw(0, greedy, 0, allowed=mask_of([17, 64])),))
    drawn = group.submit(StepPlan((first,), model="tiny"))
    blind = ScheduledSequence(0, (DRAWN,), 3, (0,), (Draw(0, greedy, 1),))
    found = [step.result().token_ids[0] for step in (drawn, group.submit(StepPlan((blind,), model="tiny")))]
    assert found[0] in (17, 64)
    alone = ReferenceExecutor(EngineOptions(**OPTIONS))
    alone.load_model(spec(tiny_path))
    known = ScheduledSequence(0, (5, 6, 7, found[0]), 0, (0,), (Draw(0, greedy, 1),))
    assert alone.submit(StepPlan((known,), model="tiny")).result().token_ids[0] == found[1]


def test_each_device_loads_its_own_part_and_the_error_of_a_bad_model_changes_nothing(
    load: Load, tiny_path: Path, tmp_path: Path
) -> None:
    engine = load(tiny_path)
    assert engine.load_model(spec(tiny_path)).block_bytes == OPTIONS["block_size"] * tiny.BLOCK_TOKEN_BYTES // 2
    before = run(engine, prompts(2))
    save("llama", tmp_path, num_key_value_heads=1)
    with pytest.raises(ModelFileError, match=r"1 heads of keys and values do not divide among 2 devices; .*: 1$"):
        engine.load_model(spec(tmp_path, "odd"))
    assert run(engine, prompts(2)) == before


def test_the_end_of_a_device_ends_the_group_with_a_clear_error(tiny_path: Path) -> None:
    executor = TensorParallelExecutor(EngineOptions(**OPTIONS), [RankSpec(), RankSpec()])
    try:
        engine = engine_of(executor, tiny_path)
        (process,) = executor.processes
        process.kill()
        with pytest.raises(RankError, match=rf"rank 1 \(pid {process.pid}\) ended with status -9"):
            run(engine, prompts(2))
    finally:
        executor.close()


def test_closing_ends_the_other_devices() -> None:
    executor = TensorParallelExecutor(EngineOptions(**OPTIONS), [RankSpec(), RankSpec()])
    (process,) = executor.processes
    executor.close()
    assert process.poll() == 0
    executor.close()


def test_a_node_says_what_it_needs_to_be_parallel() -> None:
    nodes = "nodes: [{name: a, executor: reference, tensor_parallel: 2}, {name: b}]"
    assert [node.tensor_parallel for node in parse_config(nodes, "test").nodes] == [2, 1]
    with pytest.raises(ConfigError, match=r"nodes\.0: tensor_parallel: 2 needs executor: cuda or reference"):
        parse_config("nodes: [{name: a, tensor_parallel: 2}]", "test")


CONFIG = """
models: [{{name: tiny, source: {path}, max_model_len: 64}}]
nodes: [{{name: node-0, executor: reference, tensor_parallel: 2}}]
engine: {{kv_cache_bytes: 1048576, step_tokens: 16, max_num_seqs: 4}}
"""


def test_an_engine_of_two_devices_serves_and_ends_with_them(tiny_path: Path, tmp_path: Path) -> None:
    path = tmp_path / "treadle.yaml"
    path.write_text(CONFIG.format(path=tiny_path))
    with started(path, "2x cpu") as agent:
        assert isinstance(agent.load("tiny"), ModelLoaded)
        agent.send(RunAttempt(tiny.request("a", [5, 6], 3)))
        assert sum(len(chunk.token_ids) for step in agent.steps_until_end("a") for chunk in step.chunks) == 3
        (rank,) = psutil.Process(agent.process.pid).children()
        rank.kill()
        agent.send(RunAttempt(tiny.request("b", [5, 6], 3)))
        assert agent.exit_status() == 1
    assert f"rank 1 (pid {rank.pid}) ended with status -9" in (tmp_path / "log").read_text()


def test_a_device_that_hears_nothing_ends_with_its_engine_all_the_same(tiny_path: Path, tmp_path: Path) -> None:
    """As one that waits on its device for a sum, and keeps memory there that the next engine needs."""
    path = tmp_path / "treadle.yaml"
    path.write_text(CONFIG.format(path=tiny_path))
    with started(path, "2x cpu") as agent:
        (rank,) = psutil.Process(agent.process.pid).children()
        rank.suspend()
        descriptor = os.pidfd_open(rank.pid)
        try:
            agent.process.kill()
            has_ended, _, _ = select.select([descriptor], [], [], END_S)
            assert has_ended
        finally:
            with suppress(ProcessLookupError):  # as it should be
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)
            os.close(descriptor)


def test_blocks_of_a_group_stay_so_an_evicted_request_is_computed_again(load: Load, tiny_path: Path) -> None:
    engine = load(tiny_path)
    payload = tiny.request("a", [5, 6, 7], 6)
    engine.add(payload)
    engine.step(0.0)
    assert engine.evict(["a"])[1] == [Kept("a", 0)]
    assert not engine.has_work
    assert len(run(engine, [[5, 6, 7]], 6)[0]) == 6


def test_a_model_of_a_group_comes_back_from_host_memory(load: Load, tiny_path: Path, tmp_path: Path) -> None:
    path = tmp_path / "tiny.gguf"
    path.write_bytes(tiny_path.read_bytes())
    engine = load(path)
    texts = prompts(3)
    before = run(engine, texts)
    engine.load_model(spec(tiny_path, "other"))
    path.unlink()
    assert engine.tiers == {"tiny": "host", "other": "device"}
    engine.load_model(spec(path))
    assert run(engine, texts) == before
