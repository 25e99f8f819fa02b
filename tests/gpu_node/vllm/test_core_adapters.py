"""What vLLM is told of a model's adapters, by their files."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from gpu_node.executors.model_check import load_problem
from gpu_node.models.adapters.adapter_config import read_adapter_config
from gpu_node.vllm.inside.core_adapters import AdapterReader, write_empty_adapter
from gpu_node.vllm.words.adapters import CoreAdapter, room_for, want_of_room
from shared.config.engines.adapters import MAX_RANK, AdapterRoom, AdapterSpec
from shared.config.engines.engine import EngineOptions, ModelSpec
from shared.config.nodes.nodes import NodeSpec
from shared.files.fingerprint import fingerprint


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


def test_each_has_its_path_its_largest_rank_and_what_its_blocks_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = spec(tmp_path, legal={"r": 4}, rhymes={"r": 4, "rank_pattern": {"q_proj": 12, "k_proj": 2}})
    monkeypatch.chdir(tmp_path)
    near = ModelSpec(name="m", source=".", adapters=(AdapterSpec("legal", "legal"), one.adapters[1]))
    layouts = [f", adapter {adapter.name} {fingerprint(adapter)}" for adapter in one.adapters]
    for given in (one, near):
        read = AdapterReader(tmp_path).read(given)
        assert read.problems == {}
        assert read.found == (
            CoreAdapter("legal", tmp_path / "legal", 4, layouts[0]),
            CoreAdapter("rhymes", tmp_path / "rhymes", 12, layouts[1]),
        )


@pytest.mark.parametrize(
    ("ranks", "most"), [([1], 1), ([2], 8), ([8, 4], 8), ([9], 16), ([257, 1], 320), ([MAX_RANK], MAX_RANK)]
)
def test_room_is_for_as_many_as_there_are_and_a_rank_that_vllm_takes(ranks: list[int], most: int) -> None:
    assert room_for(ModelSpec(name="m", source=""), ranks) == AdapterRoom(len(ranks), most)


def test_more_room_is_made_where_it_is_asked_for_and_none_where_nobody_wants_any() -> None:
    asking = ModelSpec(name="m", source="", adapter_room=AdapterRoom(num=2, rank=12))
    assert room_for(asking, []) == AdapterRoom(2, 16)
    assert room_for(asking, [17]) == AdapterRoom(2, 32)
    assert room_for(asking, [1, 2, 3]) == AdapterRoom(3, 16)
    assert room_for(ModelSpec(name="m", source=""), []) is None


def test_an_adapter_says_what_room_it_wants() -> None:
    one = CoreAdapter("a9", Path("a"), 9, "")
    assert want_of_room(AdapterRoom(1, 16), one) == ""
    until = "(models[].adapter_room); it comes when the model has no requests here"
    assert want_of_room(AdapterRoom(9, 8), one) == (
        f"adapter 'a9' is of rank 9, and its model was started for ranks up to 8 {until}"
    )
    assert want_of_room(None, one) == (
        f"adapter 'a9' is of rank 9, and its model was started without room for adapters {until}"
    )


def test_those_that_cannot_be_used_are_told_and_the_others_are_there(tmp_path: Path) -> None:
    one = spec(tmp_path, good={"r": 4}, dora={"r": 4, "use_dora": True}, large={"r": MAX_RANK + 1}, torn={"r": 4})
    weights = tmp_path / "torn" / "adapter_model.safetensors"
    weights.write_bytes(weights.read_bytes()[:20])
    read = AdapterReader(tmp_path).read(one)
    assert [adapter.name for adapter in read.found] == ["good"]
    assert list(read.problems) == ["dora", "large", "torn"]
    dora, large, torn = read.problems.values()
    assert dora.startswith("adapter 'dora': ")
    assert "use_dora is not supported" in dora
    assert large.startswith("adapter 'large': ")
    assert "r is 513" in large
    assert torn.startswith(f"adapter 'torn': {weights}")
    assert "invalid header length" in torn
    assert load_problem(one, NodeSpec(name="n", engine="vllm"), EngineOptions(), 1 << 30) == f"{dora}\n{large}"


def test_what_is_held_is_not_read_again(tmp_path: Path) -> None:
    one = spec(tmp_path, legal={"r": 4}, gone={"r": 4}, rhymes={"r": 12})
    reader = AdapterReader(tmp_path)
    held = reader.read(one).found[1:2]
    (tmp_path / "gone" / "adapter_config.json").unlink()
    assert [adapter.rank for adapter in reader.read(one, held).found] == [4, 4, 12]
    assert list(reader.read(one).problems) == ["gone"]
    assert reader.ranks(one) == [4, 12]


def test_files_are_those_that_the_configuration_means(tmp_path: Path) -> None:
    one = spec(tmp_path, good={"r": 4})
    (adapter,) = one.adapters
    other = ModelSpec(name="m", source=str(tmp_path), adapters=(AdapterSpec("good", adapter.source, "0" * 64),))
    assert "is damaged or another adapter" in AdapterReader(tmp_path).read(other).problems["good"]
    gone = ModelSpec(name="m", source=str(tmp_path), adapters=(AdapterSpec("gone", str(tmp_path / "gone")),))
    assert "gone does not exist" in AdapterReader(tmp_path).read(gone).problems["gone"]
    assert "gone does not exist" in load_problem(gone, NodeSpec(name="n", engine="vllm"), EngineOptions(), 1 << 30)


def test_an_adapter_that_changes_nothing_is_made_again_where_it_was(tmp_path: Path) -> None:
    for _ in range(2):
        assert read_adapter_config(write_empty_adapter(tmp_path / "none")).rank == 1
