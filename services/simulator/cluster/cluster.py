"""A whole cluster in virtual time: the live cores of every service, and simulated nodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

from gpu_node.engine.tiers.kv_store import KvStore
from gpu_node.executors.predicted.executor import AnswerTokens
from services.kv_manager.core import KvManagerCore
from services.queue_manager.core import QueueManagerCore
from services.scheduler.core import SchedulerCore
from services.scheduler.placement import solve
from services.scheduler.policies import POLICIES, qlm
from services.simulator.cluster.gateway import SimulatedGateway
from services.simulator.cluster.memory_bus import MemoryBus
from services.simulator.cluster.node import SimulatedNode
from services.simulator.cluster.node_engine import NodeEngine, SteppedEngine
from services.simulator.cluster.pools import SimulatedProvider
from services.simulator.cluster.service import SimulatedService, SolveTime
from services.simulator.devices.device import VOCAB_SIZE, ModelOnDevice, SimulatedDevice
from services.simulator.devices.device_executor import device_executor
from services.simulator.devices.simulated_disk import NoMemory, SimulatedDisk
from services.simulator.fast.engine import FastEngine
from shared.bus import streams
from shared.config.config import ClusterConfig
from shared.config.engines.engine import EngineOptions
from shared.messages.nodes.placement import PlanSolver
from shared.messages.nodes.step_cost import StepCost

SMALL_PROBLEM_S = 0.005

VirtualClock = Callable[[], float]
MakeEngine = Callable[[SimulatedDevice, EngineOptions, AnswerTokens | None, VirtualClock], NodeEngine]


def stepped(
    device: SimulatedDevice, options: EngineOptions, answer_tokens: AnswerTokens | None, clock: VirtualClock
) -> NodeEngine:
    """The live bookkeeping, step by step, for requests of every kind."""
    store = None
    if options.tiers.ssd_bytes:
        disk = SimulatedDisk(clock)
        store = KvStore(disk, options.tiers.ssd_bytes, NoMemory(), lambda _: disk)
    return SteppedEngine(device_executor(device, options, answer_tokens), options, store=store)


def fast(
    device: SimulatedDevice, options: EngineOptions, answer_tokens: AnswerTokens | None, clock: VirtualClock
) -> NodeEngine:
    """The one that jumps, for many plain requests."""
    del clock
    return FastEngine(device, options, answer_tokens or (lambda sampling: sampling.max_tokens + 1))


def searching(num_visits: int) -> PlanSolver:
    """The live solver, whose search has this budget (`services.scheduler.solving.methods.anytime`)."""
    return partial(solve, policies={**POLICIES, "qlm": partial(qlm.place, num_visits=num_visits)})


def small_device(config: ClusterConfig) -> SimulatedDevice:
    """A small model on a small device, whatever the model: SmolLM2-135M on a few CPU cores."""
    model = ModelOnDevice(
        cost=StepCost(step_s=0.02, token_s=0.0005, context_token_s=1e-6),
        kv_token_bytes=23_040,  # in bfloat16: 2 x 30 layers x 3 KV heads x 64 x 2 bytes
        kv_cache_bytes=config.engine.unmeasured_kv_bytes,
        disk_load_s=2.0,
        host_load_s=0.2,
    )
    return SimulatedDevice("small", {spec.name: model for spec in config.models}, kv_bytes_per_s=10e9)


class SimulatedCluster:
    """Made from the same configuration as a live one.

    ``devices`` says what each node has, by its name, or by that of its pool; without it, all have a `small_device`.
    ``answer_tokens`` says how long answers are, where no limit ends them. Plans come ``solve_s`` after their questions.
    """

    def __init__(
        self,
        config: ClusterConfig,
        devices: Mapping[str, SimulatedDevice] | None = None,
        *,
        answer_tokens: AnswerTokens | None = None,
        make_engine: MakeEngine = stepped,
        solve: PlanSolver = solve,
        solve_s: SolveTime = lambda _: SMALL_PROBLEM_S,
        has_contents: bool = False,
    ) -> None:
        """``has_contents``: prompts have tokens that may come again, and the engine is one that knows them."""
        self.bus = MemoryBus()
        self.names_prompts = has_contents and config.routes_warm
        """Whether requests may go to what is cached of them."""
        self._exchanges_prefixes = self.names_prompts and config.queue.uses("fetch")
        self.block_tokens = config.engine.block_size if self.names_prompts else 0
        """As `gateway.inflight.calls.job.Job`."""
        self.queue_manager = SimulatedService(self.bus, streams.QUEUE, lambda: QueueManagerCore(config))
        self.scheduler = SimulatedService(
            self.bus, streams.SCHEDULER, lambda: SchedulerCore(config), solve=solve, solve_s=solve_s
        )
        self.kv_manager = SimulatedService(self.bus, streams.KV, lambda: KvManagerCore(has_index=self.names_prompts))
        self.gateway = SimulatedGateway(self.bus, "gateway", VOCAB_SIZE, self.block_tokens)
        # steps take their predicted time one after another: there is no host time to hide behind them
        self._phases = {node.name: node.phases for node in config.nodes}
        self._phases |= {pool.name: pool.phases for pool in config.pools}
        self._options = replace(config.engine, async_scheduling=False)
        names = [*(node.name for node in config.nodes), *(pool.name for pool in config.pools)]
        self._devices = devices or dict.fromkeys(names, small_device(config))
        self._models = {model.name: model for model in config.models}
        self._make_engine = make_engine
        self._answer_tokens = answer_tokens
        pools = {pool.name for pool in config.pools}
        self.nodes = {name: self._node(name, name) for name in self._devices if name not in pools}
        self.provider = SimulatedProvider(self.bus, config.pools, self._start)

    def _node(self, name: str, template: str) -> SimulatedNode:
        """``template``: the node or pool whose configuration it has."""
        device = self._devices[template]
        make_engine = partial(self._make_engine, device, self._options, self._answer_tokens, lambda: self.bus.now)
        return SimulatedNode(
            self.bus,
            name,
            self._models,
            make_engine,
            device,
            self._options,
            phases=self._phases[template],
            tells_blocks=self.names_prompts,
            exchanges_prefixes=self._exchanges_prefixes,
        )

    def _start(self, pool: str, name: str) -> SimulatedNode:
        """A node of a pool, which may have been there before."""
        if name in self.nodes:
            self.nodes[name].start()
        else:
            self.nodes[name] = self._node(name, pool)
        return self.nodes[name]
