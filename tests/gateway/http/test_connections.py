"""Which connections stay, which are closed, and which give way."""

from __future__ import annotations

import pytest

from gateway.http.connections import MAX_REFUSED, Connections, ConnectionState, Reason, TimeOuts
from gateway.workers.open_files import TooFewFilesError, needed_files

TIMES = TimeOuts(header_s=10.0, idle_s=75.0, linger_s=1.0, grace_s=2.0)


def connections(limit: int = 3) -> Connections[str]:
    return Connections(limit, TIMES)


def test_each_state_has_its_time() -> None:
    all_ = connections(9)
    all_.enter("silent", ConnectionState.HEADER, 0.0)
    all_.enter("busy", ConnectionState.REQUEST, 0.0)
    all_.enter("idle", ConnectionState.IDLE, 0.0)
    all_.enter("refused", ConnectionState.REFUSED, 0.0)
    assert all_.overdue(0.999) == []
    assert all_.overdue(1.0) == [("refused", Reason.REFUSED)]
    all_.leave("refused", Reason.REFUSED)
    assert all_.overdue(10.0) == [("silent", Reason.NO_HEADER)]
    all_.leave("silent", Reason.NO_HEADER)
    assert all_.overdue(74.9) == []
    assert all_.overdue(1e9) == [("idle", Reason.NO_REQUEST)]


def test_half_a_header_is_no_younger_for_every_byte() -> None:
    all_ = connections()
    for now in (0.0, 4.0, 9.9):
        all_.enter("slow", ConnectionState.HEADER, now)
    assert all_.overdue(10.0) == [("slow", Reason.NO_HEADER)]


def test_a_state_that_is_left_does_not_count() -> None:
    all_ = connections()
    all_.enter("client", ConnectionState.HEADER, 0.0)
    all_.enter("client", ConnectionState.REQUEST, 9.0)
    all_.enter("client", ConnectionState.IDLE, 100.0)
    all_.enter("client", ConnectionState.HEADER, 170.0)
    assert all_.overdue(179.9) == []
    assert all_.overdue(180.0) == [("client", Reason.NO_HEADER)]


def test_the_oldest_idle_one_gives_way_then_the_oldest_without_a_header_then_nobody() -> None:
    all_ = connections(3)
    all_.enter("silent", ConnectionState.HEADER, 0.0)
    all_.enter("idle", ConnectionState.IDLE, 1.0)
    assert not all_.is_full
    all_.enter("idle too", ConnectionState.IDLE, 2.0)
    assert all_.is_full
    assert all_.in_the_way(3.0) == "idle"
    all_.enter("idle", ConnectionState.REQUEST, 3.0)
    all_.enter("idle too", ConnectionState.REQUEST, 3.0)
    assert all_.in_the_way(3.0) == "silent"
    all_.enter("silent", ConnectionState.REQUEST, 3.0)
    assert all_.in_the_way(1e9) is None


def test_who_has_just_come_is_given_the_time_to_send_a_header() -> None:
    all_ = connections(1)
    all_.enter("new", ConnectionState.HEADER, 5.0)
    assert all_.in_the_way(6.9) is None
    assert all_.in_the_way(7.0) == "new"


def test_the_refused_take_nobody_s_place_and_are_few() -> None:
    all_ = connections(1)
    for number in range(MAX_REFUSED):
        assert all_.can_refuse
        all_.enter(f"refused {number}", ConnectionState.REFUSED, 0.0)
    assert not all_.can_refuse
    assert not all_.is_full


def test_each_is_counted_once_when_it_ends() -> None:
    all_ = connections()
    all_.enter("client", ConnectionState.HEADER, 0.0)
    all_.leave("client", Reason.NO_HEADER)
    all_.leave("client", Reason.CLOSED)
    assert all_.num_closed == {Reason.NO_HEADER: 1}
    assert all_.is_empty


@pytest.mark.parametrize(
    ("soft", "hard", "wanted"),
    [(1024, 4096, 1320), (2000, 4096, 2000), (1024, -1, 1320), (-1, -1, -1), (100, 1320, 1320)],
)
def test_the_limit_of_files_is_raised_as_far_as_needed(soft: int, hard: int, wanted: int) -> None:
    assert needed_files(1000, soft, hard) == wanted


def test_too_low_a_limit_says_what_to_do() -> None:
    with pytest.raises(TooFewFilesError) as error:
        needed_files(5120, 1024, 4096)
    assert str(error.value) == (
        "5120 connections need 5440 open files, but this process may have 4096: raise it (`ulimit -n 5440`, "
        "LimitNOFILE of systemd, --ulimit nofile=5440 of Docker), or set gateway.max_connections and "
        "gateway.max_inflight to at most 3776"
    )
