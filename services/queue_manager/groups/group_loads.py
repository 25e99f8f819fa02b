"""What a plan needs to know of a group, out of its sums."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from services.queue_manager.learnt.arrivals import MAX_FLOWS, Flow
from services.queue_manager.learnt.lengths import Distribution, Lengths, Moments
from services.queue_manager.learnt.token_rates import TokenRates
from services.queue_manager.state.group import Group
from services.queue_manager.state.node_counts import promised_end
from services.queue_manager.state.request import Request
from services.queue_manager.state.totals import Totals
from shared.estimator.mixture import deviation
from shared.messages.nodes.placement import GroupLoad, RequestShape
from shared.messages.requests.requests import EvictedRequest, Submit
from shared.messages.requests.slo import Slo


class _Typical(NamedTuple):
    """A typical request, and what it was computed from."""

    lengths: Distribution
    sums: tuple[float, float, float, float]
    shape: RequestShape


class Loads:
    """Describes groups as they are at a time; changes nothing.

    What comes of one kind is described anew only where a flow or its lengths have changed: kept under what it was
    computed from, it cannot be too old.
    """

    def __init__(self, requests: Mapping[str, Request], lengths: Lengths, paces: TokenRates) -> None:
        self._requests = requests
        self._lengths = lengths
        self._paces = paces
        self._typical: dict[tuple[str, str], _Typical] = {}

    def load(self, group: Group, now: float) -> GroupLoad:
        """O(1): the magnitudes of limits are few."""
        waiting, num_waiting = group.waiting_totals, group.num_waiting
        slo = self._requests[next(iter(group.waiting or group.running))].slo  # promises of one kind are alike
        promised_s, promised_token_s = promised_end(slo)
        lengths = self._lengths.distribution(group.model, group.slo_kind, group.tenant)
        # of waiting members; where none waits, what those that run had before them
        fresh, num_fresh = (waiting, num_waiting) if num_waiting else (group.running_totals, group.num_running)
        mean, std = _rest(lengths, fresh, num_fresh, fresh.done_tokens / max(1, num_fresh))
        drawn = self._drawn_tokens(group, now)
        rest, _ = _rest(lengths, group.running_totals, group.num_running, drawn)
        warm_tokens = fresh.warm_tokens / max(1, num_fresh)
        kv_tokens = waiting.kv_tokens + group.running_totals.prompt_tokens + drawn * group.num_running
        return GroupLoad(
            group=group.gid,
            model=group.model,
            deadline_s=group.start_by_s,
            node=group.node,
            slo=group.slo_kind,
            tenant=group.tenant,
            rank=group.rank,
            num_waiting=num_waiting,
            num_running=group.num_running,
            # whose KV is kept has nothing to compute before its next token
            mean_prompt_tokens=0.0 if group.kv_at else fresh.prompt_tokens / max(1, num_fresh),
            mean_output_tokens=mean,
            std_output_tokens=std,
            running_output_tokens=rest * group.num_running,
            max_tokens=(fresh.max_tokens - fresh.done_tokens) / max(1, num_fresh),
            kv_tokens=kv_tokens,
            kept_tokens=kv_tokens / group.num_members if group.kv_at else 0.0,
            kv_at=group.kv_at,
            std_prompt_tokens=0.0 if group.kv_at else _spread(fresh, num_fresh),
            output_error_tokens=lengths.error(std),
            end_by_s=self._end_by_s(slo, group),
            warm_at=group.warm_at if warm_tokens else "",
            warm_tokens=warm_tokens,
            found_tokens=warm_tokens if warm_tokens and group.node in ("", group.warm_at) else None,
            promised_s=promised_s,
            promised_token_s=promised_token_s,
            needs=group.needs,
        )

    def newcomer(self, message: Submit, now: float) -> GroupLoad:
        """A request that comes now, as if it were a group."""
        lengths = self._lengths.distribution(message.model, message.slo.kind, message.tenant)
        output = lengths.rest(message.max_tokens)
        std = deviation(*output)
        return GroupLoad(
            group="",
            model=message.model,
            deadline_s=message.slo.start_by_s(now),
            num_waiting=1,
            mean_prompt_tokens=message.prompt_tokens,
            mean_output_tokens=output.mean,
            std_output_tokens=std,
            output_error_tokens=lengths.error(std),
            max_tokens=message.max_tokens,
            needs=message.needs,
        )

    def resumed(self, request: Request, evicted: EvictedRequest) -> GroupLoad:
        """A request that was evicted with its KV, as if it were a group."""
        lengths = self._lengths.distribution(request.model, request.slo.kind, request.tenant)
        output = lengths.rest(request.max_tokens, evicted.output_tokens)
        std = deviation(*output)
        return GroupLoad(
            group="",
            model=request.model,
            deadline_s=request.start_by_s,
            num_waiting=1,
            mean_output_tokens=output.mean,
            std_output_tokens=std,
            output_error_tokens=lengths.error(std),
            max_tokens=request.max_tokens - evicted.output_tokens,
            kv_tokens=evicted.kv_tokens,
            kept_tokens=evicted.kv_tokens,
            kv_at=evicted.kv_at,
            needs=request.needs,
        )

    def typical(self, flow: Flow) -> RequestShape:
        """A request as they come of one kind; O(1), and less where nothing has changed."""
        lengths = self._lengths.distribution(flow.model, flow.slo_kind, "")
        sums = (flow.num, flow.prompt_tokens, flow.square_prompt_tokens, flow.limit_tokens)
        key = (flow.model, flow.slo_kind)
        kept = self._typical.get(key)
        if kept is None or kept.lengths is not lengths or kept.sums != sums:
            if len(self._typical) >= MAX_FLOWS:
                self._typical.clear()
            kept = self._typical[key] = _Typical(lengths, sums, _typical(flow, lengths))
        return kept.shape

    def expected(self, shape: RequestShape, flow: Flow, now: float) -> GroupLoad:
        """A request as they come of one kind, if it came now."""
        return GroupLoad(
            group="",
            **(msgspec.structs.asdict(shape) | {"max_tokens": flow.limit_tokens / flow.num}),
            deadline_s=now + flow.patience_s / flow.num,
            slo=flow.slo_kind,
            num_waiting=1,
            end_by_s=now + flow.end_s / flow.num if flow.end_s else 0.0,
            promised_s=flow.end_s / flow.num if flow.end_s else math.inf,
        )

    def expected_output(self, message: Submit) -> Moments:
        """Output tokens that a request is expected to draw, before it has joined a group."""
        return self._lengths.distribution(message.model, message.slo.kind, message.tenant).rest(message.max_tokens)

    def _end_by_s(self, slo: Slo, group: Group) -> float:
        """How long after its start a member must have ended."""
        if slo.deadline_s is None:
            return 0.0
        return group.start_by_s - slo.start_by_s(0.0) + slo.deadline_s

    def _drawn_tokens(self, group: Group, now: float) -> float:
        """Tokens that a running member has drawn by now on average, by the pace of its model at its node."""
        if not group.running:
            return 0.0
        totals, num_running = group.running_totals, group.num_running
        node = self._requests[next(iter(group.running))].node
        elapsed_s = max(0.0, now - totals.begins_ms / 1000 / num_running)
        drawn = totals.done_tokens / num_running + elapsed_s * self._paces.tokens_per_s(group.model, node)
        return min(drawn, totals.max_tokens / num_running)


def _typical(flow: Flow, lengths: Distribution) -> RequestShape:
    prompt, square = flow.prompt_tokens / flow.num, flow.square_prompt_tokens / flow.num
    output = lengths.rest(flow.limit_tokens / flow.num)
    return RequestShape(
        model=flow.model,
        mean_prompt_tokens=prompt,
        std_prompt_tokens=deviation(prompt, square),
        mean_output_tokens=output.mean,
        std_output_tokens=deviation(*output),
    )


def _spread(totals: Totals, num_requests: int) -> float:
    """Standard deviation of the prompts of these."""
    if not num_requests:
        return 0.0
    mean = totals.prompt_tokens / num_requests
    return deviation(mean, totals.square_prompt_tokens / num_requests)


def _rest(lengths: Distribution, totals: Totals, num_requests: int, done: float) -> tuple[float, float]:
    """Mean and standard deviation of the output tokens that one of these will still draw, ``done`` ones drawn.

    A mixture over the magnitudes of their limits: what varies is the length, and how much each may have of it.
    """
    mean = square = 0.0
    for number, limit in totals.limits():
        one_mean, one_square = lengths.rest(limit, done)
        mean += number / num_requests * one_mean
        square += number / num_requests * one_square
    return mean, deviation(mean, square)
