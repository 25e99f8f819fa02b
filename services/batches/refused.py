"""What the service does not do, as gateways are told."""

from __future__ import annotations

from collections.abc import Mapping

from shared.messages.batches.batches import BatchRefusal


class RefusedError(Exception):
    """With the HTTP status for the client."""

    def __init__(self, status: int, code: str, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.refusal = BatchRefusal(code=code, message=message, param=param)


def no_file(file: str) -> RefusedError:
    """The tenant has no such file."""
    return RefusedError(404, "file_not_found", f"there is no file {file[:64]!r}", "file_id")


def no_batch(batch: str) -> RefusedError:
    """The tenant has no such batch."""
    return RefusedError(404, "batch_not_found", f"there is no batch {batch[:64]!r}", "batch_id")


def no_such_place(query: Mapping[str, str]) -> RefusedError:
    """A list cannot go on behind, or end before, what is not in it."""
    name = "after" if "after" in query else "before"
    how = "go on behind" if name == "after" else "end before"
    return RefusedError(400, "invalid_value", f"there is no {query[name][:64]!r} to {how}", name)


def no_storage() -> RefusedError:
    """The disk is full, or broken; the log says which."""
    return RefusedError(503, "no_storage", "the disk of the batch service takes no more")
