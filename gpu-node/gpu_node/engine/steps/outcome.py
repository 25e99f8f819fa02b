"""What a step brought: tokens join their sequences, sequences and requests end, beams are chosen."""

from __future__ import annotations

from gpu_node.engine.border.model import LoadedModel
from gpu_node.engine.border.plan import StepResult
from gpu_node.engine.requests.beams import Hypothesis, score
from gpu_node.engine.requests.choices import embedding_chunk, error_chunk, ranked_chunks, token_chunk
from gpu_node.engine.requests.chunk import OutputChunk
from gpu_node.engine.requests.ends import finish_reason
from gpu_node.engine.requests.sequence import EngineRequest, Sequence
from gpu_node.engine.steps.admission import KvAdmission
from gpu_node.engine.steps.beam_search import BeamSearch
from gpu_node.engine.steps.roster import Roster


class StepOutcome:
    """Takes results into the roster and says what clients hear of them."""

    def __init__(self, model: LoadedModel, roster: Roster, admission: KvAdmission) -> None:
        self._model = model
        self._roster = roster
        self._admission = admission
        self._beam_search = BeamSearch(model, roster)

    def take(self, request: EngineRequest, sequence: Sequence, result: StepResult) -> list[OutputChunk]:
        """Take in the draw of one sequence, or the error in its place, which ends the request."""
        position = sequence.num_output_tokens
        error = result.errors.get(sequence.sequence_id, "")
        if error:
            self._roster.remove(request)
            return [error_chunk(request.payload, error, sequence.choice, position)]
        if request.sampling.is_beam:
            return self._take_continuations(request, sequence, result)
        if request.sampling.is_embedding:
            self._admission.on_finish(1)  # as which it counts
            self._roster.end(request, sequence)
            return [embedding_chunk(request, sequence, result.embeddings[sequence.sequence_id])]
        token_id = result.token_ids[sequence.sequence_id]
        sequence.num_drawn_tokens -= 1
        sequence.token_ids.append(token_id)
        if sequence.matcher is not None:
            sequence.matcher.take(token_id)
            if sequence.matcher.error:
                self._roster.remove(request)
                return [error_chunk(request.payload, sequence.matcher.error, sequence.choice, position)]
        reason = finish_reason(sequence, request.sampling, self._model)
        if request.sampling.is_ranked:
            return self._take_candidate(request, sequence, result, reason)
        chunks = [token_chunk(request, sequence, result.logprobs.get(sequence.sequence_id), reason)]
        if reason:
            self._end(request, sequence)
        return chunks

    def _take_candidate(
        self, request: EngineRequest, sequence: Sequence, result: StepResult, reason: str
    ) -> list[OutputChunk]:
        """A token of a candidate: nobody hears of it before the last of the request has ended."""
        logprob = result.logprobs[sequence.sequence_id]
        sequence.logprobs.append(logprob)
        sequence.sum_logprobs += logprob.logprob
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
