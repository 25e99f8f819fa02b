"""Tiny models that score, whose vocabulary has a yes and a no, and what `transformers` says of texts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForSequenceClassification

from gpu_node.engine.border.executor import Executor
from gpu_node.engine.engine import Engine
from shared.config.engines.engine import EngineOptions, ModelSpec
from tests.gpu_node import tiny
from tests.gpu_node.embedding_model import OPTIONS
from tests.gpu_node.models.test_families_models import FAMILIES, save

NO, YES = 41, 7
"""Their ids, the no behind the yes as in Qwen's vocabulary."""


def write_words(path: Path) -> None:
    """A byte-level tokenizer in which most tokens are of no use."""
    vocab = {f"t{token}": token for token in range(tiny.VOCAB) if token not in (NO, YES, tiny.EOS)}
    vocab |= {"no": NO, "yes": YES, "<end>": tiny.EOS}
    end = {"id": tiny.EOS, "content": "<end>", "special": True, "normalized": False}
    end |= dict.fromkeys(("single_word", "lstrip", "rstrip"), False)
    tokenizer = {
        "version": "1.0",
        "added_tokens": [end],
        "normalizer": None,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
        "post_processor": None,
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {"type": "BPE", "vocab": vocab, "merges": []},
    }
    (path / "tokenizer.json").write_text(json.dumps(tokenizer))
    (path / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<end>"}))


def save_language_model(name: str, path: Path, **changes: Any) -> Any:
    """A model of that family that answers by a token."""
    model = save(name, path, **changes)
    write_words(path)
    return model


def save_classifier(name: str, path: Path, num_labels: int = 1) -> Any:
    """A model of that family with a head for labels."""
    torch.manual_seed(4)
    config = AutoConfig.for_model(name.split("-")[0], **FAMILIES[name], num_labels=num_labels)
    model = AutoModelForSequenceClassification.from_config(config)
    model.train(False)
    model.save_pretrained(path)
    write_words(path)
    return model


def spec(path: Path, **options: Any) -> ModelSpec:
    """A tiny model that scores."""
    fields: dict[str, Any] = {"max_model_len": tiny.CONTEXT, "task": "score"} | options
    return ModelSpec(name="tiny", source=str(path), **fields)


def engine_of(executor: Executor, path: Path, **options: Any) -> Engine:
    """An engine with the model of ``path``, which scores."""
    engine = Engine(executor, EngineOptions(**OPTIONS | options))
    engine.load_model(spec(path))
    return engine


def expected(model: Any, asked: Sequence[Sequence[int]]) -> torch.Tensor:
    """float32 [texts, labels]: logits behind the last token, of no and yes, or of a classifier's labels."""
    with torch.inference_mode():
        logits = [model(torch.tensor([list(text)])).logits for text in asked]
    return torch.stack([one[0] if one.dim() == 2 else one[0, -1, [NO, YES]] for one in logits])
