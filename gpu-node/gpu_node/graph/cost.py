"""What each operator of a program costs in a step of a given size: floating-point operations and bytes moved.

The model of NanoFlow (OSDI'25, §3): a step takes no less than its bytes over the bandwidth, and no less than its
operations over the compute rate. An operator reads its weights and buffers from memory and writes its outputs there;
nothing stays in a cache between two operators. A multiplication with its addition counts two operations, each
exponential, root or comparison one. Token ids and positions are not counted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from gpu_node.graph.program import (
    ATTENTIONS,
    BOTH_SIDES,
    KV_WRITERS,
    PRODUCTS,
    Buffer,
    Operator,
    OperatorKind,
    Program,
    Rows,
    keys_and_values,
)
from gpu_node.graph.step_shape import StepShape
from gpu_node.graph.weight import Weight

_FLOPS_PER_NUMBER: Mapping[OperatorKind, float] = {
    OperatorKind.RMS_NORM: 4,  # square, sum, times the root, times the weight
    OperatorKind.HEAD_NORM: 4,
    OperatorKind.LAYER_NORM: 7,  # sum, minus the mean, square, sum, times the root, times the weight, plus the bias
    OperatorKind.ROPE_ANGLES: 1.5,  # for a pair: angle, cosine, sine
    OperatorKind.SCALED_ROPE_ANGLES: 1.5,
    OperatorKind.ROPE: 3,  # for a pair: four products, two sums
    OperatorKind.SILU_MUL: 5,  # minus, exponential, plus one, divide, times up
    OperatorKind.RELU: 1,
    OperatorKind.GELU: 9,
    OperatorKind.ERF_GELU: 18,
    OperatorKind.ERF_GELU_MUL: 19,
    OperatorKind.TANH: 4,
    OperatorKind.ROUTE: 5,  # compare, and a softmax
    OperatorKind.ADD: 1,
    OperatorKind.ADD_BIAS: 1,
}
"""Operations for each number that is written; kinds that only move numbers have none."""


@dataclass(frozen=True, slots=True)
class NumberBytes:
    """Bytes of one number; quantised weights have fractions (scales included)."""

    weight: float = 4.0
    buffer: float = 4.0
    kv: float = 4.0


@dataclass(frozen=True, slots=True)
class Cost:
    """Of one operator, or of several together."""

    flops: float = 0.0
    weight_bytes: float = 0.0
    kv_bytes: float = 0.0
    buffer_bytes: float = 0.0
    wire_bytes: float = 0.0
    """Sent to other devices by each device of a group."""

    @property
    def num_bytes(self) -> float:
        """All bytes read and written in memory."""
        return self.weight_bytes + self.kv_bytes + self.buffer_bytes


@dataclass(frozen=True, slots=True)
class DeviceRates:
    """What a device does at best."""

    bytes_per_s: float
    flops_per_s: float
    wire_bytes_per_s: float = math.inf
    """Sent to other devices; infinite where there are none, or where only the device itself is of interest."""

    def seconds(self, cost: Cost) -> float:
        """The longest of memory time, compute time and network time, which overlap."""
        return max(
            cost.num_bytes / self.bytes_per_s,
            cost.flops / self.flops_per_s,
            cost.wire_bytes / self.wire_bytes_per_s,
        )


def total(costs: Sequence[Cost]) -> Cost:
    """The sum."""
    return Cost(
        flops=math.fsum(cost.flops for cost in costs),
        weight_bytes=math.fsum(cost.weight_bytes for cost in costs),
        kv_bytes=math.fsum(cost.kv_bytes for cost in costs),
        buffer_bytes=math.fsum(cost.buffer_bytes for cost in costs),
        wire_bytes=math.fsum(cost.wire_bytes for cost in costs),
    )


def program_costs(program: Program, step: StepShape, sizes: NumberBytes) -> list[Cost]:
    """The cost of each operator, in the program's order."""
    meters = {share: _Meter(program, step.part(share), sizes) for share in {one.share for one in program.operators}}
    return [meters[operator.share].cost(operator) for operator in program.operators]


