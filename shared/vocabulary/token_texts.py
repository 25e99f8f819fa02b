"""The text of each token of a model, whatever its files are."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from shared.files.encoder import is_encoder_file
from shared.vocabulary.gguf_encoder import encoder_files
from shared.vocabulary.gguf_vocabulary import read_gguf_vocabulary
from shared.vocabulary.hf_decoding import text_of_tokens
from shared.vocabulary.hf_files import read_json
from shared.vocabulary.hf_vocabulary import HfFiles, HfVocabulary, read_vocabulary

_GENERATION_FILE = "generation_config.json"
_NOT_READ = ("tokenizer.model", "sentencepiece.bpe.model", "tekken.json", "vocab.json", "vocab.txt")
_COPY = "copy it from the model's repository"


@dataclass(frozen=True)
class TokenTexts:
    """What tokens add to a text."""

    texts: list[bytes]
    """Of each token id; nothing for tokens without text: control tokens, unused ones, ids that no token has."""
    eos_ids: tuple[int, ...]
    """Tokens that end an answer; the first is the one that the files call EOS."""


def read_token_texts(path: Path) -> TokenTexts:
    """Of a GGUF file or a directory of Hugging Face layout; `ModelFileError` for what cannot be used."""
    if path.is_dir():
        files = read_files(path)
        hf = read_vocabulary(files)
        return TokenTexts(token_bytes(files, hf), hf.eos_ids)
    from shared.files.gguf_file import open_gguf  # not installed where models are directories alone

    file = open_gguf(path)
    if is_encoder_file(file.metadata):
        files = encoder_files(file, path)
        hf = read_vocabulary(files)
        return TokenTexts(token_bytes(files, hf), hf.eos_ids)
    gguf = read_gguf_vocabulary(file, path)
    return TokenTexts([gguf.bytes_of(token_id) for token_id in range(len(gguf.tokens))], gguf.eos_ids)


def read_files(directory: Path) -> HfFiles:
    """The files of a directory that speak of tokens; `ModelFileError` names what is missing, and what to do."""
    generation = directory / _GENERATION_FILE
    return HfFiles(
        tokenizer=read_json(directory / "tokenizer.json", _tokenizer_remedy(directory)),
        tokenizer_config=read_json(directory / "tokenizer_config.json", _COPY),
        config=read_json(directory / "config.json", _COPY),
        generation=read_json(generation, _COPY) if generation.is_file() else None,
    )


def token_bytes(files: HfFiles, vocabulary: HfVocabulary) -> list[bytes]:
    """As `TokenTexts.texts`; `ModelFileError` where the text of a token depends on others."""
    text_of = text_of_tokens(files.tokenizer)
    texts = [b""] * vocabulary.size
    for token_id, name in vocabulary.names.items():
        texts[token_id] = b"" if name in vocabulary.control else text_of(name)
    return texts


def _tokenizer_remedy(directory: Path) -> str:
    others = [name for name in _NOT_READ if (directory / name).is_file()]
    if not others:
        return _COPY
    return (
        f"{others[0]} is not read; make tokenizer.json once, where `transformers` is installed: "
        f"AutoTokenizer.from_pretrained({str(directory)!r}).save_pretrained({str(directory)!r})"
    )
