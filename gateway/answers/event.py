"""One event of a stream, as JSON in the framing of server-sent events."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

SseEvent = msgspec.Struct | Mapping[str, Any] | bytes
"""What is sent as one event; bytes, where it is written already."""

_encode = msgspec.json.encode


def written(event: SseEvent) -> bytes:
    """The event as it goes out."""
    return event if isinstance(event, bytes) else b"data: %b\n\n" % _encode(event)
