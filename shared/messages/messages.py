"""All messages that cross a process border, as one type: what a stream may hold and what a core may be given."""

from __future__ import annotations

from shared.messages.memory.blocks import BlockNews, Locate, Located, TellBlocks
from shared.messages.memory.leases import LeaseAnswer, LeaseOrder
from shared.messages.message import Tick
from shared.messages.nodes.nodes import Fence, Heartbeat, Load, NodeDown, NodeGone, NodeUp, Scale, Scaled, Serve
from shared.messages.nodes.placement import PlacementProblem, Plan, PlanRequest, Solved
from shared.messages.requests.inventories import GatewayInventory, NodeInventory
from shared.messages.requests.requests import (
    Abort,
    Cancel,
    Enqueued,
    Evict,
    Evicted,
    Finished,
    GatewayBeat,
    GatewayGone,
    KvOpened,
    Pulled,
    QueueStatus,
    ReadAhead,
    Rejected,
    Resubmit,
    Submit,
    Tokens,
    VirtualQueue,
)

AnyMessage = (
    Tick
    | Submit
    | Cancel
    | GatewayBeat
    | GatewayGone
    | GatewayInventory
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
    | NodeInventory
    | PlanRequest
    | PlacementProblem
    | Plan
    | Solved
    | Scale
    | Scaled
    | BlockNews
    | TellBlocks
    | Locate
    | Located
    | LeaseOrder
    | LeaseAnswer
    | KvOpened
    | ReadAhead
    | Serve
)
