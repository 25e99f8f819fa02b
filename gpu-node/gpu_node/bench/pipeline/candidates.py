"""Pipelines for a device of few threads: one lane for what is bound by compute, one for attention (NanoFlow, §4.1.4).

As in the paper's pipeline for one device, a layer's second half of the batch is half a layer behind the first: while
one half attends, the other goes through its products.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from shared.config.pipelines.pipeline_file import FORMAT, PipelineFile, PipelineOperator

HALF = 0.5
"""Of the device, for either lane."""
_PRODUCTS = ("AttnNorm", "KQV", "O", "FfnNorm", "UGD")
_ORDER = (
    ("AttnNorm", 0, 0.00),
    ("KQV", 0, 0.02),
    ("O", 1, 1.14),
    ("FfnNorm", 1, 1.24),
    ("UGD", 1, 1.26),
    ("AttnNorm", 1, 0.50),
    ("KQV", 1, 0.52),
    ("O", 0, 0.64),
    ("FfnNorm", 0, 0.74),
    ("UGD", 0, 0.76),
)
"""Of the lane *compute*: operator, half, and start in layers."""
_ATTENDS = (0.12, 0.62)
"""When the halves' attention may begin, as soon as their keys are there."""


def sequential(rows: int, cut: bool, model: str, device: str) -> PipelineFile:
    """One operator after another in one lane; with ``cut``, in halves: what nano-batches alone cost."""
    bounds = ((0, rows // 2), (rows // 2, rows)) if cut else ((0, rows),)
    names = ("AttnNorm", "KQV", "DecAttn", "PfAttn", "O", "FfnNorm", "UGD")
    parts = [
        _part(name, one, "compute", 1.0, (number + half / 2) / len(names))
        for number, name in enumerate(names)
        for half, one in enumerate(bounds)
    ]
    return _file(parts, rows, model, device)


def overlapped(rows: int, prefill_lane: str, model: str, device: str) -> PipelineFile:
    """In halves; attention of decodes beside products, and that of prompts in ``prefill_lane``."""
    bounds = ((0, rows // 2), (rows // 2, rows))
    parts = [_part(name, bounds[half], "compute", HALF, start) for name, half, start in _ORDER]
    parts += [_part("DecAttn", bounds[half], "memory", HALF, start) for half, start in enumerate(_ATTENDS)]
    parts += [_part("PfAttn", bounds[half], prefill_lane, HALF, start + 0.01) for half, start in enumerate(_ATTENDS)]
    return _file(parts, rows, model, device)


def predicted(
    pipeline: PipelineFile, step_s: float, sequential_s: float, num_layers: int, kernels: str
) -> PipelineFile:
    """The same, with the times of a layer that are predicted of it on these kernels."""
    layer_s = step_s / num_layers
    scaled = [
        replace(one, start_s=one.start_s * layer_s / pipeline.layer_s, end_s=one.end_s * layer_s / pipeline.layer_s)
        for one in pipeline.operators
    ]
    return replace(
        pipeline, operators=tuple(scaled), layer_s=layer_s, sequential_s=sequential_s / num_layers, kernels=kernels
    )


def _part(name: str, rows: tuple[int, int], lane: str, part: float, start: float) -> PipelineOperator:
    return PipelineOperator(name, rows, lane, part, start, start + 0.01)


def _file(parts: Sequence[PipelineOperator], rows: int, model: str, device: str) -> PipelineFile:
    """Starts are in layers; what a layer takes is to be predicted."""
    return PipelineFile(
        format=FORMAT,
        model=model,
        device=device,
        num_devices=1,
        rows=rows,
        profile="treadle bench pipeline",
        gap=1.0,
        layer_s=1.0,
        sequential_s=1.0,
        operators=tuple(parts),
    )
