"""What a node asks another one for: the KV of a text, as far as it is cached there.

In the standard library alone: engines import it.
"""

from __future__ import annotations

from dataclasses import dataclass

from shared.messages.prefixes.partitions import owner_of

MAX_PREFIX_BYTES = 1 << 30
"""Of one answer: the giver copies it between two steps, in some tens of milliseconds. What is beyond is computed."""

MAX_TOKEN_ID = (1 << 32) - 1


@dataclass(frozen=True, slots=True)
class PrefixAsk:
    """Answered by an `ImageTicket`."""

    request_id: str
    attempt: int
    """The request that it is for."""
    model: str
    adapter: str
    kv_format: str
    """As in `ModelRate`: who cuts blocks otherwise gives nothing."""
    token_ids: list[int]
    """From the first on; what is found of them is decided by these, not by names."""
    from_token: int
    """Those before it are there already: a whole number of blocks."""
    partition: str = ""
    """As in `Payload`. Who does not know it gives blocks of all, which the asker knows by their name, and drops."""

    @property
    def owner(self) -> str:
        """As `Payload.owner`."""
        return owner_of(self.adapter, self.partition)

    @property
    def is_sound(self) -> bool:
        """Whether its numbers can be looked up."""
        return self.from_token >= 0 and all(0 <= token <= MAX_TOKEN_ID for token in self.token_ids)
