"""Small placement problems, and a few words to write them with."""

from __future__ import annotations

from services.scheduler.placement import queue_cost, solve
from shared.messages import GroupLoad, NodeState, PlacementProblem, Plan

FAR_S = 1e6  # a deadline that nothing here can miss


def node(
    name: str = "n0", model: str = "a", tokens_per_s: float = 10.0, swap_s: float = 3.0, broken: str = ""
) -> NodeState:
    return NodeState(name, model, tokens_per_s, swap_s, [broken] if broken else [])


def load(
    group: str,
    model: str = "a",
    *,
    drain_s: float = 1.0,
    due_s: float = FAR_S,
    num_requests: int = 1,
    runs_on: str = "",
    waits_on: str = "",
) -> GroupLoad:
    """A group that takes a node of 10 tokens a second ``drain_s`` to serve."""
    return GroupLoad(group, model, due_s, num_requests, drain_s * 10, node=runs_on or waits_on, running=bool(runs_on))


def plan(nodes: list[NodeState], groups: list[GroupLoad], now_s: float = 0.0) -> Plan:
    return solve(PlacementProblem(version=1, now_s=now_s, nodes=nodes, groups=groups))


def total_cost(problem: PlacementProblem, queues: dict[str, list[str]]) -> float:
    """What an order of groups costs on all nodes together."""
    loads = {group.group: group for group in problem.groups}
    return sum(
        queue_cost(state, [loads[gid] for gid in queues[state.node]], problem.now_s).total for state in problem.nodes
    )
