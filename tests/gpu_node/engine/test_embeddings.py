"""Models that embed: the answer is the hidden state of a text's last token, however the text was computed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from gpu_node.executors.predicted.virtual import VirtualExecutor
from gpu_node.executors.reference.executor import ReferenceExecutor
from gpu_node.graph.program import OperatorKind
from gpu_node.models.architectures.families import build_program
from shared.config.engines.engine import EngineOptions, ModelSpec
from shared.messages.requests.payload import Constraint
from tests.gpu_node import tiny
from tests.gpu_node.embedding_model import OPTIONS, embedded, embeddings, engine_of, expected, request, spec, texts
from tests.gpu_node.family_programs import CONFIGS, config
from tests.gpu_node.models.test_families_models import FAMILIES, save


def reference(path: Path, **options: Any) -> Any:
    return engine_of(ReferenceExecutor(EngineOptions(**OPTIONS | options)), path, **options)


@pytest.mark.parametrize("name", CONFIGS)
def test_a_program_without_its_head_is_the_same_up_to_there(name: str) -> None:
    model = config(**CONFIGS[name] | {"tied_embedding": False})
    whole, headless = build_program(model), build_program(model, "embed")
    assert headless.operators == whole.operators[:-1]
    assert whole.operators[-1].kind is OperatorKind.LINEAR
    assert {one.name for one in whole.weights} - {one.name for one in headless.weights} == {"lm_head"}
    assert headless.result == whole.operators[-1].inputs[0]
    assert headless.num_result_columns == model.hidden_size


@pytest.mark.slow
@pytest.mark.parametrize("name", FAMILIES)
def test_embeddings_are_those_of_transformers_in_chunks_and_over_cached_prefixes(name: str, tmp_path: Path) -> None:
    model = save(name, tmp_path)
    engine = reference(tmp_path, step_tokens=7)
    common = list(range(20, 40))
    asked = [*texts(5), common, [*common, 50], [*common, 51]]
    for _ in range(2):  # the second time, all but the last block is cached
        torch.testing.assert_close(embedded(engine, asked), expected(model, asked), rtol=2e-4, atol=2e-4)
    assert engine.counts.prefix_cached_tokens > 2 * len(common)


@pytest.mark.slow
def test_a_text_that_was_evicted_goes_on(tmp_path: Path) -> None:
    model = save("llama", tmp_path)
    engine = reference(tmp_path, step_tokens=8)
    payload = request("a", list(range(10, 50)))
    assert engine.add(payload) == []
    assert engine.step(0.0) == []
    chunks, kept = engine.evict(["a"])
    assert chunks == []
    assert kept[0].kv_tokens > 0
    torch.testing.assert_close(
        embeddings(engine, [payload]), expected(model, [payload.prompt_token_ids]), rtol=2e-4, atol=2e-4
    )
    assert engine.counts.evicted.num_restored == 1


def test_what_is_asked_of_the_wrong_model_is_refused(tiny_path: Path) -> None:
    embedding = reference(tiny_path)
    (chunk,) = embedding.add(tiny.request("a", [5], 4))
    assert (chunk.finish_reason, chunk.error) == ("refused", "'tiny' gives embeddings and no text (task: embed)")
    generating = tiny.make_engine(tiny_path)
    (chunk,) = generating.add(request("a", [5]))
    assert chunk.error == "'tiny' gives text and no embeddings (task: generate)"
    assert not embedding.has_work
    assert not generating.has_work


@pytest.mark.parametrize(
    ("asked", "error"),
    [
        ({"num_choices": 2}, "a text has one embedding: one choice, and max_tokens of 1"),
        ({"is_beam": True}, "a text has one embedding: one choice, and max_tokens of 1"),
        ({"constraint": Constraint("regex", "a")}, "an embedding has no constraint, penalties or logprobs"),
        ({"presence_penalty": 1.0}, "an embedding has no constraint, penalties or logprobs"),
        ({"num_logprobs": 0}, "an embedding has no constraint, penalties or logprobs"),
    ],
)
def test_what_an_embedding_cannot_have_is_refused(tiny_path: Path, asked: dict[str, Any], error: str) -> None:
    (chunk,) = reference(tiny_path).add(request("a", [5], **asked))
    assert (chunk.finish_reason, chunk.error) == ("refused", error)


def test_a_state_that_is_not_finite_is_an_error(tiny_model: Any, tmp_path: Path) -> None:
    tensors = tiny.tensors_of(tiny_model)
    tensors["output_norm.weight"] = tensors["output_norm.weight"] * float("nan")
    engine = reference(tiny.write_gguf(tmp_path / "nan.gguf", tensors))
    assert engine.add(request("a", [5])) == []
    (chunk,) = [chunk for told in tiny.steps(engine) for chunk in told]
    assert chunk.finish_reason == "error"
    assert not chunk.embedding


def test_a_head_of_its_own_is_not_read(tmp_path: Path) -> None:
    model = tiny.make_model(tied=False)
    path = tiny.write_gguf(tmp_path / "untied.gguf", tiny.tensors_of(model, tied=False))
    torch.testing.assert_close(embedded(reference(path), [[5, 6]]), expected(model, [[5, 6]]), rtol=2e-4, atol=2e-4)


def test_a_predicted_device_makes_embeddings_up(model_file: Path) -> None:
    options = EngineOptions(block_size=16)
    executor = VirtualExecutor("a100", options)
    engine = engine_of(executor, model_file, block_size=16, kv_cache_bytes=None)
    first, again, other = embedded(engine, [[5, 6, 7], [5, 6, 7], [5, 6, 8]])
    assert len(first) == 576  # the hidden size of SmolLM2-135M
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_the_configuration_says_what_a_model_is_for(tmp_path: Path) -> None:
    assert ModelSpec(name="tiny", source=str(tmp_path)).task == "generate"
    assert spec(tmp_path).task == "embed"
