"""Beams as sequences that share blocks: which end, which go on, which fork and which fall out."""

from __future__ import annotations

from gpu_node.engine.border.model import LoadedModel
from gpu_node.engine.requests.beams import (
    Continuation,
    Hypothesis,
    best,
    best_score,
    choose,
    continuations,
    is_over,
    score,
)
from gpu_node.engine.requests.ends import stops
from gpu_node.engine.requests.sequence import EngineRequest, Sequence
from gpu_node.engine.steps.batch.roster import Roster
from shared.messages.requests.token_logprob import TokenLogprob


class BeamSearch:
    """Moves the beams of a request on by a token, once all of them know what may follow."""

    def __init__(self, model: LoadedModel, roster: Roster) -> None:
        self._model = model
        self._roster = roster

    def advance(self, request: EngineRequest) -> bool:
        """Choose among the continuations of all beams; True when the search is over."""
        beams, width = request.sequences, request.sampling.num_candidates
        ranked = continuations([(beam.sum_logprobs, beam.continuations) for beam in beams])
        # beams are all of one length, so they come to their limit together
        is_full = len(beams[0].token_ids) + 1 >= beams[0].max_len
        ended, going = choose(ranked, width, lambda one: is_full or self._stops(request, one))
        found = [_hypothesis(request, one, "stop" if self._stops(request, one) else "length") for one in ended]
        request.hypotheses = best([*request.hypotheses, *found], width)
        if not going or is_over(request.hypotheses, width, _best_possible_score(request, going[0])):
            return True
        self._go_on(request, going)
        return False

    def _stops(self, request: EngineRequest, one: Continuation) -> bool:
        return stops(one.token_id, request.sampling, self._model)

    def _go_on(self, request: EngineRequest, going: list[Continuation]) -> None:
        """The first continuation of a beam goes on in its place, the others fork it; beams with none fall out."""
        parents = request.sequences
        beams: list[Sequence] = []
        for one in going:
            parent = parents[one.beam]
            beams.append(self._roster.fork_beam(parent) if parent in beams else parent)
        for parent in parents:
            if parent not in beams:
                self._roster.drop(parent)
        request.sequences = beams
        for beam, one in zip(beams, going, strict=True):
            beam.logprobs.append(_logprob(request, beam, one))
            beam.token_ids.append(one.token_id)
            beam.sum_logprobs = one.sum_logprobs
            beam.continuations = ()
            beam.num_drawn_tokens = 0


def _best_possible_score(request: EngineRequest, likeliest: Continuation) -> float:
    beam, penalty = request.sequences[0], request.sampling.length_penalty
    num_tokens, max_tokens = beam.num_output_tokens + 1, beam.max_len - beam.num_prompt_tokens
    return best_score(likeliest.sum_logprobs, num_tokens, max_tokens, penalty)


def _hypothesis(request: EngineRequest, one: Continuation, reason: str) -> Hypothesis:
    beam = request.sequences[one.beam]
    output = [*beam.token_ids[beam.num_prompt_tokens :], one.token_id]
    value = score(one.sum_logprobs, len(output), request.sampling.length_penalty)
    return Hypothesis(value, output, [*beam.logprobs, _logprob(request, beam, one)], reason)


def _logprob(request: EngineRequest, beam: Sequence, one: Continuation) -> TokenLogprob:
    """Of the token that continues ``beam``, with as many of the likeliest beside it as the client asks for."""
    return TokenLogprob(one.logprob, list(beam.continuations[: request.sampling.num_logprobs or 0]))
