"""What the queue manager knows. Plain structs, so that a snapshot is one encode and a restore one decode.

``gc=False`` where there are many of a kind: they hold names and numbers only, so there is no cycle to be collected, and
a pass of the collector over all of them would stop the service.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import msgspec

from services.queue_manager.learnt.arrivals import Flow
from services.queue_manager.learnt.calibration import Fit
from services.queue_manager.learnt.clusters import LengthClusters
from services.queue_manager.learnt.demand import Asked
from services.queue_manager.learnt.lengths import LengthKey, LengthSketch
from services.queue_manager.learnt.lifetimes import Lifetimes
from services.queue_manager.learnt.running import Runners
from services.queue_manager.learnt.token_rates import TokenRate
from services.queue_manager.learnt.wait_intervals import WaitKind, WatchedInterval
from services.queue_manager.learnt.weights_at import WeightsAt
from services.queue_manager.state.fairness import VirtualTime
from services.queue_manager.state.group_key import GroupKey
from services.queue_manager.state.grouping import ModelBatch
from services.queue_manager.state.totals import Totals
from shared.estimator.harm import PromisedEnd
from shared.messages.nodes import NodeState
from shared.messages.request_kind import RequestKind
from shared.messages.requests import Submit
from shared.messages.slo import Slo
from shared.messages.step_cost import ModelRate
from shared.service.liveness import Liveness

GATEWAY_TIMEOUT_S = 10.0  # a gateway that is silent for this long has lost its clients


class Request(msgspec.Struct, array_like=True, gc=False):
    """An accepted request until it has finished or was cancelled.

    There may be hundreds of thousands: it is an array in snapshots, and names and promises are shared (`sharing`).
    """

    request_id: str
    gateway: str
    model: str
    slo: Slo
    tenant: str
    prompt_tokens: int
    """To be computed before the first new token, as of this attempt."""
    max_tokens: int
    """To be drawn at most, by all attempts together."""
    arrival_s: float
    attempt: int
    group: str = ""
    """Its group; ``""`` while it is being located, or waits for its gateway to submit it again."""
    node: str = ""
    """The node that pulled this attempt; ``""`` while it waits in its group."""
    begins_s: float = 0.0
    """When its prompt will have been computed, as far as is known since ``node`` pulled it (`prompts`)."""
    done_tokens: int = 0
    """Output tokens that it had when it last began to wait: drawn by an earlier attempt, or before it was evicted."""
    kv_tokens: int = 0
    """While it waits after an eviction: tokens whose KV is kept at its group's ``kv_at``."""
    warm_tokens: int = 0
    """Of its prompt, those that its group's node has cached (`Group.warm_at`)."""
    needs: str = ""
    """As in `Submit`."""

    @property
    def start_by_s(self) -> float:
        """When it must have started."""
        return self.slo.start_by_s(self.arrival_s)

    def begin_attempt(self, message: Submit) -> None:
        """Its gateway submits it once more, with what is left to do. It must not stand in a group."""
        self.attempt, self.prompt_tokens = message.attempt, message.prompt_tokens
        self.done_tokens = max(0, self.max_tokens - message.max_tokens)


