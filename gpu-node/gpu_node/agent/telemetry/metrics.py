"""What a node counts, and what it says of its engine in its log."""

from __future__ import annotations

import structlog
from prometheus_client import Counter, Histogram

from gpu_node.agent.decisions.actions import AgentEvent, Publish
from gpu_node.agent.decisions.core import AgentCore
from gpu_node.agent.decisions.models.models import DEVICE
from gpu_node.engine.measures.counts import Counts, KeptCounts, TierCounts
from gpu_node.engine.process.protocol.protocol import ModelFailed, ModelLoaded, StepReport, TakenOut
from shared.messages.requests.requests import HANDED_OVER

EPOCHS = Counter("treadle_node_epochs_total", "Epochs begun by this node")
STEPS = Counter("treadle_node_steps_total", "Engine steps published")
TOKENS = Counter("treadle_node_output_tokens_total", "Output tokens published", ["model"])
SWAPS = Counter("treadle_model_swaps_total", "Models loaded", ["model"])
SWAP_S = Histogram(
    "treadle_model_swap_seconds",
    "Time to load a model, by where its weights were",
    ["model", "source"],
    buckets=(0.001, 0.01, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 60, 120, 300),
)
EVICTIONS = Counter("treadle_evictions_total", "Requests that gave way to more urgent ones")
MIGRATIONS = Counter("treadle_migrations_total", "Requests that were handed over to another node")
EVICTED_KV_TOKENS = Counter("treadle_evicted_kv_tokens_total", "Tokens whose KV was kept when their request left")
RESTORED_TOKENS = Counter(
    "treadle_restored_kv_tokens_total", "Tokens whose KV came back with their request, and was not computed again"
)
MOVED_KV_BYTES = Counter(
    "treadle_kv_moved_bytes_total",
    "KV that left the device for host memory (`out`), or came back (`in`); see treadle_node_kv_used_bytes for tiers",
    ["tier", "direction"],
)
REFUSED_KV = Counter(
    "treadle_kv_refused_requests_total", "Requests whose KV was dropped: the tier in host memory had no room", ["tier"]
)
RESUMED = Counter(
    "treadle_resumed_requests_total",
    "Requests that had begun and went on, by the tier that their KV came back from; `none`: it is computed again",
    ["tier"],
)
FOUND_KV_TOKENS = Counter(
    "treadle_kv_tier_hits_total", "Tokens of prompts that were found below the device, and not computed", ["tier"]
)
LOST_KV_BLOCKS = Counter(
    "treadle_kv_tier_lost_blocks_total",
    "Full blocks of which a tier has no copy: `host` had no room, or `ssd` had none, or too many were waiting",
    ["tier"],
)
SSD_BLOCKS = Counter("treadle_kv_ssd_blocks_total", "Blocks written to the SSD (`out`), or read (`in`)", ["direction"])
SSD_FAULTS = Counter(
    "treadle_kv_ssd_faults_total",
    "Blocks that the SSD could not take or give (`failed`), or that were not what had been written (`damaged`); "
    "requests that began without their blocks, since it was too slow (`late`)",
    ["reason"],
)
PIPELINE_STEPS = Counter(
    "treadle_node_pipeline_steps_total",
    "Engine steps with engine.pipeline: in its `lanes`; too `small` for it; or `unknown`, where none fits",
    ["way"],
)
OFFLOAD_SERVED = Counter(
    "treadle_offload_served_tasks_total", "Attention of other nodes that was done here, a layer of a step each"
)
OFFLOAD_LOST = Counter(
    "treadle_offload_lost_requests_total",
    "Requests that were computed again: the node that they lay on lost them",
)
PREEMPTIONS = Counter("vllm:num_preemptions_total", "Requests that gave way inside the engine: memory ran out")
PREFIX_QUERIES = Counter("vllm:prefix_cache_queries_total", "Tokens that were looked up among cached prefixes")
PREFIX_HITS = Counter("vllm:prefix_cache_hits_total", "Tokens that were found there, and not computed")
DRAFT_TOKENS = Counter("vllm:spec_decode_num_draft_tokens_total", "Tokens that were guessed, and checked in a step")
ACCEPTED_TOKENS = Counter("vllm:spec_decode_num_accepted_tokens_total", "Guessed tokens that were drawn, and kept")
STRUCTURED_DRAFTS = Counter(
    "treadle_node_structured_draft_tokens_total", "Of the guessed tokens, those of structured output"
)
STRUCTURED_ACCEPTED = Counter(
    "treadle_node_structured_accepted_tokens_total", "Guessed tokens of structured output that were drawn, and kept"
)

