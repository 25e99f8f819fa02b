"""Small models that embed and score, with weights made up, and what `transformers` says of texts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from tests.gpu_node import score_model, tiny

CONFIG: dict[str, Any] = {
    "vocab_size": tiny.VOCAB,
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "max_position_embeddings": 1024,
    "tie_word_embeddings": False,
    "bos_token_id": None,
    "eos_token_id": tiny.EOS,
    "initializer_range": 0.3,
}
MODULES = [
    {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
    {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
]


def write_language_model(folder: Path, **changes: Any) -> Any:
    """A Qwen 3 with a yes and a no among its tokens."""
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(1)
    model = Qwen3ForCausalLM(Qwen3Config(**CONFIG | changes)).eval()
    model.save_pretrained(folder)
    score_model.write_words(folder)
    return model


def write_classifier(folder: Path, num_labels: int = 1) -> Any:
    """The same with a head for labels."""
    from transformers import Qwen3Config, Qwen3ForSequenceClassification

    torch.manual_seed(2)
    model = Qwen3ForSequenceClassification(Qwen3Config(**CONFIG, num_labels=num_labels)).eval()
    model.save_pretrained(folder)
    score_model.write_words(folder)
    return model


def write_pooling(folder: Path, mode: str) -> None:
    """How a model's texts are pooled, as `sentence-transformers` writes it."""
    (folder / "modules.json").write_text(json.dumps(MODULES))
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({f"pooling_mode_{mode}": True}))


def mean_states(model: Any, asked: Sequence[Sequence[int]]) -> torch.Tensor:
    """float32 [texts, hidden size]: of all of a text's tokens."""
    with torch.inference_mode():
        states = [model.base_model(torch.tensor([list(text)])).last_hidden_state[0] for text in asked]
    return torch.stack([one.mean(dim=0) for one in states])


NUM_POSITIONS = 512
PAD = 3
"""Positions begin behind it; no text has it."""


def write_encoder(folder: Path, vocab_size: int = tiny.VOCAB) -> Any:
    """A small XLM-RoBERTa: tokens see those behind them."""
    from transformers import XLMRobertaModel

    torch.manual_seed(3)
    model = XLMRobertaModel(_encoder_config(vocab_size), add_pooling_layer=False).eval()
    model.save_pretrained(folder)
    return model


def write_cross_encoder(folder: Path, vocab_size: int = tiny.VOCAB) -> Any:
    """The same with a head for one label, which reads the first token."""
    from transformers import XLMRobertaForSequenceClassification

    torch.manual_seed(4)
    model = XLMRobertaForSequenceClassification(_encoder_config(vocab_size, num_labels=1)).eval()
    model.save_pretrained(folder)
    return model


def _encoder_config(vocab_size: int, **more: Any) -> Any:
    from transformers import XLMRobertaConfig

    sizes = {
        name: CONFIG[name] for name in ("hidden_size", "intermediate_size", "num_hidden_layers", "initializer_range")
    }
    sizes |= {"num_attention_heads": 2, "max_position_embeddings": NUM_POSITIONS + PAD + 1, "type_vocab_size": 1}
    sizes |= {"position_embedding_type": "absolute"}  # which vLLM reads, and files of before `transformers` 5 have
    return XLMRobertaConfig(**sizes, vocab_size=vocab_size, pad_token_id=PAD, eos_token_id=tiny.EOS, **more)


def write_bert(folder: Path) -> Any:
    """A small BERT, whose texts are all of its first type of tokens."""
    from transformers import BertConfig, BertModel

    torch.manual_seed(5)
    names = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "initializer_range")
    sizes: dict[str, Any] = {name: CONFIG[name] for name in names} | {"max_position_embeddings": NUM_POSITIONS}
    config = BertConfig(**sizes, vocab_size=tiny.VOCAB, pad_token_id=0, position_embedding_type="absolute")
    model = BertModel(config, add_pooling_layer=False).eval()
    model.save_pretrained(folder)
    return model


def first_states(model: Any, asked: Sequence[Sequence[int]]) -> torch.Tensor:
    """float32 [texts, hidden size]: of each text's first token."""
    with torch.inference_mode():
        return torch.stack([model(torch.tensor([list(text)])).last_hidden_state[0, 0] for text in asked])