class Group(msgspec.Struct, gc=False):
    """Requests of one model, one kind of promise, one tenant and similar lengths that are placed together.

    First come, first served inside. A *resume group* holds requests that were evicted: newcomers stay out.
    """

    gid: str
    model: str
    slo_kind: str
    tenant: str = ""
    """``""`` where the policy does not tell tenants apart."""
    key: GroupKey = GroupKey()
    """What it is found under while it is open (`State.open_groups`)."""
    rank: float = 0.0
    """Start tag of its tenant (`fairness`): groups of one model and kind begin in this order."""
    kv_at: str = ""
    """Of a resume group: where the KV of its waiting members lies, a node or `HANDED_OVER`."""
    root: str = ""
    """Of a resume group: the group that its members joined first."""
    warm_at: str = ""
    """The node that has cached a good part of its members' prompts."""
    waiting: dict[str, None] = {}
    """Ids of the members that no node has pulled, in the order of the group's stream."""
    running: dict[str, None] = {}
    """Ids of those that a node works on, in the order in which they were pulled."""
    waiting_totals: Totals = msgspec.field(default_factory=Totals)
    running_totals: Totals = msgspec.field(default_factory=Totals)
    start_by_s: float = math.inf
    """The earliest time by which a waiting member must have started (one that runs, when none waits)."""
    last_due_s: float = -math.inf
    """The latest time by which one that ever joined has to start."""
    hurried: list[tuple[float, str]] = []
    """Heap of (time, id): waiting members that are due earlier than one that joined before them."""
    num_joined: int = 0
    """Requests it has ever had; at the limit it is closed to newcomers."""
    opened_s: float = math.inf
    """When the first of them came."""
    node: str = ""
    """The node in whose virtual queue it stands; ``""`` while it has no place."""
    drain_s: float = 0.0
    """Its part of `Node.drain_s`."""
    is_planned: bool = False
    """It stands where a plan has put it; else where a rule has."""

    @property
    def kind(self) -> RequestKind:
        """Of its members."""
        return RequestKind(self.model, self.slo_kind)

    @property
    def needs(self) -> str:
        """Of its members, as in `Submit`."""
        return self.key.needs

    @property
    def num_waiting(self) -> int:
        """Members that no node has pulled."""
        return len(self.waiting)

    @property
    def num_running(self) -> int:
        """Members that a node works on."""
        return len(self.running)

    @property
    def between_dues_s(self) -> float:
        """Time from when one waiting member is due until the next is, about: they come one after the other."""
        return (self.last_due_s - self.start_by_s) / len(self.waiting) if self.waiting else 0.0

    @property
    def members(self) -> list[str]:
        """Ids of all that have not finished, those that run first."""
        return [*self.running, *self.waiting]

    @property
    def num_members(self) -> int:
        """All that have not finished."""
        return len(self.waiting) + len(self.running)


Told = tuple[str, int, int | None]
"""Of a window: group, number waiting, requests beside which it may begin."""


class BatchLimit(msgspec.Struct, frozen=True, array_like=True):
    """From what size on one more in the batch of a node does harm (`batch_limit`)."""

    max_running: int | None
    """None: as many as fit."""
    stale_at_s: float
    """When it is worked out anew."""


class Unread(msgspec.Struct, frozen=True, array_like=True):
    """Prompts that a node has pulled and computes one behind the other (`prompts`)."""

    until_s: float = 0.0
    """When the last will have been computed."""
    share: float = 0.0
    """Of the time until then, what they take of the device: decoding goes on beside them."""


class TenantShare(msgspec.Struct, array_like=True):
    """What a tenant has at a node."""

    num_members: int = 0
    """Of its groups in the queue."""
    num_running: int = 0
    seen_s: float = -math.inf
    """When it last had some, as far as was looked."""


class Promises(msgspec.Struct, frozen=True, array_like=True):
    """What those who stand at a node were promised (`node_counts`)."""

    per_s: float = 0.0
    """Σ 1 / promise; infinite where the node is to load another model."""
    kinds: list[tuple[float, float, int]] = []
    """Seconds to the promised end, seconds that a token may take, and how many members: infinite where not promised."""
    known_tokens: int = 0
    """Of their prompts, and of their answers where they were evicted or lost: what they hold of KV memory at least."""

    @property
    def ends(self) -> Iterator[PromisedEnd]:
        """Of each kind, what it was promised."""
        return ((end_s, token_s) for end_s, token_s, _ in self.kinds)


