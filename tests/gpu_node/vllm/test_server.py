"""The loop of a process with vLLM, over a real socket: commands and steps in one line, and a frame a step."""

from __future__ import annotations

import queue
import socket
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from gpu_node.engine.process.connection import EngineConnection
from gpu_node.engine.process.protocol.framing import event_decoder
from gpu_node.engine.process.protocol.protocol import (
    AbortRequests,
    Command,
    EngineEvent,
    EngineReady,
    EngineRefused,
    LoadModel,
    ModelFailed,
    ModelLoaded,
    RunAttempt,
    Shutdown,
    StepReport,
)
from gpu_node.vllm.serving.engine import VllmEngine
from gpu_node.vllm.serving.server import CoreTold, Inbox, VllmServer, read_commands
from gpu_node.vllm.words.border import CoreDiedError, CoreStep
from shared.config.config import ClusterConfig
from shared.config.engines.engine import ModelSpec
from shared.config.model_specs import ModelSpecs
from shared.messages.requests.requests import Chunk
from tests.gpu_node.vllm.made import OPTIONS, Starter, payload, step

CONFIG = ClusterConfig(models=[ModelSpec(name=name, source="none") for name in ("m", "bad")])


@dataclass
class Served:
    """A server, its line, and the agent's end."""

    agent: socket.socket
    starter: Starter = field(default_factory=Starter)
    inbox: Inbox = field(default_factory=queue.Queue)

    def run(self, engine_end: socket.socket, *events: object) -> list[EngineEvent | EngineRefused]:
        """Let it take these events, commands or steps, up to its end; what the agent was told."""
        for event in events:
            self.inbox.put(event)  # type: ignore[arg-type]
        engine = VllmEngine(self.starter, OPTIONS)
        specs = ModelSpecs(CONFIG.models)
        VllmServer(EngineConnection(engine_end), engine, self.inbox, specs, "vllm-cpu", lambda: 0.0).run()
        return event_decoder().feed(self.agent.recv(1 << 16))


@pytest.fixture
def ends() -> Iterator[tuple[Served, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield Served(ours), theirs


def commands(*all_at_once: Command) -> list[Command]:
    return list(all_at_once)


def test_commands_are_answered_in_their_order_and_each_step_is_a_frame(ends: tuple[Served, socket.socket]) -> None:
    served, engine_end = ends
    told = served.run(
        engine_end,
        commands(LoadModel("m"), LoadModel("bad"), LoadModel("unknown"), RunAttempt(payload("a"))),
        CoreTold("m", step({"0": 8}, begun=["0"])),
        CoreTold("m", CoreStep([], 0.5)),
        CoreTold("m", step({"0": 9})),
        commands(AbortRequests(["a"])),
        CoreTold("m", step({"0": 10})),
        commands(Shutdown()),
    )
    ready, loaded, bad, unknown, *reports = told
    assert ready == EngineReady("vllm-cpu", "vllm", ["beam search"], has_fixed_adapters=True)
    assert isinstance(loaded, ModelLoaded)
    assert (loaded.model, loaded.num_blocks, loaded.source, loaded.tiers) == ("m", 10, "disk", {"m": "device"})
    assert bad == ModelFailed("bad", "its architecture is not known")
    assert unknown == ModelFailed("unknown", "model 'unknown' is not in the configuration", is_unknown=True)
    assert [report.chunks for report in reports if isinstance(report, StepReport)] == [
        [],
        [Chunk("a", 0, 0, [8])],
        [Chunk("a", 0, 1, [9])],
        [],
    ], "a step that brings nothing new is not told, nor what comes of an aborted request"


def test_a_vllm_that_dies_ends_the_process(ends: tuple[Served, socket.socket]) -> None:
    served, engine_end = ends
    with pytest.raises(CoreDiedError, match="it was killed"):
        served.run(engine_end, CoreTold("m", CoreDiedError("it was killed")))


def test_what_the_agent_says_comes_into_the_line_up_to_its_end(ends: tuple[Served, socket.socket]) -> None:
    served, engine_end = ends
    thread = read_commands(EngineConnection(engine_end), served.inbox)
    served.agent.close()
    thread.join(10)
    assert str(served.inbox.get_nowait()) == "the agent closed the stream"
