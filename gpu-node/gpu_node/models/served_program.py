"""The program of a model for what it is served for."""

from __future__ import annotations

from gpu_node.graph.program import Program
from gpu_node.models.architectures.families import build_program
from gpu_node.models.checkpoint import Checkpoint
from gpu_node.models.pooling import check_causal, check_pooling
from gpu_node.models.score_head import score_head
from shared.config.engine import ModelSpec


def served_program(spec: ModelSpec, checkpoint: Checkpoint) -> Program:
    """As its builder makes it. `ModelFileError` where the model embeds, or scores, in a way that is not supported."""
    if spec.task == "embed":
        check_pooling(checkpoint)
    if spec.task != "score":
        return build_program(checkpoint.config, spec.task)
    check_causal(checkpoint, "task: score takes the last token's logits alone")
    return build_program(checkpoint.config, spec.task, score_head(checkpoint, spec.score))
