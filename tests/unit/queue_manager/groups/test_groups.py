"""Request groups: who joins which, when a group is closed, when it is due, who comes back where."""

from __future__ import annotations

from collections import Counter

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from services.queue_manager import invariants
from services.queue_manager.groups.open_groups import NO_INFLUX
from services.queue_manager.learnt.clusters import RECLUSTER_REQUESTS
from services.queue_manager.learnt.token_rates import TokenRate
from services.queue_manager.learnt.weights_at import WeightsAt
from services.queue_manager.state.request import Request
from services.queue_manager.state.state import State
from services.queue_manager.state.totals import Totals
from shared.config.services.policies import OPEN_S
from shared.config.services.queue import QueueOptions
from shared.messages.nodes.nodes import NodeState
from shared.messages.requests.request_kind import RequestKind
from shared.messages.requests.requests import HANDED_OVER
from shared.messages.requests.slo import UNBOUNDED_S, Slo
from tests.unit.queue_manager.made import LARGE, LATER, SOON, MadeGroups

# --- who joins which ------------------------------------------------------------------------------------------------

ROUNDING = 1e-12  # of a mean: a sum of shares, divided


def test_requests_of_one_model_class_and_tenant_share_a_group() -> None:
    groups = MadeGroups()
    assert [groups.add(name).group for name in ("r0", "r1")] == ["g0", "g0"]


def test_another_model_class_or_tenant_is_another_group() -> None:
    groups = MadeGroups()
    requests = [
        groups.add("r0"),
        groups.add("r1", model="b"),
        groups.add("r2", slo=LATER),
        groups.add("r3", tenant="t"),
    ]
    assert [request.group for request in requests] == ["g0", "g1", "g2", "g3"]


def test_promises_in_numbers_share_a_group_when_they_are_of_one_magnitude() -> None:
    groups = MadeGroups(LARGE)
    promises = [Slo("custom", deadline_s=seconds) for seconds in (3600.0, 1.0, 3000.0, 1.5, 2.0)]
    joined = [groups.add(f"r{number}", slo=slo).group for number, slo in enumerate(promises)]
    assert joined == ["g0", "g1", "g0", "g2", "g2"], "one second does not wait behind an hour"


def test_who_begins_at_once_joins_those_at_its_node_and_who_waits_those_who_wait() -> None:
    groups = MadeGroups(LARGE)
    for number, seat in enumerate(("n0", "n1", "")):
        assert groups.group_of(groups.add(f"r{number}", seat=seat)).gid == f"g{number}"
        groups.state.groups[f"g{number}"].node = seat
    assert [groups.add(f"s{number}", seat=seat).group for number, seat in enumerate(("n0", "n1", ""))] == [
        "g0",
        "g1",
        "g2",
    ]
    groups.state.groups["g0"].node = "n1"
    assert groups.add("r3", seat="n0").group == "g3", "a plan has moved those who were there"


def test_mega_prompts_get_groups_of_their_own_once_they_are_known() -> None:
    groups = MadeGroups(QueueOptions(delta=64))
    for number in range(RECLUSTER_REQUESTS + 1):
        groups.add(f"r{number}", prompt_tokens=8000 if number % 20 == 19 else 100)
    assert groups.add("short", prompt_tokens=100).group == "g0", "the cluster keeps its number, and its group"
    assert groups.add("long", prompt_tokens=8000).group == "g1"


def test_under_edf_and_fcfs_each_request_is_a_group() -> None:
    for options in (QueueOptions(policy="edf"), QueueOptions(policy="fcfs")):
        groups = MadeGroups(options)
        assert [groups.add(f"r{number}").group for number in range(3)] == ["g0", "g1", "g2"]
        assert groups.state.clusters == {}


def test_under_shepherd_only_model_and_class_count() -> None:
    groups = MadeGroups(QueueOptions(policy="shepherd"))
    assert [groups.add(f"r{number}", tenant=f"t{number}").group for number in range(33)] == ["g0"] * 32 + ["g1"]
    assert groups.add("other", slo=LATER).group == "g2"
    assert groups.state.groups["g0"].tenant == ""


# --- how many -------------------------------------------------------------------------------------------------------


