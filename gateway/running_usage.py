"""Token counts in every chunk of a stream: what load generators ask for that count tokens and not chunks."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from gateway.openai_responses import Usage


def with_usage(events: Iterable[msgspec.Struct], usage: Usage) -> list[msgspec.Struct]:
    """The chunks with the counts so far, of all choices; those sent together tell the same."""
    return [msgspec.structs.replace(event, usage=usage) for event in events]
