"""GPT-2 (Radford et al., 2019).

Its files hold queries, keys and values as one matrix, [inputs, outputs]; it is taken apart when it is read.
"""

from __future__ import annotations

from gpu_node.graph.program import OperatorKind, Program
from gpu_node.models.architectures.layers.learned import build_learned
from gpu_node.models.config import ModelConfig


def build_gpt2(config: ModelConfig) -> Program:
    """The program of a GPT-2 model."""
    return build_learned(config, OperatorKind.GELU)
