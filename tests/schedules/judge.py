"""What must hold: at any time, some seconds after the faults, and when all clients have been served."""

from __future__ import annotations

from services.queue_manager import invariants
from services.queue_manager.core import QueueManagerCore
from services.queue_manager.state.state import State
from shared.bus import streams
from shared.estimator.prefix_fetch import LEAST_WITHIN_S
from shared.messages.requests.requests import Attempt
from tests.schedules.cluster import Cluster
from tests.schedules.ledger import BrokenPromiseError

AGREE_S = 15.0  # after the faults, and after the last answer
DETECT_S = 20.0  # a gateway that died with the last fault is silent for this long, if all were silent at once
SERVED_S = 90.0  # after the faults: hand-overs that were lost time out one after the other
LOOK_EVERY = 8  # messages of a queue manager between two walks over its state


SOUGHT_S = LEAST_WITHIN_S + 4.0
"""When all runs, a prompt is sought for so long at most: a step or two of the slowest engine, what the longest of the
prompts is worth, and events that wait for Redis meanwhile."""


class Looks:
    """Cheap enough to be taken between messages."""

    def __init__(self) -> None:
        self.num_messages = 0

    def __call__(self, core: QueueManagerCore) -> None:
        """The books agree."""
        self.num_messages += 1
        if self.num_messages % LOOK_EVERY == 0:
            invariants.check(core.state)


def disagreements(cluster: Cluster) -> list[str]:
    """What gateways, queue manager, scheduler, nodes and Redis do not agree on, in words."""
    queue = next((one.core for one in cluster.queue_managers if one.core is not None), None)
    scheduler = next((one.core for one in cluster.schedulers if one.core is not None), None)
    if queue is None or scheduler is None:
        return ["a service has no leader"]
    state = queue.state
    wanted = {
        Attempt(name, request.generation.attempt)
        for gateway in cluster.gateways
        if gateway.is_alive
        for name, request in gateway.inflight.items()
    }
    known = {Attempt(name, request.attempt) for name, request in state.requests.items()}
    epochs = {node.name: node.core.epoch for node in cluster.nodes}
    phases = {node.name: node.core.heartbeat().facts.phases for node in cluster.nodes}
    names = {gateway.gateway for gateway in cluster.gateways}
    found = [
        *_differ("gateways want / queue manager knows", wanted, known),
        *_differ("nodes / queue manager", epochs, {name: node.epoch for name, node in state.nodes.items()}),
        *_differ("nodes / scheduler", epochs, {name: node.epoch for name, node in scheduler.state.nodes.items()}),
        *_differ("nodes serve / queue manager", phases, {one.node: one.known.phases for one in state.nodes.values()}),
        *_differ("gateways / queue manager", names, set(state.gateways.heard_s)),
        *_differ("no hand-over / hand-overs", {}, state.hand_overs),
    ]
    return [*found, *_at_nodes(cluster, state), *_sought(cluster), *_in_redis(cluster, state, wanted)]


def _differ(what: str, left: object, right: object) -> list[str]:
    return [] if left == right else [f"{what}: {left} / {right}"]


def _at_nodes(cluster: Cluster, state: State) -> list[str]:
    found: list[str] = []
    for node in cluster.nodes:
        believed = {Attempt(name, one.attempt) for name, one in state.requests.items() if one.node == node.name}
        kept = {
            Attempt(name, state.requests[name].attempt)
            for group in state.groups.values()
            if group.kv_at == node.name
            for name in group.waiting
        }
        engine = node.engine
        found += _differ(f"{node.name} computes / is believed to", _attempts(engine.sequences), believed)
        found += _differ(f"{node.name} keeps / is believed to", _attempts(engine.parked), kept)
        ledger = {Attempt(name, run.attempt) for name, run in node.core.running.items()}
        found += _differ(f"{node.name}: its agent's ledger / engine", ledger, _attempts(engine.sequences))
    return found


def _sought(cluster: Cluster) -> list[str]:
    """Nothing of any fetch is left, at takers and at givers."""
    found: list[str] = []
    for node in cluster.nodes:
        if node.prefixes is None:
            continue
        for attempt, since_s in node.sought_since_s.items():
            waits_s = cluster.agenda.now - max(since_s, cluster.setup.calm_s)
            must(waits_s < SOUGHT_S, f"{node.name} has sought the prompt of {attempt} for {waits_s:.1f} s")
        found += _differ(f"{node.name} seeks / nothing", node.core.intake.sought, [])
        found += _differ(f"{node.name} fetches and holds / nothing", len(node.prefixes), 0)
        found += _differ(f"{node.name}: its engine has lent / nothing", node.engine.lent, set())
    return found


def _attempts(sequences: object) -> set[Attempt]:
    assert isinstance(sequences, dict)
    return {Attempt(one.payload.request_id, one.payload.attempt) for one in sequences.values()}


def _in_redis(cluster: Cluster, state: State, wanted: set[Attempt]) -> list[str]:
    keys = cluster.redis.keys
    groups = cluster.redis.of_kind(streams.group(""))
    tokens = set(cluster.redis.of_kind(streams.tokens("")))
    payloads = {value.request_id for key, value in keys.values.items() if key.startswith(streams.payload(""))}
    payloads -= cluster.ledger.expiring
    found = [
        *_differ("streams of groups / groups", set(groups), {streams.group(gid) for gid in state.groups}),
        *_differ("token streams / gateways", tokens, {streams.tokens(one.gateway) for one in cluster.gateways}),
        *_differ("payloads / wanted", payloads, {attempt.request_id for attempt in wanted}),
    ]
    for gid, group in state.groups.items():
        stream = groups.get(streams.group(gid))
        if stream is None:
            continue
        entries = [getattr(entry, "request_id", "") for entry in stream.entries.values()]
        found += _differ(f"entries of {gid} / its members", sorted(entries), sorted([*group.running, *group.waiting]))
        working = set(stream.pending.values())
        epochs = {state.nodes[state.requests[name].node].epoch for name in group.running}
        found += _differ(f"consumers of {gid} / nodes", working, epochs)
    return found


def must(condition: bool, what: str) -> None:
    """Or the schedule has found a defect."""
    if not condition:
        raise BrokenPromiseError(what)
