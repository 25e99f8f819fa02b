"""A serving node and its virtual queue, as the queue manager knows them."""

from __future__ import annotations

import math
from collections.abc import Iterator

import msgspec

from services.queue_manager.learnt.kept_batch import KeptBatch
from shared.estimator.harm import PromisedEnd
from shared.messages.nodes.nodes import NodeState, Phases
from shared.messages.nodes.step_cost import ModelRate

Told = tuple[str, int, int | None]
"""Of a window: group, number waiting, requests beside which it may begin."""


class BatchLimit(msgspec.Struct, frozen=True, array_like=True):
    """From what size on one more in the batch of a node does harm (`batch_limit`)."""

    max_running: int | None
    """None: as many as fit."""
    stale_at_s: float
    """When it is worked out anew."""
    num_behind: int = 0
    """Requests with slack behind the groups that are looked at each time."""
    tokens_behind: int = 0
    """Of their prompts, and of their answers where they were evicted or lost."""


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


class WaitingGroups(msgspec.Struct, frozen=True, array_like=True):
    """Groups of a queue in which a request waits for the model that the node holds."""

    model: str
    by_tenant: dict[str, list[str]]
    """The first few of each, due first first."""
    stale_at_s: float


class Promises(msgspec.Struct, frozen=True, array_like=True):
    """What members of a node's groups were promised (`node_counts`)."""

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
    promised: dict[tuple[str, float, float], int] = {}
    """Groups in the queue by model and promised end (`node_counts`)."""
    promises: Promises | None = None
    """Of these members; None: to be summed up, should a newcomer ask."""
    yielding: list[str] = []
    """Groups that ran when a plan put them behind a waiting one: they give way to it."""
    hurried: str = ""
    """The group whose promise is half over (`giving_way`): it comes first, and those with time give way to it."""
    hurries_at_s: float = math.inf
    """When it will be."""
    rescued: str = ""
    """The group that was last put to the front because it was far too late (`rescue`)."""
    rescued_at_s: float = -math.inf
    unread: Unread = Unread()
    """Prompts that it has pulled and not computed."""
    limit: BatchLimit | None = None
    """As it was worked out last."""
    max_running: int | None = None
    """Requests beside which those with slack may begin (`batch_limit`); None: as many as fit."""
    patient: list[str] = []
    """Groups with slack, which wait until the batch has room by that number."""
    num_heard: int = 0
    """Number of what it has told last of its requests (`Pulled.number`)."""
    told: list[Told] = []
    """Head of the queue as the node was last told."""
    told_yielding: list[str] = []
    told_hopeless: list[str] = []
    awaits: str = ""
    """The model that it is to load for requests that are known to come (`Plan.loads`)."""
    told_awaits: str = ""
    told_decoded: list[str] = []
    told_ahead: list[str] = []
    told_phases: Phases | None = None
    """Of one that follows the load, what it was told to serve; None: nothing yet in this epoch."""
    num_running: int = 0
    """Of `num_members`, those that a node works on."""
    shares: dict[str, TenantShare] = {}
    """By tenant that is here, or was of late."""
    waiting: WaitingGroups | None = None
    """As they were looked for last."""
    favoured: list[str] = []
    """Groups of tenants below their share, which go first (`tenant_shares`)."""
    held_back: list[str] = []
    """Tenants that are not below it, where others are."""
    beside: int | None = None
    """Requests beside which theirs may begin; None: as many as fit."""
    max_unread: int | None = None
    """Prompts beside which theirs may be pulled; None: any number."""
    kept: KeptBatch = KeptBatch()
    """How many have run together while those with slack waited."""

    @property
    def phases(self) -> Phases:
        """What it serves, or was told to serve from now on."""
        return self.told_phases or self.known.phases

    @property
    def model(self) -> str:
        """The model that it holds, or ``""``."""
        return self.known.model
