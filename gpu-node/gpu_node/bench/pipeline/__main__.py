"""The process of `treadle bench pipeline`: ``python -m gpu_node.bench.pipeline --points 64x256x128``.

Says on stdout what `gpu_node.bench.report` defines; what is wrong goes to stderr.
"""

from __future__ import annotations

import argparse
import sys

from gpu_node.bench.__main__ import SIZES, measure_machine, say
from gpu_node.bench.pipeline.run import PipelineBench
from gpu_node.bench.point import BenchPoint, parse_points
from gpu_node.bench.report import PointProgress
from gpu_node.bench.roofline import Roofline
from gpu_node.engine.border.executor import ModelTooLargeError
from gpu_node.graph.cost import DeviceRates
from gpu_node.models.architectures.families import build_program
from gpu_node.models.checkpoint import open_checkpoint
from shared.config.config import load_config
from shared.errors import OperatorError
from shared.files.model_file import checked_path


def run(points: tuple[BenchPoint, ...], *, quick: bool) -> None:
    """The machine, then a row for each point."""
    config = load_config()
    node, spec = config.nodes[0], config.models[0]
    program = build_program(open_checkpoint(checked_path(spec)).config)
    machine = measure_machine(node)
    rates = DeviceRates(bytes_per_s=machine.read_bytes_per_s, flops_per_s=machine.flops_per_s)
    roofline = Roofline(program, rates, SIZES["cpu", spec.weights])
    bench = PipelineBench(config, program, roofline, quick=quick, say=lambda doing: say(PointProgress(doing)))
    for point in points:
        say(bench.measure(point))


def main() -> int:
    """The process's exit status: 0, or 2 for what the user has to put right."""
    parser = argparse.ArgumentParser(prog="python -m gpu_node.bench.pipeline", description=__doc__)
    parser.add_argument("--points", required=True)
    parser.add_argument("--quick", action="store_true")
    arguments = parser.parse_args()
    try:
        run(parse_points(arguments.points), quick=arguments.quick)
    except (OperatorError, ModelTooLargeError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
