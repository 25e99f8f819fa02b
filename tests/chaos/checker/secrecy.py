"""I7: no secret in any log, span, metric or dead letter."""

from __future__ import annotations

from collections.abc import Iterator

from tests.chaos.checker.violation import Violation
from tests.chaos.history import History, Secret


def check(history: History) -> Iterator[Violation]:
    """Places in which a key or a prompt was found."""
    for secret in history.secrets:
        yield Violation("I7", f"{secret.what} stands in {secret.place}")


def search(place: str, text: str, secrets: dict[str, str]) -> Iterator[Secret]:
    """Which of the secrets, by what they are, stand in a text."""
    for what, secret in secrets.items():
        if secret in text:
            yield Secret(place=place, what=what)
