"""Request groups (QLM, SoCC'24 §4): here by model and SLO class, first come first served inside.

The paper clusters on length statistics as well (Algorithm 1); this keeps the two attributes that decide where and when
a request may run, and bounds a group's size so that a plan can move work in pieces.
"""

from __future__ import annotations

from services.queue_manager.state import Group, Request, State

LENGTH_WEIGHT = 0.1  # weight of the newest answer in the learnt mean length


class RequestGroups:
    """Keeps requests in groups. Owns `State.groups` and the membership fields of `State.requests`."""

    def __init__(self, state: State, max_requests: int) -> None:
        self._state = state
        self._max_requests = max_requests

    def join(self, request: Request) -> Group:
        """Put a waiting request into the open group of its kind, or into a new one."""
        group = self._open_group(request) or self._new_group(request)
        group.members[request.request_id] = None
        group.num_joined += 1
        group.num_waiting += 1
        group.start_by_s = min(group.start_by_s, request.slo.start_by_s(request.arrival_s))
        request.group, request.node = group.gid, ""
        return group

    def pull(self, request: Request, node: str) -> None:
        """A node has taken the request."""
        assert not request.node, "pulled twice"
        request.node = node
        self._state.groups[request.group].num_waiting -= 1

    def leave(self, request: Request) -> Group:
        """Take a request out of its group; answers the group, which may be empty now."""
        group = self._state.groups[request.group]
        del group.members[request.request_id]
        if not request.node:
            group.num_waiting -= 1
        request.group = request.node = ""
        return group

    def close(self, group: Group) -> None:
        """Forget an empty group."""
        assert not group.members, "a group with members cannot be closed"
        del self._state.groups[group.gid]
        if self._state.open_groups.get(_kind(group.model, group.slo_kind)) == group.gid:
            del self._state.open_groups[_kind(group.model, group.slo_kind)]

    def is_running(self, group: Group) -> bool:
        """Whether a node works on a member."""
        return len(group.members) > group.num_waiting

    def start_by_s(self, group: Group) -> float:
        """The earliest time by which a waiting member must have started (all members, when none waits)."""
        members = [self._state.requests[member] for member in group.members]
        waiting = [member for member in members if not member.node] or members
        return min(member.slo.start_by_s(member.arrival_s) for member in waiting)

    def expected_output_tokens(self, group: Group) -> float:
        """Output tokens that the members will still need: the learnt mean of their kind, at most what they may have."""
        mean = self._state.mean_output_tokens.get(_kind(group.model, group.slo_kind))
        allowed = [self._state.requests[member].max_tokens for member in group.members]
        return float(sum(allowed)) if mean is None else sum(min(mean, limit) for limit in allowed)

    def learn_length(self, request: Request, output_tokens: int) -> None:
        """Follow the mean output length of the request's kind (exponentially weighted)."""
        means, kind = self._state.mean_output_tokens, _kind(request.model, request.slo.kind)
        means[kind] = means.get(kind, output_tokens) * (1 - LENGTH_WEIGHT) + output_tokens * LENGTH_WEIGHT

    def _open_group(self, request: Request) -> Group | None:
        kind = _kind(request.model, request.slo.kind)
        group = self._state.groups.get(self._state.open_groups.get(kind, ""))
        return group if group is not None and group.num_joined < self._max_requests else None

    def _new_group(self, request: Request) -> Group:
        group = Group(gid=f"g{self._state.next_group}", model=request.model, slo_kind=request.slo.kind)
        self._state.next_group += 1
        self._state.groups[group.gid] = group
        self._state.open_groups[_kind(group.model, group.slo_kind)] = group.gid
        return group


def _kind(model: str, slo_kind: str) -> str:
    return f"{model} {slo_kind}"  # a model's name holds no space
