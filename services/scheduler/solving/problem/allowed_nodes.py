"""Which nodes a group may be placed at: by what they can serve, by the phase of its requests, by what a plan may do."""

from __future__ import annotations

from collections.abc import Sequence

from shared.estimator.phases import takes_phase
from shared.messages.nodes.nodes import NodeState
from shared.messages.nodes.placement import GroupLoad, Operations


def places(nodes: Sequence[NodeState], load: GroupLoad, operations: Operations) -> tuple[int, ...]:
    """Numbers of the nodes, in order; none where the group has to wait until a node has its model.

    What no node can serve may go everywhere, so that its clients are told at least. A running group of which
    some wait stays: no node could pull from it until all of it was handed over.
    """
    numbers = {node.node: number for number, node in enumerate(nodes)}
    if load.num_running and load.node in numbers and (load.num_waiting or not operations.migrate):
        return (numbers[load.node],)
    if load.kv_at in numbers and not (operations.migrate and operations.balance):
        return (numbers[load.kv_at],)
    if load.num_running and load.node in numbers:
        able = _able(nodes, load)
        return tuple(sorted({numbers[load.node], *_within(nodes, able, load, operations)}))
    if load.node in numbers and not operations.balance:
        return _within(nodes, [numbers[load.node]], load, operations)
    return _within(nodes, _able(nodes, load) or range(len(nodes)), load, operations)


def _able(nodes: Sequence[NodeState], load: GroupLoad) -> list[int]:
    """Those that can serve it; of these, those of its phase, if there is one."""
    able = [number for number, node in enumerate(nodes) if can_serve(node, load)]
    if load.wants_phase:
        return [number for number in able if nodes[number].serves(load.phase)]
    of_phase = [one for one in able if takes_phase(nodes[one], load.phase, load.model, load.needs, nodes)]
    return of_phase or able


def _within(
    nodes: Sequence[NodeState], numbers: Sequence[int], load: GroupLoad, operations: Operations
) -> tuple[int, ...]:
    """Those that need no other model than they have, where a swap is not allowed."""
    return tuple(number for number in numbers if operations.swap or nodes[number].model == load.model)


def can_serve(node: NodeState, load: GroupLoad) -> bool:
    """Whether the model could be loaded, as far as is known, and has room for keys and values."""
    has_room = all(rate.kv_tokens > 0 for rate in node.rates if rate.model == load.model)
    return node.can_serve(load.model, load.needs) and has_room
