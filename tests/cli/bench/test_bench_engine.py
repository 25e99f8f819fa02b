"""`treadle bench engine` on a tiny model: a real engine in a real process."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner, Result

from cli.bench.engine import POINTS
from cli.main import main
from gpu_node.bench.point import parse_points
from tests.gpu_node import tiny

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tiny.write_gguf(tmp_path_factory.mktemp("bench") / "tiny.gguf", tiny.tensors_of(tiny.make_model())))


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["bench", "engine", *arguments])


@pytest.mark.parametrize("executor", ["cpu", "reference"])
def test_each_point_is_a_line_of_json_behind_the_machines(model: str, executor: str) -> None:
    options = ("--threads", "1", "--kv-gib", "1", "--executor", executor, "--repeat", "3", "--json")
    result = run("--model", model, "--points", "2x8x4,1x4x1", *options)
    assert result.exit_code == 0, result.output
    assert result.stderr == "", "no progress bar where there is no terminal"
    machine, first, second = map(json.loads, result.stdout.splitlines())
    assert (machine["kind"], machine["num_threads"], machine["cpus"]) == ("machine", 1, [])
    # any machine of this century, and none of the next years
    assert 1e8 < machine["read_bytes_per_s"] < 1e12
    assert 1e8 < machine["onednn_flops_per_s"] < 1e14
    assert 1e8 < machine["kernels_flops_per_s"] < 1e14
    assert first["kind"] == "pointresult"
    assert (first["point"], first["num_steps"], first["num_decode_steps"]) == ("2x8x4", 4, 3)
    assert first["output_tokens_per_s"] == pytest.approx(8 / first["seconds"])
    assert sorted(first["all_seconds"])[1] == first["seconds"]
    assert 0 < first["first_tokens_s"] < first["seconds"]
    # medians of their own: at most the longest run's first tokens, and another's decodes
    assert 3 * first["decode_step_s"] + first["first_tokens_s"] < 2 * max(first["all_seconds"])
    assert 0 < first["roofline_s"] < first["seconds"]
    assert first["roofline_share"] == pytest.approx(first["roofline_s"] / first["seconds"])
    assert first["decode_read_share"] == pytest.approx(first["decode_bytes_per_s"] / machine["read_bytes_per_s"])
    assert 0 <= first["device_idle_s"] < first["seconds"]
    assert first["num_preemptions"] == 0
    assert (second["point"], second["num_steps"], second["decode_step_s"]) == ("1x4x1", 1, None)


def test_the_table_for_people(model: str) -> None:
    result = run("--model", model, "--points", "2x8x4", "--threads", "1", "--kv-gib", "1")
    assert result.exit_code == 0, result.output
    machine, heading, row = result.stdout.splitlines()
    assert machine.startswith("1 thread: read ")
    assert heading.startswith("requests×in×out")
    assert row.split()[0] == "2×8×4"
    assert len(row.split()) == 11


def test_the_default_points_are_points() -> None:
    assert ",".join(map(str, parse_points(POINTS))) == POINTS


def test_what_is_wrong_is_said(model: str) -> None:
    for arguments, words in {
        ("--points", "8x128"): "'8x128' is no point: write REQUESTSxPROMPTxOUTPUT in tokens, such as 8x128x128",
        ("--cpus", "0;1"): "'0;1' is no list of CPUs: write their numbers, such as 0,1",
        ("--cpus", "0,0"): "CPU 0 is there twice",
        ("--cpus", "0,1", "--threads", "3"): "cpus has 2 entries, num_threads is 3",
        ("--cpus", "1023"): "node 'bench': cpus names 1023, but this process may run on",
        ("--model", "none"): "'none' is no configured model (smollm2-135m, smollm2-135m-b), and no file or directory",
        ("--model", __file__): "no readable GGUF file",
        ("--model", model, "--points", "1x100x29"): "'model' takes 128",
    }.items():
        result = run(*arguments)
        assert result.exit_code == 2, result.output
        assert words in result.stderr, result.output
        assert result.stdout == ""


def test_a_process_that_dies_is_told_with_its_last_words(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TREADLE_CPU_LIBRARY", "/nowhere/kernels.so")
    result = run("--model", model, "--points", "1x2x3", "--threads", "1", "--kv-gib", "1")
    assert result.exit_code == 1
    assert result.stderr.startswith("Error: the measuring process ended with status 1:\n")
    assert "OSError: /nowhere/kernels.so" in result.stderr
