"""Which operators of a program must not change their order: what is read after a write, and written after a read.

Layers share buffers, so what one layer writes the next may overwrite: both kinds of hazards follow from the boxes of
`gpu_node.graph.coverage`, and so do writes after writes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from gpu_node.graph.coverage import Box, contains, meet

Place = str | tuple[int, bool]
"""What is written and read: a buffer; the blocks of a layer here; or, with True, those elsewhere."""


class Access(NamedTuple):
    """What an operator does to a part of a place."""

    place: Place
    box: Box
    is_write: bool


def conflicts(accesses: Sequence[Sequence[Access]]) -> list[list[int]]:
    """For each operator, those before it that have to end before it begins; ``accesses`` of all, in their order.

    Left out is whatever follows from others that are named: of what a later write covers, only that write counts.
    """
    live: dict[Place, list[tuple[int, Access]]] = {}
    found: list[list[int]] = []
    for index, own in enumerate(accesses):
        before = {
            earlier
            for access in own
            for earlier, other in live.get(access.place, ())
            if (access.is_write or other.is_write) and meet(access.box, other.box)
        }
        found.append(sorted(before))
        for access in own:
            kept = live.get(access.place, [])
            if access.is_write:
                kept = [one for one in kept if not contains(access.box, one[1].box)]
            live[access.place] = [*kept, (index, access)]
    return found
