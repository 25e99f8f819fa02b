"""The receiver's end of a link: its device serves what the sender asks for, over blocks in pages that it lends."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from gpu_node.kernels.cpu.arena import CpuArena
from gpu_node.kernels.cpu.device import CpuDevice
from gpu_node.kernels.cpu.library.layout import CpuLinkShape
from gpu_node.kernels.cpu.library.library import failed, library, link_error
from gpu_node.kernels.link_file import FOLDER, link_path, open_link_file


class CpuLinkReceiver:
    """A link that another engine made, served by a device of this one."""

    def __init__(
        self,
        shape: CpuLinkShape,
        sender: str,
        receiver: str,
        *,
        device: CpuDevice,
        arena: CpuArena,
        level: str = "",
        folder: Path = FOLDER,
    ) -> None:
        """Served from now on; ``device`` and ``arena`` outlive it. `LinkError` unless it is just what was agreed on."""
        self._library = library()
        self.shape = shape
        self._device = device
        path = link_path(folder, sender, receiver)
        file = open_link_file(path)
        try:
            self._handle = self._library.treadle_link_receiver_new(
                file, shape, sender.encode(), receiver.encode(), level.encode(), device.handle, arena.handle
            )
        finally:
            os.close(file)
        if not self._handle:
            raise link_error(path)

    def close(self) -> None:
        """Serve nothing any more; the sender loses what is under way, at once."""
        handle, self._handle = self._handle, None
        if handle:
            self._library.treadle_link_receiver_free(handle, self._device.handle)

    @property
    def sender_times(self) -> tuple[float, float]:
        """What the sender says of itself: seconds that it works while a task is away, and a step takes; 0.0 before."""
        times = np.empty(2, dtype=np.float64)
        self._library.treadle_link_receiver_times(self._handle, times.ctypes.data)
        return float(times[0]), float(times[1])

    def lend(self, pages: Iterable[int]) -> None:
        """Let tasks name blocks in ``pages`` of the arena."""
        self._set_lent(pages, is_lent=True)

    def take_back(self, pages: Iterable[int]) -> None:
        """Refuse tasks that name ``pages``; no task uses them when this returns."""
        self._set_lent(pages, is_lent=False)

    def _set_lent(self, pages: Iterable[int], *, is_lent: bool) -> None:
        for page in pages:
            if self._library.treadle_link_receiver_lend(self._handle, self._device.handle, page, is_lent) < 0:
                raise failed()
