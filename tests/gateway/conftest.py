from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from openai import AsyncOpenAI
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client import CollectorRegistry
from redis.asyncio import Redis

from gateway.app import build_app
from gateway.batches.token import ReadToken
from gateway.http.clients_port import ClientsRunner
from gateway.http.connections import TimeOuts
from gateway.http.context import KEYS, LEAVING, GatewayContext
from gateway.http.leaving import CUT_S
from gateway.inflight.dispatcher import Dispatcher
from gateway.inflight.kept_responses import kept_responses
from gateway.models.models import ServedModel, load_models
from gateway.tenants.keys import Keys
from gateway.workers.served_models import ServedModels
from gateway.workers.sockets import open_sockets
from shared.bus.redis_health import RedisHealth
from shared.config.config import ClusterConfig
from shared.service.admin.admin import listen_on_sockets
from tests.gateway.http_client import http_client
from tests.gateway.memory_queue import Answer, MemoryQueue
from tests.gateway.tiny import write_model


@dataclass
class Gateway:
    """A served gateway and everything around it."""

    url: str
    queue: MemoryQueue
    dispatcher: Dispatcher
    http: aiohttp.ClientSession
    openai: AsyncOpenAI
    registry: CollectorRegistry
    spans: InMemorySpanExporter
    state: dict[str, str]
    """``not_ready``: what the ready check says."""
    health: dict[str, RedisHealth]
    """``redis``: how Redis is."""
    stop: Callable[[], Coroutine[Any, Any, None]]
    """What SIGTERM does: no more requests, and those that run may end."""
    keys: Keys

    def metric(self, name: str, **labels: str) -> float:
        return self.registry.get_sample_value(name, labels) or 0.0


GatewayFactory = Callable[..., Awaitable[Gateway]]


@asynccontextmanager
async def sending(request: Awaitable[aiohttp.ClientResponse]) -> AsyncIterator[Callable[[], Awaitable[Any]]]:
    """Send a request while the test plays the cluster; gives a function that waits for the answer's JSON."""

    async def answer() -> Any:
        async with await request as response:
            return await response.json()

    task = asyncio.create_task(answer())

    async def result() -> Any:
        return await task

    try:
        yield result
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.fixture(scope="session")
def tiny_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("models") / "tiny.gguf")


@pytest.fixture(scope="session")
def base_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("models") / "base.gguf", template=None)


@pytest.fixture(scope="session")
def tiny_config(tiny_file: Path, base_file: Path) -> dict[str, Any]:
    return {
        "models": [
            {"name": "tiny", "source": str(tiny_file), "max_model_len": 64},
            {"name": "org/tiny-b", "source": str(tiny_file), "max_model_len": 32},
            {"name": "base", "source": str(base_file), "max_model_len": 64},
        ]
    }


@pytest.fixture(scope="session")
def tiny_models(tiny_config: dict[str, Any]) -> dict[str, ServedModel]:
    return load_models(ClusterConfig.model_validate(tiny_config))


@pytest.fixture(scope="session")
def tiny(tiny_models: dict[str, ServedModel]) -> ServedModel:
    return tiny_models["tiny"]


@pytest.fixture
async def start_gateway(
    tiny_config: dict[str, Any], tiny_models: dict[str, ServedModel]
) -> AsyncIterator[GatewayFactory]:
    """Starts gateways on real sockets: ``await start_gateway(answer, **sections of the configuration)``.

    ``served``: its models, where they are loaded already.
    """
    async with AsyncExitStack() as stack:

        async def start(
            answer: Answer | None = None,
            *,
            key: str = "none",
            timeouts: TimeOuts = TimeOuts(),  # noqa: B008 (frozen)
            send_buffer: int | None = None,
            read_batch_token: ReadToken | None = None,
            port: int = 0,
            redis: Redis | None = None,
            served: Mapping[str, ServedModel] | None = None,
            **sections: Any,
        ) -> Gateway:
            queue = MemoryQueue(answer)
            dispatcher = Dispatcher(queue, "gateway-0")
            spans = InMemorySpanExporter()
            provider = TracerProvider()
            provider.add_span_processor(SimpleSpanProcessor(spans))
            state = {"not_ready": ""}
            health = {"redis": RedisHealth()}
            config = ClusterConfig.model_validate({**tiny_config, **sections})
            context = GatewayContext(
                config=config,
                models=served if served is not None else (load_models(config) if "models" in sections else tiny_models),
                withheld=lambda: served.withheld if isinstance(served, ServedModels) else {},
                dispatcher=dispatcher,
                not_ready=lambda: state["not_ready"],
                redis_health=lambda: health["redis"],
                kept_responses=kept_responses(redis, config) if redis is not None else None,
                read_batch_token=read_batch_token,
                tracer=provider.get_tracer("test"),
            )
            app, drain_s = build_app(context, timeouts), context.config.gateway.drain_s
            sockets = open_sockets("127.0.0.1", port)
            if send_buffer is not None:
                for one in sockets:
                    one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer)
            runner = await listen_on_sockets(app, sockets, CUT_S, ClientsRunner)

            async def stop() -> None:
                await app[LEAVING].leave(runner, drain_s, dispatcher.stop)

            stack.push_async_callback(stop)
            reader = asyncio.create_task(queue.serve(dispatcher))
            stack.callback(reader.cancel)
            host, port = runner.addresses[0][:2]
            url = f"http://{host}:{port}"
            http = await stack.enter_async_context(aiohttp.ClientSession(url))
            client = AsyncOpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0, http_client=http_client())
            stack.push_async_callback(client.close)
            return Gateway(
                url, queue, dispatcher, http, client, context.registry, spans, state, health, stop, app[KEYS]
            )

        yield start


@pytest.fixture(scope="session")
def real_model(model_file: Path) -> ServedModel:
    """The first default model, read from that file."""
    return load_models(ClusterConfig())["smollm2-135m"]


@pytest.fixture(scope="session")
def reference(model_file: Path) -> Any:
    """Hugging Face's tokenizer of the same file."""
    from transformers import AutoTokenizer  # takes seconds to import

    return AutoTokenizer.from_pretrained(str(model_file.parent), gguf_file=model_file.name)
