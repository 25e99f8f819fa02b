"""How well could anybody predict? The bound of what `estimator_accuracy` measures (QLM, SoCC'24, §8).

How long answers will be that have not ended, and who will come, nobody can know: this bounds R² of predicted waits, and
one run shows only one of the ways in which it may go on. Here a simulation stops at checkpoints, arrivals of judged
requests, and its process forks. Each child draws anew what is unknown: the lengths of answers, of those that run given
how far they have come, and all requests that come later, from the same generator. Then it goes on until the request of
the checkpoint has its first token. So the waits of the children are draws from the true distribution given the present.

From them follow, by the law of total variance,

* the noise, the mean variance of a wait given the present, and with it the most that R² can be: 1 - noise / total;
* the bias, the mean square of prediction - true mean; that of prediction - mean of n children has noise / n more;
* R² of our predictions without the chance of a single run: 1 - (noise + bias) / total;
* how often the predicted 90 % bound holds: the share of all children's waits that are within it.

The present is all that the simulation knows, such as how far each answer has come on the device: the ceiling is that of
a predictor who sees everything and knows the generator. Checkpoints of one run share their past, so noise is known
better than bias; squares estimated from few children may come out below 0.

    python benchmarks/qlm/estimator_ceiling.py --policy qlm --case 0 --checkpoints 16 --children 4 --json
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from random import Random
from typing import Any, get_args

from estimator_accuracy import CALM_REQUESTS, CASES, LONG_QUEUE, Case, Policy, drawn_requests, scenario
from rich.console import Console
from rich.progress import track

from services.simulator.recording import Prediction
from services.simulator.simulation import Scenario, Simulation
from services.simulator.workloads.arrivals import poisson
from services.simulator.workloads.lengths import draw_answer

NUM_DIGITS = 4


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A request's wait as it was predicted, and as it came to be in each of the ways in which the run went on."""

    number: int
    num_waiting: int
    """Requests before it, when it came."""
    predicted_s: float
    bound_s: float
    """The time that it was not to exceed with a probability of 90 %."""
    waits_s: Sequence[float]


@dataclass(frozen=True, slots=True)
class Study:
    """What is asked of each case."""

    policy: Policy
    num_requests: int
    """That are judged."""
    num_checkpoints: int
    num_children: int
    num_seeds: int


def _is_predicted(predictions: Sequence[Prediction], due: int) -> bool:
    return bool(predictions) and predictions[-1].number >= due


