"""The node agent's decisions: what to pull, when to swap the model, what to publish. No I/O, no clock.

Its state is soft: it lives as long as the epoch. Whatever ends the epoch (the process, the engine, a fence), the queue
manager knows from the `Pulled` messages what was running here and has it run elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from gpu_node.agent.actions import Ack, Action, Beat, Entry, NewEpoch, Publish, Pull, Taken, Tell
from gpu_node.agent.outbox import Outbox
from gpu_node.engine.protocol import (
    AbortRequests,
    EngineStats,
    Evicted,
    Image,
    LoadModel,
    ModelFailed,
    ModelLoaded,
    Run,
    Step,
)
from shared.messages import (
    Abort,
    Chunk,
    Fence,
    GroupRef,
    Heartbeat,
    Load,
    VirtualQueue,
)
from shared.payload import Payload

MAX_PULL = 64  # entries in one pull; bounds the script's time and the burst into the engine

Event = VirtualQueue | Abort | Load | Fence | Taken | ModelLoaded | ModelFailed | Step | Evicted | Image

NO_STATS = EngineStats(
    num_running=0, num_waiting=0, num_free_blocks=0, num_admittable=0, tokens_per_s=0.0, step_s=0.0, num_received=0
)


@dataclass(slots=True)
class Running:
    """An attempt that the engine has."""

    attempt: int
    gateway: str
    group: str
    entry_id: bytes
    output_tokens: int
    """Tokens of all choices so far, those of earlier attempts included."""


class AgentCore:
    """One epoch of a node."""

    def __init__(self, node: str, epoch: str, device: str) -> None:
        self.node = node
        self.epoch = epoch
        self.device = device
        self.loaded: ModelLoaded | None = None
        self.loading = ""
        self.broken: dict[str, str] = {}
        """Models that cannot be loaded here, and why."""
        self.swap_s = 0.0
        self.stats = NO_STATS
        self.running: dict[str, Running] = {}
        self._queue: list[GroupRef] = []
        self._empty: set[str] = set()
        """Groups that had nothing left at the last pull; a new `VirtualQueue` rings again."""
        self._is_pulling = False
        self._num_sent = 0

    @property
    def model(self) -> str:
        """The loaded model, or ``""``."""
        return self.loaded.model if self.loaded else ""

    def handle(self, event: Event) -> list[Action]:
        """React to one event; the last word is always what to do next: pull, swap, or wait."""
        match event:
            case VirtualQueue():
                actions = self._new_queue(event)
            case Load():
                actions = self._load(event.model) if self._is_mine(event) and not self.model else []
            case Fence():
                actions = [NewEpoch()] if self._is_mine(event) else []
            case Abort():
                actions = self._abort(event)
            case Taken():
                actions = self._taken(event)
            case ModelLoaded():
                actions = self._model_loaded(event)
            case ModelFailed():
                actions = self._model_failed(event)
            case Step():
                actions = self._step(event)
            case Evicted() | Image():
                raise AssertionError("nobody asks for these yet")
        return [*actions, *self._next()]

    def heartbeat(self) -> Heartbeat:
        """What this node is and holds."""
        loaded = self.loaded
        return Heartbeat(
            node=self.node,
            epoch=self.epoch,
            device=self.device,
            model=self.model,
            num_blocks=loaded.num_blocks if loaded else 0,
            num_free_blocks=self.stats.num_free_blocks if loaded else 0,
            block_bytes=loaded.block_bytes if loaded else 0,
            num_running=self.stats.num_running,
            num_waiting=self.stats.num_waiting,
            tokens_per_s=self.stats.tokens_per_s,
            swap_s=self.swap_s,
            broken_models=sorted(self.broken),
        )

    def _is_mine(self, message: VirtualQueue | Load | Fence) -> bool:
        return message.epoch == self.epoch

    def _next(self) -> list[Action]:
        """Serve the head of the virtual queue: pull if its model is loaded, else swap once the engine is empty."""
        if self.loading or self._is_pulling:
            return []
        head = next((ref for ref in self._queue if ref.group not in self._empty), None)
        if head is None:
            return []
        if head.model in self.broken:
            return self._pull(head, MAX_PULL)  # nobody can run these here: they are answered with the reason
        if head.model != self.model:
            return [] if self.running else self._load(head.model)
        num_unseen = self._num_sent - self.stats.num_received
        return self._pull(head, min(self.stats.num_admittable - num_unseen, MAX_PULL))

    def _pull(self, head: GroupRef, num_requests: int) -> list[Action]:
        if num_requests <= 0:
            return []
        self._is_pulling = True
        return [Pull(head.group, num_requests)]

    def _load(self, model: str) -> list[Action]:
        if self.loading or model in self.broken:
            return []
        self.loading = model
        return [Tell(LoadModel(model))]

    def _new_queue(self, message: VirtualQueue) -> list[Action]:
        if self._is_mine(message):
            self._queue = message.groups
            self._empty = set()
        return []

    def _abort(self, message: Abort) -> list[Action]:
        """The queue manager has forgotten these already: only the ledger entry is left to clear."""
        acks, ids = [], []
        for attempt in message.requests:
            running = self.running.get(attempt.request_id)
            if running is not None and running.attempt == attempt.attempt:
                del self.running[attempt.request_id]
                ids.append(attempt.request_id)
                acks.append(Ack(running.group, running.entry_id))
        return [Tell(AbortRequests(ids)), Publish(acks=acks)] if ids else []

    def _taken(self, taken: Taken) -> list[Action]:
        self._is_pulling = False
        if len(taken.entries) < taken.num_asked:
            self._empty.add(taken.group)
        outbox = Outbox(self.node)
        runs: list[Action] = []
        for entry in taken.entries:
            error = self._objection(entry)
            if error:
                refusal = _refusal(entry, error)
                outbox.add(entry.enqueued.gateway, refusal)
                outbox.finish(refusal, refusal.index, Ack(taken.group, entry.entry_id))
            else:
                runs.append(self._run(taken.group, entry))
        return [*runs, *outbox.publish()]

    def _objection(self, entry: Entry) -> str:
        """Why an entry cannot run here, for its client; empty if it can."""
        payload = entry.payload
        if payload is None or payload.attempt != entry.enqueued.attempt:
            # its gateway has given it up, or submitted a newer attempt; should it be neither, the client hears why
            return "the request's payload is gone"
        return self.broken.get(payload.model, "")

    def _run(self, group: str, entry: Entry) -> Action:
        assert entry.payload is not None, "what has no payload is refused"
        enqueued = entry.enqueued
        self.running[enqueued.request_id] = Running(
            enqueued.attempt, enqueued.gateway, group, entry.entry_id, _num_done(entry.payload)
        )
        self._num_sent += 1
        return Tell(Run(entry.payload))

    def _model_loaded(self, event: ModelLoaded) -> list[Action]:
        self.swap_s = event.load_s if event.load_s > 0 else self.swap_s
        self.loaded, self.loading = event, ""
        # the rest is the old model's until the engine tells anew, right after this
        self.stats = msgspec.structs.replace(self.stats, num_admittable=0, num_free_blocks=event.num_blocks)
        return [Beat(self.heartbeat())]

    def _model_failed(self, event: ModelFailed) -> list[Action]:
        self.broken[event.model] = event.error
        self.loading = ""
        return [Beat(self.heartbeat())]

    def _step(self, event: Step) -> list[Action]:
        self.stats = event.stats
        outbox = Outbox(self.node)
        for chunk in event.chunks:
            running = self.running.get(chunk.request_id)
            if running is None or running.attempt != chunk.attempt:
                continue  # aborted while the step ran
            running.output_tokens += len(chunk.token_ids)
            outbox.add(running.gateway, chunk)
            if chunk.is_last:
                del self.running[chunk.request_id]
                outbox.finish(chunk, running.output_tokens, Ack(running.group, running.entry_id))
        return outbox.publish()


def _refusal(entry: Entry, error: str) -> Chunk:
    """The end of an attempt that never began here."""
    enqueued = entry.enqueued
    num_done = _num_done(entry.payload) if entry.payload else 0
    return Chunk(enqueued.request_id, enqueued.attempt, num_done, [], finish_reason="error", error=error, is_last=True)


def _num_done(payload: Payload) -> int:
    """Tokens that earlier attempts brought."""
    return sum(len(output.token_ids) for output in payload.outputs)
