"""The vocabulary of a GGUF file: tokens, their kinds, merges and the ids with a meaning, read once and checked."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any

from gguf import GGUFReader

from gateway.pretokenizers import RECIPES, Recipe
from shared.model_file import ModelFileError

# The byte-level alphabet of GPT-2: printable Latin-1 stands for itself, the other 68 bytes for code points from U+0100.
_PRINTABLE = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
_OTHERS = [byte for byte in range(256) if byte not in set(_PRINTABLE)]
BYTE_OF_CHARACTER = {chr(byte): byte for byte in _PRINTABLE} | {
    chr(0x100 + number): byte for number, byte in enumerate(_OTHERS)
}


class Kind(IntEnum):
    """``tokenizer.ggml.token_type``: what a token is."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    """Has a meaning and no text; only a template, or a prompt as a whole, may contain it."""
    USER_DEFINED = 4
    """Ordinary text that is always one token, whoever wrote it."""
    UNUSED = 5
    BYTE = 6


@dataclass(frozen=True)
class Vocabulary:
    """All that a tokenizer needs to know of a model file."""

    tokens: list[str]
    kinds: list[int]
    merges: list[tuple[str, str]]
    recipe: Recipe
    bos_id: int | None
    eos_ids: tuple[int, ...]
    """Tokens that end an answer, the file's EOS first."""
    add_bos: bool

    def of_kind(self, kind: Kind) -> dict[str, int]:
        """The tokens of one kind, with their ids."""
        return {token: index for index, token in enumerate(self.tokens) if self.kinds[index] == kind}

    def bytes_of(self, token_id: int) -> bytes:
        """The text that a token stands for; tokens without text (control, unknown, unused) give nothing."""
        token = self.tokens[token_id]
        kind = self.kinds[token_id]
        if kind == Kind.USER_DEFINED:
            return token.encode()
        if kind != Kind.NORMAL:
            return b""
        return bytes(BYTE_OF_CHARACTER[character] for character in token)


def read_vocabulary(reader: GGUFReader, path: Path) -> Vocabulary:
    """Read a file's tokenizer; `ModelFileError` names the file, the field and the value that cannot be used."""

    def field(name: str, default: Any = None) -> Any:
        found = reader.get_field(f"tokenizer.ggml.{name}")
        return default if found is None else found.contents()

    model = field("model")
    if model != "gpt2":
        raise ModelFileError(f"{path}: tokenizer.ggml.model is {model!r}; only 'gpt2' (byte-level BPE) is supported")
    pre = field("pre", "default")
    if pre not in RECIPES:
        raise ModelFileError(f"{path}: tokenizer.ggml.pre is {pre!r}; supported are {', '.join(sorted(RECIPES))}")
    tokens = field("tokens")
    merges = field("merges")
    if not tokens or merges is None:
        raise ModelFileError(f"{path}: tokenizer.ggml.{'merges' if tokens else 'tokens'} is missing")
    kinds = field("token_type", [int(Kind.NORMAL)] * len(tokens))
    ends = [field(name) for name in ("eos_token_id", "eot_token_id", "eom_token_id")]
    vocabulary = Vocabulary(
        tokens=tokens,
        kinds=kinds,
        # a merge is two tokens with a space between; a token holds none, since the alphabet has its own for it
        merges=[(left, right) for left, _, right in (merge.partition(" ") for merge in merges)],
        recipe=RECIPES[pre],
        bos_id=field("bos_token_id"),
        eos_ids=tuple(dict.fromkeys(end for end in ends if end is not None)),
        add_bos=bool(field("add_bos_token", RECIPES[pre].add_bos)),
    )
    _check(vocabulary, path)
    return vocabulary


def _check(vocabulary: Vocabulary, path: Path) -> None:
    size = len(vocabulary.tokens)
    if len(vocabulary.kinds) != size:
        raise ModelFileError(f"{path}: tokenizer.ggml.token_type has {len(vocabulary.kinds)} entries for {size} tokens")
    if not vocabulary.eos_ids:
        raise ModelFileError(f"{path}: tokenizer.ggml.eos_token_id is missing, so no answer would ever end")
    if vocabulary.add_bos and vocabulary.bos_id is None:
        raise ModelFileError(f"{path}: prompts begin with BOS, but tokenizer.ggml.bos_token_id is missing")
    for name, index in [("bos", vocabulary.bos_id), *(("eos", index) for index in vocabulary.eos_ids)]:
        if index is not None and not 0 <= index < size:
            raise ModelFileError(f"{path}: the id {index} of the {name} token is outside of its {size} tokens")
    for index, token in enumerate(vocabulary.tokens):
        if vocabulary.kinds[index] == Kind.NORMAL and not BYTE_OF_CHARACTER.keys() >= set(token):
            raise ModelFileError(f"{path}: token {index} ({token!r}) is not written in the byte-level alphabet")
