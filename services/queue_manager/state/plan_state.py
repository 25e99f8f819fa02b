"""Where the conversation with the scheduler stands: what it was asked, what it answered, what would be asked next."""

from __future__ import annotations

import msgspec


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
    checking: dict[str, None] = {}
    """Of those, the ones that the look which goes on has not come to."""
    checked_at_s: float = 0.0
    """When the last look began."""
    late: dict[str, None] = {}
    """Groups that are predicted to start too late, as far as that was found since the last plan."""
    unseen: dict[str, None] = {}
    """Nodes that were not looked at since the last plan."""
    num_groups: int = 0
    """Groups that had ever been made when it was applied."""
