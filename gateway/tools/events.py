"""What an output turns out to be, piece by piece: text, and calls of functions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby


@dataclass(frozen=True, slots=True)
class Text:
    """Text for the client."""

    text: str


@dataclass(frozen=True, slots=True)
class CallBegin:
    """A call of a function that the client has; calls are numbered in the order in which they begin."""

    name: str


@dataclass(frozen=True, slots=True)
class Arguments:
    """More of the last call's arguments, a JSON object, as the model wrote them."""

    text: str


ToolEvent = Text | CallBegin | Arguments


def joined(events: Iterable[ToolEvent]) -> list[ToolEvent]:
    """Pieces of the same text, or of the same arguments, as one."""
    found: list[ToolEvent] = []
    for kind, run in groupby(events, type):
        if kind is CallBegin:
            found.extend(run)
            continue
        text = "".join(event.text for event in run if not isinstance(event, CallBegin))
        found.append(Text(text) if kind is Text else Arguments(text))
    return found
