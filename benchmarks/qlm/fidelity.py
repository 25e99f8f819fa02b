"""The simulator beside reality: recorded rounds predicted from each other, their decisions compared one by one.

What the simulator knows of the machine comes from **another** round than the one that it replays: the simulated nodes
have the step costs that the learner makes of the other round's steps, as they are; models load as fast as they did
there, and plans take as long as they took there. What the clients did is given: requests stand in the queue when they
stood there (the simulator has no gateways of its own) with the prompts that they had, which begin alike, and answers
are as long as they were; those of the warm-up too. Everything else is decided by the same cores.

Equal nodes may have changed their names between a round and its replay, so `same_node` is the share under the better of
all namings. That cannot be small: of two nodes it is half at least, whatever the simulator does. Its ``floor`` stands
beside it.

    python benchmarks/qlm/live.py --policies qlm --rounds 2 --record FOLDER              # needs a quiet machine
    python benchmarks/qlm/fidelity.py --recorded FOLDER/qlm-1 FOLDER/qlm-2 --json        # does not
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import permutations
from pathlib import Path
from typing import Any

from live_client import Played, Seen
from live_devices import live_devices, step_costs, step_totals
from live_record import Recording
from live_trace import BATCH

from gpu_node.executors.predicted.executor import AnswerTokens
from services.simulator.cluster.cluster import SMALL_PROBLEM_S, SimulatedCluster
from shared.config.config import ClusterConfig
from shared.messages.message import Message
from shared.messages.nodes.placement import PlacementProblem
from shared.messages.requests.payload import Sampling
from shared.messages.requests.requests import Pulled

BEGIN_S = 10.0  # of virtual time: nodes are there
STEP_S = 1.0
MAX_VIRTUAL_S = 3600.0
MAX_NAMED = 5  # nodes whose namings are all tried


def main() -> None:
    """Parse, replay, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recorded", type=Path, nargs="+", required=True, metavar="FOLDER", help="two rounds or more")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of lines for people")
    options = parser.parse_args()
    if len(options.recorded) < 2:
        parser.error("a round is predicted from another one: name two recorded folders or more")
    rounds = {folder.name: Recording.load(folder) for folder in options.recorded}
    json.dump(compared(rounds), sys.stdout, indent=None if options.json else 2)
    sys.stdout.write("\n")


def compared(rounds: Mapping[str, Recording]) -> list[dict[str, Any]]:
    """Every round by what each other one has taught; nothing where there is one only."""
    return [
        {"learnt_from": learnt, "replayed": replayed, **compare(rounds[learnt], rounds[replayed])}
        for learnt, replayed in permutations(rounds, 2)
    ]


def compare(learnt: Recording, recording: Recording) -> dict[str, Any]:
    """Makespan of the batch, mean latency and start of each request, live and simulated with what ``learnt`` taught.

    Raises `ValueError` where the two are of different nodes.
    """
    answered = [one for one in recording.trace.seen if not one.refused]
    simulated = Replay(learnt, recording)
    simulated.run()
    ids = {one.request_id: one.request.number for one in answered}
    live_nodes: dict[int, str] = {}
    for start in recording.starts:
        if start.request_id in ids:
            live_nodes.setdefault(ids[start.request_id], start.node)
    live_latency_s = {one.request.number: one.latency_s for one in answered}
    live_start_s = {one.request.number: one.first_token_s or 0.0 for one in answered}
    totals = step_totals(recording, step_costs(learnt))
    return {
        "steps_s": _ratio(totals.taken_s, totals.predicted_s),
        "makespan_s": _ratio(makespan_s(answered, live_latency_s), makespan_s(answered, simulated.latency_s)),
        "latency_mean_s": _ratio(
            statistics.mean(live_latency_s.values()),
            statistics.mean(simulated.latency_s[number] for number in live_latency_s),
        ),
        "same_node": same_node(live_nodes, simulated.nodes, _node_names(recording)),
        "start_order_tau": start_order_tau(live_start_s, simulated.start_s),
        "start_difference_median_s": statistics.median(
            abs(live_start_s[number] - simulated.start_s[number]) for number in live_start_s
        ),
    }


def makespan_s(answered: Sequence[Seen], latency_s: Mapping[int, float]) -> float:
    """Until the last batch answer is complete; when the last interactive request came is part of the trace."""
    return max(one.sent_s + latency_s[one.request.number] for one in answered if one.request.slo == BATCH)


def same_node(live: Mapping[int, str], simulated: Mapping[int, str], names: Sequence[str]) -> dict[str, float]:
    """Share of requests that began on the same node, under that naming of equal nodes which makes most of them agree.

    ``floor``: what the best of all namings comes to at least. Over all of them a request is on the same node once in as
    many as there are nodes, and the best is not below the mean.
    """
    if len(names) > MAX_NAMED:
        raise ValueError(f"{len(names)} nodes have too many namings to try: {MAX_NAMED} at most")
    shares = [
        statistics.mean(naming[simulated[number]] == node for number, node in live.items())
        for naming in (dict(zip(names, named, strict=True)) for named in permutations(names))
    ]
    return {"share": max(shares), "floor": 1 / len(names)}


