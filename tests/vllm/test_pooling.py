"""Models that embed and score in vLLM: their rows are those of our own engine, and of `transformers`."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml

from gpu_node.engine.process.protocol.protocol import (
    AbortRequests,
    ModelFailed,
    ModelLoaded,
    Reset,
    RunAttempt,
    StepReport,
    TakenOut,
    TakeOut,
)
from gpu_node.engine.requests.image import Kept
from gpu_node.executors.draws.not_finite import NOT_FINITE
from gpu_node.executors.reference.executor import ReferenceExecutor
from shared.config.engines.engine import EngineOptions
from shared.messages.requests.payload import Payload
from shared.messages.requests.requests import Chunk
from tests.gpu_node import embedding_model, score_model, tiny
from tests.gpu_node.adapter_folders import ALL, save_adapter
from tests.gpu_node.engine.process.agent_end import Agent
from tests.vllm import pooling_models
from tests.vllm.nodes import chunks_until_end, ready, request, tokens_of

CLOSE = 1e-3
"""Of two engines in float32, of numbers of about 1."""
STEP_TOKENS = 64


@dataclass(frozen=True)
class Pooled:
    """Directories of models, and some of them as `transformers` has them; ``legal`` is ``texts`` with an adapter."""

    folder: Path
    texts: Any
    legal: Any
    ranks: Any
    both: Any
    cross: Any
    bert: Any

    def config(self, python: Path, folder: Path, num_ranks: int = 1) -> Path:
        """One node, where three models stay."""
        sources = {"texts": "texts", "judge": "texts", "ranks": "ranks", "mean": "mean", "chat": "texts"}
        sources |= {name: name for name in ("labels", "odd", "both", "first", "broken", "cross", "bert")} | {
            "answers": "no-answers"
        }
        tasks = {
            "judge": "score",
            "ranks": "score",
            "labels": "score",
            "answers": "score",
            "cross": "score",
            "chat": "generate",
        }
        models: list[dict[str, Any]] = [
            {"name": name, "source": str(self.folder / source), "max_model_len": 512, "task": tasks.get(name, "embed")}
            for name, source in sources.items()
        ]
        del models[list(sources).index("first")]["max_model_len"]
        models.append({"name": "long", "source": str(self.folder / "both"), "max_model_len": 514, "task": "embed"})
        models[0]["adapters"] = [{"name": "legal", "source": str(self.folder / "legal")}]
        vllm = {"python": str(python), "kv": "host", "args": ["--dtype", "float32"]}
        node = {"name": "node-0", "engine": "vllm", "tensor_parallel": num_ranks, "vllm": vllm}
        options = {"kv_cache_bytes": 16 << 20, "max_num_seqs": 8, "step_tokens": STEP_TOKENS, "host_models": 2}
        path = folder / "treadle.yaml"
        path.write_text(yaml.safe_dump({"models": models, "nodes": [node], "engine": options}))
        return path


@pytest.fixture(scope="module")
def pooled(tmp_path_factory: pytest.TempPathFactory) -> Pooled:
    folder = tmp_path_factory.mktemp("pooled")
    texts = pooling_models.write_language_model(folder / "texts")
    pooling_models.write_language_model(folder / "mean")
    pooling_models.write_pooling(folder / "mean", "mean_tokens")
    pooling_models.write_language_model(folder / "odd")
    pooling_models.write_pooling(folder / "odd", "max_tokens")
    ranks = pooling_models.write_classifier(folder / "ranks")
    pooling_models.write_classifier(folder / "labels", num_labels=3)
    pooling_models.write_language_model(folder / "no-answers")
    words = folder / "no-answers" / "tokenizer.json"
    words.write_text(words.read_text().replace('"yes"', '"oui"'))
    both = pooling_models.write_encoder(folder / "both")
    pooling_models.write_pooling(folder / "both", "mean_tokens")
    pooling_models.write_encoder(folder / "first")
    pooling_models.write_pooling(folder / "first", "cls_token")
    broken = pooling_models.write_language_model(folder / "broken")
    with torch.no_grad():
        broken.model.norm.weight[3] = torch.inf
    broken.save_pretrained(folder / "broken")
    legal = save_adapter(texts, folder / "legal", ALL, seed=1)
    cross = pooling_models.write_cross_encoder(folder / "cross")
    bert = pooling_models.write_bert(folder / "bert")
    return Pooled(folder, texts, legal, ranks, both, cross, bert)


@pytest.fixture(scope="module")
def running(pooled: Pooled, vllm_python: Path) -> Iterator[Agent]:
    with ready(pooled.config(vllm_python, pooled.folder), vllm_python) as agent:
        yield agent


@pytest.fixture
def agent(running: Agent) -> Agent:
    running.send(Reset())
    running.next()
    return running


def asked(model: str, name: str, text: Sequence[int], attempt: int = 0) -> Payload:
    return replace(request(name, text, 1, attempt=attempt, is_embedding=True), model=model)


def texts(num_texts: int, longest: int = 200) -> list[list[int]]:
    """Token ids, many of more tokens than a step has."""
    numbers = random.Random(7)
    return [[numbers.randrange(3, tiny.VOCAB) for _ in range(numbers.randint(1, longest))] for _ in range(num_texts)]


def rows(agent: Agent, model: str, prompts: Sequence[Sequence[int]], prefix: str = "") -> torch.Tensor:
    """float32 [texts, numbers], all asked for together."""
    payloads = [asked(model, f"{prefix}{number}", prompt) for number, prompt in enumerate(prompts)]
    agent.send(*(RunAttempt(one) for one in payloads))
    found: dict[str, Chunk] = {}
    while found.keys() < {one.request_id for one in payloads}:
        event = agent.next()
        assert isinstance(event, StepReport)
        for chunk in event.chunks:
            assert (chunk.token_ids, chunk.finish_reason, chunk.is_last, chunk.error) == ([], "stop", True, "")
            found[chunk.request_id] = chunk
    return torch.from_numpy(np.stack([np.frombuffer(found[one.request_id].embedding, "<f4") for one in payloads]))


def check(found: torch.Tensor, wanted: torch.Tensor) -> None:
    torch.testing.assert_close(found, wanted, rtol=CLOSE, atol=CLOSE)


def load(agent: Agent, *models: str) -> None:
    for model in models:
        loaded = agent.load(model)
        assert isinstance(loaded, ModelLoaded), loaded


def test_embeddings_are_the_states_of_last_tokens(agent: Agent, pooled: Pooled) -> None:
    """In chunks, in one batch, and over cached prefixes, as in our engine."""
    load(agent, "texts")
    common = [5 + number % 50 for number in range(260)]
    prompts = [*texts(12), common, [*common, 9]]
    wanted = embedding_model.expected(pooled.texts, prompts)
    for number in range(2):
        check(rows(agent, "texts", prompts, f"{number}."), wanted)
    options = EngineOptions(kv_cache_bytes=8 << 20, block_size=4)
    ours = embedding_model.engine_of(ReferenceExecutor(options), pooled.folder / "texts")
    short = texts(6, 20)
    check(rows(agent, "texts", short), embedding_model.embedded(ours, short))


def test_scores_are_the_logits_of_no_and_yes(agent: Agent, pooled: Pooled) -> None:
    load(agent, "judge")
    prompts = texts(12)
    check(rows(agent, "judge", prompts), score_model.expected(pooled.texts, prompts))


def test_scores_of_a_classifier_are_its_logit(agent: Agent, pooled: Pooled) -> None:
    load(agent, "ranks")
    prompts = texts(12)
    check(rows(agent, "ranks", prompts), score_model.expected(pooled.ranks, prompts))


def test_all_tokens_are_pooled_where_the_files_say_so(agent: Agent, pooled: Pooled) -> None:
    load(agent, "mean")
    prompts = texts(12)
    check(rows(agent, "mean", prompts), pooling_models.mean_states(pooled.texts, prompts))


def test_tokens_that_see_those_behind_them_are_pooled_too(agent: Agent, pooled: Pooled) -> None:
    """Of a kind that our own engine does not have: in one step, however long the text."""
    load(agent, "both")
    first = agent.load("first")
    assert isinstance(first, ModelLoaded)
    assert first.max_model_len == pooling_models.NUM_POSITIONS
    prompts = [[token for token in text if token != pooling_models.PAD] or [9] for text in texts(12)]
    check(rows(agent, "both", prompts), pooling_models.mean_states(pooled.both, prompts))
    check(rows(agent, "first", prompts), pooling_models.first_states(pooled.both, prompts))


def test_a_bert_embeds_by_the_mean_where_its_files_say_nothing_as_in_our_engine(agent: Agent, pooled: Pooled) -> None:
    load(agent, "bert")
    prompts = texts(12)
    check(rows(agent, "bert", prompts), pooling_models.mean_states(pooled.bert, prompts))


def test_such_a_classifier_scores(agent: Agent, pooled: Pooled) -> None:
    load(agent, "cross")
    prompts = [[token for token in text if token != pooling_models.PAD] or [9] for text in texts(12)]
    check(rows(agent, "cross", prompts), score_model.expected(pooled.cross, prompts))


def test_an_adapter_reads_its_own_texts(agent: Agent, pooled: Pooled) -> None:
    load(agent, "texts")
    text = texts(1)[0]
    agent.send(RunAttempt(replace(asked("texts", "a", text), adapter="legal")), RunAttempt(asked("texts", "b", text)))
    found: dict[str, Any] = {}
    while len(found) < 2:
        event = agent.next()
        assert isinstance(event, StepReport)
        found |= {chunk.request_id: np.frombuffer(chunk.embedding, "<f4") for chunk in event.chunks}
    both = torch.from_numpy(np.stack([found["a"], found["b"]]))
    wanted = torch.cat([embedding_model.expected(model, [text]) for model in (pooled.legal, pooled.texts)])
    check(both, wanted)


def test_what_is_cached_is_told_and_steps_are_measured(agent: Agent) -> None:
    load(agent, "texts")
    text = [7 + number % 40 for number in range(300)]
    told = []
    for number in range(2):
        agent.send(RunAttempt(asked("texts", f"c{number}", text)))
        *_, last = agent.steps_until_end(f"c{number}")
        told.append(last.chunks[0].cached_tokens)
    assert told == [0, 256], "two of its blocks are whole"
    assert last.stats.cost is not None
    assert 0 < last.stats.step_s < 60


def test_those_that_leave_are_silent_and_come_again(agent: Agent, pooled: Pooled) -> None:
    """Some of them aborted, some evicted, all of several steps."""
    load(agent, "texts")
    prompts = {name: [5 + place + number % 29 for number in range(400)] for place, name in enumerate("abcdefgh")}
    agent.send(*(RunAttempt(asked("texts", name, prompt)) for name, prompt in prompts.items()))
    agent.send(AbortRequests(["g", "h"]), TakeOut(["e", "f"]))
    found: set[str] = set()
    taken = None
    while taken is None or len(found) < 4:
        event = agent.next()
        if isinstance(event, TakenOut):
            taken = event.requests
        else:
            assert isinstance(event, StepReport)
            assert [chunk.error for chunk in event.chunks if chunk.error] == []
            found |= {chunk.request_id for chunk in event.chunks}
    assert (found, taken) == (set("abcd"), [Kept("e", 0), Kept("f", 0)]), "they are computed again"
    again = [prompts["e"], prompts["g"]]
    check(rows(agent, "texts", again, "again"), embedding_model.expected(pooled.texts, again))


def test_text_is_drawn_beside_texts_that_are_embedded_and_scored(agent: Agent, pooled: Pooled) -> None:
    """Of three models that stay, each has a core of its own."""
    load(agent, "chat", "judge", "texts")
    prompts = texts(6)
    agent.send(RunAttempt(replace(request("said", prompts[0], 20), model="chat")))
    agent.send(*(RunAttempt(asked("judge", f"j{number}", prompt)) for number, prompt in enumerate(prompts)))
    agent.send(*(RunAttempt(asked("texts", f"t{number}", prompt)) for number, prompt in enumerate(prompts)))
    chunks: list[Chunk] = []
    while sum(chunk.is_last for chunk in chunks) < 13:
        event = agent.next()
        assert isinstance(event, StepReport)
        chunks += event.chunks
    said = tokens_of([chunk for chunk in chunks if chunk.request_id == "said"])
    assert said == tiny.greedy(pooled.texts, prompts[0], 20)[0]
    found = {
        chunk.request_id: torch.frombuffer(bytearray(chunk.embedding), dtype=torch.float32)
        for chunk in chunks
        if chunk.embedding
    }
    scores = torch.stack([found[f"j{number}"] for number in range(6)])
    check(scores, score_model.expected(pooled.texts, prompts))
    states = torch.stack([found[f"t{number}"] for number in range(6)])
    check(states, embedding_model.expected(pooled.texts, prompts))


def test_a_model_that_embeds_draws_no_text_and_the_other_way_round(agent: Agent) -> None:
    load(agent, "chat", "texts")
    told: list[Chunk] = []
    for payload in (replace(request("a", [5, 6], 4), model="texts"), asked("chat", "b", [5, 6])):
        agent.send(RunAttempt(payload))
        told += chunks_until_end(agent, payload.request_id)
    assert [(chunk.finish_reason, chunk.error) for chunk in told] == [
        ("refused", "'texts' gives embeddings and no text (task: embed)"),
        ("refused", "'chat' gives text and no embeddings (task: generate)"),
    ]


def test_a_row_that_is_not_finite_is_an_error(agent: Agent) -> None:
    load(agent, "broken")
    agent.send(RunAttempt(asked("broken", "a", [5, 6])))
    (chunk,) = chunks_until_end(agent, "a")
    assert (chunk.finish_reason, chunk.error, chunk.embedding) == ("error", NOT_FINITE, b"")


@pytest.mark.parametrize(
    ("model", "error"),
    [
        ("labels", "labels/config.json: it is a classifier with 3 labels; task: score takes one of one label"),
        (
            "odd",
            "1_Pooling/config.json: its embeddings are pooled by max_tokens; supported are lasttoken, mean and cls",
        ),
        ("long", "model 'long': vLLM does not serve it here: it has positions for 512 tokens; set max_model_len: 512"),
        ("answers", "no-answers: no token stands for 'yes' alone; set score.labels to the texts of the two tokens by"),
    ],
)
def test_a_model_that_pools_otherwise_is_refused_by_name(agent: Agent, model: str, error: str) -> None:
    failed = agent.load(model)
    assert isinstance(failed, ModelFailed)
    assert error in failed.error


def test_two_ranks_share_a_model_that_embeds_and_a_head_for_labels_they_do_not(
    pooled: Pooled, vllm_python: Path, tmp_path: Path
) -> None:
    with ready(pooled.config(vllm_python, tmp_path, num_ranks=2), vllm_python) as agent:
        failed = agent.load("judge")
        assert isinstance(failed, ModelFailed)
        assert failed.error == (
            "model 'judge': vLLM takes the rows of labels from the part of the head that a rank has; set "
            "tensor_parallel: 1, or engine: treadle"
        )
        load(agent, "texts", "ranks")
        prompts = texts(6)
        for model, wanted in (
            ("texts", embedding_model.expected(pooled.texts, prompts)),
            ("ranks", score_model.expected(pooled.ranks, prompts)),
        ):
            check(rows(agent, model, prompts, model), wanted)
