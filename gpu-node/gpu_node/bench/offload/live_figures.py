"""The live figures of offload, each beside the bar that it is to meet: `treadle bench offload`.

All points are measured in turn, then all again: a ratio is one of two points of the same round, and what is told is the
median over the rounds, so a machine that becomes slower on the way changes none.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict
from itertools import zip_longest
from typing import Any

from gpu_node.bench.offload.live import CONTROLS, LiveBench, PairLoad, PairMeasured, Show, live_bench
from gpu_node.bench.offload.live_plan import NUM_LOCAL, NUM_LOW, RATE_RATIO, LivePlan
from gpu_node.bench.offload.shared_node import shared_stretch
from shared.config.engines.engine import ModelSpec
from shared.errors import OperatorError

BARS = {
    "hot_throughput_ratio": (">=", 1.6),
    "hot_tpot_ratio_low": ("<=", 1.10),
    "cold_tpot_ratio_low": ("<=", 1.04),
    "cold_tpot_ratio_less_service": ("<=", 1.10),
    "host_to_poll": (">=", 4.83),
    "poll_to_split": (">=", 1.095),
    "wait_error": ("<=", 0.25),
    "idle_poll_cost": ("<=", 0.02),
}
"""What Weaver's evaluation has, or what this one is to have."""


class NothingServedError(OperatorError):
    """No attention went to the cold engine, so there is nothing to compare."""


def live_figures(spec: ModelSpec, plans: Sequence[LivePlan], show: Show) -> dict[str, Any]:
    """Those of the first plan; of the others, the same under ``lengths``."""
    found = [_of_plan(spec, plan, show) for plan in plans]
    others = {plan.name: one for plan, one in zip(plans[1:], found[1:], strict=True)}
    return found[0] | ({"lengths": others} if others else {})


def _of_plan(spec: ModelSpec, plan: LivePlan, show: Show) -> dict[str, Any]:
    with live_bench(spec, plan, show) as bench:
        show(f"{plan.name}: dedicated")
        first = bench.measure(PairLoad())
        every_s = RATE_RATIO * statistics.mean(tokens for _, tokens in plan.lengths) / first.hot.tokens_per_s
        points = _points(plan, every_s)
        rounds = [_round(bench, plan, points, number, show) for number in range(plan.num_rounds)]
        if not all(found["woven"].cold.served_share for found in rounds):
            raise NothingServedError("no request went to the cold engine: these times would compare a run with itself")
        show("polls while nothing waits")
        pairs = [(bench.idle_tpot_s("poll"), bench.idle_tpot_s("host")) for _ in range(plan.num_idle_pairs)]
        idle_cost = statistics.median(polled / plain for polled, plain in pairs) - 1.0
        num_compared, are_equal = compared(bench.answers)
    shared = None
    if plan.is_whole:
        show("both models on one node")
        shared = shared_stretch(spec, plan).tokens_per_s / statistics.median(
            found["dedicated"].hot.tokens_per_s for found in rounds
        )
    figures: dict[str, Any] = medians([_figures(found) for found in rounds]) | {
        "idle_poll_cost": idle_cost,
        "shared_ratio": shared,
        "tokens_equal": are_equal,
        "num_tokens_compared": num_compared,
    }
    return figures | {
        "bars": {name: {"found": figures[name], bar[0]: bar[1]} for name, bar in BARS.items()},
        "hot_kv_sequences": NUM_LOCAL,
        "cold_every_s": every_s,
        "rounds": [{name: _run(measured) for name, measured in found.items()} for found in rounds],
        "plan": asdict(plan),
    }


def _points(plan: LivePlan, every_s: float) -> dict[str, PairLoad]:
    points = {
        "dedicated": PairLoad(),
        "woven": PairLoad(plan.ratio),
        "woven_rate": PairLoad(plan.ratio, cold_every_s=every_s),
        "low": PairLoad(plan.ratio, NUM_LOW),
        "low_alone": PairLoad(0.0, NUM_LOW),
    }
    points |= {control: PairLoad(plan.ratio, control=control) for control in CONTROLS if control != "poll_split"}
    points |= {f"ratio {ratio:g}": PairLoad(ratio) for ratio in plan.ratios}
    if plan.is_whole:
        points |= {
            "dedicated_prefill": PairLoad(has_images=False),
            "woven_prefill": PairLoad(plan.ratio, has_images=False),
        }
    return points


