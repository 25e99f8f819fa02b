"""What offloading attention is worth between two engine processes of one core each (`treadle bench offload`).

The hot engine has KV memory for few sequences, so that decode is bound by how many there are; the cold one lends pages
and serves. "Dedicated" is the same hot engine with nothing remote. Both always have requests to run.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import yaml

from gpu_node.bench.offload.engine_end import EngineEnd, engine_end
from gpu_node.bench.offload.images import prepared
from gpu_node.bench.offload.load import EndlessLoad, Prepared, Stretch, made_up, watch
from gpu_node.bench.offload.woven_pair import WovenPair
from gpu_node.engine.border.links import LinkName
from gpu_node.engine.process.protocol import EngineEvent, EngineReady, LoadModel, ModelLoaded, StepReport
from shared.config.engine import ModelSpec
from shared.errors import OperatorError

SIDES = ("hot", "cold")

Show = Callable[[str], None]
"""Hears what is done now."""

VOCABULARY = 40_000
"""Of the tokens that prompts are made of; SmolLM2 has more."""
MIB = 1 << 20
NUM_HOT, NUM_LOW = 12, 2
"""Requests at the hot engine: more than it has memory for; some 30 % of what it could run with offload."""


@dataclass(frozen=True, slots=True)
class LivePlan:
    """What is measured, for how long."""

    hot_kv_bytes: int = 66 * MIB
    """For four sequences of 672 tokens of SmolLM2."""
    cold_kv_bytes: int = 512 * MIB
    num_lent_pages: int = 6
    num_prompt_tokens: int = 560
    num_output_tokens: int = 112
    num_requests: int = 14
    ratio: float = 0.5
    """Four at home and four remote."""
    ratios: tuple[float, ...] = ()
    """Of the sweep."""
    warm_up_s: float = 2.0
    seconds: float = 4.0
    num_repeats: int = 1


QUICK = LivePlan()
FULL = LivePlan(num_requests=24, ratios=(0.15, 0.3, 0.45, 0.6, 0.75), warm_up_s=5.0, seconds=15.0, num_repeats=3)


class TooFewCpusError(OperatorError):
    """There is no CPU for one of the engines."""


class NothingServedError(OperatorError):
    """No attention went to the cold engine, so there is nothing to compare."""


@dataclass(frozen=True, slots=True)
class Both:
    """A stretch of time at both engines."""

    hot: Stretch
    cold: Stretch


class LiveBench:
    """Two engines with a link, loaded."""

    def __init__(self, plan: LivePlan, pair: WovenPair, hot: Sequence[Prepared], cold: Sequence[Prepared]) -> None:
        self._plan = plan
        self._pair = pair
        self._hot, self._cold = hot, cold
        self.answers: dict[str, list[int]] = {}
        """Of the hot engine's requests, the last ones."""

    def measure(self, ratio: float, num_hot: int) -> Both:
        """So many requests at the hot engine, so many of them remote, beside one at the cold engine."""
        plan = self._plan
        self._pair.set_ratio(ratio)
        hot = EndlessLoad(self._pair.hot, self._hot, num_hot, self._pair.hear)
        cold = EndlessLoad(self._pair.cold, self._cold, 1, _reports)
        for load in (hot, cold):
            load.begin()
        watch((hot, cold), plan.warm_up_s)
        stretches = watch((hot, cold), plan.seconds)
        for load in (hot, cold):
            load.stop()
        watch((hot, cold), 0.3)
        self.answers = hot.answers
        return Both(*stretches)


def _reports(event: EngineEvent) -> StepReport | None:
    return event if isinstance(event, StepReport) else None


