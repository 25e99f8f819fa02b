"""What the runs of a point come to, beside what the machine could do."""

from __future__ import annotations

import os
from collections.abc import Sequence

from gpu_node.bench.measurement import Measurement
from gpu_node.bench.point import BenchPoint
from gpu_node.bench.report import PointResult
from gpu_node.bench.roofline import Roofline
from gpu_node.bench.step_log import decode_steps, device_idle_s


def summarise(point: BenchPoint, runs: Sequence[Measurement], roofline: Roofline) -> PointResult:
    """All figures of the run of median length (the shorter of two in the middle); at least one run."""
    run = sorted(runs, key=lambda run: run.seconds)[(len(runs) - 1) // 2]
    decodes = decode_steps(run.steps)
    decode_s = sum(seconds for _, seconds in decodes)
    costs = [roofline.step_cost(step.shape) for step, _ in decodes]
    decode_bytes_per_s = sum(cost.num_bytes for cost in costs) / decode_s if decodes else None
    least_s = roofline.least_s(point)
    return PointResult(
        point=str(point),
        seconds=run.seconds,
        all_seconds=[run.seconds for run in runs],
        output_tokens_per_s=point.num_requests * point.num_output_tokens / run.seconds,
        first_tokens_s=run.first_tokens_s,
        decode_step_s=decode_s / len(decodes) if decodes else None,
        num_steps=len(run.steps),
        num_decode_steps=len(decodes),
        roofline_s=least_s,
        roofline_share=least_s / run.seconds,
        decode_bytes_per_s=decode_bytes_per_s,
        decode_read_share=None if decode_bytes_per_s is None else decode_bytes_per_s / roofline.rates.bytes_per_s,
        device_idle_s=device_idle_s(run.steps),
        num_preemptions=run.num_preemptions,
        load=os.getloadavg()[0],
    )
