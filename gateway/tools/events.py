"""What an output turns out to be, piece by piece: text, and calls of functions."""

from __future__ import annotations

from dataclasses import dataclass


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


def joined(events: list[ToolEvent]) -> list[ToolEvent]:
    """Pieces of the same text, or of the same arguments, as one."""
    found: list[ToolEvent] = []
    for event in events:
        last = found[-1] if found else None
        if isinstance(event, Text) and isinstance(last, Text):
            found[-1] = Text(last.text + event.text)
        elif isinstance(event, Arguments) and isinstance(last, Arguments):
            found[-1] = Arguments(last.text + event.text)
        else:
            found.append(event)
    return found
