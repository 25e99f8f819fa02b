"""How the record of a batch changes, as OpenAI names its states. Pure; ``now`` is Unix seconds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from shared.messages.batches.batch_lines import EXPIRED, REVOKED
from shared.messages.batches.batches import BatchCounts, BatchInterface, BatchRecord, BatchUsage, LineProblem, NewBatch

_REVOKED_TEXT = "the API key that made this batch is not valid any more"


def created(
    batch: str,
    tenant: str,
    asked: NewBatch,
    now: float,
    *,
    interface: BatchInterface = "openai",
    num_requests: int = 0,
) -> BatchRecord:
    """A new batch, whose file is to be read; ``num_requests``: as far as they are counted already."""
    at = int(now)
    return BatchRecord(
        id=batch,
        tenant=tenant,
        asked=asked,
        status="validating",
        created_s=at,
        expires_s=at + asked.window_s,
        counts=BatchCounts(total=num_requests),
        interface=interface,
    )


def failed(record: BatchRecord, problems: Sequence[LineProblem], now: float) -> BatchRecord:
    """Its file cannot be run; one that is being cancelled is cancelled."""
    if record.cancelling_s is not None:
        return _changed(record, status="cancelled", cancelled_s=int(now))
    return _changed(record, status="failed", failed_s=int(now), problems=list(problems))


def in_progress(record: BatchRecord, num_requests: int, now: float) -> BatchRecord:
    """Its file has been read, and its requests can be sent, if they still shall be."""
    status = "cancelling" if record.cancelling_s is not None else "in_progress"
    return _changed(
        record,
        status=status,
        counts=BatchCounts(total=num_requests),
        in_progress_s=int(now) if record.in_progress_s is None else record.in_progress_s,
    )


def cancelling(record: BatchRecord, now: float) -> BatchRecord:
    """Its client wants no more of it."""
    return _changed(record, status="cancelling", cancelling_s=int(now))


@dataclass(frozen=True)
class BatchResults:
    """What a batch has come to when no more answers come."""

    counts: BatchCounts
    usage: BatchUsage
    stops: str
    """Why not all requests have an answer of their own; empty where they have."""
    output: str | None
    """Name of the file with the answers; None without any."""
    errors: str | None
    """The same of errors."""


def finalizing(record: BatchRecord, results: BatchResults, now: float) -> BatchRecord:
    """No more answers come; the result files are named, and yet to be made."""
    at = int(now)
    if results.stops == REVOKED and record.cancelling_s is None:
        problem = LineProblem(code=REVOKED, message=_REVOKED_TEXT)
        record = _changed(record, cancelling_s=at, problems=[problem])
    if results.stops == EXPIRED:
        record = _changed(record, expired_s=at)
    status = "cancelling" if record.cancelling_s is not None else "finalizing"
    return _changed(
        record,
        status=status,
        counts=results.counts,
        usage=results.usage,
        finalizing_s=at,
        output_file_id=results.output,
        error_file_id=results.errors,
    )


def ended(record: BatchRecord, now: float) -> BatchRecord:
    """Its result files are there."""
    if record.cancelling_s is not None:
        return _changed(record, status="cancelled", cancelled_s=int(now))
    if record.expired_s is not None:
        return _changed(record, status="expired")
    return _changed(record, status="completed", completed_s=int(now))


def counted(record: BatchRecord, counts: BatchCounts) -> BatchRecord:
    """With the counts of now."""
    return _changed(record, counts=counts)


def _changed(record: BatchRecord, **fields: Any) -> BatchRecord:
    return msgspec.structs.replace(record, **fields)
