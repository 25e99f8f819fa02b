"""Which kinds of operators the CPU device lets read or write bfloat16."""

from __future__ import annotations

from gpu_node.graph.program import PRODUCTS, OperatorKind

READS_BFLOAT16 = PRODUCTS | {OperatorKind.EXPERTS, OperatorKind.LORA}
"""Operators that read their first input as bfloat16."""

WRITES_BFLOAT16 = {
    OperatorKind.RMS_NORM,
    OperatorKind.LAYER_NORM,
    OperatorKind.PAGED_ATTENTION,
    OperatorKind.WINDOW_ATTENTION,
    OperatorKind.BIDIRECTIONAL_ATTENTION,
    OperatorKind.BIDIRECTIONAL_WINDOW_ATTENTION,
    OperatorKind.GATHER,
    OperatorKind.SILU_MUL,
    OperatorKind.ERF_GELU_MUL,
    OperatorKind.GATED_LINEAR,
    OperatorKind.RELU,
    OperatorKind.GELU,
    OperatorKind.ERF_GELU,
    OperatorKind.TANH,
}
"""Operators that can write bfloat16."""
