"""The tokenizer of an encoder in a GGUF file, written as the JSON files of a directory would say it, which are read
already: one way from text to tokens for both kinds of file.

llama.cpp's converter writes what BERT's kin have of three kinds (``tokenizer.ggml.model``): ``bert``, word pieces with
"▁" before what begins a word and without the "##" of what goes on with one; ``t5``, the Unigram model of XLM-RoBERTa;
``gpt2``, the byte pairs of RoBERTa or of ModernBERT.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from shared.vocabulary.gguf_vocabulary import PREFIX, TokenType, vocabulary_entries
from shared.vocabulary.hf_decoding import METASPACE
from shared.vocabulary.hf_vocabulary import HfFiles
from shared.vocabulary.model_fields import ModelFields

if TYPE_CHECKING:  # where models are directories alone, what reads GGUF files is not installed
    from shared.files.gguf_file import GgufFile

_CONTINUED: Final = "##"
_MAX_WORD_CHARACTERS: Final = 100  # of BERT's tokenizer; a longer word is unknown
_MODERN: Final = "modern-bert"
_BYTE_PAIR_CUTS: Final = ("roberta-bpe", "gpt-2", _MODERN)
"""``tokenizer.ggml.pre`` of byte pairs that are cut as GPT-2's."""
_CAPITAL: Final = re.compile("[A-Z]")
_SPECIAL = {"special": True, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False}

Spec = dict[str, Any]


def encoder_files(file: GgufFile, path: Path) -> HfFiles:
    """As the files of a directory; `ModelFileError` names the field that is missing or cannot be used."""
    fields = ModelFields(file.metadata, path)  # metadata are of the types that JSON has
    kind = fields.need(f"{PREFIX}model", str)
    if kind not in _SPECS:
        raise fields.error(f"{PREFIX}model of an encoder is {kind!r}; supported are {', '.join(map(repr, _SPECS))}")
    tokens = _Tokens(fields)
    spec, roles = _SPECS[kind](fields, tokens)
    spec["added_tokens"] = tokens.added()
    config = {"model_type": "bert", "vocab_size": len(tokens.texts)}
    return HfFiles(ModelFields(spec, path), ModelFields(roles, path), ModelFields(config, path), None)


class _Tokens:
    """The tokens as they stand in the file, and those with a role."""

    def __init__(self, fields: ModelFields) -> None:
        self.fields = fields
        self.texts = vocabulary_entries(fields, "tokens", str)
        self.kinds = vocabulary_entries(fields, "token_type", int)
        if len(self.kinds) != len(self.texts):
            raise fields.error(f"{PREFIX}token_type has {len(self.kinds)} entries for {len(self.texts)} tokens")
        ids = (self.role(name) for name in ("cls", "seperator", "unknown", "padding", "mask", "eos", "bos"))
        self.control = {token_id for token_id in ids if token_id is not None}
        self.control |= {index for index, kind in enumerate(self.kinds) if kind == TokenType.CONTROL}

    def role(self, *names: str) -> int | None:
        """The id of the first of these roles that the file names."""
        for name in names:
            token_id = self.fields.get(f"{PREFIX}{name}_token_id", int)
            if token_id is None:
                continue
            if not 0 <= token_id < len(self.texts):
                raise self.fields.error(
                    f"{PREFIX}{name}_token_id is {token_id}, outside of its {len(self.texts)} tokens"
                )
            return token_id
        return None

    def need(self, text: str, *names: str) -> int:
        """The same; without any, the token of this text. An encoder's text cannot do without it."""
        token_id = self.role(*names)
        if token_id is None and text in self.texts:
            token_id = self.texts.index(text)
        if token_id is None:
            keys = " and ".join(f"{PREFIX}{name}_token_id" for name in names)
            raise self.fields.error(f"{keys} are missing, and no token is {text!r}")
        self.control.add(token_id)
        return token_id

    def is_plain(self, index: int) -> bool:
        """Whether it is found in texts."""
        return self.kinds[index] == TokenType.NORMAL and index not in self.control

    def named(self, index: int) -> list[Any]:
        """Name and id, as post-processors have it."""
        return [self.texts[index], index]

    def added(self) -> list[Spec]:
        """Those with a role, and those that are found before a text is cut."""
        chosen = self.control | {index for index, kind in enumerate(self.kinds) if kind == TokenType.USER_DEFINED}
        return [
            {"id": index, "content": self._added_text(index), **_SPECIAL, "special": index in self.control}
            for index in sorted(chosen)
        ]

    def _added_text(self, index: int) -> str:
        is_piece = self.fields.get(f"{PREFIX}model", str) == "bert" and index not in self.control
        return self.texts[index].removeprefix(METASPACE) if is_piece else self.texts[index]


