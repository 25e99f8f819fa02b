"""The queue manager's decisions: accept, group, place, hand out, take back. A fold over its inbox."""

from __future__ import annotations

import msgspec

from services.queue_manager.bells import Bells
from services.queue_manager.groups import RequestGroups
from services.queue_manager.planning import Planning
from services.queue_manager.sharing import Sharing
from services.queue_manager.state import Node, Request, State
from services.queue_manager.virtual_queues import VirtualQueues
from shared import streams
from shared.config import ClusterConfig
from shared.core import Drop, Effect, Send
from shared.messages import (
    Abort,
    AnyMessage,
    Attempt,
    Cancel,
    Enqueued,
    Finished,
    GatewayBeat,
    GatewayGone,
    NodeDown,
    NodeUp,
    Plan,
    Pulled,
    Resubmit,
    Submit,
    Tick,
)

ANSWERED = ("stop", "length")  # ends that say how long answers are; an error says nothing of that


class QueueManagerCore:
    """Owns every accepted request from `Submit` to `Finished`."""

    def __init__(self, config: ClusterConfig) -> None:
        self._config = config
        self._sharing = Sharing()
        self._adopt(State())

    def _adopt(self, state: State) -> None:
        self.state = state
        self._groups = RequestGroups(state, self._config.queue, self._config.tenants)
        self._queues = VirtualQueues(state)
        self._bells = Bells(state, self._queues)
        self._planning = Planning(state, self._groups)

    # --- the core's surface ---------------------------------------------------------------------------------------

    @property
    def wake_at(self) -> float | None:
        """When a gateway may have died, or a plan is to be asked for."""
        times = (self.state.gateways.wake_at, self._planning.wake_at)
        return min((time for time in times if time is not None), default=None)

    def handle(self, message: AnyMessage, now: float) -> list[Effect]:
        """Fold one message in. A message meant for somebody else is an error, and becomes a dead letter."""
        return [*self._dispatch(message, now), *self._bells.ring(), *self._planning.ask(now)]

    def _dispatch(self, message: AnyMessage, now: float) -> list[Effect]:
        match message:
            case Submit():
                return self._submit(message, now)
            case Cancel():
                return self._cancel(message)
            case Pulled():
                return self._pulled(message, now)
            case Finished():
                return self._finished(message, now)
            case NodeUp():
                return self._node_up(message)
            case NodeDown():
                return self._node_down(message)
            case Plan():
                if self._planning.accept(message):
                    self._queues.apply(message.queues)
                    self._bells.touch(*self.state.nodes)
                return []
            case GatewayBeat():
                self._hear(message.gateway, now)
                return []
            case GatewayGone():
                return self._gateway_gone(message.gateway)
            case Tick():
                dead = self.state.gateways.expire(now)
                return [effect for gateway in dead for effect in self._gateway_gone(gateway)]
            case _:
                raise TypeError(f"{type(message).__name__} is no message for the queue manager")

    def snapshot(self) -> bytes:
        """The whole state."""
        return msgspec.msgpack.encode(self.state)

    def restore(self, state: bytes) -> None:
        """Take over a snapshot."""
        decoded = msgspec.msgpack.decode(state, type=State)
        self._sharing.restore(decoded)
        self._adopt(decoded)

    def describe(self) -> dict[str, object]:
        """Depth of the queue by model and class, and the virtual queues."""
        return {
            "num_requests": len(self.state.requests),
            "groups": [
                {"group": group.gid, "model": group.model, "slo": group.slo_kind, "node": group.node}
                | {"num_waiting": group.num_waiting, "num_running": group.num_running}
                for group in self.state.groups.values()
            ],
            "nodes": {node.node: {"model": node.model, "queue": node.queue} for node in self.state.nodes.values()},
        }

    # --- requests -------------------------------------------------------------------------------------------------

    def _submit(self, message: Submit, now: float) -> list[Effect]:
        self._hear(message.gateway, now)
        effects: list[Effect] = []
        request = self.state.requests.get(message.request_id)
        if request is None:
            request = self._sharing.request(message, now)
            self.state.requests[request.request_id] = request
        elif message.attempt <= request.attempt:
            return []  # a repetition
        else:
            if request.group:
                effects += self._withdraw(request)
            request.begin_attempt(message)
        group = self._groups.join(request, now)
        entry = Enqueued(
            request_id=request.request_id,
            attempt=request.attempt,
            gateway=request.gateway,
            traceparent=message.traceparent,
        )
        effects.append(Send(streams.group(group.gid), entry))
        if not group.node and not self._stands_alone(self._queues.append(group)):
            self._planning.note_change()
        self._bells.touch(group.node)
        return effects

    def _stands_alone(self, node: Node | None) -> bool:
        """A group at a node with nothing else to do needs no plan."""
        return node is not None and len(node.queue) == 1

    def _cancel(self, message: Cancel) -> list[Effect]:
        request = self.state.requests.get(message.request_id)
        return self._forget(request) if request is not None else []

    def _forget(self, request: Request) -> list[Effect]:
        del self.state.requests[request.request_id]
        return self._withdraw(request) if request.group else []

    def _withdraw(self, request: Request) -> list[Effect]:
        """Take a request out of its group; the node that runs it is told to stop."""
        effects: list[Effect] = []
        node = self.state.nodes.get(request.node)
        if node is not None:
            effects += self._abort(node, [Attempt(request.request_id, request.attempt)])
        return [*effects, *self._leave(request)]

    def _abort(self, node: Node, attempts: list[Attempt]) -> list[Effect]:
        if not attempts:
            return []
        return [Send(streams.node_inbox(node.node), Abort(requests=attempts), max_entries=streams.MAX_NODE_INBOX)]

    def _leave(self, request: Request) -> list[Effect]:
        group = self._groups.leave(request)
        self._bells.touch(group.node)
        if group.num_members:
            return []
        self._queues.remove(group)
        self._groups.close(group)
        # room at one node may be a reason to move what waits at another
        if any(other.num_waiting for other in self.state.groups.values()):
            self._planning.note_change()
        return [Drop(streams.group(group.gid))]

    def _pulled(self, message: Pulled, now: float) -> list[Effect]:
        node = self.state.nodes.get(message.node)
        taken: list[Request] = []
        for attempt in message.requests:
            request = self._waiting(attempt)
            if request is None:
                continue
            taken.append(request)
            group = self._groups.pull(request, message.node, now)
            self._bells.touch(group.node)  # not always this node: plans move groups
        if node is None or node.epoch != message.epoch:
            return self._resubmit(taken)  # pulled by a node that has been declared dead: lost like the rest
        self._bells.note_pull(node)
        forgotten = [attempt for attempt in message.requests if self._current(attempt) is None]
        return self._abort(node, forgotten)  # given up while it was being pulled; a node knows nothing of that

    def _finished(self, message: Finished, now: float) -> list[Effect]:
        effects: list[Effect] = []
        for finished in message.requests:
            request = self._current(Attempt(finished.request_id, finished.attempt))
            if request is None:
                continue
            del self.state.requests[request.request_id]
            self.state.finished_since_beat.setdefault(request.gateway, []).append(request.request_id)
            if request.group:  # else a node thought dead has finished it after all
                if finished.reason in ANSWERED:
                    is_cut = finished.reason == "length"
                    self._groups.learn_answer(request, finished.output_tokens, now, is_cut=is_cut)
                effects += self._leave(request)
        return effects

    def _current(self, attempt: Attempt) -> Request | None:
        request = self.state.requests.get(attempt.request_id)
        return request if request is not None and request.attempt == attempt.attempt else None

    def _waiting(self, attempt: Attempt) -> Request | None:
        """The request, if this attempt stands in a group and nobody has pulled it."""
        request = self._current(attempt)
        return request if request is not None and request.group and not request.node else None

    # --- nodes ----------------------------------------------------------------------------------------------------

    def _node_up(self, message: NodeUp) -> list[Effect]:
        effects: list[Effect] = []
        node = self.state.nodes.get(message.node)
        if node is not None and node.epoch != message.epoch:
            effects += self._lose(node)
            node = None
        if node is None:
            node = Node(node=message.node, epoch=message.epoch, model=message.model)
            self.state.nodes[node.node] = node
        node.model = message.model
        for group in self._queues.unplaced():
            self._queues.append(group)
        if self.state.groups:
            self._planning.note_change()
        node.told = []  # a node that speaks up may have missed what it was told before
        self._bells.touch(node.node)
        return effects

    def _node_down(self, message: NodeDown) -> list[Effect]:
        node = self.state.nodes.get(message.node)
        return self._lose(node) if node is not None and node.epoch == message.epoch else []

    def _lose(self, node: Node) -> list[Effect]:
        """What the node ran goes back to the gateways, which know what the client has; what waited is placed anew."""
        for gid in list(node.queue):
            self._queues.remove(self.state.groups[gid])
        del self.state.nodes[node.node]
        effects = self._resubmit([request for request in self.state.requests.values() if request.node == node.node])
        touched = [self._queues.append(group) for group in self._queues.unplaced()]
        self._planning.note_change()
        self._bells.touch(*(other.node for other in touched if other is not None))
        return effects

    def _resubmit(self, requests: list[Request]) -> list[Effect]:
        effects: list[Effect] = []
        by_gateway: dict[str, list[Attempt]] = {}
        for request in requests:
            by_gateway.setdefault(request.gateway, []).append(Attempt(request.request_id, request.attempt))
            effects += self._leave(request)  # it stays known, with its time of arrival, until it is submitted again
        for gateway, attempts in by_gateway.items():
            effects.append(Send(streams.tokens(gateway), Resubmit(requests=attempts), to_existing=True))
        return effects

    # --- gateways -------------------------------------------------------------------------------------------------

    def _hear(self, gateway: str, now: float) -> None:
        """A gateway that lives deletes the payloads of finished requests itself."""
        self.state.gateways.hear(gateway, now)
        self.state.finished_since_beat.pop(gateway, None)

    def _gateway_gone(self, gateway: str) -> list[Effect]:
        """Its clients are gone with it: forget what it asked for, its payloads and its stream."""
        self.state.gateways.forget(gateway)
        lost = [request for request in self.state.requests.values() if request.gateway == gateway]
        effects = [effect for request in lost for effect in self._forget(request)]
        finished = self.state.finished_since_beat.pop(gateway, [])
        left_behind = [*finished, *(request.request_id for request in lost)]
        payloads = [Drop(streams.payload(request_id)) for request_id in left_behind]
        return [*effects, *payloads, Drop(streams.tokens(gateway))]
