"""Adapters that an engine's process is told to load, as its agent sees it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from transformers import LlamaForCausalLM

from gpu_node.engine.process.protocol.protocol import LoadModel, ModelLoaded, RunAttempt, Shutdown, StepReport
from shared.config.engines.adapters import AdapterSpec
from shared.config.engines.engine import ModelSpec
from tests.gpu_node import tiny
from tests.gpu_node.adapted_tiny import Adapted, adapted_tiny, asked
from tests.gpu_node.engine.process.agent_end import Agent
from tests.gpu_node.engine.process.test_process import started

CONFIG = """
models: [{{name: tiny, source: {path}, max_model_len: 128}}]
nodes: [{{name: node-0, executor: {executor}}}]
engine: {{kv_cache_bytes: 1048576, step_tokens: 16, max_num_seqs: 4}}
"""


@pytest.fixture
def adapted(tiny_model: LlamaForCausalLM, tiny_path: Path, tmp_path: Path) -> Adapted:
    return adapted_tiny(tiny_model, tiny_path, tmp_path)


class Listening:
    """At an agent's end: what has come of each request so far."""

    def __init__(self, agent: Agent, spec: ModelSpec) -> None:
        self._agent = agent
        self._spec = spec
        self.tokens: dict[str, list[int]] = {}
        self._ended: set[str] = set()

    def _next(self) -> ModelLoaded | None:
        event = self._agent.next()
        if isinstance(event, ModelLoaded):
            return event
        assert isinstance(event, StepReport)
        for chunk in event.chunks:
            assert not chunk.error
            self.tokens.setdefault(chunk.request_id, []).extend(chunk.token_ids)
            self._ended |= {chunk.request_id} if chunk.is_last else set()
        return None

    def load(self, *adapters: AdapterSpec) -> ModelLoaded:
        self._agent.send(LoadModel("tiny", replace(self._spec, adapters=adapters)))
        while (loaded := self._next()) is None:
            pass
        return loaded

    def until_end(self, *names: str) -> None:
        while not self._ended >= set(names):
            self._next()


@pytest.mark.parametrize("executor", ["reference", "cpu"])
def test_the_engine_has_those_that_it_is_told_and_goes_on(
    adapted: Adapted, tiny_path: Path, tmp_path: Path, executor: str
) -> None:
    """`cpu` prepares a model in a thread while requests of it run."""
    path = tmp_path / "treadle.yaml"
    path.write_text(CONFIG.format(path=tiny_path, executor=executor))
    legal, rhymes = adapted.spec.adapters
    broken = AdapterSpec("broken", str(tmp_path / "nowhere"))
    running, late = tiny.request("running", [5, 6, 7, 8, 9], 100), asked("legal", [5, 6, 7, 8, 9], 8, "late")
    with started(path) as agent:
        whole = Listening(agent, adapted.spec)
        assert whole.load(legal, rhymes).adapters == ("legal", "rhymes")
        agent.send(RunAttempt(running), RunAttempt(late))
        whole.until_end("running", "late")
    with started(path) as agent:
        heard = Listening(agent, adapted.spec)
        assert heard.load().adapters == ()
        agent.send(RunAttempt(running))
        first = heard.load(rhymes)
        assert (first.adapters, first.broken_adapters, first.load_s) == (("rhymes",), {}, 0.0)
        second = heard.load(legal, broken, rhymes)
        assert second.adapters == ("legal", "rhymes")
        assert list(second.broken_adapters) == ["broken"]
        assert "nowhere" in second.broken_adapters["broken"]
        agent.send(RunAttempt(late))
        heard.until_end("running", "late")
        agent.send(*(LoadModel("tiny", replace(adapted.spec, adapters=(one,))) for one in (legal, rhymes)), Shutdown())
        assert agent.exit_status() == 0
    assert heard.tokens == whole.tokens