@contextmanager
def live_bench(spec: ModelSpec, plan: LivePlan, show: Show) -> Iterator[LiveBench]:
    """Start both engines, make the prompts' KV, and link them."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="treadle-offload-")))
        show("starting two engines")
        cpus = sorted(os.sched_getaffinity(0))
        if len(cpus) < len(SIDES):
            raise TooFewCpusError(f"two engines need a CPU each; this process may use {len(cpus)}")
        sizes = {"hot": plan.hot_kv_bytes, "cold": plan.cold_kv_bytes}
        ends = [_start(stack, folder, spec, name, sizes[name], cpu) for name, cpu in zip(SIDES, cpus, strict=False)]
        for end in ends:
            end.ask(EngineReady)
            end.send(LoadModel(spec.name))
        for end in ends:
            end.ask(ModelLoaded)
        lengths = [(plan.num_prompt_tokens, plan.num_output_tokens)] * plan.num_requests
        payloads = made_up(spec.name, "hot", lengths, VOCABULARY, seed=1)
        show("computing prompts ahead")
        hot = prepared(ends, payloads)
        cold = [Prepared(one) for one in made_up(spec.name, "cold", [(96, 400)] * 3, VOCABULARY, seed=2)]
        pair = WovenPair(ends[0], ends[1], spec.name, LinkName(f"hot-{os.getpid()}", f"cold-{os.getpid()}"))
        pair.connect()
        pair.lend(plan.num_lent_pages)
        yield LiveBench(plan, pair, hot, cold)


def _start(stack: ExitStack, folder: Path, spec: ModelSpec, name: str, kv_bytes: int, cpu: int) -> EngineEnd:
    config = {
        "models": [{"name": spec.name, "source": spec.source, "sha256": spec.sha256, "weights": spec.weights}],
        "nodes": [{"name": name, "executor": "cpu", "num_threads": 1, "cpus": [cpu]}],
        "engine": {
            "kv_cache_bytes": kv_bytes,
            "max_num_seqs": 32,
            "evicted_kv_bytes": 2 << 30,
            "offload": "on",
        },
    }
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(config), encoding="utf-8")
    return stack.enter_context(engine_end(name, path, [cpu]))


def live_figures(spec: ModelSpec, plan: LivePlan, show: Show) -> dict[str, Any]:
    """All that is measured."""
    with live_bench(spec, plan, show) as bench:
        runs: dict[str, list[Both]] = {}
        answers = []
        points = {
            "dedicated": (0.0, NUM_HOT),
            "woven": (plan.ratio, NUM_HOT),
            "low": (plan.ratio, NUM_LOW),
            "low_alone": (0.0, NUM_LOW),
        }
        for ratio in plan.ratios:
            points[f"ratio {ratio:g}"] = (ratio, NUM_HOT)
        for number in range(plan.num_repeats):
            for name, (ratio, num_hot) in points.items():
                show(f"{name}, {number + 1} of {plan.num_repeats}")
                runs.setdefault(name, []).append(bench.measure(ratio, num_hot))
                answers.append(bench.answers)
        found = {name: _median(several) for name, several in runs.items()}
        if not found["woven"].cold.served_share:
            raise NothingServedError("no request went to the cold engine: these times would compare a run with itself")
        return _figures(plan, found, answers)


def _median(found: Sequence[Both]) -> Both:
    """The run whose hot throughput is in the middle."""
    return sorted(found, key=lambda both: both.hot.tokens_per_s)[len(found) // 2]


def _figures(plan: LivePlan, found: dict[str, Both], answers: Sequence[dict[str, list[int]]]) -> dict[str, Any]:
    dedicated, woven, low, low_alone = (found[name] for name in ("dedicated", "woven", "low", "low_alone"))
    cold_s = woven.cold.tpot_s * (1.0 - woven.cold.served_share)
    return {
        "hot_throughput_ratio": woven.hot.tokens_per_s / dedicated.hot.tokens_per_s,
        "hot_tpot_ratio_low": low.hot.tpot_s / low_alone.hot.tpot_s,
        "cold_tpot_ratio_low": low.cold.tpot_s / low_alone.cold.tpot_s,
        "cold_tpot_ratio": woven.cold.tpot_s / dedicated.cold.tpot_s,
        "served_share": woven.cold.served_share,
        "cold_tpot_ratio_less_service": cold_s / dedicated.cold.tpot_s,
        "ratio_sweep": {
            name.removeprefix("ratio "): both.hot.tokens_per_s / dedicated.hot.tokens_per_s
            for name, both in found.items()
            if name.startswith("ratio ")
        },
        "tokens_equal": _are_equal(answers),
        "runs": {
            name: {
                side: asdict(stretch) | {"tpot_s": stretch.tpot_s, "tokens_per_s": stretch.tokens_per_s}
                for side, stretch in (("hot", both.hot), ("cold", both.cold))
            }
            for name, both in found.items()
        },
        "plan": asdict(plan),
    }


def _are_equal(answers: Sequence[dict[str, list[int]]]) -> bool:
    """Whether each request was answered alike wherever its attention was, as far as it was answered."""
    known: dict[str, list[int]] = {}
    return all(known.setdefault(name, tokens) == tokens for one in answers for name, tokens in one.items())
