"""What a node counts of requests that leave it, and of models that come to it."""

from __future__ import annotations

from dataclasses import replace

from prometheus_client import REGISTRY

from gpu_node.agent.decisions.actions import Publish
from gpu_node.agent.telemetry.metrics import EpochMetrics, observe_published
from gpu_node.engine.measures.counts import Counts, KeptCounts, TierCounts, looked_up
from gpu_node.engine.process.protocol.protocol import StepReport, TakenOut
from shared.messages.requests.requests import HANDED_OVER, EvictedRequest
from tests.unit.agent.events import loaded, make_agent, stats


def value(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(name, labels) or 0.0


def test_requests_that_gave_way_and_those_that_moved_are_counted_apart() -> None:
    names = ("treadle_evictions_total", "treadle_migrations_total", "treadle_evicted_kv_tokens_total")
    before = [value(name) for name in names]
    parked = [EvictedRequest("r0", 0, 2, 30, "n0"), EvictedRequest("r1", 0, 2, 0, "n0")]
    observe_published(Publish(evicted=[*parked, EvictedRequest("r2", 0, 2, 12, HANDED_OVER)]))
    assert [value(name) - old for name, old in zip(names, before, strict=True)] == [2, 1, 42]


def test_loads_are_counted_by_where_the_weights_came_from() -> None:
    metrics = EpochMetrics(make_agent())
    for event in (
        loaded("counted", load_s=2.0),
        loaded("counted", load_s=0.25, source="host"),
        loaded("counted", load_s=0.0, source="device"),
    ):
        metrics.observe(event)
    seconds = {
        source: value("treadle_model_swap_seconds_sum", model="counted", source=source)
        for source in ("disk", "host", "device")
    }
    assert seconds == {"disk": 2.0, "host": 0.25, "device": 0.0}
    assert value("treadle_model_swaps_total", model="counted") == 2


def test_what_moves_between_device_and_host_memory_is_counted_by_tier() -> None:
    names = [
        ("treadle_kv_moved_bytes_total", {"tier": "swapped", "direction": "out"}),
        ("treadle_kv_moved_bytes_total", {"tier": "swapped", "direction": "in"}),
        ("treadle_kv_moved_bytes_total", {"tier": "evicted", "direction": "out"}),
        ("treadle_kv_moved_bytes_total", {"tier": "evicted", "direction": "in"}),
        ("treadle_kv_refused_requests_total", {"tier": "swapped"}),
        ("treadle_kv_refused_requests_total", {"tier": "evicted"}),
        ("treadle_resumed_requests_total", {"tier": "swapped"}),
        ("treadle_resumed_requests_total", {"tier": "evicted"}),
        ("treadle_resumed_requests_total", {"tier": "none"}),
    ]
    metrics = EpochMetrics(make_agent())
    before = [value(name, **labels) for name, labels in names]
    swapped, evicted = TierCounts(1024, 512, 5, 3), TierCounts(4096, 2048, 9, 7)
    counts = Counts(num_recomputed=2, swapped=swapped, evicted=evicted)
    metrics.observe(TakenOut([], replace(stats(), counts=counts)))
    grown = [value(name, **labels) - old for (name, labels), old in zip(names, before, strict=True)]
    assert grown == [1024, 512, 4096, 2048, 3, 7, 5, 9, 2]


def test_what_is_kept_below_the_device_is_counted_by_tier() -> None:
    names = [
        ("treadle_kv_tier_hits_total", {"tier": "host"}),
        ("treadle_kv_tier_hits_total", {"tier": "ssd"}),
        ("treadle_kv_tier_lost_blocks_total", {"tier": "host"}),
        ("treadle_kv_tier_lost_blocks_total", {"tier": "ssd"}),
        ("treadle_kv_ssd_blocks_total", {"direction": "out"}),
        ("treadle_kv_ssd_blocks_total", {"direction": "in"}),
        ("treadle_kv_ssd_faults_total", {"reason": "failed"}),
        ("treadle_kv_ssd_faults_total", {"reason": "damaged"}),
        ("treadle_kv_ssd_faults_total", {"reason": "late"}),
    ]
    metrics = EpochMetrics(make_agent())
    before = [value(name, **labels) for name, labels in names]
    kept = KeptCounts(
        host_tokens=1,
        store_tokens=2,
        num_lost_blocks=3,
        num_unwritten=4,
        num_written=5,
        num_read=6,
        num_failed=7,
        num_damaged=8,
        num_late=9,
    )
    metrics.observe(StepReport([], replace(stats(), counts=Counts(kept=kept))))
    grown = [value(name, **labels) - old for (name, labels), old in zip(names, before, strict=True)]
    assert grown == [1, 2, 3, 4, 5, 6, 7, 8, 9]


def _counts(num_preemptions: int, queried_tokens: int, cached_tokens: int, restored_tokens: int) -> Counts:
    found = looked_up(queried_tokens, cached_tokens, is_prompt=False)
    return found + Counts(num_preemptions=num_preemptions, restored_tokens=restored_tokens)


def test_the_engines_counts_are_told_as_they_grow_and_begin_anew_with_an_epoch() -> None:
    names = (
        "vllm:num_preemptions_total",
        "vllm:prefix_cache_queries_total",
        "vllm:prefix_cache_hits_total",
        "treadle_restored_kv_tokens_total",
    )
    before = [value(name) for name in names]
    for epoch in ([_counts(1, 20, 8, 0), _counts(1, 20, 8, 0), _counts(2, 30, 16, 12)], [_counts(0, 5, 0, 3)]):
        metrics = EpochMetrics(make_agent())
        for counts in epoch:
            metrics.observe(StepReport([], replace(stats(), counts=counts)))
    assert [value(name) - old for name, old in zip(names, before, strict=True)] == [2, 35, 16, 15]


def test_guessed_tokens_are_counted_and_those_that_held() -> None:
    names = (
        "vllm:spec_decode_num_draft_tokens_total",
        "vllm:spec_decode_num_accepted_tokens_total",
        "treadle_node_structured_draft_tokens_total",
        "treadle_node_structured_accepted_tokens_total",
    )
    before = [value(name) for name in names]
    metrics = EpochMetrics(make_agent())
    counts = Counts(num_draft_tokens=8, num_accepted_tokens=5, num_structured_drafts=4, num_structured_accepted=3)
    metrics.observe(StepReport([], replace(stats(), counts=counts)))
    metrics.observe(StepReport([], replace(stats(), counts=counts + Counts(num_draft_tokens=2))))
    assert [value(name) - old for name, old in zip(names, before, strict=True)] == [10, 5, 4, 3]


def test_steps_are_counted_by_the_way_that_they_take() -> None:
    ways = ("lanes", "small", "unknown")
    before = [value("treadle_node_pipeline_steps_total", way=way) for way in ways]
    metrics = EpochMetrics(make_agent())
    counts = Counts(num_piped=5, num_small=2, num_unknown=1)
    metrics.observe(StepReport([], replace(stats(), counts=counts)))
    metrics.observe(StepReport([], replace(stats(), counts=counts + Counts(num_piped=1))))
    now = [value("treadle_node_pipeline_steps_total", way=way) for way in ways]
    assert [new - old for new, old in zip(now, before, strict=True)] == [6, 2, 1]
