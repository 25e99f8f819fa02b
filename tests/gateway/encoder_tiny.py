"""Directories of encoders with tiny vocabularies, made as BERT's, RoBERTa's and XLM-RoBERTa's tokenizers are."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from tests.gateway.hf_tiny import LINES, Spec, size_of

BERT_SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
ROBERTA_SPECIAL = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
CLS, SEP = 2, 3
"""Of the BERT."""


def bert(vocab_size: int = 300) -> Spec:
    """As bert-base-uncased: words in pieces, of lower case and without accents."""
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    trainer = trainers.WordPieceTrainer(vocab_size=vocab_size, special_tokens=BERT_SPECIAL)
    tokenizer.train_from_iterator(LINES, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", CLS), ("[SEP]", SEP)]
    )
    return _spec(tokenizer)


def old_bert() -> Spec:
    """The same, with a post-processor that is no template."""
    return bert() | {"post_processor": {"type": "BertProcessing", "sep": ["[SEP]", SEP], "cls": ["[CLS]", CLS]}}


def roberta() -> Spec:
    """As roberta-base: bytes, and two separators between two texts."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=350, special_tokens=ROBERTA_SPECIAL, initial_alphabet=alphabet)
    tokenizer.train_from_iterator(LINES, trainer)
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), add_prefix_space=False)
    return _spec(tokenizer)


def xlm_roberta() -> Spec:
    """As xlm-roberta-base: a Unigram model; its scores are made up, no two of them equal."""
    words = sorted({word.replace(" ", "▁") for line in LINES for word in re.findall(r" ?\w{2,5}", line)})
    characters = sorted({"▁", *"".join(LINES)} - {" "})
    vocab = [(token, 0.0) for token in ROBERTA_SPECIAL[:4]]
    vocab += [(token, -5 - 0.011 * number) for number, token in enumerate(words)]
    vocab += [(token, -8 - 0.013 * number) for number, token in enumerate(characters)]
    tokenizer = Tokenizer(models.Unigram(vocab, 3, byte_fallback=False))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(prepend_scheme="always")]
    )
    tokenizer.decoder = decoders.Metaspace(prepend_scheme="always")
    tokenizer.add_special_tokens(ROBERTA_SPECIAL)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    return _spec(tokenizer)


def modern_bert() -> Spec:
    """As ModernBERT: bytes, and BERT's tokens around a text."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=350, special_tokens=BERT_SPECIAL, initial_alphabet=alphabet)
    tokenizer.train_from_iterator(LINES, trainer)
    tokenizer.add_tokens(["  ", "   "])  # indents
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B [SEP]", special_tokens=[("[CLS]", CLS), ("[SEP]", SEP)]
    )
    return _spec(tokenizer)


def _spec(tokenizer: Tokenizer) -> Spec:
    spec: Spec = json.loads(tokenizer.to_str())
    return spec


_BERT = {"cls_token": "[CLS]", "sep_token": "[SEP]", "unk_token": "[UNK]", "pad_token": "[PAD]"}
_ROBERTA = {"bos_token": "<s>", "eos_token": "</s>", "cls_token": "<s>", "sep_token": "</s>", "pad_token": "<pad>"}
ENCODERS: Mapping[str, tuple[str, Callable[[], Spec], Spec]] = {
    "bert": ("bert", bert, _BERT),
    "old-bert": ("bert", old_bert, _BERT),
    "roberta": ("roberta", roberta, _ROBERTA),
    "xlm-roberta": ("xlm-roberta", xlm_roberta, _ROBERTA),
    "modern-bert": ("modernbert", modern_bert, _BERT),
}
"""``model_type``, tokenizer and its configuration."""


def write_tokenizer(path: Path, style: str = "bert", /, **changed: Any) -> int:
    """``tokenizer.json``, of which keys may be changed, and ``tokenizer_config.json``; how many tokens there are."""
    _, make, tokenizer_config = ENCODERS[style]
    spec = make() | changed
    path.mkdir(parents=True, exist_ok=True)
    (path / "tokenizer.json").write_text(json.dumps(spec))
    (path / "tokenizer_config.json").write_text(json.dumps(tokenizer_config))
    return size_of(spec)


def write_encoder(path: Path, style: str = "bert", /, tokenizer: Spec | None = None, **config: Any) -> Path:
    """A directory without weights, whose texts have 62 tokens at most; keys of both files may be changed."""
    vocab_size = write_tokenizer(path, style, **tokenizer or {})
    model_type = ENCODERS[style][0]
    num_positions = 64 if model_type in ("roberta", "xlm-roberta") else 62
    values = {"model_type": model_type, "max_position_embeddings": num_positions, "vocab_size": vocab_size}
    values |= {"hidden_size": 8, "num_attention_heads": 2, "num_hidden_layers": 1, "intermediate_size": 8}
    (path / "config.json").write_text(json.dumps(values | config))
    return path
