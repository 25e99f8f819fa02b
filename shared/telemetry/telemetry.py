"""Structured logs (one JSON line an event, on stderr) and traces (where an OTLP endpoint is configured)."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Mapping
from types import TracebackType
from typing import Any, TextIO, cast

import msgspec
import structlog
from opentelemetry import trace
from opentelemetry.trace import format_trace_id

from shared.messages.message import Message
from shared.telemetry.log_rotation import log_stream
from shared.telemetry.log_summaries import LogFolder
from shared.telemetry.lossy_stream import LossyStream
from shared.telemetry.trace_context import PROPAGATOR


def _name_trace(_: object, __: str, event: structlog.types.EventDict) -> structlog.types.EventDict:
    """What is said while a traced request is worked on can be found by its trace."""
    context = trace.get_current_span().get_span_context()
    if context.is_valid:
        event.setdefault("trace_id", format_trace_id(context.trace_id))
    return event


def _to_json(event: object, **_: object) -> str:
    return msgspec.json.encode(event, enc_hook=str).decode()


_BEGIN: list[structlog.types.Processor] = [
    structlog.contextvars.merge_contextvars,
    _name_trace,
    structlog.processors.add_log_level,
]
_RENDERER = structlog.processors.JSONRenderer(serializer=_to_json)


def configure_logging(service: str, instance: str) -> None:
    """Send this process's logs, ours and those of libraries, to stderr as JSON lines that name service and instance."""
    folder = LogFolder(_say)
    structlog.configure(
        processors=[*_BEGIN, folder, *_rest(service, instance), _RENDERER],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.WriteLoggerFactory(_stream()),  # a line is one write: no other comes between
        cache_logger_on_first_use=True,
    )
    handler = json_handler(service, instance)
    handler.addFilter(folder)
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    _log_what_python_says()


def json_handler(service: str, instance: str) -> logging.Handler:
    """Writes lines of libraries as ours are: for those that set up loggers of their own, by name."""
    handler = logging.StreamHandler(_stream())
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*_BEGIN, *_rest(service, instance)],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, _RENDERER],
        )
    )
    return handler


def _stream() -> TextIO:
    return cast("TextIO", LossyStream(log_stream() or sys.stderr))


def _rest(service: str, instance: str) -> list[structlog.types.Processor]:
    """What a line gets that is said."""

    def name_process(_: object, __: str, event: structlog.types.EventDict) -> structlog.types.EventDict:
        event["service"], event["instance"] = service, instance
        return event

    return [
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        name_process,
        structlog.processors.StackInfoRenderer(),
        structlog.processors.format_exc_info,
    ]


def _say(line: Mapping[str, Any]) -> None:
    """A summary of folded lines."""
    fields = {name: value for name, value in line.items() if name not in ("event", "level")}
    getattr(structlog.get_logger(), line["level"])(line["event"], **fields)


def _log_what_python_says() -> None:
    """Each of them would print lines of text amid those of JSON."""
    sys.excepthook = _log_crash
    sys.unraisablehook = _log_unraisable
    threading.excepthook = _log_end_of_thread
    logging.captureWarnings(True)


def _log_crash(kind: type[BaseException], error: BaseException, trace_back: TracebackType | None) -> None:
    """The last words of a process are a log line like any other."""
    structlog.get_logger().critical("crashed", exc_info=(kind, error, trace_back))


def _log_unraisable(told: sys.UnraisableHookArgs) -> None:
    """An error in a destructor, a callback or a collection of garbage: it could not have been caught."""
    error = told.exc_value
    if error is not None:
        structlog.get_logger().error(told.err_msg or "error ignored", where=repr(told.object), exc_info=error)


def _log_end_of_thread(told: threading.ExceptHookArgs) -> None:
    if told.exc_value is not None and not isinstance(told.exc_value, SystemExit):
        name = told.thread.name if told.thread else ""
        structlog.get_logger().error("thread ended", thread=name, exc_info=told.exc_value)


def configure_tracing(service: str, instance: str, endpoint: str | None) -> None:
    """Export spans to an OTLP/HTTP collector; without an endpoint spans stay no-ops."""
    if not endpoint:
        return
    # imported here: a process that exports nothing starts in nine tenths of the time without them
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    resource = Resource.create({"service.name": f"treadle-{service}", "service.instance.id": instance})
    provider = TracerProvider(resource=resource)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=f"{endpoint.rstrip('/')}/v1/traces")))
    trace.set_tracer_provider(provider)


def record_handled(service: str, message: Message, arrived_s: float, committed_s: float) -> None:
    """A span for one handled message of a traced request: from its arrival in the inbox until its effects were sent."""
    if not message.traceparent:
        return
    parent = PROPAGATOR.extract({"traceparent": message.traceparent})
    name = f"{service} {type(message).__name__.lower()}"
    span = trace.get_tracer(f"treadle.{service}").start_span(name, parent, start_time=int(arrived_s * 1e9))
    span.end(int(committed_s * 1e9))
