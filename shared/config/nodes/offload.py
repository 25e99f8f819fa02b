"""Which nodes may do attention for one another (Weaver, ATC'25)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import Field

from shared.config.engines.engine import NO_PIPELINE, EngineOptions, Name
from shared.config.nodes.nodes import NodeSpec
from shared.config.section import Section

MAX_RATIO = 0.9
"""Of a node's requests; the rest keeps its own device busy meanwhile."""

LINKED_KINDS = ("cpu", "cuda")
"""Of nodes whose engines have links."""


class OffloadOptions(Section):
    """Nodes that lend one another pages of KV memory. They share a machine and its shared memory (``/dev/shm``); nodes
    with NVIDIA devices see each other's, which reach one another."""

    hosts: list[Annotated[list[Name], Field(min_length=2)]] = Field(default_factory=list)
    """Nodes of one machine, one list a machine; nodes that are in none neither lend nor borrow."""
    ratio: Literal["auto"] | Annotated[float, Field(gt=0, le=MAX_RATIO)] = "auto"
    """Of the requests of a node that borrows, the share that lies elsewhere. ``auto`` follows both loads."""

    def host_of(self, node: str) -> tuple[str, ...]:
        """The other nodes of its machine that may weave with it; empty where it may not."""
        return next((tuple(one for one in host if one != node) for host in self.hosts if node in host), ())


NO_OFFLOAD = OffloadOptions()
"""No node lends."""


def lane_problems(engine: EngineOptions, cuda: str) -> list[str]:
    """What an NVIDIA device, that of node ``cuda``, does not do in the lanes of a pipeline."""
    if engine.pipeline == NO_PIPELINE or engine.offload == "off":
        return []
    return [
        f"engine.pipeline: {engine.pipeline!r} cannot run beside offload: {engine.offload!r} on an NVIDIA device "
        f"({cuda}), which has no links in lanes; set one of them to off"
    ]


def offload_problems(offload: OffloadOptions, nodes: Sequence[NodeSpec], *, is_on: bool) -> list[str]:
    """What is wrong with it in a cluster of these nodes; ``is_on``: their engines have links."""
    known = {node.name: node for node in nodes}
    problems = []
    if offload.hosts and not is_on:
        problems.append("offload.hosts: engines have no links; set engine.offload to 'on' or 'ahead', or leave it out")
    if not offload.hosts and offload.ratio != "auto":
        problems.append("offload.ratio: nobody may lend; name the nodes of a machine in offload.hosts, or leave it out")
    seen: set[str] = set()
    for number, host in enumerate(offload.hosts):
        place = f"offload.hosts.{number}"
        for name in host:
            if name in seen:
                problems.append(f"{place}: {name!r} is there twice; a node is on one machine")
            elif name not in known:
                problems.append(f"{place}: {name!r} is no node (nodes: {', '.join(known)}); nodes of pools come and go")
            elif known[name].kind not in LINKED_KINDS:
                kind = known[name].kind
                problems.append(f"{place}: {name!r} computes with {kind}; links are between executor: cpu or cuda")
            seen.add(name)
        kinds = {known[name].kind for name in host if name in known}
        if kinds == set(LINKED_KINDS):
            problems.append(f"{place}: nodes with executor: cpu and with executor: cuda share no memory; name one kind")
    return problems
