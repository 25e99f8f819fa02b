"""What vLLM is told of a model's adapters, by their files."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from gpu_node.executors.model_check import load_problem
from gpu_node.vllm.inside.core_adapters import CoreAdapter, core_adapters, max_rank, num_slots
from shared.config.engines.adapters import MAX_RANK, AdapterSpec
from shared.config.engines.engine import EngineOptions, ModelSpec
from shared.config.nodes.nodes import NodeSpec
from shared.files.model_file import ModelFileError


def write_weights(path: Path, **shapes: tuple[int, ...]) -> None:
    save_file({name: np.zeros(shape, np.float32) for name, shape in shapes.items()}, path)


def matrices(module: str, inputs: int, outputs: int, rank: int = 4) -> dict[str, tuple[int, ...]]:
    name = f"base_model.model.{module}"
    return {f"{name}.lora_A.weight": (rank, inputs), f"{name}.lora_B.weight": (outputs, rank)}


def spec(folder: Path, **adapters: dict[str, object]) -> ModelSpec:
    """A model whose adapters have these configurations, and matrices for one of its two modules."""
    write_weights(folder / "model.safetensors", **{f"model.layers.{one}.up.weight": (6, 8) for one in range(2)})
    for name, values in adapters.items():
        (folder / name).mkdir()
        (folder / name / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA"} | values))
        rank = int(str(values.get("r", 8)))
        write_weights(folder / name / "adapter_model.safetensors", **matrices("model.layers.1.up", 8, 6, rank))
    named = tuple(AdapterSpec(name, str(folder / name)) for name in adapters)
    return ModelSpec(name="m", source=str(folder), adapters=named)


def test_each_has_the_number_of_its_place_and_its_largest_rank(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = spec(tmp_path, legal={"r": 4}, rhymes={"r": 4, "rank_pattern": {"q_proj": 12, "k_proj": 2}})
    monkeypatch.chdir(tmp_path)
    near = ModelSpec(name="m", source=".", adapters=(AdapterSpec("legal", "legal"), one.adapters[1]))
    for given in (one, near):
        assert core_adapters(given, tmp_path) == (
            CoreAdapter("legal", 1, tmp_path / "legal", 4),
            CoreAdapter("rhymes", 2, tmp_path / "rhymes", 12),
        )


@pytest.mark.parametrize(
    ("ranks", "most"), [([1], 1), ([2], 8), ([8, 4], 8), ([9], 16), ([257, 1], 320), ([MAX_RANK], MAX_RANK)]
)
def test_ranks_are_rounded_up_to_one_that_vllm_takes(ranks: list[int], most: int) -> None:
    assert max_rank(CoreAdapter("a", 1, Path("a"), rank) for rank in ranks) == most


def test_processors_need_an_empty_place_for_rows_of_the_model_itself() -> None:
    assert [num_slots(2, is_cpu=is_cpu) for is_cpu in (False, True)] == [2, 3]


def test_all_that_cannot_be_used_are_told_before_vllm_starts(tmp_path: Path) -> None:
    one = spec(tmp_path, good={"r": 4}, dora={"r": 4, "use_dora": True}, large={"r": MAX_RANK + 1})
    with pytest.raises(ModelFileError) as told:
        core_adapters(one, tmp_path)
    dora, large = str(told.value).split("\n")
    assert dora.startswith("adapter 'dora': ")
    assert "use_dora is not supported" in dora
    assert large.startswith("adapter 'large': ")
    assert "r is 513" in large
    assert load_problem(one, NodeSpec(name="n", engine="vllm"), EngineOptions(), 1 << 30) == str(told.value)


def test_files_are_those_that_the_configuration_means(tmp_path: Path) -> None:
    one = spec(tmp_path, good={"r": 4})
    (adapter,) = one.adapters
    other = ModelSpec(name="m", source=str(tmp_path), adapters=(AdapterSpec("good", adapter.source, "0" * 64),))
    with pytest.raises(ModelFileError, match="is damaged or another adapter"):
        core_adapters(other, tmp_path)
    gone = ModelSpec(name="m", source=str(tmp_path), adapters=(AdapterSpec("gone", str(tmp_path / "gone")),))
    assert "gone does not exist" in load_problem(gone, NodeSpec(name="n", engine="vllm"), EngineOptions(), 1 << 30)
