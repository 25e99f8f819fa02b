"""One model's blocks on a CUDA device: they move within its memory, to host memory and back, and to this process.

What moves in which order is planned by `BlockMoves`; here it is done.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial

import torch

from gpu_node.engine.border.model import LoadedModel
from gpu_node.engine.border.plan import BlockCopy, StepPlan
from gpu_node.executors.cuda.memory.arena import WORD_BYTES, CudaArena
from gpu_node.executors.cuda.memory.lanes import Lanes
from gpu_node.executors.memory.block_moves import NUM_SLOTS, BlockMoves, Move, MoveKind
from gpu_node.executors.memory.host_bytes import bytes_of
from gpu_node.kernels.triton.blocks import copy_blocks, gather_blocks, scatter_blocks
from gpu_node.kernels.triton.launch import upload

STAGING_BYTES = 32 << 20
"""Of a slot, on the device and as much on the host: over PCIe this takes some 0.7 ms, long beside the microseconds that
it takes to queue it. Where one block is larger, a slot has its size."""


class CudaBlocks:
    """Moves the blocks of one model around and between its steps."""

    def __init__(
        self,
        arena: CudaArena,
        host: CudaArena,
        model: LoadedModel,
        lanes: Lanes,
        *,
        staging_bytes: int = STAGING_BYTES,
        overlaps: bool = True,
    ) -> None:
        """``overlaps=False`` is the plain path: swaps in the queue that computes."""
        self._arena = arena
        self._host = host
        self._model = model
        self._lanes = lanes
        slot_blocks = max(1, min(staging_bytes // model.block_bytes, model.num_blocks))
        self._moves = BlockMoves(slot_blocks, overlaps=overlaps)
        shape = NUM_SLOTS, self._moves.slot_blocks, model.block_bytes // WORD_BYTES
        device = arena.words.device
        self._staging = torch.empty(shape, dtype=torch.int64, device=device)
        self._host_ends = torch.empty(shape, dtype=torch.int64, pin_memory=device.type == "cuda")
        self._behind: tuple[Move, ...] = ()

    def before_rows(self, plan: StepPlan) -> None:
        """Queue a step's swaps out, then its copies as if at the same time; its swaps in set out, too."""
        assert not self._behind, "the step before has its end"
        moves = self._moves.step(plan.moves_out, plan.swaps_in)
        self._make(moves.before)
        self._copy(plan.copies)
        self._behind = moves.behind

    def behind_rows(self) -> None:
        """Queue what is left of the step's swaps in, in front of the next step."""
        behind, self._behind = self._behind, ()
        self._make(behind)

    def read(self, blocks: Sequence[int], *, swapped_out: bool) -> memoryview:
        """The content of blocks, one behind the other; waits for all that was queued."""
        content = memoryview(bytearray(len(blocks) * self._model.block_bytes))
        self._lanes.drain()
        if swapped_out:
            self._read_host(blocks, content)
        else:
            self._make(self._moves.read(blocks), content)
        return content

    def write(self, blocks: Sequence[int], content: memoryview) -> None:
        """Put what was read into blocks of the device, behind the steps that are queued."""
        self._make(self._moves.write(blocks), content)

    def warm_up(self) -> None:
        """Move a block away and back, unchanged: no later move has to compile or load code."""
        staging, lines = self._staging[0, :1], self._lines([0])
        gather_blocks(self._arena.words, lines, staging)
        scatter_blocks(staging, lines, self._arena.words)

    def drain(self) -> None:
        """Wait until everything that was queued is done."""
        self._lanes.drain()

    def _read_host(self, blocks: Sequence[int], content: memoryview) -> None:
        first = 0
        for run in self._host.runs(self._model, blocks):
            content[first : first + run.nbytes] = bytes_of(run)
            first += run.nbytes

    def _copy(self, copies: Sequence[BlockCopy]) -> None:
        is_apart = {copy.source for copy in copies}.isdisjoint(copy.destination for copy in copies)
        # what they take on the way is bounded, unless one writes what another reads; forks never do
        num_together = self._moves.slot_blocks if is_apart else max(1, len(copies))
        for first in range(0, len(copies), num_together):
            chunk = copies[first : first + num_together]
            sources = self._lines([copy.source for copy in chunk])
            destinations = self._lines([copy.destination for copy in chunk])
            copy_blocks(self._arena.words, sources, destinations, self._arena.places(self._model).block_lines)

    def _make(self, moves: Iterable[Move], content: memoryview | None = None) -> None:
        for move in moves:
            self._lanes.make(move, partial(self._do, move, content))

    def _do(self, move: Move, content: memoryview | None) -> None:
        staging = self._staging[move.slot, : len(move.blocks)]
        match move.kind:
            case MoveKind.GATHER:
                gather_blocks(self._arena.words, self._lines(move.blocks), staging)
            case MoveKind.SCATTER:
                scatter_blocks(staging, self._lines(move.blocks), self._arena.words)
            case MoveKind.SEND:
                for there, here in self._transfers(move, staging):
                    there.copy_(here, non_blocking=True)
            case MoveKind.FETCH:
                for there, here in self._transfers(move, staging):
                    here.copy_(there, non_blocking=True)
            case MoveKind.TAKE:
                self._part(move, content)[:] = bytes_of(self._host_end(move))
            case MoveKind.GIVE:
                bytes_of(self._host_end(move))[:] = self._part(move, content)

    def _transfers(self, move: Move, staging: torch.Tensor) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """One for each run of neighbours in host memory: there, and here."""
        first = 0
        for there in [self._host_end(move)] if move.has_host_end else self._host.runs(self._model, move.blocks):
            yield there, staging[first : first + len(there)]
            first += len(there)

    def _host_end(self, move: Move) -> torch.Tensor:
        return self._host_ends[move.slot, : len(move.blocks)]

    def _part(self, move: Move, content: memoryview | None) -> memoryview:
        """Where these places lie in the content of the process."""
        assert content is not None
        num_bytes = self._model.block_bytes
        return content[move.blocks[0] * num_bytes : (move.blocks[-1] + 1) * num_bytes]

    def _lines(self, blocks: Sequence[int]) -> torch.Tensor:
        """Where blocks begin on the device: int32 [blocks], there."""
        lines = self._arena.places(self._model).lines(torch.tensor(blocks, dtype=torch.int32))
        return upload([lines], self._arena.words.device)[0]
