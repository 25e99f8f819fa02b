"""Nodes that follow the load: who of them prefills, decodes or does both, and what waits at a node that has changed.

What to serve is decided here (`plans.phase_choice`) and told to the node (`Serve`), which says so in a heartbeat at
once; until that has come around by the scheduler (`NodeUp`), the node counts as what it was, here and in plans. So the
node's word is what holds, and whoever loses its memory hears it again: a new scheduler from heartbeats, a new queue
manager from the scheduler, while a new epoch of a node begins with both phases and is told anew. An order that was lost
is sent again with the next look.

Nobody stops for a change. What runs is handed over where the phase of the node says so, as always (`hands_over`), or
ends there; what waits there and is not of its phase any more goes elsewhere (`leave`).
"""

from __future__ import annotations

from collections.abc import Mapping
from math import fsum, inf

from services.queue_manager.groups.groups import RequestGroups
from services.queue_manager.handlers.requests import Requests
from services.queue_manager.plans.phase_choice import AutoNode, Holders, choose
from services.queue_manager.plans.take_over import MAX_RESTARTS
from services.queue_manager.queues.node_phases import takes_group
from services.queue_manager.queues.virtual_queues import VirtualQueues
from services.queue_manager.state.node import Node
from services.queue_manager.state.phase_gains import Gains
from services.queue_manager.state.request import Request
from services.queue_manager.state.state import State
from shared.bus import streams
from shared.estimator.batching import residual_tokens, takes_kv
from shared.estimator.splits.works import KindOfLoad, PhaseLoad, works_of
from shared.messages.nodes.nodes import BOTH, DECODE, PREFILL, Phases, Serve
from shared.service.core import Effect, Send

LOOK_S = 1.0  # between two looks: what an order takes until it is a fact, and less than the load takes to change


class LoadPhases:
    """Owns `State.phase_gains`, `State.phases_due_s`, `State.phase_changes` and `Node.told_phases`.

    ``is_on``: some nodes are configured to follow the load. ``reads_ahead``: KV may be read while prompts are computed.
    """

    def __init__(
        self,
        state: State,
        groups: RequestGroups,
        queues: VirtualQueues,
        requests: Requests,
        *,
        is_on: bool,
        reads_ahead: bool,
    ) -> None:
        self._state = state
        self._groups = groups
        self._queues = queues
        self._requests = requests
        self._is_on = is_on
        self._reads_ahead = reads_ahead

    @property
    def wake_at(self) -> float | None:
        """When the load is looked at again; None while nobody is here."""
        return self._state.phases_due_s if self._is_on and self._state.groups else None

    # --- what nodes are to serve ----------------------------------------------------------------------------------

    def look(self, now: float) -> list[Effect]:
        """Decide, and tell the nodes that have not said yet that they do it; O(nodes x kinds), once in `LOOK_S`."""
        if not self._is_on or not self._state.groups or now < self._state.phases_due_s:
            return []
        self._state.phases_due_s = now + LOOK_S
        holders: dict[str, list[Node]] = {}
        for node in self._state.nodes.values():
            if node.model and not node.known.is_loading and not node.awaits:
                holders.setdefault(node.model, []).append(node)
        followed = [model for model, nodes in holders.items() if any(node.known.follows_load for node in nodes)]
        for model in [model for model in self._state.phase_gains if model not in followed]:
            del self._state.phase_gains[model]
        for model in followed:
            self._choose(model, holders[model], now)
        return [
            Send(
                streams.node_inbox(node.node),
                Serve(node=node.node, epoch=node.epoch, phases=node.phases),
                max_entries=streams.MAX_NODE_INBOX,
            )
            for node in self._state.nodes.values()
            if node.phases != node.known.phases
        ]

    def _choose(self, model: str, nodes: list[Node], now: float) -> None:
        names = [node.node for node in nodes]
        gains = self._state.phase_gains.get(model)
        if gains is None or gains.nodes != names:
            gains = self._state.phase_gains[model] = Gains(names, now)
        dt_s, gains.seen_s = min(LOOK_S, now - gains.seen_s), now
        fixed = [node.known.phases for node in nodes if not node.known.follows_load]
        followers = [AutoNode(node.node, node.phases, node.num_running) for node in nodes if node.known.follows_load]
        num_prefill, num_decode = fixed.count(PREFILL), fixed.count(DECODE)
        known = [node.known for node in nodes]
        if not all(any(rate.model == model for rate in one.rates) for one in known):
            return
        chosen: Mapping[str, Phases] | None = dict.fromkeys([one.node for one in followers], BOTH)
        if all(takes_kv(known[0], one, model) for one in known):  # else nobody can go on with it elsewhere
            holders = Holders(followers, num_prefill, num_decode, len(fixed) - num_prefill - num_decode)
            load = self._load(model, now)
            works = works_of(known, load, reads_ahead=self._reads_ahead)
            chosen = choose(gains, holders, works, load, dt_s)
        for name, phases in (chosen or {}).items():
            node = self._state.nodes[name]
            if node.phases != phases:
                node.told_phases = phases
                self._state.phase_changes[phases] = self._state.phase_changes.get(phases, 0) + 1

    def _load(self, model: str, now: float) -> PhaseLoad:
        kinds = []
        for shape, flow in self._groups.expected_newcomers(model):
            coming = self._groups.coming(flow, now)
            token_s = flow.token_s / flow.num if flow.token_s else inf
            end_s = flow.end_s / flow.num if flow.end_s else inf
            kinds.append(KindOfLoad(shape, coming.rate_per_s, coming.patience_s, token_s, end_s))
        groups = [group for group in self._state.groups.values() if group.model == model]
        typical = self._groups.typical(model, now)
        rest = 0.0
        if typical is not None and typical.mean_output_tokens:
            running = residual_tokens(typical.mean_output_tokens, typical.std_output_tokens)
            rest = fsum(
                group.num_waiting * typical.mean_output_tokens + group.num_running * running for group in groups
            )
        waiting = fsum(group.waiting_totals.prompt_tokens for group in groups if not group.kv_at)
        return PhaseLoad(kinds, waiting, rest)

    # --- what waits at a node that has changed --------------------------------------------------------------------

    def leave(self, node: Node, now: float) -> list[Effect]:
        """The node serves other phases than before: what waits there for the one that it has left goes elsewhere.

        Members that wait in groups that run there are submitted again, as they are where they would be stuck
        (`take_over`), but for those of many attempts.
        """
        stays: list[Request] = []
        for gid in list(node.queue):
            group = self._state.groups[gid]
            if not group.waiting or gid in self._state.hand_overs or takes_group(self._state, node, group):
                continue
            if not self._queues.holds_kv(group):
                self._queues.remove(group)
                self._queues.place_new(group, now)
            elif not group.kv_at:
                stays += [self._state.requests[name] for name in group.waiting]
        return self._requests.move_on([one for one in stays if one.attempt < MAX_RESTARTS])
