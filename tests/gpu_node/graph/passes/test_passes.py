"""Passes change programs, and `Program.check` sees what they get wrong. Small programs, written out."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpu_node.graph.passes.fuse import fuse
from gpu_node.graph.passes.offload.polls import insert_polls
from gpu_node.graph.passes.offload.split import UnsplittableError, column_cuts, even_plan, split_operators
from gpu_node.graph.passes.offload.split_plan import MAX_PARTS, plan_splits, splittable
from gpu_node.graph.passes.tensor_parallel import IndivisibleError, tensor_parallel
from gpu_node.graph.program import TOKEN_IDS, Buffer, Operator, OperatorKind, Program, Rows
from gpu_node.graph.share import DECODE, LOCAL, PREFILL, REMOTE, WHOLE, Share
from gpu_node.graph.weight import Piece, Weight, joined
from gpu_node.models.architectures.families import build_program
from gpu_node.models.config import Family
from tests.gpu_node.batch_cuts import TWICE, in_shares
from tests.gpu_node.graph.test_program_cost import config

LLAMA = build_program(config(num_layers=1))


def kinds(program: Program) -> list[str]:
    return [str(operator.kind) for operator in program.operators]


def operator(program: Program, kind: OperatorKind) -> Operator:
    """The only one of its kind."""
    (found,) = [one for one in program.operators if one.kind is kind]
    return found


def weight(program: Program, name: str) -> Weight:
    return {one.name: one for one in program.weights}[name]


def buffer(program: Program, name: str) -> Buffer:
    return {one.name: one for one in program.buffers}[name]


# --- weights ----------------------------------------------------------------------------------------------------------


def test_a_weight_is_a_box_of_a_stored_tensor_or_several_joined() -> None:
    q, k = Weight("q", (8, 6)), Weight("k", (4, 6))
    assert q.sources == (Piece("q", (8, 6), ((0, 8), (0, 6))),)
    assert q.cut(0, 0, 8) is q
    both = joined("q_k", [q, k.cut(0, 2, 4)])
    assert (both.shape, [piece.ranges for piece in both.pieces]) == ((10, 6), [((0, 8), (0, 6)), ((2, 4), (0, 6))])
    # cut across the seam, then by columns: boxes of boxes
    part = both.cut(0, 6, 9).cut(1, 2, 5)
    assert (part.name, part.shape) == ("q_k[6:9][:, 2:5]", (3, 3))
    assert [(piece.tensor, piece.ranges) for piece in part.pieces] == [("q", ((6, 8), (2, 5))), ("k", ((2, 3), (2, 5)))]
    part.check()


@pytest.mark.parametrize(
    "wrong",
    [
        Weight("w", (2, 6), (Piece("q", (8, 6), ((7, 9), (0, 6))),)),
        Weight("w", (3, 6), (Piece("q", (8, 6), ((0, 2), (0, 6))),)),
        Weight("w", (2, 6), (Piece("q", (8, 6), ((0, 2), (0, 5))),)),
        Weight("w", (2, 6), (Piece("q", (8, 6), ((0, 2),)),)),
    ],
)
def test_pieces_that_do_not_make_up_a_weight_are_found(wrong: Weight) -> None:
    with pytest.raises(AssertionError, match="w: "):
        wrong.check()


# --- check ------------------------------------------------------------------------------------------------------------


def shared(*writes: tuple[str, Share], read: Share = WHOLE, other: Share = WHOLE) -> Program:
    """Writes of ``x`` by columns and shares, then reads of all its columns in two shares, or in one."""
    buffers = (
        Buffer("x", 8),
        Buffer("left", 5, view_of="x"),
        Buffer("right", 3, view_of="x", first_column=5),
        Buffer("logits", 8),
    )
    table = Weight("w", (4, 8))
    operators = [Operator(OperatorKind.EMBEDDING, (TOKEN_IDS,), (name,), ("w",), share=share) for name, share in writes]
    rest = [Operator(OperatorKind.RELU, ("x",), ("logits",), share=read)]
    if not read.is_whole:
        rest += [replace(rest[0], share=other)]
    return Program((*operators, *rest), buffers, (table,), "logits")


FIRST, SECOND = WHOLE.cut(0, 2), WHOLE.cut(1, 2)


def test_parts_of_a_buffer_written_one_by_one_make_up_the_whole() -> None:
    shared(("left", WHOLE), ("right", WHOLE)).check()
    shared(("left", FIRST), ("right", FIRST), ("x", SECOND)).check()
    quarters = [("right", WHOLE.cut(index, 4)) for index in range(2)]
    shared(("left", WHOLE), *quarters, ("right", SECOND), read=FIRST, other=SECOND).check()
    shared(("left", LOCAL), ("right", PREFILL), ("right", DECODE), ("left", REMOTE)).check()


@pytest.mark.parametrize(
    ("writes", "read"),
    [
        ([("left", WHOLE)], WHOLE),
        ([("x", FIRST)], WHOLE),
        ([("x", FIRST)], FIRST),  # and then the other half
        ([("left", FIRST), ("right", SECOND)], WHOLE),
        ([("x", WHOLE.cut(0, 3)), ("x", WHOLE.cut(2, 3))], WHOLE),
        ([("left", LOCAL), ("right", DECODE)], WHOLE),
        ([("x", LOCAL), ("left", REMOTE.cut(0, 2)), ("right", REMOTE)], WHOLE),
        ([("x", LOCAL)], DECODE),
        ([("x", FIRST), ("x", REMOTE)], LOCAL),
    ],
)
def test_a_part_that_nobody_writes_is_found(writes: list[tuple[str, Share]], read: Share) -> None:
    with pytest.raises(AssertionError, match="not written yet"):
        shared(*writes, read=read).check()


def test_an_operator_on_what_no_step_has_is_found() -> None:
    with pytest.raises(AssertionError, match="covers no part of a batch"):
        shared(("x", WHOLE), ("x", LOCAL & REMOTE)).check()


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (Buffer("left", 5, view_of="nobody"), "unknown buffer"),
        (Buffer("left", 5, view_of="right"), "view of a view"),
        (Buffer("left", 5, view_of="x", first_column=4), "outside of x"),
        (Buffer("left", 5, Rows.DRAWS, view_of="x"), "other rows"),
        (Buffer("left", 5, first_column=1), "no view"),
    ],
)
def test_views_that_cannot_be_are_found(wrong: Buffer, words: str) -> None:
    program = shared(("x", WHOLE))
    with pytest.raises(AssertionError, match=words):
        replace(program, buffers=tuple(wrong if one.name == "left" else one for one in program.buffers)).check()


def test_attention_before_the_keys_are_written_is_found() -> None:
    write = operator(LLAMA, OperatorKind.WRITE_KV)
    late = tuple(one for one in LLAMA.operators if one is not write)
    with pytest.raises(AssertionError, match=r"paged_attention.*not written yet"):
        replace(LLAMA, operators=(*late, write)).check()
    # half of the batch is written: half of it can be attended to
    half = [replace(one, share=FIRST) if one is write else one for one in LLAMA.operators]
    with pytest.raises(AssertionError, match=r"paged_attention.*not written yet"):
        replace(LLAMA, operators=tuple(half)).check()


# --- fuse -------------------------------------------------------------------------------------------------------------


def test_fuse_joins_the_operators_of_a_llama_layer() -> None:
    fused = fuse(LLAMA)
    assert kinds(fused) == [
        "embedding",
        "rope_angles",
        *("rms_norm", "linear", "rope_write_kv", "paged_attention", "linear_add"),
        *("rms_norm", "gated_linear", "linear_add"),
        *("select_draws", "rms_norm", "linear"),
    ]
    q_k_v = fused.operators[3]
    assert (q_k_v.outputs, q_k_v.weights) == (("q_k_v",), ("layers.0.q_k_v",))
    assert [piece.tensor for piece in weight(fused, "layers.0.q_k_v").pieces] == [f"layers.0.{name}" for name in "qkv"]
    assert buffer(fused, "k") == Buffer("k", 4, view_of="q_k_v", first_column=8)
    assert operator(fused, OperatorKind.ROPE_WRITE_KV).inputs == ("q", "k", "v", "angles")
    assert operator(fused, OperatorKind.ROPE_WRITE_KV).outputs == ("q", "k")
    assert weight(fused, "layers.0.gate_up").shape == (32, 8)
    assert fused.operators[-4].inputs == ("activated", "hidden")
    assert not {"gate", "up", "branch"} & {one.name for one in fused.buffers}
    assert fuse(fused) == fused


def test_fuse_leaves_a_product_that_others_read() -> None:
    build = list(LLAMA.operators)
    add = next(index for index, one in enumerate(build) if one.kind is OperatorKind.ADD)
    build.insert(add + 1, Operator(OperatorKind.ADD, ("hidden", "branch"), ("hidden",)))
    fused = fuse(replace(LLAMA, operators=tuple(build)))
    assert kinds(fused).count("add") == 2
    assert kinds(fused).count("linear_add") == 1


def test_fuse_joins_biases_and_leaves_what_it_cannot_join() -> None:
    fused = fuse(build_program(config(Family.OPT, num_layers=1)))
    q_k_v = next(one for one in fused.operators if one.outputs == ("q_k_v",))
    assert (q_k_v.kind, q_k_v.weights) == (OperatorKind.LINEAR_BIAS, ("layers.0.q_k_v", "layers.0.q_k_v_bias"))
    assert weight(fused, "layers.0.q_k_v_bias").shape == (24,)
    assert kinds(fused).count("add") == 3  # positions, and two products whose bias comes before the residual
    heads = kinds(fuse(build_program(config(Family.QWEN3, num_layers=1))))
    assert heads[3:8] == ["linear", "head_norm", "rope", "head_norm", "rope"]


def test_fuse_leaves_what_is_named_by_its_parts() -> None:
    program = build_program(replace(config(num_layers=2), intermediate_size=64, head_dim=32))
    halved = {index: 2 for index, one in enumerate(program.operators[:18]) if one.kind is OperatorKind.LINEAR}
    split = split_operators(program, halved)
    fused = fuse(split)  # of two layers the first is cut
    assert [one.kind for one in fused.operators].count(OperatorKind.GATED_LINEAR) == 0
    assert [one.kind for one in fused.operators].count(OperatorKind.ROPE_WRITE_KV) == 2
    queries = [one.outputs for one in fused.operators if one.outputs and one.outputs[0][0] in "qk"]
    assert queries == [
        *(("q[0:32]",), ("q[32:64]",), ("k_v",), ("q", "k")),
        *(("q",), ("k_v",), ("q", "k")),
    ]


def test_fuse_joins_within_a_share_what_no_other_reads() -> None:
    assert kinds(fuse(in_shares(LLAMA, TWICE))).count("linear_add") == 0  # nothing stands beside what it goes with
    halves = [replace(one, share=share) for share in TWICE for one in LLAMA.operators]
    assert kinds(fuse(replace(LLAMA, operators=tuple(halves)))) == 2 * kinds(fuse(LLAMA))
    # both halves of the last branch are read behind the second one, which has not written over the first
    halves.insert(-3, Operator(OperatorKind.RELU, ("branch",), ("normed",)))
    assert kinds(fuse(replace(LLAMA, operators=tuple(halves)))).count("linear_add") == 2


# --- split ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("num_columns", "num_parts", "cuts"),
    [(96, 3, [0, 32, 64, 96]), (96, 2, [0, 32, 96]), (48, 2, [0, 32, 48]), (40, 5, [0, 32, 40]), (8, 4, [0, 8])],
)
def test_columns_are_cut_between_panels(num_columns: int, num_parts: int, cuts: list[int]) -> None:
    assert column_cuts(num_columns, num_parts) == cuts


def test_split_cuts_products_by_columns_and_attention_by_sequences() -> None:
    fused = fuse(build_program(replace(config(num_layers=1), intermediate_size=72, hidden_size=40, vocab_size=64)))
    parts = split_operators(fused, even_plan(fused, 2))
    gates = [one for one in parts.operators if one.kind is OperatorKind.GATED_LINEAR]
    assert [one.outputs for one in gates] == [("activated[0:32]",), ("activated[32:72]",)]
    assert [(piece.tensor[9:], piece.ranges[0]) for piece in weight(parts, gates[1].weights[0]).pieces] == [
        ("gate", (32, 72)),
        ("up", (32, 72)),
    ]
    down = [one for one in parts.operators if one.kind is OperatorKind.LINEAR_ADD][2:]
    assert [(one.inputs, one.outputs) for one in down] == [
        (("activated", "hidden[0:32]"), ("hidden[0:32]",)),
        (("activated", "hidden[32:40]"), ("hidden[32:40]",)),
    ]
    attention = [one for one in parts.operators if one.kind is OperatorKind.PAGED_ATTENTION]
    assert [one.share for one in attention] == [FIRST, SECOND]
    assert buffer(parts, "logits[32:64]") == Buffer("logits[32:64]", 32, Rows.DRAWS, "logits", 32)


def test_split_refuses_what_it_cannot_cut() -> None:
    with pytest.raises(UnsplittableError, match="operator 2, rms_norm, cannot be cut; these can: bidirectional_att"):
        split_operators(LLAMA, {2: 2})
    with pytest.raises(UnsplittableError, match=f"operator 99 in 2 parts: there are {len(LLAMA.operators)}"):
        split_operators(LLAMA, {99: 2})


def test_the_longest_operators_are_halved_until_the_delay_is_small_enough() -> None:
    by_kind = {OperatorKind.GATED_LINEAR: 8.0, OperatorKind.PAGED_ATTENTION: 4.0, OperatorKind.RMS_NORM: 3.0}
    fused = fuse(LLAMA)
    durations_s = [by_kind.get(one.kind, 0.0) for one in fused.operators]
    place = {one.kind: index for index, one in enumerate(fused.operators)}
    # three norms of 3 s cannot be cut; an operator of T seconds out of 21 is hit with probability T / 21, and delays by
    # (T - 2) ** 2 / 2 T on average: together (36 + 4 + 3 * 1) / 42
    assert plan_splits(splittable(fused), durations_s, 2.0, most_delay_s=43 / 42) == {}
    # 8 s as 4 + 4 s: 4 + 4 + 4 + 3; then all of 4 s as 2 s, which is no longer than the slack
    assert plan_splits(splittable(fused), durations_s, 2.0, most_delay_s=15 / 42) == {
        place[OperatorKind.GATED_LINEAR]: 2
    }
    both = {place[OperatorKind.GATED_LINEAR]: 4, place[OperatorKind.PAGED_ATTENTION]: 2}
    assert plan_splits(splittable(fused), durations_s, 2.0, most_delay_s=0.0) == both
    assert set(plan_splits(splittable(fused), durations_s, 0.0, most_delay_s=0.0).values()) == {MAX_PARTS}


# --- polls ------------------------------------------------------------------------------------------------------------


def test_a_poll_stands_behind_each_operator_once() -> None:
    polled = insert_polls(LLAMA)
    assert kinds(polled)[::2] == kinds(LLAMA)
    assert set(kinds(polled)[1::2]) == {"poll"}
    assert len(polled.operators) == 2 * len(LLAMA.operators)
    assert insert_polls(polled) == polled


# --- tensor parallel --------------------------------------------------------------------------------------------------


def test_a_rank_has_its_heads_and_its_inner_numbers() -> None:
    whole = build_program(replace(config(num_layers=1), num_heads=4, num_kv_heads=2))
    ranks = [tensor_parallel(whole, rank, 2) for rank in range(2)]
    assert [kinds(rank) for rank in ranks] == [kinds(ranks[0])] * 2
    assert kinds(ranks[0]).count("all_reduce") == 2
    assert kinds(ranks[0])[-2:] == ["linear", "all_gather"]
    columns = {one.name: one.num_columns for one in ranks[1].buffers}
    assert columns == {
        "hidden": 8,
        "angles": 4,
        "normed": 8,
        "q": 8,
        "k": 4,
        "v": 4,
        "attended": 8,
        "branch": 8,
        "gate": 8,
        "up": 8,
        "activated": 8,
        "drawn": 8,
        "drawn_normed": 8,
        "logits": 32,
        "logits_part": 16,
    }
    ranges = {one.pieces[0].tensor: one.pieces[0].ranges for one in ranks[1].weights if one.pieces}
    assert ranges == {
        "layers.0.q": ((8, 16), (0, 8)),
        "layers.0.k": ((4, 8), (0, 8)),
        "layers.0.v": ((4, 8), (0, 8)),
        "layers.0.o": ((0, 8), (8, 16)),
        "layers.0.gate": ((8, 16), (0, 8)),
        "layers.0.up": ((8, 16), (0, 8)),
        "layers.0.down": ((0, 8), (8, 16)),
        "lm_head": ((16, 32), (0, 8)),
    }
    assert tensor_parallel(whole, 0, 1) is whole
    fused = kinds(fuse(ranks[0]))
    assert fused[5:8] == ["paged_attention", "linear", "all_reduce"]


def test_biases_behind_a_sum_are_added_once() -> None:
    rank = tensor_parallel(build_program(config(Family.OPT, num_layers=1)), 1, 2)
    first = kinds(rank).index("all_reduce")
    assert kinds(rank)[first - 1 : first + 3] == ["linear", "all_reduce", "add_bias", "add"]
    assert weight(rank, "layers.0.o_bias").shape == (8,)


def test_experts_are_cut_by_their_inner_numbers() -> None:
    whole = build_program(replace(config(Family.MIXTRAL, num_layers=1), num_heads=2, num_kv_heads=2))
    rank = tensor_parallel(whole, 0, 2)
    names = operator(rank, OperatorKind.EXPERTS).weights
    assert [weight(rank, name).shape for name in names] == [(4, 8, 8), (4, 8, 8), (4, 8, 8)]
    assert weight(rank, names[2]).pieces[0].ranges == ((0, 4), (0, 8), (0, 8))


def test_what_cannot_be_divided_is_refused_with_what_can() -> None:
    with pytest.raises(IndivisibleError, match=r"1 heads of keys and values do not divide among 2 devices; .*: 1$"):
        tensor_parallel(LLAMA, 0, 2)
    odd = build_program(replace(config(num_layers=1), num_heads=3, num_kv_heads=3, intermediate_size=16))
    with pytest.raises(IndivisibleError, match=r"16 numbers of layers.0.gate do not divide among 3 devices"):
        tensor_parallel(odd, 0, 3)
    with pytest.raises(IndivisibleError, match="comes before other passes; this program has gated_linear, linear_add"):
        tensor_parallel(fuse(LLAMA), 0, 2)
