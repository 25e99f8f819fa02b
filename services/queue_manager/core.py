"""The queue manager's decisions: accept, group, place, hand out, take back. A fold over its inbox.

This file says which room decides what, and in which order.
"""

from __future__ import annotations

import msgspec

from services.queue_manager.groups.groups import RequestGroups
from services.queue_manager.handlers.evictions import Evictions
from services.queue_manager.handlers.gateways import Gateways
from services.queue_manager.handlers.inventories import Inventories
from services.queue_manager.handlers.load_phases import LoadPhases
from services.queue_manager.handlers.locations import Locations
from services.queue_manager.handlers.nodes import Nodes
from services.queue_manager.handlers.readers import Readers
from services.queue_manager.handlers.requests import Requests
from services.queue_manager.learnt.demand import Demand
from services.queue_manager.plans import repair
from services.queue_manager.plans.planning import Planning
from services.queue_manager.plans.rescue import rescue
from services.queue_manager.plans.take_over import TakeOvers
from services.queue_manager.queues.batch_limit import BatchLimits
from services.queue_manager.queues.tenant_shares import TenantShares
from services.queue_manager.queues.virtual_queues import VirtualQueues
from services.queue_manager.state.interning import Interning
from services.queue_manager.state.node_counts import recount
from services.queue_manager.state.state import State
from services.queue_manager.telling.node_notices import NodeNotices
from services.queue_manager.telling.overview import Overview
from services.queue_manager.telling.status import Status
from services.queue_manager.waits.predictions import Predictions
from services.queue_manager.waits.prompts import PromptLines
from services.queue_manager.waits.refusals import Refusals
from shared.bus import streams
from shared.config.config import ClusterConfig
from shared.config.services.corrections import Correction
from shared.messages.memory.blocks import Located
from shared.messages.message import Tick
from shared.messages.messages import AnyMessage
from shared.messages.nodes.nodes import AUTO, NodeDown, NodeUp
from shared.messages.nodes.placement import Plan
from shared.messages.requests.inventories import GatewayInventory, NodeInventory
from shared.messages.requests.requests import (
    Cancel,
    Evicted,
    Finished,
    GatewayBeat,
    GatewayGone,
    KvOpened,
    Pulled,
    Submit,
)
from shared.service.core import Effect, Send


