"""For how much of the time a node is kept from a model by urgent newcomers of another one.

Who cannot wait for the work of another model has its node change to its own at once, and the others wait until nobody
of it is there. Requests that come at λ a second and take D each keep a node busy with themselves as in M/G/∞, where
λ D of them are there on average, Poisson distributed, and somebody is with a probability of (L. Takács, Introduction to
the Theory of Queues, 1962, ch. 3) ::

    1 - exp(-λ D)

which is far more than the work that they are, λ of a full batch's time for one of them: a batch of one takes the whole
node. D has the change of the model and back in it. They come to the nodes that hold their model; where none does at the
moment, to the one that did last: the work of others has been placed elsewhere on their account, so they go on there.
"""

from __future__ import annotations

from collections import Counter

from services.queue_manager.groups.groups import RequestGroups
from services.queue_manager.learnt.arrivals import Coming
from services.queue_manager.state.state import Node, State
from shared.estimator.batching import Batching, batching
from shared.estimator.estimator import swap_s
from shared.messages.nodes import NodeState
from shared.messages.placement import Interruption

INTERRUPTS_S = 30.0  # who has to start within this does not wait for the turn of its model
LEAST_PRESENT = 0.01  # fewer than this are not told: most of many models are asked for now and then


def interruptions(state: State, groups: RequestGroups, now: float) -> list[Interruption]:
    """Of all nodes, where several models are asked for; O(nodes x urgent kinds)."""
    models = dict.fromkeys(flow.model for flow in state.flows.values())
    if len(models) < 2:
        return []
    flows = [one for model in models for one in groups.expected_newcomers(model)]
    coming = [(shape, flow.slo_kind, groups.coming(flow, now)) for shape, flow in flows]
    urgent = [one for one in coming if one[2].patience_s <= INTERRUPTS_S]
    holders = Counter(node.model for node in state.nodes.values())
    works: dict[tuple[str, str, str], Batching] = {}
    found = []
    for node in state.nodes.values():
        for shape, slo_kind, one in urgent:
            per_s = one.rate_per_s * _part(state, node, shape.model, holders[shape.model])
            if per_s and shape.model not in node.known.broken_models:
                key = (node.known.device, shape.model, slo_kind)
                if key not in works:
                    works[key] = batching(node.known, shape)
                number = _num_present(per_s, works[key], swap_s(node.known, "", shape.model))
                if number >= LEAST_PRESENT:
                    found.append(Interruption(node.node, shape.model, number, one.patience_s))
    return found


def num_present(state: State, node: Node, known: NodeState, model: str, work: Batching, coming: Coming) -> float:
    """λ D of what comes of a model to a node; 0.0 where it does not come there, or can wait."""
    if coming.patience_s > INTERRUPTS_S:
        return 0.0
    num_holders = sum(other.model == model for other in state.nodes.values())
    per_s = coming.rate_per_s * _part(state, node, model, num_holders)
    return _num_present(per_s, work, swap_s(known, "", model))


def _num_present(per_s: float, work: Batching, load_s: float) -> float:
    """In a batch of as many as would be there if each was alone."""
    together = min(work.batch, max(1.0, per_s * _answer_s(work, 1.0)))
    return per_s * (2 * load_s + _answer_s(work, together))


def _answer_s(work: Batching, num_running: float) -> float:
    return work.first_token_at(num_running) + (work.output_tokens - 1) * work.token_at(num_running)


def _part(state: State, node: Node, model: str, num_holders: int) -> float:
    """Of those who come for a model, those who come to this node."""
    if num_holders:
        return (node.model == model) / num_holders
    last = state.last_holders.get(model)
    return float(last == node.node) if last in state.nodes else 1 / len(state.nodes)
