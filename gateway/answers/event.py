"""Events of a stream, as JSON in the framing of server-sent events."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

SseEvent = msgspec.Struct | Mapping[str, Any] | bytes
"""What is sent as one event; bytes, where it is written already."""

_encode = msgspec.json.encode

DONE: Final = b"data: [DONE]\n\n"
"""The last event of OpenAI's completions: the stream is complete."""


def written(event: SseEvent) -> bytes:
    """The event as it goes out."""
    return event if isinstance(event, bytes) else b"data: %b\n\n" % _encode(event)


def named(name: str, event: msgspec.Struct) -> bytes:
    """The event as it goes out under a name of its own, as OpenAI's Responses and Anthropic's API have them."""
    return b"event: %b\ndata: %b\n\n" % (name.encode(), _encode(event))
