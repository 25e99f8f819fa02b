"""Passes in any order that they allow: a program that can be run, the same logits, and no operation lost or made."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import partial, reduce

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gpu_node.graph.cost import NumberBytes, program_costs
from gpu_node.graph.passes.draft import Pass
from gpu_node.graph.passes.early_draws import early_draws
from gpu_node.graph.passes.fuse import fuse
from gpu_node.graph.passes.named import parse_passes
from gpu_node.graph.passes.offload.offload import offload
from gpu_node.graph.passes.offload.polls import insert_polls
from gpu_node.graph.passes.offload.split import is_splittable, split_operators
from gpu_node.graph.passes.optimize import optimize
from gpu_node.graph.passes.pipeline.copy_out import copy_out
from gpu_node.graph.passes.pipeline.nano_batches import nano_batches
from gpu_node.graph.passes.tensor_parallel import tensor_parallel
from gpu_node.graph.program import ATTENTIONS, Program
from gpu_node.graph.step_shape import SequencePart, StepShape
from gpu_node.models.architectures.families import build_program
from tests.gpu_node.batch_cuts import RandomCuts
from tests.gpu_node.family_programs import CONFIGS, config, logits_of, of_program, random_weights
from tests.gpu_node.random_pipelines import random_pipeline
from tests.gpu_node.thread_group import run_ranks

STEP = StepShape((SequencePart(9, 40), SequencePart(50, 1), SequencePart(3, 1)), num_draws=2)
MAX_PARTS = 4
MAX_SPLITS = 2


def split_at_random(program: Program, seed: int) -> Program:
    """Each operator that can be cut, into a number of parts of its own."""
    numbers = random.Random(seed)
    cuttable = [index for index, operator in enumerate(program.operators) if is_splittable(operator)]
    return split_operators(program, {index: numbers.randint(1, MAX_PARTS) for index in cuttable})


splits = st.integers(0, 1 << 16).map(lambda seed: partial(split_at_random, seed=seed))
cuts = st.integers(0, 1 << 16).map(RandomCuts)
passes: st.SearchStrategy[Pass] = st.sampled_from([early_draws, fuse, insert_polls]) | splits


def changed(program: Program, changes: Sequence[Pass]) -> Program:
    """After each pass the program is checked."""
    for change in changes:
        program = change(program)
        program.check()
    return program


def some_passes(most: int) -> st.SearchStrategy[list[Pass]]:
    """The batch is cut once at most, since each cut doubles what there is to run.

    Behind a cut, rows that draw nothing would leave from some operators only: how many, nobody knows beforehand. Splits
    come twice at most, for the same reason: five of them and a cut make a program whose check takes minutes.
    """
    behind = st.lists(passes.filter(lambda change: change is not early_draws), max_size=2)

    def joined(some: tuple[list[Pass], RandomCuts | None, list[Pass]]) -> list[Pass]:
        before, cut, others = some
        return before if cut is None else [*before, cut, *others]

    def is_small(changes: list[Pass]) -> bool:
        return sum(isinstance(change, partial) for change in changes) <= MAX_SPLITS

    return st.tuples(st.lists(passes, max_size=most), st.none() | cuts, behind).map(joined).filter(is_small)


def flops(program: Program) -> float:
    return sum(cost.flops for cost in program_costs(program, STEP, NumberBytes()))


def attention_flops(program: Program) -> float:
    costs = program_costs(program, STEP, NumberBytes())
    return sum(cost.flops for one, cost in zip(program.operators, costs, strict=True) if one.kind in ATTENTIONS)


@pytest.mark.parametrize("name", CONFIGS)
@given(changes=some_passes(4))
@settings(max_examples=12, deadline=None)
def test_passes_in_any_order_change_neither_logits_nor_operations(name: str, changes: list[Pass]) -> None:
    model = config(**CONFIGS[name])
    plain = build_program(model)
    stored = random_weights(model, plain)
    program = changed(plain, changes)
    ours = logits_of(model, program, of_program(program, stored))
    torch.testing.assert_close(ours, logits_of(model, plain, stored), rtol=1e-4, atol=1e-4)
    base = early_draws(plain) if early_draws in changes else plain
    assert flops(program) == flops(base)


@pytest.mark.parametrize("name", CONFIGS)
@given(before=st.booleans(), changes=some_passes(3))
@settings(max_examples=6, deadline=None)
def test_two_ranks_give_the_logits_of_one_after_any_passes(name: str, before: bool, changes: list[Pass]) -> None:
    model = config(**CONFIGS[name])
    plain = build_program(model)
    stored = random_weights(model, plain)
    first = early_draws(plain) if before else plain
    divided = [tensor_parallel(first, rank, 2) for rank in range(2)]
    ranks = [changed(program, changes) for program in divided]
    work = [partial(logits_of, model, program, of_program(program, stored)) for program in ranks]
    both = run_ranks(work)
    assert both[0].equal(both[1])
    torch.testing.assert_close(both[0], logits_of(model, plain, stored), rtol=1e-4, atol=1e-4)
    assert sum(map(attention_flops, ranks)) == attention_flops(plain)
    base = map(early_draws, divided) if early_draws in changes else divided
    assert list(map(flops, ranks)) == list(map(flops, base))


@pytest.mark.parametrize("name", CONFIGS)
@given(seed=st.integers(0, 1 << 16), changes=some_passes(2))
@settings(max_examples=4, deadline=None)
def test_a_pipeline_behind_any_passes_changes_no_bit(name: str, seed: int, changes: list[Pass]) -> None:
    """On one device and on two; in an order of each rank's own. With copies to the host, or with what sends."""
    model = config(**CONFIGS[name])
    plain = build_program(model)
    stored = random_weights(model, plain)
    program = changed(plain, changes)
    forms: list[list[Pass]] = [[], [copy_out], [offload]]
    piped = changed(program, [*forms[seed % 3], partial(nano_batches, pipeline=random_pipeline(seed))])
    listed = logits_of(model, piped, of_program(piped, stored))
    choose = random.Random(seed).randrange
    assert logits_of(model, piped, of_program(piped, stored), choose=choose).equal(listed)
    assert flops(piped) == flops(program)
    work = []
    for rank in range(2):
        both = changed(tensor_parallel(plain, rank, 2), changes)
        ranked = nano_batches(both, random_pipeline(seed, num_devices=2))
        choose = random.Random(rank).randrange
        work.append(partial(logits_of, model, ranked, of_program(ranked, stored), choose=choose))
    first, second = run_ranks(work)
    assert first.equal(second)
    torch.testing.assert_close(first, listed, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", CONFIGS)
def test_early_draws_and_two_ranks_may_come_in_either_order(name: str) -> None:
    plain = build_program(config(**CONFIGS[name]))
    for rank in range(2):
        one, other = early_draws(tensor_parallel(plain, rank, 2)), tensor_parallel(early_draws(plain), rank, 2)
        assert one.operators == other.operators


@pytest.mark.parametrize("name", CONFIGS)
def test_the_optimized_program_is_named_by_its_passes(name: str) -> None:
    plain = build_program(config(**CONFIGS[name]))
    assert reduce(lambda program, change: change(program), parse_passes("early-draws,fuse"), plain) == optimize(plain)
