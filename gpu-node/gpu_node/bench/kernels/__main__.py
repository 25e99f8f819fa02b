"""Profiles the operators of one model on one node: ``python -m gpu_node.bench.kernels``, for `treadle profile`.

Measures the first node of the configuration with its first model. Says on stdout what `gpu_node.bench.report` defines;
what is wrong goes to stderr.
"""

from __future__ import annotations

import argparse
import os
import sys

from gpu_node.bench.kernels.pairs import measure_pairs
from gpu_node.bench.kernels.times import GRANULE_ROWS, operator_times
from gpu_node.bench.report import KernelProfile, PointProgress, ReportLine, encode
from gpu_node.engine.border.executor import ModelTooLargeError
from gpu_node.kernels.cpu import kernels_name, level
from gpu_node.models.architectures.families import build_program
from gpu_node.models.checkpoint import open_checkpoint
from shared.config.config import ClusterConfig, load_config
from shared.config.measured.pipeline_profile import PipelineProfile, PipelineProfileError
from shared.errors import OperatorError
from shared.files.model_file import checked_path


def profile(config: ClusterConfig, *, kernels: bool, interference: bool) -> None:
    """Measure what is asked for, and say it."""
    node, spec, options = config.nodes[0], config.models[0], config.engine
    if node.kind != "cpu":
        raise PipelineProfileError(f"node {node.name!r}: operators are profiled on the cpu executor, not {node.kind!r}")
    if interference and node.num_threads < 2:
        raise PipelineProfileError(f"node {node.name!r} has one thread, beside which nothing runs; set num_threads: 2")
    shape = open_checkpoint(checked_path(spec)).config
    token_bytes = 2 * shape.num_layers * shape.num_kv_heads * shape.head_dim * 2
    cpus = node.cpus or sorted(os.sched_getaffinity(0))[: node.num_threads]
    if len(cpus) < node.num_threads:
        raise PipelineProfileError(f"node {node.name!r} has {node.num_threads} threads, and there are {len(cpus)} CPUs")

    def say(doing: str) -> None:
        _say(PointProgress(doing))

    operators = operator_times(build_program(shape), options, spec, token_bytes, cpus, say) if kernels else []
    pairs, copy_bytes_per_s = measure_pairs(options, spec, token_bytes, cpus, say) if interference else ([], 0.0)
    measured = PipelineProfile(
        model=spec.name,
        source=spec.source,
        weights=spec.weights,
        device="cpu",
        num_threads=node.num_threads,
        level=str(level()),
        kernels=kernels_name(),
        num_layers=shape.num_layers,
        hidden_size=shape.hidden_size,
        granule_rows=GRANULE_ROWS,
        copy_bytes_per_s=copy_bytes_per_s,
        operators=operators,
        pairs=pairs,
    )
    _say(KernelProfile(measured, os.getloadavg()[0]))


def _say(line: ReportLine) -> None:
    sys.stdout.write(encode(line) + "\n")
    sys.stdout.flush()


def main() -> int:
    """The process's exit status: 0, or 2 for what the user has to put right."""
    parser = argparse.ArgumentParser(prog="python -m gpu_node.bench.kernels", description=__doc__)
    parser.add_argument("--kernels", action="store_true")
    parser.add_argument("--interference", action="store_true")
    arguments = parser.parse_args()
    try:
        profile(load_config(), kernels=arguments.kernels, interference=arguments.interference)
    except (OperatorError, ModelTooLargeError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
