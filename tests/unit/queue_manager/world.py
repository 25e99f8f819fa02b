"""Nodes and gateways around a queue manager, as far as it can tell: streams in order, messages that take their time.

Nothing is computed; who pulls, evicts, ends or dies, and when a message is read, is up to the test.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field

from msgspec.structs import replace

from services.queue_manager import invariants
from services.queue_manager.core import QueueManagerCore
from shared.bus import streams
from shared.config.config import ClusterConfig
from shared.messages.message import Message
from shared.messages.messages import AnyMessage
from shared.messages.nodes.nodes import BOTH, NodeDown, NodeState, NodeUp, Phases, Serve
from shared.messages.nodes.placement import ModelLoad, Plan
from shared.messages.nodes.step_cost import ModelRate, StepCost
from shared.messages.requests.requests import (
    HANDED_OVER,
    Abort,
    Attempt,
    Cancel,
    Enqueued,
    Evict,
    Evicted,
    EvictedRequest,
    Finished,
    FinishedRequest,
    GatewayBeat,
    ImageTicket,
    Pulled,
    Resubmit,
    Submit,
    VirtualQueue,
)
from shared.messages.requests.slo import Slo
from shared.service.core import Drop, Effect, Send

KV_TOKENS = 12

COST = StepCost(step_s=0.01, token_s=0.001, context_token_s=0.0)


@dataclass
class WorldNode:
    """One epoch of a node, as its agent sees it."""

    name: str
    epoch: str
    inbox: deque[Message] = field(default_factory=deque)
    window: list[str] = field(default_factory=list)
    running: dict[str, int] = field(default_factory=dict)
    """Attempts that it runs, by request."""
    parked: dict[str, int] = field(default_factory=dict)
    """Attempts of which it keeps the KV."""
    decoded_elsewhere: list[str] = field(default_factory=list)
    read_ahead: list[str] = field(default_factory=list)
    awaits: str = ""
    phases: Phases = BOTH
    known: NodeState | None = None
    """As the queue manager was told last."""


class World:
    """Everything outside the queue manager."""

    def __init__(self, config: ClusterConfig) -> None:
        self.core = QueueManagerCore(config)
        self.now = 1.0
        self.inbox: deque[AnyMessage] = deque()
        self.entries: dict[str, list[Enqueued]] = {}
        self.images: set[tuple[str, Attempt]] = set()
        self.nodes: dict[str, WorldNode] = {}
        self.attempts: dict[str, int] = {}
        """Of the requests whose clients wait."""
        self.submits: dict[str, Submit] = {}
        self.num_epochs = 0
        self.num_sent: Counter[str] = Counter()
        """To each epoch of a node."""
        self.cancelled: set[str] = set()
        self.num_inventories = 0

    # --- clients and gateways -------------------------------------------------------------------------------------

    def submit(self, name: str, model: str, slo: Slo) -> None:
        message = Submit(
            request_id=name, gateway="gw", model=model, slo=slo, prompt_tokens=5, max_tokens=20, wants_place=True
        )
        self.attempts[name], self.submits[name] = 0, message
        self.inbox.append(message)

    def cancel(self, name: str) -> None:
        if self.attempts.pop(name, None) is not None:
            self.cancelled.add(name)
            self.inbox.append(Cancel(request_id=name))

    def wait(self, seconds: float) -> None:
        """Time passes; the gateway lives."""
        self.now += seconds
        self.do(GatewayBeat(gateway="gw"))

    # --- nodes ----------------------------------------------------------------------------------------------------

    def start(
        self,
        name: str,
        model: str,
        kv_format: str = "",
        *,
        network_bytes_per_s: float = 0.0,
        kv_token_bytes: int = 0,
        phases: Phases = BOTH,
        reads_ahead: bool = False,
        follows_load: bool = False,
    ) -> None:
        self.num_epochs += 1
        self._lose_images(name)
        self.nodes[name] = WorldNode(name, f"{name}.{self.num_epochs}", phases=phases)
        rates = [ModelRate(model, COST, 0, kv_token_bytes, 0.0, kv_format=kv_format)] if kv_format else []
        known = NodeState(
            name,
            model,
            max_num_seqs=2,
            network_bytes_per_s=network_bytes_per_s,
            rates=rates,
            phases=phases,
            reads_ahead=reads_ahead,
            follows_load=follows_load,
        )
        self.nodes[name].known = known
        self.inbox.append(NodeUp(epoch=self.nodes[name].epoch, known=known))

    def load(self, name: str, model: str, load_s: float = 0.0) -> None:
        """A node has begun to load a model; or it is there, where that takes no time."""
        ready_at_s = self.now + load_s if load_s else 0.0
        epoch, phases = self.nodes[name].epoch, self.nodes[name].phases
        known = NodeState(name, model, ready_at_s, max_num_seqs=2, phases=phases)
        self.inbox.append(NodeUp(epoch=epoch, known=known))

    def die(self, name: str) -> None:
        node = self.nodes.pop(name)
        self._lose_images(name)
        self.inbox.append(NodeDown(node=name, epoch=node.epoch))

    def _lose_images(self, name: str) -> None:
        """They end with their epoch."""
        self.images = {image for image in self.images if image[0] != name}

    def pull(self, node: WorldNode, gid: str, num_requests: int) -> None:
        stream = self.entries.get(gid, [])
        taken, stream[:] = stream[:num_requests], stream[num_requests:]
        for entry in taken:
            node.parked.pop(entry.request_id, None)
            if entry.image is not None:  # it is fetched
                self.images.discard((entry.image.node, Attempt(entry.request_id, entry.attempt)))
            node.running[entry.request_id] = entry.attempt
        if taken:
            requests = [Attempt(entry.request_id, entry.attempt) for entry in taken]
            self.inbox.append(Pulled(node=node.name, epoch=node.epoch, group=gid, requests=requests))

    def finish(self, node: WorldNode, name: str) -> None:
        finished = FinishedRequest(name, node.running.pop(name), "stop", 7)
        self.inbox.append(Finished(node=node.name, epoch=node.epoch, requests=[finished]))

    def evict(self, node: WorldNode, name: str, kv_tokens: int) -> None:
        """Out of its own accord, as for a group that gives way."""
        attempt = node.running.pop(name)
        if kv_tokens:
            node.parked[name] = attempt
        evicted = EvictedRequest(name, attempt, 3, kv_tokens, node.name)
        self.inbox.append(Evicted(node=node.name, epoch=node.epoch, requests=[evicted]))

    def hand_on(self, node: WorldNode, name: str) -> None:
        """Out of its own accord, of a node that only prefills."""
        self._hand_over(node, [Attempt(name, node.running[name])], drops_kv=False)

    def read(self, node: WorldNode) -> None:
        """The node reads the next message of its inbox."""
        match node.inbox.popleft():
            case VirtualQueue(groups=groups) as told if told.epoch == node.epoch:
                node.window = [ref.group for ref in groups]
                node.decoded_elsewhere, node.awaits = told.decoded_elsewhere, told.awaits
                node.read_ahead = told.read_ahead
            case Abort(requests=attempts):
                for attempt in attempts:
                    self.images.discard((node.name, attempt))
                    for holder in (node.running, node.parked):
                        if holder.get(attempt.request_id) == attempt.attempt:
                            del holder[attempt.request_id]
            case Evict(epoch=epoch, requests=attempts, drops_kv=drops_kv) if epoch == node.epoch:
                self._hand_over(node, attempts, drops_kv=drops_kv)
            case Serve(epoch=epoch, phases=phases) if epoch == node.epoch:
                self.turn(node, phases)
            case _:
                pass  # for an earlier epoch

    def turn(self, node: WorldNode, phases: Phases) -> None:
        """The node serves these from now on, and says so, by the scheduler."""
        assert node.known is not None
        node.phases, node.known = phases, replace(node.known, phases=phases)
        self.inbox.append(NodeUp(epoch=node.epoch, known=node.known))

    def _hand_over(self, node: WorldNode, attempts: list[Attempt], *, drops_kv: bool) -> None:
        evicted = []
        kv = (0, node.name, None) if drops_kv else (KV_TOKENS, HANDED_OVER, ImageTicket(node.name, "", "", 1))
        for attempt in attempts:
            for holder in (node.running, node.parked):
                if holder.get(attempt.request_id) == attempt.attempt:
                    del holder[attempt.request_id]
                    self.images |= set() if drops_kv else {(node.name, attempt)}
                    evicted.append(EvictedRequest(attempt.request_id, attempt.attempt, 3, *kv))
        if evicted:
            self.inbox.append(Evicted(node=node.name, epoch=node.epoch, requests=evicted))

    # --- the queue manager ----------------------------------------------------------------------------------------

    def plan(self, queues: dict[str, list[str]], *loads: ModelLoad) -> None:
        """The scheduler answers the newest question, or has thought of something by itself."""
        plan = self.core.state.plan
        version = plan.asked_version if plan.asked_at_s is not None else plan.version
        self.inbox.append(Plan(version=version, queues=queues, loads=list(loads)))

    def handle(self) -> None:
        """The queue manager reads the next message of its inbox; each has a time of its own."""
        self.now += 0.001
        self.do(self.inbox.popleft())

    def do(self, message: AnyMessage) -> list[Effect]:
        effects = self.core.handle(message, self.now)
        for effect in effects:
            self._carry_out(effect)
        self.check()
        return effects

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case Send(stream, Enqueued() as entry):
                self.entries.setdefault(stream.removeprefix(streams.group("")), []).append(entry)
            case Send(stream, message) if stream.startswith(streams.node_inbox("")):
                node = self.nodes.get(stream.removeprefix(streams.node_inbox("")))
                if node is not None:
                    node.inbox.append(message)
                    self.num_sent[node.epoch] += 1
            case Send(_, Resubmit(requests=attempts)):
                for lost in attempts:
                    if lost.request_id in self.attempts:
                        self._submit_again(lost)
                    else:
                        self.inbox.append(Cancel(request_id=lost.request_id))
            case Drop(key):
                self.entries.pop(key.removeprefix(streams.group("")), None)

    def _submit_again(self, lost: Attempt) -> None:
        if self.attempts.get(lost.request_id) == lost.attempt:
            self.attempts[lost.request_id] += 1
            fields = {field: getattr(self.submits[lost.request_id], field) for field in ("model", "slo", "gateway")}
            self.inbox.append(
                Submit(
                    request_id=lost.request_id,
                    prompt_tokens=9,
                    max_tokens=16,
                    attempt=self.attempts[lost.request_id],
                    **fields,
                )
            )

    def check(self) -> None:
        """Who waits has one entry, in its group's stream, which says where its KV is; or was just pulled."""
        state = self.core.state
        invariants.check(state)
        pulled = {
            (message.group, attempt.request_id, attempt.attempt)
            for message in self.inbox
            if isinstance(message, Pulled)
            for attempt in message.requests
        }
        for request in state.requests.values():
            if not request.group or request.node:
                continue
            entries = [
                entry
                for entry in self.entries.get(request.group, [])
                if (entry.request_id, entry.attempt) == (request.request_id, request.attempt)
            ]
            was_pulled = (request.group, request.request_id, request.attempt) in pulled
            assert len(entries) + was_pulled == 1, f"{request.request_id} has {len(entries)} entries"
            assert all(entry.kv_at == state.groups[request.group].kv_at for entry in entries)

    def settle(self) -> None:
        """Everybody reads everything, until there is nothing more to read."""
        while self.inbox or any(node.inbox for node in self.nodes.values()):
            while self.inbox:
                self.handle()
            for node in self.nodes.values():
                while node.inbox:
                    self.read(node)
