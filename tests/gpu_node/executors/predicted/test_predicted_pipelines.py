"""A predicted device in a live node: full steps are the schedule of a pipeline, as a simulated device has them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gpu_node.engine.border.plan import ScheduledSequence, StepPlan
from gpu_node.engine.engine import Engine
from gpu_node.executors.predicted.virtual import VirtualExecutor
from services.simulator.devices.catalogue import device, with_pipeline
from shared.config.engines.engine import EngineOptions, ModelSpec
from shared.config.hardware import device_named, model_named, step_cost
from shared.config.pipelines.pipeline_file import FORMAT, PUBLISHED, SEARCH_AGAIN, PipelineFile, PipelineOperator
from shared.config.pipelines.pipelines import Pipelines
from shared.files.model_file import ModelFileError
from shared.messages.requests.payload import Payload, Sampling
from shared.pipelines.step_pipeline import StepPipeline
from tests.gateway.tiny import END, write_model

ROWS, US = 64, 1e-6
OPTIONS = EngineOptions(step_tokens=ROWS, async_scheduling=False)
FILE = PipelineFile(
    FORMAT,
    *("llama-3-8b", "a100", 1, ROWS),
    profile=PUBLISHED,
    gap=0.0,
    layer_s=50 * US,
    sequential_s=100 * US,
    operators=(
        PipelineOperator("UGD", (0, ROWS), "compute", 0.6, 0.0, 50 * US),
        PipelineOperator("DecAttn", (0, ROWS), "memory", 0.4, 0.0, 50 * US),
    ),
)
"""A product beside the attention of a layer, whose 40 µs last 50 at .4; one after another they take 100."""
COST = step_cost(device_named("a100"), model_named("llama-3-8b"))


@pytest.fixture(scope="module")
def spec(tmp_path_factory: pytest.TempPathFactory) -> ModelSpec:
    path = write_model(tmp_path_factory.mktemp("models") / "tiny.gguf")
    return ModelSpec(name="m", source=str(path), predict_as="llama-3-8b", max_model_len=2048)


def named(file: PipelineFile) -> Pipelines:
    return Pipelines("some.json", ROWS, (file,))


def step(num_rows: int, start: int = 0) -> StepPlan:
    blocks = tuple(range((start + num_rows) // OPTIONS.block_size + 1))
    return StepPlan((ScheduledSequence(0, (1,) * num_rows, start, blocks, ()),), model="m")


def duration_s(executor: VirtualExecutor, plan: StepPlan) -> float:
    return executor.submit(plan).result().duration_s


def test_a_full_step_takes_what_the_schedule_does_and_a_smaller_one_the_sum(spec: ModelSpec) -> None:
    executor = VirtualExecutor("a100", OPTIONS, named(FILE))
    assert executor.load_model(spec).pipeline_rows == ROWS
    attended = sum(range(1, ROWS + 1))
    plain_s = COST.predict_s(ROWS, ROWS, attended)
    planned = StepPipeline.of(FILE, model_named("llama-3-8b")).planned_tokens
    slowness = ROWS / planned  # of attention, beside what was searched for
    assert slowness < 0.25, "so the line between no attention and a quarter of it is asked"
    # without attention a layer is the product alone, 50 µs of 60 in sequence; with a quarter of it 50 of 70
    sequential_us = 100 - 40 * (1 - slowness)
    assert duration_s(executor, step(ROWS)) == pytest.approx(plain_s * 50 / sequential_us)
    assert duration_s(executor, step(ROWS - 1)) == COST.predict_s(ROWS - 1, ROWS - 1, attended - ROWS)


@pytest.mark.parametrize(("start", "is_shorter"), [(0, True), (700, True), (1900, False)])
def test_it_is_the_time_of_the_simulators_device(spec: ModelSpec, start: int, is_shorter: bool) -> None:
    """With so long a context that attention holds up the layer, that is the plain step's."""
    live = VirtualExecutor("a100", OPTIONS, named(FILE))
    live.load_model(spec)
    simulated = with_pipeline(device("a100", ["llama-3-8b"]), FILE).models["llama-3-8b"]
    for num_rows in (1, ROWS - 1, ROWS):
        plan = step(num_rows, start)
        size = plan.num_tokens, plan.num_context_tokens, plan.num_attended_tokens
        assert duration_s(live, plan) == simulated.predict_s(*size)
        assert (duration_s(live, plan) < COST.predict_s(*size)) is (is_shorter and num_rows == ROWS)


