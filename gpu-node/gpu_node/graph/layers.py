"""A program in its layers: to read it, and to fold those that are the same."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from dataclasses import dataclass

from gpu_node.graph.program import Operator, OperatorKind, Program

_LAYER_WEIGHT = re.compile(r"layers\.(\d+)\.")


@dataclass(frozen=True, slots=True)
class LayerSection:
    """Consecutive operators of one layer, or of none."""

    layer: int | None
    first: int
    """Index of its first operator in the program."""
    operators: tuple[Operator, ...]
    num_same: int = 1
    """So many layers in a row, this one included, are the same but for their weights and blocks."""


def sections(program: Program) -> list[LayerSection]:
    """The program's layers in order, with what comes before and after them; equal neighbours are folded into one.

    An operator belongs to the layer of its weights or its blocks. One that has neither belongs where the one before
    it belongs, unless it chooses the rows that draw and nothing of that layer follows: that is the end of the model.
    """
    ends = {_own_layer(operator): index for index, operator in enumerate(program.operators)}
    parts: list[tuple[int | None, int, list[Operator]]] = [(None, 0, [])]
    for index, operator in enumerate(program.operators):
        current = parts[-1][0]
        layer = _own_layer(operator)
        if layer is None and not operator.weights:
            is_end = operator.kind is OperatorKind.SELECT_DRAWS and ends.get(current, index) <= index
            layer = None if is_end else current
        if layer != current:
            parts.append((layer, index, []))
        parts[-1][2].append(operator)
    found = [LayerSection(layer, first, tuple(operators)) for layer, first, operators in parts if operators]
    return _folded(found)


def _own_layer(operator: Operator) -> int | None:
    """By its blocks or its weights; None for what has neither, or weights of no layer."""
    if operator.layer is not None or not operator.weights:
        return operator.layer
    match = _LAYER_WEIGHT.match(operator.weights[0])
    return int(match[1]) if match else None


def _folded(found: Sequence[LayerSection]) -> list[LayerSection]:
    folded: list[LayerSection] = []
    for section in found:
        if folded and section.layer is not None and _shape(folded[-1]) == _shape(section):
            folded[-1] = dataclasses.replace(folded[-1], num_same=folded[-1].num_same + 1)
        else:
            folded.append(section)
    return folded


def _shape(section: LayerSection) -> list[object]:
    """All that makes two layers the same; a layer's shapes follow from its buffers, which have one shape each."""
    if section.layer is None:
        return [section]
    return [
        dataclasses.replace(operator, layer=None, weights=short_weights(operator)) for operator in section.operators
    ]


def short_weights(operator: Operator) -> tuple[str, ...]:
    """Names of an operator's weights without their layer."""
    return tuple(_LAYER_WEIGHT.sub("", name) for name in operator.weights)
