"""Encoders in an engine: vectors and scores are those of `transformers`, a text is computed in one step, and nothing of
it is found again."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import torch

from gpu_node.engine.engine import Engine
from gpu_node.executors.model_check import load_problem
from gpu_node.executors.piped import NOT_PIPED, piped
from gpu_node.executors.predicted.virtual import VirtualExecutor
from gpu_node.executors.reference.executor import ReferenceExecutor
from gpu_node.graph.passes.tensor_parallel import IndivisibleError, tensor_parallel
from gpu_node.models.checkpoint import open_checkpoint
from gpu_node.models.served_program import served_program
from shared.config.engines.engine import EngineOptions, ModelSpec
from shared.config.nodes.nodes import NodeSpec
from shared.config.pipelines.pipelines import Pipelines
from shared.files.model_file import ModelFileError
from tests.gateway.encoder_tiny import CLS, SEP, write_tokenizer
from tests.gpu_node import tiny
from tests.gpu_node.embedding_model import OPTIONS, embedded, embeddings, request
from tests.gpu_node.encoder_model import (
    FAMILIES,
    LONGEST,
    check_close,
    embedded_in_one_step,
    engine_of,
    label_logits,
    means,
    save_encoder,
    save_labelled_decoder,
    scores,
    states,
    write_pooling,
)
from tests.gpu_node.gguf_encoders import write_encoder_gguf
from tests.gpu_node.random_pipelines import random_pipeline


def reference(path: Path, task: Any = "embed", **options: Any) -> Engine:
    return engine_of(ReferenceExecutor(EngineOptions(**OPTIONS | options)), path, task, **options)


def texts(num_texts: int, longest: int = LONGEST) -> list[list[int]]:
    """Of unlike lengths: the shortest and the longest that there are, and others."""
    numbers = random.Random(5)
    lengths = [1, longest, *(numbers.randint(2, longest) for _ in range(num_texts - 2))]
    return [[numbers.randrange(5, 300) for _ in range(length)] for length in lengths]


def pairs() -> list[list[int]]:
    numbers = random.Random(6)
    words = [[numbers.randrange(5, 300) for _ in range(numbers.randint(1, 20))] for _ in range(10)]
    return [[CLS, *query, SEP, *document, SEP] for query, document in zip(words[::2], words[1::2], strict=True)]


@pytest.mark.parametrize("name", FAMILIES)
def test_embeddings_are_means_of_what_transformers_computes(name: str, tmp_path: Path) -> None:
    model = save_encoder(name, tmp_path)
    asked = texts(9)
    check_close(embedded(reference(tmp_path), asked), means(model, asked))


def test_or_what_becomes_of_the_first_token(tmp_path: Path) -> None:
    model = save_encoder("bert", tmp_path)
    write_pooling(tmp_path, cls_token=True, mean_tokens=False)
    asked = texts(5)
    expected = torch.stack([states(model, text)[0] for text in asked])
    check_close(embedded(reference(tmp_path), asked), expected)


@pytest.mark.parametrize("name", FAMILIES)
def test_scores_are_those_of_transformers(name: str, tmp_path: Path) -> None:
    model = save_encoder(name, tmp_path, is_classifier=True)
    found = embedded(reference(tmp_path, "score"), pairs())
    check_close(found, scores(model, pairs()))


def test_the_texts_of_a_pair_are_told_apart(tmp_path: Path) -> None:
    """The same tokens in one segment give another score."""
    model = save_encoder("bert", tmp_path, is_classifier=True)
    (pair, *_) = pairs()
    with torch.inference_mode():
        other = model(torch.tensor([pair])).logits
    assert float((embedded(reference(tmp_path, "score"), [pair]) - other).abs()) > 0.01


def pair_template(*types: int) -> dict[str, Any]:
    """BERT's, with other types of its tokens and texts."""
    names = ["[CLS]", "A", "[SEP]", "B", "[SEP]"]
    kinds = ["Sequence" if name in "AB" else "SpecialToken" for name in names]
    pair = [{kind: {"id": name, "type_id": type_}} for kind, name, type_ in zip(kinds, names, types, strict=True)]
    ids = {"[CLS]": CLS, "[SEP]": SEP}
    special = {name: {"id": name, "ids": [token], "tokens": [name]} for name, token in ids.items()}
    single = [pair[0], pair[1], pair[2]]
    return {"type": "TemplateProcessing", "single": single, "pair": pair, "special_tokens": special}


