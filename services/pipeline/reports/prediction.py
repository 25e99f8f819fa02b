"""Whole steps and throughput from the times of layers, for devices that are not there."""

from __future__ import annotations

import math
from dataclasses import dataclass

from services.pipeline.search.search import Found
from shared.config.hardware import ModelShape
from shared.pipelines.batch import GRANULE_ROWS, DenseBatch, MeanLengths, largest_batch
from shared.pipelines.calibration import calibrate
from shared.pipelines.machine import GroupPeaks

MOST_ROWS = 2048
"""Of a step, with which the paper's pipelines are best (NanoFlow, OSDI'25, §6.2)."""


@dataclass(frozen=True, slots=True)
class PredictedThroughput:
    """Tokens/s of one device, prompts and answers."""

    non_overlap: float
    nano_only: float
    pipeline: float


def dense_batch(group: GroupPeaks, model: ModelShape, lengths: MeanLengths) -> DenseBatch:
    """As many rows as memory allows decodes for, and no more than are of use; whole tiles, the last maybe not full."""
    most = min(MOST_ROWS, largest_batch(group, model, lengths))
    return DenseBatch(math.ceil(most / GRANULE_ROWS) * GRANULE_ROWS, lengths)


def num_tokens(group: GroupPeaks, model: ModelShape, batch: DenseBatch) -> float:
    """Of a step, without the rows of a last tile that memory has no decodes for."""
    return min(batch.num_rows, largest_batch(group, model, batch.lengths))


def head_s(group: GroupPeaks, model: ModelShape, batch: DenseBatch) -> float:
    """Of the product behind the layers, for the rows that draw a token: those that decode."""
    flops = 2.0 * batch.num_decodes * model.num_embedding_parameters
    weights_s = model.num_embedding_parameters * model.weight_bytes / group.memory_bytes_per_s
    return flops / (group.flops_per_s * calibrate().rate_share["UG"]) + weights_s


def throughput(found: Found, group: GroupPeaks, model: ModelShape, batch: DenseBatch) -> PredictedThroughput:
    """Of the three ways to run the same batch."""
    behind_s, layers = head_s(group, model, batch), model.num_layers
    steps_s = (
        layers * found.sequential_s + behind_s,
        layers * found.nano_only_s + behind_s,
        found.schedule.makespan_s(layers) + behind_s,
    )
    tokens = num_tokens(group, model, batch) / group.num_devices
    return PredictedThroughput(*(tokens / step_s for step_s in steps_s))
