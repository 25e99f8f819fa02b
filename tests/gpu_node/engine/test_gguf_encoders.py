"""Encoders in GGUF files: vectors and scores are those of `transformers`, of whatever shape the file is; what it lacks
is named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch

from gpu_node.engine.engine import Engine
from gpu_node.executors.predicted.virtual import VirtualExecutor
from gpu_node.models.checkpoint import open_checkpoint
from gpu_node.models.served_program import served_program
from gpu_node.models.weights.weight_check import check_weights
from shared.config.engines.engine import EngineOptions, ModelSpec
from shared.files.model_file import ModelFileError
from tests.gpu_node.embedding_model import embedded
from tests.gpu_node.encoder_model import FAMILIES, LONGEST, check_close, means, save_encoder, scores, states
from tests.gpu_node.engine.test_encoders import pairs, reference, texts
from tests.gpu_node.gguf_encoders import encoder_tensors, tokenizer_keys, write_encoder_gguf
from tests.gpu_node.gguf_files import Array, write_gguf


def rewritten(path: Path, directory: Path, tensors: dict[str, Array], **metadata: Any) -> Path:
    """With other tensors."""
    return write_gguf(path, directory, tensors=tensors, keys=tokenizer_keys(directory), **metadata)


@pytest.mark.parametrize("name", FAMILIES)
def test_embeddings_are_means_of_what_transformers_computes(name: str, tmp_path: Path) -> None:
    model = save_encoder(name, tmp_path)
    path = write_encoder_gguf(tmp_path / "m.gguf", tmp_path)
    check_close(embedded(reference(path), texts(9)), means(model, texts(9)))


def test_or_the_first_token_as_the_file_says(tmp_path: Path) -> None:
    model = save_encoder("bert", tmp_path)
    by_number = {number: write_encoder_gguf(tmp_path / f"{number}", tmp_path, pooling_type=number) for number in (1, 2)}
    check_close(embedded(reference(by_number[1]), texts(5)), means(model, texts(5)))
    firsts = torch.stack([states(model, text)[0] for text in texts(5)])
    check_close(embedded(reference(by_number[2]), texts(5)), firsts)


@pytest.mark.parametrize("name", FAMILIES)
def test_scores_are_those_of_transformers(name: str, tmp_path: Path) -> None:
    """A BERT's with its pooler, and in segments as its tokenizer has them."""
    model = save_encoder(name, tmp_path, is_classifier=True)
    path = write_encoder_gguf(tmp_path / "m.gguf", tmp_path, has_pooler=True, pooling_type=4)
    check_close(embedded(reference(path, "score"), pairs()), scores(model, pairs()))


def test_a_head_is_left_out_by_who_embeds(tmp_path: Path) -> None:
    model = save_encoder("roberta", tmp_path, is_classifier=True)
    path = write_encoder_gguf(tmp_path / "m.gguf", tmp_path)
    check_close(embedded(reference(path), texts(5)), means(model, texts(5)))


def test_queries_keys_and_values_may_lie_in_one_tensor(tmp_path: Path) -> None:
    model = save_encoder("bert", tmp_path)
    tensors = encoder_tensors(tmp_path, has_pooler=False)
    for layer in range(2):
        for kind in ("weight", "bias"):
            parts = [tensors.pop(f"blk.{layer}.attn_{name}.{kind}") for name in ("q", "k", "v")]
            tensors[f"blk.{layer}.attn_qkv.{kind}"] = np.concatenate(parts)
    path = rewritten(tmp_path / "m.gguf", tmp_path, tensors)
    check_close(embedded(reference(path), texts(5)), means(model, texts(5)))


def test_tools_leave_out_a_dimension_of_one_row(tmp_path: Path) -> None:
    """That of one segment and of one label, in files that were quantised."""
    model = save_encoder("xlm-roberta", tmp_path, is_classifier=True)
    tensors = encoder_tensors(tmp_path, has_pooler=False)
    for name in ("token_types.weight", "cls.output.weight"):
        tensors[name] = tensors[name][0]
    path = rewritten(tmp_path / "m.gguf", tmp_path, tensors)
    check_close(embedded(reference(path, "score"), pairs()), scores(model, pairs()))
    check_close(embedded(reference(path), texts(5)), means(model, texts(5)))


def test_a_model_may_have_no_segments(tmp_path: Path) -> None:
    """A DistilBERT is a BERT of which every text's segment is part of its words, so that there is no table."""
    model = save_encoder("bert", tmp_path)
    tensors = encoder_tensors(tmp_path, has_pooler=False)
    tensors["token_embd.weight"] = tensors["token_embd.weight"] + tensors.pop("token_types.weight")[0]
    path = rewritten(tmp_path / "m.gguf", tmp_path, tensors)
    with pytest.raises(ModelFileError, match=r"token_types.weight is missing, but .*token_type_count says"):
        reference(path)
    keys = tokenizer_keys(tmp_path) | {"tokenizer.ggml.token_type_count": 1}
    path = write_gguf(tmp_path / "distil.gguf", tmp_path, tensors=tensors, keys=keys)
    check_close(embedded(reference(path), texts(5)), means(model, texts(5)))


