"""The file that two engines with CUDA devices find each other by: what was agreed on, words of both, the memory.

The file is as those of CPU devices are (`gpu_node.kernels.link_file`): made and locked by the sender, of one user.
Where kernels are interpreted the ring lies in it, else in memory of the sender's device, of which it has the handle.

Each word has one writer. Hosts look at them between steps; launches never do.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import struct
from pathlib import Path

import torch

from gpu_node.engine.border.links import LinkName
from gpu_node.executors.cuda.links.ring_memory import RingMemory, ring_bytes
from gpu_node.executors.cuda.memory.mapped_memory import HANDLE_BYTES, DeviceMapping, HostMapping, MappedMemory
from gpu_node.kernels.link_file import LinkError, link_path, new_link_file, open_link_file
from shared.messages.memory.link_sizes import LinkSizes

_FORMAT = b"treadle cuda 1"
_HEAD = struct.Struct(f"=16s 9i 16s 128s 128s 16s {HANDLE_BYTES}s")
"""Format, sizes, type of numbers, sender, receiver, kind of memory, its handle."""
_FIRST_WORD = 1024
_GENERATION, _ACCEPTED, _PAGE_LINES, _NUM_OPENED = range(4)
"""The first is the sender's, the others are the receiver's."""
_FIRST_BYTE = mmap.PAGESIZE
"""Of the ring, where it lies in the file."""
CLOSED = -1
"""As an accepted generation."""


class LinkWindow:
    """One end's view."""

    def __init__(self, path: Path, file: int, memory: MappedMemory, view: mmap.mmap, ring: RingMemory) -> None:
        self.ring = ring
        self._path = path
        self._file = file
        self._memory = memory
        self._words = memoryview(view)[_FIRST_WORD:_FIRST_BYTE].cast("q")
        self._is_named = True

    @classmethod
    def make(
        cls, folder: Path, link: LinkName, sizes: LinkSizes, dtype: torch.dtype, device: torch.device
    ) -> LinkWindow:
        """The sender's, in its first generation. `LinkError`."""
        path, num_bytes = link_path(folder, link.sender, link.receiver), ring_bytes(sizes, dtype)
        is_host = device.type != "cuda"
        file = new_link_file(path, _FIRST_BYTE + is_host * num_bytes)
        try:
            view = mmap.mmap(file, 0)
            memory = HostMapping(view, _FIRST_BYTE, num_bytes) if is_host else _device_memory(path, num_bytes, device)
            handle = b"" if isinstance(memory, HostMapping) else memory.handle
            view[: _HEAD.size] = _head(link, sizes, dtype, device, handle)
            made = cls(path, file, memory, view, RingMemory.of(sizes, dtype, memory.content))
            made._words[_GENERATION] = 1
        except BaseException:
            os.close(file)
            path.unlink()
            raise
        return made

    @classmethod
    def open(
        cls, folder: Path, link: LinkName, sizes: LinkSizes, dtype: torch.dtype, device: torch.device
    ) -> LinkWindow:
        """The receiver's, once. `LinkError` unless it is just what was agreed on."""
        path, num_bytes = link_path(folder, link.sender, link.receiver), ring_bytes(sizes, dtype)
        file = open_link_file(path)
        try:
            view = _checked_view(path, file, link, sizes, dtype, device, num_bytes)
            handle = _HEAD.unpack(view[: _HEAD.size])[-1]
            is_host = device.type != "cuda"
            memory = (
                HostMapping(view, _FIRST_BYTE, num_bytes)
                if is_host
                else _device_memory(path, num_bytes, device, handle)
            )
            opened = cls(path, file, memory, view, RingMemory.of(sizes, dtype, memory.content))
            opened._words[_NUM_OPENED] = 1
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1)  # until this process ends: see `is_mapped_elsewhere`
        except BaseException:
            os.close(file)
            raise
        return opened

    # --- words --------------------------------------------------------------------------------------------------------

    @property
    def generation(self) -> int:
        """What the sender plans in; the next one when something was lost."""
        return int(self._words[_GENERATION])

    def next_generation(self) -> None:
        """The sender has lost what it asked for."""
        self._words[_GENERATION] = self.generation + 1

    @property
    def accepted(self) -> int:
        """The generation that the receiver serves; 0 before the first, `CLOSED` behind the last."""
        return int(self._words[_ACCEPTED])

    def accept(self, generation: int) -> None:
        """The receiver serves it from now on."""
        self._words[_ACCEPTED] = generation

    @property
    def page_lines(self) -> int:
        """Of a page of the receiver; said before it accepts anything."""
        return int(self._words[_PAGE_LINES])

    @page_lines.setter
    def page_lines(self, page_lines: int) -> None:
        self._words[_PAGE_LINES] = page_lines

    # --- its end ------------------------------------------------------------------------------------------------------

    def hide(self) -> None:
        """Take the name away, once the receiver has opened it."""
        if self._is_named:
            self._path.unlink(missing_ok=True)
            self._is_named = False

    @property
    def is_mapped_elsewhere(self) -> bool:
        """Whether a receiver of another process lives and has not closed it; asked by the sender."""
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1)
        except OSError as error:
            if error.errno in (errno.EACCES, errno.EAGAIN):
                return True
            raise
        fcntl.lockf(self._file, fcntl.LOCK_UN, 1)
        return False

    def close(self) -> None:
        """Unmap or free it; no launch that uses it is in a queue."""
        self._memory.close()
        os.close(self._file)


