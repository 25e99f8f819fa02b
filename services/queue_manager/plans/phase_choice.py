"""How many of the nodes that follow the load prefill, how many decode, or whether all of them do both.

What each split costs the promises a second, `shared.estimator.splits.costs` says. The cheapest is not taken at once: a
change holds up those who run (`change_cost`), and rates that are learnt from requests which come at random go up and
down. So what another split would have saved is summed up while it is the better one ::

    G ← max(0, G + (c_now - c_other) dt)          change where G ≥ cost of the change, to the cheapest there is now

By then staying has cost as much as the change. Of two splits, both together are at most twice what it would have been
to change at once, or never: the rule of who does not know for how long (Karlin, Manasse, Rudolph and Sleator,
Algorithmica 3, 1988; for several states Borodin, Linial and Saks, JACM 39, 1992). Where promises are broken every
second that is within seconds; where a little time is to be gained it takes minutes, and a load that is over before
then changes nothing. A sum that does not fall below 0 is Page's test for a change (CUSUM, Biometrika 41, 1954): noise
about a load that stays adds up to nothing. While a load stays as it is, c does, too, so the cheapest split is one and
the same, and after the change to it nothing is cheaper: there is one change at most.

Where a phase has no node of its own while the other one has, the split is no split, and the next look ends that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from services.queue_manager.state.phase_gains import TOGETHER, Gains
from shared.estimator.splits.costs import Judged, NodeSplit, change_cost, judged
from shared.estimator.splits.works import KindWork, PhaseLoad
from shared.messages.nodes.nodes import BOTH, DECODE, PREFILL, Phases

MAX_SPLITS = 64
"""That are judged in one look, evenly apart: of more nodes, not every number is tried."""


class AutoNode(NamedTuple):
    """A node that follows the load."""

    node: str
    phases: Phases
    """As it serves, or was told to."""
    num_running: int


class Holders(NamedTuple):
    """All nodes that hold a model."""

    followers: Sequence[AutoNode]
    num_prefill: int = 0
    """Of those that are configured so."""
    num_decode: int = 0
    num_both: int = 0

    @property
    def split(self) -> NodeSplit:
        """As it is."""
        return self._with([one.phases for one in self.followers])

    def _with(self, phases: Sequence[Phases]) -> NodeSplit:
        return NodeSplit(
            self.num_prefill + phases.count(PREFILL),
            self.num_decode + phases.count(DECODE),
            self.num_both + phases.count(BOTH),
        )

    @property
    def choices(self) -> list[dict[str, Phases]]:
        """What each follower may be told: all do both, where no node is configured otherwise; or a number of them
        prefill and the others decode, so that both have one at least."""
        number = len(self.followers)
        first = 0 if self.num_prefill else 1
        last = number if self.num_decode else number - 1
        choices = [] if self.num_prefill or self.num_decode else [self._parted(None)]
        count = max(0, last - first + 1)
        step = max(1, -(-count // MAX_SPLITS))
        return choices + [self._parted(num_prefill) for num_prefill in range(first, last + 1, step)]

    def _parted(self, num_prefill: int | None) -> dict[str, Phases]:
        """Those that prefill already go on with that, then those with the least to leave behind."""
        if num_prefill is None:
            return {one.node: BOTH for one in self.followers}
        order = sorted(self.followers, key=lambda one: (_ORDER[one.phases], one.num_running, one.node))
        return {one.node: PREFILL if place < num_prefill else DECODE for place, one in enumerate(order)}

    def after(self, choice: Mapping[str, Phases]) -> NodeSplit:
        """The split that it makes."""
        return self._with(list(choice.values()))

    def num_changed(self, choice: Mapping[str, Phases]) -> int:
        """Nodes that would have to change."""
        return sum(choice[one.node] != one.phases for one in self.followers)


_ORDER = {PREFILL: 0, BOTH: 1, DECODE: 2}


def choose(
    gains: Gains, holders: Holders, works: Sequence[KindWork], load: PhaseLoad, dt_s: float
) -> dict[str, Phases] | None:
    """What the followers are to serve from now on; None: what they do. Sums up in ``gains`` what ``dt_s`` have cost.

    O(splits x kinds).
    """
    choices = holders.choices
    if not choices:
        return None
    now = judged(works, load, holders.split)
    costs = {_key(holders.after(choice)): (judged(works, load, holders.after(choice)), choice) for choice in choices}
    for key, (one, _) in costs.items():
        gains.saved[key] = max(0.0, gains.saved.get(key, 0.0) + (now.cost - one.cost) * dt_s)
    least, choice = min(costs.values(), key=lambda pair: (pair[0].cost, holders.num_changed(pair[1])))
    num_changed = holders.num_changed(choice)
    if not num_changed:
        return None
    if not (_is_void(holders.split) or _is_paid(gains, holders, works, choice, now, least)):
        return None
    gains.saved.clear()
    return choice


def _is_paid(
    gains: Gains, holders: Holders, works: Sequence[KindWork], choice: Mapping[str, Phases], now: Judged, least: Judged
) -> bool:
    if not works or least.cost >= now.cost:
        return False
    num_running = max(now.num_running, least.num_running)
    cost = change_cost(works, holders.num_changed(choice), num_running)
    return gains.saved[_key(holders.after(choice))] >= cost


def _is_void(split: NodeSplit) -> bool:
    """Nodes decode to whom nobody hands over, or prefill with nobody who goes on."""
    if split.num_prefill:
        return not split.num_decode and not split.num_both
    return bool(split.num_decode)


def _key(split: NodeSplit) -> int:
    return split.num_prefill if split.num_prefill or split.num_decode else TOGETHER
