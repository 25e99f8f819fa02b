"""Encoders with rotary positions in an engine of each executor: vectors and logits are those of `transformers`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from gpu_node.engine.engine import Engine
from gpu_node.executors.reference.executor import ReferenceExecutor
from gpu_node.models.checkpoint import open_checkpoint
from gpu_node.models.hf.hf_config import read_hf_config
from shared.config.engines.engine import EngineOptions, ModelTask
from shared.files.model_file import ModelFileError
from shared.files.model_sizes import read_is_encoder, read_sizes
from tests.gpu_node.embedding_model import OPTIONS, embedded
from tests.gpu_node.encoder_model import check_close, engine_of, label_logits, means, states, write_pooling
from tests.gpu_node.turned_encoders import (
    LONGEST,
    TURNED,
    as_gte_writes_it,
    as_nomic_writes_it,
    change_config,
    save_turned,
    texts,
)


def reference(path: Path, task: ModelTask = "embed", **options: Any) -> Engine:
    return engine_of(ReferenceExecutor(EngineOptions(**OPTIONS | options)), path, task, **options)


# --- what is computed -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", TURNED)
def test_embeddings_are_means_of_what_transformers_computes(name: str, tmp_path: Path) -> None:
    model = save_turned(name, tmp_path)
    check_close(embedded(reference(tmp_path), texts()), means(model, texts()))


@pytest.mark.parametrize("name", TURNED)
def test_or_first_tokens_where_the_files_ask_for_them(name: str, tmp_path: Path) -> None:
    model = save_turned(name, tmp_path)
    write_pooling(tmp_path, cls_token=True)
    check_close(embedded(reference(tmp_path), texts()), torch.stack([states(model, text)[0] for text in texts()]))


@pytest.mark.parametrize("name", TURNED)
def test_logits_of_labels(name: str, tmp_path: Path) -> None:
    model = save_turned(name, tmp_path, is_classifier=True, num_labels=3)
    check_close(embedded(reference(tmp_path, "classify"), texts()), label_logits(model, texts()))


def test_labels_by_the_mean_of_states(tmp_path: Path) -> None:
    model = save_turned("modernbert", tmp_path, is_classifier=True, classifier_pooling="mean")
    check_close(embedded(reference(tmp_path, "score"), texts()), label_logits(model, texts()))


# --- files ------------------------------------------------------------------------------------------------------------


def test_nomics_own_files_say_the_same(tmp_path: Path) -> None:
    save_turned("nomic_bert", tmp_path)
    expected = embedded(reference(tmp_path), texts())
    as_nomic_writes_it(tmp_path)
    assert torch.equal(embedded(reference(tmp_path), texts()), expected)


def test_and_so_do_those_of_gte(tmp_path: Path) -> None:
    save_turned("gte", tmp_path)
    expected = embedded(reference(tmp_path), texts())
    as_gte_writes_it(tmp_path)
    assert torch.equal(embedded(reference(tmp_path), texts()), expected)


def test_a_classifier_of_gte(tmp_path: Path) -> None:
    model = save_turned("gte", tmp_path, is_classifier=True)
    as_gte_writes_it(tmp_path, architectures=["NewForSequenceClassification"])
    check_close(embedded(reference(tmp_path, "score"), texts()), label_logits(model, texts()))


def test_without_types_of_tokens(tmp_path: Path) -> None:
    """As gte-base-en-v1.5."""
    model = save_turned("gte", tmp_path / "gte", type_vocab_size=0)
    check_close(embedded(reference(tmp_path / "gte"), texts()), means(model, texts()))


def test_a_base_that_is_stretched(tmp_path: Path) -> None:
    """As gte-multilingual-base: by a factor of 8, at all positions."""
    model = save_turned("gte", tmp_path)
    as_gte_writes_it(tmp_path, rope_theta=20_000, rope_scaling={"type": "ntk", "factor": 8.0})
    speeds = 1 / (8 * 20_000) ** (torch.arange(0, 8, 2).float() / 8) / 8 ** (2 / 8)
    model.rotary_emb.inv_freq.copy_(speeds)
    check_close(embedded(reference(tmp_path), texts()), means(model, texts()))


def test_an_older_modern_bert_says_by_a_number_which_layers_have_windows(tmp_path: Path) -> None:
    save_turned("modernbert", tmp_path)
    config = read_hf_config(tmp_path)
    change_config(
        tmp_path,
        layer_types=None,
        rope_parameters=None,
        global_attn_every_n_layers=3,
        global_rope_theta=160_000.0,
        local_rope_theta=10_000.0,
    )
    assert read_hf_config(tmp_path) == config
    assert config.windows == (None, 7, 7, None)


@pytest.mark.parametrize("name", TURNED)
def test_sizes_are_found_alike_at_the_gateway(name: str, tmp_path: Path) -> None:
    save_turned(name, tmp_path)
    config = open_checkpoint(tmp_path).config
    sizes = read_sizes(tmp_path)
    assert read_is_encoder(tmp_path)
    assert sizes.context_length == config.max_length == LONGEST + 1
    assert sizes.kv is not None
    assert (sizes.kv.num_layers, sizes.kv.num_kv_heads, sizes.kv.head_dim) == (config.num_layers, 4, 8)


def test_nomics_texts_are_as_long_as_those_of_its_training(tmp_path: Path) -> None:
    save_turned("nomic_bert", tmp_path)
    for changes, longest in (({}, LONGEST), ({"max_trained_positions": 50}, 50), ({"n_positions": 8192}, 2048)):
        as_nomic_writes_it(tmp_path, **changes)
        assert open_checkpoint(tmp_path).config.context_length == longest
        assert read_sizes(tmp_path).context_length == longest + 1
        save_turned("nomic_bert", tmp_path)


# --- what cannot be served --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"norm_bias": True}, "norm_bias is not supported"),
        ({"attention_bias": True}, "attention_bias is not supported"),
        ({"hidden_activation": "silu"}, "hidden_activation 'silu' is not supported; 'gelu' is"),
        ({"rope_scaling": {"rope_type": "linear", "factor": 2.0}}, "scaled rotary embeddings .* in a ModernBERT"),
        ({"layer_types": ["full_attention"]}, "layer_types has 1 entries for 4 layers"),
        ({"layer_types": ["chunked"] * 4}, r"layer_types \['chunked'\] are not all supported"),
    ],
)
def test_what_is_not_supported_of_a_modern_bert(tmp_path: Path, changes: dict[str, Any], error: str) -> None:
    save_turned("modernbert", tmp_path)
    change_config(tmp_path, **changes)
    with pytest.raises(ModelFileError, match=error):
        reference(tmp_path)


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"classifier_activation": "silu"}, "classifier_activation 'silu' is not supported; 'gelu' is"),
        ({"classifier_bias": True}, "classifier_bias is not supported"),
        ({"classifier_pooling": "max"}, "classifier_pooling 'max' is not supported; 'mean' and 'cls' are"),
    ],
)
def test_and_of_its_head(tmp_path: Path, changes: dict[str, Any], error: str) -> None:
    save_turned("modernbert", tmp_path, is_classifier=True)
    change_config(tmp_path, **changes)
    with pytest.raises(ModelFileError, match=error):
        reference(tmp_path, "score")
    assert len(embedded(reference(tmp_path), texts(3))) == 1, "what embeds has no head"


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"activation_function": "gelu"}, "activation_function 'gelu' is not supported; 'swiglu' is"),
        ({"qkv_proj_bias": True}, "qkv_proj_bias other than false is not supported"),
        ({"prenorm": True}, "prenorm other than false is not supported"),
        ({"rotary_emb_fraction": 0.5}, "rotary embedding of a part of a head"),
        ({"rotary_emb_scale_base": 512.0}, "rotary_emb_scale_base is not supported"),
        ({"num_experts": 8, "moe_every_n_layers": 2}, "mixtures of experts .* are not supported in encoders"),
    ],
)
def test_what_is_not_supported_of_nomics(tmp_path: Path, changes: dict[str, Any], error: str) -> None:
    save_turned("nomic_bert", tmp_path)
    as_nomic_writes_it(tmp_path, **changes)
    with pytest.raises(ModelFileError, match=error):
        reference(tmp_path)


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"position_embedding_type": "absolute"}, "position_embedding_type 'absolute' is not supported; 'rope' is"),
        ({"layer_norm_type": "rms_norm"}, "layer_norm_type 'rms_norm' is not supported"),
        ({"logn_attention_scale": True}, "logn_attention_scale is not supported"),
        ({"pack_qkv": False}, "pack_qkv false is not supported"),
        ({"rope_scaling": {"type": "ntk", "factor": 8.0, "mixed_b": 0.625}}, "mixed scaling of a rotary embedding"),
    ],
)
def test_what_is_not_supported_of_gte(tmp_path: Path, changes: dict[str, Any], error: str) -> None:
    save_turned("gte", tmp_path)
    as_gte_writes_it(tmp_path, **changes)
    with pytest.raises(ModelFileError, match=error):
        reference(tmp_path)
