"""Adapters of a model in its program: what each row's adapter adds to a product (LoRA: Hu et al., ICLR'22, §4.1).

``h = W x + s B A x``, with B A of low rank; W is one for all rows of the batch, A and B are those of the row's adapter
(Punica: Chen et al., MLSys'24, §4). The pass comes behind others that join products or cut them for several devices:
a weight knows which boxes of which stored tensors it is made of, so the matrices are cut to the same boxes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from gpu_node.graph.passes.draft import Draft
from gpu_node.graph.program import PRODUCTS, Buffer, Operator, OperatorKind, Program
from gpu_node.graph.stack_names import expands, shrinks
from gpu_node.graph.weight import Piece, Weight


def adapt(program: Program, ranks: Mapping[str, int], num_adapters: int) -> Program:
    """Add what adapters change: ``ranks`` by the stored tensor's canonical name. Rows without adapter stay the same."""
    if not ranks:
        return program
    adaptation = _Adaptation(program, ranks, num_adapters)
    for operator in program.operators:
        adaptation.take(operator)
    return adaptation.draft.program()


class _Adaptation:
    def __init__(self, program: Program, ranks: Mapping[str, int], num_adapters: int) -> None:
        self.draft = Draft(program)
        self._ranks = ranks
        self._num_adapters = num_adapters

    def take(self, operator: Operator) -> None:
        """Add an operator, and behind a product what the adapters of its rows add to it."""
        pieces = self.draft.weight(operator.weights[0]).sources if operator.kind in PRODUCTS else ()
        if not any(piece.tensor in self._ranks for piece in pieces):
            self.draft.add(operator)
        elif operator.kind is OperatorKind.GATED_LINEAR:
            self._gated(operator, pieces)
        else:
            self.draft.add(operator)
            self._add_changes(operator, operator.outputs[0], pieces)

    def _gated(self, operator: Operator, pieces: tuple[Piece, ...]) -> None:
        """The activation comes behind the changes, so it is an operator of its own again."""
        out = self.draft.buffer(operator.outputs[0])
        both = self.draft.declare_buffer(Buffer(f"{out.name}_gate_up", 2 * out.num_columns, out.rows))
        self.draft.add(replace(operator, kind=OperatorKind.LINEAR, outputs=(both,)))
        self._add_changes(operator, both, pieces)
        gate, up = (self.draft.columns(both, half * out.num_columns, out.num_columns) for half in (0, 1))
        self.draft.add(Operator(OperatorKind.SILU_MUL, (gate, up), operator.outputs, share=operator.share))

    def _add_changes(self, operator: Operator, output: str, pieces: tuple[Piece, ...]) -> None:
        x = operator.inputs[0]
        assert x != output, f"{operator} leaves its input to its adapters"
        first_column = 0
        for piece in pieces:
            num_columns = piece.shape[0]
            if piece.tensor in self._ranks:
                out = self.draft.columns(output, first_column, num_columns)
                weights = tuple(self.draft.declare_weight(weight) for weight in self._stacks(piece))
                self.draft.add(Operator(OperatorKind.LORA, (x, out), (out,), weights, share=operator.share))
            first_column += num_columns

    def _stacks(self, piece: Piece) -> tuple[Weight, Weight]:
        """A and B of all adapters, of the box that a product has of a weight."""
        (outputs, inputs), rank = piece.stored_shape, self._ranks[piece.tensor]
        (first_output, end_output), (first_input, end_input) = piece.ranges
        a = Weight(shrinks(piece.tensor), (self._num_adapters, rank, inputs))
        b = Weight(expands(piece.tensor), (self._num_adapters, outputs, rank))
        return a.cut(2, first_input, end_input), b.cut(1, first_output, end_output)
