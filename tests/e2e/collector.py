"""A tiny OTLP/HTTP collector: takes spans as an observability backend would, and keeps them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


@dataclass(frozen=True)
class Span:
    """A span as far as the tests look at it."""

    service: str
    name: str
    trace_id: str
    span_id: str
    parent_id: str
    start_s: float
    end_s: float
    attributes: dict[str, str | int | float]
    events: dict[str, float]
    """When each happened, by name; no span of ours has two of a name."""


@dataclass
class Collector:
    """The spans of one session."""

    url: str
    spans: list[Span] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def trace(self, trace_id: str) -> list[Span]:
        """Its spans so far in the order in which they began, but no child before the root.

        One that begins with an entry of Redis begins on a full millisecond: before its cause, or at once with others.
        """
        found = [span for span in self.spans if span.trace_id == trace_id]
        ids = {span.span_id for span in found}
        return sorted(found, key=lambda span: (span.parent_id in ids, span.start_s, span.end_s))

    def add(self, body: bytes) -> None:
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            names = {item.key: item.value.string_value for item in resource.resource.attributes}
            for scope in resource.scope_spans:
                for span in scope.spans:
                    values = {item.key: item.value for item in span.attributes}
                    attributes = {key: getattr(value, value.WhichOneof("value")) for key, value in values.items()}
                    ids = span.trace_id.hex(), span.span_id.hex(), span.parent_span_id.hex()
                    times = span.start_time_unix_nano / 1e9, span.end_time_unix_nano / 1e9
                    events = {event.name: event.time_unix_nano / 1e9 for event in span.events}
                    service = names.get("service.name", "")
                    self.spans.append(Span(service, span.name, *ids, *times, attributes, events))


@contextmanager
def collecting() -> Iterator[Collector]:
    """Listen until the end of the block."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            try:
                collector.add(body)
            except Exception as error:  # an exception here would be lost in the server's thread
                collector.problems.append(f"{self.path}: {error!r}")
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - http.server's name
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        collector = Collector(f"http://127.0.0.1:{server.server_port}")
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield collector
        finally:
            server.shutdown()
            thread.join()
