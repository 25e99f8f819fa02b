"""The least time that a point can take on a machine, by the cost of its own program.

The model of NanoFlow (OSDI'25, §3): a step takes no less than its bytes over the bandwidth, and no less than its
operations over the compute rate. Only weights, keys and values count as bytes here: rows of a step can stay in a cache.
All prompts are one step, in which weights are read once; then each output token but the first is a step of its own. An
engine that computes prompts beside decodes could overlap the two kinds of limit, and end a little earlier.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from gpu_node.bench.point import BenchPoint
from gpu_node.graph.cost import Cost, DeviceRates, NumberBytes, program_costs, total
from gpu_node.graph.program import Program
from gpu_node.graph.step_shape import SequencePart, StepShape


@dataclass(frozen=True, slots=True)
class Roofline:
    """A program on a machine. Numbers of buffers take no bytes in ``sizes``."""

    program: Program
    rates: DeviceRates
    sizes: NumberBytes

    def step_cost(self, shape: StepShape) -> Cost:
        """Operations, and bytes of weights, keys and values."""
        return total(program_costs(self.program, shape, self.sizes))

    def least_s(self, point: BenchPoint) -> float:
        """Seconds from the arrival of all requests to the last token."""
        return sum(self.rates.seconds(self.step_cost(shape)) for shape in least_steps(point))


def least_steps(point: BenchPoint) -> Iterator[StepShape]:
    """The steps that no engine can do without."""
    yield _equal_parts(point, 0, point.num_prompt_tokens)
    for start in range(point.num_prompt_tokens, point.num_tokens - 1):
        yield _equal_parts(point, start, 1)


def _equal_parts(point: BenchPoint, start: int, num_rows: int) -> StepShape:
    return StepShape((SequencePart(start, num_rows),) * point.num_requests, num_draws=point.num_requests)
