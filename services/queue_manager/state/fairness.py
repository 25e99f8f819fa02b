"""Tenants share the tokens of a model and kind of promise by their weights: start-time fair queueing (Goyal, Vin and
Cheng, SIGCOMM'96) over request groups.

Each line (model and kind of promise) has a virtual time V. A group gets the start tag S = max(V, F), with F the finish
tag of its tenant; each request that joins moves F on by its expected tokens (prompt and output) / weight. V is the
start tag of the group begun last. Groups that begin in the order of their tags serve any two tenants, while both have
something waiting, within the bound of the paper's Theorem 1: |W_a/w_a - W_b/w_b| ≤ l_a/w_a + l_b/w_b, with l the
largest group of each. A tenant that floods the queue moves its own finish tag away, and no other's.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from shared.config.services.queue import TenantSpec, weight_of
from shared.messages.requests.request_kind import RequestKind

LOOKS = (
    2  # tenants looked at for each group that is opened: more than come, so that tenants that have left are forgotten
)


class VirtualTime(msgspec.Struct):
    """Virtual time of one model and kind of promise, in tokens a weight of 1 would have had."""

    virtual_tokens: float = 0.0
    finish_tags: dict[str, float] = {}
    """By tenant, in the order in which they were looked at last."""
    num_groups: int = 0
    """While there are none, no tenant competes: the line is forgotten, and with it what each had."""


class Fairness:
    """Start tags of groups. Owns `State.lines`."""

    def __init__(self, lines: dict[RequestKind, VirtualTime], tenants: Mapping[str, TenantSpec]) -> None:
        self._lines = lines
        self._tenants = tenants

    def next_tag(self, kind: RequestKind, tenant: str) -> float:
        """The start tag that a group of this tenant would get now."""
        line = self._lines.get(kind)
        return max(line.virtual_tokens, line.finish_tags.get(tenant, 0.0)) if line is not None else 0.0

    def open(self, kind: RequestKind, tenant: str) -> float:
        """A group of this tenant was opened; answers its start tag."""
        line = self._lines.setdefault(kind, VirtualTime())
        line.num_groups += 1
        for _ in range(LOOKS):
            self._look_at_one(line)
        tag = self.next_tag(kind, tenant)
        line.finish_tags[tenant] = tag
        return tag

    def reopen(self, kind: RequestKind, rank: float = 0.0) -> float:
        """A group was opened for requests that had begun before: they cost nothing again; answers V.

        ``rank``: what they had, should the line have been forgotten meanwhile.
        """
        line = self._lines.setdefault(kind, VirtualTime(virtual_tokens=rank))
        line.num_groups += 1
        return line.virtual_tokens

    def charge(self, kind: RequestKind, tenant: str, tokens: float) -> None:
        """A request of so many expected tokens has joined a group of this tenant."""
        line = self._lines[kind]
        finish_tag = max(line.finish_tags.get(tenant, 0.0), line.virtual_tokens)
        line.finish_tags[tenant] = finish_tag + tokens / weight_of(self._tenants, tenant)

    def begin(self, kind: RequestKind, rank: float) -> None:
        """A group with this start tag has begun."""
        line = self._lines[kind]
        line.virtual_tokens = max(line.virtual_tokens, rank)

    def close(self, kind: RequestKind) -> None:
        """A group has ended."""
        line = self._lines[kind]
        line.num_groups -= 1
        if not line.num_groups:
            del self._lines[kind]

    def _look_at_one(self, line: VirtualTime) -> None:
        """Forget the tenant that was looked at longest ago, unless its finish tag says more than V does."""
        if line.finish_tags:
            tenant = next(iter(line.finish_tags))
            finish_tag = line.finish_tags.pop(tenant)
            if finish_tag > line.virtual_tokens:
                line.finish_tags[tenant] = finish_tag