def _round(
    bench: LiveBench, plan: LivePlan, points: dict[str, PairLoad], number: int, show: Show
) -> dict[str, PairMeasured]:
    """Each point once."""
    found = {}
    for name, point in points.items():
        show(f"{plan.name}: {name}, {number + 1} of {plan.num_rounds}")
        found[name] = bench.measure(point)
    return found


def medians(found: Sequence[Any]) -> Any:
    """Of figures of the same names, however deep; None where one has none. Of other values, the first."""
    first = found[0]
    if isinstance(first, dict):
        return {name: medians([one[name] for one in found]) for name in first}
    if any(one is None for one in found):
        return None
    return statistics.median(found) if isinstance(first, int | float) else first


def _figures(found: dict[str, PairMeasured]) -> dict[str, Any]:
    dedicated, woven, low, low_alone = (found[name] for name in ("dedicated", "woven", "low", "low_alone"))
    cold_s = woven.cold.tpot_s * (1.0 - woven.cold.served_share)
    ways = {control: found["woven" if control == "poll_split" else control] for control in CONTROLS}
    poll = found["poll"]
    wait = None if poll.wait is None else asdict(poll.wait)
    per_s = dedicated.hot.tokens_per_s
    prefill = found.get("woven_prefill")
    return {
        "hot_throughput_ratio": found["woven_rate"].hot.tokens_per_s / per_s,
        "hot_throughput_ratio_cold_busy": woven.hot.tokens_per_s / per_s,
        "hot_tpot_ratio_low": low.hot.tpot_s / low_alone.hot.tpot_s,
        "cold_tpot_ratio_low": low.cold.tpot_s / low_alone.cold.tpot_s,
        "cold_tpot_ratio": woven.cold.tpot_s / dedicated.cold.tpot_s,
        "served_share": woven.cold.served_share,
        "cold_tpot_ratio_less_service": cold_s / dedicated.cold.tpot_s,
        "ablation": {
            control: {"hot_tpot_s": one.hot.tpot_s, "cold_tpot_s": one.cold.tpot_s} for control, one in ways.items()
        },
        "host_to_poll": ways["host"].hot.tpot_s / poll.hot.tpot_s,
        "poll_to_split": poll.hot.tpot_s / woven.hot.tpot_s,
        "wait": wait,
        "wait_error": abs(wait["measured_s"] / wait["formula_s"] - 1.0) if wait and wait["formula_s"] else None,
        "wait_split": None if woven.wait is None else asdict(woven.wait),
        "round_trip_s": None if woven.wait is None else woven.wait.round_trip_s,
        "ratio_sweep": {
            name.removeprefix("ratio "): one.hot.tokens_per_s / per_s
            for name, one in found.items()
            if name.startswith("ratio ")
        },
        "with_prefill_ratio": (
            None if prefill is None else prefill.hot.tokens_per_s / found["dedicated_prefill"].hot.tokens_per_s
        ),
    }


def _run(measured: PairMeasured) -> dict[str, Any]:
    sides = (("hot", measured.hot), ("cold", measured.cold))
    return {
        side: asdict(stretch) | {"tpot_s": stretch.tpot_s, "tokens_per_s": stretch.tokens_per_s}
        for side, stretch in sides
    }


def compared(answers: Sequence[dict[str, list[int]]]) -> tuple[int, bool]:
    """How many tokens of requests that ran more than once were compared, and whether all were the same.

    Each answer is compared as far as it came with the longest that is known.
    """
    known: dict[str, list[int]] = {}
    num_compared, are_equal = 0, True
    for one in answers:
        for name, tokens in one.items():
            before = known.get(name, [])
            pairs = [pair for pair in zip_longest(before, tokens) if None not in pair]
            num_compared += len(pairs)
            are_equal = are_equal and all(left == right for left, right in pairs)
            known[name] = max(before, tokens, key=len)
    return num_compared, are_equal and num_compared > 0
