"""Which running sequences have guessed tokens in a step, and whether steps in flight are worth waiting for.

A sequence with guesses in a step in flight is planned again when it is known which of them hold. Guesses take nothing
from others: they have budget and blocks that the rows of all that run leave, and give blocks back with the step.

A constrained sequence is guessed for by its language, each guess with the mask of what may follow it. Not guessed for
are beams, whose tokens are chosen together, and sequences at a receiver, or on the way there, which have one row.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator

from gpu_node.engine.border.model import LoadedModel
from gpu_node.engine.border.plan import MAX_STEP_DRAWS
from gpu_node.engine.measures.acceptance import AcceptanceRates
from gpu_node.engine.measures.kv_costs import KvCosts
from gpu_node.engine.requests.drafter import Drafter
from gpu_node.engine.requests.language_habits import LanguageHabits
from gpu_node.engine.requests.sequence import EngineRequest, Sequence
from gpu_node.engine.requests.structured_drafter import StructuredDrafter
from gpu_node.engine.steps.batch.roster import Roster
from gpu_node.engine.steps.batch.rows import wanted_rows
from gpu_node.engine.steps.batch.step import Guess
from gpu_node.engine.steps.guesses.draft_choice import DraftCandidate, PlainStep, choose_drafts
from shared.config.engines.engine import EngineOptions
from shared.messages.nodes.step_cost import StepCost
from shared.messages.requests.payload import Constraint, Sampling

MAX_LANGUAGES = 64
"""Languages whose habits are kept; those of the one that was asked for longest ago go."""

DraftTokens = dict[int, list[Guess]]
"""Guesses by sequence id."""


class Speculation:
    """Of one model. A step asks twice, so what cannot pay is left early."""

    def __init__(self, model: LoadedModel, options: EngineOptions, roster: Roster, costs: KvCosts) -> None:
        self._max_draft_tokens = model.max_draft_tokens
        self._step_tokens = options.step_tokens
        self._most_draws = MAX_STEP_DRAWS - options.max_num_seqs
        self._roster = roster
        self._costs = costs
        self._rates = AcceptanceRates()
        self._max_structured_tokens = model.max_structured_tokens
        self._structured_rates = AcceptanceRates()
        self._habits: OrderedDict[tuple[str, Constraint], LanguageHabits] = OrderedDict()

    def begin(self, request: EngineRequest) -> None:
        """A request has come."""
        sampling = request.sampling
        if sampling.is_beam or sampling.is_embedding or not self._most_of(sampling):
            return
        for sequence in request.sequences:
            copying = Drafter(self._rates) if self._max_draft_tokens else None
            sequence.drafter = copying
            if sampling.constraint is not None:
                assert sequence.matcher is not None
                habits = self._habits_of(request.payload.partition, sampling.constraint)
                sequence.drafter = StructuredDrafter(sequence.matcher, habits, self._structured_rates, copying)

    def _most_of(self, sampling: Sampling) -> int:
        """Guesses of a sequence in a step."""
        return self._max_draft_tokens if sampling.constraint is None else self._max_structured_tokens

    def _habits_of(self, partition: str, constraint: Constraint) -> LanguageHabits:
        """Of the language that it says; all requests for it in one partition share them, as they share KV."""
        language = partition, constraint
        habits = self._habits.setdefault(language, LanguageHabits())
        self._habits.move_to_end(language)
        if len(self._habits) > MAX_LANGUAGES:
            self._habits.popitem(last=False)
        return habits

    def choose(self) -> DraftTokens:
        """Guesses for the step that is drafted, before anything is in it."""
        able = self._guessed_for(num_unknown=0)
        counts = self._counts(able, num_unknown=0) if able else []
        wanted = [(sequence, count) for sequence, count in zip(able, counts, strict=False) if count]
        return dict(self._with_blocks(wanted)) if wanted else {}

    @property
    def is_worth_waiting(self) -> bool:
        """Whether guesses are expected to pay for planning the next step only when those in flight are known."""
        able = self._guessed_for(num_unknown=1)
        return bool(able) and any(self._counts(able, num_unknown=1))

    def _guessed_for(self, num_unknown: int) -> list[Sequence]:
        """Sequences that want their next row behind so many tokens in flight, for which there is a guess."""
        if not self._max_draft_tokens and not self._max_structured_tokens:
            return []
        return [
            one
            for request in self._roster.running.values()
            if request.is_forked and not request.goes_over and not self._roster.is_remote(request)
            for one in request.sequences
            if one.drafter is not None and one.drafter.has_guess
            if one.num_drawn_tokens == num_unknown and one.num_missing_tokens == 1
        ]

    def _counts(self, able: list[Sequence], num_unknown: int) -> list[int]:
        """How many guesses each shall have; the first ``num_unknown`` of them stand for tokens in flight."""
        cost = self._costs.step_cost
        if cost is None:
            return []
        num_draws, predicted_s = self._decoding(cost)
        costs = self._costs.drafts.of(num_draws, predicted_s)
        plain = PlainStep(num_draws, costs.plain_s, costs.wait_s)
        candidates = [self._candidate(one, costs.row_s, plain.worth(costs.row_s), num_unknown) for one in able]
        if not any(one.chances for one in candidates):
            return []
        most = min((self._step_tokens - num_draws) // 2, self._most_draws)  # prompts have the other half
        return choose_drafts(plain, candidates, max(0, most))

    def _decoding(self, cost: StepCost) -> tuple[int, float]:
        """How many sequences decode, and what their step is predicted to take.

        Prompts beside them are left out: their rows are worth what they cost.
        """
        num_draws = num_here = num_remote = 0
        for request in self._roster.running.values():
            if not request.is_forked:
                continue
            tokens = [len(one.token_ids) for one in request.sequences if one.num_missing_tokens == 1]
            num_draws += len(tokens)
            if self._roster.is_remote(request):
                num_remote += sum(tokens)
            else:
                num_here += sum(tokens)
        return num_draws, cost.predict_s(num_draws, num_here, num_here, num_remote)

    def _candidate(self, sequence: Sequence, row_s: float, least: float, num_unknown: int) -> DraftCandidate:
        """With the guesses that are ``least`` likely to be kept; less would not pay for a row of ``row_s``."""
        drafter = sequence.drafter
        assert drafter is not None
        # the last of a step's tokens is never guessed, and no more may come than there is room for
        most = self._max_draft_tokens if sequence.matcher is None else self._max_structured_tokens
        most = min(most, sequence.max_len - len(sequence.token_ids) - num_unknown - 1)
        if not num_unknown:
            return DraftCandidate(drafter.chances(most, least), row_s)
        *_, needed = 0.0, *drafter.chances(num_unknown)  # only where this holds are there rows
        return DraftCandidate(drafter.chances(num_unknown + most, least * needed)[num_unknown:], row_s * needed)

    def _with_blocks(self, wanted: Iterable[tuple[Sequence, int]]) -> Iterator[tuple[int, list[Guess]]]:
        """As far as blocks are free beside those that all running requests may take in this step."""
        blocks = self._roster.blocks
        num_spare = blocks.num_free_blocks
        for request in self._roster.running.values():
            if not self._roster.is_remote(request):
                rows = wanted_rows(request, self._step_tokens)
                num_spare -= sum(
                    blocks.num_new_blocks(one.sequence_id, one.num_computed_tokens, end) for one, end in rows
                )
        for sequence, most in wanted:
            assert sequence.drafter is not None
            begin, end = sequence.num_computed_tokens, sequence.num_computed_tokens + 1
            # of the row that it has anyway, then with each guess more
            nums_new = [blocks.num_new_blocks(sequence.sequence_id, begin, end + count) for count in range(most + 1)]
            count = max(count for count, num_new in enumerate(nums_new) if num_new - nums_new[0] <= max(0, num_spare))
            num_spare -= nums_new[count] - nums_new[0]
            if count:
                tokens = sequence.drafter.draft(sequence.token_ids, count)
                yield (
                    sequence.sequence_id,
                    [Guess(*one) for one in zip(tokens, sequence.drafter.masks(len(tokens)), strict=True)],
                )
