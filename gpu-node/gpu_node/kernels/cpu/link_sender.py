"""The sender's end of a link: it makes the shared memory, and programs of its device ask through it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

import numpy as np

from gpu_node.kernels.cpu.library.layout import CpuLinkShape
from gpu_node.kernels.cpu.library.library import library, link_error
from gpu_node.kernels.link_file import FOLDER, link_path, new_link_file


class SenderTimes(NamedTuple):
    """What a sender has measured, in seconds."""

    local_s: float
    """What it does itself while a task is away, of late (K of Weaver, ATC'25, §4.2); 0.0 before the first."""
    step_s: float
    """From one step with tasks to the next, of late."""
    away_s: float
    """Of all tasks together, from when they were asked for to when their answer was gathered."""
    waited_s: float
    """Of that, what the sender only waited."""
    num_tasks: float


class CpuLinkSender:
    """A new link to one receiver; its operators are ``send`` and ``gather``."""

    def __init__(
        self, shape: CpuLinkShape, sender: str, receiver: str, *, deadline_s: float, folder: Path = FOLDER
    ) -> None:
        """Between two epochs. A receiver that does not answer within ``deadline_s`` loses what it has. `LinkError`."""
        self.shape = shape
        self._library = library()
        self._path = link_path(folder, sender, receiver)
        num_bytes = int(self._library.treadle_link_bytes(shape))
        if num_bytes < 0:
            raise link_error(self._path)
        self._file = new_link_file(self._path, num_bytes)
        self._is_named = True
        try:
            self.handle = self._library.treadle_link_sender_new(
                self._file, shape, sender.encode(), receiver.encode(), deadline_s
            )
            if not self.handle:
                raise link_error(self._path)
        except BaseException:
            self._remove()
            raise

    def close(self) -> None:
        """Free it. No step that names it may be in a queue."""
        handle, self.handle = self.handle, None
        if handle:
            self._library.treadle_link_sender_free(handle)
            self._remove()

    def _remove(self) -> None:
        self.hide()
        os.close(self._file)

    def hide(self) -> None:
        """Take the name away, once the receiver has opened it: then the memory ends with the last of the two."""
        if self._is_named:
            self._path.unlink(missing_ok=True)
            self._is_named = False  # the next link of that name is not ours to remove

    @property
    def generation(self) -> int:
        """What steps are planned in; another one after anything was lost."""
        return int(self._library.treadle_link_sender_generation(self.handle))

    @property
    def times(self) -> SenderTimes:
        """What it has measured."""
        times = np.empty(len(SenderTimes._fields), dtype=np.float64)
        self._library.treadle_link_sender_times(self.handle, times.ctypes.data)
        return SenderTimes(*times.tolist())

    @property
    def is_open(self) -> bool:
        """Whether the receiver serves this generation."""
        return bool(self._library.treadle_link_sender_is_open(self.handle))
