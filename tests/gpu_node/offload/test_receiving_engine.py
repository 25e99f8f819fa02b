"""An engine that attends for another one between its operators answers as if it did not."""

from __future__ import annotations

import random
from contextlib import ExitStack, closing
from pathlib import Path
from threading import Event, Thread

import pytest

from gpu_node.engine.border.links import LinkName
from gpu_node.engine.border.sizing import device_paging
from gpu_node.engine.engine import Engine
from gpu_node.executors.cpu.executor import CpuExecutor
from gpu_node.graph.passes.named import offload_passes
from shared.config.engines.engine import EngineOptions, ModelSpec
from shared.config.pipelines.pipelines import NO_PIPELINES, Pipelines, cpu_name
from tests.gpu_node import tiny
from tests.gpu_node.offload.attention_engine import Sizes
from tests.gpu_node.offload.pair import LENT_PAGES, RECEIVER, RIGHT, SENDER, Pair, sequences
from tests.gpu_node.offload.waiting import wait_until
from tests.gpu_node.random_pipelines import random_pipeline

OPTIONS = EngineOptions(kv_cache_bytes=16 << 20, max_models=2)
"""Two models share the memory, so it has pages to lend."""


@pytest.mark.parametrize("is_piped", [False, True], ids=["plainly", "in lanes"])
@pytest.mark.parametrize("num_threads", [1, 2])
def test_tokens_and_rows_are_right_while_both_engines_work(
    stack: ExitStack, tmp_path: Path, tiny_path: Path, num_threads: int, is_piped: bool
) -> None:
    pair = Pair(stack, tmp_path, Sizes())
    pair.page_bytes = device_paging(OPTIONS).page_bytes
    spec = ModelSpec(name="tiny", source=str(tiny_path), max_model_len=tiny.CONTEXT)
    chance = random.Random(num_threads)
    payloads = [tiny.request(str(i), [chance.randrange(3, tiny.VOCAB) for _ in range(9)], 24) for i in range(4)]
    any_pipeline = random_pipeline(8, rows=2, device=cpu_name(num_threads))
    pipelines = Pipelines("any.json", any_pipeline.rows, (any_pipeline,)) if is_piped else NO_PIPELINES
    made = CpuExecutor(OPTIONS, num_threads, passes=offload_passes("on"), pipelines=pipelines, link_folder=tmp_path)
    executor = stack.enter_context(closing(made))
    engine = Engine(executor, OPTIONS)
    engine.load_model(spec)
    alone = tiny.run(engine, payloads)

    sizes = pair.sizes.link()
    link = LinkName(SENDER, RECEIVER)
    executor.links.receive(link, sizes.sizes)
    executor.links.lend(link, LENT_PAGES)
    wait_until(lambda: pair.link.is_open)
    ends = Event()
    told: list[tuple[bool, bool, bool]] = []

    def send() -> None:
        while not ends.is_set():
            told.append(pair.step([], [(one, 5) for one in sequences(3, chance)], len(told)))

    sender = Thread(target=send)
    sender.start()
    try:
        wait_until(lambda: bool(told))
        for _ in range(3):
            assert tiny.run(engine, payloads) == alone
    finally:
        ends.set()
        sender.join()
    assert set(told) == {RIGHT}
    assert (engine.counts.num_piped > 0) is is_piped
    measured = executor.links.times(link, "tiny")
    assert (measured.num_steps > 0) is not is_piped, "steps in lanes are not measured, and here all are"
