"""Predicted against actual waiting time, over the length of the queue (QLM, SoCC'24, §8: the RWT estimator's accuracy).

Simulated devices under the live queue manager, scheduler and agents, with requests of one model. First they come at
about the rate that the device can serve, so that lengths are learnt. Then they come faster, and the queue grows from
nothing to more than a thousand. When one of these comes, its wait until the first token is predicted from what the
queue manager knows by then; later the simulation tells what it was. Requests go on coming behind those that are judged,
so that those who overtake them do not end with the trace.

Conditions: one node; lengths of ShareGPT (5 % mega prompts in one case); one class, or in the last cases three, of
which the urgent ones overtake: they need nearly all of the device, or are two fifths of what comes; the engine admits
by predicted peaks of memory. Nothing is told to the estimator: lengths, paces and full batches are learnt from the
messages of the same run, with those that have not ended counted as far as they have come. Waits of one run are alike
in their errors, since they wait for each other: a share of bounds that hold is a mean over few independent runs,
however many requests they have.

    python benchmarks/qlm/estimator_accuracy.py --json --plot docs/figures/estimator_accuracy.png
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, Literal, get_args

from rich.console import Console
from rich.progress import track

from services.simulator.cluster.clients import ClientOutcome
from services.simulator.devices.catalogue import cluster_config, device
from services.simulator.recording import Prediction
from services.simulator.simulation import Scenario, Simulation
from services.simulator.workloads.arrivals import poisson
from services.simulator.workloads.lengths import draw_mega, draw_sharegpt
from services.simulator.workloads.request import WorkloadRequest
from shared.config.services.corrections import PredictionOptions
from shared.config.services.queue import QueueOptions

Policy = Literal["shepherd", "qlm"]

CALM_REQUESTS = 1_000
"""Of the first part, which is not judged."""
CALM_SHARE = 0.6
"""Of the rate of the second part."""
BUCKETS = (0, 1, 10, 100, 300, 1_000)
"""Lower bounds of queue lengths that are told apart."""
LONG_QUEUE = 100
"""From here on R² has to be 0.99."""
QUANTILE = 0.9
ALL_CORRECTIONS = PredictionOptions()


@dataclass(frozen=True, slots=True)
class Case:
    """A device, a model, and what comes."""

    name: str
    device: str
    model: str
    rate_per_s: float
    mega_share: float = 0.0
    slos: tuple[str, ...] = ("batch-2",)
    """One of these each, by chance."""
    behind_share: float = 1.0
    """Of the judged requests, as many come behind them: those who wait longest must not outlive the trace."""


CLASSES = ("interactive", "batch-1", "batch-2")
MOSTLY_BATCH = ("interactive", "batch-1", "batch-2", "batch-2", "batch-2")
CASES = (
    Case("A100, Mistral 7B", "a100", "mistral-7b", 20.0),
    Case("A10, Mistral 7B", "a10", "mistral-7b", 5.0),
    Case("A100, Vicuna 13B", "a100", "vicuna-13b", 8.0),
    Case("A100, Mistral 7B, 5 % mega prompts", "a100", "mistral-7b", 15.0, mega_share=0.05),
    Case("A100, Mistral 7B, three classes", "a100", "mistral-7b", 16.0, slos=CLASSES, behind_share=2.0),
    Case("A100, Mistral 7B, mostly batch", "a100", "mistral-7b", 16.0, slos=MOSTLY_BATCH),
)


@dataclass(frozen=True, slots=True)
class Pair:
    """A request's wait as it was predicted and as it was, in seconds, behind so many that waited when it came."""

    num_waiting: int
    predicted_s: float
    bound_s: float
    """The time that it was not to exceed with a probability of `QUANTILE`."""
    actual_s: float


def scenario(
    case: Case, policy: Policy, num_requests: int, seed: int, predictions: PredictionOptions = ALL_CORRECTIONS
) -> Scenario:
    """What is simulated: the calm part, the judged requests, and those behind them."""
    random = Random(f"{case.name} {seed}")
    calm = poisson(CALM_SHARE * case.rate_per_s, CALM_REQUESTS, random)
    surge = poisson(case.rate_per_s, int((1 + case.behind_share) * num_requests), random)
    requests = drawn_requests(case, [*calm, *(calm[-1] + arrival_s for arrival_s in surge)], random)
    config = cluster_config(["node"], [case.model], QueueOptions(policy=policy, predictions=predictions))
    return Scenario(config, {"node": device(case.device, [case.model])}, requests)


def drawn_requests(case: Case, arrivals_s: Iterable[float], random: Random) -> list[WorkloadRequest]:
    """Requests that come at these times."""
    requests = []
    for arrival_s in arrivals_s:
        draw = draw_mega if random.random() < case.mega_share else draw_sharegpt
        lengths = draw(random)
        slo = case.slos[0] if len(case.slos) == 1 else random.choice(case.slos)
        requests.append(WorkloadRequest(arrival_s, case.model, slo, *lengths))
    return requests


def run(case: Case, policy: Policy, num_requests: int, seed: int) -> list[Pair]:
    """One simulation."""
    simulation = Simulation(scenario(case, policy, num_requests, seed))
    judged = range(CALM_REQUESTS, CALM_REQUESTS + num_requests)
    run_until_started(simulation, judged)
    return paired(simulation.recording.predictions, simulation.outcomes, judged)


