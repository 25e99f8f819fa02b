"""A node of processors computes without torch, which takes most of a second to import, and 200 MB."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import psutil
import pytest

from gpu_node.engine.process.protocol.protocol import (
    EngineReady,
    EngineRefused,
    HandOverImages,
    Image,
    ImageFile,
    ImageOpened,
    ModelLoaded,
    RunAttempt,
    Shutdown,
    StepReport,
    TakenOut,
    TakeOut,
)
from shared.messages.requests.payload import Payload
from tests.gpu_node import no_torch, tiny
from tests.gpu_node.engine.process.agent_end import Agent, process_of
from tests.gpu_node.models.test_families_models import save

CONFIG = """
models:
  - {{name: file, source: {file}, max_model_len: 64}}
  - {{name: folder, source: {folder}, max_model_len: 64}}
  - {{name: int8, source: {folder}, max_model_len: 64, weights: int8}}
  - {{name: dummy, source: {folder}, max_model_len: 64, load_format: dummy}}
nodes: [{{name: node-0, executor: {executor}}}]
engine:
  kv_cache_bytes: 1048576
  offload: "{offload}"
  tiers: {{host_bytes: 1048576, ssd_bytes: 4194304, ssd_folder: {tiers}}}
"""
MODELS = ("file", "folder", "int8", "dummy")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    save("mixtral", folder)
    return folder


@pytest.fixture(params=["cpu", "reference"])
def agent(request: pytest.FixtureRequest, tiny_path: Path, folder: Path, tmp_path: Path) -> Iterator[Agent]:
    path = tmp_path / "treadle.yaml"
    offload = "on" if request.param == "cpu" else "off"
    path.write_text(
        CONFIG.format(file=tiny_path, folder=folder, executor=request.param, offload=offload, tiers=tmp_path / "kv")
    )
    with process_of(path) as agent:
        assert isinstance(agent.next(), EngineReady)
        yield agent


T = TypeVar("T")


def next_of(agent: Agent, kind: type[T]) -> T:
    """Behind reports of steps."""
    while not isinstance(event := agent.next(), kind):
        assert isinstance(event, StepReport | ImageOpened)
    return event


def image_of(agent: Agent, attempt: Payload) -> ImageFile:
    """Of a request that is under way: it may have ended before it is asked for, and then it is run again."""
    while True:
        agent.send(RunAttempt(attempt))
        while not next_of(agent, StepReport).chunks:
            pass
        agent.send(TakeOut([attempt.request_id]), HandOverImages([attempt.request_id]))
        if any(kept.kv_tokens for kept in next_of(agent, TakenOut).requests):
            return next_of(agent, Image).file


def test_a_node_of_processors_has_never_read_it(agent: Agent, request: pytest.FixtureRequest) -> None:
    """Whatever it does: each kind of model, tokens, tiers, an eviction, a hand-over, a way back."""
    for model in (*MODELS, *MODELS):
        assert isinstance(agent.load(model), ModelLoaded)
        attempt = tiny.request(model, list(range(3, 20)), 46, model=model, temperature=1.0, seed=1)
        agent.send(RunAttempt(attempt, image_of(agent, attempt)))
        agent.steps_until_end(model)
    libraries = {Path(mapped.path).name for mapped in psutil.Process(agent.process.pid).memory_maps()}
    has_torch = any(name.startswith("libtorch") for name in libraries)
    assert has_torch is (request.node.callspec.params["agent"] == "reference"), "the reference computes with it"


@pytest.fixture(scope="module")
def python_path(tmp_path_factory: pytest.TempPathFactory) -> str:
    return no_torch.python_path(tmp_path_factory.mktemp("packages"))


ENGINE = (*no_torch.PYTHON, "-m", "gpu_node.engine")


def test_where_none_is_installed_nodes_of_processors_compute(
    python_path: str, tiny_path: Path, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", python_path)
    path = tmp_path / "treadle.yaml"
    path.write_text(CONFIG.format(file=tiny_path, folder=folder, executor="cpu", offload="off", tiers=tmp_path / "kv"))
    with process_of(path, ENGINE) as agent:
        assert isinstance(agent.next(), EngineReady)
        for model in MODELS:
            assert isinstance(agent.load(model), ModelLoaded)
            agent.send(RunAttempt(tiny.request(model, [5, 6, 7], 4, model=model)))
            assert agent.steps_until_end(model)[-1].chunks[0].finish_reason == "length"


@pytest.mark.parametrize(("executor", "device"), [("reference", "cpu"), ("cuda", "cuda:0")])
def test_where_none_is_installed_an_engine_that_needs_it_says_so_in_one_line(
    executor: str, device: str, python_path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", python_path)
    path = tmp_path / "treadle.yaml"
    path.write_text(f"nodes: [{{name: node-0, executor: {executor}, device: '{device}'}}]")
    reason = (
        f"node 'node-0': executor: {executor} computes with torch, which is not installed here: "
        "run `make setup-torch`, or take the image gpu-node-cuda"
    )
    with process_of(path, ENGINE) as agent:
        assert agent.next() == EngineRefused(reason)
        agent.send(Shutdown())
        assert agent.exit_status() == 1
    (line,) = (tmp_path / "log").read_text().splitlines()
    assert json.loads(line)["error"] == reason


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (
            ("cli", "config", "check", "treadle.yaml"),
            "  - nodes.0.executor: reference computes with torch, which is not installed here: "
            "run `make setup-torch`, or take the image gpu-node-cuda",
        ),
        (
            ("gpu_node.models.hf.export", "tiny.gguf", "out"),
            "to export a model needs torch and transformers: No module named 'torch'; run `make setup-torch` and "
            "`pip install transformers`",
        ),
    ],
)
def test_where_none_is_installed_commands_that_need_it_say_so(
    command: tuple[str, ...], said: str, python_path: str, tiny_path: Path, tmp_path: Path
) -> None:
    (tmp_path / "treadle.yaml").write_text(
        f"models: [{{name: tiny, source: {tiny_path}, max_model_len: 64}}]\n"
        "nodes: [{name: node-0, executor: reference}]\nengine: {kv_cache_bytes: 1048576}\n"
    )
    environment = {**os.environ, "PYTHONPATH": python_path, "TREADLE_CONFIG": "treadle.yaml"}
    done = subprocess.run(
        [*no_torch.PYTHON, "-m", *command], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr.splitlines()


def test_where_none_is_installed_the_rate_of_its_products_is_left_out(python_path: str) -> None:
    code = "from gpu_node.bench.rates import onednn_flops_per_s; print(onednn_flops_per_s(1))"
    environment = {**os.environ, "PYTHONPATH": python_path}
    done = subprocess.run([*no_torch.PYTHON, "-c", code], env=environment, capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("None\n", "")
