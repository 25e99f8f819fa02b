"""Two processes whose CUDA executors share each model's heads give the tokens of one, by the interpreter over gloo."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gpu_node.engine.border.executor import Executor
from gpu_node.engine.engine import Engine
from gpu_node.executors.cuda.executor import CudaExecutor
from gpu_node.executors.group.part import RankSpec
from gpu_node.executors.group.tensor_parallel import RankError, TensorParallelExecutor
from shared.config.engines.engine import EngineOptions, ModelSpec
from shared.files.model_file import ModelFileError
from tests.gpu_node.kernels.triton.buffers import DEVICE
from tests.gpu_node.models.test_families_models import save_config
from tests.gpu_node.workload import Answers, answers, prompt, request

pytestmark = [
    pytest.mark.filterwarnings("ignore:overflow encountered in exp:RuntimeWarning"),
    pytest.mark.skipif(DEVICE.type == "cuda", reason="over gloo; between devices it is NCCL, and needs two of them"),
]

OPTIONS = EngineOptions(kv_cache_bytes=1 << 20, block_size=4)
PART = RankSpec("cuda", "cpu", "float32")


@pytest.fixture(scope="module")
def group() -> Iterator[TensorParallelExecutor]:
    """Two for all tests; the last of them ends one."""
    executor = TensorParallelExecutor(OPTIONS, [PART, PART])
    yield executor
    executor.close()


def spec(path: Path) -> ModelSpec:
    return ModelSpec(name="tiny", source=str(path), max_model_len=32, load_format="dummy")


def drawn(executor: Executor, path: Path) -> Answers:
    """Of a prompt in one piece and of its forks, greedy and not."""
    engine = Engine(executor, OPTIONS)
    engine.load_model(spec(path))
    asked = [
        request("greedy", prompt(1, 6), 3, temperature=0.0, ignore_eos=True),
        request("forks", prompt(2, 3), 3, seed=4, num_choices=2, num_logprobs=1, ignore_eos=True),
    ]
    return answers(engine, asked)


@pytest.mark.parametrize("family", ["llama-llama3", "gpt2"])
def test_tokens_are_those_of_one_device(group: TensorParallelExecutor, family: str, tmp_path: Path) -> None:
    save_config(family, tmp_path)
    try:
        assert drawn(group, tmp_path) == drawn(PART.make(OPTIONS), tmp_path)
    finally:
        group.unload_model("tiny")


def test_a_group_is_a_kind_of_its_own(group: TensorParallelExecutor) -> None:
    assert (PART.make(OPTIONS).device, group.device) == ("cuda", "2x cuda")
    assert isinstance(PART.make(OPTIONS), CudaExecutor)


def test_a_model_that_only_one_device_can_load_ends_the_group(tmp_path: Path) -> None:
    save_config("llama", tmp_path)
    group = TensorParallelExecutor(OPTIONS, [RankSpec(), PART])
    try:
        small = ModelSpec(name="tiny", source=str(tmp_path), max_model_len=32, load_format="dummy", weights="int8")
        with pytest.raises(
            RankError, match=r"^some devices cannot load their parts of 'tiny': rank 1: .*no int8 weights"
        ):
            group.load_model(small)
    finally:
        group.close()


def test_heads_that_do_not_divide_are_refused_and_the_end_of_a_device_ends_the_group(
    group: TensorParallelExecutor, tmp_path: Path
) -> None:
    save_config("llama", tmp_path, num_key_value_heads=1)
    with pytest.raises(ModelFileError, match="1 heads of keys and values do not divide among 2 devices"):
        group.load_model(spec(tmp_path))
    save_config("llama", tmp_path)
    (process,) = group.processes
    process.kill()
    with pytest.raises(RankError, match=rf"rank 1 \(pid {process.pid}\) ended with status -9"):
        drawn(group, tmp_path)
