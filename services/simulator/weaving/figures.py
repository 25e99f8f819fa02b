"""Weaver's figures 4 to 7a as predicted here, beside the paper's: `treadle bench offload --simulated`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from services.simulator.weaving import paper
from services.simulator.weaving.arrivals import RequestLengths
from services.simulator.weaving.llama_on_device import A100, L40S, MEAN_CONTEXT, LlamaOnDevice, constants, llama_on
from services.simulator.weaving.runs import (
    Control,
    MeasuredPoint,
    OfferedLoad,
    RunLength,
    dedicated,
    parallel,
    parallel_overhead,
    woven,
)

RATE_PER_S, HIGH_RATE_PER_S = 15.0, 22.0
RATES_PER_S = (5.0, 10.0, RATE_PER_S, HIGH_RATE_PER_S)
RATIOS = (0.15, 0.25, 0.35, 0.4, 0.45, 0.5, 0.55, 0.65)
COLD_RATES_PER_S = (0.25, 1.0, 2.0, 4.0)
LONG_RATE_PER_S = 4.0
"""Of requests whose answers have 1,024 tokens; a full run takes what it can."""

FULL = RunLength(warm_s=60.0, measured_s=300.0)
QUICK = RunLength(warm_s=30.0, measured_s=60.0)


@dataclass(slots=True)
class _Evaluation:
    """Runs of one kind of device, each made once."""

    bed: LlamaOnDevice
    length: RunLength
    done: Callable[[], None]

    def dedicated(self, load: OfferedLoad) -> MeasuredPoint:
        return self._counted(dedicated(self.bed, load, self.length))

    def woven(self, load: OfferedLoad, ratio: float = paper.RATIO, control: Control = Control.SPLITS) -> MeasuredPoint:
        return self._counted(woven(self.bed, load, self.length, ratio, control))

    def parallel(self, load: OfferedLoad) -> MeasuredPoint:
        return self._counted(parallel(self.bed, load, self.length))

    def _counted(self, point: MeasuredPoint) -> MeasuredPoint:
        self.done()
        return point


NUM_RUNS = 3 * len(RATES_PER_S) + 3 + 3 + 2 * len(COLD_RATES_PER_S) + len(RATIOS) + 3 + 3
"""The dedicated node at the highest rate too: what it cannot do shows there."""


def figures(lengths: RequestLengths, length: RunLength, done: Callable[[int], None]) -> dict[str, Any]:
    """All of them. ``done`` hears how many of `NUM_RUNS` are."""
    num = 0

    def count() -> None:
        nonlocal num
        num += 1
        done(num)

    a100 = _Evaluation(llama_on(A100), length, count)
    l40s = _Evaluation(llama_on(L40S), length, count)
    at_rates = {rate: _three(a100, _load(rate, lengths)) for rate in RATES_PER_S}
    by_ratio = {ratio: a100.woven(_load(RATE_PER_S, lengths), ratio) for ratio in RATIOS}
    alone = at_rates[RATE_PER_S]["dedicated"]
    return {
        "fig4": _figure_4(at_rates, a100, l40s, lengths),
        "fig5a": _figure_5a(a100, lengths),
        "fig5b": _figure_5b(by_ratio, alone),
        "fig6": _figure_6(a100),
        "fig7a": _figure_7a(a100, lengths),
        "calibration": _calibration(at_rates, by_ratio, alone),
    }


def _load(hot_per_s: float, lengths: RequestLengths, *, is_full: bool = False) -> OfferedLoad:
    return OfferedLoad(hot_per_s, hot_per_s * paper.COLD_PER_HOT, lengths, is_full)


def _three(on: _Evaluation, load: OfferedLoad) -> dict[str, MeasuredPoint]:
    return {"dedicated": on.dedicated(load), "woven": on.woven(load), "parallel": on.parallel(load)}


def _beside(ours: float, known: Any) -> dict[str, Any]:
    return {"ours": ours, "paper": known}


def _figure_4(
    at_rates: dict[float, dict[str, MeasuredPoint]], a100: _Evaluation, l40s: _Evaluation, lengths: RequestLengths
) -> dict[str, Any]:
    """Azure-Conv by rate, and the most that each way can do."""
    at_15, at_22 = at_rates[RATE_PER_S], at_rates[HIGH_RATE_PER_S]
    full = _load(RATE_PER_S, lengths, is_full=True)
    nvlink, pcie = _most(a100, full), _most(l40s, full)
    return {
        "dedicated_at_15": _columns(at_15["dedicated"], paper.DEDICATED_15),
        "woven_at_15": _columns(at_15["woven"], paper.WOVEN_15),
        "woven_at_22": _columns(at_22["woven"], paper.WOVEN_22),
        "cold_tpot_more_s": {
            f"{rate:g}": _beside(points["woven"].cold_tpot_s - points["dedicated"].cold_tpot_s, paper.COLD_TPOT_MORE_S)
            for rate, points in at_rates.items()
        },
        "most_beside_dedicated": _beside(nvlink["woven"] / nvlink["dedicated"], paper.MAX_RATE_RATIO_DEDICATED),
        "most_beside_parallel": {
            name: _beside(most["woven"] / most["parallel"], paper.MAX_RATE_RATIO_PARALLEL[name])
            for name, most in (("nvlink", nvlink), ("pcie", pcie))
        },
        "parallel_overhead": {
            name: _beside(most["overhead"], paper.PARALLEL_OVERHEAD)
            for name, most in (("nvlink", nvlink), ("pcie", pcie))
        },
        "most_per_s": {"nvlink": nvlink, "pcie": pcie},
        "by_rate": {f"{rate:g}": _asdict(points) for rate, points in at_rates.items()},
    }


def _most(on: _Evaluation, load: OfferedLoad) -> dict[str, float]:
    """Requests a second of each way."""
    points = _three(on, load)
    batch = points["parallel"].hot_batch
    overhead = parallel_overhead(on.bed, batch, batch * _mean_context(load.lengths))
    return {name: point.hot_per_s for name, point in points.items()} | {"overhead": overhead}


def _mean_context(lengths: Sequence[tuple[int, int]]) -> float:
    """Tokens of a sequence while it decodes, over all its steps."""
    num_steps = sum(answer for _, answer in lengths)
    return sum(answer * (prompt + answer / 2) for prompt, answer in lengths) / num_steps


def _columns(point: MeasuredPoint, known: dict[str, float]) -> dict[str, Any]:
    ours = asdict(point)
    return {name: _beside(ours[name], value) for name, value in known.items()}


def _asdict(points: dict[str, MeasuredPoint]) -> dict[str, Any]:
    return {name: asdict(point) for name, point in points.items()}


def _figure_5a(on: _Evaluation, lengths: RequestLengths) -> dict[str, Any]:
    """The hot model at 15 requests a second, the cold one at several rates."""
    found: dict[str, Any] = {}
    for rate in COLD_RATES_PER_S:
        load = OfferedLoad(RATE_PER_S, rate, lengths)
        alone, together = on.dedicated(load), on.woven(load)
        found[f"{rate:g}"] = {
            "hot_tpot_change": together.hot_tpot_s / alone.hot_tpot_s - 1,
            "cold_tpot_more_s": together.cold_tpot_s - alone.cold_tpot_s,
        }
    changes = [one["hot_tpot_change"] for one in found.values()]
    return {
        "by_cold_rate": found,
        "least_change": _beside(max(changes), paper.LOAD_CHANGES["least_loaded"]),
        "most_change": _beside(min(changes), paper.LOAD_CHANGES["others"]),
    }


def _figure_5b(by_ratio: dict[float, MeasuredPoint], alone: MeasuredPoint) -> dict[str, Any]:
    """At 15 requests a second, by the share of sequences that are offloaded."""
    best = min(by_ratio, key=lambda ratio: by_ratio[ratio].hot_tpot_s)
    return {
        "best_ratio": _beside(best, paper.RATIO),
        "half": {
            "hot_tpot_change": _beside(
                by_ratio[0.5].hot_tpot_s / alone.hot_tpot_s - 1, paper.HALF_OFFLOADED["hot_tpot_change"]
            ),
            "cold_tpot_more_s": _beside(
                by_ratio[0.5].cold_tpot_s - alone.cold_tpot_s, paper.HALF_OFFLOADED["cold_tpot_more_s"]
            ),
        },
        "wait": {"measured_s": by_ratio[0.5].wait_s, "formula_s": by_ratio[0.5].formula_wait_s},
        "by_ratio": {
            f"{ratio:g}": {
                "hot_tpot_s": point.hot_tpot_s,
                "cold_tpot_s": point.cold_tpot_s,
                "remote_share": point.remote_share,
            }
            for ratio, point in by_ratio.items()
        },
    }


def _figure_6(on: _Evaluation) -> dict[str, Any]:
    """512 tokens in, 1,024 out: the most that each way can do."""
    points = _three(on, _load(LONG_RATE_PER_S, [paper.LONG_OUTPUT_LENGTHS], is_full=True))
    more_s = points["woven"].cold_tpot_s - points["dedicated"].cold_tpot_s
    return {
        "most_beside_parallel": _beside(
            points["woven"].hot_per_s / points["parallel"].hot_per_s, paper.LONG_OUTPUT_RATIO_PARALLEL
        ),
        "most_beside_dedicated": points["woven"].hot_per_s / points["dedicated"].hot_per_s,
        "cold_tpot_more_s": _beside(more_s, paper.LONG_OUTPUT_COLD_S),
        "most": _asdict(points),
    }


def _figure_7a(on: _Evaluation, lengths: RequestLengths) -> dict[str, Any]:
    """At 15 requests a second and a ratio of one half: how a task gets onto the receiver."""
    load = _load(RATE_PER_S, lengths)
    host, polls, splits = (on.woven(load, 0.5, control) for control in Control)
    return {
        "host_tpot_s": _beside(host.hot_tpot_s, paper.CONTROL["host_tpot_s"]),
        "polls_speedup": _beside(host.hot_tpot_s / polls.hot_tpot_s, paper.CONTROL["polls_speedup"]),
        "splits_change": _beside(splits.hot_tpot_s / polls.hot_tpot_s - 1, paper.CONTROL["splits_change"]),
        "cold_tpot_more_s": {
            "polls": _beside(polls.cold_tpot_s - host.cold_tpot_s, paper.CONTROL_COLD_S["polls"]),
            "splits": _beside(splits.cold_tpot_s - polls.cold_tpot_s, paper.CONTROL_COLD_S["splits"]),
        },
        "wait_s": {"host": host.wait_s, "polls": polls.wait_s, "splits": splits.wait_s},
    }


def _calibration(
    at_rates: dict[float, dict[str, MeasuredPoint]], by_ratio: dict[float, MeasuredPoint], alone: MeasuredPoint
) -> dict[str, Any]:
    """The constants, and the points that they were set by."""
    at_22, half = at_rates[HIGH_RATE_PER_S]["woven"], by_ratio[0.5]
    return {
        "constants": constants(),
        "lengths": {"mean_context": MEAN_CONTEXT, "max_tokens": paper.MAX_TOKENS},
        "points": {
            "memory_share": {"lm_head_s": paper.LM_HEAD_S},
            "host_s": _columns(alone, {"hot_tpot_s": paper.DEDICATED_15["hot_tpot_s"]}),
            "kv_tokens": _columns(alone, {"hot_kv_share": paper.DEDICATED_15["hot_kv_share"]}),
            "product_share": _columns(at_22, {"hot_tpot_s": paper.WOVEN_22["hot_tpot_s"]}),
            "hand_over_s": {
                "hot_tpot_change": _beside(
                    half.hot_tpot_s / alone.hot_tpot_s - 1, paper.HALF_OFFLOADED["hot_tpot_change"]
                )
            },
            "kv_memory_share": {
                "cold_tpot_more_s": _beside(
                    half.cold_tpot_s - alone.cold_tpot_s, paper.HALF_OFFLOADED["cold_tpot_more_s"]
                )
            },
        },
    }
