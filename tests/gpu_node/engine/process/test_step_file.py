"""What an engine learns and writes down of its steps, on a clock that the test turns."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpu_node.engine.engine import Engine
from gpu_node.engine.process.step_file import STEP_LOG_ENV, StepFile, StepLine, open_step_file, read_steps
from gpu_node.executors.predicted.executor import PredictedExecutor
from gpu_node.executors.predicted.paced import Clock, PacedExecutor
from shared.config.engines.engine import EngineOptions, ModelSpec
from shared.messages.nodes.step_cost import StepCost
from shared.messages.requests.payload import Payload, Sampling

OPTIONS = EngineOptions(kv_cache_bytes=1 << 20, async_scheduling=False)
STEP_S, HOST_S = 2.0, 0.5


class Constant(PredictedExecutor):
    """Any step takes two seconds, loading none."""

    def __init__(self) -> None:
        super().__init__(StepCost(STEP_S, 0.0, 0.0), OPTIONS, token_kv_bytes=64, vocab_size=50)

    def load_s(self, spec: ModelSpec) -> float:
        return 0.0


class Host:
    """An engine, and a host that takes half a second for each of its steps."""

    def __init__(self, file: StepFile | None = None) -> None:
        self.time_s = 0.0
        executor = PacedExecutor(Constant(), Clock(lambda: self.time_s, self._pass))
        self.engine = Engine(executor, OPTIONS, step_log=file)
        self.engine.load_model(ModelSpec(name="m", source="none", max_model_len=64))

    def _pass(self, duration_s: float) -> None:
        self.time_s += duration_s

    def answer(self, request_id: str, num_tokens: int) -> None:
        payload = Payload(request_id, 0, "g", "m", [1, 2, 3], Sampling(max_tokens=num_tokens, temperature=0.0))
        self.engine.add(payload)
        while self.engine.has_work:
            self.engine.step(self.time_s)
            self._pass(HOST_S)

    @property
    def cost(self) -> StepCost:
        cost = self.engine.stats().cost
        assert cost is not None
        return cost


def test_what_the_device_waits_for_the_host_is_part_of_what_steps_cost() -> None:
    host = Host()
    host.answer("a", num_tokens=40)
    assert host.cost.predict_s(1, 20, 20) == pytest.approx(STEP_S + HOST_S, rel=0.01)


def test_what_it_waits_for_work_is_not() -> None:
    host = Host()
    for number in range(40):
        host.answer(str(number), num_tokens=1)
        host.time_s += 60.0
    assert host.cost.predict_s(3, 3, 6) == pytest.approx(STEP_S)


def test_each_step_is_a_line(tmp_path: Path) -> None:
    with (tmp_path / "n.jsonl").open("wb") as lines:
        Host(StepFile(lines, clock=lambda: 7.0)).answer("a", num_tokens=2)
    prompt, decode = read_steps((tmp_path / "n.jsonl").read_bytes().splitlines())
    assert prompt == StepLine(7.0, "m", 1, 3, 3, 6, STEP_S, 0.0, follows=False, num_restored=0)
    assert decode == StepLine(7.0, "m", 1, 1, 4, 4, STEP_S, HOST_S, follows=True, num_restored=0)


def test_the_environment_says_where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(STEP_LOG_ENV, raising=False)
    assert open_step_file("node-3") is None
    monkeypatch.setenv(STEP_LOG_ENV, str(tmp_path))
    file = open_step_file("node-3")
    assert file is not None
    Host(file).answer("a", num_tokens=2)
    file.close()
    assert len(read_steps((tmp_path / "node-3.jsonl").read_bytes().splitlines())) == 2


def test_a_file_does_not_grow_for_ever(tmp_path: Path) -> None:
    with (tmp_path / "n.jsonl").open("wb") as lines:
        Host(StepFile(lines, clock=lambda: 7.0, max_steps=3)).answer("a", num_tokens=9)
    assert len((tmp_path / "n.jsonl").read_bytes().splitlines()) == 3
