"""Several devices as one node, which share each model's layers (tensor parallel): kinds such as ``a100x8``."""

from __future__ import annotations

from dataclasses import dataclass, replace

from shared.config import hardware
from shared.config.hardware import DEVICES, LINK_EFFICIENCY, DataSheet, ModelShape
from shared.messages.nodes.step_cost import StepCost
from shared.pipelines.batch import DenseBatch, MeanLengths
from shared.pipelines.cost import operator_costs
from shared.pipelines.machine import machine

GROUP_SIZES = (2, 4, 8)
_ROW = DenseBatch(1, MeanLengths(1, 0))


@dataclass(frozen=True, slots=True)
class NodeDevices:
    """A kind of node."""

    sheet: DataSheet
    """Of all of its devices together; they have one disk."""
    device: str
    num_devices: int = 1

    def step_cost(self, model: ModelShape) -> StepCost:
        """Of one operator after another; of a group, also what collectives take of each row (NanoFlow, equation 3)."""
        cost = hardware.step_cost(self.sheet, model)
        if self.num_devices == 1:
            return cost
        group = machine(self.device, self.num_devices)
        (net,) = (one for one in operator_costs(model, _ROW, group) if one.name == "Net")
        return replace(cost, token_s=cost.token_s + net.network_s(group) / LINK_EFFICIENCY)


def group_name(device: str, num_devices: int) -> str:
    """As configurations of simulations say it."""
    return device if num_devices == 1 else f"{device}x{num_devices}"


GROUPS = {
    group_name(sheet.name, number): NodeDevices(
        replace(
            sheet,
            name=group_name(sheet.name, number),
            flops_per_s=number * sheet.flops_per_s,
            memory_bytes_per_s=number * sheet.memory_bytes_per_s,
            memory_bytes=number * sheet.memory_bytes,
            host_bytes_per_s=number * sheet.host_bytes_per_s,
            network_bytes_per_s=number * sheet.network_bytes_per_s,
        ),
        sheet.name,
        number,
    )
    for sheet in DEVICES.values()
    if sheet.network_bytes_per_s
    for number in GROUP_SIZES
}
"""Of devices with links to their like."""
KINDS = (*DEVICES, *GROUPS)


def group_named(kind: str) -> NodeDevices:
    """One device of the catalogue, or a group of them; `UnknownHardwareError` for an unknown one."""
    return GROUPS.get(kind) or NodeDevices(hardware.device_named(kind), kind)
