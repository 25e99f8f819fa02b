"""Small layers for tests: operators of a few microseconds."""

from __future__ import annotations

from services.pipeline.operators.layer import LayerOperator
from services.pipeline.operators.times import Line
from shared.pipelines.lanes import ResourceLane

US = 1e-6


def operator(
    name: str,
    lane: ResourceLane,
    rows: tuple[int, int],
    fixed_us: float,
    row_us: float,
    *after: tuple[str, int],
) -> LayerOperator:
    """One operator, in microseconds."""
    return LayerOperator(name, lane, *rows, Line(fixed_us * US, row_us * US), after)


def two_lanes(num_rows: int) -> list[LayerOperator]:
    """A product, and a collective that the next layer's product waits for."""
    return [
        operator("A", ResourceLane.COMPUTE, (0, num_rows), 10, 0.5, ("N", 1)),
        operator("N", ResourceLane.NETWORK, (0, num_rows), 5, 0.25, ("A", 0)),
    ]
