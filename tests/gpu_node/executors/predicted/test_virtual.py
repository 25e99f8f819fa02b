"""A device that is not there: what models are on it, what they say, and how long they take."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from statistics import mean

import pytest

from gpu_node.engine.border.executor import ModelTooLargeError
from gpu_node.engine.border.plan import Draw, ScheduledSequence, StepPlan
from gpu_node.engine.engine import Engine
from gpu_node.executors.node_executor import make_executor
from gpu_node.executors.predicted.made_up import MadeUpTokens
from gpu_node.executors.predicted.paced import PacedExecutor
from gpu_node.executors.predicted.virtual import VirtualExecutor, end_tokens, model_shape
from gpu_node.models.words import read_words
from shared.config import hardware
from shared.config.engines.engine import EngineOptions, ModelSpec
from shared.config.nodes.nodes import KINDS, NodeSpec
from shared.files.model_file import ModelFileError
from shared.messages.requests.payload import Payload, Sampling
from tests.gateway.tiny import END, HELLO, START, TOKENS, ids, write_model
from tests.gpu_node.masks import mask_of

OPTIONS = EngineOptions(max_num_seqs=4, async_scheduling=False)
A10, A100 = hardware.device_named("a10"), hardware.device_named("a100")
MISTRAL = hardware.model_named("mistral-7b")


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model file with a vocabulary and no weights."""
    return write_model(tmp_path_factory.mktemp("models") / "tiny.gguf")


def spec(source: Path, size: str | None = "mistral-7b", name: str = "m") -> ModelSpec:
    return ModelSpec(name=name, source=str(source), predict_as=size, max_model_len=2048)


def step(num_top: int | None = None, seed: int = 7, position: int = 0) -> StepPlan:
    draw = Draw(0, Sampling(max_tokens=999, seed=seed, stop_token_ids=[END]), position, num_top=num_top)
    return StepPlan((ScheduledSequence(0, (1, 2, 3), 4, (0,), (draw,)),), model="m")


def test_a_model_has_the_memory_that_its_device_leaves_it(vocabulary: Path) -> None:
    model = VirtualExecutor("a100", OPTIONS).load_model(spec(vocabulary))
    assert model.vocab_size == len(TOKENS)
    assert model.block_bytes == 16 * MISTRAL.kv_token_bytes
    assert model.num_blocks == int(hardware.kv_bytes(A100, MISTRAL)) // model.block_bytes


def test_what_does_not_fit_is_refused_with_both_sizes(vocabulary: Path) -> None:
    executor = VirtualExecutor("a10", OPTIONS)
    with pytest.raises(ModelTooLargeError, match=r"size of llama-70b.* 36.6 GB; the memory of a10 \(24 GB\) has no"):
        executor.load_model(spec(vocabulary, "llama-70b"))
    assert executor.tiers == {}


def test_a_step_takes_what_published_numbers_say(vocabulary: Path) -> None:
    executor = VirtualExecutor("a100", OPTIONS)
    executor.load_model(spec(vocabulary))
    cost = hardware.step_cost(A100, MISTRAL)
    # three rows at positions 4, 5, 6: seven tokens read once, 5 + 6 + 7 attended to
    assert executor.submit(step()).result().duration_s == cost.predict_s(3, 7, 18)


def test_tokens_are_words_and_the_same_wherever_they_are_drawn(vocabulary: Path) -> None:
    words = read_words(vocabulary).token_ids
    executors = [VirtualExecutor("a100", OPTIONS), VirtualExecutor("a10", OPTIONS)]
    for executor in executors:
        executor.load_model(spec(vocabulary))
    plans = [step(seed=seed) for seed in range(50)]
    first, second = ([one.submit(plan).result().token_ids[0] for plan in plans] for one in executors)
    assert first == second
    assert len(set(first)) > 10
    assert set(first) <= set(words)


def test_masked_draws_give_what_is_allowed_and_words_where_they_are(vocabulary: Path) -> None:
    executor = VirtualExecutor("a100", OPTIONS)
    executor.load_model(spec(vocabulary))

    def drawn(allowed: list[int], seed: int) -> int:
        (part,) = step(seed=seed).sequences
        draw = replace(part.draws[0], allowed=mask_of(allowed))
        return executor.submit(StepPlan((replace(part, draws=(draw,)),), model="m")).result().token_ids[0]

    (digit, comma), words = ids("7,"), ids("abc")
    assert {drawn([comma, digit, *words, HELLO], seed) for seed in range(50)} == {*words, HELLO}
    assert {drawn([comma, digit], seed) for seed in range(20)} == {comma, digit}
    assert {drawn([END, digit], seed) for seed in range(20)} == {END, digit}, "of what is allowed, an end is no word"
    assert drawn([digit], 1) == digit
    assert drawn([*range(len(TOKENS))], 3) == executor.submit(step(seed=3)).result().token_ids[0]
    with pytest.raises(ValueError, match=f"a mask allows no token of a vocabulary of {len(TOKENS)}"):
        drawn([len(TOKENS)], 1)


def test_an_answer_ends_as_soon_as_its_mask_allows_an_end_once_it_is_as_long_as_its_seed_says(vocabulary: Path) -> None:
    tokens = MadeUpTokens(read_words(vocabulary).token_ids, len(TOKENS), end_tokens)
    sampling = Sampling(max_tokens=4096, seed=7, stop_token_ids=[START, END])
    length = next(n for n in range(4096) if end_tokens(Draw(0, sampling, n)))
    (word,) = ids("a")
    for allowed, expected in ([word, END], END), ([word, START, END], START), ([word], word), ([END], END):
        assert tokens.token(Draw(0, sampling, length, allowed=mask_of(allowed))) == expected
    assert tokens.token(Draw(0, sampling, length)) == START
    assert tokens.token(Draw(0, sampling, length - 1, allowed=mask_of([word, END]))) == word


