"""The benchmark process: ``python -m gpu_node.bench --points 8x128x128``, started by `treadle bench engine`.

Measures the first node of the configuration with its first model. Says on stdout what `gpu_node.bench.report` defines;
what is wrong goes to stderr in one line.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Mapping

from gpu_node.bench.measurement import Bench
from gpu_node.bench.point import BenchPoint, parse_points
from gpu_node.bench.rates import kernels_flops_per_s, onednn_flops_per_s, read_bytes_per_s
from gpu_node.bench.report import Machine, PointProgress, ReportLine, encode
from gpu_node.bench.roofline import Roofline
from gpu_node.bench.summary import summarise
from gpu_node.engine.border.executor import ModelTooLargeError
from gpu_node.executors.node_executor import make_executor
from gpu_node.graph.cost import DeviceRates, NumberBytes
from gpu_node.graph.program import Program
from gpu_node.models.architectures.families import build_program
from gpu_node.models.checkpoint import open_checkpoint
from shared.config.config import ClusterConfig, load_config
from shared.config.engines.engine import WeightType
from shared.config.nodes.nodes import NodeSpec
from shared.errors import OperatorError
from shared.files.model_file import checked_path

WARM_UP = BenchPoint(2, 8, 4)
PROGRESS_S = 0.2
"""Between two reports of progress within a run: a line costs the measured engine some microseconds."""
SIZES: Mapping[tuple[str, WeightType], NumberBytes] = {
    ("cpu", "bfloat16"): NumberBytes(weight=2.0, buffer=0.0, kv=2.0),
    ("cpu", "int8"): NumberBytes(weight=1.0, buffer=0.0, kv=2.0),  # the scales are less than 1 % more
    ("reference", "bfloat16"): NumberBytes(weight=4.0, buffer=0.0, kv=4.0),
    ("reference", "int8"): NumberBytes(weight=4.0, buffer=0.0, kv=4.0),
}
"""What each executor has to read, by the type of the weights that the model asks for."""


class _Progress:
    """Passes on how far a run is, not too often."""

    def __init__(self, doing: str) -> None:
        self._doing = doing
        self._num_rows = 0
        self._said_s = time.perf_counter()
        say(PointProgress(doing))

    def advance(self, num_rows: int) -> None:
        self._num_rows += num_rows
        now_s = time.perf_counter()
        if now_s - self._said_s > PROGRESS_S:
            self._say(now_s)

    def end(self) -> None:
        self._say(time.perf_counter())

    def _say(self, now_s: float) -> None:
        say(PointProgress(self._doing, self._num_rows))
        self._num_rows, self._said_s = 0, now_s


def say(line: ReportLine) -> None:
    """To the process that started this one."""
    sys.stdout.write(encode(line) + "\n")
    sys.stdout.flush()


def run(config: ClusterConfig, points: tuple[BenchPoint, ...], num_repeats: int) -> None:
    """Measure the machine, then each point."""
    node, spec = config.nodes[0], config.models[0]
    say(PointProgress(f"loading {spec.name}"))
    bench = Bench(make_executor(node, config.engine), config.engine, spec)
    bench.check(points)  # before anything that takes long
    program = build_program(open_checkpoint(checked_path(spec)).config)
    roofline = _roofline(program, node, spec.weights, measure_machine(node))
    bench.measure(WARM_UP, lambda _: None)
    for point in points:
        runs = []
        for number in range(num_repeats):
            progress = _Progress(f"{point}" if num_repeats == 1 else f"{point}, {number + 1} of {num_repeats}")
            runs.append(bench.measure(point, progress.advance))
            progress.end()
        say(summarise(point, runs, roofline))


def measure_machine(node: NodeSpec) -> Machine:
    """What it does at best, said before it is returned."""
    say(PointProgress("reading memory"))
    read = read_bytes_per_s(node.num_threads, node.cpus)
    say(PointProgress("multiplying matrices"))
    machine = Machine(
        num_threads=node.num_threads,
        cpus=node.cpus,
        read_bytes_per_s=read,
        onednn_flops_per_s=onednn_flops_per_s(node.num_threads),
        kernels_flops_per_s=kernels_flops_per_s(node.num_threads, node.cpus),
        load=os.getloadavg()[0],
    )
    say(machine)
    return machine


def _roofline(program: Program, node: NodeSpec, weights: WeightType, machine: Machine) -> Roofline:
    rates = DeviceRates(bytes_per_s=machine.read_bytes_per_s, flops_per_s=machine.flops_per_s)
    return Roofline(program, rates, SIZES[node.executor, weights])


def main() -> int:
    """The process's exit status: 0, or 2 for what the user has to put right."""
    parser = argparse.ArgumentParser(prog="python -m gpu_node.bench", description=__doc__)
    parser.add_argument("--points", required=True)
    parser.add_argument("--repeat", type=int, default=1)
    arguments = parser.parse_args()
    try:
        run(load_config(), parse_points(arguments.points), arguments.repeat)
    except (OperatorError, ModelTooLargeError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
