"""How kernels differ from what data sheets promise: what NanoFlow's table 2 measures, beside its estimates."""

from __future__ import annotations

from dataclasses import dataclass

from shared.config.hardware import model_named
from shared.pipelines.batch import DenseBatch
from shared.pipelines.cost import OperatorCost, operator_costs
from shared.pipelines.machine import GroupPeaks, machine
from shared.pipelines.paper import TABLE_2_LENGTHS, TABLE_2_REAL_S, TABLE_2_ROWS

_PRODUCTS = ("KQV", "O", "UG", "D")


@dataclass(frozen=True, slots=True)
class KernelCalibration:
    """How table 2's measurements differ from its estimates."""

    rate_share: dict[str, float]
    """By product: what it reaches of the peak, reading weights aside."""
    launch_s: float
    """Of one attention operator."""
    attention_slowness: float
    """Time over estimate, without the launch."""
    network_slowness: float


def calibrate() -> KernelCalibration:
    """From table 2 alone."""
    model, group = model_named("llama-2-70b"), machine("a100", 8)
    costs = {cost.name: cost for cost in operator_costs(model, DenseBatch(TABLE_2_ROWS, TABLE_2_LENGTHS), group)}
    prefill, decode = costs["PfAttn"], costs["DecAttn"]
    launches_s = TABLE_2_REAL_S["PfAttn"] - best_s(prefill, group)
    return KernelCalibration(
        {
            name: costs[name].compute_s(group) / (TABLE_2_REAL_S[name] - weights_s(costs[name], group))
            for name in _PRODUCTS
        },
        launch_s=launches_s / model.num_layers,
        attention_slowness=(TABLE_2_REAL_S["DecAttn"] - launches_s) / best_s(decode, group),
        network_slowness=TABLE_2_REAL_S["Net"] / costs["Net"].network_s(group),
    )


def best_s(cost: OperatorCost, group: GroupPeaks) -> float:
    """By the resource that binds it, at its peak."""
    return max(cost.compute_s(group), cost.memory_s(group))


def weights_s(cost: OperatorCost, group: GroupPeaks) -> float:
    """To read its weights."""
    return cost.weight_bytes / group.memory_bytes_per_s
