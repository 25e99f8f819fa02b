"""Predictions in real time, on a clock that the test turns."""

from __future__ import annotations

import pytest

from gpu_node.engine.border.executor import ModelTooLargeError
from gpu_node.engine.border.plan import Draw, ScheduledSequence, StepPlan
from gpu_node.executors.predicted.executor import PredictedExecutor
from gpu_node.executors.predicted.paced import Clock, PacedExecutor
from shared.config.engines.engine import EngineOptions, ModelSpec
from shared.messages.nodes.step_cost import StepCost
from shared.messages.requests.payload import Sampling

SPEC = ModelSpec(name="m", source="none", max_model_len=64)
OPTIONS = EngineOptions(kv_cache_bytes=1 << 20)
STEP_S = 2.0
PLAN = StepPlan((ScheduledSequence(0, (1,), 4, (0,), (Draw(0, Sampling(max_tokens=1), 0),)),), model="m")


class Slow(PredictedExecutor):
    """Any step takes two seconds, any model eight to load, a block one to move."""

    def __init__(self) -> None:
        super().__init__(StepCost(STEP_S, 0.0, 0.0), OPTIONS, token_kv_bytes=64, vocab_size=50, kv_bytes_per_s=1024.0)

    def load_s(self, spec: ModelSpec) -> float:
        return 8.0


class Watch:
    """A clock that only sleeping and the test move."""

    def __init__(self) -> None:
        self.time_s = 100.0
        self.clock = Clock(lambda: self.time_s, self._sleep)

    def _sleep(self, duration_s: float) -> None:
        assert duration_s > 0
        self.time_s += duration_s


@pytest.fixture
def watch() -> Watch:
    return Watch()


@pytest.fixture
def paced(watch: Watch) -> PacedExecutor:
    executor = PacedExecutor(Slow(), watch.clock)
    executor.load_model(SPEC)
    assert watch.time_s == 108.0
    return executor


def test_a_step_is_submitted_at_once_and_its_result_comes_when_it_is_due(paced: PacedExecutor, watch: Watch) -> None:
    step = paced.submit(PLAN)
    assert watch.time_s == 108.0
    result = step.result()
    assert watch.time_s == 110.0
    assert (result.duration_s, result.idle_s) == (STEP_S, 0.0)
    assert result.token_ids == Slow().submit(PLAN).result().token_ids


def test_steps_queue_up_behind_one_another(paced: PacedExecutor, watch: Watch) -> None:
    first, second = paced.submit(PLAN), paced.submit(PLAN)
    first.result()
    assert watch.time_s == 110.0
    assert second.result().idle_s == 0.0
    assert watch.time_s == 112.0


def test_what_the_host_does_meanwhile_is_not_waited_for_again(paced: PacedExecutor, watch: Watch) -> None:
    step = paced.submit(PLAN)
    watch.time_s += 1.5
    step.result()
    assert watch.time_s == 110.0
    late = paced.submit(PLAN)
    watch.time_s += 5.0
    late.result()
    assert watch.time_s == 115.0


def test_a_device_without_steps_was_idle(paced: PacedExecutor, watch: Watch) -> None:
    paced.submit(PLAN).result()
    watch.time_s += 0.25
    assert paced.submit(PLAN).result().idle_s == 0.25
    assert watch.time_s == 112.25


def test_blocks_move_ahead_of_the_next_step(paced: PacedExecutor, watch: Watch) -> None:
    content, duration_s = paced.read_blocks("m", [0, 1], swapped_out=False)
    assert duration_s == 2.0
    assert paced.write_blocks("m", [3], content) == 1.0
    assert watch.time_s == 108.0
    paced.submit(PLAN).result()
    assert watch.time_s == 108.0 + 3.0 + STEP_S


def test_a_model_that_cannot_be_loaded_says_so_at_once(paced: PacedExecutor, watch: Watch) -> None:
    with pytest.raises(ModelTooLargeError):
        paced.load_model(ModelSpec(name="n", source="none", max_model_len=1 << 20))
    assert watch.time_s == 108.0
    assert paced.tiers == {"m": "device"}
    paced.unload_model("m")
    assert paced.tiers == {"m": "host"}