def test_an_engine_counts_which_way_its_steps_went_and_tokens_stay(spec: ModelSpec) -> None:
    sampling = Sampling(max_tokens=3, seed=1, stop_token_ids=[END], ignore_eos=True)
    outputs = []
    for pipelines in (Pipelines(), named(FILE), Pipelines("auto", ROWS)):
        engine = Engine(VirtualExecutor("a100", OPTIONS, pipelines), OPTIONS)
        engine.load_model(spec)
        assert engine.add(Payload("0", 0, "g", "m", [1] * (ROWS + 5), sampling)) == []
        chunks = [chunk for number in range(5) for chunk in engine.step(now=float(number))]
        outputs.append([token for chunk in chunks for token in chunk.token_ids])
        counts = engine.counts
        assert (counts.num_piped, counts.num_small > 0) == ((1, True) if pipelines.files else (0, False))
        assert (counts.num_unknown > 0) is (pipelines.choice == "auto")
    assert outputs[0]
    assert outputs[1:] == outputs[:1] * 2


def test_auto_takes_the_best_that_is_published_of_the_device(spec: ModelSpec) -> None:
    better = replace(FILE, layer_s=45 * US)
    measured = replace(FILE, layer_s=10 * US, profile="measured")
    elsewhere = replace(FILE, layer_s=10 * US, device="h100")
    found = VirtualExecutor("a100", OPTIONS, Pipelines("auto", ROWS, (FILE, measured, better, elsewhere)))
    chosen = VirtualExecutor("a100", OPTIONS, named(better))
    for executor in (found, chosen):
        assert executor.load_model(spec).pipeline_rows == ROWS
    assert duration_s(found, step(ROWS, 900)) == duration_s(chosen, step(ROWS, 900))
    lacking = VirtualExecutor("a100", OPTIONS, Pipelines("auto", ROWS, (measured, elsewhere))).load_model(spec)
    assert (lacking.pipeline_rows, lacking.lacks_pipeline) == (0, True)


@pytest.mark.parametrize(
    ("file", "problem"),
    [
        (replace(FILE, model="mistral-7b"), "the pipeline is for model 'mistral-7b', not 'llama-3-8b'"),
        (replace(FILE, device="h100"), "the pipeline is for device 'h100', not 'a100'"),
        (replace(FILE, rows=32), "the pipeline is for rows 32, not 64"),
        (
            replace(FILE, profile="measured"),
            f"the pipeline's times are 'measured'; a predicted device has '{PUBLISHED}'",
        ),
    ],
)
def test_one_for_something_else_is_refused_with_what_to_do(spec: ModelSpec, file: PipelineFile, problem: str) -> None:
    executor = VirtualExecutor("a100", OPTIONS, named(file))
    with pytest.raises(ModelFileError) as refused:
        executor.load_model(spec)
    assert str(refused.value).startswith(f"engine.pipeline: {problem}; {SEARCH_AGAIN}")
    assert executor.tiers == {}


def test_a_node_gives_its_pipelines_to_the_device(spec: ModelSpec, tmp_path: Path) -> None:
    """As the engine's process makes it."""
    from gpu_node.executors.node_executor import make_executor
    from shared.config.nodes.nodes import NodeSpec
    from shared.config.pipelines.pipeline_file import encode_pipeline
    from shared.config.pipelines.pipelines import read_pipelines

    path = tmp_path / "p.json"
    path.write_text(encode_pipeline(replace(FILE, device="a10")))
    pipelines = read_pipelines(replace(OPTIONS, pipeline=str(path)), tmp_path)
    node = NodeSpec(name="n", executor="predicted", device="a100")
    with pytest.raises(ModelFileError, match="the pipeline is for device 'a10', not 'a100'"):
        make_executor(node, OPTIONS, pipelines).load_model(spec)
