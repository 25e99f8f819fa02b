"""From groups and nodes to seconds, against numbers worked out by hand."""

from __future__ import annotations

from dataclasses import replace
from math import exp, log, sqrt

import msgspec
import pytest

from services.scheduler.solving.problem.instance import Instance
from services.scheduler.solving.problem.tables import MARGIN, make_instance
from shared.estimator.hand_over import PRIOR_NETWORK_BYTES_PER_S
from shared.messages.nodes.nodes import NodeState
from shared.messages.nodes.placement import GroupLoad, Interruption, PlacementProblem
from shared.messages.nodes.step_cost import DecodeYield, ModelRate, StepCost
from shared.messages.requests.requests import HANDED_OVER
from tests.unit.scheduler.problems import SWAP_S, load, node, running


def tables(nodes: list[NodeState], groups: list[GroupLoad], now_s: float = 0.0) -> Instance:
    return make_instance(PlacementProblem(version=1, now_s=now_s, nodes=nodes, groups=groups))


def batched(name: str = "n0", *, num_seqs: int = 4) -> NodeState:
    """A step takes 0.4 s, however many requests are in it: with four of them 0.1 s a token."""
    rate = ModelRate("a", StepCost(0.4, 0.0, 0.0), kv_tokens=10**9, kv_token_bytes=1_000, load_s=0.0)
    return NodeState(name, "a", max_num_seqs=num_seqs, kv_bytes_per_s=1e6, rates=[rate])


def test_groups_are_numbered_by_rank_then_deadline_then_as_they_were_made() -> None:
    groups = [load("g10"), load("g9"), load("late", due_s=2e6), load("first", rank=-1.0, due_s=3e6)]
    assert [group.name for group in tables([node()], groups).groups] == ["first", "g9", "g10", "late"]


def test_work_is_the_time_of_all_tokens_in_a_full_batch() -> None:
    groups = [load("g0", drain_s=4, num_requests=2), running("g1", "n0", rest_s=3)]
    assert list(tables([node()], groups).nodes[0].work_s) == pytest.approx([4, 3])
    eight = msgspec.structs.replace(load("g0", num_requests=8), mean_output_tokens=10.0)
    assert tables([batched()], [eight]).nodes[0].work_s[0] == pytest.approx(8 * 10 * 0.1)


def test_the_last_member_starts_when_those_before_it_are_done() -> None:
    groups = [load("g0", drain_s=4, num_requests=4), load("g1"), running("g2", "n0", rest_s=3, num_requests=3)]
    assert list(tables([node()], groups).nodes[0].lead_s) == pytest.approx([3, 0, 2])


def test_a_fast_node_takes_less() -> None:
    problem = tables([node("slow"), node("fast", speed=4)], [load("g0", drain_s=2)])
    assert [each.work_s[0] for each in problem.nodes] == pytest.approx([2, 0.5])


def test_where_urgent_newcomers_of_another_model_come_everything_takes_longer() -> None:
    """Of ``b`` ln 2 are there at a time: somebody is half of the time. Those of ``a`` do not keep it from its own.

    And who is due before the newcomers does not wait for them.
    """
    interruptions = [
        Interruption("n0", "b", log(2), 20.0),
        Interruption("n0", "a", 1.0, 20.0),
        Interruption("n1", "c", log(4 / 3), 20.0),
    ]
    groups = [
        load("g0", drain_s=4, num_requests=4, due_s=21.0),
        msgspec.structs.replace(load("g1", drain_s=4, due_s=30.0), model="b"),
        load("g2", drain_s=4, num_requests=4, due_s=20.0),
    ]
    nodes = [node("n0"), node("n1"), node("n2")]
    problem = make_instance(
        PlacementProblem(version=1, now_s=0.0, nodes=nodes, groups=groups, interruptions=interruptions)
    )
    here, there, elsewhere = problem.nodes
    assert [group.name for group in problem.groups] == ["g2", "g0", "g1"]
    assert list(elsewhere.work_s) == pytest.approx([4, 4, 4])
    assert list(here.work_s) == pytest.approx([4, 2 * 4, 4 / exp(-1.0)])
    assert list(there.work_s) == pytest.approx([4, 4 / 3 * 4, 4 / 3 * 4])
    assert here.lead_s[1] == pytest.approx(2 * elsewhere.lead_s[1])
    assert here.tail_s[1] == pytest.approx(2 * elsewhere.tail_s[1])


def test_the_tail_is_a_whole_request_at_the_pace_of_the_batch() -> None:
    ten = msgspec.structs.replace(load("g0", num_requests=8), mean_output_tokens=10.0)
    assert tables([batched()], [ten]).nodes[0].tail_s[0] == pytest.approx(10 * 0.4)


