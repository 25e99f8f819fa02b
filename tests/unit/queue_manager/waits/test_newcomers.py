"""Who is expected to go ahead of those who wait."""

from __future__ import annotations

from dataclasses import replace

import pytest

from services.queue_manager.state.group import Group
from services.queue_manager.state.node import Node
from services.queue_manager.waits.newcomers import NewcomerKind, Newcomers
from shared.config.services.policies import OPEN_S
from shared.config.services.queue import QueueOptions
from shared.estimator.batching import Batching, batching
from shared.messages.nodes.nodes import NodeState
from shared.messages.nodes.step_cost import ModelRate, StepCost
from shared.messages.requests.request_kind import RequestKind
from tests.unit.queue_manager.made import LARGE, LATER, SOON, MadeGroups

RATES = [ModelRate(model, StepCost(1.0, 0.0, 0.0), kv_tokens=0, kv_token_bytes=1, load_s=1.0) for model in "ab"]


def node(name: str = "n0", model: str = "a", *, device: str = "gpu", max_num_seqs: int = 1) -> Node:
    known = NodeState(node=name, model=model, device=device, max_num_seqs=max_num_seqs, rates=RATES)
    return Node(name, "e", known)


def made(*nodes: Node, policy: str = "qlm") -> tuple[MadeGroups, Newcomers]:
    """Groups of up to 32, and what comes: one a second of each kind for the model ``a``, for a hundred seconds."""
    groups = MadeGroups(LARGE)
    groups.state.nodes = {one.node: one for one in nodes}
    for number in range(100):
        for slo in (SOON, LATER):
            request = groups.add(f"{slo.name}{number}", slo=slo, arrival_s=float(number), attempt=0)
            groups.take_out(request)
    return groups, Newcomers(groups.state, groups, QueueOptions(policy=policy))  # type: ignore[arg-type]


def kinds_at(newcomers: Newcomers, where: Node, *groups: Group, now: float = 100.0) -> list[NewcomerKind]:
    return newcomers.kinds(where, where.known, groups, now)


def work_of(groups: MadeGroups, kind: int = 0) -> Batching:
    load, _ = list(groups.expected_newcomers("a"))[kind]
    return batching(node().known, load)


def test_what_comes_is_told_as_a_share_of_the_node() -> None:
    here = node()
    groups, newcomers = made(here)
    soon, later = kinds_at(newcomers, here)
    coming = groups.coming(groups.state.flows[RequestKind("a", "interactive")], 100.0)
    work = work_of(groups)
    assert (soon.slo_kind, later.slo_kind) == ("interactive", "batch")
    assert (soon.patience_s, later.patience_s) == pytest.approx((20.0, 3600.0))
    assert soon.stream.share == pytest.approx(coming.rate_per_s * work.request_s)
    assert soon.stream.square_s == pytest.approx(coming.rate_per_s * (work.request_s**2 + work.std_request_s**2))
    assert soon.prompts_s == pytest.approx(coming.rate_per_s * work.prompt_rows_s**2)
    assert soon.stream.horizon_s == 99.0 + 2 * 99.0  # as long as they have come, and as streams do: none has ended


def test_nodes_that_hold_the_model_share_it_by_what_they_can_do() -> None:
    """One of them has four places, and does four times as much."""
    slow, fast, other = node("n0"), node("n1", device="big", max_num_seqs=4), node("n2", "b")
    _, alone = made(slow)
    _, shared = made(slow, fast, other)
    (one, _), (part, _) = kinds_at(alone, slow), kinds_at(shared, slow)
    assert part.stream.share == pytest.approx(one.stream.share / 5)
    assert kinds_at(shared, other) == []  # nobody asks for ``b``
    assert len(kinds_at(shared, other, Group("g", "a", "batch"))) == 2  # it is to serve ``a``, beside those two


def waiting(slo_kind: str, start_by_s: float) -> Group:
    return Group("g", "a", slo_kind, start_by_s=start_by_s)


def test_more_urgent_kinds_go_ahead_until_they_are_due_later() -> None:
    here = node()
    _, newcomers = made(here)
    kinds = kinds_at(newcomers, here)
    (stream,) = newcomers.streams(waiting("batch", 150.0), kinds, [], 100.0)
    assert stream == replace(kinds[0].stream, horizon_s=150.0 - 100.0 - 20.0)
    assert newcomers.streams(waiting("batch", 110.0), kinds, [], 100.0) == []  # due sooner than who comes now
    assert newcomers.streams(waiting("interactive", 120.0), kinds, [], 100.0) == []  # its own kind comes behind it


def five_every(seconds: float) -> tuple[MadeGroups, Newcomers, Group]:
    """A group of five who have come since 100 s, with room for 35."""
    groups, newcomers = made(node())
    for number in range(5):
        request = groups.add(f"r{number}", slo=LATER, arrival_s=100.0 + number * seconds)
    return groups, newcomers, groups.group_of(request)


def test_who_joins_a_group_before_it_goes_ahead_until_that_is_full_or_begins() -> None:
    groups, newcomers, group = five_every(0.125)
    work = work_of(groups, kind=1)
    (joining,) = newcomers.joining(group, work, 1e6, 100.5)
    assert joining.stream.share == pytest.approx(8 * work.request_s)  # four in half a second behind the first
    assert (joining.stream.horizon_s, joining.stream.error) == (35 / 8, 0.0), "as many as it has room for"
    (stream,) = newcomers.streams(waiting("batch", 4000.0), [], [joining], 100.5)
    assert stream == joining.stream
    (joining,) = newcomers.joining(group, work, 3.0, 100.5)
    assert (joining.stream.horizon_s, joining.stream.error) == (3.0, 0.5), "of the four who came behind the first"
    assert list(newcomers.joining(group, work, 0.0, 100.5)) == []


def test_nobody_joins_a_group_that_has_been_open_for_long() -> None:
    groups, newcomers, group = five_every(1.0)
    work = work_of(groups, kind=1)
    (joining,) = newcomers.joining(group, work, 1e6, 104.0)
    assert joining.stream.share == pytest.approx(work.request_s)  # one a second behind the first
    assert (joining.stream.horizon_s, joining.stream.error) == (OPEN_S - 4.0, 0.5), "it will not be full by then"
    assert list(newcomers.joining(group, work, 1e6, 100.0 + OPEN_S)) == []


def test_nobody_is_counted_twice() -> None:
    here = node()
    groups, newcomers = made(here)
    for number in range(5):
        request = groups.add(f"r{number}", slo=SOON, arrival_s=100.0 + number)
    joining = list(newcomers.joining(groups.group_of(request), work_of(groups), 1e6, 104.0))
    kinds = kinds_at(newcomers, here, now=104.0)
    assert len(newcomers.streams(waiting("batch", 4000.0), kinds, joining, 104.0)) == 1


def test_nobody_joins_at_a_seat_or_anew_after_a_loss() -> None:
    here = node()
    groups, newcomers = made(here)
    for number in range(5):
        seated = groups.add(f"s{number}", arrival_s=100.0 + number, seat="n0")
        again = groups.add(f"a{number}", arrival_s=100.0 + number, attempt=1)
    for request in (seated, again):
        assert list(newcomers.joining(groups.group_of(request), work_of(groups), 1e6, 104.0)) == []


def test_first_come_first_served_knows_no_urgency() -> None:
    here = node()
    _, newcomers = made(here, policy="fcfs")
    assert kinds_at(newcomers, here) == []
