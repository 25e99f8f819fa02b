"""Blocks of a model that go to a receiver or come back, a few at a time, ahead of a step's rows."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from gpu_node.engine.border.plan import BlockMove
from gpu_node.executors.cuda.memory.arena import CudaArena
from gpu_node.executors.cuda.program.link_ends import Serving
from gpu_node.kernels.triton.attention.gather import ask_move, settle
from gpu_node.kernels.triton.attention.remote_ring import RemoteRing
from gpu_node.kernels.triton.attention.task_ring import PUT, TAKE
from gpu_node.kernels.triton.blocks import gather_blocks, scatter_blocks
from gpu_node.kernels.triton.cache import Places
from gpu_node.kernels.triton.launch import queue, upload


class RemoteMoves:
    """Between the blocks of one model, as they lie here, and those of its receiver."""

    def __init__(self, arena: CudaArena, places: Places, dtype: torch.dtype, serving: Serving) -> None:
        self._arena = arena
        self._places = places
        self._numbers = arena.numbers(dtype)
        self._serving = serving

    def send(self, ring: RemoteRing, moves: Sequence[BlockMove]) -> None:
        """Queue copies of blocks to the receiver."""
        for own, there, content in self._chunks(ring, moves):
            gather_blocks(self._arena.words, own, content)
            self._move(ring, PUT, there)

    def call_back(self, ring: RemoteRing, moves: Sequence[BlockMove]) -> None:
        """Queue copies from there; where the receiver is lost, what comes is worth nothing."""
        for own, there, content in self._chunks(ring, moves):
            self._move(ring, TAKE, there)
            scatter_blocks(content, own, self._arena.words)

    def _chunks(
        self, ring: RemoteRing, moves: Sequence[BlockMove]
    ) -> list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
        """Lines here, lines there, and the words of the ring that the blocks come through."""
        words = ring.ring.content.view(torch.int64)
        chunks = []
        for first in range(0, len(moves), len(words)):
            chunk = moves[first : first + len(words)]
            own = self._places.lines(torch.tensor([move.device_block for move in chunk], dtype=torch.int32))
            there = ring.places.lines(torch.tensor([move.remote_block for move in chunk], dtype=torch.int32))
            own, there = upload([own, there], self._arena.words.device)
            chunks.append((own, there, words[: len(chunk)]))
        return chunks

    def _move(self, ring: RemoteRing, kind: int, lines: torch.Tensor) -> None:
        ask_move(ring, kind, lines)
        queue("meanwhile", self._serving.meanwhile)
        settle(ring, self._serving.tasks, self._numbers)
