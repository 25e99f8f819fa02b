"""What `treadle pipeline search` tells, and the file that it writes."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from services.pipeline.operators.setting import Setting
from services.pipeline.reports.cost_report import measured_flops_per_s, model_parameters
from services.pipeline.search.ceiling import least_period_s
from services.pipeline.search.search import Found
from shared.config.hardware import ModelShape
from shared.config.pipelines.pipeline_file import FORMAT, PipelineFile, PipelineOperator
from shared.pipelines.batch import DenseBatch
from shared.pipelines.cost import optimal_tokens_per_s
from shared.pipelines.machine import GroupPeaks


def optimal_layer_s(group: GroupPeaks, model: ModelShape, batch: DenseBatch) -> float:
    """Of one layer, if products ran all the time as fast as they can (equation 5)."""
    rate = optimal_tokens_per_s(measured_flops_per_s(group), model_parameters(model)) * group.num_devices
    return batch.num_rows / rate / model.num_layers


def search_report(found: Found, group: GroupPeaks, model: ModelShape, setting: Setting) -> dict[str, Any]:
    """The pipeline, and what it stands beside.

    ``optimal_s`` has no interference and no other lanes; with both, and the parts of the pipeline, no order of them is
    faster than ``ceiling_s``.
    """
    parts = [slot.part for slot in found.schedule.slots]
    return {
        "layer_s": found.schedule.period_s,
        "sequential_s": found.sequential_s,
        "nano_only_s": found.nano_only_s,
        "ceiling_s": least_period_s(parts, setting.interference),
        "optimal_s": optimal_layer_s(group, model, setting.batch),
        "stage1": asdict(found.structure),
        "stage2": asdict(found.allocation),
        "operators": [asdict(one) for one in _operators(found)],
    }


def pipeline_file(
    found: Found, group: GroupPeaks, model: ModelShape, batch: DenseBatch, source: str, kernels: str = ""
) -> PipelineFile:
    """What an engine needs of it; ``kernels`` are those that were measured, if any were."""
    return PipelineFile(
        FORMAT,
        model.name,
        group.device,
        group.num_devices,
        batch.num_rows,
        source,
        found.allocation.gap,
        found.schedule.period_s,
        found.sequential_s,
        tuple(_operators(found)),
        kernels,
    )


def _operators(found: Found) -> list[PipelineOperator]:
    """By start; the first is at 0."""
    first_s = min(slot.start_s for slot in found.schedule.slots)
    return [
        PipelineOperator(
            slot.part.operator,
            (slot.part.first_row, slot.part.end_row),
            slot.part.lane.value,
            slot.share,
            slot.start_s - first_s,
            slot.end_s - first_s,
        )
        for slot in sorted(found.schedule.slots, key=lambda slot: slot.start_s)
    ]
