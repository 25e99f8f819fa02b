"""How the engine of a node stands, read when metrics are: an epoch that is over leaves no old numbers behind."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from gpu_node.agent.decisions.core import AgentCore
from shared.config.engines.engine import EngineOptions


class EngineGauges(Collector):
    """Gauges of the current epoch; without samples between two of them."""

    def __init__(self, read_core: Callable[[], AgentCore | None], options: EngineOptions) -> None:
        self._read_core = read_core
        self._options = options

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """What the engine said last."""
        core = self._read_core()
        yield from _known_names(core)
        yield from self._tiers(core)

    def _tiers(self, core: AgentCore | None) -> Iterator[GaugeMetricFamily]:
        """KV memory by where it is: ``swapped`` is that of preempted requests, ``evicted`` of those that gave way.

        ``host`` and ``ssd`` are copies of full blocks, which are there to be found again.
        """
        used = GaugeMetricFamily("treadle_node_kv_used_bytes", "KV memory in use, by tier", labels=["tier"])
        capacity = GaugeMetricFamily("treadle_node_kv_capacity_bytes", "KV memory, by tier", labels=["tier"])
        loaded = core.models.loaded if core is not None else None
        if core is not None and loaded is not None:
            stats, options = core.report.stats, self._options
            used_bytes = (loaded.num_blocks - stats.num_free_blocks) * loaded.block_bytes
            for tier, num_used_bytes, num_bytes in (
                ("device", used_bytes, loaded.num_blocks * loaded.block_bytes),
                ("swapped", stats.swapped_kv_bytes, options.host_kv_bytes),
                ("evicted", stats.evicted_kv_bytes, options.evicted_kv_bytes),
                ("host", stats.host_kept_bytes, options.tiers.host_bytes),
                ("ssd", stats.store_bytes, options.tiers.ssd_bytes),
            ):
                used.add_metric([tier], num_used_bytes)
                capacity.add_metric([tier], num_bytes)
        yield from (used, capacity)


def _known_names(core: AgentCore | None) -> Iterator[GaugeMetricFamily]:
    """What dashboards of engines ask for (vLLM's names); the model is the one that was asked for last."""
    labels = ["model_name"]
    running = GaugeMetricFamily("vllm:num_requests_running", "Requests in the engine's batch", labels=labels)
    waiting = GaugeMetricFamily("vllm:num_requests_waiting", "Requests that wait inside the engine", labels=labels)
    usage = GaugeMetricFamily("vllm:kv_cache_usage_perc", "Share of KV blocks in use, 0 to 1", labels=labels)
    if core is not None and core.models.loaded is not None:
        loaded, stats = core.models.loaded, core.report.stats
        running.add_metric([loaded.model], stats.num_running)
        waiting.add_metric([loaded.model], stats.num_waiting)
        usage.add_metric([loaded.model], 1 - stats.num_free_blocks / loaded.num_blocks)
    yield from (running, waiting, usage)