def _word_pieces(fields: ModelFields, tokens: _Tokens) -> tuple[Spec, Spec]:
    """Of BERT. Whether it was made of texts of lower case no field says: a vocabulary that was has no capital."""
    unknown = tokens.need("[UNK]", "unknown")
    for text, *roles in (("[CLS]", "cls", "bos"), ("[SEP]", "seperator", "eos")):
        tokens.need(text, *roles)
    vocab: dict[str, int] = {}
    for index, text in enumerate(tokens.texts):
        if tokens.is_plain(index):
            piece = text.removeprefix(METASPACE) if text.startswith(METASPACE) else f"{_CONTINUED}{text}"
            if piece in vocab:
                raise fields.error(f"{PREFIX}tokens {vocab[piece]} and {index} are both {text!r}")
            vocab[piece] = index
    vocab |= {tokens.texts[index]: index for index in tokens.control}
    is_lower = not any(_CAPITAL.search(piece) for piece in vocab if "[" not in piece)  # names of tokens are in brackets
    spec = {
        "model": {
            "type": "WordPiece",
            "unk_token": tokens.texts[unknown],
            "continuing_subword_prefix": _CONTINUED,
            "max_input_chars_per_word": _MAX_WORD_CHARACTERS,
            "vocab": vocab,
        },
        "normalizer": {
            "type": "BertNormalizer",
            "clean_text": True,
            "handle_chinese_chars": True,
            "strip_accents": None,
            "lowercase": is_lower,
        },
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "decoder": {"type": "WordPiece", "prefix": _CONTINUED, "cleanup": True},
    }
    return spec, _pair_of_bert(tokens, spec)


def _unigram(fields: ModelFields, tokens: _Tokens) -> tuple[Spec, Spec]:
    """Of XLM-RoBERTa. Text is cut at its spaces, so whether several become one (``remove_extra_whitespaces``) does not
    matter."""
    if fields.get(f"{PREFIX}add_space_prefix", bool) is False:
        raise fields.error(f"{PREFIX}add_space_prefix false is not supported: a word begins with a space")
    scores = vocabulary_entries(fields, "scores", float)
    if len(scores) != len(tokens.texts):
        raise fields.error(f"{PREFIX}scores has {len(scores)} entries for {len(tokens.texts)} tokens")
    unknown = tokens.need("<unk>", "unknown")
    spec: Spec = {
        "model": {
            "type": "Unigram",
            "unk_id": unknown,
            "vocab": [[_found(tokens, index), score] for index, score in enumerate(scores)],
            "byte_fallback": False,
        },
        "normalizer": _charsmap(fields),
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [
                {"type": "WhitespaceSplit"},
                {"type": "Metaspace", "replacement": METASPACE, "prepend_scheme": "always", "split": True},
            ],
        },
        "decoder": {"type": "Metaspace", "replacement": METASPACE, "prepend_scheme": "always", "split": True},
    }
    return spec, _pair_of_roberta(tokens, spec)


def _found(tokens: _Tokens, index: int) -> str:
    """What a text has to hold; no text holds a space when it comes to the model, so it never finds an unused one."""
    text = tokens.texts[index]
    is_found = tokens.is_plain(index) or index in tokens.control or tokens.kinds[index] == TokenType.USER_DEFINED
    return text if is_found else f" {text}"


def _charsmap(fields: ModelFields) -> Spec | None:
    """SentencePiece's table of normal forms."""
    values = fields.get(f"{PREFIX}precompiled_charsmap", list)
    if values is None:
        return None
    if not all(type(value) is int and -128 <= value < 256 for value in values):
        raise fields.error(f"{PREFIX}precompiled_charsmap is no list of bytes")
    content = bytes(value % 256 for value in values)  # written as signed ones by some
    return {"type": "Precompiled", "precompiled_charsmap": b64encode(content).decode()}


def _byte_pairs(fields: ModelFields, tokens: _Tokens) -> tuple[Spec, Spec]:
    """Of RoBERTa; or of ModernBERT, with BERT's tokens around a text, which is of composed characters (NFC)."""
    cut = fields.get(f"{PREFIX}pre", str)
    if cut not in _BYTE_PAIR_CUTS:
        raise fields.error(f"{PREFIX}pre of an encoder is {cut!r}; supported are {', '.join(_BYTE_PAIR_CUTS)}")
    bytes_cut = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    plain = (index for index in range(len(tokens.texts)) if tokens.is_plain(index) or index in tokens.control)
    spec: Spec = {
        "model": {
            "type": "BPE",
            "vocab": {tokens.texts[index]: index for index in plain},
            "merges": vocabulary_entries(fields, "merges", str),
        },
        "normalizer": {"type": "NFC"} if cut == _MODERN else None,
        "pre_tokenizer": bytes_cut,
        "decoder": bytes_cut,
    }
    return spec, (_pair_of_bert if cut == _MODERN else _pair_of_roberta)(tokens, spec)


def _pair_of_bert(tokens: _Tokens, spec: Spec) -> Spec:
    """The post-processor; returns the tokens by their roles."""
    first, last = tokens.need("[CLS]", "cls", "bos"), tokens.need("[SEP]", "seperator", "eos")
    spec["post_processor"] = {"type": "BertProcessing", "sep": tokens.named(last), "cls": tokens.named(first)}
    return {"sep_token": tokens.texts[last], "cls_token": tokens.texts[first]}


def _pair_of_roberta(tokens: _Tokens, spec: Spec) -> Spec:
    """The post-processor; returns the tokens by their roles."""
    first, last = tokens.need("<s>", "cls", "bos"), tokens.need("</s>", "seperator", "eos")
    ends = {"sep": tokens.named(last), "cls": tokens.named(first)}
    spec["post_processor"] = {"type": "RobertaProcessing", **ends, "trim_offsets": True, "add_prefix_space": False}
    return {"bos_token": tokens.texts[first], "eos_token": tokens.texts[last]}


_SPECS: Mapping[str, Callable[[ModelFields, _Tokens], tuple[Spec, Spec]]] = {
    "bert": _word_pieces,
    "t5": _unigram,
    "gpt2": _byte_pairs,
}
"""By ``tokenizer.ggml.model``: the values of ``tokenizer.json``, and of ``tokenizer_config.json``."""