def test_a_full_group_is_followed_by_the_next() -> None:
    groups = MadeGroups()
    assert [groups.add(f"r{number}").group for number in range(5)] == ["g0", "g0", "g1", "g1", "g2"]


def test_a_group_takes_delta_batches_of_what_there_is() -> None:
    """With all requests shared by two nodes, 1.5 batches are three quarters of all that there are."""
    groups = MadeGroups(QueueOptions(delta=1.5))
    nodes = [NodeState(node=name, model="a", max_num_seqs=64) for name in ("n0", "n1")]
    groups.learn_nodes(nodes)
    sizes = Counter(groups.add(f"r{number}").group for number in range(40))
    assert sizes == {"g0": 6, "g1": 15, "g2": 19}, "closed at 6 of 8 or fewer, at 15 of 21, and open at 19 of 40"


def test_a_group_counts_those_who_have_left() -> None:
    """Else a steady trickle would keep one group for ever, and its stream with it."""
    groups = MadeGroups()
    first = groups.add("r0")
    groups.add("r1")
    groups.finish(first)
    assert groups.add("r2").group == "g1"


def test_who_waits_does_not_join_those_who_run_for_they_bind_a_group_to_its_node() -> None:
    groups = MadeGroups(LARGE)
    first = groups.add("r0")
    assert groups.add("r1").group == first.group
    groups.pull(first, "n0", 5.0)
    assert groups.add("r2").group != first.group
    assert groups.open_groups.joining(groups.group_of(first), 1e6, 6.0) == NO_INFLUX


def test_a_group_that_waits_takes_newcomers_for_a_short_while() -> None:
    groups = MadeGroups(LARGE)
    times_s = (1.0, 2.0, 1.0 + OPEN_S, 1.5 + OPEN_S, 2.0 + OPEN_S)
    joined = [groups.add(f"r{number}", arrival_s=at_s).group for number, at_s in enumerate(times_s)]
    assert joined == ["g0", "g0", "g0", "g1", "g1"], "from when the first came"
    assert groups.open_groups.joining(groups.state.groups["g0"], 1e6, 1.0 + OPEN_S) == NO_INFLUX


def test_those_who_begin_at_once_share_a_group_however_old_it_is() -> None:
    groups = MadeGroups(LARGE)
    groups.group_of(groups.add("r0", seat="n0")).node = "n0"
    assert groups.add("r1", seat="n0", arrival_s=10 * OPEN_S).group == "g0"


@pytest.mark.parametrize("policy", ["edf", "fcfs", "shepherd"])
def test_groups_of_the_others_stay_open_until_they_are_full(policy: str) -> None:
    groups = MadeGroups(QueueOptions.model_validate({"policy": policy}))
    groups.pull(groups.add("r0"), "n0", 5.0)
    assert (groups.add("r1").group == "g0") == (policy == "shepherd")


def test_a_batch_of_shepherd_fills_up_however_long_it_takes() -> None:
    groups = MadeGroups(QueueOptions.model_validate({"policy": "shepherd"}))
    groups.add("r0", arrival_s=1.0)
    assert groups.add("r1", arrival_s=100 * OPEN_S).group == "g0"


def test_a_group_that_was_closed_is_not_joined_again() -> None:
    groups = MadeGroups()
    groups.finish(groups.add("r0"))
    assert groups.add("r1").group == "g1"
    assert list(groups.state.open_groups.values()) == ["g1"]


def test_closing_an_older_group_leaves_the_newest_open() -> None:
    groups = MadeGroups()
    first, second = groups.add("r0"), groups.add("r1")
    groups.add("r2")
    groups.finish(first)
    groups.finish(second)
    assert groups.add("r3").group == "g1"


def test_a_group_with_members_cannot_be_closed() -> None:
    groups = MadeGroups()
    request = groups.add("r0")
    with pytest.raises(AssertionError, match="members"):
        groups.close(groups.group_of(request))


# --- when it is due -------------------------------------------------------------------------------------------------


