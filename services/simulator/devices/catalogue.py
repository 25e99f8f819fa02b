"""Simulated devices from the catalogue of hardware, and the configuration of a cluster of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from services.simulator.devices.device import ModelOnDevice, SimulatedDevice
from services.simulator.devices.device_group import NodeDevices, group_name, group_named
from shared.config import hardware
from shared.config.config import ClusterConfig
from shared.config.engines.engine import EngineOptions, ModelSpec
from shared.config.engines.tiers import NO_TIERS, TierOptions
from shared.config.measured.profiles import Profile
from shared.config.nodes.nodes import NodeSpec
from shared.config.pipelines.pipeline_file import PipelineFile
from shared.config.services.queue import QueueOptions
from shared.messages.nodes.nodes import AUTO, BOTH, DECODE, PREFILL, PhaseOption
from shared.pipelines.step_pipeline import StepPipeline

MAX_MODEL_LEN = 4096
"""Tokens of prompt and answer together where nothing else is said: the shortest context of QLM's three models."""
NOTHING_SAID: Mapping[str, int] = MappingProxyType({})
ALL_SERVE_BOTH: Mapping[str, PhaseOption] = MappingProxyType({})
MAX_NUM_SEQS = 256
STEP_TOKENS = 512
HOST_KV_BYTES = 64 << 30
"""Host memory of a node for the KV of requests that were evicted."""
HOST_MODELS = 2
"""Models that a node keeps in host memory beside the one on its device."""


def device(
    kind: str, models: Sequence[str], profiles: Iterable[Profile] = (), max_model_lens: Mapping[str, int] = NOTHING_SAID
) -> SimulatedDevice:
    """A device of the catalogue, or a group; models that do not fit are left out. `UnknownHardwareError` for others.

    What ``profiles`` have measured of a model on this kind of device replaces what follows from published numbers.
    A model fits with one request of its ``max_model_lens``.
    """
    chosen = group_named(kind)
    measured = {profile.model: profile for profile in profiles if profile.device == kind}
    shapes = [hardware.model_named(name) for name in models]
    return SimulatedDevice(
        kind=kind,
        models={
            shape.name: _on_device(chosen, shape, measured.get(shape.name))
            for shape in shapes
            if hardware.fits(chosen.sheet, shape, max_model_lens.get(shape.name, MAX_MODEL_LEN))
        },
        kv_bytes_per_s=max((one.kv_bytes_per_s for one in measured.values()), default=0.0)
        or hardware.kv_bytes_per_s(chosen.sheet),
    )


def _on_device(chosen: NodeDevices, shape: hardware.ModelShape, measured: Profile | None) -> ModelOnDevice:
    return ModelOnDevice(
        cost=measured.cost if measured else chosen.step_cost(shape),
        kv_token_bytes=shape.kv_token_bytes,
        kv_cache_bytes=int(hardware.kv_bytes(chosen.sheet, shape)),
        disk_load_s=measured.disk_load_s if measured else hardware.load_s(chosen.sheet, shape, "disk"),
        host_load_s=measured.host_load_s if measured else hardware.load_s(chosen.sheet, shape, "host"),
    )


def with_pipeline(device: SimulatedDevice, file: PipelineFile) -> SimulatedDevice:
    """The device, running the pipeline where it has its model; `PipelineError` where it cannot."""
    if device.kind != group_name(file.device, file.num_devices) or file.model not in device.models:
        return device
    pipeline = StepPipeline.of(file, hardware.model_named(file.model))
    model = replace(device.models[file.model], pipeline=pipeline)
    return replace(device, models={**device.models, file.model: model})


def devices_of(
    counts: Mapping[str, int],
    models: Sequence[str],
    profiles: Iterable[Profile] = (),
    max_model_lens: Mapping[str, int] = NOTHING_SAID,
) -> dict[str, SimulatedDevice]:
    """So many devices of each kind, by the names of their nodes."""
    measured = list(profiles)
    return {
        f"{kind}-{number}": one
        for kind, count in counts.items()
        for one in [device(kind, models, measured, max_model_lens)]
        for number in range(count)
    }


def phases_of(
    prefill: Mapping[str, int], decode: Mapping[str, int], auto: Mapping[str, int] = NOTHING_SAID
) -> dict[str, PhaseOption]:
    """By the names that `devices_of` gives: of each kind, the first prefill, those behind them decode, then those that
    follow the load."""
    phases: dict[str, PhaseOption] = {}
    for kind in {**prefill, **decode, **auto}:
        parts = [(PREFILL, prefill), (DECODE, decode), (AUTO, auto)]
        served = [option for option, counts in parts for _ in range(counts.get(kind, 0))]
        phases |= {f"{kind}-{number}": option for number, option in enumerate(served)}
    return phases


def cluster_config(
    nodes: Sequence[str],
    models: Sequence[str],
    queue: QueueOptions,
    max_num_seqs: int = MAX_NUM_SEQS,
    max_model_lens: Mapping[str, int] = NOTHING_SAID,
    tiers: TierOptions = NO_TIERS,
    step_tokens: int = STEP_TOKENS,
    phases: Mapping[str, PhaseOption] = ALL_SERVE_BOTH,
) -> ClusterConfig:
    """A cluster with the classes of QLM's evaluation; memory is each device's own, so it is not said here.

    ``phases`` of nodes by name, of those that do not serve both.
    """
    return ClusterConfig(
        models=[
            ModelSpec(name=name, source="simulated", max_model_len=max_model_lens.get(name, MAX_MODEL_LEN))
            for name in models
        ],
        nodes=[NodeSpec(name=name, phases=phases.get(name, BOTH)) for name in nodes],
        queue=queue,
        engine=EngineOptions(
            max_num_seqs=max_num_seqs,
            step_tokens=max(step_tokens, max_num_seqs),
            evicted_kv_bytes=HOST_KV_BYTES,
            host_models=HOST_MODELS,
            tiers=tiers,
        ),
    )
