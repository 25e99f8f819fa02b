"""What one instance of a poll does of a task: a tile of attention, a part of the blocks that move, a look at rights."""

from __future__ import annotations

import triton
import triton.language as tl

from gpu_node.kernels.triton.attention.attention_tile import attend, load_queries, parts_of
from gpu_node.kernels.triton.attention.task_ring import PUT

LINES_TOGETHER = tl.constexpr(128)
"""Of a block table, that are looked at together."""
MOVED_TOGETHER = tl.constexpr(1024)
"""Numbers of a block."""
MAX_SPLITS = tl.constexpr(16)
"""Parts of one context."""
_PUT = tl.constexpr(PUT)


@triton.jit
def are_lent(lines, num_blocks, is_lent, page_lines, num_pages, block_lines):
    """Whether each of these blocks lies in a page that is lent."""
    found = 1
    for begin in range(0, num_blocks, LINES_TOGETHER):
        blocks = begin + tl.arange(0, LINES_TOGETHER)
        seen = blocks < num_blocks
        line = tl.load(lines + blocks, mask=seen, other=0)
        page = line // page_lines
        is_within = (line >= 0) & (page < num_pages) & (line % page_lines + block_lines <= page_lines)
        lent = tl.load(is_lent + page, mask=seen & is_within, other=0)
        found = tl.minimum(found, tl.min(tl.where(seen, lent, 1), 0))
    return found != 0


@triton.jit
def move_part(kind, lines, num_blocks, content, numbers, block_numbers, LINE_NUMBERS: tl.constexpr):
    """This instance's part of the blocks that a task puts or takes."""
    instance, num_instances = tl.program_id(0), tl.num_programs(0)
    num_parts = tl.cdiv(block_numbers, MOVED_TOGETHER)
    for part in range(instance, num_blocks * num_parts, num_instances):
        block = part // num_parts
        places = part % num_parts * MOVED_TOGETHER + tl.arange(0, MOVED_TOGETHER)
        seen = places < block_numbers
        here = numbers + tl.load(lines + block).to(tl.int64) * LINE_NUMBERS + places
        there = content + block.to(tl.int64) * block_numbers + places
        if kind == _PUT:
            tl.store(here, tl.load(there, mask=seen), mask=seen)
        else:
            tl.store(there, tl.load(here, mask=seen), mask=seen)


