"""A request that went to host memory and back brings the tokens that it brings when it is recomputed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gpu_node.engine.border.executor import Executor
from gpu_node.engine.engine import Engine
from gpu_node.executors.cpu.executor import CpuExecutor
from gpu_node.executors.reference.executor import ReferenceExecutor
from shared.config.engines.engine import EngineOptions, ModelSpec
from shared.messages.requests.payload import Payload
from tests.gpu_node import tiny
from tests.gpu_node.workload import Answers, answers, prompt, request

SWAP: dict[str, Any] = {"preemption": "swap", "host_kv_bytes": 1 << 20}
KINDS: list[dict[str, Any]] = [{}, {"num_choices": 3}, {"is_beam": True, "num_candidates": 3}]


def requests(num_requests: int, num_tokens: int) -> list[Payload]:
    return [
        request(str(number), prompt(number, 20), num_tokens, ignore_eos=True, **KINDS[number % len(KINDS)])
        for number in range(num_requests)
    ]


def preempted_answers(executor: Executor, options: EngineOptions, path: Path, payloads: list[Payload]) -> Answers:
    """With an engine that has seen only short outputs, so that it admits more than there is room for."""
    engine = Engine(executor, options)
    engine.load_model(ModelSpec(name="tiny", source=str(path), max_model_len=tiny.CONTEXT))
    tiny.run(engine, [tiny.request(f"short-{number}", [number], 1) for number in range(64)])
    found = answers(engine, payloads)
    assert engine.num_preemptions > 0
    return found


def test_on_the_reference_executor(tiny_path: Path) -> None:
    given: dict[str, Any] = {"block_size": 4, "kv_cache_bytes": 1 << 20, "max_num_seqs": 150}
    found = [
        preempted_answers(ReferenceExecutor(options), options, tiny_path, requests(24, 100))
        for options in (EngineOptions(**given), EngineOptions(**given, **SWAP))
    ]
    assert found[0] == found[1]


def test_on_the_cpu_executor(tiny_path: Path) -> None:
    given: dict[str, Any] = {"block_size": 4, "kv_cache_bytes": 1 << 20, "max_num_seqs": 150}
    found: list[Answers] = []
    for options in (EngineOptions(**given), EngineOptions(**given, **SWAP)):
        executor = CpuExecutor(options, num_threads=1)
        found.append(preempted_answers(executor, options, tiny_path, requests(54, 100)))
        executor.close()
    assert found[0] == found[1]
