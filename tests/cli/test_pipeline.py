"""`treadle pipeline`: costs and searched pipelines as JSON, drawn, written; what cannot be."""

from __future__ import annotations

import json
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from cli.main import main
from shared.config.measured.pipeline_profile import OperatorTime, Pair, PipelineProfile, encode_pipeline_profile
from shared.config.pipelines.pipeline_file import read_pipeline

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
    assert {one["name"] for one in found["operators"]} >= {"KQV", "DecAttn", "PfAttn", "O", "UG", "D"}
    boxes = ET.fromstring(drawn.read_text()).iter("{http://www.w3.org/2000/svg}title")
    assert any((box.text or "").startswith("UG rows 0-") for box in boxes)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("cost", "--model", "gpt-5", "--device", "a100"), "no model 'gpt-5' is known"),
        (("cost", "--model", "llama-2-70b", "--device", "a100"), "do not fit 1 x a100"),
        (("cost", "--model", "llama-3-8b", "--device", "a10", "--num", "2"), "a10 has no links"),
        (("search", "--model", "llama-2-70b", "--device", "a100", "--quick"), "do not fit 1 x a100"),
        (("search", *SETUP[:4], "--rows", "1000", "--quick"), "multiples of 128"),
        (("search", *SETUP[:4], "--rows", "128", "--quick"), "two of them at least"),
        (("search", *SETUP[:2], "--device", "mi300", "--offload", "--quick"), "nothing is known of the link"),
        (("search", *SETUP, "--spread", "--output", "no.json"), "decodes behind all prompts; leave out --output"),
        (("search", "--model", "smollm2-135m", "--device", "cpu", "--quick"), "measure it with `treadle profile"),
    ],
)
def test_what_cannot_be_is_said(arguments: tuple[str, ...], problem: str) -> None:
    result = CliRunner().invoke(main, ["pipeline", *arguments])
    assert result.exit_code != 0
    assert problem in result.output


def profile() -> PipelineProfile:
    """Two threads; attention keeps .8 of its speed with one of them."""
    times = [
        OperatorTime(name, context, rows, (fixed + row * rows * max(1, context)) * 1e-6)
        for name, contexts, fixed, row in (
            ("KQV", (0,), 20, 2),
            ("DecAttn", (128, 384), 0, 0.05),
            ("PfAttn", (128, 384), 0, 0.02),
            ("O", (0,), 10, 1),
            ("UGD", (0,), 30, 4),
        )
        for context in contexts
        for rows in (16, 64, 256)
    ]
    return PipelineProfile(
        kernels="plain 1",
        model="smollm2-135m",
        source="a file",
        weights="bfloat16",
        device="cpu",
        num_threads=2,
        level="avx2",
        num_layers=30,
        hidden_size=576,
        granule_rows=16,
        copy_bytes_per_s=1e10,
        operators=times,
        pairs=[Pair("memory", 64, 128, 1, 0.5, 0.8)],
    )


CPU = ("search", "--model", "smollm2-135m", "--device", "cpu", "--rows", "96", "--prompt-tokens", "256", "--quick")


def test_a_pipeline_of_a_profiled_device(tmp_path: Path) -> None:
    measured, written = tmp_path / "profile.json", tmp_path / "pipeline.json"
    measured.write_text(encode_pipeline_profile(profile()))
    found = json.loads(run(*CPU, "--output-tokens", "128", "--json", "--profile", str(measured), "--out", str(written)))
    # 96 rows: 212 of KQV, 106 of O, 414 of UGD; 32 decodes of 320 tokens 512 and 64 rows of prompts of 256 tokens 327.7
    assert found["sequential_s"] == pytest.approx((212 + 106 + 414 + 512 + 327.68) * 1e-6, rel=1e-3)
    assert found["ceiling_s"] <= found["layer_s"] < found["sequential_s"], "one thread multiplies, the other attends"
    assert {one["r"] for one in found["operators"]} <= {0.5, 1.0}
    assert {one["name"] for one in found["operators"]} == {"KQV", "DecAttn", "PfAttn", "O", "UGD"}
    assert all(row % 16 == 0 for one in found["operators"] for row in one["rows"])
    pipeline = read_pipeline(written)
    pipeline.require("smollm2-135m", "cpu:2", 1, 96)
    assert pipeline.profile == "measured: smollm2-135m (bfloat16) on 2 threads of cpu (avx2)"
    assert pipeline.kernels == "plain 1", "an engine with others refuses it"


