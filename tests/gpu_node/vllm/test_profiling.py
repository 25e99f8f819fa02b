"""Points of a profile on a vLLM that is not there: which steps count as which."""

from __future__ import annotations

import queue
from collections.abc import Sequence
from dataclasses import replace

import pytest

from gpu_node.bench.point import BenchPoint
from gpu_node.bench.profile_grid import Measured
from gpu_node.bench.step_fit import StepSample
from gpu_node.engine.border.model import LoadedModel
from gpu_node.vllm.serving.profiling import PointRunner
from gpu_node.vllm.words.border import CoreDiedError, CoreEvent, CoreOutput, CoreRequest, CoreStep, StepSize
from tests.gpu_node.vllm.made import WrittenCore, model

SIZES = (StepSize(6, 6, 12, 0.2), StepSize(2, 8, 8, 0.1))


class SteppingCore(WrittenCore):
    """Computes two prompts in one step, and ends both in the next."""

    def __init__(self, events: queue.Queue[CoreEvent]) -> None:
        super().__init__()
        self._events = events

    def add(self, request: CoreRequest) -> None:
        super().add(request)
        if len(self.running) == 2:
            ids: Sequence[str] = [one.core_id for one in self.running]
            for number, size in enumerate(SIZES):
                outputs = [CoreOutput(one, [9], is_last=number == 1) for one in ids]
                self._events.put(CoreStep(outputs, 0.5, size=size))


def test_a_step_with_prompts_and_a_step_of_decodes() -> None:
    events: queue.Queue[CoreEvent] = queue.Queue()
    core = SteppingCore(events)
    point = BenchPoint(2, 3, 2)
    found = PointRunner(core, _model(), events).measure(point, is_held_out=True)
    assert [(len(one.token_ids), one.max_tokens) for one in core.running] == [(3, 2), (3, 2)]
    assert found == [
        Measured("decode", point, [StepSample(2, 8, 8, 0.1)], is_held_out=True),
        Measured("prompt", point, [StepSample(6, 6, 12, 0.2)], is_held_out=True),
    ]


def test_texts_that_are_embedded_have_no_decodes() -> None:
    events: queue.Queue[CoreEvent] = queue.Queue()
    core = SteppingCore(events)
    point = BenchPoint(2, 3, 2)
    runner = PointRunner(core, replace(_model(), task="embed"), events)
    assert runner.measure(point, is_held_out=False) == [
        Measured("prompt", point, [StepSample(6, 6, 12, 0.2), StepSample(2, 8, 8, 0.1)], is_held_out=False)
    ]
    assert [one.task for one in core.running] == ["embed", "embed"]


def test_a_vllm_that_dies_ends_the_profile() -> None:
    events: queue.Queue[CoreEvent] = queue.Queue()
    events.put(CoreDiedError("it was killed"))
    with pytest.raises(CoreDiedError):
        PointRunner(WrittenCore(), _model(), events).measure(BenchPoint(1, 3, 2), is_held_out=False)


def _model() -> LoadedModel:
    return replace(model(), vocab_size=2_000)
