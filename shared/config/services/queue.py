"""How requests are grouped and ordered, what plans may do, and what tenants get beside one another."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field, model_validator

from shared.config.section import Section
from shared.config.services.corrections import Correction, PredictionOptions
from shared.config.services.policies import POLICY_RULES, OperationName, PolicyName, PolicyRules
from shared.messages.prefixes.partitions import partition_of


class OperationOptions(Section):
    """Serving operations (QLM, SoCC'24 §5; from ``pace`` on ours); each has a plain path without it.

    Each is a switch of any policy. Null: it is used where the policy has a use for it (`PolicyRules.no_use`).
    """

    evict: bool | None = None
    """Running requests give way to more urgent ones, and keep their KV."""
    balance: bool | None = None
    """Groups that wait may move to another node."""
    migrate: bool | None = None
    """Running groups may move to another node, with their KV."""
    swap: bool | None = None
    """A node may change its model for a group; without it, each keeps the one that it was given first."""
    pace: bool | None = None
    """Requests that have time do not join a batch that is as slow as its members' promises allow."""
    immediate: bool | None = None
    """A request that comes begins at once at the node where that costs the promises least, if any has room."""
    overtake: bool | None = None
    """A request that comes goes before those at the tail of a queue that are due later; else a plan has to put it."""
    rescue: bool | None = None
    """A group that is far too late goes to the front, whatever plans say."""
    warm: bool | None = None
    """Nodes tell what they have cached, and a request is weighed by what of its prompt each node has."""
    fetch: bool | None = None
    """A node reads what another one has cached of a prompt, where that is quicker than computing it (with ``warm``)."""
    read_ahead: bool | None = None
    """A node that decodes reads KV of a prompt while a node that prefills computes the rest of it."""


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

    @model_validator(mode="after")
    def _has_use(self) -> QueueOptions:
        problems = [
            f"operations.{name}: {self.policy!r} has no use for it ({reason}); leave it out, or set it to false"
            for name, reason in self.rules.no_use.items()
            if getattr(self.operations, name)
        ]
        if self.operations.fetch and not self.uses("warm"):
            problems.append(
                "operations.fetch: what nodes have cached is not known without warm; set that, or fetch: false"
            )
        if problems:
            raise ValueError("\n".join(problems))
        return self

    @property
    def rules(self) -> PolicyRules:
        """What the policy has the queue manager do."""
        return POLICY_RULES[self.policy]

    @property
    def corrections(self) -> frozenset[Correction]:
        """Of predicted waiting times, those that are on."""
        return frozenset(Correction) - frozenset(self.predictions.without)

    def uses(self, operation: OperationName) -> bool:
        """Whether the policy gets this operation: as configured, else where it has a use for it."""
        asked: bool | None = getattr(self.operations, operation)
        return operation not in self.rules.no_use if asked is None else asked


class TenantSpec(Section):
    """What a tenant's requests get beside those of others."""

    weight: Annotated[float, Field(gt=0, le=1000)] = 1.0
    """Its share of what gateways hold and nodes do, where tenants compete."""
    cache: Literal["shared", "own"] = "shared"
    """``own``: its requests find nothing that was computed for others, and others find nothing of theirs."""


def weight_of(tenants: Mapping[str, TenantSpec], tenant: str) -> float:
    """A tenant's weight; those that are not named have the default."""
    return tenants.get(tenant, _DEFAULT_TENANT).weight


def cache_partition(tenants: Mapping[str, TenantSpec], tenant: str, salt: str = "") -> str:
    """`Payload.partition` of a tenant's request; ``salt``: its own, ``""`` where it has none."""
    has_own = tenants.get(tenant, _DEFAULT_TENANT).cache == "own"
    return partition_of(tenant if has_own else "", salt)


_DEFAULT_TENANT = TenantSpec()
