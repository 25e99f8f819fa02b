"""A plan for requests that are here suits those to come as well: both are placed, and only the former's places count.

Of overload, what waits at a time is a small part: it grows while a node loads another model, and a load that pays for
none of those that wait pays for those that come meanwhile. So a plan counts with the requests that can be expected
until a model that is loaded now has served for a while (`shared.messages.nodes.placement.Arrivals`), at the rates that
were learnt and for as long as these can be expected to last. Where it has a node change its model for some of them,
though no request waits yet that needs it, the node loads it once what runs there has ended.

A search has a budget, so what runs together is one group in it: at a node, of one model, promise and tenant.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import cast

from msgspec.structs import replace

from services.scheduler.solving.foresight.decoding import decodes, with_places
from services.scheduler.solving.foresight.expected import expected
from services.scheduler.solving.problem.instance import Instance, Queues
from shared.config.services.policies import POLICY_RULES, PolicyName
from shared.estimator.mixture import mixed
from shared.messages.nodes.placement import GroupLoad, ModelLoad, PlacementProblem

AHEAD_S = 15.0  # beyond the longest load: what comes in them has to be worth it
NUM_SLICES = 3  # groups of one kind
NUM_LOADS = (
    2.0  # loads within which who comes will be decoded: those who come later are, by a node that has changed back
)


@dataclass(frozen=True, slots=True)
class Foresight:
    """A problem as it is solved."""

    problem: PlacementProblem
    num_here: int
    """Groups of those who are here; numbers go by rank, and those of newcomers are behind them."""
    members: Mapping[str, Sequence[str]]
    """By name of a group in the problem, the groups that run in it; others stand for themselves."""
    decoded: frozenset[str] = frozenset()
    """Names of the groups that stand for what others will decode of those who are here."""
    is_parted: bool = False
    """Prompts are computed at some nodes alone, and decoded at others."""

    def names(self, instance: Instance, queue: Iterable[int]) -> list[str]:
        """The groups of a queue, of those who are here."""
        here = (instance.groups[group].name for group in queue if group < self.num_here)
        return [name for one in here for name in self.members.get(one, (one,))]

    def loads(self, instance: Instance, queues: Queues) -> list[ModelLoad]:
        """Of models for those who come, or are decoded elsewhere: where the first who waits is one of them."""
        found = []
        for number, (node, queue) in enumerate(zip(instance.nodes, queues, strict=True)):
            first = next((group for group in queue if _waits(instance, number, group)), None)
            if first is None or first < self.num_here or instance.groups[first].model == node.model:
                continue
            if not (self.is_parted and self._stays(instance, number, queue, first)):
                found.append(ModelLoad(node.name, instance.groups[first].model))
        return found

    def _stays(self, instance: Instance, number: int, queue: Sequence[int], first: int) -> bool:
        """Whether a node keeps its model, though one that may come would be the first there, of another.

        It does for a request here that wants it, where none here wants the other, and where as many of its own may
        come: a search takes those that may come for waiting, and puts short ones first whatever loads cost.
        """
        own, other = instance.nodes[number].model, instance.groups[first].model
        num_here, num_expected = Counter[str](), Counter[str]()
        for group in queue:
            one = instance.groups[group]
            if group < self.num_here or one.name in self.decoded:
                num_here[one.model] += _waits(instance, number, group)
            else:
                num_expected[one.model] += one.num_waiting
        if num_here[other]:
            return False
        return bool(num_here[own]) or num_expected[own] >= num_expected[other]


def foreseen(problem: PlacementProblem) -> Foresight:
    """The problem with groups of those to come, and with what others will decode of all.

    As it is where no request is expected, and all that comes is decoded where its prompt is computed; and for policies
    that do not weigh loads: they would load for the one that is due first.
    """
    if not POLICY_RULES[cast("PolicyName", problem.policy)].predicts:
        return _as_it_is(problem)
    load_s = max((rate.load_s for node in problem.nodes for rate in node.rates), default=0.0)
    expecting = _expecting(problem, AHEAD_S + load_s) if problem.newcomers else _as_it_is(problem)
    here = expecting.problem.groups[: expecting.num_here]
    paces = {load.slo: load.promised_token_s for load in problem.groups}  # promises of one kind are alike
    soon = [
        replace(group, promised_token_s=paces.get(group.slo, inf))
        for kind in problem.newcomers
        for group in expected(kind, NUM_LOADS * load_s, num_slices=1)
    ]
    decoded = list(decodes(problem.nodes, here, problem.now_s))
    later = [*decoded, *decodes(problem.nodes, soon, problem.now_s)]
    is_parted = not all(node.serves("decode") for node in problem.nodes)
    if not later:
        return dataclasses.replace(expecting, is_parted=is_parted)
    groups = [*expecting.problem.groups, *later]
    whole = replace(expecting.problem, groups=groups, queues=with_places(expecting.problem, later))
    names = frozenset(load.group for load in decoded)
    return Foresight(whole, expecting.num_here, expecting.members, names, is_parted)


def _as_it_is(problem: PlacementProblem) -> Foresight:
    return Foresight(problem, len(problem.groups), {})


def _expecting(problem: PlacementProblem, horizon_s: float) -> Foresight:
    coming = [group for kind in problem.newcomers for group in expected(kind, horizon_s, NUM_SLICES)]
    together: dict[object, list[GroupLoad]] = {}
    for load in problem.groups:
        runs = bool(load.num_running) and not load.num_waiting
        together.setdefault((load.node, load.model, load.slo, load.tenant) if runs else load.group, []).append(load)
    here = [_joined(loads) for loads in together.values()]
    members = {loads[0].group: [load.group for load in loads] for loads in together.values()}
    queues = {node: [name for name in queue if name in members] for node, queue in problem.queues.items()}
    return Foresight(replace(problem, groups=[*here, *coming], queues=queues), len(here), members)


def _joined(loads: Sequence[GroupLoad]) -> GroupLoad:
    """Groups that run together, under the name of the first; or one."""
    if len(loads) == 1:
        return loads[0]
    shape = mixed(loads[0].model, [(load, load.num_running) for load in loads])
    num_running = sum(load.num_running for load in loads)
    return replace(
        loads[0],
        mean_prompt_tokens=shape.mean_prompt_tokens,
        std_prompt_tokens=shape.std_prompt_tokens,
        mean_output_tokens=shape.mean_output_tokens,
        std_output_tokens=shape.std_output_tokens,
        kept_tokens=shape.kept_tokens,
        max_tokens=sum(load.num_running * load.max_tokens for load in loads) / num_running,
        deadline_s=min(load.deadline_s for load in loads),
        end_by_s=min(load.end_by_s for load in loads),
        rank=min(load.rank for load in loads),
        num_running=num_running,
        running_output_tokens=sum(load.running_output_tokens for load in loads),
        kv_tokens=sum(load.kv_tokens for load in loads),
    )


def _waits(instance: Instance, node: int, group: int) -> bool:
    one = instance.groups[group]
    return one.num_waiting > 0 or one.home != node
