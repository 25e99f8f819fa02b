"""What a decision core is: a deterministic fold over its inbox. No I/O, no clock, no randomness.

The same core runs under the live driver (`shared.service.driver`), in tests and in the simulator
(`services.simulator`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from shared.messages.message import Message
from shared.messages.messages import AnyMessage
from shared.messages.nodes.placement import PlacementProblem


@dataclass(frozen=True, slots=True)
class Send:
    """Append a message to a stream. ``to_existing``: only if the stream still exists (its owner makes it)."""

    stream: str
    message: Message
    to_existing: bool = False
    max_entries: int = 0
    """Trim the stream to about this length; 0 leaves it to its reader."""


@dataclass(frozen=True, slots=True)
class Drop:
    """Delete a key that has served its purpose: a stream, or the payload of a gateway that is gone.

    Sending to a dropped stream would make it again: the core must not.
    """

    key: str


@dataclass(frozen=True, slots=True)
class Solve:
    """Slow work to be done outside the loop; the answer comes back to the own inbox as `Solved`.

    A driver may lose it in a crash: the core asks again when its time for an answer is over.
    """

    problem: PlacementProblem


Effect = Send | Drop | Solve


class Core(Protocol):
    """A service's decisions. Equal inboxes give equal effects and equal states."""

    @property
    def wake_at(self) -> float | None:
        """Cluster time at which the core wants a `Tick`; None while it waits for messages only."""

    def handle(self, message: AnyMessage, now: float) -> list[Effect]:
        """Fold one message in; ``now`` is the time in its entry id, in seconds."""

    def snapshot(self) -> bytes:
        """The whole state, MessagePack."""

    def restore(self, state: bytes) -> None:
        """Replace the state by one that `snapshot` made."""

    def describe(self) -> dict[str, object]:
        """What an operator wants to see (``/status``); plain JSON values."""
