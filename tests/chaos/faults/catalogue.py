"""All kinds of faults by name, and which come when."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from tests.chaos.faults import entries, lines, processes, redis_server
from tests.chaos.faults.fault import Kind

KINDS = {kind.name: kind for room in (processes, redis_server, lines, entries) for kind in room.KINDS}


PAIRED_SHARE = 0.4
"""Of the faults behind the first round: two at a time, of which one at most is Redis's own."""


def schedule(random: Random, names: list[str] | None = None) -> Iterator[list[Kind]]:
    """Each kind once and alone, in an order of the seed's; then any, for ever, alone or with another."""
    kinds = [KINDS[name] for name in names or KINDS]
    first = list(kinds)
    random.shuffle(first)
    yield from ([kind] for kind in first)
    while True:
        chosen = [random.choice(kinds)]
        others = [kind for kind in kinds if kind is not chosen[0] and not (kind.is_of_redis and chosen[0].is_of_redis)]
        if others and random.random() < PAIRED_SHARE:
            chosen.append(random.choice(others))
        yield chosen