def start_order_tau(live: Mapping[int, float], simulated: Mapping[int, float]) -> float | None:
    """Kendall's rank correlation of the order of starts, ties left out; None where there is no pair to compare."""
    numbers = list(live)
    agree = [
        (live[one] - live[other]) * (simulated[one] - simulated[other]) > 0
        for place, one in enumerate(numbers)
        for other in numbers[:place]
        if live[one] != live[other] and simulated[one] != simulated[other]
    ]
    return 2 * statistics.mean(agree) - 1 if agree else None


def _ratio(live: float, simulated: float) -> dict[str, float]:
    return {"live": live, "simulated": simulated, "ratio": simulated / live}


def _node_names(recording: Recording) -> list[str]:
    return [str(node["name"]) for node in recording.config["nodes"]]


class Replay:
    """One simulated run of a recorded trace, behind its warm-up, on what another round has taught."""

    def __init__(self, learnt: Recording, recording: Recording) -> None:
        """Raises `ValueError` where the two are of different nodes."""
        if _node_names(learnt) != _node_names(recording):
            raise ValueError(f"rounds of different nodes: {_node_names(learnt)} and {_node_names(recording)}")
        self.nodes: dict[int, str] = {}
        """Who took each request first."""
        self._config = ClusterConfig.model_validate(recording.config)
        self._warm_up = recording.warm_up
        self._trace = recording.trace
        self._queued_s = recording.queued_s
        self._prompts = recording.prompts
        self._token_ids: dict[int, int] = {}
        """Simulated models know few tokens: by the real token, what stands for it."""
        self._trace_s = BEGIN_S + recording.trace.began_s - recording.warm_up.began_s
        self._seen = [one for one in recording.trace.seen if not one.refused]
        lengths = {_seed(one, is_warm_up=False): one.output_tokens for one in recording.trace.seen}
        lengths |= {_seed(one, is_warm_up=True): one.output_tokens for one in recording.warm_up.seen}
        answer_tokens: AnswerTokens = lambda sampling: lengths[sampling.seed]  # noqa: E731
        plans = learnt.plans
        self._cluster = SimulatedCluster(
            self._config,
            live_devices(learnt),
            answer_tokens=answer_tokens,
            solve_s=lambda problem: _solve_s(plans, problem),
        )
        self._cluster.bus.listen(self._note)

    def run(self) -> None:
        """Until every answer is complete."""
        bus, gateway = self._cluster.bus, self._cluster.gateway
        self._schedule(self._warm_up, BEGIN_S, is_warm_up=True)
        last_s = self._schedule(self._trace, self._trace_s, is_warm_up=False)
        bus.run_until(last_s)
        while gateway.unfinished and bus.now < MAX_VIRTUAL_S:
            bus.run_until(bus.now + STEP_S)
        assert not gateway.unfinished, "the trace ends"

    def _schedule(self, played: Played, began_s: float, *, is_warm_up: bool) -> float:
        """When the last of these is in the queue."""
        last_s = began_s
        for one in played.seen:
            if not one.refused:
                queued_s = began_s + self._queued_s[one.request_id] - played.began_s
                self._cluster.bus.at(queued_s, partial(self._submit, one, is_warm_up=is_warm_up))
                last_s = max(last_s, queued_s)
        return last_s

    def _submit(self, one: Seen, *, is_warm_up: bool) -> None:
        request, seed = one.request, _seed(one, is_warm_up=is_warm_up)
        prompt = [self._token_ids.setdefault(token, len(self._token_ids)) for token in self._prompts[one.request_id]]
        sampling = Sampling(max_tokens=request.max_tokens, seed=seed)
        self._cluster.gateway.submit(str(seed), request.model, self._config.slo(request.slo), prompt, sampling)

    def _note(self, time_s: float, stream: str, message: Message) -> None:
        del time_s, stream
        if isinstance(message, Pulled):
            for one in message.requests:
                self.nodes.setdefault(int(one.request_id), message.node)

    @property
    def start_s(self) -> dict[int, float]:
        """First token of each request, in seconds after the trace began."""
        answers = self._cluster.gateway.answers
        return {one.request.number: self._after(answers[str(one.request.number)].first_token_s) for one in self._seen}

    @property
    def latency_s(self) -> dict[int, float]:
        """Of each request."""
        answers = self._cluster.gateway.answers
        return {
            one.request.number: self._after(answers[str(one.request.number)].finished_s) - one.sent_s
            for one in self._seen
        }

    def _after(self, time_s: float | None) -> float:
        assert time_s is not None
        return time_s - self._trace_s


def _solve_s(plans: Sequence[tuple[int, float]], problem: PlacementProblem) -> float:
    """As long as the live plan took whose number of groups was nearest; where none was asked for, next to nothing."""
    nearest = min(plans, key=lambda plan: abs(plan[0] - len(problem.groups)), default=(0, SMALL_PROBLEM_S))
    return nearest[1]


def _seed(one: Seen, *, is_warm_up: bool) -> int:
    """Tells requests apart, and their answers."""
    return -1 - one.request.number if is_warm_up else one.request.number


if __name__ == "__main__":
    main()
