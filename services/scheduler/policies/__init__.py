"""How groups come into an order: QLM's way, and those that it is compared with."""

from __future__ import annotations

from collections.abc import Callable

from services.scheduler.policies import edf, edf_affine, fcfs, qlm, shepherd
from services.scheduler.solving.problem.instance import Instance, Queues
from shared.messages.nodes.placement import PlacementProblem

Policy = Callable[[PlacementProblem, Instance], Queues]

POLICIES: dict[str, Policy] = {
    "qlm": qlm.place,
    "edf": edf.place,
    "edf-affine": edf_affine.place,
    "fcfs": fcfs.place,
    "shepherd": shepherd.place,
}
"""As `shared.config.services.queue.QueueOptions.policy` names them. Each keeps the rules of `Instance`."""
