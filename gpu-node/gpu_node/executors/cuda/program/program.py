"""A model's program on a device: its launches over fixed buffers, and its steps captured as graphs.

A step of single rows that all draw is filled up to one of a few sizes with rows of nobody, so that a graph of each size
serves all such steps. Other steps are filled up likewise: a graph has what is done for all rows, and what follows for
those that draw is launched one operator after the other. So are steps in lanes, those with remote rows, and those of
more prompts than `MAX_PROMPTS`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import accumulate

import torch

from gpu_node.executors.cuda.program.buckets import bucket_of, bucket_sizes, row_sizes
from gpu_node.executors.cuda.program.graphs import Graphs, Replay
from gpu_node.executors.cuda.program.inputs import StepInputs
from gpu_node.executors.cuda.program.lane_streams import LaneStreams
from gpu_node.executors.cuda.program.lowered import Lowered
from gpu_node.executors.cuda.program.step import CudaStep
from gpu_node.kernels.paged_batch import PagedSequence
from gpu_node.kernels.triton.cache import DeviceBatch, Places, lay_out

MAX_PROMPTS = 64
"""Sequences of more than one row in a step that is replayed: programs are launched for that many."""


class CudaProgram:
    """Launches, and where they find what changes from step to step."""

    def __init__(
        self,
        lowered: Lowered,
        inputs: StepInputs,
        places: Places,
        block_size: int,
        *,
        streams: LaneStreams | None = None,
        piped_rows: int = 0,
        max_prompts: int = MAX_PROMPTS,
    ) -> None:
        """``streams`` are for the lanes that ``lowered`` has; steps of ``piped_rows`` or more go through them.

        ``max_prompts``: of a mixed step that is replayed.
        """
        self.lowered = lowered
        self.replays: dict[int, Replay] = {}
        """By the number of rows; what is not captured is launched."""
        self.piped_replays: dict[int, Replay] = {}
        """The same of steps in lanes."""
        self.row_replays: dict[int, Replay] = {}
        """By the number of rows, of steps that are mixed: all that comes before what is done for draws alone."""
        self._streams = streams
        self._piped_rows = piped_rows
        self._inputs = inputs
        self._max_prompts = max_prompts
        self._places = places
        self._block_size = block_size
        self._sizes = bucket_sizes(min(inputs.limits.num_rows, inputs.limits.num_sequences))
        self._row_sizes = row_sizes(inputs.limits.num_rows)

    def run(
        self,
        sequences: Sequence[PagedSequence],
        token_ids: Sequence[int],
        draw_rows: Sequence[int],
        num_remote: int = 0,
    ) -> torch.Tensor:
        """Queue a step; the logits of ``draw_rows`` float32 [draws, vocabulary], which the next step overwrites.

        ``token_ids`` of all rows; below 0 the marks of cells. The last ``num_remote`` sequences, of one row each, lie
        in blocks of the receiver; such a step is launched operator by operator.
        """
        is_decode = len(draw_rows) == len(sequences) == len(token_ids) and not num_remote
        in_lanes = self._is_piped(len(token_ids))
        if is_decode and (size := bucket_of(len(sequences), self._sizes)) is not None:
            self._send_decode(sequences, token_ids, size)
            replays = self.piped_replays if in_lanes else self.replays
            if size in replays:
                replays[size].replay()
            else:
                self._queue(self._decode(size), in_lanes=in_lanes)
        elif in_lanes or num_remote or not self._replay_rows(sequences, token_ids, draw_rows):
            self._inputs.send(token_ids, draw_rows, self._batch(sequences, num_remote=num_remote))
            step = CudaStep(self._inputs, [sequence.num_rows for sequence in sequences], draw_rows, num_remote)
            self._queue(step, in_lanes=in_lanes)
        return self.lowered.logits[: len(draw_rows)]

    def _replay_rows(
        self, sequences: Sequence[PagedSequence], token_ids: Sequence[int], draw_rows: Sequence[int]
    ) -> bool:
        """Queue a mixed step by the graph of its size; False where there is none that it fits."""
        num_rows = len(token_ids)
        size = bucket_of(num_rows, self._row_sizes)
        if size is None or size not in self.row_replays:
            return False
        padding = [size - num_rows] if size > num_rows else []
        batch = self._batch(sequences, padding)
        if len(batch.tiles) > self._max_tiles(size):
            return False
        self._inputs.send([*token_ids, *[0] * sum(padding)], draw_rows, batch)
        self.row_replays[size].replay()
        step = CudaStep(self._inputs, [*(one.num_rows for one in sequences), *padding], draw_rows)
        for launch in self.lowered.launches[self.lowered.num_of_any :]:
            launch(step)
        return True

    def capture(self, graphs: Graphs) -> None:
        """Capture a decode step of each size. The largest comes first: the others find their memory in its."""
        for size in reversed(self._sizes):
            self._send_decode([], [], size)  # what is run before a capture touches no keys and values
            self.replays[size] = graphs.capture(partial(self._queue, self._decode(size)))
            if self._is_piped(size):
                self.piped_replays[size] = graphs.capture(partial(self._queue, self._decode(size), in_lanes=True))
        if self.lowered.num_of_any == 0:
            return
        for size in reversed(self._row_sizes):
            self._inputs.send([0] * size, [], self._batch([], [size]))
            step = CudaStep(self._inputs, [size], [], max_tiles=self._max_tiles(size))
            self.row_replays[size] = graphs.capture(partial(self._queue_of_any, step))

    def warm_up(self) -> None:
        """Run steps of all kinds that touch no keys and values, so that no later one has to compile or load code."""
        for size in self._sizes:
            if size not in self.replays:
                self._send_decode([], [], size)
                self._queue(self._decode(size))
        limits = self._inputs.limits
        most = min(limits.num_rows, limits.num_sequences * limits.context_tokens)
        for num_rows in (*(1 << power for power in range((most - 1).bit_length())), most):
            self._run_prompts(num_rows)

    def _run_prompts(self, num_rows: int) -> None:
        """Prompts of nobody, of so many tokens in all, each as long as may be."""
        longest = self._inputs.limits.context_tokens
        nums_rows = [min(longest, num_rows - first) for first in range(0, num_rows, longest)]
        draw_rows = [end - 1 for end in accumulate(nums_rows)]
        self._inputs.send([0] * num_rows, draw_rows, self._batch([], nums_rows))
        for in_lanes in (False, True)[: 1 + self._is_piped(num_rows)]:
            self._queue(CudaStep(self._inputs, nums_rows, draw_rows), in_lanes=in_lanes)

    def _send_decode(self, sequences: Sequence[PagedSequence], token_ids: Sequence[int], size: int) -> None:
        """The inputs of a decode step of ``size`` rows, those that are missing being nobody's."""
        num_padding = size - len(sequences)
        batch = self._batch(sequences, [1] * num_padding)
        self._inputs.send([*token_ids, *[0] * num_padding], range(size), batch)

    def _batch(
        self, sequences: Sequence[PagedSequence], padding: Sequence[int] = (), *, num_remote: int = 0
    ) -> DeviceBatch:
        together = self._inputs.limits.rows_together
        batch = lay_out(sequences, self._block_size, self._places, rows_together=together, padding=padding)
        if num_remote:
            ring = self.lowered.remote_ring
            assert ring is not None, "who has remote sequences has a program that sends"
            tables = [one.block_table for one in sequences[len(sequences) - num_remote :]]
            most = ring.ring.block_lines.shape[2]
            assert max(map(len, tables)) <= most, f"the ring takes {most} blocks of a sequence"
            lines = ring.places.lines(torch.tensor([block for table in tables for block in table], dtype=torch.int32))
            batch.block_lines[len(batch.block_lines) - len(lines) :] = lines
        return batch

    def _max_tiles(self, num_rows: int) -> int:
        limits = self._inputs.limits
        return num_rows // limits.rows_together + min(self._max_prompts, limits.num_sequences) + 1

    def _queue_of_any(self, step: CudaStep) -> None:
        for launch in self.lowered.launches[: self.lowered.num_of_any]:
            launch(step)

    def _decode(self, size: int) -> CudaStep:
        return CudaStep(self._inputs, [1] * size, range(size))

    def _is_piped(self, num_rows: int) -> bool:
        return self.lowered.lanes is not None and num_rows >= self._piped_rows

    def _queue(self, step: CudaStep, *, in_lanes: bool = False) -> None:
        if in_lanes:
            assert self.lowered.lanes is not None, "a step in lanes has some"
            assert self._streams is not None, "lanes have streams"
            self._streams.queue(self.lowered.lanes, step)
            return
        for launch in self.lowered.launches:
            launch(step)
