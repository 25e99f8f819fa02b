"""Which nodes take a group in the phase in which it is, of the nodes as they are now."""

from __future__ import annotations

from collections.abc import Iterator

from services.queue_manager.state.group import Group
from services.queue_manager.state.node import Node
from services.queue_manager.state.state import State
from shared.estimator import phases
from shared.messages.nodes.nodes import Phase


def takes_phase(state: State, node: Node, model: str, needs: str, phase: Phase) -> bool:
    """As `shared.estimator.phases.takes_phase`."""
    if node.known.serves(phase):  # of each node, for each request that comes: the others need no look
        return True
    return phases.takes_phase(node.known, phase, model, needs, (one.known for one in state.nodes.values()))


def takes_group(state: State, node: Node, group: Group) -> bool:
    """Whether its engine can do what the group needs, and it serves the phase that the group is in."""
    is_able = group.needs not in node.known.lacks
    return is_able and takes_phase(state, node, group.model, group.needs, group.phase)


def note_hand_overs(state: State) -> list[Node]:
    """Nodes that hand over other models now than they did; `NodeState.hands_over` says so of each.

    To a node that is to load another model nothing is sent any more: what runs there ends, and then it does.
    """
    nodes = list(state.nodes.values())
    awaited = {node.node: node.awaits for node in nodes if node.awaits}
    changed = []
    for node, known in zip(nodes, phases.with_hand_overs([node.known for node in nodes], awaited), strict=True):
        if known is not node.known:
            node.known = known
            changed.append(node)
    return changed


def is_undecoded(state: State, node: Node) -> bool:
    """Whether what runs at a node that only prefills stays there for want of a node that has its model and decodes.

    Not where one of these is about to load it. O(nodes), of nodes that only prefill.
    """
    known = node.known
    if known.serves("decode") or not node.num_running or node.model in known.hands_over:
        return False
    able = [one for one in decoding(state) if one.known.can_serve(node.model, "")]
    return bool(able) and all(node.model not in (one.model, one.awaits) for one in able)


def read_ahead(state: State, models: list[str]) -> list[str]:
    """Those of these models whose KV a node that decodes them reads while their prompts are computed elsewhere."""
    readers = {node.model for node in decoding(state) if node.known.reads_ahead and not node.awaits}
    return [model for model in models if model in readers]


def decoding(state: State) -> Iterator[Node]:
    """Nodes that serve the second phase."""
    return (node for node in state.nodes.values() if node.known.serves("decode"))
