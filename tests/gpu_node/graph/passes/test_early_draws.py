"""Which operators run in draw rows only, and which do not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpu_node.graph.cost import NumberBytes, program_costs
from gpu_node.graph.passes.early_draws import early_draws
from gpu_node.graph.passes.fuse import fuse
from gpu_node.graph.passes.offload.polls import insert_polls
from gpu_node.graph.passes.offload.split import even_plan, split_operators
from gpu_node.graph.program import ATTENTIONS, KV_WRITERS, TOKEN_IDS, Buffer, Operator, OperatorKind, Program, Rows
from gpu_node.graph.step_shape import SequencePart, StepShape
from gpu_node.graph.weight import Weight
from gpu_node.models.architectures.encoder import Pooling, build_classifier, build_encoder
from gpu_node.models.architectures.families import build_program
from gpu_node.models.config import ENCODERS, Family
from tests.gpu_node.graph.test_program_cost import config

LLAMA = build_program(config(num_layers=1))
DECODERS = sorted(set(Family) - ENCODERS)
LAYER_ROWS = 5


def signature(operator: Operator) -> str:
    return f"{operator.kind}: {' '.join(operator.inputs)} -> {' '.join(operator.outputs)}"


def flops(program: Program, num_draws: int) -> float:
    """Of one sequence of `LAYER_ROWS` rows for each draw, at least one."""
    step = StepShape((SequencePart(0, LAYER_ROWS),) * max(num_draws, 1), num_draws)
    return sum(cost.flops for cost in program_costs(program, step, NumberBytes()))


def test_behind_the_last_attention_a_llama_goes_on_with_draw_rows() -> None:
    early = early_draws(LLAMA)
    attention = next(index for index, one in enumerate(early.operators) if one.kind in ATTENTIONS)
    assert early.operators[: attention + 1] == LLAMA.operators[: attention + 1]
    assert [signature(one) for one in early.operators[attention + 1 :]] == [
        "select_draws: attended -> attended_of_draws",
        "select_draws: hidden -> drawn",
        "linear: attended_of_draws -> branch_of_draws",
        "add: drawn branch_of_draws -> drawn",
        "rms_norm: drawn -> normed_of_draws",
        "linear: normed_of_draws -> gate_of_draws",
        "linear: normed_of_draws -> up_of_draws",
        "silu_mul: gate_of_draws up_of_draws -> activated_of_draws",
        "linear: activated_of_draws -> branch_of_draws",
        "add: drawn branch_of_draws -> drawn",
        "rms_norm: drawn -> drawn_normed",
        "linear: drawn_normed -> logits",
    ]
    rows = {buffer.name: buffer.rows for buffer in early.buffers}
    assert {name for name in rows if rows[name] is Rows.TOKENS} == {"hidden", "angles", "normed", *"qkv", "attended"}


@pytest.mark.parametrize("family", sorted(ENCODERS))
def test_all_rows_of_a_text_are_read_to_its_end(family: Family) -> None:
    program = build_program(config(family))
    assert early_draws(program) == program


def test_of_an_encoder_whose_first_rows_are_read_the_last_layer_has_those_alone() -> None:
    program = build_classifier(config(Family.BERT, num_layers=1), 1, separator=3)
    early = early_draws(program)
    early.check()
    attention = next(index for index, one in enumerate(early.operators) if one.kind in ATTENTIONS)
    assert early.operators[: attention + 1] == program.operators[: attention + 1]
    assert [signature(one) for one in early.operators[attention + 1 :]] == [
        "select_first: attended -> attended_of_draws",
        "select_first: normed -> first",
        "linear_bias: attended_of_draws -> branch_of_draws",
        "add: first branch_of_draws -> hidden_of_draws",
        "layer_norm: hidden_of_draws -> first",
        "linear_bias: first -> up_of_draws",
        "erf_gelu: up_of_draws -> activated_of_draws",
        "linear_bias: activated_of_draws -> branch_of_draws",
        "add: first branch_of_draws -> hidden_of_draws",
        "layer_norm: hidden_of_draws -> first",
        "linear_bias: first -> pooler",
        "tanh: pooler -> pooled",
        "linear: pooled -> logits",
        "add_bias: logits -> logits",
    ]
    embedding = build_encoder(config(Family.BERT), Pooling.CLS)
    assert early_draws(embedding) == embedding  # its result is no bfloat16


@pytest.mark.parametrize("family", DECODERS)
def test_only_the_last_layer_changes_and_keys_and_values_are_written_for_all_rows(family: Family) -> None:
    plain = build_program(config(family, num_layers=3))
    early = early_draws(plain)
    last = max(index for index, one in enumerate(plain.operators) if one.kind in ATTENTIONS)
    assert early.operators[: last + 1] == plain.operators[: last + 1]
    rows = {buffer.name: buffer.rows for buffer in early.buffers}
    for operator in early.operators[last + 1 :]:
        assert {rows[name] for name in operator.outputs} == {Rows.DRAWS}
    writers = [one for one in early.operators if one.kind in KV_WRITERS]
    assert [rows[name] for one in writers for name in one.inputs] == [Rows.TOKENS] * 6
    # once a row: the output product, the second norm and the whole feed-forward network
    tail = [one for one in plain.operators[last + 1 :] if one.kind is not OperatorKind.SELECT_DRAWS]
    assert [one.kind for one in early.operators[last + 3 :]] == [one.kind for one in tail]


@pytest.mark.parametrize("family", DECODERS)
def test_a_step_costs_less_by_the_rows_that_do_not_draw(family: Family) -> None:
    plain = build_program(config(family, num_layers=1))
    early = early_draws(plain)
    one_row = flops(plain, 0) - flops(early, 0)
    assert one_row > 0
    one_row /= LAYER_ROWS  # what one row costs in the last layer's tail
    for num_draws in (1, 3):
        skipped = num_draws * (LAYER_ROWS - 1)
        assert flops(plain, num_draws) - flops(early, num_draws) == pytest.approx(skipped * one_row)


def test_a_step_of_decodes_costs_the_same() -> None:
    step = StepShape((SequencePart(7, 1),) * 3, num_draws=3)
    costs = [program_costs(program, step, NumberBytes()) for program in (LLAMA, early_draws(LLAMA))]
    assert sum(cost.flops for cost in costs[0]) == sum(cost.flops for cost in costs[1])


def test_what_is_early_joins_as_before() -> None:
    fused = fuse(early_draws(LLAMA))
    assert [signature(one) for one in fused.operators[-8:]] == [
        "select_draws: attended -> attended_of_draws",
        "select_draws: hidden -> drawn",
        "linear_add: attended_of_draws drawn -> drawn",
        "rms_norm: drawn -> normed_of_draws",
        "gated_linear: normed_of_draws -> activated_of_draws",
        "linear_add: activated_of_draws drawn -> drawn",
        "rms_norm: drawn -> drawn_normed",
        "linear: drawn_normed -> logits",
    ]
    assert early_draws(fuse(LLAMA)).operators == fused.operators


def test_parts_of_operators_are_early_as_the_whole_is() -> None:
    wide = build_program(replace(config(num_layers=1), hidden_size=64, intermediate_size=64))
    split = split_operators(wide, even_plan(wide, 2))
    early = early_draws(split)
    assert [signature(one) for one in early.operators if one.weights[:1] == ("layers.0.o[32:64]",)] == [
        "linear: attended_of_draws -> branch_of_draws[32:64]"
    ]
    first = early_draws(wide)
    assert {*early.operators} == {*split_operators(first, even_plan(first, 2)).operators}


def test_a_program_that_cannot_be_earlier_stays_as_it_is() -> None:
    for early in (early_draws(LLAMA), insert_polls(early_draws(LLAMA)), fuse(early_draws(LLAMA))):
        assert early_draws(early) is early
    # the rows that are chosen from are read again: all of them are needed
    again = replace(LLAMA, operators=(*LLAMA.operators, Operator(OperatorKind.RELU, ("hidden",), ("normed",))))
    assert early_draws(again) is again


def small(*operators: Operator) -> Program:
    """Ends with the draw rows of ``x`` [8 columns, of which ``left`` and ``right`` are four each]."""
    buffers = (
        *(Buffer(name, 4) for name in ("a", "b", "c")),
        Buffer("x", 8),
        Buffer("left", 4, view_of="x"),
        Buffer("right", 4, view_of="x", first_column=4),
        Buffer("drawn", 8, Rows.DRAWS),
    )
    first = Operator(OperatorKind.EMBEDDING, (TOKEN_IDS,), ("a",), ("table",))
    program = Program(
        (first, *operators, Operator(OperatorKind.SELECT_DRAWS, ("x",), ("drawn",))),
        buffers,
        (Weight("table", (9, 4)),),
        "drawn",
    )
    program.check()
    return program


def embedding(target: str) -> Operator:
    return Operator(OperatorKind.EMBEDDING, (TOKEN_IDS,), (target,), ("table",))


def relu(source: str, target: str) -> Operator:
    return Operator(OperatorKind.RELU, (source,), (target,))


def test_a_buffer_is_selected_behind_its_last_write_for_all_rows() -> None:
    early = early_draws(small(relu("a", "left"), embedding("b"), relu("b", "right")))
    assert [signature(one) for one in early.operators[1:]] == [
        "select_draws: a -> a_of_draws",
        "relu: a_of_draws -> drawn[0:4]",
        "embedding: token_ids -> b",
        "select_draws: b -> b_of_draws",
        "relu: b_of_draws -> drawn[4:8]",
    ]


@pytest.mark.parametrize(
    "operators",
    [
        # a part that is made for all rows, before or behind one that need not be
        [embedding("left"), relu("a", "right")],
        [relu("a", "left"), embedding("right")],
    ],
)
def test_a_buffer_with_a_part_for_all_rows_is_for_all_rows(operators: list[Operator]) -> None:
    program = small(*operators)
    assert early_draws(program) is program


def test_what_is_read_between_two_parts_for_all_rows_is_for_all_rows() -> None:
    turn = Operator(OperatorKind.ROPE, ("left", "a"), ("b",))  # by position: no operator for draw rows
    program = small(relu("a", "left"), turn, relu("b", "c"), relu("c", "right"))
    # the last part alone cannot be early; what it is made of neither
    assert early_draws(program) is program
