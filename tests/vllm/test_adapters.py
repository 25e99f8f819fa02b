"""A real vLLM with two adapters beside a model: each request gets the tokens of its own merged model.

In float32 on both sides: in bfloat16 sums hang too much on their order.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from gpu_node.engine.measures.counts import Counts
from gpu_node.engine.measures.stats import EngineStats
from gpu_node.engine.process.protocol.protocol import (
    Command,
    ModelFailed,
    ModelLoaded,
    Reset,
    RunAttempt,
    StepReport,
    TakenOut,
    TakeOut,
)
from gpu_node.engine.requests.image import Kept
from shared.messages.requests.payload import Payload
from tests.gpu_node import tiny
from tests.gpu_node.adapter_folders import ALL, save_adapter
from tests.gpu_node.engine.process.agent_end import Agent
from tests.vllm.made_models import VOCABULARY, write_plain
from tests.vllm.nodes import ready, request

NAMES = ("", "legal", "rhymes")
"""Of the model itself, and of its adapters."""
BLOCK_TOKENS = 128
MAX_MODEL_LEN = 512


class Odd(torch.nn.Module):
    """A layer with a module that no Llama has."""

    def __init__(self) -> None:
        super().__init__()
        self.r_proj = torch.nn.Linear(256, 256)


@dataclass(frozen=True)
class Adapted:
    """A model as a directory, its adapters, and all three as `transformers` has them merged."""

    folder: Path
    merged: dict[str, Any]

    def config(self, python: Path, folder: Path, num_ranks: int = 1) -> Path:
        """One node, and beside the model two whose last adapter is made for another."""
        source, adapters = (
            str(self.folder / "plain"),
            [{"name": name, "source": str(self.folder / name)} for name in NAMES[1:]],
        )
        models = [{"name": "smol", "source": source, "max_model_len": MAX_MODEL_LEN, "adapters": adapters}]
        for name in ("narrow", "odd"):
            right = [one | {"name": f"{name}-{one['name']}"} for one in adapters]
            wrong = {"name": name, "source": str(self.folder / name)}
            models.append({"name": f"smol-{name}", "source": source, "max_model_len": 64, "adapters": [*right, wrong]})
        vllm = {"python": str(python), "kv": "host", "args": ["--dtype", "float32"]}
        node = {"name": "node-0", "engine": "vllm", "tensor_parallel": num_ranks, "vllm": vllm}
        options = {"kv_cache_bytes": 16 << 20, "max_num_seqs": 16, "step_tokens": 64}
        path = folder / "treadle.yaml"
        path.write_text(yaml.safe_dump({"models": models, "nodes": [node], "engine": options}))
        return path


@pytest.fixture(scope="module")
def adapted(tmp_path_factory: pytest.TempPathFactory) -> Adapted:
    from transformers import LlamaConfig, LlamaForCausalLM

    folder = tmp_path_factory.mktemp("adapted")
    plain = LlamaForCausalLM.from_pretrained(write_plain(folder / "plain"), dtype=torch.float32)
    merged: dict[str, Any] = {"": plain}
    merged["legal"] = save_adapter(plain, folder / "legal", ALL, rank=6, seed=1, rank_pattern={"down_proj": 12})
    merged["rhymes"] = save_adapter(plain, folder / "rhymes", ALL[:4], rank=3, seed=2, use_rslora=True)
    shape = json.loads((folder / "plain" / "config.json").read_text()) | {"hidden_size": 128}
    save_adapter(LlamaForCausalLM(LlamaConfig(**shape)), folder / "narrow", ALL, seed=3)
    odd = torch.nn.ModuleDict({"model": torch.nn.ModuleDict({"layers": torch.nn.ModuleList([Odd()])})})
    save_adapter(odd, folder / "odd", ["r_proj"], seed=4)
    return Adapted(folder, merged)


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


def text(seed: int, num_tokens: int) -> list[int]:
    return [(seed * 131 + place * place * 7 + place) % (VOCABULARY - 3) + 3 for place in range(num_tokens)]


def asked(adapter: str, prompt: list[int], num_tokens: int = 12, name: str = "", **more: Any) -> Payload:
    return replace(request(name or f"of {adapter}", prompt, num_tokens, **more), adapter=adapter)


class Heard:
    """Tokens by request, and the state behind them."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self.tokens: dict[str, list[int]] = {}
        self.ended: set[str] = set()
        self.stats: EngineStats | None = None

    def next(self) -> Any:
        event = self._agent.next()
        if isinstance(event, StepReport):
            self.stats = event.stats
            for chunk in event.chunks:
                assert chunk.error == ""
                self.tokens.setdefault(chunk.request_id, []).extend(chunk.token_ids)
                if chunk.is_last:
                    self.ended.add(chunk.request_id)
        return event

    @property
    def counts(self) -> Counts:
        assert self.stats is not None
        return self.stats.counts

    def to_the_end(self, *payloads: Payload) -> list[list[int]]:
        commands: list[Command] = [RunAttempt(one) for one in payloads]
        self._agent.send(*commands)
        names = [one.request_id for one in payloads]
        while not self.ended >= set(names):
            self.next()
        return [self.tokens[name] for name in names]


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


def test_a_model_with_an_adapter_that_cannot_be_used_is_not_served_and_nothing_else_changes(
    agent: Agent, adapted: Adapted
) -> None:
    narrow = agent.load("smol-narrow")
    assert isinstance(narrow, ModelFailed)
    assert "adapter 'narrow': " in narrow.error
    assert "narrow/adapter_model.safetensors" in narrow.error
    assert ", of a weight of shape (" in narrow.error
    odd = agent.load("smol-odd")
    assert isinstance(odd, ModelFailed)
    assert "\n" not in odd.error
    assert "r_proj" in odd.error, "vLLM's own reason"
    (output,) = Heard(agent).to_the_end(asked("legal", text(1, 9)))
    assert output == tiny.greedy(adapted.merged["legal"], text(1, 9), 12)[0]


def test_two_ranks_share_adapters(adapted: Adapted, vllm_python: Path, tmp_path: Path) -> None:
    with ready(adapted.config(vllm_python, tmp_path, num_ranks=2), vllm_python) as agent:
        assert isinstance(agent.load("smol"), ModelLoaded)
        check_batch(agent, adapted)
