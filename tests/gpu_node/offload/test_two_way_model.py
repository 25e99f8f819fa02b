"""Two devices that send to each other never wait for each other, since who waits serves."""

from __future__ import annotations

from tests.gpu_node.offload.two_way_model import TASKS, State, moves


def ends(*, serves_while_it_waits: bool) -> set[State]:
    """States that nothing follows."""
    found, queue, last = {State()}, [State()], set()
    while queue:
        state = queue.pop()
        following = set(moves(state, serves_while_it_waits=serves_while_it_waits))
        if not following:
            last.add(state)
        queue.extend(following - found)
        found |= following
    return last


def test_both_come_to_their_end() -> None:
    done = State(at=(2 * TASKS, 2 * TASKS), sent=(TASKS, TASKS), served=(TASKS, TASKS))
    assert ends(serves_while_it_waits=True) == {done}


def test_a_wait_that_does_not_serve_is_found() -> None:
    assert State(at=(1, 1), sent=(1, 1)) in ends(serves_while_it_waits=False)
