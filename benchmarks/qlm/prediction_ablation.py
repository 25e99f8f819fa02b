"""What each correction of predicted waits is worth (`shared.config.services.corrections`): each left out alone, and all
but it.

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
from typing import Any

from ablation_runs import RUNS
from correction_effects import effects, pays, table_of
from correction_variants import deciding_alike, matters, variants
from estimator_accuracy import LONG_QUEUE, Pair, paired, r_squared, run_until_started
from kept_rows import KeptRows, Row
from listening_predictor import Place, Predictor, with_corrections
from rich.console import Console
from runs import add_common_options, names, provenance, seed_numbers

from cli.progress_bar import progress_bar
from services.simulator.cluster.clients import ClientOutcome
from services.simulator.reports.report import report
from services.simulator.simulation import Simulation
from shared.config.services.corrections import Correction

NUM_DIGITS = 4


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
    config = with_corrections(run.scenario.config, job.without)
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
