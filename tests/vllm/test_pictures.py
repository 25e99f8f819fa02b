"""A real vLLM and a model that reads images: the tokens are those of vLLM alone, and images share no cache.

In float32: in bfloat16 sums hang too much on what is computed together.
"""

from __future__ import annotations

import base64
import json
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import yaml

from gateway.endpoints.chats.chat_prompt import encode_messages
from gateway.models.models import ServedModel, load_models
from gateway.openai.requests.chat_messages import ChatMessage
from gpu_node.engine.process.protocol.protocol import ModelLoaded, Reset, RunAttempt, StepReport, TakenOut, TakeOut
from shared.config.config import load_config
from shared.messages.requests.payload import Payload
from shared.messages.requests.pictures import Picture
from tests.gpu_node.engine.process.agent_end import Agent
from tests.vllm.nodes import chunks_until_end, ready, request, tokens_of
from tests.vllm.picture_models import image_file, write_idefics

MAX_MODEL_LEN = 512
MAX_TOKENS = 8
KV_BYTES = 32 << 20
BLOCK_TOKENS = 128  # vLLM's on processors
SHORT = "what is there?"
LONG = f"{SHORT} " * 10
SIZES = ((48, 40), (20, 90), (300, 300), (64, 7))


@pytest.fixture(scope="module")
def eyes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_idefics(tmp_path_factory.mktemp("models") / "eyes")


