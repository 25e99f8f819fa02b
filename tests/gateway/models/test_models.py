from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gateway.models.models import ServedModel, load_models
from gateway.tools.notation import HERMES, MISTRAL
from shared.config.config import ClusterConfig
from shared.files.model_file import ModelFileError
from shared.vocabulary.gguf_vocabulary import TokenType
from tests.gateway.tiny import HELLO, KINDS, MERGES, TOKENS, write_model
from tests.gateway.tool_models import MARK, write_family


def load(path: Path, max_model_len: int = 32) -> dict[str, ServedModel]:
    spec = {"name": "m", "source": str(path), "max_model_len": max_model_len}
    return load_models(ClusterConfig.model_validate({"models": [spec]}))


def test_models_of_one_file_share_what_was_read(tiny_models: dict[str, ServedModel]) -> None:
    assert tiny_models["tiny"].tokenizer is tiny_models["org/tiny-b"].tokenizer
    assert (tiny_models["tiny"].max_model_len, tiny_models["org/tiny-b"].max_model_len) == (64, 32)


def test_a_base_model_has_no_template(tiny_models: dict[str, ServedModel]) -> None:
    assert tiny_models["base"].template is None


def test_marks_of_calls_that_are_control_tokens_are_shown(tmp_path: Path) -> None:
    spec = write_family(tmp_path, "mistral", has_control_mark=True)
    model = load_models(ClusterConfig.model_validate({"models": [spec]}))["mistral"]
    assert (model.notation, model.control_markers) == (MISTRAL, {"[TOOL_CALLS]": MARK})
    assert (model.tokenizer.token_bytes[MARK], model.shown_token_bytes(calls=True, thoughts=False)[MARK]) == (
        b"",
        b"[TOOL_CALLS]",
    )
    assert model.shown_token_bytes(calls=True, thoughts=False)[:MARK] == model.tokenizer.token_bytes[:MARK]


def test_without_such_marks_nothing_is_copied(tiny_models: dict[str, ServedModel]) -> None:
    tiny = tiny_models["tiny"]
    assert (tiny.notation, tiny.control_markers) == (HERMES, {})
    assert tiny.shown_token_bytes(calls=True, thoughts=True) is tiny.tokenizer.token_bytes


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"model": "llama"}, "tokenizer.ggml.model is 'llama'"),
        ({"model": None}, "tokenizer.ggml.model is missing: without a tokenizer"),
        ({"pre": "klingon"}, "tokenizer.ggml.pre is 'klingon'; supported are .*llama-bpe.*smollm"),
        ({"eos": None}, "eos_token_id is missing"),
        ({"eos": 999}, "the id 999 of the eos token is outside"),
        ({"bos": None, "add_bos": True}, "bos_token_id is missing"),
        ({"kinds": KINDS[:-1]}, "token_type has 263 entries for 264 tokens"),
        ({"tokens": [*TOKENS[:-1], "a b"]}, "token 263 .* is not written in the byte-level alphabet"),
        ({"merges": ["h e", "hx y"]}, "tokenizer.ggml.merges cannot be used: .*hx"),
        ({"eos": "end"}, "eos_token_id is 'end', expected a whole number"),
        ({"tokens": [1, 2]}, "tokenizer.ggml.tokens is no list of str"),
        ({"template": "{% if %}"}, "tokenizer.chat_template is no valid template"),
    ],
)
def test_an_unusable_file_is_named_with_the_field(tmp_path: Path, changed: dict[str, Any], why: str) -> None:
    path = write_model(tmp_path / "broken.gguf", **changed)
    with pytest.raises(ModelFileError, match=why) as error:
        load(path)
    assert str(path) in str(error.value)


@pytest.mark.parametrize(("pre", "digits"), [("gpt-2", [len(TOKENS)]), ("smollm", [ord("1"), ord("2")])])
def test_a_file_of_gpt_2_keeps_digits_together(tmp_path: Path, pre: str, digits: list[int]) -> None:
    kinds = [*KINDS, TokenType.NORMAL]
    tokenizer: dict[str, Any] = {"pre": pre, "tokens": [*TOKENS, "12"], "kinds": kinds, "merges": [*MERGES, "1 2"]}
    path = write_model(tmp_path / "m.gguf", arch="gpt2", context_length=48, template=None, **tokenizer)
    model = load(path, 48)["m"]
    assert model.tokenizer.encode("hello w12") == [HELLO, TOKENS.index("Ġw"), *digits]
    with pytest.raises(ModelFileError, match="was trained for 48"):
        load(path, 49)


def test_a_context_longer_than_the_training_is_refused(tmp_path: Path) -> None:
    path = write_model(tmp_path / "m.gguf", context_length=32)
    with pytest.raises(ModelFileError, match=r"max_model_len is 33, but .* was trained for 32"):
        load(path, 33)
