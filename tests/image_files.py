"""Serialised images as engines and agents pass them to each other: files in memory, which this process made."""

from __future__ import annotations

import os
from pathlib import Path

from gpu_node.engine.process.protocol.protocol import ImageFile


def laid(data: bytes) -> ImageFile:
    """It stays until the process ends: who is told of it opens it when it likes."""
    fd = os.memfd_create("laid", os.MFD_CLOEXEC)
    assert os.write(fd, data) == len(data)
    return ImageFile(f"/proc/{os.getpid()}/fd/{fd}", len(data))


def read(file: ImageFile) -> bytes:
    """What is in it."""
    data = Path(file.path).read_bytes() if file.path else b""
    assert len(data) == file.num_bytes
    return data
