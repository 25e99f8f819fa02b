"""What reads one call, behind its mark, character by character; each family's way to write one has its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from gateway.tools.values.json_value import JsonStep

Functions = Mapping[str, Mapping[str, Any] | None]
"""The functions that may be called, by name, each with the JSON schema of its arguments; None where it takes none."""


class CallReader(Protocol):
    """Not fed again after `JsonStep.LAST` or `JsonStep.WRONG`; it never answers `JsonStep.BEHIND`."""

    @property
    def name(self) -> str:
        """Of the function; ``""`` until it is known."""

    @property
    def is_known(self) -> bool:
        """The client can be told that there is a call."""

    @property
    def is_complete(self) -> bool:
        """There is a name, and all its arguments."""

    def feed(self, character: str) -> JsonStep:
        """Take the next character."""

    def run(self, text: str, begin: int) -> str:
        """Take as much of the text, from ``begin`` on, as cannot be the end of anything; often nothing."""

    def take_arguments(self) -> str:
        """The arguments, a JSON object, that have come since they were taken last."""


CallOpener = Callable[[str, Functions], CallReader | None]
"""The reader of a call that begins with this character, which it has taken; None where none does."""
