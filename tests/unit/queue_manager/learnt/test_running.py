"""What nodes have drawn from one look to the next."""

from __future__ import annotations

from services.queue_manager.learnt.running import LOOK_INTERVAL_S, RunningRequests


def running(*names: str) -> RunningRequests:
    made = RunningRequests({})
    for name in names:
        made.add("a", name)
    return made


def test_those_that_run_are_looked_at_now_and_then() -> None:
    runs = running("r0", "r1")
    first = runs.look("a", 10.0)
    assert first is not None
    assert list(first.members) == ["r0", "r1"]
    assert runs.look("a", 10.0 + LOOK_INTERVAL_S / 2) is None
    runs.remove("a", "r0")
    second = runs.look("a", 10.0 + 3 * LOOK_INTERVAL_S)
    assert second is not None
    assert (second.since_s, list(second.members)) == (3 * LOOK_INTERVAL_S, ["r1"])


def test_a_node_has_drawn_by_how_much_its_requests_have_come_further() -> None:
    runs = running("r0")
    assert runs.drawn("a", {"n0": 5.0}) == {}, "nobody has looked before"
    assert runs.drawn("a", {"n0": 12.0}) == {"n0": 7.0}


def test_who_has_left_counts_with_all_that_it_drew_there() -> None:
    """One had 5 tokens, and ends with 9; another has come since and has 2: 4 and 2 were drawn."""
    runs = running("r0", "r1")
    runs.drawn("a", {"n0": 5.0})
    runs.draw("a", "n0", 9)
    assert runs.drawn("a", {"n0": 2.0}) == {"n0": 6.0}


def test_where_nothing_ran_at_the_last_look_nobody_knows() -> None:
    runs = running("r0")
    runs.drawn("a", {"n0": 5.0})
    assert runs.drawn("a", {"n1": 1.0}) == {}
    runs.draw("a", "n0", 9)
    assert runs.drawn("a", {"n0": 3.0, "n1": 2.0}) == {"n1": 1.0}


def test_models_are_told_apart() -> None:
    runs = running("r0")
    runs.add("b", "r1")
    runs.drawn("a", {"n0": 5.0})
    assert runs.drawn("b", {"n0": 8.0}) == {}
    assert runs.drawn("a", {"n0": 8.0}) == {"n0": 3.0}
