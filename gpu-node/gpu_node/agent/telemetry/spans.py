"""Spans of the requests that come here: their wait in the queue, and each run, children of the gateway's span."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from opentelemetry.trace import Span, Tracer
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from gpu_node.agent.decisions.actions import FetchPrefix, GroupEntry, Publish
from gpu_node.engine.process.protocol.protocol import RunAttempt
from shared.messages.requests.payload import Payload
from shared.messages.requests.requests import Chunk, FinishedRequest, ImageTicket
from shared.service.log.cluster_clock import id_time

_propagator = TraceContextTextMapPropagator()


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

    def pulled(self, group: str, entries: Sequence[GroupEntry]) -> None:
        """The queue is behind these: a span from the entry in the group's stream, on Redis's clock, until now."""
        for entry in entries:
            if entry.payload is None or not entry.payload.traceparent:
                continue
            attributes: dict[str, str | int] = {
                "gen_ai.request.model": entry.payload.model,
                "treadle.attempt": entry.enqueued.attempt,
                "treadle.group": group,
                "treadle.node": self._node,
            }
            if entry.enqueued.kv_at:
                attributes["treadle.kv_at"] = entry.enqueued.kv_at
            self._tracer.start_span(
                "queue wait",
                _propagator.extract({"traceparent": entry.payload.traceparent}),
                attributes=attributes,
                start_time=round(id_time(entry.entry_id) * 1e3) * 1_000_000,
            ).end()

    def begin(self, run: RunAttempt) -> None:
        """The engine has the request."""
        payload = run.payload
        attributes: dict[str, str | int] = {
            "gen_ai.request.model": payload.model,
            "treadle.attempt": payload.attempt,
            "treadle.node": self._node,
        }
        parent = _propagator.extract({"traceparent": payload.traceparent})
        span = self._tracer.start_span("node run", context=parent, attributes=attributes)
        self._open[payload.request_id] = _OpenSpan(span)

    @contextmanager
    def fetch(self, payload: Payload, ticket: ImageTicket) -> Iterator[Span]:
        """Around the time in which the KV of a request comes from another node."""
        attributes: dict[str, str | int] = {
            "treadle.attempt": payload.attempt,
            "treadle.node": self._node,
            "treadle.kv_at": ticket.node,
            "treadle.kv_bytes": ticket.num_bytes,
        }
        parent = _propagator.extract({"traceparent": payload.traceparent})
        with self._tracer.start_as_current_span("kv transfer", context=parent, attributes=attributes) as span:
            yield span

    @contextmanager
    def fetch_prefix(self, wanted: FetchPrefix) -> Iterator[Span]:
        """Around the time in which the beginning of a prompt comes from another node's cache."""
        attributes: dict[str, str | int] = {
            "treadle.attempt": wanted.payload.attempt,
            "treadle.node": self._node,
            "treadle.kv_at": wanted.source.node,
            "treadle.prefix_tokens": wanted.source.num_tokens,
        }
        parent = _propagator.extract({"traceparent": wanted.payload.traceparent})
        with self._tracer.start_as_current_span("prefix fetch", context=parent, attributes=attributes) as span:
            yield span

    def publish(self, publish: Publish) -> None:
        """First tokens and evictions become events; ends close spans."""
        for tokens in publish.tokens.values():
            for chunk in tokens.chunks:
                self._note(chunk)
        for finished in publish.finished:
            self._finish(finished)
        for evicted in publish.evicted:
            run = self._open.get(evicted.request_id)
            if run is not None:
                run.span.add_event("evicted", {"treadle.kv_tokens": evicted.kv_tokens, "treadle.kv_at": evicted.kv_at})
            self._end(evicted.request_id, "treadle.evicted")

    def _note(self, chunk: Chunk) -> None:
        run = self._open.get(chunk.request_id)
        if run is None:
            return
        if chunk.token_ids and not run.has_begun:
            run.has_begun = True
            run.span.add_event("first token", {"treadle.token_index": chunk.index})
        if chunk.finish_reason:
            run.finish_reasons[chunk.choice] = chunk.finish_reason

    def _finish(self, finished: FinishedRequest) -> None:
        run = self._open.pop(finished.request_id, None)
        if run is None:
            return
        reasons = [run.finish_reasons[choice] for choice in sorted(run.finish_reasons)]
        run.span.set_attribute("gen_ai.usage.output_tokens", finished.output_tokens)
        run.span.set_attribute("gen_ai.response.finish_reasons", reasons)
        if run.has_begun:
            run.span.add_event("last token")
        run.span.end()

    def drop(self, request_ids: Sequence[str]) -> None:
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
