"""When a pool grows and shrinks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.scheduler.scaling import QUIET_S, REPEAT_S, Scaling, ScalingState
from shared.bus import streams
from shared.config.engines.engine import EngineOptions
from shared.config.nodes.nodes import NodePool, ScalingOptions
from shared.messages.nodes.nodes import Heartbeat, NodeFacts, NodeState, Scale, Scaled
from shared.service.core import Effect, Send

POOL = NodePool(name="p", min_nodes=0, max_nodes=5, start_s=30)
OPTIONS = ScalingOptions(provider="process", up_cooldown_s=10, down_cooldown_s=100)


class Driver:
    """A pool, and what its provider was told: (time, nodes), told again left out."""

    def __init__(self, pool: NodePool = POOL, options: ScalingOptions = OPTIONS) -> None:
        self.state = ScalingState()
        self.scaling = Scaling(self.state, [pool], options, EngineOptions())
        self.told: list[tuple[float, int]] = []

    @property
    def wanted(self) -> int:
        return self.state.pools["p"].wanted

    def need(self, number: int, now: float, came_s: float | None = None) -> int:
        """A plan has said so; how many are wanted then. ``came_s``: nobody is left, and who came last did then."""
        self.scaling.ask({}, now if came_s is None else came_s, now)
        self._note(self.scaling.judge({"p": number}, now), now)
        return self.wanted

    def tick(self, now: float) -> int:
        self._note(self.scaling.tick(now), now)
        return self.wanted

    def beat(self, node: str, now: float, model: str = "a", num_running: int = 0) -> None:
        self.scaling.hear(beat(node, model, num_running), NodeState(node, model), now)

    def _note(self, effects: list[Effect], now: float) -> None:
        for effect in effects:
            assert isinstance(effect, Send)
            assert effect.stream == streams.PROVIDER
            assert isinstance(effect.message, Scale)
            if not self.told or self.told[-1][1] != effect.message.num_nodes:
                self.told.append((now, effect.message.num_nodes))


def beat(node: str, model: str, num_running: int) -> Heartbeat:
    return Heartbeat(
        node=node,
        epoch="1",
        facts=NodeFacts(device="cpu", swap_s=0.0),
        model=model,
        num_blocks=1,
        num_free_blocks=1,
        num_running=num_running,
        num_waiting=0,
    )


def test_a_pool_grows_at_once_and_then_is_left_alone_for_a_while() -> None:
    driver = Driver()
    assert driver.need(1, 1_000) == 1
    assert driver.need(3, 1_005) == 1
    assert driver.need(3, 1_010) == 3
    assert driver.told == [(1_000, 1), (1_010, 3)]


def test_what_was_needed_for_a_moment_of_the_cooldown_is_not_started_after_it() -> None:
    driver = Driver()
    driver.need(1, 1_000)
    driver.need(4, 1_005)
    assert driver.need(1, 1_010) == 1


def test_from_nothing_there_is_no_cooldown() -> None:
    driver = Driver(options=OPTIONS.model_copy(update={"down_cooldown_s": 1.0}))
    driver.need(1, 1_000)
    assert driver.need(0, 1_010) == 0
    assert driver.need(1, 1_011) == 1


def test_a_pool_shrinks_to_the_most_that_was_needed_for_long() -> None:
    driver = Driver()
    driver.need(4, 1_000)
    for now, number in ((1_020, 2), (1_040, 3), (1_060, 1), (1_099, 0)):
        assert driver.need(number, now) == 4
    assert driver.need(0, 1_100) == 3
    assert driver.need(0, 1_139) == 3
    assert driver.need(0, 1_140) == 1
    assert driver.need(0, 1_160) == 0
    assert driver.told == [(1_000, 4), (1_100, 3), (1_140, 1), (1_160, 0)]


def test_without_questions_and_without_work_nothing_is_needed() -> None:
    driver = Driver()
    driver.need(2, 1_000)
    assert driver.tick(1_000 + QUIET_S) == 2
    assert driver.tick(1_101) == 0


def test_who_might_come_again_keeps_a_node_no_longer_than_who_came_last() -> None:
    driver = Driver()
    driver.need(3, 1_000)
    for now in range(1_005, 1_061, 5):  # nobody is left, and for a minute somebody is expected
        assert driver.need(1, now, came_s=1_000.0) == 3
    assert driver.scaling.wake_at == 1_060 + REPEAT_S
    for now in (1_070, 1_080, 1_090):
        assert driver.tick(now) == 3
    assert driver.scaling.wake_at == 1_100
    assert driver.tick(1_100) == 0


def test_nobody_is_started_for_those_who_came_longer_ago_than_the_cooldown() -> None:
    driver = Driver(options=OPTIONS.model_copy(update={"down_cooldown_s": 30.0}))
    driver.need(1, 1_000)
    assert driver.need(1, 1_029, came_s=1_000.0) == 1
    assert driver.need(1, 1_030, came_s=1_000.0) == 0
    assert driver.need(2, 1_035, came_s=1_000.0) == 0
    assert driver.need(2, 1_040, came_s=1_040.0) == 2, "somebody came, and was refused for want of a node"


def test_a_pool_wakes_up_when_it_is_to_shrink_and_not_before_it_may() -> None:
    driver = Driver(options=OPTIONS.model_copy(update={"down_cooldown_s": 12.0, "up_cooldown_s": 20.0}))
    driver.need(2, 1_000)
    driver.scaling.tick(1_010)
    assert driver.scaling.wake_at == 1_020, "nobody was here for 12 s at 1012, quiet at 1015, settled at 1020"
    assert driver.tick(1_019.5) == 2
    assert driver.tick(1_020) == 0
    assert driver.scaling.wake_at == 1_020 + REPEAT_S


def test_silence_of_the_queue_manager_is_no_idleness_while_nodes_have_work() -> None:
    driver = Driver()
    driver.need(2, 1_000)
    for now in range(1_001, 1_300, 10):
        driver.beat("p-0", now, num_running=1)
        assert driver.tick(now + 1) == 2


def test_the_provider_is_told_again_and_again() -> None:
    driver = Driver()
    assert driver.scaling.wake_at == 0.0
    assert driver.scaling.tick(1_000) == [Send(streams.PROVIDER, Scale(pool="p", num_nodes=0), max_entries=10_000)]
    assert driver.scaling.tick(1_001) == []
    assert driver.scaling.wake_at == 1_000 + REPEAT_S
    assert len(driver.scaling.tick(1_000 + REPEAT_S)) == 1


def test_how_long_a_start_takes_is_learnt() -> None:
    driver = Driver()
    driver.need(2, 1_000)
    driver.beat("p-0", 1_010, model="")  # it is there, and loads its model
    driver.beat("p-0", 1_012)
    assert driver.state.pools["p"].start_s == 12.0, "the first replaces what was configured"
    driver.beat("p-1", 1_020)
    assert driver.state.pools["p"].start_s == 16.0
    driver.beat("p-1", 1_021)
    assert driver.state.pools["p"].start_s == 16.0, "each start counts once"


def test_a_question_tells_who_is_there_and_who_is_expected() -> None:
    driver = Driver()
    driver.need(3, 1_000)
    driver.beat("p-0", 1_020)
    (pool,) = driver.scaling.ask({"p-0": NodeState("p-0", "a")}, 1_030, 1_030)
    # after 30 s p-1 and p-2 are overdue, as starts take 20 s: they may as well have begun now
    assert pool.ready_s == [0.0, 20.0, 20.0]
    assert (pool.start_s, pool.fresh.node, pool.fresh.model) == (20.0, "p-3", "")
    assert driver.scaling.ask({"p-0": NodeState("p-0", "a")}, 1_031, 1_031) == [], (
        "sizes are not asked for all the time"
    )


def test_a_node_that_is_lost_is_expected_again() -> None:
    driver = Driver()
    driver.need(1, 1_000)
    driver.beat("p-0", 1_020)
    driver.scaling.lose("p-0", 1_030)
    (pool,) = driver.scaling.ask({}, 1_035, 1_035)
    assert pool.ready_s == [15.0]


def test_one_node_too_many_is_leaving() -> None:
    driver = Driver()
    driver.need(2, 1_000)
    assert [driver.scaling.is_leaving(node) for node in ("p-1", "p-2", "other")] == [False, True, False]


def test_what_the_provider_says_is_shown() -> None:
    driver = Driver()
    driver.need(1, 1_000)
    driver.scaling.told(Scaled(pool="p", num_nodes=0, error="no room"))
    driver.scaling.told(Scaled(pool="gone", num_nodes=7))
    assert driver.scaling.describe() == {
        "p": {"wanted": 1, "num_nodes": 0, "starting": ["p-0"], "start_s": 30.0, "error": "no room"}
    }


def test_without_a_provider_nothing_is_scaled() -> None:
    driver = Driver(options=ScalingOptions())
    assert driver.scaling.wake_at is None
    assert driver.scaling.ask({}, 1_000, 1_000) == []
    assert driver.scaling.tick(1_000) == []


def test_other_limits_hold_for_a_state_that_was_written_before() -> None:
    driver = Driver()
    driver.need(5, 1_000)
    for limits, wanted in (({"max_nodes": 3}, 3), ({"min_nodes": 4, "max_nodes": 9}, 4)):
        Scaling(driver.state, [POOL.model_copy(update=limits)], OPTIONS, EngineOptions())
        assert driver.wanted == wanted


@pytest.mark.parametrize("number", [-1, 7, 99])
def test_no_answer_leaves_the_limits(number: int) -> None:
    assert 0 <= Driver().need(number, 1_000) <= POOL.max_nodes


@given(
    answers=st.lists(st.tuples(st.floats(0.1, 40), st.integers(0, 9)), min_size=1, max_size=60),
    least=st.integers(0, 2),
)
def test_no_flapping_within_limits(answers: list[tuple[float, int]], least: int) -> None:
    pool = POOL.model_copy(update={"min_nodes": least})
    driver, now, changed_s = Driver(pool), 1_000.0, 0.0
    needs: list[tuple[float, int]] = []
    for after_s, answer in answers:
        now += after_s
        needed, before = min(max(answer, least), pool.max_nodes), driver.wanted
        needs.append((now, needed))
        wanted = driver.need(answer, now)
        assert least <= wanted <= pool.max_nodes
        if wanted != before:
            assert now - changed_s >= OPTIONS.up_cooldown_s or before == 0, "a change at a time"
            recent = [number for at, number in needs if at > now - OPTIONS.down_cooldown_s]
            assert wanted == (needed if wanted > before else max(recent)), "up at once, down to the most of late"
            changed_s = now
        elif needed < before:
            assert now - changed_s < OPTIONS.down_cooldown_s or max(number for _, number in needs) >= before


@given(answers=st.lists(st.tuples(st.floats(0.1, 40), st.integers(0, 9)), min_size=1, max_size=20))
def test_a_pool_that_is_asked_for_no_more_is_empty_in_time_by_its_own_wakes(
    answers: list[tuple[float, int]],
) -> None:
    driver, now = Driver(), 1_000.0
    for after_s, answer in answers:
        now += after_s
        driver.need(answer, now)
    last_s = now
    while driver.wanted:
        wake_at = driver.scaling.wake_at
        assert wake_at is not None
        assert wake_at > now, "it never wakes up for nothing again and again"
        now = wake_at
        driver.tick(now)
    assert now <= last_s + OPTIONS.down_cooldown_s + OPTIONS.up_cooldown_s, "it may have shrunk in two steps"
