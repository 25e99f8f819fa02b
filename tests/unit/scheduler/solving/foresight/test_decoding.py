"""Plans that have nodes which decode load other models. A node runs one request at a time, 10 tokens a second.

A load takes 3 s (see `problems`). p and q compute prompts of a and b; d decodes, and has a.
"""

from __future__ import annotations

from math import inf

import pytest
from msgspec.structs import replace

from services.scheduler.placement import solve
from services.scheduler.solving.foresight.decoding import decode_of
from services.scheduler.solving.foresight.foresight import foreseen
from shared.messages.nodes.nodes import NodeState, Phases
from shared.messages.nodes.placement import Arrivals, GroupLoad, ModelLoad, PlacementProblem
from shared.messages.requests.requests import HANDED_OVER
from shared.messages.requests.slo import UNBOUNDED_S
from tests.unit.scheduler.problems import load, node, running

NOW_S = 100.0


def with_phases(name: str, phases: Phases, model: str, broken: str = "") -> NodeState:
    return replace(node(name, model, broken=broken), phases=phases)


P, Q = with_phases("p", "prefill", "a"), with_phases("q", "prefill", "b")
D = with_phases("d", "decode", "a")


def problem(
    nodes: list[NodeState], groups: list[GroupLoad], newcomers: tuple[Arrivals, ...] = (), *awaits: ModelLoad
) -> PlacementProblem:
    return PlacementProblem(
        version=1, now_s=NOW_S, nodes=nodes, groups=groups, newcomers=list(newcomers), awaits=list(awaits)
    )


def loads(*groups: GroupLoad, nodes: tuple[NodeState, ...] = (P, Q, D)) -> list[ModelLoad]:
    plan = solve(problem(list(nodes), list(groups)))
    assert [gid for queue in plan.queues.values() for gid in queue] == [one.group for one in groups]
    return plan.loads


def test_where_all_nodes_serve_both_phases_a_problem_stays_as_it_is() -> None:
    asked = problem([node("n0", "a"), node("n1", "b")], [running("g0", "n1", "b")])
    assert foreseen(asked).problem is asked
    assert solve(asked).loads == []


def test_a_node_with_nothing_to_decode_loads_what_is_decoded_where_its_prompts_were_computed() -> None:
    assert loads(running("g0", "q", "b")) == [ModelLoad("d", "b")]
    assert loads(load("g0", "b", node="q")) == [ModelLoad("d", "b")], "it will be, though it waits yet"
    assert loads(running("g0", "p", "a")) == [], "d has that"


def test_policies_that_do_not_weigh_loads_have_none_made() -> None:
    asked = replace(problem([Q, D], [running("g0", "q", "b")]), policy="edf")
    assert foreseen(asked).problem is asked


def test_it_stays_with_the_model_of_which_there_is_as_much() -> None:
    """a, then b: 1 + (1 + 3 + 1) = 6 s of waiting. b, then a: (3 + 1) + (4 + 3 + 1) = 12 s."""
    assert loads(running("g0", "p", "a"), running("g1", "q", "b")) == []


@pytest.mark.parametrize(("end_s", "loads_b"), [(4.5, True), (5.0, False)])
def test_a_promised_end_brings_another_model_first(end_s: float, *, loads_b: bool) -> None:
    """Behind a, b would go on at 4 s, and takes one."""
    urgent = replace(running("g1", "q", "b"), end_by_s=NOW_S + end_s)
    assert loads(running("g0", "p", "a"), urgent) == [ModelLoad("d", "b")] * loads_b


@pytest.mark.parametrize(("token_s", "loads_b"), [(0.45, True), (0.5, False)])
def test_so_does_a_promised_pace(token_s: float, *, loads_b: bool) -> None:
    """Ten tokens are left: their pace is kept where the last comes at 4.5 s, or at 5 s."""
    urgent = replace(running("g1", "q", "b"), promised_token_s=token_s)
    assert loads(running("g0", "p", "a"), urgent) == [ModelLoad("d", "b")] * loads_b


def test_those_count_who_come() -> None:
    """Nobody is here; of b some come within the 15 s that a plan looks ahead."""
    asked = problem([Q, D], [], (Arrivals(load("", "b"), 1.0),))
    assert solve(asked).loads == [ModelLoad("d", "b")]


def test_what_a_node_was_told_to_load_is_where_a_plan_begins() -> None:
    """Two alike: each would do for b, and e has been told."""
    alike = [D, with_phases("e", "decode", "a")]
    asked = problem([Q, *alike], [running("g0", "q", "b")], (), ModelLoad("e", "b"))
    assert foreseen(asked).problem.queues == {"e": ["g0 decode"]}
    assert solve(asked).loads == [ModelLoad("e", "b")]
    assert solve(replace(asked, awaits=[ModelLoad("d", "b")])).loads == [ModelLoad("d", "b")]


