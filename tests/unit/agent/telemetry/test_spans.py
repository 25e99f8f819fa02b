"""What a trace shows of a request on a node."""

from __future__ import annotations

from dataclasses import replace

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from gpu_node.agent.decisions.actions import Publish
from gpu_node.agent.telemetry.spans import RunSpans
from gpu_node.engine.process.protocol.protocol import RunAttempt
from shared.messages.requests.requests import Chunk, EvictedRequest, FinishedRequest, Tokens
from tests.unit.agent.events import entry, payload_of, tokens

TRACEPARENT = f"00-{0xABC:032x}-{0xDEF:016x}-01"


class Trace:
    """The spans of a node, and what it has published."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.spans = RunSpans("n0", provider.get_tracer("test"))

    def publish(self, *chunks: Chunk, finished: FinishedRequest | None = None) -> None:
        self.spans.publish(Publish({"gw": Tokens(node="n0", chunks=list(chunks))}, [], [finished] if finished else []))

    def ended(self) -> list[ReadableSpan]:
        return list(self._exporter.get_finished_spans())


@pytest.fixture
def trace() -> Trace:
    return Trace()


def test_a_run_has_one_first_token_and_the_ends_of_its_choices(trace: Trace) -> None:
    trace.spans.begin(RunAttempt(payload_of("r0")))
    trace.publish(tokens("r0", 5, choice=1), tokens("r0", 6, choice=0))
    trace.publish(tokens("r0", 7, index=1, choice=1, finish_reason="length", is_last=False))
    assert trace.ended() == []
    trace.publish(
        tokens("r0", 8, index=1, choice=0, finish_reason="stop"), finished=FinishedRequest("r0", 0, "stop", 4)
    )
    (span,) = trace.ended()
    assert [event.name for event in span.events] == ["first token", "last token"]
    attributes = dict(span.attributes or {})
    assert attributes["gen_ai.response.finish_reasons"] == ("stop", "length")
    assert attributes["gen_ai.usage.output_tokens"] == 4


def test_a_resumed_run_has_a_first_token_of_its_own(trace: Trace) -> None:
    trace.spans.begin(RunAttempt(payload_of("r0", 1, output=[5, 6])))
    trace.publish(
        tokens("r0", 7, attempt=1, index=2, finish_reason="stop"), finished=FinishedRequest("r0", 1, "stop", 3)
    )
    first, last = trace.ended()[0].events
    assert (first.name, dict(first.attributes or {}), last.name) == (
        "first token",
        {"treadle.token_index": 2},
        "last token",
    )


def test_a_run_that_fails_at_once_has_no_first_token(trace: Trace) -> None:
    trace.spans.begin(RunAttempt(payload_of("r0")))
    trace.publish(tokens("r0", finish_reason="error"), finished=FinishedRequest("r0", 0, "error", 0))
    (span,) = trace.ended()
    assert span.events == ()
    assert dict(span.attributes or {})["gen_ai.response.finish_reasons"] == ("error",)


def test_what_is_aborted_says_so(trace: Trace) -> None:
    trace.spans.begin(RunAttempt(payload_of("r0")))
    trace.spans.drop(["r0", "unknown"])
    (span,) = trace.ended()
    assert dict(span.attributes or {})["treadle.aborted"] is True


def test_what_is_evicted_says_so_and_its_next_run_is_a_span_of_its_own(trace: Trace) -> None:
    trace.spans.begin(RunAttempt(payload_of("r0")))
    trace.spans.publish(Publish(evicted=[EvictedRequest("r0", 0, 2, 9, "n0")]))
    trace.spans.begin(RunAttempt(payload_of("r0")))
    trace.publish(tokens("r0", 7, index=2, finish_reason="stop"), finished=FinishedRequest("r0", 0, "stop", 3))
    evicted, resumed = trace.ended()
    assert dict(evicted.attributes or {})["treadle.evicted"] is True
    (event,) = evicted.events
    assert (event.name, dict(event.attributes or {})) == ("evicted", {"treadle.kv_tokens": 9, "treadle.kv_at": "n0"})
    assert "treadle.evicted" not in dict(resumed.attributes or {})


def test_the_wait_in_the_queue_lasts_from_the_entry_to_the_pull(trace: Trace) -> None:
    payload = replace(payload_of("r0", 1), traceparent=TRACEPARENT)
    pulled = replace(entry("r0", 1, payload=payload, kv_at="n0"), entry_id=b"1700000000250-3")
    trace.spans.pulled("g7", [pulled, entry("untraced"), replace(entry("gone"), payload=None)])
    (wait,) = trace.ended()
    assert (wait.name, wait.start_time) == ("queue wait", 1_700_000_000_250_000_000)
    assert wait.parent is not None
    assert (wait.parent.trace_id, wait.parent.span_id) == (0xABC, 0xDEF)
    assert dict(wait.attributes or {}) == {
        "gen_ai.request.model": "a",
        "treadle.attempt": 1,
        "treadle.group": "g7",
        "treadle.node": "n0",
        "treadle.kv_at": "n0",
    }
