"""`treadle profile` on a tiny model: real steps in a real process, and a file that engines start from."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from cli.main import main
from gpu_node.engine.process.cost_tables import cost_tables, kept_tables
from shared.config.config import load_config
from shared.config.measured.pipeline_profile import pipeline_profile_file, read_pipeline_profile
from shared.config.measured.predictors import (
    PredictorError,
    device_predictor_file,
    predictor_file,
    read_device_predictor,
    read_predictor,
)
from shared.config.measured.profiles import profiled_costs, profiles_file, read_profiles
from tests.gpu_node import tiny

pytestmark = pytest.mark.slow

CONFIG = """
data_dir: {folder}/data
models:
  - {{ name: tiny, source: {model}, max_model_len: 128 }}
nodes:
  - {{ name: node-0, num_threads: 1, executor: cpu }}
engine:
  kv_cache_bytes: 4194304
  max_num_seqs: 8
  step_tokens: 64
  tiers: {{ host_bytes: 4194304, ssd_bytes: 8388608, ssd_folder: {folder}/kv }}
"""


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("profile")
    model = tiny.write_gguf(folder / "tiny.gguf", tiny.tensors_of(tiny.make_model()))
    file = folder / "cluster.yaml"
    file.write_text(CONFIG.format(folder=folder, model=model))
    return file


def run(config: Path, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["profile", "-f", str(config), *arguments])


def test_steps_are_measured_and_the_cost_is_kept_for_engines(config: Path) -> None:
    result = run(config, "--json")
    assert result.exit_code == 0, result.output
    *points, tables, last = map(json.loads, result.stdout.splitlines())
    assert {(point["kind_of_step"], point["is_held_out"]) for point in points} == {
        ("decode", False),
        ("prompt", False),
        ("decode", True),
        ("prompt", True),
    }
    assert all(0 < point["measured_s"] < 10 for point in points)
    assert last["kind"] == "profileresult"
    assert last["disk_load_s"] > 0
    assert last["kv_bytes_per_s"] > 0
    cluster = load_config(config)
    (kept,) = read_profiles(profiles_file(cluster))
    assert (kept.model, kept.cost.step_s) == ("tiny", last["cost"]["step_s"])
    assert tables["kind"] == "predictortables"
    spec, node, path = cluster.models[0], cluster.nodes[0], predictor_file(cluster, "cpu", "tiny")
    predictor = read_predictor(path, cluster, spec, node, "cpu")
    assert predictor is not None
    assert predictor.tables.prompt.seconds == tables["tables"]["prompt"]["seconds"]
    assert cost_tables(predictor.tables, "tiny").prompt.at(32) > 0
    assert predictor.tables.store_out is not None
    assert predictor.tables.store_in is not None
    assert predictor.tables.store_in.seconds[-1] > 0
    assert list((config.parent / "kv").iterdir()) == [], "nothing is left on the SSD"
    with pytest.raises(PredictorError, match=r"'cpu' instead of 'other'.*run `treadle profile --model tiny` again"):
        read_predictor(path, cluster, spec, node, "other")
    assert profiled_costs([kept], cluster, cluster.nodes[0], "cpu") == {"tiny": kept.cost}


@dataclass(frozen=True)
class Profiled:
    """What the command said of the two models that it measured, and where it kept that."""

    config: Path
    result: Result


@pytest.fixture(scope="module")
def two_of_three(config: Path) -> Profiled:
    """Measured once, for each measurement takes many seconds of processor time."""
    folder = config.parent
    small = tiny.write_gguf(folder / "again.gguf", tiny.tensors_of(tiny.make_model(seed=1)))
    three = config.with_name("three.yaml")
    models = f"""  - {{ name: again, source: {small}, max_model_len: 128 }}
  - {{ name: third, source: {small}, max_model_len: 96 }}
