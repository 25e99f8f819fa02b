"""Prompts that a node has yet to compute, by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.queue_manager.core import QueueManagerCore
from services.queue_manager.state.node import Node, Unread
from services.queue_manager.state.request import Request
from services.queue_manager.waits.prompts import PromptLines, Reading, left
from shared.config.config import ClusterConfig
from shared.estimator.estimator import NO_PROMPTS, Prompts
from shared.messages.nodes.nodes import NodeState, NodeUp
from shared.messages.nodes.step_cost import ModelRate, StepCost
from shared.messages.requests.requests import Attempt, Finished, FinishedRequest, Pulled, Submit
from shared.messages.requests.slo import Slo
from tests.unit.queue_manager.books import place
from tests.unit.queue_manager.made import LARGE, MadeGroups

RATE = ModelRate("a", StepCost(1.0, 0.25, 0.0), kv_tokens=0, kv_token_bytes=0, load_s=0.0)


def node(*rates: ModelRate, step_tokens: int = 0) -> Node:
    return Node("n0", "e", NodeState("n0", "a", max_num_seqs=4, step_tokens=step_tokens, rates=list(rates)))


def request(prompt_tokens: int = 8, kv_tokens: int = 0) -> Request:
    groups = MadeGroups()
    made = groups.add("r0", prompt_tokens=prompt_tokens)
    made.kv_tokens = kv_tokens
    return made


# --- one behind the other -------------------------------------------------------------------------------------------


def test_prompts_are_computed_one_behind_the_other() -> None:
    here = node()
    reading = Reading(here, 0.25, 0.5, 10.0)
    assert [reading.read(request(tokens)) for tokens in (8, 4, 8)] == [12.0, 13.0, 15.0]
    assert left(here, 10.0) == Prompts(wait_s=5.0, work_s=2.5)


def test_what_is_left_falls_by_a_second_a_second_and_jumps_with_each_pull() -> None:
    here = node()
    Reading(here, 0.25, 0.5, 10.0).read(request(8))
    assert [left(here, now).wait_s for now in (10.0, 11.0, 11.5)] == [2.0, 1.0, 0.5]
    assert Reading(here, 0.25, 0.5, 11.5).read(request(4)) == 13.0
    assert [left(here, now).wait_s for now in (11.5, 12.5, 13.0, 99.0)] == [1.5, 0.5, 0.0, 0.0]
    assert Reading(here, 0.25, 0.5, 99.0).read(request(4)) == 100.0, "a line that was empty begins anew"


def test_the_share_is_the_mean_of_what_is_left() -> None:
    here = node()
    Reading(here, 1.0, 0.25, 0.0).read(request(4))
    Reading(here, 1.0, 0.75, 3.0).read(request(3))
    assert here.unread == Unread(until_s=7.0, share=(1 * 0.25 + 3 * 0.75) / 4)
    assert left(here, 3.0) == Prompts(4.0, 2.5)


def test_what_was_evicted_has_its_keys_and_values_and_begins_at_once() -> None:
    here = node()
    reading = Reading(here, 0.25, 0.5, 10.0)
    reading.read(request(8))
    assert reading.read(request(8, kv_tokens=12)) == 10.0
    assert left(here, 10.0).wait_s == 2.0


@given(st.lists(st.tuples(st.floats(0.0, 10.0), st.integers(0, 40), st.floats(0.0, 1.0)), max_size=20))
def test_whatever_comes_nobody_is_overtaken_and_no_time_is_lost(pulls: list[tuple[float, int, float]]) -> None:
    """The unfinished work of a queue with one server: pulls come after a while, with a prompt and its share."""
    here = node()
    now = begun_s = 0.0
    for gap_s, prompt_tokens, share in pulls:
        left_s = max(0.0, left(here, now).wait_s - gap_s)
        now += gap_s
        assert left(here, now).wait_s == pytest.approx(left_s, abs=1e-9)
        begins_s = Reading(here, 0.25, share, now).read(request(prompt_tokens))
        assert begins_s >= max(now, begun_s) - 1e-9
        assert begins_s == pytest.approx(now + left_s + 0.25 * prompt_tokens)
        after = left(here, now)
        assert -1e-9 <= after.work_s <= after.wait_s + 1e-9
        begun_s = begins_s


# --- what a pull makes of a group -----------------------------------------------------------------------------------


def line(here: Node, *, num_running: int = 0) -> tuple[PromptLines, MadeGroups]:
    """A group of five with prompts of 8 tokens and answers as the prior has them, of which so many run."""
    groups = MadeGroups(LARGE)
    groups.state.nodes[here.node] = here
    members = [groups.add(f"r{number}") for number in range(5)]
    place(groups.state, here.node, "g0")
    for member in members[:num_running]:
        groups.pull(member, here.node, 0.0)
    return PromptLines(groups.state, groups), groups


def test_a_prompt_takes_its_rows_and_its_part_of_the_steps() -> None:
    """8 of the 16 rows of a step of 1 s, which is there for those who decode, and 0.25 s a row, which is its own."""
    here = node(RATE, step_tokens=16)
    lines, groups = line(here)
    begins_s = lines.reading(here, groups.state.groups["g0"], 10.0).read(groups.state.requests["r0"])
    assert begins_s == 10.0 + 8 / 16 * 1.0 + 8 * 0.25
    assert here.unread.share == 2.0 / 2.5


def test_beside_those_who_decode_it_has_fewer_rows_of_longer_steps() -> None:
    """Two run: 14 rows are left of a step of 1 s and 0.25 s a row."""
    here = node(RATE, step_tokens=16)
    lines, groups = line(here, num_running=2)
    begins_s = lines.reading(here, groups.state.groups["g0"], 10.0).read(groups.state.requests["r2"])
    assert begins_s == pytest.approx(10.0 + 8 / 14 * 1.5 + 8 * 0.25)


def test_who_waits_for_its_own_prompt_does_not_decode() -> None:
    """Two have been pulled, whose prompts are to be computed: there are all rows, as where nothing runs."""
    here = node(RATE, step_tokens=16)
    lines, groups = line(here, num_running=2)
    here.unread = Unread(until_s=10.0 + 2 * (8 / 14 * 1.5 + 8 * 0.25), share=1.0)
    begins_s = lines.reading(here, groups.state.groups["g0"], 10.0).read(groups.state.requests["r2"])
    assert begins_s == pytest.approx(10.0 + 2 * (8 / 14 * 1.5 + 8 * 0.25) + 8 / 16 * 1.0 + 8 * 0.25)


def test_prompts_that_cost_nothing_are_not_waited_for() -> None:
    here = node(ModelRate("a", StepCost(1.0, 0.0, 0.0), kv_tokens=0, kv_token_bytes=0, load_s=0.0))
    lines, groups = line(here, num_running=2)
    assert lines.reading(here, groups.state.groups["g0"], 10.0).read(groups.state.requests["r2"]) == 10.0


def test_a_longer_prompt_than_the_mean_takes_longer() -> None:
    here = node(RATE)
    lines, groups = line(here)
    reading = lines.reading(here, groups.state.groups["g0"], 0.0)
    assert [reading.read(request(tokens)) for tokens in (4, 16)] == [1.0, 5.0]


def test_where_nobody_knows_how_fast_the_node_is_nothing_is_reckoned() -> None:
    other = ModelRate("b", StepCost(1.0, 0.25, 0.0), kv_tokens=0, kv_token_bytes=0, load_s=0.0)
    for here in (node(), node(other)):
        lines, groups = line(here)
        assert lines.reading(here, groups.state.groups["g0"], 10.0).read(groups.state.requests["r0"]) == 10.0
        assert left(here, 10.0) == NO_PROMPTS


def test_nor_of_a_node_or_a_group_that_is_gone() -> None:
    here = node(RATE)
    lines, groups = line(here)
    assert lines.reading(None, groups.state.groups["g0"], 10.0).read(groups.state.requests["r0"]) == 10.0
    assert lines.reading(here, None, 10.0).read(groups.state.requests["r0"]) == 10.0
    assert left(here, 10.0) == NO_PROMPTS


# --- what an end shows ----------------------------------------------------------------------------------------------


def test_an_answer_that_ends_before_its_prompt_was_expected_brings_the_line_forward() -> None:
    here = node(RATE)
    lines, groups = line(here)
    reading = lines.reading(here, groups.state.groups["g0"], 0.0)
    for name in ("r0", "r1"):
        member = groups.state.requests[name]
        groups.pull(member, "n0", 0.0, begins_s=reading.read(member))
    assert here.unread.until_s == 4.0
    lines.finished(groups.state.requests["r0"], 1.5)
    assert here.unread.until_s == 3.5, "half a second before it was expected"
    lines.finished(groups.state.requests["r1"], 5.0)
    assert here.unread.until_s == 3.5, "whatever ends later says nothing of prompts"


# --- in the queue manager -------------------------------------------------------------------------------------------


def core_with_one_request() -> QueueManagerCore:
    """It waits for the node's second epoch, which takes 0.25 s for each of its 8 rows."""
    core = QueueManagerCore(ClusterConfig())
    core.handle(NodeUp(epoch="2", known=NodeState("n0", "a", max_num_seqs=4, rates=[RATE])), 1.0)
    slo = Slo("batch", deadline_s=3600.0)
    core.handle(Submit(request_id="r0", gateway="gw", model="a", slo=slo, prompt_tokens=8, max_tokens=10), 1.0)
    return core


