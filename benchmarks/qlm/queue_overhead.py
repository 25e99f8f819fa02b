"""What a request costs in the queue manager, by the length of the queue: time of a decision, memory, time of a plan.

A queue manager's core is filled with ``--queued`` requests of several models, classes, tenants and lengths, as they
come off the wire. Then, as many being queued as ever, requests are submitted, pulled and finished; each message is one
decision, timed by itself; and so once more with a core that was restored from a snapshot. Periodic work stands apart:
ticks, which come when the core wants one (``tick``), decisions that ask for a plan (``ask``), and plans that are
answered as things stand (``plan``); the last question is also solved. Memory is counted object by object, in a run of
its own. Times are processor time: what else the machine does counts for less.

    python benchmarks/qlm/queue_overhead.py --queued 100000 --json
"""

from __future__ import annotations

import argparse
import gc
import json
import random
import statistics
import sys
import time
import tracemalloc
from collections import deque
from collections.abc import Iterable, Iterator

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from services.queue_manager.core import QueueManagerCore
from services.queue_manager.groups.groups import RequestGroups
from services.scheduler.placement import solve
from shared.config.config import ClusterConfig
from shared.config.nodes.nodes import NodeSpec
from shared.config.services.queue import QueueOptions
from shared.messages.codec import decode, encode
from shared.messages.message import Tick
from shared.messages.messages import AnyMessage
from shared.messages.nodes.nodes import NodeState, NodeUp
from shared.messages.nodes.placement import PlacementProblem, Plan, PlanRequest
from shared.messages.nodes.step_cost import ModelRate, StepCost
from shared.messages.requests.requests import Attempt, Enqueued, Finished, FinishedRequest, Pulled, Submit, VirtualQueue
from shared.service.core import Drop, Effect, Send

MODELS = ("model-a", "model-b", "model-c", "model-d")
TENANTS = tuple(f"tenant-{number}" for number in range(8))
GATEWAYS = ("gateway-0", "gateway-1")
LIMITS = (64, 256, 512, 1024)
COST = StepCost(step_s=0.02, token_s=5e-5, context_token_s=1e-8)
ARRIVAL_S = 0.001  # between two requests
MAX_RUNNING = 256  # requests that a node runs before it finishes the first of them
GROUP_PREFIX = "treadle:group:"


