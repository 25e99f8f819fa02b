"""Whether the first in line had better wait until one that runs has computed what both begin with.

What a step computes can be found when it is over. Documents that are scored for one query arrive together, and a step
with room for all of them would compute the query for each. So the first of them runs alone, for a step or two, where
what the others are spared is worth more than the room that they leave. Requests for rows alone wait like this: what
they cost is their prompt.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Final

from gpu_node.engine.requests.sequence import EngineRequest
from gpu_node.engine.steps.batch.roster import Roster

MIN_SPARED_TOKENS: Final = 512
"""Of all that wait; fewer are computed in about the time of the steps that would have room for them."""

MAX_LOOKED_AT: Final = 32
"""Of those that run; a step may begin hundreds, each of which looks."""


def comes_soon(roster: Roster) -> bool:
    """Whether what the first in line begins with is computed by one that runs, and cannot be found yet."""
    first = roster.waiting[0]
    if not first.payload.sampling.is_embedding:
        return False
    num_found = roster.blocks.block_size * len(roster.blocks.match(_prompt(first), first.payload.owner))
    num_common = max((_num_common(first, other, roster) for other in _computing(roster)), default=0)
    if num_common <= num_found:
        return False
    beginning, owner = _prompt(first)[:num_common], first.payload.owner
    num_alike = sum(one.payload.owner == owner and _prompt(one)[:num_common] == beginning for one in roster.waiting)
    return num_alike * (num_common - num_found) >= MIN_SPARED_TOKENS


def _computing(roster: Roster) -> Iterable[EngineRequest]:
    """The last that began: one that computes what the first in line begins with came just before it."""
    return (one for one in islice(reversed(roster.running.values()), MAX_LOOKED_AT) if not roster.is_remote(one))


def _num_common(one: EngineRequest, other: EngineRequest, roster: Roster) -> int:
    """Tokens in the full blocks that both begin with, short of the last token, which each computes itself."""
    if one.payload.owner != other.payload.owner:
        return 0
    size, mine, theirs = roster.blocks.block_size, _prompt(one), _prompt(other)
    low, high = 0, min(len(mine) - 1, len(theirs)) // size
    while low < high:  # longer beginnings are alike only where shorter ones are
        middle = (low + high + 1) // 2
        low, high = (middle, high) if mine[: middle * size] == theirs[: middle * size] else (low, middle - 1)
    return low * size


def _prompt(request: EngineRequest) -> list[int]:
    return request.sequences[0].token_ids
