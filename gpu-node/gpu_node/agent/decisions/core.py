"""The node agent's decisions: what to pull, what gives way, when to swap the model, what to publish. No I/O, no clock.

Its state is soft: it lives as long as the epoch. Whatever ends the epoch (the process, the engine, a fence), the queue
manager knows from the `Pulled` messages what was running here and has it run elsewhere.
"""

from __future__ import annotations

from gpu_node.agent.decisions.actions import (
    Ack,
    AdaptersDue,
    AgentAction,
    AgentEvent,
    Beat,
    BlocksDue,
    Configured,
    Drain,
    DropImages,
    ImageBegun,
    ImageFetched,
    ImageHeld,
    LeasesDue,
    NewEpoch,
    PrefixFetched,
    Publish,
    Pull,
    ReadImage,
    SayInventory,
    Taken,
    TakeStock,
    Tell,
)
from gpu_node.agent.decisions.evictions import EngineEvictions
from gpu_node.agent.decisions.headroom import MAX_PULL, Headroom
from gpu_node.agent.decisions.intake.intake import Intake
from gpu_node.agent.decisions.leases import NodeLeases
from gpu_node.agent.decisions.ledger import KvDestination, Ledger, RunningAttempt
from gpu_node.agent.decisions.models.models import ModelRecord, NodeModels
from gpu_node.agent.decisions.prefilled import Prefilled
from gpu_node.agent.decisions.telling.block_reports import BlockReports
from gpu_node.agent.decisions.telling.outbox import Outbox
from gpu_node.agent.decisions.telling.self_report import SelfReport
from gpu_node.agent.decisions.told_queue import ToldQueue
from gpu_node.engine.process.protocol import link_protocol, protocol
from gpu_node.engine.process.protocol.prefix_protocol import PrefixFound
from gpu_node.engine.process.protocol.protocol import AbortRequests, EngineReady, ModelFailed, ModelLoaded, StepReport
from gpu_node.engine.requests.chunk import LOST
from shared.config.engines.engine import EngineOptions
from shared.messages.memory.blocks import TellBlocks
from shared.messages.memory.leases import LeaseMessage, LeaseOrder
from shared.messages.nodes.nodes import BOTH, Fence, Heartbeat, Load, PhaseOption, Serve
from shared.messages.prefixes.prefix_sources import KvDoor
from shared.messages.requests.requests import Abort, Attempt, Evict, EvictedRequest, GroupRef, ReadAhead, VirtualQueue


