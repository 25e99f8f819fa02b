"""OPT (Zhang et al., 2022), the sizes with the norm before each half of a layer: all but 350M."""

from __future__ import annotations

from gpu_node.graph.program import OperatorKind, Program
from gpu_node.models.architectures.layers.learned import build_learned
from gpu_node.models.config import ModelConfig


def build_opt(config: ModelConfig) -> Program:
    """The program of an OPT model.

    The files begin their table of positions with two rows that mean padding; they are left out when it is read.
    """
    return build_learned(config, OperatorKind.RELU)
