"""`treadle bench serve` against a real HTTP server that streams what the test wrote."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from aiohttp import web

from cli.bench.load.serve import LoadResult, LoadSpec, prompt, run_load, served_models
from cli.errors import CliError

MAX_TOKENS = 3


def event(data: Any) -> str:
    return f"data: {data if isinstance(data, str) else json.dumps(data)}\n\n"


def text(content: str, finish_reason: str | None = None) -> str:
    return event({"choices": [{"index": 0, "text": content, "finish_reason": finish_reason}]})


def usage(completion_tokens: int) -> str:
    return event({"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": completion_tokens}})


DONE = event("[DONE]")
GOOD = [": position 1 in the queue\n\n", text("a"), text("b"), text("c", "length"), usage(3), DONE]


@dataclass
class Server:
    """Answers the n-th request with the n-th script, the last one again and again."""

    scripts: list[list[str] | int] = field(default_factory=lambda: [GOOD])
    bodies: list[dict[str, Any]] = field(default_factory=list)
    keys: set[str | None] = field(default_factory=set)
    url: str = ""

    async def completions(self, request: web.Request) -> web.StreamResponse:
        script = self.scripts[min(len(self.bodies), len(self.scripts) - 1)]
        self.bodies.append(await request.json())
        self.keys.add(request.headers.get("authorization"))
        if isinstance(script, int):
            return web.json_response({"error": {"message": "no"}}, status=script)
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        for part in script:
            await response.write(part.encode())
        return response

    async def models(self, request: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": [{"id": "hot"}, {"id": "cold"}]})


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    server = Server()
    app = web.Application()
    app.router.add_post("/v1/completions", server.completions)
    app.router.add_get("/v1/models", server.models)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    server.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield server
    await runner.cleanup()


@pytest.fixture
def load(server: Server) -> Callable[..., Awaitable[LoadResult]]:
    async def run(num_requests: int = 1, **changes: Any) -> LoadResult:
        values: dict[str, Any] = {
            "url": server.url,
            "models": ("hot",),
            "num_requests": num_requests,
            "concurrency": 2,
            "prompt_tokens": 8,
            "max_tokens": MAX_TOKENS,
        }
        advances: list[None] = []
        result = await run_load(LoadSpec(**values | changes), lambda: advances.append(None))
        assert len(advances) == num_requests
        return result

    return run


Load = Callable[..., Awaitable[LoadResult]]


async def test_a_good_run_counts_tokens_and_times(load: Load, server: Server) -> None:
    report = (await load(5, api_key="k")).to_json()
    assert (report["succeeded"], report["errors"]) == (5, {})
    assert (report["prompt_tokens"], report["output_tokens"]) == (25, 15)
    assert report["output_tokens_per_s"] == pytest.approx(15 / report["duration_s"])
    assert 0 < report["ttft_s"]["p50"] <= report["e2e_s"]["p50"] <= report["duration_s"]
    assert report["tpot_s"]["p99"] >= 0
    assert server.keys == {"Bearer k"}


async def test_requests_stream_with_usage_and_take_the_models_in_turn(load: Load, server: Server) -> None:
    await load(4, models=("hot", "cold"), concurrency=1)
    assert [body["model"] for body in server.bodies] == ["hot", "cold", "hot", "cold"]
    assert all(body["stream"] and body["stream_options"] == {"include_usage": True} for body in server.bodies)
    assert len({body["prompt"] for body in server.bodies}) == 4


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        (GOOD[:-1], "ended without [DONE]"),
        ([*GOOD, text("d")], "data after [DONE]"),
        ([text("a"), text("b"), text("c", "length"), DONE], "no usage"),
        ([text("a"), usage(3), DONE], "no finish_reason"),
        ([text("a"), text("b", "stop"), usage(1), DONE], "2 events with text, but usage says 1 tokens"),
        ([text("a", "stop"), usage(4), DONE], "4 tokens, but max_tokens was 3"),
        ([text("a", "length"), usage(2), DONE], "ended by length after 2 of 3"),
        ([text("a", "stop"), text("b"), usage(2), DONE], "a choice after its finish_reason"),
        ([event("{oops")], "not JSON"),
        ([event("[1]")], "not a JSON object"),
    ],
)
async def test_a_stream_that_breaks_a_rule_counts_as_invalid(
    load: Load, server: Server, script: list[str | int], reason: str
) -> None:
    server.scripts = [list(map(str, script))]
    result = await load()
    assert (result.completions, dict(result.errors)) == ([], {"invalid-stream": 1})
    assert reason in result.examples[0]


async def test_errors_are_counted_by_status_beside_what_succeeded(load: Load, server: Server) -> None:
    server.scripts = [429, 503, [event({"error": {"message": "lost"}})], 429, GOOD]
    report = (await load(6, concurrency=1)).to_json()
    assert report["errors"] == {"429": 2, "503": 1, "stream-error": 1}
    assert report["succeeded"] == 2


async def test_a_run_without_success_reports_no_percentiles(load: Load, server: Server) -> None:
    server.scripts = [500]
    report = (await load(2)).to_json()
    assert (report["succeeded"], report["ttft_s"], report["requests_per_s"]) == (0, None, 0)


async def test_a_server_that_is_not_there_is_an_error_a_request_and_a_message_for_models(load: Load) -> None:
    nobody = "http://127.0.0.1:1"
    assert dict((await load(3, url=nobody)).errors) == {"connection": 3}
    with pytest.raises(CliError, match="is the cluster up"):
        await served_models(nobody, None)


async def test_the_server_tells_its_models(server: Server) -> None:
    assert await served_models(server.url, None) == ["hot", "cold"]


def test_prompts_have_the_length_asked_for_and_no_common_beginning() -> None:
    prompts = [prompt(number, 20).split() for number in range(200)]
    assert {len(words) for words in prompts} == {20}
    assert len({tuple(words[:3]) for words in prompts}) == 200
