"""One layer's attention on a CPU device, at home or with sequences on another one: rows in, rows out, bit by bit."""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import c_byte, c_int64
from dataclasses import dataclass, field

import numpy as np
import torch

from gpu_node.graph.share import WHOLE
from gpu_node.kernels.cpu import (
    CpuArena,
    CpuCacheShape,
    CpuDevice,
    CpuLinkSender,
    CpuLinkShape,
    CpuProgram,
    CpuRemote,
    CpuRemotes,
    CpuRows,
    CpuStep,
    Int32s,
    Limits,
    Type,
    View,
)
from gpu_node.kernels.cpu.library.library import library

MAX_ROWS, MAX_POSITIONS, NUM_PAGES, BLOCKS_PER_PAGE = 96, 512, 8, 32


@dataclass(frozen=True)
class Sizes:
    """Of a model, as far as its attention goes."""

    num_heads: int = 4
    num_kv_heads: int = 2
    head_dim: int = 16
    block_size: int = 4
    num_layers: int = 2
    window: int = 0

    @property
    def cache(self) -> CpuCacheShape:
        num_blocks = NUM_PAGES * BLOCKS_PER_PAGE
        return CpuCacheShape(self.num_layers, num_blocks, self.block_size, self.num_kv_heads, self.head_dim)

    @property
    def page_bytes(self) -> int:
        return BLOCKS_PER_PAGE * self.cache.block_bytes

    def link(self, num_slots: int = 2) -> CpuLinkShape:
        heads = (self.num_heads, self.num_kv_heads, self.head_dim)
        return CpuLinkShape(
            self.num_layers, self.block_size, *heads, num_slots, MAX_ROWS, 16, NUM_PAGES * BLOCKS_PER_PAGE
        )


@dataclass
class Grown:
    """A sequence whose rows are made up as it grows."""

    blocks: tuple[int, ...]
    length: int = 0


@dataclass
class Part:
    """Sequences of a step that lie in one place: at home, where there is no link."""

    rows: Sequence[tuple[Grown, int]]
    """Of each sequence, how many rows it adds."""
    link: CpuLinkSender | None = None
    generation: int = 1


@dataclass
class AttentionEngine:
    """A device with a program of ``write_kv``, ``send``, ``attention`` and ``gather`` in each layer."""

    sizes: Sizes
    num_threads: int = 1
    out: Type = Type.FLOAT32
    offloads: bool = True
    num_parts: int = 1
    """That remote rows are sent in."""
    num_idle_operators: int = 0
    page_bytes: int = 0
    """At least; others may want larger ones than its own blocks do."""
    device: CpuDevice = field(init=False)

    def __post_init__(self) -> None:
        sizes = self.sizes
        self.device = CpuDevice(self.num_threads)
        self.arena, self.host = CpuArena(NUM_PAGES, max(sizes.page_bytes, self.page_bytes)), CpuArena(1, 0)
        shared = sizes.num_heads // sizes.num_kv_heads
        limits = Limits(MAX_ROWS, 1, MAX_POSITIONS, 16)
        self.program = CpuProgram(limits, sizes.cache, shared, arena=self.arena, host=self.host)
        q_columns, kv_columns = sizes.num_heads * sizes.head_dim, sizes.num_kv_heads * sizes.head_dim
        columns = (q_columns, kv_columns, kv_columns)
        self.q, self.k, self.v = (self.program.buffer(CpuRows.TOKENS, Type.FLOAT32, number) for number in columns)
        self.outs = [self.program.buffer(CpuRows.TOKENS, self.out, q_columns) for _ in range(sizes.num_layers)]
        for layer, out in enumerate(self.outs):
            self._add("write_kv", self.k, self.v, layer)
            shares = [WHOLE.cut(part, self.num_parts) for part in range(self.num_parts)] if self.offloads else []
            for share in shares:
                self.program.work_on(share)
                self._add("send", self.q, self.k, self.v, layer, sizes.window)
            self.program.work_on(WHOLE)
            self._add("attention", self.q, layer, sizes.window, out)
            for share in shares:
                self.program.work_on(share)
                self._add("gather", out)
            self.program.work_on(WHOLE)
            for _ in range(self.num_idle_operators):
                self._add("add", self.q, self.q, self.program.buffer(CpuRows.TOKENS, Type.FLOAT32, q_columns))

    def _add(self, operator: str, *arguments: object) -> None:
        self.program.add(operator, *arguments)  # type: ignore[arg-type]
        self.program.add("poll")

    def close(self) -> None:
        self.device.close()
        self.program.close()
        self.arena.close()
        self.host.close()

    def step(self, parts: Sequence[Part], seed: int = 0) -> tuple[CpuStep, int]:
        """Submit a step over made-up rows; the sequences grow. Returns it and its event."""
        rows = [each for part in parts for each in part.rows]
        starts, nums_rows = int32([one.length for one, _ in rows]), int32([number for _, number in rows])
        total = int(nums_rows.sum())
        chance = torch.Generator().manual_seed(seed)
        for view in (self.q, self.k, self.v):
            values = self.program.buffer_values(view, CpuRows.TOKENS)
            values[:total] = torch.randn(total, values.shape[1], generator=chance)
        remote = [CpuRemote(part.link, part.generation, len(part.rows)) for part in parts if part.link is not None]
        step = CpuStep(
            starts=starts,
            num_rows=nums_rows,
            num_blocks=int32([len(one.blocks) for one, _ in rows]),
            block_tables=int32([block for one, _ in rows for block in one.blocks]),
            token_ids=np.ones(total, dtype=np.int32),
            draw_rows=int32([]),
            copies=int32([]).reshape(-1, 2),
            logits=None,
            remotes=CpuRemotes.of(remote),
        )
        event = self.device.submit(self.program, step)
        for one, number in rows:
            one.length += number
        return step, event

    def run(self, parts: Sequence[Part], seed: int = 0) -> CpuStep:
        step, event = self.step(parts, seed)
        self.device.wait(event)
        return step

    def answers(self, step: CpuStep) -> torch.Tensor:
        """Bits of all layers' outputs [layers, rows, numbers]."""
        total = int(step.num_rows.sum())
        return torch.stack([self._bits(out)[:total] for out in self.outs])

    def _bits(self, view: View) -> torch.Tensor:
        stride = c_int64()
        address = library().treadle_buffer_data(self.program.handle, view.buffer, stride)
        number = torch.int32 if self.out is Type.FLOAT32 else torch.int16
        memory = (c_byte * (MAX_ROWS * stride.value * number.itemsize)).from_address(address)
        return torch.frombuffer(memory, dtype=number).view(MAX_ROWS, stride.value)[:, : view.num_columns].clone()


def int32(values: Sequence[int]) -> Int32s:
    return np.array(values, dtype=np.int32)
