"""What the parent of several workers measures itself."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from gateway.workers.expositions import LABEL
from gateway.workers.worker_pool import WorkerPool


class WorkersCollector(Collector):
    """The pool as it is when metrics are read."""

    def __init__(self, pool: WorkerPool) -> None:
        self._pool = pool

    def collect(self) -> Iterator[Metric]:
        """Two families."""
        yield GaugeMetricFamily(
            "treadle_gateway_workers_ready", "Workers of the gateway that serve", value=self._pool.num_ready
        )
        restarts = CounterMetricFamily(
            "treadle_gateway_worker_restarts", "Ends of a worker's process that were not asked for", labels=[LABEL]
        )
        for worker, num_restarts in enumerate(self._pool.num_restarts):
            restarts.add_metric([str(worker)], num_restarts)
        yield restarts
