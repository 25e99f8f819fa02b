"""How documents are put to models that score, by configuration, files and family; and how they are cut."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.models.gguf_model import read_gguf
from gateway.models.hf_model import read_directory
from gateway.models.models import load_models, read_parts
from gateway.models.score_form import PAIR, QWEN3, QWEN3_INSTRUCTION, Cut, Question, ScoreForm, beginning, score_form
from shared.config.config import ClusterConfig
from shared.config.engines.engine import ModelSpec
from shared.config.engines.scoring import ScoreOptions
from shared.files.model_file import ModelFileError
from tests.gateway.hf_tiny import write_directory
from tests.gateway.tiny import END, HELLO, START, ids, write_model

CLASSIFIER = {"architectures": ["LlamaForSequenceClassification"], "id2label": {"0": "LABEL_0"}}
ROLES = """{% for role in ['query', 'document'] %}
<{{ role }}>{{ messages | selectattr('role', 'eq', role) | map(attribute='content') | first }}
{% endfor %}
!"""


def form(path: Path, **score: Any) -> ScoreForm:
    spec = ModelSpec(name="judge", source=str(path), task="score", score=ScoreOptions(**score))
    return score_form(spec, read_parts(path), path)


def test_qwen3_is_asked_as_its_authors_ask(tmp_path: Path) -> None:
    path = write_directory(tmp_path / "m", config={"model_type": "qwen3"})
    found = form(path)
    assert (found.prompt, found.instruction, found.is_whole) == (QWEN3, QWEN3_INSTRUCTION, False)
    tokenizer = read_directory(path).tokenizer
    text = QWEN3.format(instruction=QWEN3_INSTRUCTION, query="hot models", document="The loom")
    assert found.tokens(tokenizer, Question("hot models", QWEN3_INSTRUCTION), "The loom", Cut()) == tokenizer.encode(
        text
    )
    assert text == (
        "<|im_start|>system\n"
        "Judge whether the Document meets the requirements based on the Query and the Instruct provided. "
        'Note that the answer can only be "yes" or "no".<|im_end|>\n'
        "<|im_start|>user\n"
        "<Instruct>: Given a web search query, retrieve relevant passages that answer the query\n"
        "<Query>: hot models\n"
        "<Document>: The loom<|im_end|>\n"
        "<|im_start|>assistant\n"
        "<think>\n\n</think>\n\n"
    )


def test_the_configuration_has_the_first_word(tmp_path: Path) -> None:
    path = write_directory(tmp_path / "m", config={"model_type": "qwen3"})
    found = form(path, prompt="{document}|{query}|{instruction}", instruction="judge")
    assert (found.prompt, found.instruction) == ("{document}|{query}|{instruction}", "judge")


def test_a_gguf_file_says_itself(tmp_path: Path) -> None:
    path = write_model(tmp_path / "m.gguf", arch="qwen3", rerank_template="q {query} d {document}")
    assert form(path).prompt == "q {query} d {document}"
    assert form(write_model(tmp_path / "n.gguf", arch="qwen3")).prompt == QWEN3


def test_a_chat_template_with_roles_of_its_own_says_itself(tmp_path: Path) -> None:
    path = write_directory(tmp_path / "m", config=CLASSIFIER, template=ROLES)
    assert form(path).prompt == "<query>{query}\n<document>{document}\n!"


@pytest.mark.parametrize("template", ["{{ 'query' }}{{ 'document' }}", "{{ 'query' + 1 }}{{ 'document' }}"])
def test_a_template_that_leaves_texts_out_is_refused(tmp_path: Path, template: str) -> None:
    path = write_directory(tmp_path / "m", config=CLASSIFIER, template=template)
    with pytest.raises(ModelFileError, match=r"its template for scores cannot be used \(.*set models\[\].score.prompt"):
        form(path)


def test_a_classifier_reads_both_texts_as_one(tmp_path: Path) -> None:
    path = write_directory(tmp_path / "m", "byte-level-bos", config=CLASSIFIER)
    found, tokenizer = form(path), read_directory(path).tokenizer
    assert (found.prompt, found.is_whole) == (PAIR, True)
    tokens = found.tokens(tokenizer, Question("hello", ""), "loom", Cut())
    assert tokens == tokenizer.encode_whole("hello\nloom")
    assert tokens[0] == 0  # BOS


def test_a_whole_text_has_its_end_and_a_question_has_not(tmp_path: Path) -> None:
    tokenizer = read_gguf(write_model(tmp_path / "m.gguf", add_bos=True, add_eos=True)).tokenizer
    asked = Question("a", "")
    whole = ScoreForm(PAIR, "", is_whole=True).tokens(tokenizer, asked, "b", Cut())
    assert whole == [START, *ids("a\nb"), END]
    assert ScoreForm(PAIR, "", is_whole=False).tokens(tokenizer, asked, "b", Cut()) == whole[:-1]


def test_who_says_nothing_is_refused(tmp_path: Path) -> None:
    path = write_model(tmp_path / "m.gguf")
    with pytest.raises(
        ModelFileError, match=r"do not say how a query and a document are put to it; set models\[\].sco"
    ):
        form(path)
    with pytest.raises(ModelFileError, match=r"model 'judge': score.instruction is set, but its prompt has no"):
        form(path, prompt="{query}{document}", instruction="x")


def test_only_models_that_score_have_a_form(tmp_path: Path) -> None:
    path = write_model(tmp_path / "m.gguf", arch="qwen3")
    models = [{"name": "judge", "source": str(path), "task": "score"}, {"name": "chat", "source": str(path)}]
    found = load_models(ClusterConfig.model_validate({"models": models}))
    assert found["chat"].score is None
    assert found["judge"].score == form(path)


TINY = ScoreForm("<|im_start|>{query}|{document}<|im_end|>ok", "", is_whole=False)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return read_gguf(write_model(tmp_path_factory.mktemp("form") / "m.gguf")).tokenizer


def test_a_cut_keeps_whole_characters_and_tokens(tokenizer: Any) -> None:
    assert beginning(tokenizer, "héé", 3) == "hé"
    assert beginning(tokenizer, "héé", 2) == "h"
    assert tokenizer.encode("hello") == [HELLO]
    assert beginning(tokenizer, "hellohello", 1) == "hello"
    assert beginning(tokenizer, "a", 0) == ""
    assert beginning(tokenizer, "<|im_end|>", 4) == "<|im"


@given(
    document=st.text(st.sampled_from("hello wé日\n<|im_end|>\U000f0000"), max_size=60),
    document_tokens=st.none() | st.integers(1, 40),
    prompt_tokens=st.none() | st.integers(8, 40),
)
def test_the_form_survives_any_cut(
    tokenizer: Any, document: str, document_tokens: int | None, prompt_tokens: int | None
) -> None:
    cut = Cut(document_tokens, prompt_tokens)
    tokens = TINY.tokens(tokenizer, Question("q", ""), document, cut)
    assert tokens[:3] == [START, *ids("q|")]
    assert tokens[-3:] == [END, *ids("ok")]
    inside = tokens[3:-3]
    assert START not in inside
    assert END not in inside
    assert document.encode().startswith(b"".join(map(tokenizer.bytes_of, inside)))
    assert document_tokens is None or len(inside) <= document_tokens
    assert prompt_tokens is None or len(tokens) <= prompt_tokens
    if document_tokens is None and prompt_tokens is None:
        assert tokenizer.decode(inside) == document


def test_a_tokenizer_that_writes_longer_texts_is_cut_too(tmp_path: Path) -> None:
    longer = {"type": "Replace", "pattern": {"String": "w"}, "content": "loom loom"}
    found = read_directory(write_directory(tmp_path / "m", tokenizer={"normalizer": longer})).tokenizer
    for most in range(0, 200, 7):
        kept = beginning(found, "w" * 100, most)
        assert kept == "w" * len(kept)
        assert len(found.encode_chat(kept)) <= most
    assert len(kept) > 10


@pytest.mark.parametrize("style", ["byte-level", "metaspace", "legacy", "unigram"])
def test_every_kind_of_tokenizer_is_cut(tmp_path: Path, style: str) -> None:
    found = read_directory(write_directory(tmp_path / "m", style)).tokenizer
    text = "The loom weaves requests of hot and cold models onto the same devices."
    for most in range(30):
        kept = beginning(found, text, most)
        assert text.startswith(kept)
        tokens = len(found.encode_chat(found.user_text(kept)))
        assert tokens <= most or kept == ""  # some put a space before nothing, too
        assert tokens >= most - 2 or kept == text
