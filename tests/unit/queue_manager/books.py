"""State of a queue manager for tests, group by group."""

from __future__ import annotations

from services.queue_manager.groups.groups import RequestGroups
from services.queue_manager.queues.virtual_queues import VirtualQueues
from services.queue_manager.state.group import Group
from services.queue_manager.state.node import Node
from services.queue_manager.state.node_counts import note_members, note_place
from services.queue_manager.state.request import Request
from services.queue_manager.state.state import State
from services.queue_manager.state.totals import Totals
from shared.config.services.queue import QueueOptions
from shared.messages.nodes.nodes import NodeState
from shared.messages.requests.slo import Slo

OPTIONS = QueueOptions()


def make_state(**models: str) -> State:
    """Nodes by name, with the model that each holds."""
    return State(nodes={name: make_node(name, model) for name, model in models.items()})


def make_node(name: str, model: str) -> Node:
    return Node(node=name, epoch="1", known=NodeState(node=name, model=model))


def make_queues(state: State, options: QueueOptions = OPTIONS) -> VirtualQueues:
    return VirtualQueues(state, RequestGroups(state, options, {}), options)


def make_group(
    state: State,
    gid: str,
    *,
    waiting: int = 1,
    running: int = 0,
    model: str = "a",
    kind: str = "interactive",
    due_s: float = 20.0,
    rank: float = 0.0,
    kv_at: str = "",
    tenant: str = "default",
) -> Group:
    """A group with members, in no queue; those that run do so at ``n0``."""
    members = [
        Request(
            request_id=f"{gid}.{number}",
            gateway="gw",
            model=model,
            slo=Slo(kind, deadline_s=due_s),
            tenant=tenant,
            prompt_tokens=8,
            max_tokens=10,
            arrival_s=0.0,
            attempt=0,
            group=gid,
            node="n0" if number >= waiting else "",
            kv_tokens=12 if kv_at and number < waiting else 0,
        )
        for number in range(waiting + running)
    ]
    state.requests.update({member.request_id: member for member in members})
    group = Group(
        gid=gid,
        model=model,
        slo_kind=kind,
        tenant=tenant,
        rank=rank,
        kv_at=kv_at,
        waiting={member.request_id: None for member in members[:waiting]},
        running={member.request_id: None for member in members[waiting:]},
        waiting_totals=Totals.of(members[:waiting]),
        running_totals=Totals.of(members[waiting:]),
        start_by_s=due_s,
        last_due_s=due_s,
        num_joined=len(members),
    )
    state.groups[gid] = group
    return group


def place(state: State, name: str, *gids: str) -> None:
    """Put groups at the tail of a queue, in this order."""
    for gid in gids:
        state.groups[gid].node = name
        state.nodes[name].queue.append(gid)
        group = state.groups[gid]
        group.promise = state.requests[next(iter(group.waiting or group.running))].slo
        note_place(state.nodes[name], group, 1)
        note_members(state, state.groups[gid], state.groups[gid].num_members, state.groups[gid].num_running)


def orders(state: State) -> dict[str, list[str]]:
    """The queues, after a look whether groups agree with them."""
    places = {gid: group.node for gid, group in state.groups.items() if group.node}
    assert places == {gid: node.node for node in state.nodes.values() for gid in node.queue}
    return {name: node.queue for name, node in state.nodes.items()}
