"""What a step brought: tokens join their sequences, sequences and requests end, beams are chosen."""

from __future__ import annotations

from gpu_node.engine.border.model import LoadedModel
from gpu_node.engine.border.plan import StepResult
from gpu_node.engine.measures.counts import Counts
from gpu_node.engine.measures.yield_learner import YieldLearner
from gpu_node.engine.requests.beams import Hypothesis, score
from gpu_node.engine.requests.choices import embedding_chunk, error_chunk, ranked_chunks, token_chunk
from gpu_node.engine.requests.chunk import OutputChunk
from gpu_node.engine.requests.ends import finish_reason
from gpu_node.engine.requests.sequence import EngineRequest, Sequence
from gpu_node.engine.steps.admission.admission import KvAdmission
from gpu_node.engine.steps.batch.roster import Roster
from gpu_node.engine.steps.batch.step import StepPart
from gpu_node.engine.steps.beam_search import BeamSearch
from shared.messages.requests.token_logprob import TokenLogprob


class StepOutcome:
    """Takes results into the roster and says what clients hear of them."""

    def __init__(self, model: LoadedModel, roster: Roster, admission: KvAdmission) -> None:
        self._model = model
        self._roster = roster
        self._admission = admission
        self._beam_search = BeamSearch(model, roster)
        self.counts = Counts()
        self.yields = YieldLearner()
        """Of a model for which tokens are guessed; of others it sees nothing."""

    def take(self, part: StepPart, result: StepResult) -> list[OutputChunk]:
        """Take in what was drawn for one sequence, or the error in its place, which ends the request."""
        request, sequence = part.request, part.sequence
        if error := result.errors.get(sequence.sequence_id, ""):
            return [self._error(request, sequence, error)]
        if request.sampling.is_beam:
            return self._take_continuations(request, sequence, result)
        if request.sampling.is_embedding:
            self._admission.on_finish(1)  # as which it counts
            self._roster.end(request, sequence)
            return [embedding_chunk(request, sequence, result.embeddings[sequence.sequence_id])]
        return self._take_tokens(part, result)

    def _take_tokens(self, part: StepPart, result: StepResult) -> list[OutputChunk]:
        """One token, and one more for each guess that holds, up to the end that one of them may be."""
        request, sequence = part.request, part.sequence
        drawn_ids = part.drawn_ids(result)
        start, error, reason = sequence.num_output_tokens, "", ""
        logprobs: list[TokenLogprob] = []
        sequence.num_drawn_tokens -= 1
        for draw_id in drawn_ids:
            if error := result.errors.get(draw_id, ""):
                break
            sequence.token_ids.append(result.token_ids[draw_id])
            logprobs += [result.logprobs[draw_id]] if draw_id in result.logprobs else []
            if sequence.matcher is not None:
                sequence.matcher.take(sequence.token_ids[-1])
                if error := sequence.matcher.error:
                    sequence.token_ids.pop()  # it is not told
                    del logprobs[sequence.num_output_tokens - start :]
                    break
            if sequence.drafter is not None:
                sequence.drafter.take(sequence.token_ids)
            if reason := finish_reason(sequence, request.sampling, self._model):
                break
        if start and (self._model.max_draft_tokens or self._model.max_structured_tokens):
            self.yields.observe(1 + len(part.draft_token_ids), sequence.num_output_tokens - start)
        self._settle_guesses(part, len(drawn_ids) - 1, sequence.num_output_tokens - start)
        chunks = self._told(request, sequence, logprobs, start, reason)
        return [*chunks, self._error(request, sequence, error)] if error else chunks

    def _settle_guesses(self, part: StepPart, num_held: int, num_taken: int) -> None:
        """So many guesses hold, and are computed, of which an end may leave some out; what others had is free."""
        if not part.draft_token_ids:
            return
        sequence, blocks = part.sequence, self._roster.blocks
        num_guessed, num_kept = len(part.draft_token_ids), min(num_held, num_taken)
        self.counts += Counts(num_draft_tokens=num_guessed, num_accepted_tokens=num_kept)
        if sequence.matcher is not None:
            self.counts += Counts(num_structured_drafts=num_guessed, num_structured_accepted=num_kept)
        sequence.num_draft_tokens = 0
        sequence.num_computed_tokens = part.end + num_held
        num_known = min(sequence.num_computed_tokens, len(sequence.token_ids))
        blocks.publish(sequence.sequence_id, sequence.token_ids, num_known)
        blocks.trim(sequence.sequence_id, num_known)

    def _told(
        self, request: EngineRequest, sequence: Sequence, logprobs: list[TokenLogprob], start: int, reason: str
    ) -> list[OutputChunk]:
        """What is heard of a sequence's tokens from ``start`` on; with a ``reason``, it ends."""
        if request.sampling.is_ranked:
            return self._take_candidate(request, sequence, logprobs, reason)
        chunks = [token_chunk(request, sequence, logprobs, start, reason)] if sequence.num_output_tokens > start else []
        if reason:
            self._end(request, sequence)
        return chunks

    def _error(self, request: EngineRequest, sequence: Sequence, error: str) -> OutputChunk:
        """The request is over with it, behind the sequence's tokens."""
        self._roster.remove(request)
        return error_chunk(request.payload, error, sequence.choice, sequence.num_output_tokens)

    def _take_candidate(
        self, request: EngineRequest, sequence: Sequence, logprobs: list[TokenLogprob], reason: str
    ) -> list[OutputChunk]:
        """Tokens of a candidate: they are not told before the last of the request has ended."""
        sequence.logprobs += logprobs
        for one in logprobs:  # one by one: a sum's bits hang on its order
            sequence.sum_logprobs += one.logprob
        if not reason:
            return []
        output = sequence.token_ids[sequence.num_prompt_tokens :]
        value = score(sequence.sum_logprobs, len(output), request.sampling.length_penalty)
        request.hypotheses.append(Hypothesis(value, output, sequence.logprobs, reason))
        self._end(request, sequence)
        return [] if request.sequences else ranked_chunks(request)

    def _take_continuations(self, request: EngineRequest, beam: Sequence, result: StepResult) -> list[OutputChunk]:
        """Keep what may follow a beam; when all beams of the request know theirs, choose among them."""
        beam.continuations = result.logprobs[beam.sequence_id].top
        if not all(one.continuations for one in request.sequences):
            return []
        num_output_tokens = beam.num_output_tokens + 1
        if not self._beam_search.advance(request):
            return []
        self._admission.on_finish(num_output_tokens)
        self._roster.remove(request)
        return ranked_chunks(request)

    def _end(self, request: EngineRequest, sequence: Sequence) -> None:
        self._admission.on_finish(sequence.num_output_tokens)
        self._roster.end(request, sequence)
