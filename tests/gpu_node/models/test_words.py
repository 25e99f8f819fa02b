"""Tokens for made-up answers: words of ASCII letters, whatever kind of file the vocabulary is in."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gpu_node.models.words import Words, read_words
from shared.files.model_file import ModelFileError
from tests.gateway.tiny import ALPHABET, END, KINDS, MERGED, TOKENS, write_model


def directory(path: Path, vocab: Any) -> Path:
    path.mkdir()
    (path / "config.json").write_text(json.dumps({"vocab_size": 99}))
    (path / "tokenizer.json").write_text(json.dumps({"model": {"vocab": vocab}}))
    return path


def test_words_of_a_gguf_file(tmp_path: Path) -> None:
    words = read_words(write_model(tmp_path / "tiny.gguf"))
    letters = [place for place, token in enumerate(ALPHABET) if token.isascii() and token.isalpha()]
    merged = [TOKENS.index(token) for token in MERGED]  # "he", …, and "w" with a space before it
    assert words == Words((*letters, *merged), len(TOKENS))


def test_tokens_with_a_meaning_of_their_own_are_no_words(tmp_path: Path) -> None:
    tokens = [*TOKENS[:END], "stop", *TOKENS[END + 1 :]]  # the end token, named like a word
    words = read_words(write_model(tmp_path / "tiny.gguf", tokens=tokens))
    assert END not in words.token_ids
    assert KINDS[END] != 1


@pytest.mark.parametrize(
    "vocab",
    [
        {"<s>": 0, "▁the": 4, "1st": 2, "Ġof": 1},
        [["<s>", 0.0], ["Ġof", -1.0], ["1st", -2.0], ["?", 0.0], ["▁the", -3.0]],
    ],
)
def test_words_of_a_directory(tmp_path: Path, vocab: Any) -> None:
    assert read_words(directory(tmp_path / "model", vocab)) == Words((1, 4), 99)


@pytest.mark.parametrize("vocab", [None, {"<s>": 0}, []])
def test_a_model_without_words_cannot_be_made_to_speak(tmp_path: Path, vocab: Any) -> None:
    with pytest.raises(ModelFileError, match=r"tokenizer.json: (it has no model.vocab|no token of its vocabulary)"):
        read_words(directory(tmp_path / "model", vocab))


def test_kinds_that_do_not_go_with_the_tokens_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="token_type is no list of 264 kinds"):
        read_words(write_model(tmp_path / "tiny.gguf", kinds=[1, 1]))
