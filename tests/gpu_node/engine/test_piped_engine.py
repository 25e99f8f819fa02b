"""Engines in pipelines: every family has the tokens of the plain path; which steps go through one; what is refused."""

from __future__ import annotations

import random
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path

import pytest

from gpu_node.engine.border.plan import BlockSwap, ScheduledSequence, StepPlan
from gpu_node.engine.engine import Engine
from gpu_node.engine.measures.counts import Counts
from gpu_node.executors.cpu.executor import CpuExecutor
from gpu_node.executors.piped import piped
from gpu_node.executors.reference.executor import ReferenceExecutor
from gpu_node.graph.passes.draft import Pass
from gpu_node.graph.passes.offload.offload import offload
from gpu_node.graph.passes.offload.polls import insert_polls
from gpu_node.graph.passes.optimize import optimize
from gpu_node.kernels.cpu import kernels_name
from gpu_node.models.architectures.families import build_program
from shared.config.engines.engine import EngineOptions, ModelSpec
from shared.config.engines.tiers import TierOptions
from shared.config.pipelines.pipelines import NO_PIPELINES, Pipelines, cpu_name
from shared.files.model_file import ModelFileError
from shared.messages.requests.payload import Payload, Sampling
from tests.gpu_node import tiny
from tests.gpu_node.family_programs import CONFIGS, config
from tests.gpu_node.models.test_families_models import FAMILIES, save
from tests.gpu_node.random_pipelines import random_pipeline

OPTIONS = EngineOptions(kv_cache_bytes=1 << 20, step_tokens=24, max_num_seqs=6)
ROWS = 12
"""Steps of so many rows go through the pipeline, and smaller ones do not."""


def requests() -> list[Payload]:
    numbers = random.Random(3)
    payloads = []
    for number in range(10):
        prompt = [numbers.randrange(3, tiny.VOCAB) for _ in range(numbers.randint(1, 20))]
        sampling = Sampling(max_tokens=8, seed=number, temperature=0.0 if number % 2 else 0.8, ignore_eos=True)
        payloads.append(Payload(str(number), 0, "g", "tiny", prompt, sampling))
    return payloads


def answers(engine: Engine) -> dict[str, list[int]]:
    outputs: dict[str, list[int]] = {}
    for payload in requests():
        assert engine.add(payload) == []
    for step in range(200):
        for chunk in engine.step(now=float(step)):
            outputs.setdefault(chunk.request_id, []).extend(chunk.token_ids)
        if not engine.has_work:
            return outputs
    raise AssertionError("requests are left")


def cpu_answers(path: Path, pipelines: Pipelines, num_threads: int) -> tuple[dict[str, list[int]], Counts]:
    with closing(CpuExecutor(OPTIONS, num_threads, pipelines=pipelines)) as executor:
        engine = Engine(executor, OPTIONS)
        engine.load_model(ModelSpec(name="tiny", source=str(path), max_model_len=48))
        return answers(engine), engine.counts


def any_pipeline(seed: int, device: str) -> Pipelines:
    return Pipelines("any.json", ROWS, (random_pipeline(seed, rows=ROWS, device=device),))


@pytest.mark.parametrize("name", FAMILIES)
def test_each_family_has_the_tokens_of_the_plain_path(name: str, tmp_path: Path) -> None:
    save(name, tmp_path)
    plain, counts = cpu_answers(tmp_path, NO_PIPELINES, 1)
    assert (counts.num_piped, counts.num_small, counts.num_unknown) == (0, 0, 0)
    for seed, num_threads in ((1, 1), (2, 2), (3, 3)):
        found, counts = cpu_answers(tmp_path, any_pipeline(seed, cpu_name(num_threads)), num_threads)
        assert found == plain
        assert counts.num_piped > 0
        assert counts.num_small > 0
        assert counts.num_unknown == 0


def test_steps_for_which_nothing_is_known_run_plainly_and_are_counted(tiny_path: Path) -> None:
    plain, _ = cpu_answers(tiny_path, NO_PIPELINES, 1)
    found, counts = cpu_answers(tiny_path, Pipelines("auto", OPTIONS.step_tokens), 1)
    assert found == plain
    assert (counts.num_piped, counts.num_small) == (0, 0)
    assert counts.num_unknown > 0


