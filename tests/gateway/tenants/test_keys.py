"""Keys that come and go while the gateway runs: read again from their file, and ended with what they were used for."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from prometheus_client import CollectorRegistry

from gateway.openai.errors.errors import ApiError
from gateway.tenants.auth import KeyRing
from gateway.tenants.keys import Keys
from gateway.workers.key_watch import KeyMetrics, KeyWatch
from shared.config.config import KEYS_ENV, ClusterConfig, reload_keys
from shared.config.reading.files import ConfigError
from shared.config.services.clients import ApiKey
from tests.gateway.conftest import Gateway, GatewayFactory
from tests.gateway.memory_queue import WAIT_S
from tests.gateway.tiny import ids
from tests.redis.waiting import until

TEXT = "/v1/completions"
BODY = {"model": "tiny", "prompt": "x"}
OLD, NEW = ({"Authorization": f"Bearer {key}"} for key in ("old", "new"))


def ring(*keys: str) -> KeyRing:
    return KeyRing([ApiKey(key=key, tenant="acme") for key in keys])  # type: ignore[arg-type]


class Watched:
    """A file of keys, and who watches it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.registry = CollectorRegistry()
        config = ClusterConfig.model_validate({"keys": [{"key": "first", "tenant": "acme"}]})
        self.keys = Keys(KeyRing(config.keys))
        self.watch = KeyWatch(path, lambda: reload_keys(config), self.keys, KeyMetrics(self.registry))

    def write(self, *keys: str, path: Path | None = None) -> None:
        (path or self.path).write_text("".join(f"- {{key: {key}, tenant: acme}}\n" for key in keys))

    async def look(self) -> None:
        """Until what stands there now has stood still."""
        for _ in range(2):
            await self.watch.look()

    def holds(self, key: str) -> bool:
        try:
            self.keys.authenticate({"Authorization": f"Bearer {key}"})
        except ApiError:
            return False
        return True

    def metric(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(name, labels)


@pytest.fixture
def watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Watched:
    path = tmp_path / "keys.yaml"
    monkeypatch.setenv(KEYS_ENV, str(path))
    return Watched(path)


# --- the file ---------------------------------------------------------------------------------------------------------


async def test_a_file_that_changes_is_read_again(watched: Watched) -> None:
    watched.write("first", "second")
    await watched.look()
    assert watched.holds("first")
    assert watched.holds("second")
    watched.write("third!!")
    await watched.look()
    assert (watched.holds("first"), watched.holds("second"), watched.holds("third!!")) == (False, False, True)
    assert watched.metric("treadle_key_reloads_total", outcome="ok") == 2


async def test_a_file_that_has_not_changed_is_not_read(watched: Watched) -> None:
    watched.write("first")
    await watched.look()
    before = watched.keys.ring
    await watched.look()
    assert watched.keys.ring is before
    assert watched.metric("treadle_key_reloads_total", outcome="ok") is None, "it says what the configuration said"


async def test_a_file_that_may_be_read_again_is_read_though_it_has_not_changed(watched: Watched) -> None:
    """Its owner, its mode or its folder's may keep it from being read, and they are none of the file's own."""
    answers: list[list[ApiKey] | ConfigError] = [
        ConfigError("permission denied"),
        [ApiKey(key="second", tenant="acme")],  # type: ignore[arg-type]
    ]

    def read() -> list[ApiKey]:
        answer = answers.pop(0)
        if isinstance(answer, ConfigError):
            raise answer
        return answer

    watched.write("second")
    watch = KeyWatch(watched.path, read, watched.keys, KeyMetrics(CollectorRegistry()))
    for _ in range(2):
        await watch.look()
    assert (watched.holds("first"), watched.keys.problem) == (True, "permission denied")
    await watch.look()
    assert (watched.holds("first"), watched.holds("second"), watched.keys.problem) == (False, True, "")
    await watch.look()
    assert answers == []


async def test_a_file_that_is_written_in_pieces_is_read_when_it_is_whole(watched: Watched) -> None:
    """An editor, or a copy, empties it first; each of its beginnings is a file of fewer keys."""
    watched.write("first", "second", "third")
    await watched.look()
    for written in ((), ("first",), ("first", "second"), ("first", "second", "fourth")):
        watched.write(*written)
        await watched.watch.look()
        assert all(watched.holds(key) for key in ("first", "second", "third"))
    await watched.watch.look()
    assert (watched.holds("second"), watched.holds("third"), watched.holds("fourth")) == (True, False, True)
    assert watched.metric("treadle_key_reloads_total", outcome="failed") is None, "nor was anybody alarmed"


async def test_what_was_read_of_a_file_that_changed_meanwhile_is_not_used(watched: Watched) -> None:
    watched.write("first", "second")

    def read() -> list[ApiKey]:
        watched.write("first", "second", "third")
        return [ApiKey(key="first", tenant="acme")]  # type: ignore[arg-type]

    watched.keys.replace(ring("first", "second"))
    watch = KeyWatch(watched.path, read, watched.keys, KeyMetrics(CollectorRegistry()))
    for _ in range(2):
        await watch.look()
    assert watched.holds("second")


async def test_a_secret_that_kubernetes_renews(watched: Watched, tmp_path: Path) -> None:
    """The path is a link to a link to a directory, of which the latter is turned at once."""
    for number, key in enumerate(("first", "other")):
        (tmp_path / f"..{number}").mkdir()
        watched.write(key, path=tmp_path / f"..{number}" / "keys.yaml")
    (tmp_path / "..data").symlink_to("..0")
    watched.path.symlink_to(Path("..data") / "keys.yaml")
    os.utime(tmp_path / "..1" / "keys.yaml", ns=(times := watched.path.stat().st_mtime_ns, times))
    await watched.look()
    assert watched.holds("first")
    (tmp_path / "..tmp").symlink_to("..1")
    (tmp_path / "..tmp").rename(tmp_path / "..data")
    await watched.look()
    assert (watched.holds("first"), watched.holds("other")) == (False, True)


async def test_the_watch_looks_by_itself(watched: Watched) -> None:
    async def has_taken_over() -> bool:
        return watched.holds("second") and not watched.holds("first")

    watching = asyncio.create_task(watched.watch.run())
    try:
        watched.write("second")
        await until(has_taken_over)
    finally:
        watching.cancel()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("- {key: a", "not valid YAML"),
        ("[]", "expected a list of keys"),
        ("- {key: a, tenant: acme, slo_classes: [gold]}", "'gold' is no SLO class"),
        ("- {key: a, tenant: acme, colour: red}", "keys.0.colour"),
        ("- {key: a, tenant: acme, max_inflight: 0}", "keys.0.max_inflight"),
        ("x" * (4 << 20) + "y", "more than 4194304 bytes"),
        (None, "cannot be read"),
    ],
)
async def test_a_broken_file_changes_nothing_and_is_told_of(watched: Watched, text: str | None, problem: str) -> None:
    watched.write("second")
    await watched.look()
    if text is None:
        watched.path.unlink()
    else:
        watched.path.write_text(text)
    for _ in range(2):
        await watched.look()
    assert watched.holds("second")
    assert problem in watched.keys.problem
    assert watched.keys.describe() == {"num_keys": 1, "problem": watched.keys.problem}
    assert watched.metric("treadle_keys_stale") == 1
    assert watched.metric("treadle_key_reloads_total", outcome="failed") == 1
    watched.write("third")
    await watched.look()
    assert (watched.holds("second"), watched.holds("third"), watched.keys.problem) == (False, True, "")
    assert watched.metric("treadle_keys_stale") == 0


