"""Every state that a link can come to, by breadth-first search over `link_model.moves`."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from tests.gpu_node.offload.link_model import Protocol, State, is_settled, moves

MAX_STATES = 400_000


class ViolationError(AssertionError):
    """The shortest way to a state that must not be."""


def search(start: State, protocol: Protocol, happens: Callable[[str], bool]) -> set[State]:
    """All states that moves which `happens` lead to; `ViolationError` where one breaks a promise or waits for ever.

    A state waits for ever from which no order of moves leads to one that is settled.
    """
    came_from: dict[State, tuple[State | None, str]] = {start: (None, "")}
    before: dict[State, list[State]] = {}
    queue = deque([start])
    while queue:
        state = queue.popleft()
        try:
            following = [(name, to) for name, to in moves(state, protocol) if happens(name)]
        except AssertionError as error:
            raise ViolationError(f"{error}: {_way(state, came_from)}") from error
        for name, to in following:
            before.setdefault(to, []).append(state)
            if to not in came_from:
                came_from[to] = (state, name)
                queue.append(to)
        assert len(came_from) <= MAX_STATES, "the search is bounded"
    stuck = came_from.keys() - _leading_to(filter(is_settled, came_from), before)
    if stuck:
        shortest = next(state for state in came_from if state in stuck)
        raise ViolationError(f"waits for ever: {_way(shortest, came_from)}")
    return set(came_from)


def _leading_to(goals: Iterable[State], before: dict[State, list[State]]) -> set[State]:
    found = set(goals)
    queue = deque(found)
    while queue:
        for state in before.get(queue.popleft(), ()):
            if state not in found:
                found.add(state)
                queue.append(state)
    return found


def _way(state: State, came_from: dict[State, tuple[State | None, str]]) -> str:
    names: list[str] = []
    at: State | None = state
    while at is not None:
        at, name = came_from[at]
        names.append(name)
    return " > ".join(reversed(names[:-1]))