def test_a_group_is_due_with_its_first_waiting_member() -> None:
    groups = MadeGroups()
    first = groups.add("r0", arrival_s=10.0)
    groups.add("r1", arrival_s=15.0)
    group = groups.group_of(first)
    assert group.start_by_s == 30.0
    groups.pull(first, "n0", 16.0)
    assert (group.start_by_s, group.num_waiting, group.num_running) == (35.0, 1, 1)


def test_a_group_in_which_nobody_waits_is_due_with_the_first_that_runs() -> None:
    groups = MadeGroups()
    requests = [groups.add("r0", arrival_s=10.0), groups.add("r1", arrival_s=15.0)]
    for request in requests:
        groups.pull(request, "n0", 16.0)
    assert groups.group_of(requests[0]).start_by_s == 30.0


def test_who_is_due_earlier_than_those_before_counts() -> None:
    """Due at 64, 50, 60, 45 (promises of one magnitude), and each is pulled in the order of arrival."""
    groups = MadeGroups(LARGE)
    requests = [groups.add(f"r{s}", slo=Slo("custom", deadline_s=s)) for s in (64.0, 50.0, 60.0, 45.0)]
    group = groups.group_of(requests[0])
    due = []
    for request in requests:
        due.append(group.start_by_s)
        groups.pull(request, "n0", 1.0)
    assert due == [45.0, 45.0, 45.0, 45.0]
    groups.finish(requests[0])
    assert group.start_by_s == 50.0


def test_a_hurried_member_that_leaves_is_due_no_more() -> None:
    groups = MadeGroups(LARGE)
    requests = [groups.add(f"r{s}", slo=Slo("custom", deadline_s=s)) for s in (64.0, 45.0, 50.0, 60.0)]
    group = groups.group_of(requests[0])
    groups.finish(requests[1])
    assert group.start_by_s == 50.0
    groups.pull(requests[0], "n0", 1.0)
    groups.finish(requests[2])
    assert group.start_by_s == 60.0


def test_a_request_without_a_promise_is_due_within_a_day() -> None:
    groups = MadeGroups()
    assert groups.group_of(groups.add("r0", slo=Slo("none"), arrival_s=5.0)).start_by_s == 5.0 + UNBOUNDED_S


def test_the_first_token_is_due_before_the_last() -> None:
    groups = MadeGroups()
    assert groups.group_of(groups.add("r0", slo=Slo("both", ttft_s=2.0, deadline_s=20.0))).start_by_s == 2.0


# --- tenants --------------------------------------------------------------------------------------------------------


def test_a_tenant_that_floods_stands_behind_the_others() -> None:
    """Groups of two requests of 8 + 70 tokens; the first has begun when the other tenant comes."""
    groups = MadeGroups()
    flood = [groups.add(f"r{number}", tenant="flood") for number in range(6)]
    groups.pull(flood[0], "n0", 1.0)
    late = groups.add("late", tenant="late")
    ranks = {gid: group.rank for gid, group in groups.state.groups.items()}
    assert ranks == {"g0": 0.0, "g1": 156.0, "g2": 312.0, late.group: 0.0}


# --- those who come back --------------------------------------------------------------------------------------------


def test_evicted_members_share_a_group_with_the_rank_of_their_own() -> None:
    groups = MadeGroups(LARGE)
    requests = [groups.add(f"r{number}", arrival_s=number) for number in range(4)]
    for request in requests[:3]:
        groups.pull(request, "n0", 5.0)
    back = [groups.evict(request) for request in requests[1:3]]
    assert back[0] is back[1]
    resumed = back[0]
    assert (resumed.gid, resumed.kv_at, resumed.rank, resumed.root) == ("g1", "n0", 0.0, "g0")
    assert list(resumed.waiting) == ["r1", "r2"]
    assert resumed.start_by_s == 21.0
    assert groups.add("new", arrival_s=6.0).group == "g2", "newcomers stay out"


def test_they_share_it_in_whatever_order_they_come_back() -> None:
    """Nodes evict the newest first, one by one: a group each would make of one batch as many groups as requests."""
    groups = MadeGroups(LARGE)
    requests = [groups.add(f"r{number}", arrival_s=number) for number in range(3)]
    for request in requests:
        groups.pull(request, "n0", 5.0)
    assert [groups.evict(request).gid for request in (requests[2], requests[0], requests[1])] == ["g1", "g1", "g1"]
    resumed = groups.state.groups["g1"]
    assert list(resumed.waiting) == ["r2", "r0", "r1"]
    assert resumed.start_by_s == 20.0, "due when its first member is, wherever that stands"
    groups.pull(requests[2], "n0", 6.0)
    assert groups.state.groups["g1"].start_by_s == 20.0