def test_weights_may_be_quantised(tmp_path: Path) -> None:
    """The same numbers as of a file that holds what the blocks stand for."""
    save_encoder("bert", tmp_path)
    kind, tensors = gguf.GGMLQuantizationType.Q8_0, encoder_tensors(tmp_path, has_pooler=False)
    names = [name for name in tensors if name.endswith(("attn_q.weight", "ffn_up.weight"))]
    packed = tensors | {name: gguf.quantize(tensors[name], kind) for name in names}
    unpacked = tensors | {name: gguf.dequantize(packed[name], kind) for name in names}
    keys, types = tokenizer_keys(tmp_path), dict.fromkeys(names, kind)
    path = write_gguf(tmp_path / "q8.gguf", tmp_path, tensors=packed, keys=keys, types=types)
    expected = embedded(reference(rewritten(tmp_path / "f32.gguf", tmp_path, unpacked)), texts(5))
    assert torch.equal(embedded(reference(path), texts(5)), expected)


def test_a_predicted_device_makes_embeddings_up(tmp_path: Path) -> None:
    save_encoder("bert", tmp_path)
    options = EngineOptions(step_tokens=40, block_size=256)  # or there would be millions
    engine = Engine(VirtualExecutor("a100", options), options)
    path = write_encoder_gguf(tmp_path / "m.gguf", tmp_path)
    loaded = engine.load_model(ModelSpec(name="tiny", source=str(path), task="embed"))
    assert (loaded.max_model_len, loaded.is_encoder, loaded.step_tokens) == (LONGEST + 1, True, 512)
    assert embedded(engine, [[5, 6, 7]] * 3).shape == (3, 32)


# --- what is refused --------------------------------------------------------------------------------------------------


def check(path: Path, task: Any = "embed") -> None:
    """As `treadle config check` does."""
    checkpoint = open_checkpoint(path)
    check_weights(checkpoint, served_program(ModelSpec(name="m", source=str(path), task=task), checkpoint))


@pytest.mark.parametrize(
    ("metadata", "error"),
    [
        ({"pooling_type": 0}, "its embeddings are pooled by 'none' .pooling_type.; task: embed takes the mean over an"),
        ({"pooling_type": 3}, "pooled by 'last' .pooling_type.; task: embed takes the mean over an encoder's tokens"),
        ({"pooling_type": 4}, "pooled by 'rank' "),
        ({"pooling_type": 9}, "pooled by 'number 9' "),
        ({"attention__causal": True}, "bert.attention.causal is true, but an encoder's tokens see those behind them"),
        ({"attention__head_count": 5}, "32 columns cannot be shared by 5 heads"),
        ({"context_length": 61}, r"tensor position_embd.weight has shape \(62, 32\), expected \(61, 32\)"),
        ({"block_count": 3}, r"missing tensors: blk\.2\.attn_k\.bias, .* and 13 more; tensors not known: none"),
        ({"block_count": 1}, r"missing tensors: none; tensors not known: blk\.1\.attn_k\.bias"),
    ],
)
def test_what_cannot_be_served_is_named(tmp_path: Path, metadata: dict[str, Any], error: str) -> None:
    save_encoder("bert", tmp_path)
    with pytest.raises(ModelFileError, match=error):
        check(write_encoder_gguf(tmp_path / "m.gguf", tmp_path, **metadata))


def test_who_scores_has_labels_and_the_layer_before_them(tmp_path: Path) -> None:
    save_encoder("bert", tmp_path)
    with pytest.raises(ModelFileError, match=r"no tensor cls\.output\.weight, so it has no score to give; set task: e"):
        check(write_encoder_gguf(tmp_path / "m.gguf", tmp_path), "score")
    save_encoder("bert", tmp_path, is_classifier=True)
    with pytest.raises(ModelFileError, match=r"no tensor cls\.weight, the layer before its labels, which llama.cpp's"):
        check(write_encoder_gguf(tmp_path / "m.gguf", tmp_path), "score")
    save_encoder("roberta", tmp_path, is_classifier=True, num_labels=3)
    with pytest.raises(ModelFileError, match="it is a classifier with 3 labels; task: score takes one of one label"):
        check(write_encoder_gguf(tmp_path / "m.gguf", tmp_path), "score")


def test_it_writes_no_text(tmp_path: Path) -> None:
    save_encoder("bert", tmp_path)
    with pytest.raises(ModelFileError, match=r"it is an encoder, .* and writes no text; set task: embed"):
        check(write_encoder_gguf(tmp_path / "m.gguf", tmp_path), "generate")