def test_the_reference_runs_pipelines_in_any_order(tiny_path: Path) -> None:
    spec = ModelSpec(name="tiny", source=str(tiny_path), max_model_len=48)
    found = []
    for pipelines in (NO_PIPELINES, any_pipeline(4, "reference")):
        executor = ReferenceExecutor(OPTIONS, pipelines=pipelines, choose=random.Random(1).randrange)
        engine = Engine(executor, OPTIONS)
        engine.load_model(spec)
        found.append(answers(engine))
        assert (engine.counts.num_piped > 0) is (pipelines is not NO_PIPELINES)
    assert found[0] == found[1]


def test_a_pipeline_of_another_model_is_refused_and_nothing_has_changed(tiny_path: Path) -> None:
    with closing(CpuExecutor(OPTIONS, 1, pipelines=any_pipeline(1, "cpu:1"))) as executor:
        spec = ModelSpec(name="other", source=str(tiny_path), max_model_len=48)
        with pytest.raises(ModelFileError, match="the pipeline is for model 'tiny', not 'other'; search again"):
            executor.load_model(spec)
        assert executor.tiers == {}


def test_a_pipeline_for_other_threads_is_refused(tiny_path: Path) -> None:
    spec = ModelSpec(name="tiny", source=str(tiny_path), max_model_len=48)
    refusal = pytest.raises(ModelFileError, match="the pipeline is for device 'cpu:1', not 'cpu:2'")
    with closing(CpuExecutor(OPTIONS, 2, pipelines=any_pipeline(1, "cpu:1"))) as executor, refusal:
        executor.load_model(spec)


def test_times_of_other_kernels_are_refused_and_those_of_these_are_not(tiny_path: Path) -> None:
    spec = ModelSpec(name="tiny", source=str(tiny_path), max_model_len=48)
    files = [
        replace(random_pipeline(1, rows=ROWS, device="cpu:1"), kernels=name) for name in ("avx2 0", kernels_name())
    ]
    stale, fresh = (Pipelines("any.json", ROWS, (file,)) for file in files)
    refusal = pytest.raises(ModelFileError, match="times of kernels 'avx2 0', and this engine has")
    with closing(CpuExecutor(OPTIONS, 1, pipelines=stale)) as executor, refusal:
        executor.load_model(spec)
    with closing(CpuExecutor(OPTIONS, 1, pipelines=fresh)) as executor:
        assert executor.load_model(spec).pipeline_rows == ROWS


@pytest.mark.parametrize("change", [insert_polls, offload])
def test_a_device_without_links_in_lanes_refuses_programs_that_have_some(change: Pass) -> None:
    program = change(optimize(build_program(config(**CONFIGS["llama3"]))))
    with pytest.raises(ModelFileError, match="this device has no links in lanes; set pipeline or offload to off"):
        piped(program, ModelSpec(name="tiny", source=""), any_pipeline(1, "cuda"), "cuda", links_in_lanes=False)


@pytest.mark.parametrize("kind", ["reference", "cpu"])
def test_full_blocks_are_copied_to_the_host_in_lanes(kind: str, tiny_path: Path, tmp_path: Path) -> None:
    """Two blocks go to the host while a step computes on others: there they are bit by bit, as before a plain step."""
    options = replace(OPTIONS, block_size=4, tiers=TierOptions(host_bytes=1 << 20))
    found = []
    for pipelines in (NO_PIPELINES, any_pipeline(6, "reference" if kind == "reference" else cpu_name(2))):
        executor: CpuExecutor | ReferenceExecutor
        with ExitStack() as resources:
            if kind == "reference":
                executor = ReferenceExecutor(options, pipelines=pipelines, choose=random.Random(2).randrange)
            else:
                executor = resources.enter_context(closing(CpuExecutor(options, 2, pipelines=pipelines)))
            model = executor.load_model(ModelSpec(name="tiny", source=str(tiny_path), max_model_len=48))
            executor.submit(plan_of(list(range(3, 11)), [0, 1])).result()
            copies = BlockSwap(0, 5), BlockSwap(1, 2)
            executor.submit(replace(plan_of(list(range(20, 36)), [2, 3, 4, 5]), copies_out=copies)).result()
            assert model.is_piped(16) is (pipelines is not NO_PIPELINES)
            here, _ = executor.read_blocks("tiny", [0, 1], swapped_out=False)
            there, _ = executor.read_blocks("tiny", [5, 2], swapped_out=True)
            assert any(here)
            assert bytes(there) == bytes(here)
            found.append(bytes(there))
    assert found[0] == found[1]


def plan_of(token_ids: list[int], blocks: list[int]) -> StepPlan:
    return StepPlan((ScheduledSequence(0, tuple(token_ids), 0, tuple(blocks), ()),), model="tiny")
