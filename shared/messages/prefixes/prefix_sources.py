"""Where a node may read the KV of a prompt's beginning instead of computing it: another node's cache, and its door.

The queue manager names a source with a request (`shared.messages.requests.requests.Enqueued`); the node that pulls it
asks the source directly, and computes what it does not get. A hint like all that is known of caches: nothing hangs on
its truth.
"""

from __future__ import annotations

import msgspec


class KvDoor(msgspec.Struct, frozen=True):
    """How other nodes ask a node for what it has cached, in one of its epochs."""

    url: str
    """Of its admin port, as other nodes reach it."""
    token: str
    """Secret, and this epoch's own: the right to ask."""

    def __repr__(self) -> str:
        """Without the secret: messages are logged."""
        return f"KvDoor({self.url!r})"


class PrefixSource(msgspec.Struct, frozen=True):
    """A node that has more of a prompt than the one for which the request waits."""

    node: str
    door: KvDoor
    num_tokens: int
    """Of the prompt, that it had when the request came."""
    kv_format: str
    """As in `ModelRate`: who cuts blocks otherwise does not ask."""
    within_s: float
    """By then it has come, or is computed."""
