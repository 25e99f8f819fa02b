"""Which kernels an executor compiles when it warms up, and which only when steps of all kinds come behind that.

A program of its own, like `compiling_device`, whose driver compiles for a device that is not there. Prints both.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import torch
import triton

from gpu_node.engine.border.plan import BlockCopy, Draw, ScheduledSequence, StepPlan
from gpu_node.executors.cuda.executor import CudaExecutor
from shared.config.engines.engine import EngineOptions, ModelSpec
from shared.messages.requests.payload import Sampling
from tests.gpu_node.kernels.triton.compiling_device import CPU, CompilingDriver
from tests.gpu_node.kernels.triton.kept_code import use

SAMPLINGS = [
    Sampling(max_tokens=8, temperature=0.0),
    Sampling(max_tokens=8, temperature=0.9, top_k=7, top_p=0.9, min_p=0.1, seed=-1),
    Sampling(max_tokens=8, presence_penalty=1.0, repetition_penalty=1.5, logit_bias=[(3, 1.0), (4, 1.0)]),
]


def step(nums_rows: list[int], start: int) -> StepPlan:
    """Sequences of so many rows; every other one asks for logprobs, some have masks."""
    parts = []
    for number, num_rows in enumerate(nums_rows):
        sampling = SAMPLINGS[number % len(SAMPLINGS)]
        draw = Draw(
            number,
            sampling,
            3,
            num_top=number % 2 or None,
            prompt_token_ids=[1] * 17,
            output_token_ids=[2] * 3,
            allowed=bytes([255] * 5) if number % 5 == 1 else b"",
        )
        parts.append(ScheduledSequence(number, (5,) * num_rows, start, tuple(range(20)), (draw,)))
    return StepPlan(tuple(parts))


def main(source: Path) -> None:
    """Load, warm up, and run steps."""
    driver = CompilingDriver(90)
    triton.runtime.driver.set_active(driver)
    triton.knobs.compilation.listener = use
    options = EngineOptions(kv_cache_bytes=1 << 20, block_size=4, max_num_seqs=12, step_tokens=48)
    executor = CudaExecutor(options, CPU, graphs=False)  # a device runs what it captures, a recording does not
    executor.load_model(ModelSpec(name="tiny", source=str(source), max_model_len=80))
    executor.loaded("tiny").warm_up()
    print("warm-up:", *driver.names, sep="\n  ")  # noqa: T201
    driver.names.clear()
    torch.manual_seed(0)
    for num_sequences in range(1, 13):
        executor.submit(step([1] * num_sequences, 70)).result()
        executor.submit(step([1] * (num_sequences - 1) + [num_sequences + 2], 9)).result()
    copies = tuple(BlockCopy(number, number + 20) for number in range(3))
    executor.submit(replace(step([33, 15], 0), copies=copies)).result()
    print("steps:", *driver.names, sep="\n  ")  # noqa: T201


if __name__ == "__main__":
    main(Path(sys.argv[1]))
