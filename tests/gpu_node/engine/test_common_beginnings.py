"""Texts that begin alike and come together: the first computes for all, where that is worth a wait."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from gpu_node.engine.engine import Engine
from gpu_node.engine.steps.common_beginnings import MIN_SPARED_TOKENS
from gpu_node.executors.reference.executor import ReferenceExecutor
from shared.config.engines.engine import EngineOptions
from shared.messages.prefixes.partitions import partition_of
from tests.gpu_node import tiny
from tests.gpu_node.embedding_model import embedded, embeddings, request, spec

SIZE = 4
QUERY = list(range(20, 84))  # 16 blocks
OPTIONS: dict[str, Any] = {"kv_cache_bytes": 4 << 20, "block_size": SIZE, "max_num_seqs": 64, "step_tokens": 4096}
NUM_WORTH_IT = MIN_SPARED_TOKENS // len(QUERY)  # texts behind the first


def engine_of(path: Path, **options: Any) -> Engine:
    chosen = EngineOptions(**OPTIONS | options)
    engine = Engine(ReferenceExecutor(chosen), chosen)
    engine.load_model(spec(path))
    return engine


def documents(number: int) -> list[list[int]]:
    return [[*QUERY, 3 + one, 40, 41] for one in range(number)]


def cached(engine: Engine, asked: list[list[int]]) -> int:
    """Tokens that were found, of texts that come together."""
    embedded(engine, asked)
    return engine.counts.prefix_cached_tokens


def test_all_but_the_first_find_what_they_have_in_common(tiny_path: Path) -> None:
    assert cached(engine_of(tiny_path), documents(NUM_WORTH_IT + 1)) == NUM_WORTH_IT * len(QUERY)


def test_what_others_compute_in_another_partition_is_not_waited_for(tiny_path: Path) -> None:
    """Half of them in each: together they were spared enough, but what one computes only its own would find."""
    engine, partitions = engine_of(tiny_path), (partition_of("", "a"), partition_of("", "b"))
    asked = [
        replace(request(str(number), text), partition=partitions[number % 2])
        for number, text in enumerate(documents(NUM_WORTH_IT + 1))
    ]
    embeddings(engine, asked)
    assert engine.counts.prefix_cached_tokens == 0


def test_where_it_spares_too_little_nobody_waits(tiny_path: Path) -> None:
    assert cached(engine_of(tiny_path), documents(NUM_WORTH_IT)) == 0


@pytest.mark.parametrize("is_async", [True, False])
def test_two_queries_wait_one_after_the_other(tiny_path: Path, is_async: bool) -> None:
    ours = documents(NUM_WORTH_IT + 1)
    theirs = [[90, *text] for text in ours]
    found = cached(engine_of(tiny_path, async_scheduling=is_async), [*ours, *theirs])
    assert found == 2 * NUM_WORTH_IT * len(QUERY)


def test_the_rows_are_those_of_texts_that_come_alone(tiny_path: Path) -> None:
    asked = documents(20)
    together = embedded(engine_of(tiny_path), asked)
    alone = torch.cat([embedded(engine_of(tiny_path), [text]) for text in asked])
    torch.testing.assert_close(together, alone, rtol=2e-4, atol=2e-4)


def test_who_waits_goes_on_when_the_first_has_left(tiny_path: Path) -> None:
    engine = engine_of(tiny_path)
    for number, text in enumerate(documents(20)):
        assert engine.add(request(str(number), text)) == []
    assert engine.step(0.0) == []  # the first runs
    assert engine.stats().num_running == 1
    engine.abort(["0"])
    chunks = [chunk for told in tiny.steps(engine) for chunk in told]
    assert sorted(chunk.request_id for chunk in chunks) == sorted(str(number) for number in range(1, 20))


def test_texts_that_are_continued_do_not_wait(tiny_path: Path) -> None:
    engine = tiny.make_engine(tiny_path, block_size=SIZE, step_tokens=4096, max_num_seqs=32, kv_cache_bytes=4 << 20)
    for number, text in enumerate(documents(20)):
        assert engine.add(tiny.request(str(number), text, 1)) == []
    engine.step(0.0)
    assert engine.stats().num_running == 20
    list(tiny.steps(engine))