class Node(msgspec.Struct):
    """A serving node and its virtual queue."""

    node: str
    epoch: str
    known: NodeState
    """What it can do, as the scheduler told last, with the rates of models that only others have measured."""
    own_rates: list[ModelRate] = []
    """Of those of `known`, the ones that it has measured itself."""
    queue: list[str] = []
    """Groups, head first."""
    drain_s: float = 0.0
    """Predicted time until all that stands in the queue is done; kept up group by group."""
    num_members: int = 0
    """Of the groups in the queue."""
    promises: Promises | None = None
    """Of these members; None: to be summed up, should a newcomer ask."""
    yielding: list[str] = []
    """Groups that ran when a plan put them behind a waiting one: they give way to it."""
    rescued: str = ""
    """The group that was last put to the front because it was far too late (`rescue`)."""
    rescued_at_s: float = -math.inf
    unread: Unread = Unread()
    """Prompts that it has pulled and not computed."""
    limit: BatchLimit | None = None
    """As it was worked out last."""
    max_running: int | None = None
    """Requests beside which the patient may begin (`headroom`); None: as many as fit."""
    patient: list[str] = []
    """Groups that have time, and wait until the batch has room by that."""
    num_heard: int = 0
    """Number of what it has told last of its requests (`Pulled.number`)."""
    told: list[Told] = []
    """Head of the queue as the node was last told."""
    told_yielding: list[str] = []
    told_hopeless: list[str] = []
    awaits: str = ""
    """The model that it is to load for requests that are known to come (`Plan.loads`)."""
    told_awaits: str = ""
    num_running: int = 0
    """Of `num_members`, those that a node works on."""
    shares: dict[str, TenantShare] = {}
    """By tenant that is here, or was of late."""
    favoured: list[str] = []
    """Groups of tenants below their share, which go first (`tenant_shares`)."""
    held_back: list[str] = []
    """Tenants that are not below it, where others are."""
    beside: int | None = None
    """Requests beside which theirs may begin; None: as many as fit."""
    max_unread: int | None = None
    """Prompts beside which theirs may be pulled; None: any number."""

    @property
    def model(self) -> str:
        """The model that it holds, or ``""``."""
        return self.known.model


class HandOver(msgspec.Struct, frozen=True):
    """A group's KV is to leave its node, which was asked for it."""

    target: str
    """Node at which a plan wants the group afterwards."""
    asked_at_s: float


class PlanState(msgspec.Struct):
    """Where the conversation with the scheduler stands, and what would be a reason to go on with it."""

    version: int = 0
    """Counts changes that call for a plan at once."""
    asked_version: int = 0
    """Version of the state that the last request described."""
    asked_at_s: float | None = None
    """When the unanswered request was sent; None when none is open."""
    asked_running: list[str] = []
    """Groups that ran when it was sent."""
    asked_models: dict[str, str] = {}
    """By node, the model that it held then."""
    num_asked_groups: int = 0
    """Groups that there were at that time."""
    last_asked_s: float = 0.0
    applied_version: int = -1
    """Version of the newest plan that was applied."""
    stale_at_s: float | None = None
    """When the last plan is too old; None while no request waits."""
    flows_seen_s: float = 0.0
    """When what comes was last compared with what nodes can do."""
    has_chance: bool = False
    """Another order may be better, though no promise is in danger."""
    has_idle: bool = False
    """So it may, for a node has nothing to do while others have."""
    touched: dict[str, None] = {}
    """Nodes whose queues are to be looked at: a group may start too late there by now."""
    checked_at_s: float = 0.0
    late: dict[str, None] = {}
    """Groups that are predicted to start too late, as far as that was found since the last plan."""
    unseen: dict[str, None] = {}
    """Nodes that were not looked at since the last plan."""
    num_groups: int = 0
    """Groups that had ever been made when it was applied."""


class StatusState(msgspec.Struct):
    """When the gateways are told next how the queue stands."""

    due_s: float | None = None
    """None while no request waits."""
    has_told: bool = False
    """They believe that a request waits."""
    num_told: int = 0
    """How often they were told while a request waited."""
    told_at_s: float | None = None
    """When they were told last, of a queue or of none."""
    has_shown: bool = False
    """They believe that there are requests, waiting or running."""


