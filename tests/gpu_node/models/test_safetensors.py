"""Directories in Hugging Face layout: what is read, and what is said when a file is not what it should be."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig

from gpu_node.executors.reference.executor import ReferenceExecutor
from gpu_node.models.architectures.families import build_program
from gpu_node.models.checkpoint import open_checkpoint
from gpu_node.models.config import Family, ModelConfig, Rope
from gpu_node.models.hf.rope_scaling import llama3_factors
from gpu_node.models.weights.weights import load_weights
from shared.config.engines.engine import EngineOptions, ModelSpec
from shared.files.model_file import ModelFileError, sha256_of_directory
from tests.gpu_node import tiny
from tests.gpu_node.models.test_families_models import save

Tensors = dict[str, torch.Tensor]
WEIGHTS = "model.safetensors"


@pytest.fixture
def llama(tmp_path: Path) -> Path:
    save("llama", tmp_path / "llama")
    return tmp_path / "llama"


@pytest.fixture
def gpt2(tmp_path: Path) -> Path:
    save("gpt2", tmp_path / "gpt2")
    return tmp_path / "gpt2"


def load(path: Path, sha256: str | None = None) -> None:
    options = EngineOptions(kv_cache_bytes=1 << 20)
    spec = ModelSpec(name="tiny", source=str(path), sha256=sha256, max_model_len=tiny.CONTEXT)
    ReferenceExecutor(options).load_model(spec)


def weights_of(path: Path) -> Tensors:
    checkpoint = open_checkpoint(path)
    return load_weights(checkpoint, build_program(checkpoint.config))


def rewrite(path: Path, change: Callable[[Tensors], object]) -> None:
    tensors = load_file(path / WEIGHTS)
    change(tensors)
    save_file(tensors, path / WEIGHTS, metadata={"format": "pt"})


def rewrite_config(path: Path, **changes: object) -> None:
    values = json.loads((path / "config.json").read_text()) | changes
    (path / "config.json").write_text(json.dumps({key: value for key, value in values.items() if value != "left out"}))


def test_the_configuration_comes_from_config_json(llama: Path) -> None:
    assert open_checkpoint(llama).config == ModelConfig(
        family=Family.LLAMA,
        num_layers=2,
        hidden_size=32,
        num_heads=4,
        num_kv_heads=2,
        head_dim=8,
        intermediate_size=48,
        vocab_size=tiny.VOCAB,
        context_length=tiny.CONTEXT,
        norm_epsilon=1e-6,
        tied_embedding=True,
        eos_token_ids=frozenset({tiny.EOS}),
        rope=Rope(10_000.0),
    )


def test_older_files_say_less_and_in_other_words(llama: Path) -> None:
    rewrite_config(llama, rope_parameters="left out", head_dim="left out", num_key_value_heads="left out")
    rewrite_config(llama, rope_theta=500, rope_scaling={"type": "linear", "factor": 2}, eos_token_id=[2, 5])
    (llama / "generation_config.json").write_text('{"eos_token_id": [5, 7]}')
    config = open_checkpoint(llama).config
    assert (config.head_dim, config.num_kv_heads) == (8, 4)
    assert config.rope == Rope(500.0, (2.0,) * 4)
    assert config.eos_token_ids == {2, 5, 7}


@pytest.mark.parametrize(("name", "windowed"), [("mistral", (True, True)), ("qwen2-window", (False, True))])
def test_a_window_that_a_file_leaves_out_is_the_one_that_transformers_takes(
    tmp_path: Path, name: str, windowed: tuple[bool, ...]
) -> None:
    save(name, tmp_path)
    rewrite_config(tmp_path, sliding_window="left out", layer_types="left out")
    own = AutoConfig.from_pretrained(tmp_path).sliding_window
    assert open_checkpoint(tmp_path).config.windows == tuple(own if here else None for here in windowed)
    rewrite_config(tmp_path, sliding_window=None)
    assert open_checkpoint(tmp_path).config.windows == ()


def test_windows_of_qwen_without_layer_types_begin_at_a_layer(tmp_path: Path) -> None:
    save("qwen2-window", tmp_path)
    rewrite_config(tmp_path, layer_types="left out", num_hidden_layers=3)
    assert open_checkpoint(tmp_path).config.windows == (None, 5, 5)
    rewrite_config(tmp_path, max_window_layers=0)
    assert open_checkpoint(tmp_path).config.windows == (5, 5, 5)


def test_llama3_factors_keep_the_quick_pairs_and_slow_the_others() -> None:
    # theta ** (2i / 8) = 1, 10, 100, 1000: within 1000 tokens the pairs turn 159.2, 15.92, 1.592 and 0.1592 times
    factors = llama3_factors(head_dim=8, theta=10_000.0, factor=8.0, low=1.0, high=4.0, trained_length=1000)
    kept = (1000 / (2 * torch.pi * 100) - 1) / 3
    assert factors == pytest.approx((1.0, 1.0, 1 / (kept + (1 - kept) / 8), 8.0))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model_type": "mamba"}, "model_type 'mamba' is not supported; 'llama', 'mistral'"),
        ({"hidden_size": "left out"}, "hidden_size is None, expected a positive int"),
        ({"num_hidden_layers": True}, "num_hidden_layers is True, expected a positive int"),
        ({"num_key_value_heads": 3}, "4 heads cannot share 3"),
        ({"hidden_act": "gelu"}, "only hidden_act 'silu'"),
        ({"attention_bias": True}, "attention_bias is not supported"),
        ({"tie_word_embeddings": 1}, "tie_word_embeddings is 1, expected true or false"),
        (
            {"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4}},
            "of type 'yarn' are not supported; 'default', 'linear'",
        ),
        (
            {"rope_scaling": {"type": "dynamic", "factor": 2.0}, "rope_parameters": "left out"},
            "of type 'dynamic' are not",
        ),
        ({"rope_parameters": {"rope_type": "linear"}}, "factor is None, expected a positive float"),
        ({"rope_parameters": {"partial_rotary_factor": 0.5}}, "a part of a head"),
        ({"partial_rotary_factor": 0.5}, "a part of a head"),
        ({"rope_scaling": {"type": "linear", "factor": 2.0}}, "rope_parameters and rope_scaling say different things"),
        ({"quantization_config": {"quant_method": "gptq"}}, "quantised weights"),
        ({"eos_token_id": "end"}, "eos_token_id is 'end', expected a token id"),
        ({"num_hidden_layers": 10**9}, "num_hidden_layers is 1000000000, expected 1024 at most"),
        ({"head_dim": 10**9}, "head_dim is 1000000000, expected 4096 at most"),
        ({"hidden_size": 10**9, "head_dim": "left out"}, "head_dim is 250000000, expected 4096 at most"),
        ({"intermediate_size": 10**9}, r"has shape .*, expected \(1000000000, 32\)"),
        ({"vocab_size": 10**400}, "vocab_size is 1000.*000, expected 2147483647 at most"),
        ({"rms_norm_eps": 10**400}, "rms_norm_eps is 1000.*000, expected a positive float"),
        ({"rms_norm_eps": True}, "rms_norm_eps is True, expected a positive float"),
    ],
)
def test_a_configuration_that_cannot_be_used_names_file_and_key(
    llama: Path, changes: dict[str, object], words: str
) -> None:
    rewrite_config(llama, **changes)
    with pytest.raises(ModelFileError, match=rf"llama(/config\.json)?.*: .*{words}"):
        load(llama)


@pytest.mark.parametrize(
    ("name", "changes", "words"),
    [
        ("opt", {"do_layer_norm_before": False}, "do_layer_norm_before"),
        ("opt", {"word_embed_proj_dim": 16}, "projected embeddings"),
        ("opt", {"activation_function": "gelu"}, "'relu'"),
        ("gpt2", {"activation_function": "relu"}, "activation_function 'relu'"),
        ("gpt2", {"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx"),
        ("mixtral", {"num_experts_per_tok": 6}, "6 of 5 experts"),
    ],
)
def test_variants_of_a_family_that_are_not_built_are_refused(
    tmp_path: Path, name: str, changes: dict[str, object], words: str
) -> None:
    save(name, tmp_path)
    rewrite_config(tmp_path, **changes)
    with pytest.raises(ModelFileError, match=rf"config\.json: .*{words}"):
        load(tmp_path)


@pytest.mark.parametrize("text", ["", "[1]", "{", "\xff", "[" * 100_000, '{"model_type": "\\ud800"}'])
def test_a_config_that_is_no_mapping_is_named(llama: Path, text: str) -> None:
    (llama / "config.json").write_text(text, encoding="latin-1")
    with pytest.raises(ModelFileError, match=r"llama/config\.json"):
        load(llama)


def test_a_directory_without_a_config_is_named(tmp_path: Path) -> None:
    with pytest.raises(
        ModelFileError, match=rf"{tmp_path} holds no config\.json; a model is a GGUF file or a directory"
    ):
        load(tmp_path)


def test_shards_make_the_same_weights_as_one_file(tmp_path: Path) -> None:
    save("mixtral", tmp_path / "one")
    save("mixtral", tmp_path / "many", num_shards=4)
    assert len(list((tmp_path / "many").glob("*.safetensors"))) > 2
    one, many = weights_of(tmp_path / "one"), weights_of(tmp_path / "many")
    assert one.keys() == many.keys()
    assert all(one[name].equal(many[name]) for name in one)


def test_a_missing_shard_and_an_index_that_leads_elsewhere_are_named(tmp_path: Path) -> None:
    save("llama", tmp_path, num_shards=3)
    index = tmp_path / "model.safetensors.index.json"
    first = sorted(tmp_path.glob("*.safetensors"))[0]
    first.rename(tmp_path / "elsewhere")
    with pytest.raises(ModelFileError, match=rf"{first.name} is missing; {index.name} names it"):
        load(tmp_path)
    index.write_text('{"weight_map": {"model.norm.weight": "../other/model.safetensors"}}')
    with pytest.raises(ModelFileError, match="no safetensors file beside it"):
        load(tmp_path)
    index.write_text('{"weight_map": {"model.norm.weight": "' + "a" * 300 + '.safetensors"}}')
    with pytest.raises(ModelFileError, match=r"aaa\.safetensors is missing"):
        load(tmp_path)
    index.write_text('{"weight_map": []}')
    with pytest.raises(ModelFileError, match="weight_map is no mapping"):
        load(tmp_path)


def test_pickled_weights_are_refused_unread(llama: Path) -> None:
    (llama / WEIGHTS).rename(llama / "pytorch_model.bin")
    with pytest.raises(ModelFileError, match=r"pytorch_model\.bin only; such files are pickles.*refused"):
        load(llama)
    (llama / "pytorch_model.bin").unlink()
    with pytest.raises(ModelFileError, match=r"neither model\.safetensors nor"):
        load(llama)


def test_missing_and_unknown_tensors_are_named(llama: Path) -> None:
    def change(tensors: Tensors) -> None:
        tensors["model.layers.1.self_attn.q_proj.bias"] = tensors.pop("model.layers.1.self_attn.v_proj.weight")

    rewrite(llama, change)
    with pytest.raises(
        ModelFileError,
        match=r"llama: missing tensors: model\.layers\.1\.self_attn\.v_proj\.weight; "
        r"tensors not known: model\.layers\.1\.self_attn\.q_proj\.bias",
    ):
        load(llama)


@pytest.mark.parametrize(
    ("name", "tensor"),
    [
        ("mixtral", "model.layers.1.block_sparse_moe.experts.3.w2.weight"),
        ("mixtral", "model.layers.0.block_sparse_moe.gate.weight"),
        ("gpt2", "transformer.wpe.weight"),
        ("gpt2", "transformer.h.1.attn.c_attn.bias"),
        ("opt", "model.decoder.layers.0.fc2.bias"),
    ],
)
def test_tensors_that_a_shard_lacks_or_holds_in_another_shape_are_named(tmp_path: Path, name: str, tensor: str) -> None:
    save(name, tmp_path, num_shards=3)
    index = json.loads((tmp_path / "model.safetensors.index.json").read_text())
    shard = tmp_path / index["weight_map"][tensor]
    tensors = load_file(shard)
    save_file(tensors | {tensor: torch.zeros(7, 3)}, shard)
    with pytest.raises(ModelFileError) as error:
        load(tmp_path)
    assert str(error.value).startswith(f"{shard}: tensor {tensor} has shape (7, 3), expected (")
    save_file(tensors | {f"{tensor}_2": torch.zeros(1)}, shard)
    with pytest.raises(ModelFileError, match=rf"missing tensors: none; tensors not known: {tensor}_2$"):
        load(tmp_path)
    del tensors[tensor]
    save_file(tensors, shard)
    with pytest.raises(ModelFileError, match=rf"missing tensors: {tensor}; tensors not known: none$"):
        load(tmp_path)
    shard.write_bytes(shard.read_bytes()[:-1])
    with pytest.raises(ModelFileError, match=rf"^{shard} is no readable safetensors file .*sha256 .*fetch it again$"):
        load(tmp_path)


def test_a_tensor_of_another_shape_or_type_is_named(llama: Path) -> None:
    name = "model.layers.0.mlp.up_proj.weight"
    rewrite(llama, lambda tensors: tensors.update({name: tensors[name].T.contiguous()}))
    with pytest.raises(ModelFileError, match=rf"{WEIGHTS}: tensor {name} has shape \(32, 48\), expected \(48, 32\)"):
        load(llama)
    rewrite(llama, lambda tensors: tensors.update({name: torch.zeros(48, 32, dtype=torch.int8)}))
    with pytest.raises(ModelFileError, match=rf"{WEIGHTS}: tensor {name} is of type I8; supported are F32"):
        load(llama)


def test_a_fused_tensor_of_another_shape_is_named(gpt2: Path) -> None:
    name = "transformer.h.0.attn.c_attn.weight"
    rewrite(gpt2, lambda tensors: tensors.update({name: torch.zeros(32, 64)}))
    with pytest.raises(ModelFileError, match=rf"tensor {name} has shape \(32, 64\), expected \(32, 96\)"):
        load(gpt2)


def test_half_precision_is_widened(llama: Path) -> None:
    before = weights_of(llama)
    rewrite(llama, lambda tensors: tensors.update({name: value.bfloat16() for name, value in tensors.items()}))
    after = weights_of(llama)
    assert all(after[name].equal(before[name].bfloat16().float()) for name in before)


def test_files_of_the_bare_model_and_constants_in_old_files_are_read(gpt2: Path, llama: Path) -> None:
    before = weights_of(gpt2)

    def bare(tensors: Tensors) -> None:
        for name in list(tensors):
            tensors[name.removeprefix("transformer.")] = tensors.pop(name)
        tensors["h.0.attn.bias"] = torch.ones(1, 1, 4, 4)
        tensors["h.1.attn.masked_bias"] = torch.tensor(-1e4)

    rewrite(gpt2, bare)
    after = weights_of(gpt2)
    assert all(after[name].equal(before[name]) for name in before)

    def old(tensors: Tensors) -> None:
        tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].clone()
        tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = torch.ones(4)

    rewrite(llama, old)
    load(llama)


@pytest.mark.parametrize("head", ["other numbers", "other type", "other shape", "a number"])
def test_a_head_of_its_own_beside_a_tied_embedding_contradicts_the_configuration(llama: Path, head: str) -> None:
    """`transformers` 5 takes the head then, vLLM the embedding."""

    def two_heads(tensors: Tensors) -> None:
        embedding = tensors["model.embed_tokens.weight"]
        heads = {"other numbers": -embedding, "other type": embedding.double(), "other shape": embedding[1:].clone()}
        tensors["lm_head.weight"] = heads.get(head, torch.tensor(1.0))

    rewrite(llama, two_heads)
    with pytest.raises(ModelFileError, match=r"tensor lm_head.weight is not the embedding model.embed_tokens.weight"):
        load(llama)
    rewrite_config(llama, tie_word_embeddings=False)
    if head in ("other numbers", "other type"):
        load(llama)


def test_a_tensor_under_both_names_is_an_error(gpt2: Path) -> None:
    rewrite(gpt2, lambda tensors: tensors.update({"ln_f.weight": torch.ones(32)}))
    with pytest.raises(ModelFileError, match=r"tensor .*ln_f\.weight is also in"):
        load(gpt2)


def test_a_truncated_file_is_named_with_its_digest(llama: Path) -> None:
    data = (llama / WEIGHTS).read_bytes()
    for size in (0, 4, 100, len(data) - 100):
        (llama / WEIGHTS).write_bytes(data[:size])
        with pytest.raises(ModelFileError, match=rf"{WEIGHTS} is no readable safetensors file .*sha256"):
            load(llama)


def test_weights_are_in_memory_of_their_own(llama: Path) -> None:
    weights = weights_of(llama)
    before = {name: value.clone() for name, value in weights.items()}
    size = (llama / WEIGHTS).stat().st_size
    with (llama / WEIGHTS).open("r+b") as file:
        file.write(b"\xff" * size)
    assert all(weights[name].equal(before[name]) for name in weights)
    assert all(value.is_contiguous() and value.dtype == torch.float32 for value in weights.values())


def test_the_digest_of_a_directory_is_checked_and_can_be_made_by_hand(llama: Path) -> None:
    (llama / ".cache").mkdir()
    digest = sha256_of_directory(llama)
    by_hand: Any = subprocess.run(
        "LC_ALL=C sha256sum * | sha256sum", shell=True, cwd=llama, capture_output=True, text=True, check=True
    )
    assert by_hand.stdout.split()[0] == digest
    load(llama, sha256=digest)
    rewrite_config(llama, eos_token_id=3)
    with pytest.raises(ModelFileError, match=rf"damaged or another (model|file): .*expected {digest}"):
        load(llama, sha256=digest)
