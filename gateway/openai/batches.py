"""OpenAI's files and batches: what clients ask for, and what they are shown."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from msgspec import Struct
from pydantic import Field, field_validator

from gateway.openai.objects.part import ApiObject
from gateway.openai.requests.schema import Metadata
from shared.messages.batches.batches import (
    MAX_KEEP_S,
    MIN_KEEP_S,
    BatchCounts,
    BatchEndpoint,
    BatchRecord,
    BatchStatus,
    BatchUsage,
    FilePurpose,
    LineProblem,
    NewBatch,
    StoredFile,
)

MIN_WINDOW_S, MAX_WINDOW_S = 60, 7 * 86_400
MAX_ID_CHARACTERS = 64

_WINDOW = re.compile(r"([1-9][0-9]{0,5})([smhd])", re.ASCII)
_UNITS_S = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}


class OutputExpiry(ApiObject):
    """How long the results of a batch are kept."""

    anchor: Literal["created_at"]
    """From when on: results count from their own making."""
    seconds: Annotated[int, Field(ge=MIN_KEEP_S, le=MAX_KEEP_S)]


class BatchRequest(ApiObject):
    """``POST /v1/batches``."""

    input_file_id: Annotated[str, Field(max_length=MAX_ID_CHARACTERS)]
    """A file with ``purpose`` ``batch``."""
    endpoint: BatchEndpoint
    """What its requests ask."""
    completion_window: str = "24h"
    """Within which all answers are wanted: a number with ``s``, ``m``, ``h`` or ``d``, from a minute to a week."""
    metadata: Metadata | None = None
    output_expires_after: OutputExpiry | None = None

    @field_validator("completion_window")
    @classmethod
    def _is_window(cls, text: str) -> str:
        if not MIN_WINDOW_S <= _seconds(text) <= MAX_WINDOW_S:
            raise ValueError("a window is a number with s, m, h or d, from 60s to 7d, such as 24h")
        return text

    @property
    def window_s(self) -> int:
        """``completion_window`` in seconds."""
        return _seconds(self.completion_window)

    def new_batch(self, key_id: str) -> NewBatch:
        """As the batch service is asked."""
        expiry = self.output_expires_after
        return NewBatch(
            key_id=key_id,
            endpoint=self.endpoint,
            input_file_id=self.input_file_id,
            window=self.completion_window,
            window_s=self.window_s,
            metadata=self.metadata,
            output_expires_s=None if expiry is None else expiry.seconds,
        )


class FileAnswer(Struct, frozen=True, kw_only=True):
    """A file."""

    id: str
    object: Literal["file"] = "file"
    bytes: int
    created_at: int
    expires_at: int | None
    filename: str
    purpose: FilePurpose
    status: Literal["processed"] = "processed"

    @classmethod
    def of(cls, file: StoredFile) -> FileAnswer:
        """As its client sees it."""
        return cls(
            id=file.id,
            bytes=file.num_bytes,
            created_at=file.created_s,
            expires_at=file.expires_s,
            filename=file.filename,
            purpose=file.purpose,
        )


class FileList(Struct, frozen=True, kw_only=True):
    """Files of a tenant, a page of them."""

    object: Literal["list"] = "list"
    data: list[FileAnswer]
    first_id: str | None
    last_id: str | None
    has_more: bool


class FileRemoved(Struct, frozen=True, kw_only=True):
    """A file is no more."""

    id: str
    object: Literal["file"] = "file"
    deleted: Literal[True] = True


class BatchErrors(Struct, frozen=True, kw_only=True):
    """Why a batch failed."""

    object: Literal["list"] = "list"
    data: list[BatchError]


class BatchError(Struct, frozen=True, kw_only=True):
    """A reason; ``line`` of the input file counts from 1."""

    code: str
    message: str
    line: int | None
    param: str | None

    @classmethod
    def of(cls, problem: LineProblem) -> BatchError:
        """As its client sees it."""
        return cls(code=problem.code, message=problem.message, line=problem.line, param=problem.param)


class RequestCounts(Struct, frozen=True, kw_only=True):
    """Requests of a batch."""

    total: int
    completed: int
    failed: int

    @classmethod
    def of(cls, counts: BatchCounts) -> RequestCounts:
        """As clients see them."""
        return cls(total=counts.total, completed=counts.completed, failed=counts.failed)


class BatchInputDetails(Struct, frozen=True):
    """Of a batch's input."""

    cached_tokens: int


class BatchOutputDetails(Struct, frozen=True):
    """Of a batch's output."""

    reasoning_tokens: int


class TokensOfBatch(Struct, frozen=True, kw_only=True):
    """Tokens of all answers of a batch."""

    input_tokens: int
    input_tokens_details: BatchInputDetails
    output_tokens: int
    output_tokens_details: BatchOutputDetails
    total_tokens: int

    @classmethod
    def of(cls, usage: BatchUsage) -> TokensOfBatch:
        """As clients see them."""
        return cls(
            input_tokens=usage.input_tokens,
            input_tokens_details=BatchInputDetails(usage.cached_tokens),
            output_tokens=usage.output_tokens,
            output_tokens_details=BatchOutputDetails(usage.reasoning_tokens),
            total_tokens=usage.input_tokens + usage.output_tokens,
        )


class BatchAnswer(Struct, frozen=True, kw_only=True):
    """A batch as it stands."""

    id: str
    object: Literal["batch"] = "batch"
    endpoint: BatchEndpoint
    errors: BatchErrors | None
    input_file_id: str
    completion_window: str
    status: BatchStatus
    output_file_id: str | None
    error_file_id: str | None
    created_at: int
    in_progress_at: int | None
    expires_at: int
    finalizing_at: int | None
    completed_at: int | None
    failed_at: int | None
    expired_at: int | None
    cancelling_at: int | None
    cancelled_at: int | None
    request_counts: RequestCounts
    usage: TokensOfBatch | None
    """Once no more answers come."""
    metadata: dict[str, str] | None

    @classmethod
    def of(cls, batch: BatchRecord) -> BatchAnswer:
        """As its client sees it: result files are told when they are there."""
        has_files = batch.has_ended
        problems = [BatchError.of(one) for one in batch.problems]
        return cls(
            id=batch.id,
            endpoint=batch.asked.endpoint,
            errors=BatchErrors(data=problems) if problems else None,
            input_file_id=batch.asked.input_file_id,
            completion_window=batch.asked.window,
            status=batch.status,
            output_file_id=batch.output_file_id if has_files else None,
            error_file_id=batch.error_file_id if has_files else None,
            created_at=batch.created_s,
            in_progress_at=batch.in_progress_s,
            expires_at=batch.expires_s,
            finalizing_at=batch.finalizing_s,
            completed_at=batch.completed_s,
            failed_at=batch.failed_s,
            expired_at=batch.expired_s,
            cancelling_at=batch.cancelling_s,
            cancelled_at=batch.cancelled_s,
            request_counts=RequestCounts.of(batch.counts),
            usage=None if batch.usage is None else TokensOfBatch.of(batch.usage),
            metadata=batch.asked.metadata,
        )


class BatchList(Struct, frozen=True, kw_only=True):
    """Batches of a tenant, a page of them."""

    object: Literal["list"] = "list"
    data: list[BatchAnswer]
    first_id: str | None
    last_id: str | None
    has_more: bool


def _seconds(text: Any) -> int:
    found = _WINDOW.fullmatch(text)
    return int(found[1]) * _UNITS_S[found[2]] if found else 0
