"""From a program to the CPU device's operators: places for its buffers, packed weights, one operator for each.

Where buffers lie, and which of them are bfloat16: `places`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from gpu_node.executors.cpu.low_rank import packed_adapters
from gpu_node.executors.cpu.places import BufferPlaces
from gpu_node.executors.cpu.unsupported import UnsupportedOperatorError
from gpu_node.graph.lanes import ProgramLane, first_ready, permitted_order
from gpu_node.graph.program import (
    ATTENTIONS,
    BOTH_SIDES,
    POSITIONS,
    PRODUCTS,
    TOKEN_IDS,
    Operator,
    OperatorKind,
    Program,
)
from gpu_node.graph.share import WHOLE
from gpu_node.kernels.cpu import CpuProgram, CpuRows, Epilogue, Index, Type, View
from gpu_node.kernels.cpu.angles import angle_table

PANEL_COLUMNS = 32
"""Columns that a product writes at a time (kPanelColumns in kernels.h)."""

_INDICES = {TOKEN_IDS: Index.TOKEN_IDS, POSITIONS: Index.POSITIONS}
_EPILOGUES = {
    OperatorKind.LINEAR: Epilogue.STORE,
    OperatorKind.LINEAR_BIAS: Epilogue.STORE,
    OperatorKind.LINEAR_ADD: Epilogue.ADD,
    OperatorKind.GATED_LINEAR: Epilogue.SILU_MUL,
}
_WINDOWED = frozenset({OperatorKind.WINDOW_ATTENTION, OperatorKind.BIDIRECTIONAL_WINDOW_ATTENTION})


@dataclass(frozen=True, slots=True)
class LanePlace:
    """Which of the device's operators in a lane compute an operator of a program: [first, end)."""

    lane: ProgramLane
    first: int
    end: int


def lower(
    program: Program,
    weights: Mapping[str, ArrayLike],
    device_program: CpuProgram,
    max_positions: int,
    *,
    piped: Program | None = None,
    round_early: bool = True,
) -> Mapping[int, LanePlace]:
    """Translate ``program`` into an empty ``device_program``; the last operator draws the tokens.

    ``piped``: the same with lanes, for steps in these; over the same buffers and weights. Returned is where its
    operators are in the device's lanes.
    """
    lowering = _Lowering(program, weights, device_program, max_positions, round_early=round_early)
    for operator in program.operators:
        lowering.add(operator)
    device_program.work_on(WHOLE)
    device_program.add("draw", lowering.view(program.result))
    return {} if piped is None else lowering.add_lanes(piped)


