"""Identity of a prefix: the chain of full blocks of token ids that leads to it.

The key and value of a token depend on every token before it, so a block can be reused only after the same whole prefix.
A digest finds a candidate fast, and names a prefix between nodes; equality is always decided by the token ids.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b

DIGEST_BYTES = 16

Digest = Callable[[bytes, tuple[int, ...]], bytes]
"""Digest of a prefix from the digest of its parent and the token ids of its last block."""


@dataclass(frozen=True, slots=True, eq=False)
class Prefix:
    """A whole number of blocks of tokens. A linked list: prefixes with a common beginning share it."""

    parent: Prefix | None
    token_ids: tuple[int, ...]
    """Those of the last block."""
    digest: bytes


def chained_digest(parent: bytes, token_ids: tuple[int, ...]) -> bytes:
    """BLAKE2b over the parent's digest and the token ids (32 bits each, little-endian): equal on every machine."""
    return blake2b(parent + struct.pack(f"<{len(token_ids)}I", *token_ids), digest_size=DIGEST_BYTES).digest()


def root(model: str) -> Prefix:
    """The empty prefix of ``model``. Its digest salts the chain: no block of one model is ever found for another."""
    return Prefix(None, (), blake2b(model.encode(), digest_size=DIGEST_BYTES).digest())


def is_same(one: Prefix | None, other: Prefix | None) -> bool:
    """Whether both stand for the same token ids; digests are not looked at.

    O(1) as a rule, since the walk ends where the two chains become one.
    """
    while one is not other:
        if one is None or other is None or one.token_ids != other.token_ids:
            return False
        one, other = one.parent, other.parent
    return True
