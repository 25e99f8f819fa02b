"""Every metric that Treadle's processes export, found where they are made: nothing is listed twice."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.metrics import MetricWrapperBase

import gpu_node.agent.telemetry.metrics as node_metrics
from gateway.http.connection_metrics import ConnectionCollector
from gateway.http.connections import Connections
from gateway.inflight.queue_view import QueueView
from gateway.metrics.coalescing_metrics import CoalescingCollector
from gateway.metrics.metrics import GatewayMetrics
from gateway.metrics.queue_metrics import QueueCollector
from gateway.metrics.redis_metrics import RedisCollector
from gateway.tenants.rate_exchange import RateMetrics
from gateway.workers.key_watch import KeyMetrics
from gateway.workers.model_watch import ModelMetrics
from gateway.workers.parent_metrics import WorkersCollector
from gateway.workers.worker_pool import WorkerPool
from gpu_node.agent.telemetry import image_metrics, prefix_metrics, run_times
from gpu_node.agent.telemetry.engine_gauges import EngineGauges
from services.batches.metrics import BatchMetrics
from services.kv_manager.core import KvManagerCore
from services.kv_manager.metrics import measure as measure_kv_manager
from services.queue_manager.core import QueueManagerCore
from services.queue_manager.metrics import QueueMetrics
from services.scheduler.core import SchedulerCore
from services.scheduler.metrics import measure as measure_scheduler
from shared.bus import bus
from shared.bus.redis_health import RedisHealth
from shared.config.config import ClusterConfig
from shared.config.engines.engine import EngineOptions
from shared.service import driver
from shared.service.admin.inbox_lag import InboxLag, InboxLagCollector
from shared.service.background import solver
from shared.service.log import durability
from shared.telemetry import lossy_stream
from shared.telemetry.loop_lag import LoopLag

_SUFFIXES = {"counter": ("_total",), "gauge": ("",), "histogram": ("_bucket", "_count", "_sum")}


@dataclass(frozen=True)
class Family:
    """A metric and the samples that it is made of."""

    process: str
    """Who exports it."""
    name: str
    """Without the suffix of its samples."""
    kind: str
    labels: tuple[str, ...]
    description: str

    @property
    def samples(self) -> list[str]:
        """What queries name."""
        return [self.name + suffix for suffix in _SUFFIXES[self.kind]]


def catalogue() -> list[Family]:
    """By process, then by name."""
    config = ClusterConfig()
    gateway = GatewayMetrics(CollectorRegistry())
    rooms: dict[str, Iterable[Any]] = {
        "gateway": [
            *_made_in(gateway),
            *_made_in(gateway.predictions),
            *_made_in(KeyMetrics(CollectorRegistry())),
            *_made_in(ModelMetrics(CollectorRegistry())),
            *_made_in(RateMetrics(CollectorRegistry())),
            *QueueCollector(QueueView(), _never).collect(),
            *RedisCollector(RedisHealth).collect(),
            *ConnectionCollector(Connections(1)).collect(),
            *CoalescingCollector(lambda: 0).collect(),
            *_made_in(LoopLag(CollectorRegistry())),
        ],
        "gateway with several workers": WorkersCollector(WorkerPool(1, 0.0)).collect(),
        "queue manager": QueueMetrics()(QueueManagerCore(config)),
        "scheduler": [*measure_scheduler(SchedulerCore(config)), *_made_in(solver)],
        "KV manager": measure_kv_manager(KvManagerCore()),
        "batches": _made_in(BatchMetrics(CollectorRegistry())),
        "each service": [*_made_in(driver), *InboxLagCollector("", InboxLag()).collect()],
        "each service, gateway": _made_in(durability),
        "gateway, node": _made_in(bus),
        "each process": _made_in(lossy_stream),
        "node": [
            *_made_in(node_metrics),
            *_made_in(image_metrics),
            *_made_in(prefix_metrics),
            *_made_in(run_times),
            *EngineGauges(_no_core, EngineOptions()).collect(),
        ],
    }
    return [
        family
        for process, made in rooms.items()
        for family in sorted(_families(process, made), key=lambda one: one.name)
    ]


def _families(process: str, made: Iterable[Any]) -> Iterator[Family]:
    for one in made:
        (metric,) = one.describe() if isinstance(one, MetricWrapperBase) else [one]
        assert isinstance(metric, Metric)
        # the library tells label names nowhere else
        labels = tuple(one._labelnames)
        yield Family(process, metric.name, metric.type, labels, metric.documentation)


def _made_in(place: ModuleType | object) -> list[MetricWrapperBase]:
    return [one for _, one in inspect.getmembers(place) if isinstance(one, MetricWrapperBase)]


def _never() -> float:
    return 0.0


def _no_core() -> None:
    return None
