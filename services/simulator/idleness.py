"""Device time that is left unused while a request waits that the device could serve.

A node is looked at with each of its heartbeats, once a second. That second counts as unused where a request has waited
somewhere in the cluster for `MOMENT_S`, with no KV of it kept anywhere, and

- the node has nothing to do, though its device has room for the request's model (it could load it), or
- it runs the request's model, its engine could admit a typical request at once (places and KV memory), and doing so
  would break no promise: every request of the batch that would be in time if the batch stayed as it is would be in time
  with the newcomer in it too (`allows_one_more`). The simulator knows how long each answer will be; a queue manager has
  to guess.

Why it is unused is told as well (`cause_of`).

A node that loads a model is at work. Who breaks promises by waiting itself is no matter here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Literal

from services.simulator.cluster.clients import ClientOutcome
from services.simulator.cluster.cluster import SimulatedCluster
from services.simulator.cluster.node import SimulatedNode
from shared.bus import streams
from shared.config.config import ClusterConfig
from shared.messages.message import Message
from shared.messages.nodes.nodes import Heartbeat
from shared.messages.nodes.step_cost import StepCost
from shared.messages.requests.slo import Slo

Cause = Literal["nothing_to_do", "leaving_model", "bounded", "bounded_elsewhere", "elsewhere"]
"""It has nothing to do, though it could load a model; what runs has to end before it loads one; its batch is kept
smaller than those who run there need; so it is, and requests wait at another node; or it has room for those."""

BY_BOUND: frozenset[Cause] = frozenset({"bounded", "bounded_elsewhere"})
"""The batch is at the bound on what it may make late as a whole (`shared.estimator.harm`), or on the memory that it is
expected to need. One more does not break a promise, by the lengths that only the simulator knows; many more would."""

MOMENT_S = 0.25  # some steps: an engine takes requests between two of them, so none begins sooner than the next


@dataclass(frozen=True, slots=True)
class Member:
    """A request of a batch."""

    left_tokens: int
    """That its answer still has."""
    context_tokens: int
    end_by_s: float
    """When its last token has to be there, as it was promised; infinite where no end and no pace was."""


def allows_one_more(cost: StepCost, batch: Iterable[Member], prompt_tokens: int, now: float) -> bool:
    """Whether no member that will be in time would be late with another request, of such a prompt, in the batch.

    Each member draws a token a step; contexts count as they are now. The newcomer's prompt is computed first.
    """
    members = list(batch)
    context = sum(one.context_tokens for one in members)
    step_s = cost.predict_s(len(members), context, context)
    more = context + prompt_tokens
    slower_s = cost.predict_s(len(members) + 1, more, more)
    prompt_s = cost.predict_s(prompt_tokens, prompt_tokens, prompt_tokens**2 / 2) - cost.step_s
    return not any(
        now + one.left_tokens * step_s <= one.end_by_s < now + prompt_s + one.left_tokens * slower_s for one in members
    )


def cause_of(model: str, waiting_models: Sequence[str], *, has_work: bool, has_room: bool) -> Cause:
    """Why a node that holds ``model`` is unused; ``waiting_models`` are those of the groups that wait in its queue.

    ``has_room``: one more could begin, as far as the queue manager knows.
    """
    if not has_work:
        return "nothing_to_do"
    if not waiting_models:
        return "elsewhere" if has_room else "bounded_elsewhere"
    return "bounded" if waiting_models[0] == model else "leaving_model"


def end_by_s(outcome: ClientOutcome, slo: Slo) -> float:
    """When the last token has to be there, for a promised end and for a promised pace behind the first token."""
    end_s = inf if slo.deadline_s is None else outcome.sent_s + slo.deadline_s
    if slo.tpot_s is not None and outcome.first_token_s is not None:
        end_s = min(end_s, outcome.first_token_s + slo.tpot_s * (num_answer_tokens(outcome) - 1))
    return end_s


def num_answer_tokens(outcome: ClientOutcome) -> int:
    """How long the answer will be."""
    return min(outcome.request.output_tokens, outcome.request.max_tokens)


class IdleWatch:
    """Listens to the heartbeats of a cluster from a time on."""

    def __init__(
        self, cluster: SimulatedCluster, config: ClusterConfig, outcome_of: Callable[[str], ClientOutcome]
    ) -> None:
        self.num_looks = 0
        self.unused: Counter[Cause] = Counter()
        self._cluster = cluster
        self._slos = {name: config.slo(name) for name in config.slo_classes}
        self._outcome_of = outcome_of
        self._waiting_at_s = -inf
        self._waiting: Mapping[str, int] = {}
        cluster.bus.listen(self._listen)

    @property
    def shares(self) -> dict[Cause, float]:
        """Of the device time, by cause."""
        return {cause: number / self.num_looks for cause, number in sorted(self.unused.items())}

    def _listen(self, now: float, stream: str, message: Message) -> None:
        if isinstance(message, Heartbeat) and stream == streams.SCHEDULER:
            self.num_looks += 1
            node = self._cluster.nodes.get(message.node)  # one of a pool beats first, then it is there
            if node is not None and not message.loading and self._is_unused(node, now):
                self.unused[self._cause(node, now)] += 1

    def _cause(self, node: SimulatedNode, now: float) -> Cause:
        core = self._cluster.queue_manager.core
        state = core.state
        known = state.nodes.get(node.node)
        groups = [state.groups[gid] for gid in known.queue] if known is not None else []
        waiting = [group.model for group in groups if group.waiting]
        has_room = known is not None and core.take_overs.has_room(known, now)
        return cause_of(node.core.model, waiting, has_work=node.engine.has_work, has_room=has_room)

    def _is_unused(self, node: SimulatedNode, now: float) -> bool:
        waiting = self._prompts_waiting(now)
        if not waiting:
            return False
        if not node.engine.has_work:
            return any(model in node.device.models for model in waiting)
        model = node.core.model
        if model not in waiting or node.core.report.stats.num_admittable <= 0:
            return False
        untold = node.engine.num_untold_tokens(now)
        batch = [self._member(self._outcome_of(name), untold.get(name, 0)) for name in node.core.running]
        return allows_one_more(node.device.models[model].cost, batch, waiting[model], now)

    def _member(self, outcome: ClientOutcome, num_untold: int) -> Member:
        drawn = outcome.num_tokens + num_untold
        slo = self._slos[outcome.request.slo]
        left = max(0, num_answer_tokens(outcome) - drawn)
        return Member(left, outcome.request.prompt_tokens + drawn, end_by_s(outcome, slo))

    def _prompts_waiting(self, now: float) -> Mapping[str, int]:
        """By model, the prompt of one that has waited with no KV anywhere: of the group that was made first."""
        if now != self._waiting_at_s:
            state = self._cluster.queue_manager.core.state
            found: dict[str, int] = {}
            for group in state.groups.values() if state.anybody_waits else ():
                if group.waiting and not group.kv_at and group.model not in found:
                    request = state.requests[next(iter(group.waiting))]
                    if now >= request.arrival_s + MOMENT_S:
                        found[group.model] = request.prompt_tokens
            self._waiting_at_s, self._waiting = now, found
        return self._waiting
