"""What adapters add to a program: behind each product that one of them changes, cut as the product's weight is."""

from __future__ import annotations

import pytest

from gpu_node.graph.cost import NumberBytes, program_costs
from gpu_node.graph.passes.adapt import adapt
from gpu_node.graph.passes.fuse import fuse
from gpu_node.graph.passes.tensor_parallel import tensor_parallel
from gpu_node.graph.program import Operator, OperatorKind, Program
from gpu_node.graph.step_shape import even_step
from gpu_node.models.architectures.families import build_program
from tests.gpu_node.family_programs import CONFIGS, HEAD_DIM, HEADS, KV_HEADS, config

RANKS = {"layers.0.k": 4, "layers.0.down": 4, "layers.0.up": 4}
LORA = OperatorKind.LORA


def plain() -> Program:
    return build_program(config(**CONFIGS["qwen3"]))


def behind_products(program: Program) -> list[tuple[str, Operator]]:
    """Each change, with the weight of the product before it."""
    found, product = [], ""
    for operator in program.operators:
        if operator.kind is LORA:
            found.append((product, operator))
        elif operator.weights:
            product = operator.weights[0]
    return found


def test_a_program_without_adapters_stays_as_it_is() -> None:
    program = plain()
    assert adapt(program, {}, 0) is program


def test_a_change_stands_behind_its_product() -> None:
    adapted = adapt(plain(), RANKS, 3)
    changes = [(one, change.inputs, change.outputs, change.weights) for one, change in behind_products(adapted)]
    assert changes == [
        ("layers.0.k", ("normed", "k"), ("k",), ("layers.0.k.lora_a", "layers.0.k.lora_b")),
        ("layers.0.up", ("normed", "up"), ("up",), ("layers.0.up.lora_a", "layers.0.up.lora_b")),
        ("layers.0.down", ("activated", "branch"), ("branch",), ("layers.0.down.lora_a", "layers.0.down.lora_b")),
    ]
    shapes = {weight.name: weight.shape for weight in adapted.weights}
    outputs, inputs = shapes["layers.0.down"]
    assert shapes["layers.0.down.lora_a"] == (3, 4, inputs)
    assert shapes["layers.0.down.lora_b"] == (3, outputs, 4)


def test_of_joined_products_each_is_changed_in_its_own_columns() -> None:
    adapted = adapt(fuse(plain()), RANKS, 3)
    (joined, k), (gated, up), (down, branch) = behind_products(adapted)
    assert (joined, gated, down) == ("layers.0.q_k_v", "layers.0.gate_up", "layers.0.down")
    assert (k.inputs[0], up.inputs[0], branch.inputs) == ("normed", "normed", ("activated", "hidden"))
    buffers = {buffer.name: buffer for buffer in adapted.buffers}
    keys = buffers[k.outputs[0]]
    assert (keys.view_of, keys.first_column, keys.num_columns) == ("q_k_v", HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM)
    inner = buffers["activated"].num_columns
    own = buffers[up.outputs[0]]
    assert (own.view_of, own.first_column, own.num_columns) == ("activated_gate_up", inner, inner)
    kinds = [one.kind for one in adapted.operators if "activated" in one.outputs]
    assert kinds == [OperatorKind.SILU_MUL, OperatorKind.GATED_LINEAR], "the second layer has no changes"


@pytest.mark.parametrize("rank", [0, 1])
def test_each_device_of_a_group_has_the_box_of_its_product(rank: int) -> None:
    adapted = adapt(tensor_parallel(plain(), rank, 2), RANKS, 3)
    weights = {weight.name: weight for weight in adapted.weights}
    (_, k), _, (_, down) = behind_products(adapted)
    (outputs, inputs) = weights[k.weights[1]].shape[1], weights[down.weights[0]].shape[2]
    assert weights[k.weights[1]].sources[0].ranges[1] == (rank * outputs, (rank + 1) * outputs)
    assert weights[down.weights[0]].sources[0].ranges[2] == (rank * inputs, (rank + 1) * inputs)
    kinds = [operator.kind for operator in adapted.operators]
    assert kinds[kinds.index(LORA, adapted.operators.index(down)) + 1] is OperatorKind.ALL_REDUCE


def test_what_a_change_costs() -> None:
    """10 rows, rank 4, of 3 adapters one: 2 x 10 x 4 x (inputs + outputs), a sum a number, and two small matrices."""
    program = adapt(plain(), {"layers.0.down": 4}, 3)
    shapes = {weight.name: weight.shape for weight in program.weights}
    outputs, inputs = shapes["layers.0.down"]
    costs = program_costs(program, even_step(10, 1, 10), NumberBytes(2, 4, 2))
    (cost,) = (cost for one, cost in zip(program.operators, costs, strict=True) if one.kind is LORA)
    assert cost.flops == 2 * 10 * 4 * (inputs + outputs) + 10 * outputs
    assert cost.weight_bytes == 2 * 4 * (inputs + outputs)
    assert cost.buffer_bytes == 4 * 10 * (inputs + 2 * outputs)
