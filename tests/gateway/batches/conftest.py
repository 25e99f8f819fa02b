"""A gateway and the real batch service behind it, which sends its requests to that gateway; Redis is real too."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import DEVNULL
from typing import Any

import aiohttp
import pytest
import yaml
from openai import AsyncOpenAI
from openai.types import Batch
from prometheus_client import CollectorRegistry
from redis.asyncio import Redis

from gateway.batches.token import BatchToken
from services.batches.serving import serving
from shared.bus import streams
from shared.bus.bus import connect
from shared.config.config import ADMIN_SERVICES, CONFIG_ENV, REDIS_ENV, ClusterConfig
from tests.gateway.conftest import Gateway, GatewayFactory
from tests.gateway.memory_queue import Answer
from tests.ports import free_port_range

WAIT_S = 20.0
POLL_S = 0.02
CHAT: Any = "/v1/chat/completions"  # the client names all of OpenAI's, and we have another one


@dataclass
class Clock:
    """Unix seconds, which a test sets forward."""

    ahead_s: float = 0.0

    def __call__(self) -> float:
        return time.time() + self.ahead_s


@dataclass
class ServiceProcess:
    """The service as operators run it."""

    process: subprocess.Popen[bytes]
    url: str

    async def is_ready(self) -> bool:
        """Whether it says so."""
        try:
            async with aiohttp.ClientSession() as session, session.get(f"{self.url}/readyz") as response:
                return response.status == 200
        except aiohttp.ClientConnectionError:
            return False

    async def metric(self, name: str) -> float:
        """What a metric without labels says."""
        async with aiohttp.ClientSession() as session, session.get(f"{self.url}/metrics") as response:
            lines = (await response.text()).splitlines()
        return next(float(line.split()[1]) for line in lines if line.startswith(f"{name} "))

    def limit_files(self, max_bytes: int) -> None:
        """Files may be no longer: a write beyond it fails as on a disk that is full."""
        _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.prlimit(self.process.pid, resource.RLIMIT_FSIZE, (max_bytes, most))

    def kill(self) -> None:
        """At once, whatever it is doing."""
        self.process.kill()
        self.process.wait()


@dataclass
class BatchWorld:
    """What a test has: a gateway that may come and go, and the service that may, too."""

    folder: Path
    redis: Redis
    redis_url: str
    config: dict[str, Any]
    start_gateway: GatewayFactory
    gateway: Gateway | None = None
    clock: Clock = field(default_factory=Clock)
    registry: CollectorRegistry = field(default_factory=CollectorRegistry)
    failures: list[str] = field(default_factory=list)
    _service: AsyncExitStack = field(default_factory=AsyncExitStack)

    async def open(self, answer: Answer | None, key: str) -> None:
        """Another gateway at the same port."""
        self.gateway = await self.start_gateway(
            answer, key=key, read_batch_token=self._token, port=self.config["gateway"]["port"], **self.config
        )

    async def begin(self) -> None:
        """A life of the service."""
        self.registry = CollectorRegistry()
        config = ClusterConfig.model_validate(self.config)
        life = serving(
            config, self.redis, lambda: self.failures.append("failed"), registry=self.registry, clock=self.clock
        )
        await self._service.enter_async_context(life)

    async def end(self) -> None:
        """Its end, at whatever it is doing."""
        await self._service.aclose()

    async def begin_process(self) -> ServiceProcess:
        """A life of it as a process of its own."""
        path = self.folder.parent / "cluster.yaml"
        path.write_text(yaml.safe_dump(self.config))
        environment = os.environ | {CONFIG_ENV: str(path), REDIS_ENV: self.redis_url}
        command = [sys.executable, "-m", "services.batches"]
        process = await asyncio.to_thread(subprocess.Popen, command, env=environment, stdout=DEVNULL)
        life = ServiceProcess(process, f"http://127.0.0.1:{self.config['admin_port'] + len(ADMIN_SERVICES)}")
        self._service.callback(life.kill)
        async with asyncio.timeout(WAIT_S):
            while not await life.is_ready():
                assert process.poll() is None, "it has ended"
                await asyncio.sleep(POLL_S)
        return life

    @property
    def there(self) -> Gateway:
        assert self.gateway is not None
        return self.gateway

    @property
    def openai(self) -> AsyncOpenAI:
        return self.there.openai

    async def upload(self, *lines: object, purpose: Any = "batch", client: AsyncOpenAI | None = None) -> str:
        """The name of a file of these lines."""
        data = b"".join(one if isinstance(one, bytes) else json.dumps(one).encode() + b"\n" for one in lines)
        made = await (client or self.openai).files.create(file=("in.jsonl", data), purpose=purpose)
        return made.id

    async def batch(self, *bodies: dict[str, Any], window: Any = "24h", endpoint: Any = CHAT, **options: Any) -> Batch:
        """A batch of requests named r0, r1, ... with these bodies."""
        lines = [
            {"custom_id": f"r{number}", "method": "POST", "url": endpoint, "body": body}
            for number, body in enumerate(bodies)
        ]
        file = await self.upload(*lines)
        return await self.openai.batches.create(
            input_file_id=file, endpoint=endpoint, completion_window=window, **options
        )

    async def until(self, batch: Batch, *statuses: str) -> Batch:
        """The batch when it has come to one of these; by default, when it has ended."""
        wanted = statuses or ("completed", "failed", "expired", "cancelled")
        return await self.seen(batch, lambda found: found.status in wanted)

    async def seen(self, batch: Batch, is_it: Callable[[Batch], bool]) -> Batch:
        """The batch when it is so. Clients have no other way than to ask again and again."""
        async with asyncio.timeout(WAIT_S):
            while not is_it(found := await self.openai.batches.retrieve(batch.id)):  # noqa: ASYNC110
                await asyncio.sleep(POLL_S)
        return found

    async def answered(self, batch: Batch, num_requests: int) -> Batch:
        """The batch when so many requests have their answers."""
        return await self.seen(
            batch, lambda found: found.request_counts is not None and found.request_counts.completed >= num_requests
        )

    async def lines(self, file: str | None) -> dict[str, Any]:
        """A result file's lines, by the names of their requests."""
        assert file is not None
        text = (await self.openai.files.content(file)).text
        return {line["custom_id"]: line for line in map(json.loads, text.splitlines())}

    def token(self) -> BatchToken:
        """The secret, as a gateway knows it."""
        return BatchToken(self._token, time.monotonic)

    async def _token(self) -> str | None:
        token = await self.redis.get(streams.BATCH_TOKEN)
        return token.decode() if isinstance(token, bytes) else token


