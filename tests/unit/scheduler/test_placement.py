"""In which order `solve` puts groups, on problems whose answer is plain to see."""

from __future__ import annotations

from tests.unit.scheduler.problems import load, node, plan


def test_without_nodes_the_plan_is_empty() -> None:
    assert plan([], [load("g0")]).queues == {}


def test_without_groups_every_queue_is_empty() -> None:
    assert plan([node("n0"), node("n1")], []).queues == {"n0": [], "n1": []}


def test_groups_go_where_their_model_is() -> None:
    nodes = [node("n0", "a"), node("n1", "b")]
    answer = plan(nodes, [load("g0", "b"), load("g1", "a"), load("g2", "b")])
    assert answer.queues == {"n0": ["g1"], "n1": ["g0", "g2"]}
    assert answer.num_swaps == 0


def test_groups_of_one_model_stand_together() -> None:
    groups = [load("g0", "a"), load("g1", "b"), load("g2", "a"), load("g3", "b")]
    answer = plan([node(model="a")], groups)
    assert answer.queues == {"n0": ["g0", "g2", "g1", "g3"]}
    assert answer.num_swaps == 1


def test_a_deadline_breaks_a_run_of_one_model() -> None:
    groups = [
        load("g0", "a", drain_s=2, due_s=5),
        load("urgent", "b", drain_s=2, due_s=6),
        load("g1", "a", drain_s=2, due_s=100),
    ]
    answer = plan([node(model="a", swap_s=3)], groups)
    assert answer.queues == {"n0": ["g0", "urgent", "g1"]}, "after g1 it would start at 7"
    assert (answer.num_swaps, answer.late_s) == (2, 0)


def test_a_deadline_that_can_wait_breaks_no_run() -> None:
    groups = [
        load("g0", "a", drain_s=2, due_s=5),
        load("calm", "b", drain_s=2, due_s=7),
        load("g1", "a", drain_s=2, due_s=100),
    ]
    assert plan([node(model="a", swap_s=3)], groups).queues == {"n0": ["g0", "g1", "calm"]}


def test_what_comes_too_late_is_said() -> None:
    groups = [load("g0", drain_s=5, due_s=0), load("g1", due_s=2, num_requests=3)]
    assert plan([node()], groups).late_s == 3 * 3


def test_within_a_model_those_due_first_come_first_served() -> None:
    groups = [load("g2", due_s=30), load("g0", due_s=10, drain_s=9), load("g1", due_s=20)]
    assert plan([node()], groups).queues == {"n0": ["g0", "g1", "g2"]}


def test_of_equal_groups_the_smaller_name_is_first() -> None:
    assert plan([node()], [load("g1"), load("g0"), load("g2")]).queues == {"n0": ["g0", "g1", "g2"]}


def test_of_equal_nodes_the_first_takes_the_group() -> None:
    assert plan([node("n1"), node("n0")], [load("g0")]).queues == {"n1": ["g0"], "n0": []}


def test_work_is_spread_over_nodes_of_one_model() -> None:
    answer = plan([node("n0"), node("n1")], [load(f"g{number}") for number in range(4)])
    assert answer.queues == {"n0": ["g0", "g2"], "n1": ["g1", "g3"]}


def test_a_fast_node_takes_more() -> None:
    nodes = [node("slow", tokens_per_s=10), node("fast", tokens_per_s=30)]
    answer = plan(nodes, [load(f"g{number}", drain_s=3) for number in range(4)])
    assert {name: len(queue) for name, queue in answer.queues.items()} == {"slow": 1, "fast": 3}


def test_a_swap_elsewhere_beats_a_long_wait_here() -> None:
    nodes = [node("n0", "a"), node("n1", "b", swap_s=3)]
    short = plan(nodes, [load("g0", "a", drain_s=2), load("g1", "a")])
    long = plan(nodes, [load("g0", "a", drain_s=4), load("g1", "a")])
    assert short.queues == {"n0": ["g0", "g1"], "n1": []}
    assert long.queues == {"n0": ["g0"], "n1": ["g1"]}


def test_groups_that_run_stay_at_the_head_of_their_node() -> None:
    groups = [load("urgent", "a", due_s=0), load("runs", "b", drain_s=50, runs_on="n0")]
    assert plan([node(model="b")], groups).queues == {"n0": ["runs", "urgent"]}


def test_groups_that_only_wait_may_move() -> None:
    assert plan([node("n0", "a"), node("n1", "b")], [load("waits", "a", waits_on="n1")]).queues == {
        "n0": ["waits"],
        "n1": [],
    }


def test_a_group_that_ran_on_a_node_that_is_gone_is_placed_anew() -> None:
    assert plan([node("n0")], [load("g0", runs_on="gone")]).queues == {"n0": ["g0"]}


def test_a_model_is_not_placed_where_it_cannot_be_loaded() -> None:
    nodes = [node("n0", "a", broken="b"), node("n1", "c")]
    assert plan(nodes, [load("g0", "b", drain_s=9), load("g1", "b")]).queues == {"n0": [], "n1": ["g0", "g1"]}


def test_a_model_that_is_broken_everywhere_is_placed_so_that_its_clients_hear_of_it() -> None:
    assert plan([node("n0", "a", broken="b")], [load("g0", "b")]).queues == {"n0": ["g0"]}


def test_a_small_group_of_a_rare_model_is_not_passed_over_for_ever() -> None:
    """Under overload the large groups are always a little late; the small one becomes so late that it goes first."""

    def place_of_rare(overdue_s: float) -> int:
        now_s = 10_000.0
        common = [load(f"c{number}", "a", drain_s=5, due_s=now_s + number, num_requests=32) for number in range(4)]
        rare = load("rare", "b", due_s=now_s - overdue_s)
        return plan([node(model="a")], [*common, rare], now_s).queues["n0"].index("rare")

    assert [place_of_rare(overdue_s) for overdue_s in (0, 100, 1_000, 5_000)] == [4, 4, 0, 0]
