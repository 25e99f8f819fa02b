"""Which pipeline an engine runs: none, the one that is named, or the best of a folder."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from shared.config.config import ConfigError, parse_config
from shared.config.engines.engine import EngineOptions, ModelSpec
from shared.config.pipelines.pipeline_file import PUBLISHED, PipelineError, PipelineFile, encode_pipeline
from shared.config.pipelines.pipelines import NO_PIPELINES, Pipelines, card_name, pipelines_folder, read_pipelines
from tests.unit.shared.config.pipelines.test_pipeline_file import PIPELINE

SPEC = ModelSpec(name="llama-3-8b", source="")
OPTIONS = EngineOptions(step_tokens=256)


def written(folder: Path, *pipelines: PipelineFile) -> Path:
    folder.mkdir(exist_ok=True)
    for number, pipeline in enumerate(pipelines):
        (folder / f"{number}.json").write_text(encode_pipeline(pipeline))
    return folder


def auto(*pipelines: PipelineFile) -> Pipelines:
    return Pipelines("auto", 256, pipelines)


def test_off_reads_nothing(tmp_path: Path) -> None:
    (tmp_path / "broken.json").write_text("{")
    assert read_pipelines(OPTIONS, tmp_path) is NO_PIPELINES
    assert NO_PIPELINES.of(SPEC, "a100") is None
    assert not NO_PIPELINES.lacks(SPEC, "a100")


def test_a_named_file_is_taken_whatever_it_predicts(tmp_path: Path) -> None:
    slower = replace(PIPELINE, layer_s=1.0)
    path = written(tmp_path, slower) / "0.json"
    assert read_pipelines(replace(OPTIONS, pipeline=str(path)), Path("nowhere")).of(SPEC, "a100") == slower


def test_times_of_other_kernels_are_stale(tmp_path: Path) -> None:
    measured = replace(PIPELINE, kernels="avx2 0123")
    named = Pipelines("some.json", 256, (measured,))
    assert named.of(SPEC, "a100", kernels="avx2 0123") == named.of(SPEC, "a100") == measured
    with pytest.raises(
        PipelineError, match=r"times of kernels 'avx2 0123', and this engine has 'avx2 4567'"
    ) as refused:
        named.of(SPEC, "a100", kernels="avx2 4567")
    assert "treadle profile --kernels --interference" in str(refused.value)
    assert auto(measured).of(SPEC, "a100", kernels="avx2 4567") is None
    assert auto(measured).lacks(SPEC, "a100", kernels="avx2 4567")
    assert not auto(measured).lacks(SPEC, "a100", kernels="avx2 0123")
    assert auto(PIPELINE).of(SPEC, "a100", kernels="avx2 4567") == PIPELINE, "nobody has measured it"


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"model": "opt-13b"}, "for model 'opt-13b', not 'llama-3-8b'"),
        ({"device": "h100"}, "for device 'h100', not 'a100'"),
        ({"num_devices": 8}, "for num_devices 8, not 1"),
        ({"rows": 512}, "for rows 512, not 256"),
    ],
)
def test_a_named_file_for_something_else_is_refused(change: dict[str, Any], problem: str) -> None:
    named = Pipelines("some.json", 256, (replace(PIPELINE, **change),))
    with pytest.raises(PipelineError, match=problem) as refused:
        named.of(SPEC, "a100")
    assert "search again" in str(refused.value)


def test_a_model_may_be_called_otherwise_than_in_the_catalogue() -> None:
    named = Pipelines("some.json", 256, (PIPELINE,))
    assert named.of(ModelSpec(name="mine", source="", predict_as="llama-3-8b"), "a100") == PIPELINE


def test_auto_takes_the_fastest_that_fits_and_none_that_is_predicted_to_be_slower() -> None:
    fast, other = replace(PIPELINE, layer_s=1e-4), replace(PIPELINE, layer_s=1e-5, rows=512)
    assert auto(PIPELINE, fast, other).of(SPEC, "a100") == fast
    slower = replace(PIPELINE, layer_s=PIPELINE.sequential_s)
    assert auto(slower).of(SPEC, "a100") is None
    assert not auto(slower).lacks(SPEC, "a100")


def test_auto_passes_over_what_rests_on_figures_of_another_device() -> None:
    """Live; a predicted device is what is published of it. Whoever names the file gets it."""
    elsewhere = replace(PIPELINE, profile=PUBLISHED, device="h100")
    assert auto(elsewhere).of(SPEC, "h100", kernels="") is None
    assert auto(elsewhere).lacks(SPEC, "h100", kernels="")
    assert auto(elsewhere).of(SPEC, "h100") == elsewhere
    assert Pipelines("some.json", 256, (elsewhere,)).of(SPEC, "h100", kernels="") == elsewhere
    there = replace(PIPELINE, profile=PUBLISHED)
    assert auto(there).of(SPEC, "a100", kernels="") == there
    assert auto(replace(elsewhere, profile="measured")).of(SPEC, "h100", kernels="") is not None


def test_auto_without_a_pipeline_runs_plainly_and_lacks_one(tmp_path: Path) -> None:
    found = read_pipelines(replace(OPTIONS, pipeline="auto"), tmp_path / "none")
    assert found.of(SPEC, "a100") is None
    assert found.lacks(SPEC, "a100")


def test_auto_refuses_a_broken_file_of_its_folder(tmp_path: Path) -> None:
    (tmp_path / "broken.json").write_text("{")
    with pytest.raises(PipelineError, match=r"broken\.json: is no JSON"):
        read_pipelines(replace(OPTIONS, pipeline="auto"), tmp_path)


def test_auto_looks_into_the_data_folder(tmp_path: Path) -> None:
    written(pipelines_folder(tmp_path), PIPELINE)
    assert read_pipelines(replace(OPTIONS, pipeline="auto"), pipelines_folder(tmp_path)).files == (PIPELINE,)


@pytest.mark.parametrize(
    ("card", "name"),
    [
        ("NVIDIA A100-SXM4-80GB", "a100"),
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA A10", "a10"),
        ("cuda", "cuda"),
        ("NVIDIA GeForce RTX 4090", "NVIDIA GeForce RTX 4090"),
    ],
)
def test_cards_are_called_as_in_the_catalogue(card: str, name: str) -> None:
    assert card_name(card) == name


def test_offload_runs_beside_one_but_for_nvidia_devices() -> None:
    text = "models: [{name: m, source: m.gguf}]\nnodes: [%s]\nengine: {pipeline: auto, offload: 'on', %s}"
    config = parse_config(text % ("{name: n}", "kv_cache_bytes: 4194304"), "test")
    assert (config.engine.pipeline, config.engine.offload) == ("auto", "on")
    cuda = "{name: n, executor: cuda, device: 'cuda:0'}"
    with pytest.raises(ConfigError, match=r"pipeline: 'auto' cannot run beside offload: 'on' on an NVIDIA .*\(n\)"):
        parse_config(text % (cuda, "kv_cache_bytes: 4194304"), "test")


def test_off_is_a_word_in_a_configuration() -> None:
    text = "models: [{name: m, source: m.gguf}]\nnodes: [{name: n}]\nengine: {pipeline: %s}"
    for word in ("off", "auto", "some.json"):
        assert parse_config(text % word, "test").engine.pipeline == word
