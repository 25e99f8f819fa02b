"""The processes of one schedule, and what befalls them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from random import Random

from services.kv_manager.core import KvManagerCore
from services.queue_manager.core import QueueManagerCore
from services.scheduler.core import SchedulerCore
from shared.bus import streams
from shared.messages.nodes.nodes import AUTO, BOTH, DECODE, PREFILL, Phases, Serve
from shared.messages.nodes.placement import ModelLoad, PlacementProblem, Plan
from tests.schedules.agenda import Agenda
from tests.schedules.doors import Doors
from tests.schedules.gateway import GatewayProcess
from tests.schedules.images import Images
from tests.schedules.ledger import Ledger
from tests.schedules.node import NodeProcess
from tests.schedules.orders import Order
from tests.schedules.process import Process, Role, World
from tests.schedules.redis_model import RedisModel
from tests.schedules.service import ServiceProcess
from tests.schedules.setup import Planned, Setup
from tests.schedules.transcript import Transcript

LOST_AT_MOST_S = 2.0  # of a log that is synced every second
MakeQueueManager = Callable[[Setup], QueueManagerCore]
MakeNode = Callable[..., NodeProcess]

NUM_TURNS = 8  # of nodes that follow the load, while there are faults


class Cluster:
    """Made of a setup. The makers are what tests plant faults in."""

    def __init__(
        self,
        setup: Setup,
        *,
        transcript: Transcript,
        look: Callable[[QueueManagerCore], None],
        make_queue_manager: MakeQueueManager = lambda setup: QueueManagerCore(setup.config),
        make_gateway: Callable[..., GatewayProcess] = GatewayProcess,
        make_node: MakeNode = NodeProcess,
        make_redis: Callable[[Agenda], RedisModel] = RedisModel,
    ) -> None:
        self.setup = setup
        self.agenda = Agenda()
        self.redis = make_redis(self.agenda)
        self.chance = Random(setup.seed + 1)
        self.ledger = Ledger()
        self.is_calm = False
        self._left: set[str] = set()
        world = World(self.agenda, self.redis, self.chance, transcript, Images(), setup.latency_s, setup.restart_s)
        world.doors = Doors() if setup.fetches else None
        self._transcript = transcript
        orders = {order.request_id: order for _, order in setup.orders}
        instances = ("a", "b") if setup.has_standby else ("a",)
        self.queue_managers = [
            ServiceProcess(
                world,
                "queue-manager",
                streams.QUEUE,
                f"queue-{instance}",
                partial(make_queue_manager, setup),
                snapshot_every=setup.snapshot_every,
                look=look,
            )
            for instance in instances
        ]
        self.schedulers = [
            ServiceProcess(
                world,
                "scheduler",
                streams.SCHEDULER,
                f"scheduler-{instance}",
                lambda: SchedulerCore(setup.config),
                snapshot_every=setup.snapshot_every,
                solve=self._plan,
            )
            for instance in instances
        ]
        self.kv_managers = [
            ServiceProcess(
                world,
                "kv-manager",
                streams.KV,
                f"kv-{instance}",
                lambda: KvManagerCore(has_index=True),
                snapshot_every=setup.snapshot_every,
            )
            for instance in instances
            if setup.fetches
        ]
        self.gateways = [make_gateway(world, f"gw{number}", self.ledger) for number in range(setup.num_gateways)]
        self.nodes = [
            make_node(
                world,
                f"n{number}",
                setup.options,
                setup.speed,
                orders,
                kv_format,
                phases,
                reads_ahead=setup.reads_ahead,
            )
            for number, (kv_format, phases) in enumerate(
                zip(setup.kv_formats, setup.phases or (BOTH,) * setup.num_nodes, strict=True)
            )
        ]
        self.processes: list[Process] = [
            *self.queue_managers,
            *self.schedulers,
            *self.kv_managers,
            *self.gateways,
            *self.nodes,
        ]
        self.roles: dict[Role, list[Process]] = {
            "any": self.processes,
            "service": [*self.queue_managers, *self.schedulers, *self.kv_managers],
            "gateway": [*self.gateways],
            "node": [*self.nodes],
        }
        self._doors = world.doors
        self._arrange()

    @property
    def fetches(self) -> dict[str, int]:
        """Of beginnings of prompts: what came of them, and how often."""
        return self._doors.ends if self._doors is not None else {}

    def _arrange(self) -> None:
        for process in self.processes:
            self.agenda.at(0.3 * self.chance.random(), process.revive)
        for number, order in self.setup.orders:
            gateway = self.gateways[number]
            self.agenda.at(order.comes_s, partial(self._order, gateway, order))
            if order.leaves_s is not None:
                self.agenda.at(order.leaves_s, partial(self._leave, gateway, order.request_id))
        for fault in self.setup.faults:
            self.agenda.at(fault.at_s, partial(self._befall, fault))
        if AUTO in self.setup.phases:
            for _ in range(NUM_TURNS):
                self.agenda.at(self.setup.calm_s * self.chance.random(), self._turn)
        self.agenda.at(self.setup.calm_s, self._calm_down)

    # --- clients ----------------------------------------------------------------------------------------------------

    def _order(self, gateway: GatewayProcess, order: Order) -> None:
        if gateway.is_frozen:
            self.agenda.at(gateway.frozen_until_s, partial(self._order, gateway, order))
        elif gateway.is_alive and gateway.is_open and order.request_id not in self._left:
            gateway.note("is asked for", order)
            gateway.order(order)

    def _leave(self, gateway: GatewayProcess, request_id: str) -> None:
        if gateway.is_frozen:
            self.agenda.at(gateway.frozen_until_s, partial(self._leave, gateway, request_id))
        elif gateway.is_alive:
            self._left.add(request_id)
            gateway.leave(request_id)

    # --- phases -----------------------------------------------------------------------------------------------------

    def _turn(self) -> None:
        """A node is told to serve any phases at all: the load of so few requests would hardly ever have it changed."""
        node = self.chance.choice([one for one in self.nodes if one.is_alive] or self.nodes)
        phases: Phases = self.chance.choice((BOTH, PREFILL, DECODE, PREFILL, DECODE))
        if node.is_alive and self.redis.is_up:
            self.note("tells", node.name, "to serve", phases)
            message = Serve(node=node.name, epoch=node.core.epoch, phases=phases)
            self.redis.add((streams.node_inbox(node.name), message))

    # --- plans ------------------------------------------------------------------------------------------------------

    def _plan(self, problem: PlacementProblem) -> Plan:
        """Any order at all while there are faults: agreement must not hang on good plans. Then as it stands."""
        nodes = [node.node for node in problem.nodes]
        if not nodes:
            return Plan(version=problem.version, queues={})
        groups = [group.group for group in problem.groups]
        if self.is_calm:
            queues = {node: list(problem.queues.get(node, [])) for node in nodes}
            placed = {group for queue in queues.values() for group in queue}
            queues[nodes[0]] += [group for group in groups if group not in placed]
        else:
            queues = {node: [] for node in nodes}
            self.chance.shuffle(groups)
            for group in groups:
                queues[self.chance.choice(nodes)].append(group)
        return Plan(version=problem.version, queues=queues, loads=self._loads(nodes))

    def _loads(self, nodes: Sequence[str]) -> list[ModelLoad]:
        """Any at all, too, where nodes serve phases: of these, some load models that nobody waits for there."""
        if not self.setup.phases or self.is_calm:
            return []
        return [ModelLoad(node, self.chance.choice(self.setup.models)) for node in nodes if self.chance.random() < 0.5]

    # --- faults -----------------------------------------------------------------------------------------------------

    def note(self, *words: object) -> None:
        """What happens to the machine room."""
        self._transcript.note(self.agenda.now, "--", words)

    def _befall(self, fault: Planned) -> None:
        role = fault.armed.role if fault.armed is not None else "any"
        process = self.roles[role][fault.victim % len(self.roles[role])]
        node = self.nodes[fault.victim % len(self.nodes)]
        match fault.kind:
            case "process fault":
                process.armed = fault.armed
            case "kill":
                process.die()
            case "freeze":
                process.freeze(fault.seconds)
            case "engine crash":
                if node.is_alive:
                    node.crash_engine()
            case "drain":
                if node.is_alive:
                    node.drain()
            case "redis full":
                self.note("redis is full for", round(fault.seconds, 2), "s")
                self.redis.is_full = True
                self.agenda.at(self.agenda.now + fault.seconds, self._make_room)
            case "clock step":
                self.redis.clock_step_s += fault.step_s
                self.note("redis's clock steps by", fault.step_s, "s")
            case "redis away" | "redis restart" | "tail lost":
                self._stop_redis(fault)

    def _make_room(self) -> None:
        self.redis.is_full = False

    def _stop_redis(self, fault: Planned) -> None:
        if not self.redis.is_up:
            return
        kept = None
        if fault.kind == "tail lost":
            # mostly what an everysec log loses, now and then what a replica that is far behind has not seen
            reach_s = LOST_AT_MOST_S if fault.victim % 4 else self.agenda.now
            first = self.redis.num_logged_by(self.agenda.now - reach_s)
            kept = self.redis.num_logged - int(fault.share * (self.redis.num_logged - first + 1))
        self.redis.stop()
        self.note("redis stops for", round(fault.seconds, 2), "s; kept:", kept)
        self.agenda.at(self.agenda.now + fault.seconds, partial(self._start_redis, kept))

    def _start_redis(self, kept: int | None) -> None:
        if not self.redis.is_up:
            self.redis.start(kept)
            self.note("redis is back, run", self.redis.run_id, "kept", self.redis.num_logged)

    def _calm_down(self) -> None:
        """All faults are over."""
        self.note("faults are over")
        self.is_calm = True
        self._make_room()
        if not self.redis.is_up:
            self._start_redis(None)
        for process in self.processes:
            process.armed = None
            process.frozen_until_s = 0.0
            process.revive()
