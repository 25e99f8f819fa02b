"""Directories of encoders at the gateway: tokens as the library makes them, and what cannot be served is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from gateway.models.hf_model import read_directory
from gateway.models.models import ServedModel, load_models
from gateway.models.score_form import Cut, Question
from shared.config.config import ClusterConfig
from shared.config.engines.adapters import AdapterSpec
from shared.config.engines.engine import EngineOptions, ModelSpec
from shared.files.encoder import encoder_problem, encoder_task_problem
from shared.files.model_file import ModelFileError
from tests.gateway.encoder_tiny import ENCODERS, SEP, write_encoder

CLASSIFIER: dict[str, Any] = {"architectures": ["BertForSequenceClassification"], "id2label": {"0": "LABEL_0"}}
TEXTS = st.lists(
    st.sampled_from(["The loom", " weaves", " ", "\n", "HOT,", "naïve", "日本語", "[x]", "12", "🧵", "ing", "'"]),
    max_size=8,
).map("".join)


class Served:
    """Of one directory: the model as it scores, and the library's tokenizer."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.model = load(path, task="score")
        self.raw = Tokenizer.from_file(str(path / "tokenizer.json"))

    def pair(self, query: str, document: str, cut: Cut | None = None) -> list[int]:
        assert self.model.score is not None
        return self.model.score.tokens(self.model.tokenizer, Question(query, ""), document, cut or Cut())


def load(path: Path, engine: dict[str, Any] | None = None, **model: Any) -> ServedModel:
    fields = {"models": [{"name": "m", "source": str(path), "task": "embed"} | model], "engine": engine or {}}
    return load_models(ClusterConfig.model_validate(fields))["m"]


@pytest.fixture(scope="module", params=ENCODERS)
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Served:
    return Served(write_encoder(tmp_path_factory.mktemp("encoder") / "m", request.param, **CLASSIFIER))


@given(TEXTS)
@example("")
@example("a [SEP] b</s>c")
def test_a_text_is_encoded_as_by_the_library(served: Served, text: str) -> None:
    assert served.model.tokenizer.encode_whole(text) == served.raw.encode(text).ids


@given(TEXTS, TEXTS)
@example("which loom", "the hot one")
def test_and_so_is_a_pair(served: Served, query: str, document: str) -> None:
    assert served.pair(query, document) == served.raw.encode(query, document).ids


def test_nobody_writes_a_separator_into_a_pair(tmp_path: Path) -> None:
    served = Served(write_encoder(tmp_path / "m", **CLASSIFIER))
    found = served.pair("the [SEP] loom", "[SEP][CLS] hot")
    assert found.count(SEP) == 2
    assert served.raw.encode("the [SEP] loom", "[SEP][CLS] hot").ids.count(SEP) == 4


def test_a_document_that_is_too_long_is_cut_in_its_own_place(tmp_path: Path) -> None:
    served = Served(write_encoder(tmp_path / "m", **CLASSIFIER))
    whole = served.pair("which loom", "the loom weaves requests of hot models " * 4)
    cut = served.pair("which loom", "the loom weaves requests of hot models " * 4, Cut(prompt_tokens=20))
    assert len(whole) > 20 >= len(cut) > 15
    assert cut == [*whole[: len(cut) - 1], SEP]


def test_an_unknown_word_is_one_token_and_its_name_is_none(tmp_path: Path) -> None:
    tokenizer = read_directory(write_encoder(tmp_path / "m")).tokenizer
    assert tokenizer.encode_whole("loom㋿") == [2, 1, 3]
    assert tokenizer.encode_chat("[UNK]") == [1]
    assert tokenizer.encode_chat(tokenizer.user_text("[UNK]")) == tokenizer.encode_chat("[ unk ]") != [1]


def test_tokens_have_texts(tmp_path: Path) -> None:
    tokenizer = read_directory(write_encoder(tmp_path / "m")).tokenizer
    assert tokenizer.decode(tokenizer.encode_whole("The loom weaves, naïve!")) == " the loom weaves , naive !"


# --- lengths ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("style", ENCODERS)
def test_a_text_has_the_positions_that_there_are_and_counts_one_token_more(tmp_path: Path, style: str) -> None:
    assert load(write_encoder(tmp_path / "m", style)).max_model_len == 62 + 1


