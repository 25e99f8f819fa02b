"""A whole cluster in virtual time: the live cores of every service, simulated nodes and gateways."""

from __future__ import annotations

from gpu_node.engine.engine import Engine
from gpu_node.executors.predicted import PredictedExecutor
from services.kv_manager.core import KvManagerCore
from services.queue_manager.core import QueueManagerCore
from services.scheduler.core import SchedulerCore
from services.scheduler.placement import solve
from services.simulator.gateway import SimulatedGateway
from services.simulator.memory_bus import MemoryBus
from services.simulator.node import SimulatedNode
from services.simulator.service import SimulatedService
from shared import streams
from shared.config import ClusterConfig
from shared.step_cost import StepCost

# A small model on a small device; `treadle profile` will measure real ones.
DEFAULT_COST = StepCost(step_s=0.02, token_s=0.0005, context_token_s=1e-6)
DEFAULT_TOKEN_KV_BYTES = 23_040  # SmolLM2-135M in bf16: 2 x 30 layers x 3 KV heads x 64 x 2 bytes
DEFAULT_VOCAB_SIZE = 1_000


class SimulatedCluster:
    """Made from the same configuration as a live one."""

    def __init__(self, config: ClusterConfig, *, cost: StepCost = DEFAULT_COST, swap_s: float = 2.0) -> None:
        self.bus = MemoryBus()
        self.queue_manager = SimulatedService(self.bus, streams.QUEUE, lambda: QueueManagerCore(config))
        self.scheduler = SimulatedService(self.bus, streams.SCHEDULER, lambda: SchedulerCore(config), solve=solve)
        self.kv_manager = SimulatedService(self.bus, streams.KV, KvManagerCore)
        self.gateway = SimulatedGateway(self.bus, "gateway", DEFAULT_VOCAB_SIZE)

        # steps take their predicted time one after another: there is no host time to hide behind them
        options = config.engine.model_copy(update={"async_scheduling": False})

        def make_engine() -> Engine:
            return Engine(PredictedExecutor(cost, options, DEFAULT_TOKEN_KV_BYTES, DEFAULT_VOCAB_SIZE), options)

        models = {model.name: model for model in config.models}
        self.nodes = {
            node.name: SimulatedNode(self.bus, node.name, models, make_engine, swap_s) for node in config.nodes
        }
