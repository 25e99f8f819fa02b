"""Images over a real socket, in the words of all three interfaces: what nodes are asked, and what is refused."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Awaitable, Callable, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from shared.messages.requests.payload import Payload
from shared.messages.requests.pictures import MAX_PICTURES, MAX_PICTURES_BYTES, MAX_PICTURES_PIXELS, Picture
from shared.messages.requests.requests import Chunk
from tests.gateway.conftest import Gateway, GatewayFactory, sending
from tests.gateway.hf_tiny import CHATML, write_directory
from tests.gateway.memory_queue import saying
from tests.gateway.picture_tiny import TILE_TOKENS, image_file, image_id, url_of, write_vision

PNG = image_file()
JSON = {"Content-Type": "application/json"}
NUM_TOKENS = (TILE_TOKENS + 3) + 2 * (2 * (TILE_TOKENS + 2) + 1) + 1  # the whole, two lines of tiles with their ends
Starter = Callable[..., Awaitable[Gateway]]


@pytest.fixture
def start(start_gateway: GatewayFactory, tmp_path: Path) -> Starter:
    """A gateway with a model that reads images, at a node with vLLM, and one of text."""

    async def start(node: str = "vllm", **sections: Any) -> Gateway:
        models = [
            {"name": "eyes", "source": str(write_vision(tmp_path / "eyes")), "max_model_len": 256},
            {"name": "text", "source": str(write_directory(tmp_path / "text"))},
        ]
        nodes = [{"name": "node-0", "engine": node}]
        sections = {"gateway": {"max_body_bytes": 16 << 20, "max_inflight_bytes": 128 << 20}} | sections
        return await start_gateway(saying("a"), models=models, nodes=nodes, **sections)

    return start


def image(url: str, **fields: Any) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url, **fields}}


def chat(*parts: dict[str, Any] | str, model: str = "eyes", role: str = "user") -> dict[str, Any]:
    listed = [{"type": "text", "text": part} if isinstance(part, str) else part for part in parts]
    return {"model": model, "messages": [{"role": role, "content": listed}], "max_tokens": 1}


async def answered(gateway: Gateway, body: dict[str, Any], path: str = "/v1/chat/completions") -> Any:
    data = io.BytesIO(json.dumps(body).encode())  # the client warns of megabytes in one piece
    async with gateway.http.post(path, data=data, headers=JSON) as response:
        return {**await response.json(), "status": response.status}


async def refusal(gateway: Gateway, body: dict[str, Any], path: str = "/v1/chat/completions") -> tuple[Any, ...]:
    answer = await answered(gateway, body, path)
    assert answer["status"] == 400, answer
    assert gateway.queue.payloads == {}
    assert gateway.queue.submits.empty()
    return answer["error"].get("param"), answer["error"]["message"]


async def asked(gateway: Gateway, body: dict[str, Any], path: str = "/v1/chat/completions") -> tuple[Payload, Any]:
    """What a node is asked, and the answer."""
    seen: list[Payload] = []

    def answer(payload: Payload) -> Sequence[Chunk]:
        seen.append(payload)
        return saying("a")(payload)

    gateway.queue.answer = answer
    told = await answered(gateway, body, path)
    assert told["status"] == 200, told
    (payload,) = seen
    return payload, told


async def test_an_image_stands_in_the_prompt_as_one_token_and_counts_as_all_of_them(
    start: Starter, tmp_path: Path
) -> None:
    gateway = await start()
    payload, told = await asked(gateway, chat("see ", image(url_of(PNG), detail="high"), " there"))
    token = image_id(tmp_path)
    assert payload.prompt_token_ids.count(token) == 1
    digest = sha256(PNG).hexdigest()
    assert payload.pictures == [Picture(digest, 48, 40, NUM_TOKENS, PNG)]
    num_prompt = len(payload.prompt_token_ids) - 1 + NUM_TOKENS
    assert told["usage"]["prompt_tokens"] == payload.num_prompt_tokens == num_prompt
    submit = gateway.queue.submits.get_nowait()
    assert submit.prompt_tokens == num_prompt
    assert submit.prefix is None  # other images have the same tokens


async def test_texts_around_images_keep_their_places_and_show_no_images_of_their_own(
    start: Starter, tmp_path: Path
) -> None:
    gateway = await start()
    parts: list[dict[str, Any] | str] = ["a", image(url_of(PNG)), "<image>\ufdd0", image(url_of(image_file(colour=9)))]
    payload, _ = await asked(gateway, chat(*parts))
    token = image_id(tmp_path)
    assert payload.prompt_token_ids.count(token) == 2
    first = payload.prompt_token_ids.index(token)
    second = payload.prompt_token_ids.index(token, first + 1)
    between = payload.prompt_token_ids[first + 1 : second]
    plain, _ = await asked(gateway, chat("<image>\ufffd", model="text"))
    assert len(between) > 3  # "<image>" as text
    assert all(one in plain.prompt_token_ids for one in between)
    assert [picture.digest for picture in payload.pictures] == [
        sha256(PNG).hexdigest(),
        sha256(image_file(colour=9)).hexdigest(),
    ]


async def test_the_same_in_other_words(start: Starter) -> None:
    gateway = await start()
    by_chat, _ = await asked(gateway, chat("see ", image(url_of(PNG))))
    item = {"role": "user", "content": [{"type": "input_text", "text": "see "}]}
    item["content"].append({"type": "input_image", "image_url": url_of(PNG), "detail": "auto"})  # type: ignore[attr-defined]
    by_responses, _ = await asked(gateway, {"model": "eyes", "input": [item], "max_output_tokens": 1}, "/v1/responses")
    source = {"type": "base64", "media_type": "image/png", "data": base64.b64encode(PNG).decode()}
    turn = {"role": "user", "content": [{"type": "text", "text": "see "}, {"type": "image", "source": source}]}
    by_messages, _ = await asked(gateway, {"model": "eyes", "messages": [turn], "max_tokens": 1}, "/v1/messages")
    for other in (by_responses, by_messages):
        assert other.prompt_token_ids == by_chat.prompt_token_ids
        assert other.pictures == by_chat.pictures


async def test_a_template_of_texts_gets_the_placeholder_of_the_family(
    start_gateway: GatewayFactory, tmp_path: Path
) -> None:
    folder = write_vision(tmp_path / "eyes", template=CHATML)
    models = [{"name": "eyes", "source": str(folder), "max_model_len": 256}]
    gateway = await start_gateway(models=models, nodes=[{"name": "node-0", "engine": "vllm"}])
    payload, _ = await asked(gateway, chat("see ", image(url_of(PNG)), "it"))
    other, _ = await asked(gateway, chat("\nsee it"))
    token = image_id(tmp_path)
    place = payload.prompt_token_ids.index(token)
    assert [*payload.prompt_token_ids[:place], *payload.prompt_token_ids[place + 1 :]] == other.prompt_token_ids


async def test_texts_alone_are_parts_to_a_template_that_knows_nothing_else(start: Starter) -> None:
    gateway = await start()
    body = {"model": "eyes", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 1}
    text, _ = await asked(gateway, body)
    parts, _ = await asked(gateway, chat("hel", "lo"))
    assert text.prompt_token_ids == parts.prompt_token_ids
    assert text.pictures == []


FIELD = "messages[0].content[0].image_url.url"


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("https://a.example/b.png", "images are taken inline alone, and nothing is fetched: send 'data:TYPE;base64,…'"),
        ("http://169.254.169.254/", "nothing is fetched"),
        ("file:///etc/passwd", "nothing is fetched"),
        ("data:image/svg+xml;base64,AAAA", "image/png, image/jpeg, image/webp, image/gif"),
        ("data:image/png,AAAA", "nothing is fetched"),
        ("data:image/png;base64,A=AA", "the image is no valid base64"),
        ("data:image/png;base64,äöü", "the image is no valid base64"),
        ("data:image/png;base64,AAAA", "the image cannot be read: it is no whole PNG, JPEG, WebP or GIF"),
        (url_of(PNG[:60]), "the image cannot be read"),
        (url_of(image_file("BMP")), "the image cannot be read"),
        (url_of(image_file(size=(2010, 10))), "the image is more than 200 times as long as it is wide"),
        (url_of(image_file("GIF", (4100, 4100))), "the image has 4100 x 4100 pixels, and 16777216 are taken at most"),
    ],
)
async def test_what_is_no_image_is_refused_before_it_is_queued(start: Starter, url: str, why: str) -> None:
    param, message = await refusal(await start(), chat(image(url)))
    assert param == FIELD
    assert why in message


async def test_a_fault_is_told_in_the_words_of_its_interface(start: Starter) -> None:
    gateway = await start()
    item = {
        "role": "user",
        "content": [{"type": "input_text", "text": "a"}, {"type": "input_image", "image_url": "x:"}],
    }
    assert (await refusal(gateway, {"model": "eyes", "input": [item]}, "/v1/responses"))[0] == (
        "input[0].content[1].image_url"
    )
    source = {"type": "base64", "media_type": "image/png", "data": "AAAA"}
    turn = {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image", "source": source}]}
    body = {"model": "eyes", "messages": [turn], "max_tokens": 1}
    _, message = await refusal(gateway, body, "/v1/messages")
    assert message == "'messages[0].content[1].source': the image cannot be read: it is no whole PNG, JPEG, WebP or GIF"


async def test_bounds_of_a_request(start: Starter) -> None:
    gateway = await start()
    many = chat(*[image(url_of(PNG))] * (MAX_PICTURES + 1))
    assert await refusal(gateway, many) == ("messages", f"17 images are more than the {MAX_PICTURES} of a request")
    large = image_file("GIF", (4096, 4000))
    param, message = await refusal(gateway, chat(*[image(url_of(large))] * 3))
    assert (param, message) == (
        "messages[0].content[2].image_url.url",
        f"'messages[0].content[2].image_url.url': the images have more than {MAX_PICTURES_PIXELS} pixels together",
    )
    heavy = PNG + bytes(MAX_PICTURES_BYTES // 2)
    param, message = await refusal(gateway, chat(image(url_of(heavy)), image(url_of(heavy))))
    assert (param, message) == (
        "messages[0].content[1].image_url.url",
        f"'messages[0].content[1].image_url.url': the images have more than {MAX_PICTURES_BYTES} bytes together",
    )


async def test_images_that_do_not_fit_the_context_are_told_with_all_their_tokens(start: Starter) -> None:
    _, message = await refusal(await start(), chat(*[image(url_of(PNG))] * 8))
    assert "context length is 256 tokens" in message


async def test_models_of_text_say_who_reads_images(start: Starter) -> None:
    gateway = await start()
    assert await refusal(gateway, chat(image(url_of(PNG)), model="text")) == (
        "model",
        "the model 'text' takes no images; these do: eyes",
    )


async def test_our_own_engine_reads_none(start: Starter) -> None:
    gateway = await start(node="treadle")
    assert await refusal(gateway, chat(image(url_of(PNG)))) == (
        "model",
        "the model 'eyes' takes no images; no model here does",
    )


@pytest.mark.parametrize("role", ["system", "assistant"])
async def test_images_are_the_users(start: Starter, role: str) -> None:
    param, message = await refusal(await start(), chat(image(url_of(PNG)), role=role))
    assert (param, message) == ("messages[0].content", "images belong to messages of role 'user'")


async def test_tokens_of_images_are_not_counted_apart(start: Starter) -> None:
    gateway = await start()
    body = {"model": "eyes", "messages": chat(image(url_of(PNG)))["messages"]}
    assert (await refusal(gateway, body, "/tokenize"))[1] == "tokens of images are not counted here: leave them out"


async def test_images_are_held_beside_other_requests_as_bytes(start: Starter) -> None:
    """They lie in Redis as payloads do, and are of the gateway's one bound."""
    gateway = await start(gateway={"max_body_bytes": 5 << 20, "max_inflight_bytes": (30 << 20) + (64 << 10)})
    gateway.queue.answer = None
    data = json.dumps(chat(image(url_of(PNG + bytes(3 << 20))))).encode()
    async with sending(gateway.http.post("/v1/chat/completions", data=io.BytesIO(data), headers=JSON)):
        await gateway.queue.submits.get()
        assert gateway.metric("treadle_inflight_bytes") > len(data) + (3 << 20)
