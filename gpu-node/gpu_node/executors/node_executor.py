"""The executor that a node's configuration asks for, on the CPUs that it names.

Executors are imported where they are made: torch takes a second and 200 MB, which nodes of processors, and those that
only predict, many on a machine perhaps, do without. Their image has none.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from gpu_node.engine.border.executor import Executor
from gpu_node.executors.own_cpus import cpu_problem
from gpu_node.executors.predicted.paced import Clock, PacedExecutor
from gpu_node.executors.predicted.virtual import VirtualExecutor
from gpu_node.executors.torch_installed import TorchMissingError, torch_problem
from shared.config.engines.engine import EngineOptions
from shared.config.nodes.nodes import NodeSpec
from shared.config.pipelines.pipelines import NO_PIPELINES, Pipelines
from shared.errors import OperatorError

if TYPE_CHECKING:
    from gpu_node.executors.group.part import RankSpec


class CpuNotOursError(OperatorError, ValueError):
    """A node names a CPU that this process may not run on."""


def make_executor(node: NodeSpec, options: EngineOptions, pipelines: Pipelines = NO_PIPELINES) -> Executor:
    """An executor without a model; ``pipelines``: those that its models may run.

    `CpuNotOursError` if it cannot be pinned as asked, `TorchMissingError` if it computes with torch and there is none,
    `CudaDeviceError` if its device is not there or of no use.
    """
    if problem := cpu_problem(node):
        raise CpuNotOursError(f"node {node.name!r}: {problem}")
    if problem := torch_problem(node):
        raise TorchMissingError(f"node {node.name!r}: {problem}")
    match node.executor:
        case "predicted":
            return PacedExecutor(VirtualExecutor(node.device, options, pipelines), Clock(time.monotonic, time.sleep))
        case "cpu":
            return _cpu(node, options, pipelines)
        case "cuda":
            return _cuda(node, options, pipelines)
        case "reference":
            return _reference(node, options, pipelines)


def _cpu(node: NodeSpec, options: EngineOptions, pipelines: Pipelines) -> Executor:
    from gpu_node.executors.cpu.executor import CpuExecutor
    from gpu_node.graph.passes.named import lane_passes, offload_passes
    from gpu_node.kernels.link_file import sweep_links

    if options.offload != "off":
        sweep_links()
    polls = options.offload_control != "host"
    return CpuExecutor(
        options,
        node.num_threads,
        node.cpus,
        passes=offload_passes(options.offload, polls=polls),
        lane_passes=lane_passes(options.offload, polls=polls),
        pipelines=pipelines,
    )


def _cuda(node: NodeSpec, options: EngineOptions, pipelines: Pipelines) -> Executor:
    from gpu_node.executors.cuda.device import find, kind_of
    from gpu_node.executors.group.part import RankSpec
    from gpu_node.kernels.link_file import sweep_links

    kind_of(node.cuda_devices, find())
    if options.offload != "off":
        sweep_links()
    return _parts([RankSpec("cuda", device, pipelines=pipelines) for device in node.cuda_devices], options)


def _reference(node: NodeSpec, options: EngineOptions, pipelines: Pipelines) -> Executor:
    from gpu_node.executors.group.part import RankSpec

    if node.cpus:
        os.sched_setaffinity(0, node.cpus)  # torch's threads come later, and stay where this one is
    return _parts([RankSpec(num_threads=node.num_threads, pipelines=pipelines)] * node.tensor_parallel, options)


def _parts(parts: Sequence[RankSpec], options: EngineOptions) -> Executor:
    if len(parts) == 1:
        return parts[0].make(options)
    from gpu_node.executors.group.tensor_parallel import TensorParallelExecutor

    return TensorParallelExecutor(options, parts)
