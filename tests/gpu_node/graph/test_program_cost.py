"""What operators cost, against numbers worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_node.graph.cost import Cost, DeviceRates, NumberBytes, program_costs, total
from gpu_node.graph.layers import sections
from gpu_node.graph.passes.early_draws import early_draws
from gpu_node.graph.passes.fuse import fuse
from gpu_node.graph.passes.offload.polls import insert_polls
from gpu_node.graph.passes.offload.split import even_plan, split_operators
from gpu_node.graph.passes.tensor_parallel import tensor_parallel
from gpu_node.graph.program import OperatorKind, Program
from gpu_node.graph.step_shape import SequencePart, StepShape, even_step
from gpu_node.models.architectures.encoder import build_classifier
from gpu_node.models.architectures.families import build_program
from gpu_node.models.config import ENCODERS, TURNED_ENCODERS, Family, ModelConfig, Rope

SIZES = NumberBytes(weight=2.0, buffer=4.0, kv=1.0)


def config(family: Family = Family.LLAMA, windows: tuple[int | None, ...] = (), num_layers: int = 2) -> ModelConfig:
    learned = family in (ENCODERS - TURNED_ENCODERS) | {Family.OPT, Family.GPT2}
    return ModelConfig(
        family=family,
        num_layers=num_layers,
        hidden_size=8,
        num_heads=2,
        num_kv_heads=2 if learned or family in ENCODERS else 1,
        head_dim=4,
        intermediate_size=16,
        vocab_size=32,
        context_length=64,
        norm_epsilon=1e-5,
        tied_embedding=False,
        eos_token_ids=frozenset(),
        rope=None if learned else Rope(10_000.0),
        windows=windows,
        num_experts=4 if family is Family.MIXTRAL else 0,
        num_experts_per_token=2 if family is Family.MIXTRAL else 0,
        num_segments=2 if family in ENCODERS else 0,
    )


def costs_of(program: Program, step: StepShape) -> dict[str, Cost]:
    """By output buffer and kind; the last of equals."""
    costs = program_costs(program, step, SIZES)
    operators = program.operators
    return {f"{one.kind} {''.join(one.outputs)}".strip(): cost for one, cost in zip(operators, costs, strict=True)}


STEP = StepShape((SequencePart(10, 1), SequencePart(0, 3)), num_draws=1)
"""Four rows: a decode that sees 11 tokens, and a prefill whose rows see 1, 2 and 3."""


def test_a_step_counts_what_its_rows_attend_to() -> None:
    assert (STEP.num_rows, STEP.num_attended(), STEP.num_context_tokens()) == (4, 11 + 1 + 2 + 3, 11 + 3)
    # a window of 2: the decode sees 2, the prefill 1, 2 and 2; of the prefill all three tokens are read
    assert (STEP.num_attended(2), STEP.num_context_tokens(2)) == (2 + 1 + 2 + 2, 2 + 3)


@pytest.mark.parametrize("window", [None, 1, 2, 5, 7, 100])
@pytest.mark.parametrize(("start", "num_rows"), [(0, 1), (0, 7), (4, 1), (4, 3), (6, 5), (20, 2)])
def test_attended_tokens_in_closed_form_are_those_counted_one_by_one(
    start: int, num_rows: int, window: int | None
) -> None:
    reach = window or 1000
    seen = [range(max(0, position + 1 - reach), position + 1) for position in range(start, start + num_rows)]
    part = SequencePart(start, num_rows)
    assert part.num_attended(window) == sum(map(len, seen))
    assert part.num_context_tokens(window) == len(set().union(*seen))


def test_operators_of_llama() -> None:
    costs = costs_of(build_program(config()), STEP)
    assert costs == {
        "embedding hidden": Cost(weight_bytes=4 * 8 * 2, buffer_bytes=4 * 8 * 4),
        "rope_angles angles": Cost(flops=4 * 4 * 1.5, buffer_bytes=4 * 4 * 4),
        "rms_norm normed": Cost(flops=4 * 8 * 4, weight_bytes=8 * 2, buffer_bytes=2 * 4 * 8 * 4),
        "linear q": Cost(flops=2 * 4 * 8 * 8, weight_bytes=8 * 8 * 2, buffer_bytes=2 * 4 * 8 * 4),
        "linear k": Cost(flops=2 * 4 * 8 * 4, weight_bytes=8 * 4 * 2, buffer_bytes=4 * (8 + 4) * 4),
        "linear v": Cost(flops=2 * 4 * 8 * 4, weight_bytes=8 * 4 * 2, buffer_bytes=4 * (8 + 4) * 4),
        "rope q": Cost(flops=4 * 8 * 3, buffer_bytes=4 * (8 + 4 + 8) * 4),
        "rope k": Cost(flops=4 * 4 * 3, buffer_bytes=4 * (4 + 4 + 4) * 4),
        "write_kv": Cost(kv_bytes=4 * (4 + 4) * 1, buffer_bytes=4 * (4 + 4) * 4),
        # 17 pairs of a row and a token; two heads of 4 numbers; 14 tokens of 4 + 4 numbers are read
        "paged_attention attended": Cost(flops=17 * 4 * 8, kv_bytes=14 * 8 * 1, buffer_bytes=2 * 4 * 8 * 4),
        "linear branch": Cost(flops=2 * 4 * 16 * 8, weight_bytes=16 * 8 * 2, buffer_bytes=4 * (16 + 8) * 4),
        "add hidden": Cost(flops=4 * 8, buffer_bytes=3 * 4 * 8 * 4),
        "linear gate": Cost(flops=2 * 4 * 8 * 16, weight_bytes=8 * 16 * 2, buffer_bytes=4 * (8 + 16) * 4),
        "linear up": Cost(flops=2 * 4 * 8 * 16, weight_bytes=8 * 16 * 2, buffer_bytes=4 * (8 + 16) * 4),
        "silu_mul activated": Cost(flops=4 * 16 * 5, buffer_bytes=3 * 4 * 16 * 4),
        # one row is drawn
        "select_draws drawn": Cost(buffer_bytes=2 * 8 * 4),
        "rms_norm drawn_normed": Cost(flops=8 * 4, weight_bytes=8 * 2, buffer_bytes=2 * 8 * 4),
        "linear logits": Cost(flops=2 * 8 * 32, weight_bytes=8 * 32 * 2, buffer_bytes=(8 + 32) * 4),
    }


def test_a_window_saves_work_and_reading() -> None:
    costs = costs_of(build_program(config(Family.MISTRAL, windows=(2, 2))), STEP)
    assert costs["window_attention attended"] == Cost(flops=7 * 4 * 8, kv_bytes=5 * 8 * 1, buffer_bytes=2 * 4 * 8 * 4)


def test_biases_and_learned_positions() -> None:
    costs = costs_of(build_program(config(Family.OPT)), STEP)
    assert costs["linear_bias up"] == Cost(
        flops=2 * 4 * 8 * 16 + 4 * 16, weight_bytes=(8 * 16 + 16) * 2, buffer_bytes=4 * (8 + 16) * 4
    )
    assert costs["embedding position"] == costs["embedding hidden"]
    assert costs["layer_norm normed"] == Cost(flops=4 * 8 * 7, weight_bytes=2 * 8 * 2, buffer_bytes=2 * 4 * 8 * 4)


def test_texts_of_an_encoder() -> None:
    texts = StepShape((SequencePart(0, 3), SequencePart(0, 1)), num_draws=2)
    costs = costs_of(build_program(config(Family.BERT)), texts)
    assert costs["segment_embedding segment"] == Cost(weight_bytes=4 * 8 * 2, buffer_bytes=4 * 8 * 4)
    # three rows see three tokens each, and one sees one; two heads of 4, and as many of keys and of values
    assert costs["bidirectional_attention attended"] == Cost(
        flops=4 * (3 * 3 + 1) * 8, kv_bytes=4 * 16 * 1, buffer_bytes=2 * 4 * 8 * 4
    )
    assert costs["erf_gelu activated"].flops == 18 * 4 * 16
    assert costs["mean_pool pooled"] == Cost(flops=(4 + 2) * 8, buffer_bytes=(4 + 2) * 8 * 4)
    classifier = costs_of(build_classifier(config(Family.BERT), 1, separator=3), texts)
    assert classifier["select_first first"] == Cost(buffer_bytes=2 * 2 * 8 * 4)
    assert classifier["tanh pooled"].flops == 4 * 2 * 8


def test_a_window_on_both_sides() -> None:
    """Each row sees itself and one token on either side, where there are any: 2 + 3 + 2, and 1."""
    texts = StepShape((SequencePart(0, 3), SequencePart(0, 1)), num_draws=2)
    costs = costs_of(build_program(config(Family.MODERN_BERT, windows=(2, 2))), texts)
    assert costs["bidirectional_window_attention attended"].flops == 4 * (2 + 3 + 2 + 1) * 8
    assert costs["erf_gelu_mul activated"] == Cost(flops=4 * 16 * 19, buffer_bytes=3 * 4 * 16 * 4)
    assert costs["layer_norm normed"].weight_bytes == 8 * 2, "it has no bias"


@given(st.integers(0, 9), st.integers(1, 20), st.none() | st.integers(1, 25))
def test_pairs_of_a_row_and_a_token_are_counted(start: int, num_rows: int, window: int | None) -> None:
    end, reach = start + num_rows, window or 100
    part = SequencePart(start, num_rows)
    before = [sum(row - reach < token <= row for token in range(end)) for row in range(start, end)]
    both = [sum(row - reach < token < row + reach for token in range(end)) for row in range(start, end)]
    assert part.num_attended(window) == sum(before)
    assert part.num_attended(window, both_sides=True) == sum(both)


def test_experts_are_read_if_any_row_chose_them() -> None:
    program = build_program(config(Family.MIXTRAL))
    experts = costs_of(program, STEP)["experts branch"]
    per_row = 3 * 2 * 8 * 16 + 5 * 16 + 2 * 8
    all_weights = 4 * 3 * 8 * 16 * 2
    # 2 of 4 experts: a given one is passed over by each of 4 rows with probability 1/2
    assert experts == Cost(
        flops=4 * 2 * per_row, weight_bytes=all_weights * (1 - 0.5**4), buffer_bytes=4 * (8 + 4 + 8) * 4
    )
    alone = costs_of(program, StepShape((SequencePart(3, 1),), num_draws=1))["experts branch"]
    assert alone.weight_bytes == all_weights / 2


def test_fused_operators_read_and_write_once() -> None:
    costs = costs_of(fuse(build_program(config(num_layers=1))), STEP)
    assert costs["linear q_k_v"] == Cost(flops=2 * 4 * 8 * 16, weight_bytes=8 * 16 * 2, buffer_bytes=4 * (8 + 16) * 4)
    # queries and keys are turned: 8 + 4 numbers of 4 rows are read and written; values and angles only read
    assert costs["rope_write_kv qk"] == Cost(
        flops=4 * (8 + 4) * 3, kv_bytes=4 * (4 + 4) * 1, buffer_bytes=4 * (8 + 4 + 4 + 4 + 8 + 4) * 4
    )
    assert costs["paged_attention attended"].kv_bytes == 14 * 8
    # the residual is read, added to and written
    assert costs["linear_add hidden"] == Cost(
        flops=2 * 4 * 16 * 8 + 4 * 8, weight_bytes=16 * 8 * 2, buffer_bytes=4 * (16 + 8 + 8) * 4
    )
    assert costs["gated_linear activated"] == Cost(
        flops=2 * 4 * 8 * 32 + 5 * 4 * 16, weight_bytes=8 * 32 * 2, buffer_bytes=4 * (8 + 16) * 4
    )


def test_parts_of_an_operator_cost_what_they_cover() -> None:
    program = build_program(replace(config(num_layers=1), intermediate_size=64))
    parts = insert_polls(split_operators(program, even_plan(program, 2)))
    costs = program_costs(parts, STEP, SIZES)
    by_kind = [(one.kind, cost) for one, cost in zip(parts.operators, costs, strict=True)]
    # 1 + 3 rows: no sequence begins between the middle and the end, so the first part has all
    assert [cost for kind, cost in by_kind if kind is OperatorKind.PAGED_ATTENTION] == [
        Cost(flops=17 * 4 * 8, kv_bytes=14 * 8 * 1, buffer_bytes=2 * 4 * 8 * 4),
        Cost(),
    ]
    even = StepShape((SequencePart(10, 1), SequencePart(4, 1)), num_draws=2)
    attention = [
        cost
        for one, cost in zip(parts.operators, program_costs(parts, even, SIZES), strict=True)
        if one.kind is OperatorKind.PAGED_ATTENTION
    ]
    assert [(cost.flops, cost.kv_bytes) for cost in attention] == [(11 * 4 * 8, 11 * 8), (5 * 4 * 8, 5 * 8)]
    gates = [cost for one, cost in zip(parts.operators, costs, strict=True) if one.outputs == ("gate[32:64]",)]
    assert gates == [Cost(flops=2 * 4 * 8 * 32, weight_bytes=8 * 32 * 2, buffer_bytes=4 * (8 + 32) * 4)]
    assert {cost for kind, cost in by_kind if kind is OperatorKind.POLL} == {Cost()}


def test_a_ring_sends_each_part_twice_to_add_and_once_to_gather() -> None:
    whole = build_program(replace(config(num_layers=1), num_heads=4, num_kv_heads=4))
    costs = costs_of(tensor_parallel(whole, 1, 4), STEP)
    # 4 rows of 8 numbers of 4 bytes: 3 of 4 parts are sent to be summed, and 3 sums; a device sums 3 times its part
    assert costs["all_reduce branch"] == Cost(flops=3 * 8, buffer_bytes=2 * 128, wire_bytes=2 * 3 / 4 * 128)
    # one row of 32 logits: a device sends its own 8, and passes on 2 others
    assert costs["all_gather logits"] == Cost(buffer_bytes=(8 + 32) * 4, wire_bytes=3 * 8 * 4)
    rates = DeviceRates(bytes_per_s=1e9, flops_per_s=1e9, wire_bytes_per_s=96.0)
    assert rates.seconds(costs["all_reduce branch"]) == 2.0


@pytest.mark.parametrize("family", Family)
def test_every_operator_of_every_family_has_a_cost(family: Family) -> None:
    program = build_program(config(family))
    costs = program_costs(program, STEP, SIZES)
    free = {OperatorKind.EMBEDDING, OperatorKind.SELECT_DRAWS, OperatorKind.WRITE_KV, OperatorKind.SEGMENT_EMBEDDING}
    for operator, cost in zip(program.operators, costs, strict=True):
        assert (cost.flops == 0) == (operator.kind in free)
        assert cost.num_bytes > 0
    assert total(costs).num_bytes == sum(cost.num_bytes for cost in costs)
    # the rule of thumb: two operations for each weight and row, here of the layers alone
    in_layers = [weight for weight in program.weights if weight.name.startswith("layers.") and len(weight.shape) == 2]
    products = sum(2 * 4 * weight.shape[0] * weight.shape[1] for weight in in_layers)
    assert total(costs).flops > products


def test_the_longer_of_memory_and_compute_bounds_the_time() -> None:
    rates = DeviceRates(bytes_per_s=10.0, flops_per_s=100.0)
    assert rates.seconds(Cost(flops=50.0, weight_bytes=20.0, kv_bytes=10.0, buffer_bytes=10.0)) == 4.0
    assert rates.seconds(Cost(flops=500.0, weight_bytes=20.0)) == 5.0


def test_an_even_step() -> None:
    assert even_step(5, 2, 9) == StepShape((SequencePart(6, 3), SequencePart(7, 2)), 2)
    assert even_step(3, 0, 3) == StepShape((SequencePart(0, 3),), 0)
    with pytest.raises(ValueError, match="3 draws need 3 rows"):
        even_step(2, 3, 9)
    with pytest.raises(ValueError, match="4 tokens cannot have 5 rows"):
        even_step(5, 1, 4)


def test_layers_that_are_the_same_are_folded() -> None:
    found = sections(build_program(config(num_layers=5, windows=(None, None, 3, 3, None))))
    assert [(section.layer, section.num_same) for section in found] == [(None, 1), (0, 2), (2, 2), (4, 1), (None, 1)]
    assert [operator.kind for operator in found[0].operators] == [OperatorKind.EMBEDDING, OperatorKind.ROPE_ANGLES]
    assert [operator.kind for operator in found[-1].operators] == [
        OperatorKind.SELECT_DRAWS,
        OperatorKind.RMS_NORM,
        OperatorKind.LINEAR,
    ]
    assert len(found[1].operators) == 16
    # rows are chosen within the last layer: it is another than those before, and goes on behind the choice
    early = sections(early_draws(build_program(config(num_layers=5))))
    assert [(section.layer, section.num_same) for section in early] == [(None, 1), (0, 4), (4, 1), (None, 1)]
    assert [operator.kind for operator in early[-1].operators] == [OperatorKind.RMS_NORM, OperatorKind.LINEAR]
    learned = sections(build_program(config(Family.GPT2, num_layers=3)))
    assert [operator.kind for operator in learned[0].operators] == [
        OperatorKind.EMBEDDING,
        OperatorKind.EMBEDDING,
        OperatorKind.ADD,
    ]
    assert [(section.layer, section.num_same) for section in learned] == [(None, 1), (0, 3), (None, 1)]
