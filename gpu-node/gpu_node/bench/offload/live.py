"""Two engine processes of one core each with a link between them, loaded, point by point (`treadle bench offload`).

The hot engine has KV memory for few sequences, so that decode is bound by how many there are; the cold one lends pages
and serves. "Dedicated" is the same hot engine with nothing remote.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from gpu_node.bench.offload.engine_end import EngineEnd
from gpu_node.bench.offload.engines import EngineSpec, start, two_cpus
from gpu_node.bench.offload.images import prepared
from gpu_node.bench.offload.live_plan import NUM_HOT, LivePlan
from gpu_node.bench.offload.load import EndlessLoad, Prepared, Stretch, made_up, watch
from gpu_node.bench.offload.pair_times import WaitTimes
from gpu_node.bench.offload.woven_pair import WovenPair
from gpu_node.engine.border.links import LinkName
from gpu_node.engine.process.protocol.protocol import EngineEvent, StepReport
from shared.config.engines.engine import ModelSpec, OffloadControl

CONTROLS: tuple[OffloadControl, ...] = ("host", "poll", "poll_split")

Show = Callable[[str], None]
"""Hears what is done now."""

COLD_KV_BYTES = 512 << 20
NUM_COLD = 3
"""Requests of the cold engine, one after another."""


@dataclass(frozen=True, slots=True)
class PairLoad:
    """What is measured beside what."""

    ratio: float = 0.0
    """Of the hot engine's requests, remote."""
    num_hot: int = NUM_HOT
    control: OffloadControl = "poll_split"
    cold_every_s: float = 0.0
    """The cold engine has one request after another; or one that begins so often."""
    has_images: bool = True


@dataclass(frozen=True, slots=True)
class PairMeasured:
    """A stretch of time at both engines."""

    hot: Stretch
    cold: Stretch
    wait: WaitTimes | None


class LiveBench:
    """A hot engine, and a cold one for each way to serve, of which one is linked at a time."""

    def __init__(
        self,
        plan: LivePlan,
        model: str,
        hot: EngineEnd,
        colds: dict[OffloadControl, EngineEnd],
        requests: tuple[Sequence[Prepared], Sequence[Prepared]],
    ) -> None:
        """``requests``: the hot engine's, and a cold one's."""
        self._plan, self._model = plan, model
        self._end, self._colds = hot, colds
        self._hot, self._cold = requests
        self._num_links = 0
        self._pair: WovenPair | None = None
        self.answers: list[dict[str, list[int]]] = []
        """Of the hot engine's requests, as far as they came, of each point."""

    def measure(self, point: PairLoad) -> PairMeasured:
        """Loads from their beginning, warm, then for a stretch."""
        plan = self._plan
        pair = self._paired(point.control)
        pair.set_ratio(point.ratio)
        requests = self._hot if point.has_images else [Prepared(one.payload) for one in self._hot]
        hot = EndlessLoad(pair.hot, requests, point.num_hot, pair.hear)
        cold = EndlessLoad(pair.cold, self._cold, 1, _reports, every_s=point.cold_every_s)
        for load in (hot, cold):
            load.begin()
        watch((hot, cold), plan.warm_up_s)
        before = pair.times(self._model)
        stretches = watch((hot, cold), plan.seconds)
        after = pair.times(self._model)
        for load in (hot, cold):
            load.stop()
        watch((hot, cold), 0.3)
        self.answers.append(hot.told)
        return PairMeasured(stretches[0], stretches[1], after.since(before, stretches[0].seconds))

    def idle_tpot_s(self, control: OffloadControl) -> float:
        """Of the cold engine while nothing waits for it: it has a link, or never looks."""
        if control != "host":
            self._paired(control)
        cold = EndlessLoad(self._colds[control], self._cold, 1, _reports)
        cold.begin()
        watch((cold,), self._plan.idle_s / 4)
        (stretch,) = watch((cold,), self._plan.idle_s)
        cold.stop()
        watch((cold,), 0.1)
        return stretch.tpot_s

    def _paired(self, control: OffloadControl) -> WovenPair:
        cold = self._colds[control]
        if self._pair is not None and self._pair.cold is cold:
            return self._pair
        if self._pair is not None:
            self._pair.close()
        self._num_links += 1
        name = LinkName(f"hot-{os.getpid()}-{self._num_links}", f"cold-{os.getpid()}-{self._num_links}")
        self._pair = WovenPair(self._end, cold, self._model, name)
        self._pair.connect()
        self._pair.lend(-(-self._plan.remote_bytes // self._pair.page_bytes) + 1)
        return self._pair


def _reports(event: EngineEvent) -> StepReport | None:
    return event if isinstance(event, StepReport) else None


@contextmanager
def live_bench(spec: ModelSpec, plan: LivePlan, show: Show) -> Iterator[LiveBench]:
    """Start the engines, and make the prompts' KV."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="treadle-offload-")))
        show("starting engines")
        hot_cpu, cold_cpu = two_cpus()
        specs = [EngineSpec("hot", [hot_cpu], [spec.name], plan.local_bytes, {"offload": "on"})]
        for control in CONTROLS:
            options = {"offload": "on", "offload_control": control}
            specs.append(EngineSpec(f"cold-{control}", [cold_cpu], [spec.name], COLD_KV_BYTES, options))
        ends = start(stack, folder, spec, specs)
        colds = {control: ends[f"cold-{control}"] for control in CONTROLS}
        show("computing prompts ahead")
        payloads = made_up(spec.name, "hot", plan.lengths, plan.vocabulary, seed=1)
        hot = prepared([ends["hot"], colds["poll_split"]], payloads)
        lengths = [plan.cold_lengths] * NUM_COLD
        cold = [Prepared(one) for one in made_up(spec.name, "cold", lengths, plan.vocabulary, seed=2)]
        yield LiveBench(plan, spec.name, ends["hot"], colds, (hot, cold))
