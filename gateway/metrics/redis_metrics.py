"""Redis in metrics, as this gateway sees it: how full it is, and whether it can write its disk."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from shared.bus.redis_health import DISK_OPERATIONS, RedisHealth


class RedisCollector(Collector):
    """The last look at Redis, when metrics are read."""

    def __init__(self, health: Callable[[], RedisHealth]) -> None:
        self._health = health

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Three gauges; a limit of 0 is none."""
        health = self._health()
        yield GaugeMetricFamily(
            "treadle_redis_used_bytes", "Memory of Redis that counts towards its limit", value=health.used_bytes
        )
        yield GaugeMetricFamily(
            "treadle_redis_max_bytes", "Limit of that memory; 0 where there is none", value=health.max_bytes
        )
        failing = GaugeMetricFamily(
            "treadle_redis_disk_failing",
            "1 where Redis failed when it last wrote its log, rewrote it, or wrote a snapshot",
            labels=["operation"],
        )
        for operation in DISK_OPERATIONS:
            failing.add_metric([operation], operation in health.failing)
        yield failing
