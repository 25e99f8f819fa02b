"""What one instance of a poll does of a task: a tile of attention, a part of the blocks that move, a look at rights."""

from __future__ import annotations

import triton
import triton.language as tl

from gpu_node.kernels.triton.attention.attention_tile import attend, load_queries
from gpu_node.kernels.triton.attention.task_ring import PUT

LINES_TOGETHER = tl.constexpr(128)
"""Of a block table, that are looked at together."""
MOVED_TOGETHER = tl.constexpr(1024)
"""Numbers of a block."""
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
def attend_tile(
    row,
    kv_head,
    position,
    first,
    window,
    block_lines,
    q,
    k,
    v,
    out,
    numbers,
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
):
    """The attention of one row and one KV head, its own key and value written before."""
    shared, dims = tl.arange(0, PADDED_SHARED), tl.arange(0, PADDED_DIM)
    here, in_head = shared < NUM_SHARED, dims < HEAD_DIM
    kind = numbers.dtype.element_ty
    width = num_kv_heads * NUM_SHARED * HEAD_DIM
    block = tl.load(block_lines + row * max_blocks + position // BLOCK_SIZE).to(tl.int64)
    head = first + kv_head * (2 * BLOCK_SIZE * HEAD_DIM)
    key = numbers + block * LINE_NUMBERS + head + position % BLOCK_SIZE * HEAD_DIM + dims
    own = (row * num_kv_heads + kv_head) * HEAD_DIM + dims
    tl.store(key, tl.load(k + own, mask=in_head, other=0.0).to(kind), mask=in_head)
    value = key + BLOCK_SIZE * HEAD_DIM
    tl.store(value, tl.load(v + own, mask=in_head, other=0.0).to(kind), mask=in_head)
    tl.debug_barrier()  # all threads have written before one reads
    columns = (kv_head * NUM_SHARED + shared) * HEAD_DIM
    rows = tl.zeros([PADDED_SHARED], tl.int64) + row
    queries = load_queries(q, width, rows, columns, here, HEAD_DIM, PADDED_DIM)
    result, _ = attend(
        queries,
        tl.zeros([PADDED_SHARED], tl.int32) + position,
        numbers,
        block_lines + row * max_blocks,
        head,
        tl.maximum(position + 1 - window, 0),
        position + 1,
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
    tl.store(out + at, result.to(out.dtype.element_ty), mask=here[:, None] & in_head[None, :])