log = structlog.get_logger()


class EpochMetrics:
    """What happens in one epoch; the engine's own counts begin with it."""

    def __init__(self, core: AgentCore) -> None:
        EPOCHS.inc()
        self._core = core
        self._counts = Counts()
        _add(self._counts)  # series that are there from the start: else rates miss what is counted first

    def observe(self, event: AgentEvent) -> None:
        """The core has taken in an event."""
        match event:
            case StepReport(chunks=chunks, stats=stats):
                STEPS.inc()
                TOKENS.labels(self._core.model).inc(sum(len(chunk.token_ids) for chunk in chunks))
                self._count(stats.counts)
            case TakenOut(stats=stats):
                self._count(stats.counts)
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
                    adapters=event.adapters,
                )
                for name, problem in event.broken_adapters.items():
                    log.error("adapter cannot be loaded", model=event.model, adapter=name, error=problem)
            case ModelFailed():
                log.error("model cannot be loaded", model=event.model, error=event.error)

    def _count(self, counts: Counts) -> None:
        if counts == self._counts:
            return
        _add(counts - self._counts)
        self._counts = counts


def _add(new: Counts) -> None:
    RESTORED_TOKENS.inc(new.restored_tokens)
    PREEMPTIONS.inc(new.num_preemptions)
    PREFIX_QUERIES.inc(new.prefix_queried_tokens)
    PREFIX_HITS.inc(new.prefix_cached_tokens)
    DRAFT_TOKENS.inc(new.num_draft_tokens)
    ACCEPTED_TOKENS.inc(new.num_accepted_tokens)
    STRUCTURED_DRAFTS.inc(new.num_structured_drafts)
    STRUCTURED_ACCEPTED.inc(new.num_structured_accepted)
    RESUMED.labels("none").inc(new.num_recomputed)
    PIPELINE_STEPS.labels("lanes").inc(new.num_piped)
    PIPELINE_STEPS.labels("small").inc(new.num_small)
    PIPELINE_STEPS.labels("unknown").inc(new.num_unknown)
    OFFLOAD_SERVED.inc(new.num_served_tasks)
    OFFLOAD_LOST.inc(new.num_lost_remote)
    _add_tier("swapped", new.swapped)
    _add_tier("evicted", new.evicted)
    _add_kept(new.kept)


def _add_tier(tier: str, new: TierCounts) -> None:
    MOVED_KV_BYTES.labels(tier, "out").inc(new.out_bytes)
    MOVED_KV_BYTES.labels(tier, "in").inc(new.in_bytes)
    REFUSED_KV.labels(tier).inc(new.num_refused)
    RESUMED.labels(tier).inc(new.num_restored)


def _add_kept(new: KeptCounts) -> None:
    FOUND_KV_TOKENS.labels("host").inc(new.host_tokens)
    FOUND_KV_TOKENS.labels("ssd").inc(new.store_tokens)
    LOST_KV_BLOCKS.labels("host").inc(new.num_lost_blocks)
    LOST_KV_BLOCKS.labels("ssd").inc(new.num_unwritten)
    SSD_BLOCKS.labels("out").inc(new.num_written)
    SSD_BLOCKS.labels("in").inc(new.num_read)
    SSD_FAULTS.labels("failed").inc(new.num_failed)
    SSD_FAULTS.labels("damaged").inc(new.num_damaged)
    SSD_FAULTS.labels("late").inc(new.num_late)


def observe_published(publish: Publish) -> None:
    """What the queue manager and the gateways were told."""
    num_moved = sum(evicted.kv_at == HANDED_OVER for evicted in publish.evicted)
    MIGRATIONS.inc(num_moved)
    EVICTIONS.inc(len(publish.evicted) - num_moved)
    EVICTED_KV_TOKENS.inc(sum(evicted.kv_tokens for evicted in publish.evicted))
