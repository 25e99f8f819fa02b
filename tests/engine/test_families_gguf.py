"""GGUF files of the Llama family and its relatives, made from the tiny models of `transformers`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from gpu_node.models.checkpoint import open_checkpoint
from gpu_node.models.config import Family, Rope
from gpu_node.models.families import build_program
from gpu_node.models.gguf_weights import file_name
from gpu_node.models.hf_names import prefix, stored
from gpu_node.models.rotary import ROPE_FACTORS
from shared.model_file import ModelFileError
from tests.engine import tiny
from tests.engine.test_families_models import save

NUM_TOKENS = 20


def write_gguf(
    path: Path, arch: str, directory: Path, model: Any, extra: Mapping[str, np.ndarray[Any, Any]], **metadata: Any
) -> Path:
    """The model of ``directory`` as a GGUF file of architecture ``arch``; ``metadata`` with ``__`` for dots."""
    config = open_checkpoint(directory).config
    state = {name: tensor.detach().numpy() for name, tensor in model.state_dict().items()}
    assert config.rope is not None
    writer = gguf.GGUFWriter(path, arch)
    for key, value in {
        "block_count": config.num_layers,
        "context_length": config.context_length,
        "embedding_length": config.hidden_size,
        "feed_forward_length": config.intermediate_size,
        "attention.head_count": config.num_heads,
        "attention.head_count_kv": config.num_kv_heads,
        "attention.key_length": config.head_dim,
        "rope.freq_base": config.rope.theta,
        "attention.layer_norm_rms_epsilon": config.norm_epsilon,
        **{key.replace("__", "."): value for key, value in metadata.items()},
    }.items():
        match value:
            case int():
                writer.add_uint32(f"{arch}.{key}", value)
            case float():
                writer.add_float32(f"{arch}.{key}", value)
            case _:
                writer.add_string(f"{arch}.{key}", value)
    for weight in build_program(config).weights:
        if weight.name == ROPE_FACTORS:
            continue
        (name,) = stored(weight.name, config).names
        values = state[name if name == "lm_head.weight" else prefix(config.family) + name]
        if arch == "llama" and weight.name.endswith((".q", ".k")):
            values = pairs_from_halves(values, config.head_dim)
        writer.add_tensor(file_name(weight.name), np.ascontiguousarray(values))
    for name, values in extra.items():
        writer.add_tensor(name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def pairs_from_halves(values: np.ndarray[Any, Any], head_dim: int) -> np.ndarray[Any, Any]:
    """The order of rows that the converter gives to queries and keys of the Llama architecture, and to no other."""
    half = head_dim // 2
    heads = range(len(values) // head_dim)
    return values[[head * head_dim + pair + part * half for head in heads for pair in range(half) for part in (0, 1)]]


def check(path: Path, model: Any) -> None:
    texts = [list(range(10, 31)), [7], list(range(50, 58))]
    engine = tiny.make_engine(path, block_size=4, step_tokens=9, kv_cache_bytes=2 << 20)
    outputs = tiny.run(engine, [tiny.request(str(number), text, NUM_TOKENS) for number, text in enumerate(texts)])
    assert outputs == [tiny.greedy(model, text, NUM_TOKENS)[0] for text in texts]


@pytest.mark.parametrize("name", ["qwen2", "qwen3"])
def test_qwen(name: str, tmp_path: Path) -> None:
    model = save(name, tmp_path / "hf")
    path = write_gguf(tmp_path / "a.gguf", name, tmp_path / "hf", model, {})
    assert open_checkpoint(path).config.family is Family(name)
    check(path, model)


def test_llama_3_whose_file_holds_the_factors_of_its_rotary_embedding(tmp_path: Path) -> None:
    model = save("llama-llama3", tmp_path / "hf")
    rope = open_checkpoint(tmp_path / "hf").config.rope
    assert rope is not None
    factors = np.array(rope.factors, dtype=np.float32)
    path = write_gguf(tmp_path / "a.gguf", "llama", tmp_path / "hf", model, {"rope_freqs.weight": factors})
    assert open_checkpoint(path).config.rope == Rope(rope.theta, tuple(map(float, factors)))
    check(path, model)
    path = write_gguf(tmp_path / "b.gguf", "llama", tmp_path / "hf", model, {"rope_freqs.weight": factors[:-1]})
    with pytest.raises(ModelFileError, match=r"b\.gguf: tensor rope_freqs\.weight"):
        open_checkpoint(path)


def test_linear_scaling_and_a_window_are_in_the_metadata(tmp_path: Path) -> None:
    model = save("llama-linear", tmp_path / "hf")
    scaling = {"rope__scaling__type": "linear", "rope__scaling__factor": 4.0}
    path = write_gguf(tmp_path / "a.gguf", "llama", tmp_path / "hf", model, {}, **scaling)
    check(path, model)
    model = save("mistral", tmp_path / "mistral")
    window = {"attention__sliding_window": 6}
    path = write_gguf(tmp_path / "b.gguf", "llama", tmp_path / "mistral", model, {}, **window)
    check(path, model)


@pytest.mark.parametrize(
    ("arch", "metadata", "words"),
    [
        ("gemma2", {}, "architecture 'gemma2' is not supported; 'llama', 'qwen2', 'qwen3' are"),
        ("llama", {"expert_count": 8}, "a mixture of experts is supported as a directory"),
        ("qwen2", {"attention__value_length": 4}, "keys and values of different size"),
    ],
)
def test_other_architectures_are_refused(tmp_path: Path, arch: str, metadata: dict[str, int], words: str) -> None:
    model = save("qwen2", tmp_path / "hf")
    path = write_gguf(tmp_path / "odd.gguf", arch, tmp_path / "hf", model, {}, **metadata)
    with pytest.raises(ModelFileError, match=rf"odd\.gguf: {words}"):
        open_checkpoint(path)


def test_the_bias_of_a_file_is_not_passed_over(tmp_path: Path) -> None:
    model = save("llama", tmp_path / "hf")
    extra = {"blk.0.attn_q.bias": np.ones(32, dtype=np.float32)}
    path = write_gguf(tmp_path / "odd.gguf", "llama", tmp_path / "hf", model, extra)
    with pytest.raises(ModelFileError, match=r"tensors not known: blk\.0\.attn_q\.bias"):
        tiny.make_engine(path)
