"""Which requests go over to the receiver, and which come back (Weaver, ATC'25, §4.3 and §5).

As in the paper, a share of the requests is remote: chosen when they begin, moved when their prompt is computed, and
remote to their end. Unlike there, the next one is chosen so that the share is kept, not by chance; full blocks go ahead
as they are made; and whoever is in the way of the receiver's own requests is called back.
"""

from __future__ import annotations

from gpu_node.engine.requests.sequence import EngineRequest
from gpu_node.engine.steps.admission import KvAdmission
from gpu_node.engine.steps.roster import Roster
from gpu_node.engine.steps.step import Step


class Residences:
    """Moves requests of one model, ahead of the rows of a step."""

    def __init__(self, roster: Roster, admission: KvAdmission) -> None:
        self._roster = roster
        self._blocks = roster.blocks
        self._admission = admission
        self.ratio = 0.0
        """Of those that run, how many shall be remote."""

    def wanted_back(self) -> EngineRequest | None:
        """The newest that is remote, while the receiver wants pages back."""
        if not self._blocks.remote.pages.num_owed:
            return None
        remote = [one for one in self._roster.running.values() if self._roster.is_remote(one)]
        return max(remote, key=lambda one: one.order, default=None)

    def victim(self, step: Step) -> EngineRequest:
        """The newest remote request that the step does not compute yet; there is one that asks for a block."""
        return max(
            (one for one in self._roster.running.values() if self._roster.is_remote(one) and not _is_in(one, step)),
            key=lambda one: one.order,
        )

    def send(self, step: Step) -> None:
        """What goes to the receiver with this step."""
        for request in self._roster.running.values():
            if request.goes_over is None:
                request.goes_over = self._chooses(request)
            if not request.goes_over or self._roster.is_remote(request):
                continue
            (leader,) = request.sequences
            if request.is_prefill:
                step.sends += self._blocks.send_ahead(leader.sequence_id, leader.num_computed_tokens)
            elif self._blocks.can_send(leader.sequence_id):
                step.sends += self._blocks.send(leader.sequence_id)

    def _chooses(self, request: EngineRequest) -> bool:
        """Requests of several sequences stay: what these share, they copy before they write."""
        if request.num_places > 1 or request.sampling.is_beam or not self._blocks.remote.pages.num_granted:
            return False
        over = [one for one in self._roster.running.values() if one.goes_over]
        if len(over) + 1 > self.ratio * len(self._roster.running):
            return False
        return self._admission.may_go_over(request, over)


def _is_in(request: EngineRequest, step: Step) -> bool:
    return step.part(request.sequences[0].sequence_id) is not None
