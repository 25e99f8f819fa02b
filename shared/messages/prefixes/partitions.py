"""Partitions of caches: which requests may find what was computed for which.

What is cached of a prompt answers a later one sooner, and counts in its usage. So a client can try whether another
has sent a prompt before. Requests of one partition share what is cached; nothing of one is found in another. A client
names it by a salt (``cache_salt``, as vLLM has it), an operator gives a tenant one of its own; the salt of such a
tenant's client is a part of the tenant's. All others share one, which is called ``""``.

Only a partition's digest leaves the gateway, and it is enough: what it stands for is never asked. It is not keyed, as
a reader where it travels reads the prompts there too.

In the standard library alone: engines import it.
"""

from __future__ import annotations

from hashlib import blake2b

PARTITION_BYTES = 16
"""Twice as many characters: it is written in hexadecimal."""

_PERSON = b"treadle cache"
"""Tells its digests from all others of the same bytes (RFC 7693, §2.5 and §2.8)."""

_BEHIND_ADAPTER = "\0"
"""No adapter's name has it."""


def partition_of(tenant: str, salt: str) -> str:
    """Of a tenant with caches of its own, else ``""``, and of the salt of a request, or ``""``; ``""`` of neither."""
    if not tenant and not salt:
        return ""
    name = tenant.encode()
    both = len(name).to_bytes(8, "little") + name + salt.encode()
    return blake2b(both, digest_size=PARTITION_BYTES, person=_PERSON).hexdigest()


def owner_of(adapter: str, partition: str) -> str:
    """Whose cached blocks are: those of a model's adapter, ``""`` for the model itself, within a partition.

    All that names blocks is made of it. In the common partition it is the adapter's name.
    """
    return f"{adapter}{_BEHIND_ADAPTER}{partition}" if partition else adapter
