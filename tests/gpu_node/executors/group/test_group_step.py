"""A step of a group is waited for while all of its devices live."""

from __future__ import annotations

from threading import Event

import pytest

from gpu_node.engine.border.plan import StepResult
from gpu_node.executors.group.group_step import GroupStep, StepWaiter


class Step:
    """Computed when it is told to be."""

    def __init__(self, duration_s: float) -> None:
        self.is_over = Event()
        self._duration_s = duration_s

    def result(self) -> StepResult:
        self.is_over.wait()
        return StepResult({}, self._duration_s)


class GoneError(Exception):
    """Another device has ended."""


def test_steps_give_their_results_while_others_are_looked_after() -> None:
    asked: list[Step] = []
    waiter = StepWaiter(lambda: asked[-1].is_over.set(), look_s=1e-3)  # a look lets the step end that is waited for

    def result_of(step: Step) -> float:
        asked.append(step)
        return GroupStep(step, waiter).result().duration_s

    assert [result_of(Step(duration_s)) for duration_s in (1.0, 2.0)] == [1.0, 2.0]


def test_a_wait_ends_when_a_device_is_gone() -> None:
    def look() -> None:
        raise GoneError

    step = Step(1.0)
    with pytest.raises(GoneError):
        GroupStep(step, StepWaiter(look, look_s=1e-3)).result()
    step.is_over.set()  # else the thread would wait for ever


def test_what_a_step_raises_is_raised_for_who_asks() -> None:
    class Broken:
        def result(self) -> StepResult:
            raise GoneError

    with pytest.raises(GoneError):
        GroupStep(Broken(), StepWaiter(lambda: None)).result()
