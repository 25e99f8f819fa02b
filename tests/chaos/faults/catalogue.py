"""All kinds of faults by name, and which come when."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from tests.chaos.faults import entries, lines, processes, redis_server
from tests.chaos.faults.fault import Kind

KINDS = {kind.name: kind for room in (processes, redis_server, lines, entries) for kind in room.KINDS}


def schedule(random: Random, names: list[str] | None = None) -> Iterator[Kind]:
    """Each kind once, in an order of the seed's, then any, for ever."""
    kinds = [KINDS[name] for name in names or KINDS]
    first = list(kinds)
    random.shuffle(first)
    yield from first
    while True:
        yield random.choice(kinds)
