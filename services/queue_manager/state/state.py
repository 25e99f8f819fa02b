"""What the queue manager knows. Plain structs, so that a snapshot is one encode and a restore one decode.

``gc=False`` where there are many of a kind: they hold names and numbers only, so there is no cycle to be collected, and
a pass of the collector over all of them would stop the service.
"""

from __future__ import annotations

from math import inf

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
from services.queue_manager.state.group import Group
from services.queue_manager.state.group_key import GroupKey
from services.queue_manager.state.grouping import ModelBatch
from services.queue_manager.state.node import Node
from services.queue_manager.state.phase_gains import Gains
from services.queue_manager.state.plan_state import HandOver, PlanState
from services.queue_manager.state.request import Request
from shared.messages.nodes.nodes import Phases
from shared.messages.requests.request_kind import RequestKind
from shared.messages.requests.requests import Submit
from shared.service.liveness import Liveness

GATEWAY_TIMEOUT_S = 10.0  # a gateway that is silent for this long has lost its clients


class ToldWait(msgspec.Struct, frozen=True, array_like=True):
    """How long one that comes was predicted to wait for its first token; infinite where no node can serve it."""

    mean_s: float
    p90_s: float
    predicted_at_s: float


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
    waits: dict[tuple[str, str, str], ToldWait] = {}
    """By tenant, model and kind of promise; no tenant for all of them."""
    turns: dict[tuple[str, str, str], str] = {}
    """Of these lines, those that have a new wait before gateways are told next, and the last group of each."""
    placed_at: str = ""
    """The last node whose places were told last, where they take turns; ``""``: all were."""


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
    look_again_s: float = inf
    """When idle nodes are looked at next (`take_over.TakeOvers`)."""
    plan: PlanState = msgspec.field(default_factory=PlanState)
    status: StatusState = msgspec.field(default_factory=StatusState)
    open_groups: dict[GroupKey, str] = {}
    """The newest group of each key, which newcomers join while it has room."""
    next_group: int = 0
    lengths: dict[LengthKey, LengthSketch] = {}
    """Learnt lengths of answers (`lengths.Lengths`)."""
    paces: dict[WeightsAt, TokenRate] = {}
    """Learnt output tokens a second of one running request (`token_rates.TokenRates`)."""
    widths: dict[WaitKind, float] = {}
    """Learnt widths of the intervals of predicted waits (`wait_intervals.WaitIntervals`)."""
    open_bounds: dict[str, WatchedInterval] = {}
    """Intervals that are watched."""
    flows: dict[RequestKind, Flow] = {}
    """How fast work arrives (`arrivals.ArrivalRates`)."""
    lifetimes: Lifetimes = msgspec.field(default_factory=Lifetimes)
    """For how long it did (`lifetimes`)."""
    fits: dict[WeightsAt, Fit] = {}
    """How nodes do against what is known of them (`calibration.Calibration`)."""
    running: dict[str, Runners] = {}
    """By model, what runs (`running.RunningRequests`)."""
    clusters: dict[RequestKind, LengthClusters] = {}
    """Learnt clusters of lengths (`clusters.Clusters`)."""
    lines: dict[RequestKind, VirtualTime] = {}
    """Virtual time (`fairness.Fairness`)."""
    batches: dict[str, ModelBatch] = {}
    """What there is of each model (`grouping.Batches`)."""
    asked: dict[RequestKind, Asked] = {}
    """What has come of late, by model and kind of promise (`demand.Demand`)."""

    phase_gains: dict[str, Gains] = {}
    """By model, what other splits of its nodes would have saved (`load_phases.LoadPhases`)."""
    phases_due_s: float = 0.0
    """When it is looked at next who serves which phase."""
    phase_changes: dict[Phases, int] = {}
    """How often a node was told to change to these."""

    @property
    def anybody_waits(self) -> bool:
        """Whether there are requests that a node could pull, or that have no node."""
        return bool(self.waiting_at) or self.num_placed < len(self.groups)
