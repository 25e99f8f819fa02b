"""GGUF files of the tiny encoders of `transformers`, tokenizer included, as llama.cpp's converter writes them."""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
from gguf import TokenType
from safetensors.numpy import load_file

from gpu_node.models.checkpoint import open_checkpoint
from gpu_node.models.config import Family
from tests.gateway.encoder_tiny import BERT_SPECIAL, ROBERTA_SPECIAL
from tests.gpu_node.gguf_files import ARCHITECTURES, Array, write_gguf

_PREFIXES = ("bert.", "roberta.")
_ROLES = {
    "bert": {"unknown": "[UNK]", "cls": "[CLS]", "seperator": "[SEP]", "padding": "[PAD]", "mask": "[MASK]"},
    "roberta": {"bos": "<s>", "eos": "</s>", "unknown": "<unk>", "cls": "<s>", "seperator": "</s>", "padding": "<pad>"},
}
_KINDS = {"WordPiece": "bert", "Unigram": "t5", "BPE": "gpt2"}


def write_encoder_gguf(
    path: Path, directory: Path, *, has_pooler: bool = False, keys: Mapping[str, Any] | None = None, **metadata: Any
) -> Path:
    """The encoder of ``directory``; ``has_pooler``: the file of a BERT that scores has what the converter leaves out.

    ``keys`` replace those of the tokenizer, None leaves one out; ``metadata`` are of the architecture.
    """
    tokens = tokenizer_keys(directory) | dict(keys or {})
    given = {key: value for key, value in tokens.items() if value is not None}
    tensors = encoder_tensors(directory, has_pooler=has_pooler)
    return write_gguf(path, directory, tensors=tensors, keys=given, **{"attention__causal": False} | metadata)


def tokenizer_keys(directory: Path) -> dict[str, Any]:
    """What the converter makes of ``tokenizer.json``; a row of the model without a token is an unused one."""
    spec = json.loads((directory / "tokenizer.json").read_text())
    config = json.loads((directory / "config.json").read_text())
    model, kind = spec["model"], _KINDS[spec["model"]["type"]]
    ids = {token["content"]: token["id"] for token in spec["added_tokens"]}
    if kind == "t5":
        ids |= {text: index for index, (text, _) in enumerate(model["vocab"])}
    else:
        ids |= model["vocab"]
    texts = {index: text for text, index in ids.items()}
    like_bert = config["model_type"] in ("bert", "modernbert")
    special = BERT_SPECIAL if like_bert and kind != "t5" else ROBERTA_SPECIAL
    added = {token["id"] for token in spec["added_tokens"] if token["content"] not in special}
    kinds = [
        TokenType.UNUSED
        if index not in texts
        else TokenType.CONTROL
        if texts[index] in special
        else TokenType.USER_DEFINED
        if index in added
        else TokenType.NORMAL
        for index in range(config["vocab_size"])
    ]
    tokens = [texts.get(index, f"[PAD{index}]") for index in range(len(kinds))]
    if kind == "bert":
        tokens = [text if of is TokenType.CONTROL else phantom(text) for text, of in zip(tokens, kinds, strict=True)]
    keys: dict[str, Any] = {"model": kind, "tokens": tokens, "token_type": [int(one) for one in kinds]}
    byte_pairs = "modern-bert" if like_bert else "roberta-bpe"
    keys |= {"pre": byte_pairs if kind == "gpt2" else "default"}
    if config["model_type"] != "modernbert":
        keys |= {"token_type_count": config.get("type_vocab_size", 2)}
    roles = _ROLES["bert" if special is BERT_SPECIAL else "roberta"]
    keys |= {f"{role}_token_id": ids[text] for role, text in roles.items()}
    if kind == "t5":
        scores = [float(score) for _, score in model["vocab"]]
        keys |= {"scores": scores + [-10000.0] * (len(tokens) - len(scores)), "add_space_prefix": True}
        if spec["normalizer"] is not None:
            keys |= {"precompiled_charsmap": list(b64decode(spec["normalizer"]["precompiled_charsmap"]))}
    if kind == "gpt2":
        keys |= {"merges": [merge if isinstance(merge, str) else " ".join(merge) for merge in model["merges"]]}
    return {f"tokenizer.ggml.{name}": value for name, value in keys.items()}


def phantom(text: str) -> str:
    """A piece of a word: "▁" before what begins one, and nothing before what goes on with one."""
    return text[2:] if text.startswith("##") else f"▁{text}"


def encoder_tensors(directory: Path, *, has_pooler: bool) -> dict[str, Array]:
    """Weights by their names in GGUF."""
    config = open_checkpoint(directory).config
    arch = ARCHITECTURES.get(config.family, str(config.family))
    number = next(number for number, name in gguf.MODEL_ARCH_NAMES.items() if name == arch)
    names = gguf.get_tensor_name_map(number, config.num_layers)
    tensors: dict[str, Array] = {}
    for full_name, stored in load_file(directory / "model.safetensors").items():
        name, values = full_name, stored
        for prefix in _PREFIXES:
            name = name.removeprefix(prefix)
        if name == "embeddings.position_embeddings.weight":
            values = values[config.num_skipped_positions :]
        if config.family is Family.BERT and name.startswith("classifier."):
            name = name.replace("classifier.", "classifier.out_proj.")
        if name.startswith("pooler."):
            if not has_pooler:
                continue
            name = name.replace("pooler.dense", "classifier.dense")
        found = names.get_name(name, try_suffixes=(".weight", ".bias"))
        assert found is not None, f"{name} has no name in GGUF"
        tensors[found] = values
    return tensors
