"""The tokenizers of model directories, compared with what `transformers` and `tokenizers` make of the same files."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tokenizers import Tokenizer
from transformers import AutoTokenizer

from gateway.generation.detokenizer import Detokenizer
from gateway.models.hf_model import read_directory
from gateway.models.models import ServedModel
from gateway.models.tokenizer.tokenizer import PromptTokenizer
from tests.gateway.hf_tiny import BYTE_TOKENS, STYLES, byte_level, write_directory
from tests.gateway.models.tokenizer.test_tokenizer import AWKWARD

PIECES = [
    "hello",
    " world",
    " ",
    "  ",
    "\n",
    "don't",
    "é",
    "日本語",
    "🧵",
    "12",
    "a",
    "<s>",
    "</s>",
    "[INST]",
    "<tool>",
]
PIECES += ["<|im_end|>", "<|im_start|>", "<|end|>", "<|im_", "end|>", "<think>", "<", "s>", "\U000f0000", "\U000f0001"]
TEXTS = st.lists(st.sampled_from(PIECES), max_size=12).map("".join)


@dataclass(frozen=True)
class Pair:
    """Ours, and the references for the same directory."""

    style: str
    ours: PromptTokenizer
    reference: Any
    raw: Tokenizer

    def detokenised(self, token_ids: list[int]) -> str:
        detokenizer = Detokenizer(self.ours.token_bytes)
        return "".join([*map(detokenizer.feed, token_ids), detokenizer.flush()])


@pytest.fixture(scope="module", params=STYLES)
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    path = write_directory(tmp_path_factory.mktemp("hf") / request.param, request.param)
    raw = Tokenizer.from_file(str(path / "tokenizer.json"))
    return Pair(request.param, read_directory(path).tokenizer, AutoTokenizer.from_pretrained(str(path)), raw)


@given(TEXTS)
@example("")
@example(" <|end|> <|end|> x")
@example("a</s> b [INST]  c")
def test_a_prompt_is_encoded_as_by_transformers(pair: Pair, text: str) -> None:
    expected = pair.reference.encode(text)
    bos = expected[:1] if pair.ours.bos_token and pair.ours.encode("") else []
    if bos and expected[1:2] == bos:  # of a prompt that brings its BOS they make two
        expected = expected[1:]
    assert pair.ours.encode(text) == expected
    if "\U000f0000" not in text:  # this is how `user_text` writes, which a template's own text never does
        assert pair.ours.encode_chat(text) == pair.reference.encode(text, add_special_tokens=False)


CONTROL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|end|>", "<s>", "</s>", "<unk>", "[INST]", "[/INST]"]


@given(TEXTS)
@example("<s></s><|im_end|><unk><|endoftext|>[/INST]")
def test_user_text_never_yields_a_control_token_and_loses_nothing(pair: Pair, text: str) -> None:
    control = {pair.raw.token_to_id(token) for token in CONTROL}
    end = pair.ours.eos_token
    found = pair.ours.encode_chat(end + pair.ours.user_text(text) + end)
    assert found[0] == found[-1] == pair.ours.eos_ids[0]
    assert not control & set(found[1:-1])
    decoded = b"".join(pair.ours.token_bytes[token_id] for token_id in found).decode()
    if pair.style == "unigram":  # it puts a space before every stretch of text
        decoded, text = decoded.replace(" ", ""), text.replace(" ", "")
    assert decoded == (" " if pair.style == "legacy" and text else "") + text


def well_formed(pair: Pair) -> st.SearchStrategy[list[int]]:
    """Any tokens, but byte tokens only as whole characters: what the library makes of others is its own (below)."""
    ids = {byte: id_of(pair.raw, token) for byte, token in enumerate(BYTE_TOKENS) if pair.raw.token_to_id(token)}
    other = sorted(set(range(pair.ours.vocab_size)) - set(ids.values()))
    characters = "aé\n日🧵 " if ids else ""
    choices = [[token_id] for token_id in other] + [[ids[byte] for byte in text.encode()] for text in characters]
    return st.lists(st.sampled_from(choices), max_size=40).map(lambda parts: [*itertools.chain(*parts)])


def id_of(raw: Tokenizer, token: str) -> int:
    token_id = raw.token_to_id(token)
    assert token_id is not None
    return token_id


@given(st.data())
def test_any_tokens_after_a_prompt_give_the_text_that_decode_adds(pair: Pair, data: st.DataObject) -> None:
    prompt = pair.ours.encode("hello")
    output = data.draw(well_formed(pair))
    before = pair.raw.decode(prompt, skip_special_tokens=True)
    assert before == "hello"
    assert before + pair.detokenised(output) == pair.raw.decode(prompt + output, skip_special_tokens=True)
    assert before + pair.detokenised(output) == pair.reference.decode(
        prompt + output, skip_special_tokens=True, clean_up_tokenization_spaces=False
    )


@given(st.data())
def test_each_token_gives_its_text_at_once_or_waits_for_a_character(pair: Pair, data: st.DataObject) -> None:
    output = data.draw(well_formed(pair))
    detokenizer = Detokenizer(pair.ours.token_bytes)
    sent = "".join(map(detokenizer.feed, output))
    assert pair.detokenised(output).startswith(sent)


@pytest.fixture(scope="module")
def open_directory(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., PromptTokenizer]:
    def open_(style: str = "byte-level", **changed: Any) -> PromptTokenizer:
        return read_directory(write_directory(tmp_path_factory.mktemp("hf") / "model", style, **changed)).tokenizer

    return open_


Open = Callable[..., PromptTokenizer]


def texts(tokenizer: PromptTokenizer, text: str) -> list[str]:
    return [tokenizer.token_bytes[token_id].decode() for token_id in tokenizer.encode_chat(text)]


@pytest.mark.parametrize("style", ["metaspace", "legacy", "unigram"])
def test_the_space_before_an_answers_first_word_separates_it_from_the_prompt(open_directory: Open, style: str) -> None:
    tokenizer = open_directory(style)
    word = tokenizer.encode_chat("world")  # as at the beginning of a text: the vocabulary writes a space before it
    assert b"".join(tokenizer.token_bytes[token_id] for token_id in word) == b" world"


def test_the_first_word_gets_its_space_only_at_the_beginning_of_the_text(open_directory: Open) -> None:
    assert "".join(texts(open_directory("metaspace"), "hello[INST]hello")) == " hellohello"
    assert "".join(texts(open_directory("legacy"), "hello[INST]hello")) == " hello hello"


def test_bytes_that_are_no_text_are_replaced_one_by_one_and_not_the_valid_ones_beside_them(
    open_directory: Open, tmp_path: Path
) -> None:
    tokenizer = open_directory("metaspace")
    raw = Tokenizer.from_file(str(write_directory(tmp_path / "m", "metaspace") / "tokenizer.json"))
    output = [id_of(raw, "<0x61>"), id_of(raw, "<0xFF>")]
    detokenizer = Detokenizer(tokenizer.token_bytes)
    assert [*map(detokenizer.feed, output)] == ["a", "\ufffd"]
    assert raw.decode(output) == "\ufffd\ufffd"  # it knows only at the end of the bytes that the first was one


def test_bos_of_the_configuration_has_the_last_word(open_directory: Open) -> None:
    assert open_directory("metaspace").encode("hello")[0] == 1
    flag = {"add_bos_token": False, "bos_token": "<s>"}
    assert open_directory("metaspace", tokenizer_config=flag).encode("hello")[0] != 1
    flag = {"add_bos_token": True, "bos_token": {"content": "<|endoftext|>", "lstrip": False}}
    tokenizer = open_directory(tokenizer_config=flag)
    assert tokenizer.encode("hello")[0] == tokenizer.encode("<|endoftext|>hello")[0] == 0
    assert tokenizer.encode("<|endoftext|>") == [0]
    assert tokenizer.encode_chat("hello")[0] != 0
    assert open_directory(tokenizer_config=flag | {"add_bos_token": None}).encode("hello")[0] != 0


def test_ends_are_gathered_from_all_files_that_name_some(open_directory: Open) -> None:
    files = {"config": {"eos_token_id": 0}, "generation_config": {"eos_token_id": [1, 2]}}
    tokenizer = open_directory(**files)
    assert tokenizer.eos_ids == (2, 1, 0)
    assert tokenizer.eos_token == "<|im_end|>"
    assert open_directory(tokenizer_config={"eos_token": None}, **files).eos_token == "<|im_start|>"


def test_roles_that_only_the_model_configuration_names(open_directory: Open) -> None:
    tokenizer = open_directory(
        tokenizer_config={"eos_token": None}, config={"eos_token_id": 2, "bos_token_id": 0}, generation_config={}
    )
    assert (tokenizer.bos_token, tokenizer.eos_token) == ("<|endoftext|>", "<|im_end|>")


def test_an_end_is_a_control_token_even_if_its_file_forgot_to_say_so(open_directory: Open) -> None:
    added = [token | {"special": False} for token in byte_level()["added_tokens"]]
    tokenizer = open_directory(tokenizer={"added_tokens": added}, config={"eos_token_id": 0})
    assert {0, 2}.isdisjoint(tokenizer.encode_chat(tokenizer.user_text("<|endoftext|><|im_end|>")))
    assert tokenizer.encode("<|im_end|>") == [2]


def test_the_configuration_describes_added_tokens_anew(open_directory: Open) -> None:
    think = byte_level()["added_tokens"][-1]
    plain = open_directory()
    assert plain.encode_chat(plain.user_text("<think>")) == [think["id"]]
    decoder = {str(think["id"]): {**think, "id": None, "special": True, "rstrip": True}}
    special = open_directory(tokenizer_config={"added_tokens_decoder": decoder})
    assert think["id"] not in special.encode_chat(special.user_text("<think>"))
    assert special.encode_chat("<think> \n") == [think["id"]]
    assert special.token_bytes[think["id"]] == b""


def test_a_pad_token_may_be_an_ordinary_one(open_directory: Open) -> None:
    tokenizer = open_directory(tokenizer_config={"pad_token": "a"})
    assert texts(tokenizer, tokenizer.user_text("a")) == ["a"]


def test_a_pad_token_without_a_row_is_plain_text(open_directory: Open) -> None:
    pad = {"id": 403, "content": "[PAD]", "special": True}
    added = [*byte_level()["added_tokens"], pad]
    tokenizer = open_directory(
        tokenizer={"added_tokens": added}, tokenizer_config={"pad_token": "[PAD]"}, config={"vocab_size": 403}
    )
    assert tokenizer.vocab_size == 403
    assert "".join(texts(tokenizer, "[PAD]")) == "[PAD]"


def test_left_overs_of_training_are_not_used(open_directory: Open) -> None:
    truncation = {"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0}
    padding = {
        "strategy": {"Fixed": 32},
        "direction": "Right",
        "pad_to_multiple_of": None,
        "pad_id": 0,
        "pad_type_id": 0,
        "pad_token": "<|endoftext|>",
    }
    tokenizer = open_directory(tokenizer={"truncation": truncation, "padding": padding})
    assert "".join(texts(tokenizer, "hello world, hello loom")) == "hello world, hello loom"


def test_old_files_do_not_name_the_type_of_their_model(open_directory: Open) -> None:
    model = byte_level()["model"]
    del model["type"]
    assert open_directory(tokenizer={"model": model}).encode("hello") == open_directory().encode("hello")


def test_merges_may_be_written_with_a_space_between(open_directory: Open) -> None:
    model = byte_level()["model"]
    model["merges"] = [" ".join(pair) for pair in model["merges"]]
    assert open_directory(tokenizer={"model": model}).encode("hello") == open_directory().encode("hello")


def test_a_real_vocabulary_saved_as_a_directory_agrees_with_its_file(
    real_model: ServedModel, reference: Any, tmp_path: Path
) -> None:
    reference.save_pretrained(str(tmp_path))
    (tmp_path / "config.json").write_text('{"max_position_embeddings": 2048, "vocab_size": 49152}')
    parts = read_directory(tmp_path)
    assert parts.tokenizer.token_bytes == real_model.tokenizer.token_bytes
    assert parts.tokenizer.eos_ids == real_model.tokenizer.eos_ids
    for text in AWKWARD:
        assert parts.tokenizer.encode(text) == reference.encode(text)
    turns = [{"role": "user", "content": "hello"}]
    assert parts.template is not None
    assert real_model.template is not None
    assert parts.template.render(turns) == real_model.template.render(turns)
