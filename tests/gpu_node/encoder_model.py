"""Tiny encoders with random weights and tokenizers, as `transformers` makes and saves them, and what it computes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoConfig, AutoModel, AutoModelForSequenceClassification

from gpu_node.engine.border.executor import Executor
from gpu_node.engine.engine import Engine
from shared.config.engines.engine import EngineOptions, ModelSpec, ModelTask
from tests.gateway.encoder_tiny import ENCODERS, SEP, write_tokenizer
from tests.gpu_node.embedding_model import OPTIONS, request

LONGEST = 62
"""Tokens of a text."""
_NUM_TOKENS = 300
_SIZES: dict[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "initializer_range": 0.3,
}
FAMILIES = ("bert", "roberta", "xlm-roberta")


def save_encoder(name: str, path: Path, *, is_classifier: bool = False, **changes: Any) -> Any:
    """A model of that family, norms and biases random too, with its tokenizer; returns it."""
    torch.manual_seed(4)
    vocab_size = max(write_tokenizer(path, name), _NUM_TOKENS)
    fields = _SIZES | {"vocab_size": vocab_size, "max_position_embeddings": LONGEST}
    if name != "bert":
        fields |= {"type_vocab_size": 1, "pad_token_id": 1, "max_position_embeddings": LONGEST + 2}
    config = AutoConfig.for_model(ENCODERS[name][0], **fields | ({"num_labels": 1} if is_classifier else {}) | changes)
    model = (AutoModelForSequenceClassification if is_classifier else AutoModel).from_config(config)
    model.train(False)
    for parameter_name, parameter in model.named_parameters():
        if parameter.dim() == 1:  # ones and zeros would hide a norm or a bias with the wrong weights
            low = 0.5 if parameter_name.endswith("weight") else -0.5
            parameter.data.uniform_(low, low + 1)
    model.save_pretrained(path)
    return model


def write_pooling(path: Path, **modes: bool) -> None:
    """sentence-transformers' files: which of its ``pooling_mode_…`` are set."""
    types = {"": "Transformer", "1_Pooling": "Pooling", "2_Normalize": "Normalize"}
    modules = [{"path": place, "type": f"sentence_transformers.models.{name}"} for place, name in types.items()]
    (path / "modules.json").write_text(json.dumps(modules))
    (path / "1_Pooling").mkdir()
    values = {f"pooling_mode_{mode}": is_set for mode, is_set in modes.items()}
    (path / "1_Pooling" / "config.json").write_text(json.dumps({"word_embedding_dimension": 32, **values}))


def engine_of(executor: Executor, path: Path, task: ModelTask = "embed", **options: Any) -> Engine:
    """An engine with the model of ``path``."""
    engine = Engine(executor, EngineOptions(**OPTIONS | options))
    engine.load_model(ModelSpec(name="tiny", source=str(path), task=task))
    return engine


def embedded_in_one_step(engine: Engine, text: Sequence[int]) -> torch.Tensor:
    """float32 [hidden size]: by the next step of an engine whose steps are not planned while others run."""
    assert engine.add(request("one", text)) == []
    (chunk,) = engine.step(0.0)
    assert chunk.is_last
    return torch.from_numpy(np.frombuffer(chunk.embedding, dtype="<f4").copy())


def check_close(found: torch.Tensor, expected: torch.Tensor) -> None:
    """Of float32 by other kernels."""
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-4)


def states(model: Any, text: Sequence[int]) -> torch.Tensor:
    """float32 [tokens, hidden size], by `transformers`."""
    with torch.inference_mode():
        found: torch.Tensor = model.base_model(torch.tensor([list(text)])).last_hidden_state[0]
    return found


def means(model: Any, asked: Sequence[Sequence[int]]) -> torch.Tensor:
    """float32 [texts, hidden size]: over each text's tokens."""
    return torch.stack([states(model, text).mean(dim=0) for text in asked])


def scores(model: Any, asked: Sequence[Sequence[int]]) -> torch.Tensor:
    """float32 [pairs, 1]: logits, with the segments that a BERT's tokenizer gives."""
    found = []
    for pair in asked:
        first = pair.index(SEP) + 1 if model.config.model_type == "bert" else len(pair)
        segments = torch.tensor([[0] * first + [1] * (len(pair) - first)])
        with torch.inference_mode():
            found.append(model(torch.tensor([list(pair)]), token_type_ids=segments).logits[0])
    return torch.stack(found)


def label_logits(model: Any, asked: Sequence[Sequence[int]]) -> torch.Tensor:
    """float32 [texts, labels], by `transformers`; each text alone, since it looks for padding."""
    with torch.inference_mode():
        return torch.cat([model(torch.tensor([list(text)])).logits for text in asked])


def save_labelled_decoder(path: Path) -> Any:
    """A Qwen 2 with three labels, and its tokenizer."""
    torch.manual_seed(6)
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
    fields: dict[str, Any] = sizes | {"num_key_value_heads": 2, "vocab_size": _NUM_TOKENS, "initializer_range": 0.3}
    config = AutoConfig.for_model("qwen2", **fields, max_position_embeddings=128, num_labels=3, pad_token_id=0)
    model = AutoModelForSequenceClassification.from_config(config).eval()
    model.save_pretrained(path)
    return model
