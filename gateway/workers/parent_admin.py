"""The admin port of a gateway with several workers: what they say, put together."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, TypeVar

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, REGISTRY

from gateway.workers.expositions import merge
from gateway.workers.worker_client import WorkerClient
from gateway.workers.worker_pool import WorkerPool
from shared.service.admin.admin import Admin

T = TypeVar("T")


class ParentAdmin:
    """The four paths of `shared.service.admin.admin.Admin`."""

    def __init__(self, pool: WorkerPool, clients: Callable[[], Mapping[int, WorkerClient]]) -> None:
        """``clients``: a line to each process that runs, by its life."""
        self._pool = pool
        self._clients = clients

    def routes(self) -> list[web.RouteDef]:
        """Routes to add to an aiohttp application."""
        own = Admin(not_ready=self._pool.not_ready, status=dict)
        return [*own.health_routes(), web.get("/metrics", self._metrics), web.get("/status", self._status)]

    async def _metrics(self, _: web.Request) -> web.Response:
        texts = await self._ask(lambda client: client.text("/metrics"))
        body = merge(REGISTRY, {name: text for name, text in self._names(texts).items() if text})
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def _status(self, _: web.Request) -> web.Response:
        statuses = await self._ask(lambda client: client.status())
        return web.json_response(summary(self._pool, statuses))

    async def _ask(self, question: Callable[[WorkerClient], Awaitable[T]]) -> dict[int, T]:
        """Answers by life, of all at the same time."""
        clients = dict(self._clients())
        answers = await asyncio.gather(*map(question, clients.values()))
        return dict(zip(clients, answers, strict=True))

    def _names(self, answers: Mapping[int, T]) -> dict[str, T]:
        """By the value of the label: a worker's number; of one that leaves with its life, since it has a successor."""
        names: dict[str, T] = {}
        for number, answer in answers.items():
            life = self._pool.lives.get(number)
            if life is not None:
                is_second = life.is_leaving or str(life.worker) in names
                names[f"{life.worker}-{number}" if is_second else str(life.worker)] = answer
        return names


def summary(pool: WorkerPool, statuses: Mapping[int, Mapping[str, Any]]) -> dict[str, Any]:
    """Sums of what can be counted, and each process by itself."""
    workers = [
        {
            "worker": life.worker,
            "life": number,
            "is_ready": life.is_ready,
            "is_leaving": life.is_leaving,
            "num_restarts": pool.num_restarts[life.worker],
            **statuses.get(number, {}),
        }
        for number, life in sorted(pool.lives.items(), key=lambda one: (one[1].worker, one[0]))
    ]
    return {**_sums(statuses.values()), "num_ready": pool.num_ready, "workers": workers}


def _sums(statuses: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    sums: dict[str, float] = {}
    for status in statuses:
        for name, value in status.items():
            if isinstance(value, int | float) and not isinstance(value, bool):
                sums[name] = sums.get(name, 0) + value
    return sums
