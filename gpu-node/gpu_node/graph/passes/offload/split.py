"""Long operators cut into short ones, so that what polls behind them waits less (Weaver, ATC'25, §4.2).

Operators with a weight are cut by columns of their output, attention by sequences. A sum is made within one column of
one row, so no number changes where each is made by a chain of operations of its own, as on the CPU device.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise

from gpu_node.graph.passes.draft import Draft
from gpu_node.graph.program import ATTENTIONS, PRODUCTS, Operator, OperatorKind, Program
from gpu_node.graph.weight import joined

COLUMN_UNIT = 32
"""Cuts lie at multiples of this, the outputs that a device makes together (kPanelColumns of the CPU device)."""

SplitPlan = Mapping[int, int]
"""For operators by their index in the program, into how many parts they are cut."""


class UnsplittableError(ValueError):
    """A plan asks for something that this pass cannot cut; the text says what, and what can be."""


def is_splittable(operator: Operator) -> bool:
    """Whether an operator can be cut: products and attention, whatever their share of the batch is."""
    return operator.kind in PRODUCTS | ATTENTIONS


def even_plan(program: Program, num_parts: int) -> SplitPlan:
    """Everything that can be cut, into the same number of parts."""
    return {index: num_parts for index, operator in enumerate(program.operators) if is_splittable(operator)}


def split_operators(program: Program, plan: SplitPlan) -> Program:
    """Cut operators as ``plan`` says; those with fewer columns than that give fewer parts. `UnsplittableError`."""
    draft = Draft(program)
    for index in plan:
        if not 0 <= index < len(program.operators) or plan[index] < 1:
            raise UnsplittableError(f"operator {index} in {plan[index]} parts: there are {len(program.operators)}")
    for index, operator in enumerate(program.operators):
        num_parts = plan.get(index, 1)
        if num_parts == 1:
            draft.add(operator)
        elif not is_splittable(operator):
            kinds = ", ".join(sorted(PRODUCTS | ATTENTIONS))
            raise UnsplittableError(f"operator {index}, {operator.kind}, cannot be cut; these can: {kinds}")
        elif operator.kind in ATTENTIONS:
            for number in range(num_parts):
                draft.add(replace(operator, share=operator.share.cut(number, num_parts)))
        else:
            _split_product(draft, operator, num_parts)
    return draft.program()


def _split_product(draft: Draft, operator: Operator, num_parts: int) -> None:
    (output,) = operator.outputs
    num_columns = draft.buffer(output).num_columns
    cuts = column_cuts(num_columns, num_parts)
    for first, end in pairwise(cuts):
        columns = draft.columns(output, first, end - first)
        inputs = operator.inputs
        if operator.kind is OperatorKind.LINEAR_ADD:  # it adds to the columns that it writes
            inputs = (*inputs[:-1], columns)
        weights = tuple(_cut_weight(draft, operator, name, first, end) for name in operator.weights)
        draft.add(replace(operator, inputs=inputs, outputs=(columns,), weights=weights))


def _cut_weight(draft: Draft, operator: Operator, name: str, first: int, end: int) -> str:
    """The rows of a weight, or of a bias, that make columns [first, end) of the output."""
    weight = draft.weight(name)
    if operator.kind is not OperatorKind.GATED_LINEAR:
        return draft.declare_weight(weight.cut(0, first, end))
    half = weight.shape[0] // 2
    both = (weight.cut(0, first, end), weight.cut(0, half + first, half + end))
    return draft.declare_weight(joined(f"{name}[{first}:{end}]", both))


def column_cuts(num_columns: int, num_parts: int) -> list[int]:
    """Where ``num_columns`` are cut: the beginning, at most ``num_parts`` - 1 multiples of the unit, and the end."""
    num_units = -(-num_columns // COLUMN_UNIT)
    num_parts = min(num_parts, num_units)
    return [min(num_columns, num_units * part // num_parts * COLUMN_UNIT) for part in range(num_parts + 1)]
