"""Our paged attention beside torch's on contiguous tensors: the same numbers, heads and lengths, bfloat16, in turn.

    python benchmarks/paged_attention.py [--threads 2] [--tries 9] [--shapes smollm2,llama3]

Ours reads its keys and values from blocks in random order, as an engine leaves them; torch's
`scaled_dot_product_attention` gets each sequence in one piece, which is the case paging gives up. Both go round in
copies of one context until no cache can hold it, as a model's layers do. Of torch's ways to share a KV head among query
heads the quickest counts. A case whose results differ ends the benchmark.

Prints one JSON line for the machine, then one a case: decode in bytes of keys and values read a second, prefill in
operations a second (two a multiplication, only pairs that the causal mask leaves), medians, and ours over torch's.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
from attention_case import SHAPES, Case, Numbers
from torch.nn.functional import scaled_dot_product_attention

from gpu_node.bench.rates import kernels_flops_per_s, onednn_flops_per_s, read_bytes_per_s
from gpu_node.kernels.cpu import (
    CpuArena,
    CpuCacheShape,
    CpuDevice,
    CpuProgram,
    CpuRows,
    CpuStep,
    Int32s,
    Limits,
    Type,
    View,
)

BLOCK_SIZE = 16
FILL_BLOCKS = 64  # blocks that one step writes
TOLERANCE = 2e-2  # both round to bfloat16 on the way

DECODE_CONTEXTS = (256, 1024, 4096)
DECODE_BATCHES = (1, 8, 64)
PREFILL_TOKENS = (128, 512, 1024, 2048)


class Ours:
    """A program of one attention a layer behind the write of the step's keys and values, as in a model."""

    def __init__(self, device: CpuDevice, case: Case, numbers: Numbers) -> None:
        assert case.context % BLOCK_SIZE == 0, "every block is full"
        heads, num_blocks = case.heads, case.batch * case.context // BLOCK_SIZE
        self._device, self._case = device, case
        max_rows = max(case.batch * case.num_rows, FILL_BLOCKS * BLOCK_SIZE)
        cache = CpuCacheShape(case.num_copies, num_blocks, BLOCK_SIZE, heads.num_kv_heads, heads.head_dim)
        self._arena = CpuArena(1, num_blocks * cache.block_bytes)
        self.program = CpuProgram(
            Limits(max_rows, max_rows, case.context, 1),
            cache,
            heads.num_heads // heads.num_kv_heads,
            arena=self._arena,
            host=self._arena,  # nothing is swapped
        )
        columns = [heads.num_heads * heads.head_dim, *[heads.num_kv_heads * heads.head_dim] * 2]
        self._q, self._k, self._v = (self.program.buffer(CpuRows.TOKENS, Type.FLOAT32, number) for number in columns)
        self._out = self.program.buffer(CpuRows.TOKENS, Type.FLOAT32, columns[0])
        for layer in range(case.num_copies):
            self.program.add("write_kv", self._k, self._v, layer)
            self.program.add("attention", self._q, layer, 0, self._out)
        order = torch.randperm(num_blocks, generator=torch.Generator().manual_seed(0))
        self._tables = order.view(case.batch, -1).numpy().astype(np.int32)
        self._fill(numbers)
        first = case.context - case.num_rows
        self._set(self._q, numbers.q)
        self._set(self._k, numbers.k[:, first:])
        self._set(self._v, numbers.v[:, first:])
        self._step = _step([first] * case.batch, [case.num_rows] * case.batch, self._tables)

    def _values(self, view: View) -> torch.Tensor:
        return torch.from_numpy(self.program.buffer_values(view, CpuRows.TOKENS))

    def _set(self, view: View, values: torch.Tensor) -> None:
        rows = values.reshape(-1, view.num_columns)
        self._values(view)[: len(rows)] = rows

    def _fill(self, numbers: Numbers) -> None:
        """Write all keys and values, each block as a sequence of its own: so its rows attend to next to nothing."""
        shape = (-1, BLOCK_SIZE, *numbers.k.shape[2:])
        k, v = numbers.k.reshape(shape), numbers.v.reshape(shape)
        blocks = self._tables.reshape(-1, 1)
        for start in range(0, len(blocks), FILL_BLOCKS):
            some = slice(start, start + FILL_BLOCKS)
            self._set(self._k, k[some])
            self._set(self._v, v[some])
            num_sequences = len(blocks[some])
            self._run(_step([0] * num_sequences, [BLOCK_SIZE] * num_sequences, blocks[some]))

    def _run(self, step: CpuStep) -> None:
        self._device.wait(self._device.submit(self.program, step))

    def __call__(self) -> None:
        """All layers once."""
        self._run(self._step)

    def close(self) -> None:
        """Free its memory."""
        self.program.close()
        self._arena.close()

    def result(self) -> torch.Tensor:
        """[batch, rows, heads, head_dim], of the last layer."""
        case = self._case
        rows = self._values(self._out)[: case.batch * case.num_rows]
        return rows.reshape(case.batch, case.num_rows, case.heads.num_heads, case.heads.head_dim).clone()


def _step(starts: Sequence[int], num_rows: Sequence[int], tables: Int32s) -> CpuStep:
    """Sequences side by side; ``tables`` [sequences, blocks]."""
    none = np.zeros(0, dtype=np.int32)
    return CpuStep(
        starts=np.array(starts, dtype=np.int32),
        num_rows=np.array(num_rows, dtype=np.int32),
        num_blocks=np.full(len(starts), tables.shape[1], dtype=np.int32),
        block_tables=np.ascontiguousarray(tables.reshape(-1)),
        token_ids=np.zeros(sum(num_rows), dtype=np.int32),
        draw_rows=none,
        copies=none.reshape(0, 2),
        logits=None,
    )