def test_a_text_fits_into_one_step(tmp_path: Path) -> None:
    """Which has room for 512 tokens, where ``step_tokens`` are less."""
    path = write_encoder(tmp_path / "m", max_position_embeddings=700)
    assert load(path, {"step_tokens": 600}).max_model_len == 600 + 1
    assert load(path).max_model_len == load(path, {"step_tokens": 4}).max_model_len == 512 + 1
    assert load(path, {"step_tokens": 4}, max_model_len=513).max_model_len == 513
    with pytest.raises(ModelFileError) as error:
        load(path, {"step_tokens": 40}, max_model_len=514)
    assert str(error.value) == (
        f"{path}: model 'm': max_model_len is 514, but it is an encoder, whose texts are computed in one step each, of "
        "512 tokens at most; set engine.step_tokens to 513 at least, or max_model_len to 513 at most"
    )
    with pytest.raises(ModelFileError, match=r"max_model_len is 702, but .* was trained for 701 tokens"):
        load(path, {"step_tokens": 1024}, max_model_len=702)


def test_a_small_budget_of_steps_makes_no_text_shorter(tmp_path: Path) -> None:
    assert load(write_encoder(tmp_path / "m"), {"step_tokens": 4}).max_model_len == 62 + 1


# --- what cannot be ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "engine", "error"),
    [
        (
            {"task": "generate"},
            {},
            "model 'm': it is an encoder, whose tokens see those behind them, and writes no text",
        ),
        ({}, {"offload": "on"}, "whose attention does not run on other engines; set engine.offload: off"),
    ],
)
def test_what_an_encoder_cannot_be_served_for(
    tmp_path: Path, model: dict[str, Any], engine: dict[str, Any], error: str
) -> None:
    with pytest.raises(ModelFileError, match=error):
        load(write_encoder(tmp_path / "m"), engine, **model)


def test_nor_has_it_adapters() -> None:
    spec = ModelSpec(name="m", source="/m", task="embed", adapters=(AdapterSpec(name="a", source="/a"),))
    problem = "model 'm': it is an encoder, and those have no adapters here; leave adapters out"
    assert encoder_problem(spec, EngineOptions()) == encoder_task_problem(spec) == problem


def test_a_tokenizer_that_knows_no_pairs_cannot_score(tmp_path: Path) -> None:
    single = [{"Sequence": {"id": "A", "type_id": 0}}]
    template = {"type": "TemplateProcessing", "single": single, "pair": [], "special_tokens": {}}
    path = write_encoder(tmp_path / "m", tokenizer={"post_processor": template}, **CLASSIFIER)
    assert load(path).tokenizer.encode_whole("a") == read_directory(path).tokenizer.encode("a")
    with pytest.raises(ModelFileError, match="does not say how two texts are put together"):
        load(path, task="score")


def test_a_list_of_words_alone_is_not_read(tmp_path: Path) -> None:
    path = write_encoder(tmp_path / "m")
    (path / "tokenizer.json").unlink()
    (path / "vocab.txt").write_text("[PAD]\n[UNK]\n")
    with pytest.raises(ModelFileError, match=r"missing; vocab.txt is not read; make tokenizer.json once"):
        read_directory(path)


@pytest.mark.parametrize(
    ("changed", "error"),
    [
        ({"post_processor": {"type": "BertProcessing", "cls": ["[CLS]", 2]}}, "has no sep token with an id"),
        ({"post_processor": {"type": "BertProcessing", "cls": ["", 2], "sep": ["", 999]}}, "are not all tokens"),
        ({"model": {"type": "WordPiece", "vocab": {"a": 5}, "unk_token": None}}, "model.unk_token is no token"),
        ({"model": {"type": "WordPiece", "vocab": {"a": -1}}}, "model.vocab is no vocabulary"),
        ({"model": {"type": "WordLevel", "vocab": {"a": 5}}}, "'BPE', 'Unigram' and 'WordPiece' are"),
    ],
)
def test_a_tokenizer_that_cannot_be_used_is_named(tmp_path: Path, changed: dict[str, Any], error: str) -> None:
    with pytest.raises(ModelFileError, match=f"tokenizer.json.*{error}"):
        read_directory(write_encoder(tmp_path / "m", tokenizer=changed, vocab_size=1000))
