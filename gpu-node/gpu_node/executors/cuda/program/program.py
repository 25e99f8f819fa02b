"""A model's program on a device: its launches over fixed buffers, and its steps captured as graphs.

A step of single rows that all draw is filled up to one of a few sizes with padding rows, so that a graph of each size
serves all such steps. Other steps are filled up likewise: a graph has what is done for all rows, and what follows for
those that draw is launched one operator after the other. So are steps in lanes, and those of more prompts than
`MAX_PROMPTS`. Of a step with remote rows, a graph finds on the device which these are; where local rows run ahead of
them, it is launched.

What a graph sends to, and what it polls for, is as it was when it was captured: when links come or go, graphs are
forgotten, and each is captured again when it is needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import accumulate

import torch

from gpu_node.executors.cuda.program.graphs.buckets import bucket_of, bucket_sizes, row_sizes
from gpu_node.executors.cuda.program.graphs.graphs import Graphs, Replay
from gpu_node.executors.cuda.program.inputs import StepInputs
from gpu_node.executors.cuda.program.lane_streams import LaneStreams
from gpu_node.executors.cuda.program.lowered import Lowered
from gpu_node.executors.cuda.program.step import CudaStep
from gpu_node.kernels.paged_batch import PagedSequence
from gpu_node.kernels.triton.cache import NOWHERE, DeviceBatch, Places, lay_out

MAX_PROMPTS = 64
"""Sequences of more than one row in a step that is replayed: programs are launched for that many."""
SEES_NOTHING = -1
"""As where a single row begins."""


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
        self._graphs: Graphs | None = None
        self._sizes = bucket_sizes(min(inputs.limits.num_rows, inputs.limits.num_sequences))
        self._row_sizes = row_sizes(inputs.limits.num_rows)

    def run(
        self,
        sequences: Sequence[PagedSequence],
        token_ids: Sequence[int],
        draw_rows: Sequence[int],
        num_remote: int = 0,
        adapters: Sequence[int] = (),
    ) -> torch.Tensor:
        """Queue a step; the logits of ``draw_rows`` float32 [draws, vocabulary], which the next step overwrites.

        ``token_ids`` of all rows; below 0 the marks of cells. The last ``num_remote`` sequences, of one row each, lie
        in blocks of the receiver. ``adapters`` of all rows, where there are any.
        """
        is_divided = self.lowered.splits_on_device or not num_remote
        is_decode = len(draw_rows) == len(sequences) == len(token_ids) and is_divided
        in_lanes = self._is_piped(len(token_ids))
        if is_decode and (size := bucket_of(len(sequences), self._sizes)) is not None:
            self._capture_again(size)
            self._send_decode(sequences, token_ids, size, num_remote, adapters)
            replays = self.piped_replays if in_lanes else self.replays
            if size in replays:
                replays[size].replay()
            else:
                self._queue(self._decode(size), in_lanes=in_lanes)
        elif in_lanes or not is_divided or not self._replay_rows(sequences, token_ids, draw_rows, num_remote, adapters):
            batch = self._batch(sequences, num_remote=num_remote)
            self._inputs.send(token_ids, draw_rows, batch, adapters=adapters)
            step = CudaStep(self._inputs, [sequence.num_rows for sequence in sequences], draw_rows, num_remote)
            self._queue(step, in_lanes=in_lanes)
        return self.lowered.logits[: len(draw_rows)]

    def _replay_rows(
        self,
        sequences: Sequence[PagedSequence],
        token_ids: Sequence[int],
        draw_rows: Sequence[int],
        num_remote: int,
        adapters: Sequence[int],
    ) -> bool:
        """Queue a mixed step by the graph of its size; False where there is none that it fits."""
        num_rows = len(token_ids)
        size = bucket_of(num_rows, self._row_sizes)
        if size is None:
            return False
        self._capture_rows_again(size)
        if size not in self.row_replays:
            return False
        padding = [size - num_rows] if size > num_rows else []
        batch = self._batch(sequences, padding, num_remote=num_remote)
        if len(batch.tiles) > self._max_tiles(size):
            return False
        span = _span(sequences, num_remote)
        self._inputs.send([*token_ids, *[0] * sum(padding)], draw_rows, batch, span, adapters)
        self.row_replays[size].replay()
        step = CudaStep(self._inputs, [*(one.num_rows for one in sequences), *padding], draw_rows)
        for launch in self.lowered.launches[self.lowered.num_of_any :]:
            launch(step)
        return True

    def capture(self, graphs: Graphs) -> None:
        """Capture a decode step of each size. The largest comes first: the others find their memory in its."""
        self._graphs = graphs
        for size in reversed(self._sizes):
            self._capture_again(size)
        for size in reversed(self._row_sizes):
            self._capture_rows_again(size)

    def forget_graphs(self) -> None:
        """Links have changed. No step is in the queue."""
        for replays in (self.replays, self.piped_replays, self.row_replays):
            replays.clear()

    def _capture_again(self, size: int) -> None:
        if self._graphs is None or size in self.replays:
            return
        self._send_decode([], [], size)  # what is run before a capture touches no keys and values
        self.replays[size] = self._graphs.capture(partial(self._queue, self._decode(size)))
        if self._is_piped(size):
            self.piped_replays[size] = self._graphs.capture(partial(self._queue, self._decode(size), in_lanes=True))

    def _capture_rows_again(self, size: int) -> None:
        if self._graphs is None or size in self.row_replays or self.lowered.num_of_any == 0:
            return
        self._inputs.send([0] * size, [], self._batch([], [size]))
        is_divided = self.lowered.splits_on_device
        step = CudaStep(self._inputs, [size], [], max_tiles=self._max_tiles(size), is_divided=is_divided)
        self.row_replays[size] = self._graphs.capture(partial(self._queue_of_any, step))

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
        """Padding prompts, of so many tokens in all, each as long as may be."""
        longest = self._inputs.limits.context_tokens
        nums_rows = [min(longest, num_rows - first) for first in range(0, num_rows, longest)]
        draw_rows = [end - 1 for end in accumulate(nums_rows)]
        self._inputs.send([0] * num_rows, draw_rows, self._batch([], nums_rows))
        for in_lanes in (False, True)[: 1 + self._is_piped(num_rows)]:
            self._queue(CudaStep(self._inputs, nums_rows, draw_rows), in_lanes=in_lanes)

    def _send_decode(
        self,
        sequences: Sequence[PagedSequence],
        token_ids: Sequence[int],
        size: int,
        num_remote: int = 0,
        adapters: Sequence[int] = (),
    ) -> None:
        """The inputs of a decode step of ``size`` rows, those that are missing being padding."""
        num_padding = size - len(sequences)
        batch = self._batch(sequences, [1] * num_padding, num_remote=num_remote)
        self._inputs.send([*token_ids, *[0] * num_padding], range(size), batch, _span(sequences, num_remote), adapters)

    def _batch(
        self, sequences: Sequence[PagedSequence], padding: Sequence[int] = (), *, num_remote: int = 0
    ) -> DeviceBatch:
        together = self._inputs.limits.rows_together
        batch = lay_out(sequences, self._block_size, self._places, rows_together=together, padding=padding)
        if num_remote:
            ring = self.lowered.asking.ring
            assert ring is not None, "remote sequences have a receiver"
            first_row, first_sequence, _ = _span(sequences, num_remote)
            batch.row_lines[first_row : first_row + num_remote] = NOWHERE
            batch.starts[first_sequence : first_sequence + num_remote] = SEES_NOTHING
            tables = [one.block_table for one in sequences[first_sequence:]]
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
        return CudaStep(self._inputs, [1] * size, range(size), is_divided=self.lowered.splits_on_device)

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


def _span(sequences: Sequence[PagedSequence], num_remote: int) -> tuple[int, int, int]:
    """The first remote row, the first remote sequence, and how many there are: the last, of one row each."""
    num_rows = sum(sequence.num_rows for sequence in sequences)
    return num_rows - num_remote, len(sequences) - num_remote, num_remote
