"""Programs of models that embed: all but the head, so that the result is the hidden state behind the last norm. And of
models that score: with a head of a few rows in its place."""

from __future__ import annotations

from dataclasses import replace

from gpu_node.graph.program import Operator, OperatorKind, Program
from gpu_node.graph.weight import Weight


def without_head(program: Program) -> Program:
    """``program``, as a builder makes it, up to what its head reads; weights and buffers of the head alone are gone."""
    others, head = _split(program)
    weights = {name for operator in others for name in operator.weights}
    return Program(
        others,
        tuple(buffer for buffer in program.buffers if buffer.name != program.result),
        tuple(weight for weight in program.weights if weight.name in weights),
        head.inputs[0],
    )


def with_head(program: Program, matrix: Weight) -> Program:
    """``program``, as a builder makes it, with another head: its result is as wide as ``matrix`` [outputs, hidden size]
    has outputs."""
    _, head = _split(program)
    result = next(buffer for buffer in program.buffers if buffer.name == program.result)
    headless = without_head(program)
    return Program(
        (*headless.operators, replace(head, weights=(matrix.name,))),
        (*headless.buffers, replace(result, num_columns=matrix.shape[0])),
        (*headless.weights, matrix),
        program.result,
    )


def _split(program: Program) -> tuple[tuple[Operator, ...], Operator]:
    *others, head = program.operators
    assert head.kind is OperatorKind.LINEAR, "the head is the last operator"
    assert head.outputs == (program.result,), "the head gives the result"
    return tuple(others), head
