"""Messages about nodes: who lives and what it holds, what it shall load, and how many of a pool shall run."""

from __future__ import annotations

from typing import Literal

import msgspec

from shared.messages.memory.leases import PageRoom
from shared.messages.message import Message
from shared.messages.nodes.step_cost import ModelRate
from shared.messages.prefixes.prefix_sources import KvDoor
from shared.messages.requests.requests import Attempt

# One object for all: msgspec leaves a field out only where it holds the default itself, and a node's numbers pass from
# `NodeFacts` to `NodeState`. Equal floats of two files are two objects.
UNMEASURED = 0.0
READY = 0.0

Phase = Literal["prefill", "decode"]
"""Of a request: its prompt is to be computed; or it has been, and its KV is there."""
Phases = Literal["both", "prefill", "decode"]
"""Of a node: those that it serves."""
PhaseOption = Literal["both", "prefill", "decode", "auto"]
"""Of a node, as it is configured: ``auto`` leaves it to the queue manager which of both it serves, and when."""
BOTH: Phases = "both"
PREFILL: Phases = "prefill"
DECODE: Phases = "decode"
AUTO: Literal["auto"] = "auto"


def begun_with(option: PhaseOption) -> Phases:
    """What a node serves before anybody has told it."""
    return BOTH if option == AUTO else option


class NodeFacts(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a node is and can do, as far as it knows."""

    device: str = ""
    """Kind of its device."""
    max_num_seqs: int = 0
    """Sequences that the engine runs together at most."""
    step_tokens: int = 0
    """Most rows of a step, of models that say nothing else (`ModelRate.step_tokens`)."""
    kv_bytes_per_s: float = UNMEASURED
    """Measured rate at which KV moves between device and host memory; 0.0 before the first move."""
    network_bytes_per_s: float = UNMEASURED
    """Measured rate at which KV comes here from other nodes; 0.0 before the first image."""
    max_image_bytes: int | None = None
    """Host memory for KV of requests that leave, or come from other nodes; None: it has not said."""
    swap_s: float = UNMEASURED
    """Duration of its last model swap; 0.0 before the first."""
    rates: list[ModelRate] = []
    """What it knows of the models that it has loaded in this epoch, or has a profile of."""
    broken_models: list[str] = []
    """Models that could not be loaded here in this epoch."""
    lacks: list[str] = []
    """What requests may need (`Sampling.needs`) that its engine cannot do."""
    phases: Phases = BOTH
    """Of requests, those that it serves now."""
    door: KvDoor | None = None
    """Where other nodes ask for what it has cached; None: it neither gives nor takes beginnings of prompts."""
    gone_models: list[str] = []
    """Models that it could load and that its configuration has no more."""
    reads_ahead: bool = False
    """It reads KV of requests whose prompts are computed elsewhere, where it is told to (`ReadAhead`)."""
    follows_load: bool = False
    """Which phases it serves, the queue manager says (`Serve`); else they are configured."""

    def serves(self, phase: Phase) -> bool:
        """Whether requests come here in this phase of theirs, while another node can do the rest."""
        return self.phases in (BOTH, phase)

    def can_serve(self, model: str, needs: str) -> bool:
        """Whether such requests can run here, as far as is known; ``needs`` as in `Submit`."""
        return model not in self.broken_models and needs not in self.lacks


class NodeState(NodeFacts, frozen=True):
    """A node as placement sees it: its facts, and what it serves."""

    node: str
    model: str
    """The model it holds, or is loading; ``""`` while there is none."""
    ready_at_s: float = READY
    """When its load is expected to be over; 0.0 where nothing is being loaded."""
    hands_over: list[str] = []
    """Models whose requests leave it once their prompts are computed, as the nodes around it are."""

    @classmethod
    def of(cls, facts: NodeFacts, node: str, model: str, ready_at_s: float = READY) -> NodeState:
        """A node with these facts."""
        return cls(node, model, ready_at_s, **msgspec.structs.asdict(facts))

    @property
    def is_loading(self) -> bool:
        """Whether its model is on the way: no request can begin at once."""
        return self.ready_at_s > READY

    def ready_in_s(self, now: float) -> float:
        """Until its model can be served; no time where nothing is being loaded, or that takes longer than expected."""
        return max(0.0, self.ready_at_s - now)


# --- nodes: agent <-> scheduler, KV manager, queue manager ----------------------------------------------------------


class Heartbeat(Message, frozen=True, kw_only=True):
    """A node is alive, and what it holds. Goes to the scheduler and to the KV manager."""

    node: str
    epoch: str
    """Changes with every life of the agent or its engine: what an older epoch ran is lost."""
    facts: NodeFacts = NodeFacts()
    model: str
    """Loaded model, or ``""`` while there is none."""
    loading: str = ""
    """Model whose weights are being brought to the device, or ``""``; told at once when that begins."""
    num_blocks: int
    num_free_blocks: int
    block_bytes: int = 0
    num_running: int
    num_waiting: int
    room: PageRoom | None = None
    """Of a node that may lend pages to others, while it has a model."""


class NodeUp(Message, frozen=True, kw_only=True):
    """Scheduler to queue manager: this node serves. Sent again when its model, or what is known of it, changes."""

    epoch: str
    known: NodeState


class NodeDown(Message, frozen=True, kw_only=True):
    """Scheduler to queue manager: this epoch of the node is over; what it ran is lost."""

    node: str
    epoch: str
    has_crashed: bool = False
    """As `NodeGone` told."""
    blamed: list[Attempt] = []


class Load(Message, frozen=True, kw_only=True):
    """Scheduler to node: with nothing else to do, load this model."""

    node: str
    epoch: str
    model: str


class Serve(Message, frozen=True, kw_only=True):
    """Queue manager to a node that follows the load (`NodeFacts.follows_load`): serve these phases from now on.

    Sent again until the node says that it does.
    """

    node: str
    epoch: str
    phases: Phases


class Fence(Message, frozen=True, kw_only=True):
    """Scheduler to node: you were declared dead under this epoch; drop everything and begin a new one."""

    node: str
    epoch: str


class NodeGone(Message, frozen=True, kw_only=True):
    """A node says goodbye on shutdown, so that no service waits for its heartbeats to stop."""

    node: str
    epoch: str
    has_crashed: bool = False
    """The engine process died by itself; else the node was stopped or fenced."""
    blamed: list[Attempt] = []
    """Of those that it ran, the only ones that can be the reason; empty where that may be any."""


# --- pools of nodes: scheduler <-> node provider ---------------------------------------------------------------------


class Scale(Message, frozen=True, kw_only=True):
    """Scheduler to node provider: so many nodes of the pool shall run. Repeated now and then, so none may be lost."""

    pool: str
    num_nodes: int


class Scaled(Message, frozen=True, kw_only=True):
    """Node provider to scheduler, after each `Scale`: what there is."""

    pool: str
    num_nodes: int
    """Nodes that run, whether or not they serve yet."""
    error: str = ""
    """Why it is not as it should be; the provider tries again with the next `Scale`."""
