"""The sequences of a step that lie on other devices, as the CPU device takes them, and what became of them."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gpu_node.kernels.cpu.layout import Int32s
from gpu_node.kernels.cpu.link_sender import CpuLinkSender

_REMOTE = struct.Struct("PIi")
"""RemoteInput in step.h: link, generation, sequences."""


@dataclass(frozen=True, slots=True)
class CpuRemote:
    """Sequences behind one link; their block tables name blocks of the receiver."""

    link: CpuLinkSender
    generation: int
    """Of the link, when their keys and values came there: in another one they are lost."""
    num_sequences: int


@dataclass(frozen=True, slots=True)
class CpuRemotes:
    """All of a step, behind its local sequences, link after link."""

    parts: tuple[CpuRemote, ...]
    inputs: bytes
    """[parts] of `_REMOTE`."""
    lost: Int32s
    """Out, [parts]: 1 where the receiver missed its deadline, or refused: the rows are worth nothing."""

    @classmethod
    def of(cls, parts: Sequence[CpuRemote]) -> CpuRemotes:
        """Arrays for ``parts``, each behind a link of its own."""
        inputs = b"".join(_REMOTE.pack(part.link.handle, part.generation, part.num_sequences) for part in parts)
        return cls(tuple(parts), inputs, np.zeros(len(parts), dtype=np.int32))


NO_REMOTES = CpuRemotes.of(())
