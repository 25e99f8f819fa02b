"""What each policy does between two plans: a row a policy. How it orders groups is `services.scheduler.policies`.

A new policy is a row here, its name in `PolicyName`, and a module of its name beside the others there.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

OPEN_S = 5.0  # who joins a group that waits goes before those who came to other groups meanwhile: not for long
FIXED_BATCH = 32  # requests that a node runs together, for what counts in batches of one size

PolicyName = Literal["qlm", "edf", "fcfs", "shepherd"]


@dataclass(frozen=True, slots=True)
class PolicyRules:
    """What a policy has the queue manager do. The defaults are those of the simplest: first come, first served."""

    predicts: bool = False
    """Groups are placed by predicted times as they come, and a plan is asked for where one is predicted to be late
    (QLM, SoCC'24 §4). Else new groups stand at the tail, and only plans order them."""
    evicts: bool = False
    """A running group may stand behind one that waits (QLM, SoCC'24 §5: request eviction)."""
    limits_batches: bool = False
    """A request with slack waits until the batch has room (`queues.batch_limit`)."""
    rescues: bool = False
    """A group that is far too late goes to the front (`plans.rescue`)."""
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
        evicts=True,
        limits_batches=True,
        rescues=True,
        batches_per_group=None,
        is_fine=True,
        stays_movable=True,
        open_s=OPEN_S,
    ),
    "edf": PolicyRules(),
    "fcfs": PolicyRules(is_by_due=False),
    "shepherd": PolicyRules(least_requests=FIXED_BATCH),
}
