"""NanoFlow's cost model (OSDI'25, §3.2-3.5): what a step takes of compute, memory and network, and which binds.

An operator's line is table 2's: activations are counted once for the whole group of devices, weights by each device
for its part, and what goes over the links as equation 3 has it. Numbers are of two bytes.
"""

from __future__ import annotations

from dataclasses import dataclass

from shared.config.hardware import ModelShape
from shared.pipelines.batch import DenseBatch, MeanLengths, largest_batch
from shared.pipelines.machine import GroupPeaks

NUMBER_BYTES = 2
"""Of activations, keys and values."""


@dataclass(frozen=True, slots=True)
class OperatorCost:
    """One operator of all layers, on the whole group of devices."""

    name: str
    flops: float
    num_bytes: float
    wire_bytes: float = 0.0
    weight_bytes: float = 0.0
    """Of ``num_bytes``, those of weights: read again by each part of a batch."""

    def compute_s(self, machine: GroupPeaks) -> float:
        """Seconds of computing at the peak."""
        return self.flops / machine.flops_per_s

    def memory_s(self, machine: GroupPeaks) -> float:
        """Seconds of reading and writing at the peak."""
        return self.num_bytes / machine.memory_bytes_per_s

    def network_s(self, machine: GroupPeaks) -> float:
        """Seconds of sending at the peak; none where there is nothing to send."""
        return self.wire_bytes / machine.network_bytes_per_s if self.wire_bytes else 0.0


def operator_costs(model: ModelShape, batch: DenseBatch, machine: GroupPeaks) -> list[OperatorCost]:
    """The operators of all layers, as table 2 has them."""
    hidden, rows, part = model.hidden_size, batch.num_rows, model.feed_forward
    q_size, kv_size = model.num_heads * model.head_dim, model.num_kv_heads * model.head_dim
    num_up = part.num_products - 1
    return [
        _product("KQV", model, rows, hidden, q_size + 2 * kv_size),
        _product("O", model, rows, q_size, hidden),
        _product("UG", model, rows, hidden, num_up * part.inner_size, part.num_experts, part.num_chosen),
        _product("D", model, rows, part.inner_size, hidden, part.num_experts, part.num_chosen),
        _attention("DecAttn", model, batch.num_decodes, batch.decode_tokens, batch.decode_tokens),
        _attention("PfAttn", model, batch.num_prefill_rows, batch.prefill_pairs, 0.0),
        _network(model, rows, machine.num_devices),
    ]


def _product(
    name: str,
    model: ModelShape,
    rows: float,
    num_inputs: int,
    num_outputs: int,
    num_experts: int = 1,
    num_chosen: int = 1,
) -> OperatorCost:
    """Rows times a matrix (§3.2); of experts, each row times some of them, and all are read."""
    weights = model.num_layers * num_inputs * num_outputs * num_experts * model.weight_bytes
    numbers = model.num_layers * rows * num_chosen * (num_inputs + num_outputs)
    return OperatorCost(
        name,
        flops=2.0 * model.num_layers * rows * num_chosen * num_inputs * num_outputs,
        num_bytes=weights + numbers * NUMBER_BYTES,
        weight_bytes=weights,
    )


def _attention(name: str, model: ModelShape, rows: float, pairs: float, context_tokens: float) -> OperatorCost:
    """A product with the key and one with the value of each token; keys, values, queries and outputs are moved.

    Of prefill, the context is what it has just written: moved once.
    """
    q_size, kv_size = model.num_heads * model.head_dim, model.num_kv_heads * model.head_dim
    moved = context_tokens * 2 * kv_size + rows * (2 * q_size + 2 * kv_size)
    return OperatorCost(
        name,
        flops=4.0 * model.num_layers * pairs * q_size,
        num_bytes=model.num_layers * moved * NUMBER_BYTES,
    )


def _network(model: ModelShape, rows: float, num_devices: int) -> OperatorCost:
    """Equation 3: two gathers and a reduction, or two reductions, of each layer's rows; half of it is added up."""
    numbers = 4.0 * (num_devices - 1) * rows * model.hidden_size * model.num_layers
    return OperatorCost("Net", numbers / 2, numbers * NUMBER_BYTES, numbers * NUMBER_BYTES)


def network_ratio(machine: GroupPeaks, model: ModelShape, num_parameters: float) -> float:
    """Network time over compute time (§3.3, figure 2): equation 3 over equation 2, whatever the rows.

    ``num_parameters`` are those that a row is multiplied with.
    """
    if machine.num_devices == 1:
        return 0.0
    sent = 4.0 * (machine.num_devices - 1) * model.hidden_size * NUMBER_BYTES * model.num_layers
    return (sent / machine.network_bytes_per_s) / (2.0 * num_parameters / machine.flops_per_s)


def memory_ratio(machine: GroupPeaks, model: ModelShape, lengths: MeanLengths, num_parameters: float) -> float:
    """T_R, memory time over compute time (equation 4, figure 3), at the largest batch."""
    memory_s = machine.memory_bytes / machine.memory_bytes_per_s  # equation 1
    compute_s = 2.0 * largest_batch(machine, model, lengths) * num_parameters / machine.flops_per_s  # equation 2
    return memory_s / compute_s


def optimal_tokens_per_s(flops_per_s: float, num_parameters: float) -> float:
    """Equation 5, of one device that computes so much: Compute / 2 P."""
    return flops_per_s / (2.0 * num_parameters)