@pytest.fixture(scope="module")
def eyes_config(eyes: Path, vllm_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    vllm = {"python": str(vllm_python), "kv": "host", "args": ["--dtype", "float32"]}
    config = {
        "models": [{"name": "smol", "source": str(eyes), "max_model_len": MAX_MODEL_LEN}],
        "nodes": [{"name": "node-0", "engine": "vllm", "vllm": vllm}],
        "engine": {"kv_cache_bytes": KV_BYTES, "max_num_seqs": 8, "step_tokens": 64},
    }
    path = tmp_path_factory.mktemp("node") / "treadle.yaml"
    path.write_text(yaml.safe_dump(config))
    return path


@pytest.fixture(scope="module")
def served(eyes_config: Path) -> ServedModel:
    """As the gateway has it."""
    return load_models(load_config(eyes_config))["smol"]


@pytest.fixture(scope="module")
def running(eyes_config: Path, vllm_python: Path) -> Iterator[Agent]:
    with ready(eyes_config, vllm_python) as agent:
        yield agent


@pytest.fixture
def agent(running: Agent) -> Agent:
    running.send(Reset())
    running.next()
    assert isinstance(running.load("smol"), ModelLoaded)
    return running


def chat(seed: int, size: tuple[int, int] = (48, 40), text: str = SHORT) -> list[dict[str, Any]]:
    """A turn with a text, an image and a text."""
    url = f"data:image/png;base64,{base64.b64encode(image_file(seed, size)).decode()}"
    parts = [{"type": "text", "text": "look: "}, {"type": "image_url", "image_url": {"url": url}}]
    return [{"role": "user", "content": [*parts, {"type": "text", "text": text}]}]


def pictured(
    served: ServedModel,
    name: str,
    seed: int,
    size: tuple[int, int] = (48, 40),
    max_tokens: int = MAX_TOKENS,
    text: str = SHORT,
    **more: Any,
) -> Payload:
    """What the gateway makes of such a chat."""
    prompt = encode_messages([ChatMessage.model_validate(one) for one in chat(seed, size, text)], served)
    content = image_file(seed, size)
    assert served.pictures is not None
    picture = Picture(sha256(content).hexdigest(), *size, served.pictures.count(*size), content)
    return replace(request(name, prompt, max_tokens, **more), pictures=[picture])


def drawn(agent: Agent, payload: Payload) -> tuple[list[int], int | None]:
    """Its tokens, and how many of its prompt were cached."""
    agent.send(RunAttempt(payload))
    chunks = chunks_until_end(agent, payload.request_id)
    assert [chunk.error for chunk in chunks if chunk.error] == []
    return tokens_of(chunks), chunks[0].cached_tokens


def test_tokens_are_those_of_vllm_alone(agent: Agent, served: ServedModel, eyes: Path, vllm_python: Path) -> None:
    """Of images of several shapes; the gateway counts what vLLM computes, exactly, or a little more."""
    chats = [chat(seed, size) for seed, size in enumerate(SIZES)]
    program = [str(vllm_python), str(Path(__file__).parent / "chat_alone.py"), str(eyes), str(KV_BYTES)]
    asked = json.dumps({"max_tokens": MAX_TOKENS, "chats": chats})
    done = subprocess.run([*program, str(MAX_MODEL_LEN)], input=asked.encode(), capture_output=True, check=True)
    alone = json.loads(done.stdout)
    payloads = [pictured(served, f"r{seed}", seed, size) for seed, size in enumerate(SIZES)]
    assert [drawn(agent, payload)[0] for payload in payloads] == [one["tokens"] for one in alone]
    for payload, one in zip(payloads, alone, strict=True):
        assert 0 <= payload.num_prompt_tokens - len(one["prompt"]) <= 3
    assert len({tuple(one["tokens"]) for one in alone}) == len(SIZES)


def test_another_image_shares_no_cache_and_the_same_one_does(agent: Agent, served: ServedModel) -> None:
    """Prompts of the same tokens, of more than one of vLLM's blocks: the image lies in the first."""
    asked = [pictured(served, name, seed, text=LONG) for name, seed in (("a", 11), ("b", 11), ("c", 12))]
    assert len({tuple(payload.prompt_token_ids) for payload in asked}) == 1
    assert 2 * BLOCK_TOKENS > asked[0].num_prompt_tokens > BLOCK_TOKENS
    (first, none), (again, found), (other, nothing) = (drawn(agent, payload) for payload in asked)
    assert (none, found, nothing) == (0, BLOCK_TOKENS, 0)
    assert again == first
    assert other != first


def test_who_was_evicted_goes_on_with_its_image(agent: Agent, served: ServedModel) -> None:
    """Here, with the KV that was kept, and from the beginning, as another attempt."""
    whole, _ = drawn(agent, pictured(served, "whole", 21, max_tokens=60))
    agent.send(RunAttempt(pictured(served, "r", 21, max_tokens=60)))
    had: list[int] = []
    while len(had) < 5:
        event = agent.next()
        assert isinstance(event, StepReport)
        had += [token for chunk in event.chunks for token in chunk.token_ids]
    agent.send(TakeOut(["r"]))
    while not isinstance(event := agent.next(), TakenOut):
        assert isinstance(event, StepReport)
        had += [token for chunk in event.chunks for token in chunk.token_ids]
    (kept,) = event.requests
    assert kept.kv_tokens > 0
    rest, _ = drawn(agent, pictured(served, "r", 21, max_tokens=60))
    assert had + rest == whole
    lost = pictured(served, "s", 21, max_tokens=60, output=had, attempt=1)
    assert drawn(agent, lost)[0] == whole[len(had) :]


def test_what_cannot_be_read_ends_its_request_alone(agent: Agent, served: ServedModel) -> None:
    good = pictured(served, "good", 31)
    bad = replace(good, request_id="bad", pictures=[replace(good.pictures[0], content=b"GIF89a")])
    short = replace(good, request_id="short", pictures=[replace(good.pictures[0], num_tokens=5)])
    for payload, why in ((bad, "the images cannot be read"), (short, "and was let in with")):
        agent.send(RunAttempt(payload))
        (chunk,) = chunks_until_end(agent, payload.request_id)
        assert chunk.finish_reason == "refused"
        assert why in chunk.error
    assert len(drawn(agent, good)[0]) == MAX_TOKENS
