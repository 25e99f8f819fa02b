"""How Python and the C interface name things and lay them out: buffers, shapes, limits."""

from __future__ import annotations

import math
from ctypes import Structure, c_int32
from dataclasses import astuple, fields
from enum import IntEnum
from typing import Any

import numpy as np

from gpu_node.graph.share import Part, Range
from shared.files.kv_paging import LINE_BYTES
from shared.messages.memory.link_sizes import LinkSizes

LEVELS = ("plain", "avx2", "avx512", "amx")
MAX_QUERIES = 48
"""Rows times heads that share a KV head in one attention task (kMaxQueries in kernels.h)."""
MAX_HEAD_DIM = 512
"""Numbers of a head (kMaxHeadDim there)."""

Bytes = np.ndarray[Any, np.dtype[np.uint8]]
Int32s = np.ndarray[Any, np.dtype[np.int32]]


class CpuRows(IntEnum):
    """What the rows of a buffer stand for."""

    TOKENS = 0
    DRAWS = 1


class Type(IntEnum):
    """How a buffer holds its numbers."""

    FLOAT32 = 0
    BFLOAT16 = 1


class Epilogue(IntEnum):
    """What a product does with its sums."""

    STORE = 0
    ADD = 1
    SILU_MUL = 2


class Index(IntEnum):
    """What chooses the rows of an embedding."""

    TOKEN_IDS = 0
    POSITIONS = 1


class View(Structure):
    """Some columns of a buffer."""

    _fields_ = (("buffer", c_int32), ("first_column", c_int32), ("num_columns", c_int32))


class CpuRange(Structure):
    """Of a part of a step's batch, what lies from ``start`` / ``count`` to ``end`` / ``count`` of its rows."""

    _fields_ = (("part", c_int32), ("start", c_int32), ("end", c_int32), ("count", c_int32))

    @classmethod
    def of(cls, one: Range) -> CpuRange:
        """The same, for the device."""
        count = math.lcm(one.start.denominator, one.end.denominator)
        return cls(list(Part).index(one.part), int(one.start * count), int(one.end * count), count)


class Limits(Structure):
    """The largest step of a program."""

    _fields_ = (("max_rows", c_int32), ("max_draws", c_int32), ("max_positions", c_int32), ("vocabulary", c_int32))


class CpuCacheShape(Structure):
    """The paged KV cache of a program."""

    _fields_ = (
        ("num_layers", c_int32),
        ("num_blocks", c_int32),
        ("block_size", c_int32),
        ("num_kv_heads", c_int32),
        ("head_dim", c_int32),
    )
    num_layers: int
    num_blocks: int
    block_size: int
    num_kv_heads: int
    head_dim: int

    @property
    def layer_bytes(self) -> int:
        """Keys and values of one block in one layer."""
        return 2 * self.num_kv_heads * self.head_dim * self.block_size * 2

    @property
    def block_bytes(self) -> int:
        """Those of all layers, in whole lines."""
        return -(-self.num_layers * self.layer_bytes // LINE_BYTES) * LINE_BYTES


class CpuLinkShape(Structure):
    """The sizes of a link. The cache is like the sender's."""

    _fields_ = tuple((one.name, c_int32) for one in fields(LinkSizes))

    @classmethod
    def of(cls, sizes: LinkSizes) -> CpuLinkShape:
        """The same, for the device."""
        return cls(*astuple(sizes))

    @property
    def sizes(self) -> LinkSizes:
        """The same, for all other modules."""
        return LinkSizes(*(getattr(self, one.name) for one in fields(LinkSizes)))
