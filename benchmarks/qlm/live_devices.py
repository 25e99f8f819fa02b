"""What live nodes told of themselves, as devices of the simulator."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

from services.simulator.device import Device, ModelOnDevice
from shared.config import ClusterConfig
from shared.messages import Heartbeat
from shared.step_cost import ModelRate

DEFAULT_KV_BYTES_PER_S = 5e9  # where no node has moved anything


@dataclass
class _Loads:
    """Seconds of the loads of a cluster. A model's first on a node is from disk, all others are from host memory."""

    disk_s: list[float] = field(default_factory=list)
    host_s: list[float] = field(default_factory=list)


def live_devices(beats: Sequence[Heartbeat], config: ClusterConfig) -> dict[str, Device]:
    """By node, with the costs that it told last; of a model that it never had, with those of the others."""
    last = {beat.node: beat for beat in beats}
    rates = {(beat.node, rate.model): rate for beat in last.values() for rate in beat.rates}
    loads = _loads(beats)
    disk_s = statistics.mean(loads.disk_s)
    host_s = statistics.mean(loads.host_s) if loads.host_s else 0.0
    kv_bytes_per_s = [beat.kv_bytes_per_s for beat in last.values() if beat.kv_bytes_per_s]

    def model(node: str, name: str) -> ModelOnDevice:
        rate = rates.get((node, name)) or _others(rates, name)
        return ModelOnDevice(rate.cost, rate.kv_token_bytes, config.engine.kv_cache_bytes, disk_s, host_s)

    return {
        node: Device(
            beat.device,
            {spec.name: model(node, spec.name) for spec in config.models},
            statistics.mean(kv_bytes_per_s) if kv_bytes_per_s else DEFAULT_KV_BYTES_PER_S,
        )
        for node, beat in sorted(last.items())
    }


def _others(rates: dict[tuple[str, str], ModelRate], model: str) -> ModelRate:
    """Of the first node that has had it."""
    return next(rate for (_, name), rate in sorted(rates.items()) if name == model)


def _loads(beats: Sequence[Heartbeat]) -> _Loads:
    loads = _Loads()
    swap_s: dict[str, float] = {}
    loaded: set[tuple[str, str]] = set()
    for beat in beats:
        if beat.swap_s and beat.swap_s != swap_s.get(beat.node):
            swap_s[beat.node] = beat.swap_s
            is_first = (beat.node, beat.model) not in loaded
            (loads.disk_s if is_first else loads.host_s).append(beat.swap_s)
            loaded.add((beat.node, beat.model))
    return loads
