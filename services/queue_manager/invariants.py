"""What holds for the queue manager's state after every message. Tests call it; it costs a walk over everything."""

from __future__ import annotations

from services.queue_manager.state.node_counts import counted_members, counted_promised, counted_running, summed_promises
from services.queue_manager.state.state import State
from services.queue_manager.state.totals import Totals
from services.queue_manager.telling.giving_way import yielding
from services.queue_manager.telling.window import hopeless, window

ROUNDING = 1e-9


def check(state: State) -> None:
    """Assert that requests, groups and virtual queues agree."""
    for name, request in state.requests.items():
        assert name == request.request_id
        if request.group:
            group = state.groups[request.group]
            assert name in (group.running if request.node else group.waiting), f"{name} is not in its group"
        assert request.group or not request.node, f"{name} runs but is in no group"
    for gid, group in state.groups.items():
        assert group.num_members, f"{gid} is empty"
        waiting = [state.requests[member] for member in group.waiting]
        running = [state.requests[member] for member in group.running]
        members = waiting + running
        assert all(member.group == gid and member.model == group.model for member in members)
        assert not any(member.node for member in waiting), f"{gid}: a member runs and waits"
        assert not any(member.begins_s for member in waiting), f"{gid}: a member has begun and waits"
        assert all(member.node for member in running), f"{gid}: a member waits and runs"
        assert group.waiting_totals == Totals.of(waiting), f"{gid} counts waiting members wrongly"
        assert group.running_totals == Totals.of(running), f"{gid} counts running members wrongly"
        due_s = min(member.start_by_s for member in waiting or running[:1])
        assert group.start_by_s == due_s, f"{gid} is due at {due_s}, says {group.start_by_s}"
        assert all(bool(member.kv_tokens) == bool(group.kv_at) for member in waiting), f"{gid}: KV that is not there"
        places = [node.node for node in state.nodes.values() if gid in node.queue]
        assert places == ([group.node] if group.node else []), f"{gid} stands in {places}, says {group.node!r}"
        assert not (group.waiting and group.kv_at in state.nodes) or group.node == group.kv_at, f"{gid} left its KV"
    assert state.num_placed == sum(bool(group.node) for group in state.groups.values()), "groups that have a place"
    assert state.waiting_at.keys() == {node.node for node in state.nodes.values() if node.told}, (
        "nodes that were told of some"
    )
    for node in state.nodes.values():
        assert len(node.queue) == len(set(node.queue)), f"{node.node} has a group twice"
        assert all(gid in state.groups for gid in node.queue), f"{node.node} has a group that is gone"
        head = [(ref.group, ref.num_waiting, ref.max_running) for ref in window(state, node)]
        assert node.told == head, f"{node.node} believes {node.told}, it is {head}: the next bell may not ring"
        assert node.told_yielding == yielding(state, node, window(state, node)), f"{node.node}: groups that give way"
        assert node.told_hopeless == hopeless(state, node, window(state, node)), f"{node.node}: what no node can load"
        assert node.told_awaits == node.awaits, f"{node.node}: the model that it is to load"
        num_members = counted_members(state, node)
        assert node.num_members == num_members, f"{node.node} counts {node.num_members} members, it has {num_members}"
        num_running = counted_running(state, node)
        assert node.num_running == num_running, f"{node.node} counts {node.num_running} that run, it is {num_running}"
        promised = counted_promised(state, node)
        assert node.promised == promised, f"{node.node} counts groups by promise: {node.promised}, it is {promised}"
        promises = summed_promises(state, node)
        assert node.promises in (None, promises), f"{node.node}: {node.promises}, {promises}"
        assert -ROUNDING <= node.unread.share <= 1.0 + ROUNDING, f"{node.node}: {node.unread} is more than all"
        assert set(node.yielding) <= set(node.queue), f"{node.node}: a group gives way that does not stand here"
        drain_s = sum(state.groups[gid].drain_s for gid in node.queue)
        assert abs(node.drain_s - drain_s) < 1e-6, f"{node.node} counts {node.drain_s} s of work, it is {drain_s} s"
    for model, batch in state.batches.items():
        num_requests = sum(group.num_members for group in state.groups.values() if group.model == model)
        assert batch.num_requests == num_requests, f"{model}: there are {num_requests}, {batch.num_requests} counted"
    runs = {name for runners in state.running.values() for name in runners.members}
    assert runs == {name for name, request in state.requests.items() if request.node}, "what runs, model by model"
    assert all(gid in state.groups for gid in state.open_groups.values()), "an open group is gone"
    assert all(gid in state.groups for gid in state.hand_overs), "a group is gone that is handed over"
    assert all(gid in state.groups for gid in state.plan.late), "a group is gone that is late"
    assert all(name in state.requests for name in state.watching), "a request is gone that a client watches"
