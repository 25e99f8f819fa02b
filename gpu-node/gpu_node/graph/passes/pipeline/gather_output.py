"""Rows that are gathered around the product behind attention, not summed behind it (NanoFlow, OSDI'25, §4.1.2).

A device of a group has some heads. Either it multiplies them with their columns of the weight, and all devices add what
they get; or it has the heads of all devices gathered, makes some columns with its rows of the weight, and these are
gathered. The first moves twice as much behind the product, the second as much before it as behind.
"""

from __future__ import annotations

from dataclasses import replace

from gpu_node.graph.passes.draft import Draft
from gpu_node.graph.passes.pipeline.layer_roles import LayerRole, program_roles
from gpu_node.graph.program import Operator, OperatorKind, Program
from gpu_node.graph.share import Range, Share, share_of
from gpu_node.graph.weight import Weight
from shared.config.pipelines.pipeline_file import SEARCH_AGAIN, PipelineError


def gather_output(program: Program, gathered: Range) -> Program:
    """``gathered`` rows in the second way, those behind it in the first; one device's program stays as it is."""
    draft = Draft(program)
    rest = replace(gathered, start=gathered.start * 0, end=gathered.start)
    for operator, role in zip(program.operators, program_roles(program), strict=True):
        is_output = role is not None and role[0] is LayerRole.OUTPUT and operator.kind is OperatorKind.LINEAR
        is_sum = role is not None and role[0] is LayerRole.OUTPUT_SUM and operator.kind is OperatorKind.ALL_REDUCE
        if not is_output and not is_sum:
            draft.add(operator)
            continue
        if is_output:
            _gather(draft, operator, operator.share & share_of(gathered))
        summed = operator.share & share_of(rest)
        if summed.is_possible:
            draft.add(replace(operator, share=summed))
    return draft.program()


def _gather(draft: Draft, operator: Operator, share: Share) -> None:
    """The product on this share, between two gathers."""
    if not share.is_possible:
        return
    (heads,), (out,) = operator.inputs, operator.outputs
    weight, rank, world = _by_outputs(draft.weight(operator.weights[0]))
    has_heads, has_columns = draft.buffer(heads), draft.buffer(out)
    whole = draft.declare_buffer(
        replace(
            has_heads, name=f"{heads}.gathered", num_columns=has_heads.num_columns * world, view_of=None, first_column=0
        )
    )
    size, left = divmod(has_columns.num_columns, world)
    if left:
        raise PipelineError(
            f"{has_columns.num_columns} columns of {weight.name} do not divide among {world} devices, so no rows can "
            f"be gathered around it; {SEARCH_AGAIN}"
        )
    part = draft.declare_buffer(
        replace(has_columns, name=f"{out}.part", num_columns=size, view_of=None, first_column=0)
    )
    own = draft.declare_weight(weight.cut(0, rank * size, (rank + 1) * size))
    attributes = {"world": world}
    draft.add(Operator(OperatorKind.ALL_GATHER, (heads,), (whole,), attributes=attributes, share=share))
    draft.add(replace(operator, inputs=(whole,), outputs=(part,), weights=(own,), share=share))
    draft.add(Operator(OperatorKind.ALL_GATHER, (part,), (out,), attributes=attributes, share=share))


def _by_outputs(weight: Weight) -> tuple[Weight, int, int]:
    """The weight with all of its inputs; which part of them this device has, and of how many."""
    (first, end), whole = weight.sources[0].ranges[1], weight.sources[0].stored_shape[1]
    pieces = tuple(replace(piece, ranges=(piece.ranges[0], (0, whole))) for piece in weight.sources)
    name = weight.name.replace(f"[:, {first}:{end}]", "")
    return Weight(name, (weight.shape[0], whole), pieces), first // (end - first), whole // (end - first)
