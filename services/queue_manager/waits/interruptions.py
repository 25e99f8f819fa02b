"""For how much of the time a node is kept from a model by urgent newcomers of another one.

A request that cannot wait for the work of another model has its node change to its own at once, and the others wait
until none of it is there. Requests that come at λ a second and take D each keep a node busy with themselves as in
M/G/∞, where λ D of them are there on average, Poisson distributed, and one is with a probability of (L. Takács,
Introduction to the Theory of Queues, 1962, ch. 3) ::

    1 - exp(-λ D)

which is far more than the work that they are, λ of a full batch's time for one of them: a batch of one takes the whole
node. D has the change of the model and back in it. To which nodes they come: `arriving_share`.
"""

from __future__ import annotations

from services.queue_manager.groups.groups import RequestGroups
from services.queue_manager.state.state import State
from services.queue_manager.waits.arriving_share import arriving_shares
from shared.estimator.batching import Batching, batching
from shared.estimator.estimator import swap_s
from shared.messages.nodes.nodes import NodeState, Phases
from shared.messages.nodes.placement import Interruption

INTERRUPTS_S = 30.0  # a request that has to start within this does not wait for the turn of its model
LEAST_PRESENT = 0.01  # fewer than this are not told: most of many models are asked for now and then


def interruptions(state: State, groups: RequestGroups, now: float) -> list[Interruption]:
    """Of all nodes, where several models are asked for; O(nodes x urgent kinds)."""
    models = dict.fromkeys(flow.model for flow in state.flows.values())
    if len(models) < 2:
        return []
    found = []
    for shape, flow in (one for model in models for one in groups.expected_newcomers(model)):
        coming = groups.coming(flow, now)
        if coming.patience_s > INTERRUPTS_S or not coming.rate_per_s:
            continue
        works: dict[tuple[str, Phases], Batching] = {}
        for name, share in arriving_shares(state, shape).items():
            known = state.nodes[name].known
            kind = known.device, known.phases
            if kind not in works:
                works[kind] = batching(known, shape)
            per_s = share * coming.rate_per_s
            number = num_present(known, shape.model, works[kind], coming.patience_s, per_s)
            if number >= LEAST_PRESENT:
                found.append(Interruption(name, shape.model, number, coming.patience_s))
    return found


def num_present(known: NodeState, model: str, work: Batching, patience_s: float, per_s: float) -> float:
    """λ D of what comes of a model to a node, in a batch of as many as would be there if each was alone.

    0.0 where it can wait.
    """
    if patience_s > INTERRUPTS_S:
        return 0.0
    together = min(work.batch, max(1.0, per_s * _answer_s(work, 1.0)))
    return per_s * (2 * swap_s(known, "", model) + _answer_s(work, together))


def _answer_s(work: Batching, num_running: float) -> float:
    return work.first_token_at(num_running) + (work.output_tokens - 1) * work.token_at(num_running)
