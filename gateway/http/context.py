"""What the application is given from outside, and where its handlers find it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from aiohttp import web
from opentelemetry import trace
from prometheus_client import CollectorRegistry

from gateway.batches.calls import BatchCalls
from gateway.batches.service import BatchService
from gateway.batches.token import ReadToken
from gateway.http.connections import Connections
from gateway.http.leaving import Leaving
from gateway.inflight.dispatcher import Dispatcher
from gateway.inflight.kept_responses import KeptResponses
from gateway.kept.background import Background
from gateway.kept.conversations import ConversationStore
from gateway.metrics.metrics import GatewayMetrics
from gateway.models.models import ServedModel
from gateway.tenants.auth import Client
from gateway.tenants.keys import Keys
from gateway.tenants.rate_exchange import RateExchange
from gateway.tenants.slots import Slots
from gateway.tenants.tenant_limit import TenantLimit
from gateway.tenants.turns import TenantTurns
from shared.bus.redis_health import RedisHealth
from shared.config.config import ClusterConfig
from shared.service.admin.admin import Admin


def _tracer() -> trace.Tracer:
    """What is known to export nothing need not be asked for every request."""
    provider = trace.get_tracer_provider()
    is_set = not isinstance(provider, trace.ProxyTracerProvider)
    return provider.get_tracer("treadle.gateway") if is_set else trace.NoOpTracer()


@dataclass(frozen=True)
class GatewayContext:
    """All that the gateway needs from its process."""

    config: ClusterConfig
    models: Mapping[str, ServedModel]
    dispatcher: Dispatcher
    not_ready: Callable[[], str]
    """What keeps a request from being submitted now; empty when nothing does. Says what ``/readyz`` answers."""
    models_problem: Callable[[], str] = str
    """Why ``models`` are not those of the configuration's file; empty where they are."""
    withheld: Callable[[], Mapping[str, str]] = dict
    """Names of models that take no requests now, and why."""
    redis_health: Callable[[], RedisHealth] = RedisHealth
    """How Redis was when it was asked last."""
    random_bytes: Callable[[int], bytes] = os.urandom
    """Source of request ids and of seeds that the client did not give."""
    registry: CollectorRegistry = field(default_factory=CollectorRegistry)
    """What ``/metrics`` of the admin port shows; the process may add its own."""
    kept_responses: KeptResponses | None = None
    """Where answers of the Responses API are kept; None where they are not."""
    background: Background | None = None
    """Where responses in the background are until they have ended; None where none are kept, and so is the next."""
    conversations: ConversationStore | None = None
    read_batch_token: ReadToken | None = None
    """How the secret of the batch service is read; None where there are no batches."""
    tracer: trace.Tracer = field(default_factory=_tracer)

    @property
    def models_with_pictures(self) -> list[str]:
        """Names of the models that take images."""
        return [name for name, model in self.models.items() if model.pictures is not None]


CONTEXT = web.AppKey("CONTEXT", GatewayContext)
METRICS = web.AppKey("METRICS", GatewayMetrics)
KEYS = web.AppKey("KEYS", Keys)
RATES = web.AppKey("RATES", RateExchange)
CONNECTIONS = web.AppKey("CONNECTIONS", Connections[asyncio.BaseProtocol])
BATCHES = web.AppKey("BATCHES", BatchService)  # where there are batches, like the next three
MESSAGE_BATCHES = web.AppKey("MESSAGE_BATCHES", BatchService)  # the same, as Anthropic's interface finds it
BATCH_CALLS = web.AppKey("BATCH_CALLS", BatchCalls)
TRANSFERS = web.AppKey("TRANSFERS", TenantLimit)
LARGE_BODIES = web.AppKey("LARGE_BODIES", TenantTurns)  # who has one works on a body that takes long
SLOTS = web.AppKey("SLOTS", Slots)
LEAVING = web.AppKey("LEAVING", Leaving)
ADMIN = web.AppKey("ADMIN", Admin)  # what the admin port answers
STARTED_S = web.AppKey("STARTED_S", int)  # Unix time; what `created` of a model says

REQUEST_ID = web.RequestKey("REQUEST_ID", str)
CLIENT = web.RequestKey("CLIENT", Client)
BATCH_DEADLINE_S = web.RequestKey("BATCH_DEADLINE_S", float)  # of a request of a batch: until it is due, in seconds
ANSWERED = web.RequestKey("ANSWERED", bool)
"""The last of its answer is being written: what its client sends from now on is the next request."""
VISITED = web.RequestKey("VISITED", bool)  # an endpoint has it: its `Visit` says how it ends
