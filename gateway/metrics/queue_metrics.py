"""The queue in metrics: what is predicted now, and how far predictions were from what came."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from gateway.inflight.queue_view import QueueView
from shared.messages.requests.requests import QueueLine
from shared.telemetry.label_cap import LabelCap

_LABELS = ["model", "slo_class"]
_ERROR_BUCKETS_S = (-600, -120, -60, -20, -10, -5, -2, -1, -0.5, -0.1, 0.1, 0.5, 1, 2, 5, 10, 20, 60, 120, 600)


class QueueCollector(Collector):
    """The lines of the last status as they are when metrics are read; nothing once they are too old."""

    def __init__(self, view: QueueView, clock: Callable[[], float]) -> None:
        self._view = view
        self._clock = clock

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Two gauges, with a sample for each model and kind of promise."""
        wait = GaugeMetricFamily(
            "treadle_queue_predicted_wait_seconds", "Predicted wait of a request that comes now", labels=_LABELS
        )
        wait_p90 = GaugeMetricFamily(
            "treadle_queue_predicted_wait_p90_seconds", "The same, not exceeded with 90 % probability", labels=_LABELS
        )
        for line in self._view.lines(self._clock()):
            labels = [line.model, line.slo]
            wait.add_metric(labels, line.wait_s)
            wait_p90.add_metric(labels, line.wait_p90_s)
        yield from (wait, wait_p90)


class PredictionErrors:
    """Predicted against actual waiting: the first token of a newcomer as it was predicted, and as it came."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._cap = LabelCap()
        self._error = Histogram(
            "treadle_queue_wait_error_seconds",
            "Actual minus predicted time to the first token; above 0 it came later than predicted",
            _LABELS,
            buckets=_ERROR_BUCKETS_S,
            registry=registry,
        )
        self._above_p90 = Counter(
            "treadle_queue_wait_above_p90_total",
            "First tokens after the time that 90 % were predicted to keep",
            _LABELS,
            registry=registry,
        )

    def observe(self, line: QueueLine, ttft_s: float) -> None:
        """The first token of a request came; ``line`` is what was predicted when it arrived."""
        if math.isinf(line.wait_s):
            return  # nothing was predicted: no node could serve it
        labels = self._cap.capped((line.model, line.slo))
        self._error.labels(*labels).observe(ttft_s - line.wait_s)
        self._above_p90.labels(*labels).inc(ttft_s > line.wait_p90_s)
