"""Prefill and decoding on different nodes: who takes a request in which phase, and when it is worth changing the node.

A prompt fills the device with rows; drawing tokens reads memory, and waits for every prompt that comes between. On
nodes of their own neither holds up the other (DistServe, OSDI'24 §3; Splitwise, ISCA'24 §4): a request leaves the node
that has computed its prompt with its KV, and goes on where only tokens are drawn.

Phases say where a request goes first of all, not what a node can do: of the nodes that have a model, those of the phase
do it, and where none of them is of the phase, all of them do. So nothing waits for a node that has gone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from shared.estimator.batching import rate_of, takes_kv
from shared.estimator.hand_over import hand_over_cost
from shared.messages.nodes.nodes import NodeState, Phase

MIN_REST_TOKENS = 2
"""With one left it ends with the step that runs."""


def takes_phase(node: NodeState, phase: Phase, model: str, needs: str, nodes: Iterable[NodeState]) -> bool:
    """Whether requests of a model may go to this one of all ``nodes``, as far as their phase is concerned.

    ``needs`` as in `Submit`: a node that lacks it does nothing for them.
    """
    if node.serves(phase):
        return True
    has_others = any(one.serves(phase) and _has(one, model) and needs not in one.lacks for one in nodes)
    return _has(node, model) and not has_others


def decoded_elsewhere(node: NodeState, nodes: Iterable[NodeState]) -> list[str]:
    """Models that others of ``nodes`` decode with the KV of this one, which does not decode; in order."""
    if node.serves("decode"):
        return []
    others = (one for one in nodes if one.serves("decode") and _has(one, one.model))
    return sorted({one.model for one in others if takes_kv(node, one, one.model)})


def with_hand_overs(nodes: Sequence[NodeState], awaited: Mapping[str, str]) -> list[NodeState]:
    """The same, each with what it hands over while the others are as they are.

    ``awaited``: by node, the model that it is to load as soon as nothing runs there. Nothing is sent there any more.
    """
    staying = [node for node in nodes if not awaited.get(node.node)]
    found = []
    for node in nodes:
        models = decoded_elsewhere(node, staying)
        found.append(node if models == node.hands_over else replace(node, hands_over=models))
    return found


def is_worth_moving(node: NodeState, model: str, kv_tokens: int, rest_tokens: int) -> bool:
    """Whether a request with so many tokens to draw at most is elsewhere before it could have ended at this node.

    ``kv_tokens``: that it has. Its taker is like this node, as far as is known here.
    """
    move_s = hand_over_cost(node, node, model, kv_tokens, 1).move_s
    return rest_tokens >= MIN_REST_TOKENS and move_s <= rest_tokens * rate_of(node, model).cost.step_s


def _has(node: NodeState, model: str) -> bool:
    return bool(model) and node.model == model and not node.is_loading
