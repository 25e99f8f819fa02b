"""Request groups: requests of one model, one kind of promise, one tenant and similar lengths are placed together.

QLM (SoCC'24), Algorithm 1, online: a request joins the open group of its cluster (`open_groups`) or opens one. Every
event costs O(log members) at most, and so does the description for a plan.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping

from services.queue_manager.groups.group_loads import Loads
from services.queue_manager.groups.observer import Observer
from services.queue_manager.groups.open_groups import OpenGroups
from services.queue_manager.learnt.arrivals import ArrivalRates, Coming, Flow
from services.queue_manager.learnt.calibration import Calibration
from services.queue_manager.learnt.clusters import Clusters
from services.queue_manager.learnt.lengths import Lengths
from services.queue_manager.learnt.running import RunningRequests
from services.queue_manager.learnt.token_rates import TokenRates
from services.queue_manager.state.fairness import Fairness
from services.queue_manager.state.group import Group
from services.queue_manager.state.group_key import GroupKey
from services.queue_manager.state.grouping import Batches
from services.queue_manager.state.journal import Journal
from services.queue_manager.state.node_counts import note_members, note_promise
from services.queue_manager.state.request import Request
from services.queue_manager.state.state import State
from shared.config.services.corrections import Correction
from shared.config.services.queue import QueueOptions, TenantSpec
from shared.estimator.mixture import mixed
from shared.messages.nodes.nodes import NodeState
from shared.messages.nodes.placement import Arrivals, GroupLoad, RequestShape
from shared.messages.requests.request_kind import RequestKind
from shared.messages.requests.requests import EvictedRequest, Submit


class RequestGroups:
    """Keeps requests in groups. Owns `State.groups` and the membership fields of `State.requests`."""

    def __init__(self, state: State, options: QueueOptions, tenants: Mapping[str, TenantSpec]) -> None:
        self._state = state
        self.journal = Journal()
        self._rules = options.rules
        self._lengths = Lengths(state.lengths)
        self._paces = TokenRates(state.paces)
        self._running = RunningRequests(state.running)
        self.calibration = Calibration(state.fits, is_on=Correction.CALIBRATION in options.corrections)
        self._observer = Observer(state, self._running, self._lengths, self._paces, self.calibration)
        self._arrivals = ArrivalRates(state.flows, state.lifetimes, options.corrections)
        self._clusters = Clusters(state.clusters)
        self._batches = Batches(state.batches)
        self.open_groups = OpenGroups(state, options, self._batches)
        self._fairness = Fairness(state.lines, tenants)
        self._loads = Loads(state.requests, self._lengths, self._paces)

    # --- members --------------------------------------------------------------------------------------------------

    def join(self, request: Request, now: float, seat: str = "", *, warm_at: str = "", warm_tokens: int = 0) -> Group:
        """Put a request that has to run from its payload into the open group of its cluster, or into a new one.

        ``seat`` is the node where it can begin at once: then it joins those that did so there. Else it joins those that
        wait; a group that waits has no such node, so that it can be placed anywhere. Those of which a good part is
        cached, ``warm_at`` a node, wait together.

        One that has been lost by a node does not queue up again: its tenant has been charged, and its group stands
        beside those that begin now.
        """
        request.kv_tokens, request.image, request.warm_tokens = 0, None, warm_tokens
        kind = RequestKind.of(request)
        lengths = self._lengths.distribution(*kind, request.tenant)
        output_tokens = lengths.rest(request.max_tokens, request.done_tokens).mean
        is_new = request.attempt == 0
        tenant, cluster = "", 0
        if self._rules.is_fine:
            tenant, cluster = request.tenant, self._clusters.nearest(kind, request.prompt_tokens, output_tokens, now)
        key = GroupKey(kind, tenant, cluster, seat, is_new, warm_at="" if seat else warm_at, needs=request.needs)
        group = self.open_groups.find(key, now)
        if group is None:
            rank = self._fairness.open(kind, tenant) if is_new else self._fairness.reopen(kind)
            group = self._add(
                Group(
                    gid="",
                    model=kind.weights,
                    slo_kind=kind.slo_kind,
                    tenant=tenant,
                    key=key,
                    rank=rank,
                    warm_at=seat or warm_at,
                )
            )
        if is_new:
            self._fairness.charge(kind, tenant, request.prompt_tokens + output_tokens)
            self._arrivals.observe(request, now)
        self._enter(group, request)
        return group

    def of_newcomer(self, message: Submit, now: float, seat: str = "") -> Group:
        """The group that a first attempt would join, or one like that which it would open; nothing is changed."""
        kind = RequestKind.of(message)
        tenant, cluster = "", 0
        if self._rules.is_fine:
            output_tokens = self._loads.expected_output(message).mean
            tenant, cluster = message.tenant, self._clusters.peek(kind, message.prompt_tokens, output_tokens)
        key = GroupKey(kind, tenant, cluster, seat, is_new=True, needs=message.needs)
        group = self.open_groups.find(key, now)
        if group is not None:
            return group
        due_s = message.slo.start_by_s(now)
        rank = self._fairness.next_tag(kind, tenant)
        return Group("", kind.weights, kind.slo_kind, tenant, key, rank, start_by_s=due_s)

    def put_back(self, request: Request, origin: Group, evicted: EvictedRequest, goes_to: str = "") -> Group:
        """Put a request that was evicted, and has left ``origin``, into a resume group.

        Members of one group that come back at one place, and go on at one (``goes_to``), share one, in the order in
        which they come back. It has the rank of the group that they come from, and no newcomers.
        """
        assert not request.group, "it must have left its group"
        root = origin.root or origin.gid
        key = GroupKey(origin.kind, origin.tenant, place=evicted.kv_at, root=root, needs=origin.needs, goes_to=goes_to)
        group = self.open_groups.newest(key)
        if group is None:
            self._fairness.reopen(origin.kind, origin.rank)
            group = self._add(
                Group(
                    gid="",
                    model=origin.model,
                    slo_kind=origin.slo_kind,
                    tenant=origin.tenant,
                    key=key,
                    rank=origin.rank,
                    kv_at=evicted.kv_at,
                    root=root,
                )
            )
        request.done_tokens, request.warm_tokens = evicted.output_tokens, 0
        request.kv_tokens, request.image = evicted.kv_tokens, evicted.image
        request.giver = evicted.image.node if evicted.image is not None else ""
        self._enter(group, request)
        return group

    def pull(self, request: Request, node: str, now: float, *, begins_s: float | None = None) -> Group:
        """A node has taken the request, and will have computed its prompt by ``begins_s``: at once without it."""
        assert not request.node, "pulled twice"
        group = self._state.groups[request.group]
        del group.waiting[request.request_id]
        group.waiting_totals.remove(request)
        request.node, request.kv_tokens, request.image = node, 0, None
        request.begins_s = now if begins_s is None else begins_s
        group.running[request.request_id] = None
        group.running_totals.add(request)
        self._running.add(request.model, request.request_id)
        self._observer.look(request.model, now)
        self._fairness.begin(group.kind, group.rank)
        self._note_members(group, 0, 1)
        self.journal.started.append(request.request_id)
        return group

    def leave(self, request: Request) -> Group:
        """Take a request out of its group; answers the group, which may be empty now."""
        group = self._state.groups[request.group]
        has_run = bool(request.node)
        if has_run:
            del group.running[request.request_id]
            group.running_totals.remove(request)
            self._running.remove(request.model, request.request_id)
            self._observer.look(request.model, self._state.now_s)
        else:
            del group.waiting[request.request_id]
            group.waiting_totals.remove(request)
        self._batches.remove(group.model)
        request.group = request.node = ""
        request.begins_s = 0.0
        self._note_members(group, -1, -has_run)
        return group

    def close(self, group: Group) -> None:
        """Forget an empty group."""
        assert not group.num_members, "a group with members cannot be closed"
        del self._state.groups[group.gid]
        self.open_groups.remove(group)
        self._fairness.close(group.kind)
        self.journal.closed.append(group.gid)

    # --- what is learnt -------------------------------------------------------------------------------------------

    def learn_answer(self, request: Request, output_tokens: int, now: float, *, is_cut: bool) -> None:
        """An answer of a request that is still in its group has ended: by itself, or at its limit (``is_cut``).

        ``output_tokens`` counts those of earlier attempts too.
        """
        self._lengths.observe(*RequestKind.of(request), request.tenant, output_tokens, is_cut=is_cut)
        if request.node:
            num_drawn = output_tokens - request.done_tokens
            self._paces.observe(request.model, request.node, num_drawn, now - request.begins_s)
        self.learn_drawn(request, output_tokens)

    def learn_drawn(self, request: Request, output_tokens: int) -> None:
        """A request that is still in its group has so many tokens, and leaves the node where it ran, if it did."""
        if request.node:
            self._running.draw(request.model, request.node, output_tokens - request.done_tokens)

    def learn_nodes(self, nodes: Iterable[NodeState]) -> None:
        """Nodes have come, gone, or changed their model: how many share what runs bounds the groups."""
        self._batches.learn(nodes)

    def expected_newcomers(self, model: str) -> Iterator[tuple[RequestShape, Flow]]:
        """What comes for a model: a typical request of each kind, and how they come."""
        for flow in self._arrivals.of_model(model):
            yield self._loads.typical(flow), flow

    def coming(self, flow: Flow, now: float) -> Coming:
        """What is still to come of what has come so far."""
        return self._arrivals.coming(flow, now)

    def newcomers(self, now: float) -> list[Arrivals]:
        """Of each kind that comes, a typical request if it came now, and how many of them can be expected.

        None of a single model: what a plan does for those who come is to have it loaded where others are.
        """
        models = dict.fromkeys(flow.model for flow in self._state.flows.values())
        if len(models) < 2:
            return []
        found = []
        for shape, flow in (one for model in models for one in self.expected_newcomers(model)):
            coming = self.coming(flow, now)
            if coming.rate_per_s > 0.0:
                load = self._loads.expected(shape, flow, now)
                found.append(Arrivals(load, coming.rate_per_s, coming.lasts_s))
        return found

    def typical(self, model: str, now: float) -> RequestShape | None:
        """A request of all that have come for a model of late; None where none has."""
        kinds = [(shape, max(1, round(flow.num_at(now)))) for shape, flow in self.expected_newcomers(model)]
        return mixed(model, kinds) if kinds else None

    def load(self, group: Group, now: float) -> GroupLoad:
        """What a plan needs to know of a group; O(1)."""
        return self._loads.load(group, now)

    def resumed(self, request: Request, evicted: EvictedRequest) -> GroupLoad:
        """The same of one that was evicted, alone."""
        return self._loads.resumed(request, evicted)

    def newcomer(self, message: Submit, now: float) -> GroupLoad:
        """The same of a request that comes now, alone."""
        return self._loads.newcomer(message, now)

    # --- groups ---------------------------------------------------------------------------------------------------

    def _add(self, group: Group) -> Group:
        group.gid = f"g{self._state.next_group}"
        self._state.next_group += 1
        self._state.groups[group.gid] = group
        self.open_groups.add(group)
        return group

    def _enter(self, group: Group, request: Request) -> None:
        request.group, request.node = group.gid, ""
        group.waiting[request.request_id] = None
        group.waiting_totals.add(request)
        group.num_joined += 1
        self._batches.add(group.model)
        group.opened_s = min(group.opened_s, request.arrival_s)
        due_s = request.start_by_s
        if due_s < group.last_due_s:
            heapq.heappush(group.hurried, (due_s, request.request_id))
        group.last_due_s = max(group.last_due_s, due_s)
        self._note_members(group, 1, 0)

    def _note_members(self, group: Group, num_more: int, num_more_running: int) -> None:
        """Its members have changed, so others may be due first, or wait no more.

        The first that waits is due first, but for those that were due earlier than one before them. Those are in the
        heap: the others are due in order, and one that follows a hurried one in order is due later than it.
        """
        note_members(self._state, group, num_more, num_more_running)
        self.journal.note_queue(group.node)
        while group.hurried and group.hurried[0][1] not in group.waiting:
            heapq.heappop(group.hurried)
        first = next(iter(group.waiting or group.running), None)
        if first is not None:
            speaks = self._state.requests[first]
            note_promise(self._state, group, speaks.slo)
            group.start_by_s = speaks.start_by_s
            if group.waiting and group.hurried:
                group.start_by_s = min(group.start_by_s, group.hurried[0][0])
