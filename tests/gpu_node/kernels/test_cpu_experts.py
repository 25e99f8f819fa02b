"""Mixtures of experts on the CPU device: the router's choice and the experts' sum, on every level of this machine."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from gpu_node.kernels import cpu, reference
from gpu_node.kernels.cpu import CpuCacheShape, CpuDevice
from tests.gpu_node.kernels.test_cpu_kernels import BFLOAT16_ERROR, FLOAT32_ERROR, Case, cases, error, rows


@pytest.fixture(scope="module")
def device() -> Iterator[CpuDevice]:
    with CpuDevice(2) as device:
        yield device


@pytest.fixture(params=cpu.LEVELS)
def case(request: pytest.FixtureRequest, device: CpuDevice) -> Iterator[Case]:
    if cpu.level(request.param) is None:
        pytest.skip(f"this machine has no {request.param}")
    yield from cases(device, request.param, CpuCacheShape(1, 8, 16, 1, 8), 1)


@pytest.mark.parametrize(("num_experts", "num_chosen"), [(4, 2), (8, 1), (5, 5), (60, 8)])
def test_a_router_shares_each_row_among_its_largest(case: Case, num_experts: int, num_chosen: int) -> None:
    x = torch.randn(33, num_experts) * 3
    out = case.poisoned(num_experts)
    case.program.add("route", case.filled(x), num_chosen, out)
    case.run(rows(33))
    ours = case.values(out, 33)
    assert error(ours, reference.route(x.double(), num_chosen)) < FLOAT32_ERROR
    assert (ours != 0).sum(dim=1).tolist() == [num_chosen] * 33


def test_of_equal_numbers_the_first_are_chosen_and_rows_that_are_no_numbers_stay_so(case: Case) -> None:
    x = torch.tensor([[1.0, 7.0, 7.0, 7.0], [-200.0, 0.0, -300.0, -400.0], [torch.nan] * 4, [0.0, torch.inf, 0.0, 0.0]])
    out = case.poisoned(4)
    case.program.add("route", case.filled(x), 2, out)
    case.run(rows(4))
    ours = case.values(out, 4)
    assert ours[0].tolist() == [0.0, 0.5, 0.5, 0.0]
    assert ours[1].tolist() == [torch.finfo(torch.float32).tiny, 1.0, 0.0, 0.0]
    assert (ours[2:] != 0).sum(dim=1).tolist() == [2, 2]
    assert ours[2:].isnan().sum(dim=1).tolist() == [2, 2]


def add_experts(case: Case, sizes: tuple[int, int, int], x: torch.Tensor, routing: torch.Tensor) -> torch.Tensor:
    """Run the experts over rows; returns what they should give, in float64, above what they give."""
    num_experts, hidden, inner = sizes
    torch.manual_seed(3)
    gate, up = (torch.randn(num_experts, inner, hidden).bfloat16().float() * hidden**-0.5 for _ in range(2))
    down = torch.randn(num_experts, hidden, inner).bfloat16().float() * inner**-0.5
    gates_up = [case.program.weight(torch.cat(pair), halves=True) for pair in zip(gate, up, strict=True)]
    downs = [case.program.weight(values) for values in down]
    out = case.poisoned(hidden)
    narrow = case.rounded(case.filled(x))
    case.program.add_experts(narrow, case.filled(routing), gates_up, downs, int((routing != 0).sum(dim=1).max()), out)
    case.run(rows(len(x)))
    expected = reference.experts(*(one.double() for one in (x.bfloat16(), routing, gate, up, down)))
    return torch.stack([expected.float(), case.values(out, len(x))])


@pytest.mark.parametrize("num_rows", [1, 2, 13, 80])
@pytest.mark.parametrize("sizes", [(4, 64, 72), (7, 34, 16)])
def test_experts_add_up_what_they_make_of_their_rows(case: Case, sizes: tuple[int, int, int], num_rows: int) -> None:
    x = torch.randn(num_rows, sizes[1])
    routing = reference.route(torch.randn(num_rows, sizes[0]), 2)
    expected, ours = add_experts(case, sizes, x, routing)
    assert error(ours, expected) < BFLOAT16_ERROR


def test_a_row_gives_the_same_bits_alone_and_in_a_batch_and_experts_without_rows_do_nothing(case: Case) -> None:
    sizes = (4, 64, 72)
    x = torch.randn(40, 64)
    choice = torch.randn(40, 4)
    choice[:, 2] = -9.0  # nobody's
    routing = reference.route(choice, 2)
    _, together = add_experts(case, sizes, x, routing)
    for row in (0, 17, 39):
        _, alone = add_experts(case, sizes, x[row : row + 1], routing[row : row + 1])
        assert alone[0].equal(together[row])
