"""Copies of full blocks to the host as operators of their own, one a layer (NanoFlow, OSDI'25, §4.2.2)."""

from __future__ import annotations

from gpu_node.graph.passes.draft import Draft
from gpu_node.graph.program import Operator, OperatorKind, Program


def copy_out(program: Program) -> Program:
    """The layer's part of a step's ``copies_out``, behind all that this step does to the layer's blocks.

    For a pipeline, which puts it beside what follows; else copies come before everything, as all other moves do.
    """
    last = {operator.layer: index for index, operator in enumerate(program.operators) if operator.layer is not None}
    draft = Draft(program)
    layer: int | None = None  # whose copy is due, behind the poll
    for index, operator in enumerate(program.operators):
        if layer is not None and operator.kind is not OperatorKind.POLL:
            draft.add(Operator(OperatorKind.COPY_OUT, (), (), layer=layer))
            layer = None
        draft.add(operator)
        if operator.layer is not None and last[operator.layer] == index:
            layer = operator.layer
    assert layer is None, "behind the last layer's blocks the program goes on"
    return draft.program()