def test_a_tokenizer_may_put_both_texts_into_one_segment(tmp_path: Path) -> None:
    """As that of multilingual-e5-small does, whose model is a BERT."""
    model = save_encoder("bert", tmp_path, is_classifier=True)
    write_tokenizer(tmp_path, post_processor=pair_template(0, 0, 0, 0, 0))
    with torch.inference_mode():
        expected = torch.cat([model(torch.tensor([pair])).logits for pair in pairs()])
    check_close(embedded(reference(tmp_path, "score"), pairs()), expected)


def test_or_where_nobody_can_see_it(tmp_path: Path) -> None:
    save_encoder("bert", tmp_path, is_classifier=True)
    write_tokenizer(tmp_path, post_processor=pair_template(0, 0, 1, 1, 1))
    with pytest.raises(ModelFileError, match=r"types \[0, 0, 1, 1, 1\]; supported are 0 up to the first token between"):
        reference(tmp_path, "score")
    write_tokenizer(tmp_path, post_processor=None)
    with pytest.raises(ModelFileError, match="does not say how two texts are put together"):
        reference(tmp_path, "score")


# --- one step a text --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("step_tokens", "lengths"),
    [(600, (400, 201, 200, 200, 600, 1)), (512, (400, 113, 200, 200, 512, 1)), (16, (400, 113, 200, 200, 512, 1))],
)
def test_no_text_is_begun_in_a_step_that_has_no_room_for_it(
    tmp_path: Path, step_tokens: int, lengths: tuple[int, ...]
) -> None:
    """Which has room for 512 tokens, where ``step_tokens`` are less."""
    save_encoder("bert", tmp_path, max_position_embeddings=700)
    engine = reference(tmp_path, step_tokens=step_tokens, async_scheduling=False)
    for number, length in enumerate(lengths):
        assert engine.add(request(str(number), [5 + token % 200 for token in range(length)])) == []
    ended = [sorted(chunk.request_id for chunk in told) for told in tiny.steps(engine)]
    assert ended == [["0"], ["1", "2"], ["3"], ["4"], ["5"]]


def test_whatever_the_budget_of_a_step_a_text_is_computed_in_one(tmp_path: Path) -> None:
    save_encoder("bert", tmp_path)
    engines = [reference(tmp_path, step_tokens=step_tokens, async_scheduling=False) for step_tokens in (16, 1024)]
    assert torch.equal(*(embedded_in_one_step(engine, range(5, 65)) for engine in engines))


def test_no_text_sees_another(tmp_path: Path) -> None:
    """Bits are torch's own here; those of the CPU device are compared in its tests."""
    save_encoder("bert", tmp_path)
    asked = texts(7)
    engine = reference(tmp_path)
    alone = torch.cat([embedded(engine, [text]) for text in asked])
    torch.testing.assert_close(embedded(engine, asked), alone, rtol=0, atol=1e-5)


def test_nothing_of_a_text_is_found_again_and_nobody_waits_for_its_beginning(tmp_path: Path) -> None:
    model = save_encoder("bert", tmp_path)
    common = list(range(5, 45))
    asked = [common, [*common, 50], [*common, 51, 52]] * 8
    engine = reference(tmp_path, step_tokens=1100)
    for _ in range(2):
        for number, text in enumerate(asked):
            assert engine.add(request(str(number), text)) == []
        engine.step(0.0)
        assert len(engine.step(0.0)) == len(asked)
    assert engine.counts.prefix_cached_tokens == 0
    check_close(embedded(engine, asked[:3]), means(model, asked[:3]))


def test_memory_for_one_text_at_a_time_is_enough(tmp_path: Path) -> None:
    model = save_encoder("bert", tmp_path)
    asked = texts(6, longest=40)
    engine = Engine(ReferenceExecutor(options := EngineOptions(block_size=64, kv_cache_bytes=1 << 20)), options)
    loaded = engine.load_model(ModelSpec(name="tiny", source=str(tmp_path), task="embed"))
    assert loaded.num_blocks == 32
    check_close(embedded(engine, asked * 8), means(model, asked * 8))


