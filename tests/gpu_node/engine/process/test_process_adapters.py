"""Adapters that an engine's process is told to load, as its agent sees it."""

from __future__ import annotations

from pathlib import Path

import pytest
from transformers import LlamaForCausalLM

from gpu_node.engine.process.protocol import LoadModel, ModelLoaded, RunAttempt, StepReport
from shared.config.engines.adapters import AdapterSpec
from tests.gpu_node import tiny
from tests.gpu_node.adapted_tiny import Adapted, adapted_tiny, asked
from tests.gpu_node.engine.process.agent_end import Agent
from tests.gpu_node.engine.process.test_process import started

CONFIG = """
models: [{{name: tiny, source: {path}, max_model_len: 128}}]
nodes: [{{name: node-0, executor: reference}}]
engine: {{kv_cache_bytes: 1048576, step_tokens: 16, max_num_seqs: 4}}
"""


@pytest.fixture
def adapted(tiny_model: LlamaForCausalLM, tiny_path: Path, tmp_path: Path) -> Adapted:
    return adapted_tiny(tiny_model, tiny_path, tmp_path)


def until_loaded(agent: Agent, tokens: dict[str, list[int]]) -> ModelLoaded:
    while True:
        event = agent.next()
        if isinstance(event, ModelLoaded):
            return event
        assert isinstance(event, StepReport)
        for chunk in event.chunks:
            tokens.setdefault(chunk.request_id, []).extend(chunk.token_ids)


def test_the_engine_has_those_that_it_is_told_and_goes_on(adapted: Adapted, tiny_path: Path, tmp_path: Path) -> None:
    path = tmp_path / "treadle.yaml"
    path.write_text(CONFIG.format(path=tiny_path))
    legal, rhymes = adapted.spec.adapters
    broken = AdapterSpec("broken", str(tmp_path / "nowhere"))
    tokens: dict[str, list[int]] = {}
    text = [5, 6, 7, 8, 9]
    with started(path) as agent:
        agent.send(LoadModel("tiny"))
        assert until_loaded(agent, tokens).adapters == ()
        agent.send(RunAttempt(tiny.request("running", text, 40)), LoadModel("tiny", (rhymes,)))
        first = until_loaded(agent, tokens)
        assert (first.adapters, first.broken_adapters, first.load_s) == (("rhymes",), {}, 0.0)
        agent.send(LoadModel("tiny", (legal, broken, rhymes)), RunAttempt(asked("legal", text, 8, "late")))
        second = until_loaded(agent, tokens)
        assert second.adapters == ("legal", "rhymes")
        assert list(second.broken_adapters) == ["broken"]
        assert "nowhere" in second.broken_adapters["broken"]
        for name in ("late", "running"):
            if len(tokens.get(name, [])) < {"late": 8, "running": 40}[name]:
                for report in agent.steps_until_end(name):
                    for chunk in report.chunks:
                        tokens.setdefault(chunk.request_id, []).extend(chunk.token_ids)
    assert tokens["running"] == tiny.greedy(adapted.merged[""], text, 40)[0]
    assert tokens["late"] == tiny.greedy(adapted.merged["legal"], text, 8)[0]
