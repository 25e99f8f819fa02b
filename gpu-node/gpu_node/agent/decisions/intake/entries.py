"""What a pulled entry is good for. Its payload may be another attempt's, of another version, or gone."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from gpu_node.agent.decisions.actions import GroupEntry
from shared.messages.requests.requests import Attempt, Chunk, EvictedRequest


class EntryFate(Enum):
    """What becomes of an entry."""

    RUNS = "runs"
    REFUSED = "refused"
    """It cannot run here, nor anywhere: its client hears why."""
    STALE = "stale"
    """A newer attempt has been submitted: it is only acknowledged."""
    LOST = "lost"
    """Its gateway still waits for it, as far as is known: it is given back, and the payload written again."""


def fate(entry: GroupEntry, model: str, broken: Mapping[str, str], mismatch: str = "") -> tuple[EntryFate, str]:
    """What becomes of an entry where ``model`` is loaded and others are ``broken``; and why, for its client.

    ``mismatch``: why it was made for another model of that name.
    """
    payload = entry.payload
    if entry.unreadable:
        return EntryFate.REFUSED, f"the request is of another version: {entry.unreadable}"
    if payload is None or payload.attempt < entry.enqueued.attempt:
        return EntryFate.LOST, ""
    if payload.attempt > entry.enqueued.attempt:
        return EntryFate.STALE, ""
    if payload.model in broken:
        return EntryFate.REFUSED, broken[payload.model]
    if mismatch:
        return EntryFate.REFUSED, mismatch
    # a name that Redis has forgotten is given to another group: what was said of the first is not of the second
    return (EntryFate.RUNS, "") if payload.model == model else (EntryFate.LOST, "")


def refusal(entry: GroupEntry, error: str) -> Chunk:
    """The end of an attempt that never began here."""
    num_done = sum(len(output.token_ids) for output in entry.payload.outputs) if entry.payload else 0
    return _end(Attempt(entry.enqueued.request_id, entry.enqueued.attempt), num_done, "error", error)


def lacks_adapter(attempt: Attempt, num_done: int, error: str) -> Chunk:
    """Likewise, where earlier attempts have brought so many tokens. Its client is told what it has asked for."""
    return _end(attempt, num_done, "refused", error)


def _end(attempt: Attempt, num_done: int, reason: str, error: str) -> Chunk:
    return Chunk(attempt.request_id, attempt.attempt, num_done, [], finish_reason=reason, error=error, is_last=True)


def given_back(entry: GroupEntry, node: str) -> EvictedRequest:
    """An attempt that never began here, and has to be submitted again."""
    outputs = entry.payload.outputs if entry.payload else []
    num_done = sum(len(output.token_ids) for output in outputs)
    return EvictedRequest(entry.enqueued.request_id, entry.enqueued.attempt, num_done, 0, node)
