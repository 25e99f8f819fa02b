"""Bodies that are wrapped, mislabelled or broken: each is taken or refused in OpenAI's shape."""

from __future__ import annotations

import gzip
import json
import zlib
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.http.encodings import inflated
from gateway.openai.errors.errors import ApiError
from tests.gateway.conftest import Gateway, GatewayFactory
from tests.gateway.memory_queue import saying

PLAIN = json.dumps({"model": "tiny", "prompt": "x"}).encode()
MOST = 4096


def raw_deflate(data: bytes) -> bytes:
    deflater = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return deflater.compress(data) + deflater.flush()


async def answer(gateway: Gateway, data: bytes | None, **headers: str) -> tuple[int, Any]:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    async with gateway.http.post("/v1/completions", data=data, headers=named) as response:
        assert response.content_type == "application/json"
        return response.status, await response.json()


@pytest.mark.parametrize(
    ("encoding", "data"),
    [
        ("gzip", gzip.compress(PLAIN, mtime=0)),
        ("x-gzip", gzip.compress(PLAIN, mtime=0)),
        ("GZIP", gzip.compress(PLAIN, mtime=0)),
        ("deflate", zlib.compress(PLAIN)),
        ("deflate", raw_deflate(PLAIN)),
        ("identity", PLAIN),
        ("", PLAIN),
    ],
)
async def test_what_can_be_undone_is_taken(start_gateway: GatewayFactory, encoding: str, data: bytes) -> None:
    gateway = await start_gateway(saying("hello"))
    status, body = await answer(gateway, data, content_encoding=encoding)
    assert (status, body["choices"][0]["text"]) == (200, "hello")


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (PLAIN, "incorrect header check"),
        (b"", "it ends too early"),
        (gzip.compress(PLAIN, mtime=0)[:-4], "it ends too early"),
        (gzip.compress(PLAIN, mtime=0)[:-1] + b"\xff", "incorrect length check"),
        (gzip.compress(PLAIN, mtime=0) + gzip.compress(b"", mtime=0), "there is more behind its end"),
    ],
)
async def test_a_body_that_is_not_what_it_says_is_the_clients_fault(
    start_gateway: GatewayFactory, data: bytes, why: str
) -> None:
    status, body = await answer(await start_gateway(), data, content_encoding="gzip")
    assert (status, body["error"]["type"], body["error"]["code"]) == (400, "invalid_request_error", "invalid_encoding")
    assert why in body["error"]["message"]


@pytest.mark.parametrize(
    ("header", "value", "message"),
    [
        ("content_encoding", "br", "the content encoding 'br' is not supported; send gzip or deflate"),
        ("content_encoding", "zstd", "the content encoding 'zstd' is not supported; send gzip or deflate"),
        ("content_encoding", "gzip, gzip", "the content encoding 'gzip, gzip' is not supported; send gzip or deflate"),
        ("content_type", "multipart/form-data", "the content type 'multipart/form-data' is not supported; send appli"),
        ("content_type", "application/json; charset=utf-16", "the charset 'utf-16' is not supported; send utf-8"),
    ],
)
async def test_what_is_not_supported_is_named_with_what_is(
    start_gateway: GatewayFactory, header: str, value: str, message: str
) -> None:
    status, body = await answer(await start_gateway(), PLAIN, **{header: value})
    assert (status, body["error"]["code"]) == (415, "unsupported_media_type")
    assert body["error"]["message"].startswith(message)


@pytest.mark.parametrize("kind", ["application/json", "application/vnd.api+json; charset=UTF-8", "text/plain"])
async def test_json_by_any_common_name_is_taken(start_gateway: GatewayFactory, kind: str) -> None:
    status, _ = await answer(await start_gateway(saying("a")), PLAIN, content_type=kind)
    assert status == 200


async def test_a_bomb_is_bounded_by_what_it_inflates_to(start_gateway: GatewayFactory) -> None:
    gateway = await start_gateway(gateway={"max_body_bytes": MOST})
    bomb = gzip.compress(b" " * (MOST + 1))
    assert len(bomb) < 100
    status, body = await answer(gateway, bomb, content_encoding="gzip")
    assert (status, body["error"]["code"]) == (413, "request_entity_too_large")


async def test_a_missing_body_is_no_json(start_gateway: GatewayFactory) -> None:
    status, body = await answer(await start_gateway(), None)
    assert (status, body["error"]["code"]) == (400, "invalid_json")


@pytest.mark.parametrize(
    ("method", "path", "status", "allowed"),
    [
        ("GET", "/v1/completions", 405, "POST"),
        ("OPTIONS", "/v1/chat/completions", 405, "POST"),  # as a browser asks before a call from another site
        ("DELETE", "/v1/models", 405, "GET,HEAD"),
        ("POST", "/v1/nothing", 404, None),
        ("POST", "/", 404, None),
        ("GET", "/v1/models/", 404, None),
    ],
)
async def test_wrong_paths_and_methods_are_told_in_the_same_shape(
    start_gateway: GatewayFactory, method: str, path: str, status: int, allowed: str | None
) -> None:
    gateway = await start_gateway()
    async with gateway.http.request(method, path) as response:
        assert (response.status, response.headers.get("Allow")) == (status, allowed)
        assert (await response.json())["error"]["type"] == "invalid_request_error"


async def test_head_is_a_get_without_body(start_gateway: GatewayFactory) -> None:
    gateway = await start_gateway()
    async with gateway.http.head("/v1/models") as response:
        assert (response.status, await response.read()) == (200, b"")


@pytest.mark.parametrize("accept", ["*/*", "text/html", "nonsense; q=x", ""])
async def test_whatever_a_client_would_rather_have_it_gets_json(start_gateway: GatewayFactory, accept: str) -> None:
    status, _ = await answer(await start_gateway(saying("a")), PLAIN, accept=accept)
    assert status == 200


@given(st.binary(max_size=2 * MOST))
def test_whatever_is_packed_comes_out_again_or_is_too_large(data: bytes) -> None:
    for encoding, packed in (("gzip", gzip.compress(data, mtime=0)), ("deflate", zlib.compress(data))):
        if len(data) > MOST:
            with pytest.raises(ApiError) as error:
                inflated(packed, encoding, MOST)
            assert error.value.status == 413
        else:
            assert inflated(packed, encoding, MOST) == data


@given(st.binary(max_size=200), st.sampled_from(["gzip", "deflate"]))
def test_whatever_else_comes_is_the_clients_fault(data: bytes, encoding: str) -> None:
    with suppress(ApiError):
        assert len(inflated(data, encoding, MOST)) <= MOST
