"""What live nodes told of themselves, as devices of the simulator."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from live_record import Recording

from gpu_node.engine.cost_learner import CostLearner
from gpu_node.engine.step_file import StepLine
from services.simulator.device import Device, ModelOnDevice
from shared.config import ClusterConfig
from shared.nodes import Heartbeat
from shared.step_cost import StepCost

DEFAULT_KV_BYTES_PER_S = 5e9  # where no node has moved anything


@dataclass
class _Loads:
    """Seconds of the loads of a cluster. A model's first on a node is from disk, all others are from host memory."""

    disk_s: list[float] = field(default_factory=list)
    host_s: list[float] = field(default_factory=list)


def live_devices(recording: Recording) -> dict[str, Device]:
    """By node, with the costs that devices of its kind had learnt at the end.

    They are learnt again, from the recorded steps: so a learner can be tried on a run that was recorded before it.
    """
    config = ClusterConfig.model_validate(recording.config)
    last = {beat.node: beat for beat in recording.beats}
    kv_token_bytes = {rate.model: rate.kv_token_bytes for beat in last.values() for rate in beat.rates}
    costs = learnt_costs(recording.steps, {node: beat.device for node, beat in last.items()})
    loads = _loads(recording.beats)
    disk_s = statistics.mean(loads.disk_s)
    host_s = statistics.mean(loads.host_s) if loads.host_s else 0.0
    kv_bytes_per_s = [beat.kv_bytes_per_s for beat in last.values() if beat.kv_bytes_per_s]
    return {
        node: Device(
            beat.device,
            {
                name: ModelOnDevice(cost, kv_token_bytes[name], config.engine.unmeasured_kv_bytes, disk_s, host_s)
                for (device, name), cost in costs.items()
                if device == beat.device and name in kv_token_bytes
            },
            statistics.mean(kv_bytes_per_s) if kv_bytes_per_s else DEFAULT_KV_BYTES_PER_S,
        )
        for node, beat in sorted(last.items())
    }


def learnt_costs(
    steps: Mapping[str, Sequence[StepLine]], device_of: Mapping[str, str]
) -> dict[tuple[str, str], StepCost]:
    """By device and model, what an engine's learner makes of the steps of all its nodes, in the order of time.

    A node that had a model for a few steps only has learnt next to nothing of it.
    """
    learners: dict[tuple[str, str], CostLearner] = {}
    lines = sorted(((line.taken_s, node, line) for node in steps for line in steps[node]), key=lambda each: each[:2])
    for _, node, line in lines:
        learner = learners.setdefault((device_of[node], line.model), CostLearner())
        learner.learn(line.num_rows, line.num_context_tokens, line.num_attended_tokens, line.cost_s)
    return {key: learner.cost for key, learner in learners.items() if learner.cost is not None}


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
