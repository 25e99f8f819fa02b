"""What gateways and the batch service say to each other: files, batches of requests, and their states.

They speak HTTP, since files are too large for Redis; bodies are MessagePack, those of files bytes as they are. Times
are Unix seconds, as clients see them.
"""

from __future__ import annotations

from typing import Literal

import msgspec

TOKEN_HEADER = "x-treadle-batch-token"  # noqa: S105 (its name)
"""The secret that both find in Redis (`shared.bus.streams.BATCH_TOKEN`): a process that can read it, may."""
TENANT_HEADER = "x-treadle-batch-tenant"
"""To the service: whose files and batches are meant."""
INTERFACE_HEADER = "x-treadle-batch-interface"
"""To the service: by whose interface the client asks. What was made by another one is not there."""
KEY_HEADER = "x-treadle-batch-key"
"""In whose name a request of a batch is sent: the digest of the key that made the batch, in hexadecimal; empty where
there are no keys. To gateways with each request, to the service with requests that come with their batch."""
PROMISE_HEADER = "x-treadle-batch-deadline"
"""To gateways: seconds until the answer is due."""

BatchInterface = Literal["openai", "anthropic"]
"""OpenAI's has files and batches of them; Anthropic's batches whose requests come with them."""
BatchStatus = Literal[
    "validating", "failed", "in_progress", "finalizing", "completed", "expired", "cancelling", "cancelled"
]
ENDED: frozenset[BatchStatus] = frozenset(("failed", "completed", "expired", "cancelled"))
BatchEndpoint = Literal[
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/embeddings",
    "/v1/rerank",
    "/v1/score",
    "/v1/classify",
    "/v1/responses",
    "/v1/messages",
]
"""Whose requests batches may have."""
MESSAGES_ENDPOINT: BatchEndpoint = "/v1/messages"
"""That of all batches of Anthropic's interface."""
MESSAGES_WINDOW, MESSAGES_WINDOW_S = "24h", 86_400  # of these; Anthropic's clients name none
MIN_KEEP_S, MAX_KEEP_S = 3_600, 30 * 86_400  # for how long clients may have files kept, as OpenAI has it
FilePurpose = Literal["batch", "batch_output", "user_data"]


class StoredFile(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A file that the service has."""

    id: str
    tenant: str
    filename: str
    purpose: FilePurpose
    num_bytes: int
    created_s: int
    expires_s: int | None = None
    interface: BatchInterface = "openai"


class FilePage(msgspec.Struct, frozen=True, kw_only=True):
    """Files of a tenant, in the order that was asked for."""

    files: list[StoredFile]
    has_more: bool


class LineProblem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Why a batch failed; ``line`` counts from 1."""

    code: str
    message: str
    line: int | None = None
    param: str | None = None


class NewBatch(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A batch that a client asks for."""

    key_id: str
    """As in `KEY_HEADER`."""
    endpoint: BatchEndpoint
    input_file_id: str
    window: str
    """As the client wrote it, such as ``24h``."""
    window_s: int
    metadata: dict[str, str] | None = None
    output_expires_s: int | None = None
    """How long its results are kept from their making on; None as configured."""


class BatchCounts(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Requests of a batch."""

    total: int = 0
    completed: int = 0
    failed: int = 0
    """With an error, or without an answer."""
    cancelled: int = 0
    """Of the failed: those without an answer when the batch was cancelled. Counted, as the next, at its end."""
    expired: int = 0
    """Of the failed: those without an answer when its window was over."""


class BatchUsage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Tokens of a batch's answers."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    """Of the input: found in a cache."""
    reasoning_tokens: int = 0
    """Of the output: thoughts, where they are told apart."""


class BatchRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A batch as it stands."""

    id: str
    tenant: str
    asked: NewBatch
    status: BatchStatus
    created_s: int
    expires_s: int
    """When its window is over."""
    counts: BatchCounts = BatchCounts()
    problems: list[LineProblem] = msgspec.field(default_factory=list)
    usage: BatchUsage | None = None
    """Counted when no more answers come."""
    output_file_id: str | None = None
    """Once it is known to be there, or to come (``finalizing``)."""
    error_file_id: str | None = None
    in_progress_s: int | None = None
    finalizing_s: int | None = None
    completed_s: int | None = None
    failed_s: int | None = None
    expired_s: int | None = None
    cancelling_s: int | None = None
    cancelled_s: int | None = None
    interface: BatchInterface = "openai"
    """By which it was made, and by which alone it is found."""

    @property
    def has_ended(self) -> bool:
        """Nothing of it changes any more."""
        return self.status in ENDED


class BatchPage(msgspec.Struct, frozen=True, kw_only=True):
    """Batches of a tenant, the newest first."""

    batches: list[BatchRecord]
    has_more: bool


class BatchRefusal(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Why the service does not do it; comes with its HTTP status."""

    code: str
    message: str
    param: str | None = None
