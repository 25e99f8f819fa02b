"""Virtual queues: where a new group goes, how a plan is taken over, what a node is told."""

from __future__ import annotations

from services.queue_manager.state import Group, Node, Request, State
from services.queue_manager.virtual_queues import WINDOW_GROUPS, VirtualQueues
from shared.messages import GroupRef
from shared.slo import Slo


def make_state(**models: str) -> State:
    """Nodes by name, with the model that each holds."""
    return State(nodes={name: Node(node=name, epoch="1", model=model) for name, model in models.items()})


def make_group(state: State, gid: str, *, waiting: int = 1, running: int = 0, model: str = "a") -> Group:
    group = Group(gid=gid, model=model, slo_kind="interactive")
    for number in range(waiting + running):
        name = f"{gid}.{number}"
        (group.waiting if number < waiting else group.running)[name] = None
        state.requests[name] = Request(
            request_id=name,
            gateway="gw",
            model=model,
            slo=Slo("interactive"),
            tenant="default",
            prompt_tokens=8,
            max_tokens=10,
            arrival_s=0.0,
            attempt=0,
            group=gid,
            node="" if number < waiting else "n0",
        )
    state.groups[gid] = group
    return group


def place(state: State, name: str, *gids: str) -> None:
    for gid in gids:
        state.groups[gid].node = name
        state.nodes[name].queue.append(gid)


def queues(state: State) -> dict[str, list[str]]:
    places = {gid: group.node for gid, group in state.groups.items() if group.node}
    assert places == {gid: node.node for node in state.nodes.values() for gid in node.queue}
    return {name: node.queue for name, node in state.nodes.items()}


# --- append ---------------------------------------------------------------------------------------------------------


def test_a_group_goes_to_the_tail_of_a_node_that_holds_its_model() -> None:
    state = make_state(n0="b", n1="a")
    for gid in ("g0", "g1"):
        assert VirtualQueues(state).append(make_group(state, gid)) is state.nodes["n1"]
    assert queues(state) == {"n0": [], "n1": ["g0", "g1"]}


def test_of_several_nodes_the_one_with_the_fewest_requests_takes_it_then_the_first_by_name() -> None:
    state = make_state(n1="a", n0="a")
    for gid, num_waiting in (("g0", 3), ("g1", 1), ("g2", 1), ("g3", 1), ("g4", 1)):
        VirtualQueues(state).append(make_group(state, gid, waiting=num_waiting))
    assert queues(state) == {"n0": ["g0", "g4"], "n1": ["g1", "g2", "g3"]}


def test_a_group_whose_model_nobody_holds_has_no_place() -> None:
    state = make_state(n0="b")
    group = make_group(state, "g0")
    assert VirtualQueues(state).append(group) is None
    assert VirtualQueues(state).unplaced() == [group]


def test_a_group_without_a_place_is_removed_from_nowhere() -> None:
    state = make_state(n0="a")
    group = make_group(state, "g0")
    assert VirtualQueues(state).remove(group) is None
    place(state, "n0", "g0")
    assert VirtualQueues(state).remove(group) is state.nodes["n0"]
    assert queues(state) == {"n0": []}


# --- apply ----------------------------------------------------------------------------------------------------------


def test_a_plan_orders_and_moves_groups() -> None:
    state = make_state(n0="a", n1="b")
    for gid in ("g0", "g1", "g2", "g3"):
        make_group(state, gid)
    place(state, "n0", "g0", "g1")
    place(state, "n1", "g2")
    VirtualQueues(state).apply({"n0": ["g2", "g1"], "n1": ["g3", "g0"]})
    assert queues(state) == {"n0": ["g2", "g1"], "n1": ["g3", "g0"]}


def test_groups_and_nodes_that_are_gone_are_left_out() -> None:
    state = make_state(n0="a")
    make_group(state, "g1")
    VirtualQueues(state).apply({"n0": ["gone", "g1"], "n9": ["gone"]})
    assert queues(state) == {"n0": ["g1"]}


def test_a_group_that_was_to_move_to_a_node_that_is_gone_stays() -> None:
    state = make_state(n0="a")
    make_group(state, "g0")
    place(state, "n0", "g0")
    VirtualQueues(state).apply({"n0": [], "n9": ["g0"]})
    assert queues(state) == {"n0": ["g0"]}


def test_a_group_that_the_plan_does_not_know_keeps_its_place_behind_the_planned_ones() -> None:
    state = make_state(n0="a")
    for gid in ("new0", "g0", "new1", "g1"):
        make_group(state, gid)
    place(state, "n0", "new0", "g0", "new1", "g1")
    VirtualQueues(state).apply({"n0": ["g1", "g0"]})
    assert queues(state) == {"n0": ["g1", "g0", "new0", "new1"]}


def test_a_group_that_has_started_meanwhile_stays_at_its_node() -> None:
    state = make_state(n0="a", n1="a")
    make_group(state, "g0", running=1)
    make_group(state, "g1")
    place(state, "n0", "g0", "g1")
    VirtualQueues(state).apply({"n0": ["g1"], "n1": ["g0"]})
    assert queues(state) == {"n0": ["g1", "g0"], "n1": []}


def test_a_started_group_without_a_place_takes_the_plans() -> None:
    """One of its members runs at a node that has lost its place in a plan; the rest needs a node all the same."""
    state = make_state(n0="a", n1="a")
    make_group(state, "g0", running=1)
    VirtualQueues(state).apply({"n1": ["g0"]})
    assert queues(state) == {"n0": [], "n1": ["g0"]}


def test_a_node_that_the_plan_does_not_name_keeps_its_queue() -> None:
    state = make_state(n0="a", n1="a")
    make_group(state, "g0")
    make_group(state, "g1")
    place(state, "n0", "g0", "g1")
    VirtualQueues(state).apply({"n1": ["g0"]})
    assert queues(state) == {"n0": ["g1"], "n1": ["g0"]}


# --- window ---------------------------------------------------------------------------------------------------------


def test_a_node_sees_the_groups_in_which_somebody_waits() -> None:
    state = make_state(n0="a")
    make_group(state, "g0", waiting=0, running=2)
    make_group(state, "g1", waiting=2, running=1)
    make_group(state, "g2", waiting=1, model="b")
    place(state, "n0", "g0", "g1", "g2")
    assert VirtualQueues(state).window(state.nodes["n0"]) == [GroupRef("g1", "a", 2), GroupRef("g2", "b", 1)]


def test_a_node_sees_only_the_head_of_a_long_queue() -> None:
    state = make_state(n0="a")
    for number in range(WINDOW_GROUPS + 2):
        make_group(state, f"g{number}")
        place(state, "n0", f"g{number}")
    window = VirtualQueues(state).window(state.nodes["n0"])
    assert [ref.group for ref in window] == [f"g{number}" for number in range(WINDOW_GROUPS)]