def test_each_place_of_kv_has_its_group() -> None:
    groups = MadeGroups(LARGE)
    requests = [groups.add(f"r{number}", arrival_s=number) for number in range(3)]
    for request in requests:
        groups.pull(request, "n0", 5.0)
    assert [groups.evict(requests[0]).gid, groups.evict(requests[1], HANDED_OVER).gid] == ["g1", "g2"]


def test_evicted_again_they_are_still_of_the_group_that_they_joined_first() -> None:
    groups = MadeGroups(LARGE)
    requests = [groups.add(f"r{number}", arrival_s=number) for number in range(3)]
    for request in requests:
        groups.pull(request, "n0", 5.0)
    for request in requests[:2]:
        groups.evict(request)
    groups.pull(requests[0], "n0", 6.0)
    assert requests[0].kv_tokens == 0, "it is in use again"
    assert groups.evict(requests[2]).gid == "g1"
    again = groups.evict(requests[0])
    assert (again.gid, again.root, list(again.waiting)) == ("g1", "g0", ["r1", "r2", "r0"])


def test_parked_members_move_to_another_group_when_their_kv_is_handed_over() -> None:
    groups = MadeGroups(LARGE)
    request = groups.add("r0")
    groups.pull(request, "n0", 5.0)
    parked = groups.evict(request)
    moved = groups.evict(request, HANDED_OVER)
    assert parked.gid not in groups.state.groups
    assert (moved.kv_at, moved.root, list(moved.waiting)) == (HANDED_OVER, "g0", ["r0"])


def test_who_was_lost_by_a_node_does_not_queue_up_again() -> None:
    groups = MadeGroups()
    requests = [groups.add(f"r{number}") for number in range(6)]
    groups.pull(requests[0], "n0", 1.0)
    groups.take_out(requests[0])
    requests[0].attempt = 1
    again = groups.join(requests[0], 2.0)
    assert (again.gid, again.rank) == ("g3", 0.0)
    assert groups.state.groups["g2"].rank == 312.0
    assert groups.state.lines[RequestKind("a", "interactive")].finish_tags == {"default": 6 * 78.0}, "charged once"
    assert groups.add("new").group != again.gid, "newcomers stay out"
    assert groups.add("new").group != again.gid, "newcomers stay out"


# --- what comes --------------------------------------------------------------------------------------------------


def test_a_typical_request_is_the_mean_of_all_that_come_for_a_model() -> None:
    groups = MadeGroups(LARGE)
    for number in range(3):
        groups.add(f"r{number}", prompt_tokens=8, max_tokens=10)
    groups.add("long", slo=LATER, prompt_tokens=24, max_tokens=14)
    groups.add("other", model="b", prompt_tokens=999)
    shape = groups.typical("a", 0.0)
    assert shape is not None
    assert (shape.mean_prompt_tokens, shape.mean_output_tokens) == (12.0, 11.0)
    assert groups.typical("c", 0.0) is None


# --- from when a request draws tokens ---------------------------------------------------------------------------------


def test_a_pace_is_learnt_from_when_a_request_begins() -> None:
    groups = MadeGroups(LARGE)
    request = groups.add("r0")
    groups.pull(request, "n0", 1.0, begins_s=3.0)
    groups.learn_answer(request, 40, 5.0, is_cut=False)
    assert groups.state.paces[WeightsAt("a", "n0")] == TokenRate(tokens=40, seconds=2.0)


def test_what_a_node_has_drawn_of_those_who_leave_it_is_counted() -> None:
    """One ends with 40 tokens; another is evicted with 9, of which it brought 4 along."""
    groups = MadeGroups(LARGE)
    ends, leaves = groups.add("r0"), groups.add("r1")
    leaves.done_tokens = 4
    for request in (ends, leaves):
        groups.pull(request, "n0", 1.0)
    groups.state.running["a"].balances = {"n0": 0.0}
    groups.learn_answer(ends, 40, 5.0, is_cut=False)
    groups.learn_drawn(leaves, 9)
    assert groups.state.running["a"].balances == {"n0": 45.0}


