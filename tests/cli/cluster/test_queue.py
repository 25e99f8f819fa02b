"""`treadle queue` against a real HTTP server that answers as the gateway does."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import ClassVar

import pytest
import yaml
from click.testing import CliRunner, Result

from cli.cluster.processes.ports import free_port
from cli.main import main

REPORT = (
    b'{"object":"queue","age_s":0.42,"is_stale":false,"data":['
    b'{"model":"[b]","slo_class":"batch-1","num_waiting":7,"num_running":0,"wait_s":null,"wait_p90_s":null},'
    b'{"model":"hot","slo_class":"interactive","num_waiting":3,"num_running":2,"wait_s":4.04,"wait_p90_s":6.5}]}'
)
REFUSAL = b'{"error":{"message":"not yet","type":"server_error","param":null,"code":"no_endpoints"}}'


class Front(BaseHTTPRequestHandler):
    status, body = 200, REPORT
    asked: ClassVar[list[tuple[str, str | None]]]

    def do_GET(self) -> None:
        self.asked.append((self.path, self.headers.get("Authorization")))
        self.send_response(self.status)
        self.end_headers()
        self.wfile.write(self.body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name that http.server has
        """Nothing in the log."""


Ask = Callable[..., Result]


@pytest.fixture
def front() -> type[Front]:
    class One(Front):
        asked: ClassVar[list[tuple[str, str | None]]] = []

    return One


@pytest.fixture
def ask(tmp_path: Path, front: type[Front]) -> Iterator[Ask]:
    server = HTTPServer(("127.0.0.1", 0), front)
    threading.Thread(target=server.serve_forever, daemon=True).start()

    def run(*options: str, port: int = server.server_port) -> Result:
        file = tmp_path / "cluster.yaml"
        file.write_text(yaml.safe_dump({"gateway": {"port": port}, "keys": [{"key": "k", "tenant": "t"}]}))
        return CliRunner().invoke(main, ["queue", "-f", str(file), *options])

    yield run
    server.shutdown()
    server.server_close()


def test_the_table(ask: Ask, front: type[Front]) -> None:
    result = ask()
    assert (result.exit_code, front.asked) == (0, [("/v1/queue", "Bearer k")])
    assert [line.split() for line in result.stdout.splitlines()] == [
        ["model", "class", "waiting", "running", "wait", "wait", "p90"],
        ["[b]", "batch-1", "7", "0", "no", "node", "no", "node"],
        ["hot", "interactive", "3", "2", "4.0", "s", "6.5", "s"],
    ]


@pytest.mark.parametrize(
    ("age", "why"),
    [
        (b"61.4", "the queue manager has been silent for 61 s, so nothing is known of the queue"),
        (b"null", "the gateway has heard nothing of the queue yet: ask again in a few seconds"),
    ],
)
def test_what_is_not_known_is_said_to_be_unknown(ask: Ask, front: type[Front], age: bytes, why: str) -> None:
    front.body = b'{"object":"queue","age_s":' + age + b',"is_stale":true,"data":[]}'
    result = ask()
    assert (result.exit_code, result.stdout) == (1, "")
    assert why in result.stderr


def test_a_queue_without_lines_is_said_to_be_empty(ask: Ask, front: type[Front]) -> None:
    front.body = b'{"object":"queue","age_s":0.5,"is_stale":false,"data":[]}'
    assert ask().stdout == "nothing waits or runs\n"


def test_the_object(ask: Ask) -> None:
    assert ask("--json").stdout.encode() == REPORT + b"\n"


def test_a_gateway_that_refuses_is_quoted(ask: Ask, front: type[Front]) -> None:
    front.status, front.body = 503, REFUSAL
    result = ask()
    assert result.exit_code == 1
    assert result.stderr.endswith("/v1/queue answered 503: not yet\n")


def test_a_gateway_that_is_not_there_is_an_error_that_says_what_to_do(ask: Ask) -> None:
    result = ask(port=free_port("127.0.0.1"))
    assert result.exit_code == 2
    assert "is the cluster up? See `treadle status`" in result.stderr
