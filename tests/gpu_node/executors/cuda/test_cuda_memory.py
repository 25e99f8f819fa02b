"""A CUDA device's memory among weights, steps, and keys and values: measured, exchanged, refused where too little."""

from __future__ import annotations

import gc
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from gpu_node.engine.border.executor import BlocksLostError, ModelTooLargeError, StepTooLargeError
from gpu_node.engine.border.model import LoadedModel
from gpu_node.engine.border.plan import StepPlan
from gpu_node.engine.engine import Engine
from gpu_node.executors.cuda.draws import QueuedStep
from gpu_node.executors.cuda.executor import CudaExecutor
from gpu_node.executors.cuda.memory.arena import CudaArena
from gpu_node.executors.cuda.memory.lanes import copy_stream
from gpu_node.executors.cuda.memory.weights import to_device, to_host
from gpu_node.executors.cuda.model import CudaBuilder, CudaModel
from gpu_node.executors.cuda.models import CudaModels, PreparedOnHost
from gpu_node.executors.reference.executor import ReferenceExecutor
from shared.config.engines.adapters import AdapterSpec
from shared.config.engines.engine import EngineOptions, ModelSpec
from shared.files.kv_paging import Paging
from shared.files.model_file import ModelFileError
from tests.gpu_node import tiny
from tests.gpu_node.adapter_folders import ALL, save_adapter
from tests.gpu_node.kernels.triton.buffers import DEVICE
from tests.gpu_node.workload import answers, prompt, request

BLOCK_BYTES = 4 * tiny.BLOCK_TOKEN_BYTES
MEBIBYTE = 1 << 20


class StatedMemory:
    """A device of 10 MiB; ``used`` is what is found in use, one number for each time that somebody asks."""

    def __init__(self, *used: int) -> None:
        self.total_bytes = 10 * MEBIBYTE
        self._used = list(used)

    def used_bytes(self) -> int:
        return self._used.pop(0)

    def trim(self) -> None:
        gc.collect()

    @property
    def was_asked(self) -> bool:
        """For each of the numbers."""
        return not self._used


def options(**given: Any) -> EngineOptions:
    return EngineOptions(**{"block_size": 4, "max_num_seqs": 2, "step_tokens": 8} | given)


def spec(path: Path, name: str, **given: Any) -> ModelSpec:
    return ModelSpec(name=name, source=str(path), **{"max_model_len": 32} | given)


def executor(memory: StatedMemory | None = None, **given: Any) -> CudaExecutor:
    return CudaExecutor(options(**given), DEVICE, dtype=torch.float32, graphs=False, memory=memory)


def answer(engine: Engine, model: str) -> object:
    return answers(engine, [replace(request("r", prompt(1, 9), 3, temperature=0.0), model=model)])


def live_bytes() -> int:
    """Of the memory of all tensors that anybody can reach."""
    gc.collect()
    storages = {}
    for one in gc.get_objects():
        if issubclass(type(one), torch.Tensor):  # isinstance would ask objects that warn when they are asked
            storages[one.untyped_storage().data_ptr()] = one.untyped_storage().nbytes()
    return sum(storages.values())


@pytest.fixture
def paths(tmp_path: Path) -> dict[str, Path]:
    """Two models in files that a test may take away."""
    return {
        name: tiny.write_gguf(tmp_path / f"{name}.gguf", tiny.tensors_of(tiny.make_model(seed)))
        for seed, name in enumerate("ab")
    }


@pytest.fixture
def expected(paths: dict[str, Path]) -> dict[str, object]:
    """What each model answers."""
    found = {}
    for name, path in paths.items():
        engine = Engine(ReferenceExecutor(options()), options())
        engine.load_model(spec(path, name))
        found[name] = answer(engine, name)
    return found


def test_kv_takes_what_the_largest_step_leaves(paths: dict[str, Path]) -> None:
    # 8 blocks are the least; 9 MiB may be used, 3 MiB were, with those blocks
    memory = StatedMemory(3 * MEBIBYTE)
    loaded = executor(memory).load_model(spec(paths["a"], "a"))
    assert loaded.block_bytes == BLOCK_BYTES
    assert loaded.num_blocks == (6 * MEBIBYTE + 8 * BLOCK_BYTES) // BLOCK_BYTES
    assert memory.was_asked


