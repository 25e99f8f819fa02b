"""Which kernel computes which kind of operator, of those that are launched alike."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch

from gpu_node.graph.program import Operator, OperatorKind
from gpu_node.kernels.triton import activations, norms, whole_texts
from gpu_node.kernels.triton.attention import attention

ACTIVATIONS: Mapping[OperatorKind, Callable[..., None]] = {
    OperatorKind.SILU_MUL: activations.silu_mul,
    OperatorKind.ERF_GELU_MUL: activations.erf_gelu_mul,
    OperatorKind.RELU: activations.relu,
    OperatorKind.GELU: activations.gelu,
    OperatorKind.ERF_GELU: activations.erf_gelu,
    OperatorKind.TANH: activations.tanh,
}
WITHOUT_WINDOW: Mapping[OperatorKind, Callable[..., None]] = {
    OperatorKind.PAGED_ATTENTION: attention.paged_attention,
    OperatorKind.BIDIRECTIONAL_ATTENTION: attention.bidirectional_attention,
}
NORMS: Mapping[OperatorKind, Callable[..., None]] = {
    OperatorKind.RMS_NORM: norms.rms_norm,
    OperatorKind.HEAD_NORM: norms.head_norm,
    OperatorKind.LAYER_NORM: norms.layer_norm,
}
JOINED_NORMS: Mapping[OperatorKind, Callable[..., None]] = {
    OperatorKind.RMS_NORM: norms.add_rms_norm,
    OperatorKind.LAYER_NORM: norms.add_layer_norm,
}
WITH_WINDOW: Mapping[OperatorKind, Callable[..., None]] = {
    OperatorKind.WINDOW_ATTENTION: attention.window_attention,
    OperatorKind.BIDIRECTIONAL_WINDOW_ATTENTION: attention.bidirectional_window_attention,
}
POOLS: Mapping[OperatorKind, Callable[..., None]] = {
    OperatorKind.SELECT_FIRST: whole_texts.select_first,
    OperatorKind.MEAN_POOL: whole_texts.mean_pool,
}


def norm_arguments(norm: Operator, weights: Mapping[str, torch.Tensor]) -> list[torch.Tensor | float | None]:
    """Weights of a norm, None for the bias of a layer norm without one, and epsilon."""
    lacks_bias = norm.kind is OperatorKind.LAYER_NORM and len(norm.weights) == 1
    return [*(weights[name] for name in norm.weights), *[None] * lacks_bias, norm.attributes["epsilon"]]


def feeds_norm(operator: Operator, follower: Operator) -> bool:
    """Whether ``operator`` adds to a buffer in place which ``follower`` then norms into another one."""
    return (
        operator.kind is OperatorKind.ADD
        and follower.kind in JOINED_NORMS
        and operator.share == follower.share
        and operator.outputs == operator.inputs[:1] == follower.inputs[:1] != follower.outputs
    )
