"""Kept predictors: what is of something else, or broken, is refused with what to do."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from gpu_node.engine.process.cost_tables import cost_tables, kept_tables
from shared.config.config import ClusterConfig
from shared.config.measured.predictors import (
    DevicePredictor,
    PredictedModel,
    Predictor,
    PredictorError,
    PredictorTable,
    ShapeTables,
    device_predictor_file,
    encode_predictor,
    predictor_file,
    read_predictor,
)

TABLE = PredictorTable([0.0, 8.0], [0.0, 0.5], "random forest", 2, 0.01, 0.02)


def predictor(config: ClusterConfig, **given: object) -> Predictor:
    spec, node = config.models[0], config.nodes[0]
    fields = {
        "model": spec.name,
        "source": spec.source,
        "weights": spec.weights,
        "device": "cpu",
        "executor": node.executor,
        "num_threads": node.num_threads,
        "tensor_parallel": node.tensor_parallel,
        "block_size": config.engine.block_size,
        "tables": ShapeTables(2, 32, TABLE, TABLE, TABLE, TABLE),
    }
    return Predictor(**fields | given)  # type: ignore[arg-type]


def read(path: Path, config: ClusterConfig) -> Predictor | None:
    return read_predictor(path, config, config.models[0], config.nodes[0], "cpu")


def test_what_is_kept_is_read_again_and_what_is_not_is_none(tmp_path: Path) -> None:
    config = ClusterConfig(data_dir=tmp_path)
    path = predictor_file(config, "NVIDIA H100/80", "org/model")
    assert path == tmp_path / "predictors" / "NVIDIA-H100-80--org-model.json"
    assert read(path, config) is None
    path.parent.mkdir()
    path.write_text(encode_predictor(predictor(config)), encoding="utf-8")
    assert read(path, config) == predictor(config)
    assert cost_tables(predictor(config).tables, "m").move_in.at(4) == 0.25


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"device": "gpu"}, "device 'gpu' instead of 'cpu'"),
        ({"model": "other"}, "model 'other' instead of"),
        ({"format": "treadle predictor 0"}, "format 'treadle predictor 0' instead of 'treadle predictor 2'"),
        ({"block_size": 999}, "block_size 999 instead of"),
    ],
)
def test_one_of_something_else_is_refused(tmp_path: Path, given: dict[str, object], problem: str) -> None:
    config = ClusterConfig(data_dir=tmp_path)
    path = tmp_path / "one.json"
    path.write_text(encode_predictor(predictor(config, **given)), encoding="utf-8")
    with pytest.raises(PredictorError, match=problem + ".*delete it, or run `treadle profile"):
        read(path, config)


def test_what_is_broken_is_refused(tmp_path: Path) -> None:
    config = ClusterConfig(data_dir=tmp_path)
    path = tmp_path / "one.json"
    path.write_text("{}", encoding="utf-8")
    with pytest.raises(PredictorError, match="holds no predictor of treadle"):
        read(path, config)
    shrinking = PredictorTable([1.0, 1.0], [0.0, 0.0], "linear", 1, 0.0, 0.0)
    with pytest.raises(PredictorError, match="is broken: sizes do not grow"):
        cost_tables(ShapeTables(2, 32, TABLE, shrinking, TABLE, TABLE), "m")


def test_a_model_that_was_measured_has_its_own_and_another_what_the_device_s_says(tmp_path: Path) -> None:
    config = ClusterConfig(data_dir=tmp_path)
    own, other = config.models
    node, twice = config.nodes[0], PredictorTable([0.0, 8.0], [0.0, 1.0], "linear", 1, 0.01, 0.02)
    shared = ShapeTables(2, 32, twice, twice, twice, twice)
    of_device = DevicePredictor(
        device="cpu",
        executor=node.executor,
        num_threads=node.num_threads,
        tensor_parallel=node.tensor_parallel,
        block_size=config.engine.block_size,
        measured=[own.name],
        models={spec.name: PredictedModel(spec.source, spec.weights, shared) for spec in (own, other)},
    )
    path = device_predictor_file(config, "cpu")
    path.parent.mkdir()
    path.write_text(encode_predictor(of_device), encoding="utf-8")
    predictor_file(config, "cpu", own.name).write_text(encode_predictor(predictor(config)), encoding="utf-8")
    found = kept_tables(config, node, "cpu")
    assert {name: tables.prompt.at(8) for name, tables in found.items()} == {own.name: 0.5, other.name: 1.0}
    path.write_text(encode_predictor(msgspec.structs.replace(of_device, block_size=999)), encoding="utf-8")
    with pytest.raises(
        PredictorError, match=r"block_size 999 instead of.*delete it, or run `treadle profile` with several"
    ):
        kept_tables(config, node, "cpu")


def test_it_says_nothing_of_a_model_from_another_file() -> None:
    config = ClusterConfig()
    spec, node = config.models[0], config.nodes[0]
    tables = ShapeTables(2, 32, TABLE, TABLE, TABLE, TABLE)
    of_device = DevicePredictor(
        device="cpu",
        executor=node.executor,
        num_threads=1,
        tensor_parallel=1,
        block_size=16,
        measured=[],
        models={spec.name: PredictedModel("another.gguf", spec.weights, tables)},
    )
    assert of_device.tables(spec) is None