WorldFactory = Callable[..., Awaitable[BatchWorld]]


def chat(text: str = "hello", **fields: Any) -> dict[str, Any]:
    """A body that the tiny model answers."""
    return {"model": "tiny", "messages": [{"role": "user", "content": text}], "max_tokens": 8} | fields


@pytest.fixture
async def start_world(
    tmp_path: Path, redis_url: str, tiny_config: dict[str, Any], start_gateway: GatewayFactory
) -> AsyncIterator[WorldFactory]:
    """``await start_world(answer, **sections of the configuration)``."""
    async with AsyncExitStack() as stack:

        async def start(
            answer: Answer | None = None, *, key: str = "none", options: dict[str, Any] | None = None, **sections: Any
        ) -> BatchWorld:
            ports = free_port_range(len(ADMIN_SERVICES) + 2)
            config = tiny_config | {
                "admin_port": ports,
                "batches": {"enabled": True, "folder": str(tmp_path / "batches"), **(options or {})},
                **sections,
            }
            config["gateway"] = {"port": ports + len(ADMIN_SERVICES) + 1, **sections.get("gateway", {})}
            redis = connect(redis_url)
            stack.push_async_callback(redis.aclose)
            world = BatchWorld(tmp_path / "batches", redis, redis_url, config, start_gateway)
            await world.open(answer, key)
            stack.push_async_callback(world.end)
            await world.begin()
            return world

        yield start


def texts(lines: dict[str, Any]) -> Sequence[str]:
    """The answers' texts, by the order of their requests."""
    names = sorted(lines, key=lambda name: int(name[1:]))
    return [lines[name]["response"]["body"]["choices"][0]["message"]["content"] for name in names]
