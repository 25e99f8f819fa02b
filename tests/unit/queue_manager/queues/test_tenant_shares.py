"""Places of a node's batch, shared by tenants: who goes first, who is held back, and that nobody alone is."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from services.queue_manager.core import QueueManagerCore
from services.queue_manager.groups.groups import RequestGroups
from services.queue_manager.queues.tenant_shares import ACTIVE_S, SHORT_QUEUE, STALE_S, TenantShares, in_turn, is_below
from services.queue_manager.state.node import Node
from services.queue_manager.state.node_counts import counted_shares
from services.queue_manager.state.state import State
from services.queue_manager.telling.giving_way import yielding
from services.queue_manager.telling.window import window
from services.queue_manager.waits.refusals import Refusals
from shared.config.config import ClusterConfig
from shared.config.services.clients import SloClass
from shared.config.services.queue import QueueOptions, TenantSpec
from shared.messages.nodes.nodes import NodeState, NodeUp
from shared.messages.nodes.step_cost import ModelRate, StepCost
from shared.messages.requests.requests import Attempt, GroupRef, Pulled, Submit
from shared.messages.requests.slo import Slo
from tests.unit.queue_manager.books import make_group, make_state, place

TENANTS = {"gold": TenantSpec(weight=3)}
PLACES = 16


def look(state: State, now: float = 0.0, typical_tokens: int = 16) -> Node:
    """The node, after a look. Prompts of 16 tokens have come, four of which a step computes."""
    node = state.nodes["n0"]
    node.known = NodeState(node="n0", model="a", max_num_seqs=PLACES, step_tokens=64)
    groups = RequestGroups(state, QueueOptions(), TENANTS)
    if not state.flows:
        request = next(iter(state.requests.values()))
        request.prompt_tokens = typical_tokens
        for _ in range(4):
            groups._arrivals.observe(request, now)
    TenantShares(state, groups, TENANTS).look(node, now)
    return node


def fill(*tenants: tuple[str, int, int], kind: str = "interactive") -> State:
    """One group a tenant: (whose, waiting, running)."""
    state = make_state(n0="a")
    for tenant, waiting, running in tenants:
        make_group(state, tenant, waiting=waiting, running=running, tenant=tenant, kind=kind)
        place(state, "n0", tenant)
    return state


def told(state: State) -> list[GroupRef]:
    return window(state, state.nodes["n0"])


def test_of_a_long_queue_what_was_found_holds_for_a_while() -> None:
    """A tenant below its share stands behind more groups than are looked at each time."""
    state = fill(*((f"flood{number}", 1, 0) for number in range(SHORT_QUEUE)), ("flood", 0, 12), ("late", 2, 0))
    for group in state.groups.values():
        group.tenant = group.tenant.rstrip("0123456789")
    node = state.nodes["n0"]
    node.shares = counted_shares(state, node)
    assert look(state).favoured == ["late"]
    make_group(state, "later", waiting=1, tenant="late", kind="interactive")
    place(state, "n0", "later")
    node.shares = counted_shares(state, node)
    assert look(state, now=0.9 * STALE_S).favoured == ["late"]
    assert look(state, now=STALE_S).favoured == ["late", "later"]
    state.groups["late"].waiting.clear()
    assert look(state, now=1.1 * STALE_S).favoured == ["later"], "nobody waits in the other any more"


def test_a_tenant_that_is_alone_is_not_held_back() -> None:
    state = fill(("flood", 5, 10))
    node = look(state)
    assert (node.favoured, node.held_back, node.beside, node.max_unread) == ([], [], None, None)
    assert told(state) == [GroupRef("flood", "a", 5)]


def test_whoever_has_fewer_places_goes_first_and_the_other_leaves_room() -> None:
    state = fill(("flood", 5, 10), ("modest", 2, 1))
    node = look(state)
    # of 11 places that are taken half is each one's; 16 less one that is left free, of which the flood may have 8
    assert (node.favoured, node.held_back, node.beside, node.max_unread) == (["modest"], ["flood"], 8, 4)
    assert told(state) == [GroupRef("modest", "a", 2, None, 8), GroupRef("flood", "a", 5, 8, 2)], (
        "half of the four that one step reads"
    )


def test_places_are_shared_by_weight() -> None:
    state = fill(("gold", 3, 8), ("plain", 3, 3))
    node = look(state)
    # of 11 places 8.25 are gold's and 2.75 the other's
    assert (node.favoured, node.held_back) == (["gold"], ["plain"])
    state = fill(("gold", 3, 9), ("plain", 3, 3))
    node = look(state)
    assert (node.favoured, node.held_back, node.beside) == ([], ["gold", "plain"], 15), "each has just its share"


def test_who_is_held_back_keeps_the_pace_of_the_batch_though_late() -> None:
    state = fill(("flood", 5, 10), ("modest", 0, 1))
    state.nodes["n0"].max_running = 6  # `Headroom` has found that more would be too slow for those who run
    assert look(state).beside == 4, "half of the six, and the one that is not its own"
    assert told(state) == [GroupRef("flood", "a", 5, 4, 2)]


def test_whatever_was_promised_and_wherever_it_stands() -> None:
    state = make_state(n0="a")
    for number in range(40):
        make_group(state, f"f{number}", running=number == 0, tenant="flood", due_s=1.0)
        place(state, "n0", f"f{number}")
    make_group(state, "m0", tenant="modest", kind="batch", due_s=3600.0)
    make_group(state, "m1", tenant="modest", kind="batch", due_s=1800.0)
    place(state, "n0", "m0", "m1")
    assert look(state).favoured == ["m1", "m0"], "due first first"
    assert [ref.group for ref in told(state)][:3] == ["m1", "m0", "f0"]


def test_nobody_gives_way_to_a_flood_however_urgent() -> None:
    state = make_state(n0="a")
    make_group(state, "flood", waiting=5, running=10, tenant="flood", due_s=1.0)
    make_group(state, "modest", waiting=0, running=2, tenant="modest", kind="batch", due_s=3600.0)
    place(state, "n0", "flood", "modest")
    state.nodes["n0"].yielding = ["modest"]
    node = look(state)
    assert yielding(state, node, told(state)) == []


def test_another_model_is_not_loaded_for_it() -> None:
    state = fill(("flood", 5, 10))
    make_group(state, "m", tenant="modest", model="b")
    place(state, "n0", "m")
    assert look(state).favoured == []
    assert [ref.group for ref in told(state)] == ["flood", "m"]


def test_places_are_left_for_one_that_was_here_of_late() -> None:
    state = fill(("flood", 5, 10), ("modest", 0, 1))
    look(state, now=0.0)
    share = state.nodes["n0"].shares["modest"]
    share.num_members = share.num_running = 0
    assert look(state, now=ACTIVE_S).held_back == ["flood"]
    assert look(state, now=ACTIVE_S + 0.1).held_back == []
    assert list(state.nodes["n0"].shares) == ["flood"], "and so no more tenants are remembered than there are"


def test_a_newcomer_s_turn() -> None:
    state = fill(("flood", 5, 10), ("modest", 2, 1))
    node = look(state)
    groups = [state.groups["flood"], state.groups["modest"]]
    assert [is_below(node, tenant, "a") for tenant in ("flood", "modest", "new")] == [False, True, True]
    assert not is_below(node, "modest", "b")
    order, num_first = in_turn(node, groups, "modest")
    assert ([group.gid for group in order], num_first) == (["modest", "flood"], 1)


def test_the_first_of_another_tenant_stands_before_all_that_wait() -> None:
    state = fill(("flood", 5, 10))
    node = look(state)
    assert is_below(node, "new", "a")
    assert not is_below(node, "flood", "a")
    assert in_turn(node, [state.groups["flood"]], "new") == ([state.groups["flood"]], 0)


@given(
    counts=st.lists(
        st.tuples(st.sampled_from(["gold", "a", "b", "c"]), st.integers(0, 4), st.integers(0, 9)),
        min_size=2,
        max_size=4,
        unique_by=lambda one: one[0],
    ).filter(lambda counts: all(waiting + running for _, waiting, running in counts))
)
def test_whoever_is_below_a_share_may_begin_wherever_there_is_a_place(counts: list[tuple[str, int, int]]) -> None:
    state = fill(*counts)
    node = look(state)
    weights = {tenant: TENANTS.get(tenant, TenantSpec()).weight for tenant, _, _ in counts}
    num_running = sum(running for _, _, running in counts)
    below = {tenant for tenant, _, running in counts if running * sum(weights.values()) < weights[tenant] * num_running}
    refs = {ref.group: ref for ref in told(state)}
    order = [ref.group for ref in told(state)]
    for tenant, waiting, _ in counts:
        if waiting and tenant in below:
            assert refs[tenant].max_running is None
        elif waiting:
            assert 1 <= (refs[tenant].max_running or 0) < PLACES
    first = [tenant in below for tenant in order]
    assert first == sorted(first, reverse=True)
    assert node.held_back, "somebody has a share or more"


# --- admission --------------------------------------------------------------------------------------------------------

STRICT = Slo("strict", ttft_s=60.0)
CONFIG = ClusterConfig(slo_classes=ClusterConfig().slo_classes | {"strict": SloClass(ttft_s=60, late="refuse")})


def submit(name: str, tenant: str, slo: Slo) -> Submit:
    return Submit(request_id=name, gateway="gw", model="a", slo=slo, prompt_tokens=1, max_tokens=10, tenant=tenant)


def test_a_tenant_is_not_refused_for_the_queue_of_another() -> None:
    core = QueueManagerCore(CONFIG)
    rates = [ModelRate("a", StepCost(1.0, 0.0, 0.0), 1000, 16, 0.0)]
    core.handle(NodeUp(epoch="1", known=NodeState("n0", "a", max_num_seqs=1, rates=rates)), 0.0)
    core.handle(submit("f", "flood", Slo("other", ttft_s=5.0)), 0.0)
    (gid,) = core.state.groups
    core.handle(Pulled(node="n0", epoch="1", group=gid, requests=[Attempt("f", 0)]), 0.0)
    for number in range(40):  # of a kind that is due earlier: ten tokens each, a token a second
        core.handle(submit(f"f{number}", "flood", Slo("other", ttft_s=5.0)), 0.0)
    admission = Refusals(CONFIG.slo_classes, core.predictions)
    refused = admission.refusal(submit("f!", "flood", STRICT), 0.0)
    assert refused is not None
    assert refused.wait_s > 300.0
    assert admission.refusal(submit("m", "modest", STRICT), 0.0) is None
    core.handle(submit("m", "modest", STRICT), 0.0)
    prospect = core.predictions.of_newcomer(submit("m2", "modest", STRICT), 0.0)
    assert prospect is not None
    assert prospect.first_token.mean_s < 30.0, "behind what runs and its own"