nodes:"""
    three.write_text(config.read_text().replace("nodes:", models))
    return Profiled(three, run(three, "--model", "tiny", "--model", "again"))


def test_several_models_tell_of_one_that_was_not_measured(two_of_three: Profiled) -> None:
    result, cluster = two_of_three.result, load_config(two_of_three.config)
    assert result.exit_code == 0, result.output
    assert "over tiny, again together:" in result.stdout
    found = kept_tables(cluster, cluster.nodes[0], "cpu")
    assert found.keys() == {"tiny", "again", "third"}
    of_device = read_device_predictor(device_predictor_file(cluster, "cpu"), cluster, cluster.nodes[0], "cpu")
    assert of_device is not None
    assert (of_device.measured, set(of_device.models)) == (["tiny", "again"], {"tiny", "again", "third"})
    assert found["third"].prompt.at(32) > 0


def test_a_table_of_each_model_for_people(two_of_three: Profiled) -> None:
    assert two_of_three.result.exit_code == 0, two_of_three.result.output
    lines = two_of_three.result.stdout.splitlines()
    first, second = (number for number, line in enumerate(lines) if line.split()[:3] == ["step", "batch", "context"])
    (together,) = (number for number, line in enumerate(lines) if line.startswith("over tiny, again together:"))
    assert first == 0
    for table in (lines[:second], lines[second:together]):
        (step,) = (number for number, line in enumerate(table) if line.startswith("a step: "))
        assert table[step + 1].startswith("median error ")
        fitted = [line.partition(":")[0] for line in table[step + 2 :] if " held out, " in line]
        moves = ["blocks out", "blocks in", "blocks to the SSD", "blocks from the SSD"]
        assert fitted == ["a prompt alone", "a chunk", *moves]
        assert table[-1].startswith("kept in ")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--model", "other"), "Error: 'other' is no configured model (tiny)\n"),
        (("--node", "node-7"), "Error: 'node-7' is no configured node (node-0)\n"),
    ],
)
def test_names_that_nobody_knows_are_answered_with_those_that_are_known(
    config: Path, arguments: tuple[str, ...], said: str
) -> None:
    result = run(config, *arguments)
    assert (result.exit_code, result.stderr) == (2, said)


def test_a_file_that_is_something_else_is_not_overwritten(config: Path, tmp_path: Path) -> None:
    file = tmp_path / "profiles.json"
    file.write_text("my notes")
    own = tmp_path / "cluster.yaml"
    own.write_text(config.read_text().replace(f"{config.parent}/data", str(tmp_path)))
    result = run(own)
    assert result.exit_code == 2
    assert f"{file}: holds no profiles of treadle" in result.stderr
    assert file.read_text() == "my notes"


def test_a_node_with_vllm_needs_its_environment(tmp_path: Path) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text("nodes: [{name: n, engine: vllm, vllm: {python: nowhere/python}}]")
    result = CliRunner().invoke(main, ["profile", "-f", str(file)])
    assert result.exit_code == 2
    assert "nowhere/python cannot be started (No such file or directory); `make vllm-env` makes" in result.stderr


def test_operators_and_pairs_are_kept_for_searches(config: Path) -> None:
    two = config.with_name("two.yaml")
    two.write_text(config.read_text().replace("num_threads: 1", "num_threads: 2"))
    assert run(two, "--kernels").exit_code == 0
    result = run(two, "--interference", "--json")
    assert result.exit_code == 0, result.output
    (line,) = map(json.loads, result.stdout.splitlines())
    assert line["kind"] == "kernelprofile"
    kept = read_pipeline_profile(pipeline_profile_file(load_config(two), "cpu", "tiny"))
    names = {one.name for one in kept.operators}
    assert names  # what takes so little that the machine's noise hides it is not there
    assert names <= {"KQV", "DecAttn", "PfAttn", "O", "UGD"}
    assert all(one.seconds > 0 for one in kept.operators)
    assert {(one.lane, one.num_threads) for one in kept.pairs} == {("memory", 1), ("network", 1)}
    assert all(one.performance > 0 and one.product_performance > 0 for one in kept.pairs)
    assert kept.copy_bytes_per_s > 0
    refused = run(config, "--interference")  # one thread
    assert refused.exit_code != 0
    assert "has one thread, beside which nothing runs; set num_threads: 2" in refused.output
