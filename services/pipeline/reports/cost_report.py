"""What `treadle pipeline cost` tells: NanoFlow's table 2 and the ratios of figures 2 and 3, of any model and device."""

from __future__ import annotations

from typing import Any

from shared.config.hardware import ModelShape
from shared.pipelines.batch import DenseBatch, MeanLengths
from shared.pipelines.cost import (
    OperatorCost,
    memory_ratio,
    network_ratio,
    operator_costs,
    optimal_tokens_per_s,
)
from shared.pipelines.machine import GroupPeaks
from shared.pipelines.paper import MEASURED_FLOPS_PER_S, NAMED_PARAMETERS


def model_parameters(model: ModelShape) -> float:
    """P of the paper's equations."""
    return NAMED_PARAMETERS.get(model.name, model.active_parameters)


def measured_flops_per_s(machine: GroupPeaks) -> float:
    """Of one device, what products reach, where that was published; the peak elsewhere."""
    return MEASURED_FLOPS_PER_S.get(machine.device, machine.flops_per_s / machine.num_devices)


def cost_report(machine: GroupPeaks, model: ModelShape, batch: DenseBatch, lengths: MeanLengths) -> dict[str, Any]:
    """By operator of all layers, in sum, and the ratios that say what binds."""
    costs = operator_costs(model, batch, machine)
    rows = [{"name": cost.name, **_columns(cost, machine)} for cost in costs]
    parameters = model_parameters(model)
    return {
        "model": model.name,
        "device": machine.device,
        "num_devices": machine.num_devices,
        "rows": batch.num_rows,
        "prompt_tokens": lengths.prompt_tokens,
        "output_tokens": lengths.output_tokens,
        "operators": rows,
        "totals": {key: sum(row[key] for row in rows) for key in rows[0] if key != "name"},
        "t_r": memory_ratio(machine, model, lengths, parameters),
        "net_ratio": network_ratio(machine, model, parameters),
        "measured_tflops": measured_flops_per_s(machine) / 1e12,
        "optimal_tok_s_per_device": optimal_tokens_per_s(measured_flops_per_s(machine), parameters),
    }


def _columns(cost: OperatorCost, machine: GroupPeaks) -> dict[str, float]:
    return {
        "gflop": cost.flops / 1e9,
        "mem_gb": cost.num_bytes / 1e9,
        "net_gb": cost.wire_bytes / 1e9,
        "t_compute_s": cost.compute_s(machine),
        "t_mem_s": cost.memory_s(machine),
        "t_net_s": cost.network_s(machine),
    }