@pytest.mark.parametrize(
    ("step_tokens", "num_positions", "longest"), [(16, 62, 62), (16, 700, 512), (600, 700, 600), (1024, 700, 700)]
)
def test_the_longest_text_and_one_that_is_longer(
    tmp_path: Path, step_tokens: int, num_positions: int, longest: int
) -> None:
    save_encoder("bert", tmp_path, max_position_embeddings=num_positions)
    engine = reference(tmp_path, step_tokens=step_tokens)
    assert engine.model is not None
    assert engine.model.max_model_len == longest + 1
    assert len(embedded(engine, [[5] * longest])) == 1
    (chunk,) = engine.add(request("a", [5] * (longest + 1)))
    error = f"{longest + 1} tokens leave no room for output: 'tiny' takes {longest + 1}"
    assert (chunk.finish_reason, chunk.error) == ("refused", error)


def test_a_text_that_waits_is_evicted_and_comes_back(tmp_path: Path) -> None:
    model = save_encoder("bert", tmp_path, max_position_embeddings=300)
    engine = reference(tmp_path, async_scheduling=False)
    payloads = [request(str(number), list(range(number, 270))) for number in range(3)]  # no two fit into a step
    for payload in payloads:
        assert engine.add(payload) == []
    (first,) = engine.step(0.0)
    assert first.request_id == "0"
    chunks, kept = engine.evict(["2"])
    assert (chunks, [one.kv_tokens for one in kept]) == ([], [0])
    (second,) = [chunk for told in tiny.steps(engine) for chunk in told]
    assert second.request_id == "1"
    expected = means(model, [payloads[2].prompt_token_ids])
    check_close(embeddings(engine, payloads[2:]), expected)


# --- what is refused --------------------------------------------------------------------------------------------------


def load(path: Path, task: Any = "embed", options: dict[str, Any] | None = None, **spec: Any) -> None:
    engine = Engine(ReferenceExecutor(chosen := EngineOptions(**OPTIONS | (options or {}))), chosen)
    engine.load_model(ModelSpec(name="tiny", source=str(path), task=task, **spec))


@pytest.mark.parametrize(
    ("changes", "asked", "error"),
    [
        (
            {},
            {"task": "generate"},
            "it is an encoder, whose tokens .* and writes no text; set task: embed",
        ),
        ({}, {"task": "score"}, "it is no classifier .* so it has no score to give; set task: embed"),
        (
            {"is_classifier": True, "num_labels": 3},
            {"task": "score"},
            "a classifier with 3 labels; .* takes one of one label, task: classify any",
        ),
        ({}, {"options": {"offload": "on"}}, "whose attention does not run on other engines; set engine.offload: off"),
        (
            {"max_position_embeddings": 700},
            {"options": {"step_tokens": 40}, "max_model_len": 600},
            "computed in one step each, of 512 tokens at most; set engine.step_tokens to 599",
        ),
        ({"hidden_act": "gelu_new"}, {}, "hidden_act 'gelu_new' is not supported; 'gelu' is"),
        ({"is_decoder": True}, {}, "is_decoder is not supported"),
        ({"position_embedding_type": "relative_key"}, {}, "position_embedding_type 'relative_key' is not supported"),
    ],
)
def test_what_cannot_be_served(tmp_path: Path, changes: dict[str, Any], asked: dict[str, Any], error: str) -> None:
    save_encoder("bert", tmp_path, **changes)
    with pytest.raises(ModelFileError, match=error):
        load(tmp_path, **asked)


@pytest.mark.parametrize(
    ("modes", "error"),
    [
        ({"lasttoken": True}, "pooled by lasttoken; task: embed takes the mean over an encoder's tokens, or the first"),
        ({"cls_token": True, "mean_tokens": True}, "pooled by cls_token, mean_tokens; task: embed takes the mean over"),
        ({"max_tokens": True}, "pooled by max_tokens; task: embed"),
    ],
)
def test_another_way_to_pool_is_refused(tmp_path: Path, modes: dict[str, bool], error: str) -> None:
    save_encoder("bert", tmp_path)
    write_pooling(tmp_path, **modes)
    with pytest.raises(ModelFileError, match=error):
        load(tmp_path)


def test_several_devices_do_not_share_one(tmp_path: Path) -> None:
    save_encoder("bert", tmp_path)
    node = NodeSpec(name="a", executor="reference", tensor_parallel=2)
    spec = ModelSpec(name="tiny", source=str(tmp_path), task="embed")
    assert load_problem(spec, node, EngineOptions(), 1 << 40) == (
        f"{tmp_path}: model 'tiny': it is an encoder, which is not divided among devices, and the node has 2; "
        "serve it on a node with one"
    )
    program = served_program(spec, open_checkpoint(tmp_path))
    with pytest.raises(IndivisibleError, match="an encoder is not divided among devices"):
        tensor_parallel(program, 0, 2)


