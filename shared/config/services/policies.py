"""What each policy does between two plans: a row a policy. How it orders groups is `services.scheduler.policies`.

A new policy is a row here, its name in `PolicyName`, and a module of its name beside the others there.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

OPEN_S = 5.0  # who joins a group that waits goes before those who came to other groups meanwhile: not for long
FIXED_BATCH = 32  # requests that a node runs together, for what counts in batches of one size

PolicyName = Literal["qlm", "edf", "edf-affine", "fcfs", "shepherd"]
OperationName = Literal[
    "evict", "balance", "migrate", "swap", "pace", "immediate", "overtake", "rescue", "warm", "fetch", "read_ahead"
]
"""What the engine and the queue can do for any policy, as `shared.config.services.queue.OperationOptions` describes
it."""

BY_ARRIVAL = "nothing that comes later goes ahead"
TO_THE_END = "what runs is run to its end, where it began"
BY_DUE = "the group that is due first is first at its node anyway"


@dataclass(frozen=True, slots=True)
class PolicyRules:
    """What a policy has the queue manager do. The defaults are those of the simplest: first come, first served."""

    no_use: Mapping[OperationName, str] = field(default_factory=dict)
    """Operations that the policy has no use for, each with the reason. It gets all others."""
    predicts: bool = False
    """Groups are placed by predicted times as they come, and a plan is asked for where one is predicted to be late
    (QLM, SoCC'24 §4). Else new groups stand at the tail, and only plans order them."""
    is_by_due: bool = True
    """A request that is due earlier goes before others; else nothing that comes goes ahead."""
    batches_per_group: float | None = 0.0
    """Most requests of a group, in average batches; None: as `queue.delta` says (δ of QLM's Algorithm 1)."""
    least_requests: int = 1
    """A group may have so many in any case."""
    is_fine: bool = False
    """Tenants, and clusters of lengths, do not share a group; else only model and kind of promise count."""
    stays_movable: bool = False
    """A group that has begun takes no request that has to wait: what runs binds the group to its node."""
    open_s: float = math.inf
    """A group that waits takes newcomers for so long from when its first member came."""


POLICY_RULES: dict[PolicyName, PolicyRules] = {
    "qlm": PolicyRules(
        predicts=True,
        batches_per_group=None,
        is_fine=True,
        stays_movable=True,
        open_s=OPEN_S,
    ),
    "edf": PolicyRules(no_use={"rescue": BY_DUE}),
    "edf-affine": PolicyRules(),
    "fcfs": PolicyRules(
        is_by_due=False,
        no_use={
            "evict": BY_ARRIVAL,
            "migrate": TO_THE_END,
            "pace": BY_ARRIVAL,
            "overtake": BY_ARRIVAL,
            "rescue": BY_ARRIVAL,
        },
    ),
    "shepherd": PolicyRules(
        least_requests=FIXED_BATCH, no_use={"evict": TO_THE_END, "migrate": TO_THE_END, "rescue": BY_DUE}
    ),
}
