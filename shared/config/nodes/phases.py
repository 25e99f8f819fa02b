"""What does not go with nodes that prefill and nodes that decode: no KV to hand over, phases that no node serves."""

from __future__ import annotations

from collections.abc import Sequence

from shared.config.engines.engine import EngineOptions
from shared.config.nodes.nodes import NodePool, NodeSpec, ScalingOptions
from shared.config.nodes.offload import OffloadOptions
from shared.messages.nodes.nodes import AUTO, BOTH, PREFILL

_WANTED = {PREFILL: "decodes", AUTO: "follows the load or serves one phase"}
"""Of a node with these phases, what another one has to do; one that decodes wants one that only prefills."""


def phase_problems(
    nodes: Sequence[NodeSpec],
    pools: Sequence[NodePool],
    engine: EngineOptions,
    offload: OffloadOptions,
    scaling: ScalingOptions,
) -> list[str]:
    """One line each."""
    weaving = {name for host in offload.hosts for name in host}
    are_sized = scaling.provider != "none"
    named: list[tuple[str, NodeSpec | NodePool]] = [
        *((f"nodes.{number}.phases", node) for number, node in enumerate(nodes)),
        *((f"pools.{number}.phases", pool) for number, pool in enumerate(pools)),
    ]
    problems = []
    for place, node in named:
        if node.phases == BOTH:
            continue
        told = f"{place}: {node.name!r} ({node.phases})"
        if not _moves_kv(node):
            what = "vllm.kv: recompute" if node.kind == "vllm" else f"tensor_parallel: {node.tensor_parallel}"
            remedy = "set vllm.kv: host" if node.kind == "vllm" else "set it to 1"
            problems.append(f"{told} hands over no KV with {what}; {remedy}, or phases: both")
        elif not any(_fits(node, other) for _, other in named):
            other = _WANTED.get(node.phases, "only prefills")
            problems.append(f"{told} has no other node with {_kind(node)} that {other}; add one, or set phases: both")
        if are_sized and isinstance(node, NodePool) and node.min_nodes < node.max_nodes:
            problems.append(
                f"{told} is sized by requests as they come, not by their phases; set min_nodes to max_nodes"
            )
        if node.name in weaving:
            problems.append(f"{told} is in offload.hosts, whose nodes serve both phases; leave one of them out")
    if not engine.evicted_kv_bytes and any(node.phases != BOTH for _, node in named):
        problems.append(
            "engine.evicted_kv_bytes: 0 leaves no room for KV that goes from nodes that prefill to nodes that decode; "
            "raise it, or set phases: both"
        )
    return problems


def _moves_kv(node: NodeSpec | NodePool) -> bool:
    """Whether requests can leave it, and come to it, with their KV."""
    return node.keeps_kv if node.kind == "vllm" else node.tensor_parallel == 1


def _fits(node: NodeSpec | NodePool, other: NodeSpec | NodePool) -> bool:
    """Whether KV goes between the two, as far as a configuration tells: blocks of another kind are cut otherwise.

    Nodes of a pool that follows the load do the one or the other, where it has several.
    """
    if node.phases == AUTO:
        is_pair = other.phases != BOTH and (other is not node or _has_several(node))
    else:
        is_pair = other is not node and (other.phases == AUTO or (node.phases == PREFILL) != (other.phases == PREFILL))
    return is_pair and other.kind == node.kind and _moves_kv(other)


def _has_several(node: NodeSpec | NodePool) -> bool:
    return isinstance(node, NodePool) and node.max_nodes > 1


def _kind(node: NodeSpec | NodePool) -> str:
    return "engine: vllm and vllm.kv: host" if node.kind == "vllm" else f"executor: {node.executor}"
