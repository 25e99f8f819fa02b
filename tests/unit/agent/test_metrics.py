"""What a node counts of requests that leave it, and of models that come to it."""

from __future__ import annotations

from prometheus_client import REGISTRY

from gpu_node.agent.actions import Publish
from gpu_node.agent.metrics import observe, observe_published
from shared.messages import HANDED_OVER, EvictedRequest
from tests.unit.agent.events import loaded, make_agent


def value(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(name, labels) or 0.0


def test_requests_that_gave_way_and_those_that_moved_are_counted_apart() -> None:
    names = ("treadle_evictions_total", "treadle_migrations_total", "treadle_evicted_kv_tokens_total")
    before = [value(name) for name in names]
    parked = [EvictedRequest("r0", 0, 2, 30, "n0"), EvictedRequest("r1", 0, 2, 0, "n0")]
    observe_published(Publish(evicted=[*parked, EvictedRequest("r2", 0, 2, 12, HANDED_OVER)]))
    assert [value(name) - old for name, old in zip(names, before, strict=True)] == [2, 1, 42]


def test_loads_are_counted_by_where_the_weights_came_from() -> None:
    agent = make_agent()
    for event in (
        loaded("counted", load_s=2.0),
        loaded("counted", load_s=0.25, source="host"),
        loaded("counted", load_s=0.0, source="device"),
    ):
        observe(agent, event)
    seconds = {
        source: value("treadle_model_swap_seconds_sum", model="counted", source=source)
        for source in ("disk", "host", "device")
    }
    assert seconds == {"disk": 2.0, "host": 0.25, "device": 0.0}
    assert value("treadle_model_swaps_total", model="counted") == 2
