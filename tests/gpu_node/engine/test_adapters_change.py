"""Adapters come to a loaded model and leave it: its requests go on with the tokens that they would have had."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import LlamaForCausalLM

from gpu_node.engine.engine import Engine
from gpu_node.engine.residents import EngineBusyError
from gpu_node.executors.cpu.executor import CpuExecutor
from gpu_node.executors.cuda.executor import CudaExecutor
from gpu_node.executors.predicted.executor import PredictedExecutor
from gpu_node.executors.reference.executor import ReferenceExecutor
from shared.config.engines.engine import EngineOptions, ModelSpec
from shared.files.model_file import AdapterFilesError, ModelFileError
from shared.messages.nodes.step_cost import StepCost
from shared.messages.requests.payload import Payload
from tests.gpu_node import tiny
from tests.gpu_node.adapted_tiny import NAMES, Adapted, adapted_tiny, asked
from tests.gpu_node.workload import Answers, answers, mixed_requests, prompt

MIB = 1 << 20
KINDS = ("reference", "cpu", "cuda")


@pytest.fixture(scope="module")
def adapted(tiny_model: LlamaForCausalLM, tiny_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Adapted:
    return adapted_tiny(tiny_model, tiny_path, tmp_path_factory.mktemp("adapters"))


def executor_of(kind: str, options: EngineOptions) -> Any:
    if kind == "cuda":
        return CudaExecutor(options, torch.device("cpu"), dtype=torch.float32)
    return ReferenceExecutor(options) if kind == "reference" else CpuExecutor(options, num_threads=1)


@pytest.fixture
def engines() -> Iterator[Any]:
    """Makes engines of any kind."""
    made: list[CpuExecutor] = []

    def make(spec: ModelSpec, kind: str = "reference", **given: Any) -> Engine:
        options = EngineOptions(**{"kv_cache_bytes": MIB, "block_size": 4, "max_num_seqs": 16} | given)
        executor = executor_of(kind, options)
        if isinstance(executor, CpuExecutor):
            made.append(executor)
        engine = Engine(executor, options)
        engine.load_model(spec)
        return engine

    yield make
    for executor in made:
        executor.close()


def answers_across(engine: Engine, payloads: list[Payload], *specs: ModelSpec) -> Answers:
    """As `answers`; after some steps the model has the adapters of the first of ``specs``, and so on."""
    found: Answers = {}
    for payload in payloads:
        assert engine.add(payload) == []
    left = list(specs)
    for number, chunks in enumerate(tiny.steps(engine)):
        for chunk in chunks:
            assert not chunk.error
            before, _ = found.get((chunk.request_id, chunk.choice), ([], ""))
            found[chunk.request_id, chunk.choice] = ([*before, *chunk.token_ids], chunk.finish_reason)
        if number % 3 == 2 and left:
            engine.load_model(left.pop(0))
            engine.check()
    assert not left
    return found


def of_legal_and_none(num_requests: int) -> list[Payload]:
    mixed = mixed_requests(num_requests, seed=5)
    return [replace(one, adapter=NAMES[number % 2]) for number, one in enumerate(mixed)]


@pytest.mark.parametrize("kind", KINDS)
def test_requests_that_run_have_the_tokens_that_they_would_have_had(adapted: Adapted, engines: Any, kind: str) -> None:
    payloads = of_legal_and_none(12 if kind != "cuda" else 4)
    expected = answers(engines(adapted.having("legal"), kind), payloads)
    engine = engines(adapted.having("legal"), kind)
    changes = adapted.having("rhymes", "legal"), adapted.having("legal", "rhymes"), adapted.having("legal")
    assert answers_across(engine, payloads, *changes) == expected


@pytest.mark.parametrize("kind", KINDS)
def test_an_adapter_that_comes_to_a_model_that_runs_has_its_own_tokens(
    adapted: Adapted, engines: Any, kind: str
) -> None:
    text = prompt(3, 9)
    running, late = asked("", text, 12, "running"), asked("legal", text, name="late")
    expected = tiny.run(engines(adapted.spec, kind), [running, late])
    engine = engines(adapted.having(), kind)
    assert engine.add(running) == []
    tokens = [token for _ in range(4) for chunk in engine.step(0.0) for token in chunk.token_ids]
    for names in (("rhymes",), ("legal", "rhymes")):
        engine.load_model(adapted.having(*names))
    assert engine.add(late) == []
    found: dict[str, list[int]] = {"running": tokens, "late": []}
    for chunks in tiny.steps(engine):
        for chunk in chunks:
            assert not chunk.error
            found[chunk.request_id] += chunk.token_ids
    assert [found["running"], found["late"]] == expected


@pytest.mark.parametrize("preemption", ["swap", "recompute"])
@pytest.mark.parametrize("kind", KINDS[:2])
def test_requests_that_gave_way_go_on_too(adapted: Adapted, engines: Any, kind: str, preemption: str) -> None:
    """Some are in host memory, or to be computed again, when adapters come."""
    payloads = [asked(NAMES[number % 2], prompt(number, 20), 100, str(number)) for number in range(96)]

    def found(*specs: ModelSpec) -> Answers:
        given: dict[str, Any] = {"preemption": preemption, "host_kv_bytes": MIB, "max_num_seqs": 150}
        engine = engines(adapted.having("legal"), kind, **given)
        tiny.run(engine, [asked("", [number], 1, f"short-{number}") for number in range(64)])
        everything = answers_across(engine, payloads, *specs)
        assert engine.num_preemptions > 0
        return everything

    more = adapted.having("rhymes", "legal")
    assert found(more, adapted.having("legal"), *[more, adapted.having("legal")] * 12) == found()


def test_what_is_cached_stays_and_is_its_own_adapters(adapted: Adapted, engines: Any) -> None:
    engine = engines(adapted.having("legal"))
    text = prompt(3, 21)
    for name in NAMES[:2]:
        tiny.run(engine, [asked(name, text, name=f"{name} before")])
    engine.load_model(adapted.having("rhymes", "legal"))
    for name, num_found in (("", 20), ("legal", 20), ("rhymes", 0)):
        before = engine.stats().counts.prefix_cached_tokens
        (output,) = tiny.run(engine, [asked(name, text, name=f"{name} behind")])
        assert output == tiny.greedy(adapted.merged[name], text, 8)[0]
        assert engine.stats().counts.prefix_cached_tokens - before == num_found


def test_one_that_requests_are_for_stays(adapted: Adapted, engines: Any) -> None:
    engine = engines(adapted.spec)
    payload = asked("legal", prompt(1, 9), 6)
    assert engine.add(payload) == []
    with pytest.raises(EngineBusyError, match="requests of 'tiny' are for legal, which would leave"):
        engine.load_model(adapted.having("rhymes"))
    tokens = [token for chunks in tiny.steps(engine) for chunk in chunks for token in chunk.token_ids]
    assert tokens == tiny.greedy(adapted.merged["legal"], payload.prompt_token_ids, 6)[0]
    assert engine.load_model(adapted.having("rhymes")).adapters == ("rhymes",)
    (chunk,) = engine.add(payload)
    assert chunk.error == "'tiny' has no adapter 'legal' at this node"


@pytest.mark.parametrize("kind", KINDS)
def test_one_that_cannot_be_used_changes_nothing(adapted: Adapted, engines: Any, kind: str, tmp_path: Path) -> None:
    engine = engines(adapted.having("legal"), kind)
    payload = asked("legal", prompt(1, 9), 6)
    (expected,) = tiny.run(engines(adapted.having("legal"), kind), [payload])
    assert engine.add(payload) == []
    tokens = [token for chunk in engine.step(0.0) for token in chunk.token_ids]
    broken = replace(adapted.spec.adapters[1], source=str(tmp_path / "nowhere"))
    with pytest.raises(AdapterFilesError) as caught:
        engine.load_model(replace(adapted.spec, adapters=(broken, adapted.spec.adapters[0])))
    assert list(caught.value.problems) == ["rhymes"]
    tokens += [token for chunks in tiny.steps(engine) for chunk in chunks for token in chunk.token_ids]
    assert tokens == expected


@pytest.mark.parametrize("kind", KINDS)
def test_host_memory_gives_back_no_model_with_the_adapters_of_before(adapted: Adapted, engines: Any, kind: str) -> None:
    engine = engines(adapted.having("legal"), kind, host_models=2)
    other = replace(adapted.having(), name="other")
    engine.load_model(other)
    engine.load_model(adapted.having("rhymes", "legal"))
    engine.load_model(adapted.having("rhymes"))
    assert engine.tiers == {"tiny": "device", "other": "host"}
    engine.load_model(other)
    engine.load_model(adapted.having("rhymes"))
    expected = tiny.run(engines(adapted.spec, kind), [asked("rhymes", prompt(2, 9))])
    assert tiny.run(engine, [asked("rhymes", prompt(2, 9))]) == expected


def test_what_was_prepared_beside_steps_is_taken_and_what_nobody_wants_is_given_up(
    adapted: Adapted, engines: Any, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(adapted.spec.adapters[0].source, tmp_path / "legal"))
    moved = replace(adapted.spec, adapters=(replace(adapted.spec.adapters[0], source=str(folder)),))
    (expected,) = tiny.run(engines(adapted.having("legal"), "cpu"), [asked("legal", prompt(1, 9))])
    engine = engines(adapted.having(), "cpu")
    assert engine.prepares_beside(moved)
    assert not engine.prepares_beside(adapted.having()), "it is loaded"
    engine.prepare(moved)
    shutil.rmtree(folder)
    engine.load_model(moved)
    assert tiny.run(engine, [asked("legal", prompt(1, 9))]) == [expected]
    engine.prepare(adapted.spec)
    engine.load_model(adapted.having("rhymes"))
    with pytest.raises(AdapterFilesError):
        engine.prepare(moved)
    assert not engines(adapted.having()).prepares_beside(adapted.spec), "the reference computes in the caller's thread"


def test_an_image_goes_on_where_other_adapters_are(adapted: Adapted, engines: Any) -> None:
    payload = asked("rhymes", prompt(2, 17), 20)
    expected = tiny.greedy(adapted.merged["rhymes"], payload.prompt_token_ids, 20)[0]
    one, other = engines(adapted.having("rhymes")), engines(adapted.having("legal", "rhymes"))
    one.add(payload)
    tokens = [token for _ in range(6) for chunk in one.step(0.0) for token in chunk.token_ids]
    tokens += [token for chunk in one.evict([payload.request_id])[0] for token in chunk.token_ids]
    one.load_model(adapted.having("legal", "rhymes"))
    (image,) = one.hand_over([payload.request_id])
    assert other.add(payload, image.data) == []
    tokens += [token for chunks in tiny.steps(other) for chunk in chunks for token in chunk.token_ids]
    assert tokens == expected


def test_a_predicted_device_has_them_as_well(adapted: Adapted) -> None:
    options = EngineOptions(kv_cache_bytes=MIB, host_models=1)
    executor = PredictedExecutor(StepCost(0.01, 0.001, 0.0001), options, token_kv_bytes=64, vocab_size=50)
    engine = Engine(executor, options)
    assert engine.load_model(adapted.having("legal")).adapters == ("legal",)
    assert engine.add(asked("legal", [1, 2, 3], 20)) == []
    engine.step(0.0)
    assert engine.load_model(adapted.having("rhymes", "legal")).adapters == ("rhymes", "legal")
    assert engine.tiers == {"tiny": "device"}
    assert sum(len(chunk.token_ids) for chunks in tiny.steps(engine) for chunk in chunks) == 20


@pytest.fixture
def legal(adapted: Adapted, tmp_path: Path) -> ModelSpec:
    """The model with an adapter whose files may be replaced."""
    (one,) = adapted.having("legal").adapters
    shutil.copytree(one.source, tmp_path / "legal")
    return replace(adapted.spec, adapters=(replace(one, source=str(tmp_path / "legal")),))


def replace_files(spec: ModelSpec, by: ModelSpec) -> None:
    (one,), (other,) = spec.adapters, by.adapters
    shutil.copytree(other.source, one.source, dirs_exist_ok=True)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("is_away", [False, True])
def test_an_adapter_whose_files_were_replaced_meets_no_kv_of_what_it_was(
    adapted: Adapted, engines: Any, legal: ModelSpec, kind: str, *, is_away: bool
) -> None:
    engine = engines(legal, kind)
    expected = tiny.run(engine, [asked("legal", prompt(3, 24))])
    others = replace(legal, adapters=adapted.having("rhymes").adapters)
    both = replace(legal, adapters=(*others.adapters, *legal.adapters))
    if is_away:
        engine.load_model(others)
    replace_files(legal, others)
    with pytest.raises(AdapterFilesError) as raised:
        engine.load_model(both)
    assert raised.value.problems == {
        "legal": "adapter 'legal': its files have changed since they were loaded; restart the node, or serve them "
        "under another name"
    }
    if engine.prepares_beside(both):
        with pytest.raises(AdapterFilesError):
            engine.prepare(both)  # which would read all weights
    if not is_away:
        assert tiny.run(engine, [asked("legal", prompt(3, 24))]) == expected, "nothing has changed"
    engine.load_model(others)
    assert tiny.run(engines(legal, kind), [asked("legal", prompt(3, 24))]) != expected, "a new engine has the new ones"


def test_a_model_whose_file_was_replaced_takes_no_other_adapters(
    adapted: Adapted, engines: Any, tmp_path: Path
) -> None:
    shutil.copy(adapted.spec.source, file := tmp_path / "tiny.gguf")
    spec = replace(adapted.having("legal"), source=str(file))
    engine = engines(spec)
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    with pytest.raises(ModelFileError, match="model 'tiny': its files have changed since they were loaded"):
        engine.load_model(replace(spec, adapters=()))
