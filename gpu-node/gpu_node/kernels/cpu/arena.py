"""Memory of a device, or of its host, that the KV blocks of several programs share."""

from __future__ import annotations

import ctypes
from ctypes import POINTER, c_uint8

import numpy as np

from gpu_node.kernels.cpu.library.layout import Bytes, Int32s
from gpu_node.kernels.cpu.library.library import failed, library
from shared.errors import OperatorError
from shared.files.kv_paging import LINE_BYTES


class KvMemoryError(OperatorError, RuntimeError):
    """There is no such memory for KV."""


class CpuArena:
    """Memory for KV blocks, in pages. The system gives it when it is first written."""

    def __init__(self, num_pages: int, page_bytes: int) -> None:
        """Of a page, whole lines are used. `KvMemoryError` for more than the system has, or than 128 GiB."""
        self._library = library()
        self._num_pages = num_pages
        self.num_bytes = num_pages * (page_bytes // LINE_BYTES * LINE_BYTES)
        self.handle = self._library.treadle_arena_new(num_pages, page_bytes)
        if not self.handle:
            raise KvMemoryError(
                f"no {num_pages * page_bytes} bytes for KV: {failed()}; lower engine.kv_cache_bytes, host_kv_bytes or "
                "tiers.host_bytes"
            )
        data = ctypes.cast(self._library.treadle_arena_data(self.handle), POINTER(c_uint8))
        self._bytes = np.ctypeslib.as_array(data, shape=(self.num_bytes,))

    def close(self) -> None:
        """Free the memory. No program that lies in it may be left."""
        handle, self.handle = self.handle, None
        self._library.treadle_arena_free(handle)

    def block(self, number: int, blocks_per_page: int, block_bytes: int) -> Bytes:
        """A block as it lies in memory, a view. No step that is in a queue may write or read it."""
        page, slot = divmod(number, blocks_per_page)
        first = page * (self.num_bytes // self._num_pages) + slot * block_bytes
        return self._bytes[first : first + block_bytes]

    def bits(self) -> Int32s:
        """All of it as it lies in memory, two numbers in each int32; for tests."""
        return self._bytes.view(np.int32)