class _Lowering:
    def __init__(
        self,
        program: Program,
        weights: Mapping[str, ArrayLike],
        target: CpuProgram,
        max_positions: int,
        *,
        round_early: bool,
    ) -> None:
        self._weights = weights
        self._target = target
        self._max_positions = max_positions
        self._places = BufferPlaces(program, target, round_early=round_early)
        self.view = self._places.view  # where a buffer lies
        self._angles: dict[str, int] = {}  # of each buffer of angles: the table that its rows come from
        self._packed: dict[str, int] = {}
        self._experts: dict[tuple[str, ...], tuple[list[int], list[int]]] = {}
        self._constants: dict[str, int] = {}
        self._adapters: dict[tuple[str, ...], tuple[Sequence[int], Sequence[int]]] = {}
        self._low_ranks: dict[CpuRows, list[View]] = {}  # between adapters' matrices
        shapes = {weight.name: weight.shape for weight in program.weights}
        ranks = (shapes[one.weights[0]][1] for one in program.operators if one.kind is OperatorKind.LORA)
        self._max_rank = max(ranks, default=0)
        self._rounded: dict[tuple[str, ProgramLane | None], View] = {}
        self._lane: ProgramLane | None = None  # that operators are added to

    # --- inputs -------------------------------------------------------------------------------------------------------

    def _rounded_input(self, name: str) -> View:
        """The bfloat16 that products read: the buffer itself, or a copy of it made now, which no other lane writes."""
        view = self.view(name)
        if self._places.is_narrow(name):
            return view
        key = name, self._lane
        if key not in self._rounded:
            self._rounded[key] = self._target.buffer(self._places.rows(name), Type.BFLOAT16, view.num_columns)
        self._target.add("round", view, self._rounded[key])
        return self._rounded[key]

    def _pack(self, name: str, *, halves: bool = False) -> int:
        if name not in self._packed:
            self._packed[name] = self._target.weight(self._weights[name], halves=halves)
        return self._packed[name]

    def _zeros(self, num_columns: int) -> int:
        """The bias of a norm that has none."""
        name = f"<{num_columns} zeros>"
        if name not in self._constants:
            self._constants[name] = self._target.constant(np.zeros(num_columns, dtype=np.float32))
        return self._constants[name]

    def _constant(self, name: str) -> int:
        if name not in self._constants:
            self._constants[name] = self._target.constant(self._weights[name])
        return self._constants[name]

    # --- operators ----------------------------------------------------------------------------------------------------

    def add(self, operator: Operator) -> None:
        """Append what computes ``operator``."""
        append = _APPEND.get(operator.kind)
        if append is None:
            raise UnsupportedOperatorError(operator.kind)
        self._target.work_on(operator.share)
        append(self, operator)

    def add_lanes(self, piped: Program) -> Mapping[int, LanePlace]:
        """Append what computes ``piped`` to the device's lanes.

        An operator becomes one of the device's, or several, or none: so its event is how many of its lane have ended.
        """
        turns = {turn.operator: (queue.lane, turn) for queue in piped.lanes for turn in queue.turns}
        places: dict[int, LanePlace] = {}
        for index in permitted_order(piped.lanes, first_ready):
            self._lane, turn = turns[index]
            self._target.queue_in(self._lane, turn.device_part)
            for place in (places[other] for other in turn.waits):
                if place.end:
                    self._target.wait_for(place.lane, place.end)
            first = self._target.lane_size(self._lane)
            self.add(piped.operators[index])
            places[index] = LanePlace(self._lane, first, self._target.lane_size(self._lane))
        return places

    def plain(self, operator: Operator) -> None:
        """Views only, under the name of the kind."""
        self._target.add(operator.kind.value, *map(self.view, (*operator.inputs, *operator.outputs)))

    def embedding(self, operator: Operator) -> None:
        """Rows of a packed table."""
        index, table = _INDICES[operator.inputs[0]], self._pack(operator.weights[0])
        self._target.add("embedding", table, index, self.view(operator.outputs[0]))

    def segment_embedding(self, operator: Operator) -> None:
        """A row of a packed table for each text of a pair."""
        table, separator = self._pack(operator.weights[0]), int(operator.attributes["separator"])
        self._target.add("segment_embedding", table, separator, self.view(operator.outputs[0]))

    def norm(self, operator: Operator) -> None:
        """A norm of whole rows."""
        parameters = [self._constant(name) for name in operator.weights]
        x, out = self.view(operator.inputs[0]), self.view(operator.outputs[0])
        if operator.kind is OperatorKind.LAYER_NORM and len(parameters) == 1:
            parameters.append(self._zeros(x.num_columns))
        self._target.add(operator.kind.value, x, *parameters, operator.attributes["epsilon"], out)

    def add_bias(self, operator: Operator) -> None:
        """A row added to all rows, in place."""
        assert operator.outputs == operator.inputs, "added in place"
        self._target.add("add_bias", self.view(operator.inputs[0]), self._constant(operator.weights[0]))

    def head_norm(self, operator: Operator) -> None:
        """A norm of each head, in place."""
        assert operator.outputs == operator.inputs, "normalised in place"
        weight = self._constant(operator.weights[0])
        self._target.add("head_norm", self.view(operator.inputs[0]), weight, operator.attributes["epsilon"])

    def product(self, operator: Operator) -> None:
        """A product with what is done to its sums, and its bias."""
        if operator.kind is OperatorKind.LINEAR_ADD:
            assert operator.outputs == operator.inputs[1:], "added in place"
        out = self.view(operator.outputs[0])
        # a panel is written whole: behind the last column lies padding, or what is written later, but nothing before
        assert out.first_column % PANEL_COLUMNS == 0, f"{operator} begins inside of a panel"
        weight = self._pack(operator.weights[0], halves=operator.kind is OperatorKind.GATED_LINEAR)
        self._target.add("linear", self._rounded_input(operator.inputs[0]), weight, _EPILOGUES[operator.kind], out)
        if operator.kind is OperatorKind.LINEAR_BIAS:
            self._target.add("add_bias", out, self._constant(operator.weights[1]))

    def lora(self, operator: Operator) -> None:
        """What adapters add to a product, at once or later than it."""
        x, out = operator.inputs
        if operator.weights not in self._adapters:
            shrink, expand = (np.asarray(self._weights[name]) for name in operator.weights)
            self._adapters[operator.weights] = packed_adapters(self._target, shrink, expand)
        rows = self._places.rows(out)
        if rows not in self._low_ranks:
            kinds = (Type.FLOAT32, Type.BFLOAT16)
            self._low_ranks[rows] = [self._target.buffer(rows, kind, self._max_rank) for kind in kinds]
        adapters, between = self._adapters[operator.weights], self._low_ranks[rows]
        self._target.add_lora(self._rounded_input(x), *adapters, between, self.view(out))

    def attention(self, operator: Operator) -> None:
        """Attention over the blocks of a layer, with a window or without, up to a row or to both sides of it."""
        assert operator.layer is not None
        window = int(operator.attributes["window"]) if operator.kind in _WINDOWED else 0
        name = "bidirectional_attention" if operator.kind in BOTH_SIDES else "attention"
        q, out = self.view(operator.inputs[0]), self.view(operator.outputs[0])
        self._target.add(name, q, operator.layer, window, out)

    def rope_and_write(self, operator: Operator) -> None:
        """Turns, and writes of keys and values: tensors, then angles, then the layer, whichever there are."""
        tensors = [self.view(name) for name in operator.inputs if name not in self._angles]
        angles = [self._angles[name] for name in operator.inputs if name in self._angles]
        assert operator.outputs == operator.inputs[: len(operator.outputs)], "turned in place"
        layer = [] if operator.layer is None else [operator.layer]
        self._target.add(operator.kind.value, *tensors, *angles, *layer)

    def route(self, operator: Operator) -> None:
        """The choice of experts."""
        x, out = self.view(operator.inputs[0]), self.view(operator.outputs[0])
        self._target.add("route", x, int(operator.attributes["num_chosen"]), out)

    def experts(self, operator: Operator) -> None:
        """The weights of each expert by themselves, gates and what they gate in one panel."""
        if operator.weights not in self._experts:
            gate, up, down = (np.asarray(self._weights[name]) for name in operator.weights)
            halves = [self._target.weight(np.concatenate(pair), halves=True) for pair in zip(gate, up, strict=True)]
            self._experts[operator.weights] = halves, [self._target.weight(values) for values in down]
        gates_up, downs = self._experts[operator.weights]
        x, routing = operator.inputs
        out = self.view(operator.outputs[0])
        num_chosen = int(operator.attributes["num_chosen"])
        self._target.add_experts(self._rounded_input(x), self.view(routing), gates_up, downs, num_chosen, out)

    def make_angles(self, operator: Operator) -> None:
        """Angles of every position, once; no step computes one again."""
        theta = operator.attributes["theta"]
        if operator.kind is OperatorKind.SCALED_ROPE_ANGLES:
            factors = np.asarray(self._weights[operator.weights[0]])
            table = angle_table(self._max_positions, 2 * len(factors), theta, factors)
        else:
            table = angle_table(self._max_positions, int(operator.attributes["head_dim"]), theta)
        self._angles[operator.outputs[0]] = self._target.constant(table)

    def send(self, operator: Operator) -> None:
        """What remote rows attend with, to the receivers that the step names."""
        assert operator.layer is not None
        views = [self.view(name) for name in operator.inputs]
        window = int(operator.attributes.get("window", 0))
        self._target.add("send", *views, operator.layer, window)

    def gather(self, operator: Operator) -> None:
        """What the receivers have attended to."""
        self._target.add("gather", self.view(operator.outputs[0]))

    def copy_out(self, operator: Operator) -> None:
        """The layer's part of full blocks that go to the host."""
        assert operator.layer is not None
        part = [int(operator.attributes[name]) for name in ("first", "end", "count")]
        self._target.add("copy_out", operator.layer, *part)

    def poll(self, _operator: Operator) -> None:
        """A mark on the operator before it."""
        self._target.add("poll")