class InventoryDate(msgspec.Struct, frozen=True, array_like=True):
    """When a gateway announced an inventory."""

    number: int
    announced_at_s: float


class Locating(msgspec.Struct, frozen=True):
    """A request that is accepted, and placed when it is known who has the beginning of its prompt (`locations`)."""

    message: Submit
    due_s: float
    """Without an answer, it is placed then."""


class State(msgspec.Struct):
    """Everything."""

    now_s: float = 0.0
    """Time of the last message."""
    requests: dict[str, Request] = {}
    groups: dict[str, Group] = {}
    nodes: dict[str, Node] = {}
    gateways: Liveness = msgspec.field(default_factory=lambda: Liveness(GATEWAY_TIMEOUT_S))
    finished_since_beat: dict[str, list[str]] = {}
    """By gateway, requests that a node finished after its last beat: should it be dead, their payloads stay."""
    finished_before_beat: dict[str, list[str]] = {}
    """Likewise, after the beat before that one: it may have died while it was deleting them."""
    inventories: dict[str, InventoryDate] = {}
    """By gateway, the inventory that it announced last."""
    locating: dict[str, Locating] = {}
    """Of requests in no group, those whose place hangs on an answer of the KV manager; asked longest ago first."""
    is_index_silent: bool = False
    """The KV manager has not answered in time, and since then nothing in time."""
    watching: dict[str, None] = {}
    """Requests that no node has pulled yet and whose clients would like to hear of their place."""
    last_holders: dict[str, str] = {}
    """By model, the node that came to hold it last."""
    num_placed: int = 0
    """Groups that stand in a queue."""
    waiting_at: dict[str, None] = {}
    """Nodes that were told of waiting requests."""
    hand_overs: dict[str, HandOver] = {}
    """By group: it holds KV at its node and is to go on at another. No node pulls from it meanwhile."""
    plan: PlanState = msgspec.field(default_factory=PlanState)
    status: StatusState = msgspec.field(default_factory=StatusState)
    open_groups: dict[GroupKey, str] = {}
    """The newest group of each key, which newcomers join while it has room."""
    next_group: int = 0
    lengths: dict[LengthKey, LengthSketch] = {}
    """Learnt lengths of answers (`lengths.Lengths`)."""
    paces: dict[WeightsAt, TokenRate] = {}
    """Learnt output tokens a second of one running request (`paces.Paces`)."""
    widths: dict[WaitKind, float] = {}
    """Learnt widths of the bounds of predicted waits (`bounds.Bounds`)."""
    open_bounds: dict[str, WatchedInterval] = {}
    """Bounds that are watched."""
    flows: dict[RequestKind, Flow] = {}
    """How fast work arrives (`arrivals.Arrivals`)."""
    lifetimes: Lifetimes = msgspec.field(default_factory=Lifetimes)
    """For how long it did (`lifetimes`)."""
    fits: dict[WeightsAt, Fit] = {}
    """How nodes do against what is known of them (`calibration.Calibration`)."""
    running: dict[str, Runners] = {}
    """By model, what runs (`running.Running`)."""
    clusters: dict[RequestKind, LengthClusters] = {}
    """Learnt clusters of lengths (`clusters.Clusters`)."""
    lines: dict[RequestKind, VirtualTime] = {}
    """Virtual time (`fairness.Fairness`)."""
    batches: dict[str, ModelBatch] = {}
    """What there is of each model (`grouping.Batches`)."""
    asked: dict[RequestKind, Asked] = {}
    """What has come of late, by model and kind of promise (`demand.Demand`)."""

    @property
    def anybody_waits(self) -> bool:
        """Whether there are requests that a node could pull, or that have no node."""
        return bool(self.waiting_at) or self.num_placed < len(self.groups)
