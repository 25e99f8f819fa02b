"""The engine as its agent sees it: a process at the other end of a socket pair."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from transformers import LlamaForCausalLM

from gpu_node.engine.process.protocol.protocol import (
    AbortRequests,
    EngineReady,
    EngineRefused,
    HandOverImages,
    Image,
    LoadModel,
    ModelFailed,
    ModelLoaded,
    ReleaseImages,
    Reset,
    RunAttempt,
    Shutdown,
    StepReport,
    TakenOut,
    TakeOut,
)
from gpu_node.engine.requests.image import Kept
from shared.messages.requests.requests import Chunk
from tests.gpu_node import tiny
from tests.gpu_node.engine.process.agent_end import Agent, process_of

CONFIG = """
models:
  - {{name: tiny, source: {path}, max_model_len: 64}}
  - {{name: corrupt, source: {corrupt}, max_model_len: 64}}
  - {{name: changed, source: {path}, max_model_len: 64, sha256: "{zeros}"}}
  - {{name: long, source: {path}, max_model_len: 128}}
nodes: [{{name: node-0, executor: reference}}]
engine: {{kv_cache_bytes: 1048576, step_tokens: 16, max_num_seqs: 4}}
"""


@pytest.fixture(scope="module")
def config_path(tiny_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("engine")
    corrupt = folder / "corrupt.gguf"
    corrupt.write_bytes(tiny_path.read_bytes()[:1000])
    path = folder / "treadle.yaml"
    path.write_text(CONFIG.format(path=tiny_path, corrupt=corrupt, zeros="0" * 64))
    return path


@pytest.fixture(scope="module")
def without_torch(config_path: Path) -> Path:
    """The same on a processor, for processes of one test each: to import torch takes longer than all they do."""
    path = config_path.with_name("processor.yaml")
    path.write_text(config_path.read_text().replace("executor: reference", "executor: cpu"))
    return path


@contextmanager
def started(config_path: Path, device: str = "cpu") -> Iterator[Agent]:
    """One that is ready."""
    with process_of(config_path) as agent:
        assert agent.next() == EngineReady(device)
        yield agent


@pytest.fixture(scope="module")
def running(config_path: Path) -> Iterator[Agent]:
    """One process for the tests that leave it alive; its start takes seconds."""
    with started(config_path) as agent:
        yield agent


@pytest.fixture
def agent(running: Agent) -> Agent:
    """The process with the tiny model and no requests."""
    running.send(Reset())
    running.next()
    loaded = running.load("tiny")
    assert isinstance(loaded, ModelLoaded)
    return running


def test_a_model_is_loaded_and_a_request_answered(agent: Agent, tiny_model: LlamaForCausalLM) -> None:
    text = list(range(10, 40))
    agent.send(RunAttempt(tiny.request("a", text, 6)))
    steps = agent.steps_until_end("a")
    chunks = [chunk for step in steps for chunk in step.chunks]
    assert [chunk.index for chunk in chunks] == [0, 1, 2, 3, 4, 5]
    assert [token for chunk in chunks for token in chunk.token_ids] == tiny.greedy(tiny_model, text, 6)[0]
    assert chunks[-1].finish_reason == "length"
    assert all(step.chunks for step in steps[1:]), "after the answer to Run, only steps with new tokens are told"
    assert steps[-1].stats.num_running == 0


def test_what_a_loaded_model_says_of_itself(agent: Agent) -> None:
    loaded = agent.load("tiny")
    assert isinstance(loaded, ModelLoaded)
    assert (loaded.block_size, loaded.block_bytes, loaded.max_model_len) == (16, 16 * tiny.BLOCK_TOKEN_BYTES, 64)
    assert loaded.num_blocks == (1 << 20) // loaded.block_bytes
    assert loaded.load_s == 0.0, "it was loaded already"


def test_a_model_tells_from_where_it_came(agent: Agent) -> None:
    loaded = agent.load("long")
    assert isinstance(loaded, ModelLoaded)
    assert loaded.tiers == {"long": "device", "tiny": "host"}
    assert loaded.load_s > 0
    back = agent.load("tiny")
    assert isinstance(back, ModelLoaded)
    assert (back.source, back.tiers) == ("host", {"long": "host", "tiny": "device"})
    assert back.load_s > 0
    again = agent.load("tiny")
    assert isinstance(again, ModelLoaded)
    assert (again.source, again.load_s) == ("device", 0.0)


def test_a_request_is_evicted_handed_over_and_goes_on(agent: Agent, tiny_model: LlamaForCausalLM) -> None:
    text = list(range(10, 25))
    request = tiny.request("a", text, 40)
    agent.send(RunAttempt(request))
    events = [agent.next() for _ in range(4)]
    agent.send(TakeOut(["a", "unknown"]), HandOverImages(["a", "unknown"]))
    while not isinstance(events[-1], Image):
        events.append(agent.next())
    *steps, last, evicted, report, image = events
    assert isinstance(image, Image)
    assert isinstance(report, StepReport), "the image is written behind what it was asked with"
    assert isinstance(evicted, TakenOut)
    assert isinstance(last, StepReport), "the last tokens come before"
    steps.append(last)
    tokens = [
        token for step in steps if isinstance(step, StepReport) for chunk in step.chunks for token in chunk.token_ids
    ]
    assert evicted.requests == [Kept("a", len(text) + len(tokens) - 1)]
    assert evicted.stats.num_running == 0
    agent.send(ReleaseImages([7]), RunAttempt(request, image.file))
    rest = agent.steps_until_end("a")
    tokens += [token for step in rest for chunk in step.chunks for token in chunk.token_ids]
    assert tokens == tiny.greedy(tiny_model, text, 40)[0]
    assert rest[-1].stats.kv_bytes_per_s > 0


def test_an_aborted_request_is_silent_and_its_blocks_are_free(agent: Agent) -> None:
    agent.send(RunAttempt(tiny.request("long", [5], 60)), RunAttempt(tiny.request("short", [6], 3)))
    steps = agent.steps_until_end("short")
    agent.send(AbortRequests(["long", "unknown"]))
    while steps[-1].stats.num_running:
        event = agent.next()
        assert isinstance(event, StepReport)
        steps.append(event)
    assert steps[-1].chunks == []
    assert steps[-1].stats.num_free_blocks == 256
    agent.send(RunAttempt(tiny.request("after", [7], 2)))
    assert {chunk.request_id for step in agent.steps_until_end("after") for chunk in step.chunks} == {"after"}


def test_a_request_that_can_never_run_is_refused_at_once(agent: Agent) -> None:
    agent.send(RunAttempt(tiny.request("big", [5] * 70, 4)))
    event = agent.next()
    assert isinstance(event, StepReport)
    error = "70 tokens leave no room for output: 'tiny' takes 64"
    assert event.chunks == [Chunk("big", 0, 0, [], "refused", error, is_last=True)]


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ("corrupt", "corrupt.gguf is no readable GGUF file"),
        ("changed", "is damaged or another file"),
        ("unknown", "not in the configuration"),
    ],
)
def test_a_model_that_cannot_be_loaded_is_told_and_the_engine_lives(agent: Agent, model: str, words: str) -> None:
    failed = agent.load(model)
    assert isinstance(failed, ModelFailed)
    assert failed.model == model
    assert words in failed.error
    agent.send(RunAttempt(tiny.request("a", [5], 2)))
    assert agent.steps_until_end("a")[-1].chunks[0].finish_reason == "length"


def test_the_model_cannot_change_while_requests_run(agent: Agent) -> None:
    agent.send(RunAttempt(tiny.request("a", [5], 30)), LoadModel("long"))
    events = [agent.next()]
    while not isinstance(events[-1], ModelFailed):
        events.append(agent.next())
    assert "'tiny' has sequences" in events[-1].error
    assert agent.steps_until_end("a")[-1].chunks[0].finish_reason == "length"
    assert isinstance(agent.load("long"), ModelLoaded)


@pytest.mark.parametrize("ending", ["shutdown", "close"])
def test_shutdown_and_the_end_of_the_stream_end_the_process(without_torch: Path, ending: str) -> None:
    with started(without_torch) as agent:
        agent.load("tiny")
        agent.send(RunAttempt(tiny.request("a", [5], 60)))
        if ending == "shutdown":
            agent.send(Shutdown())
        else:
            agent.sock.close()
        assert agent.exit_status() == 0


def test_an_engine_that_cannot_run_here_says_why_and_goes_when_that_was_read(tmp_path: Path) -> None:
    path = tmp_path / "treadle.yaml"
    path.write_text("nodes: [{name: node-0, executor: cpu, cpus: [1023]}]")
    with process_of(path) as agent:
        agent.send(LoadModel("smollm2-135m"))
        refused = agent.next()
        assert isinstance(refused, EngineRefused)
        assert "node 'node-0': cpus names 1023, but this process may run on" in refused.reason
        agent.send(Shutdown())
        assert agent.exit_status() == 1


def test_a_torn_protocol_ends_the_process_with_a_log_line(without_torch: Path) -> None:
    with started(without_torch) as agent:
        agent.sock.sendall(b"\xff\xff\xff\xff")
        assert agent.exit_status() == 1
    (line,) = (without_torch.parent / "log").read_text().splitlines()
    assert "a frame claims 4294967295 bytes" in json.loads(line)["exception"]


@pytest.mark.slow
def test_a_folder_of_tiers_has_one_engine_and_outlives_a_kill(without_torch: Path, tmp_path: Path) -> None:
    path = tmp_path / "treadle.yaml"
    tiers = f"  tiers: {{host_bytes: 1048576, ssd_bytes: 4194304, ssd_folder: {tmp_path}/kv}}\n"
    config = without_torch.read_text()
    path.write_text(config[: config.index("engine:")] + "engine:\n  kv_cache_bytes: 1048576\n" + tiers)
    request = tiny.request("a", list(range(3, 43)), 8)
    with started(path) as agent:
        agent.load("tiny")
        agent.send(RunAttempt(request))
        tokens = [step.chunks[0].token_ids for step in agent.steps_until_end("a") if step.chunks]
        with process_of(path) as second:
            refused = second.next()
            assert isinstance(refused, EngineRefused)
            assert f"{tmp_path}/kv/node-0 is used by another process" in refused.reason
        agent.process.kill()
        agent.process.wait()
    with started(path) as agent:
        agent.load("tiny")
        agent.send(RunAttempt(request))
        assert [step.chunks[0].token_ids for step in agent.steps_until_end("a") if step.chunks] == tokens
