"""The account of one call to an endpoint: what is known of it so far, and what is published when it is over."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import structlog
from opentelemetry.trace import Span

from gateway.http.refusals import log_refusal
from gateway.inflight import tracing
from gateway.inflight.calls.call import InflightCall
from gateway.inflight.calls.job import Job
from gateway.inflight.timeline import Timeline
from gateway.metrics.metrics import GatewayMetrics
from gateway.openai.errors.errors import DROPPED_REASON_HEADER, ApiError
from shared.messages.requests.requests import QueueLine

_log = structlog.get_logger("gateway.request")

OK = "ok"
CANCELLED = "cancelled"
REJECTED = "rejected"
ERROR = "error"
_UNKNOWN = "unknown"  # labels of a request that was refused before its model or class was found


@dataclass
class Visit:
    """Filled in as the request goes on; `close` is called once, however it ends."""

    request_id: str
    tenant: str
    span: Span
    timeline: Timeline
    jobs: Sequence[Job] = field(default=(), repr=False)
    """One a prompt; none until the call is admitted."""
    call: InflightCall | None = field(default=None, repr=False)
    """None until its requests are submitted."""
    predicted: QueueLine | None = None
    """How it stood in the queue for requests like this when it came; None while nothing was known."""
    refusal: ApiError | None = None
    """The error that it was answered with."""
    path: str = ""
    outcome: str = ERROR
    """What is not said otherwise has gone wrong."""

    def admit(self, operation: str, jobs: Sequence[Job]) -> None:
        """The request is complete and checked."""
        self.jobs = jobs
        tracing.describe_jobs(self.span, operation, self.request_id, jobs)

    def submit(self, call: InflightCall) -> None:
        """Its requests are in the queue."""
        self.call = call
        self.predicted = call.queue_line(self.timeline.arrival_s)

    def refuse(self, error: ApiError) -> None:
        """The request is answered with an error: the reason it was dropped for, or whose fault it was."""
        self.refusal = error
        default = ERROR if error.status >= 500 else REJECTED
        self.outcome = error.headers.get(DROPPED_REASON_HEADER, default)

    def abandon(self) -> None:
        """The client left; one that has the whole answer is none of that kind."""
        if self.outcome != OK:
            self.outcome = CANCELLED

    def close(self, metrics: GatewayMetrics, now: float) -> None:
        """Publish metrics, span attributes and one log event. Prompts, answers and keys are in none of them."""
        job, timeline = next(iter(self.jobs), None), self.timeline  # its jobs have model and promise in common
        model, slo_class = (job.served_name, job.slo.kind) if job else (_UNKNOWN, _UNKNOWN)
        labels = (model, slo_class, self.tenant)
        prompt_tokens = sum(one.num_prompt_tokens for one in self.jobs)
        cached_tokens = self.call.num_cached_tokens if self.call is not None else None
        num_resubmissions = self.call.num_resubmissions if self.call is not None else 0
        metrics.count(labels, self.outcome)
        metrics.count_work(
            labels,
            prompt_tokens=prompt_tokens,
            cached_tokens=cached_tokens,
            output_tokens=timeline.num_tokens,
            num_resubmissions=num_resubmissions,
        )
        if self.refusal:
            metrics.count_refusal(labels, self.refusal.code)
        if self.predicted is not None and timeline.ttft_s is not None:
            metrics.predictions.observe(self.predicted, timeline.ttft_s)
        if job is not None:
            if self.outcome == OK:
                metrics.observe(labels, timeline)
            if self.outcome != CANCELLED:
                metrics.judge(labels, job.slo, timeline, is_complete=self.outcome == OK)
        is_error = self.outcome not in {OK, CANCELLED, REJECTED}
        error_type = (self.refusal.code if self.refusal else self.outcome) if is_error else ""
        tracing.describe_outcome(self.span, self.outcome, timeline, cached_tokens=cached_tokens, error_type=error_type)
        known: dict[str, Any] = {
            "request_id": self.request_id,
            "model": model,
            "slo_class": slo_class,
            "tenant": self.tenant,
            "outcome": self.outcome,
            "prompt_tokens": prompt_tokens,
            "cached_tokens": cached_tokens,
            "output_tokens": timeline.num_tokens,
            "num_resubmissions": num_resubmissions,
            "ttft_s": timeline.ttft_s,
            "e2e_s": now - timeline.arrival_s,
        }
        if self.refusal:
            log_refusal(self.refusal, path=self.path, **known)
        else:
            _log.info("request_finished", **known)