def checkpoints(case: Case, study: Study, seed: int) -> Iterator[Checkpoint]:
    """Of one simulation, as evenly among the judged requests as waits are predicted."""
    made = scenario(case, study.policy, study.num_requests, seed)
    simulation = Simulation(made)
    predictions = simulation.recording.predictions
    last = -1
    for place in range(study.num_checkpoints):
        due = max(CALM_REQUESTS + place * study.num_requests // study.num_checkpoints, last + 1)
        if not simulation.run_until(partial(_is_predicted, predictions, due)):
            raise SystemExit(f"no wait was predicted behind request {due}: take more --requests or fewer --checkpoints")
        prediction = predictions[-1]
        last = prediction.number
        num_waiting = sum(outcome.started_s is None for outcome in simulation.outcomes) - 1
        randoms = [Random(f"{case.name} {seed} {last} {child}") for child in range(study.num_children)]
        waits_s = [in_a_copy(partial(drawn_wait_s, case, made, simulation, random)) for random in randoms]
        known_s = [wait_s for wait_s in waits_s if wait_s is not None]
        yield Checkpoint(last, num_waiting, prediction.wait_s, prediction.wait_p90_s, known_s)


def drawn_wait_s(case: Case, made: Scenario, simulation: Simulation, random: Random) -> float | None:
    """Of the request that came last, if what nobody knows is drawn anew; None where its client gives up before."""
    outcomes = simulation.outcomes
    answer_tokens = {
        number: draw_answer(random, outcomes[number].request.prompt_tokens, num_drawn + 1)
        for number, num_drawn in simulation.num_drawn_tokens().items()
    }
    newest = outcomes[-1]
    times_s = poisson(case.rate_per_s, len(made.requests) - len(outcomes), random)
    later = drawn_requests(case, (newest.request.arrival_s + time_s for time_s in times_s), random)
    simulation.redraw(answer_tokens, later)
    simulation.run_until(lambda: newest.first_token_s is not None or bool(newest.reason))
    return None if newest.first_token_s is None else newest.first_token_s - newest.sent_s


def in_a_copy(work: Callable[[], Any]) -> Any:
    """What ``work`` returns, as JSON, in a copy of this process: what it changes is changed there only."""
    reader, writer = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    process = os.fork()
    if process == 0:
        status = 1
        try:
            os.close(reader)
            with os.fdopen(writer, "w") as pipe:
                json.dump(work(), pipe)
            status = 0
        except BaseException:  # told here, because nothing of the child may run on in the parent's frames
            traceback.print_exc()
            sys.stderr.flush()
        finally:
            os._exit(status)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        text = pipe.read()
    _, status = os.waitpid(process, 0)
    if status:
        raise RuntimeError("a child has failed; what it said of it is above")
    return json.loads(text)


def summary(found: Sequence[Checkpoint]) -> dict[str, Any]:
    """Over all checkpoints, and over those with long queues."""
    return {
        "all": ceiling(found),
        "long_queues": ceiling([one for one in found if one.num_waiting > LONG_QUEUE]),
    }


def ceiling(found: Sequence[Checkpoint]) -> dict[str, Any] | None:
    """Squares in s²; None where there are not two checkpoints with two waits each, which is the least to compare."""
    judged = [one for one in found if len(one.waits_s) > 1]
    if len(judged) < 2:
        return None
    noise = statistics.mean(statistics.variance(one.waits_s) for one in judged)
    waits_s = [wait_s for one in judged for wait_s in one.waits_s]
    total = statistics.pvariance(waits_s)
    errors_s = [one.predicted_s - statistics.mean(one.waits_s) for one in judged]
    bias = statistics.mean(
        error_s**2 - statistics.variance(one.waits_s) / len(one.waits_s)
        for error_s, one in zip(errors_s, judged, strict=True)
    )
    within = [wait_s <= one.bound_s for one in judged for wait_s in one.waits_s]
    return {
        "num_checkpoints": len(judged),
        "num_waits": len(waits_s),
        "mean_wait_s": round(statistics.mean(waits_s), NUM_DIGITS),
        "mean_error_s": round(statistics.mean(errors_s), NUM_DIGITS),
        "total": round(total, NUM_DIGITS),
        "noise": round(noise, NUM_DIGITS),
        "bias": round(bias, NUM_DIGITS),
        "r2_ceiling": round(1 - noise / total, NUM_DIGITS),
        "r2": round(1 - (noise + bias) / total, NUM_DIGITS),
        "coverage_p90": round(statistics.mean(within), NUM_DIGITS),
    }


def main() -> None:
    """The cases that are asked for, over several seeds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--policy", choices=get_args(Policy), default="qlm", help="as in estimator_accuracy")
    cases = ", ".join(f"{number}: {case.name}" for number, case in enumerate(CASES)).replace("%", "%%")
    parser.add_argument(
        "--case", type=int, choices=range(len(CASES)), action="append", help=f"may come again; all by default; {cases}"
    )
    parser.add_argument("--requests", type=int, default=2_000, help="that are judged, of each simulation")
    parser.add_argument("--checkpoints", type=int, default=24, help="of each simulation")
    parser.add_argument("--children", type=int, default=6, help="of each checkpoint; at least 2")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="one JSON object, with every checkpoint")
    arguments = parser.parse_args()
    if arguments.children < 2 or not 2 <= arguments.checkpoints <= arguments.requests:
        parser.error("a variance needs --children 2 and --checkpoints 2 at least, and a request for each checkpoint")
    study = Study(
        arguments.policy, arguments.requests, arguments.checkpoints, arguments.children, num_seeds=arguments.seeds
    )
    results = {}
    for number in arguments.case or range(len(CASES)):
        found = run(CASES[number], study)
        results[CASES[number].name] = {**summary(found), "checkpoints": [asdict(one) for one in found]}
    if arguments.json:
        print(json.dumps(results, indent=2, ensure_ascii=False))
        return
    for name, result in results.items():
        print(name)
        for kind in ("all", "long_queues"):
            print(f"    {kind}:", ", ".join(f"{key} {value}" for key, value in (result[kind] or {}).items()))


def run(case: Case, study: Study) -> list[Checkpoint]:
    """All seeds."""
    found: list[Checkpoint] = []
    for seed in range(study.num_seeds):
        found += track(
            checkpoints(case, study, seed),
            f"{case.name}, seed {seed}",
            total=study.num_checkpoints,
            console=Console(stderr=True),
            disable=not sys.stderr.isatty(),
            auto_refresh=False,  # by a thread, of which a child would have what it holds
        )
    return found


if __name__ == "__main__":
    main()