def test_a_request_begins_when_it_is_pulled_if_nobody_knows_better_and_no_more_when_it_has_left() -> None:
    groups = MadeGroups(LARGE)
    early, late = groups.add("r0"), groups.add("r1")
    group = groups.group_of(early)
    groups.pull(early, "n0", 1.0)
    groups.pull(late, "n0", 1.0, begins_s=2.5)
    assert (early.begins_s, late.begins_s, group.running_totals.begins_ms) == (1.0, 2.5, 3500)
    groups.evict(late)
    assert (late.begins_s, group.running_totals.begins_ms) == (0.0, 1000)


def test_a_snapshot_of_an_earlier_version_tells_when_its_requests_were_pulled() -> None:
    earlier = msgspec.msgpack.encode({"prompt_tokens": 8, "pulled_ms": 3500})
    assert msgspec.msgpack.decode(earlier, type=Totals) == Totals(prompt_tokens=8, begins_ms=3500)


# --- all of it ------------------------------------------------------------------------------------------------------


class Life(RuleBasedStateMachine):
    """Any events in any order: sums, due times and fairness agree with a walk over everything."""

    alive = Bundle("alive")

    def __init__(self) -> None:
        super().__init__()
        self.groups = MadeGroups()
        self.now = 0.0
        self.num_requests = 0

    @rule(
        target=alive,
        model=st.sampled_from(["a", "b"]),
        slo=st.sampled_from([SOON, LATER, Slo("custom", deadline_s=40.0), Slo("custom", deadline_s=60.0)]),
        tenant=st.sampled_from(["t", "u"]),
        prompt_tokens=st.integers(1, 10_000),
        max_tokens=st.integers(1, 3000),
    )
    def submit(self, model: str, slo: Slo, tenant: str, prompt_tokens: int, max_tokens: int) -> Request:
        self.now += 1.0
        self.num_requests += 1
        name = f"r{self.num_requests}"
        return self.groups.add(name, model, slo, tenant, prompt_tokens, max_tokens, arrival_s=self.now)

    @rule(request=alive)
    def pull(self, request: Request) -> None:
        if not request.node:
            self.groups.pull(request, "n0", self.now, begins_s=self.now + request.prompt_tokens / 1000)

    @rule(request=alive, kv_at=st.sampled_from(["n0", HANDED_OVER]))
    def evict(self, request: Request, kv_at: str) -> None:
        if request.node and request.max_tokens > 4:  # of which it has drawn four
            self.groups.evict(request, kv_at)

    @rule(request=alive)
    def lose(self, request: Request) -> None:
        self.groups.take_out(request)
        request.attempt += 1
        self.groups.join(request, self.now)

    @rule(request=consumes(alive), output_tokens=st.integers(0, 2000), is_cut=st.booleans())
    def finish(self, request: Request, output_tokens: int, is_cut: bool) -> None:
        self.now += 0.5
        if request.node:
            self.groups.learn_answer(request, output_tokens, self.now, is_cut=is_cut)
        self.groups.finish(request)

    @invariant()
    def books_agree(self) -> None:
        state = self.groups.state
        invariants.check(state)
        assert set(state.open_groups.values()) <= state.groups.keys()
        lines = Counter(group.kind for group in state.groups.values())
        assert {name: line.num_groups for name, line in state.lines.items()} == lines
        for group in state.groups.values():
            load = self.groups.load(group, self.now)
            assert load.num_waiting + load.num_running == load.num_requests
            assert 0 <= load.mean_output_tokens <= max(1.0, load.max_tokens) * (1 + ROUNDING)
            assert load.running_output_tokens >= load.num_running * (1 - 1e-9)

    @invariant()
    def state_survives_a_snapshot(self) -> None:
        state = self.groups.state
        assert msgspec.msgpack.decode(msgspec.msgpack.encode(state), type=State) == state


Life.TestCase.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
TestLife = Life.TestCase
