"""Tokenizers of encoders in GGUF files: tokens as the library makes them of the directory, and what is refused."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from tokenizers import Tokenizer

from gateway.models.gguf_model import read_gguf
from gateway.models.score_form import Cut, Question
from shared.files.model_file import ModelFileError
from shared.vocabulary.token_texts import read_token_texts
from tests.gateway.encoder_tiny import SEP, write_tokenizer
from tests.gateway.models.tokenizer.test_encoders import TEXTS, load
from tests.gpu_node.encoder_model import LONGEST, save_encoder
from tests.gpu_node.gguf_encoders import tokenizer_keys, write_encoder_gguf
from tests.gpu_node.gguf_files import write_gguf

STYLES = ("bert", "roberta", "xlm-roberta")


class ServedFile:
    """A file as it scores, and the library's tokenizer of the directory that it was made of."""

    def __init__(self, directory: Path, style: str) -> None:
        save_encoder(style, directory, is_classifier=True)
        self.model = load(write_encoder_gguf(directory / "m.gguf", directory), task="score")
        self.raw = Tokenizer.from_file(str(directory / "tokenizer.json"))

    def pair(self, query: str, document: str) -> list[int]:
        assert self.model.score is not None
        return self.model.score.tokens(self.model.tokenizer, Question(query, ""), document, Cut())


@pytest.fixture(scope="module", params=STYLES)
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> ServedFile:
    return ServedFile(tmp_path_factory.mktemp("encoder"), request.param)


@given(TEXTS)
@example("")
@example("a [SEP] b</s>c")
def test_a_text_is_encoded_as_by_the_library(served: ServedFile, text: str) -> None:
    assert served.model.tokenizer.encode_whole(text) == served.raw.encode(text).ids


@given(TEXTS, TEXTS)
@example("which loom", "the hot one")
def test_and_so_is_a_pair(served: ServedFile, query: str, document: str) -> None:
    assert served.pair(query, document) == served.raw.encode(query, document).ids


def test_nobody_writes_a_separator_into_a_pair(tmp_path: Path) -> None:
    assert ServedFile(tmp_path, "bert").pair("the [SEP] loom", "[SEP][CLS] hot").count(SEP) == 2


def test_tokens_have_texts_and_one_ends_them(tmp_path: Path) -> None:
    save_encoder("bert", tmp_path)
    path = write_encoder_gguf(tmp_path / "m.gguf", tmp_path)
    tokenizer = read_gguf(path).tokenizer
    assert tokenizer.decode(tokenizer.encode_whole("The loom weaves, naïve!")) == " the loom weaves , naive !"
    texts = read_token_texts(path)
    assert texts.eos_ids == (SEP,)
    assert [texts.texts[token] for token in tokenizer.encode_whole("loom")] == [b"", b" loom", b""]


def test_its_length_counts_one_token_more(tmp_path: Path) -> None:
    save_encoder("roberta", tmp_path)
    path = write_encoder_gguf(tmp_path / "m.gguf", tmp_path)
    assert read_gguf(path).context_length == load(path).max_model_len == LONGEST + 1


def test_a_vocabulary_with_capitals_is_of_texts_with_capitals(tmp_path: Path) -> None:
    normalizer = {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "lowercase": False}
    save_encoder("bert", tmp_path)
    spec = json.loads((tmp_path / "tokenizer.json").read_text())
    vocab = spec["model"]["vocab"] | {"Loom": len(spec["model"]["vocab"])}
    write_tokenizer(tmp_path, normalizer=normalizer | {"strip_accents": None}, model=spec["model"] | {"vocab": vocab})
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"vocab_size": len(vocab)}))
    keys = tokenizer_keys(tmp_path)
    path = write_gguf(tmp_path / "m.gguf", tmp_path, tensors={}, keys=keys)
    raw = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    for text in ("Loom loom", "naïve"):
        assert read_gguf(path).tokenizer.encode_whole(text) == raw.encode(text).ids


def charsmap(text: str, form: str) -> bytes:
    """SentencePiece's table with one entry: bytes of a double-array trie, the trie, the forms that its leaves name.

    From a unit (label, and an offset in the bits from 10 on) the next one lies at place ^ offset ^ byte; bit 8 says
    that a leaf lies at place ^ offset. Here each byte has a block of 256 units.
    """
    key = text.encode()
    units, place = [0] * (256 * (len(key) + 2)), 256
    units[0] = 256 << 10
    for number, byte in enumerate(key, 2):
        place ^= byte
        units[place] = byte | (place ^ 256 * number) << 10 | (number == len(key) + 1) << 8
        place = 256 * number
    return struct.pack(f"<I{len(units)}I", 4 * len(units), *units) + form.encode() + b"\0"