def test_a_length_that_nobody_says_leaves_steps_their_room(paths: dict[str, Path]) -> None:
    # 9 MiB are more than the context needs; of 100 kB, the weights leave 25.6 kB, and half of that is one sequence
    loaded = executor(StatedMemory(3 * MEBIBYTE)).load_model(spec(paths["a"], "a", max_model_len=None))
    assert loaded.max_model_len == tiny.CONTEXT
    memory = StatedMemory(100_000)
    memory.total_bytes = 100_000
    made = executor(memory, device_memory_share=1.0)
    loaded = made.load_model(spec(paths["a"], "a", max_model_len=None))
    half_blocks = (100_000 - 74_400) // 2 // BLOCK_BYTES
    assert loaded.max_model_len == half_blocks * 4
    made.unload_model("a")
    assert made.load_model(spec(paths["a"], "a", max_model_len=None)).max_model_len == half_blocks * 4, "it is kept"


def test_models_change_places_and_each_is_measured_once(paths: dict[str, Path], expected: dict[str, object]) -> None:
    memory = StatedMemory(3 * MEBIBYTE, 4 * MEBIBYTE)
    engine = Engine(executor(memory), options())
    nums_blocks = []
    for name in "abab":
        nums_blocks.append(engine.load_model(spec(paths[name], name)).num_blocks)
        assert answer(engine, name) == expected[name]
        paths[name].unlink(missing_ok=True)  # from then on it has to come from host memory
    assert nums_blocks == [nums_blocks[0], nums_blocks[0] - MEBIBYTE // BLOCK_BYTES] * 2
    assert engine.tiers == {"a": "host", "b": "device"}
    assert memory.was_asked


def test_adapters_come_over_the_kv_that_was_measured(paths: dict[str, Path], tmp_path: Path) -> None:
    save_adapter(tiny.make_model(0), tmp_path / "legal", ALL)
    adapted = spec(paths["a"], "a", adapters=(AdapterSpec("legal", str(tmp_path / "legal")),))
    memory = StatedMemory(3 * MEBIBYTE)
    engine = Engine(executor(memory), options())
    loaded = engine.load_model(spec(paths["a"], "a"))
    expected = answer(engine, "a")
    renewed = engine.load_model(adapted)
    assert replace(renewed, adapters=(), adapter_layouts=()) == loaded
    assert memory.was_asked, "it is not measured anew"
    assert answer(engine, "a") == expected
    assert engine.counts.prefix_cached_tokens == 8, "what was cached is found"
    engine.load_model(spec(paths["a"], "a"))
    assert answer(engine, "a") == expected


def test_adapters_that_kv_leaves_no_room_for_are_told(paths: dict[str, Path], tmp_path: Path) -> None:
    save_adapter(tiny.make_model(0), tmp_path / "legal", ALL)
    adapted = spec(paths["a"], "a", adapters=(AdapterSpec("legal", str(tmp_path / "legal")),))
    # nothing is left free, and all but the weights is KV
    made = executor(StatedMemory(80_000), device_memory_share=1.0)
    engine = Engine(made, options())
    engine.load_model(spec(paths["a"], "a"))
    expected = answer(engine, "a")
    with pytest.raises(ModelTooLargeError, match="restart the node, which measures anew"):
        engine.load_model(adapted)
    assert answer(engine, "a") == expected
    engine.check()


def test_where_steps_leave_too_little_the_model_that_went_comes_back(
    paths: dict[str, Path], expected: dict[str, object]
) -> None:
    engine = Engine(executor(StatedMemory(3 * MEBIBYTE, 9 * MEBIBYTE + 8 * BLOCK_BYTES)), options())
    engine.load_model(spec(paths["a"], "a"))
    assert answer(engine, "a") == expected["a"]
    bytes_before = live_bytes()
    paths["a"].unlink()
    text = (
        r"model 'b': weights of 7.44e-05 GB and steps leave 0 GB of 0.00944 GB, the device_memory_share of 0.0105 GB; "
        r"one sequence of full length needs 8.19e-06 GB of KV: raise device_memory_share, or lower max_model_len"
    )
    with pytest.raises(ModelTooLargeError, match=text):
        engine.load_model(spec(paths["b"], "b"))
    assert engine.tiers == {"a": "device"}
    assert live_bytes() == bytes_before, "nothing of it is left"
    engine.check()
    assert answer(engine, "a") == expected["a"], "what was cached of the prompt is gone, and not taken for there"


@pytest.mark.parametrize("kv_cache_bytes", [None, 10 << 20])
def test_what_is_known_to_be_too_large_moves_nobody(paths: dict[str, Path], kv_cache_bytes: int | None) -> None:
    large = StatedMemory(3 * MEBIBYTE)
    large.total_bytes = 16 * MEBIBYTE
    made = executor(large, kv_cache_bytes=kv_cache_bytes)
    made.load_model(spec(paths["a"], "a"))
    large.total_bytes = 11 * MEBIBYTE if kv_cache_bytes else 40_000
    with pytest.raises(ModelTooLargeError, match=r"model 'b': weights of .* GB and KV of .* GB are more than"):
        made.load_model(spec(paths["b"], "b"), "a")
    assert made.tiers == {"a": "device"}


class Full(CudaExecutor):
    """Finds no memory for a step."""

    def _submit(self, plan: StepPlan) -> QueuedStep:
        raise torch.OutOfMemoryError("Tried to allocate 2.00 GiB")


def test_a_step_without_memory_ends_the_engine_and_says_what_to_lower(paths: dict[str, Path]) -> None:
    chosen = options(kv_cache_bytes=MEBIBYTE)
    engine = Engine(Full(chosen, DEVICE, dtype=torch.float32), chosen)
    engine.load_model(spec(paths["a"], "a"))
    text = r"no memory on the device for a step of 8 tokens: lower device_memory_share .*\(Tried to allocate 2.00 GiB\)"
    with pytest.raises(StepTooLargeError, match=text):
        answer(engine, "a")


class Filling:
    """A builder for whom a device gets full, or a file turns out to be broken, at the named models."""

    def __init__(self, builder: CudaBuilder) -> None:
        self._builder = builder
        self.failures: dict[str, Exception] = {}

    def open(self, spec: ModelSpec) -> PreparedOnHost:
        return self._builder.open(spec)

    def build(self, prepared: PreparedOnHost, model: LoadedModel, arena: CudaArena) -> CudaModel:
        built = self._builder.build(prepared, model, arena)
        if (failure := self.failures.get(prepared.spec.name)) is not None:
            raise type(failure)(*failure.args)  # another one, so that nobody keeps its frames
        return built

    def run_largest_step(self, model: CudaModel) -> None:
        self._builder.run_largest_step(model)


@pytest.mark.parametrize(
    ("is_measured", "failure"),
    [
        (True, torch.OutOfMemoryError("Tried to allocate 2.00 GiB")),
        (False, torch.OutOfMemoryError("Tried to allocate 2.00 GiB")),
        (False, ModelFileError("broken")),
    ],
)
def test_a_load_that_fails_on_its_way_changes_nothing(
    paths: dict[str, Path], failure: Exception, *, is_measured: bool
) -> None:
    chosen = options(kv_cache_bytes=None if is_measured else MEBIBYTE, host_models=2)
    copies = copy_stream(DEVICE)
    builder = Filling(CudaBuilder(chosen, DEVICE, torch.float32, CudaArena(Paging(1, 0), DEVICE), copies, graphs=False))
    memory = StatedMemory(3 * MEBIBYTE, 3 * MEBIBYTE) if is_measured else None
    models: CudaModels[CudaModel] = CudaModels(chosen, DEVICE, torch.float32, copies, memory, builder)
    specs = {name: spec(path, name) for name, path in paths.items()}
    models.load(specs["b"], None)
    models.load(specs["a"], "b")
    assert models.tiers == {"b": "host", "a": "device"}
    bytes_before = live_bytes()
    builder.failures["b"] = failure
    expected = BlocksLostError if is_measured else (ModelTooLargeError, ModelFileError)
    with pytest.raises(expected, match=r"Tried to allocate 2\.00 GiB|broken"):
        models.load(specs["b"], "a")
    assert models.tiers == {"b": "host", "a": "device"}
    assert live_bytes() == bytes_before
    builder.failures.clear()
    models.load(specs["b"], "a")
    assert models.tiers == {"a": "host", "b": "device"}


def test_what_cannot_be_measured_has_to_be_said() -> None:
    with pytest.raises(ValueError, match="kv_cache_bytes is needed: it is measured on a device that has one model"):
        executor(StatedMemory(), max_models=2)
    if DEVICE.type == "cpu":
        with pytest.raises(ValueError, match="kv_cache_bytes is needed"):
            executor()


def test_weights_go_to_the_host_and_back() -> None:
    copies = copy_stream(DEVICE)
    weights = {"a": torch.randn(3, 5, device=DEVICE), "b": torch.randn(4, device=DEVICE).bfloat16()}
    there = to_host(weights, copies)
    assert {values.device.type for values in there.values()} == {"cpu"}
    assert all(values.is_pinned() for values in there.values()) == (DEVICE.type == "cuda")
    back = to_device(there, DEVICE, copies)
    for name, values in weights.items():
        assert back[name].equal(values)
        assert back[name].device.type == DEVICE.type
        assert back[name].data_ptr() != there[name].data_ptr()