def run_until_started(simulation: Simulation, judged: range) -> None:
    """Nobody who comes or ends later changes how long these have waited."""
    outcomes, left = simulation.outcomes, list(reversed(judged))

    def have_started() -> bool:
        while left and left[-1] < len(outcomes):
            if outcomes[left[-1]].first_token_s is None and not outcomes[left[-1]].reason:
                return False
            left.pop()
        return not left

    simulation.run_until(have_started)


def paired(predictions: Iterable[Prediction], outcomes: Sequence[ClientOutcome], judged: range) -> list[Pair]:
    """What was predicted of judged requests, beside what came; ``outcomes`` are by number."""
    starts = sorted(outcome.started_s for outcome in outcomes if outcome.started_s is not None)
    pairs = []
    for prediction in predictions:
        outcome = outcomes[prediction.number]
        if (
            prediction.number in judged and outcome.first_token_s is not None
        ):  # clients give up who were evicted too often without KV
            num_waiting = prediction.number - bisect_right(starts, outcome.sent_s)
            actual_s = outcome.first_token_s - outcome.sent_s
            pairs.append(Pair(num_waiting, prediction.wait_s, prediction.wait_p90_s, actual_s))
    return pairs


def r_squared(pairs: Sequence[Pair]) -> float:
    """Coefficient of determination of the predictions themselves, not of a line through them."""
    mean_s = statistics.mean(pair.actual_s for pair in pairs)
    total = sum((pair.actual_s - mean_s) ** 2 for pair in pairs)
    return 1 - sum((pair.actual_s - pair.predicted_s) ** 2 for pair in pairs) / total


def summary(pairs: Sequence[Pair]) -> dict[str, Any]:
    """Over all, over long queues, and bucket by bucket."""
    long = [pair for pair in pairs if pair.num_waiting > LONG_QUEUE]
    return {
        "num_predictions": len(pairs),
        "r2": round(r_squared(pairs), 4),
        "r2_long_queues": round(r_squared(long), 4) if len(long) > 1 else None,
        "coverage_p90": round(_coverage(pairs), 3),
        "buckets": [
            _bucket(least, [pair for pair in pairs if least <= pair.num_waiting < end])
            for least, end in zip(BUCKETS, (*BUCKETS[1:], math.inf), strict=True)
        ],
    }


def _bucket(least: int, pairs: Sequence[Pair]) -> dict[str, Any]:
    if not pairs:
        return {"from": least, "num_predictions": 0}
    ratios = [pair.predicted_s / pair.actual_s for pair in pairs]
    return {
        "from": least,
        "num_predictions": len(pairs),
        "mean_wait_s": round(statistics.mean(pair.actual_s for pair in pairs), 3),
        "median_ratio": round(statistics.median(ratios), 3),
        "coverage_p90": round(_coverage(pairs), 3),
    }


def _coverage(pairs: Sequence[Pair]) -> float:
    return sum(pair.actual_s <= pair.bound_s for pair in pairs) / len(pairs)


def plot(found: dict[str, list[Pair]], path: Path) -> None:
    """Predicted over actual, and coverage over queue length; a column a case."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(2, len(found), figsize=(4 * len(found), 7), squeeze=False, layout="constrained")
    for column, (name, pairs) in enumerate(found.items()):
        above, below = axes[0][column], axes[1][column]
        above.scatter([p.actual_s for p in pairs], [p.predicted_s for p in pairs], s=3, label="mean")
        above.scatter([p.actual_s for p in pairs], [p.bound_s for p in pairs], s=1, alpha=0.3, label="90 % bound")
        end_s = max(pair.actual_s for pair in pairs)
        above.plot([0, end_s], [0, end_s], color="black", linewidth=0.8)
        above.set(title=name, xlabel="actual wait (s)", ylabel="predicted (s)")
        above.legend()
        buckets = [bucket for bucket in summary(pairs)["buckets"] if bucket["num_predictions"]]
        below.bar([str(bucket["from"]) for bucket in buckets], [bucket["coverage_p90"] for bucket in buckets])
        below.axhline(QUANTILE, color="black", linewidth=0.8)
        below.set(xlabel="requests waiting, from", ylabel="share within the 90 % bound", ylim=(0, 1))
    figure.savefig(path, dpi=110)


def main() -> None:
    """All cases over several seeds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=6_000, help="of each simulation")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument(
        "--policy",
        choices=get_args(Policy),
        default="shepherd",
        help="groups in the order of arrival (shepherd, the default), or by lengths, where some overtake (qlm)",
    )
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.add_argument("--plot", type=Path, help="a PNG file")
    arguments = parser.parse_args()
    jobs = [(case, seed) for case in CASES for seed in range(arguments.seeds)]
    found: dict[str, list[Pair]] = {case.name: [] for case in CASES}
    for case, seed in track(jobs, "simulating", console=Console(stderr=True), disable=not sys.stderr.isatty()):
        found[case.name] += run(case, arguments.policy, arguments.requests, seed)
    results = {name: summary(pairs) for name, pairs in found.items()}
    if arguments.json:
        print(json.dumps(results, indent=2, ensure_ascii=False))
    else:
        for name, result in results.items():
            print(f"{name}: R² {result['r2']}, queues over {LONG_QUEUE}: {result['r2_long_queues']}")
            for bucket in result["buckets"]:
                print("   ", ", ".join(f"{key} {value}" for key, value in bucket.items()))
    if arguments.plot:
        plot(found, arguments.plot)


if __name__ == "__main__":
    main()
