"""I1: each accepted request ends exactly once, by its deadline and 15 s."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tests.chaos.checker.violation import Violation
from tests.chaos.history import Fault, History, LifeOf, Request
from tests.chaos.members import DEADLINE_S

LATE_S = 15.0
"""Behind the deadline; time in which something is broken on purpose does not count, as nobody can answer then."""
RETRY_STATUSES = (429, 503)
"""A refusal that tells the client to come again is an end, and nothing was accepted."""
_STOP_S = 10.0  # between the last word of a gateway that stops and its end
_CLOSE_S = 2.0  # between the death of a gateway and the time at which a client hears of it


def check(history: History) -> Iterator[Violation]:
    """What is wrong with the ends of requests."""
    for request in history.requests:
        for what in (*_of_end(request, history), *_of_time(request, history.faults)):
            yield Violation("I1", f"request {request.number} ({request.request_id}): {what}", request.ended_s)


STOPPING = "the gateway is shutting down"  # the end of what outlasts its drain


def _of_end(request: Request, history: History) -> Iterator[str]:
    ends = sum(heard.finish_reason is not None for heard in request.heard)
    done = [place for place, heard in enumerate(request.heard) if heard.is_done]
    if ends > 1 or len(done) > 1 or (done and done[0] != len(request.heard) - 1):
        yield f"ended {max(ends, len(done))} times, or went on behind its end"
    if request.end in ("refused", "error") and STOPPING in request.why:
        if not gateway_died(request, history.lives, _STOP_S):
            yield f"its gateway said that it stops, and lives: {request.why}"
        return
    yield from _of_kind(request, history, ends)


def _of_kind(request: Request, history: History, ends: int) -> Iterator[str]:
    match request.end:
        case "whole":
            if ends == 0:
                yield "its stream closed without an end"
        case "refused":
            if request.status not in RETRY_STATUSES:
                yield f"failed with status {request.status}: {request.why}"
            elif "lost several times" in request.why:
                yield f"was accepted and given up: {request.why}"
        case "error":
            yield f"was accepted and given up: {request.why}"
        case "broken":
            if not gateway_died(request, history.lives):
                yield f"its connection broke, and its gateway lives: {request.why}"
        case "silence":
            yield "never ended"


def gateway_died(request: Request, lives: Sequence[LifeOf], within_s: float = _CLOSE_S) -> bool:
    """Whether a fault ended the life of its gateway meanwhile; a gateway that ends by itself is no excuse."""
    return any(
        life.member == request.gateway
        and life.was_ours
        and life.ended_s is not None
        and request.sent_s <= life.ended_s <= request.ended_s + within_s
        for life in lives
    )


def _of_time(request: Request, faults: Sequence[Fault]) -> Iterator[str]:
    took_s = request.ended_s - request.sent_s
    excused_s = outage_s(faults, request.sent_s, request.ended_s)
    if request.end != "silence" and took_s - excused_s > DEADLINE_S + LATE_S:
        yield f"took {took_s:.1f} s, {excused_s:.1f} s of them while something was broken on purpose"


def outage_s(faults: Sequence[Fault], begin_s: float, end_s: float) -> float:
    """Seconds between two times in which some fault lasted."""
    total, upto = 0.0, begin_s
    for fault in sorted(faults, key=lambda one: one.began_s):
        first, last = max(fault.began_s, upto), min(fault.ended_s, end_s)
        if last > first:
            total, upto = total + last - first, last
    return total
