"""What a node fails at is told to the client as such, and to operators with the reason."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

import pytest
import structlog

from shared.messages.requests.requests import Chunk
from tests.gateway.conftest import Gateway, GatewayFactory

TEXT = "/v1/completions"
NOT_FINITE = "the model's logits are not finite numbers"


async def failed(gateway: Gateway, *chunks: Chunk) -> list[MutableMapping[str, Any]]:
    """The log's entries of failures, of a request whose node answers with these chunks."""
    gateway.queue.answer = lambda payload: [
        Chunk(payload.request_id, payload.attempt, *_rest(chunk), is_last=chunk.is_last) for chunk in chunks
    ]
    with structlog.testing.capture_logs() as logs:
        async with gateway.http.post(TEXT, json={"model": "tiny", "prompt": "my secret"}) as response:
            assert (response.status, (await response.json())["error"]["code"]) == (500, "generation_failed")
            assert NOT_FINITE not in await response.text()
    assert "my secret" not in str(logs)
    request_id = response.headers["x-treadle-request-id"]
    return [entry for entry in logs if entry["event"] == "generation_failed" and entry.pop("request_id") == request_id]


def _rest(chunk: Chunk) -> tuple[int, list[int], str, str]:
    return chunk.index, chunk.token_ids, chunk.finish_reason, chunk.error


@pytest.mark.parametrize(
    ("chunk", "error"),
    [
        (Chunk("", 0, 0, [], "error", NOT_FINITE, is_last=True), NOT_FINITE),
        (Chunk("", 0, 0, [], "nonsense", is_last=True), "the node sent what cannot be"),
    ],
)
async def test_the_reason_is_logged_once(start_gateway: GatewayFactory, chunk: Chunk, error: str) -> None:
    assert await failed(await start_gateway(), chunk) == [
        {
            "event": "generation_failed",
            "log_level": "error",
            "attempt": 0,
            "model": "tiny",
            "node": "node-0",
            "num_tokens": 0,
            "error": error,
        }
    ]


@pytest.mark.parametrize("penalty", [1e-38, 5e-324, 0.009, 10.01])
async def test_a_penalty_that_would_break_the_arithmetic_is_refused(
    start_gateway: GatewayFactory, penalty: float
) -> None:
    gateway = await start_gateway()
    body = {"model": "tiny", "prompt": "x", "repetition_penalty": penalty}
    async with gateway.http.post(TEXT, json=body) as response:
        assert (response.status, (await response.json())["error"]["param"]) == (400, "repetition_penalty")
