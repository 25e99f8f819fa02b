"""Products beside attention, each on a part of the device: what NanoFlow's pipelines can win here (OSDI'25, §4.1.1).

The four products of a layer of Llama 3 8B, and decode attention in another stream, both in one graph. What two streams
together take is compared with what they take alone, one behind the other: above 1 it is a gain. Attention has as many
programs as fill its part (`gpu_node.kernels.triton.launch.on_part`), and goes first where both wait.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import torch
from laid_out import LaidOut
from line import Line
from speeds import median_s

from gpu_node.kernels.triton.launch import on_part

NUM_DECODES, CONTEXT_TOKENS, NUM_ROWS = 300, 1280, 896
"""Half of a step that fills an H200."""
WEIGHTS = ((4096, 6144), (4096, 4096), (4096, 28672), (14336, 4096))
PARTS = (0.125, 0.25, 0.5, 1.0)
FIRST = -1
"""The priority of a stream whose programs start before those of others."""


def measure_beside(device: torch.device, _: Mapping[str, float], _share: int, _num_shares: int) -> Iterator[Line]:
    """Alone, then together by part."""
    attention = LaidOut(NUM_DECODES, CONTEXT_TOKENS - 1, 1, device).attend
    products = _products(device)
    alone_s = median_s(products, device), median_s(attention, device)
    yield Line("products alone", 1e3 * alone_s[0], "ms")
    yield Line("attention alone", 1e3 * alone_s[1], "ms")
    for part in PARTS:
        with on_part(part):
            if part < 1:
                keeps = alone_s[1] / median_s(attention, device)
                yield Line(f"attention on {part:g} of the device keeps", keeps, "of its speed")
            together_s = median_s(_together(attention, products, device), device)
        yield Line(f"together, attention on {part:g}: gain", sum(alone_s) / together_s, "x")
    most = sum(alone_s) / max(alone_s)
    yield Line("if neither slowed the other", most, "x")


def _together(attention: Callable[[], None], products: Callable[[], None], device: torch.device) -> Callable[[], None]:
    lane: torch.cuda.Stream = torch.cuda.Stream(device, priority=FIRST)  # type: ignore[no-untyped-call]

    def run() -> None:
        lane.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(lane):
            attention()
        products()
        torch.cuda.current_stream().wait_stream(lane)

    return run


def _products(device: torch.device) -> Callable[[], None]:
    numbers = [
        (
            torch.randn(NUM_ROWS, rows, device=device).bfloat16(),
            torch.randn(rows, columns, device=device).bfloat16(),
            torch.empty(NUM_ROWS, columns, device=device, dtype=torch.bfloat16),
        )
        for rows, columns in WEIGHTS
    ]

    def run() -> None:
        for x, weight, out in numbers:
            torch.mm(x, weight, out=out)

    return run
