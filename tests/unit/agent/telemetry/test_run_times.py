"""The times of runs, under the names of vLLM; seconds are given in, so they are exact."""

from __future__ import annotations

import itertools

import pytest
from prometheus_client import REGISTRY

from gpu_node.agent.decisions.actions import Publish
from gpu_node.agent.telemetry.run_times import RunTimes
from shared.messages.requests.requests import Chunk, EvictedRequest, FinishedRequest, Tokens
from tests.unit.agent.events import payload_of, tokens

_names = (f"timed-{number}" for number in itertools.count())

TTFT = "vllm:time_to_first_token_seconds"
TOKEN = "vllm:inter_token_latency_seconds"
E2E = "vllm:e2e_request_latency_seconds"


@pytest.fixture
def model() -> str:
    """One that nobody has counted for yet."""
    return next(_names)


def observed(name: str, model: str) -> tuple[float | None, float | None]:
    """How often, and the sum."""
    labels = {"model_name": model}
    return REGISTRY.get_sample_value(f"{name}_count", labels), REGISTRY.get_sample_value(f"{name}_sum", labels)


def counted(name: str, model: str) -> float | None:
    return REGISTRY.get_sample_value(name, {"model_name": model})


def publish(*chunks: Chunk, finished: str = "") -> Publish:
    ends = [FinishedRequest(finished, 0, "stop", 3)] if finished else []
    return Publish({"gw": Tokens(node="n0", chunks=list(chunks))}, finished=ends)


def test_a_run_has_a_first_token_gaps_and_an_end(model: str) -> None:
    times = RunTimes()
    times.begin(payload_of("r0", model=model), 10.0)
    times.publish(publish(tokens("r0", 5)), 12.0)
    times.publish(publish(tokens("r0", 6, index=1)), 12.25)
    times.publish(publish(tokens("r0", 7, index=2, finish_reason="stop"), finished="r0"), 13.0)
    assert observed(TTFT, model) == (1, 2.0)
    assert observed(TOKEN, model) == (2, 1.0)
    assert observed(E2E, model) == (1, 3.0)
    assert (counted("vllm:prompt_tokens_total", model), counted("vllm:generation_tokens_total", model)) == (2, 3)


def test_the_choices_of_a_request_have_one_first_token_and_gaps_of_their_own(model: str) -> None:
    times = RunTimes()
    times.begin(payload_of("r0", model=model), 0.0)
    times.publish(publish(tokens("r0", 5, choice=1), tokens("r0", 6)), 1.0)
    times.publish(publish(tokens("r0", 7, index=1, choice=1)), 3.0)
    assert observed(TTFT, model) == (1, 1.0)
    assert observed(TOKEN, model) == (1, 2.0)


def test_a_resumed_answer_had_its_first_token_before(model: str) -> None:
    times = RunTimes()
    times.begin(payload_of("r0", 1, model=model, output=[5, 6]), 0.0)
    times.publish(publish(tokens("r0", 7, attempt=1, index=2)), 4.0)
    assert observed(TTFT, model) == (0, 0)
    assert counted("vllm:prompt_tokens_total", model) == 0
    assert counted("vllm:generation_tokens_total", model) == 1


def test_what_is_evicted_or_taken_back_does_not_end_here(model: str) -> None:
    times = RunTimes()
    for name in ("r0", "r1"):
        times.begin(payload_of(name, model=model), 0.0)
    times.publish(Publish(evicted=[EvictedRequest("r0", 0, 2, 9, "n0")]), 1.0)
    times.drop(["r1", "unknown"])
    for name in ("r0", "r1"):
        times.publish(publish(tokens(name, 7, finish_reason="stop"), finished=name), 2.0)
    assert observed(E2E, model) == (0, 0)


def test_a_text_that_is_embedded_has_a_prompt_and_an_end_and_no_tokens(model: str) -> None:
    times = RunTimes()
    times.begin(payload_of("r0", model=model), 10.0)
    pooled = Chunk("r0", 0, 0, [], "stop", is_last=True, embedding=bytes(8))
    times.publish(publish(pooled, finished="r0"), 12.0)
    assert (counted("vllm:prompt_tokens_total", model), counted("vllm:generation_tokens_total", model)) == (2, 0)
    assert REGISTRY.get_sample_value("treadle_node_pooled_texts_total", {"model": model}) == 1
    assert observed(E2E, model) == (1, 2.0)
    assert (observed(TTFT, model), observed(TOKEN, model)) == ((0, 0), (0, 0))


def test_answers_are_no_pooled_texts(model: str) -> None:
    times = RunTimes()
    times.begin(payload_of("r0", model=model), 0.0)
    times.publish(publish(tokens("r0", 5, finish_reason="stop"), finished="r0"), 1.0)
    assert REGISTRY.get_sample_value("treadle_node_pooled_texts_total", {"model": model}) == 0
