"""What a node says of itself in its heartbeats: device, models, and the engine's state behind its last event."""

from __future__ import annotations

from dataclasses import replace

from gpu_node.agent.decisions.models.models import NodeModels
from gpu_node.engine.measures.stats import EngineStats
from gpu_node.engine.measures.throughput import Throughput
from gpu_node.engine.process.protocol.protocol import EngineReady, ModelLoaded
from shared.config.engines.engine import EngineOptions
from shared.messages.memory.leases import PageRoom
from shared.messages.nodes.nodes import AUTO, BOTH, Heartbeat, NodeFacts, NodeState, PhaseOption, Phases, begun_with
from shared.messages.prefixes.prefix_sources import KvDoor

LEAST_BYTES = 1 << 20
"""Of an image that tells how fast the network is: smaller ones tell of its latency."""

NO_STATS = EngineStats(num_running=0, num_waiting=0, num_free_blocks=0, num_admittable=0, step_s=0.0, num_received=0)


class SelfReport:
    """One epoch's; it owns what the engine has told of itself."""

    def __init__(
        self,
        node: str,
        epoch: str,
        device: str,
        options: EngineOptions,
        models: NodeModels,
        phases: PhaseOption = BOTH,
        door: KvDoor | None = None,
    ) -> None:
        self._node = node
        self._epoch = epoch
        self._options = options
        self._models = models
        self._follows_load = phases == AUTO
        self._phases: Phases = begun_with(phases)
        self._door = door
        self.device = device
        """Its kind: as configured, until the engine says what it calls itself."""
        self.engine = ""
        """Which engine it is, once it has said so: ``treadle`` or ``vllm``."""
        self.lacks: list[str] = []
        """What requests may ask for that this engine refuses, in words."""
        self.stats = NO_STATS
        self._network = Throughput()

    def on_ready(self, event: EngineReady) -> None:
        """The engine's first word."""
        self.device, self.engine, self.lacks = event.device, event.engine, event.lacks

    def on_loaded(self, event: ModelLoaded) -> None:
        """The rest is the old model's until the engine tells anew, right after this."""
        self.stats = replace(self.stats, num_admittable=0, num_free_blocks=event.num_blocks)

    def serve(self, phases: Phases) -> bool:
        """It was told what to serve from now on; whether that is news. What is configured stays."""
        if not self._follows_load or phases == self._phases:
            return False
        self._phases = phases
        return True

    def see(self, stats: EngineStats) -> None:
        """The engine's state is this now."""
        self.stats = stats
        self._models.learn(stats)

    def see_fetch(self, num_bytes: int, seconds: float) -> None:
        """An image has come from another node."""
        if num_bytes >= LEAST_BYTES:
            self._network.observe(num_bytes, seconds)

    @property
    def facts(self) -> NodeFacts:
        """What it is and can do."""
        return NodeFacts(
            device=self.device,
            swap_s=self._models.swap_s,
            broken_models=sorted(self._models.broken),
            max_num_seqs=self._options.max_num_seqs,
            step_tokens=self._options.step_tokens,
            kv_bytes_per_s=self.stats.kv_bytes_per_s,
            network_bytes_per_s=self._network.per_s,
            max_image_bytes=self._options.evicted_kv_bytes,
            rates=self._models.rates(),
            lacks=self.lacks,
            phases=self._phases,
            door=self._door,
            gone_models=self._models.gone,
            reads_ahead=True,
            follows_load=self._follows_load,
        )

    @property
    def state(self) -> NodeState:
        """As placement sees this node."""
        return NodeState.of(self.facts, self._node, self._models.current)

    def heartbeat(self) -> Heartbeat:
        """What this node is and holds."""
        loaded = self._models.loaded
        return Heartbeat(
            node=self._node,
            epoch=self._epoch,
            facts=self.facts,
            model=self._models.current,
            num_blocks=loaded.num_blocks if loaded else 0,
            num_free_blocks=self.stats.num_free_blocks if loaded else 0,
            block_bytes=loaded.block_bytes if loaded else 0,
            num_running=self.stats.num_running,
            num_waiting=self.stats.num_waiting,
            loading=self._models.fetching,
            room=self._room,
        )

    @property
    def _room(self) -> PageRoom | None:
        """None where the engine lends nothing."""
        stats = self.stats
        if not stats.page_bytes:
            return None
        return PageRoom(stats.page_bytes, stats.num_spare_pages, stats.num_missing_pages)
