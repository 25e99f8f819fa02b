"""The program of a model for what it is served for."""

from __future__ import annotations

from gpu_node.graph.program import Program
from gpu_node.models.architectures.encoder import build_classifier, build_encoder
from gpu_node.models.architectures.families import build_program
from gpu_node.models.checkpoint import Checkpoint
from gpu_node.models.pooling.pair_separator import pair_separator
from gpu_node.models.pooling.pooling import check_causal, check_pooling, classifier_pooling, encoder_pooling
from gpu_node.models.pooling.score_head import check_labels, label_head, score_head
from shared.config.engines.engine import ModelSpec
from shared.files.encoder import encoder_task_problem
from shared.files.model_file import ModelFileError


def served_program(spec: ModelSpec, checkpoint: Checkpoint) -> Program:
    """As its builder makes it. `ModelFileError` where the model embeds, or scores, in a way that is not supported."""
    if checkpoint.config.is_encoder:
        return _encoder_program(spec, checkpoint)
    if spec.task == "embed":
        check_pooling(checkpoint)
    if spec.task in ("generate", "embed"):
        return build_program(checkpoint.config, spec.task)
    check_causal(checkpoint, f"task: {spec.task} takes the last token's logits alone")
    head = score_head(checkpoint, spec.score) if spec.task == "score" else label_head(checkpoint)
    return build_program(checkpoint.config, spec.task, head)


def _encoder_program(spec: ModelSpec, checkpoint: Checkpoint) -> Program:
    if problem := encoder_task_problem(spec):
        raise ModelFileError(f"{checkpoint.path}: {problem}")
    if spec.task == "embed":
        program = build_encoder(checkpoint.config, encoder_pooling(checkpoint))
    elif spec.task == "score":
        check_labels(checkpoint)
        separator, pooling = pair_separator(checkpoint), classifier_pooling(checkpoint)
        program = build_classifier(checkpoint.config, 1, separator, pooling)
    else:
        num_labels, pooling = label_head(checkpoint).shape[0], classifier_pooling(checkpoint)
        program = build_classifier(checkpoint.config, num_labels, pooling=pooling)
    program.check()
    return program
