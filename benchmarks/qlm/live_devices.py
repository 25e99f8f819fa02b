"""What live nodes told of themselves in one round, as devices of the simulator for another."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from live_record import Recording

from gpu_node.engine.measures.cost_learner import CostLearner
from services.simulator.devices.device import ModelOnDevice, SimulatedDevice
from shared.config.config import ClusterConfig
from shared.messages.nodes.nodes import Heartbeat
from shared.messages.nodes.step_cost import StepCost

DEFAULT_KV_BYTES_PER_S = 5e9  # where no node has moved anything


@dataclass
class _Loads:
    """Seconds of the loads of a cluster. A model's first on a node is from disk, all others are from host memory."""

    disk_s: list[float] = field(default_factory=list)
    host_s: list[float] = field(default_factory=list)


def live_devices(recording: Recording) -> dict[str, SimulatedDevice]:
    """By node, with the costs that devices of its kind had learnt at the end.

    They are learnt again, from the recorded steps: so a learner can be tried on a run that was recorded before it.
    """
    config = ClusterConfig.model_validate(recording.config)
    last = {beat.node: beat for beat in recording.beats}
    kv_token_bytes = {rate.model: rate.kv_token_bytes for beat in last.values() for rate in beat.facts.rates}
    costs = step_costs(recording)
    loads = _loads(recording.beats)
    disk_s = statistics.mean(loads.disk_s)
    host_s = statistics.mean(loads.host_s) if loads.host_s else 0.0
    kv_bytes_per_s = [beat.facts.kv_bytes_per_s for beat in last.values() if beat.facts.kv_bytes_per_s]
    return {
        node: SimulatedDevice(
            beat.facts.device,
            {
                name: ModelOnDevice(cost, kv_token_bytes[name], config.engine.unmeasured_kv_bytes, disk_s, host_s)
                for (device, name), cost in costs.items()
                if device == beat.facts.device and name in kv_token_bytes
            },
            statistics.mean(kv_bytes_per_s) if kv_bytes_per_s else DEFAULT_KV_BYTES_PER_S,
        )
        for node, beat in sorted(last.items())
    }


def step_costs(recording: Recording) -> dict[tuple[str, str], StepCost]:
    """By device and model, what an engine's learner makes of the steps of all its nodes, in the order of time.

    A node that had a model for a few steps only has learnt next to nothing of it.
    """
    learners: dict[tuple[str, str], CostLearner] = {}
    device_of = _device_of(recording)
    steps = recording.steps
    lines = sorted(((line.taken_s, node, line) for node in steps for line in steps[node]), key=lambda each: each[:2])
    for _, node, line in lines:
        learner = learners.setdefault((device_of[node], line.model), CostLearner())
        learner.learn(line.num_rows, line.num_context_tokens, line.num_attended_tokens, line.cost_s)
    return {key: learner.cost for key, learner in learners.items() if learner.cost is not None}


@dataclass(frozen=True, slots=True)
class StepTotals:
    """What the steps of a trace took, and what costs that were learnt elsewhere say of the same steps."""

    taken_s: float
    predicted_s: float


def step_totals(recording: Recording, costs: Mapping[tuple[str, str], StepCost]) -> StepTotals:
    """Over the steps since the trace began whose device and model have a cost.

    A learner passes over what held up a step, and another round is another time of the day: where the sums differ, all
    times of a replay do, and that is a part of its error.
    """
    device_of = _device_of(recording)
    pairs = [
        (line.cost_s, cost.predict_s(line.num_rows, line.num_context_tokens, line.num_attended_tokens))
        for node, lines in recording.steps.items()
        for line in lines
        if line.taken_s >= recording.trace.began_s and (cost := costs.get((device_of[node], line.model))) is not None
    ]
    return StepTotals(sum(taken_s for taken_s, _ in pairs), sum(predicted_s for _, predicted_s in pairs))


def _device_of(recording: Recording) -> dict[str, str]:
    return {beat.node: beat.facts.device for beat in recording.beats}


def _loads(beats: Sequence[Heartbeat]) -> _Loads:
    loads = _Loads()
    swap_s: dict[str, float] = {}
    loaded: set[tuple[str, str]] = set()
    for beat in beats:
        if beat.facts.swap_s and beat.facts.swap_s != swap_s.get(beat.node):
            swap_s[beat.node] = beat.facts.swap_s
            is_first = (beat.node, beat.model) not in loaded
            (loads.disk_s if is_first else loads.host_s).append(beat.facts.swap_s)
            loaded.add((beat.node, beat.model))
    return loads
