"""The scheduler's decisions: who is alive, who holds which model, plans for the virtual queues, sizes of pools."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from services.scheduler.assignment import demand_of, next_model
from services.scheduler.credible import credible
from services.scheduler.losses import Losses
from services.scheduler.nodes import has_changed, node_state
from services.scheduler.scaling import Scaling, ScalingState
from shared.bus import streams
from shared.config.config import ClusterConfig
from shared.config.services.policies import OperationName
from shared.estimator.phases import with_hand_overs
from shared.estimator.rates import share_rates
from shared.messages.message import Tick
from shared.messages.messages import AnyMessage
from shared.messages.nodes.nodes import (
    AUTO,
    Fence,
    Heartbeat,
    Load,
    NodeDown,
    NodeGone,
    NodeState,
    NodeUp,
    PhaseOption,
    Scaled,
)
from shared.messages.nodes.placement import Operations, PlacementProblem, PlanRequest, Solved
from shared.messages.requests.requests import Attempt
from shared.service.core import Effect, Send, Solve
from shared.service.liveness import Liveness

NODE_TIMEOUT_S = 5.0  # a node that is silent for this long is dead; five missed heartbeats
REMEMBER_DEAD = 1_000  # epochs of dead nodes that are remembered, to fence them when they speak again
ASSIGN_DELAY_S = 0.25  # an empty node waits so long for a question, which tells what is wanted
PLANNED: tuple[OperationName, ...] = ("evict", "balance", "migrate", "swap")  # the operations that a plan makes use of


class NodeRecord(msgspec.Struct):
    """A live node as its last heartbeat told."""

    epoch: str
    num_running: int
    state: NodeState
    told: NodeState
    """As the queue manager knows it."""
    assigned: str = ""
    """Model the node was last told to load, until it reports one."""
    doubted: list[str] = []
    """What it tells of itself that cannot be (`credible`)."""


class SchedulerState(msgspec.Struct):
    """Everything the scheduler knows."""

    nodes: dict[str, NodeRecord] = {}
    alive: Liveness = msgspec.field(default_factory=lambda: Liveness(NODE_TIMEOUT_S))
    dead_epochs: list[str] = []
    demand: dict[str, float] = {}
    """Tokens that are still to be computed, by model, as the last question told."""
    assign_at_s: float | None = None
    """When nodes that came empty are given a model, if no plan is asked for before."""
    num_plans: int = 0
    num_planned_swaps: int = 0
    scaling: ScalingState = msgspec.field(default_factory=ScalingState)
    losses: Losses = msgspec.field(default_factory=Losses)


class SchedulerCore:
    """Knows nodes by their heartbeats; gives idle ones a model; answers the queue manager with plans."""

    def __init__(self, config: ClusterConfig) -> None:
        self._config = config
        self._models = [model.name for model in config.models]
        self._policy = config.queue.policy
        self._operations = Operations(**{name: config.queue.uses(name) for name in PLANNED})
        self._adopt(SchedulerState())

    def _adopt(self, state: SchedulerState) -> None:
        self.state = state
        self.scaling = Scaling(state.scaling, self._config.pools, self._config.scaling, self._config.engine)

    @property
    def wake_at(self) -> float | None:
        """When the longest silent node counts as dead, an empty one has waited enough, the provider is to be told."""
        state = self.state
        times = (state.alive.wake_at, state.assign_at_s, self.scaling.wake_at, state.losses.wake_at)
        return min((time for time in times if time is not None), default=None)

    def handle(self, message: AnyMessage, now: float) -> list[Effect]:
        """Fold one message in. A message meant for another service is an error, and becomes a dead letter."""
        match message:
            case Heartbeat():
                return self._heartbeat(message, now)
            case NodeGone():
                return self._node_gone(message, now)
            case PlanRequest():
                return self._plan_request(message, now)
            case Solved(plan=plan):
                self.state.num_plans += 1
                self.state.num_planned_swaps += plan.num_swaps
                return [Send(streams.QUEUE, plan), *self.scaling.judge(plan.num_nodes, now)]
            case Scaled():
                self.scaling.told(message)
                return []
            case Tick():
                return self._tick(now)
            case _:
                raise TypeError(f"{type(message).__name__} is no message for the scheduler")

    def snapshot(self) -> bytes:
        """The whole state."""
        return msgspec.msgpack.encode(self.state)

    def restore(self, state: bytes) -> None:
        """Take over a snapshot."""
        self._adopt(msgspec.msgpack.decode(state, type=SchedulerState))

    def describe(self) -> dict[str, object]:
        """Nodes and what they hold."""
        return {
            "nodes": {
                name: {"epoch": node.epoch, "assigned": node.assigned, "num_running": node.num_running}
                | ({"doubted": node.doubted} if node.doubted else {})
                | {"state": msgspec.to_builtins(msgspec.structs.replace(node.state, door=None))}  # it has a secret
                for name, node in self.state.nodes.items()
            },
            "demand": self.state.demand,
            "num_plans": self.state.num_plans,
            "num_planned_swaps": self.state.num_planned_swaps,
            "pools": self.scaling.describe(),
            "lost": self.lost(),
        }

    def lost(self) -> list[str]:
        """Nodes that fell silent and have not come back, without those of which their pool is rid."""
        return [name for name in self.state.losses.since_s if not self.scaling.is_leaving(name)]

    # --- nodes ----------------------------------------------------------------------------------------------------

    def _heartbeat(self, beat: Heartbeat, now: float) -> list[Effect]:
        if beat.epoch in self.state.dead_epochs:
            return [_to_node(Fence(node=beat.node, epoch=beat.epoch))]
        known = self.state.nodes.get(beat.node)
        effects: list[Effect] = []
        if known is not None and known.epoch != beat.epoch:
            effects += self._bury(known, now)
            known = None
        facts, doubted = credible(beat.facts)
        beat = msgspec.structs.replace(beat, facts=facts)
        state = node_state(beat, known.state if known is not None else None, now)
        is_news = known is None or has_changed(known.told, state)
        record = NodeRecord(
            epoch=beat.epoch,
            num_running=beat.num_running,
            state=state,
            told=state if known is None or is_news else known.told,
            assigned=_still_assigned(known, beat),
            doubted=doubted,
        )
        self.state.alive.hear(beat.node, now)
        self.state.losses.find(beat.node)
        self.state.nodes[beat.node] = record
        self.scaling.hear(beat, state, now)
        if is_news:
            effects.append(Send(streams.QUEUE, NodeUp(epoch=beat.epoch, known=state)))
        if _is_idle(record):
            if known is not None:
                effects += self._assign()
            elif self.state.assign_at_s is None:
                self.state.assign_at_s = now + ASSIGN_DELAY_S
        return effects

    def _tick(self, now: float) -> list[Effect]:
        self.state.losses.expire(now)
        dead = self.state.alive.expire(now)
        for name in dead:
            self.state.losses.lose(name, now)
        effects = [effect for name in dead for effect in self._bury(self.state.nodes[name], now)]
        if self.state.assign_at_s is not None and self.state.assign_at_s <= now:
            effects += self._assign()
        return [*effects, *self.scaling.tick(now)]

    def _assign(self) -> list[Effect]:
        """Give every empty node a model, as is right beside the others of its phases."""
        self.state.assign_at_s = None
        effects: list[Effect] = []
        for name, record in self.state.nodes.items():
            if not _is_idle(record):
                continue
            alike = (node for node in self.state.nodes.values() if _option(node.state) == _option(record.state))
            held = [node.state.model or node.assigned for node in alike]
            record.assigned = next_model(self._known_models, record.state.broken_models, held, self.state.demand)
            if record.assigned:
                effects.append(_to_node(Load(node=name, epoch=record.epoch, model=record.assigned)))
        return effects

    def _node_gone(self, message: NodeGone, now: float) -> list[Effect]:
        node = self.state.nodes.get(message.node)
        if node is None or node.epoch != message.epoch:
            return []
        return self._bury(node, now, has_crashed=message.has_crashed, blamed=message.blamed)

    def _bury(
        self, record: NodeRecord, now: float, *, has_crashed: bool = False, blamed: Sequence[Attempt] = ()
    ) -> list[Effect]:
        name = record.state.node
        del self.state.nodes[name]
        self.state.alive.forget(name)
        self.scaling.lose(name, now)
        self.state.dead_epochs = [*self.state.dead_epochs, record.epoch][-REMEMBER_DEAD:]
        down = NodeDown(node=name, epoch=record.epoch, has_crashed=has_crashed, blamed=list(blamed))
        return [Send(streams.QUEUE, down)]

    @property
    def _known_models(self) -> list[str]:
        """Those that were configured when this process began, without those that have gone since, as nodes tell, and
        those that are asked for, whenever they came."""
        gone = {model for node in self.state.nodes.values() for model in node.state.gone_models}
        begun_with = [model for model in self._models if model not in gone or model in self.state.demand]
        return [*begun_with, *(model for model in self.state.demand if model not in self._models)]

    # --- plans ----------------------------------------------------------------------------------------------------

    def _plan_request(self, request: PlanRequest, now: float) -> list[Effect]:
        self.state.demand = demand_of(request.groups)
        effects = self._assign()
        live = {
            name: msgspec.structs.replace(record.state, model=record.state.model or record.assigned)
            for name, record in self.state.nodes.items()
            if not self.scaling.is_leaving(name)
        }
        pools = self.scaling.ask(live, now if request.groups else request.came_s, now)
        shared = share_rates([*live.values(), *(pool.fresh for pool in pools)], self._known_models)
        problem = PlacementProblem(
            version=request.version,
            now_s=now,
            nodes=with_hand_overs(shared[: len(live)], {load.node: load.model for load in request.awaits}),
            groups=request.groups,
            queues=request.queues,
            policy=self._policy,
            operations=self._operations,
            arrivals=request.arrivals if pools else [],
            interruptions=request.interruptions,
            newcomers=request.newcomers,
            awaits=request.awaits,
            pools=[
                msgspec.structs.replace(pool, fresh=fresh)
                for pool, fresh in zip(pools, shared[len(live) :], strict=True)
            ],
        )
        return [*effects, Solve(problem)]


def _option(node: NodeState) -> PhaseOption:
    """As it is configured."""
    return AUTO if node.follows_load else node.phases


def _is_idle(record: NodeRecord) -> bool:
    """Neither has a model nor loads one."""
    return not record.state.model and not record.assigned


def _still_assigned(known: NodeRecord | None, beat: Heartbeat) -> str:
    """What the node was told to load, unless it has a model by now or could not load that one."""
    if known is None or beat.model or beat.loading or known.assigned in beat.facts.broken_models:
        return ""
    return known.assigned


def _to_node(message: Load | Fence) -> Send:
    return Send(streams.node_inbox(message.node), message, max_entries=streams.MAX_NODE_INBOX)
