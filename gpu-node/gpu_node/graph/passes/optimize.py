"""What a fast executor does to every program: passes after which no number of a draw is another."""

from __future__ import annotations

from gpu_node.graph.passes.early_draws import early_draws
from gpu_node.graph.passes.fuse import fuse
from gpu_node.graph.program import Program


def optimize(program: Program) -> Program:
    """Fewer rows in the last layer, then fewer operators."""
    return fuse(early_draws(program))
