"""Spans of the requests that run here: from pull to last token, children of the gateway's span."""

from __future__ import annotations

from opentelemetry import trace
from opentelemetry.trace import Span
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from gpu_node.agent.actions import Publish
from gpu_node.engine.protocol import Run


class RunSpans:
    """Opens a span when the engine is given a request and closes it when its end is published."""

    def __init__(self, node: str) -> None:
        self._node = node
        self._tracer = trace.get_tracer("treadle.node")
        self._open: dict[str, Span] = {}

    def begin(self, run: Run) -> None:
        """The engine has the request."""
        payload = run.payload
        parent = TraceContextTextMapPropagator().extract({"traceparent": payload.traceparent})
        attributes = {"gen_ai.request.model": payload.model, "treadle.node": self._node}
        span = self._tracer.start_span("node run", context=parent, attributes=attributes)
        self._open[payload.request_id] = span

    def publish(self, publish: Publish) -> None:
        """First tokens become events; ends close spans."""
        for tokens in publish.tokens.values():
            for chunk in tokens.chunks:
                if chunk.index == 0 and chunk.request_id in self._open:
                    self._open[chunk.request_id].add_event("first token")
        for finished in publish.finished:
            span = self._open.pop(finished.request_id, None)
            if span is not None:
                span.set_attribute("gen_ai.usage.output_tokens", finished.output_tokens)
                span.set_attribute("gen_ai.response.finish_reasons", [finished.reason])
                span.end()

    def drop(self, request_ids: list[str]) -> None:
        """The queue manager took these back."""
        for request_id in request_ids:
            span = self._open.pop(request_id, None)
            if span is not None:
                span.set_attribute("treadle.aborted", True)
                span.end()

    def close(self) -> None:
        """The epoch is over."""
        self.drop(list(self._open))
