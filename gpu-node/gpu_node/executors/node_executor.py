"""The executor that a node's configuration asks for, on the CPUs that it names.

Executors are imported where they are made: torch takes a second and 200 MB, which a node that only predicts, one of
many on a machine perhaps, does without.
"""

from __future__ import annotations

import os
import time

from gpu_node.executors.executor import Executor
from gpu_node.executors.paced import Clock, PacedExecutor
from gpu_node.executors.virtual import VirtualExecutor
from shared.config_engine import EngineOptions
from shared.config_nodes import NodeSpec
from shared.errors import OperatorError


class CpuNotOursError(OperatorError, ValueError):
    """A node names a CPU that this process may not run on."""


def make_executor(node: NodeSpec, options: EngineOptions) -> Executor:
    """An executor without a model; `CpuNotOursError` if it cannot be pinned as asked."""
    if node.cpus:
        _check_cpus(node)
    if node.executor == "predicted":
        return PacedExecutor(VirtualExecutor(node.device, options), Clock(time.monotonic, time.sleep))
    return _with_tensors(node, options)


def _with_tensors(node: NodeSpec, options: EngineOptions) -> Executor:
    import torch

    torch.set_num_threads(node.num_threads)
    if node.executor == "cpu":
        from gpu_node.executors.cpu import CpuExecutor

        return CpuExecutor(options, node.num_threads, node.cpus)
    if node.cpus:
        os.sched_setaffinity(0, node.cpus)  # torch's threads come later, and stay where this one is
    if node.tensor_parallel > 1:
        from gpu_node.executors.tensor_parallel import TensorParallelExecutor

        return TensorParallelExecutor(options, node.tensor_parallel, node.num_threads)
    from gpu_node.executors.reference import ReferenceExecutor

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
