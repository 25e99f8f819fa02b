"""A node in the simulator: the live agent core over the live engine bookkeeping; only the executor predicts."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from gpu_node.agent.actions import Action, Beat, Entry, NewEpoch, Publish, Pull, Resume, Store, Taken, Tell
from gpu_node.agent.core import AgentCore, Event
from gpu_node.engine.engine import Engine
from gpu_node.engine.protocol import (
    AbortRequests,
    Command,
    Evict,
    HandOver,
    LoadModel,
    ModelLoaded,
    Reset,
    Run,
    Shutdown,
    Step,
)
from services.simulator.memory_bus import MemoryBus
from shared import streams
from shared.config import EngineOptions, ModelSpec
from shared.messages import Chunk, Finished, Message, NodeGone

HEARTBEAT_S = 1.0


class SimulatedNode:
    """One node over all its epochs; each epoch has a fresh core and a fresh engine, as live."""

    def __init__(
        self,
        bus: MemoryBus,
        node: str,
        models: dict[str, ModelSpec],
        make_engine: Callable[[], Engine],
        swap_s: float,
        options: EngineOptions,
    ) -> None:
        self.node = node
        self.num_swaps = 0
        self._bus = bus
        self._models = models
        self._make_engine = make_engine
        self._swap_s = swap_s
        self._options = options
        self._num_epochs = 0
        self._commands: list[Command] = []
        self._is_busy = False
        self.start()

    def start(self) -> None:
        """Begin an epoch."""
        self._num_epochs += 1
        self.core = AgentCore(self.node, f"{self.node}-{self._num_epochs}", "predicted", self._options)
        self.engine = self._make_engine()
        self._commands, self._is_busy = [], False
        self._bus.subscribe(streams.node_inbox(self.node), self.receive)
        self._beat(self._num_epochs)

    def die(self) -> None:
        """Fall silent: what ran is lost, and nobody is told."""
        self._bus.unsubscribe(streams.node_inbox(self.node))
        self._num_epochs += 1  # whatever is still scheduled belongs to the past

    def leave(self) -> None:
        """Shut down politely."""
        gone = NodeGone(node=self.node, epoch=self.core.epoch)
        self.die()
        for stream in (streams.SCHEDULER, streams.KV):
            self._bus.send(stream, gone)

    def _later(self, delay_s: float, action: Callable[[], None]) -> None:
        """Run ``action`` unless the epoch is over by then."""
        epoch = self._num_epochs
        self._bus.at(self._bus.now + delay_s, lambda: action() if epoch == self._num_epochs else None)

    def receive(self, message: Message, _: float) -> None:
        """Take a message from the inbox."""
        self._feed(cast("Event", message))

    def _feed(self, event: Event) -> None:
        for action in self.core.handle(event):
            self._do(action)

    def _do(self, action: Action) -> None:
        match action:
            case Pull(group, num_requests):
                taken = self._bus.pull(group, num_requests, self.node, self.core.epoch)
                entries = [Entry(b"", enqueued, payload) for enqueued, payload in taken]
                self._feed(Taken(group, num_requests, entries))
            case Tell(command):
                self._commands.append(command)
                if not self._is_busy:
                    self._run()
            case Resume() | Store():
                raise AssertionError("nobody asks for these yet")
            case Publish():
                self._publish(action)
            case Beat(heartbeat):
                for stream in (streams.SCHEDULER, streams.KV):
                    self._bus.send(stream, heartbeat)
            case NewEpoch():
                self.die()
                self.start()

    def _publish(self, publish: Publish) -> None:
        for gateway, tokens in publish.tokens.items():
            self._bus.send(streams.tokens(gateway), tokens)
        if publish.finished:
            finished = Finished(node=self.node, epoch=self.core.epoch, requests=publish.finished)
            self._bus.send(streams.QUEUE, finished)

    def _beat(self, epoch: int) -> None:
        if epoch == self._num_epochs:
            self._do(Beat(self.core.heartbeat()))
            self._later(HEARTBEAT_S, lambda: self._beat(epoch))

    # --- the engine process's loop --------------------------------------------------------------------------------

    def _run(self) -> None:
        """Between two steps: carry out commands, then start the next step; its outcome is known when it ends."""
        commands, self._commands = self._commands, []
        chunks: list[Chunk] = []
        for command in commands:
            match command:
                case LoadModel(model):
                    self._is_busy = True
                    return self._later(self._swap_s, lambda: self._loaded(model))
                case Run(payload):
                    chunks += self.engine.add(payload)
                case AbortRequests(request_ids):
                    self.engine.abort(request_ids)
                case Reset():
                    self.engine.reset()
                case Evict() | HandOver():
                    raise AssertionError("nobody asks for these yet")
                case Shutdown():
                    raise AssertionError("a simulated engine dies with its node")
        self._is_busy = self.engine.has_work
        if self._is_busy:
            step_chunks = self.engine.step(self._bus.now)
            stats = self.engine.stats()
            self._later(stats.step_s, lambda: self._stepped(Step(step_chunks, stats)))
        if commands:
            self._feed(Step(chunks, self.engine.stats()))
        return None

    def _loaded(self, model: str) -> None:
        loaded = self.engine.load_model(self._models[model])
        self.num_swaps += 1
        self._is_busy = False
        self._feed(
            ModelLoaded(
                model=model,
                num_blocks=loaded.num_blocks,
                block_size=loaded.block_size,
                block_bytes=loaded.block_bytes,
                max_model_len=loaded.max_model_len,
                load_s=self._swap_s,
            )
        )
        self._feed(Step([], self.engine.stats()))
        if not self._is_busy:
            self._run()

    def _stepped(self, step: Step) -> None:
        self._is_busy = False
        self._feed(step)
        if not self._is_busy:
            self._run()
