"""What is refused about files and batches, in the shape of `gateway.openai.errors.errors`."""

from __future__ import annotations

from gateway.openai.errors.errors import SATURATED_RETRY_S, UNAVAILABLE_RETRY_S, ApiError, dropped


def too_many_transfers() -> ApiError:
    """Files are on their way, as many as there may be at a time."""
    return dropped(429, "too many files are on their way", "saturated", SATURATED_RETRY_S, code="too_many_transfers")


def file_too_large(max_bytes: int) -> ApiError:
    """A file has more bytes than it may."""
    return ApiError(413, f"the file has more than {max_bytes} bytes", code="file_too_large", param="file")


def of_batch_service(status: int, code: str, message: str, param: str | None) -> ApiError:
    """What the batch service refuses; what may be asked again later says so."""
    if status in (429, 503):
        return dropped(status, message, "saturated", UNAVAILABLE_RETRY_S, code=code)
    return ApiError(status, message, code=code, param=param)


def batch_not_ended() -> ApiError:
    """There are no results yet."""
    return ApiError(409, "the batch has not ended: its results are there when it has", code="batch_not_ended")


def no_results(why: str) -> ApiError:
    """A batch ended without any."""
    return ApiError(404, f"the batch has no results: {why}; send its requests again", code="no_results")


def batches_disabled() -> ApiError:
    """This cluster has no batch service."""
    return ApiError(404, "this cluster takes no files and batches (batches.enabled)", code="batches_disabled")
