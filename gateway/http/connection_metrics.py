"""Connections of clients in metrics: how many do what, and why they were closed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from gateway.http.connections import Connections, ConnectionState, Reason


class ConnectionCollector(Collector):
    """The table of connections, when metrics are read."""

    def __init__(self, connections: Connections[Any]) -> None:
        self._connections = connections

    def collect(self) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
        """A gauge by state, its limit, a counter by reason."""
        connections = self._connections
        is_open = GaugeMetricFamily(
            "treadle_connections",
            "Connections of clients: without a whole header, with a request under way, idle, being refused",
            labels=["state"],
        )
        for state in ConnectionState:
            is_open.add_metric([state.value], connections.num_in(state))
        yield is_open
        yield GaugeMetricFamily(
            "treadle_max_connections", "Most connections that this gateway holds", value=connections.limit
        )
        closed = CounterMetricFamily(
            "treadle_closed_connections", "Connections of clients that have ended, by why", labels=["reason"]
        )
        for reason in Reason:
            closed.add_metric([reason.value], connections.num_closed[reason])
        yield closed
