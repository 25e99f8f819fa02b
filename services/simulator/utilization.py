"""What pools are compared with: the rule of Kubernetes' HorizontalPodAutoscaler, on the utilization of the devices.

``desired = ceil(current * utilization / target)``, every 15 s, left alone within a tenth of the target; up to twice as
many nodes or four more at a time; down to the highest that was desired within five minutes. Nodes that do not serve yet
count as idle when it grows. These are its documented defaults; it keeps one node at least. A device is utilized while
something runs on it, as its heartbeats tell.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from math import ceil
from statistics import mean

from services.simulator.cluster.memory_bus import MemoryBus
from shared.bus import streams
from shared.config.nodes.nodes import NodePool
from shared.messages.message import Message
from shared.messages.nodes.nodes import Heartbeat, Scale

PERIOD_S = 15.0
TOLERANCE = 0.1
STABILIZATION_S = 300.0
MOST_TIMES, MOST_MORE = 2, 4


@dataclass(slots=True)
class _Pool:
    spec: NodePool
    wanted: int
    beats: dict[str, list[float]] = field(default_factory=dict)
    """Of each node that serves, whether it was busy at the heartbeats since the last decision."""
    desired: deque[tuple[float, int]] = field(default_factory=deque)


class UtilizationScaler:
    """Scales every pool by itself; in the place of the scheduler's own decisions."""

    def __init__(self, bus: MemoryBus, pools: list[NodePool], target: float) -> None:
        self._bus = bus
        self._target = target
        self._pools = [_Pool(pool, max(1, pool.min_nodes)) for pool in pools]
        bus.listen(self._listen)
        bus.at(0.0, self._decide)

    def _listen(self, _: float, __: str, message: Message) -> None:
        for pool in self._pools:
            if isinstance(message, Heartbeat) and message.model and pool.spec.ordinal(message.node) is not None:
                pool.beats.setdefault(message.node, []).append(float(message.num_running + message.num_waiting > 0))

    def _decide(self) -> None:
        now = self._bus.now
        for pool in self._pools:
            pool.desired.append((now, self._desired(pool)))
            pool.beats.clear()
            while pool.desired[0][0] <= now - STABILIZATION_S:
                pool.desired.popleft()
            newest, highest = pool.desired[-1][1], max(number for _, number in pool.desired)
            if newest > pool.wanted:
                pool.wanted = min(newest, max(MOST_TIMES * pool.wanted, pool.wanted + MOST_MORE))
            else:
                pool.wanted = min(pool.wanted, highest)
            self._bus.send(streams.PROVIDER, Scale(pool=pool.spec.name, num_nodes=pool.wanted))
        self._bus.at(now + PERIOD_S, self._decide)

    def _desired(self, pool: _Pool) -> int:
        total, num_serving = sum(mean(busy) for busy in pool.beats.values()), len(pool.beats)
        if not num_serving:
            return pool.wanted
        ratio = total / num_serving / self._target
        if ratio > 1 and num_serving < pool.wanted:
            num_serving = pool.wanted
            ratio = max(1.0, total / num_serving / self._target)
        number = pool.wanted if abs(ratio - 1) <= TOLERANCE else ceil(ratio * num_serving)
        return min(max(number, 1, pool.spec.min_nodes), pool.spec.max_nodes)