def _device_memory(path: Path, num_bytes: int, device: torch.device, handle: bytes = b"") -> DeviceMapping:
    try:
        return DeviceMapping.open(handle, num_bytes, device) if handle else DeviceMapping.make(num_bytes, device)
    except LinkError as error:
        raise LinkError(f"no link {path}: {error}") from error


def _head(link: LinkName, sizes: LinkSizes, dtype: torch.dtype, device: torch.device, handle: bytes) -> bytes:
    numbers = (sizes.num_layers, sizes.block_size, sizes.num_heads, sizes.num_kv_heads, sizes.head_dim)
    room = (sizes.num_slots, sizes.max_rows, sizes.max_sequences, sizes.max_blocks)
    names = (str(dtype).encode(), link.sender.encode(), link.receiver.encode(), device.type.encode())
    return _HEAD.pack(_FORMAT, *numbers, *room, *names, handle)


def _checked_view(
    path: Path,
    file: int,
    link: LinkName,
    sizes: LinkSizes,
    dtype: torch.dtype,
    device: torch.device,
    num_bytes: int,
) -> mmap.mmap:
    found_bytes = os.fstat(file).st_size
    if found_bytes < _FIRST_BYTE:
        raise LinkError(f"no link {path}: a link's file has another format")
    view = mmap.mmap(file, 0)
    found, agreed = (_HEAD.unpack(one) for one in (view[: _HEAD.size], _head(link, sizes, dtype, device, b"")))
    kinds = [one.rstrip(b"\0").decode(errors="replace") for one in (found[10], agreed[10], found[13], agreed[13])]
    problems = {
        "a link's file has another format": found[0] != agreed[0],
        "a link has other sizes than were agreed on": found[1:10] != agreed[1:10],
        f"its keys and values are {kinds[0]}, and those here {kinds[1]}": found[10] != agreed[10],
        "a link is of another sender": found[11] != agreed[11],
        "a link is of another receiver": found[12] != agreed[12],
        f"its memory is of {kinds[2]}, and that here of {kinds[3]}": found[13] != agreed[13],
    }
    for problem, is_so in problems.items():
        if is_so:
            raise LinkError(f"no link {path}: {problem}")
    wanted_bytes = _FIRST_BYTE + (num_bytes if device.type != "cuda" else 0)
    if found_bytes != wanted_bytes:
        raise LinkError(
            f"no link {path}: a link's file has {found_bytes} bytes, and what was agreed on takes {wanted_bytes}"
        )
    if memoryview(view)[_FIRST_WORD:_FIRST_BYTE].cast("q")[_NUM_OPENED]:
        raise LinkError(f"no link {path}: a link was open before")
    return view
