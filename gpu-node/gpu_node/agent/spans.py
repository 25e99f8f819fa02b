"""Spans of the requests that run here: from pull to last token, children of the gateway's span."""

from __future__ import annotations

from dataclasses import dataclass, field

from opentelemetry.trace import Span, Tracer
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from gpu_node.agent.actions import Publish
from gpu_node.engine.protocol import Run
from shared.messages import Chunk


@dataclass(slots=True)
class _OpenSpan:
    span: Span
    has_begun: bool = False
    finish_reasons: dict[int, str] = field(default_factory=dict)
    """By choice, of those that have ended in this run."""


class RunSpans:
    """Opens a span when the engine is given a request and closes it when its end is published."""

    def __init__(self, node: str, tracer: Tracer) -> None:
        self._node = node
        self._tracer = tracer
        self._open: dict[str, _OpenSpan] = {}

    def begin(self, run: Run) -> None:
        """The engine has the request."""
        payload = run.payload
        parent = TraceContextTextMapPropagator().extract({"traceparent": payload.traceparent})
        attributes = {"gen_ai.request.model": payload.model, "treadle.node": self._node}
        span = self._tracer.start_span("node run", context=parent, attributes=attributes)
        self._open[payload.request_id] = _OpenSpan(span)

    def publish(self, publish: Publish) -> None:
        """First tokens become events; ends close spans."""
        for tokens in publish.tokens.values():
            for chunk in tokens.chunks:
                self._note(chunk)
        for finished in publish.finished:
            run = self._open.pop(finished.request_id, None)
            if run is not None:
                reasons = [run.finish_reasons[choice] for choice in sorted(run.finish_reasons)]
                run.span.set_attribute("gen_ai.usage.output_tokens", finished.output_tokens)
                run.span.set_attribute("gen_ai.response.finish_reasons", reasons)
                run.span.end()
        for evicted in publish.evicted:
            self._end(evicted.request_id, "treadle.evicted")

    def _note(self, chunk: Chunk) -> None:
        run = self._open.get(chunk.request_id)
        if run is None:
            return
        if chunk.token_ids and not run.has_begun:
            run.has_begun = True
            run.span.add_event("first token")
        if chunk.finish_reason:
            run.finish_reasons[chunk.choice] = chunk.finish_reason

    def drop(self, request_ids: list[str]) -> None:
        """The queue manager took these back."""
        for request_id in request_ids:
            self._end(request_id, "treadle.aborted")

    def _end(self, request_id: str, reason: str) -> None:
        run = self._open.pop(request_id, None)
        if run is not None:
            run.span.set_attribute(reason, True)
            run.span.end()

    def close(self) -> None:
        """The epoch is over."""
        self.drop(list(self._open))
