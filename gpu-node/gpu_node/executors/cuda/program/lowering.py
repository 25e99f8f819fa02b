"""From a program to launches on a CUDA device: fixed buffers, one launch for each operator.

Products, sums and the choice of rows that draw are torch's, all else are kernels of ours. Views of buffers are strides,
shares are rows. Whatever torch makes is written where it belongs, so a step allocates nothing but scratch memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch

from gpu_node.executors.collectives import ALONE, DeviceGroup
from gpu_node.executors.cuda.program.lane_streams import LaneLaunches
from gpu_node.executors.cuda.program.launches import products
from gpu_node.executors.cuda.program.launches.device_rows import DeviceRows
from gpu_node.executors.cuda.program.launches.kernels import (
    ACTIVATIONS,
    JOINED_NORMS,
    NORMS,
    POOLS,
    WITH_WINDOW,
    WITHOUT_WINDOW,
    feeds_norm,
    norm_arguments,
)
from gpu_node.executors.cuda.program.launches.link_launches import gather_launch, poll_launch, send_launch
from gpu_node.executors.cuda.program.launches.lora_launch import lora_launch
from gpu_node.executors.cuda.program.link_ends import AskedDevice, Serving
from gpu_node.executors.cuda.program.lowered import BufferColumns, Launch, Lowered
from gpu_node.executors.cuda.program.step import CudaStep
from gpu_node.graph.program import (
    ATTENTIONS,
    POSITIONS,
    PRODUCTS,
    TOKEN_IDS,
    Operator,
    OperatorKind,
    Program,
    Rows,
)
from gpu_node.graph.share import WHOLE, Share
from gpu_node.kernels import operations
from gpu_node.kernels.triton import experts as grouped
from gpu_node.kernels.triton import rope as rotary
from gpu_node.kernels.triton.attention.attention_tile import UNBOUNDED
from gpu_node.kernels.triton.cache import LayerCache
from gpu_node.kernels.triton.lookup import lookup
from gpu_node.kernels.triton.route import route
from gpu_node.kernels.triton.whole_texts import segment_embedding

_ANGLES = {OperatorKind.ROPE_ANGLES, OperatorKind.SCALED_ROPE_ANGLES}
_WIDE = {OperatorKind.ROUTE, *_ANGLES}
"""Operators that write float32 whatever the model's type is: shares that may be small, and angles."""


def lower(
    program: Program,
    weights: Mapping[str, torch.Tensor],
    caches: Sequence[LayerCache],
    *,
    max_rows: int,
    max_draws: int,
    max_positions: int,
    piped: Program | None = None,
    serving: Serving | None = None,
    asking: AskedDevice | None = None,
    joins_norms: bool = True,
    group: DeviceGroup = ALONE,
) -> Lowered:
    """Buffers and launches for ``program``; ``weights`` lie on the device, in the type of its buffers.

    ``piped``: the same with lanes, over the same buffers; there, each operator is a launch, and none polls.
    ``serving``: what its polls look for, if it has any. ``asking``: what attends its remote rows, if it sends.
    ``joins_norms=False`` is the plain path: a sum that a norm reads is a launch of its own. ``group``: the devices that
    run the other parts of a divided program.
    """
    num_rows = {Rows.TOKENS: max_rows, Rows.DRAWS: max_draws}
    serving, asking = serving or Serving(), asking or AskedDevice()
    lowering = _Lowering(program, weights, caches, serving, asking, group, num_rows, max_positions)
    found = DeviceRows.of(program)
    launches: list[Launch] = []
    operators = program.operators
    index, num_of_any = 0, 0
    while index < len(operators):
        if num_of_any == len(launches) and found.is_of_any(operators[index]):
            num_of_any += 1
        operator, follower = operators[index], operators[index + 1] if index + 1 < len(operators) else None
        if joins_norms and follower is not None and feeds_norm(operator, follower):
            launches.append(lowering.joined_norm(operator, follower))
            index += 2
        else:
            launches.append(LOWERINGS[operator.kind](lowering, operator))
            index += 1
    buffers = {buffer.name: lowering.whole(buffer.name) for buffer in program.buffers}
    lanes = None
    if piped is not None:
        lanes = LaneLaunches.of(piped.lanes, [LOWERINGS[one.kind](lowering, one) for one in piped.operators])
    return Lowered(
        launches=tuple(launches),
        buffers=buffers,
        result=program.result,
        lanes=lanes,
        num_of_any=num_of_any,
        asking=asking,
        most_under_way=lowering.most_under_way,
        splits_on_device=found.splits,
    )


