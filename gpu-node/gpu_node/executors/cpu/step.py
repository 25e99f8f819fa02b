"""A planned step as the C++ device takes it, and what comes out of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain

import numpy as np

from gpu_node.engine.border.plan import NO_ADAPTER, StepPlan, StepResult, draw_rows
from gpu_node.executors.draws.feedback import Feedback
from gpu_node.executors.draws.not_finite import NOT_FINITE
from gpu_node.kernels.cpu import CpuDevice, CpuStep, Int32s
from gpu_node.kernels.cpu.draws import NO_DRAWS, CpuDraws
from gpu_node.kernels.cpu.remotes import NO_REMOTES, CpuRemotes
from gpu_node.kernels.token_draw import NOT_DRAWN
from gpu_node.models.tensors.arrays import Float32s


@dataclass(frozen=True, slots=True)
class RunningStep:
    """A step in the device's queue."""

    device: CpuDevice
    event: int
    step: CpuStep
    """Keeps the memory alive that the device writes to."""
    sequence_ids: tuple[int, ...]
    """Of each draw: the sequence that gets the token."""
    num_columns: int
    """Of what is drawn from."""

    def give_masks(self, masks: Mapping[int, bytes]) -> None:
        """What its draws may give whose masks are late, by sequence."""
        draws = self.step.draws
        late = {number: masks.get(self.sequence_ids[number], b"") for number in draws.late_draws}
        draws.put_late_masks(late, self.num_columns)
        self.device.give_masks(self.step)

    def is_done(self) -> bool:
        """Whether `result` would return at once."""
        return self.device.is_done(self.event)

    def result(self) -> StepResult:
        """Wait for the step; its tokens were drawn on the device."""
        self.device.wait(self.event)
        times = self.device.times(self.event)
        draws = self.step.draws
        tokens = list(zip(self.sequence_ids, draws.tokens.tolist(), strict=True))
        logprobs = zip(self.sequence_ids, draws.token_logprobs(), strict=True)
        return StepResult(
            token_ids={sequence_id: token for sequence_id, token in tokens if token != NOT_DRAWN},
            duration_s=times.run_s,
            idle_s=times.idle_s,
            errors={sequence_id: NOT_FINITE for sequence_id, token in tokens if token == NOT_DRAWN},
            logprobs={sequence_id: logprob for sequence_id, logprob in logprobs if logprob is not None},
            is_remote_lost=bool(self.step.remotes.lost.any()),
            served_s=times.served_s,
            waited_s=times.waited_s,
            embeddings=self._embeddings(),
        )

    def _embeddings(self) -> dict[int, bytes]:
        """Of a model that embeds or scores, whose sequences have one draw each."""
        if self.step.logits is None:
            return {}
        return {
            sequence_id: row.tobytes() for sequence_id, row in zip(self.sequence_ids, self.step.logits, strict=True)
        }


def step_of(
    feedback: Feedback,
    plan: StepPlan,
    *,
    draws: CpuDraws = NO_DRAWS,
    logits: Float32s | None = None,
    remotes: CpuRemotes = NO_REMOTES,
    in_lanes: bool = False,
    moves_beside: bool = False,
) -> CpuStep:
    """A plan as arrays, with what earlier steps draw where it counts on that. ``logits`` is written, where it is.

    ``remotes`` is the plan's part behind a link.
    """
    sequences = plan.sequences
    num_rows = _int32([len(part.token_ids) for part in sequences])
    adapters = [part.adapter for part in sequences]
    return CpuStep(
        starts=_int32([part.start for part in sequences]),
        num_rows=num_rows,
        num_blocks=_int32([len(part.block_table) for part in sequences]),
        block_tables=_int32(list(chain.from_iterable(part.block_table for part in sequences))),
        token_ids=_int32(list(chain.from_iterable(map(feedback.token_ids, sequences)))),
        draw_rows=_int32(draw_rows(sequences)),
        adapters=_int32(adapters if max(adapters, default=NO_ADAPTER) > NO_ADAPTER else []),
        copies=_pairs([(copy.source, copy.destination) for copy in plan.copies]),
        swaps_out=_pairs([(swap.device_block, swap.host_block) for swap in plan.swaps_out]),
        swaps_in=_pairs([(swap.device_block, swap.host_block) for swap in plan.swaps_in]),
        copies_out=_pairs([(copy.device_block, copy.host_block) for copy in plan.copies_out]),
        logits=logits,
        draws=draws,
        remotes=remotes,
        in_lanes=in_lanes,
        moves_beside=moves_beside,
    )


def _int32(values: list[int]) -> Int32s:
    return np.array(values, dtype=np.int32)


def _pairs(values: list[tuple[int, int]]) -> Int32s:
    return np.array(values, dtype=np.int32).reshape(-1, 2)
