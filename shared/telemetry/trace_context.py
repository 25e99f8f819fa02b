"""The W3C trace context that travels in messages and payloads."""

from __future__ import annotations

from opentelemetry.trace import Span, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

PROPAGATOR = TraceContextTextMapPropagator()


def traceparent(span: Span) -> str:
    """The context under which the rest of the cluster works for this span; ``""`` if there is none."""
    carrier: dict[str, str] = {}
    PROPAGATOR.inject(carrier, set_span_in_context(span))
    return carrier.get("traceparent", "")


def trace_id(traceparent: str) -> str:
    """The id by which a trace is found, of a message's ``traceparent``; ``""`` if it has none, or is none."""
    return traceparent.partition("-")[2].partition("-")[0]
