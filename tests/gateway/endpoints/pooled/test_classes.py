"""Labels of texts over a real socket: answers, what nodes are asked, refusals."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from gateway.answers.probabilities import probabilities
from gateway.openai.errors.errors import ApiError
from shared.files.classifier import ClassLabels
from shared.files.model_file import ModelFileError
from shared.messages.requests.payload import Payload
from shared.messages.requests.requests import Chunk
from tests.gateway.conftest import Gateway, GatewayFactory, sending
from tests.gateway.encoder_tiny import CLS, SEP, write_encoder
from tests.gateway.endpoints.pooled.test_scores import floats, posted
from tests.gateway.memory_queue import Answer
from tests.gateway.tiny import write_model

Starter = Callable[..., Awaitable[Gateway]]
LABELS: dict[str, Any] = {
    "architectures": ["BertForSequenceClassification"],
    "id2label": {"0": "angry", "1": "calm", "2": "glad"},
}


@pytest.fixture
def start(start_gateway: GatewayFactory, tmp_path: Path) -> Starter:
    """A gateway with two models that classify, one of whose labels exclude each other, and one that generates."""

    async def start(answer: Answer | None = None) -> Gateway:
        moods = write_encoder(tmp_path / "moods", **LABELS)
        several = write_encoder(tmp_path / "several", **LABELS, problem_type="multi_label_classification")
        models = [
            {"name": "moods", "source": str(moods), "task": "classify"},
            {"name": "several", "source": str(several), "task": "classify"},
            {"name": "chats", "source": str(write_model(tmp_path / "chats.gguf"))},
        ]
        return await start_gateway(answer, models=models)

    return start


def saying_logits(*logits: float) -> Callable[[Payload], list[Chunk]]:
    def answer(payload: Payload) -> list[Chunk]:
        names: dict[str, Any] = {"is_last": True, "embedding": floats(*logits)}
        return [Chunk(payload.request_id, payload.attempt, 0, [], "stop", **names)]

    return answer


@pytest.mark.parametrize("path", ["/v1/classify", "/classify"])
async def test_labels_that_exclude_each_other_are_likely_to_1_in_all(start: Starter, path: str) -> None:
    gateway = await start(saying_logits(math.log(1.0), math.log(4.0), math.log(3.0)))
    status, answer = await posted(gateway, {"model": "moods", "input": ["loom", "the loom"]}, path)
    assert status == 200
    assert answer.pop("id").startswith("classify-")
    assert answer.pop("created") > 0
    probs = pytest.approx([0.125, 0.5, 0.375], abs=1e-7)
    data = [{"index": index, "label": "calm", "probs": probs, "num_classes": 3} for index in range(2)]
    usage = {"prompt_tokens": 7, "total_tokens": 7}
    assert answer == {"object": "list", "model": "moods", "data": data, "usage": usage}


async def test_others_are_each_for_itself(start: Starter) -> None:
    gateway = await start(saying_logits(0.0, -math.log(3.0), math.log(3.0)))
    _, answer = await posted(gateway, {"model": "several", "input": "loom"}, "/v1/classify")
    (one,) = answer["data"]
    assert one["probs"] == pytest.approx([0.5, 0.25, 0.75], abs=1e-7)
    assert one["label"] == "glad"


async def test_what_a_node_is_asked_for(start: Starter) -> None:
    gateway = await start()
    body = {"model": "moods", "input": [[CLS, 7, 8, SEP]], "slo": {"ttft_s": 2.0}}
    async with sending(gateway.http.post("/v1/classify", json=body)) as answer:
        submit = await gateway.queue.next_submit()
        payload = gateway.queue.payloads[submit.request_id]
        assert payload.prompt_token_ids == [CLS, 7, 8, SEP]
        assert (payload.model, payload.sampling.is_embedding, payload.sampling.max_tokens) == ("moods", True, 1)
        assert submit.slo.ttft_s == 2.0
        await gateway.queue.send(submit, 0, [], "stop", embedding=floats(5.0, 5.0, 1.0))
        assert (await answer())["data"][0]["label"] == "angry"  # of equals, the first


@pytest.mark.parametrize(
    ("body", "path", "message"),
    [
        ({"model": "chats", "input": "a"}, "/v1/classify", "the model 'chats' gives text and no labels; these do: mo"),
        ({"model": "moods", "input": "a"}, "/v1/embeddings", "the model 'moods' gives labels and no embeddings"),
        (
            {"model": "moods", "prompt": "a"},
            "/v1/completions",
            "gives labels and no text: ask for them at /v1/classify",
        ),
        ({"model": "moods", "input": ""}, "/v1/classify", "the input is empty"),
        ({"model": "moods", "input": []}, "/v1/classify", "the input is empty"),
        ({"model": "moods"}, "/v1/classify", "'input' is missing"),
        ({"model": "moods", "input": "loom " * 80}, "/v1/classify", "the model's context length is 63 tokens"),
    ],
)
async def test_what_is_refused(start: Starter, body: dict[str, Any], path: str, message: str) -> None:
    status, answer = await posted(await start(), body, path)
    assert status == 400
    assert message in answer["error"]["message"]


async def test_another_number_of_logits_is_an_error_of_ours(start: Starter) -> None:
    status, answer = await posted(await start(saying_logits(1.0)), {"model": "moods", "input": "a"}, "/v1/classify")
    assert status == 500
    assert answer["error"]["message"].endswith("1 logits are not of 3 labels")


def test_logits_however_large() -> None:
    labels = ClassLabels(("a", "b"), is_exclusive=True)
    assert probabilities(floats(1e30, 0.0), labels) == [1.0, 0.0]
    for logit in (math.nan, math.inf):
        with pytest.raises(ApiError, match="its logits are no numbers"):
            probabilities(floats(0.0, logit), labels)


async def test_a_model_without_labels_does_not_start(start_gateway: GatewayFactory, tmp_path: Path) -> None:
    source = str(write_encoder(tmp_path / "m"))
    with pytest.raises(ModelFileError, match="it is no classifier"):
        await start_gateway(None, models=[{"name": "m", "source": source, "task": "classify"}])
