"""Rows gathered around the product O beside rows summed behind it: the same numbers, and other collectives."""

from __future__ import annotations

from fractions import Fraction
from functools import partial

import pytest
import torch

from gpu_node.graph.passes.optimize import optimize
from gpu_node.graph.passes.pipeline.gather_output import gather_output
from gpu_node.graph.passes.pipeline.nano_batches import nano_batches
from gpu_node.graph.passes.tensor_parallel import tensor_parallel
from gpu_node.graph.program import Operator, OperatorKind, Program
from gpu_node.graph.share import Part, Range
from gpu_node.models.architectures.families import build_program
from services.pipeline.operators.setting import Setting
from services.pipeline.reports.search_report import pipeline_file
from services.pipeline.search.search import SearchBudget, search
from shared.config.hardware import model_named
from shared.config.pipelines.pipeline_file import PUBLISHED, PipelineError, PipelineFile
from shared.pipelines.batch import DenseBatch, MeanLengths
from shared.pipelines.machine import machine
from tests.gpu_node.family_programs import CONFIGS, config, logits_of, of_program, random_weights
from tests.gpu_node.thread_group import run_ranks

WORLD = 2
PARTS = [Range(), Range(Part.ALL, Fraction(1, 3), Fraction(1))]


def ranks(program: Program) -> list[Program]:
    return [optimize(tensor_parallel(program, rank, WORLD)) for rank in range(WORLD)]


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("gathered", PARTS)
def test_gathered_rows_have_the_numbers_of_summed_ones(name: str, gathered: Range) -> None:
    model = config(**CONFIGS[name])
    plain = build_program(model)
    stored = random_weights(model, plain)
    programs = [gather_output(program, gathered) for program in ranks(plain)]
    first, second = run_ranks([partial(logits_of, model, one, of_program(one, stored)) for one in programs])
    assert first.equal(second)
    torch.testing.assert_close(first, logits_of(model, plain, stored), rtol=1e-4, atol=1e-4)


def collectives(program: Program, layer: int) -> list[Operator]:
    """From the layer's attention to the norm behind it."""
    kinds = [one.kind for one in program.operators]
    begin = [at for at, kind in enumerate(kinds) if kind is OperatorKind.PAGED_ATTENTION][layer]
    end = next(at for at in range(begin, len(kinds)) if kinds[at] is OperatorKind.RMS_NORM)
    wanted = OperatorKind.ALL_GATHER, OperatorKind.ALL_REDUCE
    return [one for one in program.operators[begin:end] if one.kind in wanted]


def test_a_gather_on_either_side_of_the_product_and_a_sum_for_the_rest() -> None:
    program = ranks(build_program(config(**CONFIGS["llama3"])))[0]
    assert [one.kind for one in collectives(gather_output(program, PARTS[0]), 0)] == [OperatorKind.ALL_GATHER] * 2
    both = collectives(gather_output(program, PARTS[1]), 0)
    assert [one.kind for one in both] == [OperatorKind.ALL_GATHER] * 2 + [OperatorKind.ALL_REDUCE]
    assert [str(one.share) for one in both] == ["all 1/3–1", "all 1/3–1", "all 0–1/3"]


def test_one_device_gathers_nothing() -> None:
    program = optimize(build_program(config(**CONFIGS["llama3"])))
    assert gather_output(program, PARTS[0]) == program


def test_columns_that_do_not_divide_are_refused() -> None:
    program = optimize(tensor_parallel(build_program(config(**CONFIGS["qwen3"], hidden_size=65)), 0, WORLD))
    with pytest.raises(PipelineError, match=r"65 columns of .* do not divide among 2 devices"):
        gather_output(program, PARTS[0])


# --- what is searched is what engines run -----------------------------------------------------------------------------

SHORT = SearchBudget(num_plays=300, structure_s=0.0, allocation_s=0.0, num_cuts=1, max_parts=2, copies_allocation_s=0.0)


def searched(num: int) -> PipelineFile:
    """By the tables, with up and down of the feed-forward network apart; of a group, gathered or summed."""
    group, model = machine("a100", num), model_named("llama-3-8b")
    batch = DenseBatch(512, MeanLengths(1024, 512))
    found = search(Setting.published(group, model, batch), SHORT, lambda: 0.0)
    return pipeline_file(found, group, model, batch, PUBLISHED)


def test_a_published_pipeline_runs_on_one_device() -> None:
    file = searched(1)
    assert {"AttnNorm", "UG", "D"} <= {one.name for one in file.operators}
    model = config(**CONFIGS["llama3"])
    plain = build_program(model)
    stored = random_weights(model, plain)
    piped = nano_batches(optimize(plain), file)
    ours = logits_of(model, piped, of_program(piped, stored), choose=lambda number: number - 1)
    torch.testing.assert_close(ours, logits_of(model, plain, stored), rtol=1e-4, atol=1e-4)


def test_a_published_pipeline_runs_on_a_group() -> None:
    file = searched(WORLD)
    assert {one.name for one in file.operators} >= {"UG", "D", "UGD.AR"}
    model = config(**CONFIGS["llama3"])
    plain = build_program(model)
    stored = random_weights(model, plain)
    work = []
    for program in ranks(plain):
        piped = nano_batches(program, file)
        work.append(partial(logits_of, model, piped, of_program(piped, stored), choose=lambda number: number - 1))
    first, second = run_ranks(work)
    assert first.equal(second)
    torch.testing.assert_close(first, logits_of(model, plain, stored), rtol=1e-4, atol=1e-4)
