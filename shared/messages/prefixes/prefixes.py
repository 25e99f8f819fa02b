"""Beginnings of prompts by name, so that a gateway, a node and the KV manager mean the same without sending tokens.

A name is made of tokens, and of whose they are (`shared.messages.prefixes.partitions`), alone. What makes KV what it is
(weights, types, layout) differs from node to node of one model, and matters only to a node that takes bytes from
elsewhere: it salts what it stores (`kv_store`). So a gateway names a prompt once for all nodes, and the index asks of
each node and model whether the name is there.

A name is a hint: two beginnings may share one (63 bits), and then a request goes where it finds less than was thought.
Equality is decided by token ids, at the node.

In the standard library alone: engines import it.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b

DIGEST_BYTES = 16
ROOT = blake2b(b"", digest_size=DIGEST_BYTES).digest()
"""Digest of the empty prefix."""

MAX_NAMES = 32  # of a prompt: what is found of it is known to a thirty-second
MAX_BLOCKS = 4096  # of a prompt that are named: a gateway takes 4 ms for so many


@dataclass(frozen=True, slots=True)
class PromptPrefix:
    """Names of beginnings of one prompt, each longer than the one before by the same number of tokens."""

    every_tokens: int
    names: list[int]

    def tokens(self, num_names: int) -> int:
        """Tokens of the beginning with this number, from 1 on; of none, 0."""
        return num_names * self.every_tokens


def root_of(owner: str) -> bytes:
    """Digest of the empty prefix of an owner (`partitions.owner_of`); of the model itself, ``""``, `ROOT`."""
    return blake2b(owner.encode(), digest_size=DIGEST_BYTES).digest()


def chained_digest(parent: bytes, token_ids: Sequence[int]) -> bytes:
    """BLAKE2b over the parent's digest and the token ids (32 bits each, little-endian): equal on every machine."""
    return blake2b(parent + struct.pack(f"<{len(token_ids)}I", *token_ids), digest_size=DIGEST_BYTES).digest()


def name_of(digest: bytes) -> int:
    """1 to 2^63: the first half of a digest, without a bit."""
    return (int.from_bytes(digest[:8], "little") >> 1) + 1


def prompt_prefix(token_ids: Sequence[int], block_tokens: int, owner: str = "") -> PromptPrefix | None:
    """Of whole blocks, short of the last token, which is always computed; None where there is none. O(tokens).

    ``owner``: as `root_of`.
    """
    num_blocks = min((len(token_ids) - 1) // block_tokens, MAX_BLOCKS)
    if num_blocks < 1:
        return None
    stride = -(-num_blocks // MAX_NAMES)
    num_blocks -= num_blocks % stride
    packed = struct.pack(f"<{num_blocks * block_tokens}I", *token_ids[: num_blocks * block_tokens])
    block_bytes, digest, names = 4 * block_tokens, root_of(owner), []
    for block in range(num_blocks):
        content = packed[block * block_bytes : (block + 1) * block_bytes]
        digest = blake2b(digest + content, digest_size=DIGEST_BYTES).digest()
        if (block + 1) % stride == 0:
            names.append(name_of(digest))
    return PromptPrefix(stride * block_tokens, names)
