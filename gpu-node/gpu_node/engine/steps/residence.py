"""Which requests go over to the receiver, and which come back (Weaver, ATC'25, §4.3 and §5).

As in the paper, a share of the requests is remote: chosen when they begin, moved when their prompt is computed, and
remote to their end. Unlike there, the next one is chosen so that the share is kept, not by chance; full blocks go ahead
as they are made; and requests that are in the way of the receiver's own are called back.

What lies there belongs to a *generation* of the link (`docs/decisions/offload.md`): a step is planned in one, and when
it is lost, all that lies there is.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Collection

from gpu_node.engine.border.plan import StepPlan, StepResult
from gpu_node.engine.requests.sequence import EngineRequest
from gpu_node.engine.steps.admission.admission import KvAdmission
from gpu_node.engine.steps.batch.roster import Roster
from gpu_node.engine.steps.batch.step import Step
from gpu_node.engine.steps.giving_way import GivingWay


class Residences:
    """Moves requests of one model, ahead of the rows of a step."""

    def __init__(self, roster: Roster, admission: KvAdmission, giving_way: GivingWay) -> None:
        self._roster = roster
        self._blocks = roster.blocks
        self._admission = admission
        self._giving_way = giving_way
        self.ratio = 0.0
        """Of those that run, how many shall be remote."""
        self.num_lost = 0
        """Requests that were computed again because a receiver lost them."""
        self._generation = 0
        self._num_planned = self._num_taken = 0  # steps
        self._leaving: deque[tuple[int, list[int]]] = deque()  # pages, and the last step that may use them
        self._returned: list[int] = []

    # --- what the receiver grants -------------------------------------------------------------------------------------

    def grant(self, pages: Collection[int], blocks_per_page: int) -> None:
        """Pages of the receiver, in which so many blocks lie each."""
        self._blocks.connect(blocks_per_page)
        self._blocks.remote.pages.grant(pages)
        self.collect_pages()

    def withdraw(self, num_pages: int) -> None:
        """The receiver wants pages back: they are told now, or as soon as what lies there is back."""
        self._return(self._blocks.remote.pages.withdraw(num_pages))

    def collect_pages(self) -> None:
        """Something has left the receiver: what is owed of its pages goes back."""
        self._return(self._blocks.remote.pages.give_back())

    def take_returned(self) -> list[int]:
        """Pages that were given back since the last call."""
        returned, self._returned = self._returned, []
        return returned

    def serve(self, generation: int) -> None:
        """The receiver serves that generation now, and has nothing of an earlier one; 0 while it serves none."""
        if not self._blocks.remote.num_used:
            self._generation = generation

    @property
    def generation(self) -> int:
        """That what lies there belongs to; 0 where nothing may go there."""
        return self._generation

    @property
    def state(self) -> tuple[float, ...]:
        """Changes whenever a request has left for the receiver, or more or fewer may."""
        remote = self._blocks.remote
        return self._generation, self.ratio, remote.num_sequences, remote.pages.num_granted, remote.pages.num_owed

    # --- what it is worth ---------------------------------------------------------------------------------------------

    @property
    def num_blocks(self) -> int:
        """That may be filled at the receiver, as far as the ratio lets them; 0 where nothing may go there."""
        if not self._generation or self._blocks.remote.pages.num_owed:
            return 0
        num_granted = self._blocks.remote.num_free + self._blocks.remote.num_used
        return min(num_granted, self._most_over(self._blocks.num_usable_blocks))

    def num_admittable(self, num_local: int) -> int:
        """Typical requests that could lie at the receiver beside those that do, with ``num_local`` more at home.

        As far as its blocks go, and the ratio with those that run.
        """
        if not self.num_blocks:
            return 0
        over = self._over()
        num_home = len(self._roster.running) - len(over) + num_local
        num_wanted = self._most_over(num_home) - len(over)
        return max(0, min(num_wanted, self._admission.num_that_may_go_over(over)))

    def _most_over(self, number: int) -> int:
        """How much may be remote beside so much at home."""
        return sys.maxsize if self.ratio >= 1 else int(number * self.ratio / (1 - self.ratio))

    def _over(self) -> list[EngineRequest]:
        return [one for one in self._roster.running.values() if one.goes_over]

    # --- one step -----------------------------------------------------------------------------------------------------

    def call_back_wanted(self, step: Step, now: float) -> None:
        """While the receiver wants pages back, the newest that is remote comes home, even if others give way to it."""
        while self._blocks.remote.pages.num_owed:
            remote = [one for one in self._roster.running.values() if self._roster.is_remote(one)]
            if not remote or not self._call_back(max(remote, key=_order), step, now):
                return

    def call_home(self, request: EngineRequest, step: Step) -> None:
        """A request at the receiver comes home, if blocks are free here: none gives way for it."""
        if self._generation and self._roster.is_remote(request):
            (sequence,) = request.sequences
            if len(self._blocks.table(sequence.sequence_id)) <= self._blocks.num_free_blocks:
                self._bring_home(request, step)

    def make_room(self, step: Step, now: float) -> bool:
        """One remote request asks for a block, and there is none: the newest that the step does not compute yet comes
        home. False where the device has no room in this step."""
        remote = [one for one in self._roster.running.values() if self._roster.is_remote(one) and not _is_in(one, step)]
        return self._call_back(max(remote, key=_order), step, now)

    def send(self, step: Step) -> None:
        """What goes to the receiver with this step."""
        if not self._generation:
            return
        for request in self._roster.running.values():
            if not request.goes_over or self._roster.is_remote(request):
                continue
            (leader,) = request.sequences
            if request.is_prefill:
                step.sends += self._blocks.send_ahead(leader.sequence_id, leader.num_computed_tokens)
            elif self._blocks.can_send(leader.sequence_id):
                step.sends += self._blocks.send(leader.sequence_id)

    def choose(self, request: EngineRequest) -> None:
        """Decide whether a request that wants to begin shall lie at the receiver.

        Requests of several sequences stay: what these share, they copy before they write.
        """
        request.goes_over = self._shall_go(request)

    def settle(self) -> None:
        """The plan is made."""
        self._num_planned += 1
        self._return(self._blocks.settle())

    def drop_plan(self) -> None:
        """It was empty, and will not run: pages that wait for its end wait for that of the step before it."""
        self._num_planned -= 1
        if self._leaving and self._leaving[-1][0] > self._num_planned:
            self._return(self._leaving.pop()[1])

    def take_in(self, step: Step, plan: StepPlan, result: StepResult) -> None:
        """A step has run. What was behind the link may be lost: then it is computed again."""
        self._num_taken += 1
        if result.is_remote_lost:
            if plan.generation == self._generation:
                self.lose_all()
            for request in (*step.called_back, *step.remote_requests()):
                self._lose(request)
        else:
            for request in step.called_back:
                for sequence in request.sequences:
                    self._blocks.arrive(sequence.sequence_id)

    def end_step(self) -> None:
        """All that a step brought is taken in: the pages that it was the last to use go back."""
        self.collect_pages()
        while self._leaving and self._leaving[0][0] <= self._num_taken:
            self._returned += self._leaving.popleft()[1]

    def lose_all(self) -> None:
        """Whatever lies at the receiver is lost, and what of it steps in flight have moved since."""
        self._generation = 0
        for request in sorted(self._roster.running.values(), key=_order, reverse=True):
            if self._roster.is_remote(request):
                self._lose(request)
            else:
                request.goes_over = False
        self._blocks.remote.forget_ahead()
        self.collect_pages()

    def close(self) -> None:
        """There is no receiver any more."""
        self.lose_all()
        self._blocks.disconnect()
        self._leaving.clear()
        self._returned.clear()

    def _return(self, pages: list[int]) -> None:
        """Steps in flight may still read or write there: none of them is to find the page taken back."""
        if self._num_taken == self._num_planned:
            self._returned += pages
        elif pages:
            self._leaving.append((self._num_planned, pages))

    def _lose(self, request: EngineRequest) -> None:
        if self._roster.lose(request):
            self.num_lost += 1

    def _call_back(self, request: EngineRequest, step: Step, now: float) -> bool:
        """False where none is left on the device to give way."""
        (sequence,) = request.sequences
        while self._blocks.num_free_blocks < len(self._blocks.table(sequence.sequence_id)):
            if self._giving_way.make_room(now) is None:
                return False
        self._bring_home(request, step)
        return True

    def _bring_home(self, request: EngineRequest, step: Step) -> None:
        (sequence,) = request.sequences
        step.calls_back += self._blocks.call_back(sequence.sequence_id)
        step.called_back.append(request)
        request.goes_over = False

    def _shall_go(self, request: EngineRequest) -> bool:
        if not self._generation or request.num_places > 1 or request.sampling.is_beam:
            return False
        over = self._over()
        # the nearest to the share: those that stay come last, since one that leaves needs room here for its prompt, too
        if len(over) + 1 > int(self.ratio * (len(self._roster.running) + 1) + 0.5):
            return False
        return self._admission.may_go_over(request, over)


def _order(request: EngineRequest) -> int:
    return request.order


def _is_in(request: EngineRequest, step: Step) -> bool:
    return step.part(request.sequences[0].sequence_id) is not None
