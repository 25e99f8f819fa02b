"""Programs of models that embed: all but the head, so that the result is the hidden state behind the last norm."""

from __future__ import annotations

from gpu_node.graph.program import OperatorKind, Program


def without_head(program: Program) -> Program:
    """``program``, as a builder makes it, up to what its head reads; weights and buffers of the head alone are gone."""
    *others, head = program.operators
    assert head.kind is OperatorKind.LINEAR, "the head is the last operator"
    assert head.outputs == (program.result,), "the head gives the result"
    weights = {name for operator in others for name in operator.weights}
    return Program(
        tuple(others),
        tuple(buffer for buffer in program.buffers if buffer.name != program.result),
        tuple(weight for weight in program.weights if weight.name in weights),
        head.inputs[0],
    )
