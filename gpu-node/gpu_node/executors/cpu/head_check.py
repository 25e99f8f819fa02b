"""What the CPU device refuses of a model's heads, in words, before its weights are read."""

from __future__ import annotations

from gpu_node.kernels.cpu.library.layout import MAX_HEAD_DIM, MAX_QUERIES
from gpu_node.models.checkpoint import Checkpoint
from shared.files.model_file import ModelFileError


def check_heads(checkpoint: Checkpoint) -> None:
    """`ModelFileError` for a model whose attention has no kernel there (`gpu-node/csrc/attention.cpp`)."""
    config = checkpoint.config
    num_shared = config.num_heads // config.num_kv_heads
    if config.head_dim % 2 or config.head_dim > MAX_HEAD_DIM:
        problem = f"heads of {config.head_dim} numbers; it takes even ones of at most {MAX_HEAD_DIM}"
    elif num_shared > MAX_QUERIES:
        problem = f"{num_shared} heads that share one of keys and values; it takes {MAX_QUERIES} at most"
    else:
        return
    raise ModelFileError(f"{checkpoint.path}: the cpu executor has no kernel for {problem}; the reference executor has")
