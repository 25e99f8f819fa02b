"""A step is the schedule of its nano-operators: durations by hand, plain steps below the pipeline's batch, refusals."""

from __future__ import annotations

from dataclasses import replace

import pytest

from services.pipeline.operators.setting import Setting
from services.pipeline.reports.search_report import pipeline_file
from services.pipeline.search.search import QUICK, search
from services.simulator.devices.catalogue import device, with_pipeline
from services.simulator.devices.device import ModelOnDevice
from shared.config.hardware import model_named
from shared.config.pipelines.pipeline_file import FORMAT, PUBLISHED, PipelineError, PipelineFile, PipelineOperator
from shared.messages.nodes.step_cost import StepCost
from shared.pipelines.batch import DenseBatch, MeanLengths
from shared.pipelines.machine import machine
from shared.pipelines.step_pipeline import StepPipeline

US = 1e-6
FILE = PipelineFile(
    FORMAT,
    *("llama-3-8b", "a100", 1, 512),
    profile=PUBLISHED,
    gap=0.0,
    layer_s=100 * US,
    sequential_s=100 * US,
    operators=(
        PipelineOperator("UGD", (0, 512), "compute", 0.6, 0.0, 100 * US),
        PipelineOperator("DecAttn", (0, 256), "memory", 0.4, 100 * US, 150 * US),
    ),
)
"""A product of 60 µs at .6, beside the attention of the layer before, whose 40 µs last 50 at .4."""

COST = StepCost(step_s=0.0, token_s=60 * US, context_token_s=40 * US)
"""A step of one row and one token: 60 µs of products and 40 of attention, as the layer has them."""


def test_a_step_takes_of_its_plain_time_what_the_schedule_takes_of_a_sequential_layer() -> None:
    pipeline = StepPipeline(FILE, num_layers=10, planned_tokens=1.0)
    # nine periods of 100 µs and a span of 150: 105 a layer, which takes 100 one after another
    assert pipeline.step_s(COST, 1, 1, 0) == pytest.approx(105 * US)
    # half the context: attention lasts 25 and is still behind the product: 102.5 of 80
    assert pipeline.step_s(COST, 1, 0.5, 0) == pytest.approx(102.5 * US)
    # four times: attention lasts 200, the period is that, and the span 300: 210 of 220
    assert pipeline.step_s(COST, 1, 4, 0) == pytest.approx(210 * US)


def test_smaller_steps_are_plain_and_a_slower_pipeline_is_not_taken() -> None:
    model = ModelOnDevice(COST, 1, 1, 1.0, 1.0, StepPipeline(replace(FILE, rows=2), num_layers=10, planned_tokens=2.0))
    assert model.predict_s(1, 4) == pytest.approx(COST.predict_s(1, 4)), "one row of two"
    # two rows and eight tokens are twice the step above
    assert model.predict_s(2, 8) == pytest.approx(420 * US)
    assert COST.predict_s(2, 8) == pytest.approx(440 * US)
    assert model.predict_s(2, 2) == pytest.approx(200 * US), "the pipeline would take 210"


def test_operators_that_did_not_overlap_never_come_to_overlap() -> None:
    # a product at .5, then attention at .9, at which it keeps .95: twice as long, it holds the next product up
    slots = (replace(FILE.operators[0], r=0.5), replace(FILE.operators[1], r=0.9, start_s=100 * US, end_s=140 * US))
    best_us = 40 * 0.95
    pipeline = StepPipeline(replace(FILE, operators=slots, layer_s=140 * US), num_layers=1_000_000, planned_tokens=1.0)
    plain = StepCost(0.0, (100 - best_us) * US, best_us * US)
    assert pipeline.step_s(plain, 1, 1, 0) == pytest.approx(140 * US, rel=1e-5)
    assert pipeline.step_s(plain, 1, 2, 0) == pytest.approx(180 * US, rel=1e-5)


def test_copies_to_the_host_are_a_part_of_the_schedule() -> None:
    copy = PipelineOperator("Copy", (0, 512), "copy", 0.1, 0.0, 120 * US)
    hidden = replace(copy, end_s=90 * US)
    for one, layer_us in ((hidden, 100), (copy, 120)):
        file = replace(FILE, operators=(*FILE.operators, one), layer_s=layer_us * US)
        pipeline = StepPipeline(file, num_layers=1_000_000, planned_tokens=1.0)
        assert pipeline.step_s(COST, 1, 1, 0) == pytest.approx(layer_us * US, rel=1e-5)


def test_what_no_predicted_device_can_run() -> None:
    with pytest.raises(PipelineError, match="a predicted device has"):
        StepPipeline(replace(FILE, profile="measured"), 32, 1.0)


def test_contexts_that_were_planned_for_are_found_in_the_file() -> None:
    # a search for llama-3-8b with so many tokens in its contexts: 1,152 / 3 decodes of 1,280
    group, model, batch = machine("a100", 1), model_named("llama-3-8b"), DenseBatch(1152, MeanLengths(1024, 512))
    budget = replace(QUICK, num_plays=200, structure_s=0.1, allocation_s=0.0)
    found = search(Setting.published(group, model, batch), budget, lambda: 0.0)
    pipeline = StepPipeline.of(pipeline_file(found, group, model, batch, PUBLISHED), model)
    assert pipeline.planned_tokens == pytest.approx(384 * 1280, rel=0.01)


def test_devices_with_the_model_run_it_and_others_are_as_they_were() -> None:
    a100, a10 = device("a100", ["llama-3-8b", "mistral-7b"]), device("a10", ["mistral-7b"])
    piped = with_pipeline(a100, FILE)
    pipeline = piped.models["llama-3-8b"].pipeline
    assert pipeline is not None
    assert (pipeline.file, pipeline.num_layers) == (FILE, 32)
    assert piped.models["mistral-7b"].pipeline is None
    assert with_pipeline(a10, FILE) is a10
