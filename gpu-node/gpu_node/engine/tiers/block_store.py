"""What an engine asks of the tier below host memory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from gpu_node.engine.border.model import LoadedModel
from gpu_node.engine.measures.counts import KeptCounts
from gpu_node.engine.memory.block_manager import BlockManager


class BlockStore(Protocol):
    """Full blocks of all models of an engine. Whatever goes wrong is a miss."""

    counts: KeptCounts

    @property
    def used_bytes(self) -> int:
        """Room that blocks take."""
        ...

    def join(self, model: LoadedModel, blocks: BlockManager) -> None:
        """A model is loaded."""
        ...

    def leave(self, name: str) -> None:
        """A model's host memory is given up: when this returns, it is not read or filled for the store any more."""
        ...

    def found(self, model: LoadedModel) -> Iterable[bytes]:
        """Digests of prefixes of the model that could be read."""
        ...

    def promote(self, model: LoadedModel, request_id: str, token_ids: Sequence[int], owner: str = "") -> None:
        """A request is queued: bring to host memory what only the store has of its prefix."""
        ...

    def write_copies(self, model: LoadedModel) -> None:
        """Take what has come to host memory."""
        ...

    def take_in(self, wait_s: float = 0.0) -> None:
        """Fold in what is done by now; the first of it is waited for, ``wait_s`` at most."""
        ...

    def check(self) -> None:
        """Assert that the books balance."""
        ...
