"""Weights as int8: the pure function, and the CPU device's products of it on every level."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gpu_node.executors.cpu.executor import CpuExecutor
from gpu_node.executors.reference.executor import ReferenceExecutor
from gpu_node.kernels import cpu
from gpu_node.kernels.cpu import CpuCacheShape, CpuDevice, CpuRows, Epilogue, Index, Limits, Type, View
from gpu_node.kernels.cpu.library.library import failed, library
from gpu_node.models.tensors.quantization import int8_weights, quantized
from gpu_node.models.tensors.quantized_array import quantized_array
from shared.config.engines.engine import EngineOptions
from tests.gpu_node.executors.cpu.test_cpu_executor import OPTIONS, TOLERANCE, mixed_logits, rounded_path, spec
from tests.gpu_node.kernels.test_cpu_kernels import FLOAT32_ERROR, Case, device, error, rows
from tests.gpu_node.own_arena import program_with_arena

__all__ = ["device", "rounded_path"]


def test_the_largest_number_of_a_row_becomes_127() -> None:
    packed = quantized(torch.tensor([[1.0, -2.54, 0.03], [0.0, 0.0, 0.0], [1e-3, 5e-4, -1e-3]]))
    assert packed.values.tolist() == [[50, -127, 2], [0, 0, 0], [127, 64, -127]]
    torch.testing.assert_close(packed.scales, torch.tensor([2.54, 0.0, 1e-3]) / 127)
    assert packed.dequantized()[1].tolist() == [0.0, 0.0, 0.0]


@given(st.integers(0, 2**31), st.integers(1, 5), st.integers(1, 9), st.floats(1e-20, 1e20))
def test_no_number_moves_by_more_than_half_a_step(seed: int, outputs: int, inputs: int, size: float) -> None:
    weight = torch.randn(outputs, inputs, generator=torch.Generator().manual_seed(seed)) * size
    packed = quantized(weight)
    assert ((packed.dequantized() - weight).abs() <= packed.scales[:, None] * 0.5001).all()
    assert packed.values[:1].equal(quantized(weight[:1]).values)  # a row depends on no other
    values, scales = quantized_array(weight.numpy())
    assert torch.from_numpy(values).equal(packed.values)
    assert torch.from_numpy(scales).equal(packed.scales)


def test_vectors_stay_as_they_are() -> None:
    weights = {"norm": torch.tensor([0.3, 100.0]), "matrix": torch.tensor([[0.3, 100.0]])}
    assert int8_weights(weights)["norm"] is weights["norm"]
    assert int8_weights(weights)["matrix"].tolist() == [[0.0, 100.0]]


@pytest.fixture
def int8_case(device: CpuDevice, level: str) -> Iterator[Case]:
    torch.manual_seed(1)
    limits, cache = Limits(300, 300, 4096, 1000), CpuCacheShape(1, 8, 16, 1, 8)
    with program_with_arena(limits, cache, 1, level, weights="int8") as (program, arena, host):
        yield Case(device, program, arena, host)


@pytest.mark.parametrize(("outputs", "inputs"), [(32, 16), (70, 48), (5, 2), (96, 576)])
def test_rows_alone_and_together_have_the_same_bits(int8_case: Case, outputs: int, inputs: int) -> None:
    case = int8_case
    x, weight = torch.randn(65, inputs), torch.randn(outputs, inputs)
    view, out = case.filled(x), case.poisoned(outputs)
    case.program.add("linear", case.rounded(view), case.program.weight(weight), Epilogue.STORE, out)
    case.run(rows(65))
    together = case.values(out, 65)
    exact = x.bfloat16().double() @ quantized(weight).dequantized().double().T
    assert error(together, exact) < FLOAT32_ERROR
    for num_rows in (1, 2, 7, 24, 25, 64):
        case.run(rows(num_rows))
        assert case.values(out, num_rows).equal(together[:num_rows])


def test_every_integer_is_widened_exactly(int8_case: Case) -> None:
    case = int8_case
    weight = (torch.arange(255.0) - 127).repeat(17)[: 64 * 66].view(66, 64)  # each integer 16 times
    weight[:, 0] = 127.0  # so that the scale of each output is 1
    out = case.poisoned(66)
    narrow = case.rounded(case.filled(torch.eye(64)))
    case.program.add("linear", narrow, case.program.weight(weight), Epilogue.STORE, out)
    case.run(rows(64))
    assert case.values(out, 64).equal(weight.T)


def test_an_integer_without_its_negative_is_refused(int8_case: Case) -> None:
    weight, scales = np.full((1, 2), -128, np.int8), np.ones(1, np.float32)
    arrays = weight.ctypes.data, scales.ctypes.data
    assert library().treadle_add_int8_weight(int8_case.program.handle, *arrays, 1, 2, 0) == -1
    assert "from -127 to 127" in str(failed())


@pytest.mark.parametrize("num_rows", [1, 9, 40])
def test_joined_products_have_the_bits_of_the_plain_ones(int8_case: Case, num_rows: int) -> None:
    case, inner = int8_case, 40
    program = case.program
    x, weight, residual = torch.randn(num_rows, 32), torch.randn(2 * inner, 32), torch.randn(num_rows, 2 * inner)
    narrow = case.rounded(case.filled(x))
    plain, summed, added = case.poisoned(2 * inner), case.poisoned(2 * inner), case.filled(residual)
    program.add("linear", narrow, program.weight(weight), Epilogue.STORE, plain)
    program.add("add", added, plain, summed)
    program.add("linear", narrow, program.weight(weight), Epilogue.ADD, added)
    joined, apart = (program.buffer(CpuRows.TOKENS, Type.BFLOAT16, inner) for _ in range(2))
    program.add("linear", narrow, program.weight(weight, halves=True), Epilogue.SILU_MUL, joined)
    program.add("silu_mul", View(plain.buffer, 0, inner), View(plain.buffer, inner, inner), apart)
    shown = [case.poisoned(inner), case.poisoned(inner)]
    for gated, out in zip((joined, apart), shown, strict=True):  # a product with the identity shows bfloat16
        program.add("linear", gated, program.weight(torch.eye(inner)), Epilogue.STORE, out)
    case.run(rows(num_rows))
    assert case.values(added, num_rows).equal(case.values(summed, num_rows))
    assert case.values(shown[0], num_rows).equal(case.values(shown[1], num_rows))


def test_the_embedding_gives_what_the_integers_stand_for(int8_case: Case) -> None:
    case, table = int8_case, torch.randn(70, 48)
    out = case.poisoned(48)
    case.program.add("embedding", case.program.weight(table), Index.TOKEN_IDS, out)
    case.run(rows(3), [69, 0, 33])
    assert case.values(out, 3).equal(quantized(table).dequantized()[[69, 0, 33]])


@pytest.mark.parametrize("level", cpu.LEVELS)
def test_int8_logits_are_those_of_the_reference(rounded_path: Path, level: str) -> None:
    if cpu.level(level) is None:
        pytest.skip(f"this machine has no {level}")
    model = replace(spec(rounded_path), weights="int8")
    options = EngineOptions(**OPTIONS)
    reference = ReferenceExecutor(options)
    reference.load_model(model)
    expected, found = mixed_logits(reference, options.block_size), []
    for num_threads, optimize in ((1, True), (2, False)):
        executor = CpuExecutor(options, num_threads, level=level, optimize=optimize)
        executor.load_model(model)
        found.append(mixed_logits(executor, options.block_size))
        executor.close()
    assert found[0].equal(found[1])
    assert float((found[0] - expected).norm() / expected.norm()) < TOLERANCE
