"""How requests are grouped and ordered, what plans may do, and what tenants get beside one another."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from shared.config.corrections import Correction, PredictionOptions
from shared.config.policies import POLICY_RULES, PolicyName, PolicyRules
from shared.config.section import Section


class OperationOptions(Section):
    """Serving operations (QLM, SoCC'24 §5; ``pace`` is ours); each has a plain path without it."""

    evict: bool = True
    """Running requests give way to more urgent ones, and keep their KV."""
    balance: bool = True
    """Groups that wait may move to another node."""
    migrate: bool = True
    """Running groups may move to another node, with their KV."""
    swap: bool = True
    """A node may change its model for a group; without it, each keeps the one that it was given first."""
    pace: bool = True
    """Requests that have time do not join a batch that is as slow as its members' promises allow."""


class QueueOptions(Section):
    """How requests are grouped and ordered."""

    policy: PolicyName = "qlm"
    """``qlm``: groups placed by predicted waiting time. The others are what it is compared with."""
    delta: Annotated[float, Field(gt=0, le=64)] = 0.5
    """A request group is closed to newcomers when it has had this many average batches of requests (QLM's δ)."""
    operations: OperationOptions = OperationOptions()
    """What plans may do."""
    predictions: PredictionOptions = PredictionOptions()
    """What predicted waiting times take into account."""

    @property
    def rules(self) -> PolicyRules:
        """What the policy has the queue manager do."""
        return POLICY_RULES[self.policy]

    @property
    def corrections(self) -> frozenset[Correction]:
        """Of predicted waiting times, those that are on."""
        return frozenset(Correction) - frozenset(self.predictions.without)


class TenantSpec(Section):
    """What a tenant's requests get beside those of others."""

    weight: Annotated[float, Field(gt=0, le=1000)] = 1.0
    """Its share of what gateways hold and nodes do, where tenants compete."""
