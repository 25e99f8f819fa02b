"""From a placement problem to numbers: every group on every kind of node, by the waiting-time estimator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import fsum, log
from operator import mul

import msgspec

from services.scheduler.solving.problem.allowed_nodes import places
from services.scheduler.solving.problem.instance import Instance, InstanceGroup, InstanceNode
from shared.estimator.answer import long_answer_s
from shared.estimator.batching import Batching, batching, longest_tokens, rate_of
from shared.estimator.estimator import cold_s, evict_s, swap_s
from shared.estimator.hand_over import hand_over_cost, network_s
from shared.estimator.harm import PromisedEnd, paced
from shared.estimator.mixture import mixture
from shared.estimator.overtaking import held_share
from shared.messages.nodes.nodes import NodeState
from shared.messages.nodes.placement import GroupLoad, Interruption, PlacementProblem
from shared.messages.requests.request_kind import RequestKind
from shared.messages.requests.requests import HANDED_OVER

MARGIN = 0.25  # of the time until a promised start
COST_STEP = 0.1  # step costs that differ by less than about this share are one kind of node


@dataclass(frozen=True, slots=True)
class _KindTable:
    """What nodes of one kind have in common; indexed by group."""

    batchings: list[Batching]
    due_s: list[float]
    work_s: list[float]
    lead_s: list[float]
    tail_s: list[float]
    overlap_s: dict[str, float]


def make_instance(problem: PlacementProblem) -> Instance:
    """Number the groups in rank order (ties: by deadline, then as they were made) and tabulate what they take."""
    loads = sorted(problem.groups, key=lambda load: (load.rank, load.deadline_s, arrival(load.group)))
    by_name = {node.node: node for node in problem.nodes}
    numbers = {name: number for number, name in enumerate(by_name)}
    groups = [
        InstanceGroup(
            name=load.group,
            model=load.model,
            kind=RequestKind(load.model, load.slo),
            due_s=load.deadline_s - problem.now_s,
            num_waiting=load.num_waiting,
            num_running=load.num_running,
            home=numbers.get(load.node) if load.num_running else None,
            places=places(problem.nodes, load, problem.operations),
        )
        for load in loads
    ]
    tables: dict[object, _KindTable] = {}
    nodes = []
    batches: list[list[float]] = []
    for number, node in enumerate(problem.nodes):
        kind = _kind(node)
        if kind not in tables:
            tables[kind] = _tabulate(node, loads, problem.now_s)
        homes = [group for group, facts in enumerate(groups) if facts.home == number]
        interruptions = [one for one in problem.interruptions if one.node == node.node]
        table = _stretched(tables[kind], loads, interruptions, problem.now_s) if interruptions else tables[kind]
        setup_s = [_setup_s(node, load, by_name) for load in loads]
        nodes.append(_make_node(node, loads, homes, table, setup_s, node.ready_in_s(problem.now_s)))
        batches.append([work.batch for work in tables[kind].batchings])
    groups = _with_room_for_kv(problem.nodes, groups, loads, batches)
    return Instance(groups, nodes, problem.operations.evict)


def _with_room_for_kv(
    nodes: Sequence[NodeState],
    groups: Sequence[InstanceGroup],
    loads: Sequence[GroupLoad],
    batches: Sequence[Sequence[float]],
) -> list[InstanceGroup]:
    """What has KV at a node leaves it only for one that can go on with all of it at once.

    Elsewhere it would stop to wait, or push out others who have to be kept in turn: KV is moved, and nothing is won.
    ``batches`` is the batch of each group at each node.
    """
    names = {node.node: number for number, node in enumerate(nodes)}
    room = [1.0] * len(nodes)
    for number, load in enumerate(loads):
        standing = names.get(load.node)
        if standing is not None:
            room[standing] -= load.num_requests / batches[standing][number]
    kept: list[InstanceGroup] = []
    for number, (group, load) in enumerate(zip(groups, loads, strict=True)):
        here = group.home if group.home is not None else names.get(load.kv_at)
        places = group.places
        if here is not None:
            share = [load.num_requests / batch[number] for batch in batches]
            places = tuple(node for node in places if node == here or share[node] <= room[node])
        kept.append(replace(group, places=places))
    return kept


def arrival(group: str) -> tuple[int, str]:
    """Sorts groups in the order in which they were made: their names count them."""
    return len(group), group


def _kind(node: NodeState) -> object:
    """Nodes of which this is equal share their tables; learnt costs are never quite the same."""
    costs = [
        (
            rate.model,
            rate.kv_tokens,
            rate.step_tokens,
            round(rate.cached_share / COST_STEP),
            *map(_level, rate.cost.numbers + rate.decode.numbers),
        )
        for rate in node.rates
    ]
    return node.device, node.max_num_seqs, node.step_tokens, tuple(sorted(costs))


def _level(seconds: float) -> int | None:
    return round(log(seconds) / COST_STEP) if seconds > 0 else None


def _tabulate(node: NodeState, loads: Sequence[GroupLoad], now_s: float) -> _KindTable:
    promised: dict[str, set[PromisedEnd]] = {}
    for load in loads:
        promised.setdefault(load.model, set()).add((load.promised_s, load.promised_token_s))
    known = {model: paced(node, shape, promised[model]) for model, shape in mixture(loads).items()}
    batchings = [batching(known[load.model], _warm(load)) for load in loads]
    pairs = list(zip(loads, batchings, strict=True))
    return _KindTable(
        batchings=batchings,
        due_s=[_due_s(load, work, now_s) for load, work in pairs],
        work_s=[_work_s(load, work) for load, work in pairs],
        lead_s=[_work_s(load, work) - _last_member_s(load, work) for load, work in pairs],
        tail_s=[_tail_s(load, work) if load.num_waiting else _rest_s(load, work) for load, work in pairs],
        overlap_s={model: _overlap_s(model, pairs) for model in {load.model for load in loads}},
    )


def _warm(load: GroupLoad) -> GroupLoad:
    """As at the node that has something of its prompts; what others have to compute again is part of their setup."""
    return msgspec.structs.replace(load, found_tokens=load.warm_tokens) if load.warm_at else load


def _stretched(
    table: _KindTable, loads: Sequence[GroupLoad], interruptions: Sequence[Interruption], now_s: float
) -> _KindTable:
    """Of a node that urgent newcomers keep from the groups of other models for some of the time.

    It goes on with the same batch afterwards: what a batch has in it takes as much longer as what waits behind it.
    """
    factors = []
    by_model = dict.fromkeys(table.overlap_s, 1.0)
    for load in loads:
        others = (one for one in interruptions if one.model != load.model and load.deadline_s - now_s > one.patience_s)
        num_others = fsum(one.num_present for one in others)
        factors.append(1 / (1 - held_share(num_others)))
        by_model[load.model] = max(by_model[load.model], factors[-1])
    return replace(
        table,
        work_s=list(map(mul, factors, table.work_s)),
        lead_s=list(map(mul, factors, table.lead_s)),
        tail_s=list(map(mul, factors, table.tail_s)),
        overlap_s={model: by_model[model] * overlap_s for model, overlap_s in table.overlap_s.items()},
    )


def _due_s(load: GroupLoad, work: Batching, now_s: float) -> float:
    """Until a member must start: by its promise, and early enough to have ended when that was promised (C = W + P + D).

    Its answer is a long one of its kind, at the pace of a full batch. Where only the start was promised, nothing else
    is in it for what predictions err: what would start in the last part of its time counts as late.
    """
    due_s = load.deadline_s - now_s
    if load.end_by_s:
        return min(due_s, load.end_by_s - now_s - long_answer_s(work, load.max_tokens))
    return due_s * (1 - MARGIN) if due_s > 0 else due_s


def _work_s(load: GroupLoad, work: Batching) -> float:
    return load.num_waiting * work.request_s + load.running_output_tokens * work.token_s


def _last_member_s(load: GroupLoad, work: Batching) -> float:
    """Its part of the work: of a waiting member, or where none waits, of a running one."""
    if load.num_waiting:
        return work.request_s
    return load.running_output_tokens * work.token_s / max(1, load.num_running)


def _overlap_s(model: str, pairs: Sequence[tuple[GroupLoad, Batching]]) -> float:
    """Device time that a full batch has left when one of it ends: b m a, without the place that gets free (o a).

    m = E[O²] / 2 E[O], the residual life; the derivation is in `shared.estimator.estimator`. Mean of what waits.
    """
    in_batch_s, num_requests = 0.0, 0
    for load, work in pairs:
        if load.model == model:
            residual_tokens = work.square_tokens / (2 * work.output_tokens)
            in_batch_s += load.num_waiting * work.token_s * (work.batch * residual_tokens - work.output_tokens)
            num_requests += load.num_waiting
    return max(0.0, in_batch_s / num_requests) if num_requests else 0.0


def _tail_s(load: GroupLoad, work: Batching) -> float:
    """Until the last of the waiting members that start last has ended."""
    num_last = min(load.num_waiting, work.batch)
    return longest_tokens(work.output_tokens, work.std_output_tokens, num_last, load.max_tokens) * work.token_at(
        num_last
    )


def _rest_s(load: GroupLoad, work: Batching) -> float:
    """Until the last of the running members has ended."""
    num_running = max(1, load.num_running)
    left_tokens = load.running_output_tokens / num_running
    longest = longest_tokens(left_tokens, work.std_output_tokens, num_running, load.max_tokens)
    return longest * work.token_at(num_running)


def _make_node(
    node: NodeState,
    loads: Sequence[GroupLoad],
    homes: Sequence[int],
    table: _KindTable,
    setup_s: Sequence[float],
    ready_s: float,
) -> InstanceNode:
    places_taken = sum(loads[group].num_running / table.batchings[group].batch for group in homes)
    is_full = any(places_taken + 1 / table.batchings[group].batch > 1 for group in homes)
    overlap_s = dict(table.overlap_s)
    if homes and not is_full and node.model in overlap_s:
        # while the batch has room, no request waits for what runs in it
        overlap_s[node.model] = max(overlap_s[node.model], sum(table.work_s[group] for group in homes))
    return InstanceNode(
        name=node.node,
        model=node.model,
        ready_s=ready_s,
        is_full=is_full,
        due_s=table.due_s,
        work_s=table.work_s,
        lead_s=table.lead_s,
        tail_s=table.tail_s,
        setup_s=setup_s,
        evict_s={group: evict_s(node, loads[group]) for group in homes},
        rest_s={group: _rest_s(loads[group], table.batchings[group]) for group in homes},
        load_s={model: swap_s(node, "", model) for model in overlap_s},
        overlap_s=overlap_s,
    )


def _setup_s(node: NodeState, load: GroupLoad, by_name: Mapping[str, NodeState]) -> float:
    """Bringing kept KV onto this node's device; from another node it is handed over first, or computed again.

    Cached beginnings of prompts are not handed over: they are computed again.
    """
    if not load.kv_tokens:
        return cold_s(node, load)
    here = load.kv_at or load.node
    in_s = evict_s(node, load)  # as long as out
    if here == node.node:
        return in_s + cold_s(node, load)
    if here == HANDED_OVER:
        kv_bytes = load.kv_tokens * rate_of(node, load.model).kv_token_bytes
        return network_s(None, node, kv_bytes) + in_s + cold_s(node, load)
    cost = hand_over_cost(by_name.get(here), node, load.model, load.kv_tokens, load.num_requests)
    return cost.least_s + cold_s(node, load)
