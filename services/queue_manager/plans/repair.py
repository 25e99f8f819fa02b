"""A plan comes late: it tells what would have been best when it was asked for. What has happened since goes before it.

Gone groups and nodes are left out. A group that has KV at its node (it runs, or was evicted) stays there until that was
handed over. One that has started since stays in front: only a plan that knew it to run may have it yield. So does
one whose model its node has begun to load since: the plan counts with the model before, and by it the node would load
for nothing. A group that the plan does not know is put behind the planned ones, by rule.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from services.queue_manager.queues.virtual_queues import VirtualQueues
from services.queue_manager.state.group import Group
from services.queue_manager.state.node import Node
from services.queue_manager.state.state import State
from shared.messages.nodes.nodes import DECODE
from shared.messages.nodes.placement import ModelLoad


def apply(state: State, queues: VirtualQueues, planned: dict[str, list[str]], now: float) -> dict[str, str]:
    """Take over a plan; answers the nodes that groups with KV are to move to."""
    asked_running = set(state.plan.asked_running)
    fetched = {name: set(_fetched(state, node)) for name, node in state.nodes.items()}
    targets: dict[str, str] = {}
    for name, order in planned.items():
        node = state.nodes.get(name)
        if node is None:
            continue
        for gid in order:
            group = state.groups.get(gid)
            if group is None or group.node == name or gid in fetched.get(group.node, ()):
                continue
            if group.node and queues.holds_kv(group):
                if gid in asked_running or not group.running:
                    targets[gid] = name
            else:
                queues.move(group, node, now)
        _order(state, queues, node, order, fetched[name])
    return targets


def await_models(state: State, queues: VirtualQueues, loads: Iterable[ModelLoad]) -> None:
    """Take over which nodes are to load a model for those who come: where no request has come since that waits there.

    A node that only decodes has been sent nothing since it was told, and what is decoded elsewhere meanwhile would be a
    reason to go back: it loads what it was told, unless the plan names another model, or another node for that one. Who
    comes there late, with the model that is there, is served.
    """
    told = {load.node: load.model for load in loads}
    given = set(told.values())
    for name, node in state.nodes.items():
        model = told.get(name, "")
        has_changed = state.plan.asked_models.get(name, node.model) != node.model
        served: tuple[str, ...] = ()
        if node.known.phases == DECODE:
            if not model and node.awaits not in given:
                model, has_changed = node.awaits, False
            served = (node.model, model)
        has_waiting = any(group.waiting and group.model not in served for group in _queued(state, node))
        is_void = has_waiting or has_changed or model in (node.model, *node.known.broken_models)
        queues.await_model(node, "" if is_void else model)


def _queued(state: State, node: Node) -> Iterator[Group]:
    return (state.groups[gid] for gid in node.queue)


def note_asked(state: State, running: list[str]) -> None:
    """A plan is asked for, for these groups that run and what the nodes hold now."""
    state.plan.asked_running = running
    state.plan.asked_models = {node.node: node.model for node in state.nodes.values()}


def _fetched(state: State, node: Node) -> Iterator[str]:
    """Groups at the head of a queue for which its node has changed its model since the plan was asked for."""
    if state.plan.asked_models.get(node.node, node.model) == node.model:
        return
    for gid in node.queue:
        group = state.groups[gid]
        if group.model == node.model:
            yield gid
        elif group.waiting:
            return


def _order(state: State, queues: VirtualQueues, node: Node, planned: list[str], fetched: set[str]) -> None:
    known, asked_running = set(planned), set(state.plan.asked_running)
    started = {gid for gid in node.queue if state.groups[gid].running}
    stays = {gid for gid in started if gid not in known or gid not in asked_running}
    queues.order(node, stays | fetched, planned)
    head = next((place for place, gid in enumerate(node.queue) if state.groups[gid].num_waiting), len(node.queue))
    node.yielding = [gid for gid in node.queue[head + 1 :] if queues.may_evict and gid in started - stays]
