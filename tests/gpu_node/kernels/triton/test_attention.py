"""Attention over blocks of an arena, and the writes before it, against the reference in float64."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from gpu_node.kernels import reference
from gpu_node.kernels.paged_batch import PagedSequence, paged_batch
from gpu_node.kernels.triton.attention.attention import (
    bidirectional_attention,
    bidirectional_window_attention,
    paged_attention,
    window_attention,
)
from gpu_node.kernels.triton.attention.attention_tile import UNBOUNDED
from gpu_node.kernels.triton.attention.decode_attention import MAX_SPLITS, TILE_TOKENS, decode_attention, num_splits
from gpu_node.kernels.triton.attention.prefill_attention import prefill_attention
from gpu_node.kernels.triton.cache import NOWHERE, CacheShape, DeviceBatch, LayerCache, Places, device_batch, lay_out
from gpu_node.kernels.triton.launch import num_programs, on_part
from gpu_node.kernels.triton.rope import rope, rope_write_kv, write_kv
from tests.gpu_node.kernels.triton.buffers import DEVICE, ERRORS, TYPES, Buffer, error, numbers, wide

LAYERS, LAYER = 2, 1


@dataclass
class Paged:
    """Sequences in the pages of an arena, with poison wherever nobody has written, and the same for the reference."""

    shape: CacheShape
    dtype: torch.dtype
    sequences: list[PagedSequence]
    cache: LayerCache
    places: Places
    expected: torch.Tensor
    """float64 [blocks, 2, block_size, kv_heads, head_dim]."""

    @classmethod
    def of(cls, lengths: Sequence[tuple[int, int]], shape: CacheShape, dtype: torch.dtype = torch.float32) -> Paged:
        """(tokens before, rows) of each sequence; blocks descend, pages have room for three and a rest."""
        sequences, num_blocks = [], 1  # block 0 belongs to nobody
        for start, num_rows in lengths:
            size = -(-(start + num_rows) // shape.block_size)
            sequences.append(PagedSequence(start, num_rows, list(range(num_blocks, num_blocks + size))[::-1]))
            num_blocks += size
        block_lines = shape.block_lines(dtype.itemsize)
        places = Places(page_lines=3 * block_lines + 1, block_lines=block_lines)
        num_lines = -(-num_blocks // 3) * places.page_lines
        arena = torch.full((num_lines * 64 // dtype.itemsize,), torch.nan, dtype=dtype, device=DEVICE)
        head_shape = (shape.block_size, shape.num_kv_heads, shape.head_dim)
        expected = torch.full((num_blocks, 2, *head_shape), torch.nan, dtype=torch.float64)
        paged = cls(shape, dtype, sequences, LayerCache(arena, shape, LAYER), places, expected)
        pasts = [PagedSequence(0, one.start, one.block_table) for one in sequences if one.start]
        paged.write(pasts, *numbers(2, sum(past.num_rows for past in pasts), paged.kv_columns, dtype=dtype))
        return paged

    @property
    def kv_columns(self) -> int:
        return self.shape.num_kv_heads * self.shape.head_dim

    @property
    def num_rows(self) -> int:
        return sum(sequence.num_rows for sequence in self.sequences)

    def batch(self, sequences: Sequence[PagedSequence], rows_together: int = 3, **options: bool) -> DeviceBatch:
        size = self.shape.block_size
        return device_batch(sequences, size, self.places, DEVICE, rows_together=rows_together, **options)

    def write(self, sequences: Sequence[PagedSequence], k: torch.Tensor, v: torch.Tensor) -> None:
        write_kv(Buffer.of(k).view, Buffer.of(v).view, self.cache, self.batch(sequences))
        reference.write_kv(wide(k), wide(v), self.expected, paged_batch(sequences, self.shape.block_size))

    def write_own(self) -> None:
        self.write(self.sequences, *numbers(2, self.num_rows, self.kv_columns, dtype=self.dtype))

    def attention(self, q: torch.Tensor, window: int | None) -> torch.Tensor:
        return reference.paged_attention(
            wide(q), self.expected, paged_batch(self.sequences, self.shape.block_size), window
        )


def check(paged: Paged, num_shared: int, window: int | None = None, rows_together: int = 3) -> None:
    """Attention of rows that are written just before."""
    paged.write_own()
    q = Buffer.of(numbers(paged.num_rows, num_shared * paged.kv_columns, dtype=paged.dtype))
    expected = paged.attention(q.view, window)
    batch = paged.batch(paged.sequences, rows_together)
    out = Buffer(paged.num_rows, num_shared * paged.kv_columns, paged.dtype)
    if window is None:
        paged_attention(q.view, paged.cache, batch, out.view)
    else:
        window_attention(q.view, paged.cache, batch, window, out.view)
    assert error(out.written(), expected) < ERRORS[paged.dtype]


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize(
    "lengths",
    [
        [],
        [(0, 1)],
        [(7, 1)],  # the last slot of a block
        [(8, 1)],  # the first of the next one
        [(0, 8)],
        [(5, 4)],
        [(3, 1), (0, 5), (69, 1), (66, 3), (1, 1)],
    ],
    ids=str,
)
def test_attention_over_blocks(lengths: list[tuple[int, int]], dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    check(Paged.of(lengths, CacheShape(LAYERS, 4, 2, 6), dtype), num_shared=3)


@pytest.mark.parametrize("window", [None, 4])
def test_on_a_part_of_the_device_fewer_programs_compute_the_same_bits(window: int | None) -> None:
    """Of 13 sequences, each program has several tasks."""
    torch.manual_seed(2)
    paged = Paged.of([(3, 1), (70, 1), (66, 3), *[(9, 1), (5, 4)] * 5], CacheShape(LAYERS, 4, 2, 6))
    paged.write_own()
    q = Buffer.of(numbers(paged.num_rows, 3 * paged.kv_columns))
    found = []
    for part in (1.0, 0.5, 1 / 8, 0.01):
        out = Buffer(paged.num_rows, 3 * paged.kv_columns, paged.dtype)
        with on_part(part):
            if window is None:
                paged_attention(q.view, paged.cache, paged.batch(paged.sequences), out.view)
            else:
                window_attention(q.view, paged.cache, paged.batch(paged.sequences), window, out.view)
        found.append(out.written())
    assert all(torch.equal(one, found[0]) for one in found)


def test_programs_of_a_part_fill_its_processors() -> None:
    """Where kernels are interpreted there are 8, here with four programs each; a task needs no more than one."""
    device = torch.device("cpu")
    assert num_programs(7_000, device, 4) == 7_000
    for part, expected in ((0.5, 16), (0.25, 8), (0.001, 4)):
        with on_part(part):
            assert (num_programs(7_000, device, 4), num_programs(3, device, 4)) == (expected, 3)
    assert num_programs(7_000, device, 4) == 7_000


@pytest.mark.parametrize("window", [1, 4, 65, 1000])
def test_attention_in_a_window(window: int) -> None:
    torch.manual_seed(1)
    check(Paged.of([(3, 1), (0, 5), (70, 1), (66, 3)], CacheShape(LAYERS, 4, 1, 4)), num_shared=2, window=window)


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("window", [None, 1, 4, 65, 1000])
@pytest.mark.parametrize("rows_together", [3, 20])
def test_attention_to_both_sides(window: int | None, rows_together: int, dtype: torch.dtype) -> None:
    torch.manual_seed(1)
    paged = Paged.of([(0, 5), (0, 1), (0, 140), (0, 66)], CacheShape(LAYERS, 4, 1, 4), dtype)
    paged.write_own()
    q, out = Buffer.of(numbers(paged.num_rows, 8, dtype=dtype)), Buffer(paged.num_rows, 8, dtype)
    batch = paged.batch(paged.sequences, rows_together)
    if window is None:
        bidirectional_attention(q.view, paged.cache, batch, out.view)
    else:
        bidirectional_window_attention(q.view, paged.cache, batch, window, out.view)
    whole = paged_batch(paged.sequences, paged.shape.block_size)
    expected = reference.bidirectional_attention(wide(q.view), paged.expected, whole, window)
    assert error(out.written(), expected) < ERRORS[dtype]


@given(
    lengths=st.lists(st.tuples(st.integers(0, 20), st.integers(1, 6)), max_size=4),
    block_size=st.sampled_from([1, 3, 16]),
    num_kv_heads=st.integers(1, 2),
    num_shared=st.integers(1, 8),
    head_dim=st.sampled_from([2, 16, 24]),
    rows_together=st.integers(1, 4),
    window=st.none() | st.integers(1, 30),
)
@settings(max_examples=12, deadline=None, phases=(Phase.generate,))
def test_any_lengths_blocks_and_heads(
    lengths: list[tuple[int, int]],
    block_size: int,
    num_kv_heads: int,
    num_shared: int,
    head_dim: int,
    rows_together: int,
    window: int | None,
) -> None:
    paged = Paged.of(lengths, CacheShape(LAYERS, block_size, num_kv_heads, head_dim))
    check(paged, num_shared, window, rows_together=rows_together)


@pytest.mark.parametrize("splits", [1, 2, 3, 5])
@pytest.mark.parametrize("window", [UNBOUNDED, 70])
def test_a_context_in_parts_some_of_them_empty(splits: int, window: int) -> None:
    """130 tokens are three tiles: of five parts two are empty, and of the short one all but the first."""
    torch.manual_seed(2)
    paged = Paged.of([(129, 1), (0, 1)], CacheShape(LAYERS, 4, 1, 4))
    paged.write_own()
    q, out = Buffer.of(numbers(2, 8)), Buffer(2, 8)
    decode_attention(q.view, paged.cache, paged.batch(paged.sequences), window, out.view, splits)
    assert error(out.written(), paged.attention(q.view, window)) < ERRORS[torch.float32]


@pytest.mark.parametrize(("lengths", "splits"), [([(129, 1), (3, 5), (0, 1), (70, 2)], 4), ([(5, 1), (3, 5)], 1)])
@pytest.mark.parametrize("window", [UNBOUNDED, 70])
def test_what_a_step_has_may_be_read_on_the_device(lengths: list[tuple[int, int]], splits: int, window: int) -> None:
    """The same bits, launched for more decodes and tiles than there are; what lies behind those is not looked at."""
    torch.manual_seed(8)
    paged = Paged.of(lengths, CacheShape(LAYERS, 4, 2, 4))
    paged.write_own()
    batch = paged.batch(paged.sequences)
    nobody = torch.full((5, 2), 10**9, dtype=torch.int32, device=DEVICE)
    counts = torch.tensor([len(batch.decodes), len(batch.tiles), splits], dtype=torch.int32, device=DEVICE)
    counted = replace(
        batch,
        decodes=torch.cat((batch.decodes, nobody[:, 0])),
        tiles=torch.cat((batch.tiles, nobody)),
        counts=counts,
    )
    q = numbers(sum(rows for _, rows in lengths), 16)
    ours, theirs = Buffer(*q.shape), Buffer(*q.shape)
    decode_attention(q, paged.cache, batch, window, theirs.view, splits)
    prefill_attention(q, paged.cache, batch, window, theirs.view)
    decode_attention(q, paged.cache, counted, window, ours.view, num_splits=1)
    prefill_attention(q, paged.cache, counted, window, ours.view)
    assert ours.written().equal(theirs.written())


@pytest.mark.parametrize("splits", [1, 4])
def test_a_row_of_nobody_sees_nothing_and_is_written_nowhere(splits: int) -> None:
    torch.manual_seed(6)
    paged = Paged.of([(129, 1)], CacheShape(LAYERS, 4, 1, 4))
    padded = lay_out(paged.sequences, 4, paged.places, rows_together=3, padding=[1, 1]).to(DEVICE)
    k, v = numbers(2, 3, 4)
    paged.write_own()
    write_kv(k[:1], v[:1], paged.cache, paged.batch(paged.sequences))
    before = paged.cache.numbers.clone()
    write_kv(k, v, paged.cache, padded)
    assert paged.cache.numbers.view(torch.uint8).equal(before.view(torch.uint8))
    q, out, alone = numbers(3, 8), Buffer(3, 8), Buffer(1, 8)
    decode_attention(q, paged.cache, padded, UNBOUNDED, out.view, splits)
    decode_attention(q[:1], paged.cache, paged.batch(paged.sequences), UNBOUNDED, alone.view, splits)
    assert out.written()[:1].equal(alone.written())
    assert out.written()[1:].tolist() == [[0.0] * 8] * 2


def test_a_step_is_laid_out_sequence_after_sequence_and_rows_of_nobody_behind() -> None:
    sequences = [PagedSequence(5, 1, [4, 1]), PagedSequence(2, 5, [0, 2]), PagedSequence(0, 1, [3])]
    batch = lay_out(sequences, 4, Places(page_lines=7, block_lines=3), rows_together=2, padding=[1, 1])
    assert batch.block_lines.tolist() == [14, 3, 0, 7, 10]  # two blocks a page, and a rest
    assert batch.first_blocks.tolist() == [0, 2, 4, 0, 0]
    assert batch.positions.tolist() == [5, 2, 3, 4, 5, 6, 0, 0, 0]
    assert batch.row_lines.tolist() == [3, 0, 0, 7, 7, 7, 10, NOWHERE, NOWHERE]
    assert batch.first_rows.tolist() == [0, 1, 6, 7, 8]
    assert batch.starts.tolist() == [5, 2, 0, -1, -1]
    assert batch.num_rows.tolist() == [1, 5, 1, 1, 1]
    assert batch.decodes.tolist() == [0, 2, 3, 4]
    assert batch.tiles.tolist() == [[1, 0], [1, 2], [1, 4]]
    assert batch.max_context_tokens == 6


def test_single_rows_like_any_others_are_the_plain_path() -> None:
    torch.manual_seed(3)
    paged = Paged.of([(69, 1), (4, 2), (0, 1)], CacheShape(LAYERS, 4, 2, 4))
    paged.write_own()
    q, split, plain = Buffer.of(numbers(4, 16)), Buffer(4, 16), Buffer(4, 16)
    paged_attention(q.view, paged.cache, paged.batch(paged.sequences), split.view)
    paged_attention(q.view, paged.cache, paged.batch(paged.sequences, splits_decodes=False), plain.view)
    assert error(split.written(), plain.written()) < ERRORS[torch.float32]


def test_a_row_is_the_same_bits_whatever_else_is_in_the_batch() -> None:
    torch.manual_seed(4)
    paged = Paged.of([(9, 3), (20, 1), (2, 5)], CacheShape(LAYERS, 4, 1, 4))
    paged.write_own()
    q, together = numbers(9, 8), Buffer(9, 8)
    paged_attention(q, paged.cache, paged.batch(paged.sequences), together.view)
    first = 0
    for sequence in paged.sequences:
        rows = slice(first, first + sequence.num_rows)
        alone = Buffer(sequence.num_rows, 8)
        paged_attention(q[rows], paged.cache, paged.batch([sequence]), alone.view)
        assert alone.written().equal(together.written()[rows])
        first = rows.stop


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_turning_and_writing_at_once_changes_no_bit(dtype: torch.dtype) -> None:
    torch.manual_seed(5)
    shape = CacheShape(LAYERS, 4, 2, 6)
    paged, plain = Paged.of([(3, 2), (0, 1)], shape, dtype), Paged.of([(3, 2), (0, 1)], shape, dtype)
    plain.cache.numbers.copy_(paged.cache.numbers)
    batch = paged.batch(paged.sequences)
    angles = reference.rope_angles(batch.positions.cpu().long(), 6, 100.0).to(DEVICE)
    q, k, v = numbers(3, 36, dtype=dtype), numbers(3, 12, dtype=dtype), numbers(3, 12, dtype=dtype)
    ours, theirs = ([Buffer.of(values) for values in (q, k, v)] for _ in range(2))
    rope_write_kv(ours[0].view, ours[1].view, ours[2].view, angles, paged.cache, batch)
    rope(theirs[0].view, angles, theirs[0].view)
    rope(theirs[1].view, angles, theirs[1].view)
    write_kv(theirs[1].view, theirs[2].view, plain.cache, batch)
    assert all(our.written().equal(their.written()) for our, their in zip(ours, theirs, strict=True))
    assert paged.cache.numbers.view(torch.uint8).equal(plain.cache.numbers.view(torch.uint8))


def test_a_write_touches_its_slots_in_its_layer_and_nothing_else() -> None:
    shape = CacheShape(LAYERS, 2, 1, 4)
    paged = Paged.of([(1, 2)], shape)
    paged.cache.numbers.fill_(torch.nan)
    k, v = torch.tensor([[[1.0] * 4, [2.0] * 4], [[3.0] * 4, [4.0] * 4]], device=DEVICE)
    write_kv(k, v, paged.cache, paged.batch(paged.sequences))
    # [layer][keys, values][token]; the second row is the first of the next block
    nan = torch.nan
    blocks = {1: [nan, nan, nan, nan, 2.0, nan, 4.0, nan], 2: [nan, nan, nan, nan, nan, 1.0, nan, 3.0]}
    for block, tokens in blocks.items():
        first = paged.places.line(block) * paged.cache.line_numbers
        found = paged.cache.numbers[first : first + 2 * shape.layer_numbers].view(-1, 4)[:, 0].cpu()
        assert found.allclose(torch.tensor(tokens), equal_nan=True)
    assert int((~paged.cache.numbers.isnan()).sum()) == 4 * 4


def test_a_context_is_split_where_few_programs_would_run() -> None:
    assert num_splits(num_tasks=16, num_context_tokens=4096, num_processors=132) == 32
    assert num_splits(num_tasks=512, num_context_tokens=4096, num_processors=132) == 1
    assert num_splits(num_tasks=1, num_context_tokens=100, num_processors=132) == -(-100 // TILE_TOKENS) == 2
    assert num_splits(num_tasks=1, num_context_tokens=10**6, num_processors=132) == MAX_SPLITS
    assert num_splits(num_tasks=0, num_context_tokens=0, num_processors=132) == 1


def test_what_cannot_be_is_refused() -> None:
    paged = Paged.of([(0, 2)], CacheShape(LAYERS, 4, 2, 4))
    batch = paged.batch(paged.sequences)
    q = numbers(2, 16)
    with pytest.raises(ValueError, match="at least itself"):
        window_attention(q, paged.cache, batch, 0, q)
    with pytest.raises(ValueError, match="share KV heads evenly"):
        paged_attention(q[:, :12], paged.cache, batch, q[:, :12])
    with pytest.raises(ValueError, match="one row for each"):
        paged_attention(q[:1], paged.cache, batch, q[:1])
    with pytest.raises(ValueError, match="k and v are"):
        write_kv(q, q, paged.cache, batch)
    with pytest.raises(ValueError, match="blocks for all"):
        paged.batch([PagedSequence(4, 1, [1])])
    with pytest.raises(ValueError, match="a layer that the cache has"):
        LayerCache(paged.cache.numbers, paged.shape, LAYERS)
