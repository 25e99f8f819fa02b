"""The check of dashboards against a Prometheus, which is a small server here."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import pytest

from observability.check import main
from observability.operators import OPERATORS
from observability.users import USERS

NUM_QUERIES = sum(len(panel.queries) for dashboard in (USERS, OPERATORS) for panel in dashboard.panels)
UNKNOWN = "treadle_refused_requests_total"


@contextmanager
def prometheus(asked: list[str]) -> Iterator[str]:
    """Knows one series of everything but `UNKNOWN`."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            (query,) = parse_qs(urlsplit(self.path).query)["query"]
            asked.append(query)
            result = [] if UNKNOWN in query else [{"metric": {}, "value": [0, "1"]}]
            body = json.dumps({"status": "success", "data": {"resultType": "vector", "result": result}}).encode()
            self.send_response(200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - http.server's name
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def test_every_query_is_asked_and_the_empty_ones_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    asked: list[str] = []
    with prometheus(asked) as url:
        num_empty = main(url)
    assert num_empty == sum(UNKNOWN in query for query in asked) == 1
    assert len(asked) == NUM_QUERIES
    assert not any("$" in query for query in asked), "variables have values"
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line.startswith("   0")] == [line for line in lines if UNKNOWN in line]
