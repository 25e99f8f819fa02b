"""From a program to the CPU device's operators: places for its buffers, weights packed, neighbours joined.

What is joined, where the shape of the program allows it:

- products of one input (q, k and v; gate and up) become one product;
- a product whose result is only added to the residual adds it itself;
- gate and up with the activation behind them become one product whose panels hold both;
- two rotary embeddings and the write of keys and values become one operator;
- a buffer that only products read is rounded to bfloat16 by whoever writes it, not by each reader.

None of this changes a number: each is computed by the same operations as on the plain path (``fuse=False``).
"""

from __future__ import annotations

from collections.abc import Mapping

import torch

from gpu_node import kernels
from gpu_node.graph.program import POSITIONS, TOKEN_IDS, Kind, Operator, Program
from gpu_node.graph.program import Rows as ProgramRows
from gpu_node.kernels.cpu import CpuProgram, Epilogue, Index, Rows, Type, View

_PRODUCTS = {Kind.LINEAR, Kind.LINEAR_BIAS}
_ROUNDING = {
    Kind.RMS_NORM,
    Kind.LAYER_NORM,
    Kind.PAGED_ATTENTION,
    Kind.WINDOW_ATTENTION,
    Kind.SILU_MUL,
    Kind.RELU,
    Kind.GELU,
}
"""Operators that can write bfloat16."""
_INDICES = {TOKEN_IDS: Index.TOKEN_IDS, POSITIONS: Index.POSITIONS}


class UnsupportedOperatorError(ValueError):
    """The CPU device has no kernel for a kind of operator."""

    def __init__(self, kind: Kind) -> None:
        super().__init__(f"the cpu executor has no kernel for {kind.value!r}; the reference executor has")


def lower(
    program: Program,
    weights: Mapping[str, torch.Tensor],
    device_program: CpuProgram,
    max_positions: int,
    *,
    fuse: bool = True,
) -> None:
    """Translate ``program`` into an empty ``device_program``; the last operator draws the tokens."""
    lowering = _Lowering(program, weights, device_program, max_positions, fuse=fuse)
    index = 0
    while index < len(program.operators):
        index += lowering.take(index)
    device_program.add("draw", lowering.view(program.result))


