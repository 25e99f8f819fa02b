"""Models whose weights are made up by shape: of their directories, nothing but config.json is there."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from gpu_node.engine.engine import Engine
from gpu_node.executors.reference.executor import ReferenceExecutor
from gpu_node.graph.passes.tensor_parallel import tensor_parallel
from gpu_node.models.architectures.families import build_program
from gpu_node.models.checkpoint import open_checkpoint
from gpu_node.models.dummy.dummy_weights import DummyWeights
from gpu_node.models.weights.weights import load_weights
from shared.config.engines.engine import EngineOptions, ModelSpec
from shared.files.model_file import ModelFileError
from tests.gpu_node import tiny
from tests.gpu_node.models.test_families_models import FAMILIES, save_config
from tests.gpu_node.workload import prompt, request

OPTIONS = EngineOptions(kv_cache_bytes=1 << 20, block_size=4)


def spec(path: Path) -> ModelSpec:
    return ModelSpec(name="tiny", source=str(path), max_model_len=tiny.CONTEXT, load_format="dummy")


@pytest.mark.parametrize("family", FAMILIES, ids=str)
def test_a_configuration_alone_is_a_model_that_draws(family: str, tmp_path: Path) -> None:
    save_config(family, tmp_path)
    outputs = []
    for _ in range(2):
        engine = Engine(ReferenceExecutor(OPTIONS), OPTIONS)
        engine.load_model(spec(tmp_path))
        asked = [request(str(seed), prompt(seed, 9), 6, temperature=1.0, seed=seed) for seed in range(2)]
        outputs.append(tiny.run(engine, asked))
    assert outputs[0] == outputs[1]
    assert len({tuple(tokens) for tokens in outputs[0]}) == 2, "it does not say the same whatever it is asked"


def test_gains_are_about_one_biases_small_and_sums_as_wide_as_what_is_summed(tmp_path: Path) -> None:
    save_config("gpt2", tmp_path, n_embd=64, n_inner=256)
    checkpoint = open_checkpoint(tmp_path)
    weights = load_weights(checkpoint, build_program(checkpoint.config), "dummy")
    spreads = {name: float(values.std()) for name, values in weights.items()}
    assert spreads["layers.0.up"] == pytest.approx(64**-0.5, rel=0.05)
    assert spreads["layers.0.down"] == pytest.approx(256**-0.5, rel=0.05)
    assert float(weights["layers.0.mlp_norm"].mean()) == pytest.approx(1.0, abs=0.05)
    assert spreads["layers.0.mlp_norm"] == pytest.approx(0.1, rel=0.3)
    assert spreads["layers.0.up_bias"] == pytest.approx(0.02, rel=0.3)


def test_numbers_are_the_same_on_every_device() -> None:
    values = DummyWeights({"layers.0.up": (2, 4)}, torch.device("cpu")).read("layers.0.up")
    assert values.tolist() == [
        [0.05818922072649002, 0.19747333228588104, -0.05388893187046051, -0.22917461395263672],
        [0.680218517780304, -0.3919706344604492, 0.847055971622467, 0.5340831875801086],
    ]


@pytest.mark.parametrize("family", ["llama-llama3", "mixtral"])
def test_a_device_of_a_group_makes_its_part_of_the_same_weights(family: str, tmp_path: Path) -> None:
    save_config(family, tmp_path, intermediate_size=64)
    checkpoint = open_checkpoint(tmp_path)
    program = build_program(checkpoint.config)
    whole = load_weights(checkpoint, program, "dummy")
    for rank in range(2):
        part = tensor_parallel(program, rank, 2)
        mine = load_weights(checkpoint, part, "dummy", dtype=torch.bfloat16)
        for weight in part.weights:
            pieces = [whole[one.tensor][tuple(slice(*bounds) for bounds in one.ranges)] for one in weight.sources]
            expected = torch.cat(pieces)
            assert mine[weight.name].equal(expected if weight.name == "rope_factors" else expected.bfloat16())


def test_without_load_format_dummy_the_weights_are_missed(tmp_path: Path) -> None:
    save_config("llama", tmp_path)
    with pytest.raises(ModelFileError, match=r"holds neither model.safetensors nor model.safetensors.index.json$"):
        ReferenceExecutor(OPTIONS).load_model(ModelSpec(name="tiny", source=str(tmp_path)))