def test_nothing_is_loaded_for_what_stays_where_it_is() -> None:
    came_with_kv = running("g0", "q", "b")
    assert loads(replace(came_with_kv, kv_at=HANDED_OVER)) == [], "somebody has sent it there to go on"
    assert loads(running("g0", "n", "b"), nodes=(P, node("n", "b"), D)) == [], "n does both"
    assert loads(running("g0", "q", "b"), nodes=(P, Q, with_phases("d", "decode", "a", broken="b"))) == []


def test_what_is_left_of_a_group_behind_its_prompts() -> None:
    """Two wait, 20 tokens each behind prompts of 30; one runs, with 8 tokens to come behind 40."""
    group = replace(
        load("g0", "b", node="q", due_s=NOW_S + 5.0, num_requests=2),
        num_running=1,
        mean_prompt_tokens=30.0,
        std_prompt_tokens=3.0,
        mean_output_tokens=20.0,
        running_output_tokens=8.0,
        kv_tokens=40.0,
        promised_token_s=0.5,
    )
    left = decode_of(group, NOW_S)
    assert (left.group, left.node, left.kv_at, left.wants_phase) == ("g0 decode", "", HANDED_OVER, True)
    assert (left.num_waiting, left.num_running, left.running_output_tokens) == (3, 0, 0.0)
    assert (left.mean_prompt_tokens, left.std_prompt_tokens, left.mean_output_tokens) == (0.0, 0.0, 16.0)
    assert (left.kv_tokens, left.kept_tokens) == (100.0, 100 / 3)
    assert (left.deadline_s, left.rank) == (NOW_S + UNBOUNDED_S, inf)
    assert left.end_by_s == NOW_S + 5.0 + 16 * 0.5, "its pace counts from the first token on"


def test_those_who_come_are_promised_the_pace_of_their_kind() -> None:
    """An answer of ten tokens, of one who comes within two loads."""
    here = replace(running("g0", "q", "b", slo="chat"), promised_token_s=0.5)
    coming = tuple(Arrivals(load("", "b", slo=slo, due_s=NOW_S + 4.0), 1 / 6) for slo in ("chat", "other"))
    found = {one.group: one.end_by_s for one in foreseen(problem([Q, D], [here], coming)).problem.groups}
    assert found["b chat 0 decode"] == NOW_S + 4.0 + 3.0 + 10 * 0.5, "in the middle of 6 s"
    assert found["b other 0 decode"] == 0.0, "nobody here knows of a pace"


def test_a_model_that_somebody_here_is_decoded_with_is_not_left_for_those_who_may_come() -> None:
    """d has b, loaded for one who takes 20 s; ten who are expected of a, of 0.1 s each, would go first.

    Left for them, it would be told to load b again as soon as it loaded a, and so on until that one has ended.
    """
    slow = replace(running("g0", "q", "b", rest_s=20.0), end_by_s=NOW_S + 1.0)
    coming = Arrivals(replace(load("", "a", drain_s=0.1), end_by_s=NOW_S + 1.0), 10 / 6)
    asked = problem([P, Q, with_phases("d", "decode", "b")], [slow], (coming,))
    whole = foreseen(asked)
    assert {"g0 decode", "a batch 0 decode"} <= {group.group for group in whole.problem.groups}
    assert solve(asked).loads == []
    assert solve(replace(asked, groups=[])).loads == [ModelLoad("d", "a")], "nobody needs b"


@pytest.mark.parametrize(("a_per_s", "leaves_b"), [(0.1, False), (0.3, False), (0.5, True)])
def test_a_model_is_not_left_for_fewer_than_may_come_for_it(a_per_s: float, *, leaves_b: bool) -> None:
    """p and d have just served b. Of b 0.3 a second are expected, of 4 s each; of a, which was there before, of 1 s."""
    ended = replace(running("g0", "d", "b", rest_s=2.0), kv_at=HANDED_OVER)
    coming = (Arrivals(load("", "a", due_s=NOW_S + 20.0), a_per_s), Arrivals(load("", "b", drain_s=4.0), 0.3))
    asked = problem([with_phases("p", "prefill", "b"), with_phases("d", "decode", "b")], [ended], coming)
    assert [one.model for one in solve(asked).loads if one.node == "p"] == ["a"] * leaves_b


def test_a_model_is_left_for_somebody_here_though_more_may_come_for_it() -> None:
    """One of b is here, and goes behind one more of b who may come; so may three of a."""
    here = running("g0", "q", "b", rest_s=8.0)
    urgent = replace(load("", "b", slo="chat"), end_by_s=NOW_S + 1.0)
    coming = (Arrivals(urgent, 1 / 6), Arrivals(load("", "a", drain_s=9.0), 0.5))
    asked = problem([P, Q, D], [here], coming)
    found = {one.group for one in foreseen(asked).problem.groups}
    assert {"g0 decode", "b chat 0 decode", "a batch 0 decode"} <= found
    assert ModelLoad("d", "b") in solve(asked).loads
