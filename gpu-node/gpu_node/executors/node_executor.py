"""The executor that a node's configuration asks for, on the CPUs that it names."""

from __future__ import annotations

import os

import torch

from gpu_node.executors.cpu import CpuExecutor
from gpu_node.executors.executor import Executor
from gpu_node.executors.reference import ReferenceExecutor
from gpu_node.executors.tensor_parallel import TensorParallelExecutor
from shared.config import EngineOptions, NodeSpec
from shared.errors import OperatorError


class CpuNotOursError(OperatorError, ValueError):
    """A node names a CPU that this process may not run on."""


def make_executor(node: NodeSpec, options: EngineOptions) -> Executor:
    """An executor without a model; `CpuNotOursError` if it cannot be pinned as asked."""
    if node.cpus:
        _check_cpus(node)
    torch.set_num_threads(node.num_threads)
    if node.executor == "cpu":
        return CpuExecutor(options, node.num_threads, node.cpus)
    if node.cpus:
        os.sched_setaffinity(0, node.cpus)  # torch's threads come later, and stay where this one is
    if node.tensor_parallel > 1:
        return TensorParallelExecutor(options, node.tensor_parallel, node.num_threads)
    return ReferenceExecutor(options)


def _check_cpus(node: NodeSpec) -> None:
    if not hasattr(os, "sched_getaffinity"):
        raise CpuNotOursError(f"node {node.name!r}: this system cannot pin threads; leave cpus empty")
    ours = os.sched_getaffinity(0)
    others = sorted(set(node.cpus) - ours)
    if others:
        raise CpuNotOursError(
            f"node {node.name!r}: cpus names {', '.join(map(str, others))}, but this process may run on "
            f"{', '.join(map(str, sorted(ours)))} only"
        )