class _Meter:
    """Looks up what the cost of an operator depends on, in a step, or in a share of one."""

    def __init__(self, program: Program, step: StepShape, sizes: NumberBytes) -> None:
        self._buffers: Mapping[str, Buffer] = {buffer.name: buffer for buffer in program.buffers}
        self._weights: Mapping[str, Weight] = {weight.name: weight for weight in program.weights}
        self._step = step
        self._sizes = sizes
        self._kv_columns = {
            operator.layer: sum(self._buffers[name].num_columns for name in keys_and_values(operator))
            for operator in program.operators
            if operator.kind in KV_WRITERS
        }

    def cost(self, operator: Operator) -> Cost:
        """By the operator's kind; most kinds do so much for each number that they write."""
        special = _SPECIAL.get(operator.kind)
        if special is not None:
            return special(self, operator)
        num_written = self._numbers(operator.outputs)
        return Cost(
            flops=_FLOPS_PER_NUMBER[operator.kind] * num_written,
            weight_bytes=self._weight_numbers(operator) * self._sizes.weight,
            buffer_bytes=(self._numbers(operator.inputs) + num_written) * self._sizes.buffer,
        )

    def linear(self, operator: Operator) -> Cost:
        """Every row times the whole matrix, which is read once, and what is done to each number of the product."""
        rows = self._rows(operator.outputs[0])
        num_written = self._numbers(operator.outputs)
        return Cost(
            flops=2.0 * rows * self._weights[operator.weights[0]].num_numbers + _AFTER[operator.kind] * num_written,
            weight_bytes=self._weight_numbers(operator) * self._sizes.weight,
            buffer_bytes=(self._numbers(operator.inputs) + num_written) * self._sizes.buffer,
        )

    def lora(self, operator: Operator) -> Cost:
        """As if all rows asked for one adapter: two products of low rank, and a sum."""
        (num_adapters, rank, inputs), rows = self._weights[operator.weights[0]].shape, self._rows(operator.outputs[0])
        num_written = self._numbers(operator.outputs)
        return Cost(
            flops=2.0 * rows * rank * inputs + (2.0 * rank + 1.0) * num_written,
            weight_bytes=self._weight_numbers(operator) / num_adapters * self._sizes.weight,
            buffer_bytes=(self._numbers(operator.inputs) + num_written) * self._sizes.buffer,
        )

    def embedding(self, operator: Operator) -> Cost:
        """Only the rows of the table that are looked up are read."""
        num_written = self._numbers(operator.outputs)
        return Cost(weight_bytes=num_written * self._sizes.weight, buffer_bytes=num_written * self._sizes.buffer)

    def mean_pool(self, operator: Operator) -> Cost:
        """All rows are read and added up."""
        num_read, num_written = self._numbers(operator.inputs), self._numbers(operator.outputs)
        return Cost(flops=num_read + num_written, buffer_bytes=(num_read + num_written) * self._sizes.buffer)

    def select(self, operator: Operator) -> Cost:
        """Only the rows that are selected are read."""
        return Cost(buffer_bytes=2 * self._numbers(operator.outputs) * self._sizes.buffer)

    def write_kv(self, operator: Operator) -> Cost:
        """Copies keys and values from buffers to blocks."""
        num_written = self._numbers(operator.inputs)
        return Cost(kv_bytes=num_written * self._sizes.kv, buffer_bytes=num_written * self._sizes.buffer)

    def rope_write_kv(self, operator: Operator) -> Cost:
        """Queries and keys are turned in place, then keys and values copied from where they are by then."""
        turned = self._numbers(operator.outputs)
        return Cost(
            flops=_FLOPS_PER_NUMBER[OperatorKind.ROPE] * turned,
            kv_bytes=self._numbers(keys_and_values(operator)) * self._sizes.kv,
            buffer_bytes=(self._numbers(operator.inputs) + turned) * self._sizes.buffer,
        )

    def attention(self, operator: Operator) -> Cost:
        """For each attended token and head, a product with its key and one with its value; the softmax is left out."""
        (query,) = operator.inputs
        stated = operator.attributes.get("window")
        window = None if stated is None else int(stated)
        attended = self._step.num_attended(window, both_sides=operator.kind in BOTH_SIDES)
        context = self._step.num_context_tokens(window)
        return Cost(
            flops=4.0 * attended * self._buffers[query].num_columns,
            kv_bytes=context * self._kv_columns[operator.layer] * self._sizes.kv,
            buffer_bytes=(self._numbers(operator.inputs) + self._numbers(operator.outputs)) * self._sizes.buffer,
        )

    def experts(self, operator: Operator) -> Cost:
        """Each row goes through its own experts; an expert's weights are read if any row chose it.

        If rows choose evenly and independently, a given one of E experts is chosen by none of n rows with
        probability (1 - k / E) ** n.
        """
        chosen = int(operator.attributes["num_chosen"])
        num_experts, inner, columns = self._weights[operator.weights[0]].shape
        rows = self._rows(operator.outputs[0])
        read_share = 1.0 - (1.0 - chosen / num_experts) ** rows
        per_row = 6.0 * inner * columns + _FLOPS_PER_NUMBER[OperatorKind.SILU_MUL] * inner + 2.0 * columns
        return Cost(
            flops=rows * chosen * per_row,
            weight_bytes=read_share * self._weight_numbers(operator) * self._sizes.weight,
            buffer_bytes=(self._numbers(operator.inputs) + self._numbers(operator.outputs)) * self._sizes.buffer,
        )

    def all_reduce(self, operator: Operator) -> Cost:
        """In a ring of n: n - 1 parts are sent to be summed, and n - 1 sums (Patarasuk, Yuan, JPDC'09)."""
        world = int(operator.attributes["world"])
        num_bytes = self._numbers(operator.outputs) * self._sizes.buffer
        return Cost(
            flops=self._numbers(operator.outputs) * (world - 1) / world,
            buffer_bytes=2 * num_bytes,
            wire_bytes=2 * num_bytes * (world - 1) / world,
        )

    def all_gather(self, operator: Operator) -> Cost:
        """In a ring of n, each device sends its own part and passes on n - 2 others."""
        world = int(operator.attributes["world"])
        sent = self._numbers(operator.inputs) * (world - 1) * self._sizes.buffer
        read_and_written = self._numbers(operator.inputs) + self._numbers(operator.outputs)
        return Cost(buffer_bytes=read_and_written * self._sizes.buffer, wire_bytes=sent)

    def send(self, operator: Operator) -> Cost:
        """Rows go over the wire."""
        num_bytes = self._numbers(operator.inputs) * self._sizes.buffer
        return Cost(buffer_bytes=num_bytes, wire_bytes=num_bytes)

    def gather(self, operator: Operator) -> Cost:
        """Rows that the other side has sent."""
        return Cost(buffer_bytes=self._numbers(operator.outputs) * self._sizes.buffer)

    def poll(self, _operator: Operator) -> Cost:
        """One load, when nothing waits."""
        return Cost()

    def copy_out(self, _operator: Operator) -> Cost:
        """Of blocks that earlier steps have filled: nothing that a step's shape says."""
        return Cost()

    def _rows(self, buffer: str) -> int:
        return self._step.num_rows if self._buffers[buffer].rows is Rows.TOKENS else self._step.num_draws

    def _numbers(self, buffers: Sequence[str]) -> int:
        known = (name for name in buffers if name in self._buffers)  # token ids and positions are not
        return sum(self._rows(name) * self._buffers[name].num_columns for name in known)

    def _weight_numbers(self, operator: Operator) -> int:
        return sum(self._weights[name].num_numbers for name in operator.weights)


