"""Small placement problems whose numbers are plain: a node that runs one request at a time, 10 tokens a second.

There a group takes its output tokens / 10 seconds, a swap 3 seconds, and nothing overlaps.
"""

from __future__ import annotations

from services.scheduler.placement import solve
from shared.messages.nodes.nodes import NodeState
from shared.messages.nodes.placement import GroupLoad, Operations, PlacementProblem, Plan
from shared.messages.nodes.step_cost import ModelRate, StepCost

FAR_S = 1e6  # a deadline that nothing here can miss
SWAP_S = 3.0
TOKENS_PER_S = 10.0
KV_TOKEN_BYTES = 1_000


def node(name: str = "n0", model: str = "a", *, speed: float = 1.0, broken: str = "", num_seqs: int = 1) -> NodeState:
    """A node that serves any model, ``speed`` times as fast as the others."""
    cost = StepCost(step_s=0.0, token_s=1 / (TOKENS_PER_S * speed), context_token_s=0.0)
    return NodeState(
        name,
        model,
        swap_s=SWAP_S,
        broken_models=[broken] if broken else [],
        max_num_seqs=num_seqs,
        kv_bytes_per_s=1e6,
        rates=[
            ModelRate(
                each, cost, kv_tokens=10**9, kv_token_bytes=KV_TOKEN_BYTES, load_s=0.0 if each == model else SWAP_S
            )
            for each in "abc"
        ],
    )


def load(
    group: str,
    model: str = "a",
    *,
    drain_s: float = 1.0,
    due_s: float = FAR_S,
    num_requests: int = 1,
    node: str = "",
    slo: str = "batch",
    rank: float = 0.0,
    kv_at: str = "",
    kv_tokens: float = 0.0,
    max_tokens: float = 0.0,
) -> GroupLoad:
    """A group that waits, and takes a node ``drain_s`` to serve."""
    return GroupLoad(
        group,
        due_s,
        model=model,
        node=node,
        slo=slo,
        rank=rank,
        num_waiting=num_requests,
        mean_output_tokens=drain_s * TOKENS_PER_S / num_requests,
        max_tokens=max_tokens,
        kv_at=kv_at,
        kv_tokens=kv_tokens,
    )


def running(
    group: str,
    node: str,
    model: str = "a",
    *,
    rest_s: float = 1.0,
    due_s: float = FAR_S,
    num_requests: int = 1,
    kv_s: float = 0.0,
    slo: str = "batch",
    rank: float = 0.0,
) -> GroupLoad:
    """A group of which every member runs; they need ``rest_s`` together, and ``kv_s`` to be moved out or in."""
    return GroupLoad(
        group,
        due_s,
        model=model,
        node=node,
        slo=slo,
        rank=rank,
        num_running=num_requests,
        mean_output_tokens=TOKENS_PER_S,
        running_output_tokens=rest_s * TOKENS_PER_S,
        kv_tokens=kv_s * 1e6 / KV_TOKEN_BYTES,
    )


def plan(
    nodes: list[NodeState],
    groups: list[GroupLoad],
    now_s: float = 0.0,
    *,
    policy: str = "qlm",
    queues: dict[str, list[str]] | None = None,
    operations: Operations = Operations(),  # noqa: B008 (frozen)
) -> Plan:
    """What `solve` answers."""
    return solve(
        PlacementProblem(
            version=1,
            now_s=now_s,
            nodes=nodes,
            groups=groups,
            policy=policy,
            queues=queues or {},
            operations=operations,
        )
    )