async def test_keys_of_the_configuration_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text("gateway: {port: 1}\nkeys: [{key: a, tenant: acme}]\n")
    monkeypatch.delenv(KEYS_ENV, raising=False)
    monkeypatch.setenv("TREADLE_CONFIG", str(path))
    config = ClusterConfig.model_validate({"keys": [{"key": "a", "tenant": "acme"}]})
    assert reload_keys(config) == config.keys
    path.write_text("gateway: {port: 1}\n")
    with pytest.raises(ValueError, match="there are no keys any more; restart the gateways to open them"):
        reload_keys(config)


# --- what a revoked key was used for ----------------------------------------------------------------------------------


async def streaming(gateway: Gateway) -> tuple[aiohttp.ClientResponse, Any]:
    async def post() -> aiohttp.ClientResponse:
        return await gateway.http.post(TEXT, json=BODY | {"stream": True}, headers=OLD)

    asking = asyncio.create_task(post())
    submit = await gateway.queue.next_submit()
    await gateway.queue.send(submit, 0, ids("a"))
    return await asyncio.wait_for(asking, WAIT_S), submit


async def test_a_stream_ends_with_its_key(start_gateway: GatewayFactory) -> None:
    gateway = await start_gateway(keys=[{"key": "old", "tenant": "acme"}])
    response, submit = await streaming(gateway)
    assert gateway.keys.replace(ring("new")) == 1
    events = (await asyncio.wait_for(response.text(), WAIT_S)).strip().split("\n\n")
    assert events[-1] == (
        'data: {"error":{"message":"the API key was revoked","type":"authentication_error","param":null,'
        '"code":"invalid_api_key"}}'
    )
    assert await gateway.queue.next_cancel() == submit.request_id, "no node goes on with it"


async def test_a_whole_answer_ends_with_its_key(start_gateway: GatewayFactory) -> None:
    gateway = await start_gateway(keys=[{"key": "old", "tenant": "acme"}])

    async def post() -> tuple[int, Any]:
        async with gateway.http.post(TEXT, json=BODY, headers=OLD) as response:
            return response.status, (await response.json())["error"]["code"]

    asking = asyncio.create_task(post())
    await gateway.queue.next_submit()
    gateway.keys.replace(ring("new"))
    assert await asyncio.wait_for(asking, WAIT_S) == (401, "invalid_api_key")
    assert await asyncio.wait_for(post(), WAIT_S) == (401, "invalid_api_key"), "over the same connection"


async def test_other_keys_requests_go_on(start_gateway: GatewayFactory) -> None:
    gateway = await start_gateway(keys=[{"key": "old", "tenant": "acme"}])
    response, submit = await streaming(gateway)
    assert gateway.keys.replace(ring("old", "new")) == 0
    await gateway.queue.send(submit, 1, ids("b"), "stop")
    assert (await asyncio.wait_for(response.text(), WAIT_S)).endswith("data: [DONE]\n\n")


async def test_an_open_gateway_is_closed_by_its_first_keys(start_gateway: GatewayFactory) -> None:
    gateway = await start_gateway()
    response, _ = await streaming(gateway)
    assert gateway.keys.replace(ring("new")) == 1
    assert "invalid_api_key" in await asyncio.wait_for(response.text(), WAIT_S)
