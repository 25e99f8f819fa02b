"""Policies as benchmarks compare them: with every operation that they can use, without some, without any."""

from __future__ import annotations

from dataclasses import dataclass

from shared.config.services.policies import POLICY_RULES, OperationName, PolicyName
from shared.config.services.queue import OperationOptions

BEYOND_PLANS: tuple[OperationName, ...] = ("evict", "migrate", "pace", "immediate", "overtake", "rescue")
"""What makes an engine and a queue more than a plan that is followed; balancing and swaps are part of any plan."""
ALL_OPERATIONS = OperationOptions()


@dataclass(frozen=True, slots=True)
class Variant:
    """A policy and what it gets."""

    policy: PolicyName
    operations: OperationOptions = ALL_OPERATIONS


def without(*names: OperationName) -> OperationOptions:
    """All that a policy can use but these."""
    return OperationOptions.model_validate(dict.fromkeys(names, False))


VARIANTS: dict[str, Variant] = {
    **{policy: Variant(policy) for policy in POLICY_RULES},
    **{f"{policy}-plain": Variant(policy, without(*BEYOND_PLANS)) for policy in POLICY_RULES},
    "qlm-no-pace": Variant("qlm", without("pace")),
}
"""By the names that ``--policies`` takes: ``edf`` has all that it can use, ``edf-plain`` none of `BEYOND_PLANS`."""
COMPARED = ("qlm", "qlm-no-pace", "edf", "edf-plain", "edf-affine", "shepherd", "shepherd-plain", "fcfs")
"""Those of the tables."""
