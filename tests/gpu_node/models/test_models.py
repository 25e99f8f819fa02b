"""Files of models: what is read, and what is said when a file is not what it should be. And the program made of it."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from transformers import LlamaForCausalLM

from gpu_node.executors.reference.executor import ReferenceExecutor
from gpu_node.graph.program import Operator, OperatorClass, OperatorKind
from gpu_node.models.architectures.families import build_program
from gpu_node.models.config import Family, ModelConfig, Rope
from gpu_node.models.gguf.gguf_config import read_gguf_config
from shared.config.engines.engine import EngineOptions, ModelSpec
from shared.files.gguf_file import open_gguf
from shared.files.model_file import ModelFileError
from tests.gpu_node import tiny


def load(path: Path) -> None:
    options = EngineOptions(kv_cache_bytes=1 << 20)
    ReferenceExecutor(options).load_model(ModelSpec(name="tiny", source=str(path), max_model_len=tiny.CONTEXT))


def config_of(path: Path) -> ModelConfig:
    return read_gguf_config(open_gguf(path), path)


def test_the_configuration_comes_from_the_metadata(tiny_path: Path) -> None:
    assert config_of(tiny_path) == ModelConfig(
        family=Family.LLAMA,
        num_layers=tiny.LAYERS,
        hidden_size=tiny.HIDDEN,
        num_heads=tiny.HEADS,
        num_kv_heads=tiny.KV_HEADS,
        head_dim=tiny.HEAD_DIM,
        intermediate_size=tiny.INNER,
        vocab_size=tiny.VOCAB,
        context_length=tiny.CONTEXT,
        rope=Rope(tiny.THETA),
        norm_epsilon=float(np.float32(tiny.EPSILON)),
        tied_embedding=True,
        eos_token_ids=frozenset({tiny.EOS}),
    )


@pytest.mark.parametrize(
    ("metadata", "words"),
    [
        ({"llama__rope__scaling__type": "yarn"}, "scaled rotary"),
        ({"llama__rope__dimension_count": 4}, "a part of a head"),
        ({"llama__attention__head_count_kv": 3}, "4 heads cannot share 3"),
        ({"llama__block_count": "two"}, "llama.block_count is 'two', expected a positive int"),
        ({"llama__embedding_length": 0}, "llama.embedding_length is 0, expected a positive int"),
        ({"llama__block_count": 1 << 30}, "llama.block_count is 1073741824, expected 1024 at most"),
        ({"llama__attention__key_length": 1 << 30}, "key_length is 1073741824, expected 4096 at most"),
        ({"llama__expert_count": 1 << 30}, "1073741824 experts are more than 4096"),
        ({"llama__embedding_length": (1 << 32) - 1}, "llama.embedding_length is 4294967295, expected 2147483647"),
        ({"llama__embedding_length": 3, "llama__attention__head_count": 4}, "expected a positive int|cannot share"),
        ({"llama__feed_forward_length": 1 << 30}, r"has shape \(48, 32\), expected \(1073741824, 32\)"),
        ({"llama__feed_forward_length": 50}, r"blk.0.ffn_gate.weight has shape \(48, 32\), expected \(50, 32\)"),
        ({"llama__block_count": 3}, "missing tensors: blk.2.attn_k.weight, .* and 6 more"),
        ({"llama__block_count": 1}, "tensors not known: blk.1.attn_k.weight, .* and 6 more"),
    ],
)
def test_metadata_that_cannot_be_used_names_file_and_key(
    tiny_model: LlamaForCausalLM, tmp_path: Path, metadata: dict[str, int | str], words: str
) -> None:
    path = tiny.write_gguf(tmp_path / "odd.gguf", tiny.tensors_of(tiny_model), **metadata)
    with pytest.raises(ModelFileError, match=rf"odd\.gguf.*{words}"):
        load(path)


def test_a_missing_and_an_unknown_tensor_are_named(tiny_model: LlamaForCausalLM, tmp_path: Path) -> None:
    tensors = tiny.tensors_of(tiny_model)
    tensors["blk.1.attn_q.bias"] = tensors.pop("blk.1.attn_v.weight")
    path = tiny.write_gguf(tmp_path / "odd.gguf", tensors)
    with pytest.raises(
        ModelFileError, match=r"odd\.gguf: missing tensors: blk\.1\.attn_v\.weight; .*blk\.1\.attn_q\.bias"
    ):
        load(path)


def test_a_truncated_file_is_named_with_its_digest(tiny_path: Path, tmp_path: Path) -> None:
    data = tiny_path.read_bytes()
    for size in (0, 10, 300, len(data) - 100):
        path = tmp_path / f"cut-{size}.gguf"
        path.write_bytes(data[:size])
        with pytest.raises(ModelFileError, match=rf"cut-{size}\.gguf.*sha256"):
            load(path)


def test_a_failed_load_leaves_the_model_that_was_there(tiny_path: Path, tmp_path: Path) -> None:
    engine = tiny.make_engine(tiny_path)
    before = tiny.run(engine, [tiny.request("a", [5, 6], 4)])
    with pytest.raises(ModelFileError):
        engine.load_model(ModelSpec(name="other", source=str(tmp_path / "none.gguf"), max_model_len=64))
    assert tiny.run(engine, [tiny.request("a", [5, 6], 4)]) == before


def test_a_swap_reaches_no_block_of_the_model_before(tiny_path: Path, tmp_path: Path) -> None:
    other = tiny.make_model(seed=9)
    path = tiny.write_gguf(tmp_path / "other.gguf", tiny.tensors_of(other))
    engine = tiny.make_engine(tiny_path, block_size=4)
    text = list(range(10, 30))
    tiny.run(engine, [tiny.request("a", text, 4)])
    engine.load_model(ModelSpec(name="other", source=str(path), max_model_len=64))
    outputs = tiny.run(engine, [tiny.request("a", text, 4, model="other")])
    assert outputs == [tiny.greedy(other, text, 4)[0]]


def test_the_program_is_whole_and_its_classes_are_told_apart(tiny_path: Path) -> None:
    program = build_program(config_of(tiny_path))
    program.check()
    compute = {operator.kind for operator in program.operators if operator.operator_class is OperatorClass.COMPUTE}
    assert compute == {OperatorKind.LINEAR}
    assert sum(operator.kind is OperatorKind.PAGED_ATTENTION for operator in program.operators) == tiny.LAYERS
    torn = dataclasses.replace(program, operators=(Operator(OperatorKind.ADD, ("q", "k"), ("v",)), *program.operators))
    with pytest.raises(AssertionError, match="not written yet"):
        torn.check()
