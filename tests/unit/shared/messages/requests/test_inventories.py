"""An inventory is complete, however it is cut."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from shared.messages.requests.inventories import GatewayInventory, IdRange, NodeInventory, of_gateway, of_node, spans
from shared.messages.requests.requests import Attempt

names = st.lists(st.sampled_from("abcdefgh"), unique=True)


def test_there_is_one_part_of_nothing() -> None:
    assert of_gateway("gw", 3, []) == [GatewayInventory(gateway="gw", number=3)]
    assert of_node("n0", "e", [], []) == [NodeInventory(node="n0", epoch="e")]


def test_parts_hold_so_many_and_leave_no_id_between_them() -> None:
    assert spans(["d", "a", "c", "b", "e"], 2) == [IdRange("", "b"), IdRange("b", "d"), IdRange("d", "")]


def test_a_node_s_parts_tell_what_runs_and_what_is_kept() -> None:
    assert of_node("n0", "e", [Attempt("a", 0), Attempt("c", 1)], [Attempt("b", 2)], max_requests=2) == [
        NodeInventory(node="n0", epoch="e", running=[Attempt("a", 0)], parked=[Attempt("b", 2)], upto="b"),
        NodeInventory(node="n0", epoch="e", running=[Attempt("c", 1)], above="b"),
    ]


@given(names, st.text(alphabet="abcdefghi", max_size=2), st.integers(1, 4))
def test_each_id_there_could_be_is_in_one_span_and_parts_are_bounded(held: list[str], other: str, most: int) -> None:
    cut = spans(held, most)
    for name in {*held, other or "a"}:
        assert sum(span.holds(name) for span in cut) == 1
    assert all(sum(span.holds(name) for name in held) <= most for span in cut)