class Load:
    """The other side of the queue manager: gateways that submit, nodes that pull what they are told and finish it."""

    def __init__(self, config: ClusterConfig, seed: int) -> None:
        self.core = QueueManagerCore(config)
        self.question: PlanRequest | None = None
        self._config = config
        self._chance = random.Random(seed)
        self.now = 1.0
        self._num_submitted = 0
        self._answer: Plan | None = None
        self._entries: dict[str, deque[Attempt]] = {}
        self._windows: dict[str, list[str]] = {}
        self._running: dict[str, deque[Attempt]] = {}
        self._slos = [config.slo(name) for name in config.slo_classes]
        self.nodes = [_node(spec.name, MODELS[number % len(MODELS)]) for number, spec in enumerate(config.nodes)]
        for node in self.nodes:
            self._running[node.node] = deque()
            self.decide(NodeUp(epoch="1", known=node))

    def decide(self, message: AnyMessage) -> float:
        """Seconds that the core takes for one message, as it comes off the wire."""
        received = decode(encode(message))
        began = time.thread_time()
        effects = self.core.handle(received, self.now)
        taken_s = time.thread_time() - began
        self._note(effects)
        return taken_s

    def submit(self) -> AnyMessage:
        """The next request."""
        self.now += ARRIVAL_S
        self._num_submitted += 1
        draw = self._chance
        return Submit(
            request_id=f"{draw.getrandbits(128):032x}",
            gateway=draw.choice(GATEWAYS),
            model=draw.choice(MODELS),
            slo=draw.choice(self._slos),
            prompt_tokens=min(100_000, 1 + int(draw.lognormvariate(5, 1.2))),
            max_tokens=draw.choice(LIMITS),
            tenant=draw.choice(TENANTS),
        )

    def round(self) -> Iterator[tuple[str, AnyMessage]]:
        """A tick where one is due; a request comes, one is pulled, one finishes where a node is full; a plan comes."""
        if (wake_at := self.core.wake_at) is not None and wake_at <= self.now:
            yield "tick", Tick()
        yield "submit", self.submit()
        node = self._chance.choice(self.nodes).node
        running = self._running[node]
        if (pulled := self._pull(node)) is not None:
            running.extend(pulled.requests)
            yield "pull", pulled
        if len(running) > MAX_RUNNING:
            yield "finish", self._finish(node, running.popleft())
        if self._answer is not None:
            answer, self._answer = self._answer, None
            yield "plan", answer

    def _pull(self, node: str) -> Pulled | None:
        for group in self._windows.get(node, ()):
            if entries := self._entries.get(group):
                return Pulled(node=node, epoch="1", group=group, requests=[entries.popleft()])
        return None

    def _finish(self, node: str, attempt: Attempt) -> Finished:
        tokens = 1 + int(self._chance.lognormvariate(5, 1))
        return Finished(
            node=node, epoch="1", requests=[FinishedRequest(attempt.request_id, attempt.attempt, "stop", tokens)]
        )

    def _note(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            match effect:
                case Send(stream, Enqueued() as entry):
                    group = self._entries.setdefault(stream.removeprefix(GROUP_PREFIX), deque())
                    group.append(Attempt(entry.request_id, entry.attempt))
                case Send(_, VirtualQueue() as window):
                    self._windows[window.node] = [ref.group for ref in window.groups]
                case Send(_, PlanRequest() as question):
                    self.question = question
                    self._answer = Plan(version=question.version, queues=question.queues)
                case Drop(key):
                    self._entries.pop(key.removeprefix(GROUP_PREFIX), None)
                case _:
                    pass


def _node(name: str, model: str) -> NodeState:
    rates = [ModelRate(one, COST, kv_tokens=200_000, kv_token_bytes=131_072, load_s=5.0) for one in MODELS]
    return NodeState(
        node=name,
        model=model,
        swap_s=5.0,
        device="a100",
        max_num_seqs=256,
        step_tokens=2048,
        kv_bytes_per_s=2e10,
        rates=rates,
    )


def measure_decisions(load: Load, num_rounds: int, progress: Progress) -> dict[str, object]:
    """Time each message while the length of the queue stays."""
    taken: dict[str, list[float]] = {"submit": [], "pull": [], "finish": [], "tick": [], "plan": [], "ask": []}
    for _ in progress.track(range(num_rounds), description="decide"):
        for kind, message in load.round():
            before = load.question
            seconds = load.decide(message)
            taken[kind if load.question is before else "ask"].append(seconds)
    requests = [seconds for kind in ("submit", "pull", "finish") for seconds in taken[kind]]
    return {
        "decision_us_p50": _us(statistics.median(requests)),
        "decision_us_p99": _us(_quantile(requests, 0.99)),
        "decision_us_max": _us(max(requests)),
        "decisions": len(requests),
        "decision_us_p50_by_kind": {kind: _us(statistics.median(times)) for kind, times in taken.items() if times},
        "decision_us_p99_by_kind": {kind: _us(_quantile(times, 0.99)) for kind, times in taken.items() if times},
        "decision_us_max_by_kind": {kind: _us(max(times)) for kind, times in taken.items() if times},
        "ticks": len(taken["tick"]),
        "groups": len(load.core.state.groups),
    }


def measure_plan(load: Load, config: ClusterConfig) -> dict[str, float]:
    """Describe the groups for a plan, and solve it."""
    assert load.question is not None, "the core has asked for no plan"
    question = load.question
    described = RequestGroups(load.core.state, config.queue, config.tenants)
    groups = [load.core.state.groups[one.group] for one in question.groups if one.group in load.core.state.groups]
    began = time.thread_time()
    loads = [described.load(group, load.now) for group in groups]
    describe_s = time.thread_time() - began
    problem = PlacementProblem(version=1, now_s=load.now, nodes=load.nodes, groups=loads, queues=question.queues)
    began = time.thread_time()
    solve(problem)
    solve_s = time.thread_time() - began
    return {
        "plan_s": round(describe_s + solve_s, 4),
        "plan_describe_s": round(describe_s, 4),
        "plan_solve_s": round(solve_s, 4),
        "plan_groups": len(loads),
    }


def measure_snapshot(load: Load, config: ClusterConfig) -> dict[str, float]:
    """What the driver does now and then: write the whole state; and at the start of a term: read it.

    The load goes on with the restored core.
    """
    began = time.thread_time()
    snapshot = load.core.snapshot()
    snapshot_s = time.thread_time() - began
    core = QueueManagerCore(config)
    began = time.thread_time()
    core.restore(snapshot)
    restore_s = time.thread_time() - began
    assert core.snapshot() == snapshot
    load.core = core
    return {
        "snapshot_s": round(snapshot_s, 4),
        "restore_s": round(restore_s, 4),
        "snapshot_bytes": len(snapshot),
    }


def measure_memory(config: ClusterConfig, num_queued: int, seed: int, progress: Progress) -> dict[str, float]:
    """Everything that the core holds for its requests, counted by the allocator; as filled, and as restored."""
    load = Load(config, seed)
    gc.collect()
    tracemalloc.start()
    for _ in progress.track(range(num_queued), description="memory"):
        load.core.handle(decode(encode(load.submit())), load.now)
    gc.collect()
    filled_bytes = tracemalloc.get_traced_memory()[0]
    snapshot = load.core.snapshot()
    load.core = QueueManagerCore(config)
    gc.collect()
    empty_bytes = tracemalloc.get_traced_memory()[0]
    load.core.restore(snapshot)
    gc.collect()
    restored_bytes = tracemalloc.get_traced_memory()[0] - empty_bytes
    tracemalloc.stop()
    return {
        "bytes_per_request": round(filled_bytes / num_queued, 1),
        "bytes_per_request_restored": round(restored_bytes / num_queued, 1),
    }


def _quantile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def _us(seconds: float) -> float:
    return round(seconds * 1e6, 1)


def main() -> None:
    """Print one object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--queued", type=int, default=100_000, help="requests that wait")
    parser.add_argument("--rounds", type=int, default=20_000, help="requests that come and go while it is measured")
    parser.add_argument("--nodes", type=int, default=16)
    parser.add_argument("--policy", choices=("qlm", "edf", "fcfs", "shepherd"), default="qlm")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true", help="one line instead of a table")
    arguments = parser.parse_args()
    if arguments.queued < 1 or arguments.rounds < 1 or arguments.nodes < 1:
        parser.error("--queued, --rounds and --nodes must be at least 1")
    config = ClusterConfig(
        queue=QueueOptions(policy=arguments.policy),
        nodes=[NodeSpec(name=f"node-{number}") for number in range(arguments.nodes)],
    )
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        load = Load(config, arguments.seed)
        result: dict[str, object] = {"queued": arguments.queued, "policy": arguments.policy}
        for _ in progress.track(range(arguments.queued), description="fill"):
            load.decide(load.submit())
        result |= measure_decisions(load, arguments.rounds, progress)
        result |= measure_plan(load, config)
        result |= measure_snapshot(load, config)
        restored = measure_decisions(load, arguments.rounds, progress)
        result |= {f"{name}_restored": value for name, value in restored.items()}
        del load
        result |= measure_memory(config, arguments.queued, arguments.seed, progress)
    if arguments.json:
        print(json.dumps(result))
    else:
        for name, value in result.items():
            sys.stdout.write(f"{name:28} {value}\n")


if __name__ == "__main__":
    main()
