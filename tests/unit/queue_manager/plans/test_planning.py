"""How often a plan is asked for, by the reasons that there are; times are those of the questions."""

from __future__ import annotations

import pytest

from services.queue_manager.core import QueueManagerCore
from services.queue_manager.plans.planning import (
    IDLE_S,
    LEISURE_S,
    PLAN_INTERVAL_S,
    PLAN_TIMEOUT_S,
    WAITING_INTERVAL_S,
)
from shared.config.config import ClusterConfig
from shared.messages.message import Tick
from shared.messages.messages import AnyMessage
from shared.messages.nodes.nodes import NodeState, NodeUp
from shared.messages.nodes.placement import Plan, PlanRequest
from shared.messages.requests.requests import GatewayBeat, Submit
from shared.messages.requests.slo import Slo
from shared.service.core import Send

SOON, LATER = Slo("interactive", deadline_s=20.0), Slo("batch-2", deadline_s=3600.0)


class Asked:
    """A queue manager, and its questions with their times. ``answers``: each at once, and all stays as it is."""

    def __init__(self, *, answers: bool) -> None:
        self.core = QueueManagerCore(ClusterConfig())
        self.questions: list[tuple[float, PlanRequest]] = []
        self._answers = answers

    @property
    def times_s(self) -> list[float]:
        return [time_s for time_s, _ in self.questions]

    def do(self, message: AnyMessage, now: float) -> None:
        for effect in self.core.handle(message, now):
            if isinstance(effect, Send) and isinstance(effect.message, PlanRequest):
                self.questions.append((now, effect.message))
                if self._answers:
                    self.core.handle(Plan(version=effect.message.version, queues={}), now)

    def wait_until(self, end_s: float) -> None:
        """Ticks when the core wants them, and no others; the gateway lives."""
        while (wake_s := self.core.wake_at) is not None and wake_s <= end_s:
            self.do(Tick(), wake_s)
            self.do(GatewayBeat(gateway="gw"), wake_s)


def node(name: str, model: str) -> NodeUp:
    return NodeUp(epoch=f"{name}.1", known=NodeState(name, model))


def submit(name: str, model: str, slo: Slo = SOON) -> Submit:
    return Submit(request_id=name, gateway="gw", model=model, slo=slo, prompt_tokens=8, max_tokens=100)


def test_the_limit_is_twenty_questions_a_second() -> None:
    assert PLAN_INTERVAL_S == 0.05


def test_however_many_reasons_there_are_questions_keep_their_distance() -> None:
    """A request without a place every 10 ms, each of which is a reason."""
    asked = Asked(answers=True)
    asked.do(node("n0", "a"), 1.0)
    for number in range(20):
        now = 2.0 + number / 100
        asked.wait_until(now)
        asked.do(submit(f"r{number}", f"m{number}"), now)
    asked.wait_until(2.24)
    # at once, and from then on as soon as 50 ms have passed
    assert asked.times_s == pytest.approx([2.0, 2.05, 2.1, 2.15, 2.2])


def test_what_has_no_answer_is_asked_again_and_meanwhile_nothing_else_is() -> None:
    asked = Asked(answers=False)
    asked.do(node("n0", "a"), 1.0)
    asked.do(submit("r0", "b"), 2.0)
    asked.do(submit("r1", "c"), 3.0)
    asked.wait_until(12.5)
    assert asked.times_s == pytest.approx([2.0, 2.0 + PLAN_TIMEOUT_S, 2.0 + 2 * PLAN_TIMEOUT_S])
    first, second, third = (question for _, question in asked.questions)
    assert first.version < second.version == third.version, "r1 was news when it was asked again, and then no more"
    assert [len(question.groups) for question in (first, second, third)] == [1, 2, 2]


def test_who_waits_without_danger_is_asked_about_now_and_then() -> None:
    asked = Asked(answers=True)
    asked.do(node("n0", "a"), 1.0)
    asked.do(submit("r0", "a", LATER), 2.0)
    asked.wait_until(2.0 + WAITING_INTERVAL_S - 0.001)
    assert asked.times_s == []
    asked.wait_until(22.5)
    assert asked.times_s == pytest.approx([12.0, 22.0])


def test_a_question_holds_the_four_hundred_that_are_due_first() -> None:
    asked = Asked(answers=False)
    asked.do(node("n0", "a"), 1.0)
    for number in range(402):
        asked.do(submit(f"r{number}", f"m{number}", LATER if number == 7 else SOON), 2.0 + number / 1_000)
    asked.wait_until(7.5)
    models = {load.model for load in asked.questions[-1][1].groups}
    assert models == {f"m{number}" for number in range(401) if number != 7}, "neither who came last nor who has time"


def test_nobody_waits_and_nobody_asks() -> None:
    asked = Asked(answers=True)
    asked.do(node("n0", "a"), 1.0)
    asked.do(node("n1", "b"), 1.5)
    asked.wait_until(100.0)
    assert (asked.times_s, asked.core.wake_at) == ([], None)


def test_the_intervals_are_in_the_order_of_their_reasons() -> None:
    assert PLAN_INTERVAL_S < IDLE_S < LEISURE_S < WAITING_INTERVAL_S
