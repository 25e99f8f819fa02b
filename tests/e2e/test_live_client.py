"""The clients of benchmarks/qlm/live.py at a cluster: a batch, and a stream that goes on as long as there is one."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.cluster import Cluster

QLM = Path(__file__).parents[2] / "benchmarks" / "qlm"
NUM_BATCH, RATE_PER_S, MAX_TOKENS = 8, 1.0, 20
SEEDS = (0, 1)
SLACK_S = 2.0  # of a busy machine


async def test_interactive_requests_come_until_the_batch_has_been_answered(
    predicted: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(QLM)
    client, trace = importlib.import_module("live_client"), importlib.import_module("live_trace")

    def requests(seed: int) -> Iterator[Any]:
        drawn = trace.live_trace(["chat"], NUM_BATCH, rate=RATE_PER_S, seed=seed)
        return (replace(request, max_tokens=MAX_TOKENS) for request in drawn)

    ends: list[None] = []
    parts = await client.play(predicted.url, *map(requests, SEEDS), lambda: ends.append(None))
    assert len(ends) == NUM_BATCH, "of the trace, one after each of its batch"
    for part, seed in zip(parts, SEEDS, strict=True):
        assert [one.request for one in part.seen] == [one for one, _ in zip(requests(seed), part.seen, strict=False)]
        assert [one.refused for one in part.seen] == [""] * len(part.seen)
        batch, stream = part.seen[:NUM_BATCH], part.seen[NUM_BATCH:]
        assert {one.request.slo for one in batch} == {"batch-1"}
        assert {one.request.slo for one in stream} == {"interactive"}
        batch_end_s = max(one.finished_s for one in batch)
        assert all(one.sent_s >= one.request.arrival_s for one in stream), "each at its time"
        assert stream[-1].request.arrival_s < batch_end_s + SLACK_S, "nobody is sent once the batch has been answered"
        following = next(one for number, one in enumerate(requests(seed)) if number == len(part.seen))
        assert following.arrival_s > batch_end_s - SLACK_S, "nor does the stream end before that"
    before, played = parts
    before_end_s = max(one.finished_s for one in before.seen[:NUM_BATCH])
    assert before_end_s <= played.began_s - before.began_s < before_end_s + SLACK_S, "one follows the other at once"
