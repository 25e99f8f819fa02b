"""Anthropic's message batches as clients are shown them, made of what the batch service says."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Literal

from msgspec import Meta, Struct

from shared.messages.batches.batches import BatchRecord, BatchStatus

Moment = Annotated[datetime, Meta(tz=True)]
ProcessingStatus = Literal["in_progress", "canceling", "ended"]

_STATUSES: dict[BatchStatus, ProcessingStatus] = {
    "validating": "in_progress",
    "in_progress": "in_progress",
    "finalizing": "in_progress",
    "cancelling": "canceling",
}
"""In all others a batch has ended."""


class MessageBatchCounts(Struct, frozen=True, kw_only=True):
    """Requests of a batch: all of them ``processing`` until it ends."""

    processing: int
    succeeded: int
    errored: int
    canceled: int
    expired: int

    @classmethod
    def of(cls, batch: BatchRecord) -> MessageBatchCounts:
        """As clients see them; a batch that broke off has no answers, and none of its requests has one."""
        counts = batch.counts
        if not batch.has_ended:
            return cls(processing=counts.total, succeeded=0, errored=0, canceled=0, expired=0)
        others = counts.completed + counts.cancelled + counts.expired
        return cls(
            processing=0,
            succeeded=counts.completed,
            errored=counts.total - others,
            canceled=counts.cancelled,
            expired=counts.expired,
        )


class MessageBatch(Struct, frozen=True, kw_only=True, tag_field="type", tag="message_batch"):
    """A batch as it stands."""

    id: str
    processing_status: ProcessingStatus
    request_counts: MessageBatchCounts
    created_at: Moment
    expires_at: Moment
    ended_at: Moment | None
    cancel_initiated_at: Moment | None
    archived_at: None = None
    """Results are there for as long as their batch is."""
    results_url: str | None
    """Where they are at this gateway, however a client calls it: a path. None before there are any."""

    @classmethod
    def of(cls, batch: BatchRecord) -> MessageBatch:
        """As its client sees it."""
        ended_s = batch.completed_s or batch.cancelled_s or batch.expired_s or batch.failed_s
        return cls(
            id=batch.id,
            processing_status=_STATUSES.get(batch.status, "ended"),
            request_counts=MessageBatchCounts.of(batch),
            created_at=_time(batch.created_s),
            expires_at=_time(batch.expires_s),
            ended_at=_time(ended_s) if batch.has_ended and ended_s is not None else None,
            cancel_initiated_at=None if batch.cancelling_s is None else _time(batch.cancelling_s),
            results_url=f"/v1/messages/batches/{batch.id}/results" if has_results(batch) else None,
        )


class MessageBatchList(Struct, frozen=True, kw_only=True):
    """Batches of a tenant, a page of them."""

    data: list[MessageBatch]
    has_more: bool
    first_id: str | None
    last_id: str | None


class MessageBatchRemoved(Struct, frozen=True, kw_only=True, tag_field="type", tag="message_batch_deleted"):
    """A batch is no more."""

    id: str


def has_results(batch: BatchRecord) -> bool:
    """Whether there is something to read: not of one whose files were damaged before it came to any."""
    return batch.has_ended and (batch.output_file_id is not None or batch.error_file_id is not None)


def _time(seconds: int) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
