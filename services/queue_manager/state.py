"""What the queue manager knows. Plain structs, so that a snapshot is one encode and a restore one decode."""

from __future__ import annotations

import math

import msgspec

from shared.liveness import Liveness
from shared.slo import Slo

GATEWAY_TIMEOUT_S = 10.0  # a gateway that is silent for this long has lost its clients


class Request(msgspec.Struct):
    """An accepted request until it has finished or was cancelled."""

    request_id: str
    gateway: str
    model: str
    slo: Slo
    tenant: str
    max_tokens: int
    arrival_s: float
    attempt: int
    group: str = ""
    """Its group; ``""`` while it waits for its gateway to submit it again."""
    node: str = ""
    """Who pulled this attempt; ``""`` while it waits in its group."""


class Group(msgspec.Struct):
    """Requests of one model and one SLO class that are placed together. First come, first served inside."""

    gid: str
    model: str
    slo_kind: str
    members: dict[str, None] = {}
    """Ids of the unfinished requests, in order of arrival."""
    num_waiting: int = 0
    """Members that nobody has pulled."""
    start_by_s: float = math.inf
    """Earliest time by which one of those that ever joined had to start; a bound that is cheap to sort by."""
    num_joined: int = 0
    """Requests it has ever had; at the limit it is closed to newcomers."""
    node: str = ""
    """The node in whose virtual queue it stands; ``""`` while it has no place."""


class Node(msgspec.Struct):
    """A serving node and its virtual queue."""

    node: str
    epoch: str
    model: str
    queue: list[str] = []
    """Groups, head first."""
    told: list[tuple[str, int]] = []
    """Head of the queue as the node was last told: (group, number waiting)."""


class PlanState(msgspec.Struct):
    """Where the conversation with the scheduler stands."""

    version: int = 0
    """Counts changes that matter to a plan."""
    asked_version: int = 0
    """Version of the state that the last request described."""
    asked_at_s: float | None = None
    """When the unanswered request was sent; None when none is open."""
    last_asked_s: float = 0.0
    applied_version: int = -1
    """Version of the newest plan that was applied."""


class State(msgspec.Struct):
    """Everything."""

    requests: dict[str, Request] = {}
    groups: dict[str, Group] = {}
    nodes: dict[str, Node] = {}
    gateways: Liveness = msgspec.field(default_factory=lambda: Liveness(GATEWAY_TIMEOUT_S))
    finished_since_beat: dict[str, list[str]] = {}
    """By gateway, requests that a node finished after its last sign of life: should it be dead, their payloads stay."""
    mean_output_tokens: dict[str, float] = {}
    """Learnt length of answers by ``model class``."""
    plan: PlanState = msgspec.field(default_factory=PlanState)
    open_groups: dict[str, str] = {}
    """The newest group of each ``model class``, which newcomers join while it has room."""
    next_group: int = 0
