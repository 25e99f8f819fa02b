"""Urgent newcomers of one model keep a node from others."""

from __future__ import annotations

from dataclasses import replace

import pytest

from services.queue_manager.state.group import Group
from services.queue_manager.state.node import Node
from services.queue_manager.waits.interruptions import INTERRUPTS_S, interruptions
from services.queue_manager.waits.newcomers import Newcomers
from shared.config.config import ClusterConfig
from shared.config.services.queue import QueueOptions
from shared.estimator.overtaking import held_share
from shared.messages.nodes.nodes import NodeState
from shared.messages.nodes.step_cost import ModelRate, StepCost
from shared.messages.requests.slo import Slo
from tests.unit.queue_manager.made import LARGE, MadeGroups
from tests.unit.queue_manager.world import World

SOON = Slo("interactive", deadline_s=INTERRUPTS_S - 1.0)
LATER = Slo("batch", deadline_s=INTERRUPTS_S + 1.0)
STEP_S, LOAD_S = 0.02, 0.1
NOW = 100.0


def node(name: str, model: str, *, broken: str = "") -> Node:
    rates = [ModelRate(each, StepCost(STEP_S, 0.0, 0.0), kv_tokens=0, kv_token_bytes=1, load_s=LOAD_S) for each in "ab"]
    return Node(name, "e", NodeState(name, model, max_num_seqs=8, broken_models=list(broken), rates=rates))


def made(*nodes: Node, come: str = "ab", slo: Slo = SOON) -> MadeGroups:
    """For a hundred seconds one request a second has come for each of these models."""
    groups = MadeGroups(LARGE)
    groups.state.nodes = {one.node: one for one in nodes}
    for number in range(100):
        for model in come:
            request = groups.add(f"{model}{number}", model=model, slo=slo, arrival_s=float(number), attempt=0)
            groups.take_out(request)
    return groups


def present(groups: MadeGroups, model: str) -> float:
    """λ D of those who come to one node: an answer takes a step for each token, and the model changes twice."""
    [(load, flow)] = groups.expected_newcomers(model)
    answer_s = load.mean_output_tokens * STEP_S
    return groups.coming(flow, NOW).rate_per_s * (answer_s + 2 * LOAD_S)


def told(groups: MadeGroups) -> dict[tuple[str, str], float]:
    """By node and model."""
    return {(one.node, one.model): one.num_present for one in interruptions(groups.state, groups, NOW)}


def test_they_come_to_those_who_hold_their_model() -> None:
    groups = made(node("n0", "a"), node("n1", "b"), node("n2", "b"))
    one = present(groups, "a")
    assert told(groups) == pytest.approx({("n0", "a"): one, ("n1", "b"): one / 2, ("n2", "b"): one / 2})


def test_and_to_any_where_nobody_does_but_to_nobody_who_cannot_serve_it() -> None:
    groups = made(node("n0", "a"), node("n1", "c", broken="b"))
    assert told(groups) == pytest.approx({("n0", "a"): present(groups, "a"), ("n0", "b"): present(groups, "b")})


def test_they_go_on_to_the_one_that_held_their_model_last_as_long_as_it_lives() -> None:
    groups = made(node("n0", "a"), node("n1", "a"))
    groups.state.last_holders = {"a": "n1", "b": "n1"}
    half = present(groups, "a") / 2
    assert told(groups) == pytest.approx({("n0", "a"): half, ("n1", "a"): half, ("n1", "b"): present(groups, "b")})
    groups.state.last_holders["b"] = "gone"
    assert told(groups)["n0", "b"] == pytest.approx(present(groups, "b") / 2)


def test_who_can_wait_for_the_turn_of_its_model_keeps_nobody_away() -> None:
    groups = made(node("n0", "a"), node("n1", "b"), slo=LATER)
    assert interruptions(groups.state, groups, NOW) == []


def test_who_comes_now_and_then_is_not_worth_telling() -> None:
    """Of one a second nobody has come for seven: there may be another, but hardly."""
    groups = made(node("n0", "a"), node("n1", "b"))
    assert told(groups)
    [(_, flow)] = groups.expected_newcomers("a")
    assert groups.coming(flow, NOW + 6.0).rate_per_s > 0.0
    assert interruptions(groups.state, groups, NOW + 6.0) == []


def test_where_one_model_is_asked_for_nobody_takes_turns() -> None:
    groups = made(node("n0", "a"), come="a")
    assert interruptions(groups.state, groups, NOW) == []


def test_a_wait_behind_them_grows_by_the_time_in_which_they_hold_the_node() -> None:
    """More than by their work: a batch of one takes all of a node that could have eight."""
    here = node("n0", "a")
    groups = made(here, come="ab")
    newcomers = Newcomers(groups.state, groups, QueueOptions())
    waits = Group("g", "b", "batch", start_by_s=1e6)
    kinds = newcomers.kinds(here, here.known, [waits], NOW)
    own = next(kind for kind in kinds if kind.model == "b")
    other = next(kind for kind in kinds if kind.model == "a")
    streams = newcomers.streams(waits, kinds, [], NOW)
    visitors = streams[0]
    assert visitors.share == pytest.approx(held_share(present(groups, "a")))
    assert visitors.share > 2 * other.stream.share
    assert streams == [replace(other.stream, share=visitors.share), own.stream]
    assert newcomers.streams(Group("g", "a", "batch", start_by_s=1e6), kinds, [], NOW)[0] == other.stream


def test_a_model_goes_with_the_node_that_came_to_hold_it_last() -> None:
    world = World(ClusterConfig())
    world.start("n0", "a")
    world.start("n1", "b")
    world.load("n0", "b")
    world.load("n1", "b")  # it has held it all along
    while world.inbox:
        world.handle()
    assert world.core.state.last_holders == {"a": "n0", "b": "n0"}
