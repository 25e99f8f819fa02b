"""What makes requests alike enough for one queue: the weights that a node has to hold, and the kind of promise."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from shared.messages.requests.slo import Slo


class Asking(Protocol):
    """Whatever asks for a model under a promise."""

    @property
    def model(self) -> str:
        """The name under which it is served."""
        ...

    @property
    def slo(self) -> Slo:
        """Its promise."""
        ...


class RequestKind(NamedTuple):
    """A key; by it, arrivals, fairness and clusters are kept."""

    weights: str
    """What a node has to hold: several served names may come to share it (adapters of one model)."""
    slo_kind: str
    """As `Slo.kind`."""

    @classmethod
    def of(cls, request: Asking) -> RequestKind:
        """The one place that tells weights by a served name: each name has its own, called the same."""
        return cls(request.model, request.slo.kind)
