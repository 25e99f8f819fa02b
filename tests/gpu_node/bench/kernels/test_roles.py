"""Which operators make up which part of a layer, of every family; programs without some of them."""

from __future__ import annotations

import pytest

from gpu_node.bench.kernels.roles import ATTENTION, FEED_FORWARD, KQV, OUTPUT, ROLES, num_layers, roles, without
from gpu_node.graph.passes.optimize import optimize
from gpu_node.models.architectures.families import build_program
from tests.gpu_node.family_programs import CONFIGS, LAYERS, config


def test_the_layer_of_a_llama() -> None:
    program = build_program(config(**CONFIGS["llama3"]))
    first = [(operator.kind.value, role) for operator, role in zip(program.operators, roles(program), strict=True)]
    begin = next(number for number, (_, role) in enumerate(first) if role)
    end = next(number for number, (_, role) in enumerate(first) if role == FEED_FORWARD)
    by_role = {role: [kind for kind, one in first[begin : end + 1] if one == role] for role in ROLES}
    assert "rms_norm" in by_role[KQV]
    assert by_role[ATTENTION] == ["paged_attention"]
    assert by_role[OUTPUT][0].startswith("linear")
    assert by_role[FEED_FORWARD] == ["rms_norm"], "its first operator is the norm"


@pytest.mark.parametrize("family", CONFIGS)
def test_each_family_has_all_parts_in_each_layer(family: str) -> None:
    program = build_program(config(**CONFIGS[family]))
    assert num_layers(program) == dict.fromkeys(ROLES, LAYERS)
    found = roles(program)
    assert found[0] is None, "the table of words is of no layer"
    assert found[-1] is None, "nor are the logits"


@pytest.mark.parametrize("family", CONFIGS)
def test_behind_the_attention_of_the_last_layer_only_rows_that_draw_are_computed(family: str) -> None:
    counts = num_layers(optimize(build_program(config(**CONFIGS[family]))))
    assert counts[KQV] == counts[ATTENTION] == LAYERS
    assert counts[OUTPUT] == counts[FEED_FORWARD] == LAYERS - 1


@pytest.mark.parametrize("left_out", ROLES)
def test_what_is_left_out_is_not_there_and_all_else_is(left_out: str) -> None:
    program = optimize(build_program(config(**CONFIGS["llama3"])))
    found = roles(program)
    rest = without((left_out,))(program)
    assert left_out in found
    assert list(rest.operators) == [
        operator for operator, role in zip(program.operators, found, strict=True) if role != left_out
    ]
