"""What the gateway measures: latency and kept promises are judged here, where the client is."""

from __future__ import annotations

from typing import TypeVar, cast

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from gateway.inflight.timeline import Timeline
from gateway.metrics.queue_metrics import PredictionErrors
from shared.messages.requests.slo import Slo
from shared.telemetry.label_cap import LabelCap

_LABELS = ["model", "slo_class", "tenant"]
_LATENCY_BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 60, 120, 300, 600, 1800, 3600)
_TPOT_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 1, 2.5)


M = TypeVar("M", Counter, Histogram)


class GatewayMetrics:
    """The gateway's metrics in one registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._cap = LabelCap()
        self._children: dict[tuple[Counter | Histogram, tuple[str, ...]], Counter | Histogram] = {}
        self._ttft = Histogram(
            "treadle_ttft_seconds", "Arrival to first token", _LABELS, buckets=_LATENCY_BUCKETS_S, registry=registry
        )
        self._tpot = Histogram(
            "treadle_tpot_seconds",
            "Mean time of an output token after the first",
            _LABELS,
            buckets=_TPOT_BUCKETS_S,
            registry=registry,
        )
        self._e2e = Histogram(
            "treadle_e2e_seconds", "Arrival to last token", _LABELS, buckets=_LATENCY_BUCKETS_S, registry=registry
        )
        self._requests = Counter(
            "treadle_requests_total", "Requests by how they ended", [*_LABELS, "outcome"], registry=registry
        )
        self._refused = Counter(
            "treadle_refused_requests_total", "Requests answered with an error", [*_LABELS, "code"], registry=registry
        )
        self._prompt_tokens = Counter(
            "treadle_prompt_tokens_total", "Tokens in the prompts of answers that began", _LABELS, registry=registry
        )
        self._cached_tokens = Counter(
            "treadle_cached_prompt_tokens_total",
            "Of these, tokens that were found in a cache, as far as engines say it",
            _LABELS,
            registry=registry,
        )
        self._output_tokens = Counter(
            "treadle_output_tokens_total", "Tokens of answers, complete or not", _LABELS, registry=registry
        )
        self._resubmitted = Counter(
            "treadle_resubmitted_requests_total",
            "Attempts after the first: the node was lost, or the request gave way without its KV",
            _LABELS,
            registry=registry,
        )
        self._attained = Counter("treadle_slo_attained_total", "Answers in time", _LABELS, registry=registry)
        self._missed = Counter(
            "treadle_slo_missed_total",
            "Answers too late, and requests without one",
            _LABELS,
            registry=registry,
        )
        self.unkept_responses = Counter(
            "treadle_unkept_responses_total",
            "Answers of the Responses API that were to be kept and could not be; why stands in the log",
            registry=registry,
        )
        self.predictions = PredictionErrors(registry)
        self.inflight = Gauge("treadle_inflight_requests", "Requests that this gateway holds", registry=registry)
        self.inflight_bytes = Gauge(
            "treadle_inflight_bytes", "Bodies and payloads of the requests that this gateway holds", registry=registry
        )

    def count(self, labels: tuple[str, str, str], outcome: str) -> None:
        """One request is over."""
        self._child(self._requests, (*self._cap.capped(labels), outcome)).inc()

    def count_refusal(self, labels: tuple[str, str, str], code: str) -> None:
        """One request was answered with an error; ``code`` is one of `gateway.openai.errors.errors`."""
        self._refused.labels(*self._cap.capped(labels), code).inc()

    def count_work(
        self,
        labels: tuple[str, str, str],
        *,
        prompt_tokens: int,
        cached_tokens: int | None,
        output_tokens: int,
        num_resubmissions: int,
    ) -> None:
        """What was done for a request, whatever came of it; ``cached_tokens`` is None where it is not told."""
        capped = self._cap.capped(labels)
        if output_tokens:
            self._child(self._prompt_tokens, capped).inc(prompt_tokens)
            self._child(self._cached_tokens, capped).inc(cached_tokens or 0)
            self._child(self._output_tokens, capped).inc(output_tokens)
        self._child(self._resubmitted, capped).inc(num_resubmissions)

    def observe(self, labels: tuple[str, str, str], timeline: Timeline) -> None:
        """The times of one complete answer."""
        capped = self._cap.capped(labels)
        for histogram, value in (
            (self._ttft, timeline.ttft_s),
            (self._tpot, timeline.tpot_s),
            (self._e2e, timeline.e2e_s),
        ):
            if value is not None:
                self._child(histogram, capped).observe(value)

    def judge(self, labels: tuple[str, str, str], slo: Slo, timeline: Timeline, *, is_complete: bool) -> None:
        """Whether an accepted request's promise was kept; a request that its client gave up is not judged."""
        capped = self._cap.capped(labels)
        kept = is_complete and timeline.keeps(slo)
        self._child(self._attained, capped).inc(kept)
        self._child(self._missed, capped).inc(not kept)  # both are there from the first on: their ratio has a value

    def _child(self, metric: M, labels: tuple[str, ...]) -> M:
        """As ``metric.labels``, which takes a lock and makes strings of strings; a request asks for a dozen."""
        child = self._children.get((metric, labels))
        if child is None:
            child = self._children[metric, labels] = metric.labels(*labels)
        return cast("M", child)
