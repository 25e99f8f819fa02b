"""Copies blocks of KV between the layers of one of vLLM's workers and files; knows their shape, and nothing of vLLM."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from gpu_node.vllm.blocks.transit import part_of

log = logging.getLogger(f"vllm.{__name__}")


@dataclass(frozen=True, slots=True)
class KeptMove:
    """Of one continuation, to its file or from it."""

    core_id: str
    num_blocks: int
    """In the file."""
    blocks: list[int]
    """On the device: the last so many of the file's."""


class BlockMover:
    """Copies blocks of all layers between one device and files: layer after layer, in each block after block."""

    def __init__(self, folder: Path, rank: int) -> None:
        self._folder = folder
        self._rank = rank
        self._layers: list[torch.Tensor] = []
        self._moved: set[str] = set()
        self._failed: set[int] = set()

    def register(self, layers: dict[str, torch.Tensor], num_blocks: int) -> None:
        """Where the blocks of each layer are; which dimension counts them hangs on vLLM's attention."""
        self._layers = [_blocks_first(name, layer, num_blocks) for name, layer in sorted(layers.items())]

    def out(self, move: KeptMove) -> None:
        """Without room nothing lies there, as a reader will see."""
        path = part_of(self._folder, move.core_id, self._rank)
        try:
            with path.open("wb") as file:
                for layer in self._layers:
                    file.write(_bytes(layer[move.blocks]))
        except OSError as error:
            log.warning("KV of %s is not kept: %s", move.core_id, error)
            path.unlink(missing_ok=True)
        self._moved.add(move.core_id)

    def back(self, move: KeptMove) -> None:
        """What cannot be read is computed again; vLLM is told of it."""
        path = part_of(self._folder, move.core_id, self._rank)
        try:
            content = torch.from_numpy(np.fromfile(path, dtype=np.uint8))
            path.unlink()
        except OSError as error:
            log.warning("KV of %s is computed again: %s", move.core_id, error)
            self._failed.update(move.blocks)
            return
        start = 0
        for layer in self._layers:
            num_bytes = layer[:1].numel() * layer.element_size()
            section = content[start : start + move.num_blocks * num_bytes]
            start += len(section)
            wanted = section[(move.num_blocks - len(move.blocks)) * num_bytes :]
            layer[move.blocks] = wanted.view(layer.dtype).view(-1, *layer.shape[1:]).to(layer.device)

    def take_moved(self) -> set[str]:
        """Those that have left."""
        moved, self._moved = self._moved, set()
        return moved

    def take_failed(self) -> set[int]:
        """Blocks that hold nothing of use."""
        failed, self._failed = self._failed, set()
        return failed


def _blocks_first(name: str, layer: torch.Tensor, num_blocks: int) -> torch.Tensor:
    for dimension in (0, 1):
        if layer.shape[dimension] == num_blocks:
            return layer.movedim(dimension, 0)
    raise ValueError(f"kv: host: layer {name} has KV of shape {tuple(layer.shape)}, which is not cut into blocks")


def _bytes(blocks: torch.Tensor) -> memoryview:
    return blocks.contiguous().view(torch.uint8).cpu().numpy().data
