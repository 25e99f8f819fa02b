"""Every message that crosses a process border; one file, though a long one, so that the whole border can be read.

Frozen, tagged, versioned by field defaults.

Wire format: MessagePack map with a ``type`` field, one stream field ``m`` an entry. Unknown fields are ignored and new
fields have defaults, so two neighbouring versions can run side by side during an upgrade.

Fields that hold seconds on the cluster's clock (Redis time) end in ``_s``; identifiers are plain strings.
"""

from __future__ import annotations

import msgspec

from shared.slo import Slo
from shared.step_cost import ModelRate
from shared.token_logprob import TokenLogprob

HANDED_OVER = "*"  # stands where a node's name could: the KV lies in Redis, for whoever pulls the request


class Message(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", tag=str.lower):
    """Base of all messages. ``traceparent`` is the W3C trace context of the request or action that caused it."""

    traceparent: str = ""


# --- time -----------------------------------------------------------------------------------------------------------


class Tick(Message, frozen=True, kw_only=True):
    """Time has passed: appended by a driver to its own inbox when the core's ``wake_at`` has come."""


# --- requests: gateway <-> queue manager ----------------------------------------------------------------------------


class Submit(Message, frozen=True, kw_only=True):
    """A request wants to run. Sent again, with the next ``attempt``, when the node that ran it was lost.

    The tokens travel apart, in the payload key (`Payload`); this is what the queue needs to decide.
    """

    request_id: str
    gateway: str
    model: str
    slo: Slo
    prompt_tokens: int
    """To be computed before the first new one: the prompt, and what the client has of the choices that still run."""
    max_tokens: int
    """To be drawn at most, by all candidates together."""
    tenant: str = "default"
    attempt: int = 0
    wants_place: bool = False
    """The client would like to hear of its place in the queue while it waits (`QueueStatus.places`)."""


class Cancel(Message, frozen=True, kw_only=True):
    """The client left, or the gateway gave up: forget the request and free what it holds."""

    request_id: str


class GatewayBeat(Message, frozen=True, kw_only=True):
    """A gateway replica is alive. Without it for `GATEWAY_TIMEOUT_S`, its requests are cancelled."""

    gateway: str


class GatewayGone(Message, frozen=True, kw_only=True):
    """A gateway replica says goodbye after draining: what it still had is cancelled at once."""

    gateway: str


class Resubmit(Message, frozen=True, kw_only=True):
    """Queue manager to gateway: what was computed of these is lost; submit them again with what the client has."""

    requests: list[Attempt]
    gave_way: bool = False
    """A plan took them off their node without their KV; else the node is lost, perhaps through one of them."""


class Rejected(Message, frozen=True, kw_only=True):
    """Queue manager to gateway: the promise cannot be kept, and the class would rather know at once than be late."""

    request_id: str
    attempt: int
    wait_s: float
    """Predicted time until it could have started."""
    retry_after_s: float
    """Predicted time until such a request could be accepted."""


class QueueLine(msgspec.Struct, frozen=True):
    """How it stands for the requests of one model and one kind of promise."""

    model: str
    slo: str
    num_waiting: int
    num_running: int
    wait_s: float
    """Predicted time to the first token of a request that comes now; ``inf`` while no node can serve the model."""
    wait_p90_s: float
    """The time that it will not exceed with a probability of 90 %; ``inf`` likewise."""


class QueuePlace(msgspec.Struct, frozen=True):
    """Where one waiting request stands."""

    request_id: str
    num_ahead: int
    """Requests that are predicted to start before it on its node."""
    wait_s: float
    wait_p90_s: float


class QueueStatus(Message, frozen=True, kw_only=True):
    """Queue manager to a gateway, now and then: the state of the queue, and the places of its requests that asked."""

    lines: list[QueueLine]
    places: list[QueuePlace] = []


class Attempt(msgspec.Struct, frozen=True):
    """One run of one request. Tokens of an older attempt than the gateway knows are dropped."""

    request_id: str
    attempt: int


# --- requests: queue manager <-> node -------------------------------------------------------------------------------


class Enqueued(Message, frozen=True, kw_only=True):
    """An entry of a group stream: this attempt of this request waits for a node."""

    request_id: str
    attempt: int
    gateway: str
    kv_at: str = ""
    """The node that keeps the KV of the request in host memory since it was evicted there, or `HANDED_OVER`."""


class GroupRef(msgspec.Struct, frozen=True, omit_defaults=True):
    """A request group as a node sees it in its virtual queue."""

    group: str
    model: str
    num_waiting: int
    max_running: int | None = None
    """It is pulled from only while fewer requests run here, and nobody gives way to it; None: as long as they fit."""


class VirtualQueue(Message, frozen=True, kw_only=True):
    """The head of a node's virtual queue, in order; it replaces the last one. Doubles as the bell for new entries."""

    node: str
    epoch: str
    groups: list[GroupRef]
    yielding: list[str] = []
    """Groups with running requests behind the first one without ``max_running``: evicted where it could not start
    otherwise."""
    hopeless: list[str] = []
    """Models of these groups that no node can load: their requests are answered with the reason that this node has.

    Another model that is broken here is left alone: its groups are about to move to a node that may have it.
    """


class Evict(Message, frozen=True, kw_only=True):
    """Queue manager to node: take these out of the engine and hand their KV over, so that another node can go on.

    Some may run, some may have been evicted before and wait with their KV here. Answered by `Evicted`.
    """

    node: str
    epoch: str
    requests: list[Attempt]


class EvictedRequest(msgspec.Struct, frozen=True):
    """A request that was taken out of an engine before its end. Its tokens so far have been published."""

    request_id: str
    attempt: int
    output_tokens: int
    """Of all choices, with those of earlier attempts."""
    kv_tokens: int
    """Tokens whose KV was kept; 0 where there was no room for it, and another attempt has to compute it again."""
    kv_at: str
    """Where: this node, or `HANDED_OVER`."""


class Evicted(Message, frozen=True, kw_only=True):
    """A node has given requests back; sent in the transaction that acknowledges their group entries."""

    node: str
    epoch: str
    requests: list[EvictedRequest]


class Pulled(Message, frozen=True, kw_only=True):
    """A node took these entries of a group. Written by the same script that took them, so neither exists alone."""

    node: str
    epoch: str
    group: str
    requests: list[Attempt]


class Abort(Message, frozen=True, kw_only=True):
    """Queue manager to node: stop these attempts and free their memory. Nothing is answered."""

    requests: list[Attempt]


class FinishedRequest(msgspec.Struct, frozen=True):
    """How one attempt ended on a node; ``reason`` as `Chunk.finish_reason` of its last chunk."""

    request_id: str
    attempt: int
    reason: str
    output_tokens: int
    """Of all choices, with those of earlier attempts."""


class Finished(Message, frozen=True, kw_only=True):
    """Attempts that ended on a node in one step; sent in the transaction that acknowledges their group entries."""

    node: str
    epoch: str
    requests: list[FinishedRequest]


# --- tokens: node -> gateway ----------------------------------------------------------------------------------------


class Chunk(msgspec.Struct, frozen=True, omit_defaults=True):
    """New tokens of one choice of one attempt. ``index`` is the place of the first of them in the choice's output."""

    request_id: str
    attempt: int
    index: int
    token_ids: list[int]
    finish_reason: str = ""
    """``""`` while the choice runs; ``stop`` or ``length`` at its end; ``refused`` (it can never run) and ``error``
    end the request with all choices, and ``error`` says why."""
    error: str = ""
    choice: int = 0
    """Which of the request's continuations, from 0 on."""
    logprobs: list[TokenLogprob] = []
    """One a token where the request asked for them, else empty."""
    is_last: bool = False
    """No chunk of this attempt follows: every choice has ended."""


class Tokens(Message, frozen=True, kw_only=True):
    """All new tokens of one engine step for one gateway replica."""

    node: str
    chunks: list[Chunk]


# --- nodes: agent <-> scheduler, KV manager, queue manager ----------------------------------------------------------


class Heartbeat(Message, frozen=True, kw_only=True):
    """A node is alive, and what it holds. Goes to the scheduler and to the KV manager."""

    node: str
    epoch: str
    """Changes with every life of the agent or its engine: what an older epoch ran is lost."""
    device: str
    model: str
    """Loaded model, or ``""`` while there is none."""
    num_blocks: int
    num_free_blocks: int
    num_running: int
    num_waiting: int
    swap_s: float
    """Duration of the last model swap on this node; 0.0 before the first."""
    block_bytes: int = 0
    broken_models: list[str] = []
    """Models that could not be loaded here in this epoch."""
    max_num_seqs: int = 0
    """Sequences that the engine runs together at most."""
    step_tokens: int = 0
    """Most rows of a step."""
    kv_bytes_per_s: float = 0.0
    """Measured rate at which KV moves between device and host memory; 0.0 before the first move."""
    rates: list[ModelRate] = []
    """What it knows of the models that it has loaded in this epoch, or has a profile of."""


class NodeUp(Message, frozen=True, kw_only=True):
    """Scheduler to queue manager: this node serves. Sent again when its model, or what is known of it, changes."""

    node: str
    epoch: str
    model: str
    device: str = ""
    """Kind of its device."""
    max_num_seqs: int = 0
    step_tokens: int = 0
    kv_bytes_per_s: float = 0.0
    rates: list[ModelRate] = []
    broken_models: list[str] = []
    swap_s: float = 0.0


class NodeDown(Message, frozen=True, kw_only=True):
    """Scheduler to queue manager: this epoch of the node is over; what it ran is lost."""

    node: str
    epoch: str


class Load(Message, frozen=True, kw_only=True):
    """Scheduler to node: with nothing else to do, load this model."""

    node: str
    epoch: str
    model: str


class Fence(Message, frozen=True, kw_only=True):
    """Scheduler to node: you were declared dead under this epoch; drop everything and begin a new one."""

    node: str
    epoch: str


class NodeGone(Message, frozen=True, kw_only=True):
    """A node says goodbye on shutdown, so nobody has to wait for its heartbeats to stop."""

    node: str
    epoch: str


# --- plans: queue manager <-> scheduler -----------------------------------------------------------------------------


class GroupLoad(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the scheduler needs to know of a group to place it."""

    group: str
    model: str
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
    mean_prompt_tokens: float = 0.0
    """To be computed before the first new token, of a waiting member; where none waits, what running ones had to."""
    mean_output_tokens: float = 0.0
    """Expected of a waiting member; where none waits, of a running one when it began."""
    std_output_tokens: float = 0.0
    running_output_tokens: float = 0.0
    """Expected to come from the running members, all together."""
    max_tokens: float = 0.0
    """The most that a waiting member may ask for, mean of all; what a worst-case policy counts with."""
    kv_tokens: float = 0.0
    """Tokens whose KV would have to move with the group: of running members, and of those that were evicted."""
    kv_at: str = ""
    """Where the KV of its waiting members lies, if they were evicted: a node, or `HANDED_OVER`."""
    std_prompt_tokens: float = 0.0
    """Of a waiting member: attention to a prompt grows with its square."""
    output_error_tokens: float = 0.0
    """Standard error of ``mean_output_tokens``: how well it is known by now."""
    end_by_s: float = 0.0
    """Absolute time by which the same member must have ended; 0.0 where only its start was promised."""

    @property
    def num_requests(self) -> int:
        """Members, whether they wait or run."""
        return self.num_waiting + self.num_running


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


class Arrivals(msgspec.Struct, frozen=True):
    """Requests of one model and kind of promise, as they have come of late."""

    load: GroupLoad
    """A typical one, if it came now."""
    rate_per_s: float
    """More than this is seldom expected."""


class PlanRequest(Message, frozen=True, kw_only=True):
    """Queue manager to scheduler: order these groups. ``version`` comes back with the plan."""

    version: int
    groups: list[GroupLoad]
    queues: dict[str, list[str]] = {}
    """The virtual queues as they are, with the groups above only: where a solver may start from."""
    arrivals: list[Arrivals] = []
    """What is to be expected beside the groups; told where there are pools of nodes."""
    came_s: float = 0.0
    """When the last of those came whom ``arrivals`` tells of."""


class NodeState(msgspec.Struct, frozen=True, omit_defaults=True):
    """A node as placement sees it."""

    node: str
    model: str
    """The model it holds, or is loading."""
    swap_s: float = 0.0
    """Duration of its last model swap; 0.0 before the first."""
    broken_models: list[str] = []
    device: str = ""
    max_num_seqs: int = 0
    step_tokens: int = 0
    kv_bytes_per_s: float = 0.0
    rates: list[ModelRate] = []


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
    """As in `shared.config.QueueOptions`."""
    operations: Operations = Operations()
    arrivals: list[Arrivals] = []
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
    num_swaps: int = 0
    late_s: float = 0.0
    num_nodes: dict[str, int] = {}
    """By pool that was asked for, how many nodes the promises need."""


class Solved(Message, frozen=True, kw_only=True):
    """A driver's answer to a `Solve` effect, appended to the service's own inbox."""

    plan: Plan


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


AnyMessage = (
    Tick
    | Submit
    | Cancel
    | GatewayBeat
    | GatewayGone
    | Resubmit
    | Rejected
    | QueueStatus
    | Enqueued
    | VirtualQueue
    | Evict
    | Evicted
    | Pulled
    | Abort
    | Finished
    | Tokens
    | Heartbeat
    | NodeUp
    | NodeDown
    | Load
    | Fence
    | NodeGone
    | PlanRequest
    | PlacementProblem
    | Plan
    | Solved
    | Scale
    | Scaled
)