def test_a_full_batch_overlaps_by_what_it_has_left() -> None:
    # four requests of 10 tokens are half done: 4 x 5 x 0.1 s, less the one whose place gets free, 10 x 0.1 s
    ten = msgspec.structs.replace(load("g0", num_requests=8), mean_output_tokens=10.0)
    assert tables([batched()], [ten]).nodes[0].overlap_s == {"a": pytest.approx(1.0)}


def test_what_a_full_batch_has_left_takes_longer_too_where_urgent_newcomers_come() -> None:
    ten = msgspec.structs.replace(load("g0", num_requests=8, due_s=21.0), mean_output_tokens=10.0)
    interruptions = [Interruption("n0", "b", log(2), 20.0)]
    problem = make_instance(
        PlacementProblem(version=1, now_s=0.0, nodes=[batched()], groups=[ten], interruptions=interruptions)
    )
    assert problem.nodes[0].overlap_s == {"a": pytest.approx(2 * 1.0)}


def test_a_batch_is_full_when_no_place_is_left() -> None:
    assert tables([batched()], [running("g0", "n0", num_requests=4)]).nodes[0].is_full
    roomy = tables([batched()], [running("g0", "n0", num_requests=3, rest_s=6), load("g1")]).nodes[0]
    assert not roomy.is_full
    assert roomy.overlap_s["a"] == roomy.work_s[0], "nobody waits for what runs"


def test_what_runs_is_moved_out_and_in_at_the_measured_rate() -> None:
    problem = tables([node("n0"), node("n1")], [running("g0", "n0", kv_s=0.5)])
    here, there = problem.nodes
    assert (here.evict_s, there.evict_s) == ({0: 0.5}, {})
    assert here.setup_s == [0.5]
    assert there.setup_s[0] == pytest.approx(2 * 0.5 + 0.5e6 / PRIOR_NETWORK_BYTES_PER_S)


def test_kv_for_which_the_other_node_has_no_room_is_computed_again() -> None:
    """500 tokens of two requests are 250 kB each; a row takes 0.1 s."""
    group = running("g0", "n0", num_requests=2, kv_s=0.5)

    def there(max_image_bytes: int) -> float:
        small = msgspec.structs.replace(node("n1"), max_image_bytes=max_image_bytes)
        return tables([node("n0"), small], [group]).nodes[1].setup_s[0]

    assert there(250_000) == pytest.approx(2 * 0.5 + 0.5e6 / PRIOR_NETWORK_BYTES_PER_S)
    assert there(249_999) == pytest.approx(500 * 0.1)


def test_so_is_kv_that_is_sooner_computed_than_moved() -> None:
    slow = msgspec.structs.replace(node("n1"), network_bytes_per_s=0.5e6 / 49.0)
    slower = msgspec.structs.replace(node("n1"), network_bytes_per_s=0.5e6 / 50.0)
    group = running("g0", "n0", kv_s=0.5)
    assert tables([node("n0"), slow], [group]).nodes[1].setup_s[0] == pytest.approx(2 * 0.5 + 49)
    assert tables([node("n0"), slower], [group]).nodes[1].setup_s[0] == pytest.approx(500 * 0.1)


def test_so_is_kv_that_lies_otherwise_at_the_other_node() -> None:
    def there(*formats: str) -> float:
        nodes = [node(f"n{number}") for number in range(2)]
        known = [
            msgspec.structs.replace(one, rates=[replace(rate, kv_format=name) for rate in one.rates])
            for one, name in zip(nodes, formats, strict=True)
        ]
        return tables(known, [running("g0", "n0", kv_s=0.5)]).nodes[1].setup_s[0]

    assert there("x", "x") == there("x", "") == pytest.approx(2 * 0.5 + 0.5e6 / PRIOR_NETWORK_BYTES_PER_S)
    assert there("x", "y") == pytest.approx(500 * 0.1)


def test_kept_kv_is_near_where_it_lies_and_everywhere_once_it_was_handed_over() -> None:
    def setups(kv_at: str) -> list[float]:
        parked = load("g0", node="n0", kv_at=kv_at, kv_tokens=500)
        return [each.setup_s[0] for each in tables([node("n0"), node("n1")], [parked]).nodes]

    over_s = 0.5e6 / PRIOR_NETWORK_BYTES_PER_S
    assert setups("n0") == [0.5, pytest.approx(1.0 + over_s)]
    assert setups(HANDED_OVER) == [pytest.approx(0.5 + over_s)] * 2


def test_loading_takes_what_was_measured_also_back_to_the_model_that_is_loaded_now() -> None:
    assert tables([node("n0", "a")], [load("g0", "a"), load("g1", "b")]).nodes[0].load_s == {"a": SWAP_S, "b": SWAP_S}


