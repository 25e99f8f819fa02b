"""Models between device, host memory and disk: no file is read where it need not be, and memory is bounded."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from shutil import copyfile
from typing import Any

import pytest

from gpu_node.engine.engine import Engine
from gpu_node.executors.cpu.executor import CpuExecutor
from gpu_node.executors.memory.host_tier import HostTier
from gpu_node.executors.predicted.executor import PredictedExecutor
from gpu_node.executors.reference.executor import ReferenceExecutor
from shared.config.engines.engine import EngineOptions, ModelSpec, WeightType
from shared.files.model_file import ModelFileError
from shared.messages.nodes.step_cost import StepCost
from tests.gpu_node import tiny

Make = Callable[..., Engine]


@pytest.fixture(params=["reference", "cpu"])
def make(request: pytest.FixtureRequest) -> Iterator[Make]:
    made: list[CpuExecutor] = []

    def make(**given: Any) -> Engine:
        options = EngineOptions(**{"kv_cache_bytes": 1 << 20} | given)
        if request.param == "reference":
            return Engine(ReferenceExecutor(options), options)
        made.append(CpuExecutor(options, num_threads=1))
        return Engine(made[-1], options)

    yield make
    for executor in made:
        executor.close()


@pytest.fixture
def paths(tiny_path: Path, tmp_path: Path) -> dict[str, Path]:
    """Three models in files that a test may take away."""
    paths = {name: tmp_path / f"{name}.gguf" for name in "abc"}
    for path in paths.values():
        copyfile(tiny_path, path)
    return paths


def spec(name: str, path: Path, weights: WeightType = "bfloat16") -> ModelSpec:
    return ModelSpec(name=name, source=str(path), max_model_len=64, weights=weights)


def answer(engine: Engine, model: str) -> list[list[int]]:
    return tiny.run(engine, [tiny.request(str(number), range(5, 20 + number), 9, model=model) for number in range(3)])


@pytest.mark.parametrize("weights", ["bfloat16", "int8"])
def test_a_model_comes_back_from_host_memory_without_its_file(
    make: Make, paths: dict[str, Path], weights: WeightType
) -> None:
    engine = make(host_models=1)
    engine.load_model(spec("a", paths["a"], weights))
    assert engine.tiers == {"a": "device"}
    before = answer(engine, "a")
    paths["a"].unlink()
    engine.load_model(spec("b", paths["b"], weights))
    assert engine.tiers == {"a": "host", "b": "device"}
    answer(engine, "b")
    engine.load_model(spec("a", paths["a"], weights))
    assert engine.tiers == {"a": "device", "b": "host"}
    assert answer(engine, "a") == before


def test_who_left_longest_ago_is_read_from_disk_again(make: Make, paths: dict[str, Path]) -> None:
    engine = make(host_models=1)
    for name in "abc":
        engine.load_model(spec(name, paths[name]))
    assert engine.tiers == {"b": "host", "c": "device"}
    paths["a"].unlink()
    with pytest.raises(ModelFileError, match="does not exist"):
        engine.load_model(spec("a", paths["a"]))
    assert engine.tiers == {"b": "host", "c": "device"}, "nothing has changed"
    assert answer(engine, "c")


def test_without_a_tier_every_load_reads_the_file(make: Make, paths: dict[str, Path]) -> None:
    engine = make(host_models=0)
    for name in "ab":
        engine.load_model(spec(name, paths[name]))
    assert engine.tiers == {"b": "device"}
    paths["a"].unlink()
    with pytest.raises(ModelFileError, match="does not exist"):
        engine.load_model(spec("a", paths["a"]))


def test_a_model_that_finds_no_room_waits_in_host_memory(paths: dict[str, Path]) -> None:
    options = EngineOptions(max_models=2, kv_cache_bytes=6 << 20, host_models=2)
    executor = PredictedExecutor(StepCost(0.01, 0.001, 0.0001), options, token_kv_bytes=8192, vocab_size=50)
    for name in "abc":
        executor.load_model(spec(name, paths[name]))
    for name in "ab":
        executor.unload_model(name)
    assert executor.tiers == {"a": "host", "b": "host", "c": "device"}
    executor.load_model(spec("a", paths["a"]))
    assert executor.tiers == {"a": "device", "b": "host", "c": "device"}


def test_the_tier_is_bounded_and_frees_what_falls_out() -> None:
    freed: list[str] = []
    tier: HostTier[str] = HostTier(2, freed.append)
    specs = {name: ModelSpec(name=name, source=name) for name in "abc"}
    tier.put(specs["a"], "weights of a")
    tier.put(specs["b"], "weights of b")
    assert tier.take(specs["a"]) == "weights of a"
    tier.put(specs["a"], "weights of a")
    tier.put(specs["c"], "weights of c")
    assert freed == ["weights of b"], "who left longest ago"
    assert tier.take(specs["b"]) is None
    assert tier.take(ModelSpec(name="c", source="c", weights="int8")) is None, "another configuration is another model"
    assert freed == ["weights of b", "weights of c"]
    tier.clear()
    assert freed == ["weights of b", "weights of c", "weights of a"]