def test_normal_forms_of_sentencepiece_are_applied(tmp_path: Path) -> None:
    """A table with one entry: the ligature of f and i stands for both."""
    save_encoder("xlm-roberta", tmp_path)
    trie = charsmap("\ufb01", "fi")
    path = write_encoder_gguf(tmp_path / "m.gguf", tmp_path, keys={"tokenizer.ggml.precompiled_charsmap": list(trie)})
    tokenizer = read_gguf(path).tokenizer
    assert tokenizer.encode_whole("\ufb01") == tokenizer.encode_whole("fi")
    signed = [byte - 256 if byte > 127 else byte for byte in trie]
    write_encoder_gguf(path, tmp_path, keys={"tokenizer.ggml.precompiled_charsmap": signed})
    assert read_gguf(path).tokenizer.encode_whole("\ufb01") == tokenizer.encode_whole("fi")


KEY = "tokenizer.ggml."


@pytest.mark.parametrize(
    ("style", "keys", "error"),
    [
        ("bert", {"model": "rwkv"}, "tokenizer.ggml.model of an encoder is 'rwkv'; supported are 'bert', 't5', 'gpt2'"),
        ("bert", {"model": None}, "tokenizer.ggml.model is missing"),
        ("bert", {"token_type": [1, 2]}, "tokenizer.ggml.token_type has 2 entries for"),
        ("bert", {"token_type": None}, "tokenizer.ggml.token_type is missing"),
        ("bert", {"cls_token_id": 9999}, "tokenizer.ggml.cls_token_id is 9999, outside of its"),
        (
            "roberta",
            {"pre": "jina-v2-es"},
            "pre of an encoder is 'jina-v2-es'; supported are roberta-bpe, gpt-2",
        ),
        ("roberta", {"merges": None}, "tokenizer.ggml.merges is missing"),
        ("xlm-roberta", {"scores": None}, "tokenizer.ggml.scores is missing"),
        ("xlm-roberta", {"scores": [1.0]}, "tokenizer.ggml.scores has 1 entries for"),
        ("xlm-roberta", {"add_space_prefix": False}, "tokenizer.ggml.add_space_prefix false is not supported"),
        ("xlm-roberta", {"precompiled_charsmap": [1000]}, "tokenizer.ggml.precompiled_charsmap is no list of bytes"),
        ("xlm-roberta", {"precompiled_charsmap": [1]}, "m.gguf cannot be used: "),
    ],
)
def test_a_tokenizer_that_cannot_be_used_is_named(tmp_path: Path, style: str, keys: dict[str, Any], error: str) -> None:
    save_encoder(style, tmp_path)
    path = write_encoder_gguf(tmp_path / "m.gguf", tmp_path, keys={KEY + name: value for name, value in keys.items()})
    with pytest.raises(ModelFileError, match=error):
        read_gguf(path)


def test_a_token_that_is_there_twice_is_named(tmp_path: Path) -> None:
    save_encoder("bert", tmp_path)
    tokens = tokenizer_keys(tmp_path)["tokenizer.ggml.tokens"]
    tokens[7] = tokens[8]
    path = write_encoder_gguf(tmp_path / "m.gguf", tmp_path, keys={"tokenizer.ggml.tokens": tokens})
    with pytest.raises(ModelFileError, match=r"tokenizer.ggml.tokens 7 and 8 are both"):
        read_gguf(path)


def test_roles_that_no_field_names_are_found_by_their_names(tmp_path: Path) -> None:
    """In the first files that there were."""
    save_encoder("bert", tmp_path)
    roles = {f"tokenizer.ggml.{name}_token_id": None for name in ("cls", "seperator", "unknown", "padding", "mask")}
    path = write_encoder_gguf(tmp_path / "m.gguf", tmp_path, keys=roles)
    raw = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    assert read_gguf(path).tokenizer.encode_whole("the loom㋿") == raw.encode("the loom㋿").ids
    tokens = tokenizer_keys(tmp_path)["tokenizer.ggml.tokens"]
    tokens[tokens.index("[CLS]")] = "[BEGIN]"
    write_encoder_gguf(path, tmp_path, keys=roles | {"tokenizer.ggml.tokens": tokens})
    error = r"tokenizer.ggml.cls_token_id and tokenizer.ggml.bos_token_id are missing, and no token is '\[CLS\]'"
    with pytest.raises(ModelFileError, match=error):
        read_gguf(path)
