"""What adapters cost a step: the products of a layer of Llama 3 8B without them, and with them in all rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import torch
from line import Line
from speeds import median_s

from gpu_node.kernels.triton.lora import lora

PRODUCTS = ((4096, (4096, 1024, 1024)), (4096, (4096,)), (4096, (14336, 14336)), (14336, (4096,)))
"""Inputs, and outputs of what is joined."""
NUM_ADAPTERS, RANK = 8, 16
NUMS_ROWS = (1, 16, 64, 512)


def measure_adapters(device: torch.device, _: Mapping[str, float], _share: int, _num_shares: int) -> Iterator[Line]:
    """Rows of all adapters in turn, as decodes of many clients are."""
    for num_rows in NUMS_ROWS:
        products, changes = _layer(num_rows, device)
        products_s, changes_s = median_s(products, device), median_s(changes, device)
        yield Line(f"products of a layer, {num_rows} rows", 1e6 * products_s, "us")
        note = f"{changes_s / products_s:.2f} of the products"
        yield Line(f"... changes by {NUM_ADAPTERS} adapters of rank {RANK}", 1e6 * changes_s, "us", note)


def _layer(num_rows: int, device: torch.device) -> tuple[Callable[[], None], Callable[[], None]]:
    def numbers(*shape: int) -> torch.Tensor:
        return torch.randn(shape, device=device).bfloat16()

    adapters = torch.arange(num_rows, device=device, dtype=torch.int32) % NUM_ADAPTERS
    parts = []
    for inputs, outputs in PRODUCTS:
        x, weight, out = numbers(num_rows, inputs), numbers(inputs, sum(outputs)), numbers(num_rows, sum(outputs))
        matrices = [(numbers(NUM_ADAPTERS, RANK, inputs), numbers(NUM_ADAPTERS, columns, RANK)) for columns in outputs]
        parts.append((x, weight, out, list(zip(matrices, torch.split(out, list(outputs), dim=1), strict=True))))

    def products() -> None:
        for x, weight, out, _ in parts:
            torch.mm(x, weight, out=out)

    def changes() -> None:
        for x, _, _, own in parts:
            for (a, b), columns in own:
                lora(x, a, b, adapters, None, columns)

    return products, changes
