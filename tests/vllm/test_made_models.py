"""What vLLM serves and Treadle's engine does not, behind Treadle: two ranks on processors, weights stored in int8."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from gpu_node.engine.process.protocol.protocol import (
    EngineReady,
    ModelLoaded,
    RunAttempt,
    StepReport,
    TakenOut,
    TakeOut,
)
from gpu_node.engine.requests.image import Kept
from tests.e2e.cluster import wait_for
from tests.gpu_node.engine.process.agent_end import Agent, process_of
from tests.vllm.made_models import next_logprobs, write_plain, write_quantized
from tests.vllm.nodes import TIMEOUT_S, chunks_until_end, left, request, shared_by, tokens_of

PROMPT = list(range(100, 140))
MAX_ERROR = {False: 0.1, True: 0.5}
"""Of a logprob, beside float32, by whether weights are int8: activations are rounded to bfloat16, and there to int8, on
processors without VNNI by sums that saturate (.31 was seen). Wrong scales, or none, would be off by units."""


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_plain(tmp_path_factory.mktemp("made") / "plain")


@contextmanager
def served(folder: Path, model: Path, python: Path, num_ranks: int) -> Iterator[Agent]:
    config = {
        "models": [{"name": "smol", "source": str(model), "max_model_len": 256}],
        "nodes": [
            {
                "name": "node-0",
                "engine": "vllm",
                "tensor_parallel": num_ranks,
                "vllm": {"python": str(python), "kv": "host"},
            }
        ],
        "engine": {"kv_cache_bytes": 8 << 20, "max_num_seqs": 4, "step_tokens": 64},
    }
    path = folder / "treadle.yaml"
    path.write_text(yaml.safe_dump(config))
    with process_of(path, (str(python), "-m", "gpu_node.vllm"), TIMEOUT_S) as agent:
        assert isinstance(agent.next(), EngineReady)
        loaded = agent.load("smol")
        assert isinstance(loaded, ModelLoaded), loaded
        shared = shared_by(agent.process.pid)
        yield agent
    assert left(agent.process.pid) == []
    wait_for("what it shared is given back", lambda: not any(path.exists() for path in shared))


def check_first_logprobs(agent: Agent, plain: Path, *, is_quantized: bool) -> None:
    wanted = next_logprobs(plain, PROMPT, is_quantized=is_quantized)
    agent.send(RunAttempt(request("first", PROMPT, 1, num_logprobs=5)))
    (chunk,) = chunks_until_end(agent, "first")
    (found,) = chunk.logprobs
    assert len(found.top) == 5
    for token, logprob in found.top:
        assert abs(wanted[token].item() - logprob) < MAX_ERROR[is_quantized]
    assert wanted[chunk.token_ids[0]] > wanted.max() - MAX_ERROR[is_quantized]


def test_two_ranks_share_a_model_and_each_keeps_its_part_of_an_evicted_request(
    plain: Path, vllm_python: Path, tmp_path: Path
) -> None:
    with served(tmp_path, plain, vllm_python, num_ranks=2) as agent:
        check_first_logprobs(agent, plain, is_quantized=False)
        agent.send(RunAttempt(request("whole", PROMPT, 30)))
        whole = tokens_of(chunks_until_end(agent, "whole"))
        agent.send(RunAttempt(request("e", PROMPT, 30)))
        had: list[int] = []
        event = agent.next()
        while not isinstance(event, TakenOut):
            if isinstance(event, StepReport):
                had += [token for chunk in event.chunks for token in chunk.token_ids]
                if len(had) == 3 and event.chunks:
                    agent.send(TakeOut(["e"]))
            event = agent.next()
        assert event.requests == [Kept("e", len(PROMPT) + len(had) - 1)]
        agent.send(RunAttempt(request("e", PROMPT, 30)))
        assert had + tokens_of(chunks_until_end(agent, "e")) == whole


def test_weights_that_are_stored_in_int8(plain: Path, vllm_python: Path, tmp_path: Path) -> None:
    model = write_quantized(plain, tmp_path / "int8")
    with served(tmp_path, model, vllm_python, num_ranks=1) as agent:
        check_first_logprobs(agent, plain, is_quantized=True)