def test_a_node_that_loads_is_ready_when_that_is_expected_to_be_over() -> None:
    loading = msgspec.structs.replace(node("n0"), ready_at_s=102.5)
    late = msgspec.structs.replace(node("n1"), ready_at_s=99.0)
    nodes = tables([loading, late, node("n2")], [load("g0")], now_s=100.0).nodes
    assert [each.ready_s for each in nodes] == [2.5, 0.0, 0.0], "one that takes longer may be ready at any time"


def test_who_ran_on_a_node_that_is_gone_waits() -> None:
    problem = tables([node("n0")], [running("g0", "gone")])
    assert problem.groups[0].home is None
    assert problem.nodes[0].evict_s == {}


def test_deadlines_are_seen_from_now() -> None:
    assert tables([node()], [load("g0", due_s=30)], now_s=100.0).groups[0].due_s == -70


def test_who_has_to_end_by_then_starts_an_answer_earlier() -> None:
    ends = msgspec.structs.replace(load("g0", drain_s=6, due_s=30), end_by_s=40.0)
    assert tables([node(), node("n1", speed=3)], [ends], now_s=20.0).groups[0].due_s == 10, "as it was promised"
    # 40 s less a prompt of one step and 59 tokens more: that is 6 s, on the fast node 2 s and later than promised
    slow, fast = tables([node(), node("n1", speed=3)], [msgspec.structs.replace(ends, deadline_s=35.0)]).nodes
    assert slow.due_s[0] == pytest.approx(34)
    assert fast.due_s[0] == 35


def test_who_has_to_end_by_then_is_given_time_for_a_long_answer() -> None:
    ends = msgspec.structs.replace(load("g0", drain_s=6, due_s=40), end_by_s=40.0, std_output_tokens=20.0)
    (only,) = tables([node()], [ends]).nodes
    assert only.due_s[0] == pytest.approx(40 - 6 - 2 * sqrt(2 * log(3))), "20 tokens take 2 s"


def test_of_a_promised_start_a_part_is_kept_for_what_predictions_err() -> None:
    (only,) = tables([node()], [load("g0", due_s=40)]).nodes
    assert only.due_s[0] == 40 * (1 - MARGIN)


def test_what_is_late_already_is_as_late_as_it_is() -> None:
    (only,) = tables([node()], [load("g0", drain_s=6, due_s=5)], now_s=9.0).nodes
    assert only.due_s[0] == -4


def test_nodes_of_one_kind_share_their_tables() -> None:
    one, other, fast = tables([node("n0"), node("n1"), node("n2", speed=2)], [load("g0")]).nodes
    assert one.work_s is other.work_s
    assert one.work_s is not fast.work_s


def test_nodes_that_guess_more_or_better_are_of_another_kind() -> None:
    """Ten tokens are ten steps of a row, 5.5 of three rows where each brings two, or ten of three in vain."""

    def guessing(name: str, rows: float, tokens: float) -> NodeState:
        known = node(name)
        rates = [replace(rate, decode=DecodeYield(rows, tokens)) for rate in known.rates]
        return msgspec.structs.replace(known, rates=rates)

    nodes = [node("n0"), guessing("n1", 1.0, 1.0), guessing("n2", 3.0, 2.0), guessing("n3", 3.0, 1.0)]
    plain, same, better, worse = tables(nodes, [load("g0")]).nodes
    assert plain.work_s is same.work_s
    assert [plain.work_s[0], better.work_s[0], worse.work_s[0]] == pytest.approx([1.0, 1.65, 3.0])


@pytest.mark.parametrize(("num_there", "places"), [(1, (0, 1)), (2, (0,))])
def test_a_running_group_moves_only_to_a_node_that_has_room_for_all_of_it(num_there: int, places: tuple[int]) -> None:
    """Three of four places are free at ``n1``, or two; those who wait there count, for the room is theirs."""
    groups = [running("g0", "n0", num_requests=3), load("g1", num_requests=num_there, node="n1")]
    moved = tables([batched("n0"), batched("n1")], groups).groups
    assert {group.name: group.places for group in moved}["g0"] == places


def test_what_was_evicted_moves_likewise_and_what_has_no_kv_moves_anywhere() -> None:
    groups = [
        load("kept", num_requests=3, node="n0", kv_at="n0", kv_tokens=30),
        load("new", num_requests=3, node="n0"),
        running("g2", "n1", num_requests=2),
    ]
    places = {group.name: group.places for group in tables([batched("n0"), batched("n1")], groups).groups}
    assert places == {"kept": (0,), "new": (0, 1), "g2": (1,)}
