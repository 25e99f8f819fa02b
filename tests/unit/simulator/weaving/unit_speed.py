"""A device on which every operator takes a second, and sequences of any length."""

from __future__ import annotations

from math import inf

from gpu_node.graph.passes.fuse import fuse
from gpu_node.graph.program import Program
from gpu_node.models.architectures.families import build_program
from services.simulator.fast.sequence import FastSequence
from services.simulator.weaving.arrivals import PoissonArrivals
from services.simulator.weaving.operator_times import DeviceSpeed
from tests.gpu_node.graph.test_program_cost import config

UNIT_SPEED = DeviceSpeed(inf, inf, inf, inf, launch_s=1.0)
ONE_LAYER = fuse(build_program(config(num_layers=1)))
NUM_OPERATORS = len(ONE_LAYER.operators)


def nobody() -> PoissonArrivals:
    """Arrivals that do not come within any test."""
    return PoissonArrivals(1e-12, [(1, 2)], 0)


def sequence(num_prompt_tokens: int, num_output_tokens: int, name: int = 1) -> FastSequence:
    """With its first token; it has so many steps less one to go."""
    arrivals = PoissonArrivals(1.0, [(num_prompt_tokens, num_output_tokens)], 0)
    return [arrivals.draw() for _ in range(name)][-1]


def kinds(program: Program) -> list[str]:
    return [str(one.kind) for one in program.operators]
