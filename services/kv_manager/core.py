"""The KV manager's decisions: memory of every node, and what lies where, by its reports. A fold over its inbox.

What lies where is told by nodes and asked by gateways, for the queue manager. It is no part of the state that survives:
an instance that begins has an empty index, answers that nothing is known, and asks each node that it hears of.
"""

from __future__ import annotations

import msgspec

from services.kv_manager.index import BlockIndex
from services.kv_manager.leases import LeaseBook, LeaseState, PageLease
from shared.bus import streams
from shared.config.nodes.offload import NO_OFFLOAD, OffloadOptions
from shared.messages.memory.blocks import BlockNews, Locate, Located, TellBlocks
from shared.messages.memory.leases import LeaseFailed, LeaseMade, LeftPages, Lent
from shared.messages.message import Tick
from shared.messages.messages import AnyMessage
from shared.messages.nodes.nodes import Heartbeat, NodeGone
from shared.service.core import Effect, Send
from shared.service.liveness import Liveness

NODE_TIMEOUT_S = 5.0  # room on a node that is silent for this long is no room


class NodeMemory(msgspec.Struct):
    """KV memory of one node. Bytes are zero while no model gives a block its size."""

    node: str
    epoch: str
    device: str
    model: str
    num_blocks: int
    num_used_blocks: int
    block_bytes: int
    peak_used_blocks: int


class KvState(msgspec.Struct):
    """Everything the KV manager knows."""

    nodes: dict[str, NodeMemory] = {}
    alive: Liveness = msgspec.field(default_factory=lambda: Liveness(NODE_TIMEOUT_S))
    leases: LeaseState = msgspec.field(default_factory=LeaseState)


class KvManagerCore:
    """Knows each node's memory and what is used of it, where each cached block is, and which nodes lend pages."""

    def __init__(self, *, has_index: bool = False, offload: OffloadOptions = NO_OFFLOAD) -> None:
        """``has_index``: nodes tell what they have cached. ``offload``: which nodes may lend to which."""
        self._has_index = has_index
        self.state = KvState()
        self.index = BlockIndex()
        self.leases = LeaseBook(offload.host_of, offload.ratio, self.state.leases)

    @property
    def wake_at(self) -> float | None:
        """When the node that was silent longest is forgotten, or a lease needs something."""
        times = (self.state.alive.wake_at, self.leases.wake_at)
        return min((one for one in times if one is not None), default=None)

    def handle(self, message: AnyMessage, now: float) -> list[Effect]:
        """Fold one message in. A message meant for another service is an error, and becomes a dead letter."""
        match message:
            case Locate():
                return [self._located(message)]
            case BlockNews():
                self.index.hear(message)
                return self._ask_again(message.node, message.epoch, now)
            case Heartbeat():
                self._report(message, now)
                return [*self._ask_again(message.node, message.epoch, now), *self.leases.report(message, now)]
            case LeaseMade() | LeaseFailed() | Lent() | LeftPages():
                return self.leases.hear(message, now)
            case NodeGone(node=name, epoch=epoch):
                if name in self.state.nodes and self.state.nodes[name].epoch == epoch:
                    self.state.alive.forget(name)
                    return self._forget(name)
            case Tick():
                gone = [effect for name in self.state.alive.expire(now) for effect in self._forget(name)]
                return [*gone, *self.leases.tick(now)]
            case _:
                raise TypeError(f"{type(message).__name__} is no message for the KV manager")
        return []

    def _forget(self, node: str) -> list[Effect]:
        del self.state.nodes[node]
        self.index.forget(node)
        return self.leases.forget(node)

    def _located(self, question: Locate) -> Effect:
        nodes = self.index.find(question.model, question.names)
        answer = Located(request_id=question.request_id, attempt=question.attempt, nodes=nodes)
        return Send(streams.QUEUE, answer)

    def _ask_again(self, node: str, epoch: str, now: float) -> list[Effect]:
        if not (self._has_index and self.index.must_ask(node, epoch, now)):
            return []
        inbox = streams.node_inbox(node)
        return [Send(inbox, TellBlocks(node=node, epoch=epoch), max_entries=streams.MAX_NODE_INBOX)]

    def _report(self, beat: Heartbeat, now: float) -> None:
        known = self.state.nodes.get(beat.node)
        num_used = beat.num_blocks - beat.num_free_blocks
        same_arena = known is not None and (known.epoch, known.model) == (beat.epoch, beat.model)
        self.state.nodes[beat.node] = NodeMemory(
            node=beat.node,
            epoch=beat.epoch,
            device=beat.facts.device,
            model=beat.model,
            num_blocks=beat.num_blocks,
            num_used_blocks=num_used,
            block_bytes=beat.block_bytes,
            peak_used_blocks=max(num_used, known.peak_used_blocks if known is not None and same_arena else 0),
        )
        self.state.alive.hear(beat.node, now)

    def snapshot(self) -> bytes:
        """The whole state."""
        return msgspec.msgpack.encode(self.state)

    def restore(self, state: bytes) -> None:
        """Take over a snapshot."""
        self.state = msgspec.msgpack.decode(state, type=KvState)
        self.index = BlockIndex()
        self.leases.state = self.state.leases

    def describe(self) -> dict[str, object]:
        """Memory by node and in all, in bytes and blocks."""
        nodes = self.state.nodes.values()
        return {
            "nodes": {node.node: msgspec.to_builtins(node) for node in nodes},
            "kv_bytes": sum(node.num_blocks * node.block_bytes for node in nodes),
            "used_kv_bytes": sum(node.num_used_blocks * node.block_bytes for node in nodes),
            "leases": {name: _lease(lease) for name, lease in self.leases.leases.items()},
            "cached_blocks": {name: self.index.num_blocks_at(name) for name in self.state.nodes},
        }


def _lease(lease: PageLease) -> dict[str, object]:
    return {"receiver": lease.link.receiver, "stage": str(lease.stage), "num_pages": len(lease.pages)}