class AgentCore:
    """One epoch of a node."""

    def __init__(
        self,
        node: str,
        epoch: str,
        device: str,
        options: EngineOptions,
        phases: PhaseOption = BOTH,
        door: KvDoor | None = None,
        record: ModelRecord | None = None,
    ) -> None:
        """``door``: where other nodes ask for what is cached here; without one, nothing of theirs is fetched either.

        ``record``: what earlier epochs knew of models.
        """
        self.node = node
        self.epoch = epoch
        self.models = NodeModels(record)
        self.report = SelfReport(node, epoch, device, options, self.models, phases, door)
        self._ledger = Ledger()
        self._evictions = EngineEvictions(node, self._ledger)
        self.intake = Intake(node, self._ledger, self.models, fetches_prefixes=door is not None)
        self._headroom = Headroom(self._ledger, self.intake, self.report)
        self._blocks = BlockReports(node, epoch)
        self._leases = NodeLeases(node, epoch)
        self._queue = ToldQueue(self.models)
        self._prefilled = Prefilled(node, epoch, options, self._ledger, self.report, self._queue)
        self._is_pulling = False
        self._is_draining = False

    @property
    def model(self) -> str:
        """The loaded model, or ``""``."""
        return self.models.current

    @property
    def running(self) -> dict[str, RunningAttempt]:
        """What the engine has, by request."""
        return self._ledger.running

    def inventory(self) -> SayInventory:
        """All that is here."""
        return self._ledger.inventory()

    @property
    def blamed(self) -> list[Attempt]:
        """The only ones that can be the reason, should the engine die now; empty where it may be any that runs."""
        return self.intake.blamed

    @property
    def is_drained(self) -> bool:
        """Whether the node may stop: all that it had has been handed over."""
        return self._is_draining and not self._ledger.attempts() and not self._evictions.is_under_way

    @property
    def awaits_step(self) -> bool:
        """Whether the engine has requests and no model to load first: it must say something before long."""
        return self.intake.awaits_engine and not self.models.loading

    def handle(self, event: AgentEvent) -> list[AgentAction]:
        """React to one event; the last word is always what to do next: pull, make way, swap, or wait."""
        match event:
            case VirtualQueue():
                actions = self._new_queue(event)
            case Load() | Serve():
                actions = self._assigned(event) if self._is_mine(event) else []
            case Fence():
                actions = [NewEpoch()] if self._is_mine(event) else []
            case Abort():
                actions = self._abort(event)
            case Evict() | ReadAhead():
                actions = self._kv_ordered(event) if self._is_mine(event) else []
            case Taken():
                actions = self._taken(event)
            case TakeStock() | Drain() | TellBlocks() | BlocksDue() | AdaptersDue():
                actions = self._asked(event)
            case Configured() | EngineReady() | ModelLoaded() | ModelFailed() | protocol.BlocksTold():
                actions = self._told(event)
            case StepReport():
                actions = self._step(event)
            case protocol.TakenOut() | ImageBegun() | ImageHeld() | ImageFetched() | PrefixFound() | PrefixFetched():
                actions = self._moved(event)
            case link_protocol.LinkFrame() | LeaseMessage() | LeasesDue():
                actions = self._leased(event)
        actions += self._hand_over_prefilled()
        actions += [*self.intake.stop_fetching(), *self.intake.begin(), *self._prefilled.opening()]
        return [*actions, *self._next()]

    def _leased(self, event: link_protocol.LinkEvent | LeaseOrder | LeasesDue) -> list[AgentAction]:
        if isinstance(event, LeasesDue):
            return self._leases.due(event.now)
        if isinstance(event, LeaseMessage):
            return self._leases.obey(event, self.model) if self._is_mine(event) else []
        return self._leases.told(event)

    def heartbeat(self) -> Heartbeat:
        """What this node is and holds."""
        return self.report.heartbeat()

    def _is_mine(
        self, message: VirtualQueue | Evict | ReadAhead | Load | Serve | Fence | TellBlocks | LeaseOrder
    ) -> bool:
        return message.epoch == self.epoch

    # --- what to do next ------------------------------------------------------------------------------------------

    def _next(self) -> list[AgentAction]:
        """Serve the head of the virtual queue: pull for it, or make the room or change the model that it needs."""
        if self.models.loading or self._is_pulling or self._is_draining:
            return []
        if self.intake.wants_adapters:
            return self._load(self.model)
        if self.intake.holds_any or self.intake.wants_rest:
            return []
        head = self._queue.head(lambda ref: self._headroom.of(ref, self.model))
        if head is None:
            awaits = self._queue.awaits
            return self._load(awaits) if awaits not in ("", self.model) and not self.running else []
        if head.model in self.models.broken:
            return self._pull(head, MAX_PULL)  # these cannot run here: they are answered with the reason
        if head.model != self.model:
            return self._change_model(head)
        num_admittable = self._headroom.num_admittable
        if num_admittable > 0:
            return self._pull(head, min(num_admittable, MAX_PULL, self._headroom.of(head, self.model)))
        # what the engine has not counted yet may leave more room than it seems
        return self._make_way(head) if not self._headroom.num_unseen and not self._evictions.is_under_way else []

    def _make_way(self, head: GroupRef) -> list[AgentAction]:
        """Evict as many as wait, and pull as many at once, so that the engine exchanges them between two steps.

        Where some wait inside the engine already, the room may be theirs: then its answer is awaited.
        """
        leaving = self._evictions.leaving(self._queue.yielding_to(head), min(head.num_waiting, MAX_PULL))
        if not leaving:
            return []
        pull = self._pull(head, len(leaving)) if self.report.stats.num_waiting == 0 else []
        return [*self._evictions.evict(leaving), *pull]

    def _pull(self, head: GroupRef, num_requests: int) -> list[AgentAction]:
        self._is_pulling = True
        return [Pull(head.group, num_requests)]

    def _change_model(self, head: GroupRef) -> list[AgentAction]:
        """At once where the weights are on the device, else once the engine is empty.

        What runs is evicted only if all of it may be: as long as something else has to end first, the rest goes on.
        """
        if not self.running or self.models.is_on_device(head.model):
            return self._load(head.model)
        yielding = self._queue.yielding_to(head)
        if self._evictions.is_under_way or any(run.ack.group not in yielding for run in self.running.values()):
            return []
        return self._evictions.evict(self._evictions.leaving(yielding, len(self.running)))

    def _load(self, model: str) -> list[AgentAction]:
        if self.models.loading or model in self.models.broken:
            return []
        if not self.models.is_configured(model):
            error = f"model {model!r} is not in the configuration"
            return [*self._told(ModelFailed(model, error, is_unknown=True)), *self._next()]
        load = Tell(self.models.begin_load(model, self._ledger.adapters_of(model)))
        # a plan that does not know would change it again
        return [load, Beat(self.heartbeat())] if self.models.fetching else [load]

    # --- from the queue manager -----------------------------------------------------------------------------------

    def _new_queue(self, message: VirtualQueue) -> list[AgentAction]:
        if self._is_mine(message):
            self._queue.tell(message)
        return []

    def _assigned(self, message: Load | Serve) -> list[AgentAction]:
        if isinstance(message, Load):
            return self._load(message.model) if not self.model else []
        return [Beat(self.heartbeat())] if self.report.serve(message.phases) else []

    def _abort(self, message: Abort) -> list[AgentAction]:
        """The queue manager has forgotten these already: only the ledger entry is left to clear, or an image."""
        ids: list[str] = []
        acks: list[Ack] = []
        elsewhere: list[Attempt] = []
        for attempt in message.requests:
            was_here, ack = self._ledger.forget(attempt)
            ids += [attempt.request_id] if was_here else []
            elsewhere += [] if was_here else [attempt]
            acks += [ack] if ack is not None else []
        abort: list[AgentAction] = [Tell(AbortRequests(ids))] if ids else []
        abort += [DropImages(elsewhere)] if elsewhere else []  # an image of it may wait to be fetched
        return [*abort, *([Publish(acks=acks)] if acks else [])]

    def _asked(self, event: TakeStock | Drain | TellBlocks | BlocksDue | AdaptersDue) -> list[AgentAction]:
        if isinstance(event, TakeStock):
            return [self.inventory()]
        if isinstance(event, BlocksDue):
            return self._blocks.ask()
        if isinstance(event, AdaptersDue):
            self.models.due(event.now, self._queue.models)
            self.intake.due(event.now)
            return []
        if isinstance(event, TellBlocks):
            return self._blocks.ask(is_again=True) if self._is_mine(event) else []
        self._is_draining = True
        return self._hand_over(self._ledger.attempts(), KvDestination.MOVES)

    def _kv_ordered(self, event: Evict | ReadAhead) -> list[AgentAction]:
        if isinstance(event, ReadAhead):
            return [ReadImage(event.image)] if not self._is_draining else []
        return self._hand_over(event.requests, KvDestination.DROPPED if event.drops_kv else KvDestination.MOVES)

    def _hand_over(self, attempts: list[Attempt], destination: KvDestination) -> list[AgentAction]:
        outbox = Outbox(self.node)
        back = self.intake.give_back(attempts)
        return [*back, *self._evictions.hand_over(attempts, destination, outbox), *outbox.publish()]

    # --- from the groups' streams ---------------------------------------------------------------------------------

    def _taken(self, taken: Taken) -> list[AgentAction]:
        self._is_pulling = False
        self._queue.pulled(taken.group, len(taken.entries), is_empty=len(taken.entries) < taken.num_asked)
        return self.intake.take(taken)

    # --- from the engine ------------------------------------------------------------------------------------------

    def _told(
        self, event: Configured | EngineReady | ModelLoaded | ModelFailed | protocol.BlocksTold
    ) -> list[AgentAction]:
        if isinstance(event, ModelLoaded):
            return self._model_loaded(event)
        if isinstance(event, protocol.BlocksTold):
            return self._blocks.told(event)
        if isinstance(event, EngineReady):
            self.report.on_ready(event)
        elif isinstance(event, Configured):
            self.models.on_configured(event.models, is_settled=event.is_settled)
        else:
            self.models.on_failed(event, self._ledger.adapters_of(event.model))
        return [Beat(self.heartbeat())]

    def _model_loaded(self, event: ModelLoaded) -> list[AgentAction]:
        self.models.on_loaded(event)
        self.report.on_loaded(event)
        return [Beat(self.heartbeat())]

    def _step(self, event: StepReport) -> list[AgentAction]:
        self.report.see(event.stats)
        outbox = Outbox(self.node)
        for chunk in event.chunks:
            running = self._ledger.extend(chunk)
            if running is None:
                continue  # aborted while the step ran
            if chunk.finish_reason == LOST:
                told = EvictedRequest(chunk.request_id, chunk.attempt, running.output_tokens, 0, self.node)
                outbox.evict(told, running.ack)
                continue
            outbox.add(running.gateway, chunk)
            self.intake.prove(chunk)
            if chunk.is_last:
                outbox.finish(chunk, running.output_tokens, running.ack)
        return outbox.publish()

    def _hand_over_prefilled(self) -> list[AgentAction]:
        """One eviction at a time: until it is answered, it is unknown what room host memory has."""
        if self._evictions.is_under_way or self._is_draining:
            return []
        leaving = self._prefilled.leaving()
        return self._hand_over(leaving, KvDestination.MOVES) if leaving else []

    def _moved(
        self, event: protocol.TakenOut | ImageBegun | ImageHeld | ImageFetched | PrefixFound | PrefixFetched
    ) -> list[AgentAction]:
        if isinstance(event, ImageBegun):
            return self._prefilled.begun(event)
        if isinstance(event, PrefixFound):
            return self.intake.prefix_found(event)
        if isinstance(event, ImageFetched | PrefixFetched):
            self.report.see_fetch(event.file.num_bytes, event.seconds)
            return self.intake.fetched(event)
        outbox = Outbox(self.node)
        if isinstance(event, protocol.TakenOut):
            self.report.see(event.stats)
            actions = self._evictions.on_evicted(event, outbox)
        else:
            actions = self._evictions.on_image(event, outbox)
        return [*actions, *outbox.publish()]