def test_pipelines_are_for_others(tmp_path: Path) -> None:
    save_encoder("bert", tmp_path)
    spec = ModelSpec(name="tiny", source=str(tmp_path), task="embed")
    program = served_program(spec, open_checkpoint(tmp_path))
    assert piped(program, spec, Pipelines("auto", 16), "cpu:1") == NOT_PIPED  # and nothing is lacking
    named = Pipelines("any.json", 16, (random_pipeline(1, rows=16, device="cpu:1"),))
    with pytest.raises(ModelFileError, match="pipelines are for models that generate, and this one is an encoder"):
        piped(program, spec, named, "cpu:1")


def test_a_tensor_that_is_missing_is_named_and_heads_of_training_are_left_out(tmp_path: Path) -> None:
    save_encoder("bert", tmp_path)
    checkpoint = open_checkpoint(tmp_path)
    program = served_program(ModelSpec(name="tiny", source=str(tmp_path), task="embed"), checkpoint)
    assert "pooler" not in {weight.name for weight in program.weights}  # the file has it
    save_encoder("bert", tmp_path / "other", num_hidden_layers=1)
    (tmp_path / "other" / "config.json").write_bytes((tmp_path / "config.json").read_bytes())
    with pytest.raises(ModelFileError, match=r"missing tensors: bert\.encoder\.layer\.1\.attention\.output\.LayerNorm"):
        load(tmp_path / "other")


def test_a_predicted_device_makes_embeddings_up(tmp_path: Path) -> None:
    save_encoder("bert", tmp_path, max_position_embeddings=700)
    options = EngineOptions(step_tokens=40, block_size=256)  # or there would be millions
    engine = Engine(VirtualExecutor("a100", options), options)
    loaded = engine.load_model(ModelSpec(name="tiny", source=str(tmp_path), task="embed"))
    assert (loaded.max_model_len, loaded.is_encoder, loaded.step_tokens) == (513, True, 512)
    assert len(embedded(engine, [[5, 6, 7]] * 3)[0]) == 32
    with pytest.raises(ModelFileError, match="writes no text"):
        Engine(VirtualExecutor("a100", options), options).load_model(ModelSpec(name="tiny", source=str(tmp_path)))


# --- labels -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FAMILIES)
def test_logits_of_labels_are_those_of_transformers(name: str, tmp_path: Path) -> None:
    model = save_encoder(name, tmp_path, is_classifier=True, num_labels=3)
    check_close(embedded(reference(tmp_path, "classify"), texts(5)), label_logits(model, texts(5)))


def test_a_language_model_reads_the_last_token(tmp_path: Path) -> None:
    model = save_labelled_decoder(tmp_path)
    check_close(embedded(reference(tmp_path, "classify"), texts(5)), label_logits(model, texts(5)))


def test_a_predicted_device_makes_logits_up(tmp_path: Path) -> None:
    save_encoder("bert", tmp_path, is_classifier=True, num_labels=5)
    options = EngineOptions(block_size=256)
    engine = Engine(VirtualExecutor("a100", options), options)
    engine.load_model(ModelSpec(name="tiny", source=str(tmp_path), task="classify"))
    assert embedded(engine, [[5, 6, 7]] * 3).shape == (3, 5)


def test_who_has_no_labels_cannot_classify(tmp_path: Path) -> None:
    save_encoder("bert", tmp_path)
    with pytest.raises(ModelFileError, match=r"it is no classifier .* so it has no labels"):
        load(tmp_path, "classify")
    with pytest.raises(ModelFileError, match="a GGUF file does not say whether its labels exclude each other"):
        load(write_encoder_gguf(tmp_path / "m.gguf", tmp_path), "classify")
    save_encoder("bert", tmp_path, is_classifier=True, num_labels=3)
    spec = ModelSpec(name="tiny", source=str(tmp_path), task="classify")
    problem = load_problem(spec, NodeSpec(name="n", engine="vllm"), EngineOptions(), 1 << 40)
    assert problem == f"{tmp_path}/config.json: task: classify is for nodes with engine: treadle"
