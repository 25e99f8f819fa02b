"""The simulator beside reality: one recorded run replayed, its decisions compared one by one.

The simulated nodes have the step costs that the live ones had learnt at the end of the run, requests come when they
came, and answers are as long as they were. Everything else is decided by the same cores.
"""

from __future__ import annotations

import statistics
from functools import partial
from typing import Any

from live_client import Seen
from live_decisions import DecisionLog

from gpu_node.executors.predicted import AnswerTokens
from services.simulator.cluster import SimulatedCluster
from services.simulator.device import Device, ModelOnDevice
from shared.config import ClusterConfig
from shared.messages import Heartbeat, Message, Pulled
from shared.payload import Sampling

MODELS_LOADED_S = 60.0  # of virtual time, until the warm-up is over
STEP_S = 1.0
MAX_VIRTUAL_S = 3600.0
NUM_WARM_UP = 8  # requests of each kind before the trace, as long as its answers are on average
WARM_UP_LIMIT = 192
DEFAULT_KV_BYTES_PER_S = 5e9  # of a node that has moved nothing


def compare(spec: dict[str, Any], seen: list[Seen], log: DecisionLog) -> dict[str, Any]:
    """Makespan, mean latency and start of each request, live and simulated."""
    answered = [one for one in seen if not one.refused]
    simulated = Replay(ClusterConfig.model_validate(spec), answered, log.beats)
    simulated.run()
    ids = {one.request_id: one.request.number for one in answered}
    live_nodes: dict[int, str] = {}
    for start in log.starts:
        if start.request_id in ids:
            live_nodes.setdefault(ids[start.request_id], start.node)
    live_latency_s = {one.request.number: one.latency_s for one in answered}
    live_start_s = {one.request.number: one.first_token_s or 0.0 for one in answered}
    makespan_s = max(one.finished_s or 0.0 for one in answered)
    return {
        "makespan_s": {
            "live": makespan_s,
            "simulated": simulated.makespan_s,
            "ratio": simulated.makespan_s / makespan_s,
        },
        "latency_mean_s": _ratio(live_latency_s, simulated.latency_s),
        "same_node": _same(live_nodes, simulated.nodes),
        "start_order_tau": _tau(live_start_s, simulated.start_s),
        "start_difference_median_s": statistics.median(
            abs(live_start_s[n] - simulated.start_s[n]) for n in live_start_s
        ),
    }


class Replay:
    """One simulated run of a recorded trace."""

    def __init__(self, config: ClusterConfig, seen: list[Seen], beats: dict[str, Heartbeat]) -> None:
        self.nodes: dict[int, str] = {}
        """Who took each request first."""
        self._seen = seen
        self._config = config
        lengths = {one.request.number: one.output_tokens for one in seen}
        mean = round(statistics.mean(lengths.values()))
        answer_tokens: AnswerTokens = lambda sampling: lengths.get(sampling.seed, mean)  # noqa: E731
        devices = {name: _device(beat, config) for name, beat in sorted(beats.items())}
        self._cluster = SimulatedCluster(config, devices, answer_tokens=answer_tokens)
        self._cluster.bus.listen(self._note)

    def run(self) -> None:
        """Warm up as the live cluster was, then replay until every answer is complete."""
        bus, gateway = self._cluster.bus, self._cluster.gateway
        for place in range(NUM_WARM_UP):
            for number, model in enumerate(self._config.models):
                for slo in self._config.slo_classes:
                    name = f"warm-{place}-{number}-{slo}"
                    self._submit(name, model.name, slo, 30, -1 - place, WARM_UP_LIMIT)
        bus.run_until(MODELS_LOADED_S)
        assert not gateway.unfinished, "the warm-up is over"
        for one in self._seen:
            bus.at(MODELS_LOADED_S + one.sent_s, partial(self._submit_again, one))
        bus.run_until(MODELS_LOADED_S + max(one.sent_s for one in self._seen))
        while gateway.unfinished and bus.now < MAX_VIRTUAL_S:
            bus.run_until(bus.now + STEP_S)
        assert not gateway.unfinished, "the trace ends"

    def _submit_again(self, one: Seen) -> None:
        request = one.request
        name, number = str(request.number), request.number
        self._submit(name, request.model, request.slo, one.prompt_tokens, number, request.max_tokens)

    def _submit(self, name: str, model: str, slo: str, prompt_tokens: int, seed: int, max_tokens: int) -> None:
        prompt = [(seed + 10) % 1000, *[0] * (prompt_tokens - 1)]
        sampling = Sampling(max_tokens=max_tokens, seed=seed)
        self._cluster.gateway.submit(name, model, self._config.slo(slo), prompt, sampling)

    def _note(self, time_s: float, stream: str, message: Message) -> None:
        del time_s, stream
        if isinstance(message, Pulled):
            for one in message.requests:
                if one.request_id.isdigit():
                    self.nodes.setdefault(int(one.request_id), message.node)

    @property
    def start_s(self) -> dict[int, float]:
        """First token of each request, in seconds after the trace began."""
        answers = self._cluster.gateway.answers
        return {one.request.number: _after(answers[str(one.request.number)].first_token_s) for one in self._seen}

    @property
    def latency_s(self) -> dict[int, float]:
        """Of each request."""
        answers = self._cluster.gateway.answers
        return {
            one.request.number: _after(answers[str(one.request.number)].finished_s) - one.sent_s for one in self._seen
        }

    @property
    def makespan_s(self) -> float:
        """Until the last answer is complete."""
        return max(one.sent_s + self.latency_s[one.request.number] for one in self._seen)


def _after(time_s: float | None) -> float:
    assert time_s is not None
    return time_s - MODELS_LOADED_S


def _device(beat: Heartbeat, config: ClusterConfig) -> Device:
    """What a live node told of itself."""
    rates = {rate.model: rate for rate in beat.rates}
    load_s = max((rate.load_s for rate in beat.rates), default=0.0) or beat.swap_s
    models = {
        name: ModelOnDevice(rate.cost, rate.kv_token_bytes, config.engine.unmeasured_kv_bytes, beat.swap_s, load_s)
        for name, rate in rates.items()
    }
    return Device(beat.device, models, beat.kv_bytes_per_s or DEFAULT_KV_BYTES_PER_S)


def _ratio(live: dict[int, float], simulated: dict[int, float]) -> dict[str, float]:
    mean, other = statistics.mean(live.values()), statistics.mean(simulated[number] for number in live)
    return {"live": mean, "simulated": other, "ratio": other / mean}


def _same(live: dict[int, str], simulated: dict[int, str]) -> float:
    """Share of requests on the same node, where equal nodes may have changed their names."""
    names = sorted(set(live.values()) | set(simulated.values()))
    swapped = dict(zip(names, reversed(names), strict=True))
    same = statistics.mean(simulated[number] == node for number, node in live.items())
    return max(same, statistics.mean(swapped[simulated[number]] == node for number, node in live.items()))


def _tau(live: dict[int, float], simulated: dict[int, float]) -> float:
    """Kendall's rank correlation of the order of starts; 1.0 where all pairs agree."""
    numbers = list(live)
    agree = [
        (live[one] - live[other]) * (simulated[one] - simulated[other]) > 0
        for place, one in enumerate(numbers)
        for other in numbers[:place]
        if live[one] != live[other] and simulated[one] != simulated[other]
    ]
    return 2 * statistics.mean(agree) - 1