class QueueManagerCore:
    """Owns every accepted request from `Submit` to `Finished`."""

    def __init__(self, config: ClusterConfig) -> None:
        self._config = config
        self._interning = Interning()
        self._adopt(State())

    def _adopt(self, state: State) -> None:
        self.state = state
        config, options = self._config, self._config.queue
        groups = RequestGroups(state, options, config.tenants)
        self._journal = groups.journal
        self._queues = VirtualQueues(state, groups, options)
        self.predictions = Predictions(state, groups, self._queues, options)
        self._demand = Demand(state.asked, groups.newcomer) if config.pools else None
        self._planning = Planning(state, groups, self.predictions, options, self._demand)
        batch_limits = BatchLimits(state, groups) if options.uses("pace") else None
        shares = TenantShares(state, groups, config.tenants)
        reads_ahead = options.uses("read_ahead")
        self._notices = NodeNotices(
            state,
            self._planning,
            shares,
            batch_limits,
            may_evict=options.uses("evict"),
            reads_ahead=reads_ahead,
        )
        self._refusals = Refusals(config.slo_classes, self.predictions)
        prompts = PromptLines(state, groups, is_on=Correction.PROMPTS in options.corrections)
        self._requests = Requests(state, groups, self._queues, self._interning, prompts)
        warm, fetches = options.uses("warm"), options.uses("fetch")
        self._locations = Locations(state, self._requests, is_on=warm, fetches=fetches)
        follows_load = any(one.phases == AUTO for one in (*config.nodes, *config.pools))
        self._phases = LoadPhases(
            state, groups, self._queues, self._requests, is_on=follows_load, reads_ahead=reads_ahead
        )
        self._nodes = Nodes(state, groups, self._queues, self._requests, self._phases)
        self._evictions = Evictions(state, groups, self._queues, self._requests)
        self._readers = Readers(state, groups, self._queues, self._requests)
        self._gateways = Gateways(state, self._requests)
        self._inventories = Inventories(state, self._journal, self._requests)
        self.take_overs = TakeOvers(state, groups, self._queues)
        self._status = Status(state, self.predictions)
        self._overview = Overview(state, self.predictions)

    @property
    def wake_at(self) -> float | None:
        """When a gateway may have died, a plan is to be asked for, or a party is to be told something."""
        rooms = (
            *(self._locations, self._gateways, self._evictions, self.take_overs),
            *(self._planning, self._status, self._notices, self._phases),
        )
        return min((time for room in rooms if (time := room.wake_at) is not None), default=None)

    def handle(self, message: AnyMessage, now: float) -> list[Effect]:
        """Fold one message in. A message meant for another service is an error, and becomes a dead letter."""
        self.state.now_s = now
        effects = self._dispatch(message, now)
        self._evictions.settle(now)
        return [*effects, *self._tell(now, is_tick=isinstance(message, Tick))]

    def _tell(self, now: float, *, is_tick: bool) -> list[Effect]:
        """What others are to hear of all that has changed. Looks over long queues are for ticks: requests wait less."""
        journal = self._journal
        self.predictions.bounds.hear(journal.started, journal.ended, now)
        self._planning.hear(journal)
        effects = self._take_over(list(journal.queues), now)
        effects += self._phases.look(now)
        effects += self._notices.tell(journal, now)
        effects += [*self._planning.ask(now, is_tick=is_tick), *self._status.tell(now, is_tick=is_tick)]
        journal.clear()
        return effects

    def _take_over(self, changed: list[str], now: float) -> list[Effect]:
        """What nodes with room do for others."""
        options, rooms = self._config.queue, self.take_overs
        names = rooms.nodes_to_look_at(changed, now)
        effects: list[Effect] = []
        if options.uses("balance"):
            rooms.move_waiting(names, now)
            effects += self._requests.move_on(rooms.stuck(names, now))
        if options.uses("migrate"):
            effects += self._evictions.hand_over(rooms.targets(names, now), now)
        return effects

    def _dispatch(self, message: AnyMessage, now: float) -> list[Effect]:
        match message:
            case Submit() | Located():
                return self._submit(message, now)
            case Pulled():
                return self._requests.pulled(message, now)
            case Finished():
                return self._requests.finished(message, now)
            case Evicted() | KvOpened():
                return self._given(message, now)
            case Cancel():
                return self._requests.cancel(message)
            case Plan():
                return self._plan(message, now)
            case NodeUp():
                return self._nodes.up(message, now)
            case NodeDown():
                return self._nodes.down(message, now)
            case GatewayBeat() | GatewayInventory() | GatewayGone():
                return self._gateway(message, now)
            case NodeInventory():
                return self._inventories.of_node(message)
            case Tick():
                return [*self._gateways.expire(now), *self._locations.expire(now)]
            case _:
                raise TypeError(f"{type(message).__name__} is no message for the queue manager")

    def _given(self, message: Evicted | KvOpened, now: float) -> list[Effect]:
        if isinstance(message, KvOpened):
            return self._readers.opened(message)
        return self._evictions.evicted(message, now)

    def _submit(self, message: Submit | Located, now: float) -> list[Effect]:
        if isinstance(message, Located):
            return self._locations.located(message, now)
        self._gateways.hear(message.gateway, now)
        if self._demand and message.attempt == 0:
            self._demand.count(message, now)
        if message.request_id not in self.state.requests:
            refusal = self._refusals.refusal(message, now)
            if refusal is not None:
                return [Send(streams.tokens(message.gateway), refusal, to_existing=True)]
        return self._locations.submit(message, now)

    def _gateway(self, message: GatewayBeat | GatewayInventory | GatewayGone, now: float) -> list[Effect]:
        if isinstance(message, GatewayGone):
            return self._gateways.gone(message.gateway)
        if isinstance(message, GatewayInventory):
            self._gateways.hear(message.gateway, now)
            return self._inventories.of_gateway(message)
        if message.inventory:
            self._gateways.find_place(message.gateway, now)
            self._inventories.announced(message, now)
        else:
            self._gateways.beat(message.gateway, now)
        return []

    def _plan(self, plan: Plan, now: float) -> list[Effect]:
        if not self._planning.accept(plan):
            return []
        targets = repair.apply(self.state, self._queues, plan.queues, now)
        repair.await_models(self.state, self._queues, plan.loads)
        self._nodes.note_hand_overs(now)
        effects = self._evictions.hand_over(targets, now)
        if self._config.queue.uses("rescue"):
            for node in self.state.nodes.values():
                rescue(self.state, node, now)
        self._planning.note_applied(self._journal, now)
        self._journal.note_queues(self.state.nodes)
        return effects

    def snapshot(self) -> bytes:
        """The whole state."""
        return msgspec.msgpack.encode(self.state)

    def restore(self, state: bytes) -> None:
        """Take over a snapshot."""
        decoded = msgspec.msgpack.decode(state, type=State)
        self._interning.restore(decoded)
        recount(decoded)
        self._adopt(decoded)

    def describe(self) -> dict[str, object]:
        """The virtual queues, and when their groups are predicted to start."""
        return self._overview.describe()
