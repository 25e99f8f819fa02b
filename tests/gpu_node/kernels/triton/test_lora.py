"""What adapters add to a product, by the kernel and by the operation in torch."""

from __future__ import annotations

import pytest
import torch

from gpu_node.kernels import operations
from gpu_node.kernels.triton.launch import INTERPRETED
from gpu_node.kernels.triton.lora import PIECE_INPUTS, lora
from tests.gpu_node.kernels.triton.buffers import DEVICE

ADAPTERS = [0, -1, 2, 2, 1, 0, -1, *[1] * 12, -1]


def matrices(inputs: int, outputs: int, rank: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    torch.manual_seed(rank)
    x, out = torch.randn(len(ADAPTERS), inputs), torch.randn(len(ADAPTERS), outputs)
    a, b = torch.randn(3, rank, inputs) / inputs**0.5, torch.randn(3, outputs, rank)
    return x.to(DEVICE), out.to(DEVICE), a.to(DEVICE), b.to(DEVICE)


@pytest.mark.parametrize(
    ("inputs", "outputs", "rank"), [(40, 24, 1), (PIECE_INPUTS + 3, 150, 20), (64, 16, 16), (24, 40, 300)]
)
def test_each_row_is_changed_by_its_own_adapter(inputs: int, outputs: int, rank: int) -> None:
    x, out, a, b = matrices(inputs, outputs, rank)
    adapters = torch.tensor(ADAPTERS, device=DEVICE)
    expected = operations.lora(x.cpu(), out.cpu(), a.cpu(), b.cpu(), adapters.cpu())
    before = out.clone()
    lora(x, a, b, adapters.to(torch.int32), None, out)
    torch.testing.assert_close(out.cpu(), expected, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(out[adapters < 0], before[adapters < 0], rtol=0, atol=0)


def test_a_row_that_draws_has_the_adapter_of_the_row_that_it_was() -> None:
    x, out, a, b = matrices(40, 24, 4)
    adapters = torch.tensor(ADAPTERS, device=DEVICE)
    rows = torch.tensor([2, 4, 6, 19], device=DEVICE)
    expected = operations.lora(x[rows].cpu(), out[rows].cpu(), a.cpu(), b.cpu(), adapters[rows].cpu())
    drawn = out[rows]
    lora(x[rows], a, b, adapters.to(torch.int32), rows.to(torch.int32), drawn)
    torch.testing.assert_close(drawn.cpu(), expected, rtol=1e-4, atol=1e-4)


def test_a_row_s_bits_do_not_depend_on_whose_rows_are_beside_it() -> None:
    x, out, a, b = matrices(600, 40, 8)
    adapters = torch.tensor(ADAPTERS, dtype=torch.int32, device=DEVICE)
    alone = []
    for row in range(len(ADAPTERS)):
        one = out[row : row + 1].clone()
        lora(x[row : row + 1], a, b, adapters[row : row + 1].contiguous(), None, one)
        alone.append(one)
    lora(x, a, b, adapters, None, out)
    # the interpreter's products are numpy's, and hang on the row's place in a tile
    torch.testing.assert_close(out, torch.cat(alone), rtol=0, atol=1e-5 if INTERPRETED else 0)


def test_columns_of_a_buffer_and_rows_of_nobody() -> None:
    x, whole, a, b = matrices(40, 48, 4)
    adapters = torch.full((len(ADAPTERS),), -1, dtype=torch.int32, device=DEVICE)
    before = whole.clone()
    lora(x, a, b[:, :24].contiguous(), adapters, None, whole[:, 16:40])
    torch.testing.assert_close(whole, before, rtol=0, atol=0)
    adapters[3] = 1
    lora(x, a, b[:, :24].contiguous(), adapters, None, whole[:, 16:40])
    changed = (whole != before).nonzero()
    assert set(changed[:, 0].tolist()) == {3}
    assert set(changed[:, 1].tolist()) <= set(range(16, 40))


def test_matrices_that_do_not_fit_are_refused() -> None:
    x, out, a, b = matrices(40, 24, 4)
    adapters = torch.zeros(len(ADAPTERS), dtype=torch.int32, device=DEVICE)
    with pytest.raises(ValueError, match="a row of inputs for each of outputs"):
        lora(x[:, :8], a, b, adapters, None, out)
    with pytest.raises(ValueError, match="matrices of other adapters"):
        lora(x, a, b[:2], adapters, None, out)
    with pytest.raises(ValueError, match="adapters are int32"):
        lora(x, a, b, adapters.long(), None, out)