_APPEND: Mapping[OperatorKind, Callable[[_Lowering, Operator], None]] = {
    **dict.fromkeys(PRODUCTS, _Lowering.product),
    **dict.fromkeys(ATTENTIONS, _Lowering.attention),
    **dict.fromkeys((OperatorKind.RMS_NORM, OperatorKind.LAYER_NORM), _Lowering.norm),
    **dict.fromkeys(
        (
            OperatorKind.SILU_MUL,
            OperatorKind.ERF_GELU_MUL,
            OperatorKind.RELU,
            OperatorKind.GELU,
            OperatorKind.ERF_GELU,
            OperatorKind.TANH,
            OperatorKind.ADD,
            OperatorKind.SELECT_DRAWS,
            OperatorKind.SELECT_FIRST,
            OperatorKind.MEAN_POOL,
        ),
        _Lowering.plain,
    ),
    **dict.fromkeys((OperatorKind.ROPE, OperatorKind.WRITE_KV, OperatorKind.ROPE_WRITE_KV), _Lowering.rope_and_write),
    **dict.fromkeys((OperatorKind.ROPE_ANGLES, OperatorKind.SCALED_ROPE_ANGLES), _Lowering.make_angles),
    OperatorKind.LORA: _Lowering.lora,
    OperatorKind.EMBEDDING: _Lowering.embedding,
    OperatorKind.SEGMENT_EMBEDDING: _Lowering.segment_embedding,
    OperatorKind.ADD_BIAS: _Lowering.add_bias,
    OperatorKind.HEAD_NORM: _Lowering.head_norm,
    OperatorKind.ROUTE: _Lowering.route,
    OperatorKind.EXPERTS: _Lowering.experts,
    OperatorKind.POLL: _Lowering.poll,
    OperatorKind.COPY_OUT: _Lowering.copy_out,
    OperatorKind.SEND: _Lowering.send,
    OperatorKind.GATHER: _Lowering.gather,
}
