"""Which nodes are to prefill, to decode or to do both: by hand, and what holds whatever comes."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.queue_manager.plans.phase_choice import MAX_SPLITS, AutoNode, Holders, choose
from services.queue_manager.state.phase_gains import Gains
from shared.estimator.splits.costs import change_cost, judged
from shared.estimator.splits.works import KindOfLoad, PhaseLoad, works_of
from shared.messages.nodes.nodes import NodeState, Phases
from shared.messages.nodes.placement import RequestShape
from shared.messages.nodes.step_cost import ModelRate, StepCost

COST = StepCost(step_s=0.01, token_s=0.001, context_token_s=0.0)
NODE = NodeState(
    "n",
    "m",
    max_num_seqs=10,
    step_tokens=100,
    kv_bytes_per_s=1e9,
    network_bytes_per_s=1e9,
    rates=[ModelRate("m", COST, 0, 1_000, 0.0)],
)
PHASES: list[Phases] = ["prefill", "decode", "both"]


def load_of(*kinds: tuple[float, float, float], token_s: float = 0.02) -> PhaseLoad:
    """Each with tokens of prompt and answer, and how many come a second."""
    return PhaseLoad(
        [
            KindOfLoad(
                RequestShape(model="m", mean_prompt_tokens=prompt, mean_output_tokens=output),
                rate,
                4.0,
                token_s,
                math.inf,
            )
            for prompt, output, rate in kinds
        ]
    )


PROMPTS, ANSWERS, FEW = load_of((1000, 20, 1.2)), load_of((100, 300, 2.0)), load_of((100, 100, 0.01))


def holders(*phases: Phases, prefill: int = 0, decode: int = 0, both: int = 0) -> Holders:
    return Holders([AutoNode(f"n{number}", one, 0) for number, one in enumerate(phases)], prefill, decode, both)


def followed(now: Holders, choice: dict[str, Phases] | None) -> Holders:
    """The nodes, once they do what they were told."""
    if choice is None:
        return now
    return Holders([one._replace(phases=choice[one.node]) for one in now.followers], *now[1:])


def look(gains: Gains, now: Holders, load: PhaseLoad, seconds: int = 1) -> tuple[Holders, int]:
    """So many looks, a second apart; how often nodes were told to change."""
    num_changes = 0
    works = works_of([NODE], load)
    for _ in range(seconds):
        choice = choose(gains, now, works, load, 1.0)
        num_changes += choice is not None
        now = followed(now, choice)
    return now, num_changes


def test_the_split_is_changed_when_staying_has_cost_as_much_as_the_change() -> None:
    now, gains, works = holders("both", "both", "both", "both"), Gains(), works_of([NODE], PROMPTS)
    costs = {tuple(now.after(one)): judged(works, PROMPTS, now.after(one)) for one in now.choices}
    least = min(costs, key=lambda split: costs[split].cost)
    assert least == (3, 1, 0)
    num_running = max(costs[0, 0, 4].num_running, costs[least].num_running)
    gain = costs[0, 0, 4].cost - costs[least].cost
    due = math.ceil(change_cost(works, 4, num_running) / gain)
    assert look(gains, now, PROMPTS, due - 1) == (now, 0)
    changed, num_changes = look(gains, now, PROMPTS)
    assert (tuple(changed.split), num_changes) == (least, 1)


def test_when_the_load_changes_so_does_the_split() -> None:
    gains = Gains()
    now, _ = look(gains, holders("both", "both", "both", "both"), PROMPTS, 600)
    assert now.split == (3, 1, 0)
    now, num_changes = look(gains, now, ANSWERS, 600)
    assert (now.split.num_prefill <= 1, num_changes) == (True, 1)
    assert look(gains, now, PROMPTS, 600)[0].split == (3, 1, 0)


def test_those_go_on_who_serve_it_and_those_turn_who_have_the_least_to_leave() -> None:
    nodes = [AutoNode("a", "decode", 5), AutoNode("b", "decode", 2), AutoNode("c", "prefill", 9)]
    choice = next(one for one in Holders(nodes).choices if list(one.values()).count("prefill") == 2)
    assert choice == {"a": "decode", "b": "prefill", "c": "prefill"}


def test_a_lone_node_does_both_and_one_beside_others_what_these_do_not() -> None:
    assert holders("prefill").choices == [{"n0": "both"}]
    assert holders("both", prefill=1).choices == [{"n0": "decode"}]
    assert holders("both", decode=1).choices == [{"n0": "prefill"}]
    assert holders("both", prefill=1, decode=1).choices == [{"n0": "decode"}, {"n0": "prefill"}]
    assert holders(both=3).choices == [{}]


@pytest.mark.parametrize("phases", [("prefill", "prefill"), ("decode", "decode"), ("decode", "both")])
def test_what_is_no_split_ends_with_the_next_look(phases: tuple[Phases, ...]) -> None:
    now, num_changes = look(Gains(), holders(*phases), FEW)
    assert num_changes == 1
    assert now.split in ((0, 0, 2), (1, 1, 0))


def test_of_a_thousand_nodes_some_numbers_are_tried() -> None:
    assert len(Holders([AutoNode(f"n{number}", "both", 0) for number in range(1000)]).choices) <= MAX_SPLITS + 1


KINDS = st.lists(st.tuples(st.floats(1, 3_000), st.floats(1, 500), st.floats(0.01, 5)), min_size=1, max_size=3)
CLUSTERS = st.lists(st.sampled_from(PHASES), min_size=1, max_size=5)
FIXED = st.tuples(st.integers(0, 2), st.integers(0, 2), st.integers(0, 2))


@settings(max_examples=25, deadline=None)
@given(CLUSTERS, FIXED, KINDS)
def test_while_the_load_stays_there_is_one_change_at_most_and_both_phases_have_nodes(
    phases: list[Phases], fixed: tuple[int, int, int], kinds: list[tuple[float, float, float]]
) -> None:
    """But for what is no split at all, which ends at once, whatever it becomes."""
    prefill, decode, both = fixed
    now = holders(*phases, prefill=prefill, decode=decode, both=both)
    gains, load = Gains(), load_of(*kinds)
    now, _ = look(gains, now, load)
    num_changes = 0
    for _ in range(4):  # with a load that stays for minutes
        now, number = look(gains, now, load, 60)
        num_changes += number
        split = now.split
        if split.num_decode or split.num_prefill:
            assert split.num_prefill or (split.num_both and not split.num_decode) or not now.choices
            assert split.num_decode or split.num_both or not now.choices
    assert num_changes <= 1
    assert len(now.followers) == len(phases)
