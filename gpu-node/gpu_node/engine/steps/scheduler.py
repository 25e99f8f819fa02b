"""Which tokens are computed next: continuous batching with chunked prefill, admission and preemption.

A step has a budget of tokens. Running decodes take theirs first, so that no client waits for another's prompt; running
prefills take chunks of what is left; then requests are admitted, first come first served, until places, budget or
predicted memory end. Steps so have nearly the same size (Sarathi-Serve, OSDI'24; NanoFlow, OSDI'25, §4.2.1).

Steps may be planned while others are in flight: a token that is not known yet is scheduled as `DRAWN`, and an end that
is seen a step late drops what was computed behind it. What hangs on an unknown token (beams, and masks that cannot come
late) is not scheduled.

A pure state machine: no clock, no tensors, no I/O. Plans are committed in the order in which they were made; `add` and
`abort` come any time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from gpu_node.engine.border.grammar import Grammar
from gpu_node.engine.border.model import LoadedModel
from gpu_node.engine.border.plan import StepPlan, StepResult
from gpu_node.engine.measures.cost_learner import CostLearner
from gpu_node.engine.measures.counts import Counts, SumOfCounts
from gpu_node.engine.measures.kv_costs import KvCosts
from gpu_node.engine.memory.block_manager import BlockManager
from gpu_node.engine.requests.chunk import OutputChunk
from gpu_node.engine.requests.image import RequestState
from gpu_node.engine.requests.sequence import EngineRequest
from gpu_node.engine.steps.admission.decisions import Decisions, decisions
from gpu_node.engine.steps.admission.preemption import PreemptionPolicy
from gpu_node.engine.steps.advance import RowAdvance
from gpu_node.engine.steps.batch.arrival import Arrival
from gpu_node.engine.steps.batch.resumption import HeldState, held_state, prompt_blocks
from gpu_node.engine.steps.batch.roster import MAX_STEPS_IN_FLIGHT, Roster
from gpu_node.engine.steps.batch.step import Step
from gpu_node.engine.steps.batch.step_counts import StepCounts
from gpu_node.engine.steps.giving_way import GivingWay
from gpu_node.engine.steps.guesses.draft import RowDraft
from gpu_node.engine.steps.guesses.speculation import Speculation
from gpu_node.engine.steps.intake import WaitingLine
from gpu_node.engine.steps.outcome import StepOutcome
from gpu_node.engine.steps.residence import Residences
from gpu_node.engine.steps.row_order import RowOrder
from shared.config.engines.engine import EngineOptions
from shared.files.encoder import step_rows
from shared.messages.nodes.step_cost import DecodeYield
from shared.messages.requests.payload import Payload

Decide = Callable[[LoadedModel, BlockManager, EngineOptions, KvCosts], Decisions]


class Scheduler:
    """The requests of one loaded model, waiting or running, and the blocks that they hold."""

    def __init__(
        self,
        model: LoadedModel,
        options: EngineOptions,
        policy: PreemptionPolicy | None = None,
        blocks: BlockManager | None = None,
        costs: KvCosts | None = None,
        decide: Decide = decisions,
        *,
        has_late_masks: bool = False,
    ) -> None:
        """``blocks`` are those of the model; by default it has all memory for itself.

        ``costs`` are what decisions are made by, where they ask for costs. ``decide`` makes the decisions' rules; with
        a ``policy``, its own is in the place of the one of these about preemption. With ``has_late_masks``, constrained
        sequences go on behind tokens that are not known yet, and the caller asks for `late_masks`.
        """
        self.blocks = blocks or BlockManager.alone(
            model.num_blocks,
            model.block_size,
            model.name,
            model.num_host_blocks,
            caches_in_host=options.tiers.host_bytes > 0,
            swap_copies=options.swap_copies,
        )
        self._model = model
        self._options = options
        self._step_rows = step_rows(options, is_encoder=model.is_encoder)
        costs = costs or KvCosts(options, model.block_bytes, CostLearner())
        made = decide(model, self.blocks, options, costs)
        self._decisions = made if policy is None else replace(made, preemption=policy)
        self._roster = Roster(self.blocks)
        self._arrival = Arrival(model, options, self._roster.sequence_ids, has_late_masks=has_late_masks)
        self._draft = RowDraft(self._roster)
        self._giving_way = GivingWay(self._roster, self._decisions)
        self.residences = Residences(self._roster, self._decisions.admission, self._giving_way)
        self._intake = WaitingLine(
            options, self._roster, self._draft, self._decisions, self.residences, takes_whole_texts=model.is_encoder
        )
        self._advance = RowAdvance(self._roster, self._draft, self._giving_way, self.residences)
        self._rows = RowOrder(options, self._roster, self._advance, self._intake)
        self._speculation = Speculation(model, options, self._roster, costs)
        self._outcome = StepOutcome(model, self._roster, made.admission)
        self._step_counts = StepCounts(model)
        self._sum_of_counts = SumOfCounts()
        self._undated: list[EngineRequest] = []

    # --- requests come and go -----------------------------------------------------------------------------------------

    @property
    def has_work(self) -> bool:
        """Whether there are requests."""
        return bool(self._roster.requests)

    @property
    def num_running(self) -> int:
        """Requests that hold blocks."""
        return len(self._roster.running)

    @property
    def num_waiting(self) -> int:
        """Requests that wait for admission, the preempted ones included."""
        return len(self._roster.waiting)

    @property
    def parked(self) -> list[str]:
        """Requests that wait to go on from an image."""
        return [request.request_id for request in self._roster.waiting if request.parked is not None]

    @property
    def counts(self) -> Counts:
        """Since it began."""
        moved = self._giving_way.counts, self._intake.counts
        return self._sum_of_counts.of(self._step_counts.counts, *moved, self._outcome.counts)

    @property
    def decode_yield(self) -> DecodeYield | None:
        """Of a sequence in a step, where tokens are guessed and enough has been seen."""
        return self._outcome.yields.decode

    @property
    def num_preemptions(self) -> int:
        """How often a request gave way because memory ran out."""
        return self._giving_way.counts.num_preemptions

    @property
    def num_admittable(self) -> int:
        """How many more requests can be expected to run at once; the agent pulls no more than this.

        Where some may lie at a receiver, those that wait take what is at home or there, in their turn.
        """
        admission, running, waiting = self._decisions.admission, self._roster.running.values(), self._roster.waiting
        if not self.residences.num_blocks:
            return admission.num_admittable(running, waiting)
        num_local = admission.num_admittable(running, ())
        num_fit = num_local + self.residences.num_admittable(num_local)
        num_places = self._options.max_num_seqs - self._roster.num_taken_places
        return max(0, min(num_fit, num_places) - sum(request.num_places for request in waiting))

    @property
    def adapters(self) -> set[str]:
        """Those that its requests are for."""
        return {one.payload.adapter for one in self._roster.requests.values() if one.payload.adapter}

    def num_expected_blocks(self, *nums_more: int) -> list[int]:
        """KV blocks that its requests are predicted to take on the device at once, beside so many typical ones."""
        running, waiting = self._roster.running.values(), self._roster.waiting
        return self._decisions.admission.num_expected_blocks(running, waiting, nums_more)

    def attempt_of(self, request_id: str) -> int | None:
        """The attempt of a request that is here, or None."""
        request = self._roster.requests.get(request_id)
        return None if request is None else request.payload.attempt

    def leading_tokens(self, request_id: str) -> list[int]:
        """Tokens of the sequence that computes first of a request that is here, those of its output so far included."""
        return self._roster.requests[request_id].sequences[0].token_ids

    def add(
        self, payload: Payload, state: RequestState | None = None, grammar: Grammar | None = None
    ) -> list[OutputChunk]:
        """Queue a request. What ends at once is told: a request that can never run, choices that were complete.

        With the ``state`` of its image, in this format, it goes on from there. The image is to be kept until a plan
        restores it (`StepPlan.restores`) or the request is gone. A constrained request comes with its ``grammar``.
        """
        assert payload.request_id not in self._roster.requests
        request, chunks = self._arrival.take(payload, state, grammar)
        if request is not None:
            self._speculation.begin(request)
            self._queue(request)
            if state is None:
                self._decisions.admission.on_arrival(request)
        return chunks

    def _queue(self, request: EngineRequest) -> None:
        request.first_enqueued_s = request.payload.enqueued_s
        if not request.first_enqueued_s:
            self._undated.append(request)
        self._roster.add(request)

    def held_state(self, request_id: str) -> HeldState | None:
        """What an image of a request has to keep, to be followed by `abort`. None where nothing is computed of it.

        No step may be in flight, and the request waits for no image.
        """
        assert not self._roster.steps
        request = self._roster.requests[request_id]
        assert request.parked is None
        return held_state(request, self.blocks, self._model)

    def prompt_blocks(self, request_id: str) -> tuple[Sequence[int], int]:
        """As `gpu_node.engine.steps.batch.resumption.prompt_blocks`, of a request that is here."""
        request = self._roster.requests[request_id]
        return prompt_blocks(request, self.blocks) if request.parked is None else ((), 0)

    def abort(self, request_id: str) -> bool:
        """Forget a request and free its blocks; False if it is not here. Results that are still due are dropped."""
        request = self._roster.requests.get(request_id)
        if request is None:
            return False
        self._roster.remove(request)
        self.blocks.arrivals.forget(request_id)
        self.residences.collect_pages()
        return True

    def reset(self) -> int:
        """Forget all requests; returns how many there were. Cached prefixes stay."""
        requests = list(self._roster.requests.values())
        for request in requests:
            self._roster.remove(request)
        self.residences.collect_pages()
        return len(requests)

    def renew(self, model: LoadedModel) -> None:
        """The model has other adapters from now on, all that are asked for here among them. No step is in flight.

        What has been computed stays: each request goes on under its adapter's new number.
        """
        assert not self._roster.steps
        self._model = model
        self._arrival.renew(model)
        for request in self._roster.requests.values():
            request.adapter = model.number_of(request.payload.adapter)

    # --- one step -----------------------------------------------------------------------------------------------------

    def schedule(self, now: float) -> StepPlan:
        """Plan the next step at time ``now``: Unix time in seconds, or any other in which payloads say when they came.

        Empty when nothing can be planned: there is no request, or what follows hangs on steps in flight. Any other plan
        is in flight until it is committed; `MAX_STEPS_IN_FLIGHT` may be.
        """
        roster = self._roster
        assert len(roster.steps) < MAX_STEPS_IN_FLIGHT, "the oldest step is to be committed first"
        step = Step(self._step_rows)
        step.draft_tokens = self._speculation.choose()
        roster.steps.append(step)
        self._date(now)
        num_preemptions = self.num_preemptions
        self.residences.call_back_wanted(step, now)
        if self.num_preemptions > num_preemptions:
            self._advance.all(self._roster.running.values(), step, now)  # no new request begins
        else:
            self.residences.send(step)
            self._rows.schedule(step, now)
        plan = self._sealed(step)
        if plan.sequences:
            self._step_counts.take_way(plan.num_tokens)
        return plan

    @property
    def is_worth_waiting(self) -> bool:
        """Whether the next plan had better know what steps in flight draw: guesses are expected to pay behind that."""
        return self._speculation.is_worth_waiting

    def call_home(self, request_ids: Iterable[str]) -> StepPlan:
        """A step in which nothing is computed: of these requests, those that lie at a receiver come home.

        As far as there is room. To be committed like any other, unless it is empty. No step is in flight.
        """
        roster = self._roster
        assert not roster.steps
        step = Step(0)
        roster.steps.append(step)
        for request_id in request_ids:
            if request_id in roster.running:
                self.residences.call_home(roster.running[request_id], step)
        return self._sealed(step)

    def _sealed(self, step: Step) -> StepPlan:
        self.residences.settle()
        step.swaps_out += self.blocks.moves_due()
        self._step_counts.take_swaps(step)
        step.copies_out += self.blocks.copies_out()
        plan = step.seal(self.residences.generation)
        if plan.is_empty:
            self._roster.steps.pop()
            self.residences.drop_plan()
        return plan

    def _date(self, now: float) -> None:
        """A request that does not say when it came first has come now."""
        for request in self._undated:
            request.first_enqueued_s = now
        self._undated.clear()

    def commit(self, plan: StepPlan, result: StepResult) -> list[OutputChunk]:
        """Take in what the oldest step in flight computed; returns new tokens and ends.

        Requests and sequences that left meanwhile are skipped.
        """
        step = self._roster.steps[0]
        assert step.plan is plan, "steps are committed in their order"
        self.residences.take_in(step, plan, result)
        chunks: list[OutputChunk] = []
        for part in step.parts():
            sequence = part.sequence
            if step.part(sequence.sequence_id) is None:
                continue  # a part before it has ended its request
            if part.scheduled is not None and not self._model.is_encoder:
                self.blocks.publish(sequence.sequence_id, sequence.token_ids, part.end)
            if part.draws:
                chunks += self._outcome.take(part, result)
        self.blocks.end(plan)
        self._roster.steps.popleft()
        self.residences.end_step()
        return chunks

    def late_masks(self, plan: StepPlan) -> dict[int, bytes]:
        """As `LateMasks` takes them, of the step that is committed next: all tokens before its draws are known."""
        step = self._roster.steps[0]
        assert step.plan is plan
        return step.masks()

    def check(self) -> None:
        """Assert that the books balance. O(requests + blocks)."""
        self._roster.check()
        assert self._roster.num_taken_places <= self._options.max_num_seqs
