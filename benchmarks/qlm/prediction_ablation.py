"""What each correction of predicted waits is worth (`shared.config.corrections`): each left out alone, and all but it.

Three things are asked. Accuracy: the cases of ``estimator_accuracy.py`` by the default policy, surges of 2,000.
Policies: promises kept, answers a second and times to first token of four small clusters, and what their requests
were told. Verdict: by how much a correction moves any of them at most; what moves R² by less than .005, the share of
bounds that hold by less than two points and the share of promises kept by less than .3 points everywhere does not pay.

Most corrections change what is told and nothing that is done (a test holds that): so one simulation judges all variants
that decide alike. Each is a predictor of its own, which hears the messages of the simulation, looks at the same queue
manager's state, and learns its own bounds. With one model nobody interrupts, so there even rates of arrival are only
told.

    python benchmarks/qlm/prediction_ablation.py --seeds 0,1,2 --rows prediction_ablation.rows --jobs 2 --json

Recorded live rounds (`live_record.py`) are not judged: there are none in the repository.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from random import Random
from typing import Any

from estimator_accuracy import CALM_REQUESTS, CASES, LONG_QUEUE, Pair, paired, r_squared, run_until_started, scenario
from kept_rows import KeptRows, Row
from rich.console import Console
from rich.table import Table
from runs import add_common_options, models_of, names, provenance, seed_numbers

from cli.progress_bar import progress_bar
from services.queue_manager.groups.groups import RequestGroups
from services.queue_manager.learnt.wait_intervals import WaitIntervals
from services.queue_manager.queues.virtual_queues import VirtualQueues
from services.queue_manager.waits.predictions import Predictions
from services.simulator.cluster.clients import ClientOutcome
from services.simulator.devices.catalogue import cluster_config, devices_of
from services.simulator.recording import Prediction
from services.simulator.reports.report import report
from services.simulator.simulation import Scenario, Simulation
from services.simulator.workloads.arrivals import WeightedNames
from services.simulator.workloads.paper import WORKLOADS
from shared.config.config import ClusterConfig
from shared.config.corrections import Correction, PredictionOptions
from shared.estimator.wait import NEVER, Wait
from shared.messages.message import Message
from shared.messages.requests import Cancel, Finished, Pulled, QueueStatus, Submit

EVERYTHING = frozenset(Correction)
DECIDE = frozenset({Correction.PROMPTS, Correction.CALIBRATION})
"""What nodes, queues and plans hang on; all others are only told."""
DECIDE_BETWEEN_MODELS = DECIDE | {Correction.INTERRUPTIONS, Correction.CHANGE_POINTS, Correction.LIFETIMES}
TOLD_BY_CLASSES = frozenset(
    {Correction.NEWCOMERS, Correction.CHANGE_POINTS, Correction.LIFETIMES, Correction.PLANNED_ORDER}
)
"""Of no use where nobody is more urgent than another."""
TOLD_BY_MODELS = frozenset({Correction.INTERRUPTIONS})
"""Nor this where there is one model."""
LEAST_R2, LEAST_COVERAGE, LEAST_KEPT = 0.005, 0.02, 0.003
NUM_DIGITS = 4


@dataclass(frozen=True, slots=True)
class Run:
    """One simulation."""

    label: str
    scenario: Scenario
    judged: range
    to_the_end: bool
    """So that it has a report; else until those who are judged have started."""
    judge_every: int
    """Of so many requests one is predicted, by each variant."""
    num_models: int
    num_classes: int


def accuracy_run(case: int, num_requests: int, seed: int) -> Run:
    """A case of ``estimator_accuracy.py``."""
    made = scenario(CASES[case], "qlm", num_requests, seed)
    judged = range(CALM_REQUESTS, CALM_REQUESTS + num_requests)
    return Run(CASES[case].name, made, judged, False, 10, num_models=1, num_classes=len({*CASES[case].slos}))


@dataclass(frozen=True, slots=True)
class SmallCluster:
    """A workload of the paper on few devices."""

    workload: str
    devices: Mapping[str, int]
    rate_per_s: float
    slos: WeightedNames | None = None
    """None: the workload's own."""


POLICY_RUNS = {
    "wa": SmallCluster("wa", {"a100": 1, "a10": 1}, 20.0),
    "wb": SmallCluster("wb", {"a100": 2}, 4.0),
    "wb urgent": SmallCluster("wb", {"a100": 2}, 4.0, WeightedNames({"interactive": 1, "batch-1": 2})),
    "wc": SmallCluster("wc", {"a100": 1, "a10": 1}, 17.0),
}
"""In the third, somebody cannot wait for the turn of the own model: what some corrections are about."""


