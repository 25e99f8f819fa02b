"""What is fuzzed: bytes go in, and the oracle says whether what comes out is allowed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

from tests.fuzz.mutators import mutated_bytes

Mutate = Callable[[bytes, Sequence[bytes], Random], bytes]


class BrokenRuleError(AssertionError):
    """A value came out that may not; the text says which rule it breaks."""


def rule(holds: bool, text: str) -> None:
    """A rule of an oracle."""
    if not holds:
        raise BrokenRuleError(text)


@dataclass(frozen=True)
class Target:
    """A decoder or a small algorithm with its oracle."""

    name: str
    examples: Callable[[], Sequence[bytes]]
    """Real inputs, from which all others are made. Called once."""
    check: Callable[[bytes], bool]
    """Feeds one input. True where a value came out, False for the documented refusal; what it raises is a finding."""
    mutate: Mutate = mutated_bytes
    is_guided: bool = True
    """Whether its decoder is Python, so that coverage says which inputs reach something new."""
    share: float = 1.0
    """Of the inputs of a campaign, compared with the other targets: what is slow gets fewer."""


def refused(decode: Callable[[], object], *refusals: type[Exception]) -> bool:
    """Whether ``decode`` raises one of its documented errors, with a text that can be logged; others pass through."""
    try:
        decode()
    except refusals as error:
        text = str(error)
        rule(bool(text), "a refusal says what is wrong")
        text.encode()  # a lone surrogate could be neither logged nor answered
        return True
    return False
