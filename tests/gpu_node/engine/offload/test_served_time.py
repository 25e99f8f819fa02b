"""What a device does for others in a step is no cost of that step: a node's predictions are of its own work."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from gpu_node.engine.border.executor import PendingStep
from gpu_node.engine.border.plan import StepPlan, StepResult
from gpu_node.engine.engine import Engine
from gpu_node.executors.reference.executor import ReferenceExecutor
from shared.config.engines.engine import EngineOptions, ModelSpec
from shared.messages.nodes.step_cost import StepCost
from tests.gpu_node import tiny
from tests.gpu_node.workload import prompt

OPTIONS = EngineOptions(kv_cache_bytes=1 << 20)
OWN_S = 1.0


@dataclass(frozen=True, slots=True)
class _ServedStep:
    inner: PendingStep
    served_s: float

    def result(self) -> StepResult:
        return replace(self.inner.result(), duration_s=OWN_S + self.served_s, served_s=self.served_s, idle_s=0.0)


class Serving(ReferenceExecutor):
    """Its steps take a second, and in each it does others' attention for so long beside."""

    served_s = 0.0

    def submit(self, plan: StepPlan) -> _ServedStep:  # type: ignore[override]
        return _ServedStep(super().submit(plan), self.served_s)


def learnt(path: Path, served_s: float) -> StepCost | None:
    executor = Serving(OPTIONS)
    executor.served_s = served_s
    engine = Engine(executor, OPTIONS)
    engine.load_model(ModelSpec(name="tiny", source=str(path), max_model_len=tiny.CONTEXT))
    tiny.run(engine, [tiny.request(str(number), prompt(number, 5 + number), 30) for number in range(4)])
    assert (engine.stats().served_s > 0) is (served_s > 0)
    return engine.stats().cost


def test_what_is_learnt_of_steps_leaves_out_what_others_took(tiny_path: Path) -> None:
    alone = learnt(tiny_path, 0.0)
    assert alone is not None
    assert learnt(tiny_path, 2.0) == alone