class _Lowering:
    def __init__(
        self,
        program: Program,
        weights: Mapping[str, torch.Tensor],
        caches: Sequence[LayerCache],
        serving: Serving,
        asking: AskedDevice,
        group: DeviceGroup,
        num_rows: Mapping[Rows, int],
        max_positions: int,
    ) -> None:
        self._group = group
        self._weights = weights
        self._caches = caches
        self._serving = serving
        self._asking = asking
        self._num_under_way = self.most_under_way = 0
        self._max_positions = max_positions
        self._places_of: dict[tuple[str, Share], BufferColumns] = {}
        self._buffers = {buffer.name: buffer for buffer in program.buffers}
        wide = {program.result, *(one.outputs[0] for one in program.operators if one.kind in _WIDE)}
        numbers = caches[0].numbers
        self._wholes = {
            buffer.name: numbers.new_empty(
                (num_rows[buffer.rows], buffer.num_columns),
                dtype=torch.float32 if buffer.name in wide else numbers.dtype,
            )
            for buffer in program.buffers
            if buffer.view_of is None
        }

    def whole(self, name: str) -> torch.Tensor:
        """The numbers of a buffer in all rows that there may be."""
        buffer = self._buffers[name]
        return self._wholes[buffer.view_of or name].narrow(1, buffer.first_column, buffer.num_columns)

    def _place(self, name: str, share: Share) -> BufferColumns:
        if (name, share) not in self._places_of:
            self._places_of[name, share] = BufferColumns(self.whole(name), self._buffers[name].rows, share)
        return self._places_of[name, share]

    def _places(self, operator: Operator, share: Share | None = None) -> list[BufferColumns]:
        """Of inputs, then outputs; in the rows of another ``share`` than the operator's, where one is given."""
        return [self._place(name, share or operator.share) for name in (*operator.inputs, *operator.outputs)]

    def _cache(self, operator: Operator) -> LayerCache:
        assert operator.layer is not None
        return self._caches[operator.layer]

    # --- operators ----------------------------------------------------------------------------------------------------

    def embedding(self, operator: Operator) -> Launch:
        """Rows of a table, by token or by position."""
        return self._lookup(operator, self._weights[operator.weights[0]])

    def make_angles(self, operator: Operator) -> Launch:
        """Angles of every position once; a step looks them up."""
        positions, theta = torch.arange(self._max_positions), operator.attributes["theta"]
        if operator.kind is OperatorKind.SCALED_ROPE_ANGLES:
            factors = self._weights[operator.weights[0]].to("cpu", torch.float32)
            angles = operations.scaled_rope_angles(positions, factors, theta)
        else:
            angles = operations.rope_angles(positions, int(operator.attributes["head_dim"]), theta)
        return self._lookup(operator, angles.to(self._caches[0].numbers.device))

    def _lookup(self, operator: Operator, table: torch.Tensor) -> Launch:
        out, share = self._place(operator.outputs[0], operator.share), operator.share
        if operator.inputs[0] == TOKEN_IDS:
            return lambda step: lookup(table, step.token_ids(share), step.cells, out.of(step))
        assert operator.inputs[0] == POSITIONS
        return lambda step: lookup(table, step.positions(share), step.cells, out.of(step))

    def norm(self, operator: Operator) -> Launch:
        """A norm of rows or of heads."""
        x, out = self._places(operator)
        kernel, arguments = NORMS[operator.kind], norm_arguments(operator, self._weights)
        return lambda step: kernel(x.of(step), *arguments, out.of(step))

    def joined_norm(self, add: Operator, norm: Operator) -> Launch:
        """A sum in place, and the norm of it."""
        residual, x, _ = self._places(add)
        out = self._place(norm.outputs[0], norm.share)
        kernel, arguments = JOINED_NORMS[norm.kind], norm_arguments(norm, self._weights)
        return lambda step: kernel(residual.of(step), x.of(step), *arguments, out.of(step))

    def product(self, operator: Operator) -> Launch:
        """A product with what is done to its sums, and its bias."""
        places, (matrix, *biases) = self._places(operator), [self._weights[name] for name in operator.weights]
        x, out, weight = places[0], places[-1], matrix.T
        if operator.kind is OperatorKind.LINEAR_ADD:
            assert operator.outputs == operator.inputs[1:], "added in place"
            return lambda step: products.add_product(x.of(step), weight, out.of(step))
        if operator.kind is OperatorKind.GATED_LINEAR:
            return lambda step: products.multiply_and_gate(x.of(step), weight, out.of(step))
        if operator.kind is OperatorKind.LINEAR_BIAS:
            return lambda step: products.multiply_and_add(biases[0], x.of(step), weight, out.of(step))
        return lambda step: products.multiply(x.of(step), weight, out.of(step))

    def lora(self, operator: Operator) -> Launch:
        """What adapters add to a product."""
        x, out, _ = self._places(operator)
        return lora_launch(x, out, *(self._weights[name] for name in operator.weights))

    def rope(self, operator: Operator) -> Launch:
        """Turns of heads."""
        x, angles, out = self._places(operator)
        return lambda step: rotary.rope(x.of(step), angles.of(step), out.of(step))

    def write_kv(self, operator: Operator) -> Launch:
        """Keys and values into their blocks, turned before or not."""
        share, cache = operator.share, self._cache(operator)
        inputs = [self._place(name, share) for name in operator.inputs]
        if operator.kind is OperatorKind.WRITE_KV:
            k, v = inputs
            return lambda step: rotary.write_kv(k.of(step), v.of(step), cache, step.written(share))
        assert operator.outputs == operator.inputs[:2], "turned in place"
        q, k, v, angles = inputs

        def launch(step: CudaStep) -> None:
            if step.is_divided:  # then all rows are turned where remote ones are, before they are sent
                rotary.write_kv(k.of(step), v.of(step), cache, step.written(share))
            else:
                rotary.rope_write_kv(q.of(step), k.of(step), v.of(step), angles.of(step), cache, step.written(share))

        return launch

    def attention(self, operator: Operator) -> Launch:
        """Attention over the blocks of a layer, with a window or without."""
        (q, out), share, cache = self._places(operator, WHOLE), operator.share, self._cache(operator)
        if operator.kind in WITHOUT_WINDOW:
            attend = WITHOUT_WINDOW[operator.kind]
            return lambda step: attend(q.of(step), cache, step.attended(share), out.of(step))
        attend, window = WITH_WINDOW[operator.kind], int(operator.attributes["window"])
        return lambda step: attend(q.of(step), cache, step.attended(share), window, out.of(step))

    def activation(self, operator: Operator) -> Launch:
        """Number by number."""
        places, kernel = self._places(operator), ACTIVATIONS[operator.kind]
        return lambda step: kernel(*(place.of(step) for place in places))

    def route(self, operator: Operator) -> Launch:
        """The choice of experts."""
        (x, out), num_chosen = self._places(operator), int(operator.attributes["num_chosen"])
        return lambda step: route(x.of(step), num_chosen, out.of(step))

    def experts(self, operator: Operator) -> Launch:
        """Gated networks over the rows that chose them."""
        (x, routing, out), num_chosen = self._places(operator), int(operator.attributes["num_chosen"])
        gate, up, down = (self._weights[name] for name in operator.weights)
        return lambda step: grouped.experts(x.of(step), routing.of(step), gate, up, down, num_chosen, out.of(step))

    def add(self, operator: Operator) -> Launch:
        """A sum of two buffers."""
        a, b, out = self._places(operator)
        return lambda step: products.add(a.of(step), b.of(step), out.of(step))

    def add_bias(self, operator: Operator) -> Launch:
        """A row added to all rows."""
        (x, out), bias = self._places(operator), self._weights[operator.weights[0]]
        return lambda step: products.add(x.of(step), bias, out.of(step))

    def all_reduce(self, operator: Operator) -> Launch:
        """A sum over the devices of the group, in place."""
        x, out = self._places(operator)
        assert operator.inputs == operator.outputs, "added in place"
        assert out.numbers.is_contiguous(), "no view of columns"
        return lambda step: self._group.all_reduce(x.of(step))

    def all_gather(self, operator: Operator) -> Launch:
        """Columns of all devices side by side."""
        x, out = self._places(operator)
        return lambda step: products.copy(self._group.all_gather(x.of(step)), out.of(step))

    def select_draws(self, operator: Operator) -> Launch:
        """The rows that draw."""
        share, x = operator.share, self._place(operator.inputs[0], WHOLE)
        out = self._place(operator.outputs[0], share)
        return lambda step: products.select(x.of(step), step.draw_rows(share), out.of(step))

    def segment_embedding(self, operator: Operator) -> Launch:
        """A row of a table for each text of a pair."""
        table, separator = self._weights[operator.weights[0]], int(operator.attributes["separator"])
        out = self._place(operator.outputs[0], operator.share)

        def launch(step: CudaStep) -> None:
            own = step.rows(Rows.TOKENS, operator.share)
            segment_embedding(table, step.token_ids(WHOLE), step.positions(WHOLE), own.start, separator, out.of(step))

        return launch

    def pool(self, operator: Operator) -> Launch:
        """One row of a text's rows: the first, or their mean."""
        share, x = operator.share, self._place(operator.inputs[0], WHOLE)
        out, kernel = self._place(operator.outputs[0], share), POOLS[operator.kind]
        return lambda step: kernel(x.of(step), step.positions(WHOLE), step.draw_rows(share), out.of(step))

    def poll(self, _operator: Operator) -> Launch:
        """A look at what others wait for, in a launch of its own."""
        return poll_launch(self._serving, self._caches[0].numbers)

    def send(self, operator: Operator) -> Launch:
        """Remote rows into the receiver's ring."""
        q, k, v = self._places(operator)
        window = int(operator.attributes.get("window", UNBOUNDED))
        self._num_under_way += 1
        self.most_under_way = max(self.most_under_way, self._num_under_way)
        return send_launch(self._asking, (q, k, v), self._cache(operator), operator.share, window)

    def gather(self, operator: Operator) -> Launch:
        """What came of them."""
        (out,) = self._places(operator)
        self._num_under_way -= 1
        return gather_launch(self._asking, self._serving, out, self._caches[0].numbers, operator.share)