def torch_ways(case: Case, numbers: Numbers) -> dict[str, Callable[[], torch.Tensor]]:
    """All layers once, result [batch, rows, heads, head_dim] of the last: each way to share KV heads."""
    q, k, v = (values.transpose(1, 2).contiguous() for values in (numbers.q, numbers.k, numbers.v))
    layers = [(k, v), *((k.clone(), v.clone()) for _ in range(case.num_copies - 1))]

    def grouped() -> torch.Tensor:
        for keys, values in layers:
            out = scaled_dot_product_attention(q, keys, values, is_causal=case.num_rows > 1, enable_gqa=True)
        return out.transpose(1, 2)

    def as_rows() -> torch.Tensor:
        """Heads that share a KV head as rows of one: one token sees all, so no mask tells them apart."""
        shape = (case.batch, case.heads.num_kv_heads, -1, case.heads.head_dim)
        for keys, values in layers:
            out = scaled_dot_product_attention(q.view(shape), keys, values)
        return out.reshape(q.shape).transpose(1, 2)

    def repeated() -> torch.Tensor:
        """A copy of its KV head for each query head, made before the time is taken."""
        for keys, values in wide:
            out = scaled_dot_product_attention(q, keys, values, is_causal=True)
        return out.transpose(1, 2)

    if case.num_rows == 1:
        return {"grouped": grouped, "as_rows": as_rows}
    num_shared = case.heads.num_heads // case.heads.num_kv_heads
    wide = [tuple(kv.repeat_interleave(num_shared, dim=1) for kv in layer) for layer in layers]
    return {"grouped": grouped, "repeated": repeated}


def seconds(work: Callable[[], object]) -> float:
    """Of one call."""
    started_s = time.perf_counter()
    work()
    return time.perf_counter() - started_s


def measure(device: CpuDevice, case: Case, num_tries: int) -> dict[str, float | str]:
    """Medians of ours and of torch's ways, tried in turn; of a layer, in seconds."""
    numbers = Numbers(case)
    ours, ways = Ours(device, case, numbers), torch_ways(case, numbers)
    try:
        ours()
        for name, way in ways.items():
            difference = float((ours.result() - way().float()).norm() / ours.result().norm())
            assert difference < TOLERANCE, f"{case}, {name}: results differ by {difference:.2%}"
        calls: dict[str, Callable[[], object]] = {"ours": ours, **ways}
        tries: dict[str, list[float]] = {name: [] for name in calls}
        for _ in range(num_tries):
            for name, call in calls.items():
                tries[name].append(seconds(call) / case.num_copies)
    finally:
        ours.close()
    found = {name: statistics.median(times) for name, times in tries.items()}
    best = min(ways, key=lambda name: found[name])
    return {"ours_s": found["ours"], "torch_s": found[best], "torch_way": best}


def line(name: str, case: Case, found: Mapping[str, float | str], machine: Mapping[str, float]) -> dict[str, object]:
    """What is printed of a case."""
    is_decode = case.num_rows == 1
    amount, unit, best = (
        (case.kv_bytes, "gb_per_s", machine["read_gb_per_s"])
        if is_decode
        else (case.flops, "gflop_per_s", machine["bf16_gflop_per_s"])
    )
    ours, theirs = (amount / float(found[key]) / 1e9 for key in ("ours_s", "torch_s"))
    return {
        "shape": name,
        "phase": "decode" if is_decode else "prefill",
        "batch": case.batch,
        "context": case.context,
        unit: round(ours, 2),
        f"torch_{unit}": round(theirs, 2),
        "torch_way": found["torch_way"],
        "of_machine": round(ours / best, 3),
        "ratio": round(ours / theirs, 2),
    }


def main() -> None:
    """The machine, then every case."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--tries", type=int, default=9)
    parser.add_argument("--shapes", default=",".join(SHAPES), help="of " + ", ".join(SHAPES))
    arguments = parser.parse_args()
    unknown = set(arguments.shapes.split(",")) - set(SHAPES)
    if unknown:
        parser.error(f"--shapes {', '.join(sorted(unknown))}: there are {', '.join(SHAPES)}")
    threads = arguments.threads
    flops = max(onednn_flops_per_s(threads) or 0.0, kernels_flops_per_s(threads))
    machine = {"read_gb_per_s": read_bytes_per_s(threads) / 1e9, "bf16_gflop_per_s": flops / 1e9}
    print(json.dumps({**machine, "threads": threads, "load": os.getloadavg()[0]}), flush=True)
    torch.manual_seed(0)
    torch.set_num_threads(threads)
    with CpuDevice(threads) as device, torch.inference_mode():
        for name in arguments.shapes.split(","):
            heads = SHAPES[name]
            cases = [Case(heads, batch, context, 1) for batch in DECODE_BATCHES for context in DECODE_CONTEXTS]
            cases += [Case(heads, 1, num_tokens, num_tokens) for num_tokens in PREFILL_TOKENS]
            for case in cases:
                print(json.dumps(line(name, case, measure(device, case, arguments.tries), machine)), flush=True)


if __name__ == "__main__":
    main()
