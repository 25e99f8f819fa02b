"""A point on a tiny model: candidates that can be run, steps that are full, and the same tokens each way."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from gpu_node.bench.__main__ import SIZES
from gpu_node.bench.pipeline.candidates import overlapped, predicted, sequential
from gpu_node.bench.pipeline.full_step import FullBatch, full_step
from gpu_node.bench.pipeline.run import PipelineBench
from gpu_node.bench.point import BenchPoint
from gpu_node.bench.roofline import Roofline
from gpu_node.engine.border.model import LoadedModel
from gpu_node.graph.cost import DeviceRates
from gpu_node.graph.lanes import ProgramLane
from gpu_node.graph.passes.optimize import optimize
from gpu_node.graph.passes.pipeline.nano_batches import nano_batches
from gpu_node.kernels.cpu import kernels_name
from gpu_node.models.architectures.families import build_program
from gpu_node.models.checkpoint import open_checkpoint
from shared.config.config import parse_config
from shared.config.pipelines.pipeline_file import PipelineFile, encode_pipeline, read_pipeline
from tests.gpu_node.family_programs import CONFIGS, config


def test_half_of_the_requests_run_and_steps_have_room_for_their_prompts() -> None:
    # 32 requests have 32 rows of output a step, and 256 : 128 of prompt for each
    assert FullBatch.of(BenchPoint(64, 256, 128)) == FullBatch(num_running=32, num_rows=96)
    assert FullBatch.of(BenchPoint(16, 48, 16)) == FullBatch(num_running=8, num_rows=32)


def test_a_full_step_has_prompts_ahead_of_decodes_in_the_midst_of_their_output() -> None:
    model = LoadedModel("m", 100, 16, 1, 400, 50, frozenset())
    plan = full_step(BenchPoint(4, 20, 10), FullBatch(2, 32), model)
    assert [(one.start, len(one.token_ids), len(one.draws)) for one in plan.sequences] == [
        (0, 20, 0),
        (0, 10, 0),
        (25, 1, 1),
        (25, 1, 1),
    ]
    blocks = [block for one in plan.sequences for block in one.block_table]
    assert blocks == list(range(2 + 1 + 2 + 2))


@pytest.mark.parametrize("name", CONFIGS)
def test_candidates_are_pipelines_of_every_family(name: str, tmp_path: Path) -> None:
    program = optimize(build_program(config(**CONFIGS[name])))
    path = tmp_path / "pipeline.json"

    def lanes_of(pipeline: PipelineFile) -> list[ProgramLane]:
        path.write_text(encode_pipeline(pipeline))
        return [queue.lane for queue in nano_batches(program, read_pipeline(path)).lanes]

    assert lanes_of(sequential(64, False, "m", "cpu")) == [ProgramLane.COMPUTE]
    assert lanes_of(sequential(64, True, "m", "cpu")) == [ProgramLane.COMPUTE]
    assert lanes_of(overlapped(64, "memory", "m", "cpu")) == [ProgramLane.COMPUTE, ProgramLane.MEMORY]
    parts, beside = sequential(64, True, "m", "cpu"), overlapped(64, "compute", "m", "cpu")
    halves = [nano_batches(program, one) for one in (parts, beside)]
    assert halves[0].operators == halves[1].operators, "what the parts take is measured in one, and holds in the other"


def test_times_of_a_layer_are_scaled_to_what_is_predicted() -> None:
    found = predicted(
        overlapped(64, "memory", "m", "cpu"), step_s=0.3, sequential_s=0.6, num_layers=3, kernels="plain 1"
    )
    assert found.layer_s == pytest.approx(0.1)
    assert found.sequential_s == pytest.approx(0.2)
    begins = {(one.name, one.rows): one.start_s for one in found.operators}
    assert begins["UGD", (32, 64)] == pytest.approx(0.126)


def test_a_point_has_the_same_tokens_each_way(tiny_path: Path, tmp_path: Path) -> None:
    text = {
        "models": [{"name": "tiny", "source": str(tiny_path)}],
        "nodes": [{"name": "bench", "num_threads": 2}],
        "engine": {"kv_cache_bytes": 4 << 20},
    }
    program = build_program(open_checkpoint(tiny_path).config)
    roofline = Roofline(program, DeviceRates(bytes_per_s=1e9, flops_per_s=1e9), SIZES["cpu", "bfloat16"])
    said: list[str] = []
    bench = PipelineBench(parse_config(yaml.safe_dump(text), "test"), program, roofline, quick=True, say=said.append)
    found = bench.measure(BenchPoint(8, 12, 6))
    assert found.bits_equal
    assert min(found.off_tok_s, found.nano_only_tok_s, found.auto_tok_s, found.predicted_gain) > 0
    assert found.bound_gain >= 1
    (tmp_path / "found.json").write_text(found.pipeline)
    pipeline = read_pipeline(tmp_path / "found.json")
    assert (pipeline.rows, pipeline.kernels) == (16, kernels_name())
    assert any(text.endswith("auto, 1 of 1") for text in said)
