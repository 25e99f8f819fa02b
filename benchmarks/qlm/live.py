"""QLM beside EDF and FCFS on real nodes: the same trace, two CPU nodes, two models, interactive and batch requests.

Interactive requests keep coming, from before the batch until all of it is done. For each policy a cluster of its own is
started and the trace is played against its gateway. Judged where the clients are: promises kept by class, total time,
latency; and how well the waits were predicted that clients were told. Then the simulator replays the trace of each qlm
round with the answers' lengths and what this machine's steps cost in each *other* round, and its decisions and times
are compared with the live ones (`fidelity.py`; nothing with one round). ``--record FOLDER`` keeps each run.

    python benchmarks/qlm/live.py --json
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from fidelity import compared
from live_client import Seen, play
from live_cluster import MODELS, running, two_nodes
from live_record import Recording
from live_trace import BATCH, INTERACTIVE, LiveRequest, live_trace
from rich.console import Console
from rich.progress import Progress

from gateway.inflight.timeline import Timeline
from gpu_node.engine.process.step_file import STEP_LOG_ENV
from shared.config.config import ClusterConfig
from shared.messages.requests.slo import Slo

POLICIES = ("qlm", "edf", "fcfs")
WARM_UP_BATCH = 144  # each question twice: a length is learnt for each model and class
WARM_UP_SEED = 99
MIN_QUEUE = 30  # waits are judged that were predicted behind more requests than this


def main() -> None:
    """Parse, play, compare, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--policies", default=",".join(POLICIES))
    parser.add_argument("--models", type=int, choices=(1, 2), default=2, help="that are asked for; both nodes have two")
    parser.add_argument("--batch", type=int, default=100, help="batch requests, all at once")
    parser.add_argument("--rate", type=float, default=1.0, help="interactive requests a second")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=1, help="times that each policy is run, in turn")
    parser.add_argument("--record", type=Path, metavar="FOLDER", help="keep what happened there, a folder a run")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of lines for people")
    options = parser.parse_args()
    models = MODELS[: options.models]
    trace = partial(live_trace, models, options.batch, options.rate, options.seed)
    warm_up = partial(live_trace, models, WARM_UP_BATCH, options.rate, WARM_UP_SEED)
    policies = options.policies.split(",")
    runs: dict[str, list[dict[str, Any]]] = {policy: [] for policy in policies}
    rounds: dict[str, Recording] = {}
    console = Console(stderr=True)
    with Progress(console=console) as progress:
        for round_number in range(options.rounds):
            for policy in policies:
                task = progress.add_task(f"{policy}, round {round_number + 1}", total=options.batch)
                recording = run(policy, warm_up(), trace(), partial(progress.advance, task))
                name = f"{policy}-{round_number + 1}"
                if options.record:
                    recording.save(options.record / name)
                runs[policy].append(summary(recording))
                if policy == "qlm":
                    rounds[name] = recording
    result = {"policies": runs, "fidelity": compared(rounds)}
    json.dump(result, sys.stdout, indent=None if options.json else 2)
    sys.stdout.write("\n")


def run(
    policy: str, warm_up: Iterator[LiveRequest], trace: Iterator[LiveRequest], advance: Callable[[], None]
) -> Recording:
    """Play the trace on a fresh cluster, behind some requests of each kind: nodes have models then, and lengths, rates
    and step costs have been learnt, as in a cluster that has been up for a minute. (Lengths spread so much that the
    mean of twenty answers errs by an eighth, and with it whatever is predicted.)
    """
    config = two_nodes(policy)
    recording = Recording(config)
    with TemporaryDirectory(prefix="treadle-steps-") as steps:
        with running(config, {STEP_LOG_ENV: steps}) as cluster, recording.listening(cluster.redis_url):
            recording.warm_up, recording.trace = asyncio.run(play(cluster.url, warm_up, trace, advance))
        recording.read_steps(Path(steps))
    return recording


def summary(recording: Recording) -> dict[str, Any]:
    """What the clients of one run saw."""
    seen = recording.trace.seen
    classes = sorted({one.request.slo for one in seen})
    config = ClusterConfig.model_validate(recording.config)
    done = [one for one in seen if not one.refused]
    kept = {name: [is_kept(one, config.slo(name)) for one in seen if one.request.slo == name] for name in classes}
    waits = [wait for one in done for wait in _judged_waits(one)]
    return {
        "slo_attainment": {
            "all": statistics.mean(one for each in kept.values() for one in each),
            **{k: statistics.mean(v) for k, v in kept.items()},
        },
        "num_interactive": len(kept[INTERACTIVE]),
        "makespan_s": max(one.finished_s or 0.0 for one in done if one.request.slo == BATCH),
        "output_tok_s": sum(one.output_tokens for one in done) / max(one.finished_s or 0.0 for one in done),
        "latency_mean_s": {
            name: statistics.mean(one.latency_s for one in done if one.request.slo == name) for name in classes
        },
        "refused": [one.refused for one in seen if one.refused],
        "evicted": recording.num_evicted,
        "num_predictions": len(waits),
        "start_error_median": statistics.median(abs(told - true) / true for told, true in waits) if waits else None,
        "start_error_median_s": statistics.median(told - true for told, true in waits) if waits else None,
    }


def is_kept(one: Seen, slo: Slo) -> bool:
    """Whether the promise was kept where the client is: by the gateway's own rule. Refused is not kept."""
    if one.refused or one.first_token_s is None or one.finished_s is None:
        return False
    timeline = Timeline(one.sent_s)
    timeline.add(1, one.first_token_s)
    timeline.add(one.output_tokens - 1, one.finished_s)
    return timeline.keeps(slo)


def _judged_waits(one: Seen) -> list[tuple[float, float]]:
    """Predicted and true seconds until the first token, each time that they were told behind a queue long enough."""
    told = [place for place in one.places if place.num_ahead > MIN_QUEUE and place.wait_s is not None]
    return [(place.wait_s or 0.0, (one.first_token_s or 0.0) - place.told_s) for place in told]


if __name__ == "__main__":
    main()
