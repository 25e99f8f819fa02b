"""A pipeline for something else is found before anything starts, and so is a node that runs none."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from cli.config.pipeline_check import pipeline_problems
from shared.config.config import ClusterConfig, parse_config
from shared.config.pipelines.pipeline_file import PUBLISHED, SEARCH_AGAIN, encode_pipeline
from tests.unit.shared.config.pipelines.test_pipeline_file import PIPELINE

NODE = {"name": "a", "num_threads": 1}


def config(pipeline: str, *nodes: dict[str, Any], step_tokens: int = 256) -> ClusterConfig:
    values = {
        "models": [{"name": "llama-3-8b", "source": "m.gguf"}],
        "nodes": list(nodes),
        "engine": {"pipeline": pipeline, "step_tokens": step_tokens},
    }
    return parse_config(yaml.safe_dump(values), "test")


def test_one_for_another_device_or_step_is_said_once(tmp_path: Path) -> None:
    path = tmp_path / "p.json"
    path.write_text(encode_pipeline(replace(PIPELINE, device="cpu:1")))
    assert pipeline_problems(config("off", NODE)) == []
    assert pipeline_problems(config(str(path), NODE)) == []
    found = pipeline_problems(config(str(path), NODE, {"name": "b", "num_threads": 1}, step_tokens=128))
    assert found == [f"engine.pipeline: the pipeline is for rows 256, not 128; {SEARCH_AGAIN}"]


def test_a_file_that_is_not_there_is_said(tmp_path: Path) -> None:
    (problem,) = pipeline_problems(config(str(tmp_path / "none.json"), NODE))
    assert "none.json: cannot be read" in problem


def test_a_predicted_node_runs_what_is_published_of_its_device(tmp_path: Path) -> None:
    predicted = {"name": "p", "executor": "predicted", "device": "a10"}
    path = tmp_path / "p.json"
    problems = []
    for pipeline in (
        replace(PIPELINE, device="a10", profile=PUBLISHED),
        replace(PIPELINE, device="a100", profile=PUBLISHED),
        replace(PIPELINE, device="a10", profile="measured"),
    ):
        path.write_text(encode_pipeline(pipeline))
        problems.append(pipeline_problems(config(str(path), predicted)))
    assert problems == [
        [],
        [f"engine.pipeline: the pipeline is for device 'a100', not 'a10'; {SEARCH_AGAIN}"],
        [
            f"engine.pipeline: the pipeline's times are 'measured'; a predicted device has {PUBLISHED!r}; "
            f"{SEARCH_AGAIN}, without --profile"
        ],
    ]
    assert pipeline_problems(config("auto", predicted).model_copy(update={"data_dir": tmp_path})) == []


def test_a_node_with_vllm_runs_none() -> None:
    (problem,) = pipeline_problems(config("auto", {"name": "v", "engine": "vllm"}))
    assert problem.endswith("node 'v' is vLLM, which runs no pipelines; set it to off, or have another engine")
