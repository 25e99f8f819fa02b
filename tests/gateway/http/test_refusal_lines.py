"""What the log says of requests that are refused: why and where, never what they said."""

from __future__ import annotations

from typing import Any

import pytest
import structlog

from gateway.http.refusals import MAX_MADE_UP_CHARS
from tests.gateway.conftest import GatewayFactory

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
KEYS = [{"key": "keysecret", "tenant": "acme"}]
GOOD = {"Authorization": "Bearer keysecret"}


async def refused_lines(start_gateway: GatewayFactory, path: str, **sent: Any) -> list[dict[str, Any]]:
    gateway = await start_gateway(keys=KEYS, gateway={"max_body_bytes": 1024})
    with structlog.testing.capture_logs() as logs:
        async with gateway.http.post(path, **sent) as response:
            assert response.status >= 400
            assert [line["request_id"] for line in logs] == [response.headers["x-treadle-request-id"]]
    assert "secret" not in repr(logs)
    assert [(line["event"], line["log_level"]) for line in logs] == [("request_refused", "warning")]
    return [dict(line) for line in logs]


@pytest.mark.parametrize(
    ("path", "sent", "line"),
    [
        (TEXT, {"json": {"model": "gpt", "prompt": "my secret"}}, (404, "model_not_found", "model", "acme")),
        (CHAT, {"json": {"model": "tiny", "messages": []}}, (400, "invalid_value", "messages", "acme")),
        (TEXT, {"json": {"prompt": "my secret"}}, (400, "missing_required_parameter", "model", "acme")),
        (TEXT, {"data": b"{secret"}, (400, "invalid_json", None, "acme")),
        (TEXT, {"data": b"secret" * 1000}, (413, "request_entity_too_large", None, "acme")),
        ("/v1/images", {"json": {}}, (404, "not_found", None, "acme")),
        ("/v1/models", {"json": {}}, (405, "method_not_allowed", None, "acme")),
        (TEXT, {"headers": {"Authorization": "Bearer secret"}}, (401, "invalid_api_key", None, "")),
    ],
)
async def test_a_refusal_is_one_line_with_its_reason(
    start_gateway: GatewayFactory, path: str, sent: dict[str, Any], line: tuple[int, str, str | None, str]
) -> None:
    [said] = await refused_lines(start_gateway, path, **{"headers": GOOD, **sent})
    assert (said["status"], said["code"], said["param"], said["tenant"]) == line
    assert said["path"] == path


async def test_what_clients_make_up_is_cut(start_gateway: GatewayFactory) -> None:
    [said] = await refused_lines(start_gateway, "/" + 5000 * "x", json={}, headers=GOOD)
    assert said["path"] == "/" + (MAX_MADE_UP_CHARS - 1) * "x"
    body = {"model": "tiny", "prompt": "x", 500 * "y": 1}
    [said] = await refused_lines(start_gateway, TEXT, json=body, headers=GOOD)
    assert said["param"].startswith("yyy")
    assert len(said["param"]) <= MAX_MADE_UP_CHARS
