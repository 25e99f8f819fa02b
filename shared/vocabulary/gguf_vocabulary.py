"""The vocabulary of a GGUF file: tokens, their kinds, merges and the ids with a meaning, read once and checked."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from shared.files.model_file import ModelFileError
from shared.vocabulary.model_fields import ModelFields

if TYPE_CHECKING:  # where models are directories alone, what reads GGUF files is not installed
    from shared.files.gguf_file import GgufFile

# The byte-level alphabet of GPT-2: printable Latin-1 stands for itself, the other 68 bytes for code points from U+0100.
_PRINTABLE = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
_OTHERS = [byte for byte in range(256) if byte not in set(_PRINTABLE)]
BYTE_OF_CHARACTER = {chr(byte): byte for byte in _PRINTABLE} | {
    chr(0x100 + number): byte for number, byte in enumerate(_OTHERS)
}


VocabularyEntry = TypeVar("VocabularyEntry", str, int, float)
PREFIX = "tokenizer.ggml."
"""Of the keys that speak of tokens."""


class TokenType(IntEnum):
    """``tokenizer.ggml.token_type``: what a token is."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    """Has a meaning and no text; only a template, or a prompt as a whole, may contain it."""
    USER_DEFINED = 4
    """Ordinary text that is always one token, in any text."""
    UNUSED = 5
    BYTE = 6


@dataclass(frozen=True)
class GgufVocabulary:
    """All that a tokenizer needs to know of a model file."""

    tokens: list[str]
    kinds: list[int]
    merges: list[tuple[str, str]]
    pre: str
    """How text is cut before byte-pair merging, by name."""
    bos_id: int | None
    eos_ids: tuple[int, ...]
    """Tokens that end an answer, the file's EOS first."""
    add_bos: bool | None
    """Whether a prompt begins with BOS; None where the file does not say."""
    add_eos: bool
    """Whether a text that is not to be continued ends with EOS."""

    def of_kind(self, kind: TokenType) -> dict[str, int]:
        """The tokens of one kind, with their ids."""
        return {token: index for index, token in enumerate(self.tokens) if self.kinds[index] == kind}

    def bytes_of(self, token_id: int) -> bytes:
        """The text that a token stands for; tokens without text (control, unknown, unused) give nothing."""
        token = self.tokens[token_id]
        kind = self.kinds[token_id]
        if kind == TokenType.USER_DEFINED:
            return token.encode()
        if kind != TokenType.NORMAL:
            return b""
        return bytes(BYTE_OF_CHARACTER[character] for character in token)


def read_gguf_vocabulary(file: GgufFile, path: Path) -> GgufVocabulary:
    """Read a file's tokenizer; `ModelFileError` names the file, the field and the value that cannot be used."""
    fields = ModelFields(file.metadata, path)  # metadata are of the types that JSON has
    model = fields.get(f"{PREFIX}model", str)
    if model is None:
        raise fields.error(f"{PREFIX}model is missing: without a tokenizer its prompts cannot be read")
    if model != "gpt2":
        raise fields.error(f"{PREFIX}model is {model!r}; only 'gpt2' (byte-level BPE) is supported")
    tokens = vocabulary_entries(fields, "tokens", str)
    ends = [fields.get(f"{PREFIX}{name}", int) for name in ("eos_token_id", "eot_token_id", "eom_token_id")]
    merges = vocabulary_entries(fields, "merges", str)
    kinds = vocabulary_entries(fields, "token_type", int) if f"{PREFIX}token_type" in fields.values else None
    vocabulary = GgufVocabulary(
        tokens=tokens,
        kinds=[int(TokenType.NORMAL)] * len(tokens) if kinds is None else kinds,
        # a merge is two tokens with a space between; a token holds none, since the alphabet has its own for it
        merges=[(left, right) for left, _, right in (merge.partition(" ") for merge in merges)],
        pre=fields.get(f"{PREFIX}pre", str) or "default",
        bos_id=fields.get(f"{PREFIX}bos_token_id", int),
        eos_ids=tuple(dict.fromkeys(end for end in ends if end is not None)),
        add_bos=fields.get(f"{PREFIX}add_bos_token", bool),
        add_eos=fields.get(f"{PREFIX}add_eos_token", bool) or False,
    )
    _check(vocabulary, path)
    return vocabulary


def vocabulary_entries(fields: ModelFields, name: str, kind: type[VocabularyEntry]) -> list[VocabularyEntry]:
    """A list with a value for each token, or merge; it cannot be left out."""
    entries = fields.need(f"{PREFIX}{name}", list)
    if not all(type(entry) is kind for entry in entries):
        raise fields.error(f"{PREFIX}{name} is no list of {kind.__name__}")
    return entries


def _check(vocabulary: GgufVocabulary, path: Path) -> None:
    size = len(vocabulary.tokens)
    if len(vocabulary.kinds) != size:
        raise ModelFileError(f"{path}: tokenizer.ggml.token_type has {len(vocabulary.kinds)} entries for {size} tokens")
    if not vocabulary.eos_ids:
        raise ModelFileError(f"{path}: tokenizer.ggml.eos_token_id is missing, so no answer would ever end")
    for name, index in [("bos", vocabulary.bos_id), *(("eos", index) for index in vocabulary.eos_ids)]:
        if index is not None and not 0 <= index < size:
            raise ModelFileError(f"{path}: the id {index} of the {name} token is outside of its {size} tokens")
    for index, token in enumerate(vocabulary.tokens):
        if vocabulary.kinds[index] == TokenType.NORMAL and not BYTE_OF_CHARACTER.keys() >= set(token):
            raise ModelFileError(f"{path}: token {index} ({token!r}) is not written in the byte-level alphabet")
