"""Pipelines as files: written and read again; what is wrong with one, and what to do."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from shared.config.pipelines.pipeline_file import (
    FORMAT,
    PipelineError,
    PipelineFile,
    PipelineOperator,
    encode_pipeline,
    read_pipeline,
)

PIPELINE = PipelineFile(
    format=FORMAT,
    model="llama-3-8b",
    device="a100",
    num_devices=1,
    rows=256,
    profile="by hand",
    gap=0.0,
    layer_s=2e-4,
    sequential_s=3e-4,
    operators=(
        PipelineOperator("KQV", (0, 128), "compute", 0.6, 0.0, 1e-4),
        PipelineOperator("KQV", (128, 256), "compute", 0.9, 1e-4, 2e-4),
    ),
)


def test_a_pipeline_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "pipeline.json"
    path.write_text(encode_pipeline(PIPELINE))
    assert read_pipeline(path) == PIPELINE


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"format": "treadle pipeline 0"}, "has the format 'treadle pipeline 0'"),
        ({"operators": []}, "it has no operators"),
        ({"rows": 128}, "are not in a batch of 128"),
        ({"more": 1}, "unknown key 'more'"),
        ({"layer_s": "soon"}, "holds no pipeline"),
        ({"operators": [{"name": "KQV"}]}, "holds no pipeline"),
        ({"rows": math.inf}, "holds no pipeline"),
        ({"layer_s": math.nan}, "layer_s: a layer takes some time, not nan"),
        ({"layer_s": -1}, "layer_s: a layer takes some time, not -1.0"),
        ({"sequential_s": math.inf}, "sequential_s: a layer takes some time, not inf"),
        ({"gap": math.nan}, "gap: a share of a layer's time, not nan"),
    ],
)
def test_what_is_no_pipeline_is_refused(tmp_path: Path, change: dict[str, Any], problem: str) -> None:
    path = tmp_path / "pipeline.json"
    path.write_text(json.dumps({**json.loads(encode_pipeline(PIPELINE)), **change}))
    with pytest.raises(PipelineError, match=problem) as refused:
        read_pipeline(path)
    assert "search again with `treadle pipeline search`" in str(refused.value)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"lane": "tape"}, "no lane 'tape' is known"),
        ({"r": 1.5}, "above 0 and at most 1, not 1.5"),
        ({"end_s": 1e-4}, "ends before it starts"),
        ({"end_s": math.inf}, "ends before it starts, or never"),
        ({"rows": (128,)}, "holds no pipeline"),
        ({"rows": (64, 256)}, "leave rows out, or have some twice"),
    ],
)
def test_operators_that_no_search_writes_are_refused(tmp_path: Path, change: dict[str, Any], problem: str) -> None:
    path = tmp_path / "pipeline.json"
    wrong = replace(PIPELINE, operators=(PIPELINE.operators[0], replace(PIPELINE.operators[1], **change)))
    path.write_text(encode_pipeline(wrong))
    with pytest.raises(PipelineError, match=problem):
        read_pipeline(path)


def test_a_file_that_is_not_there_or_no_json(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match="cannot be read"):
        read_pipeline(tmp_path / "none.json")
    path = tmp_path / "pipeline.json"
    path.write_text("{")
    with pytest.raises(PipelineError, match="is no JSON"):
        read_pipeline(path)
    path.write_text("[" * 100_000)
    with pytest.raises(PipelineError, match="is no JSON"):
        read_pipeline(path)


@pytest.mark.parametrize(
    ("model", "device", "num_devices", "rows", "problem"),
    [
        ("llama-2-70b", "a100", 1, 256, "for model 'llama-3-8b', not 'llama-2-70b'"),
        ("llama-3-8b", "h100", 1, 256, "for device 'a100', not 'h100'"),
        ("llama-3-8b", "a100", 8, 256, "for num_devices 1, not 8"),
        ("llama-3-8b", "a100", 1, 512, "for rows 256, not 512"),
    ],
)
def test_a_pipeline_of_something_else_is_refused(
    model: str, device: str, num_devices: int, rows: int, problem: str
) -> None:
    PIPELINE.require("llama-3-8b", "a100", 1, 256)
    with pytest.raises(PipelineError, match=problem):
        PIPELINE.require(model, device, num_devices, rows)
