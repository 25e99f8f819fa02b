"""The reference operations against their definitions, written out one number at a time in float64."""

from __future__ import annotations

import math

import pytest
import torch

from gpu_node.kernels import operations
from gpu_node.kernels.paged_batch import GROUP_CONTEXT_TOKENS, PagedSequence, paged_batch

KV_HEADS, HEAD_DIM = 2, 4


def close(ours: torch.Tensor, expected: torch.Tensor) -> bool:
    """Relative error of the whole against the higher precision."""
    return bool((ours.double() - expected.double()).norm() <= 1e-5 * (1 + expected.double().norm()))


def plain_attention(
    q: torch.Tensor, cache: torch.Tensor, sequences: list[PagedSequence], heads: int, window: int | None = None
) -> torch.Tensor:
    """Row by row, head by head, token by token."""
    block_size = cache.shape[2]
    rows: list[torch.Tensor] = []
    for sequence in sequences:
        for position in range(sequence.start, sequence.start + sequence.num_rows):
            query = q[len(rows)].view(heads, HEAD_DIM).double()
            first = 0 if window is None else max(0, position + 1 - window)
            slots = [(sequence.block_table[p // block_size], p % block_size) for p in range(first, position + 1)]
            row = []
            for head in range(heads):
                kv_head = head // (heads // KV_HEADS)
                keys = torch.stack([cache[block, 0, slot, kv_head] for block, slot in slots]).double()
                values = torch.stack([cache[block, 1, slot, kv_head] for block, slot in slots]).double()
                row.append(((keys @ query[head]) / math.sqrt(HEAD_DIM)).softmax(0) @ values)
            rows.append(torch.cat(row))
    return torch.stack(rows) if rows else torch.empty(0, heads * HEAD_DIM)


@pytest.mark.parametrize("heads", [2, 6])
@pytest.mark.parametrize("window", [None, 1, 4, 1000])
@pytest.mark.parametrize("block_size", [1, 4])
@pytest.mark.parametrize(
    "lengths",
    [
        [],
        [(0, 1)],
        [(9, 1)],
        [(0, 7)],
        [(5, 4)],
        [(3, 1), (0, 6), (17, 1), (6, 3), (2, 1), (6, 3)],
    ],
    ids=str,
)
def test_attention_over_blocks(heads: int, window: int | None, block_size: int, lengths: list[tuple[int, int]]) -> None:
    torch.manual_seed(0)
    sequences, num_blocks = [], 1  # block 0 belongs to nobody
    for start, num_rows in lengths:
        size = -(-(start + num_rows) // block_size)
        sequences.append(PagedSequence(start, num_rows, list(range(num_blocks, num_blocks + size))[::-1]))
        num_blocks += size
    batch = paged_batch(sequences, block_size)
    num_rows = len(batch.positions)
    cache = torch.full((num_blocks, 2, block_size, KV_HEADS, HEAD_DIM), float("nan"))  # nothing unwritten may be read
    for sequence in sequences:
        for position in range(sequence.start):
            slot = cache[sequence.block_table[position // block_size], :, position % block_size]
            slot.copy_(torch.randn(2, KV_HEADS, HEAD_DIM))
    k, v = torch.randn(2, num_rows, KV_HEADS * HEAD_DIM)
    operations.write_kv(k, v, cache, batch)
    q = torch.randn(num_rows, heads * HEAD_DIM)
    if window is None:
        ours = operations.paged_attention(q, cache, batch)
    else:
        ours = operations.window_attention(q, cache, batch, window)
    assert close(ours, plain_attention(q, cache, sequences, heads, window))


def test_a_group_does_not_gather_more_than_the_processor_caches() -> None:
    sequences = [PagedSequence(299, 1, list(range(19))) for _ in range(10)]
    groups = paged_batch(sequences, 16).groups
    assert [len(group.rows) for group in groups] == [3, 3, 3, 1]
    assert all(group.visible.shape[0] * group.visible.shape[2] <= GROUP_CONTEXT_TOKENS for group in groups)


def test_rope_turns_pairs_by_their_angles() -> None:
    x = torch.randn(3, 2 * HEAD_DIM)
    positions = torch.tensor([0, 1, 50])
    ours = operations.rope(x, operations.rope_angles(positions, HEAD_DIM, 100.0))
    expected = torch.empty(3, 2, HEAD_DIM, dtype=torch.float64)
    for row, head, pair in ((row, head, pair) for row in range(3) for head in range(2) for pair in range(2)):
        angle = int(positions[row]) * 100.0 ** (-2 * pair / HEAD_DIM)
        first, second = (float(x[row, head * HEAD_DIM + pair + part * 2]) for part in (0, 1))
        expected[row, head, pair] = first * math.cos(angle) - second * math.sin(angle)
        expected[row, head, pair + 2] = second * math.cos(angle) + first * math.sin(angle)
    assert close(ours, expected.view(3, -1))


def test_scaled_rope_angles_are_those_of_slower_positions() -> None:
    positions = torch.tensor([0, 4, 48])
    plain = operations.rope_angles(positions // 4, HEAD_DIM, 100.0)
    assert close(operations.scaled_rope_angles(positions, torch.tensor([4.0, 4.0]), 100.0), plain)
    mixed = operations.scaled_rope_angles(positions, torch.tensor([1.0, 4.0]), 100.0)
    assert close(mixed[:, [0, 2]], operations.rope_angles(positions, HEAD_DIM, 100.0)[:, [0, 2]])
    assert close(mixed[:, [1, 3]], plain[:, [1, 3]])


def test_head_norm_is_rms_norm_of_each_head() -> None:
    x, weight = torch.randn(3, 2 * HEAD_DIM), torch.randn(HEAD_DIM)
    ours = operations.head_norm(x, weight, 1e-5)
    for head in range(2):
        columns = slice(head * HEAD_DIM, (head + 1) * HEAD_DIM)
        assert close(ours[:, columns], operations.rms_norm(x[:, columns].contiguous(), weight, 1e-5))


def test_layer_norm() -> None:
    x, weight, bias = torch.randn(3, 8) + 5, torch.randn(8), torch.randn(8)
    wide = x.double()
    centred = wide - wide.mean(dim=1, keepdim=True)
    expected = centred / (centred.square().mean(dim=1, keepdim=True) + 1e-5).sqrt() * weight.double()
    assert close(operations.layer_norm(x, weight, bias, 1e-5), expected + bias.double())
    assert close(operations.layer_norm(x, weight, None, 1e-5), expected)


def test_relu_and_gelu() -> None:
    x = torch.randn(3, 8)
    assert operations.relu(x).equal(torch.where(x > 0, x, 0.0))
    expected = [
        0.5 * number * (1 + math.tanh(math.sqrt(2 / math.pi) * (number + 0.044715 * number**3)))
        for number in x.flatten().tolist()
    ]
    assert close(operations.gelu(x).flatten(), torch.tensor(expected, dtype=torch.float64))


@pytest.mark.parametrize("num_rows", [0, 1, 9])
@pytest.mark.parametrize("num_chosen", [1, 2, 4])
def test_rows_go_through_the_experts_chosen_for_them(num_rows: int, num_chosen: int) -> None:
    num_experts, inner, columns = 4, 5, 3
    x, router = torch.randn(num_rows, columns), torch.randn(num_rows, num_experts)
    gate, up = torch.randn(2, num_experts, inner, columns)
    down = torch.randn(num_experts, columns, inner)
    routing = operations.route(router, num_chosen)
    ours = operations.experts(x, routing, gate, up, down)
    for row in range(num_rows):
        shares = router[row].double().exp()
        chosen = sorted(range(num_experts), key=lambda expert: -float(shares[expert]))[:num_chosen]
        expected = torch.zeros(columns, dtype=torch.float64)
        for expert in chosen:
            share = shares[expert] / shares[chosen].sum()
            assert float(routing[row, expert]) == pytest.approx(float(share))
            opened = gate[expert].double() @ x[row].double()
            activated = opened / (1 + (-opened).exp()) * (up[expert].double() @ x[row].double())
            expected += share * (down[expert].double() @ activated)
        assert int((routing[row] > 0).sum()) == num_chosen
        assert close(ours[row], expected)


def test_rms_norm_and_silu_mul() -> None:
    x, weight = torch.randn(3, 8), torch.randn(8)
    wide = x.double()
    expected = wide / (wide.square().mean(dim=1, keepdim=True) + 1e-5).sqrt() * weight.double()
    assert close(operations.rms_norm(x, weight, 1e-5), expected)
    gate, up = torch.randn(2, 3, 8)
    assert close(operations.silu_mul(gate, up), gate.double() / (1 + (-gate.double()).exp()) * up.double())


def test_embedding_and_linear() -> None:
    table = torch.randn(5, 3)
    assert operations.embedding(torch.tensor([4, 0]), table).equal(table[[4, 0]])
    x, weight = torch.randn(2, 3), torch.randn(4, 3)
    assert close(operations.linear(x, weight), x.double() @ weight.double().T)
    bias = torch.randn(4)
    assert close(operations.linear_bias(x, weight, bias), x.double() @ weight.double().T + bias.double())


def test_blocks_are_copied_all_at_once() -> None:
    cache = torch.arange(3.0).view(3, 1, 1, 1, 1).repeat(1, 2, 1, 1, 1)
    operations.copy_blocks(cache, torch.tensor([0, 1]), torch.tensor([1, 2]))
    assert cache[:, 0].flatten().tolist() == [0, 0, 1]


def test_wrong_shapes_and_types_are_said_at_the_entry() -> None:
    batch = paged_batch([PagedSequence(0, 2, [0])], 4)
    cache = torch.zeros(1, 2, 4, KV_HEADS, HEAD_DIM)
    with pytest.raises(ValueError, match="expected float32 with 2 dimensions"):
        operations.linear(torch.zeros(2, 3, dtype=torch.float64), torch.zeros(4, 3))
    with pytest.raises(ValueError, match="columns of x and weight differ"):
        operations.linear(torch.zeros(2, 3), torch.zeros(4, 2))
    with pytest.raises(ValueError, match="one row for each"):
        operations.paged_attention(torch.zeros(3, 8), cache, batch)
    with pytest.raises(ValueError, match="heads share KV heads evenly"):
        operations.paged_attention(torch.zeros(2, 12), cache, batch)
    with pytest.raises(ValueError, match="at least itself"):
        operations.window_attention(torch.zeros(2, 8), cache, batch, 0)
    with pytest.raises(ValueError, match="one bias for each output"):
        operations.linear_bias(torch.zeros(2, 3), torch.zeros(4, 3), torch.zeros(3))
    with pytest.raises(ValueError, match="whole heads"):
        operations.head_norm(torch.zeros(2, 10), torch.zeros(4), 1e-5)
    with pytest.raises(ValueError, match="no more than there are"):
        operations.route(torch.zeros(2, 3), 4)
    with pytest.raises(ValueError, match="of different shapes"):
        operations.experts(
            torch.zeros(2, 3), torch.zeros(2, 4), torch.zeros(4, 5, 3), torch.zeros(4, 6, 3), torch.zeros(4, 3, 5)
        )
    with pytest.raises(ValueError, match="block_size"):
        operations.paged_attention(torch.zeros(2, 8), torch.zeros(1, 2, 3, KV_HEADS, HEAD_DIM), batch)
