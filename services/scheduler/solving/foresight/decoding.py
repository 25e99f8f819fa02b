"""What is to be decoded elsewhere, as groups of a plan: so that nodes that decode are given the models that are wanted.

A request whose prompt is computed at a node that only prefills leaves it, as soon as a node that decodes has its model
(DistServe, OSDI'24 §3). Until then it is decoded where it is: it does not wait, and so a plan would never see that
another model is wanted there. Hence every group that leaves such a node, or would, and those that are expected there
soon, stand in the problem a second time, as what they will be behind their prompts: requests that wait with their KV,
for the rest of their answers, with what was promised of these. To the search they are groups like all others: their
places are nodes that decode, each with its own times and its own model, and loads, lateness and work weigh as they
always do (`cost`). No node is told of them. But where the first that waits at a node is one of them and of another
model, the node is to load that (`Plan.loads`): nothing of the model before is sent there any more, what runs there
ends, and then it is loaded.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import inf, isinf

from msgspec.structs import replace

from services.scheduler.solving.problem.allowed_nodes import can_serve
from shared.estimator.answer import NUM_ALIKE
from shared.estimator.batching import longest_tokens, takes_kv
from shared.messages.nodes.nodes import NodeState
from shared.messages.nodes.placement import GroupLoad, PlacementProblem
from shared.messages.requests.requests import HANDED_OVER
from shared.messages.requests.slo import UNBOUNDED_S


def decodes(nodes: Sequence[NodeState], loads: Iterable[GroupLoad], now_s: float) -> Iterator[GroupLoad]:
    """For each group that others will decode, or would if they had its model, what they will have of it.

    None where all nodes serve both phases. O(nodes x groups).
    """
    prefilling = [node for node in nodes if not node.serves("decode")]
    if not prefilling:
        return
    for load in loads:
        giver = _giver(prefilling, nodes, load)
        if giver is not None and any(_could_take(giver, node, load) for node in nodes):
            yield decode_of(load, now_s)


def with_places(problem: PlacementProblem, decodes: Sequence[GroupLoad]) -> dict[str, list[str]]:
    """The queues of a problem with each of these at a node that decodes its model, or is about to; evenly, in order.

    So a search starts from what nodes were told, and has them load other models only where that is known to gain.
    """
    awaited = {load.node: load.model for load in problem.awaits}
    takers: dict[str, list[str]] = {}
    for node in problem.nodes:
        if node.serves("decode"):
            takers.setdefault(awaited.get(node.node) or node.model, []).append(node.node)
    queues = dict(problem.queues)
    for number, load in enumerate(decodes):
        names = takers.get(load.model)
        if names:
            name = names[number % len(names)]
            queues[name] = [*queues.get(name, ()), load.group]
    return queues


def decode_of(load: GroupLoad, now_s: float) -> GroupLoad:
    """What is left of a group behind its prompts, as a group that was handed over and waits."""
    num_requests = load.num_requests
    rest_tokens = load.num_waiting * load.mean_output_tokens + load.running_output_tokens
    kv_tokens = load.kv_tokens + load.num_waiting * load.mean_prompt_tokens
    decode = replace(
        load,
        group=f"{load.group} decode",
        node="",
        rank=inf,  # behind those who are there
        num_waiting=num_requests,
        num_running=0,
        mean_prompt_tokens=0.0,
        std_prompt_tokens=0.0,
        mean_output_tokens=rest_tokens / num_requests,
        running_output_tokens=0.0,
        kv_at=HANDED_OVER,
        kv_tokens=kv_tokens,
        kept_tokens=kv_tokens / num_requests,
        warm_at="",
        warm_tokens=0.0,
        found_tokens=None,
        deadline_s=now_s + UNBOUNDED_S,
        wants_phase=True,
    )
    return replace(decode, end_by_s=_end_by_s(load, decode, now_s))


def _end_by_s(load: GroupLoad, decode: GroupLoad, now_s: float) -> float:
    """When it must have ended, by its end or by its pace: a long one of its kind, from its first token on."""
    if load.end_by_s or isinf(load.promised_token_s):
        return load.end_by_s
    first_s = max(load.deadline_s, now_s) if load.num_waiting else now_s
    limit = decode.max_tokens
    tokens = longest_tokens(decode.mean_output_tokens, decode.std_output_tokens, NUM_ALIKE, limit)
    return first_s + tokens * load.promised_token_s


def _giver(prefilling: Sequence[NodeState], nodes: Sequence[NodeState], load: GroupLoad) -> NodeState | None:
    """The node that computes its prompts and only that, or one that might; None where they are decoded where they are.

    Who came with KV has left such a node already.
    """
    if load.phase == "decode":
        return None
    if load.node:
        return next((node for node in prefilling if node.node == load.node), None)
    holders = [node for node in nodes if node.model == load.model]
    return next((node for node in holders or prefilling if not node.serves("decode")), None)


def _could_take(giver: NodeState, node: NodeState, load: GroupLoad) -> bool:
    return node.serves("decode") and can_serve(node, load) and takes_kv(giver, node, load.model)
