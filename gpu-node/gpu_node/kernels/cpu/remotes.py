"""What a step does on other devices, as the CPU device takes it, and what became of it."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

from gpu_node.kernels.cpu.library.layout import Int32s
from gpu_node.kernels.cpu.link_sender import CpuLinkSender

_REMOTE = struct.Struct("PIiii")
"""RemoteInput in step.h: link, generation, sequences, sends, calls back."""


@dataclass(frozen=True, slots=True)
class CpuRemote:
    """What a step does behind one link: its sequences' block tables name blocks of the receiver."""

    link: CpuLinkSender
    generation: int
    """Of the link, when their keys and values came there: in another one they are lost."""
    num_sequences: int
    sends: Sequence[tuple[int, int]] = ()
    """Blocks of this device, and blocks of the receiver that get their content before anything is computed."""
    calls_back: Sequence[tuple[int, int]] = ()
    """Likewise the other way, behind the sends."""


@dataclass(frozen=True, slots=True)
class CpuRemotes:
    """All of a step, behind its local sequences, link after link."""

    parts: tuple[CpuRemote, ...]
    inputs: bytes
    """[parts] of `_REMOTE`."""
    moves: Int32s
    """[moves, 2]: of each part its sends, then its calls back."""
    lost: Int32s
    """Out, [parts]: 1 where the receiver missed its deadline, or refused: rows and moves are worth nothing."""

    @classmethod
    def of(cls, parts: Sequence[CpuRemote]) -> CpuRemotes:
        """Arrays for ``parts``, each behind a link of its own."""
        inputs = b"".join(
            _REMOTE.pack(part.link.handle, part.generation, part.num_sequences, len(part.sends), len(part.calls_back))
            for part in parts
        )
        moves = list(chain.from_iterable((*part.sends, *part.calls_back) for part in parts))
        array = np.array(moves, dtype=np.int32).reshape(-1, 2)
        return cls(tuple(parts), inputs, array, np.zeros(len(parts), dtype=np.int32))


NO_REMOTES = CpuRemotes.of(())
