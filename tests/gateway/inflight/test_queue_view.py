"""What the gateway believes of the queue, and for how long."""

from __future__ import annotations

import math

from gateway.inflight.queue_view import MAX_STATUS_AGE_S, QueueView
from shared.messages.requests.requests import QueueLine, QueueStatus

A = QueueLine("a", "interactive", 3, 2, 4.0, 6.5)
A_BATCH = QueueLine("a", "batch-1", 9, 0, 30.0, 41.0)
B_AWAY = QueueLine("b", "interactive", 1, 0, math.inf, math.inf)
B = QueueLine("b", "interactive", 1, 0, 2.0, 3.0)


def view(*lines: QueueLine, now: float = 100.0) -> QueueView:
    found = QueueView()
    found.update(QueueStatus(lines=list(lines)), now)
    return found


def test_nothing_is_known_before_the_first_status() -> None:
    unheard = QueueView()
    assert (unheard.age_s(5.0), unheard.is_fresh(5.0), unheard.lines(5.0)) == (None, False, [])
    assert unheard.line("a", "interactive", 5.0) is None
    assert unheard.shortest_wait_s(5.0) is None
    assert unheard.unserved_since("a", 5.0) is None


def test_a_line_is_found_by_model_and_kind_and_the_next_status_replaces_it() -> None:
    found = view(A_BATCH, A)
    assert found.lines(101.0) == [A_BATCH, A]
    assert found.line("a", "interactive", 101.0) == A
    assert found.line("b", "interactive", 101.0) is None
    assert found.shortest_wait_s(101.0) == 4.0
    found.update(QueueStatus(lines=[B]), 102.0)
    assert found.lines(103.0) == [B]


def test_an_old_status_is_not_believed() -> None:
    found = view(A, B_AWAY)
    late = 100.0 + MAX_STATUS_AGE_S
    assert found.line("a", "interactive", late) == A
    assert found.line("a", "interactive", late + 0.1) is None
    assert found.shortest_wait_s(late + 0.1) is None
    assert found.unserved_since("b", late + 0.1) is None
    assert (found.lines(late), found.lines(late + 0.1)) == ([A, B_AWAY], [])
    assert found.age_s(late) == MAX_STATUS_AGE_S


def test_silence_is_no_idle_queue() -> None:
    found = view(QueueLine("a", "interactive", 0, 4, 0.5, 0.7))
    late = 100.0 + MAX_STATUS_AGE_S + 0.1
    assert (found.is_fresh(late), found.lines(late)) == (False, []), "whoever ran then may be over for long"
    idle = view()
    assert (idle.is_fresh(101.0), idle.lines(101.0)) == (True, []), "nothing waits or runs"
    assert not idle.is_fresh(late), "and then it is not known whether anything does"


def test_a_model_is_unserved_from_the_first_status_that_says_so_to_the_last() -> None:
    found = view(A, B_AWAY)
    found.update(QueueStatus(lines=[B_AWAY]), 110.0)
    assert found.unserved_since("b", 111.0) == 100.0
    assert found.unserved_since("a", 111.0) is None
    found.update(QueueStatus(lines=[B]), 120.0)
    assert found.unserved_since("b", 121.0) is None
    found.update(QueueStatus(lines=[B_AWAY]), 130.0)
    assert found.unserved_since("b", 131.0) == 130.0


def test_silence_between_two_statuses_is_no_proof_that_a_model_was_unserved_all_the_time() -> None:
    found = view(B_AWAY)
    found.update(QueueStatus(lines=[B_AWAY]), 100.0 + MAX_STATUS_AGE_S + 1.0)
    assert found.unserved_since("b", 140.0) == 100.0 + MAX_STATUS_AGE_S + 1.0