class _Lowering:
    def __init__(
        self,
        program: Program,
        weights: Mapping[str, torch.Tensor],
        target: CpuProgram,
        max_positions: int,
        *,
        fuse: bool,
    ) -> None:
        self._program = program
        self._operators = program.operators
        self._weights = weights
        self._target = target
        self._max_positions = max_positions
        self._fuse = fuse
        self._buffers = {buffer.name: buffer for buffer in program.buffers}
        self._views: dict[str, View] = {}
        self._angles: dict[str, int] = {}  # of each buffer of angles: the table that its rows come from
        self._packed: dict[tuple[str, ...], int] = {}
        self._rounded: dict[str, View] = {}
        self._narrow = self._narrow_buffers() if fuse else frozenset()

    # --- places -------------------------------------------------------------------------------------------------------

    def view(self, name: str) -> View:
        """Where a buffer lies; a place of its own if it has none yet."""
        if name not in self._views:
            kind = Type.BFLOAT16 if name in self._narrow else Type.FLOAT32
            self._views[name] = self._target.buffer(self._rows(name), kind, self._buffers[name].num_columns)
        return self._views[name]

    def _rows(self, name: str) -> Rows:
        return Rows.TOKENS if self._buffers[name].rows is ProgramRows.TOKENS else Rows.DRAWS

    def _side_by_side(self, names: tuple[str, ...]) -> View | None:
        """One buffer for all of ``names``; None if they lie elsewhere already."""
        sizes = [self._buffers[name].num_columns for name in names]
        if not any(name in self._views for name in names):
            whole = self._target.buffer(self._rows(names[0]), Type.FLOAT32, sum(sizes))
            for position, (name, size) in enumerate(zip(names, sizes, strict=True)):
                self._views[name] = View(whole.buffer, sum(sizes[:position]), size)
        views = [self.view(name) for name in names]
        together = all(
            view.buffer == views[0].buffer and view.first_column == sum(sizes[:position])
            for position, view in enumerate(views)
        )
        return View(views[0].buffer, 0, sum(sizes)) if together else None

    def _narrow_buffers(self) -> frozenset[str]:
        readers: dict[str, set[Kind]] = {}
        writers: dict[str, set[Kind]] = {}
        for operator in self._operators:
            for name in operator.inputs:
                readers.setdefault(name, set()).add(operator.kind)
            for name in operator.outputs:
                writers.setdefault(name, set()).add(operator.kind)
        return frozenset(
            name for name, kinds in writers.items() if kinds <= _ROUNDING and readers.get(name, {None}) <= _PRODUCTS
        )

    def _linear_input(self, name: str) -> View:
        """The bfloat16 that products read: the buffer itself, or a copy of it made now."""
        view = self.view(name)
        if name in self._narrow:
            return view
        if name not in self._rounded:
            self._rounded[name] = self._target.buffer(self._rows(name), Type.BFLOAT16, view.num_columns)
        self._target.add("round", view, self._rounded[name])
        return self._rounded[name]

    def _pack(self, names: tuple[str, ...], *, halves: bool = False) -> int:
        if names not in self._packed:
            values = torch.cat([self._weights[name] for name in names]) if len(names) > 1 else self._weights[names[0]]
            self._packed[names] = self._target.weight(values, halves=halves)
        return self._packed[names]

    # --- operators ----------------------------------------------------------------------------------------------------

    def take(self, index: int) -> int:
        """Translate the operator at ``index``, with those behind it that join it; how many that were."""
        if self._fuse:
            for attempt in (self._gated_product, self._product_and_add, self._products, self._rope_and_write):
                num_taken = attempt(index)
                if num_taken:
                    return num_taken
        self._single(self._operators[index])
        return 1

    def _products(self, index: int) -> int:
        """Neighbouring products of one input."""
        group = self._products_of_one_input(index)
        outputs = tuple(operator.outputs[0] for operator in group)
        if len(group) < 2 or len(set(outputs)) < len(outputs):
            return 0
        out = self._side_by_side(outputs)
        if out is None:
            return 0
        self._product(group, out)
        return len(group)

    def _product(self, group: list[Operator], out: View) -> None:
        """One product for all of ``group``, and the biases that they have."""
        weight = self._pack(tuple(operator.weights[0] for operator in group))
        self._target.add("linear", self._linear_input(group[0].inputs[0]), weight, Epilogue.STORE, out)
        if group[0].kind is Kind.LINEAR_BIAS:
            bias = torch.cat([self._weights[operator.weights[1]] for operator in group])
            self._target.add("add_bias", out, self._target.constant(bias))

    def _gated_product(self, index: int) -> int:
        """Two products of one input, and the activation that is all that reads them."""
        group = self._products_of_one_input(index)
        end = index + 2
        if (
            len(group) != 2
            or group[0].kind is not Kind.LINEAR
            or end >= len(self._operators)
            or self._operators[end].kind is not Kind.SILU_MUL
        ):
            return 0
        activation = self._operators[end]
        outputs = tuple(operator.outputs[0] for operator in group)
        (activated,) = activation.outputs
        if activation.inputs != outputs or activated not in self._narrow or self._are_read(outputs, end + 1):
            return 0
        weight = self._pack(tuple(operator.weights[0] for operator in group), halves=True)
        x = self._linear_input(group[0].inputs[0])
        self._target.add("linear", x, weight, Epilogue.SILU_MUL, self.view(activated))
        return 3

    def _product_and_add(self, index: int) -> int:
        """A product that is added to a buffer in place, and read by nobody else."""
        product, *rest = self._operators[index : index + 2]
        if product.kind is not Kind.LINEAR or not rest or rest[0].kind is not Kind.ADD:
            return 0
        residual, branch = rest[0].inputs
        if rest[0].outputs != (residual,) or product.outputs != (branch,) or product.inputs == (residual,):
            return 0
        if residual == branch or self._are_read((branch,), index + 2):
            return 0
        x = self._linear_input(product.inputs[0])
        self._target.add("linear", x, self._pack(product.weights), Epilogue.ADD, self.view(residual))
        return 2

    def _rope_and_write(self, index: int) -> int:
        """Queries and keys turned by the same angles, then keys and values written."""
        group = self._operators[index : index + 3]
        if [operator.kind for operator in group] != [Kind.ROPE, Kind.ROPE, Kind.WRITE_KV]:
            return 0
        queries, keys, write = group
        q, angles = queries.inputs
        if keys.inputs != (*write.inputs[:1], angles) or queries.outputs != (q,) or keys.outputs != write.inputs[:1]:
            return 0
        k, v = (self.view(name) for name in write.inputs)
        assert write.layer is not None
        self._target.add("rope_write_kv", self.view(q), k, v, self._angles[angles], write.layer)
        return 3

    def _single(self, operator: Operator) -> None:
        """One operator as it stands."""
        add, attributes = self._target.add, operator.attributes
        inputs = [self.view(name) for name in operator.inputs if name in self._buffers and name not in self._angles]
        match operator.kind:
            case Kind.EMBEDDING:
                index = _INDICES[operator.inputs[0]]
                add("embedding", self._pack(operator.weights), index, self.view(operator.outputs[0]))
            case Kind.RMS_NORM:
                weight = self._target.constant(self._weights[operator.weights[0]])
                add("rms_norm", inputs[0], weight, attributes["epsilon"], self.view(operator.outputs[0]))
            case Kind.LAYER_NORM:
                weight, bias = (self._target.constant(self._weights[name]) for name in operator.weights)
                add("layer_norm", inputs[0], weight, bias, attributes["epsilon"], self.view(operator.outputs[0]))
            case Kind.HEAD_NORM:
                assert operator.outputs == operator.inputs, "normalised in place"
                add(
                    "head_norm",
                    inputs[0],
                    self._target.constant(self._weights[operator.weights[0]]),
                    attributes["epsilon"],
                )
            case Kind.LINEAR | Kind.LINEAR_BIAS:
                self._product([operator], self.view(operator.outputs[0]))
            case Kind.ROPE_ANGLES | Kind.SCALED_ROPE_ANGLES:
                self._make_angles(operator)
            case Kind.ROPE:
                assert operator.outputs == operator.inputs[:1], "turned in place"
                add("rope", inputs[0], self._angles[operator.inputs[1]])
            case Kind.WRITE_KV:
                assert operator.layer is not None
                add("write_kv", *inputs, operator.layer)
            case Kind.PAGED_ATTENTION | Kind.WINDOW_ATTENTION:
                assert operator.layer is not None
                window = int(attributes["window"]) if operator.kind is Kind.WINDOW_ATTENTION else 0
                add("attention", inputs[0], operator.layer, window, self.view(operator.outputs[0]))
            case Kind.SILU_MUL | Kind.RELU | Kind.GELU | Kind.ADD | Kind.SELECT_DRAWS:
                add(operator.kind.value, *inputs, self.view(operator.outputs[0]))
            case _:
                raise UnsupportedOperatorError(operator.kind)

    def _make_angles(self, operator: Operator) -> None:
        """Angles of every position, once; no step computes one again."""
        positions, theta = torch.arange(self._max_positions), operator.attributes["theta"]
        if operator.kind is Kind.SCALED_ROPE_ANGLES:
            table = kernels.scaled_rope_angles(positions, self._weights[operator.weights[0]], theta)
        else:
            table = kernels.rope_angles(positions, int(operator.attributes["head_dim"]), theta)
        self._angles[operator.outputs[0]] = self._target.constant(table)

    def _products_of_one_input(self, index: int) -> list[Operator]:
        group: list[Operator] = []
        for operator in self._operators[index:]:
            first = group[0] if group else operator
            if operator.kind not in _PRODUCTS or (operator.kind, operator.inputs) != (first.kind, first.inputs):
                break
            group.append(operator)
        return group

    def _are_read(self, names: tuple[str, ...], start: int) -> bool:
        """Whether any of ``names``, as written before operator ``start``, is read from there on."""
        alive = set(names)
        for operator in self._operators[start:]:
            if alive.intersection(operator.inputs):
                return True
            alive.difference_update(operator.outputs)
        return self._program.result in alive
