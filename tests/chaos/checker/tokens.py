"""I2: the tokens of each answer are those of the undisturbed run: none lost, none doubled, none changed."""

from __future__ import annotations

from collections.abc import Iterator

from tests.chaos.checker.violation import Violation
from tests.chaos.history import History, Request

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


def check(history: History) -> Iterator[Violation]:
    """Answers that differ from what was answered before anybody disturbed."""
    for request in history.requests:
        if what := _difference(request, history.undisturbed[request.ask.key]):
            yield Violation("I2", f"request {request.number} ({request.request_id}): {what}", request.ended_s)


def num_checked(history: History) -> int:
    """Tokens that were compared: as they were named, or counted by the server where only text was seen."""
    return sum(
        len(request.tokens) or next((heard.num_tokens for heard in reversed(request.heard) if heard.num_tokens), 0)
        for request in history.requests
    )


def _difference(request: Request, expected: Request) -> str:
    ask = request.ask
    if request.status != 200:
        return ""
    is_whole = request.end == "whole"
    counted = next((heard.num_tokens for heard in reversed(request.heard) if heard.num_tokens is not None), None)
    if is_whole and counted is not None and counted != ask.max_tokens:
        return f"has {counted} tokens and was asked for {ask.max_tokens}"
    if ask.wants_tokens:
        got, wanted = request.tokens, expected.tokens[: ask.max_tokens]
        if is_whole and len(got) != len(wanted):
            return f"brought {len(got)} tokens of {len(wanted)}{_first(got, wanted)}"
        if got != wanted[: len(got)]:
            return f"other tokens{_first(got, wanted[: len(got)])}"
        return ""
    # a shorter answer may end within a character, of which the longer one has the whole
    text = request.text.rstrip(REPLACEMENT)
    if not expected.text.startswith(text):
        pairs = zip(text, expected.text, strict=False)
        at = next((place for place, (one, other) in enumerate(pairs) if one != other), len(expected.text))
        return f"other text from character {at} on: {text[at : at + 20]!r} for {expected.text[at : at + 20]!r}"
    return ""


def _first(got: list[str], wanted: list[str]) -> str:
    at = next((place for place, (one, other) in enumerate(zip(got, wanted, strict=False)) if one != other), None)
    if at is None:
        return ""
    return f", from place {at} on: {got[at : at + 5]} for {wanted[at : at + 5]}"
