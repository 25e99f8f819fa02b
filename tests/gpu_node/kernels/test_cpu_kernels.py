"""Each CPU operator, on every level that this machine has, against the reference operations in float64.

A test makes a program of one operator, poisons its buffers with NaN and runs it on a device of two threads. Operators
take and give float32 here; products round their input to bfloat16, the cache holds bfloat16.

Longer than other files: all of these share `Case`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch

from gpu_node.kernels import cpu, reference
from gpu_node.kernels.cpu import (
    CpuArena,
    CpuCacheShape,
    CpuDevice,
    CpuProgram,
    CpuRows,
    CpuStep,
    Epilogue,
    Limits,
    Type,
    View,
)
from gpu_node.kernels.paged_batch import PagedSequence, paged_batch
from tests.gpu_node.own_arena import program_with_arena

FLOAT32_ERROR = 1e-5
"""Sums of some hundred float32 products, each rounded to 2 ** -24."""
BFLOAT16_ERROR = 2**-8
"""Inputs of a product are rounded to 8 bits: at most 2 ** -9 of each number, and mostly less than half of it."""
MAX_ROWS = 300


@pytest.fixture(scope="module")
def device() -> Iterator[CpuDevice]:
    with CpuDevice(2) as device:
        yield device


@dataclass
class Case:
    """A program in the making, and the values of its buffers."""

    device: CpuDevice
    program: CpuProgram
    arena: CpuArena
    host: CpuArena

    def filled(self, values: torch.Tensor, rows: CpuRows = CpuRows.TOKENS) -> View:
        view = self.poisoned(values.shape[1], rows)
        self.program.buffer_values(view, rows)[: len(values)] = values
        return view

    def poisoned(self, num_columns: int, rows: CpuRows = CpuRows.TOKENS) -> View:
        view = self.program.buffer(rows, Type.FLOAT32, num_columns)
        self.program.buffer_values(view, rows).fill(np.nan)
        return view

    def rounded(self, view: View, rows: CpuRows = CpuRows.TOKENS) -> View:
        out = self.program.buffer(rows, Type.BFLOAT16, view.num_columns)
        self.program.add("round", view, out)
        return out

    def run(
        self,
        sequences: Sequence[PagedSequence],
        token_ids: Sequence[int] = (),
        *,
        moves_beside: bool = False,
        **arrays: list[int],
    ) -> None:
        asked = replace(step(sequences, token_ids, **arrays), moves_beside=moves_beside)
        self.device.wait(self.device.submit(self.program, asked))

    def values(self, view: View, num_rows: int, rows: CpuRows = CpuRows.TOKENS) -> torch.Tensor:
        return torch.from_numpy(self.program.buffer_values(view, rows)[:num_rows].copy())


def step(
    sequences: Sequence[PagedSequence],
    token_ids: Sequence[int] = (),
    draw_rows: Sequence[int] = (),
    copies: Sequence[int] = (),
    swaps_out: Sequence[int] = (),
    swaps_in: Sequence[int] = (),
) -> CpuStep:
    def int32(values: Sequence[int]) -> cpu.Int32s:
        return np.array(values, dtype=np.int32)

    num_rows = sum(sequence.num_rows for sequence in sequences)
    return CpuStep(
        starts=int32([sequence.start for sequence in sequences]),
        num_rows=int32([sequence.num_rows for sequence in sequences]),
        num_blocks=int32([len(sequence.block_table) for sequence in sequences]),
        block_tables=int32([block for sequence in sequences for block in sequence.block_table]),
        token_ids=int32(token_ids or [0] * num_rows),
        draw_rows=int32(draw_rows),
        copies=int32(copies).reshape(-1, 2),
        logits=None,
        swaps_out=int32(swaps_out).reshape(-1, 2),
        swaps_in=int32(swaps_in).reshape(-1, 2),
    )


@pytest.fixture
def case(device: CpuDevice, level: str) -> Iterator[Case]:
    yield from cases(device, level, CpuCacheShape(1, 8, 16, 1, 8), 1)


def cases(device: CpuDevice, level: str, cache: CpuCacheShape, num_shared_heads: int) -> Iterator[Case]:
    torch.manual_seed(1)
    limits = Limits(MAX_ROWS, MAX_ROWS, 4096, 1000)
    with program_with_arena(limits, cache, num_shared_heads, level, num_host_blocks=2) as (program, arena, host):
        yield Case(device, program, arena, host)


def rows(num_rows: int) -> list[PagedSequence]:
    """Any sequence of so many rows."""
    return [PagedSequence(0, 1, [0]) for _ in range(num_rows)]


def error(ours: torch.Tensor, expected: torch.Tensor) -> float:
    """Relative error of the whole; NaN where a single number is."""
    assert ours.shape == expected.shape
    return float((ours.double() - expected).norm() / (expected.norm() + 1e-30))


@pytest.mark.parametrize("num_rows", [0, 1, 2, 7, 12, 13, 65, 256])
@pytest.mark.parametrize(("outputs", "inputs"), [(32, 16), (70, 48), (5, 2), (96, 576)])
def test_linear(case: Case, num_rows: int, outputs: int, inputs: int) -> None:
    x, weight = torch.randn(num_rows, inputs), torch.randn(outputs, inputs)
    out = case.poisoned(outputs)
    case.program.add("linear", case.rounded(case.filled(x)), case.program.weight(weight), Epilogue.STORE, out)
    case.run(rows(num_rows))
    exact = x.bfloat16().double() @ weight.bfloat16().double().T
    assert error(case.values(out, num_rows), exact) < FLOAT32_ERROR
    assert error(case.values(out, num_rows), x.double() @ weight.double().T) < BFLOAT16_ERROR


def test_linear_adds_to_the_residual(case: Case) -> None:
    x, weight, residual = torch.randn(9, 48), torch.randn(70, 48), torch.randn(9, 70)
    out = case.filled(residual)
    case.program.add("linear", case.rounded(case.filled(x)), case.program.weight(weight), Epilogue.ADD, out)
    case.run(rows(9))
    expected = residual.double() + x.bfloat16().double() @ weight.bfloat16().double().T
    assert error(case.values(out, 9), expected) < FLOAT32_ERROR


@pytest.mark.parametrize("inner", [16, 40, 96])
def test_a_gated_product_is_the_product_of_the_plain_operators(case: Case, inner: int) -> None:
    x, weight, probe = torch.randn(9, 32), torch.randn(2 * inner, 32), torch.eye(inner)
    program = case.program
    narrow = case.rounded(case.filled(x))
    outs = []
    joined = program.buffer(CpuRows.TOKENS, Type.BFLOAT16, inner)
    program.add("linear", narrow, program.weight(weight, halves=True), Epilogue.SILU_MUL, joined)
    both = case.poisoned(2 * inner)
    program.add("linear", narrow, program.weight(weight), Epilogue.STORE, both)
    plain = program.buffer(CpuRows.TOKENS, Type.BFLOAT16, inner)
    program.add("silu_mul", View(both.buffer, 0, inner), View(both.buffer, inner, inner), plain)
    for narrow_out in (joined, plain):  # a product with the identity shows what a bfloat16 buffer holds
        outs.append(case.poisoned(inner))
        program.add("linear", narrow_out, program.weight(probe), Epilogue.STORE, outs[-1])
    case.run(rows(9))
    ours, plainly = (case.values(out, 9) for out in outs)
    gate, up = (x.bfloat16().double() @ weight.bfloat16().double().T).chunk(2, dim=1)
    assert error(ours, reference.silu_mul(gate, up)) < BFLOAT16_ERROR
    assert ours.equal(plainly)


@pytest.mark.parametrize("num_rows", [0, 1, 5, 33])
@pytest.mark.parametrize("columns", [8, 47, 576])
def test_rows_alone(case: Case, num_rows: int, columns: int) -> None:
    a, b, weight = torch.randn(num_rows, columns), 4 * torch.randn(num_rows, columns), torch.randn(columns)
    program = case.program
    views = case.filled(a), case.filled(b)
    norm, activated, total = (case.poisoned(columns) for _ in range(3))
    program.add("rms_norm", views[0], program.constant(weight), 1e-5, norm)
    program.add("silu_mul", *reversed(views), activated)
    program.add("add", *views, total)
    case.run(rows(num_rows))
    assert error(case.values(norm, num_rows), reference.rms_norm(a.double(), weight.double(), 1e-5)) < FLOAT32_ERROR
    assert error(case.values(activated, num_rows), reference.silu_mul(b.double(), a.double())) < FLOAT32_ERROR
    assert case.values(total, num_rows).equal(a + b)


@pytest.mark.parametrize("num_rows", [0, 1, 9])
@pytest.mark.parametrize("heads", [1, 3])
@pytest.mark.parametrize("head_dim", [8, 10, 64])
def test_rows_of_the_other_families(device: CpuDevice, level: str, num_rows: int, heads: int, head_dim: int) -> None:
    for case in cases(device, level, CpuCacheShape(1, 8, 16, heads, head_dim), 1):
        columns = heads * head_dim
        x, weight, bias = 3 * torch.randn(num_rows, columns) + 1, torch.randn(columns), torch.randn(columns)
        view, normed, heads_normed, biased = case.filled(x), case.poisoned(columns), case.filled(x), case.filled(x)
        relu, gelu = case.poisoned(columns), case.poisoned(columns)
        constants = [case.program.constant(values) for values in (weight, bias)]
        case.program.add("layer_norm", view, *constants, 1e-5, normed)
        case.program.add("head_norm", heads_normed, constants[0], 1e-5)
        case.program.add("add_bias", biased, constants[1])
        case.program.add("relu", view, relu)
        case.program.add("gelu", view, gelu)
        case.run(rows(num_rows))
        wide, wide_weight = x.double(), weight.double()
        by_heads = wide.view(num_rows, heads, head_dim)
        for ours, expected in [
            (normed, reference.layer_norm(wide, wide_weight, bias.double(), 1e-5)),
            (heads_normed, reference.rms_norm(by_heads, wide_weight[:head_dim], 1e-5).view_as(wide)),
            (biased, wide + bias),
            (relu, wide.relu()),
            (gelu, reference.gelu(wide)),
        ]:
            assert error(case.values(ours, num_rows), expected) < FLOAT32_ERROR


@pytest.mark.parametrize("window", [1, 7, 64, 100])
def test_attention_in_a_window(device: CpuDevice, level: str, window: int) -> None:
    sequences = [PagedSequence(0, 200, list(range(13)))]
    batch = paged_batch(sequences, 16)
    cache = torch.full((13, 2, 16, 2, 8), torch.nan)
    q, k, v = torch.randn(200, 48), *torch.randn(2, 200, 16)
    for case in cases(device, level, CpuCacheShape(1, 13, 16, 2, 8), 3):
        out = case.poisoned(48)
        case.program.add("write_kv", case.filled(k), case.filled(v), 0)
        case.program.add("attention", case.filled(q), 0, window, out)
        case.run(sequences)
        reference.write_kv(k.bfloat16().float(), v.bfloat16().float(), cache, batch)
        expected = reference.paged_attention(q.double(), cache.double(), batch, window)
        assert error(case.values(out, 200), expected) < BFLOAT16_ERROR


def test_activation_at_its_ends(case: Case) -> None:
    gate = torch.tensor([[-1e30, -200.0, -88.0, -1e-30, 0.0, 1e-30, 88.0, 1e30]])
    out = case.poisoned(8)
    case.program.add("silu_mul", case.filled(gate), case.filled(torch.ones(1, 8)), out)
    case.run(rows(1))
    torch.testing.assert_close(case.values(out, 1), torch.nn.functional.silu(gate), rtol=1e-5, atol=1e-30)


def test_rounding_is_that_of_torch(case: Case) -> None:
    bits = torch.tensor([0x3F808000, 0x3F818000, 0x3F808001, 0x7F7FFFFF, -0x407E7FFF, 0x7F800000, 0x7FC00001, 0x123])
    x = bits.to(torch.int32).view(torch.float32)[None]
    program = case.program
    narrow = case.rounded(case.filled(x))
    case.run(rows(1))
    memory = program.buffer_values(View(narrow.buffer, 0, 4), CpuRows.TOKENS)
    stored = torch.from_numpy(memory)[0].view(torch.bfloat16)
    expected = x[0].bfloat16()
    assert stored[6].isnan()
    expected[7] = 0.0  # numbers below the normal ones may become 0, as they do in the dot product
    keep = [0, 1, 2, 3, 4, 5]
    assert stored[keep].equal(expected[keep])
    assert float(stored[7]) == 0.0


def test_embedding_and_selected_rows(case: Case) -> None:
    table = torch.randn(70, 48)
    program = case.program
    out, drawn = case.poisoned(48), case.poisoned(48, CpuRows.DRAWS)
    rounded, product = program.buffer(CpuRows.DRAWS, Type.BFLOAT16, 48), case.poisoned(48, CpuRows.DRAWS)
    program.add("embedding", program.weight(table), cpu.Index.TOKEN_IDS, out)
    program.add("select_draws", out, drawn)
    program.add("select_draws", case.rounded(out), rounded)
    program.add("linear", rounded, program.weight(torch.eye(48)), Epilogue.STORE, product)
    token_ids = [random.Random(3).randrange(70) for _ in range(11)]
    case.run(rows(11), token_ids, draw_rows=[3, 10])
    assert case.values(out, 11).equal(table[token_ids].bfloat16().float())
    for selected in (drawn, product):
        assert case.values(selected, 2, CpuRows.DRAWS).equal(case.values(out, 11)[[3, 10]])


def test_rows_that_are_selected_keep_their_type_and_columns(case: Case) -> None:
    targets = [
        (case.program.buffer(CpuRows.DRAWS, Type.BFLOAT16, 48), "keep their type and their columns"),
        (case.poisoned(32, CpuRows.DRAWS), "keep their type and their columns"),
        (case.poisoned(48), "selected from rows of tokens"),
    ]
    for target, words in targets:
        with pytest.raises(RuntimeError, match=words):
            case.program.add("select_draws", case.poisoned(48), target)


Write = Callable[[Case, View, View, View, int], None]
LENGTHS: list[list[tuple[int, int]]] = [
    [],
    [(0, 1)],
    [(200, 1)],
    [(0, 7)],
    [(61, 70)],
    [(3, 1), (0, 6), (130, 1), (60, 9), (2, 1), (64, 1), (63, 1), (0, 17)],
]


@pytest.mark.parametrize(("num_shared", "head_dim"), [(1, 8), (3, 64), (4, 24), (7, 10)])
@pytest.mark.parametrize("block_size", [1, 5, 16, 48])
def test_attention_over_its_own_writes(
    device: CpuDevice, level: str, num_shared: int, head_dim: int, block_size: int
) -> None:
    for lengths in LENGTHS:
        check_attention(device, level, (num_shared, head_dim), block_size, lengths)


def check_attention(
    device: CpuDevice, level: str, heads: tuple[int, int], block_size: int, lengths: list[tuple[int, int]]
) -> None:
    """Write keys and values of whole sequences in one step, attend to them in another; rope in both."""
    num_shared, head_dim = heads
    num_kv_heads = 2
    sequences, num_blocks = [], 1  # block 0 belongs to nobody
    for start, num_rows in lengths:
        size = -(-(start + num_rows) // block_size)
        sequences.append(PagedSequence(start, num_rows, list(range(num_blocks, num_blocks + size))[::-1]))
        num_blocks += size
    shape = CpuCacheShape(1, num_blocks, block_size, num_kv_heads, head_dim)
    kv_columns = num_kv_heads * head_dim
    cache = torch.full((num_blocks, 2, block_size, num_kv_heads, head_dim), torch.nan)
    angles = reference.rope_angles(torch.arange(300), head_dim, 1000.0)

    def whole(write: Write, case: Case, parts: list[PagedSequence]) -> None:
        if not parts:
            case.run(parts)
            return
        batch = paged_batch(parts, block_size)
        num_rows = len(batch.positions)
        q, k, v = torch.randn(num_rows, num_shared * kv_columns), *torch.randn(2, num_rows, kv_columns)
        views = case.filled(q), case.filled(k), case.filled(v)
        out = case.poisoned(q.shape[1])
        write(case, *views, case.program.constant(angles))
        case.program.add("attention", views[0], 0, 0, out)
        case.run(parts)
        turned = reference.rope(q, angles[batch.positions]), reference.rope(k, angles[batch.positions])
        reference.write_kv(turned[1].bfloat16().float(), v.bfloat16().float(), cache, batch)
        expected = reference.paged_attention(turned[0].double(), cache.double(), batch)
        assert error(case.values(out, num_rows), expected) < BFLOAT16_ERROR

    def joined(case: Case, q: View, k: View, v: View, table: int) -> None:
        case.program.add("rope_write_kv", q, k, v, table, 0)

    def plainly(case: Case, q: View, k: View, v: View, table: int) -> None:
        case.program.add("rope", q, table)
        case.program.add("rope", k, table)
        case.program.add("write_kv", k, v, 0)

    before = [PagedSequence(0, sequence.start, sequence.block_table) for sequence in sequences if sequence.start]
    bits: np.ndarray[tuple[int], np.dtype[np.int32]] | None = None
    for parts, write in ((before, joined), (sequences, plainly)):
        for case in cases(device, level, shape, num_shared):
            lay = case.arena.bits()
            lay[:] = -1 if bits is None else bits  # -1 is two NaN: nothing unwritten may count
            if sum(part.num_rows for part in parts) <= MAX_ROWS:
                whole(write, case, parts)
            else:
                for part in parts:
                    whole(write, case, [part])
            bits = lay.copy()


def test_blocks_are_swapped_out_then_copied_all_at_once_then_swapped_in(device: CpuDevice, level: str) -> None:
    for case in cases(device, level, CpuCacheShape(2, 4, 3, 2, 4), 1):
        blocks, host = case.arena.bits().reshape(4, -1), case.host.bits().reshape(2, -1)
        # different numbers in each place of a block, so that a piece in a wrong place is seen
        places = 100 * np.arange(blocks.shape[1])
        blocks[:], host[:] = np.arange(4)[:, None] + places, np.arange(10, 12)[:, None] + places
        case.run([], copies=[0, 1, 1, 2, 2, 0])
        assert (blocks == np.array([2, 0, 1, 3])[:, None] + places).all()
        case.run([], swaps_out=[0, 1], copies=[0, 1, 1, 2], swaps_in=[0, 0, 3, 1])
        assert (blocks == np.array([10, 2, 0, 2])[:, None] + places).all()
        assert (host == np.array([10, 2])[:, None] + places).all()


@pytest.mark.parametrize("num_threads", [1, 2, 3])
def test_moves_beside_operators_leave_what_moves_before_all_leave(level: str, num_threads: int) -> None:
    """Each layer's before anything touches it: a row is written into a block that comes in, and into one that went out.

    A program of which one layer is touched first by its first operator, or by none, moves all before.
    """
    shape = CpuCacheShape(2, 4, 3, 2, 4)
    values = torch.arange(2.0 * 2 * 4).reshape(2, 8)
    sequences = [PagedSequence(1, 1, [0]), PagedSequence(2, 1, [3])]
    for touched in ([0, 1], [1, 0], [0], []):
        found = []
        for moves_beside in (False, True):
            with CpuDevice(num_threads) as device:
                for case in cases(device, level, shape, 1):
                    blocks, host = case.arena.bits().reshape(4, -1), case.host.bits().reshape(2, -1)
                    places = 100 * np.arange(blocks.shape[1])
                    blocks[:], host[:] = np.arange(4)[:, None] + places, np.arange(10, 12)[:, None] + places
                    k, v = case.filled(values), case.filled(values + 100)
                    out = case.poisoned(8)
                    for layer in touched:
                        case.program.add("add", k, v, out)
                        case.program.add("write_kv", k, v, layer)
                    moves = {"swaps_out": [0, 1], "copies": [0, 1, 1, 2], "swaps_in": [0, 0, 3, 1]}
                    case.run(sequences, moves_beside=moves_beside, **moves)
                    found.append((blocks.copy(), host.copy()))
        (plain, plain_host), (beside, beside_host) = found
        assert (beside == plain).all()
        assert (beside_host == plain_host).all()
        assert (plain_host == np.array([10, 0])[:, None] + places).all()


def test_blocks_of_one_program_lie_in_pages_with_the_rest_of_each_left_over(device: CpuDevice, level: str) -> None:
    shape = CpuCacheShape(1, 4, 2, 1, 8)
    assert shape.block_bytes == 64
    arena, host = CpuArena(2, 64 * 2 + 63), CpuArena(1, 64)
    with pytest.raises(RuntimeError, match="do not fit into its arena"):
        CpuProgram(Limits(1, 1, 8, 10), CpuCacheShape(1, 5, 2, 1, 8), 1, level, arena=arena, host=host)
    wide = CpuCacheShape(1, 2, 4, 1, 8)  # one block a page
    programs = [CpuProgram(Limits(1, 1, 8, 10), one, 1, level, arena=arena, host=host) for one in (shape, wide)]
    arena.bits().reshape(4, -1)[:] = np.arange(4)[:, None]
    device.wait(device.submit(programs[0], step([], copies=[2, 1])))
    assert arena.bits().reshape(4, -1)[:, 0].tolist() == [0, 2, 2, 3]
    device.wait(device.submit(programs[1], step([], copies=[1, 0])))
    assert arena.bits().reshape(4, -1)[:, 0].tolist() == [2, 3, 2, 3]
    for program in programs:
        program.close()
    arena.close()
    host.close()


def test_what_cannot_be_run_is_refused(device: CpuDevice, level: str, case: Case) -> None:
    for sequences, arguments, words in [
        ([PagedSequence(0, MAX_ROWS + 1, [0] * 20)], {}, "more rows"),
        ([PagedSequence(4096, 1, [0] * 300)], {}, "longer"),
        ([PagedSequence(16, 1, [0])], {}, "table is too short"),
        ([PagedSequence(0, 1, [8])], {}, "block is outside"),
        ([], {"copies": [0, 8]}, "block is outside"),
        ([], {"swaps_out": [0, 2]}, "block is outside"),
        ([], {"swaps_in": [-1, 0]}, "block is outside"),
        ([PagedSequence(0, 1, [0])], {"token_ids": [1000]}, "token id"),
        ([PagedSequence(0, 1, [0])], {"draw_rows": [1]}, "row that draws"),
    ]:
        with pytest.raises(RuntimeError, match=words):
            device.submit(case.program, step(sequences, **arguments))
    with pytest.raises(RuntimeError, match="outside of their buffer"):
        case.program.add("add", *[View(case.poisoned(8).buffer, 4, 8)] * 3)
    with pytest.raises(RuntimeError, match="even number"):
        case.program.weight(torch.zeros(2, 3))
