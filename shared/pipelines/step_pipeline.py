"""A predicted device that runs a pipeline: a step is the schedule of its nano-operators (NanoFlow, OSDI'25, §4.2.1).

Steps of the pipeline's dense batch take it, smaller ones the plain program. The schedule is that of the file, with the
order of each lane and the part R of each nano-operator. A step's attention lasts longer or shorter than the one that
was searched for, as its contexts are; then all others move with it: no two that did not overlap come to overlap, so the
sum of R stays, and the layer's period is the longest cycle (`shared.pipelines.periodic`). A step takes so much of its
plain time as a layer of the schedule takes of a sequential one with as many tokens in its contexts. Simulated devices
(`services.simulator.devices`) and those of live nodes (`gpu_node.executors.predicted`) ask here.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from shared.config.hardware import ModelShape
from shared.config.pipelines.pipeline_file import PipelineFile
from shared.messages.nodes.step_cost import StepCost
from shared.pipelines.calibration import calibrate
from shared.pipelines.lanes import TABLE_3, ResourceLane
from shared.pipelines.machine import machine
from shared.pipelines.periodic import NUM_UNROLLED, TOLERANCE_S, Gap, shortest_period

SLOWNESS = tuple(number / 4 for number in range(21))
"""Attention's time beside the one that was searched for: periods are worked out at these, straight lines between."""


@dataclass(frozen=True)
class StepPipeline:
    """A pipeline of a node's devices; whether its step is shorter than the plain one is asked step by step."""

    file: PipelineFile
    num_layers: int
    planned_tokens: float
    """In the contexts of decodes, of the step that was searched for."""

    @classmethod
    def of(cls, file: PipelineFile, model: ModelShape) -> StepPipeline:
        """Contexts follow from how long attention was taken to last: a launch, and keys and values over the memory."""
        found, group = calibrate(), machine(file.device, file.num_devices)
        token_s = found.attention_slowness * model.kv_token_bytes / model.num_layers / group.memory_bytes_per_s
        launches_s = found.launch_s * sum(one.name == "DecAttn" for one in file.operators)
        return cls(file, model.num_layers, (_attention_s(file) - launches_s) / token_s)

    def __post_init__(self) -> None:
        """`PipelineError` where no predicted device can run it."""
        self.file.require_published()

    def takes(self, num_tokens: float) -> bool:
        """Whether a step has as many rows as the pipeline."""
        return num_tokens >= self.file.rows

    def predict_s(
        self, cost: StepCost, num_tokens: float, num_context_tokens: float, num_attended_tokens: float = 0.0
    ) -> float:
        """Of any step: of one that takes the pipeline its time there, unless the plain step is shorter."""
        plain_s = cost.predict_s(num_tokens, num_context_tokens, num_attended_tokens)
        if not self.takes(num_tokens):
            return plain_s
        return min(plain_s, self.step_s(cost, num_tokens, num_context_tokens, num_attended_tokens))

    def step_s(self, cost: StepCost, num_tokens: float, num_context_tokens: float, num_attended_tokens: float) -> float:
        """Of a step that takes it; ``cost`` is that of the plain program."""
        plain_s = cost.predict_s(num_tokens, num_context_tokens, num_attended_tokens)
        slowness = num_context_tokens / self.planned_tokens
        sequential_s = self.file.sequential_s + (slowness - 1) * self._attention_s
        return plain_s * self._layer_s(slowness) / sequential_s

    @cached_property
    def _attention_s(self) -> float:
        return _attention_s(self.file)

    def _layer_s(self, slowness: float) -> float:
        """Between two that are known, or beyond the last two."""
        known = self._layers_s
        pairs = list(pairwise(zip(SLOWNESS, known, strict=True)))
        (low, fast_s), (high, slow_s) = next((pair for pair in pairs if slowness <= pair[1][0]), pairs[-1])
        return fast_s + (slow_s - fast_s) * (slowness - low) / (high - low)

    @cached_property
    def _layers_s(self) -> list[float]:
        """Of the whole model's steps by layer, at each slowness."""
        return [self._average_layer_s(slowness) for slowness in SLOWNESS]

    def _average_layer_s(self, slowness: float) -> float:
        operators, period_s = self.file.operators, self.file.layer_s
        lasts_s = [(one.end_s - one.start_s) * (slowness if one.name == "DecAttn" else 1.0) for one in operators]
        gaps = []
        for number, one in enumerate(operators):
            for lane in {other.lane for other in operators}:
                copies = [
                    (other.end_s + lag * period_s, -lag, at)
                    for at, other in enumerate(operators)
                    for lag in range(-NUM_UNROLLED, NUM_UNROLLED + 1)
                    if other.lane == lane and other.end_s + lag * period_s <= one.start_s + TOLERANCE_S
                ]
                _, lag, before = max(copies)
                gaps.append(Gap(before, number, lasts_s[before], lag))
        found = shortest_period(len(operators), gaps, 2 * sum(lasts_s))
        assert found is not None, "the file's own schedule keeps these orders"
        layer_s, starts = found
        span_s = max(start + last_s for start, last_s in zip(starts, lasts_s, strict=True)) - min(starts)
        return ((self.num_layers - 1) * layer_s + span_s) / self.num_layers


def _attention_s(file: PipelineFile) -> float:
    """Of a layer, alone on the device, as it was searched for."""
    return sum(
        (one.end_s - one.start_s) * TABLE_3.performance(ResourceLane.MEMORY, one.r)
        for one in file.operators
        if one.name == "DecAttn"
    )
