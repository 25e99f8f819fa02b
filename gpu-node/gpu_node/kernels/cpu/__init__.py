"""The CPU device as Python sees it: a queue with threads of its own, and programs that are replayed on it."""

from gpu_node.kernels.cpu.arena import CpuArena
from gpu_node.kernels.cpu.device import CpuDevice
from gpu_node.kernels.cpu.layout import (
    LEVELS,
    WHOLE,
    CpuCacheShape,
    CpuRows,
    CpuShare,
    Epilogue,
    Float32s,
    Index,
    Int32s,
    Limits,
    Type,
    View,
)
from gpu_node.kernels.cpu.library import level, library
from gpu_node.kernels.cpu.program import CpuProgram
from gpu_node.kernels.cpu.step import CpuStep

__all__ = [
    "LEVELS",
    "WHOLE",
    "CpuArena",
    "CpuCacheShape",
    "CpuDevice",
    "CpuProgram",
    "CpuRows",
    "CpuShare",
    "CpuStep",
    "Epilogue",
    "Float32s",
    "Index",
    "Int32s",
    "Limits",
    "Type",
    "View",
    "level",
    "library",
]
