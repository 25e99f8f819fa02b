"""Which of several tenants may begin at a node: places of its batch are shared by weight, while they compete.

Fairness by virtual time (`fairness`) says which group of a model and kind of promise is next. That alone lets a tenant
that floods the queue go ahead of others: its requests are late, and so join a batch that patient ones stay out of for
the sake of its pace (`batch_limit`); they are of a kind that is due earlier; or they have every place when another
comes.

A request that runs draws a token a step, so places are what tokens are shared by. At a node where more than one tenant
has been of late, one is *below* its share where it has less of the places taken than its weight among those tenants.
Those below it go first among the groups of the model that the node holds, whatever they were promised, and do not wait
for headroom. The others are held back: they begin only as long as the batch keeps its pace, late or not, and while they
have no more than their share of it or `LEAST_SHARE`; and they leave a few places free, where another tenant begins at
once. No running request is stopped for that. A tenant that is alone is not held back.

A batch of half the size does much more than half of the work, since each step reads all weights: so `LEAST_SHARE` costs
a sixth of the tokens at most while others are there (7B on A100), and keeps the pace that they would have beside a
tenant that asks for its share only.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from operator import attrgetter

from services.queue_manager.groups.groups import RequestGroups
from services.queue_manager.state.group import Group
from services.queue_manager.state.node import Node, WaitingGroups
from services.queue_manager.state.state import State
from shared.config.services.queue import TenantSpec, weight_of
from shared.estimator.batching import batching, most_step_tokens

ACTIVE_S = 30.0  # a tenant that was here so lately is expected back: places are left for it
RESERVE = 1 / 16  # of the places of a batch: as many begin at once where another tenant floods the node
LEAST_SHARE = 1 / 2  # of the batch that tenants held back may have, however many share the node
MAX_LOOKED = 1024  # groups of a queue among which those of tenants below their share are looked for
MAX_FAVOURED = 32  # groups of theirs that a node is told at a time; as many as a window has
SHORT_QUEUE = 128  # groups that are looked at each time; of a longer queue what was found holds for `STALE_S`
STALE_S = 0.05


class TenantShares:
    """Owns `Node.waiting`, `Node.favoured`, `Node.held_back`, `Node.beside` and `Node.max_unread`."""

    def __init__(self, state: State, groups: RequestGroups, tenants: Mapping[str, TenantSpec]) -> None:
        self._state = state
        self._groups = groups
        self._tenants = tenants

    def look(self, node: Node, now: float) -> None:
        """Bring them up to date, behind `BatchLimits.look`; O(1) while one tenant is alone.

        Else O(tenants and `SHORT_QUEUE`), and each `STALE_S` O(`MAX_LOOKED`).
        """
        self._forget(node, now)
        if len(node.shares) < 2:
            node.waiting, node.favoured, node.held_back, node.beside, node.max_unread = None, [], [], None, None
            return
        weights = {tenant: weight_of(self._tenants, tenant) for tenant in node.shares}
        each = node.num_running / sum(weights.values())
        below = {tenant for tenant, share in node.shares.items() if share.num_running < weights[tenant] * each}
        node.held_back = [tenant for tenant in node.shares if tenant not in below]
        node.favoured = self._first_of(node, below, now)
        part = sum(weights[tenant] for tenant in node.held_back) / sum(weights.values())
        node.beside, node.max_unread = self._bounds(node, max(LEAST_SHARE, part), now)

    def _forget(self, node: Node, now: float) -> None:
        for tenant, share in list(node.shares.items()):
            if share.num_members:
                share.seen_s = now
            elif now > share.seen_s + ACTIVE_S:
                del node.shares[tenant]

    def _first_of(self, node: Node, tenants: set[str], now: float) -> list[str]:
        """Groups of these in which a request waits for the node's model, due first first."""
        found = node.waiting
        if len(node.queue) <= SHORT_QUEUE or found is None or now >= found.stale_at_s or found.model != node.model:
            found = node.waiting = WaitingGroups(node.model, self._waiting_at(node), now + STALE_S)
        due_first = (self._still_waiting(node, found.by_tenant.get(tenant, [])) for tenant in sorted(tenants))
        merged = heapq.merge(*due_first, key=attrgetter("start_by_s"))
        return [group.gid for group in islice(merged, MAX_FAVOURED)]

    def _waiting_at(self, node: Node) -> dict[str, list[str]]:
        """Of each tenant the first groups in which a request waits for the node's model, due first first."""
        groups, model = self._state.groups, node.model
        found: dict[str, list[Group]] = {}
        if any(share.num_members > share.num_running for share in node.shares.values()):
            for group in map(groups.__getitem__, islice(node.queue, MAX_LOOKED)):
                if group.waiting and group.model == model:
                    found.setdefault(group.tenant, []).append(group)
        return {
            tenant: [group.gid for group in sorted(groups, key=attrgetter("start_by_s"))[:MAX_FAVOURED]]
            for tenant, groups in found.items()
        }

    def _still_waiting(self, node: Node, gids: Sequence[str]) -> Iterator[Group]:
        """Those of these groups that still stand at the node and wait."""
        groups = (self._state.groups.get(gid) for gid in gids)
        return (one for one in groups if one is not None and one.waiting and one.node == node.node)

    def _bounds(self, node: Node, part: float, now: float) -> tuple[int | None, int | None]:
        """Requests beside which a tenant held back may begin, with this part of the batch; and prompts.

        Prompts of one step: `window` says how many of them a newcomer may find before it. None where nothing is known
        of requests.
        """
        typical = self._groups.typical(node.model, now)
        if typical is None:
            return node.max_running, None
        batch = int(batching(node.known, typical).batch)
        batch -= max(1, round(RESERVE * batch))
        if node.max_running is not None:
            batch = min(batch, node.max_running)
        num_others = node.num_running - sum(node.shares[tenant].num_running for tenant in node.held_back)
        num_prompts = int(most_step_tokens(node.known, node.model) / max(1.0, typical.mean_prompt_tokens))
        return max(1, min(batch, int(part * batch) + num_others)), max(1, num_prompts)


def is_below(node: Node, tenant: str, model: str) -> bool:
    """Whether a request of this tenant that comes now is favoured at a node; one that it does not know is."""
    if model != node.model or not tenant:
        return False
    if len(node.shares.keys() | {tenant}) < 2 or not node.num_running:
        return False
    return tenant not in (node.held_back or node.shares)


def in_turn(node: Node, groups: Sequence[Group], newcomer: str = "") -> tuple[list[Group], int]:
    """Groups of the node's queue with those that are favoured first, and how many these are.

    ``newcomer``: a tenant that is favoured now, though the node does not know it yet.
    """
    held_back = set(node.held_back or (node.shares if newcomer else ()))
    if not held_back:
        return list(groups), 0
    first = [group for group in groups if group.waiting and group.model == node.model and group.tenant not in held_back]
    chosen = {group.gid for group in first}
    return [*first, *(group for group in groups if group.gid not in chosen)], len(first)
