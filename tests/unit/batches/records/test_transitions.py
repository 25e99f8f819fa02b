from __future__ import annotations

from services.batches.records import transitions
from services.batches.records.transitions import BatchResults
from shared.messages.batches.batch_lines import CANCELLED, EXPIRED, REVOKED
from shared.messages.batches.batches import BatchCounts, BatchRecord, BatchUsage, LineProblem, NewBatch

ASKED = NewBatch(key_id="", endpoint="/v1/completions", input_file_id="file-1", window="1h", window_s=3600)
COUNTS, USAGE = BatchCounts(total=3, completed=2, failed=1), BatchUsage(input_tokens=7)


def created() -> BatchRecord:
    return transitions.created("batch_1", "acme", ASKED, 100.9)


def results(stops: str = "") -> BatchResults:
    return BatchResults(counts=COUNTS, usage=USAGE, stops=stops, output="file-2", errors="file-3")


def test_the_life_of_a_batch() -> None:
    new = created()
    running = transitions.in_progress(new, 3, 101.0)
    finalizing = transitions.finalizing(running, results(), 120.5)
    done = transitions.ended(finalizing, 121.0)

    assert (new.status, new.created_s, new.expires_s) == ("validating", 100, 3700)
    assert (running.status, running.in_progress_s, running.counts) == ("in_progress", 101, BatchCounts(total=3))
    assert (finalizing.status, finalizing.finalizing_s, finalizing.counts) == ("finalizing", 120, COUNTS)
    assert (done.status, done.completed_s, done.output_file_id, done.error_file_id, done.usage) == (
        *("completed", 121, "file-2", "file-3"),
        USAGE,
    )
    assert done.has_ended
    assert not finalizing.has_ended


def test_a_restart_does_not_change_when_it_began() -> None:
    running = transitions.in_progress(transitions.in_progress(created(), 3, 101.0), 3, 500.0)

    assert running.in_progress_s == 101


def test_a_file_that_cannot_be_run() -> None:
    problem = LineProblem(code="empty_file", message="the file has no requests")

    failed = transitions.failed(created(), [problem], 102.0)

    assert (failed.status, failed.failed_s, failed.problems) == ("failed", 102, [problem])


def test_one_that_expires_keeps_what_was_answered() -> None:
    finalizing = transitions.finalizing(transitions.in_progress(created(), 3, 101.0), results(EXPIRED), 3700.0)
    expired = transitions.ended(finalizing, 3701.0)

    assert (finalizing.status, expired.status, expired.expired_s) == ("finalizing", "expired", 3700)
    assert (expired.completed_s, expired.output_file_id) == (None, "file-2")


def test_one_that_is_cancelled_stays_so_whatever_comes_then() -> None:
    cancelling = transitions.cancelling(created(), 105.0)
    begun = transitions.in_progress(cancelling, 3, 106.0)
    finalizing = transitions.finalizing(begun, results(CANCELLED), 107.0)
    cancelled = transitions.ended(finalizing, 108.0)

    assert [one.status for one in (cancelling, begun, finalizing, cancelled)] == [*["cancelling"] * 3, "cancelled"]
    assert (cancelled.cancelling_s, cancelled.cancelled_s) == (105, 108)
    assert transitions.failed(cancelling, [], 106.0).status == "cancelled"


def test_one_whose_key_was_revoked_is_cancelled_and_says_why() -> None:
    finalizing = transitions.finalizing(transitions.in_progress(created(), 3, 101.0), results(REVOKED), 107.0)
    ended = transitions.ended(finalizing, 108.0)

    assert (ended.status, ended.cancelling_s) == ("cancelled", 107)
    assert [one.code for one in ended.problems] == ["key_revoked"]
