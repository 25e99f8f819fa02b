"""One model on several devices, each with a part of every layer (Megatron, 2019; PagedAttention, SOSP'23, §4.6).

Queries, keys, values, gates and what they gate are cut by columns, so a device has whole heads and whole inner numbers
of its own; the products behind them are cut by rows, and their partial sums are added over the devices. All devices run
the same steps over the same block ids. Norms, embeddings and routers are on each device as a whole; the head is cut by
the vocabulary where that divides, and its logits are put side by side.
"""

from __future__ import annotations

import re
from dataclasses import replace

from gpu_node.graph.passes.draft import Draft
from gpu_node.graph.program import ATTENTIONS, KV_WRITERS, OF_WHOLE_TEXTS, Operator, OperatorKind, Program

_LAYER_WEIGHT = re.compile(r"layers\.\d+\.(.+?)(_bias)?")
_CUT_OUTPUTS = frozenset({"q", "k", "v", "gate", "up"})
"""Products of which a device makes some columns."""
_CUT_INPUTS = frozenset({"o", "down"})
"""Products to which a device adds what some columns of the input give."""
_EXPERT_AXES = (1, 1, 2)
"""Along which the weights of experts (gate, up, down) are cut: their inner numbers."""
_BY_COLUMN = ATTENTIONS | {
    OperatorKind.HEAD_NORM,
    OperatorKind.ROPE,
    OperatorKind.WRITE_KV,
    OperatorKind.SILU_MUL,
    OperatorKind.RELU,
    OperatorKind.GELU,
    OperatorKind.SELECT_DRAWS,
}
"""Kinds that do the same to fewer heads or columns."""
_PLAIN = _BY_COLUMN | {
    OperatorKind.EMBEDDING,
    OperatorKind.RMS_NORM,
    OperatorKind.LAYER_NORM,
    OperatorKind.LINEAR,
    OperatorKind.LINEAR_BIAS,
    OperatorKind.ROPE_ANGLES,
    OperatorKind.SCALED_ROPE_ANGLES,
    OperatorKind.ROUTE,
    OperatorKind.EXPERTS,
    OperatorKind.ADD,
}
"""What builders make."""


class IndivisibleError(ValueError):
    """A program that cannot be divided among so many devices; the text says why, and what could be done."""


def tensor_parallel(program: Program, rank: int, world: int) -> Program:
    """What device ``rank`` of ``world`` runs. `IndivisibleError` where heads or inner numbers do not divide."""
    assert 0 <= rank < world
    if world == 1:
        return program
    if OF_WHOLE_TEXTS.intersection(operator.kind for operator in program.operators):
        raise IndivisibleError("an encoder is not divided among devices; serve it on a node with one")
    other = sorted({operator.kind for operator in program.operators} - _PLAIN)
    if other:
        raise IndivisibleError(f"tensor_parallel comes before other passes; this program has {', '.join(other)}")
    _check_heads(program, world)
    division = _Division(program, rank, world)
    for operator in program.operators:
        division.take(operator)
    return division.draft.program()


def _check_heads(program: Program, world: int) -> None:
    columns = {buffer.name: buffer.num_columns for buffer in program.buffers}
    head_dims = {one.layer: int(one.attributes["head_dim"]) for one in program.operators if one.kind in ATTENTIONS}
    for operator in program.operators:
        if operator.kind in ATTENTIONS | KV_WRITERS:
            what = "heads" if operator.kind in ATTENTIONS else "heads of keys and values"
            _require_divisible(columns[operator.inputs[0]] // head_dims[operator.layer], what, world)


def _require_divisible(number: int, what: str, world: int) -> None:
    if number % world:
        possible = ", ".join(str(size) for size in range(1, number + 1) if number % size == 0)
        raise IndivisibleError(f"{number} {what} do not divide among {world} devices; these numbers do: {possible}")


class _Division:
    def __init__(self, program: Program, rank: int, world: int) -> None:
        self.draft = Draft(program)
        self._program = program
        self._rank, self._world = rank, world
        self._whole = {buffer.name: buffer for buffer in program.buffers}
        self._divided: set[str] = set()  # buffers of which this device has a part of the columns

    def take(self, operator: Operator) -> None:
        """Add this device's part of an operator."""
        name = _role(operator)
        if name in _CUT_OUTPUTS:
            weights = tuple(self._cut(weight, 0) for weight in operator.weights)
            self.draft.add(replace(operator, outputs=self._divide(operator.outputs), weights=weights))
        elif name in _CUT_INPUTS:
            self._add_partial_product(operator)
        elif operator.kind is OperatorKind.EXPERTS:
            pairs = zip(operator.weights, _EXPERT_AXES, strict=True)
            self.draft.add(replace(operator, weights=tuple(self._cut(weight, axis) for weight, axis in pairs)))
            self._all_reduce(operator)
        elif operator.outputs == (self._program.result,) and operator.kind is OperatorKind.LINEAR:
            self._add_head(operator)
        elif self._divided.intersection(operator.inputs):
            assert operator.kind in _BY_COLUMN, f"{operator} wants whole rows"
            self.draft.add(replace(operator, outputs=self._divide(operator.outputs)))
        else:
            self.draft.add(operator)

    def _add_partial_product(self, operator: Operator) -> None:
        """A sum over this device's inputs. The bias is added once, when the sums of all devices are together."""
        assert self._divided.issuperset(operator.inputs), f"{operator} has a part of the inputs"
        matrix, *bias = operator.weights
        self.draft.add(replace(operator, kind=OperatorKind.LINEAR, weights=(self._cut(matrix, 1),)))
        self._all_reduce(operator)
        if bias:
            outputs = operator.outputs
            self.draft.add(Operator(OperatorKind.ADD_BIAS, outputs, outputs, tuple(bias), share=operator.share))

    def _all_reduce(self, operator: Operator) -> None:
        outputs = operator.outputs
        attributes = {"world": self._world}
        self.draft.add(Operator(OperatorKind.ALL_REDUCE, outputs, outputs, attributes=attributes, share=operator.share))

    def _add_head(self, operator: Operator) -> None:
        """Some columns of the logits, gathered from all devices; all of them where the vocabulary does not divide."""
        (logits,) = operator.outputs
        buffer = self._whole[logits]
        if buffer.num_columns % self._world:
            self.draft.add(operator)
            return
        part = replace(buffer, name=f"{logits}_part", num_columns=buffer.num_columns // self._world)
        weights = (self._cut(operator.weights[0], 0),)
        self.draft.add(replace(operator, outputs=(self.draft.declare_buffer(part),), weights=weights))
        attributes = {"world": self._world}
        gather = Operator(OperatorKind.ALL_GATHER, (part.name,), (logits,), attributes=attributes, share=operator.share)
        self.draft.add(gather)

    def _divide(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Declare that buffers hold this device's part of their columns; their names."""
        for name in names:
            buffer = self._whole[name]
            self.draft.declare_buffer(replace(buffer, num_columns=buffer.num_columns // self._world))
            self._divided.add(name)
        return names

    def _cut(self, name: str, axis: int) -> str:
        weight = self.draft.weight(name)
        size = weight.shape[axis]
        _require_divisible(size, f"numbers of {name}", self._world)
        size //= self._world
        return self.draft.declare_weight(weight.cut(axis, self._rank * size, (self._rank + 1) * size))


def _role(operator: Operator) -> str:
    """What the first weight of an operator is in its layer: ``q`` for ``layers.3.q``; empty outside of layers."""
    match = _LAYER_WEIGHT.fullmatch(operator.weights[0]) if operator.weights else None
    return match[1] if match else ""
