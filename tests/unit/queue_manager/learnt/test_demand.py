"""What comes is counted, and described to who decides on the number of nodes."""

from __future__ import annotations

import pytest

from services.queue_manager.core import QueueManagerCore
from services.queue_manager.learnt.demand import MEMORY_S, Asked, Demand
from services.queue_manager.plans.planning import SIZING_INTERVAL_S
from shared.config.config import ClusterConfig
from shared.config.nodes.nodes import NodePool
from shared.messages.message import Tick
from shared.messages.nodes.placement import GroupLoad, Plan, PlanRequest
from shared.messages.requests.request_kind import RequestKind
from shared.messages.requests.requests import Submit
from shared.messages.requests.slo import Slo
from shared.service.core import Effect, Send

CHAT = Slo("chat", ttft_s=2.0)
BATCH = Slo("batch", deadline_s=60.0)


def submit(number: int, slo: Slo = CHAT, prompt_tokens: int = 10, attempt: int = 0) -> Submit:
    return Submit(
        request_id=f"r{number}",
        gateway="gw",
        model="a",
        slo=slo,
        prompt_tokens=prompt_tokens,
        max_tokens=100,
        attempt=attempt,
    )


def newcomer(message: Submit, now: float) -> GroupLoad:
    return GroupLoad(
        "",
        message.slo.start_by_s(now),
        model=message.model,
        num_waiting=1,
        mean_prompt_tokens=message.prompt_tokens,
        max_tokens=message.max_tokens,
    )


class Counting:
    def __init__(self) -> None:
        self.asked: dict[RequestKind, Asked] = {}
        self.demand = Demand(self.asked, newcomer)

    def come(self, *times_s: float, slo: Slo = CHAT, prompt_tokens: int = 10) -> None:
        for number, now in enumerate(times_s):
            self.demand.count(submit(number, slo, prompt_tokens), now)

    def rate(self, now: float) -> float:
        (kind,) = self.demand.expected(now)
        return kind.rate_per_s


def test_a_steady_rate_is_put_above_its_mean_by_one_deviation() -> None:
    counting = Counting()
    counting.come(*(number * 0.5 for number in range(120)))  # two a second for a minute
    assert counting.rate(60.0) == pytest.approx((120 + 120**0.5) / 60)


def test_what_has_just_begun_counts_as_far_as_chance_does_not_explain_it() -> None:
    counting = Counting()
    counting.come(*([60.0] * 25))
    assert counting.rate(65.0) == pytest.approx((25 - 25**0.5) / 5)
    single = Counting()
    single.come(60.0)
    assert single.rate(65.0) == pytest.approx(1 / 15)  # neither by the short span nor by the long one


def test_what_came_long_ago_is_forgotten() -> None:
    counting = Counting()
    counting.come(0.0)
    counting.demand.forget(MEMORY_S + 4.9)
    assert counting.asked
    counting.demand.forget(MEMORY_S + 5.0)
    assert not counting.asked
    assert counting.demand.expected(MEMORY_S + 5.0) == []


def test_kinds_are_told_apart_and_described_by_a_typical_request() -> None:
    counting = Counting()
    counting.come(0.0, prompt_tokens=10)
    counting.come(1.0, prompt_tokens=30)
    counting.come(2.0, slo=BATCH)
    chat, batch = counting.demand.expected(5.0)
    assert (chat.load.slo, chat.load.mean_prompt_tokens, chat.load.std_prompt_tokens) == ("chat", 20.0, 10.0)
    assert (chat.load.deadline_s, chat.load.end_by_s) == (7.0, 0.0)
    assert (batch.load.slo, batch.load.deadline_s, batch.load.end_by_s) == ("batch", 65.0, 65.0)


class Cluster:
    """A queue manager without any node, where a pool could have some."""

    def __init__(self, pools: list[NodePool]) -> None:
        self.core = QueueManagerCore(ClusterConfig(pools=pools))

    def questions(self, effects: list[Effect]) -> list[PlanRequest]:
        return [
            effect.message for effect in effects if isinstance(effect, Send) and isinstance(effect.message, PlanRequest)
        ]

    def send(self, message: Submit | Tick | Plan, now: float) -> list[PlanRequest]:
        return self.questions(self.core.handle(message, now))


def test_without_any_node_a_pool_is_asked_for_at_once() -> None:
    cluster = Cluster([NodePool(name="p")])
    (question,) = cluster.send(submit(1), 1_000.0)
    assert [group.num_waiting for group in question.groups] == [1]
    assert [kind.load.slo for kind in question.arrivals] == ["chat"]
    assert Cluster([]).send(submit(1), 1_000.0) == [], "nobody could come"


def test_sizes_are_asked_for_while_anybody_has_come_of_late_and_attempts_are_no_arrivals() -> None:
    cluster = Cluster([NodePool(name="p")])
    (question,) = cluster.send(submit(1), 1_000.0)
    cluster.send(Plan(version=question.version, queues={}), 1_000.1)
    cluster.send(submit(1, attempt=1), 1_000.2)
    for now in (1_000.0 + SIZING_INTERVAL_S * number for number in range(2, 12)):
        asked = cluster.send(Tick(), now)
        assert asked, "now and then"
        assert sum(bucket.num_requests for one in cluster.core.state.asked.values() for bucket in one.buckets) == 1
        cluster.send(Plan(version=asked[-1].version, queues={}), now)
