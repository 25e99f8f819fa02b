"""A placement problem as numbers: what each group would cost each node, and where it may stand.

Groups are numbered in rank order and nodes as they come, so the solvers work on small integers. Nodes of the same kind
share their tables.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from shared.messages.requests.request_kind import RequestKind

Queues = list[list[int]]
"""The groups of every node, head first, both by number."""


@dataclass(frozen=True, slots=True)
class InstanceGroup:
    """A request group, as far as it is the same on every node."""

    name: str
    model: str
    kind: RequestKind
    """Model and kind of promise: within one of these, groups start in the order of their numbers."""
    due_s: float
    """From now until the first deadline, as it was promised: what those go by who order by deadline."""
    num_waiting: int
    num_running: int
    home: int | None
    """The node that runs its running members; None where nothing runs."""
    places: tuple[int, ...]
    """Nodes that it may be placed at. Empty: none can serve it, it is left out of the plan."""


@dataclass(frozen=True, slots=True)
class InstanceNode:
    """A node, with what every group would take there. Sequences are indexed by group, mappings by model; seconds."""

    name: str
    model: str
    """Loaded, or being loaded; ``""`` while there is none."""
    ready_s: float
    """Until it is: nothing begins before, and no load is broken off."""
    is_full: bool
    """Its batch has no room: a waiting group has to wait for a place, or for an eviction."""
    due_s: Sequence[float]
    """From now until the first waiting member must have started here, to keep its promise; negative once missed."""
    work_s: Sequence[float]
    """All tokens of the group at the throughput of a full batch: how long those behind it are kept."""
    lead_s: Sequence[float]
    """The same without its last member, which starts when this is done."""
    tail_s: Sequence[float]
    """From the start of its last member to the end of all."""
    setup_s: Sequence[float]
    """Until kept KV is back on the device: after an eviction here, or on the way from another node."""
    evict_s: Mapping[int, float]
    """Of the groups that run here: moving their KV to host memory."""
    rest_s: Mapping[int, float]
    """Of the groups that run here: until the last of the running members ends, if it is left alone."""
    load_s: Mapping[str, float]
    """Loading a model's weights here."""
    overlap_s: Mapping[str, float]
    """Work that a full batch has in it at any time: a request starts when the work ahead has fallen to this."""

    @property
    def yield_s(self) -> float:
        """Evicting all that runs here."""
        return sum(self.evict_s.values())


@dataclass(frozen=True, slots=True)
class Instance:
    """All groups and nodes of one problem."""

    groups: Sequence[InstanceGroup]
    nodes: Sequence[InstanceNode]
    may_evict: bool = True
    """A waiting group may stand before one that runs."""

    def must_precede(self, first: int, second: int, node: int) -> bool:
        """Whether the queue of ``node`` may hold ``second`` only behind ``first``.

        Within a kind by number, unless ``second`` runs there and so has started before. Without eviction, what runs
        comes before what waits.
        """
        one, other = self.groups[first], self.groups[second]
        if one.kind == other.kind and first < second and other.home != node:
            return True
        return not self.may_evict and one.home == node and other.home != node

    def span(self, group: int, node: int, queue: Sequence[int]) -> tuple[int, int]:
        """First and last place in ``queue``, which does not hold it, at which a group may be put in."""
        first, last = 0, len(queue)
        groups, kind, may_evict = self.groups, self.groups[group].kind, self.may_evict
        for place, other in enumerate(queue):
            if may_evict and groups[other].kind != kind:
                continue  # the rules below have nothing to say; most are like this
            if self.must_precede(other, group, node):
                first = place + 1
            elif last > place and self.must_precede(group, other, node):
                last = place
        return first, last
