"""The scheduler's decisions: who is alive, who holds which model, and plans for the virtual queues."""

from __future__ import annotations

import msgspec

from shared import streams
from shared.core import Effect, Send, Solve
from shared.liveness import Liveness
from shared.messages import (
    AnyMessage,
    Fence,
    Heartbeat,
    Load,
    NodeDown,
    NodeGone,
    NodeState,
    NodeUp,
    PlacementProblem,
    PlanRequest,
    Solved,
    Tick,
)

NODE_TIMEOUT_S = 5.0  # a node that is silent for this long is dead; five missed heartbeats
REMEMBER_DEAD = 1_000  # epochs of dead nodes that are remembered, to fence them when they speak again


class NodeRecord(msgspec.Struct):
    """A live node as its last heartbeat told."""

    node: str
    epoch: str
    device: str
    model: str
    assigned: str
    """Model the node was last told to load, until it reports one."""
    tokens_per_s: float
    swap_s: float
    num_running: int
    broken_models: list[str]


class State(msgspec.Struct):
    """Everything the scheduler knows."""

    nodes: dict[str, NodeRecord] = {}
    alive: Liveness = msgspec.field(default_factory=lambda: Liveness(NODE_TIMEOUT_S))
    dead_epochs: list[str] = []
    num_plans: int = 0
    num_planned_swaps: int = 0


class SchedulerCore:
    """Knows nodes by their heartbeats; gives idle ones a model; answers the queue manager with plans."""

    def __init__(self, models: list[str]) -> None:
        self._models = models
        self.state = State()

    @property
    def wake_at(self) -> float | None:
        """When the node that was silent longest counts as dead."""
        return self.state.alive.wake_at

    def handle(self, message: AnyMessage, now: float) -> list[Effect]:
        """Fold one message in. A message meant for somebody else is an error, and becomes a dead letter."""
        match message:
            case Heartbeat():
                return self._heartbeat(message, now)
            case NodeGone():
                return self._node_gone(message)
            case PlanRequest():
                return self._plan_request(message, now)
            case Solved(plan=plan):
                self.state.num_plans += 1
                self.state.num_planned_swaps += plan.num_swaps
                return [Send(streams.QUEUE, plan)]
            case Tick():
                dead = self.state.alive.expire(now)
                return [effect for name in dead for effect in self._bury(self.state.nodes[name])]
            case _:
                raise TypeError(f"{type(message).__name__} is no message for the scheduler")

    def snapshot(self) -> bytes:
        """The whole state."""
        return msgspec.msgpack.encode(self.state)

    def restore(self, state: bytes) -> None:
        """Take over a snapshot."""
        self.state = msgspec.msgpack.decode(state, type=State)

    def describe(self) -> dict[str, object]:
        """Nodes and what they hold."""
        return {
            "nodes": {name: msgspec.to_builtins(node) for name, node in self.state.nodes.items()},
            "num_plans": self.state.num_plans,
            "num_planned_swaps": self.state.num_planned_swaps,
        }

    def _heartbeat(self, beat: Heartbeat, now: float) -> list[Effect]:
        if beat.epoch in self.state.dead_epochs:
            return [_to_node(Fence(node=beat.node, epoch=beat.epoch))]
        known = self.state.nodes.get(beat.node)
        effects: list[Effect] = []
        if known is not None and known.epoch != beat.epoch:
            effects += self._bury(known)
            known = None
        record = NodeRecord(
            node=beat.node,
            epoch=beat.epoch,
            device=beat.device,
            model=beat.model,
            assigned=_still_assigned(known, beat),
            tokens_per_s=beat.tokens_per_s,
            swap_s=beat.swap_s,
            num_running=beat.num_running,
            broken_models=beat.broken_models,
        )
        self.state.alive.hear(beat.node, now)
        self.state.nodes[beat.node] = record
        if known is None or known.model != beat.model:
            effects.append(Send(streams.QUEUE, NodeUp(node=beat.node, epoch=beat.epoch, model=beat.model)))
        if not beat.model and not record.assigned:
            effects += self._assign(record)
        return effects

    def _assign(self, record: NodeRecord) -> list[Effect]:
        """Give an empty node the model that the fewest others hold or were told to load; of several, the first."""
        held = [node.model or node.assigned for node in self.state.nodes.values()]
        able = [model for model in self._models if model not in record.broken_models]
        if not able:
            return []
        record.assigned = min(able, key=held.count)
        return [_to_node(Load(node=record.node, epoch=record.epoch, model=record.assigned))]

    def _node_gone(self, message: NodeGone) -> list[Effect]:
        node = self.state.nodes.get(message.node)
        return self._bury(node) if node is not None and node.epoch == message.epoch else []

    def _bury(self, node: NodeRecord) -> list[Effect]:
        del self.state.nodes[node.node]
        self.state.alive.forget(node.node)
        self.state.dead_epochs = [*self.state.dead_epochs, node.epoch][-REMEMBER_DEAD:]
        return [Send(streams.QUEUE, NodeDown(node=node.node, epoch=node.epoch))]

    def _plan_request(self, request: PlanRequest, now: float) -> list[Effect]:
        nodes = [
            NodeState(
                node=node.node,
                model=node.model or node.assigned,
                tokens_per_s=node.tokens_per_s,
                swap_s=node.swap_s,
                broken_models=node.broken_models,
            )
            for node in self.state.nodes.values()
        ]
        return [Solve(PlacementProblem(version=request.version, now_s=now, nodes=nodes, groups=request.groups))]


def _still_assigned(known: NodeRecord | None, beat: Heartbeat) -> str:
    """What the node was told to load, unless it has a model by now or could not load that one."""
    if known is None or beat.model or known.assigned in beat.broken_models:
        return ""
    return known.assigned


def _to_node(message: Load | Fence) -> Send:
    return Send(streams.node_inbox(message.node), message, max_entries=streams.MAX_NODE_INBOX)
