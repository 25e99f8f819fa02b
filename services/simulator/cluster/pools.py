"""Nodes of pools in the simulator: what a node provider does live, in virtual time."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from services.simulator.cluster.memory_bus import MemoryBus
from services.simulator.cluster.node import SimulatedNode
from shared.bus import streams
from shared.config.nodes.nodes import NodePool
from shared.messages.message import Message
from shared.messages.nodes.nodes import NodeGone, Scale, Scaled

LOOK_AGAIN_S = 1.0  # a node that still hands over what it had cannot be started again


@dataclass(slots=True)
class NodeLease:
    """One life of a node, from the order for it until it is gone: what is paid for."""

    node: str
    start_s: float
    end_s: float | None = None

    def seconds(self, from_s: float, to_s: float) -> float:
        """Of it between two times."""
        end_s = to_s if self.end_s is None else self.end_s
        return max(0.0, min(end_s, to_s) - max(self.start_s, from_s))


class SimulatedProvider:
    """Starts the next nodes of a pool, which takes ``start_s``, and has the last ones leave."""

    def __init__(self, bus: MemoryBus, pools: Iterable[NodePool], start: Callable[[str, str], SimulatedNode]) -> None:
        """``start`` makes a node, by the names of its pool and of itself, or begins its next life."""
        self.leases: list[NodeLease] = []
        self._bus = bus
        self._pools = {pool.name: pool for pool in pools}
        self._start = start
        self._wanted = dict.fromkeys(self._pools, 0)
        self._nodes: dict[str, SimulatedNode] = {}
        self._open: dict[str, NodeLease] = {}
        bus.subscribe(streams.PROVIDER, self._receive)
        bus.listen(self._listen)

    def _receive(self, message: Message, now: float) -> None:
        assert isinstance(message, Scale)
        name, before = message.pool, self._wanted[message.pool]
        self._wanted[name] = message.num_nodes
        for ordinal in range(before, message.num_nodes):
            self._order(name, f"{name}-{ordinal}", now)
        for ordinal in range(message.num_nodes, before):
            self._dismiss(f"{name}-{ordinal}", now)
        self._bus.send(streams.SCHEDULER, Scaled(pool=name, num_nodes=message.num_nodes))

    def _order(self, pool: str, node: str, now: float) -> None:
        lease = self._open[node] = NodeLease(node, now)
        self.leases.append(lease)
        self._bus.at(now + self._pools[pool].start_s, lambda: self._boot(pool, node, lease))

    def _boot(self, pool: str, node: str, lease: NodeLease) -> None:
        if self._open.get(node) is not lease:
            return  # it was dismissed before it had started
        if node in self._nodes and self._nodes[node].is_alive:
            self._bus.at(self._bus.now + LOOK_AGAIN_S, lambda: self._boot(pool, node, lease))
        else:
            self._nodes[node] = self._start(pool, node)

    def _dismiss(self, node: str, now: float) -> None:
        lease = self._open.pop(node)
        if node in self._nodes and self._nodes[node].is_alive:
            self._nodes[node].leave()
        else:
            lease.end_s = now

    def _listen(self, now: float, _: str, message: Message) -> None:
        if isinstance(message, NodeGone):
            for lease in self.leases:
                if lease.node == message.node and lease.end_s is None and self._open.get(lease.node) is not lease:
                    lease.end_s = now