@triton.jit
def attend_part(
    slot,
    num_rows,
    refused,
    firsts,
    windows,
    positions,
    block_lines,
    q,
    k,
    v,
    out,
    numbers,
    results,
    logs,
    arrived,
    is_lent,
    page_lines,
    num_pages,
    max_sequences,
    max_blocks,
    num_kv_heads,
    block_numbers,
    scale,
    NUM_SHARED: tl.constexpr,
    PADDED_SHARED: tl.constexpr,
    TILE: tl.constexpr,
    LINE_NUMBERS: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    PADDED_DIM: tl.constexpr,
    WIDEN: tl.constexpr,
    CHECKS: tl.constexpr,
    SPLITS: tl.constexpr,
):
    """This instance's part of the rows that a slot asks about."""
    instance, num_instances = tl.program_id(0), tl.num_programs(0)
    size = block_numbers // LINE_NUMBERS  # of a block
    first, window = tl.load(firsts + slot), tl.load(windows + slot)
    num_tiles, num_splits = num_rows * num_kv_heads, 1
    if CHECKS:
        layer_numbers = 2 * num_kv_heads * BLOCK_SIZE * HEAD_DIM
        if (num_rows > max_sequences) | (first < 0) | (first + layer_numbers > block_numbers):
            tl.atomic_xchg(refused, 1, sem="relaxed", scope="sys")
            num_tiles = 0
    if SPLITS:
        num_splits = tl.maximum(tl.minimum(num_instances // tl.maximum(num_tiles, 1), MAX_SPLITS), 1)
    for own in range(instance, num_tiles * num_splits, num_instances):
        tile = own // num_splits
        row = slot * max_sequences + tile // num_kv_heads
        position = tl.load(positions + row)
        is_right = position >= 0
        if CHECKS:
            is_right = is_right & (position < max_blocks * BLOCK_SIZE)
            num_blocks = tl.where(is_right, position // BLOCK_SIZE + 1, 0)
            is_right = is_right & are_lent(
                block_lines + row * max_blocks, num_blocks, is_lent, page_lines, num_pages, size
            )
        if is_right:
            _attend_tile(
                row,
                tile % num_kv_heads,
                position,
                first,
                window,
                own % num_splits,
                num_splits,
                slot * num_instances + tile,
                slot * num_instances + tile * num_splits,
                block_lines,
                q,
                k,
                v,
                out,
                numbers,
                results,
                logs,
                arrived,
                max_blocks,
                num_kv_heads,
                scale,
                NUM_SHARED,
                PADDED_SHARED,
                TILE,
                LINE_NUMBERS,
                BLOCK_SIZE,
                HEAD_DIM,
                PADDED_DIM,
                WIDEN,
                SPLITS,
            )
        else:
            tl.atomic_xchg(refused, 1, sem="relaxed", scope="sys")


@triton.jit
def _attend_tile(
    row,
    kv_head,
    position,
    first,
    window,
    split,
    num_splits,
    own_arrived,
    first_part,
    block_lines,
    q,
    k,
    v,
    out,
    numbers,
    results,
    logs,
    arrived,
    max_blocks,
    num_kv_heads,
    scale,
    NUM_SHARED: tl.constexpr,
    PADDED_SHARED: tl.constexpr,
    TILE: tl.constexpr,
    LINE_NUMBERS: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    PADDED_DIM: tl.constexpr,
    WIDEN: tl.constexpr,
    SPLITS: tl.constexpr,
):
    """The attention of one row and one KV head over one of ``num_splits`` parts of its context.

    The instance with the last part writes the row's own key and value before; the last to come puts parts together.
    ``own_arrived`` and ``first_part``: where in `PartMemory` arrivals are counted, and where the first part stands.
    """
    shared, dims = tl.arange(0, PADDED_SHARED), tl.arange(0, PADDED_DIM)
    here, in_head = shared < NUM_SHARED, dims < HEAD_DIM
    mask = here[:, None] & in_head[None, :]
    width = num_kv_heads * NUM_SHARED * HEAD_DIM
    head = first + kv_head * (2 * BLOCK_SIZE * HEAD_DIM)
    seen_from, part, num_parts = parts_of(position, window, num_splits, TILE)
    if split < num_parts:
        if split == num_parts - 1:
            _write_own(
                row, kv_head, position, head, block_lines, k, v, numbers, max_blocks, num_kv_heads,
                LINE_NUMBERS, BLOCK_SIZE, HEAD_DIM, PADDED_DIM,
            )  # fmt: skip
        tl.debug_barrier()  # all threads have written before one reads
        columns = (kv_head * NUM_SHARED + shared) * HEAD_DIM
        rows = tl.zeros([PADDED_SHARED], tl.int64) + row
        queries = load_queries(q, width, rows, columns, here, HEAD_DIM, PADDED_DIM)
        begin = seen_from + split * part
        result, log = attend(
            queries,
            tl.zeros([PADDED_SHARED], tl.int32) + position,
            numbers,
            block_lines + row * max_blocks,
            head,
            begin,
            tl.minimum(begin + part, position + 1),
            window,
            scale,
            TILE,
            LINE_NUMBERS,
            BLOCK_SIZE,
            HEAD_DIM,
            PADDED_DIM,
            WIDEN,
        )
        at = rows[:, None] * width + columns[:, None] + dims[None, :]
        if SPLITS and num_parts > 1:
            own = (first_part + split) * NUM_SHARED + shared
            tl.store(logs + own, log, mask=here)
            tl.store(results + own[:, None] * HEAD_DIM + dims[None, :], result, mask=mask)
            tl.debug_barrier()
            if tl.atomic_add(arrived + own_arrived, 1, sem="acq_rel", scope="gpu") == num_parts - 1:
                tl.atomic_xchg(arrived + own_arrived, 0, sem="relaxed", scope="gpu")
                together = _together(
                    results, logs, first_part, num_parts, NUM_SHARED, PADDED_SHARED, HEAD_DIM, PADDED_DIM
                )
                tl.store(out + at, together.to(out.dtype.element_ty), mask=mask)
        else:
            tl.store(out + at, result.to(out.dtype.element_ty), mask=mask)


@triton.jit
def _write_own(
    row,
    kv_head,
    position,
    head,
    block_lines,
    k,
    v,
    numbers,
    max_blocks,
    num_kv_heads,
    LINE_NUMBERS: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    PADDED_DIM: tl.constexpr,
):
    """The key and the value of a row into its sequence's last block."""
    dims = tl.arange(0, PADDED_DIM)
    in_head = dims < HEAD_DIM
    kind = numbers.dtype.element_ty
    block = tl.load(block_lines + row * max_blocks + position // BLOCK_SIZE).to(tl.int64)
    key = numbers + block * LINE_NUMBERS + head + position % BLOCK_SIZE * HEAD_DIM + dims
    own = (row * num_kv_heads + kv_head) * HEAD_DIM + dims
    tl.store(key, tl.load(k + own, mask=in_head, other=0.0).to(kind), mask=in_head)
    value = key + BLOCK_SIZE * HEAD_DIM
    tl.store(value, tl.load(v + own, mask=in_head, other=0.0).to(kind), mask=in_head)


@triton.jit
def _together(
    results,
    logs,
    first_part,
    num_parts,
    NUM_SHARED: tl.constexpr,
    PADDED_SHARED: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    PADDED_DIM: tl.constexpr,
):
    """[PADDED_SHARED, PADDED_DIM]: what parts make together, each weighed with the sum that its logarithm is of."""
    shared, dims = tl.arange(0, PADDED_SHARED), tl.arange(0, PADDED_DIM)
    most = tl.full([PADDED_SHARED], float("-inf"), tl.float32)
    total = tl.zeros([PADDED_SHARED], tl.float32)
    sums = tl.zeros([PADDED_SHARED, PADDED_DIM], tl.float32)
    for part in range(num_parts):
        own = (first_part + part) * NUM_SHARED + shared
        log = tl.load(logs + own, mask=shared < NUM_SHARED, other=float("-inf"))
        mask = (shared < NUM_SHARED)[:, None] & (dims < HEAD_DIM)[None, :]
        result = tl.load(results + own[:, None] * HEAD_DIM + dims[None, :], mask=mask, other=0.0)
        now = tl.maximum(most, log)
        anchor = tl.where(now == float("-inf"), 0.0, now)  # nothing seen yet: -inf - -inf is no number
        weight, shrink = tl.exp2(log - anchor), tl.exp2(most - anchor)
        total = total * shrink + weight
        sums = sums * shrink[:, None] + result * weight[:, None]
        most = now
    return sums / tl.where(total > 0.0, total, 1.0)[:, None]
