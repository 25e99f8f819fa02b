"""Memory that two processes map: what one of them writes there, the other one reads, by launches and without a copy.

Of two makers. Where kernels are interpreted it is a part of a shared file. On a CUDA device it is memory of that
device, which another process opens by a handle of 64 bytes (CUDA IPC: ``cuIpcGetMemHandle``, ``cuIpcOpenMemHandle``),
from the same device or from one that reaches it. torch has the same for its own tensors, with a handle of several parts
and files that count the processes that map them; here the driver is asked itself, so that one place frees the memory:
its maker, when no process maps it any more.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import POINTER, byref, c_char_p, c_int, c_size_t, c_ubyte, c_uint, c_uint64
from functools import cache
from typing import Any, Protocol

import torch

from gpu_node.kernels.link_file import LinkError

HANDLE_BYTES = 64
_ENABLE_PEER_ACCESS = 1
"""CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS: the only flag that opening takes."""
_DEVICE_ORDINAL = 9
"""CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: of the device that memory lies on."""
_NATIVE_ATOMICS = 3
"""CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED."""
ADVICE = (
    "nodes that weave need NVIDIA devices that reach one another, atomics included (nvidia-smi topo -p2p a says which "
    "do), and containers that share IPC and see each other's devices"
)


class MappedMemory(Protocol):
    """One process's view of it."""

    @property
    def content(self) -> torch.Tensor:
        """uint8 [bytes], from a boundary of 256 bytes on."""
        ...

    def close(self) -> None:
        """Use it no more; no launch that does is in a queue. The maker closes last."""
        ...


class HostMapping:
    """A part of a file that both map."""

    def __init__(self, view: mmap.mmap, first: int, num_bytes: int) -> None:
        self.content = torch.frombuffer(view, dtype=torch.uint8, count=num_bytes, offset=first)

    def close(self) -> None:
        """It goes with the last view of it."""


class DeviceMapping:
    """Memory of a CUDA device."""

    def __init__(self, address: int, num_bytes: int, device: torch.device, handle: bytes, *, is_ours: bool) -> None:
        self.handle = handle
        """By which other processes open it."""
        self._address = address
        self._is_ours = is_ours
        self._device = device
        self.content = tensor_at(address, num_bytes, device)

    @classmethod
    def make(cls, num_bytes: int, device: torch.device) -> DeviceMapping:
        """Memory of this process, all 0. `LinkError` where there is none, or it cannot be shared."""
        address, handle = c_uint64(), _Handle()
        with _context_of(device):
            _call("cuMemAlloc_v2", byref(address), c_size_t(num_bytes))
            try:
                _call("cuIpcGetMemHandle", byref(handle), address)
            except LinkError:
                _call("cuMemFree_v2", address)
                raise
        made = cls(int(address.value), num_bytes, device, bytes(handle.reserved), is_ours=True)
        made.content.zero_()
        torch.cuda.synchronize(device)
        return made

    @classmethod
    def open(cls, handle: bytes, num_bytes: int, device: torch.device) -> DeviceMapping:
        """Memory that another process has made. `LinkError` where this device cannot reach it."""
        address = c_uint64()
        given = _Handle((c_ubyte * HANDLE_BYTES).from_buffer_copy(handle))
        with _context_of(device):
            _call("cuIpcOpenMemHandle_v2", byref(address), given, c_uint(_ENABLE_PEER_ACCESS))
            try:
                _check_atomics(address)
            except LinkError:
                _call("cuIpcCloseMemHandle", address)
                raise
        return cls(int(address.value), num_bytes, device, handle, is_ours=False)

    def close(self) -> None:
        """Free it, or unmap it."""
        with _context_of(self._device):
            _call("cuMemFree_v2" if self._is_ours else "cuIpcCloseMemHandle", c_uint64(self._address))


def tensor_at(address: int, num_bytes: int, device: torch.device) -> torch.Tensor:
    """uint8 [bytes] that its owner frees, for launches on ``device``.

    Memory that lies on another device stays where it is. Torch's way from arrays of others (CUDA Array Interface) would
    ask the driver where that is, and make a copy.
    """
    empty = torch.empty(0, dtype=torch.uint8, device=device)  # which knows the number of a device that has none here
    return empty.set_(torch._C._construct_storage_from_data_pointer(address, empty.device, num_bytes))


@contextmanager
def _context_of(device: torch.device) -> Iterator[None]:
    """Within this, the driver's calls are about torch's own context of the device."""
    with torch.cuda.device(device):
        torch.empty(1, device=device)  # the first use of a device in a thread makes its context the current one
        yield


def _check_atomics(address: c_uint64) -> None:
    """`LinkError` where the current device adds to counters of the memory's device with a read and a write."""
    own, other, is_native = c_int(), c_int(), c_int()
    _call("cuCtxGetDevice", byref(own))
    _call("cuPointerGetAttribute", byref(other), c_int(_DEVICE_ORDINAL), address)
    if other.value == own.value:
        return
    _call("cuDeviceGetP2PAttribute", byref(is_native), c_int(_NATIVE_ATOMICS), own, other)
    if not is_native.value:
        raise LinkError(
            f"no memory to share: cuda:{own.value} has no atomics on memory of cuda:{other.value}; {ADVICE}"
        )


class _Handle(ctypes.Structure):
    """CUipcMemHandle, which is passed by value."""

    _fields_ = (("reserved", c_ubyte * HANDLE_BYTES),)


@cache
def _driver() -> Any:
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise LinkError(f"no memory to share: {error}") from error


def _call(name: str, *arguments: Any) -> None:
    function = getattr(_driver(), name)
    function.restype = c_int
    error = function(*arguments)
    if error:
        text = c_char_p()
        describe = _driver().cuGetErrorString
        describe.argtypes, describe.restype = [c_int, POINTER(c_char_p)], c_int
        describe(error, byref(text))
        said = (text.value or b"unknown error").decode()
        raise LinkError(f"no memory to share: {name} of the CUDA driver says {said!r} ({error}); {ADVICE}")
