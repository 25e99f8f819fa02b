"""Whether this process may run on the CPUs that a node names."""

from __future__ import annotations

import os

from shared.config.nodes.nodes import NodeSpec


def cpu_problem(node: NodeSpec) -> str:
    """Why the node's threads cannot be pinned as it says; ``""`` if they can be."""
    if not node.cpus:
        return ""
    if not hasattr(os, "sched_getaffinity"):
        return "this system cannot pin threads; leave cpus empty"
    ours = os.sched_getaffinity(0)
    others = sorted(set(node.cpus) - ours)
    if not others:
        return ""
    named, allowed = ", ".join(map(str, others)), ", ".join(map(str, sorted(ours)))
    return f"cpus names {named}, but this process may run on {allowed} only"
