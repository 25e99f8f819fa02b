"""A real vLLM with two adapters beside a model: each request gets the tokens of its own merged model.

In float32 on both sides: in bfloat16 sums hang too much on their order.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from gpu_node.engine.process.protocol.protocol import (
    ModelLoaded,
    Reset,
    RunAttempt,
    TakenOut,
    TakeOut,
)
from gpu_node.engine.requests.image import Kept
from tests.gpu_node import tiny
from tests.gpu_node.engine.process.agent_end import Agent
from tests.vllm.adapted import BLOCK_TOKENS, NAMES, Adapted, Heard, asked, make_adapted, text
from tests.vllm.nodes import ready


@pytest.fixture(scope="module")
def adapted(tmp_path_factory: pytest.TempPathFactory) -> Adapted:
    return make_adapted(tmp_path_factory.mktemp("adapted"))


@pytest.fixture(scope="module")
def running(adapted: Adapted, vllm_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    with ready(adapted.config(vllm_python, tmp_path_factory.mktemp("node")), vllm_python) as agent:
        yield agent


@pytest.fixture
def agent(running: Agent) -> Agent:
    running.send(Reset())
    running.next()
    assert isinstance(running.load("smol"), ModelLoaded)
    return running


def check_batch(agent: Agent, adapted: Adapted) -> None:
    """Prompts of all kinds and lengths together; rows of the model itself behind and before those of adapters."""
    payloads = [asked(NAMES[number % 3], text(number, 9 + 5 * number), name=str(number)) for number in range(9)]
    outputs = Heard(agent).to_the_end(*payloads)
    assert outputs == [tiny.greedy(adapted.merged[one.adapter], one.prompt_token_ids, 12)[0] for one in payloads]
    alone = [Heard(agent).to_the_end(asked(name, text(0, 9)))[0] for name in NAMES]
    assert alone == [tiny.greedy(adapted.merged[name], text(0, 9), 12)[0] for name in NAMES]
    assert len({tuple(output) for output in alone}) == 3


def test_one_batch_gives_what_merged_models_give(agent: Agent, adapted: Adapted) -> None:
    check_batch(agent, adapted)


def test_a_prefix_is_found_by_its_own_adapter_alone(agent: Agent, adapted: Adapted) -> None:
    prompt, found = text(20, 2 * BLOCK_TOKENS + 9), {}
    for number in range(2):
        for name in NAMES:
            heard = Heard(agent)
            heard.to_the_end(asked("", text(9, 9), 1, name="before"))  # says what was found until now
            before = heard.counts.first_cached_tokens
            (output,) = heard.to_the_end(asked(name, prompt, name=f"{name} {number}"))
            assert output == tiny.greedy(adapted.merged[name], prompt, 12)[0]
            found[name, number] = heard.counts.first_cached_tokens - before
    whole = 2 * BLOCK_TOKENS
    assert found == {(name, number): number * whole for number in range(2) for name in NAMES}


def test_a_prefix_is_found_in_its_own_partition_alone(agent: Agent, adapted: Adapted) -> None:
    prompt, partitions = text(40, 2 * BLOCK_TOKENS + 9), ("", "0f" * 16, "f0" * 16)
    whose = [(name, partition) for name in NAMES[:2] for partition in partitions]
    heard, found = Heard(agent), []
    heard.to_the_end(asked("", text(9, 9), 1, name="before"))  # says what was found until now
    for number in range(2):
        for name, partition in whose:
            before = heard.counts.first_cached_tokens
            payload = replace(asked(name, prompt, name=f"{name} {partition} {number}"), partition=partition)
            assert heard.to_the_end(payload) == [tiny.greedy(adapted.merged[name], prompt, 12)[0]]
            found.append(heard.counts.first_cached_tokens - before)
    assert found == [0] * len(whose) + [2 * BLOCK_TOKENS] * len(whose)


def test_an_evicted_request_goes_on_under_its_adapter(agent: Agent, adapted: Adapted) -> None:
    """With its own KV, though the same prompt lies in the cache as others read it."""
    prompt = text(30, BLOCK_TOKENS + 40)
    heard = Heard(agent)
    heard.to_the_end(*(asked(name, prompt) for name in NAMES[:2]))
    payload = asked("rhymes", prompt, 30)
    agent.send(RunAttempt(payload))
    while len(heard.tokens.get(payload.request_id, [])) < 5:
        heard.next()
    agent.send(TakeOut([payload.request_id]))
    event = heard.next()
    while not isinstance(event, TakenOut):
        event = heard.next()
    num_known = len(prompt) + len(heard.tokens[payload.request_id])
    assert event.requests == [Kept(payload.request_id, num_known - 1)]
    before = heard.counts.restored_tokens
    assert heard.to_the_end(payload) == [tiny.greedy(adapted.merged["rhymes"], prompt, 30)[0]]
    assert heard.counts.restored_tokens - before == num_known - 1


def test_an_adapter_that_the_model_has_not_is_refused(agent: Agent) -> None:
    agent.send(RunAttempt(asked("poems", text(1, 9))))
    (chunk,) = agent.steps_until_end("of poems")[-1].chunks
    assert (chunk.finish_reason, chunk.error) == ("refused", "'smol' has no adapter 'poems' at this node")


def test_a_model_is_served_without_adapters_that_cannot_be_used(agent: Agent, adapted: Adapted) -> None:
    """Whether their files say so, or vLLM: its processes go on."""
    for name, problem in (("narrow", ", of a weight of shape ("), ("odd", "r_proj")):
        loaded = agent.load(f"smol-{name}")
        assert isinstance(loaded, ModelLoaded)
        assert loaded.adapters == (f"{name}-legal", f"{name}-rhymes")
        (told,) = loaded.broken_adapters.values()
        assert told.startswith(f"adapter {name!r}: ")
        assert "\n" not in told
        assert problem in told
        payload = replace(asked(f"{name}-legal", text(1, 9)), model=f"smol-{name}")
        assert Heard(agent).to_the_end(payload) == [tiny.greedy(adapted.merged["legal"], text(1, 9), 12)[0]]


def test_two_ranks_share_adapters(adapted: Adapted, vllm_python: Path, tmp_path: Path) -> None:
    with ready(adapted.config(vllm_python, tmp_path, num_ranks=2), vllm_python) as agent:
        assert isinstance(agent.load("smol"), ModelLoaded)
        check_batch(agent, adapted)
