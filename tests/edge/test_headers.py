"""Headers, encodings and whole requests as bytes: whatever comes, every answer is HTTP and JSON in OpenAI's shape."""

from __future__ import annotations

import gzip
import http.client
import json
import re
import socket
import zlib
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.edge.server import MAX_BODY_BYTES, serving

pytestmark = pytest.mark.slow

WAIT_S = 10.0
NO_ANSWER_S = 0.5  # a request whose end was lost is waited for, longer than a test does
KEY = "sk-very-secret"
BODY = json.dumps({"model": "tiny", "prompt": "x", "max_tokens": 2}).encode()
MANY = settings(
    max_examples=250, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
)

NAMES = ["accept", "accept-encoding", "authorization", "connection", "content-encoding", "content-type", "cookie"]
NAMES += ["expect", "forwarded", "host", "origin", "range", "te", "traceparent", "tracestate", "baggage", "upgrade"]
NAMES += [
    "user-agent",
    "x-api-key",
    "anthropic-version",
    "anthropic-beta",
    "x-request-id",
    "x-treadle-slo",
    "x-http-method-override",
    "if-none-match",
    "trailer",
    "x" * 200,
]
WORDS = ["", "*/*", "application/json", "application/json; charset=latin-1", "text/html;q=0.9", "multipart/form-data"]
WORDS += [
    "gzip",
    "br",
    "deflate, gzip",
    "identity",
    "100-continue",
    "a miracle",
    "close",
    "keep-alive",
    "upgrade",
    "h2c",
]
WORDS += ["websocket", f"Bearer {KEY}", "Bearer", "Basic Og==", "bytes=0-5", "00-" + "4" * 32 + "-" + "b" * 16 + "-01"]
WORDS += ["interactive", "ttft_s=1", "a" * 4000, "\u00e9", 'a,b;c="d', "%00", "-1", "1e400", "charset="]
PATHS = ["/v1/models", "/v1/models/tiny", "/tokenize", "/health", "/", "*", "/v1/completions", "/v1/messages"]
LATIN = st.text(alphabet=st.characters(min_codepoint=32, max_codepoint=255, exclude_characters="\x7f"), max_size=30)
HEADERS = st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from(WORDS) | LATIN), max_size=6)
ENCODED = st.sampled_from([BODY, gzip.compress(BODY), zlib.compress(BODY), gzip.compress(b" " * (MAX_BODY_BYTES + 9))])


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory, redis_url: str) -> Iterator[int]:
    keys = [{"key": KEY, "tenant": "acme"}]
    with serving(tmp_path_factory.mktemp("headers"), redis_url, keys=keys) as url:
        yield int(url.rpartition(":")[2])


@contextmanager
def answer_to(port: int, data: bytes, method: str, wait_s: float = WAIT_S) -> Iterator[http.client.HTTPResponse]:
    """The first answer to what is sent."""
    with socket.create_connection(("127.0.0.1", port), timeout=wait_s) as client:
        client.sendall(data)
        response = http.client.HTTPResponse(client, method=method)
        with closing(response):
            response.begin()
            yield response


def check(response: http.client.HTTPResponse, method: str) -> int:
    """Its status; an error is of its API's shape, and nothing is said of a key."""
    body = response.read()
    assert response.status != 500, body
    assert re.fullmatch("[0-9a-f]{32}", response.headers["x-treadle-request-id"])
    if response.status >= 400 and method != "HEAD":
        assert response.headers["content-type"].startswith("application/json")
        error = json.loads(body)
        assert set(error) in ({"error"}, {"type", "error", "request_id"})
        assert set(error["error"]) == {"message", "type", "param", "code"}
    assert KEY.encode() not in body
    assert KEY not in str(response.headers)
    return response.status


def written(
    headers: list[tuple[str, str]], body: bytes, target: str = "/v1/completions", method: str = "POST"
) -> bytes:
    given = "".join(f"{name}: {value}\r\n" for name, value in headers)
    start = f"{method} {target} HTTP/1.1\r\nhost: h\r\nconnection: close\r\ncontent-length: {len(body)}\r\n"
    return f"{start}{given}\r\n".encode("latin-1") + body


@MANY
@given(headers=HEADERS, body=ENCODED)
def test_no_header_breaks_a_request(port: int, headers: list[tuple[str, str]], body: bytes) -> None:
    key = [] if any(name == "authorization" for name, _ in headers) else [("authorization", f"Bearer {KEY}")]
    with answer_to(port, written([*key, *headers], body), "POST") as response:
        assert check(response, "POST") in {200, 400, 401, 403, 413, 415, 417}


@MANY
@given(
    method=st.sampled_from(["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "BREW", "get"]),
    target=st.sampled_from(
        ["/v1/models", "/v1/models/tiny", "/tokenize", "/health", "/", "*", "/v1/completions", "/v1/messages"]
    )
    | st.text(alphabet="/v1models.%20?#&=é~\\{}:@", min_size=1, max_size=20).map(lambda text: "/" + text),
)
def test_no_path_or_method_is_answered_in_another_shape(port: int, method: str, target: str) -> None:
    data = written([("authorization", f"Bearer {KEY}")], b"", target, method)
    with answer_to(port, data, method) as response:
        assert check(response, method) in {200, 400, 404, 405}


@MANY
@given(st.data())
def test_bytes_that_are_no_request_get_an_answer_or_none(port: int, data: st.DataObject) -> None:
    """A good request, with some of its bytes changed: many are still one, and none is answered with a failure."""
    sent = bytearray(written([("authorization", f"Bearer {KEY}"), ("content-type", "application/json")], BODY))
    for _ in range(data.draw(st.integers(1, 3))):
        sent[data.draw(st.integers(0, len(sent) - 1))] = data.draw(st.integers(0, 255))
    padding = b" " * 200  # for a length that is longer now
    method = bytes(sent[:4]).decode("latin-1").strip()
    with (
        suppress(TimeoutError, ConnectionError),
        answer_to(port, bytes(sent) + padding, method, NO_ANSWER_S) as response,
    ):
        assert check(response, method) < 500
