"""Every message that crosses a process border. Frozen, tagged, versioned by field defaults.

Wire format: MessagePack map with a ``type`` field, one stream field ``m`` an entry. Unknown fields are ignored and new
fields have defaults, so two neighbouring versions can run side by side during an upgrade.

Fields that hold seconds on the cluster's clock (Redis time) end in ``_s``; identifiers are plain strings.
"""

from __future__ import annotations

import msgspec

from shared.slo import Slo


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
    """Queue manager to gateway: the node that ran these is lost; submit them again with what the client has."""

    requests: list[Attempt]


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


class GroupRef(msgspec.Struct, frozen=True):
    """A request group as a node sees it in its virtual queue."""

    group: str
    model: str
    num_waiting: int


class VirtualQueue(Message, frozen=True, kw_only=True):
    """The head of a node's virtual queue, in order; it replaces the last one. Doubles as the bell for new entries."""

    node: str
    epoch: str
    groups: list[GroupRef]


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


class TokenLogprob(msgspec.Struct, frozen=True, array_like=True):
    """How likely one drawn token was: natural logarithms of the model's own distribution, before temperature."""

    logprob: float
    top: list[tuple[int, float]] = []
    """The most likely token ids with their logprobs, most likely first; as many as the request asked for."""


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
    tokens_per_s: float
    swap_s: float
    """Duration of the last model swap on this node."""
    block_bytes: int = 0
    broken_models: list[str] = []
    """Models that could not be loaded here in this epoch."""


class NodeUp(Message, frozen=True, kw_only=True):
    """Scheduler to queue manager: this node serves (sent again when its model changes)."""

    node: str
    epoch: str
    model: str


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
    num_requests: int
    output_tokens: float
    """Expected output tokens of the whole group."""
    node: str = ""
    """Where it is now; ``""`` while it has no place."""
    running: bool = False
    """A member has been pulled: the group stays on its node."""


class PlanRequest(Message, frozen=True, kw_only=True):
    """Queue manager to scheduler: order these groups. ``version`` comes back with the plan."""

    version: int
    groups: list[GroupLoad]


class NodeState(msgspec.Struct, frozen=True, omit_defaults=True):
    """A node as placement sees it."""

    node: str
    model: str
    """The model it holds, or is loading."""
    tokens_per_s: float
    swap_s: float
    broken_models: list[str] = []


class PlacementProblem(Message, frozen=True, kw_only=True):
    """Input of the placement solver; runs outside the scheduler's loop."""

    version: int
    now_s: float
    nodes: list[NodeState]
    groups: list[GroupLoad]


class Plan(Message, frozen=True, kw_only=True):
    """The virtual queue of every node, head first, computed from the state at ``version``."""

    version: int
    queues: dict[str, list[str]]
    num_swaps: int = 0
    late_s: float = 0.0


class Solved(Message, frozen=True, kw_only=True):
    """A driver's answer to a `Solve` effect, appended to the service's own inbox."""

    plan: Plan


AnyMessage = (
    Tick
    | Submit
    | Cancel
    | GatewayBeat
    | GatewayGone
    | Resubmit
    | Enqueued
    | VirtualQueue
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
)
