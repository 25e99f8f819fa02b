"""Devices as NanoFlow's cost model sees them: a group of equal ones, with what all of them together do at best."""

from __future__ import annotations

from dataclasses import dataclass

from shared.config.hardware import DEVICES, DataSheet, device_named


@dataclass(frozen=True, slots=True)
class GroupPeaks:
    """A group of devices; rates and memory are those of the whole group."""

    device: str
    num_devices: int
    flops_per_s: float
    memory_bytes_per_s: float
    memory_bytes: float
    network_bytes_per_s: float
    """Of the links between the devices, one way."""
    host_bytes_per_s: float
    """Of the links to host memory, one way."""


def _row(name: str, memory_gb: float, memory_gb_per_s: float, network_gb_per_s: float, tflops: float) -> DataSheet:
    """A row of the table below, which has links both ways together, and says nothing of hosts and disks."""
    known = DEVICES.get(name)
    host, disk = (known.host_bytes_per_s, known.disk_bytes_per_s) if known else (0.0, 0.0)
    rates = (tflops * 1e12, memory_gb_per_s * 1e9, memory_gb * 1e9)
    return DataSheet(name, *rates, host, disk, network_bytes_per_s=network_gb_per_s * 1e9 / 2)


ACCELERATORS = {
    row.name: row
    for row in (
        _row("v100", 16, 900, 300, 125),
        _row("a100-40gb", 40, 1_555, 600, 312),
        _row("a100", 80, 2_000, 600, 312),
        _row("h100", 80, 3_352, 900, 989),
        _row("h200", 141, 4_800, 900, 989),
        _row("b100", 192, 8_000, 1_800, 1_800),
        _row("b200", 192, 8_000, 1_800, 2_250),
        _row("mi250", 128, 3_352, 800, 362),
        _row("mi300", 192, 5_300, 1_024, 1_307),
        _row("mi325x", 256, 6_000, 1_024, 1_307),
        _row("gaudi2", 96, 2_400, 600, 1_000),
        _row("gaudi3", 128, 3_700, 1_200, 1_800),
        _row("ada-6000", 48, 960, 64, 182),
    )
}
"""NanoFlow's table 1. Its numbers are rounded (the A100 has 2,039 GB/s by its data sheet); here they come first."""

DEVICE_NAMES = (*ACCELERATORS, *(name for name in DEVICES if name not in ACCELERATORS))


def machine(device: str, num_devices: int) -> GroupPeaks:
    """So many devices of a kind; `UnknownHardwareError` for an unknown one."""
    sheet = ACCELERATORS.get(device) or device_named(device)
    return GroupPeaks(
        device,
        num_devices,
        flops_per_s=num_devices * sheet.flops_per_s,
        memory_bytes_per_s=num_devices * sheet.memory_bytes_per_s,
        memory_bytes=num_devices * sheet.memory_bytes,
        network_bytes_per_s=num_devices * sheet.network_bytes_per_s,
        host_bytes_per_s=num_devices * sheet.host_bytes_per_s,
    )
