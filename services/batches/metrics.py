"""What operators see of batches."""

from __future__ import annotations

import math

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge

from services.batches.decisions.core import BatchCore
from services.batches.decisions.verdict import AnswerVerdict


class BatchMetrics:
    """Metrics of the batch service."""

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        self.answers = Counter(
            "treadle_batch_answers",
            "Answers to requests of batches, by what became of the request: completed, failed, refused or retried (it "
            "is sent again), revoked",
            ["verdict"],
            registry=registry,
        )
        self.ended = Counter("treadle_batches_ended", "Batches that ended, by status", ["status"], registry=registry)
        self.open = Gauge("treadle_batches_open", "Batches that have not ended", registry=registry)
        self.inflight = Gauge(
            "treadle_batch_requests_inflight", "Requests of batches that are sent and not answered", registry=registry
        )
        self.waiting = Gauge(
            "treadle_batch_requests_waiting", "Requests of batches that are not sent yet", registry=registry
        )
        self.least_left = Gauge(
            "treadle_batch_least_window_seconds",
            "What is left of the window of the open batch that ends first; absent is NaN",
            registry=registry,
        )
        self.stored = Gauge("treadle_batch_stored_bytes", "Files on the disk, results included", registry=registry)
        self.blocked = Gauge(
            "treadle_batch_disk_full", "1 while answers cannot be written, and nothing is sent", registry=registry
        )
        for verdict in AnswerVerdict:
            self.answers.labels(verdict.value)

    def show(self, core: BatchCore, num_open: int, now: float) -> None:
        """How batches stand."""
        self.open.set(num_open)
        self.inflight.set(core.num_out)
        self.waiting.set(sum(one.num_unsettled - len(one.out) for one in core.batches))
        self.least_left.set(min((one.expires_s - now for one in core.batches), default=math.nan))
        self.blocked.set(core.is_blocked)
