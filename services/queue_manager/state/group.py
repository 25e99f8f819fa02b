"""Requests that are placed together, as the queue manager knows them."""

from __future__ import annotations

import math

import msgspec

from services.queue_manager.state.group_key import GroupKey
from services.queue_manager.state.totals import Totals
from shared.messages.nodes.nodes import Phase
from shared.messages.requests.request_kind import RequestKind
from shared.messages.requests.slo import Slo


class Group(msgspec.Struct, gc=False):
    """Requests of one model, one kind of promise, one tenant and similar lengths that are placed together.

    First come, first served inside. A *resume group* holds requests that were evicted: newcomers stay out.
    """

    gid: str
    model: str
    slo_kind: str
    tenant: str = ""
    """``""`` where the policy does not tell tenants apart."""
    key: GroupKey = GroupKey()
    """What it is found under while it is open (`State.open_groups`)."""
    rank: float = 0.0
    """Start tag of its tenant (`fairness`): groups of one model and kind begin in this order."""
    kv_at: str = ""
    """Of a resume group: where the KV of its waiting members lies, a node or `HANDED_OVER`."""
    root: str = ""
    """Of a resume group: the group that its members joined first."""
    warm_at: str = ""
    """The node that has cached a good part of its members' prompts."""
    waiting: dict[str, None] = {}
    """Ids of the members that no node has pulled, in the order of the group's stream."""
    running: dict[str, None] = {}
    """Ids of those that a node works on, in the order in which they were pulled."""
    waiting_totals: Totals = msgspec.field(default_factory=Totals)
    running_totals: Totals = msgspec.field(default_factory=Totals)
    start_by_s: float = math.inf
    """The earliest time by which a waiting member must have started (one that runs, when none waits)."""
    last_due_s: float = -math.inf
    """The latest time by which one that ever joined has to start."""
    hurried: list[tuple[float, str]] = []
    """Heap of (time, id): waiting members that are due earlier than one that joined before them."""
    num_joined: int = 0
    """Requests it has ever had; at the limit it is closed to newcomers."""
    opened_s: float = math.inf
    """When the first of them came."""
    node: str = ""
    """The node in whose virtual queue it stands; ``""`` while it has no place."""
    drain_s: float = 0.0
    """Its part of `Node.drain_s`."""
    promise: Slo | None = None
    """Of its first member, which speaks for all: the first that waits, or the first that runs when none waits."""
    is_planned: bool = False
    """It stands where a plan has put it; else where a rule has."""

    @property
    def kind(self) -> RequestKind:
        """Of its members."""
        return RequestKind(self.model, self.slo_kind)

    @property
    def needs(self) -> str:
        """Of its members, as in `Submit`."""
        return self.key.needs

    @property
    def num_waiting(self) -> int:
        """Members that no node has pulled."""
        return len(self.waiting)

    @property
    def phase(self) -> Phase:
        """As `GroupLoad.phase`."""
        return "decode" if self.kv_at else "prefill"

    @property
    def num_running(self) -> int:
        """Members that a node works on."""
        return len(self.running)

    @property
    def between_dues_s(self) -> float:
        """Time from when one waiting member is due until the next is, about: they come one after the other."""
        return (self.last_due_s - self.start_by_s) / len(self.waiting) if self.waiting else 0.0

    @property
    def members(self) -> list[str]:
        """Ids of all that have not finished, those that run first."""
        return [*self.running, *self.waiting]

    @property
    def num_members(self) -> int:
        """All that have not finished."""
        return len(self.waiting) + len(self.running)
