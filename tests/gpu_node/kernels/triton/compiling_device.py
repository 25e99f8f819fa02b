"""Compiles every kernel for NVIDIA devices that are not there: to machine code, with what a real launch would give it.

The interpreter takes what no compiler would. Run as a program of its own, without the interpreter: tensors are those of
the CPU, and a driver stands where that of CUDA does, which launches nothing.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.backends.driver import DriverBase

from gpu_node.kernels.paged_batch import PagedSequence
from gpu_node.kernels.token_draw import TokenDraw
from gpu_node.kernels.triton.activations import erf_gelu, erf_gelu_mul, gelu, relu, silu_mul, tanh
from gpu_node.kernels.triton.attention.attention import (
    bidirectional_attention,
    bidirectional_window_attention,
    paged_attention,
)
from gpu_node.kernels.triton.attention.attention_tile import UNBOUNDED
from gpu_node.kernels.triton.attention.decode_attention import decode_attention
from gpu_node.kernels.triton.attention.gather import ask_move, gather, settle
from gpu_node.kernels.triton.attention.poll import poll
from gpu_node.kernels.triton.attention.prefill_attention import rows_together
from gpu_node.kernels.triton.attention.remote_ring import RemoteRing, RemoteRows
from gpu_node.kernels.triton.attention.send import send
from gpu_node.kernels.triton.attention.task_ring import PUT, LentLines, PartMemory, PollCounters, TaskRing, Tasks
from gpu_node.kernels.triton.blocks import copy_blocks
from gpu_node.kernels.triton.cache import CacheShape, LayerCache, Places, device_batch
from gpu_node.kernels.triton.draws.adjust import adjusted_logits
from gpu_node.kernels.triton.draws.draw import draw_tokens
from gpu_node.kernels.triton.draws.draw_arrays import draw_arrays
from gpu_node.kernels.triton.experts import experts
from gpu_node.kernels.triton.launch import on_part
from gpu_node.kernels.triton.lookup import lookup
from gpu_node.kernels.triton.lora import lora
from gpu_node.kernels.triton.norms import add_layer_norm, add_rms_norm
from gpu_node.kernels.triton.rope import rope, rope_write_kv, write_kv
from gpu_node.kernels.triton.route import route
from gpu_node.kernels.triton.whole_texts import mean_pool, segment_embedding, select_first
from shared.config.engines.adapters import MAX_RANK
from shared.messages.requests.payload import Sampling
from tests.gpu_node.kernels.triton.kept_code import use

SHARED_MEMORY_BYTES = {80: 163 << 10, 89: 99 << 10, 90: 227 << 10, 100: 227 << 10}
"""Of one program, by compute capability: A100, L40S, H100, B200."""
CPU = torch.device("cpu")
DIM, KV_HEADS, SHARED = 128, 2, 4
"""The heads of Llama 3: what is wide costs shared memory, what is long costs nothing."""


class CompilingDriver(DriverBase):  # type: ignore[misc]
    """Where Triton asks what to compile for, and would launch."""

    def __init__(self, capability: int) -> None:
        self.capability = capability
        self.target = GPUTarget("cuda", capability, 32)
        self.utils = SimpleNamespace(
            get_device_properties=lambda _device: {"max_shared_mem": SHARED_MEMORY_BYTES[capability]},
            load_binary=lambda name, _kernel, shared, _device: self._loaded(name, shared),
        )
        self.names: list[str] = []

    def _loaded(self, name: str, shared_bytes: int) -> tuple[str, str, int, int, int]:
        self.names.append(f"{name} {shared_bytes}")
        return name, name, 0, 0, 1024

    @classmethod
    def is_active(cls) -> bool:
        return True

    def map_python_to_cpp_type(self, ty: str) -> str:
        return ty

    def get_current_target(self) -> GPUTarget:
        return self.target

    def get_active_torch_device(self) -> torch.device:
        return CPU

    def get_benchmarker(self) -> Any:
        raise NotImplementedError("a device that is not there is not measured")

    def get_current_device(self) -> int:
        return self.capability  # compiled kernels are kept by the device's number

    def get_current_stream(self, _device: int) -> int:
        return 0

    def launcher_cls(self, _source: object, _metadata: object) -> Any:
        return lambda *_arguments: None


def compile_all() -> None:
    """Call each entry once."""
    rows = torch.zeros(40, 256, dtype=torch.bfloat16)
    weight = torch.ones(256, dtype=torch.bfloat16)
    add_rms_norm(rows, rows, weight, 1e-5, rows)
    add_layer_norm(rows, rows, weight, weight, 1e-5, rows)
    add_layer_norm(rows, rows, weight, None, 1e-5, rows)
    silu_mul(rows, rows, rows)
    erf_gelu_mul(rows, rows, rows)
    relu(rows, rows)
    gelu(rows, rows)
    erf_gelu(rows, rows)
    tanh(rows, rows)
    indices = torch.zeros(40, dtype=torch.int32)
    lookup(rows, indices, indices, rows)
    segment_embedding(rows, indices, indices, 0, 3, rows)
    select_first(rows, indices, indices, rows)
    mean_pool(rows, indices, indices, rows)
    _attention()
    _experts(rows)
    for rank, draw_rows in ((16, None), (16, indices), (MAX_RANK, None)):
        matrices = torch.zeros(3, rank, 256, dtype=torch.bfloat16)
        lora(rows, matrices, matrices.transpose(1, 2).contiguous(), indices, draw_rows, rows)
    copy_blocks(
        torch.zeros(640, dtype=torch.int64), torch.zeros(2, dtype=torch.int32), torch.ones(2, dtype=torch.int32), 4
    )
    _draws()


def _attention() -> None:
    shape = CacheShape(1, 16, KV_HEADS, DIM)
    lines = shape.block_lines(2)
    cache = LayerCache(torch.zeros(lines * 32 * 8, dtype=torch.bfloat16), shape, 0)
    sequences = [PagedSequence(3, 1, [0]), PagedSequence(0, 5, [1])]
    together = rows_together(SHARED)
    batch = device_batch(sequences, 16, Places(lines * 8, lines), CPU, rows_together=together)
    q = torch.zeros(6, KV_HEADS * SHARED * DIM, dtype=torch.bfloat16)
    k = torch.zeros(6, KV_HEADS * DIM, dtype=torch.bfloat16)
    angles = torch.zeros(6, DIM)
    rope(q, angles, q)
    write_kv(k, k, cache, batch)
    rope_write_kv(q, k, k, angles, cache, batch)
    paged_attention(q, cache, batch, q)
    bidirectional_attention(q, cache, batch, q)
    bidirectional_window_attention(q, cache, batch, 65, q)
    decode_attention(q, cache, batch, UNBOUNDED, q, num_splits=2)
    many = [PagedSequence(3, 1, [0])] * 8 + [PagedSequence(0, 5, [1])] * 8
    rows = torch.zeros(8 + 8 * 5, q.shape[1], dtype=torch.bfloat16)
    with on_part(0.01):  # on one processor, so that programs have several tasks
        paged_attention(
            rows, cache, device_batch(many, 16, Places(lines * 8, lines), CPU, rows_together=together), rows
        )
    ring = TaskRing(
        shape=shape,
        kinds=torch.zeros(2, dtype=torch.int32),
        num_sequences=torch.zeros(2, dtype=torch.int32),
        firsts=torch.zeros(2, dtype=torch.int64),
        windows=torch.zeros(2, dtype=torch.int32),
        positions=torch.zeros(2, 3, dtype=torch.int32),
        block_lines=torch.zeros(2, 3, 4, dtype=torch.int32),
        q=torch.zeros(2, 3, q.shape[1], dtype=torch.bfloat16),
        k=torch.zeros(2, 3, k.shape[1], dtype=torch.bfloat16),
        v=torch.zeros(2, 3, k.shape[1], dtype=torch.bfloat16),
        out=torch.zeros(2, 3, q.shape[1], dtype=torch.bfloat16),
        content=torch.zeros(2, shape.block_numbers(2), dtype=torch.bfloat16),
    )
    counters = PollCounters.new(4, 2, CPU)
    lent = LentLines(torch.zeros(4, dtype=torch.int32), lines * 8)
    tasks = Tasks(counters, ring, lent, PartMemory.new(ring, len(counters.done)))
    for one in (Tasks(counters, ring), tasks):
        for looks in (1, 100):
            poll(one, cache.numbers, looks)
    remote_ring = RemoteRing.new(counters, ring, Places(lines * 8, lines))
    where = torch.zeros(3, dtype=torch.int32)
    for span in (None, where):
        send(remote_ring, q[:3], k[:3], k[:3], cache, RemoteRows(where, where, where, span))
        for others in (None, tasks):
            gather(remote_ring, q[:3], others, cache.numbers, span)
    ask_move(remote_ring, PUT, where[:1])
    settle(remote_ring, tasks, cache.numbers)


def _experts(rows: torch.Tensor) -> None:
    routing = torch.zeros(len(rows), 8)
    route(rows[:, :8], 2, routing)
    weights = torch.zeros(8, 256, 256, dtype=torch.bfloat16)
    experts(rows, routing, weights, weights, weights, 2, rows)


def _draws() -> None:
    sampling = Sampling(max_tokens=1, top_k=5, top_p=0.9, min_p=0.1, presence_penalty=1.0, logit_bias=[(3, 1.0)])
    draws = draw_arrays([TokenDraw(0, sampling, 0, 0, None, [1], [2])], 5000, CPU)
    logits, cells = torch.zeros(1, 5000), torch.zeros(1, dtype=torch.int32)
    draw_tokens(logits, adjusted_logits(logits, draws.adjustments, cells), draws, cells, cells)


def hand_out(folder: Path) -> None:
    """From now on, a copy of all that is compiled, or was kept so from an earlier run."""

    def copy(*, metadata_group: dict[str, str], **_: object) -> None:
        use(metadata_group=metadata_group)
        for path in map(Path, metadata_group.values()):
            (folder / path.parent.name).mkdir(exist_ok=True)
            shutil.copy(path, folder / path.parent.name)

    triton.knobs.compilation.listener = copy


if __name__ == "__main__":
    hand_out(Path(sys.argv[1]))
    for capability in map(int, sys.argv[2:]):
        driver = CompilingDriver(capability)
        triton.runtime.driver.set_active(driver)
        compile_all()
        print(capability, *driver.names, sep="\n  ")  # noqa: T201
