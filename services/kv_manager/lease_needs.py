"""How many pages of another device a node should have, by what it says of itself."""

from __future__ import annotations

from typing import Literal

from shared.messages.nodes.nodes import Heartbeat

Ratio = float | Literal["auto"]
"""Of a node's requests, those that shall be remote; ``auto`` follows the loads of both sides."""

PRESSED_SHARE = 0.1
"""``auto``: a node with fewer free blocks than this borrows."""
RELAXED_SHARE = 0.5
"""``auto``: with more, and with no request waiting, it gives back."""
GROW_SHARE = 0.125
"""``auto``: of a node's own pages, what it borrows at a time."""
MAX_SHARE = 1.0
"""``auto``: of its own pages, what it may have elsewhere; more attention there than here would be waited for."""


def num_wanted(ratio: Ratio, sender: Heartbeat, receiver: Heartbeat, num_pages: int) -> int:
    """Pages that a sender should have beside ``num_pages``; none where that is less than one."""
    if receiver.room is None:
        return 0
    own = _own_pages(sender, receiver.room.page_bytes)
    if ratio != "auto":
        return int(own * ratio / (1 - ratio)) - num_pages
    is_pressed = sender.num_waiting > 0 or sender.num_free_blocks < PRESSED_SHARE * sender.num_blocks
    return min(max(1, int(GROW_SHARE * own)), int(MAX_SHARE * own) - num_pages) if is_pressed else 0


def is_relaxed(sender: Heartbeat) -> bool:
    """``auto``: whether it can do with less than it has."""
    return not sender.num_waiting and sender.num_free_blocks > RELAXED_SHARE * sender.num_blocks


def ratio(wanted: Ratio, sender: Heartbeat, page_bytes: int, num_pages: int) -> float:
    """What a sender that has ``num_pages`` elsewhere is told; by ``auto``, their part of all that it has."""
    return wanted if wanted != "auto" else num_pages / (num_pages + _own_pages(sender, page_bytes))


def _own_pages(beat: Heartbeat, page_bytes: int) -> int:
    """Memory of a node's own model, in pages of another node."""
    return beat.num_blocks * beat.block_bytes // page_bytes
