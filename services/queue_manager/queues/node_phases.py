"""Which nodes take a group in the phase in which it is, of the nodes as they are now."""

from __future__ import annotations

from services.queue_manager.state.group import Group
from services.queue_manager.state.node import Node
from services.queue_manager.state.state import State
from shared.estimator import phases
from shared.messages.nodes import Phase


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
    """Nodes that hand over other models now than they did; `NodeState.hands_over` says so of each."""
    nodes = list(state.nodes.values())
    changed = []
    for node, known in zip(nodes, phases.with_hand_overs([one.known for one in nodes]), strict=True):
        if known is not node.known:
            node.known = known
            changed.append(node)
    return changed
