"""What a model's steps did, counted: which way they went, and what was swapped in them."""

from __future__ import annotations

from gpu_node.engine.border.model import LoadedModel
from gpu_node.engine.measures.counts import Counts, TierCounts
from gpu_node.engine.steps.batch.step import Step


class StepCounts:
    """Since the scheduler began. Nothing is decided by it."""

    def __init__(self, model: LoadedModel) -> None:
        self.counts = Counts()
        self._model = model

    def take_way(self, num_rows: int) -> None:
        """A step of so many rows goes through the model's pipeline; or why it does not."""
        if self._model.is_piped(num_rows):
            self.counts += Counts(num_piped=1)
        elif self._model.pipeline_rows:
            self.counts += Counts(num_small=1)
        elif self._model.lacks_pipeline:
            self.counts += Counts(num_unknown=1)

    def take_swaps(self, step: Step) -> None:
        """Those of preempted requests; copies of full blocks are counted apart."""
        num_in = len(step.swaps_in) - step.num_brought_in
        if step.swaps_out or num_in:
            block_bytes = self._model.block_bytes
            moved = TierCounts(out_bytes=len(step.swaps_out) * block_bytes, in_bytes=num_in * block_bytes)
            self.counts += Counts(swapped=moved)
