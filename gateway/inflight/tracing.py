"""One server span a request, after OpenTelemetry's conventions for generative AI. Without an SDK it costs nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from opentelemetry.trace import INVALID_SPAN, NoOpTracer, Span, SpanKind, Status, StatusCode, Tracer
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from gateway.inflight.calls.job import Job
from gateway.inflight.timeline import Timeline

_propagator = TraceContextTextMapPropagator()
_PARENT = "traceparent"


@contextmanager
def request_span(tracer: Tracer, operation: str, headers: Mapping[str, str]) -> Iterator[Span]:
    """A span from here to the last byte; its parent is the client's, if it sent a ``traceparent``."""
    if isinstance(tracer, NoOpTracer) and _PARENT not in headers:
        yield INVALID_SPAN
        return
    parent = _propagator.extract({name.lower(): value for name, value in headers.items()})
    with tracer.start_as_current_span(
        operation,
        context=parent,
        kind=SpanKind.SERVER,
        attributes={"gen_ai.operation.name": operation, "gen_ai.provider.name": "treadle"},
        record_exception=False,  # a refusal is an answer; what is an error is said by `describe_outcome`
        set_status_on_exception=False,
    ) as span:
        yield span


def describe_jobs(span: Span, operation: str, request_id: str, jobs: Sequence[Job]) -> None:
    """What was asked for; never the prompt."""
    if not span.is_recording():
        return
    job = jobs[0]  # its jobs differ in nothing that is said here
    span.update_name(f"{operation} {job.served_name}")
    span.set_attributes(
        {
            "gen_ai.request.model": job.served_name,
            "gen_ai.request.max_tokens": job.sampling.max_tokens,
            "gen_ai.request.choice.count": len(jobs) * job.sampling.num_choices,
            "gen_ai.request.temperature": job.sampling.temperature,
            "gen_ai.request.top_p": job.sampling.top_p,
            "gen_ai.response.id": request_id,
            "gen_ai.usage.input_tokens": sum(one.num_prompt_tokens for one in jobs),
            "treadle.slo_class": job.slo.name,
            "treadle.tenant": job.tenant,
        }
    )


def note_resubmission(job: Job, attempt: int, *, gave_way: bool) -> None:
    """The request is in the queue again, for another attempt."""
    job.span.add_event(
        "resubmitted",
        {"treadle.request_id": job.request_id, "treadle.attempt": attempt, "treadle.gave_way": gave_way},
    )


def describe_outcome(
    span: Span, outcome: str, timeline: Timeline, *, cached_tokens: int | None, error_type: str
) -> None:
    """How it went; ``error_type`` is empty where nothing went wrong on this side.

    ``cached_tokens``: of the prompts; None where it is not told.
    """
    if not span.is_recording():
        return
    span.set_attribute("treadle.outcome", outcome)
    span.set_attribute("gen_ai.usage.output_tokens", timeline.num_tokens)
    if cached_tokens is not None:
        span.set_attribute("gen_ai.usage.cache_read.input_tokens", cached_tokens)
    if timeline.ttft_s is not None:
        span.set_attribute("gen_ai.server.time_to_first_token", timeline.ttft_s)
    if timeline.tpot_s is not None:
        span.set_attribute("gen_ai.server.time_per_output_token", timeline.tpot_s)
    if error_type:
        span.set_attribute("error.type", error_type)
        span.set_status(Status(StatusCode.ERROR, outcome))
