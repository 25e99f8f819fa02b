"""What a node counts, and what it says of its engine in its log."""

from __future__ import annotations

import structlog
from prometheus_client import Counter, Gauge, Histogram

from gpu_node.agent.actions import Publish
from gpu_node.agent.core import AgentCore, Event
from gpu_node.agent.models import DEVICE
from gpu_node.engine.protocol import ModelFailed, ModelLoaded, Step
from shared.messages import HANDED_OVER

STEPS = Counter("treadle_node_steps_total", "Engine steps published")
TOKENS = Counter("treadle_node_output_tokens_total", "Output tokens published", ["model"])
SWAPS = Counter("treadle_model_swaps_total", "Models loaded", ["model"])
SWAP_S = Histogram("treadle_model_swap_seconds", "Time to load a model", ["model", "source"])
EVICTIONS = Counter("treadle_evictions_total", "Requests that gave way to more urgent ones")
MIGRATIONS = Counter("treadle_migrations_total", "Requests that were handed over to another node")
EVICTED_KV_TOKENS = Counter("treadle_evicted_kv_tokens_total", "Tokens whose KV was kept when their request left")
RUNNING = Gauge("vllm:num_requests_running", "Requests in the engine's batch")
WAITING = Gauge("vllm:num_requests_waiting", "Requests that wait inside the engine")
KV_USAGE = Gauge("vllm:kv_cache_usage_perc", "Share of KV blocks in use, 0 to 1")

log = structlog.get_logger()


def observe(core: AgentCore, event: Event) -> None:
    """The core has taken in an event."""
    match event:
        case Step(chunks=chunks, stats=stats):
            STEPS.inc()
            TOKENS.labels(core.model).inc(sum(len(chunk.token_ids) for chunk in chunks))
            RUNNING.set(stats.num_running)
            WAITING.set(stats.num_waiting)
            loaded = core.models.loaded
            KV_USAGE.set(1 - stats.num_free_blocks / loaded.num_blocks if loaded else 0)
        case ModelLoaded():
            if event.source != DEVICE:
                SWAPS.labels(event.model).inc()
                SWAP_S.labels(event.model, event.source).observe(event.load_s)
            log.info(
                "model loaded",
                model=event.model,
                source=event.source,
                load_s=event.load_s,
                num_blocks=event.num_blocks,
            )
        case ModelFailed():
            log.error("model cannot be loaded", model=event.model, error=event.error)


def observe_published(publish: Publish) -> None:
    """What the queue manager and the gateways were told."""
    num_moved = sum(evicted.kv_at == HANDED_OVER for evicted in publish.evicted)
    MIGRATIONS.inc(num_moved)
    EVICTIONS.inc(len(publish.evicted) - num_moved)
    EVICTED_KV_TOKENS.inc(sum(evicted.kv_tokens for evicted in publish.evicted))