def policy_run(name: str, num_requests: int, seed: int) -> Run:
    """A small cluster. A run ends, which nobody foresees: waits of the first half are judged."""
    chosen = POLICY_RUNS[name]
    random = Random(seed)
    requests = WORKLOADS[chosen.workload].draw(chosen.rate_per_s, num_requests, random, slos=chosen.slos)
    models = models_of(requests)
    devices = devices_of(chosen.devices, models)
    made = Scenario(cluster_config(list(devices), models, ClusterConfig().queue), devices, requests)
    return Run(name, made, range(num_requests // 2), True, 2, len(models), len({one.slo for one in requests}))


RUNS = {
    **{f"accuracy {number}": partial(accuracy_run, number) for number in range(len(CASES))},
    **{f"policies {name}": partial(policy_run, name) for name in POLICY_RUNS},
}


# --- variants ---------------------------------------------------------------------------------------------------------


def variants() -> dict[str, frozenset[Correction]]:
    """By name, the corrections that are left out."""
    return {
        "all": frozenset(),
        **{f"without {one}": frozenset({one}) for one in Correction},
        "none": EVERYTHING,
        **{f"only {one}": EVERYTHING - {one} for one in Correction},
    }


def deciding_alike(run: Run, chosen: Sequence[str]) -> dict[frozenset[Correction], list[str]]:
    """By what the simulation is to be without, the variants that it judges."""
    deciding = DECIDE_BETWEEN_MODELS if run.num_models > 1 else DECIDE
    alike: dict[frozenset[Correction], list[str]] = {}
    for name in chosen:
        alike.setdefault(variants()[name] & deciding, []).append(name)
    return alike


def matters(run: Run, without: frozenset[Correction]) -> frozenset[Correction]:
    """Of these, the ones that make a difference in such a run: variants that are alike are predicted once."""
    idle: frozenset[Correction] = frozenset()
    if run.num_models == 1:
        idle |= TOLD_BY_MODELS
    if run.num_models == run.num_classes == 1:
        idle |= TOLD_BY_CLASSES
    return without - idle


@dataclass(frozen=True, slots=True)
class Place:
    """A request that waited already, and for how much longer it was expected to."""

    number: int
    time_s: float
    wait_s: float


class Bounds(WaitIntervals):
    """Those of a predictor; they keep what they are to be judged by."""

    def __init__(self, *, is_on: bool) -> None:
        super().__init__({}, {}, is_on=is_on)
        self.places: list[Place] = []

    def watch(self, request_id: str, model: str, slo_kind: str, wait: Wait, now: float) -> None:
        """One of those that wait."""
        if wait != NEVER:
            self.places.append(Place(int(request_id), now, wait.mean_s))
        super().watch(request_id, model, slo_kind, wait, now)


class Predictor:
    """Predicts with some corrections in a simulation that may have others: it looks at its queue manager's state."""

    def __init__(self, simulation: Simulation, run: Run, without: frozenset[Correction]) -> None:
        self._config = _with(run.scenario.config, without)
        self._judge_every = run.judge_every
        self._state = simulation.queue_manager.state
        is_learnt = Correction.LEARNT_BOUNDS in self._config.queue.corrections
        self.bounds = Bounds(is_on=is_learnt)
        self.found: list[Prediction] = []

    def __call__(self, now: float, stream: str, message: Message) -> None:
        """A message is sent."""
        del stream
        match message:
            case Submit() if message.attempt == 0 and int(message.request_id) % self._judge_every == 0:
                prospect = self._predictions().of_newcomer(message, now)
                if prospect is not None and prospect.is_learnt:
                    wait = prospect.first_token
                    self.found.append(Prediction(int(message.request_id), wait.mean_s, wait.quantile(0.9)))
            case QueueStatus() if self._state.anybody_waits:
                self._watch(now)
            case Pulled():
                self.bounds.hear([one.request_id for one in message.requests], [], now)
            case Finished() | Cancel():
                self._hear_ended(message, now)

    def _predictions(self) -> Predictions:
        """Made anew, since the rooms that it asks keep what has not changed by what they have heard."""
        queue = self._config.queue
        groups = RequestGroups(self._state, queue, self._config.tenants)
        predictions = Predictions(self._state, groups, VirtualQueues(self._state, groups, queue), queue)
        predictions.bounds = self.bounds
        return predictions

    def _watch(self, now: float) -> None:
        """As `services.queue_manager.telling.status` does."""
        self.bounds.look(now)
        names = list(self._state.waiting_at)
        if names:
            node = self._state.nodes[names[self._state.status.num_told % len(names)]]
            self._predictions().watch(node, now)

    def _hear_ended(self, message: Finished | Cancel, now: float) -> None:
        ended = [message.request_id] if isinstance(message, Cancel) else [one.request_id for one in message.requests]
        self.bounds.hear([], ended, now)


def _with(config: ClusterConfig, without: frozenset[Correction]) -> ClusterConfig:
    predictions = PredictionOptions(without=tuple(one for one in Correction if one in without))
    return config.model_copy(update={"queue": config.queue.model_copy(update={"predictions": predictions})})


# --- measuring --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Job:
    """One simulation, and the variants that it judges."""

    run: str
    num_requests: int
    seed: int
    without: frozenset[Correction]
    """Of the simulation itself."""
    chosen: tuple[str, ...]

    @property
    def question(self) -> str:
        """Names all that is simulated."""
        return f"{self.run}, {self.num_requests} requests, seed {self.seed}: {', '.join(self.chosen)}"


def jobs(runs: Sequence[str], chosen: Sequence[str], sizes: dict[str, int], seeds: Sequence[int]) -> Iterator[Job]:
    """All simulations, seed by seed."""
    for seed in seeds:
        for run in runs:
            size = sizes[run.split()[0]]
            for without, alike in deciding_alike(RUNS[run](size, seed), chosen).items():
                yield Job(run, size, seed, without, tuple(alike))


def measure(job: Job) -> Row:
    """A row for each variant."""
    run = RUNS[job.run](job.num_requests, job.seed)
    config = _with(run.scenario.config, job.without)
    simulation = Simulation(replace(run.scenario, config=config, max_predictions=0))
    predictors: dict[frozenset[Correction], Predictor] = {}
    for name in job.chosen:
        without = matters(run, variants()[name])
        if without not in predictors:
            predictors[without] = Predictor(simulation, run, without)
            simulation.listen(predictors[without])
    done: Row = {}
    if run.to_the_end:
        simulation.run_until(lambda: False)
        found = report(simulation.end())
        done = {"kept": found["slo_attainment"], "answers_per_s": found["throughput_rps"]}
        done["ttft_p99_s"] = found["ttft_p99_s"]
    else:
        run_until_started(simulation, run.judged)
    return {
        "rows": [
            {"run": job.run, "label": run.label, "seed": job.seed, "variant": name}
            | done
            | told(paired(predictors[matters(run, variants()[name])].found, simulation.outcomes, run.judged))
            | {"r2_places": r2_of_places(predictors[matters(run, variants()[name])].bounds.places, simulation.outcomes)}
            for name in job.chosen
        ]
    }


def told(pairs: Sequence[Pair]) -> Row:
    """How well waits were predicted. Ratios are of those behind long queues, or of all where there are none."""
    long = [pair for pair in pairs if pair.num_waiting > LONG_QUEUE]
    ratios = [pair.predicted_s / pair.actual_s for pair in long or pairs]
    within = [pair.actual_s <= pair.bound_s for pair in pairs]
    return {
        "num_predictions": len(pairs),
        "r2": round(r_squared(pairs), NUM_DIGITS) if len(pairs) > 1 else None,
        "r2_over_100": round(r_squared(long), NUM_DIGITS) if len(long) > 1 else None,
        "coverage_p90": round(statistics.mean(within), NUM_DIGITS) if within else None,
        "median_ratio": round(statistics.median(ratios), NUM_DIGITS) if ratios else None,
    }


def r2_of_places(places: Sequence[Place], outcomes: Sequence[ClientOutcome]) -> float | None:
    """How well those were told who waited already: until each was pulled."""
    pairs = [
        Pair(0, place.wait_s, 0.0, started_s - place.time_s)
        for place in places
        if (started_s := outcomes[place.number].started_s) is not None
    ]
    return round(r_squared(pairs), NUM_DIGITS) if len(pairs) > 1 else None


# --- what pays --------------------------------------------------------------------------------------------------------


def effects(rows: Sequence[Row]) -> dict[str, dict[str, Row]]:
    """By correction and run, by how much a figure is higher with it than without: the mean over seeds, and all of them.

    R² is that over 100 waiting, where a run has any, else that of all waits; and that of places (`r2_of_places`).
    """
    by_key = {(row["variant"], row["run"], row["seed"]): row for row in rows}
    found: dict[str, dict[str, Row]] = {}
    for one in Correction:
        for run in dict.fromkeys(row["run"] for row in rows):
            seeds = sorted({row["seed"] for row in rows if row["run"] == run and row["variant"] == f"without {one}"})
            pairs = [(by_key["all", run, seed], by_key[f"without {one}", run, seed]) for seed in seeds]
            if pairs:
                found.setdefault(one.value, {})[run] = {
                    name: _difference([(_figure(on, name), _figure(off, name)) for on, off in pairs])
                    for name in ("r2_over_100", "r2_places", "coverage_p90", "kept", "answers_per_s", "ttft_p99_s")
                }
    return found


def _figure(row: Row, name: str) -> float | None:
    value: float | None = row.get(name)
    return row["r2"] if name == "r2_over_100" and value is None else value


def _difference(pairs: Sequence[tuple[float | None, float | None]]) -> Row | None:
    differences = [on - off for on, off in pairs if on is not None and off is not None]
    if not differences:
        return None
    return {
        "mean": round(statistics.mean(differences), NUM_DIGITS),
        "seeds": [round(one, NUM_DIGITS) for one in differences],
    }


def pays(of_runs: dict[str, Row]) -> bool:
    """Whether it moves anything, in any run."""
    least = {"r2_over_100": LEAST_R2, "r2_places": LEAST_R2, "coverage_p90": LEAST_COVERAGE, "kept": LEAST_KEPT}
    return any(
        figures[name] is not None and abs(figures[name]["mean"]) >= bound
        for figures in of_runs.values()
        for name, bound in least.items()
    )


def table_of(rows: Sequence[Row]) -> Table:
    """A line a variant and run, over the seeds."""
    table = Table(
        "run", "variant", "R² over 100", "R²", "R² of places", "bound", "ratio", "kept", "answers/s", "TTFT p99"
    )
    keys = dict.fromkeys((row["label"], row["variant"]) for row in rows)
    for label, variant in keys:
        alike = [row for row in rows if (row["label"], row["variant"]) == (label, variant)]
        figures = (
            "r2_over_100",
            "r2",
            "r2_places",
            "coverage_p90",
            "median_ratio",
            "kept",
            "answers_per_s",
            "ttft_p99_s",
        )
        table.add_row(label, variant, *(_mean(alike, name) for name in figures))
    return table


def _mean(rows: Sequence[Row], name: str) -> str:
    known = [row[name] for row in rows if row.get(name) is not None]
    return f"{statistics.mean(known):.3f}" if known else "–"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=partial(names, known=list(RUNS)), default=list(RUNS), help=", ".join(RUNS))
    parser.add_argument(
        "--variants", type=partial(names, known=list(variants())), default=list(variants()), help="such as all,none"
    )
    parser.add_argument("--requests", type=int, default=2_000, help="of a surge (default 2000)")
    parser.add_argument("--policy-requests", type=int, default=800, help="of a cluster (default 800)")
    parser.add_argument("--seeds", type=seed_numbers, default=[0, 1, 2], help="default 0,1,2")
    parser.add_argument("--jobs", type=int, default=1, help="simulations at a time, each a process")
    add_common_options(parser)
    args = parser.parse_args()
    sizes = {"accuracy": args.requests, "policies": args.policy_requests}
    rows = measured(
        list(jobs(args.runs, args.variants, sizes, args.seeds)), KeptRows.of_this_code(args.rows), args.jobs
    )
    found = effects(rows) if "all" in args.variants else {}
    result: dict[str, Any] = {
        "rows": rows,
        "effects": found,
        "pays": {name: pays(of_runs) for name, of_runs in found.items()},
    }
    if args.json:
        print(json.dumps(provenance(args.seeds) | result))
    else:
        Console().print(table_of(rows))
        Console().print({name: "pays" if it_does else "does not pay" for name, it_does in result["pays"].items()})


def measured(todo: Sequence[Job], kept: KeptRows, num_jobs: int) -> list[Row]:
    """Rows that are kept, and the others as they come."""
    rows: list[Row] = []
    with progress_bar("simulations", len(todo)) as show, ProcessPoolExecutor(num_jobs) as pool:
        asked = {job.question: pool.submit(measure, job) for job in todo if not kept.has(job.question)}
        for number, job in enumerate(todo, start=1):
            rows += kept.measured(job.question, partial(_result, asked, job.question))["rows"]
            show(number)
    return rows


def _result(asked: Mapping[str, Future[Row]], question: str) -> Row:
    return asked[question].result()


if __name__ == "__main__":
    main()