def test_logprobs_are_those_of_words(vocabulary: Path) -> None:
    executor = VirtualExecutor("a100", OPTIONS)
    executor.load_model(spec(vocabulary))
    top = executor.submit(step(num_top=2)).result().logprobs[0].top
    assert [token for token, _ in top] == list(read_words(vocabulary).token_ids[:2])


def test_answers_end_as_those_of_sharegpt() -> None:
    def length(seed: int) -> int:
        sampling = Sampling(max_tokens=4096, seed=seed, stop_token_ids=[0])
        return next(n for n in range(4096) if list(end_tokens(Draw(0, sampling, n))) == [0])

    lengths = [length(seed) for seed in range(300)]
    assert min(lengths) >= 1
    assert mean(lengths) == pytest.approx(317.9, rel=0.1)  # of 300 draws, with a deviation of 238.5 each
    assert not end_tokens(Draw(0, Sampling(max_tokens=4096), 4095)), "nothing ends an answer that ignores its end"


def test_an_engine_runs_requests_to_their_ends(vocabulary: Path) -> None:
    engine = Engine(VirtualExecutor("h100", OPTIONS), OPTIONS)
    engine.load_model(spec(vocabulary))
    samplings = [Sampling(max_tokens=300, seed=seed, stop_token_ids=[END]) for seed in range(8)]
    for number, sampling in enumerate(samplings):
        engine.add(Payload(f"r{number}", 0, "g", "m", [1, 2], sampling))
    reasons: Counter[str] = Counter()
    while engine.has_work:
        reasons.update(chunk.finish_reason for chunk in engine.step(now=0.0) if chunk.is_last)
    engine.check()
    num_stopped = sum(bool(end_tokens(Draw(0, sampling, 299))) for sampling in samplings)
    assert 0 < num_stopped < 8
    assert reasons == {"stop": num_stopped, "length": 8 - num_stopped}


def test_an_evicted_request_goes_on_elsewhere_with_the_same_words(vocabulary: Path) -> None:
    def engine(device: str) -> Engine:
        one = Engine(VirtualExecutor(device, OPTIONS), OPTIONS)
        one.load_model(spec(vocabulary))
        return one

    request = Payload("r", 0, "g", "m", [1, 2], Sampling(max_tokens=12, seed=3))
    alone = engine("a100")
    alone.add(request)
    wanted = [token for _ in range(12) for chunk in alone.step(0.0) for token in chunk.token_ids]

    first, second = engine("a100"), engine("a10")
    first.add(request)
    tokens = [token for _ in range(5) for chunk in first.step(0.0) for token in chunk.token_ids]
    chunks, kept = first.evict(["r"])
    assert (chunks, [one.kv_tokens for one in kept]) == ([], [6])  # the fifth token has no keys and values yet
    (image,) = first.hand_over(["r"])
    second.add(request, image.data)
    moved = [step for step in (second.step(0.0) for _ in range(8)) if step]
    assert tokens + [token for chunks in moved for chunk in chunks for token in chunk.token_ids] == wanted
    assert second.stats().kv_bytes_per_s == pytest.approx(hardware.kv_bytes_per_s(A10))
    second.check()


def test_weights_come_from_disk_first_and_then_from_host_memory(vocabulary: Path) -> None:
    executor = VirtualExecutor("a100", EngineOptions(host_models=1))
    model, other = spec(vocabulary), spec(vocabulary, "vicuna-13b", "other")
    assert executor.load_s(model) == hardware.load_s(A100, MISTRAL, "disk")
    executor.load_model(model)
    executor.unload_model("m")
    assert executor.tiers == {"m": "host"}
    assert executor.load_s(model) == hardware.load_s(A100, MISTRAL, "host")
    executor.load_model(other)
    executor.unload_model("other")  # room for one
    assert executor.tiers == {"other": "host"}
    assert executor.load_s(model) == hardware.load_s(A100, MISTRAL, "disk")


def test_without_a_name_a_model_is_as_large_as_its_file(real_model: ModelSpec) -> None:
    own, known = model_shape(real_model), hardware.model_named("smollm2-135m")
    assert (own.num_layers, own.num_heads, own.num_kv_heads, own.head_dim) == (30, 9, 3, 64)
    assert own.num_parameters == pytest.approx(known.num_parameters, rel=0.001)
    assert own.num_embedding_parameters == known.num_embedding_parameters
    assert own.weight_bytes == 2.0


def test_a_file_without_sizes_needs_the_name_of_a_model(vocabulary: Path) -> None:
    with pytest.raises(ModelFileError, match="block_count"):
        model_shape(spec(vocabulary, None))


def test_every_device_of_a_configuration_is_in_the_catalogue() -> None:
    assert set(KINDS) == set(hardware.DEVICES)


def test_a_node_that_predicts_is_made_without_torch() -> None:
    node = NodeSpec(name="n", executor="predicted", device="a10")
    made = make_executor(node, OPTIONS)
    assert isinstance(made, PacedExecutor)
    assert (made.device, A10.name) == ("a10", "a10")
    code = (
        "import sys, gpu_node.engine.__main__, gpu_node.executors.node_executor as made; "
        "from shared.config.engines.engine import EngineOptions; from shared.config.nodes.nodes import NodeSpec; "
        "made.make_executor(NodeSpec(name='n', executor='predicted', device='a10'), EngineOptions()); "
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
