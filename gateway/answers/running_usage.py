"""Token counts in every chunk of a stream: what load generators ask for that count tokens and not chunks."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from gateway.answers.event import SseEvent
from gateway.openai.answers.answers import Usage


def with_usage(events: Iterable[SseEvent], usage: Usage) -> list[msgspec.Struct]:
    """The chunks with the counts so far, of all choices; those sent together tell the same.

    They must not be written yet: a renderer that knows of the counts writes none ahead.
    """
    found = []
    for event in events:
        assert isinstance(event, msgspec.Struct), "a chunk that is written already has no place for counts"
        found.append(msgspec.structs.replace(event, usage=usage))
    return found