LOWERINGS: Mapping[OperatorKind, Callable[[_Lowering, Operator], Launch]] = {
    **dict.fromkeys(PRODUCTS, _Lowering.product),
    **dict.fromkeys(ATTENTIONS, _Lowering.attention),
    **dict.fromkeys(NORMS, _Lowering.norm),
    **dict.fromkeys(ACTIVATIONS, _Lowering.activation),
    **dict.fromkeys(_ANGLES, _Lowering.make_angles),
    **dict.fromkeys(POOLS, _Lowering.pool),
    **dict.fromkeys((OperatorKind.WRITE_KV, OperatorKind.ROPE_WRITE_KV), _Lowering.write_kv),
    OperatorKind.LORA: _Lowering.lora,
    OperatorKind.EMBEDDING: _Lowering.embedding,
    OperatorKind.SEGMENT_EMBEDDING: _Lowering.segment_embedding,
    OperatorKind.ROPE: _Lowering.rope,
    OperatorKind.ROUTE: _Lowering.route,
    OperatorKind.EXPERTS: _Lowering.experts,
    OperatorKind.ADD: _Lowering.add,
    OperatorKind.ADD_BIAS: _Lowering.add_bias,
    OperatorKind.SELECT_DRAWS: _Lowering.select_draws,
    OperatorKind.ALL_REDUCE: _Lowering.all_reduce,
    OperatorKind.ALL_GATHER: _Lowering.all_gather,
    OperatorKind.POLL: _Lowering.poll,
    OperatorKind.SEND: _Lowering.send,
    OperatorKind.GATHER: _Lowering.gather,
}