def test_a_pull_adds_its_prompts_to_the_line_of_its_node() -> None:
    core = core_with_one_request()
    core.handle(Pulled(node="n0", epoch="2", group="g0", requests=[Attempt("r0", 0)]), 2.0)
    assert core.state.requests["r0"].begins_s == core.state.nodes["n0"].unread.until_s == 4.0


@pytest.mark.parametrize(("reason", "until_s"), [("stop", 3.5), ("length", 3.5), ("error", 4.0)])
def test_only_an_answer_shows_that_its_prompt_was_computed(reason: str, until_s: float) -> None:
    core = core_with_one_request()
    core.handle(Pulled(node="n0", epoch="2", group="g0", requests=[Attempt("r0", 0)]), 2.0)
    core.handle(Finished(node="n0", epoch="2", requests=[FinishedRequest("r0", 0, reason, 3)]), 3.5)
    assert core.state.nodes["n0"].unread.until_s == until_s


def test_what_an_earlier_epoch_has_pulled_is_lost_and_no_prompt_of_this_one() -> None:
    core = core_with_one_request()
    core.handle(Pulled(node="n0", epoch="1", group="g0", requests=[Attempt("r0", 0)]), 2.0)
    assert core.state.requests["r0"].group == ""
    assert left(core.state.nodes["n0"], 2.0) == NO_PROMPTS


def test_left_out_nobody_waits_for_prompts() -> None:
    here = node(RATE, step_tokens=16)
    _, groups = line(here)
    left_out = PromptLines(groups.state, groups, is_on=False)
    reading = left_out.reading(here, groups.state.groups["g0"], 10.0)
    assert reading.read(groups.state.requests["r0"]) == reading.read(groups.state.requests["r1"]) == 10.0
    assert left(here, 10.0) == (0.0, 0.0)
