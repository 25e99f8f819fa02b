"""`treadle pipeline`: costs and searched pipelines as JSON, drawn, written; what cannot be."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from click.testing import CliRunner

from cli.main import main
from shared.config.pipeline_file import read_pipeline

SETUP = ("--model", "llama-3-8b", "--device", "a100", "--rows", "1024", "--prompt-tokens", "1024")


def run(*arguments: str) -> str:
    result = CliRunner().invoke(main, ["pipeline", *arguments])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_cost_as_json_and_as_a_table() -> None:
    found = json.loads(run("cost", "--model", "llama-2-70b", "--device", "a100", "--num", "8", "--json"))
    assert [one["name"] for one in found["operators"]] == ["KQV", "O", "UG", "D", "DecAttn", "PfAttn", "Net"]
    assert {"gflop", "mem_gb", "net_gb", "t_compute_s", "t_mem_s", "t_net_s"} <= set(found["operators"][0])
    assert found["totals"]["t_compute_s"] == pytest.approx(0.11417, rel=1e-3)
    assert found["t_r"] == pytest.approx(0.32, abs=0.01)
    assert found["net_ratio"] == pytest.approx(0.273, abs=0.005)
    table = run("cost", "--model", "llama-2-70b", "--device", "a100", "--num", "8")
    assert "114.17" in table
    assert "1,857 tokens/s a device" in table


def test_a_searched_pipeline_beside_the_sequential_layer(tmp_path: Path) -> None:
    written, drawn = tmp_path / "pipeline.json", tmp_path / "pipeline.svg"
    found = json.loads(
        run(
            "search",
            *SETUP,
            "--output-tokens",
            "512",
            "--quick",
            "--json",
            "--output",
            str(written),
            "--svg",
            str(drawn),
        )
    )
    assert found["optimal_s"] < found["layer_s"]
    assert set(found["stage2"]) == {"makespan_s", "gap", "solve_s"}
    pipeline = read_pipeline(written)
    pipeline.require("llama-3-8b", "a100", 1, 1024)
    assert pipeline.layer_s == found["layer_s"]
    assert [one.name for one in pipeline.operators] == [one["name"] for one in found["operators"]]
    assert {one["name"] for one in found["operators"]} >= {"KQV", "DecAttn", "PfAttn", "O", "UGD"}
    boxes = ET.fromstring(drawn.read_text()).iter("{http://www.w3.org/2000/svg}title")
    assert any((box.text or "").startswith("UGD rows 0-") for box in boxes)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("cost", "--model", "gpt-5", "--device", "a100"), "no model 'gpt-5' is known"),
        (("cost", "--model", "llama-2-70b", "--device", "a100"), "do not fit 1 x a100"),
        (("cost", "--model", "llama-3-8b", "--device", "a10", "--num", "2"), "a10 has no links"),
        (("search", "--model", "llama-2-70b", "--device", "a100", "--quick"), "do not fit 1 x a100"),
        (("search", *SETUP[:4], "--rows", "1000", "--quick"), "multiples of 128"),
        (("search", *SETUP[:2], "--device", "mi300", "--offload", "--quick"), "nothing is known of the link"),
    ],
)
def test_what_cannot_be_is_said(arguments: tuple[str, ...], problem: str) -> None:
    result = CliRunner().invoke(main, ["pipeline", *arguments])
    assert result.exit_code != 0
    assert problem in result.output


def test_predicted_figures_are_not_kept_for_engines() -> None:
    result = CliRunner().invoke(main, ["bench", "pipeline", "--predicted", "--keep"])
    assert result.exit_code != 0
    assert "see `treadle pipeline search --output`" in result.output
