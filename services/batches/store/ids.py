"""Names of files and batches: those of one second sort in the order of their making, also behind a restart."""

from __future__ import annotations

import secrets

_MICROSECONDS = 10**6


def new_id(prefix: str, now_s: float) -> str:
    """Such as ``batch_`` and 32 hexadecimal digits: 14 of them the time, the others random."""
    return f"{prefix}{int(now_s * _MICROSECONDS):014x}{secrets.token_hex(9)}"
