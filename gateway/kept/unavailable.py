"""What Redis says where it takes nothing, as the gateway's own errors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from redis.exceptions import OutOfMemoryError, RedisError

from gateway.inflight.queue_port import QueueFullError, QueueUnavailableError


@contextmanager
def telling_unavailable() -> Iterator[None]:
    """Inside, a full Redis is a `QueueFullError`, and one that does not answer a `QueueUnavailableError`."""
    try:
        yield
    except OutOfMemoryError as error:
        raise QueueFullError(str(error)) from error
    except (RedisError, OSError) as error:
        raise QueueUnavailableError(str(error) or type(error).__name__) from error
