"""Neighbouring operators as one (PagedAttention, SOSP'23, §5.1). No number changes: each is made by the operations
that made it before.

- Products of one input become one product, whose output holds theirs side by side: q, k and v; gate and up.
- Two products of which one gates the other take the activation in.
- A product that is only added to the residual adds itself.
- Two rotary embeddings and the write of the keys and values become one operator.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from gpu_node.graph.passes.draft import Draft
from gpu_node.graph.program import Buffer, Operator, OperatorKind, Program
from gpu_node.graph.share import Share
from gpu_node.graph.weight import joined

_JOINABLE = (OperatorKind.LINEAR, OperatorKind.LINEAR_BIAS)


def fuse(program: Program) -> Program:
    """Join operators wherever the shape of the program allows it."""
    fusion = _Fusion(program)
    index = 0
    while index < len(program.operators):
        index += fusion.take(index)
    return fusion.draft.program()


class _Fusion:
    def __init__(self, program: Program) -> None:
        self.draft = Draft(program)
        self._operators = program.operators
        self._result = program.result
        # these share memory under several names
        self._entangled = {name for one in program.buffers if one.view_of for name in (one.name, one.view_of)}

    def take(self, index: int) -> int:
        """Add the operator at ``index``, with those behind it that join it; how many that were."""
        for attempt in (self._gated_product, self._product_and_add, self._products, self._rope_and_write):
            num_taken = attempt(index)
            if num_taken:
                return num_taken
        self.draft.add(self._operators[index])
        return 1

    def _products(self, index: int) -> int:
        """Neighbouring products of one input, where their outputs can lie side by side."""
        group = self._products_of_one_input(index)
        outputs = [operator.outputs[0] for operator in group]
        if len(group) < 2 or len(set(outputs)) < len(outputs) or not self._lay_side_by_side(outputs):
            return 0
        matrices, *biases = zip(*(operator.weights for operator in group), strict=True)
        matrix = self._joined_weight(matrices)
        weights = (matrix, *(self._joined_weight(names, f"{matrix}_bias") for names in biases))
        self.draft.add(replace(group[0], outputs=("_".join(outputs),), weights=weights))
        return len(group)

    def _gated_product(self, index: int) -> int:
        """Two products of one input, and the activation that is all that reads them."""
        group = self._products_of_one_input(index)
        end = index + 2
        if len(group) != 2 or group[0].kind is not OperatorKind.LINEAR or end >= len(self._operators):
            return 0
        activation = self._operators[end]
        outputs = tuple(operator.outputs[0] for operator in group)
        if (activation.kind, activation.inputs, activation.share) != (OperatorKind.SILU_MUL, outputs, group[0].share):
            return 0
        if self._are_read(outputs, end + 1, group[0].share):
            return 0
        weight = self._joined_weight([operator.weights[0] for operator in group])
        self.draft.add(replace(group[0], kind=OperatorKind.GATED_LINEAR, outputs=activation.outputs, weights=(weight,)))
        return 3

    def _product_and_add(self, index: int) -> int:
        """A product that is added to a buffer in place, and not read otherwise."""
        product, *rest = self._operators[index : index + 2]
        if product.kind is not OperatorKind.LINEAR or not rest or rest[0].kind is not OperatorKind.ADD:
            return 0
        residual, branch = rest[0].inputs
        if rest[0].outputs != (residual,) or product.outputs != (branch,) or product.share != rest[0].share:
            return 0
        if residual in (branch, *product.inputs) or self._are_read((branch,), index + 2, product.share):
            return 0
        inputs = (*product.inputs, residual)
        self.draft.add(replace(product, kind=OperatorKind.LINEAR_ADD, inputs=inputs, outputs=(residual,)))
        return 2

    def _rope_and_write(self, index: int) -> int:
        """Queries and keys turned in place by the same angles, then keys and values written."""
        group = self._operators[index : index + 3]
        if [operator.kind for operator in group] != [OperatorKind.ROPE, OperatorKind.ROPE, OperatorKind.WRITE_KV]:
            return 0
        queries, keys, write = group
        (q, angles), (k, v) = queries.inputs, write.inputs
        if keys.inputs != (k, angles) or queries.outputs != (q,) or keys.outputs != (k,) or q in (k, v):
            return 0
        if len({operator.share for operator in group}) > 1:
            return 0
        self.draft.add(replace(write, kind=OperatorKind.ROPE_WRITE_KV, inputs=(q, k, v, angles), outputs=(q, k)))
        return 3

    def _products_of_one_input(self, index: int) -> list[Operator]:
        group: list[Operator] = []
        for operator in self._operators[index:]:
            first = group[0] if group else operator
            alike = (operator.kind, operator.inputs, operator.share) == (first.kind, first.inputs, first.share)
            if operator.kind not in _JOINABLE or not alike:
                break
            group.append(operator)
            if operator.outputs == operator.inputs:  # what comes next reads something else
                break
        return group

    def _lay_side_by_side(self, names: Sequence[str]) -> bool:
        """Make ``names`` views of one new buffer; whether they are. Layers share buffers: it may be so already."""
        whole = "_".join(names)
        buffers = [self.draft.buffer(name) for name in names]
        if self._entangled.intersection(names) or any(buffer.view_of not in (None, whole) for buffer in buffers):
            return False
        self.draft.declare_buffer(Buffer(whole, sum(buffer.num_columns for buffer in buffers), buffers[0].rows))
        first_column = 0
        for buffer in buffers:
            self.draft.declare_buffer(replace(buffer, view_of=whole, first_column=first_column))
            first_column += buffer.num_columns
        return True

    def _joined_weight(self, names: Sequence[str], name: str = "") -> str:
        """One weight of several: ``layers.3.q``, ``layers.3.k`` and ``layers.3.v`` give ``layers.3.q_k_v``."""
        prefix = names[0].rpartition(".")[0]
        name = name or "_".join([names[0], *(other.removeprefix(f"{prefix}.") for other in names[1:])])
        return self.draft.declare_weight(joined(name, [self.draft.weight(other) for other in names]))

    def _are_read(self, names: tuple[str, ...], start: int, share: Share) -> bool:
        """Whether any of ``names``, as written for ``share`` before operator ``start``, may be read from there on."""
        if self._entangled.intersection(names):
            return True
        alive = set(names)
        for operator in self._operators[start:]:
            if alive.intersection(operator.inputs) and (operator.share & share).is_possible:
                return True
            if operator.share.contains(share):
                alive.difference_update(operator.outputs)
        return self._result in alive
