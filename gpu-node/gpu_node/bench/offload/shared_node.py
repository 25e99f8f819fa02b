"""Both models on one node of both cores: what multiplexing gives where the link is free (a figure beside offload's)."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from pathlib import Path

from gpu_node.bench.offload.engine_end import EngineEnd
from gpu_node.bench.offload.engines import EngineSpec, start, two_cpus
from gpu_node.bench.offload.images import prepared
from gpu_node.bench.offload.live import COLD_KV_BYTES, NUM_COLD
from gpu_node.bench.offload.live_plan import NUM_HOT, LivePlan
from gpu_node.bench.offload.load import EndlessLoad, Prepared, Stretch, made_up, watch
from gpu_node.engine.process.protocol.protocol import EngineEvent, StepReport
from shared.config.engines.engine import ModelSpec

HOT, COLD = "hot", "cold"


def shared_stretch(spec: ModelSpec, plan: LivePlan) -> Stretch:
    """Of the hot model's requests; the node has the KV memory of both nodes, and as many cores."""
    kv_bytes = plan.local_bytes + COLD_KV_BYTES
    node = EngineSpec("shared", two_cpus(), [COLD, HOT], kv_bytes, {"max_models": 2})
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="treadle-shared-")))
        (end,) = start(stack, folder, spec, [node]).values()
        hot = prepared([end], made_up(HOT, HOT, plan.lengths, plan.vocabulary, seed=1))
        cold = [Prepared(one) for one in made_up(COLD, COLD, [plan.cold_lengths] * NUM_COLD, plan.vocabulary, seed=2)]
        return _stretch(end, plan, EndlessLoad(end, hot, NUM_HOT, _reports), EndlessLoad(end, cold, 1, _reports))


def _stretch(end: EngineEnd, plan: LivePlan, hot: EndlessLoad, cold: EndlessLoad) -> Stretch:
    hot.begin()
    cold.begin()

    def both(event: EngineEvent) -> None:
        hot.take(event)
        cold.take(event)

    end.hear = both
    watch((hot, cold), plan.warm_up_s)
    return watch((hot, cold), plan.seconds)[0]


def _reports(event: EngineEvent) -> StepReport | None:
    return event if isinstance(event, StepReport) else None
