"""The operations of encoders: the reference against definitions in float64, the CPU device on each level against it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

import pytest
import torch

from gpu_node.kernels import operations, reference
from gpu_node.kernels.cpu import CpuCacheShape, CpuDevice, CpuRows
from gpu_node.kernels.paged_batch import PagedSequence, paged_batch
from tests.gpu_node.kernels.test_cpu_kernels import BFLOAT16_ERROR, FLOAT32_ERROR, Case, cases, error
from tests.gpu_node.kernels.test_kernels import close

LENGTHS = [[1], [7], [64, 1, 65], [130, 3, 17, 1, 1]]
SEPARATOR = 9


def whole(lengths: Sequence[int], block_size: int) -> list[PagedSequence]:
    """Sequences from their beginning, each in blocks of its own."""
    sequences, num_blocks = [], 1  # block 0 belongs to nobody
    for length in lengths:
        size = -(-length // block_size)
        sequences.append(PagedSequence(0, length, list(range(num_blocks, num_blocks + size))[::-1]))
        num_blocks += size
    return sequences


def last_rows(lengths: Sequence[int]) -> list[int]:
    return [sum(lengths[: number + 1]) - 1 for number in range(len(lengths))]


def attended(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, lengths: Sequence[int], heads: int, window: int = 1000
) -> torch.Tensor:
    """Text by text, head by head, float64; queries, keys and values have as many heads. Less than ``window`` away."""
    found = []
    for last, length in zip(last_rows(lengths), lengths, strict=True):
        text = [rows[last + 1 - length : last + 1].double() for rows in (q, k, v)]
        query, key, value = (rows.view(length, heads, -1).transpose(0, 1) for rows in text)
        scores = query @ key.transpose(1, 2) / math.sqrt(query.shape[-1])
        places = torch.arange(length)
        scores[:, (places[:, None] - places).abs() >= window] = -math.inf
        weights = scores.softmax(dim=-1)
        found.append((weights @ value).transpose(0, 1).flatten(1))
    return torch.cat(found)


@pytest.fixture(scope="module")
def device() -> Iterator[CpuDevice]:
    with CpuDevice(2) as device:
        yield device


@pytest.fixture
def case(device: CpuDevice, level: str) -> Iterator[Case]:
    yield from cases(device, level, CpuCacheShape(1, 30, 16, 1, 8), 1)


# --- the reference ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lengths", LENGTHS)
@pytest.mark.parametrize("block_size", [1, 16])
def test_each_row_sees_all_of_its_text(lengths: list[int], block_size: int) -> None:
    torch.manual_seed(0)
    batch = paged_batch(whole(lengths, block_size), block_size)
    q, k, v = torch.randn(3, sum(lengths), 2 * 4)
    num_blocks = 1 + sum(-(-length // block_size) for length in lengths)
    cache = torch.full((num_blocks, 2, block_size, 2, 4), torch.nan)
    operations.write_kv(k, v, cache, batch)
    assert close(operations.bidirectional_attention(q, cache, batch), attended(q, k, v, lengths, 2))
    for window in (1, 2, 40):
        found = operations.bidirectional_attention(q, cache, batch, window)
        assert close(found, attended(q, k, v, lengths, 2, window))
    with pytest.raises(ValueError, match="a row sees at least itself"):
        operations.bidirectional_attention(q, cache, batch, 0)


def test_segments_change_behind_the_first_separator_of_each_text() -> None:
    ids = torch.tensor([1, SEPARATOR, 2, SEPARATOR, 3, 4, SEPARATOR, 5])
    batch = paged_batch(whole([5, 1, 2], 4), 4)
    table = torch.tensor([[10.0], [20.0]])
    found = operations.segment_embedding(ids, table, batch, SEPARATOR).flatten().tolist()
    assert found == [10, 10, 20, 20, 20, 10, 10, 20]
    assert operations.segment_embedding(ids, table[:1], batch, -1).flatten().tolist() == [10] * 8
    with pytest.raises(ValueError, match="two texts of a pair have a row each"):
        operations.segment_embedding(ids, table[:1], batch, SEPARATOR)


def test_rows_of_a_text_become_one() -> None:
    x = torch.tensor([[1.0], [2.0], [6.0], [4.0], [5.0], [7.0]])
    batch = paged_batch(whole([3, 1, 2], 4), 4)
    draws = torch.tensor(last_rows([3, 1, 2]))
    assert operations.mean_pool(x, batch, draws).flatten().tolist() == [3, 4, 6]
    assert operations.select_first(x, batch, draws).flatten().tolist() == [1, 4, 5]
    assert operations.mean_pool(x, batch, draws[:0]).shape == (0, 1)


def test_a_text_is_there_from_its_beginning() -> None:
    x, draws = torch.zeros(1, 8), torch.tensor([0])
    chunk = paged_batch([PagedSequence(3, 1, [1])], 4)
    calls: list[Callable[[], torch.Tensor]] = [
        lambda: operations.mean_pool(x, chunk, draws),
        lambda: operations.select_first(x, chunk, draws),
        lambda: operations.segment_embedding(draws, x, chunk, -1),
        lambda: operations.bidirectional_attention(x, torch.zeros(2, 2, 4, 2, 4), chunk),
    ]
    for call in calls:
        with pytest.raises(ValueError, match="a sequence's beginning is in the batch"):
            call()


def test_exact_gelu() -> None:
    x = torch.randn(3, 8)
    expected = [number / 2 * (1 + math.erf(number / math.sqrt(2))) for number in x.flatten().tolist()]
    assert close(operations.erf_gelu(x).flatten(), torch.tensor(expected, dtype=torch.float64))
    gated = torch.tensor(expected, dtype=torch.float64) * x.flatten().double().flip(0)
    assert close(operations.erf_gelu_mul(x, x.flip(0, 1)).flatten(), gated)


# --- the CPU device ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("columns", [8, 47, 576])
def test_activations(case: Case, columns: int) -> None:
    x = 3 * torch.randn(9, columns)
    gelu, tanh = case.poisoned(columns), case.poisoned(columns)
    case.program.add("erf_gelu", case.filled(x), gelu)
    case.program.add("tanh", case.filled(x), tanh)
    up, gated = torch.randn(9, columns), case.poisoned(columns)
    case.program.add("erf_gelu_mul", case.filled(x), case.filled(up), gated)
    case.run(whole([9], 16))
    assert error(case.values(gelu, 9), reference.erf_gelu(x.double())) < FLOAT32_ERROR
    assert error(case.values(gated, 9), reference.erf_gelu(x.double()) * up) < FLOAT32_ERROR
    assert error(case.values(tanh, 9), x.double().tanh()) < FLOAT32_ERROR


def test_activations_at_their_ends(case: Case) -> None:
    x = torch.tensor([[-1e30, -200.0, -9.0, -1e-30, 0.0, 1e-30, 9.0, 200.0, 1e30]])
    gelu, tanh = case.poisoned(9), case.poisoned(9)
    case.program.add("erf_gelu", case.filled(x), gelu)
    case.program.add("tanh", case.filled(x), tanh)
    case.run(whole([1], 16))
    torch.testing.assert_close(case.values(gelu, 1), torch.nn.functional.gelu(x), rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(case.values(tanh, 1), x.tanh(), rtol=1e-6, atol=2e-7)


@pytest.mark.parametrize("lengths", LENGTHS)
@pytest.mark.parametrize("block_size", [1, 5, 16])
@pytest.mark.parametrize(("heads", "head_dim"), [(2, 8), (1, 64), (3, 10)])
def test_attention(
    device: CpuDevice, level: str, lengths: list[int], block_size: int, heads: int, head_dim: int
) -> None:
    sequences = whole(lengths, block_size)
    num_rows, columns = sum(lengths), heads * head_dim
    num_blocks = 1 + sum(-(-length // block_size) for length in lengths)
    for case in cases(device, level, CpuCacheShape(1, num_blocks, block_size, heads, head_dim), 1):
        q, k, v = torch.randn(3, num_rows, columns)
        outs = {window: case.poisoned(columns) for window in (0, 1, 9, 64, 65)}
        case.program.add("write_kv", case.filled(k), case.filled(v), 0)
        for window, out in outs.items():
            case.program.add("bidirectional_attention", case.filled(q), 0, window, out)
        case.run(sequences)
        for window, out in outs.items():
            expected = attended(q, k.bfloat16(), v.bfloat16(), lengths, heads, window or 1000)
            assert error(case.values(out, num_rows), expected) < BFLOAT16_ERROR


def test_segments_and_pools(case: Case) -> None:
    lengths = [5, 1, 20, 2]
    sequences, draws = whole(lengths, 16), last_rows(lengths)
    batch = paged_batch(sequences, 16)
    ids = torch.randint(0, 30, (sum(lengths),))
    ids[[1, 3, 10]] = SEPARATOR
    table, x = torch.randn(2, 48).bfloat16().float(), torch.randn(sum(lengths), 47)
    embedded, first, mean = case.poisoned(48), case.poisoned(47, CpuRows.DRAWS), case.poisoned(47, CpuRows.DRAWS)
    packed = case.program.weight(table)
    case.program.add("segment_embedding", packed, SEPARATOR, embedded)
    case.program.add("select_first", case.filled(x), first)
    case.program.add("mean_pool", case.filled(x), mean)
    case.run(sequences, ids.tolist(), draw_rows=draws)
    found = case.values(embedded, len(ids))
    assert found.equal(operations.segment_embedding(ids, table, batch, SEPARATOR))
    assert case.values(first, 4, CpuRows.DRAWS).equal(x[[0, 5, 6, 26]])
    means = reference.mean_pool(x.double(), batch, torch.tensor(draws))
    assert error(case.values(mean, 4, CpuRows.DRAWS), means) < FLOAT32_ERROR


def test_pools_take_rows_of_tokens(case: Case) -> None:
    for kind in ("select_first", "mean_pool"):
        with pytest.raises(RuntimeError, match="selected from rows of tokens"):
            case.program.add(kind, case.poisoned(48), case.poisoned(48))
