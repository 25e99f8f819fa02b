"""How an engine stands, as far as it has said."""

from __future__ import annotations

from dataclasses import replace

from gpu_node.agent.telemetry.engine_gauges import EngineGauges
from gpu_node.engine.process.protocol.protocol import StepReport
from shared.config.engines.engine import EngineOptions
from shared.config.engines.tiers import TierOptions
from tests.samples import samples_of
from tests.unit.agent.events import make_agent, stats

TIERS = TierOptions(host_bytes=4 << 20, ssd_bytes=8 << 20, ssd_folder="kv")
OPTIONS = EngineOptions(host_kv_bytes=1 << 20, evicted_kv_bytes=2 << 20, tiers=TIERS)


def test_between_two_epochs_and_without_a_model_nothing_is_said() -> None:
    agent = make_agent()
    assert samples_of(EngineGauges(lambda: None, OPTIONS).collect()) == {}
    assert samples_of(EngineGauges(lambda: agent, OPTIONS).collect()) == {}


def test_the_batch_and_the_memory_of_every_tier() -> None:
    agent = make_agent("a")  # 100 blocks of 64 bytes, of which 50 are free
    told = replace(stats(num_waiting=3), num_running=2, swapped_kv_bytes=128, evicted_kv_bytes=256)
    told = replace(told, host_kept_bytes=512, store_bytes=1024)
    agent.handle(StepReport([], told))
    assert samples_of(EngineGauges(lambda: agent, OPTIONS).collect()) == {
        ("vllm:num_requests_running", "a"): 2,
        ("vllm:num_requests_waiting", "a"): 3,
        ("vllm:kv_cache_usage_perc", "a"): 0.5,
        ("treadle_node_kv_used_bytes", "device"): 3200,
        ("treadle_node_kv_used_bytes", "swapped"): 128,
        ("treadle_node_kv_used_bytes", "evicted"): 256,
        ("treadle_node_kv_used_bytes", "host"): 512,
        ("treadle_node_kv_used_bytes", "ssd"): 1024,
        ("treadle_node_kv_capacity_bytes", "device"): 6400,
        ("treadle_node_kv_capacity_bytes", "swapped"): 1 << 20,
        ("treadle_node_kv_capacity_bytes", "evicted"): 2 << 20,
        ("treadle_node_kv_capacity_bytes", "host"): 4 << 20,
        ("treadle_node_kv_capacity_bytes", "ssd"): 8 << 20,
    }
