"""Messages about placement: the question, groups and nodes as a solver sees them, and its answer, the plan.

Question and plan travel between queue manager and scheduler; `PlacementProblem` and `Solved` between the scheduler and
its solver's process.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import msgspec

from shared.messages.message import Message
from shared.messages.nodes.nodes import NodeState, Phase


class RequestShape(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A typical request of a model, before its first new token: what it takes of a device hangs on this."""

    model: str
    mean_prompt_tokens: float = 0.0
    """To be computed before the first new token."""
    std_prompt_tokens: float = 0.0
    """Attention to a prompt grows with its square."""
    mean_output_tokens: float = 0.0
    """Expected."""
    std_output_tokens: float = 0.0
    output_error_tokens: float = 0.0
    """Standard error of ``mean_output_tokens``: how well it is known by now."""
    max_tokens: float = 0.0
    """The most that it may ask for, mean of all; what a worst-case policy counts with."""
    kept_tokens: float = 0.0
    """Computed before it was evicted: their KV is kept."""
    found_tokens: float | None = None
    """Of the prompt, cached where it is looked at; None: as much as is found of such prompts on average."""


class GroupLoad(RequestShape, frozen=True, omit_defaults=True):
    """What the scheduler needs to know of a group to place it.

    Its shape is that of a waiting member; where none waits, that of a running one when it began.
    """

    group: str
    deadline_s: float
    """Earliest absolute time by which a member must have started (see `Slo.start_by_s`)."""
    node: str = ""
    """Where it is now; ``""`` while it has no place."""
    slo: str = ""
    """Kind of the members' promise (`Slo.kind`)."""
    tenant: str = ""
    rank: float = 0.0
    """Place among the groups of its model and kind of promise; no plan starts a higher one before a lower one."""
    num_waiting: int = 0
    num_running: int = 0
    running_output_tokens: float = 0.0
    """Expected to come from the running members, all together."""
    kv_tokens: float = 0.0
    """Tokens whose KV would have to move with the group: of running members, and of those that were evicted."""
    kv_at: str = ""
    """Where the KV of its waiting members lies, if they were evicted: a node, or `HANDED_OVER`."""
    end_by_s: float = 0.0
    """Absolute time by which the same member must have ended; 0.0 where only its start was promised."""
    warm_at: str = ""
    """The node that has cached a part of the prompts of its waiting members; elsewhere it is computed again."""
    warm_tokens: float = 0.0
    """Of each, that part."""
    promised_s: float = math.inf
    """From its arrival to its promised end; infinite where none was."""
    promised_token_s: float = math.inf
    """Between two tokens, as promised."""
    needs: str = ""
    """Of its members, as in `Submit`: nodes that lack it are left out, as long as another has it."""
    wants_phase: bool = False
    """Only nodes that serve its phase will do. It is what such a node would be sent; else others take it as well."""

    @property
    def num_requests(self) -> int:
        """Members, whether they wait or run."""
        return self.num_waiting + self.num_running

    @property
    def phase(self) -> Phase:
        """In which its members begin, or have begun, where it is: those that run may be in the other one by now."""
        return "decode" if self.kv_at else "prefill"


class Operations(msgspec.Struct, frozen=True, omit_defaults=True):
    """Serving operations that a plan may make use of (QLM, SoCC'24 §5); each has a plain path without it."""

    evict: bool = True
    """A running group may have to give way to a more urgent one, and keeps its KV."""
    balance: bool = True
    """Groups that wait may move to another node."""
    migrate: bool = True
    """So may running ones, with their KV."""
    swap: bool = True
    """A node may change its model for a group."""


class Arrivals(msgspec.Struct, frozen=True, omit_defaults=True):
    """Requests of one model and kind of promise, as they have come of late."""

    load: GroupLoad
    """A typical one, if it came now."""
    rate_per_s: float
    """Of `PlanRequest.arrivals`, more than this is seldom expected; of `PlanRequest.newcomers`, the mean."""
    lasts_s: float = math.inf
    """For how long they can be expected to come."""


class Interruption(msgspec.Struct, frozen=True):
    """Urgent newcomers of a model keep a node from all others for some of the time."""

    node: str
    model: str
    num_present: float
    """That are there at a time, on average."""
    patience_s: float
    """From its arrival until one has to start: who is due within that goes before them."""


class ModelLoad(msgspec.Struct, frozen=True):
    """A node is to load a model."""

    node: str
    model: str


class PlanRequest(Message, frozen=True, kw_only=True):
    """Queue manager to scheduler: order these groups. ``version`` comes back with the plan."""

    version: int
    groups: list[GroupLoad]
    queues: dict[str, list[str]] = {}
    """The virtual queues as they are, with the groups above only: where a solver may start from.

    QLM looks for a place for those that no plan has ordered yet; they stand in none of these.
    """
    arrivals: list[Arrivals] = []
    """What is to be expected beside the groups; told where there are pools of nodes."""
    came_s: float = 0.0
    """When the last of those came of which ``arrivals`` tells."""
    interruptions: list[Interruption] = []
    """Requests to expect at the nodes beside the groups, where they take turns between models."""
    newcomers: list[Arrivals] = []
    """Requests to expect beside the groups, for the plan itself: a model is loaded for them as well."""
    awaits: list[ModelLoad] = []
    """Of the plans before, what has not begun: something runs there yet (`Plan.loads`)."""


class PoolState(msgspec.Struct, frozen=True):
    """A pool of nodes as it is, and what another node of it would be."""

    pool: str
    min_nodes: int
    max_nodes: int
    ready_s: list[float]
    """Of each node that is wanted, by its number: until it serves; 0.0 where it does."""
    start_s: float
    """How long another one would take."""
    fresh: NodeState
    """What that would be like."""


class PlacementProblem(Message, frozen=True, kw_only=True):
    """Input of the placement solver; runs outside the scheduler's loop."""

    version: int
    now_s: float
    nodes: list[NodeState]
    groups: list[GroupLoad]
    queues: dict[str, list[str]] = {}
    """As in `PlanRequest`."""
    policy: str = "qlm"
    """As in `shared.config.services.queue.QueueOptions`."""
    operations: Operations = Operations()
    arrivals: list[Arrivals] = []
    """As in `PlanRequest`."""
    interruptions: list[Interruption] = []
    """As in `PlanRequest`."""
    newcomers: list[Arrivals] = []
    """As in `PlanRequest`."""
    awaits: list[ModelLoad] = []
    """As in `PlanRequest`."""
    pools: list[PoolState] = []
    """Those whose size is asked for as well."""


class Plan(Message, frozen=True, kw_only=True):
    """The virtual queue of every node, head first, computed from the state at ``version``.

    A running group behind a waiting one yields to it (`VirtualQueue.yielding`); on another node than its own, it
    migrates with its KV (`Evict`).
    """

    version: int
    queues: dict[str, list[str]]
    loads: list[ModelLoad] = []
    """For `PlanRequest.newcomers`, once what runs there has ended."""
    num_swaps: int = 0
    late_s: float = 0.0
    num_nodes: dict[str, int] = {}
    """By pool that was asked for, how many nodes the promises need."""


PlanSolver = Callable[[PlacementProblem], Plan]
"""Answers a problem, without changing anything."""


class Solved(Message, frozen=True, kw_only=True):
    """A driver's answer to a `Solve` effect, appended to the service's own inbox."""

    plan: Plan
