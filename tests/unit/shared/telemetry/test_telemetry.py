"""Logs: one JSON line an event, on stderr, that says where it comes from. Run in a process of its own, as it is."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import datetime, timedelta
from typing import Any

import pytest

from shared.telemetry.trace_context import trace_id
from tests.contract.examples import TRACE

PREAMBLE = """
import logging, structlog
from pathlib import Path
from shared.telemetry.telemetry import configure_logging, configure_tracing
configure_logging("scheduler", "scheduler@host-1")
log = structlog.get_logger()
other = logging.getLogger("some.library")
"""


def lines(program: str) -> list[dict[str, Any]]:
    """What a program says on stderr, every line read as JSON; it must say nothing on stdout."""
    command = [sys.executable, "-W", "error", "-c", PREAMBLE + program]
    said = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30)
    assert said.stdout == ""
    return [json.loads(line) for line in said.stderr.splitlines()]


def test_an_event_is_one_line_that_says_where_and_when() -> None:
    [line] = lines("log.info('active', committed='7-0', replayed=3)")
    when = datetime.fromisoformat(line.pop("timestamp"))
    assert when.utcoffset() == timedelta(0)
    assert line == {
        "event": "active",
        "level": "info",
        "service": "scheduler",
        "instance": "scheduler@host-1",
        "committed": "7-0",
        "replayed": 3,
    }


def test_what_json_does_not_know_and_line_breaks_stay_on_the_line() -> None:
    [line] = lines("log.warning('two\\nlines', path=Path('/x'), error=ValueError('bad'), raw=b'\\xff', ids={1})")
    assert line["event"] == "two\nlines"
    assert (line["path"], line["error"]) == ("/x", "bad")
    assert line["ids"] == [1]


def test_an_exception_is_part_of_its_event() -> None:
    program = """
try:
    raise ValueError("broken")
except ValueError:
    log.exception("core raised", entry="7-0")
    other.exception("library raised")
"""
    ours, theirs = lines(program)
    for line, event in ((ours, "core raised"), (theirs, "library raised")):
        assert (line["event"], line["level"], line["service"]) == (event, "error", "scheduler")
        assert line["exception"].startswith("Traceback (most recent call last):")
        assert line["exception"].endswith("ValueError: broken")
    assert ours["entry"] == "7-0"


def test_libraries_speak_the_same_way_from_warnings_on() -> None:
    [line] = lines("other.debug('quiet'); other.info('quiet'); other.warning('loud %s', 'enough')")
    assert (line["event"], line["level"]) == ("loud enough", "warning")
    assert (line["service"], line["instance"]) == ("scheduler", "scheduler@host-1")
    assert "timestamp" in line


def test_what_python_itself_says_is_a_line_too() -> None:
    program = """
import threading, warnings
warnings.simplefilter("default")
warnings.warn("odd", RuntimeWarning)

class Broken:
    def __del__(self):
        raise ValueError("late")

Broken()
thread = threading.Thread(target=lambda: 1 / 0, name="worker")
thread.start()
thread.join()
raise KeyError("last")
"""
    command = [sys.executable, "-c", PREAMBLE + program]
    said = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
    warned, ignored, ended, crashed = [json.loads(line) for line in said.stderr.splitlines()]
    assert "RuntimeWarning: odd" in warned["event"]
    assert ignored["exception"].endswith("ValueError: late")
    assert (ended["event"], ended["thread"]) == ("thread ended", "worker")
    assert ended["exception"].endswith("ZeroDivisionError: division by zero")
    assert crashed["event"] == "crashed"


def test_lines_of_threads_do_not_mix() -> None:
    program = """
import sys, threading
sys.setswitchinterval(1e-6)
def work(say):
    for number in range(1000):
        say(number)
says = [lambda number: log.info("ours", number=number), lambda number: other.log(60, "theirs %d", number)]
threads = [threading.Thread(target=work, args=(say,)) for say in says * 2]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
"""
    assert len(lines(program)) == 4000


def test_equal_lines_are_folded_ours_and_those_of_libraries() -> None:
    program = """
for number in range(40):
    log.warning("redis is away", error="refused", retry_s=number / 10)
    log.info("done", number=number)
    other.error("cannot read %s", number)
    try:
        {}[number]
    except KeyError:
        log.exception("broken", number=number)
"""
    said = lines(program)
    assert [line["number"] for line in said if line["event"] == "done"] == list(range(40))
    rest = [line for line in said if line["event"] != "done"]
    assert [line["event"] for line in rest[:3]] == ["redis is away", "cannot read 0", "broken"]
    assert rest[2]["exception"].endswith("KeyError: 0")
    summaries = {line["event"]: line for line in rest[3:]}
    assert {event: line["num_repeated"] for event, line in summaries.items()} == {
        "redis is away": 39,
        "cannot read %s": 39,
        "broken": 39,
    }
    ours = summaries["redis is away"]
    assert (ours["level"], ours["error"], ours["service"]) == ("warning", "refused", "scheduler")
    assert (summaries["broken"]["error_type"], summaries["cannot read %s"]["logger"]) == ("KeyError", "some.library")


def test_below_the_level_nothing_is_said() -> None:
    [line] = lines("log.debug('detail'); log.info('said')")
    assert line["event"] == "said"


def test_without_an_endpoint_there_are_no_traces_and_no_noise() -> None:
    program = """
from opentelemetry import trace
configure_tracing("scheduler", "i", None)
with trace.get_tracer("t").start_as_current_span("s") as span:
    assert not span.is_recording()
"""
    assert lines(program) == []


def test_what_is_said_in_a_traced_request_names_the_trace() -> None:
    program = """
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, use_span
log.info("before")
with use_span(NonRecordingSpan(SpanContext(0xABC, 0xDEF, is_remote=True, trace_flags=TraceFlags(1)))):
    log.info("within")
    log.info("of another", trace_id="its own")
"""
    before, within, other = lines(program)
    assert "trace_id" not in before
    assert (within["trace_id"], other["trace_id"]) == (f"{0xABC:032x}", "its own")


@pytest.mark.parametrize(
    ("traceparent", "found"), [(TRACE, "4bf92f3577b34da6a3ce929d0e0e4736"), ("", ""), ("x", ""), ("-", "")]
)
def test_the_id_of_a_trace_is_found_where_there_is_one(traceparent: str, found: str) -> None:
    assert trace_id(traceparent) == found
