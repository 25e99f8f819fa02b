"""What holds for the queue manager's state after every message. Tests call it; it costs a walk over everything."""

from __future__ import annotations

from services.queue_manager.state import State
from services.queue_manager.virtual_queues import VirtualQueues


def check(state: State) -> None:
    """Assert that requests, groups and virtual queues agree."""
    for name, request in state.requests.items():
        assert name == request.request_id
        assert not request.group or name in state.groups[request.group].members, f"{name} is not in its group"
        assert request.group or not request.node, f"{name} runs but is in no group"
    for gid, group in state.groups.items():
        assert group.members, f"{gid} is empty"
        members = [state.requests[member] for member in group.members]
        assert all(member.group == gid and member.model == group.model for member in members)
        assert group.num_waiting == sum(not member.node for member in members), f"{gid} counts wrongly"
        places = [node.node for node in state.nodes.values() if gid in node.queue]
        assert places == ([group.node] if group.node else []), f"{gid} stands in {places}, says {group.node!r}"
    for node in state.nodes.values():
        assert len(node.queue) == len(set(node.queue)), f"{node.node} has a group twice"
        assert all(gid in state.groups for gid in node.queue), f"{node.node} has a group that is gone"
        window = [(ref.group, ref.num_waiting) for ref in VirtualQueues(state).window(node)]
        assert node.told == window, f"{node.node} believes {node.told}, it is {window}: the next bell may not ring"
    assert all(gid in state.groups for gid in state.open_groups.values()), "an open group is gone"
