"""`treadle bench offload` with a tiny model: every field is there, and no token hangs on where attention runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gpu_node.bench.offload.live_figures import BARS, compared, live_figures, medians
from gpu_node.bench.offload.live_plan import LivePlan
from gpu_node.bench.offload.load import BrokenLoadError, EndlessLoad, Prepared
from gpu_node.engine.process.protocol.protocol import ImageFile, StepReport
from gpu_node.engine.requests.choices import lost_chunk
from shared.config.engines.engine import ModelSpec
from tests.gpu_node import tiny
from tests.gpu_node.models.test_families_models import save
from tests.unit.agent.events import stats

PLAN = LivePlan(
    "tiny",
    ((24, 20),) * 12,
    warm_up_s=0.3,
    seconds=0.3,
    ratios=(0.3,),
    num_idle_pairs=1,
    idle_s=0.1,
    is_whole=True,
    cold_lengths=(8, 40),
    token_bytes=6_144,
    least_kv_bytes=0,
    vocabulary=tiny.VOCAB,
)


@pytest.mark.slow
def test_every_figure_is_measured_and_tokens_are_equal(tmp_path: Path) -> None:
    save("llama", tmp_path / "model", num_hidden_layers=6, num_key_value_heads=4, head_dim=64)
    found = live_figures(ModelSpec("tiny", str(tmp_path / "model")), [PLAN], lambda text: None)
    assert found["tokens_equal"]
    assert found["served_share"] > 0
    assert set(found["ablation"]) == {"host", "poll", "poll_split"}
    assert found["wait"]["formula_s"] >= 0
    assert found["round_trip_s"] > 0
    assert set(found["ratio_sweep"]) == {"0.3"}
    assert found["shared_ratio"] > 0
    assert found["with_prefill_ratio"] > 0
    assert set(found["bars"]) == set(BARS)


def test_answers_are_compared_as_far_as_both_came() -> None:
    assert compared([{"a": [1, 2]}, {"a": [1, 2, 3], "b": [4]}]) == (2, True)
    assert compared([{"a": [1, 2]}, {"a": [1, 3]}]) == (2, False)
    assert compared([{"a": [1]}, {"b": [1]}]) == (0, False), "nothing was compared"


def test_an_answer_that_an_engine_gave_up_ends_the_measurement() -> None:
    """It would count as one that was shorter, and is equal as far as it came."""
    payload = tiny.request("a", [5, 6], 4)
    end: Any = None  # nothing is said to it
    load = EndlessLoad(end, [], 1, lambda event: event if isinstance(event, StepReport) else None)
    load.running["a"], load.tokens_at["a"] = Prepared(payload, ImageFile("/proc/1/fd/3", 5)), []
    lost = lost_chunk(payload, "there is no room for it")
    with pytest.raises(BrokenLoadError, match=r"^request a ends without its answer: there is no room for it$"):
        load.take(StepReport.of([lost], stats()))


def test_what_is_told_is_the_median_of_the_rounds() -> None:
    rounds = [{"ratio": 1.2, "wait": {"s": 3}}, {"ratio": 9.0, "wait": {"s": 1}}, {"ratio": 1.1, "wait": {"s": 2}}]
    assert medians(rounds) == {"ratio": 1.2, "wait": {"s": 2}}
    assert medians([{"wait": None}, {"wait": {"s": 1}}]) == {"wait": None}