_AFTER: Mapping[OperatorKind, float] = {
    OperatorKind.LINEAR: 0,
    OperatorKind.LINEAR_BIAS: 1,
    OperatorKind.LINEAR_ADD: 1,
    OperatorKind.GATED_LINEAR: _FLOPS_PER_NUMBER[OperatorKind.SILU_MUL],
}
"""What products do for each number that they write, besides their sums."""

_SPECIAL: Mapping[OperatorKind, Callable[[_Meter, Operator], Cost]] = {
    **dict.fromkeys(PRODUCTS, _Meter.linear),
    **dict.fromkeys(ATTENTIONS, _Meter.attention),
    OperatorKind.LORA: _Meter.lora,
    OperatorKind.EMBEDDING: _Meter.embedding,
    OperatorKind.SEGMENT_EMBEDDING: _Meter.embedding,
    OperatorKind.MEAN_POOL: _Meter.mean_pool,
    OperatorKind.WRITE_KV: _Meter.write_kv,
    OperatorKind.ROPE_WRITE_KV: _Meter.rope_write_kv,
    OperatorKind.EXPERTS: _Meter.experts,
    OperatorKind.ALL_REDUCE: _Meter.all_reduce,
    OperatorKind.ALL_GATHER: _Meter.all_gather,
    OperatorKind.POLL: _Meter.poll,
    OperatorKind.COPY_OUT: _Meter.copy_out,
    OperatorKind.SEND: _Meter.send,
    OperatorKind.GATHER: _Meter.gather,
    OperatorKind.SELECT_DRAWS: _Meter.select,
    OperatorKind.SELECT_FIRST: _Meter.select,
}
