"""The compiled library and its functions. Every call is made without the GIL."""

from __future__ import annotations

import ctypes
import functools
from ctypes import POINTER, c_char_p, c_double, c_float, c_int32, c_int64, c_uint32, c_uint64, c_void_p
from pathlib import Path
from typing import Any

from gpu_node.kernels.cpu.library.build import kernels_digest, library_path
from gpu_node.kernels.cpu.library.layout import CpuCacheShape, CpuLinkShape, CpuRange, Limits, View
from gpu_node.kernels.cpu.library.step_input import StepInput
from gpu_node.kernels.link_file import LinkError


@functools.cache
def library() -> ctypes.CDLL:
    """The compiled library; `CompilerError` if there is none and none can be made."""
    loaded = ctypes.CDLL(str(library_path()))
    for name, (result, arguments) in _FUNCTIONS.items():
        function = getattr(loaded, f"treadle_{name}")
        function.restype, function.argtypes = result, arguments
    return loaded


_FUNCTIONS: dict[str, tuple[Any, list[Any]]] = {
    "error": (c_char_p, []),
    "level": (c_char_p, [c_char_p]),
    "read_blocks": (c_int32, [c_int32, c_void_p, c_int64, c_void_p]),
    "device_new": (c_void_p, [c_int32, c_void_p, c_int32]),
    "device_free": (None, [c_void_p]),
    "arena_new": (c_void_p, [c_int64, c_int64]),
    "arena_free": (None, [c_void_p]),
    "arena_data": (c_void_p, [c_void_p]),
    "program_new": (c_void_p, [c_char_p, POINTER(Limits), POINTER(CpuCacheShape), c_void_p, c_void_p, c_int32]),
    "program_free": (None, [c_void_p]),
    "add_buffer": (c_int32, [c_void_p, c_int32, c_int32, c_int32]),
    "add_weight": (c_int32, [c_void_p, c_void_p, c_int32, c_int32, c_int32]),
    "add_int8_weight": (c_int32, [c_void_p, c_void_p, c_void_p, c_int32, c_int32, c_int32]),
    "add_constant": (c_int32, [c_void_p, c_void_p, c_int64]),
    "buffer_data": (c_void_p, [c_void_p, c_int32, POINTER(c_int64)]),
    "work_on": (c_int32, [c_void_p, POINTER(CpuRange), c_int32]),
    "embedding": (c_int32, [c_void_p, c_int32, c_int32, View]),
    "segment_embedding": (c_int32, [c_void_p, c_int32, c_int32, View]),
    "rms_norm": (c_int32, [c_void_p, View, c_int32, c_float, View]),
    "linear": (c_int32, [c_void_p, View, c_int32, c_int32, View]),
    "round": (c_int32, [c_void_p, View, View]),
    "rope": (c_int32, [c_void_p, View, c_int32]),
    "write_kv": (c_int32, [c_void_p, View, View, c_int32]),
    "rope_write_kv": (c_int32, [c_void_p, View, View, View, c_int32, c_int32]),
    "attention": (c_int32, [c_void_p, View, c_int32, c_int32, View]),
    "bidirectional_attention": (c_int32, [c_void_p, View, c_int32, c_int32, View]),
    "layer_norm": (c_int32, [c_void_p, View, c_int32, c_int32, c_float, View]),
    "head_norm": (c_int32, [c_void_p, View, c_int32, c_float]),
    "add_bias": (c_int32, [c_void_p, View, c_int32]),
    "relu": (c_int32, [c_void_p, View, View]),
    "gelu": (c_int32, [c_void_p, View, View]),
    "erf_gelu": (c_int32, [c_void_p, View, View]),
    "tanh": (c_int32, [c_void_p, View, View]),
    "silu_mul": (c_int32, [c_void_p, View, View, View]),
    "erf_gelu_mul": (c_int32, [c_void_p, View, View, View]),
    "add": (c_int32, [c_void_p, View, View, View]),
    "route": (c_int32, [c_void_p, View, c_int32, View]),
    "experts": (c_int32, [c_void_p, View, View, c_int32, c_void_p, c_void_p, c_int32, View]),
    "lora": (c_int32, [c_void_p, View, c_int32, c_void_p, c_void_p, View, View, View]),
    "poll": (c_int32, [c_void_p]),
    "copy_out": (c_int32, [c_void_p, c_int32, c_int32, c_int32, c_int32]),
    "select_draws": (c_int32, [c_void_p, View, View]),
    "select_first": (c_int32, [c_void_p, View, View]),
    "mean_pool": (c_int32, [c_void_p, View, View]),
    "draw": (c_int32, [c_void_p, View]),
    "queue_in": (c_int32, [c_void_p, c_int32, c_float]),
    "list": (None, [c_void_p]),
    "wait_for": (c_int32, [c_void_p, c_int32, c_int32]),
    "lane_size": (c_int32, [c_void_p, c_int32]),
    "lane_times": (c_int32, [c_void_p, c_int32, c_int32, c_void_p]),
    "submit": (c_uint64, [c_void_p, c_void_p, POINTER(StepInput)]),
    "give_masks": (None, [c_void_p]),
    "is_done": (c_int32, [c_void_p, c_uint64]),
    "wait": (None, [c_void_p, c_uint64]),
    "step_times": (c_int32, [c_void_p, c_uint64, c_void_p]),
    "drain": (None, [c_void_p]),
    "send": (c_int32, [c_void_p, View, View, View, c_int32, c_int32]),
    "gather": (c_int32, [c_void_p, View]),
    "num_served": (c_uint64, [c_void_p]),
    "attended": (c_uint64, [c_void_p, c_void_p]),
    "num_operators": (c_int32, [c_void_p]),
    "operator_times": (c_int64, [c_void_p, c_void_p, c_void_p]),
    "split_operators": (c_int32, [c_void_p, c_void_p]),
    "link_bytes": (c_int64, [POINTER(CpuLinkShape)]),
    "link_sender_new": (c_void_p, [c_int32, POINTER(CpuLinkShape), c_char_p, c_char_p, c_double]),
    "link_sender_free": (None, [c_void_p]),
    "link_sender_generation": (c_uint32, [c_void_p]),
    "link_sender_is_open": (c_int32, [c_void_p]),
    "link_sender_times": (None, [c_void_p, c_void_p]),
    "link_receiver_new": (
        c_void_p,
        [c_int32, POINTER(CpuLinkShape), c_char_p, c_char_p, c_char_p, c_void_p, c_void_p],
    ),
    "link_receiver_free": (None, [c_void_p, c_void_p]),
    "link_receiver_times": (None, [c_void_p, c_void_p]),
    "link_receiver_lend": (c_int32, [c_void_p, c_void_p, c_int32, c_int32]),
}


def level(wanted: str = "") -> str | None:
    """The level of kernels that this machine runs, or ``wanted`` itself if it has that, else None."""
    found: bytes | None = library().treadle_level(wanted.encode())
    return None if found is None else found.decode()


def kernels_name(wanted: str = "") -> str:
    """What times of the kernels of a level depend on: the level, and all that the library is made of."""
    return f"{level(wanted)} {kernels_digest()}"


def failed() -> RuntimeError:
    """What the last call of this thread has to say."""
    return RuntimeError(f"CPU device: {library().treadle_error().decode()}")


def link_error(path: Path) -> LinkError:
    """What that call has to say about a link."""
    return LinkError(f"no link {path}: {library().treadle_error().decode()}")
