"""Two devices that are each other's sender and receiver: each has one team of threads, which does one thing at a time.

A device runs its program, a send and a gather for each task; it serves what waits between two operators, when it has
none, and while it waits in a gather. Steps within a send, a service and a gather are `link_model`'s matter.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

TASKS = 3
Two = tuple[int, int]


class State(NamedTuple):
    """Of both devices."""

    at: Two = (0, 0)  # operators done: sends are even, gathers odd
    sent: Two = (0, 0)
    served: Two = (0, 0)  # of what each sent


def moves(state: State, *, serves_while_it_waits: bool) -> Iterator[State]:
    """What either device can do next."""
    for own, other in ((0, 1), (1, 0)):
        is_done = state.at[own] == 2 * TASKS
        gathers = not is_done and state.at[own] % 2 == 1
        waits = gathers and state.served[own] == state.sent[own] - 1
        if state.sent[other] > state.served[other] and (serves_while_it_waits or not waits):
            yield state._replace(served=_more(state.served, other))
        if not is_done and not waits:
            done = state._replace(at=_more(state.at, own))
            yield done if gathers else done._replace(sent=_more(state.sent, own))


def _more(two: Two, which: int) -> Two:
    return (two[0] + (which == 0), two[1] + (which == 1))
