"""Which request gives way when a device has no block left: to host memory, or to be computed again."""

from __future__ import annotations

from gpu_node.engine.measures.counts import Counts, TierCounts
from gpu_node.engine.requests.sequence import EngineRequest
from gpu_node.engine.steps.admission.decisions import Decisions
from gpu_node.engine.steps.admission.preemption import KvFate
from gpu_node.engine.steps.batch.roster import Roster


class GivingWay:
    """Preempts requests of one model that lie on the device. One that lies on a receiver holds nothing here."""

    def __init__(self, roster: Roster, decisions: Decisions) -> None:
        self._roster = roster
        self._preemption = decisions.preemption
        self.counts = Counts()

    def make_room(self, now: float) -> EngineRequest | None:
        """Preempt the request that is next to give way; None where none is left on the device."""
        local = [one for one in self._roster.running.values() if not self._roster.is_remote(one)]
        if not local:
            return None
        victim = self._preemption.victim(local, now)
        fate = self._preemption.fate(victim, self._roster.blocks)
        if fate is KvFate.SWAP and self._roster.can_swap_out(victim):
            self.counts += Counts(num_preemptions=1)
            self._roster.swap_out(victim)
            return victim
        self.counts += Counts(
            num_preemptions=1,
            num_recomputed=int(victim.has_computed),
            swapped=TierCounts(num_refused=int(fate is KvFate.NO_ROOM)),
        )
        victim.num_dropped_tokens = victim.sequences[0].num_computed_tokens
        self._roster.put_back(victim)
        return victim
