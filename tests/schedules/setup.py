"""A seed as a cluster, clients and faults. All that follows from a seed is drawn here, but for the order of events."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from random import Random
from typing import Literal

from services.queue_manager.state.grouping import LEAST_BATCH
from shared.config.config import ClusterConfig
from shared.config.engines.engine import EngineOptions, ModelSpec
from shared.config.nodes.nodes import NodeSpec
from shared.config.services.clients import SloClass
from shared.config.services.queue import QueueOptions
from shared.messages.nodes.nodes import BOTH, PhaseOption
from shared.messages.requests.payload import Sampling
from tests.schedules.engine import Speed
from tests.schedules.orders import Order
from tests.schedules.process import Armed, Fault, Role

FAULTS_S = 5.5
"""Faults begin within this."""
CALM_S = 7.0
"""All of them are over by then, or when the longest is."""
UNLIKE = 5
"""Of seeds modulo seven: there, nodes have no use for each other's KV."""
LARGE_ROOM = 64 << 30
"""For KV of nodes that read it ahead."""
LONG_TOKENS = 5_000
"""An answer that does not end while anybody looks, unless its client leaves."""

Kind = Literal[
    "process fault", "kill", "freeze", "engine crash", "drain",
    "redis away", "redis restart", "tail lost", "redis full", "clock step",
]  # fmt: skip
ALL_KINDS: tuple[Kind, ...] = (
    "process fault", "process fault", "process fault", "kill", "freeze", "engine crash", "drain",
    "redis away", "redis restart", "tail lost", "tail lost", "redis full", "clock step",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Planned:
    """A fault, and when it comes."""

    at_s: float
    kind: Kind
    victim: int
    """Number of the process, modulo their number."""
    seconds: float
    share: float
    """Of a tail: how much of what could be lost is."""
    step_s: float
    """Of Redis's clock."""
    armed: Armed | None = None


@dataclass(frozen=True, slots=True)
class Setup:
    """All of one schedule that is decided before it begins."""

    seed: int
    models: tuple[str, ...]
    num_nodes: int
    num_gateways: int
    has_standby: bool
    snapshot_every: int
    latency_s: float
    restart_s: float
    speed: Speed
    orders: tuple[tuple[int, Order], ...]
    """Each with the number of its gateway."""
    faults: tuple[Planned, ...]
    phases: tuple[PhaseOption, ...] = ()
    """Of each node; empty where all serve both."""
    fetches: bool = False
    """Nodes read each other's caches (`tests.schedules.fetches`)."""
    reads_ahead: bool = False
    """Nodes that decode read KV while nodes that prefill compute the rest of its prompt."""

    @property
    def kv_formats(self) -> tuple[str, ...]:
        """Of each node; in some schedules they differ. Drawn of the seed alone: whatever else follows from it stays."""
        alike = "as everywhere" if self.fetches else ""
        return tuple(f"as at n{number}" if self.seed % 7 == UNLIKE else alike for number in range(self.num_nodes))

    @property
    def calm_s(self) -> float:
        """When all faults are over."""
        return max([CALM_S, *(fault.at_s + fault.seconds for fault in self.faults)])

    @property
    def config(self) -> ClusterConfig:
        """What all processes are configured with."""
        return _config(self.models, self.num_nodes, self.phases)

    @property
    def options(self) -> EngineOptions:
        """What agents know of their engines."""
        options = EngineOptions(max_num_seqs=self.speed.max_num_seqs)
        return replace(options, evicted_kv_bytes=LARGE_ROOM) if self.reads_ahead else options


@lru_cache(maxsize=8)
def _config(models: tuple[str, ...], num_nodes: int, phases: tuple[PhaseOption, ...] = ()) -> ClusterConfig:
    return ClusterConfig(
        models=[ModelSpec(name=name, source="none") for name in models],
        nodes=[NodeSpec(name=f"n{number}", phases=one) for number, one in enumerate(phases or (BOTH,) * num_nodes)],
        queue=QueueOptions(delta=2 / LEAST_BATCH),  # groups of two
        slo_classes={"interactive": SloClass(deadline_s=20), "batch": SloClass(deadline_s=3600)},
        gateway={"default_slo": "interactive"},  # type: ignore[arg-type]
    )


def drawn_setup(seed: int, kinds: tuple[Kind, ...] = ALL_KINDS) -> Setup:
    """What follows from a seed."""
    chance = Random(seed)
    models = ("a", "b")[: chance.choice((1, 2, 2))]
    speed = Speed(
        max_num_seqs=chance.choice((1, 2)),
        max_parked=chance.choice((0, 1, 4)),
        step_s=chance.choice((0.05, 0.2, 0.5)),
        max_step_tokens=chance.choice((1, 3)),
        load_s=chance.choice((0.1, 1.0)),
    )
    num_gateways = chance.choice((1, 1, 2))
    config = _config(models, 1)
    orders = tuple(
        (chance.randrange(num_gateways), _order(f"r{number}", chance, models, config))
        for number in range(chance.randint(1, 4))
    )
    return Setup(
        seed=seed,
        models=models,
        num_nodes=chance.choice((1, 2)),
        num_gateways=num_gateways,
        has_standby=chance.random() < 0.25,
        snapshot_every=chance.choice((5, 40, 5_000)),
        latency_s=chance.choice((0.002, 0.002, 0.05, 0.3)),
        restart_s=chance.choice((0.5, 4.0)),
        speed=speed,
        orders=orders,
        faults=tuple(_fault(chance, kinds) for _ in range(chance.choice((0, 1, 1, 2, 2, 3, 6)))),
    )


def _order(name: str, chance: Random, models: tuple[str, ...], config: ClusterConfig) -> Order:
    is_long = chance.random() < 0.2
    comes_s = 4.0 * chance.random()
    leaves_s = comes_s + 5.0 * chance.random() if is_long or chance.random() < 0.2 else None
    max_tokens = LONG_TOKENS if is_long else chance.randint(1, 12)
    return Order(
        request_id=name,
        model=chance.choice(models),
        slo=config.slo(chance.choice(("interactive", "batch"))),
        prompt=[1] * chance.randint(1, 9),
        sampling=Sampling(max_tokens=max_tokens, seed=chance.randrange(1_000), num_choices=chance.choice((1, 1, 1, 2))),
        drawn_tokens=max_tokens + 1 if is_long else chance.randint(1, 16),
        has_stop=not is_long and chance.random() < 0.3,
        comes_s=comes_s,
        leaves_s=leaves_s,
    )


def _fault(chance: Random, kinds: tuple[Kind, ...]) -> Planned:
    kind = chance.choice(kinds)
    seconds = chance.choice((0.1, 1.0, 6.5, 12.0)) * chance.random()
    return Planned(
        at_s=FAULTS_S * chance.random(),
        kind=kind,
        victim=chance.randrange(1_000),
        seconds=seconds,
        share=chance.random() ** 2,
        step_s=chance.choice((-600.0, -1.0, 1.0, 600.0)),
        armed=_armed(chance, seconds) if kind == "process fault" else None,
    )


FAULTS: tuple[Fault, ...] = (
    "die before", "die after", "request lost", "answer lost", "executed late", "freeze before", "freeze after",
    "tail lost",
)  # fmt: skip
COMMANDS: tuple[tuple[Role, str], ...] = (
    ("any", ""), ("any", "read"), ("service", "commit"), ("service", "commit"), ("service", "snapshot"),
    ("service", "solved"), ("node", "pull"), ("node", "publish"), ("node", "publish"), ("gateway", "submit"),
    ("gateway", "release"), ("gateway", "inventory"), ("node", "inventory"), ("node", "image"), ("node", "image"),
)  # fmt: skip


def _armed(chance: Random, seconds: float) -> Armed:
    role, command = chance.choice(COMMANDS)
    return Armed(chance.choice(FAULTS), role, command, seconds)
