"""The CPU device as Python sees it: a queue with threads of its own, and programs that are replayed on it."""

from gpu_node.kernels.cpu.arena import CpuArena
from gpu_node.kernels.cpu.device import CpuDevice, CpuStepTimes
from gpu_node.kernels.cpu.library.layout import (
    LEVELS,
    CpuCacheShape,
    CpuLinkShape,
    CpuRows,
    Epilogue,
    Index,
    Int32s,
    Limits,
    Type,
    View,
)
from gpu_node.kernels.cpu.library.library import kernels_name, level, library
from gpu_node.kernels.cpu.link_receiver import CpuLinkReceiver
from gpu_node.kernels.cpu.link_sender import CpuLinkSender
from gpu_node.kernels.cpu.program import CpuProgram
from gpu_node.kernels.cpu.remotes import CpuRemote, CpuRemotes
from gpu_node.kernels.cpu.step import CpuStep
from gpu_node.kernels.link_file import LinkError, sweep_links

__all__ = [
    "LEVELS",
    "CpuArena",
    "CpuCacheShape",
    "CpuDevice",
    "CpuLinkReceiver",
    "CpuLinkSender",
    "CpuLinkShape",
    "CpuProgram",
    "CpuRemote",
    "CpuRemotes",
    "CpuRows",
    "CpuStep",
    "CpuStepTimes",
    "Epilogue",
    "Index",
    "Int32s",
    "Limits",
    "LinkError",
    "Type",
    "View",
    "kernels_name",
    "level",
    "library",
    "sweep_links",
]
