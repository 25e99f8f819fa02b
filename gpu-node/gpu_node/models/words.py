"""Tokens of a model that are words, for answers that are made up and shall read as text all the same."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from gguf import TokenType

from gpu_node.models.fields import Fields
from gpu_node.models.hf.hf_config import CONFIG_FILE, read_json_values
from shared.files.gguf_file import open_gguf

TOKENIZER_FILE = "tokenizer.json"

# ASCII letters stand for themselves in byte-level and SentencePiece vocabularies; a space before them is one of these.
_WORD = re.compile("[Ġ▁]?[A-Za-z]+")


@dataclass(frozen=True, slots=True)
class Words:
    """What can be said with a vocabulary."""

    token_ids: tuple[int, ...]
    """Ids of words, with or without a space before them; at least one."""
    vocab_size: int
    """Of the model: ids below this can occur in prompts."""


def read_words(path: Path) -> Words:
    """The words of a GGUF file, or of a directory in Hugging Face layout; `ModelFileError` where there are none."""
    return _of_directory(path) if path.is_dir() else _of_gguf(path)


def _of_gguf(path: Path) -> Words:
    values = open_gguf(path).metadata
    fields = Fields(values.get, path)
    tokens = fields.texts("tokenizer.ggml.tokens") or []
    kinds = values.get("tokenizer.ggml.token_type", [TokenType.NORMAL] * len(tokens))
    if not isinstance(kinds, list) or len(kinds) != len(tokens):
        raise fields.error(f"tokenizer.ggml.token_type is no list of {len(tokens)} kinds, one a token")
    normal = ((token, place) for place, token in enumerate(tokens) if kinds[place] == TokenType.NORMAL)
    return _words(fields, normal, len(tokens))


def _of_directory(path: Path) -> Words:
    vocab_size = Fields(read_json_values(path / CONFIG_FILE).get, path / CONFIG_FILE).number("vocab_size", int)
    values = read_json_values(path / TOKENIZER_FILE)
    fields = Fields(values.get, path / TOKENIZER_FILE)
    model = values.get("model")
    match model.get("vocab") if isinstance(model, dict) else None:
        case dict() as vocab:
            tokens = list(vocab.items())
        case list() as pairs:  # of a token and its logprob, in the order of ids
            tokens = [(pair[0], place) for place, pair in enumerate(pairs)]
        case _:
            raise fields.error("it has no model.vocab")
    return _words(fields, tokens, vocab_size)


def _words(fields: Fields, tokens: Iterable[tuple[str, int]], vocab_size: int) -> Words:
    found = tuple(sorted(token_id for token, token_id in tokens if _WORD.fullmatch(token)))
    if not found:
        raise fields.error("no token of its vocabulary is a word of ASCII letters, so no answer can be made up")
    return Words(found, vocab_size)