def test_copies_to_the_host_are_a_part_of_it_at_the_measured_speed(tmp_path: Path) -> None:
    measured, written = tmp_path / "profile.json", tmp_path / "pipeline.json"
    measured.write_text(encode_pipeline_profile(profile()))
    run(*CPU, "--output-tokens", "128", "--offload", "--json", "--profile", str(measured), "--out", str(written))
    copies = [one for one in read_pipeline(written).operators if one.name == "Copy"]
    assert {one.lane for one in copies} == {"copy"}
    assert sum(one.rows[1] - one.rows[0] for one in copies) == 96
    # 96 rows of 2 x 3 heads x 64 numbers of 2 bytes, at 10 GB/s with the whole device
    assert sum(one.end_s - one.start_s for one in copies) >= 96 * 768 / 1e10 - 1e-12


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"model": "another"}, "of model 'another', not 'smollm2-135m'"),
        ({"device": "cuda"}, "of device 'cuda', not 'cpu'"),
        ({"num_layers": 31}, "the profile is stale: it has 31 layers of 576"),
        ({"format": "treadle pipeline profile 0"}, "has the format 'treadle pipeline profile 0'"),
        ({"pairs": []}, "the profile lacks what operators keep beside one another"),
        ({"operators": []}, "the profile lacks times of DecAttn, KQV, O, PfAttn, UGD"),
        ({"copy_bytes_per_s": 0.0}, "the profile lacks what operators keep beside one another"),
        ({"pairs": [Pair("network", 64, 0, 1, 0.5, 0.8)]}, "the profile lacks what operators keep beside one another"),
        ({"copy_bytes_per_s": -1.0}, "Expected `float` >= 0.0 - at `$.copy_bytes_per_s`"),
        ({"granule_rows": 0}, "Expected `int` >= 1 - at `$.granule_rows`"),
        ({"num_threads": 0}, "Expected `int` >= 1 - at `$.num_threads`"),
        ({"pairs": [Pair("memory", 64, 128, 1, 0.5, -0.8)]}, "Expected `float` > 0.0 - at `$.pairs[0].performance`"),
        ({"operators": [OperatorTime("KQV", 0, 16, 0.0)]}, "an operator takes no time, or no end"),
        ({"operators": [OperatorTime("KQV", 0, 16, 1e300)]}, "an operator takes no time, or no end"),
    ],
)
def test_a_profile_of_something_else_is_refused(tmp_path: Path, changed: dict[str, object], problem: str) -> None:
    measured = tmp_path / "profile.json"
    measured.write_text(encode_pipeline_profile(msgspec.structs.replace(profile(), **changed)))
    result = CliRunner().invoke(main, ["pipeline", *CPU, "--profile", str(measured)])
    assert result.exit_code != 0
    assert problem in result.output.replace("\n", " ")
    assert "measure it with `treadle profile --kernels --interference`" in result.output.replace("\n", " ")


def test_a_missing_profile_and_one_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "none.json").write_text("{}")
    for name, problem in (("missing.json", "cannot be read"), ("none.json", "holds no profile of operators")):
        result = CliRunner().invoke(main, ["pipeline", *CPU, "--profile", str(tmp_path / name)])
        assert result.exit_code != 0
        assert problem in result.output


def test_without_a_solver_it_says_what_to_install() -> None:
    program = "import sys; sys.modules['highspy'] = None; from cli.main import main; main()"
    command = [sys.executable, "-c", program, "pipeline", *CPU]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    text = done.stderr.replace("\n", " ")
    assert "`treadle pipeline` needs 'highspy', which is not installed; install treadle[local]" in text
    assert "Traceback" not in text


def test_predicted_figures_are_not_kept_for_engines() -> None:
    result = CliRunner().invoke(main, ["bench", "pipeline", "--predicted", "--keep"])
    assert result.exit_code != 0
    assert "see `treadle pipeline search --output`" in result.output
