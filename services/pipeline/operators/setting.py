"""What a search has to know: the times of a layer's operators, how they slow one another, and sizes of parts."""

from __future__ import annotations

from dataclasses import dataclass

from services.pipeline.operators.layer import LayerLayout, LayerOperator, layer_operators, sequential_s
from services.pipeline.operators.times import LayerTimes, layer_times
from shared.config.hardware import ModelShape
from shared.pipelines.batch import GRANULE_ROWS, DenseBatch
from shared.pipelines.lanes import TABLE_3, Interference
from shared.pipelines.machine import GroupPeaks


@dataclass(frozen=True, slots=True)
class Setting:
    """A model on a group of devices, with a step of so many rows."""

    num_devices: int
    num_layers: int
    batch: DenseBatch
    times: LayerTimes
    interference: Interference
    granule_rows: int
    """Cuts are at multiples of it."""
    may_spread: bool = True
    """Whether decodes may come among prefill rows. An engine's step has them in one run: no engine runs such a file."""

    @classmethod
    def published(cls, group: GroupPeaks, model: ModelShape, batch: DenseBatch) -> Setting:
        """As NanoFlow's tables 2 and 3 have it."""
        times = layer_times(group, model, batch)
        return cls(group.num_devices, model.num_layers, batch, times, TABLE_3, GRANULE_ROWS)

    def operators(self, layout: LayerLayout, *, is_offloaded: bool = False) -> list[LayerOperator]:
        """Of a layer."""
        return layer_operators(self.times, self.batch, self.num_devices, layout, is_offloaded=is_offloaded)

    @property
    def sequential_s(self) -> float:
        """Of a layer as other systems run it: operators one after another, each on all rows."""
        return sequential_s(self.operators(LayerLayout(self.batch.num_rows)))
